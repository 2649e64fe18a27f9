"""The mirror loss of symmetric bodies (Yu, Turk and Liu, arXiv:1801.08093, equation 4).

Psi_s mirrors an observation and Psi_a an action: left and right legs are exchanged. A policy is symmetric if it does
the mirrored thing in the mirrored state, so with a(s) as its mean action

    J = mean over rows of  |a(s) - Psi_a(a(Psi_s(s)))|^2

Gradients flow through both terms, as in the paper, which sums over the rows and has weight 4; rsl_rl's mirror loss
takes the mean over the numbers of an action, and no gradient through the second term. Of choices, a(s) is the vector of
their probabilities.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Self

from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.standard import Categorical, DiagGaussian, Distribution
from rllib.sample_batch import OBS

FORM = (
    "{'observation': MIRROR, 'action': MIRROR}, where MIRROR is a function of tensors [B, n], or "
    "{'permutation': [1, 0], 'signs': [1, -1]}, by which number i of the mirrored vector is signs[i] times number "
    "permutation[i]"
)


@dataclass(frozen=True)
class SignedPermutation:
    """A mirror that exchanges numbers of a vector, or turns their signs.

    Attributes:
        permutation: for each number of the mirrored vector, the index of the number that takes its place.
        signs: 1 or -1 for each number of the mirrored vector.
    """

    permutation: tuple[int, ...]
    signs: tuple[float, ...]
    # Device -> both as tensors: to make them again would copy them there in each step.
    _tensors: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __call__(self, rows):
        """The mirrored vectors [B, n] of a tensor [B, n]."""
        key = rows.device, rows.dtype
        if key not in self._tensors:
            self._tensors[key] = rows.new_tensor(self.permutation).long(), rows.new_tensor(self.signs)
        indices, signs = self._tensors[key]
        return rows.index_select(-1, indices) * signs


@dataclass(frozen=True)
class MirrorLoss:
    """The loss, as the function of an auxiliary loss (auxiliary.py).

    Attributes:
        observation: Psi_s, of what the network reads: flat observations [B, n], filtered where there is a filter.
        action: Psi_a, of mean actions [B, n] in the units of the policy, or of probabilities.
        distribution: distribution of the policy's actions; `of_policy` sets it.
    """

    observation: Callable
    action: Callable
    distribution: Distribution | None = None

    @classmethod
    def from_setting(cls, given: Any) -> Self:
        """The loss of a setting in the form FORM.

        Raises:
            ValueError: for anything else.
        """
        if not isinstance(given, Mapping) or set(given) != {"observation", "action"}:
            raise ValueError(f"must be {FORM}, but got {given!r:.200}")
        return cls(*(_mirror(name, given[name]) for name in ("observation", "action")))

    def of_policy(self, spec: NetworkSpec) -> Self:
        """The loss for a policy with this description.

        Raises:
            ValueError: if it cannot be mirrored, or vectors have other lengths than its own.
        """
        distribution = spec.distribution
        if spec.torso is not None or spec.state_shapes or spec.is_masked or spec.encoder.as_stored:
            raise ValueError(
                "mirrors the flat observations of fully connected networks without a memory, masks or a custom model. "
                "Give a loss function of your own for others"
            )
        if isinstance(distribution, DiagGaussian):
            size = distribution.size
        elif isinstance(distribution, Categorical):
            size = distribution.num_actions
            if isinstance(self.action, SignedPermutation) and min(self.action.signs) < 0:
                raise ValueError("mirrors the probabilities of choices, whose signs must all be 1")
        else:
            raise ValueError(f"mirrors actions of one Box or Discrete space, not of {type(distribution).__name__}")
        for name, mirror, count in (("observation", self.observation, spec.num_inputs), ("action", self.action, size)):
            if isinstance(mirror, SignedPermutation) and len(mirror.permutation) != count:
                raise ValueError(
                    f"has {len(mirror.permutation)} numbers in the permutation of the {name}, but the policy {count}"
                )
        return dataclasses.replace(self, distribution=distribution)

    def __call__(self, minibatch: Mapping, outputs, model) -> Any:
        """The loss, a scalar tensor; arguments as for any auxiliary loss."""
        import torch

        rows = minibatch[OBS]  # each with a closing 1, for biases
        mirrored = torch.cat([self.observation(rows[:, :-1]), rows[:, -1:]], 1)
        other = self.distribution.torch_at(model(mirrored)[0])
        return (_mean_action(outputs.distribution) - self.action(_mean_action(other))).square().sum(-1).mean()


def _mean_action(batch):
    """Means [B, n] of Gaussians, or probabilities [B, n] of choices."""
    return batch.mean if hasattr(batch, "mean") else batch.probabilities


def _mirror(name: str, given: Any) -> Callable:
    if callable(given):
        return given
    if not isinstance(given, Mapping) or set(given) != {"permutation", "signs"}:
        raise ValueError(f"has for the {name} {given!r:.100}, but must be {FORM}")
    permutation, signs = given["permutation"], given["signs"]
    are_indices = isinstance(permutation, Sequence) and all(isinstance(each, Integral) for each in permutation)
    if not are_indices or sorted(permutation) != list(range(len(permutation))):
        raise ValueError(f"has for the {name} permutation={permutation!r:.100}: it must hold each of 0 ... n - 1 once")
    are_signs = isinstance(signs, Sequence) and all(isinstance(each, Real) and abs(each) == 1 for each in signs)
    if not are_signs or len(signs) != len(permutation):
        raise ValueError(f"has for the {name} signs={signs!r:.100}, which must be 1 or -1 for each number")
    for index, source in enumerate(permutation):
        if permutation[source] != index or signs[source] != signs[index]:
            raise ValueError(
                f"has for the {name} a map that, applied twice, does not give number {index} back. A mirror exchanges "
                "pairs, with equal signs of the two"
            )
    return SignedPermutation(tuple(permutation), tuple(map(float, signs)))
