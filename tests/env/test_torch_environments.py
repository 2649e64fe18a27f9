"""The environments in torch do what gymnasium's do, step by step."""

import gymnasium
import numpy as np
import pytest
import torch

from rllib.env import check_environment, resolve
from rllib.env.tasks.torch_cartpole import TorchCartPole
from rllib.env.tasks.torch_pendulum import TorchPendulum

ENVIRONMENTS = {"CartPole-v1": TorchCartPole, "Pendulum-v1": TorchPendulum}
SIZES = {"CartPole-v1": (4, 500), "Pendulum-v1": (2, 200)}  # of a state; time limit


def draw_actions(space, count, rng):
    """[count, ...]; those of a Box leave its bounds."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=count)
    return 1.5 * rng.uniform(space.low, space.high, (count, *space.shape)).astype(np.float32)


def random_states(name, count, rng):
    if name == "CartPole-v1":
        return rng.uniform(-1, 1, (count, 4)) * [2.6, 3, 0.25, 3]
    return rng.uniform(-1, 1, (count, 2)) * [8, 8]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_spaces_are_gymnasiums(name):
    env, theirs = ENVIRONMENTS[name](3), gymnasium.make(name)
    assert env.single_observation_space == theirs.observation_space
    assert env.single_action_space == theirs.action_space


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_step_from_any_state_is_gymnasiums(name):
    count, rng = 500, np.random.default_rng(0)
    env, theirs = ENVIRONMENTS[name](count), gymnasium.make(name).unwrapped
    theirs.reset(seed=0)
    states, actions = random_states(name, count, rng), draw_actions(theirs.action_space, count, rng)
    env.reset(seed=0)
    env.states = torch.tensor(states, dtype=torch.float32)
    _, rewards, terminated, truncated, info = env.step(torch.from_numpy(actions))
    assert not truncated.any()
    for index in range(count):
        theirs.state, theirs.steps_beyond_terminated = states[index], None
        observation, reward, is_over, _, _ = theirs.step(actions[index])
        np.testing.assert_allclose(info["final_obs"][index], observation, atol=1e-5, rtol=1e-5)
        assert rewards[index] == pytest.approx(float(reward), abs=1e-5, rel=1e-5)
        assert bool(terminated[index]) is is_over
    assert name == "Pendulum-v1" or 0 < terminated.sum() < count


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_time_limit_and_reset_within_the_step(name):
    size, limit = SIZES[name]
    env = ENVIRONMENTS[name](2)
    first, _ = env.reset(seed=1)
    for step in range(limit):
        env.states = torch.zeros(2, size)  # upright, so that no pole falls
        actions = torch.zeros(2, dtype=torch.int64) if name == "CartPole-v1" else torch.zeros(2, 1)
        observations, _, terminated, truncated, info = env.step(actions)
        assert not terminated.any()
        assert truncated.tolist() == info["_final_obs"].tolist() == [step == limit - 1] * 2
    assert not torch.equal(observations, info["final_obs"])
    assert (env.steps == 0).all() and not torch.equal(observations, first)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_seeds_decide_the_first_states(name):
    one, other = ENVIRONMENTS[name](4), ENVIRONMENTS[name](4)
    first, _ = one.reset(seed=3)
    again, _ = other.reset(seed=3)
    assert torch.equal(first, again)
    assert len(first.unique(dim=0)) == 4  # each environment has its own
    assert not torch.equal(one.reset()[0], first)
    low, high = (bound[0] for bound in (one.observation_space.low, one.observation_space.high))
    assert ((first.numpy() >= low) & (first.numpy() <= high)).all()


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_driver_can_check_them_and_make_them_by_name(name):
    kind = ENVIRONMENTS[name]
    spaces = check_environment(resolve(f"{kind.__module__}.{kind.__name__}"), {"max_episode_steps": 3}, num_envs=4)
    assert spaces == (kind().single_observation_space, kind().single_action_space)
