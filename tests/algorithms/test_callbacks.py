"""The user's hooks: called in the driver and in the workers, heard in the results."""

import os
import signal

import pytest

import runtime
from rllib import DefaultCallbacks, PPOConfig
from tests.envs import CountingEnv


class Recorder(DefaultCallbacks):
    def __init__(self):
        self.heard = []

    def on_algorithm_init(self, *, algorithm, **kwargs):
        self.heard.append("init")

    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
        train_batch["value_targets"] *= 0.5
        result["rows_seen"] = float(train_batch.count)

    def on_train_result(self, *, algorithm, result, **kwargs):
        result["mine"] = result["training_iteration"] * 10

    def on_evaluate_start(self, *, algorithm, **kwargs):
        self.heard.append("evaluate")

    def on_evaluate_end(self, *, algorithm, evaluation_metrics, **kwargs):
        self.heard.append(evaluation_metrics["evaluation"]["episodes_this_iter"])

    def on_workers_recreated(self, *, algorithm, worker_set, worker_ids, is_evaluation, **kwargs):
        self.heard.append((worker_ids, is_evaluation))

    def on_episode_end(self, *, worker, episode, env_index, **kwargs):
        episode.custom_metrics["twice_the_length"] = 2 * episode.length

    def on_sample_end(self, *, worker, samples, **kwargs):
        samples["rewards"][:] = 7.0


def config(num_workers: int = 0) -> PPOConfig:
    return (
        PPOConfig()
        .environment(CountingEnv, env_config={"lengths": [4, 6]})
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=2)
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .callbacks(Recorder)
    )


def test_each_hook_is_heard():
    with config().build() as algo:
        result = algo.train()
        assert result["mine"] == 10
        assert result["info"]["learner"]["default_policy"]["learner_stats"]["rows_seen"] == 64.0
        metrics = result["custom_metrics"]
        assert (metrics["twice_the_length_min"], metrics["twice_the_length_max"]) == (8, 12)
        assert set(algo.sample(64)["rewards"]) == {7.0}
        algo.evaluate(num_episodes=3)
        assert algo.callbacks.heard == ["init", "evaluate", 3]


def test_a_batch_of_shared_memory_may_be_changed():
    try:
        with config(num_workers=1).build() as algo:
            algo.train()
    finally:
        runtime.shutdown()


def test_replaced_workers_are_told():
    try:
        with config(num_workers=2).build() as algo:
            os.kill(algo.workers.foreach_worker(lambda worker: os.getpid())[1], signal.SIGKILL)
            result = algo.train()
            assert result["custom_metrics"]["twice_the_length_max"] == 12
            assert algo.callbacks.heard == ["init", ([2], False)]
    finally:
        runtime.shutdown()


def test_hooks_that_nothing_calls_are_refused():
    class Silent(DefaultCallbacks):
        def on_episode_step(self, **kwargs):
            raise AssertionError("never called")

    with pytest.raises(ValueError, match=r"Silent has on_episode_step, which nothing calls here.*on_episode_end"):
        config().callbacks(Silent).build()
    with pytest.raises(ValueError, match="derived from DefaultCallbacks"):
        config().callbacks({"on_episode_end": print}).build()
