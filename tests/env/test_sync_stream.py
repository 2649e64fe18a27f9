"""SyncStream: time limits, seeds, partial steps, arrays, and what it leaves behind."""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TimeLimit

from rllib.env import make_stream, resolve
from rllib.env.factories.make import SyncStream
from tests.env.transitions import Tape, collect, constant_actions
from tests.envs import CountingEnv, InfiniteHorizon


def open_stream(env, num_envs=2, config=None, seeds=None, **options):
    return make_stream(
        resolve(env), num_envs=num_envs, seeds=seeds or list(range(num_envs)), env_config=config, **options
    )


def plain_episodes(env, seed: int, num_steps: int, policy) -> list[tuple]:
    """What gymnasium's own stack of wrappers says, step by step."""
    observation, _ = env.reset(seed=seed)
    rows = []
    for _ in range(num_steps):
        action = policy(observation)
        following, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation.tolist(), action, reward, following.tolist(), terminated, truncated))
        observation = env.reset()[0] if terminated or truncated else following
    env.close()
    return rows


def keep_upright(observation) -> int:
    """Balances for hundreds of steps, so that episodes end both ways."""
    return int(observation[2] + 0.3 * observation[3] > 0)


# ---- time limits


def lean(observation) -> int:
    """Balances for some tens of steps."""
    return int(observation[2] > 0)


@pytest.mark.parametrize(("limit", "policy"), [(None, keep_upright), (1, keep_upright), (7, keep_upright), (40, lean)])
def test_time_limit_is_gymnasiums_own(limit, policy):
    config = {} if limit is None else {"max_episode_steps": limit}
    with open_stream("CartPole-v1", config=config, seeds=[3, 4]) as stream:
        transitions, _ = collect(stream, 1100, policy)
    for seed, rows in zip([3, 4], transitions):
        assert rows == plain_episodes(gymnasium.make("CartPole-v1", **config), seed, 1100, policy)
    assert any(row[5] for rows in transitions for row in rows)
    assert any(row[4] for rows in transitions for row in rows) == (policy is lean)


@pytest.fixture
def register():
    names = []

    def register_id(name, **spec):
        gymnasium.register(name, **spec)
        names.append(name)
        return name

    yield register_id
    for name in names:
        del gymnasium.registry[name]


def test_limit_and_termination_in_the_same_step_give_both_flags(register):
    env_id = register("Counting-v0", entry_point=CountingEnv, max_episode_steps=3, kwargs={"config": {"lengths": [3]}})
    with open_stream(env_id) as stream:
        transitions, _ = collect(stream, 12)
    flags = [row[4:] for row in transitions[0] if row[0] == [2.0]]
    assert flags == [(True, True), (False, True), (True, True), (True, True)]


def test_limit_can_be_switched_off(register):
    env_id = register("Counting-v0", entry_point=CountingEnv, max_episode_steps=3, kwargs={"config": {"lengths": [50]}})
    with open_stream(env_id, config={"max_episode_steps": -1}) as stream:
        transitions, _ = collect(stream, 40)
    assert not any(row[4] or row[5] for row in transitions[0])


def test_limit_inside_other_wrappers_counts_their_steps(register):
    """TimeLimit lies below the wrappers of a spec: with RepeatAction-like ones it counts the inner steps."""
    env_id = register(
        "Doubled-v0",
        entry_point=CountingEnv,
        max_episode_steps=6,
        kwargs={"config": {"lengths": [50]}},
        additional_wrappers=(gymnasium.envs.registration.WrapperSpec("Twice", "tests.env.test_sync_stream:Twice", {}),),
    )
    with open_stream(env_id) as stream:
        transitions, _ = collect(stream, 9)
    assert [row[5] for row in transitions[0]] == [False, False, True] * 3


class Twice(gymnasium.Wrapper):
    """Does each action twice."""

    def step(self, action):
        result = self.env.step(action)
        return result if result[2] or result[3] else self.env.step(action)


