"""Policies are a map: batches, learners, statistics and the files of checkpoints go by policy id."""

import re
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from rllib import load_policy
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.registry import get_algorithm_class
from rllib.algorithms.pg import PG, PGConfig
from rllib.policy import Policy
from rllib.storage.checkpoint import read_checkpoint

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"


class TwoPolicies(PG):
    """A second policy, which learns from what the first one has sampled."""

    def setup(self):
        self.policies["other"] = Policy(self.policy.spec, weights=self.policy.weights.copy())
        self.trainees["other"] = self.trainee_class(self, "other")

    def train_batches(self):
        ((_, batch),) = super().train_batches()
        return [(trainee, batch) for trainee in self.trainees.values()]


def build(algorithm=TwoPolicies):
    config = PGConfig(algo_class=algorithm).environment("CartPole-v1").rollouts(num_rollout_workers=0)
    return config.training(lr=0.01, model={"fcnet_hiddens": [4]}).debugging(seed=1).build()


def test_each_policy_has_its_learner_and_its_statistics():
    with build() as algo:
        learner = algo.train()["info"]["learner"]
        assert learner.keys() == {"default_policy", "other"}
        assert learner["other"] == learner["default_policy"]
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
        assert algo.numbers()["kl_coeff"] == {"default_policy": kl_coeff}
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


def test_an_observation_beyond_its_bounds_gets_an_action_and_one_warning(tmp_path, caplog):
    with build() as algo:
        loaded = load_policy(algo.save(tmp_path / "checkpoint"))
        inside, outside = np.zeros(4, np.float32), np.array([0, 0, 0.42, 0], np.float32)
        for policy in (algo, loaded):
            caplog.clear()
            single = policy.compute_single_action(outside, explore=False)
            assert policy.compute_actions([inside, outside], explore=False)[1] == single
            assert policy.predict(outside, deterministic=True)[0] == single
            (record,) = caplog.records
            assert record.levelname == "WARNING"
            assert "observation[2] = 0.41999" in record.message and "lies above the upper bound" in record.message
            for wrong in (np.zeros(3, np.float32), np.array([0, 0, np.inf, 0]), np.array([0, np.nan, 0, 0]), "left"):
                with pytest.raises(ValueError, match="no action can be computed"):
                    policy.compute_single_action(wrong)


@pytest.mark.parametrize("space", [Discrete(3), MultiDiscrete([2, 2]), Box(0, 255, (2,), np.uint8)], ids=str)
def test_what_cannot_be_stored_gets_no_action(space):
    config = PGConfig().environment(observation_space=space, action_space=Discrete(2))
    config.training(model={"fcnet_hiddens": [4]})
    with config.build() as algo, pytest.raises(ValueError, match="no action can be computed"):
        algo.compute_single_action(np.full(space.shape, 300))


def test_a_checkpoint_takes_changed_settings_as_config(tmp_path):
    with build(PG) as algo:
        path = algo.save(tmp_path / "checkpoint")
    for given in ({"lr": 0.5}, PGConfig().training(lr=0.5)):
        with PG.from_checkpoint(path, config=given) as restored:
            assert restored.config.lr == 0.5 and restored.config.model["fcnet_hiddens"] == [4]
    with PG.from_checkpoint(path, config={"lr": 0.5, "gamma": 0.9}, overrides={"lr": 0.25}) as restored:
        assert (restored.config.lr, restored.config.gamma) == (0.25, 0.9)
        path = restored.save(tmp_path / "changed")
    defaults = {name: PGConfig()[name] for name in ("lr", "gamma")}
    for given in (defaults, PGConfig().training(**defaults), PGConfig().training(**defaults).copy()):
        with PG.from_checkpoint(path, config=given) as restored:
            assert {name: restored.config[name] for name in defaults} == defaults
            assert restored.config.model["fcnet_hiddens"] == [4]  # which was not given


def test_messages_about_arguments_name_no_private_class(tmp_path):
    with build() as algo:
        for call in (PG.from_checkpoint, algo.save, algo.compute_single_action, algo.predict, algo.train, algo.learn):
            with pytest.raises(TypeError) as raised:
                call(tmp_path, an_argument=1)
            assert not re.search(r"Saving|Acting", str(raised.value)), raised.value


class TwoSpecs:
    """Two policies with spaces of the environment; the second one learns from what the first has sampled."""

    def policy_spaces(self):
        (spaces,) = super().policy_spaces().values()
        return {"default_policy": spaces, "other": spaces}

    def policy_overrides(self):
        own = {"lr": 0.02, "gamma": 0.5}
        return {"other": own if self.config.on_policy else {**own, "model": {"fcnet_hiddens": [8]}}}

    def setup(self):
        super().setup()
        if self.config.on_policy:  # learners refuse what other weights have sampled
            self.policies["other"].set_weights(self.policy.weights)

    def by_trainee(self, batch):
        return [(trainee, batch.rows(slice(None))) for trainee in self.trainees.values()]


@pytest.mark.parametrize(("name", "training"), [
    ("PG", {}),
    ("A2C", {}),
    ("PPO", {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 2}),
    ("PQN", {"train_batch_size": 64, "sgd_minibatch_size": 32}),
    ("DQN", {"num_steps_sampled_before_learning_starts": 20, "hiddens": []}),
    ("SAC", {"num_steps_sampled_before_learning_starts": 20}),
])  # fmt: skip
def test_each_policy_trains_with_its_own_settings(name, training, tmp_path):
    algorithm = type(f"Two{name}", (TwoSpecs, get_algorithm_class(name)), {})
    config = algorithm.get_default_config().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(lr=0.01, gamma=0.9, model={"fcnet_hiddens": [4]}, **training).debugging(seed=1)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=1 if config.on_policy else 64)
    with config.build() as algo:
        assert algo.config_of("default_policy") is algo.config and algo.config_of("other").gamma == 0.5
        postprocess = {each: settings.postprocess for each, settings in algo._rollout_settings.policies.items()}
        assert [postprocess[each].gamma for each in ("default_policy", "other")] == [0.9, 0.5]
        assert algo.policies["other"].spec.hiddens[0] == (4 if config.on_policy else 8)
        before = algo.get_weights()
        learner = algo.train()["info"]["learner"]
        for policy_id, lr in (("default_policy", 0.01), ("other", 0.02)):
            stats = learner[policy_id]["learner_stats"]
            assert stats.get("cur_lr", stats.get("cur_actor_lr")) in (lr, 3e-4)
            assert learner[policy_id]["num_grad_updates_lifetime"] > 0 and stats["policy_lag_updates"] == 0
            assert not np.array_equal(algo.get_weights()[policy_id], before[policy_id])
        path = algo.save(tmp_path / "checkpoint")
        with config.build() as restored:
            restored.restore(path)
            assert all(np.array_equal(restored.get_weights()[each], algo.get_weights()[each]) for each in before)
            assert restored.metrics.num_updates("other") == algo.metrics.num_updates("other")


def test_mistakes_in_the_settings_of_a_policy_name_it():
    class Mistaken(TwoPolicies):
        def policy_overrides(self):
            return {"other": {"gamma": 2.0}}

    with pytest.raises(ValueError, match="gamma") as raised:
        build(Mistaken)
    assert "'other'" in str(raised.value)
