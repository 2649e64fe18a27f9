"""The adapter of JAX's environments: resets within the step, true final observations, a random stream each."""

import sys
import types
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from rllib.env.factories.make import _tensor_stream
from rllib.env.streams.vector import VectorEnvStream

pytestmark = pytest.mark.extras("jax")

SEEDS = [3, 4, 2**32 - 1, 5]


def counting(limit=6):
    """An environment whose episode begins at a random number below 100, and counts: it terminates at a multiple of 7.

    It is truncated after `limit` steps. Actions are added to the reward.
    """
    jax = pytest.importorskip("jax")
    from rllib.env.suites.jitted.functions import Functions, Transition, limited

    def observed(number):
        return {"number": number.reshape(1).astype("float32"), "last": number % 3}

    def reset(key):
        number = jax.random.randint(key, (), 0, 100)
        return number, observed(number)

    def step(key, number, action):
        number = number + 1
        drawn = jax.random.uniform(key)
        return Transition(number, observed(number), action + drawn, number % 7 == 0, False, {"seen": number})

    space = gymnasium.spaces.Dict({"number": gymnasium.spaces.Box(0, 1000, (1,)), "last": gymnasium.spaces.Discrete(3)})
    return limited(Functions(reset, step, space, gymnasium.spaces.Discrete(2)), limit)


def made(functions, num_envs):
    from rllib.env.suites.jitted.vector import JittedVector

    return JittedVector("counting", functions, num_envs)


def rows_of(env, seeds, steps):
    """Numbers before and after each step, rewards and flags, by environment: [steps, N] each."""
    observations, _ = env.reset(seed=seeds)
    rows = []
    for _ in range(steps):
        before = observations["number"][:, 0].copy()
        observations, rewards, terminated, truncated, info = env.step(np.ones(len(seeds), np.int64))
        final = info["final_obs"]["number"][:, 0] if "final_obs" in info else observations["number"][:, 0]
        rows.append((before, final.copy(), rewards.copy(), terminated.copy(), truncated.copy()))
    return [np.stack(column) for column in zip(*rows)]


def test_each_step_counts_and_an_ended_episode_is_followed_by_a_first_observation():
    env = made(counting(), 4)
    before, after, rewards, terminated, truncated = rows_of(env, SEEDS, 60)
    np.testing.assert_array_equal(after, before + 1)
    np.testing.assert_array_equal(terminated, after % 7 == 0)
    assert (rewards >= 1).all() and (rewards < 2).all()
    goes_on = before[1:] == after[:-1]
    assert goes_on[~(terminated | truncated)[:-1]].all() and not goes_on[(terminated | truncated)[:-1]].all()
    assert truncated.any() and not (truncated & terminated).all()


def test_a_time_limit_truncates():
    _, _, _, terminated, truncated = rows_of(made(counting(limit=3), 4), SEEDS, 30)
    ended = np.flatnonzero((terminated | truncated)[:, 0])
    assert (np.diff(ended) <= 3).all() and truncated[:, 0].any()


def test_an_environment_does_not_depend_on_the_others():
    functions = counting()
    together = rows_of(made(functions, 4), SEEDS, 40)
    first, second = (rows_of(made(functions, 2), half, 40) for half in (SEEDS[:2], SEEDS[2:]))
    for whole, *halves in zip(together, first, second):
        np.testing.assert_array_equal(whole, np.concatenate(halves, axis=1))


def test_seeds_decide_and_a_reset_without_one_continues():
    env = made(counting(), 4)
    rows, again = rows_of(env, SEEDS, 5), rows_of(env, SEEDS, 5)
    np.testing.assert_array_equal(rows, again)
    continued, _ = env.reset()
    env.reset(seed=SEEDS)
    other, _ = env.reset()
    assert not np.array_equal(continued["number"], rows[0][0]) and not np.array_equal(other["number"], rows[0][0])


