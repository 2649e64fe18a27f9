"""Columns of values, advantages and targets, which workers compute for on-policy algorithms."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rllib import sample_batch as sb
from rllib.evaluation.postprocess.base import Postprocess
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.losses.returns import gae, q_lambda_targets, standardized, torch_gae
from rllib.losses.vtrace import vtrace_of_rows
from rllib.policy import Policy
from rllib.sample_batch import Column, SampleBatch


@dataclass(frozen=True)
class AdvantageEstimator(Postprocess):
    """Generalized advantage estimation over one fragment (arXiv:1506.02438).

    Where the value has separate layers, the values of all T * N observations come from one batched forward pass when
    the fragment is full. Where it shares them with the policy, acting has given the values as well.

    Args:
        gamma: discount per step.
        lambda_: GAE's lambda; 1 when use_gae is False (discounted returns minus the baseline).
        use_gae: see lambda_.
        use_critic: False: advantages are the discounted returns within the fragment, without a bootstrap value.
        every_final_observation: fragments keep the final observations of terminated episodes as well.
    """

    gamma: float
    lambda_: float = 1.0
    use_gae: bool = True
    use_critic: bool = True
    every_final_observation: bool = False

    takes_tensors = True
    columns = tuple(map(Column, (sb.VF_PREDS, sb.ADVANTAGES, sb.VALUE_TARGETS)))

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills the three columns above."""
        if self.use_critic:
            values, next_values = bootstrap_values(fragment, policy.values)
        else:
            values = next_values = np.zeros_like(fragment[sb.REWARDS])
        advantages, targets = gae(
            fragment[sb.REWARDS],
            values,
            next_values,
            fragment[sb.TERMINATEDS],
            fragment[sb.TRUNCATEDS],
            self.gamma,
            self.lambda_ if self.use_gae else 1.0,
        )
        fragment[sb.VF_PREDS][:] = values
        fragment[sb.ADVANTAGES][:] = advantages
        fragment[sb.VALUE_TARGETS][:] = targets

    def of_tensors(self, columns: dict, next_values) -> None:
        """Writes the three columns for tensors [T, N].

        Args:
            columns: of a TensorRolloutWorker's fragment; vf_preds are the values computed when acting.
            next_values: [T, N], values of the next observations; of the final one where an episode was truncated.
        """
        values = columns[sb.VF_PREDS]
        if not self.use_critic:
            values, next_values = values.zero_(), next_values.zero_()
        columns[sb.ADVANTAGES], columns[sb.VALUE_TARGETS] = torch_gae(
            columns[sb.REWARDS],
            values,
            next_values,
            columns[sb.TERMINATEDS],
            columns[sb.TRUNCATEDS],
            self.gamma,
            self.lambda_ if self.use_gae else 1.0,
        )


class RecomputedAdvantages:
    """GAE of a train batch by the newest values, recomputed for each epoch (arXiv:2006.05990, section 3.5).

    Args:
        sequences: rows environment by environment, with those to bootstrap from (Fragment.to_sequences).
        policy: computes the values.
        gamma: discount per step.
        lambda_: GAE's lambda.
        standardize: gives the advantages mean 0 and standard deviation 1.

    Intrinsic advantages that the sequences have are added to them.

    Attributes:
        steps: the rows that are steps of an environment, for the learner.
    """

    def __init__(self, sequences: SampleBatch, policy: Policy, gamma: float, lambda_: float, standardize: bool):
        self._sequences, self._policy = sequences, policy
        self._gamma, self._lambda, self._standardize = gamma, lambda_, standardize
        self.steps = sequences.rows(sequences[sb.LOSS_MASK])
        self.steps.update(self())

    def __call__(self) -> dict[str, np.ndarray]:
        """The columns advantages and value_targets of `steps`, by the policy as it is now."""
        sequences = self._sequences
        values = self._policy.values(sequences[sb.OBS])
        # On the policy's own actions V-trace's targets are GAE plus the value.
        on_policy = np.zeros_like(values)
        targets, _ = vtrace_of_rows(on_policy, values, sequences, gamma=self._gamma, lambda_=self._lambda)
        is_step = sequences[sb.LOSS_MASK]
        targets, values = targets[is_step], values[is_step]
        advantages = targets - values
        if sb.INTRINSIC_ADVANTAGES in sequences:
            advantages += sequences[sb.INTRINSIC_ADVANTAGES][is_step]
        if self._standardize:
            advantages = standardized(advantages)
        return {sb.ADVANTAGES: advantages, sb.VALUE_TARGETS: targets}


