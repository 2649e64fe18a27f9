"""Every way of stepping the same seeded environments must store the same transitions."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rllib.env import make_stream, resolve
from rllib.env.streams.vector import VectorEnvStream, autoreset_mode
from tests.env.transitions import Tape, collect, constant_actions
from tests.envs import CountingEnv, ProbeFailure, in_vector

SEEDS = [11, 7, 5]
CONFIG = {"offset": 0.5}


def counting(context) -> gymnasium.Env:
    return CountingEnv(context)


def open_stream(env, config=CONFIG, seeds=SEEDS):
    return make_stream(resolve(env), num_envs=len(seeds), seeds=seeds, env_config=config)


def expected(num_steps: int, config=CONFIG, seeds=SEEDS, policy=None) -> list[list[tuple]]:
    """The transitions of a plain loop over plain environments, written like the textbook."""
    stored = []
    for seed in seeds:
        env = CountingEnv(config)
        observation, _ = env.reset(seed=seed)
        rows = []
        for _ in range(num_steps):
            action = 0 if policy is None else int(policy(observation))
            following, reward, terminated, truncated, _ = env.step(action)
            rows.append((observation.tolist(), action, reward, following.tolist(), terminated, truncated))
            observation = env.reset()[0] if terminated or truncated else following
        stored.append(rows)
    return stored


MODES = {
    "own": counting,
    "sync next": in_vector(counting, AutoresetMode.NEXT_STEP),
    "sync same": in_vector(counting, AutoresetMode.SAME_STEP),
    "sync disabled": in_vector(counting, AutoresetMode.DISABLED),
    "async next": in_vector(counting, AutoresetMode.NEXT_STEP, AsyncVectorEnv),
    "async same": in_vector(counting, AutoresetMode.SAME_STEP, AsyncVectorEnv),
}


@pytest.mark.parametrize("name", MODES)
def test_stored_transitions_are_those_of_a_plain_loop(name):
    with open_stream(MODES[name]) as stream:
        transitions, dropped = collect(stream, 40, policy=lambda observation: int(observation[0]) % 2)
    assert (dropped > 0) == name.endswith("next")
    plain = expected(40, policy=lambda observation: int(observation[0]) % 2)
    for got, wanted in zip(transitions, plain):
        assert got == wanted[: len(got)]
    assert {(row[4], row[5]) for rows in transitions for row in rows} == {
        (False, False),
        (True, False),
        (False, True),
        (True, True),
    }


@pytest.mark.parametrize("name", MODES)
def test_no_stored_pair_crosses_a_reset(name):
    with open_stream(MODES[name], {}) as stream:
        transitions, _ = collect(stream, 40)
    for observation, _, reward, following, _, _ in (row for rows in transitions for row in rows):
        assert following[0] == observation[0] + 1 == reward
        assert following[0] != 0


@pytest.mark.parametrize("length", [1, 4])
def test_next_step_mode_loses_one_row_an_episode(length):
    num_steps = 10 * (length + 1)
    with open_stream(MODES["sync next"], {"lengths": [length]}) as stream:
        transitions, dropped = collect(stream, num_steps)
    valid = sum(map(len, transitions))
    assert valid == len(SEEDS) * num_steps * length // (length + 1)
    assert valid + dropped == len(SEEDS) * num_steps


@pytest.mark.parametrize("name", MODES)
def test_a_reset_by_hand_starts_new_episodes(name):
    with open_stream(MODES[name], {"lengths": [3]}) as stream:
        tape = Tape(stream)
        tape.reset()
        for _ in range(3):
            tape.step(constant_actions(stream))
        assert (tape.reset() == 0).all()
        tape.step(constant_actions(stream))
        assert stream.reset_rows is None
        assert (tape.observations == 1).all()


def test_async_without_shared_memory_resets_twice_and_loses_only_that_row():
    """gymnasium 1.4.0 resets once more after a reset by hand; that row must be dropped, not learned from."""
    create = in_vector(counting, AutoresetMode.NEXT_STEP, AsyncVectorEnv, shared_memory=False)
    with open_stream(create, {"lengths": [3]}) as stream:
        tape = Tape(stream)
        tape.reset()
        for _ in range(3):
            tape.step(constant_actions(stream))
        tape.reset()
        tape.step(constant_actions(stream))
        assert stream.reset_rows.all()
        tape.step(constant_actions(stream))
        assert stream.reset_rows is None
        assert (tape.rewards == 1).all()


def test_cartpole_vector_env_stores_only_what_its_physics_allow():
    """Its generator is another one, so each stored transition is checked against CartPoleEnv itself."""
    single = CartPoleEnv()
    with open_stream(CartPoleVectorEnv, {"max_episode_steps": 30}) as stream:
        transitions, dropped = collect(stream, 200, policy=lambda observation: int(observation[2] > 0))
    assert dropped
    for rows in transitions:
        steps = 0
        for observation, action, reward, following, terminated, truncated in rows:
            single.reset()
            single.state = np.array(observation)
            state, *_ = single.step(action)
            np.testing.assert_allclose(following, state, rtol=1e-4, atol=1e-5)
            steps += 1
            assert reward == 1.0
            assert truncated == (steps == 30)
            steps = 0 if terminated or truncated else steps
    ends = [row for rows in transitions for row in rows if row[4] or row[5]]
    assert {(row[4], row[5]) for row in ends} >= {(True, False), (False, True)}


class MixedEnv(gymnasium.Env):
    """A counter in several shapes at once, to see that composite spaces keep their order."""

    action_space = Discrete(2)
    observation_space = Dict(
        {
            "z": Box(0, 9, (2, 2), np.float64),
            "a": Discrete(3, start=1),
            "m": MultiDiscrete([2, 3]),
        }
    )

    def __init__(self, config=None):
        pass

    def _observation(self):
        t = self.t
        return {"z": np.full((2, 2), t / 2), "a": t % 3 + 1, "m": np.array([t % 2, t % 3])}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observation(), {}

    def step(self, action):
        self.t += 1
        return self._observation(), 1.0, False, self.t == 5, {}


@pytest.mark.parametrize("mode", AutoresetMode)
def test_composite_observations_agree_between_own_and_vector(mode):
    def vector(context):
        return SyncVectorEnv([MixedEnv] * context.num_envs, autoreset_mode=mode)

    with open_stream(MixedEnv) as own, open_stream(vector) as other:
        assert own.observation_shape == other.observation_shape == (3 + 2 + 3 + 4,)
        wanted, _ = collect(own, 24)
        got, _ = collect(other, 24)
    for ours, theirs in zip(wanted, got):
        assert theirs == ours[: len(theirs)]


# ---- what a VectorEnv says of itself


class Bare(VectorEnv):
    """A VectorEnv that keeps two counters and says nothing of its autoreset mode."""

    single_observation_space = Box(0, 99, (1,), np.float32)
    single_action_space = Discrete(2)
    action_space = MultiDiscrete([2, 2])
    num_envs = 2

    def reset(self, *, seed=None, options=None):
        self.seed, self.t = seed, np.zeros((2, 1), np.float32)
        return self.t.copy(), {}

    def step(self, actions):
        self.t += 1
        ended = np.array([bool(self.t[0] >= 2), bool(self.t[1] >= 3)])
        return self.t.copy(), np.ones(2), ended, np.zeros(2, bool), {}


class Disabled(Bare):
    """Claims DISABLED, but its reset knows no mask."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012


