"""Parts that a user writes: losses with a form in torch alone, and features of a run."""

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.feature import Feature
from rllib.algorithms.dqn import DQN, DQNConfig
from rllib.algorithms.impala import IMPALA, IMPALAConfig
from rllib.algorithms.pg import PG, PGConfig
from rllib.algorithms.ppo import PPO, PPOConfig
from rllib.losses.loss import Loss

MEMORY = {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4}


def _in_torch(distribution, outputs, minibatch):
    errors = (outputs[1] - minibatch[sb.VALUE_TARGETS]).square()
    logp = distribution.torch_at(outputs[0]).log_prob(minibatch[sb.ACTIONS])
    loss = errors.mean() - (logp * minibatch[sb.ADVANTAGES]).mean()
    return loss, (loss,), (errors,)  # with their graphs


class Derived(Loss):
    columns, stats, row_stats = (sb.ACTIONS, sb.ADVANTAGES, sb.VALUE_TARGETS), ("total_loss",), ("error",)

    def torch(self, distribution, outputs, minibatch, **settings):
        return _in_torch(distribution, outputs, minibatch)


class Alike:
    columns, stats, row_stats, torch = Derived.columns, Derived.stats, Derived.row_stats, Derived.torch


@pytest.mark.parametrize("model", [{"fcnet_hiddens": [4]}, MEMORY], ids=["plain", "memory"])
def test_a_loss_has_its_form_in_torch_alone(model):
    class Own(PG):
        loss = Derived()

        def training_step(self):
            return {i.policy_id: i.learn_on_batch(batch, **i.scheduled("lr")) for i, batch in self.train_batches()}

    config = PGConfig(algo_class=Own).environment("CartPole-v1").rollouts(num_rollout_workers=0)
    with config.training(train_batch_size=32, model=model).build() as algorithm:
        stats = algorithm.train()["info"]["learner"]["default_policy"]["learner_stats"]
        assert np.isfinite(stats["total_loss"])


def test_a_loss_of_no_such_class_is_refused():
    class Own(PG):
        loss = Alike()

    with pytest.raises(TypeError, match=r"loss=.*Alike.* must be of a class derived from rllib\.losses\.loss\.Loss"):
        PGConfig(algo_class=Own).environment("CartPole-v1").rollouts(num_rollout_workers=0).build()


def test_an_algorithm_of_rllib_with_a_loop_of_its_own_is_told_what_is_missing():
    class Mine(Algorithm):
        def training_step(self):
            return self.learner_group.update(episodes=[])

    with pytest.raises(TypeError, match=r"Mine has no loss: .* or derive it from an algorithm such as PPO"):
        AlgorithmConfig(algo_class=Mine).environment("CartPole-v1").rollouts(num_rollout_workers=0).build()


class Changes(Feature):
    """How often the action differs from the one before."""

    def __init__(self, statistic="action_changes"):
        self.statistic, self.rows, self.changes = statistic, 0, 0

    def take_in(self, report, batch):
        self.rows += report.rows
        assert len(batch) >= report.rows  # IMPALA's fragments have rows that no loss reads
        self.changes += int((np.diff(batch[sb.ACTIONS]) != 0).sum())

    def stats(self):
        return {self.statistic: self.changes / max(self.rows, 1)}

    def get_state(self):
        return {"rows": self.rows, "changes": self.changes}

    def set_state(self, state):
        self.rows, self.changes = state["rows"], state["changes"]


def with_feature(base, config, name="changes", statistic="action_changes"):
    class Own(base):
        def make_features(self):
            return {**super().make_features(), name: Changes(statistic)}

    config = config(algo_class=Own).environment("CartPole-v1").rollouts(num_rollout_workers=0)
    return config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=32)


@pytest.mark.parametrize("base, config", [(PPO, PPOConfig), (DQN, DQNConfig), (IMPALA, IMPALAConfig)])
def test_a_feature_sees_rows_and_goes_on_from_a_checkpoint(base, config, tmp_path):
    config = with_feature(base, config).rollouts(rollout_fragment_length=32).training(train_batch_size=32)
    if base is PPO:
        config.training(sgd_minibatch_size=32, num_sgd_iter=1)
    with config.build() as algorithm:
        result = algorithm.train()
        feature = algorithm.features["changes"]
        assert feature.rows == algorithm.timesteps and 0 < feature.changes < feature.rows
        stats = result["info"]["learner"]["default_policy"]["learner_stats"]
        assert stats["action_changes"] == feature.changes / feature.rows
        path = algorithm.save(tmp_path)
        with config.build() as restored:
            restored.restore(path)
            assert restored.features["changes"].get_state() == feature.get_state()


def test_what_has_one_name_twice_is_refused():
    with pytest.raises(ValueError, match="'kl_coeff' names two of these: a number of trainees, a feature"):
        with_feature(PPO, PPOConfig, name="kl_coeff").build()
    config = with_feature(PPO, PPOConfig, statistic="entropy").training(train_batch_size=32, num_sgd_iter=1)
    with (
        config.training(sgd_minibatch_size=32).build() as algorithm,
        pytest.raises(ValueError, match="the feature 'changes' reports 'entropy', which is a statistic"),
    ):
        algorithm.train()
