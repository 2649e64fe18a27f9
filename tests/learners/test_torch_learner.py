"""The torch learner against the numpy learner, and on a GPU where there is one."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from learner_support import ACTION_SPACES, SETTINGS, make_batch, make_policy

from rllib import sample_batch as sb
from rllib.errors import LearnerError
from rllib.learners.in_torch.transfers import PinnedTransfers
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.losses.ppo import PPO_LOSS
from rllib.sample_batch import SampleBatch
from tests.gpu import DEVICES, needs_gpu

# The networks here are so small that a second thread only waits.
torch.set_num_threads(1)


def update(learner, batch, seed=0, **changed):
    arguments = {"num_epochs": 2, "minibatch_size": 32, "lr": 3e-4, **SETTINGS, **changed}
    return learner.update(batch, rng=np.random.default_rng(seed), **arguments)


def make_pair(
    device="cpu",
    grad_clip=0.5,
    adam_epsilon=1e-5,
    optimizer="adam",
    grad_clip_by="global_norm",
    momentum=0.0,
    rmsprop_epsilon=1e-5,
    **policy,
):
    """The same policy twice, trained by numpy and by torch."""
    policies = [make_policy(**policy) for _ in range(2)]
    settings = OptimizerSettings(optimizer, adam_epsilon, momentum=momentum, rmsprop_epsilon=rmsprop_epsilon)
    objective = Objective(PPO_LOSS, optimizer=settings, grad_clip=grad_clip, grad_clip_by=grad_clip_by)
    learners = [
        make_learner(policies[0], objective, kind="numpy"),
        make_learner(policies[1], objective, kind="torch", device=device),
    ]
    return policies, learners


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("action_space", ACTION_SPACES, ids=str)
@pytest.mark.parametrize(
    "model",
    [
        {},
        {"vf_share_layers": True},
        {"fcnet_hiddens": [32], "fcnet_activation": "swish"},
        {"fcnet_hiddens": [16, 8, 8], "fcnet_activation": "relu"},
        {"fcnet_hiddens": []},
        {"layer_norm": True},
        {"fcnet_hiddens": [16, 8, 8], "fcnet_activation": "relu", "layer_norm": True, "vf_share_layers": True},
    ],
    ids=str,
)
def test_the_first_steps_agree(action_space, model, device):
    policies, learners = make_pair(device, action_space=action_space, **model)
    batch = make_batch(policies[0], 100)
    statistics = [update(learner, batch, num_epochs=1) for learner in learners]
    assert statistics[1] == pytest.approx(statistics[0], abs=2e-5)
    np.testing.assert_allclose(policies[1].weights, policies[0].weights, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("action_space", [gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (1,))], ids=str)
def test_weights_after_100_updates(action_space, layer_norm, device):
    policies, learners = make_pair(device, action_space=action_space, fcnet_hiddens=[64, 64], layer_norm=layer_norm)
    for seed in range(100):
        batch = make_batch(policies[0], 128, seed)
        for learner in learners:
            update(learner, batch, seed, num_epochs=1, minibatch_size=64)
    np.testing.assert_allclose(policies[1].weights, policies[0].weights, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "how",
    [
        {"optimizer": "sgd"},
        {"optimizer": "radam"},
        {"optimizer": "rmsprop"},
        {"optimizer": "rmsprop", "momentum": 0.9, "rmsprop_epsilon": 0.1},
        {"grad_clip": None},
        {"grad_clip": 0.05},
        {"grad_clip": 0.05, "grad_clip_by": "norm"},
        {"grad_clip": 0.001, "grad_clip_by": "value"},
    ],
    ids=str,
)
def test_optimizers_and_clipping_agree(how, device):
    policies, learners = make_pair(device, **how)
    batch = make_batch(policies[0], 100)
    for learner in learners:
        update(learner, batch, lr=1e-2)
    np.testing.assert_allclose(policies[1].weights, policies[0].weights, atol=2e-5)


@pytest.mark.parametrize(
    "how",
    [{}, {"optimizer": "radam"}, {"optimizer": "rmsprop"}, {"optimizer": "rmsprop", "momentum": 0.9}],
    ids=str,
)
def test_states_go_from_one_kind_to_the_other(how):
    policies, learners = make_pair(**how)
    update(learners[0], make_batch(policies[0], 100))
    policies[1].set_state(policies[0].get_state())
    learners[1].set_state(learners[0].get_state())
    assert learners[1].get_state().keys() == learners[0].get_state().keys()
    batch = make_batch(policies[0], 100, seed=1)
    for learner in learners:
        update(learner, batch, seed=1)
    np.testing.assert_allclose(policies[1].weights, policies[0].weights, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "radam"])
def test_moments_of_dead_units_do_not_become_denormal(optimizer):
    policies, learners = make_pair(optimizer=optimizer, fcnet_hiddens=[8], fcnet_activation="relu")
    for policy, learner in zip(policies, learners):
        for name, parameter in policy.parameters().items():
            if name.endswith("hidden_0.bias"):
                parameter[:] = -1000  # such units never fire
        state = learner.get_state()
        for name in ("m", "v"):
            state[f"{optimizer}.{name}"][:] = 1.2e-38  # a little above the least normal number
        learner.set_state(state)
        for seed in range(10):
            update(learner, make_batch(policy, 64), seed)
        for name in ("m", "v"):
            kept = abs(learner.get_state()[f"{optimizer}.{name}"])
            assert kept.min() > 1.2e-38 and np.median(kept) < 1e-28, name


@pytest.mark.parametrize("device", DEVICES)
def test_state_continues_to_the_bit(device):
    policies = [make_policy(), make_policy(seed=3)]
    learners = [make_learner(policy, PPO_LOSS, kind="torch", device=device) for policy in policies]
    update(learners[0], make_batch(policies[0], 100))
    policies[1].set_state(policies[0].get_state())
    learners[1].set_state(learners[0].get_state())
    batch = make_batch(policies[0], 100, seed=1)
    for learner in learners:
        update(learner, batch, seed=1)
    assert policies[0].weights.tobytes() == policies[1].weights.tobytes()


def test_cpu_learner_works_on_the_policy_s_memory():
    policy = make_policy()
    learner = make_learner(policy, PPO_LOSS, kind="torch")
    before = policy.weights.copy()
    update(learner, make_batch(policy, 64))
    assert learner.weights is policy.weights
    assert not np.array_equal(policy.weights, before)


@pytest.mark.parametrize("device", DEVICES)
def test_weights_set_from_outside_are_seen(device):
    policies, learners = make_pair(device)
    other = make_policy(seed=8).weights
    for policy in policies:
        policy.set_weights(other)
    batch = make_batch(policies[0], 64)
    for learner in learners:
        update(learner, batch)
    np.testing.assert_allclose(policies[1].weights, policies[0].weights, atol=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_read_only_batch(shuffle):
    policy = make_policy()
    batch = make_batch(policy, 64)
    for column in batch.values():
        column.setflags(write=False)
    update(make_learner(policy, PPO_LOSS, kind="torch"), batch, shuffle=shuffle)


def read_only(batch):
    for column in batch.values():
        column.setflags(write=False)
    return batch


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_staged_batch_is_learned_from_as_any_other(device, shuffle):
    """Staged while the one before is learned from: on a GPU it travels on a stream of its own meanwhile."""
    policies, _ = make_pair()
    learners = [make_learner(policy, PPO_LOSS, kind="torch", device=device) for policy in policies]
    batches = [read_only(make_batch(policies[0], 100, seed)) for seed in range(4)]
    for this, following in itertools.pairwise(batches):
        # The rows of `following` were not sampled by these weights: only one gradient step apart, close enough.
        update(learners[0], this, shuffle=shuffle, lr=1e-5, meanwhile=lambda next_=following: learners[0].stage(next_))
        update(learners[1], this, shuffle=shuffle, lr=1e-5)
    np.testing.assert_array_equal(policies[1].weights, policies[0].weights)


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_that_was_staged_in_vain_does_no_harm(device):
    policies, _ = make_pair()
    learners = [make_learner(policy, PPO_LOSS, kind="torch", device=device) for policy in policies]
    learners[0].stage(make_batch(policies[0], 64, seed=5))
    for learner, policy in zip(learners, policies):
        update(learner, make_batch(policy, 100))
    np.testing.assert_array_equal(policies[1].weights, policies[0].weights)


@needs_gpu
def test_transfers_hold_what_was_sent_while_the_host_array_is_used_again():
    transfers = PinnedTransfers(torch.device("cuda"))
    array = np.arange(10**6, dtype=np.float32)
    transfers.stage([array])
    staged = transfers.take(array)
    array[:] = -1
    np.testing.assert_array_equal(staged.cpu().numpy(), np.arange(10**6, dtype=np.float32))


@pytest.mark.parametrize("device", DEVICES)
def test_tampered_log_probabilities_are_noticed(device):
    policy = make_policy()
    batch = make_batch(policy, 64)
    batch[sb.ACTION_LOGP] += np.float32(0.05)
    before = policy.weights.copy()
    with pytest.raises(LearnerError, match="not sampled by these weights"):
        update(make_learner(policy, PPO_LOSS, kind="torch", device=device), batch)
    assert np.array_equal(policy.weights, before)


@pytest.mark.parametrize("device", DEVICES)
def test_nan_is_named(device):
    policy = make_policy()
    batch = make_batch(policy, 64)
    batch[sb.ADVANTAGES][3] = np.nan
    with pytest.raises(LearnerError, match="Columns with NaN or infinity: advantages"):
        update(make_learner(policy, PPO_LOSS, kind="torch", device=device), batch)
    assert np.isfinite(policy.weights).all()


def test_a_failed_update_on_a_gpu_leaves_the_optimizer_as_it_was():
    """There the numbers are checked at the end of an update; on the CPU, which stands for a GPU here, in each step."""
    policy = make_policy()
    learner = make_learner(policy, PPO_LOSS, kind="torch")
    for part in (learner.backend, *learner.backend._descents):
        part._on_gpu = True
    update(learner, make_batch(policy, 64))
    before = [{name: np.copy(array) for name, array in state.items()} for state in learner.backend.states]
    batch = make_batch(policy, 64)
    batch[sb.ADVANTAGES][3] = np.nan
    with pytest.raises(LearnerError, match="Columns with NaN or infinity: advantages"):
        update(learner, batch)
    for state, expected in zip(learner.backend.states, before, strict=True):
        for name, array in state.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_a_device_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=r"device='cuda:2' was asked for, but there are 2 GPUs: cuda:0 to cuda:1"):
        make_learner(make_policy(), PPO_LOSS, kind="torch", device="cuda:2")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_without_a_device_is_refused():
    with pytest.raises(ValueError, match=r"torch .* Use .resources\(num_gpus=0\)"):
        make_learner(make_policy(), PPO_LOSS, device="cuda")


def test_other_devices_are_refused():
    with pytest.raises(ValueError, match="'cpu' or 'cuda'"):
        make_learner(make_policy(), PPO_LOSS, device="mps")


def as_tensors(batch, device="cpu"):
    return SampleBatch({name: torch.tensor(column, device=device) for name, column in batch.items()})


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_are_learned_from_as_arrays_are(device):
    (_, policy), (_, learner) = make_pair(device=device)
    (_, other), (_, same) = make_pair(device=device)
    batch = make_batch(policy, 100)
    on_device = as_tensors(batch, device)
    stats, theirs = update(learner, batch, shuffle=False), update(same, on_device, shuffle=False)
    np.testing.assert_array_equal(policy.weights, other.weights)
    assert stats == theirs
    assert same.backend._transfers.take(on_device[sb.ADVANTAGES]) is on_device[sb.ADVANTAGES]


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_tensors_are_shuffled(kind):
    batch, weights = None, []
    for seed in (1, 1, 2):
        policies, learners = make_pair()
        batch = batch or as_tensors(make_batch(policies[0], 100))
        update(learners[kind], batch, seed=seed)
        weights.append(policies[kind].weights.copy())
    assert np.array_equal(weights[0], weights[1]) and not np.array_equal(weights[0], weights[2])


def test_a_numpy_learner_reads_the_same_memory_of_tensors():
    policies, (learner, _) = make_pair()
    (other, _), (same, _) = make_pair()
    batch = make_batch(policies[0], 100)
    assert update(learner, batch) == update(same, as_tensors(batch))
    np.testing.assert_array_equal(policies[0].weights, other.weights)
