"""Policies are a map: batches, learners, statistics and the files of checkpoints go by policy id."""

from pathlib import Path

import numpy as np
import pytest

from rllib.algorithms.algorithm import Algorithm
from rllib.algorithms.pg import PG, PGConfig
from rllib.checkpoint import read_checkpoint
from rllib.policy import Policy

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"


class TwoPolicies(PG):
    """A second policy, which learns from what the first one has sampled."""

    def setup(self):
        self.policies["other"] = Policy(self.policy.spec, weights=self.policy.weights.copy())
        self.learners["other"] = self.make_learner(self.policies["other"])

    def train_batches(self):
        (batch,) = super().train_batches().values()
        return {"default_policy": batch, "other": batch}


def build(algorithm=TwoPolicies):
    config = PGConfig(algo_class=algorithm).environment("CartPole-v1").rollouts(num_rollout_workers=0)
    return config.training(lr=0.01, model={"fcnet_hiddens": [4]}).debugging(seed=1).build()


def test_each_policy_has_its_learner_and_its_statistics():
    with build() as algo:
        learner = algo.train()["info"]["learner"]
        assert learner.keys() == {"default_policy", "other"}
        assert learner["other"]["learner_stats"] == learner["default_policy"]["learner_stats"] | {
            "policy_lag_updates": 1.0
        }
        weights = algo.get_weights()
        assert np.array_equal(weights["other"], weights["default_policy"])
        assert algo.get_policy("other") is algo.policies["other"] is not algo.get_policy()


def test_a_checkpoint_has_a_folder_for_each_policy(tmp_path):
    with build() as algo, build() as other:
        algo.train()
        path = algo.save(tmp_path / "checkpoint")
        files = {f"{name}.safetensors" for name in ("weights", "learner")} | {"policy.json"}
        for policy_id in algo.policies:
            assert {file.name for file in (path / "policies" / policy_id).iterdir()} == files
        other.restore(path)
        assert np.array_equal(other.policies["other"].weights, algo.policies["other"].weights)


def test_an_unknown_policy_is_refused():
    with build() as algo, pytest.raises(ValueError, match=r"there is no policy 'third'.*has default_policy, other"):
        algo.get_policy("third")


@pytest.mark.parametrize(("name", "kl_coeff"), [("ppo", 0.025), ("appo", 0.125)])
def test_checkpoints_of_format_1_load(name, kl_coeff):
    path = CHECKPOINTS / f"format_1_{name}"
    with Algorithm.from_checkpoint(path) as algo:
        assert algo.algorithm_state() == {"kl_coeff": {"default_policy": kl_coeff}}
        saved = read_checkpoint(path)["learner.safetensors"]
        state = algo.learner.get_state()
        assert saved.keys() == state.keys() and all(np.array_equal(state[name], saved[name]) for name in saved)
        assert algo.train()["training_iteration"] == 4


def test_names_of_other_eras(tmp_path):
    with build() as algo, build() as other:
        algo.train()
        policy = algo.get_policy()
        assert policy.observation_space == algo.observation_space and policy.action_space == algo.action_space
        assert policy.config["lr"] == 0.01
        observation = np.zeros(4, np.float32)
        single = algo.compute_single_action(observation, explore=False)
        assert algo.compute_action(observation, explore=False) == single
        actions, states, fetches = policy.compute_actions(np.zeros((3, 4), np.float32), explore=False)
        assert actions.tolist() == [single] * 3 and states == [] and "action_logp" in fetches
        assert algo.iteration == algo.training_iteration == 1 and algo.logdir == str(algo.directory)
        path = algo.save_to_path(tmp_path / "checkpoint")
        assert isinstance(path, str)
        other.restore_from_path(path)
        assert other.iteration == 1
        other.get_policy().set_weights(policy.get_weights())
        spaces = algo.workers.foreach_worker(lambda worker: worker.policy.observation_space)
        assert spaces == [algo.observation_space]
        loaded = Policy.from_checkpoint(path)["default_policy"]
        assert loaded.action_space == algo.action_space and loaded.config is None