@dataclass(frozen=True)
class QLambda(Postprocess):
    """A postprocess that fills td_targets by the values of the weights that acted, without a target network.

    The values of the observations, vf_preds, come from acting, where it computes them.

    Args:
        gamma: discount per step.
        lambda_: how far a target looks before it bootstraps.
    """

    gamma: float
    lambda_: float

    columns = (Column(sb.VF_PREDS, (), "float32"), Column(sb.TD_TARGETS, (), "float32"))
    without_memory = "QLambda computes the values of a fragment's observations without their states"

    def __call__(self, fragment: Fragment, policy: Policy) -> None:
        """Fills both columns."""

        def greedy_values(observations: np.ndarray) -> np.ndarray:
            return policy.distribution.best(policy.dist_inputs(observations))

        fragment[sb.VF_PREDS][:], next_values = bootstrap_values(fragment, greedy_values)
        fragment[sb.TD_TARGETS][:] = q_lambda_targets(
            fragment[sb.REWARDS],
            next_values,
            fragment[sb.TERMINATEDS],
            fragment[sb.TRUNCATEDS],
            self.gamma,
            self.lambda_,
        )


def bootstrap_values(
    fragment: Fragment, values_of: Callable[[np.ndarray], np.ndarray], from_acting: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """V(o_t) and V(o_{t+1}), [T, N] each; after an episode's end the latter is of the true final observation.

    Where the fragment asks for it, values are computed environment by environment: matrix products round otherwise for
    other numbers of rows, and an environment's values must not depend on how many others its worker has.

    Args:
        fragment: a full one; values that it has are not computed again. They are zero, or anything, for observations
            that no transition needs.
        values_of: values [B] of observations [B, *shape] as stored, and of states [B, size] where there is a memory;
            acting has then given the others.
        from_acting: whether acting may have given these values; False: they are not the policy's.
    """
    observations, states = fragment.observations, fragment.columns.get(sb.STATE_IN)
    values = np.zeros(observations.shape[:2], np.float32)
    known = fragment.num_steps if fragment.has_values and from_acting else 0
    if known:
        values[:known] = fragment[sb.VF_PREDS]
    if fragment.by_environment:
        for i, steps in enumerate(_steps_to_value(fragment, known)):
            rows = observations[steps, i]
            if len(rows):
                state = () if states is None else (states[steps, i],)
                values[steps, i] = values_of(rows, *state)
    else:
        rows = observations[known:]
        state = () if states is None else (states[-1],)
        values[known:] = values_of(rows.reshape(-1, *rows.shape[2:]), *state).reshape(rows.shape[:2])
    next_values = values[1:]
    if fragment.final_observations:
        next_values = next_values.copy()
        steps, environments, finals = zip(*fragment.final_observations, strict=True)
        if fragment.by_environment:
            state = [()] * len(finals) if states is None else [(each[None],) for each in fragment.final_states]
            final_values = np.concatenate([values_of(final[None], *own) for final, own in zip(finals, state)])
        else:
            state = () if states is None else (np.stack(fragment.final_states),)
            final_values = values_of(np.stack(finals), *state)
        next_values[list(steps), list(environments)] = final_values
    return values[:-1], next_values


def _steps_to_value(fragment: Fragment, known: int) -> list[slice | np.ndarray]:
    """By environment the steps, from `known` on, whose observations are acted upon or bootstrapped from."""
    ends = fragment[sb.TERMINATEDS] | fragment[sb.TRUNCATEDS]
    if fragment.valid is None:
        return [slice(known, fragment.num_steps + (not ended)) for ended in ends[-1].tolist()]
    is_needed = np.zeros((fragment.num_steps + 1, fragment.num_envs), bool)
    is_needed[:-1] = fragment.valid
    is_needed[1:] |= fragment.valid & ~ends
    return [known + np.flatnonzero(column) for column in is_needed[known:].T]