class SameStep(Bare):
    """Claims SAME_STEP, but hands out no final observation."""

    metadata = {"autoreset_mode": "SameStep"}  # noqa: RUF012


def test_a_mode_that_is_not_told_is_asked_for():
    with pytest.raises(ValueError, match=r"Bare does not declare its autoreset mode.*metadata = "):
        open_stream(Bare, {}, [1, 2])


def test_a_mode_written_into_the_shared_metadata_is_not_taken_for_another_class(monkeypatch, caplog):
    monkeypatch.setitem(VectorEnv.metadata, "autoreset_mode", AutoresetMode.NEXT_STEP)
    assert autoreset_mode(Disabled()) is AutoresetMode.DISABLED
    assert not caplog.records
    assert autoreset_mode(Bare()) is AutoresetMode.NEXT_STEP
    assert "Bare defines no metadata" in caplog.text


def test_a_mode_is_read_through_wrappers():
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(Disabled())
    assert autoreset_mode(env) is AutoresetMode.DISABLED


def test_reset_mask_that_is_ignored_is_noticed():
    with open_stream(Disabled, {}, [1, 2]) as stream:
        tape = Tape(stream)
        tape.reset()
        tape.step([0, 0])
        with pytest.raises(ValueError, match=r'ignores options\["reset_mask"\]'):
            tape.step([0, 0])


