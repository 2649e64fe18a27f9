"""Policies whose network is a user's TorchRLModule: its dicts of tensors as the inputs and outputs of a policy here.

Acting calls `forward_exploration`, learning `forward_train`, which may compute more; with `explore=False` the most
probable action is taken. All three passes have to give the same distribution of actions. A module with a memory gets a
time axis: one step of it in acting, whole sequences, padded to the longest, in learning.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rllib.core.columns import Columns
from rllib.core.modules.action_distribution import is_that_of
from rllib.models.dense.in_torch import FlatModule, first_columns
from rllib.models.dense.layout import Layout
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.observations.structure import Structure
from rllib.models.user.user_model import CalledByRows, Probe, UserModelSpec, are_close


@dataclass(frozen=True)
class ModulePolicySpec(UserModelSpec):
    """The architecture of a network that is a TorchRLModule; `config` is the module's model_config."""

    @staticmethod
    def acts_by_hand(model: Any) -> bool:
        """Whether a class has no parameters, so that its objects act and do not learn (acting_module.py)."""
        return isinstance(model, type) and not issubclass(model, nn.Module)

    def construct(self, num_outputs: int) -> nn.Module:
        if self.acts_by_hand(self.model):
            raise TypeError(
                f"{self.network_name} is no torch.nn.Module, and cannot learn. Derive it from rllib.core.TorchRLModule."
                " An RLModule that returns actions is for one of several agents' policies: MultiRLModuleSpec("
                "rl_module_specs={policy_id: RLModuleSpec(module_class=...)})."
            )
        return self.model(
            observation_space=self.observation_space,
            action_space=self.action_space,
            inference_only=False,
            learner_only=False,
            model_config=dict(self.config),
            catalog_class=None,
        )

    def make(self, spec: NetworkSpec) -> nn.Module:
        module = super().make(spec)
        module.action_distribution = spec.distribution
        return module

    def initial_state_of(self, module: nn.Module) -> list[Tensor]:
        return [torch.as_tensor(part) for part in leaves(module.get_initial_state())]

    def called(self, module: nn.Module, structure: Structure, has_values: bool) -> "CalledModule":
        return CalledModule(module, structure, self.state_shapes, has_values)

    def torch(self, spec: NetworkSpec, layout: Layout, flat: Tensor, acting) -> FlatModule:
        module: nn.Module = self.called_by_rows(spec)
        module.phase = "exploration" if acting is None else "train"
        if self.state_shapes:
            module = Sequences(module, spec.encoder.size)
        return FlatModule(module.to(flat.device), flat)

    def check(self, spec: NetworkSpec) -> None:
        super().check(spec)
        _check_passes(spec)
        _check_distribution(spec)


