"""Augmented random search (Mania et al., arXiv:1803.07055, algorithm 2).

The policy is linear, without a bias, and starts at zero; plain gradient steps along the differences of returns, divided
by the standard deviation of the returns that are used. V1 is `observation_filter="NoFilter"`, V2 `"MeanStdFilter"`; the
-t variants use the best `rollouts_used` of `num_rollouts` directions.

Departures: a bias (`model={"output_layer_use_bias": True}`) and hidden layers (`model={"fcnet_hiddens": [32]}`), which
then start at random, may be asked for. The survival bonus of some tasks is taken off in training alone, by `offset`;
reported rewards are raw, and without noise, as in ES.
"""

from typing import Annotated, ClassVar, Self

from rllib.algorithms.families.evolution import Evolution, EvolutionConfig
from rllib.config.sections import above, at_least, section
from rllib.learners.updates.optimizers import SGD
from rllib.losses.evolution import ars_coefficients

_LINEAR = {"fcnet_hiddens": [], "output_layer_use_bias": False}


class ARSConfig(EvolutionConfig):
    """Settings of ARS; the defaults are RLlib's, except those in default_differences.py."""

    refuses: ClassVar[dict[str, str]] = {"train_batch_size": "an update is of num_rollouts pairs of episodes"}

    @section
    def rollouts(self, *, num_rollout_workers=2) -> Self: ...

    @section
    def training(
        self,
        *,
        sgd_stepsize: Annotated[
            float | list, "step size of plain gradient ascent, or a schedule", above(0, finite=True)
        ] = 0.01,
        num_rollouts: Annotated[int, "directions per update, each with two episodes", at_least(1)] = 32,
        rollouts_used: Annotated[int, "of these, the best ones that count; all, if there are fewer", at_least(1)] = 32,
        offset: Annotated[float, "subtracted from every reward in training, a survival bonus"] = 0.0,
        model=_LINEAR,
    ) -> Self: ...


class ARS(Evolution):
    """Augmented random search."""

    config_class = ARSConfig
    optimizer = SGD

    def setup(self) -> None:
        super().setup()
        if not self.policy.spec.hiddens:
            self.policy.weights[:] = 0

    def training_step(self) -> dict[str, float]:
        config = self.config
        indices, returns, lengths = self.play_pairs(config.num_rollouts)
        num_used = min(config.rollouts_used, config.num_rollouts)
        coefficients = ars_coefficients(returns - config.offset * lengths, num_used)
        return self.ascend(indices, coefficients, self.trainee.scheduled("sgd_stepsize")["sgd_stepsize"])
