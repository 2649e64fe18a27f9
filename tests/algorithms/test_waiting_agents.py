"""Learners check that their weights have acted; actions from an earlier fragment, of agents that wait, are left out."""

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.algorithms.appo import APPOConfig
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.errors import LearnerError
from rllib.evaluation.callbacks import DefaultCallbacks
from tests.multi_agent import BasicMultiAgent, NameTheSignal


def small(config, in_turn=True, **model):
    config.environment(NameTheSignal, env_config={"in_turn": in_turn, "length": 7})
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=5)
    config.training(train_batch_size=10, model={"fcnet_hiddens": [8], **model})
    return config.multi_agent(policies="own").debugging(seed=1)


def ppo(in_turn=True, **model):
    """A run in which an update changes the weights so much that it shows in rows of earlier ones."""
    return small(PPOConfig(), in_turn, **model).training(sgd_minibatch_size=10, num_sgd_iter=4, lr=0.1)


class CountsWaiting(DefaultCallbacks):
    def on_learn_on_batch(self, *, train_batch, result, **kwargs):
        result["waited"] = float(train_batch[sb.WAITED].sum())


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_agents_that_wait_are_no_mistake(kind):
    with ppo().training(learner=kind).callbacks(CountsWaiting).build() as algo:
        results = [algo.train()["info"]["learner"] for _ in range(5)]
    waited = [sum(stats["learner_stats"]["waited"] for stats in learners.values()) for learners in results]
    # In each of the two environments one agent waits when a fragment ends, but where its end is that of an episode.
    assert waited[0] == 0 and max(waited) == 2


@pytest.mark.parametrize("in_turn", [True, False])
def test_weights_that_did_not_act_are_noticed(in_turn):
    class Disturbs(DefaultCallbacks):
        def on_learn_on_batch(self, *, policy, result, **kwargs):
            result["disturbed"] = 0.0
            if algo.iteration >= 2:
                policy.weights[:] += np.random.default_rng(0).normal(size=len(policy.weights)) / 10

    with ppo(in_turn).callbacks(Disturbs).build() as algo:
        algo.train()
        algo.train()
        with pytest.raises(LearnerError, match="was not sampled by these weights"):
            algo.train()


def test_rows_are_marked_where_a_check_asks_for_it():
    for config in (small(DQNConfig()), small(APPOConfig()), ppo(use_lstm=True)):
        with config.build() as algo:
            batch, _ = algo.workers.local_worker().sample()
            assert all(sb.WAITED not in rows for rows in batch.policy_batches.values())
    with ppo().build() as algo:
        batch, _ = algo.workers.local_worker().sample()
        assert all(rows[sb.WAITED].dtype == bool for rows in batch.policy_batches.values())


def test_agents_that_act_in_each_step_never_wait():
    config = PPOConfig().environment(lambda config: BasicMultiAgent(2)).rollouts(num_rollout_workers=0)
    config.training(train_batch_size=20, sgd_minibatch_size=20, model={"fcnet_hiddens": [8]})
    with config.callbacks(CountsWaiting).build() as algo:
        for _ in range(3):
            assert algo.train()["info"]["learner"]["default_policy"]["learner_stats"]["waited"] == 0


class Sleeper(NameTheSignal):
    """The second agent observes in each eleventh step alone, the first one in all of them."""

    def __init__(self, config=None):
        super().__init__({"sizes": (2, 2), "length": 40})

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return super().reset(seed=seed)

    def _shown(self):
        shown = super()._shown()
        if self.t % 11:
            del shown["second"]
        self.t += 1
        return shown


def test_a_row_that_is_open_for_several_fragments_has_the_version_that_acted():
    config = PPOConfig().environment(Sleeper).multi_agent(policies="own")
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=1, rollout_fragment_length=5)
    config.training(train_batch_size=5, sgd_minibatch_size=5, model={"fcnet_hiddens": [8]})
    with config.debugging(seed=1).build() as algo:
        worker, policy, found = algo.workers.local_worker(), algo.policies["second"], []
        for version in (1, 2, 2):
            worker.load_snapshots({"second": policy.snapshot(version=version, timesteps=0)})
            found.append(worker.sample()[0].policy_batches.get("second"))
    # It acts with the first step, and observes again after eleven.
    assert found[0] is None and found[1] is None
    assert (found[2].policy_version, found[2][sb.WAITED].tolist()) == (1, [True])


def test_a_policy_that_begins_to_learn_is_checked():
    config = ppo().multi_agent(policies_to_train=["first"]).callbacks(CountsWaiting)
    with config.build() as algo:
        algo.train()
        algo.set_policies_to_train(["first", "second"])
        for _ in range(3):
            result = algo.train()
        assert result["info"]["learner"].keys() == {"first", "second"}
