"""Objectives of a learner, and the flat vector of the modules that it trains."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.loss import Loss, LossOverModules, checked_loss
from rllib.policy import Policy

CLIP_MODES = ("global_norm", "norm", "value")
POLICY = "policy"
ADAM = OptimizerSettings()


@dataclass(frozen=True)
class Objective:
    """A loss, the modules that it trains, and their optimizer.

    Attributes:
        loss: loss of the policy's outputs (losses/loss.py: Loss), or over several modules (LossOverModules).
        moves: names of the modules that are trained; no gradient with respect to others is computed.
        name: prefix of its statistics, settings and state in a learner with several objectives.
        optimizer: name and constants of the optimizer.
        grad_clip: limit of the gradient; None clips nothing.
        grad_clip_by: "global_norm", "norm" (each parameter on its own) or "value".

    Raises:
        ValueError: for an unknown choice, or a number out of range.
    """

    loss: Loss | LossOverModules
    moves: tuple[str, ...] = (POLICY,)
    name: str = POLICY
    optimizer: OptimizerSettings = ADAM
    grad_clip: float | None = None
    grad_clip_by: str = "global_norm"

    def __post_init__(self):
        checked_loss(self.loss)
        if self.grad_clip_by not in CLIP_MODES:
            raise ValueError(f"grad_clip_by must be one of {CLIP_MODES}, but got {self.grad_clip_by!r}")
        if self.grad_clip is not None and not self.grad_clip > 0:
            raise ValueError(f"grad_clip must be positive, or None for no clipping, but got {self.grad_clip!r}")

    @property
    def is_over_modules(self) -> bool:
        """Whether the loss calls the modules itself, instead of getting the policy's outputs."""
        return isinstance(self.loss, LossOverModules)

    @property
    def has_closed_form(self) -> bool:
        """Whether the loss offers its gradient in numpy."""
        return self.loss.numpy is not None

    @property
    def row_stats(self) -> tuple[str, ...]:
        """Names of the loss's row statistics."""
        return self.loss.row_stats


def widths_of(policy: Policy) -> dict[str, int]:
    """Sizes of the inputs that a further module can read: "observation", "action" -> number of values."""
    widths = {}
    if policy.spec.torso is None:
        widths["observation"] = policy.spec.encoder.size
    if policy.action_dtype == np.float32:
        widths["action"] = math.prod(policy.action_shape)
    return widths


class ModuleVector:
    """The modules that a learner trains on one flat vector: each is a contiguous slice, the policy's network the first.

    A module with `shares_torso` has its convolutions in the same memory as the policy: then its slice comes first, and
    the policy's slice begins within it. Only the objective of that module trains the convolutions.

    Args:
        policy: its weights move into the vector if there are further modules.
        modules: name -> description of each further module (models/modules.py).
        rng: draws their weights.

    Attributes:
        flat: the vector, float32; without further modules the policy's weights.
        layouts: name -> layout of the module's parameters in its slice.
        slices: name -> the module's slice of the vector.
        moved: name -> the part of this slice that objectives train.

    Raises:
        ValueError: if a module shares convolutions that the policy does not have.
    """

    def __init__(self, policy: Policy, modules: Mapping = {}, rng: np.random.Generator | None = None):
        self.policy = policy
        self.modules, widths = dict(modules), widths_of(policy)
        self.layouts = {POLICY: policy.layout} | {name: each.layout(widths) for name, each in self.modules.items()}
        self.slices, self.moved = self._places()
        self.flat = policy.weights
        if self.modules:
            self.flat = np.zeros(max(part.stop for part in self.slices.values()), np.float32)
            for name, module in self.modules.items():
                module.initialize(self.layouts[name], self[name], rng or np.random.default_rng())
            # Last, since shared convolutions keep the policy's weights.
            policy.move_into(self[POLICY])

    def initialize(self, policy_rng: np.random.Generator, rng: np.random.Generator) -> None:
        """Draws all weights again, in place: the policy's by `policy_rng`, those of further modules by `rng`."""
        for name, module in self.modules.items():
            module.initialize(self.layouts[name], self[name], rng)
        # Last, since shared convolutions keep the policy's weights.
        self.policy.spec.initialize(self.policy.layout, self[POLICY], policy_rng)

    @property
    def shares_torso(self) -> bool:
        """Whether a module shares the memory of the policy's convolutions, and trains them."""
        return self.slices[POLICY].start != self.moved[POLICY].start

    def _places(self) -> tuple[dict[str, slice], dict[str, slice]]:
        """`slices` and `moved`. Shared convolutions are a module's last parameters, and the policy's first."""
        sharing = [name for name, each in self.modules.items() if getattr(each, "shares_torso", False)]
        shared = self._shared_size(*sharing) if sharing else 0
        places, moved, stop = {}, {}, 0
        for name in dict.fromkeys((*sharing, *self.layouts)):
            start, stop = stop, stop + self.layouts[name].size - (shared if name == POLICY else 0)
            places[name] = slice(start, stop)
            moved[name] = slice(start, stop - self.layouts[name].num_fixed)
        policy = places[POLICY]
        return {**places, POLICY: slice(policy.start - shared, policy.stop)}, moved

    def _shared_size(self, name: str) -> int:
        """Number of parameters of the convolutions that this module shares with the policy."""
        if self.modules[name].torso != self.policy.spec.torso:
            raise ValueError(
                f"the module {name!r} has shares_torso=True, but other convolutions than the policy. Give it the torso "
                "of the policy's spec, or shares_torso=False."
            )
        return self.layouts[name].encoder.size

    def __getitem__(self, name: str) -> np.ndarray:
        """The module's weights: a view of the vector."""
        return self.flat[self.slices[name]]

    def named_parameters(self, name: str, flat: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Parameter name -> view of the module's weights, or of `flat` instead, such as a target copy's weights."""
        return self.layouts[name].named_parameters(self[name] if flat is None else flat)

    def names_where(self, bad: np.ndarray) -> list[str]:
        """Names of the parameters in which `bad`, bool of the vector's size, is true somewhere."""
        found = []
        for name, part in self.slices.items():
            named = self.named_parameters(name, bad[part])
            prefix = "" if name == POLICY else f"{name}."
            found += [prefix + parameter for parameter, where in named.items() if where.any()]
        return found
