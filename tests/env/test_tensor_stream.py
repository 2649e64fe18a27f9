"""Environments that hand over tensors: the same transitions as by arrays, in every autoreset mode."""

import logging
import weakref

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rllib.env.factories.make import make_stream
from rllib.env.factories.registry import EnvContext, resolve
from rllib.env.spaces.actions import action_mapper
from rllib.env.spaces.observations import observation_column
from rllib.env.streams.tensors_as_arrays import warn_of_lost_finals
from rllib.env.tensors.spaces import TensorColumn, tensor_action_mapper
from rllib.env.tensors.stream import TensorStepBuffers
from rllib.models.distributions.choose import distribution_for
from rllib.models.distributions.squashed import SquashedGaussian
from tests.envs import CountingEnv, StructuredProbe, in_vector
from tests.tensor_envs import Tensors, as_tensors, stacked

MODES = list(AutoresetMode)
SEEDS = [3, 4, 5]


class DifferentLengths(CountingEnv):
    """Counts; terminates in episodes that begin on an even draw, is truncated in others."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self._length = int(self.np_random.integers(2, 6))
        self._terminates = bool(self.np_random.integers(2))
        self._count = 0
        return observation, info

    def step(self, action):
        observation, reward, *_, info = super().step(action)
        self._count += 1
        over = self._count == self._length
        return observation, reward, over and self._terminates, over and not self._terminates, info


def tensor_stream(creator, seeds=SEEDS):
    return make_stream(resolve(creator), num_envs=len(seeds), seeds=seeds, tensors=True)


def new_buffers(stream, before=None) -> TensorStepBuffers:
    shape, dtype = stream.columns[0].shape, getattr(torch, stream.columns[0].dtype)
    count = stream.num_envs
    empty, observations, finals = (torch.full((count, *shape), 77, dtype=dtype) for _ in range(3))
    flags = (torch.zeros(count, dtype=torch.bool) for _ in range(2))
    valid = torch.zeros(count, dtype=torch.bool) if stream.has_gaps else None
    before = empty if before is None else before
    finals = finals if stream.gives_finals else None
    return TensorStepBuffers(before, observations, torch.zeros(count), *flags, valid, finals)


def transitions(stream, steps):
    """By environment: (observation, reward, terminated, truncated, observation that followed)."""
    found = [[] for _ in range(stream.num_envs)]
    before = stream.reset()
    actions = torch.zeros(stream.num_envs, dtype=torch.int64)
    for _ in range(steps):
        buffers = new_buffers(stream, before)
        stream.step(actions, buffers)
        for index in range(stream.num_envs):
            if buffers.valid is not None and not buffers.valid[index]:
                assert buffers.rewards[index] == 0 and not buffers.terminated[index] and not buffers.truncated[index]
                continue
            ended = bool(buffers.terminated[index] | buffers.truncated[index])
            following = buffers.finals if ended and buffers.finals is not None else buffers.observations
            flags = bool(buffers.terminated[index]), bool(buffers.truncated[index])
            reward = float(buffers.rewards[index])
            found[index].append((before[index].tolist(), reward, *flags, following[index].tolist()))
        before = buffers.observations
    return found


def transitions_of_arrays(creator, steps):
    with make_stream(resolve(creator), num_envs=len(SEEDS), seeds=SEEDS) as stream:
        found = [[] for _ in SEEDS]
        buffers = stream.new_buffers()
        stream.reset(buffers)
        for _ in range(steps):
            before = buffers.observations.copy()
            finals = dict(stream.step(np.zeros(len(SEEDS), np.int64), buffers))
            for index in range(len(SEEDS)):
                if stream.reset_rows is None or not stream.reset_rows[index]:
                    following = finals.get(index, buffers.observations[index])
                    flags = bool(buffers.terminated[index]), bool(buffers.truncated[index])
                    reward = float(buffers.rewards[index])
                    found[index].append((before[index].tolist(), reward, *flags, following.tolist()))
        return found


@pytest.mark.parametrize("mode", MODES)
def test_transitions_are_those_of_arrays(mode):
    stream = tensor_stream(as_tensors(DifferentLengths, mode))
    found, expected = transitions(stream, 30), transitions_of_arrays(in_vector(DifferentLengths, mode), 30)
    stream.close()
    assert found == expected
    assert any(row[2] for rows in found for row in rows) and any(row[3] for rows in found for row in rows)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_environment_where_arrays_are_wanted(mode):
    found = transitions_of_arrays(as_tensors(DifferentLengths, mode), 30)
    assert found == transitions_of_arrays(in_vector(DifferentLengths, mode), 30)


def test_a_reset_that_ignores_its_mask_is_an_error():
    class ResetsAll(Tensors):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)

    mode = AutoresetMode.DISABLED
    stream = tensor_stream(lambda context: ResetsAll(in_vector(DifferentLengths, mode)(context)))
    with pytest.raises(ValueError, match=r"DISABLED, but its reset\(\) ignores"):
        transitions(stream, 30)
    stream.close()


@pytest.mark.parametrize("mode", MODES)
def test_no_memory_of_a_fragment_is_kept(mode):
    stream = tensor_stream(as_tensors(DifferentLengths, mode))
    stream.reset()
    array = np.zeros((len(SEEDS), 1), np.float32)
    buffers = new_buffers(stream)._replace(observations=torch.from_numpy(array))
    stream.step(torch.zeros(len(SEEDS), dtype=torch.int64), buffers)
    kept = weakref.ref(array)  # for as long as there are tensors in this memory
    del array, buffers
    assert kept() is None
    stream.close()


def test_older_name_of_final_observations():
    creator = as_tensors(DifferentLengths, finals="final_observation")
    stream = tensor_stream(creator)
    assert transitions(stream, 20) == transitions_of_arrays(in_vector(DifferentLengths, AutoresetMode.SAME_STEP), 20)
    stream.close()
    assert transitions_of_arrays(creator, 20) == transitions_of_arrays(
        in_vector(DifferentLengths, AutoresetMode.SAME_STEP), 20
    )


def test_without_final_observations_those_before_the_last_step_take_their_place(caplog):
    warn_of_lost_finals.cache_clear()
    stream = tensor_stream(as_tensors(DifferentLengths, finals=None))
    with caplog.at_level(logging.WARNING):
        found = transitions(stream, 30)
        for _ in range(2):
            stream.warn_of_lost_finals()
    stream.close()
    ends = [row for rows in found for row in rows if row[2] or row[3]]
    assert ends and all(row[0] == row[4] for row in ends)
    assert sum("gives no final observations" in record.message for record in caplog.records) == 1


def test_errors_say_what_to_do():
    stream = tensor_stream(in_vector(CountingEnv, AutoresetMode.SAME_STEP))
    with pytest.raises(TypeError, match=r"hands over torch tensors, but reset.. of SyncVectorEnv gave ndarray.*Numpy"):
        stream.reset()
    stream.close()
    with pytest.raises(TypeError, match=r"needs one vector environment.*CountingEnv is no"):
        tensor_stream(CountingEnv)
    with pytest.raises(ValueError, match="has 2 environments, but each worker was asked to have 3"):
        tensor_stream(lambda config: as_tensors(CountingEnv)(EnvContext(num_envs=2)))


def test_a_wrong_shape_is_an_error():
    class Column(Tensors):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return observations, rewards[:, None], *rest

    stream = tensor_stream(lambda context: Column(in_vector(CountingEnv, AutoresetMode.SAME_STEP)(context)))
    stream.reset()
    with pytest.raises(ValueError, match=r"rewards as a tensor of shape \[3\], but gave \[3, 1\]"):
        stream.step(torch.zeros(3, dtype=torch.int64), new_buffers(stream))
    stream.close()


class Gives(Tensors):
    """Whose step gives something else at one place of its result."""

    def __init__(self, env, place: int, change):
        super().__init__(env)
        self._place, self._change = place, change

    def step(self, actions):
        result = list(super().step(actions))
        result[self._place] = self._change(result[self._place])
        return tuple(result)


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, lambda x: x[:, None], r"step\(\) must return observations as a tensor of shape \[3, 1\], but gave \[3, 1,"),
        (0, lambda x: x.numpy(), r"observations as a tensor of shape \[3, 1\], but gave array"),
        (0, lambda x: x * 1j, "observations as a tensor .* of real numbers, but gave torch.complex64"),
        (0, lambda x: x.to("meta"), "on cpu, where its other tensors are, but gave one on meta"),
        (1, lambda x: None, r"rewards as a tensor of shape \[3\], but gave None"),
        (1, lambda x: x.numpy(), r"rewards as a tensor of shape \[3\], but gave array"),
        (1, lambda x: x.to("meta"), r"rewards as a tensor of shape \[3\] on cpu, .* gave one on meta"),
        (2, lambda x: None, r"terminated as a tensor of shape \[3\], but gave None"),
        (3, lambda x: x.float(), "truncated as bools, but gave torch.float32"),
        (3, lambda x: False, r"truncated as a tensor of shape \[3\], but gave False"),
        (4, lambda x: [x], r"a dict as info, but gave \[\{"),
        (4, lambda x: {"life_lost": torch.zeros(3)}, r"cannot report. Use .rollouts\(tensor_rollouts=False\)"),
    ],
)
def test_the_form_of_a_first_step_is_checked(place, change, message):
    make = in_vector(CountingEnv, AutoresetMode.SAME_STEP)
    stream = tensor_stream(lambda context: Gives(make(context), place, change))
    stream.reset()
    with pytest.raises((TypeError, ValueError), match=message):
        stream.step(torch.zeros(3, dtype=torch.int64), new_buffers(stream))
    stream.close()


def test_a_step_of_another_number_of_values_is_an_error():
    class Four(Tensors):
        def step(self, actions):
            return super().step(actions)[:4]

    stream = tensor_stream(lambda context: Four(in_vector(CountingEnv, AutoresetMode.SAME_STEP)(context)))
    stream.reset()
    with pytest.raises(TypeError, match=r"step\(\) must return .*, but gave 4 values"):
        stream.step(torch.zeros(3, dtype=torch.int64), new_buffers(stream))
    stream.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda result: result[0], r"reset\(\) must return \(observation, info\)"),
        (lambda result: (result[0][:2], {}), r"observations as a tensor of shape \[3, 1\], but gave \[2, 1\]"),
        (lambda result: ({"x": result[0]}, {}), r"observations as a tensor of shape \[3, 1\], but gave \{'x'"),
    ],
)
def test_the_form_of_a_first_reset_is_checked(change, message):
    class Resets(Tensors):
        def reset(self, *, seed=None, options=None):
            return change(super().reset(seed=seed, options=options))

    stream = tensor_stream(lambda context: Resets(in_vector(CountingEnv, AutoresetMode.SAME_STEP)(context)))
    with pytest.raises((TypeError, ValueError), match=message):
        stream.reset()
    stream.close()


OBSERVATIONS = [
    spaces.Box(-1, 1, (3,)),
    spaces.Box(-1, 1, (2, 2), np.float64),
    spaces.Box(0, 255, (4, 4, 1), np.uint8),
    spaces.Discrete(5, start=2),
    spaces.MultiDiscrete([2, 3], start=[1, 4]),
    spaces.MultiBinary(3),
    spaces.Dict(action_mask=spaces.MultiBinary(3), observations=spaces.Box(-1, 1, (2,))),
    StructuredProbe.observation_space,
]


@pytest.mark.parametrize("space", OBSERVATIONS, ids=str)
def test_observations_are_stored_as_those_of_arrays(space):
    space.seed(0)
    rows = [space.sample() for _ in range(4)]
    of_arrays, of_tensors = observation_column(space), TensorColumn(space)
    expected = np.zeros((4, *of_arrays.shape), of_arrays.dtype)
    of_arrays.write_rows(rows, expected)
    found = torch.full(expected.shape, 9, dtype=getattr(torch, of_tensors.dtype))
    for _ in range(2):
        of_tensors.write(stacked(rows), found)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert found.numpy().dtype == expected.dtype


ACTIONS = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([2, 3], start=[1, 4]),
    spaces.MultiBinary(3),
    spaces.Box(np.array([-3, 0.1], np.float32), np.array([1, np.inf], np.float32)),
    spaces.Box(-2, 2, (2, 2), np.float64),
]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_actions_are_mapped_as_those_of_arrays(space, normalize):
    distribution, rng = distribution_for(space), np.random.default_rng(0)
    inputs = rng.normal(0, 2, (50, distribution.num_inputs)).astype(np.float32)
    actions = distribution.sample(inputs, distribution.noise(rng, 50))
    expected = action_mapper(space, distribution, normalize, False).to_env(actions)
    given = torch.from_numpy(actions)
    found = tensor_action_mapper(space, distribution, normalize, False, "cpu").to_env(given)
    np.testing.assert_allclose(found.numpy(), expected.astype(space.dtype), rtol=1e-6)
    assert found.numpy().dtype == space.dtype and found.data_ptr() != given.data_ptr()


def test_squashed_actions_are_mapped_as_those_of_arrays():
    space, actions = spaces.Box(-3, 1, (2,)), np.random.default_rng(0).normal(0, 2, (50, 2)).astype(np.float32)
    expected = action_mapper(space, SquashedGaussian((2,)), True, False).to_env(actions)
    found = tensor_action_mapper(space, SquashedGaussian((2,)), True, False, "cpu").to_env(torch.from_numpy(actions))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
