"""Critics written by users, by one plain contract: q_model_config={"custom_model": Net, "custom_model_config": {...}}.

    Net(observation_space, action_space, num_outputs, **custom_model_config)   a torch.nn.Module
    forward(observation, action) -> values [B, num_outputs]

The observation comes in the form of its space (structure.py), the action as float32 [B, *shape] in [-1, 1], which spans
the bounds of the action space. Several critics are several instances, each with the weights that its constructor draws.
Where critics give the values of all Discrete actions, forward(observation) has no action, and num_outputs is their
number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rllib.models.dense.in_torch import FlatModule
from rllib.models.observations.encoders import Encoder
from rllib.models.observations.structure import Structure, sampled_rows
from rllib.models.tensors import decoded, encoded
from rllib.models.user.module import TorchLayout
from rllib.models.user.user_model import Probe, fixed_generator, made, name_of


@dataclass(frozen=True)
class UserCritics:
    """Describes critics that are instances of a user's module (models/modules.py says what a module has).

    Losses call them with the inputs `reads`; results as of FullyConnected.

    Attributes:
        model: makes a critic; see above.
        config: its keyword arguments.
        observation_space, action_space: spaces of the environment.
        encoder: encoder of the policy; its observations come back in the form of their space.
        filtered: an observation filter has made floats of the observations' numbers.
        reads: ("observation", "action"), or "observation" alone.
        num_outputs: numbers that a critic computes for a row; None: one, and results are [B] instead of [B, 1].
        copies: number of critics, whose results are stacked.
    """

    model: Callable[..., nn.Module]
    config: Mapping[str, Any]
    observation_space: spaces.Space
    action_space: spaces.Space
    encoder: Encoder
    filtered: bool = False
    reads: tuple[str, ...] = ("observation", "action")
    num_outputs: int | None = None
    copies: int = 1

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"critic {name_of(self.model)}"

    def make(self) -> nn.ModuleList:
        """Makes the critics, with the weights that their constructor draws.

        Raises:
            TypeError: if one is no torch.nn.Module; what the constructor raises is passed on with a note.
        """
        outputs = self.num_outputs or 1

        def construct() -> nn.Module:
            return self.model(self.observation_space, self.action_space, outputs, **self.config)

        return nn.ModuleList(made(construct, self.name, outputs, self.config) for _ in range(self.copies))

    def layout(self, widths: Mapping[str, int]) -> TorchLayout:
        """Layout of the parameters, critic after critic; it does not depend on `widths`."""
        with fixed_generator():
            return TorchLayout(self.make)

    def initialize(self, layout: TorchLayout, weights: np.ndarray, rng: np.random.Generator) -> None:
        """Fills the weights as the constructor draws them, one critic after the other."""
        layout.initialize(weights, rng)

    def torch(self, layout: TorchLayout, flat: Tensor) -> FlatModule:
        return FlatModule(self.called_by_rows().to(flat.device), flat)

    def called_by_rows(self) -> "CriticsCalledByRows":
        """Makes critics that are called with encoded rows; their buffers are the same in each process."""
        structure, dtype = Structure(self.observation_space, filtered=self.filtered), None
        if isinstance(self.observation_space, spaces.Box) and not self.filtered:
            # Encoding has made floats of the numbers of a Box; those of other spaces get their dtype as parts.
            dtype = torch.from_numpy(sampled_rows(self.observation_space, 1, filtered=False)).dtype
        with fixed_generator():
            critics = self.make()
        shape = self.action_space.shape if "action" in self.reads else None

        def read(rows: Tensor):
            stored = decoded(self.encoder, rows)
            return structure.of_rows(stored if dtype is None else stored.to(dtype))

        return CriticsCalledByRows(critics, read, shape, self.num_outputs is None)

    def check(self) -> None:
        """Raises a ValueError with advice if the module breaks the contract; tries it with made-up observations."""
        CriticsProbe(self).run()


class CriticsCalledByRows(nn.ModuleList):
    """Calls critics with encoded rows and flat actions.

    Args:
        critics: as the contract describes them.
        read: (rows as a learner's minibatch has them) -> the observation in the form of its space.
        action_shape: shape of one action; None: critics read observations alone.
        single: results, of one output, have no axis of outputs.
    """

    def __init__(self, critics: nn.ModuleList, read: Callable, action_shape: tuple[int, ...] | None, single: bool):
        super().__init__(critics)
        self.read, self._action_shape, self._single = read, action_shape, single

    def forward(self, rows: Tensor, *actions: Tensor) -> Tensor:
        """Values [critics, B, num_outputs], or [critics, B] of single ones.

        Args:
            rows: observations, encoded.
            actions: [B, ...], one tensor, where critics read them.
        """
        values = torch.stack(self.outputs(rows, *actions))
        return values[..., 0] if self._single else values

    def outputs(self, rows: Tensor, *actions: Tensor) -> list[Tensor]:
        """Results of each critic, as it returns them."""
        observation = self.read(rows)
        read = [action.reshape(len(rows), *self._action_shape) for action in actions]
        return [critic(observation, *read) for critic in self]


class CriticsProbe(Probe):
    """Calls critics with made-up observations and actions, and checks what comes back.

    Args:
        critics: the description.
    """

    def __init__(self, critics: UserCritics):
        self.name, self.num_outputs = critics.name, critics.num_outputs or 1
        self.observation_space = critics.observation_space
        self.module = self.called = critics.called_by_rows()
        rows = torch.from_numpy(sampled_rows(critics.observation_space, self.num_rows, critics.filtered))
        self.rows = encoded(critics.encoder, rows)
        self.actions: list[Tensor] = []
        if "action" in critics.reads:
            rng = np.random.default_rng(0)
            drawn = rng.uniform(-1, 1, (self.num_rows, *critics.action_space.shape)).astype(np.float32)
            self.actions = [torch.from_numpy(drawn)]

    def run(self) -> None:
        super().run()
        self.check_gradients()

    def check_parameters(self) -> None:
        super().check_parameters()
        for critic in self.module:
            if hasattr(critic, "initial_state") or hasattr(critic, "get_initial_state"):
                raise self.problem(
                    "it has a memory, but rows of the replay are single steps. Leave initial_state() out, and add what "
                    "is to be remembered to the observations."
                )

    def outputs(self, count: int) -> list[Tensor]:
        """Results of the first critic for `count` rows; raises a ValueError if their form is wrong."""
        given = [self.rows[:count], *(action[:count] for action in self.actions)]
        with self.noting_inputs(count, [self.called.read(given[0]), *given[1:]]), torch.no_grad():
            returned = self.called.outputs(*given)
        for values in returned:
            self.check_tensor("values", values, (count, self.num_outputs), "num_outputs numbers for each row")
        return returned

    def check_gradients(self) -> None:
        """Raises a ValueError where an actor could not climb the values."""
        for action in self.actions:
            moved = action.clone().requires_grad_()
            values = torch.stack(self.called.outputs(self.rows, moved))
            slope = torch.autograd.grad(values.sum(), moved, allow_unused=True)[0] if values.requires_grad else None
            if slope is None or not slope.isfinite().all():
                raise self.problem(
                    "its values have no finite gradient with respect to the action, by which the actor learns. Compute "
                    "them from the action in torch, without detach() or torch.no_grad()."
                )