def test_outermost_limits_of_a_made_env_are_taken_over_too():
    def nested(context):
        return TimeLimit(TimeLimit(InfiniteHorizon(), 8), 5)

    with open_stream(nested) as stream:
        transitions, _ = collect(stream, 20)
        # Private: which wrappers were left out
        assert not any(isinstance(env, gymnasium.Wrapper) for env in stream._envs)
    assert [index for index, row in enumerate(transitions[0]) if row[5]] == [4, 9, 14, 19]


def test_limits_hold_per_environment_when_episodes_shift():
    def create(context):
        return TimeLimit(CountingEnv({"lengths": [[2, 9], [4, 9]][context.vector_index]}), 5)

    with open_stream(create) as stream:
        transitions, _ = collect(stream, 14)
    # First episodes of 2 and 4 steps, then always cut at 5 but for the short ones in between.
    lengths = [[i + 1 for i, row in enumerate(rows) if row[4] or row[5]] for rows in transitions]
    assert lengths == [[2, 7, 9, 14], [4, 9, 13]]


# ---- seeds


def test_seeds_are_used_once_and_the_generator_goes_on():
    with open_stream("CartPole-v1", seeds=[1, 2]) as stream:
        tape = Tape(stream)
        first, second = tape.reset(), tape.reset()
    with open_stream("CartPole-v1", seeds=[1, 2]) as again:
        tape = Tape(again)
        np.testing.assert_array_equal(tape.reset(), first)
        np.testing.assert_array_equal(tape.reset(), second)
    assert len(np.unique(np.concatenate([first, second])[:, 0])) == 4


def test_numpy_seeds_are_taken():
    with open_stream("CartPole-v1", num_envs=1, seeds=[np.int64(5)]) as stream:
        Tape(stream).reset()


def test_an_environment_depends_on_its_seed_alone():
    def starts(seeds, split):
        rows = []
        for part in np.split(np.array(seeds), split):
            with open_stream("CartPole-v1", num_envs=len(part), seeds=part.tolist()) as stream:
                rows += [tuple(row) for row in Tape(stream).reset()]
        return set(rows)

    seeds = [9, 8, 7, 6, 5, 4]
    assert starts(seeds, 1) == starts(seeds, 2) == starts(seeds, 3)


def test_number_of_seeds_must_fit():
    with pytest.raises(ValueError, match="there are 1 for 2 environments"):
        open_stream("CartPole-v1", num_envs=2, seeds=[1])


# ---- stepping a part


def test_inactive_environments_stand_still():
    with open_stream(InfiniteHorizon, config={"length": 50}) as stream:
        limited = SyncStream([TimeLimit(env, 4) for env in stream._envs], [0, 1])  # private: to wrap them again
        tape = Tape(limited)
        tape.reset()
        ends = []
        for t in range(10):
            active = [True, t % 2 == 0]
            finals = tape.step(constant_actions(limited), active=active)
            ends += [(t, index) for index, _ in finals]
            assert limited.reset_rows.tolist() == [not flag for flag in active]
            assert tape.rewards.tolist() == [1.0, float(active[1])]
            assert not tape.truncated[1] or active[1]
    # Environment 1 takes a step at t = 0, 2, 4, 6: its fourth is at t = 6.
    assert ends == [(3, 0), (6, 1), (7, 0)]


def test_partial_and_full_steps_give_the_same_transitions():
    with open_stream(CountingEnv) as stream, open_stream(CountingEnv) as other:
        full, part = Tape(stream), Tape(other)
        full.reset(), part.reset()
        for _ in range(12):
            wanted = full.step(constant_actions(stream))
            got = part.step(constant_actions(other), active=[True, True])
            assert str(wanted) == str(got)
            for name in ("observations", "rewards", "terminated", "truncated"):
                np.testing.assert_array_equal(getattr(full, name), getattr(part, name))
            assert not other.reset_rows.any()


