"""A checkpoint goes on in another world than that of its training: an environment, clients, served episodes."""

import gymnasium
import numpy as np
import pytest

from rllib import Algorithm, DQNConfig, PPOConfig, load_policy
from rllib.serving.learning.trainer import Trainer

SPACES = {
    "observation_space": gymnasium.spaces.Box(-np.inf, np.inf, (4,)),
    "action_space": gymnasium.spaces.Discrete(2),
}
CARTPOLE = gymnasium.make("CartPole-v1").observation_space


@pytest.fixture(scope="module")
def of_clients(tmp_path_factory):
    """The checkpoint of a run whose clients are elsewhere."""
    config = small().environment(**SPACES).external(listen="127.0.0.1:0", max_clients=3)
    with config.build() as algorithm:
        return algorithm.save(tmp_path_factory.mktemp("clients") / "checkpoint")


@pytest.fixture(scope="module")
def of_environment(tmp_path_factory):
    config = small().environment("CartPole-v1", env_config={"max_episode_steps": 9})
    with config.build() as algorithm:
        return algorithm.save(tmp_path_factory.mktemp("environment") / "checkpoint")


def small():
    config = DQNConfig().rollouts(num_rollout_workers=0).debugging(seed=1)
    return config.training(num_steps_sampled_before_learning_starts=8, train_batch_size=8)


@pytest.mark.parametrize("given", [{"env": "CartPole-v1"}, {"environment": {"env": "CartPole-v1"}}])
def test_an_environment_takes_the_place_of_clients(of_clients, given):
    with Algorithm.from_checkpoint(of_clients, given) as algorithm:
        assert (algorithm.config.listen, algorithm.config.max_clients) == (None, 1024)
        assert algorithm.observation_space == CARTPOLE
        assert len(algorithm.sample(8)) == 8


@pytest.mark.parametrize("given", [{"listen": "127.0.0.1:0"}, {"external": {"listen": "127.0.0.1:0"}}])
def test_clients_take_the_place_of_an_environment(of_environment, given):
    with Algorithm.from_checkpoint(of_environment, given) as algorithm:
        assert algorithm.config.env is None and algorithm.observation_space == CARTPOLE
        assert algorithm.workers.local_worker().env.url.startswith("http://")


@pytest.mark.parametrize("section", [None, "environment"])
def test_settings_that_are_given_stay(of_clients, section):
    given = {"env": "CartPole-v1", "observation_space": CARTPOLE}
    given = {**({section: given} if section else given), "max_lag_updates": 7}
    with Algorithm.from_checkpoint(of_clients, given) as algorithm:
        assert algorithm.config.max_lag_updates == 7 and algorithm.config.observation_space == CARTPOLE


def test_without_a_change_the_world_is_the_saved_one(of_clients):
    with Algorithm.from_checkpoint(of_clients) as algorithm:
        assert (algorithm.config.listen, algorithm.config.max_clients) == ("127.0.0.1:0", 3)


@pytest.mark.parametrize("checkpoint", ["of_clients", "of_environment"])
def test_served_episodes_are_learned_from_and_the_candidate_keeps_its_world(checkpoint, request, tmp_path):
    saved = request.getfixturevalue(checkpoint)
    trainer = Trainer(load_policy(saved), {})
    try:
        trainer.save(tmp_path / "candidate")
    finally:
        trainer.stop()
    before, after = (Algorithm.from_checkpoint(path) for path in (saved, tmp_path / "candidate"))
    with before, after:
        names = ("env", "env_config", "listen", "max_clients", "observation_space", "action_space")
        assert all(getattr(after.config, name) == getattr(before.config, name) for name in names)


def test_defaults_of_other_algorithms_change_nothing(of_environment):
    others = {name: PPOConfig()[name] for name in ("num_sgd_iter", "clip_param")}
    with Algorithm.from_checkpoint(of_environment, others) as algorithm:
        assert not others.keys() & algorithm.config.keys()