def test_same_step_without_final_observation_is_noticed():
    with open_stream(SameStep, {}, [1, 2]) as stream:
        tape = Tape(stream)
        tape.reset()
        tape.step([0, 0])
        with pytest.raises(ValueError, match=r'environment 0, which has just ended: infos\["final_obs"\]'):
            tape.step([0, 0])


def test_vector_env_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"SameStep has 2 environments.*asked to have 3.*num_envs_per_worker=2"):
        open_stream(SameStep, {})


def test_a_single_seed_is_an_int():
    with open_stream(SameStep, {}, [41, 42]) as stream:
        Tape(stream).reset()
        assert stream._env.seed == 41  # private: what the VectorEnv was given


def test_vector_envs_cannot_be_stepped_in_part():
    with open_stream(MODES["sync next"], {}) as stream:
        tape = Tape(stream)
        tape.reset()
        with pytest.raises(ValueError, match="steps all its environments at once"):
            tape.step(constant_actions(stream), active=[True, False, True])


class RaisingCounter(CountingEnv):
    """Raises in its third step; the text and the line have a '%', over which gymnasium's own message stumbles."""

    def step(self, action):
        if self.t == 2:
            raise ProbeFailure("100 % broken: %s")
        return super().step(action)


@pytest.mark.filterwarnings("ignore:.*(Worker-|pending call|last exception)")
def test_async_environment_that_raises_keeps_its_class_and_traceback(caplog):
    def create(context):
        return AsyncVectorEnv([CountingEnv, RaisingCounter])

    with open_stream(create, {}, [1, 2]) as stream:
        processes = stream._env.processes  # private: gymnasium's worker processes
        tape = Tape(stream)
        tape.reset()
        with pytest.raises(ProbeFailure, match=r"100 % broken: %s") as caught:
            for _ in range(3):
                tape.step(constant_actions(stream))
    notes = "".join(caught.value.__notes__)
    assert "vector environment AsyncVectorEnv of rollout worker 0 raised in step() at its step 3" in notes
    assert "environment 1 of the vector" in notes and 'raise ProbeFailure("100 % broken' in notes
    assert not any(process.is_alive() for process in processes)


class ResetRaises(gymnasium.Env):
    """Counts; the second episode of an environment that steps to 2 cannot begin."""

    observation_space, action_space = gymnasium.spaces.Box(0, 99, (1,), np.float32), gymnasium.spaces.Discrete(2)

    def __init__(self, length):
        self.length, self.resets = length, 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        if self.resets == 2:
            raise RuntimeError("the reset fails")
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), float(self.t), self.t == self.length, False, {}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_a_reset_that_raises_replaces_the_vector_and_keeps_the_last_step(mode):
    """The first environment ends with its second step. The second one's episode is void, as if it had failed."""

    def make(_=0):
        return SyncVectorEnv([lambda: ResetRaises(2), lambda: ResetRaises(9)], autoreset_mode=mode)

    with VectorEnvStream(make(), [1, 2], remake=make) as stream:
        buffers = stream.new_buffers()
        stream.reset(buffers)
        actions = np.zeros(2, np.int64)
        assert stream.step(actions, buffers) == []
        ((index, final),) = stream.step(actions, buffers)
        assert index == 0 and final == [2.0] and buffers.rewards[0] == 2.0 and buffers.terminated[0]
        if mode is AutoresetMode.NEXT_STEP:
            assert stream.reset_rows is None and buffers.rewards[1] == 2.0
            assert stream.step(actions, buffers) == []
            assert list(stream.replaced) == [0, 1] and stream.reset_rows.tolist() == [True, True]
        else:
            assert list(stream.replaced) == [1] and stream.reset_rows.tolist() == [False, True]
            assert buffers.rewards[1] == 0.0
        assert buffers.observations.tolist() == [[0.0], [0.0]]
        assert stream.step(actions, buffers) == [] and buffers.rewards.tolist() == [1.0, 1.0]
