"""EnvPool's versions of gymnasium's tasks, step by step beside gymnasium's."""

import gymnasium
import numpy as np
import pytest

from rllib.env import make_stream, resolve
from rllib.env.factories.simulators import SAME_DYNAMICS

pytestmark = pytest.mark.extras("envpool")

# Positions that the observations of MuJoCo's tasks leave out; nothing depends on them but x, of which rewards take
# differences.
_LEFT_OUT = {"HalfCheetah-v5": 1, "Hopper-v5": 1, "Walker2d-v5": 1, "Swimmer-v5": 2, "InvertedPendulum-v5": 0}


def put(env, name, observation):
    """Sets the state of gymnasium's environment to that of an observation."""
    o = observation.astype(np.float64)
    if name == "Pendulum-v1":
        env.state = np.array([np.arctan2(o[1], o[0]), o[2]])
    elif name == "Acrobot-v1":
        env.state = np.array([np.arctan2(o[1], o[0]), np.arctan2(o[3], o[2]), o[4], o[5]])
    elif name in _LEFT_OUT:
        state = np.concatenate([np.zeros(_LEFT_OUT[name]), o])
        env.set_state(state[: env.model.nq], state[env.model.nq :])
    else:
        env.state, env.steps_beyond_terminated = o, None


@pytest.mark.parametrize("name", sorted(SAME_DYNAMICS))
def test_steps_are_those_of_gymnasium(name):
    if name in _LEFT_OUT:
        pytest.importorskip("mujoco", reason="MuJoCo is not installed")
    env, rng = gymnasium.make(name).unwrapped, np.random.default_rng(0)
    env.reset(seed=0)
    num_envs, compared = 4, 0
    with make_stream(resolve(f"envpool:{name}"), num_envs=num_envs, seeds=list(range(num_envs)), check=0) as stream:
        assert stream.action_space.shape == env.action_space.shape
        assert stream.observation_space.shape == env.observation_space.shape
        buffers = stream.new_buffers()
        stream.reset(buffers)
        for _ in range(60):
            before = buffers.observations.copy()
            if hasattr(env.action_space, "n"):
                actions = rng.integers(env.action_space.n, size=num_envs)
            else:
                low, high = env.action_space.low, env.action_space.high
                actions = rng.uniform(low, high, (num_envs, *low.shape)).astype(np.float32)
            finals = dict(stream.step(actions, buffers))
            for index in range(num_envs):
                is_clipped = name in ("Hopper-v5", "Walker2d-v5") and (np.abs(before[index]) >= 10).any()
                if is_clipped or (stream.reset_rows is not None and stream.reset_rows[index]):
                    continue
                put(env, name, before[index])
                following, reward, terminated, *_ = env.step(
                    actions[index] if actions.ndim > 1 else int(actions[index])
                )
                given = finals.get(index, buffers.observations[index])
                np.testing.assert_allclose(given, following, rtol=2e-3, atol=2e-3)
                np.testing.assert_allclose(buffers.rewards[index], reward, rtol=2e-3, atol=2e-3)
                assert buffers.terminated[index] == terminated
                compared += 1
    assert compared > 50  # of 240; steps that reset are none, and observations of great speeds do not tell the state


@pytest.mark.parametrize("name", sorted(SAME_DYNAMICS))
def test_episodes_begin_and_end_as_those_of_gymnasium(name):
    import envpool

    if name in _LEFT_OUT:
        pytest.importorskip("mujoco", reason="MuJoCo is not installed")
    assert envpool.make_spec(name).config.max_episode_steps == gymnasium.spec(name).max_episode_steps
    single, count = gymnasium.make(name), 200
    ours = np.stack([single.reset(seed=seed)[0] for seed in range(count)])
    with make_stream(resolve(f"envpool:{name}"), num_envs=count, seeds=list(range(count)), check=0) as stream:
        buffers = stream.new_buffers()
        stream.reset(buffers)
    theirs = buffers.observations
    np.testing.assert_allclose(theirs.std(0), ours.std(0), rtol=0.3, atol=1e-3)
    np.testing.assert_allclose(theirs.mean(0), ours.mean(0), atol=0.3 * ours.std() + 1e-3)
