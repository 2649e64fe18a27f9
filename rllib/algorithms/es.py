"""Evolution strategies (Salimans et al., arXiv:1703.03864, algorithm 2).

Each direction is tried with both signs, the returns of all 2n episodes are ranked together (centred ranks, ties
averaged), and Adam ascends sum (u+ - u-) eps / (2 n sigma), less the gradient of an L2 penalty.

Departures from the paper and from Ray:
- the policy is deterministic: the most probable action, or the mean (plus `action_noise_std` in training);
- the gradient has its 1 / sigma, which Ray leaves to Adam's scale; `l2_coeff` is the penalty's relative to the ranked
  return itself, so Ray's same number acts 1 / sigma times as strongly there;
- observations are normalised by statistics that stand still during an iteration, and a share of the episodes,
  `filter_update_prob`, adds to them (the paper's code: 0.01; Ray: all);
- the reported rewards are of theta itself, without any noise: for each training episode `eval_prob` such episodes are
  played, and the means are over the last `report_length` of them (Ray: over iterations).
"""

from typing import Annotated, Literal, Self

import numpy as np

from rllib.algorithms.families.evolution import Evolution, EvolutionConfig
from rllib.config.sections import above, at_least, section
from rllib.learners.updates.optimizers import Adam
from rllib.losses.evolution import centred_ranks, es_coefficients


class ESConfig(EvolutionConfig):
    """Settings of ES; the defaults are RLlib's, except those in default_differences.py."""

    @section
    def rollouts(self, *, num_rollout_workers=10) -> Self: ...

    @section
    def training(
        self,
        *,
        stepsize: Annotated[float | list, "step size of Adam, or a schedule", above(0, finite=True)] = 0.01,
        action_noise_std=0.01,
        l2_coeff: Annotated[float, "coefficient of the penalty l2 / 2 |weights|^2", at_least(0)] = 0.005,
        episodes_per_batch: Annotated[int, "episodes per update, at least", at_least(2)] = 1000,
        train_batch_size=10_000,
        filter_update_prob=0.1,
        return_proc_mode: Annotated[
            Literal["centered_rank", "centered_sign_rank"], "what returns are shaped to: ranks, or only their signs"
        ] = "centered_rank",
    ) -> Self: ...


class ES(Evolution):
    """Evolution strategies."""

    config_class = ESConfig
    optimizer = Adam

    def training_step(self) -> dict[str, float]:
        config = self.config
        num_pairs = -(-config.episodes_per_batch // 2)
        indices, returns, _ = self.play_pairs(num_pairs, min_steps=config.train_batch_size)
        shaped = centred_ranks(returns)
        if config.return_proc_mode == "centered_sign_rank":
            shaped = np.sign(shaped)
        coefficients = es_coefficients(shaped, config.noise_stdev)
        return self.ascend(indices, coefficients, self.trainee.scheduled("stepsize")["stepsize"], decay=config.l2_coeff)