def test_infos_of_ended_episodes_are_final():
    env = made(counting(), 4)
    env.reset(seed=SEEDS)
    for _ in range(20):
        *_, terminated, truncated, info = env.step(np.zeros(4, np.int64))
        ended = terminated | truncated
        if ended.any():
            np.testing.assert_array_equal(info["_seen"], ~ended)
            np.testing.assert_array_equal(info["final_info"]["_seen"], ended)
            np.testing.assert_array_equal(info["final_info"]["seen"], info["final_obs"]["number"][:, 0])
        else:
            assert info.keys() == {"seen"}


def test_a_stream_takes_it():
    with VectorEnvStream(made(counting(), 4), SEEDS, checked_steps=8) as stream:
        buffers = stream.new_buffers()
        stream.reset(buffers)
        ends = [end for _ in range(30) for end in stream.step(np.ones(4, np.int64), buffers)]
        assert len(ends) > 10 and stream.reset_rows is None


def test_tensors_have_the_same_numbers():
    torch = pytest.importorskip("torch")
    functions = counting()
    env = made(functions, 4).in_tensors()
    arrays = rows_of(made(functions, 4), SEEDS, 30)
    observations, _ = env.reset(seed=SEEDS)
    for before, final, rewards, terminated, truncated in zip(*arrays):
        np.testing.assert_array_equal(observations["number"][:, 0], before)
        observations, *given, info = env.step(torch.ones(4, dtype=torch.int64))
        assert all(isinstance(each, torch.Tensor) for each in given)
        for each, expected in zip(given, (rewards, terminated, truncated)):
            np.testing.assert_array_equal(each, expected)
        np.testing.assert_array_equal(info["final_obs"]["number"][:, 0], final)


def test_a_stream_of_tensors_asks_for_them():
    """What `tensor_rollouts=True` makes."""
    torch = pytest.importorskip("torch")
    counted = counting()
    numbers = replace(
        counted,
        reset=lambda key: (lambda state, seen: (state, seen["number"]))(*counted.reset(key)),
        step=lambda *given: (lambda made: made._replace(observation=made.observation["number"]))(counted.step(*given)),
        observation_space=counted.observation_space["number"],
    )
    stream = _tensor_stream(made(numbers, 4), SEEDS, 0)
    try:
        assert isinstance(stream.reset(), torch.Tensor)
    finally:
        stream.close()


def test_the_same_functions_compile_once():
    functions = counting()
    assert made(functions, 3).compile_time_s > 0 and made(functions, 3).compile_time_s == 0


class _Params(types.SimpleNamespace):
    def replace(self, **changes):
        return _Params(**{**vars(self), **changes})


class _Space(types.SimpleNamespace):
    pass


class _Gymnax:
    """The interface of gymnax 0 and of Craftax: `done` is true at the end of the task and at the time limit."""

    def reset_env(self, key, params):
        return np.zeros(1, np.float32), np.int32(0)

    def step_env(self, key, state, action, params):
        state = state + 1
        return state.reshape(1).astype("float32"), state, 1.0, self.is_terminal(state, params), {}

    def is_terminal(self, state, params):
        return (state >= params.goal) | (state >= params.limit)

    def observation_space(self, params):
        return _Space(shape=(1,), dtype=np.float32, low=-np.finfo(np.float32).max, high=5.0)

    def action_space(self, params):
        return _Space(shape=(), dtype=np.int32, n=2)


@pytest.mark.parametrize(("goal", "limit", "expected"), [(3, 9, (True, False)), (9, 3, (False, True))])
def test_the_time_limit_is_told_from_the_end_of_the_task(goal, limit, expected):
    from rllib.env.suites.jitted.suites import _of_gymnax

    functions = _of_gymnax(_Gymnax(), _Params(goal=goal, limit=limit), "limit")
    assert functions.observation_space == gymnasium.spaces.Box(-np.inf, 5.0, (1,), np.float32)
    env = made(functions, 1)
    env.reset(seed=[0])
    flags = [tuple(bool(each[0]) for each in env.step(np.zeros(1, np.int64))[2:4]) for _ in range(3)]
    assert flags == [(False, False), (False, False), expected]


def test_memory_of_a_gpu_is_not_taken_whole():
    import os

    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false" and "jax" in sys.modules