# ---- arrays


class SharedArray(gymnasium.Env):
    """Hands out one array again and again, and changes the action it is given, as some simulators do."""

    observation_space = Box(-9, 9, (3,), np.float64)
    action_space = Box(-1, 1, (2,), np.float64)

    def __init__(self, config=None):
        self.state = np.zeros(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state[:] = 0
        return self.state, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.state += 1
        action *= 5
        return self.state, np.float32(1), bool(self.state[0] == 3), False, {}


def test_final_observation_survives_the_reset_of_a_shared_array():
    with open_stream(SharedArray) as stream:
        assert stream.observation_dtype == np.float32
        transitions, _ = collect(stream, 7)
    for rows in transitions:
        assert [row[3][0] for row in rows] == [1, 2, 3, 1, 2, 3, 1]


def test_stored_actions_are_out_of_the_environments_reach():
    with open_stream(SharedArray) as stream:
        tape = Tape(stream)
        tape.reset()
        actions = np.full((2, 2), 0.5, np.float32)
        tape.step(actions)
        assert (actions == 0.5).all()


class Image(gymnasium.Env):
    """A small image whose pixels say environment and time."""

    observation_space = Box(0, 255, (4, 3, 2), np.uint8)
    action_space = Discrete(2)

    def __init__(self, config=None):
        self.base = 10 * config.vector_index

    def _observation(self):
        return np.full((4, 3, 2), self.base + self.t).tolist()

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._observation(), {}

    def step(self, action):
        self.t += 1
        return self._observation(), 1, self.t == 3, False, {}


@pytest.mark.parametrize("contiguous", [True, False])
def test_images_and_columns_of_any_layout(contiguous):
    with open_stream(Image, num_envs=3) as stream:
        column = np.zeros((3, 5, 4, 3, 2), np.uint8)
        rows = np.zeros((3, 4, 3, 2), np.uint8) if contiguous else column[:, 2]
        assert rows.flags.c_contiguous == contiguous
        buffers = stream.new_buffers()._replace(observations=rows)
        stream.reset(buffers)
        stream.step(np.zeros(3, int), buffers)
        assert [(row.min(), row.max()) for row in rows] == [(1, 1), (11, 11), (21, 21)]


def test_discrete_observations_are_the_environments_own_numbers():
    with open_stream("FrozenLake-v1", config={"is_slippery": False}) as stream:
        assert (stream.observation_shape, stream.observation_dtype) == ((), np.int64)
        transitions, _ = collect(stream, 3, policy=lambda observation: 1)
    assert [row[3] for row in transitions[0]] == [4, 8, 12]
    assert transitions[0][-1][4]


# ---- the end


class Closing(CountingEnv):
    """Remembers which were closed; the first one fails to."""

    closed: list = []  # noqa: RUF012

    def __init__(self, config):
        super().__init__(config)
        self.index = config.vector_index
        if self.index == config.get("fails_at"):
            raise OSError("no more licences")

    def close(self):
        self.closed.append(self.index)
        if self.index == 0:
            raise OSError("cannot close")


@pytest.fixture
def closed():
    Closing.closed.clear()
    return Closing.closed


def test_close_reaches_all_and_may_be_called_twice(closed, caplog):
    stream = open_stream(Closing, num_envs=3)
    stream.close()
    stream.close()
    assert closed == [0, 1, 2]
    assert "Closing failed to close" in caplog.text


def test_environments_made_before_a_failure_are_closed(closed):
    with pytest.raises(OSError, match="no more licences") as caught:
        open_stream(Closing, num_envs=3, config={"fails_at": 2}, worker_index=4)
    assert closed == [0, 1]
    assert "environment 2 of rollout worker 4 (Closing) could not be made" in caught.value.__notes__[0]


class Exiting(CountingEnv):
    """Calls sys.exit in the first reset or step after `armed` is set."""

    armed = ""

    def reset(self, **kwargs):
        if self.armed == "reset":
            sys.exit(3)
        return super().reset(**kwargs)

    def step(self, action):
        if self.armed == "step":
            sys.exit(3)
        return super().step(action)


@pytest.mark.parametrize("replace_failed", [False, True])
@pytest.mark.parametrize(("method", "step"), [("step", 1), ("reset", 3)])
def test_an_exit_in_an_environment_ends_the_program_with_a_word(method, step, replace_failed, caplog):
    """Python itself says nothing about SystemExit, and no traceback shows which line has ended the user's program."""
    stream = open_stream(Exiting, config={"lengths": [3]}, replace_failed=replace_failed)
    buffers = stream.new_buffers()
    stream.reset(buffers)
    stream.environments[1].unwrapped.armed = method
    with pytest.raises(SystemExit):
        for _ in range(step):
            stream.step(np.zeros(2, int), buffers)
    assert f"environment 1 of rollout worker 0 (Exiting) called sys.exit(3) in {method}()" in caplog.text
    assert "sys.exit(3)\n" in caplog.text, "the traceback shows the user's line"


def test_an_exit_in_a_vector_environment_is_told(caplog):
    vector = gymnasium.vector.SyncVectorEnv([lambda: Exiting({"lengths": [3]})])
    vector.envs[0].armed = "reset"
    stream = make_stream(resolve(lambda config: vector), num_envs=1, seeds=[0])
    with pytest.raises(SystemExit):
        stream.reset(stream.new_buffers())
    assert "of rollout worker 0 called sys.exit(3) in reset() at its step 0" in caplog.text


def test_environments_with_other_spaces_are_refused(closed):
    def create(context):
        env = Closing(context)
        if context.vector_index == 1:
            env.observation_space = Box(0, 5, (1,), np.float32)
        return env

    with pytest.raises(ValueError, match="observation_space of environment 1 is Box"):
        open_stream(create)
    assert closed == [0, 1]


# ---- episodes on seeds of their own


def test_restarted_episodes_depend_on_their_seed_alone():
    """Ended environments wait; a restart plays what a fresh environment plays on that seed."""

    def episode(stream, index, seed):
        buffers = stream.new_buffers()
        observations = buffers.observations
        observations.fill(-7)
        stream.restart(index, seed, observations)
        rows, active = [observations[index].tolist()], [i == index for i in range(2)]
        ended = []
        while not ended:
            ended = stream.step(np.zeros(2, int), buffers, active)
            rows.append(observations[index].tolist())
        assert observations[1 - index] == -7.0, "the other environment is left as it is"
        assert ended[0][1].tolist() == rows[-1], "what is left there is the final observation"
        return rows

    config = {"offset": 0.5, "lengths": [4]}
    with open_stream(CountingEnv, config=config) as stream, open_stream(CountingEnv, config=config) as fresh:
        stream.resets_ended = fresh.resets_ended = False
        first = episode(stream, 0, 11)
        assert episode(stream, 1, 12) != first
        assert episode(stream, 0, 12) != first
        assert episode(stream, 1, 11) == first == episode(fresh, 1, 11)


def test_the_time_limit_of_a_restarted_episode_starts_anew():
    with open_stream("CartPole-v1", 1, {"max_episode_steps": 3}) as stream:
        stream.resets_ended = False
        buffers = stream.new_buffers()
        for _ in range(2):
            stream.restart(0, 5, buffers.observations)
            ends = [bool(stream.step(np.zeros(1, int), buffers)) for _ in range(3)]
            assert ends == [False, False, True] and buffers.truncated[0]


def test_environments_that_reset_together_refuse_to_restart_one():
    vector = open_stream(lambda config: gymnasium.make_vec("CartPole-v1", num_envs=2))
    with vector as stream, pytest.raises(ValueError, match="VectorEnv"):
        stream.restart(0, 1, np.empty((2, 4), np.float32))
