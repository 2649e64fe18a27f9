"""The setting gym_env_vectorize_mode: a worker's environments as one VectorEnv."""

import os

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from rllib import ARSConfig, DQNConfig, ESConfig, IMPALAConfig, PPOConfig, R2D2Config, SACConfig
from rllib.algorithms.base.wiring import learned_environment
from rllib.env.factories.make import make_stream
from rllib.env.factories.registry import EnvContext
from tests.envs import BoundedAction, InfiniteHorizon, MaskedProbe, in_vector


def config(mode: str, env="CartPole-v1", **rollouts):
    return (
        PPOConfig()
        .environment(env)
        .rollouts(num_rollout_workers=0, num_envs_per_worker=3, gym_env_vectorize_mode=mode, **rollouts)
        .training(train_batch_size=60, sgd_minibatch_size=30, num_sgd_iter=1)
        .debugging(seed=0)
    )


def make(mode: str, env="CartPole-v1", **context):
    return learned_environment(config(mode, env)).make(EnvContext({}, num_envs=3, **context))


class TellsItsProcess(gymnasium.Env):
    """Observations are the process it runs in and its index."""

    observation_space = gymnasium.spaces.Box(0, 2**22, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config):
        self._index = config.vector_index

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([os.getpid(), self._index], np.float32), {}

    def step(self, action):
        return np.array([os.getpid(), self._index], np.float32), 1.0, False, False, {}


def test_the_entry_point_is_the_registered_vector_version():
    env = make("vector_entry_point")
    assert isinstance(env, VectorEnv) and env.num_envs == 3
    assert type(env.unwrapped).__name__ == "CartPoleVectorEnv"


def test_async_environments_run_in_a_process_each_and_know_their_position():
    with make_stream(learned_environment(config("async", TellsItsProcess)), num_envs=3, seeds=[0, 1, 2]) as stream:
        buffers = stream.new_buffers()
        stream.reset(buffers)
    assert len({os.getpid(), *buffers.observations[:, 0]}) == 4
    assert buffers.observations[:, 1].tolist() == [0, 1, 2]


def test_evaluation_plays_in_single_environments_of_the_registered_id():
    assert isinstance(make("vector_entry_point", in_evaluation=True), gymnasium.Env)


@pytest.mark.parametrize("mode", ["async", "vector_entry_point"])
def test_evaluation_plays_its_episodes(mode):
    with config(mode).evaluation(evaluation_interval=1, evaluation_duration=2).build() as algo:
        assert algo.train()["evaluation"]["episodes_this_iter"] == 2


def test_async_environments_sample_what_single_ones_do():
    """With equal seeds, and final observations in the step that ends an episode."""
    batches = []
    for mode in ("sync", "async"):
        with config(mode).build() as algo:
            batches.append(algo.sample(90))
    assert batches[0].count == batches[1].count
    for name in batches[0]:
        np.testing.assert_array_equal(batches[0][name], batches[1][name], err_msg=name)


def test_a_learning_run_with_the_vector_version():
    with config("vector_entry_point").rollouts(num_rollout_workers=2).build() as algo:
        assert algo.train()["num_env_steps_trained"] > 0


def test_capital_letters_of_gymnasiums_names_are_taken():
    assert config("VECTOR_ENTRY_POINT").gym_env_vectorize_mode == "vector_entry_point"


@pytest.mark.parametrize(
    ("mode", "more", "message"),
    [
        ("vector_entry_point", {"env": "MountainCar-v0"}, "MountainCar-v0 has none .CartPole-v0, CartPole-v1 have one"),
        ("vector_entry_point", {"env": TellsItsProcess}, "TellsItsProcess has none"),
        ("vector_entry_point", {"batch_mode": "complete_episodes"}, "none of them continues alone"),
        ("parallel", {}, "gym_env_vectorize_mode='parallel'"),
    ],
)
def test_what_cannot_be_had_is_refused(mode, more, message):
    with pytest.raises(ValueError, match=message):
        config(mode, **more).build()


@pytest.mark.parametrize(
    "config", [PPOConfig, IMPALAConfig, DQNConfig, SACConfig, R2D2Config], ids=lambda c: c.__name__
)
def test_whole_episodes_of_a_vector_environment_are_refused_at_build(config):
    """Their environments cannot go on alone, which would be found once episodes differ in length."""
    env = BoundedAction if config is SACConfig else InfiniteHorizon
    made = config().environment(in_vector(env, AutoresetMode.SAME_STEP))
    made.rollouts(num_rollout_workers=0, num_envs_per_worker=2, batch_mode="complete_episodes")
    with pytest.raises(ValueError, match=r"VectorEnv.*batch_mode='truncate_episodes'"):
        made.build()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_environment_of_one_plays_whole_episodes(mode, workers):
    """The only environment goes on alone where all of them go on."""
    made = PPOConfig().environment(in_vector(MaskedProbe, mode), env_config={"mask": "observation"})
    made.rollouts(num_rollout_workers=workers, rollout_fragment_length=3, batch_mode="complete_episodes")
    with made.training(train_batch_size=12, sgd_minibatch_size=12, num_sgd_iter=1).build() as algorithm:
        assert all(algorithm.train()["num_env_steps_sampled_this_iter"] % 2 == 0 for _ in range(2))


@pytest.mark.parametrize("config", [ESConfig, ARSConfig])
def test_evolution_refuses_vector_environments_in_the_driver(config):
    made = config().environment(in_vector(InfiniteHorizon, AutoresetMode.SAME_STEP))
    with pytest.raises(ValueError, match=r"VectorEnv.*Use the environment that it is made of"):
        made.rollouts(num_rollout_workers=1, num_envs_per_worker=2).build()
