"""Replays on a GPU: the bits of those in memory, as tensors. Without a GPU the same code has tensors in memory."""

from functools import partial

import numpy as np
import pytest
import torch

from rllib import (
    ApexDQNConfig,
    DDPGConfig,
    DefaultCallbacks,
    DQNConfig,
    R2D2Config,
    SACConfig,
    TD3Config,
    TQCConfig,
)
from rllib.algorithms.dqn import DQN
from rllib.algorithms.families.q_learning import QTrainee
from rllib.algorithms.sac import SAC
from rllib.losses.td import with_targets
from rllib.replay import gpu
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import Column
from tests.gpu import DEVICES, needs_gpu

STACKED = (Column("obs", (6, 4), "uint8"), Column("new_obs", (6, 4), "uint8"), Column("rewards"))
WITH_A_MEMORY = (SACConfig(), TQCConfig(), TD3Config(), DDPGConfig())
SMALL = {"learner": "torch", "num_steps_sampled_before_learning_starts": 64, "train_batch_size": 32}


@pytest.fixture
def in_memory(monkeypatch):
    """Tensors on the CPU."""
    monkeypatch.setattr(gpu, "DEVICE", "cpu")
    monkeypatch.setattr(gpu, "free_bytes", lambda: 2**24)


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    if request.param == "cpu":
        request.getfixturevalue("in_memory")
    return request.param


def rows(rng, count):
    frames = rng.integers(0, 255, (count + 4, 6), np.uint8)
    stacks = np.stack([frames[t : t + 4].T for t in range(count + 1)])
    return {"obs": stacks[:-1], "new_obs": stacks[1:], "rewards": rng.random(count, np.float32)}


def as_arrays(batch):
    return {name: column if isinstance(column, np.ndarray) else column.cpu().numpy() for name, column in batch.items()}


def same(first, second):
    first, second = as_arrays(first), as_arrays(second)
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    "place", [2, slice(1, 4), np.array([3, 0]), torch.tensor([3, 0])], ids=["one", "slice", "array", "tensor"]
)
def test_rows_are_tensors_for_tensors_of_places_alone(device, place):
    numbers = np.arange(12, dtype=np.float32).reshape(6, 2)
    column = gpu.GpuArray(numbers.shape, numbers.dtype)
    column[:] = numbers
    found = column[place]
    assert isinstance(found, torch.Tensor) == isinstance(place, torch.Tensor)
    place = place.numpy() if isinstance(place, torch.Tensor) else place
    np.testing.assert_array_equal(torch.as_tensor(found).cpu().numpy(), numbers[place])


@pytest.mark.parametrize("frame_axis", [None, -1])
@pytest.mark.parametrize("alpha", [None, 0.6])
def test_the_bits_are_those_of_memory(device, frame_axis, alpha):
    make = partial(ReplayBuffer, STACKED, 50, frame_axis, alpha)
    memory, there = make(), make("gpu")
    assert memory.size_bytes == there.size_bytes
    for seed in range(5):
        samples = []
        for replay in (memory, there):
            rng = np.random.default_rng(seed)
            # More than there is room for, across the end, and none across it.
            replay.add(rows(rng, (37, 60, 9)[seed % 3]))
            samples.append(replay.sample(64, rng, 0.4))
            replay.update_priorities(samples[-1]["batch_indexes"], rng.random(64))
        assert isinstance(samples[1]["obs"], torch.Tensor) and samples[1]["obs"].device.type == device
        assert samples[1]["obs"].shape == (64, 6, 4) and same(*samples)


@pytest.mark.parametrize("frame_axis", [None, -1])
def test_what_is_saved_on_one_side_goes_on_on_the_other(device, frame_axis):
    make = partial(ReplayBuffer, STACKED, 50, frame_axis, 0.6)
    for one, other in (("memory", "gpu"), ("gpu", "memory"), ("gpu", "gpu")):
        first, second = make(one), make(other)
        first.add(rows(np.random.default_rng(0), 70))
        second.set_state({name: np.array(array) for name, array in first.get_state().items()})
        assert same(first.get_state(), second.get_state())
        for replay in (first, second):
            replay.add(rows(np.random.default_rng(1), 20))
        assert same(*(replay.sample(40, np.random.default_rng(2), 0.4) for replay in (first, second)))


def test_whole_columns_are_sent_in_pieces(in_memory, monkeypatch):
    monkeypatch.setattr(gpu, "PIECE_BYTES", 100)
    rows, sizes = gpu.GpuArray((50, 4), np.float32), []
    send = rows._sent
    monkeypatch.setattr(rows, "_sent", lambda array: sizes.append(array.nbytes) or send(array))
    given = np.arange(120, dtype=np.float64).reshape(30, 4)
    rows[10:40] = given
    assert np.array_equal(rows[10:40], given) and not rows[:10].any() and not rows[40:].any()
    assert max(sizes) <= 100 and sum(sizes) == 30 * 16