class CalledModule(CalledByRows):
    """Calls a TorchRLModule with stored rows and flat states.

    Args:
        module, structure, state_shapes, has_values: as for CalledByRows.

    Attributes:
        phase: "train", "exploration" or "inference": which forward pass of the module computes.
    """

    def __init__(self, module: nn.Module, structure: Structure, state_shapes: tuple, has_values: bool):
        super().__init__(module, structure, state_shapes, has_values)
        self.phase = "train"
        self._initial = module.get_initial_state()

    def outputs(self, rows: Tensor, state: list[Tensor] | None = None) -> tuple:
        if state is None:
            return self._computed(ModuleBatch({Columns.OBS: self.structure.of_rows(rows)}))
        dist_inputs, values, following = self.of_sequences(rows[:, None], state)
        return dist_inputs[:, 0], values[:, 0], following

    def of_sequences(self, rows: Tensor, state: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Distribution inputs [S, T, K], values [S, T] and the states after T steps, of sequences of stored rows."""
        count, steps = rows.shape[:2]
        observation = mapped(
            lambda leaf: leaf.reshape(count, steps, *leaf.shape[1:]), self.structure.of_rows(rows.flatten(0, 1))
        )
        batch = ModuleBatch({Columns.OBS: observation, Columns.STATE_IN: filled(self._initial, iter(state))})
        return self._computed(batch)

    def _computed(self, batch: "ModuleBatch") -> tuple:
        """Distribution inputs, values where they are read, and next states where there is a memory."""
        with_state = Columns.STATE_IN in batch
        if not self.has_values and hasattr(self.module, "compute_q_values"):
            dist_inputs = self.module.compute_q_values(batch)
            dist_inputs = dist_inputs["qf_preds"] if isinstance(dist_inputs, Mapping) else dist_inputs
            return (dist_inputs,)
        found = getattr(self.module, f"forward_{self.phase}")(batch)
        self._check(found, with_state)
        dist_inputs = found[Columns.ACTION_DIST_INPUTS]
        values = self._values(batch, found) if self.has_values else dist_inputs.new_zeros(dist_inputs.shape[:-1])
        if not with_state:
            return (dist_inputs, values) if self.has_values else (dist_inputs,)
        return dist_inputs, values, leaves(found[Columns.STATE_OUT])

    def _values(self, batch: "ModuleBatch", found: Mapping) -> Tensor:
        if hasattr(self.module, "compute_values"):
            return self.module.compute_values(batch, embeddings=found.get(Columns.EMBEDDINGS))
        if Columns.VF_PREDS in found:
            return found[Columns.VF_PREDS]
        raise ValueError(
            f"{type(self.module).__name__} has no values, which this algorithm needs. Derive it from ValueFunctionAPI "
            "as well, and define compute_values(self, batch, embeddings=None), which returns a tensor [B]."
        )

    def _check(self, found: Any, with_state: bool) -> None:
        name, method = type(self.module).__name__, f"_forward_{self.phase}"
        if not isinstance(found, Mapping):
            raise ValueError(f"{name}.{method} must return a dict, but returned {found!r:.80}")
        if Columns.ACTION_DIST_INPUTS not in found:
            advice = (
                " Actions are drawn here from the distribution of the action space, or from that of model="
                "{'custom_action_dist': ...} (docs/guide/networks.md)."
                if Columns.ACTIONS in found
                else ""
            )
            raise ValueError(
                f"{name}.{method} must return {Columns.ACTION_DIST_INPUTS!r}, but returned {sorted(found)}.{advice}"
            )
        if with_state and Columns.STATE_OUT not in found:
            raise ValueError(
                f"{name} has an initial state, so {method} must return {Columns.STATE_OUT!r}, but returned "
                f"{sorted(found)}"
            )


class ModuleBatch(dict):
    """The batch of a module: observations, and states of a memory; a missing column is refused with the way."""

    def __missing__(self, column: str):
        raise KeyError(
            f"the batch of a forward pass has {', '.join(self)}, but no {column!r}. What a loss reads of a train batch "
            "is in the `batch` of compute_loss_for_module (docs/start/from_rllib.md); the previous action comes by the "
            "connector PrevActionsPrevRewards."
        )


class Sequences(nn.Module):
    """Calls a module once for all sequences of a batch, padded to the longest.

    Args:
        step: calls the module for one step, and by `of_sequences` for several.
        width: numbers in an observation.
    """

    def __init__(self, step: CalledModule, width: int):
        super().__init__()
        self.step, self.width = step, width

    def forward(self, inputs: Tensor, seq_lens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution inputs [B, K] and values [B].

        Args:
            inputs: [B, ...] observations in sequences, one behind the other.
            seq_lens: int [S], lengths of the sequences.
            state: [S, state_size] before each.
        """
        observations, longest = first_columns(inputs, self.width), int(seq_lens.max())
        starts = seq_lens.cumsum(0) - seq_lens
        steps = torch.arange(longest, device=seq_lens.device)
        is_step = steps < seq_lens[:, None]
        places = torch.where(is_step, starts[:, None] + steps, starts[:, None])
        padded = observations[places.flatten()].reshape(*places.shape, *observations.shape[1:])
        dist_inputs, values, _ = self.step.of_sequences(padded, self.step.as_list(state))
        return dist_inputs[is_step], values[is_step]


def _check_passes(spec: NetworkSpec) -> None:
    """Raises a ValueError if a module acts by another distribution than it learns by."""
    probe = Probe(spec)
    learned = probe.outputs(probe.num_rows)[:1]
    for phase in ("exploration", "inference"):
        probe.called.phase = phase
        if not are_close(learned, probe.outputs(probe.num_rows)[:1]):
            raise probe.problem(
                f"_forward_{phase} gives other action_dist_inputs than _forward_train, but the learner's probabilities "
                "must be those that actions are drawn with; without exploration the most probable action is taken. "
                "Compute them alike, and explore by exploration_config."
            )


_DISTRIBUTIONS = ("get_inference_action_dist_cls", "get_exploration_action_dist_cls", "get_train_action_dist_cls")


def _check_distribution(spec: NetworkSpec) -> None:
    """Raises a ValueError if a module names another action distribution than the policy's, which nothing would read."""
    probe = Probe(spec)
    kind = type(probe.module)
    named = {"action_dist_cls": getattr(probe.module, "action_dist_cls", None)}
    for name in _DISTRIBUTIONS:
        if getattr(kind, name).__module__ != "rllib.core.modules.rl_module":
            named[name] = getattr(probe.module, name)()
    own = [name for name, each in named.items() if each is not None and not is_that_of(each, spec.distribution)]
    if own:
        raise probe.problem(
            f"its {own[0]} names its own action distribution. Use model={{'custom_action_dist': MyDistribution}}"
            ", a class as docs/guide/networks.md describes it, with the rl_module_spec."
        )


# ---------------------------------------------------------------------- nested dicts, lists and tuples of tensors


def leaves(tree: Any) -> list:
    """The leaves of nested dicts, lists and tuples, in their order; None has none."""
    if tree is None:
        return []
    if isinstance(tree, Mapping):
        return [leaf for key in tree for leaf in leaves(tree[key])]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def mapped(function, tree: Any) -> Any:
    """The same structure with function(leaf) instead of each leaf."""
    return filled(tree, map(function, leaves(tree)))


def filled(tree: Any, values: Iterator) -> Any:
    """The same structure with the next of `values` instead of each leaf."""
    if isinstance(tree, Mapping):
        return {key: filled(part, values) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(filled(part, values) for part in tree)
    return next(values)
