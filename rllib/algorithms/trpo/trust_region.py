"""Natural gradient steps within a trust region: TRPO's policy step (Schulman et al., arXiv:1502.05477, appendix C)."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rllib.config.conflicts import Unfit
from rllib.policy import Policy
from rllib.sample_batch import ACTION_DIST_INPUTS, ACTION_LOGP, ACTIONS, ADVANTAGES, OBS

# The squared residual at which the conjugate gradients have found the direction.
RESIDUAL = 1e-10


@dataclass(frozen=True)
class TrustRegionSettings:
    """Settings of the search for a step.

    Attributes:
        cg_iterations: most iterations of the conjugate gradients.
        cg_damping: added to the diagonal of the Hessian.
        line_search_steps: lengths that are tried.
        line_search_shrink: of a length to the one before.
        kl_subsampling: the Hessian is that of every n-th row.
    """

    cg_iterations: int = 15
    cg_damping: float = 0.1
    line_search_steps: int = 10
    line_search_shrink: float = 0.8
    kl_subsampling: int = 1


class TrustRegion:
    """Steps of a policy's weights, in place, that improve the surrogate and keep the mean KL(old || new) in a limit.

    Weights of the value have no part in it: their gradient is zero.

    Args:
        policy: without a memory; policy and value share no weights.
        settings: how a step is found.
        observations: [n, ...] some as stored, which show whether policy and value share weights.

    Raises:
        ValueError: if the policy has a memory, or shares weights with the value.
    """

    def __init__(self, policy: Policy, settings: TrustRegionSettings, observations: np.ndarray):
        if policy.state_size:
            raise ValueError(
                "a trust region is computed over single rows, but the policy has a memory. Use PPO, or a model "
                "without use_lstm, use_gru and use_attention."
            )
        self._policy, self._settings = policy, settings
        self._distribution = policy.distribution
        self._module = policy.spec.masked_torch(policy.layout, torch.from_numpy(policy.weights), policy.network)
        self._leaves = self._module.leaves
        self._check_separate(observations)

    def _check_separate(self, observations: np.ndarray) -> None:
        outputs = self._module(self._encoded(observations))
        if not len(outputs[1]):
            return
        of_policy, of_value = (
            torch.autograd.grad(each.sum(), self._leaves, retain_graph=True, materialize_grads=True) for each in outputs
        )
        if any(((mine != 0) & (others != 0)).any() for mine, others in zip(of_policy, of_value)):
            is_built_in = self._policy.spec.architecture.is_built_in
            advice = (
                'Use .training(model={"vf_share_layers": False}).'
                if is_built_in
                else "Let the custom model compute its value by layers of their own, whose parameters the policy does "
                "not use; vf_share_layers does not change it."
            )
            raise Unfit(
                "policy and value share layers, so that fitting the value would move the policy out of its trust "
                "region.",
                advice,
                {"model": {"vf_share_layers": False} if is_built_in else {"custom_model": None}},
            )

    def _encoded(self, observations: np.ndarray) -> Tensor:
        return torch.from_numpy(np.require(self._policy.encode(observations), requirements="W"))

    def step(self, batch: Mapping[str, np.ndarray], target_kl: float, entropy_coeff: float = 0.0) -> dict[str, float]:
        """Takes one step on a batch that these weights have sampled.

        Args:
            batch: obs [B, ...], actions [B, ...], action_logp [B], action_dist_inputs [B, K], advantages [B].
            target_kl: limit of the mean KL(old || new) (nats).
            entropy_coeff: weight of the entropy in the surrogate.

        Returns:
            policy_loss, the negative surrogate before the step; entropy, before it; surrogate_gain; kl, of the step
            (nats); line_search_steps, the lengths that were tried; step_taken, 1.0, or 0.0 where no length improved the
            surrogate within the limit and the weights stay; policy_gnorm, the length of the surrogate's gradient.
        """
        columns = {name: torch.from_numpy(np.require(batch[name], requirements="W")) for name in _COLUMNS}
        columns[OBS] = self._encoded(batch[OBS])
        surrogate, entropy = self._surrogate(columns, entropy_coeff)
        gradient = _flat(torch.autograd.grad(surrogate, self._leaves, materialize_grads=True))
        some = {name: column[:: self._settings.kl_subsampling] for name, column in columns.items()}
        times_hessian = self._hessian(some)
        direction = conjugate_gradients(times_hessian, gradient, self._settings.cg_iterations)
        curvature = float(direction @ times_hessian(direction))
        before = float(surrogate.detach())
        result = {"policy_loss": -before, "entropy": float(entropy), "policy_gnorm": float(gradient.norm())}
        if not (curvature > 0 and math.isfinite(curvature)):  # the gradient is zero
            return {**result, "surrogate_gain": 0.0, "kl": 0.0, "line_search_steps": 0.0, "step_taken": 0.0}
        whole = direction * math.sqrt(2 * target_kl / curvature)
        return result | self._searched(columns, whole, target_kl, before, entropy_coeff)

    def _surrogate(self, columns: Mapping[str, Tensor], entropy_coeff: float) -> tuple[Tensor, Tensor]:
        """mean(ratio advantage) + entropy_coeff mean(entropy), and mean(entropy)."""
        now = self._distribution.torch_at(self._module(columns[OBS])[0])
        ratio = (now.log_prob(columns[ACTIONS]) - columns[ACTION_LOGP]).exp()
        entropy = now.entropy().mean()
        return (ratio * columns[ADVANTAGES]).mean() + entropy_coeff * entropy, entropy.detach()

    def _divergence(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Mean KL(old || new)."""
        now = self._distribution.torch_at(self._module(columns[OBS])[0])
        return now.kl_from(columns[ACTION_DIST_INPUTS]).mean()

    def _hessian(self, columns: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        """The product of a vector with the damped Hessian of the mean KL, by two passes backwards."""
        divergence = self._divergence(columns)
        slope = _flat(torch.autograd.grad(divergence, self._leaves, create_graph=True, materialize_grads=True))

        def times(vector: Tensor) -> Tensor:
            if not slope.requires_grad:
                return self._settings.cg_damping * vector
            second = torch.autograd.grad(slope @ vector, self._leaves, retain_graph=True, materialize_grads=True)
            return _flat(second) + self._settings.cg_damping * vector

        return times

    @torch.no_grad()
    def _searched(
        self, columns: Mapping[str, Tensor], whole: Tensor, target_kl: float, before: float, entropy_coeff: float
    ) -> dict[str, float]:
        """Takes the longest part of a step that improves the surrogate within the limit."""
        starts = [leaf.clone() for leaf in self._leaves]
        parts = [part.view(leaf.shape) for part, leaf in zip(whole.split([s.numel() for s in starts]), self._leaves)]
        for number in range(self._settings.line_search_steps):
            length = self._settings.line_search_shrink**number
            for leaf, start, part in zip(self._leaves, starts, parts):
                leaf.copy_(start + length * part)
            gain, kl = float(self._surrogate(columns, entropy_coeff)[0]) - before, float(self._divergence(columns))
            if gain > 0 and kl <= target_kl:
                return {"surrogate_gain": gain, "kl": kl, "line_search_steps": number + 1.0, "step_taken": 1.0}
        for leaf, start in zip(self._leaves, starts):
            leaf.copy_(start)
        tried = float(self._settings.line_search_steps)
        return {"surrogate_gain": 0.0, "kl": 0.0, "line_search_steps": tried, "step_taken": 0.0}


_COLUMNS = ACTIONS, ACTION_LOGP, ACTION_DIST_INPUTS, ADVANTAGES


def conjugate_gradients(times: Callable[[Tensor], Tensor], goal: Tensor, iterations: int) -> Tensor:
    """The solution x of A x = goal for a positive definite A, given as its product with a vector.

    Hestenes and Stiefel, J. Res. Natl. Bur. Stand. 49 (1952), page 409; it begins at zero.

    Args:
        times: vector [n] -> A vector [n].
        goal: [n].
        iterations: at most; fewer where the squared residual falls below RESIDUAL.
    """
    found, residual = torch.zeros_like(goal), goal.clone()
    towards, square = residual.clone(), residual @ residual
    for _ in range(iterations):
        if square < RESIDUAL:
            break
        product = times(towards)
        length = square / (towards @ product)
        found += length * towards
        residual -= length * product
        square, before = residual @ residual, square
        towards = residual + square / before * towards
    return found


def _flat(tensors) -> Tensor:
    return torch.cat([each.reshape(-1) for each in tensors])
