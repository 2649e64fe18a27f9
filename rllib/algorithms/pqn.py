"""PQN, the parallelised Q-network (Gallici et al., arXiv:2407.04811): Q-learning without replay and target network.

Many environments act epsilon-greedily for a while, lambda-returns (losses/returns.py) are computed once with the
weights that acted, and the network walks over them a few times in minibatches, as PPO does. What replay and target
network did for stability, normalised hidden layers do (`model={"layer_norm": True}`, the default here).

With `sample_async=True` workers sample the next train batch while the learner is at this one, so that neither waits.
Actions and targets then come from the weights before the last update.

Departures from the paper:
- a target after the end of an episode by a time limit bootstraps from the true final observation;
- a train batch uses the epsilon of its first step throughout;
- the loss is half the mean squared error, so its gradient is half as long relative to `grad_clip`.

Defaults are as in the authors' and CleanRL's scripts for classic control.
"""

from typing import Annotated, ClassVar, Self

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.settings.exploration import EPSILON_ALIASES, OF_VALUES
from rllib.algorithms.base.space_rules import NewPolicy, of_spaces
from rllib.algorithms.families.q_learning import for_discrete_actions
from rllib.algorithms.families.sampling_ahead import SamplingAheadConfig
from rllib.config.sections import OfPolicy, at_least, between, section
from rllib.evaluation.postprocess.advantages import QLambda
from rllib.evaluation.postprocess.base import Postprocess
from rllib.losses.td import TDLoss
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.q_values import QValues

_MODEL = {"fcnet_hiddens": [120, 84], "fcnet_activation": "relu", "layer_norm": True}


class PQNConfig(SamplingAheadConfig):
    """Settings of PQN."""

    on_policy = True
    without_memory: ClassVar[str] = QLambda.without_memory
    exploration_kinds: ClassVar[tuple[str, ...]] = OF_VALUES
    own_aliases: ClassVar[dict] = EPSILON_ALIASES
    default_exploration: ClassVar[dict] = {
        "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.05, "epsilon_timesteps": 250_000,
    }  # fmt: skip

    @section
    def rollouts(self, *, num_envs_per_worker=4, rollout_fragment_length="auto") -> Self: ...

    @section
    def training(
        self,
        *,
        lr=2.5e-4,
        train_batch_size=512,
        opt_type="radam",
        grad_clip=10.0,
        model=_MODEL,
        lambda_: Annotated[
            float, "how far a target looks before it bootstraps; 0: one step", between(0, 1), OfPolicy
        ] = 0.65,
        sgd_minibatch_size: Annotated[int, "rows per gradient step", at_least(1), OfPolicy] = 128,
        num_sgd_iter: Annotated[int, "passes over each train batch", at_least(1), OfPolicy] = 4,
    ) -> Self: ...

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...

    @section
    def reporting(self, *, min_sample_timesteps_per_iteration=5000) -> Self: ...

    @of_spaces()
    def _check_actions(self, policy: NewPolicy):
        """Actions are choices."""
        return for_discrete_actions(self, policy)


class PQN(Algorithm):
    """Parallelised Q-network."""

    config_class = PQNConfig
    trains_several = True
    loss = TDLoss("mse")
    reported_stats = ("mean_q", "min_q", "max_q", "cur_lr", "mean_td_error")

    def make_policy_spec(self, observation_space, action_space, config: PQNConfig) -> NetworkSpec:
        spec = super().make_policy_spec(observation_space, action_space, config)
        return spec.without_value(distribution=QValues(int(action_space.n), masked=spec.is_masked))

    def make_postprocess(self, policy_id: str) -> Postprocess:
        config = self.config_of(policy_id)
        return QLambda(config.gamma, config.lambda_)

    def training_step(self) -> dict[str, dict[str, float]]:
        stats, now = {}, self.timesteps
        explored = {policy_id: self._exploration_stats(policy_id) for policy_id in self.trainees}
        for trainee, batch in self.train_batches():
            batch[sb.WEIGHTS] = np.ones(batch.count, np.float32)
            settings = {
                "num_epochs": trainee.config.num_sgd_iter,
                "minibatch_size": trainee.config.sgd_minibatch_size,
                **trainee.scheduled("lr", at=now),
            }
            stats[trainee.policy_id] = explored[trainee.policy_id] | trainee.learn_on_batch(batch, **settings)
            del stats[trainee.policy_id]["td_error"]
        return stats