def test_callbacks_get_arrays(in_memory):
    kinds = set()

    class Looks(DefaultCallbacks):
        def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
            kinds.update(type(column) for column in train_batch.values())

    config = DQNConfig().environment("CartPole-v1").training(**SMALL, hiddens=[16]).callbacks(Looks)
    config.reporting(min_sample_timesteps_per_iteration=100, min_time_s_per_iteration=0)
    final_weights(InLoss(config), "gpu")
    assert kinds == {np.ndarray}


def test_what_does_not_fit_is_refused_with_the_size(in_memory):
    table = (Column("obs", (256,)),)
    ReplayBuffer(table, 14_745, storage="gpu")
    with pytest.raises(ValueError, match=r"a replay of 14746 rows takes 0\.0 GiB, .*10%.*'capacity': 8192"):
        ReplayBuffer(table, 14_746, storage="gpu")
    with pytest.raises(ValueError, match=r"not of uint16. Use .*'storage': 'memory'"):
        ReplayBuffer((Column("obs", (4,), "uint16"),), 10, storage="gpu")


class LearnsInLoss(QTrainee):
    """A policy that learns as on a GPU."""

    def whole_loss(self):
        return with_targets(super().whole_loss(), self.config.double_q)


class InLoss(DQN):
    """DQN as it is on a GPU."""

    trainee_class = LearnsInLoss


def final_weights(algo, storage):
    """After training from a replay that lies there."""
    with algo:
        make = algo.trainee.ring(500)
        algo.replays["default_policy"] = ReplayBuffer(*make.args[:-1], storage, **make.keywords)
        for _ in range(2):
            algo.train()
        assert algo.num_updates > 20
        return algo.get_weights()["default_policy"]


@pytest.mark.parametrize("kind", ["dqn", "c51", "prioritised", "sac"])
def test_training_from_tensors_is_training_from_arrays(in_memory, kind):
    if kind == "sac":
        config = SACConfig().environment("Pendulum-v1").training(**SMALL, model={"fcnet_hiddens": [16]})
        config.training(q_model_config={"fcnet_hiddens": [16]})
    else:
        own = {"c51": {"num_atoms": 11}, "prioritised": {"replay_buffer_config": {"type": "PrioritizedReplayBuffer"}}}
        config = DQNConfig().environment("CartPole-v1").training(**SMALL, hiddens=[16], **own.get(kind, {}))
    config.reporting(min_sample_timesteps_per_iteration=100, min_time_s_per_iteration=0).debugging(seed=3)
    weights = [final_weights((SAC if kind == "sac" else InLoss)(config), storage) for storage in ("memory", "gpu")]
    assert np.array_equal(*weights)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DQNConfig(), r"on the GPU of the learner, but num_gpus=0. .*\.resources\(num_gpus=1\)"),
        (DQNConfig().learners(num_learners=2), "{'storage': 'gpu'} and num_learners=2: "),
        (ApexDQNConfig(), "is not for replays in other processes"),
        (R2D2Config(), "is not for sequences"),
        *((each.training(model={"use_lstm": True}), "is not for sequences") for each in WITH_A_MEMORY),
    ],
    ids=["no GPU", "learners", "shards", "sequences", *(each.algorithm_name for each in WITH_A_MEMORY)],
)
def test_where_rows_cannot_lie_on_a_gpu(config, message):
    with pytest.raises(ValueError, match=message):
        config.environment("CartPole-v1").training(replay_buffer_config={"storage": "gpu"}).build()


@needs_gpu
@pytest.mark.parametrize("config", [DQNConfig().environment("CartPole-v1"), SACConfig().environment("Pendulum-v1")])
def test_a_gpu_learns_from_its_own_rows(config):
    config = config.training(**SMALL).resources(num_gpus=1).debugging(seed=3)
    # Few updates: SAC makes 1e-2 of 1e-6 within 200.
    config.reporting(min_sample_timesteps_per_iteration=40, min_time_s_per_iteration=0)
    weights = []
    for storage in ("memory", "gpu"):
        with config.copy().training(replay_buffer_config={"storage": storage}).build() as algo:
            for _ in range(2):
                algo.train()
            weights.append(algo.get_weights()["default_policy"])
    np.testing.assert_allclose(*weights, atol=1e-4)


@needs_gpu
def test_targets_that_are_computed_elsewhere_need_rows_in_memory():
    config = DQNConfig().environment("CartPole-v1").resources(num_gpus=1)
    config.training(replay_buffer_config={"storage": "gpu"}, custom_loss=lambda loss, *_: loss)
    with pytest.raises(ValueError, match="it has custom_loss, auxiliary_losses, or a separate add_targets"):
        config.build()
