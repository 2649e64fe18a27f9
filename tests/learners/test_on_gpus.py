"""What only a GPU does in an update. Each check runs on the CPU too, so that it is known to be right itself."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_support import SETTINGS, make_batch, make_policy

from rllib import DQNConfig, PPOConfig, SACConfig, tune
from rllib import sample_batch as sb
from rllib.errors import GpuMemoryError, LearnerError
from rllib.learners.learner import make_learner
from rllib.learners.updates.descent import Update
from rllib.losses.ppo import PPO_LOSS
from rllib.metrics import gpu_usage
from tests.envs import CountingEnv
from tests.gpu import DEVICES, HAS_GPU
from tests.tensor_envs import counted_waits

torch.set_num_threads(1)
ON_DEVICES = pytest.mark.parametrize("device", DEVICES)


def made(device, **policy):
    """A policy, and a learner that takes the branches of a GPU wherever it computes."""
    policy = make_policy(**policy)
    learner = make_learner(policy, PPO_LOSS, kind="torch", device=device)
    for part in (learner.backend, *learner.backend._descents):
        part._on_gpu = True
    return policy, learner


def update(learner, batch, seed=0, **changed):
    arguments = {"num_epochs": 2, "minibatch_size": 32, "lr": 1e-3, **SETTINGS, **changed}
    return learner.update(batch, rng=np.random.default_rng(seed), **arguments)


def numpy_learner():
    policy = make_policy()
    return policy, make_learner(policy, PPO_LOSS, kind="numpy")


@ON_DEVICES
def test_a_gradient_that_is_computed_and_applied(device):
    (reference, expected), (policy, learner) = numpy_learner(), made(device)
    for seed in range(3):
        batch = make_batch(reference, 100, seed)
        found = [each.compute_gradient(batch, microbatch_size=40, **SETTINGS) for each in (expected, learner)]
        np.testing.assert_allclose(found[1][0], found[0][0], atol=1e-5)
        assert found[1][1] == pytest.approx(found[0][1], abs=1e-4)
        norms = [each.apply_gradient(found[0][0], lr=1e-3) for each in (expected, learner)]
        assert norms[1] == pytest.approx(norms[0], rel=1e-5)
        np.testing.assert_allclose(policy.weights, reference.weights, atol=1e-5)
    before = policy.weights.copy()
    with pytest.raises(LearnerError):
        learner.apply_gradient(np.full_like(before, np.nan), lr=1e-3)
    np.testing.assert_array_equal(policy.weights, before)


@ON_DEVICES
def test_a_limit_ends_the_update_after_an_epoch(device):
    policy, learner = made(device)
    batch = make_batch(policy, 128)
    assert update(learner, batch, num_epochs=5, stop_above=("kl", -1.0))["num_minibatches"] == 4
    assert update(learner, make_batch(policy, 128, 1), num_epochs=5, stop_above=("kl", 9.0))["num_minibatches"] == 20


@ON_DEVICES
def test_columns_are_refreshed_with_the_weights_of_the_epochs(device):
    """The new advantages depend on the weights, which have to be fetched for that."""
    weights = []
    for policy, learner in (numpy_learner(), made(device)):
        batch, first = make_batch(policy, 128), policy.weights.copy()

        def refresh(policy=policy, batch=batch, first=first):
            assert not np.array_equal(policy.weights, first)
            return {sb.ADVANTAGES: batch[sb.ADVANTAGES] * np.float32(np.abs(policy.weights).mean())}

        update(learner, batch, num_epochs=3, refresh=refresh)
        weights.append(policy.weights.copy())
    np.testing.assert_allclose(weights[1], weights[0], atol=2e-5)


@ON_DEVICES
def test_an_update_that_another_learner_takes_over(device):
    """One has made the first of two epochs; the other goes on from its progress, and ends where it would have."""
    policies, learners = zip(*(made(device) for _ in range(2)))
    columns, inputs = learners[0]._read(make_batch(policies[0], 128))
    rng = np.random.default_rng(0)
    orders = [rng.permutation(128) for _ in range(2)]
    update = Update(columns, np.array(inputs), orders, 32, 32, lrs=[1e-3], settings=[SETTINGS])
    one, other = (learner.backend for learner in learners)
    one.train(replace(update, orders=orders[:1]))
    states, progress = one.states, one.get_progress()
    np.copyto(policies[1].weights, policies[0].weights)
    other.load_states(states)
    other.set_progress(progress)
    for backend in (one, other):
        [(statistics, _)] = backend.train(update, resumes=True)
        assert len(statistics) == 8 and backend.num_done == 8
    np.testing.assert_array_equal(policies[1].weights, policies[0].weights)
    whole, learner = made(device)
    learner.backend.train(update)
    np.testing.assert_allclose(whole.weights, policies[0].weights, atol=1e-6)


@ON_DEVICES
def test_an_update_with_nan_is_taken_back(device):
    policy, learner = made(device)
    update(learner, make_batch(policy, 128))
    weights, states = policy.weights.copy(), learner.backend.states
    states = [{name: np.copy(array) for name, array in state.items()} for state in states]
    batch = make_batch(policy, 128, 1)
    bad = sb.SampleBatch({name: column.copy() for name, column in batch.items()})
    bad[sb.ADVANTAGES][-1] = np.nan  # in the last minibatch: the others have moved the optimizer by then
    with pytest.raises(LearnerError, match="Columns with NaN or infinity: advantages"):
        update(learner, bad, shuffle=False)
    if device == "cpu":
        policy.set_weights(weights)  # there the learner works on the policy's own memory
    np.testing.assert_array_equal(policy.weights, weights)
    for state, expected in zip(learner.backend.states, states, strict=True):
        for name, array in state.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)
    # And it goes on as one that never had that batch.
    other, same = made(device)
    update(same, make_batch(other, 128))
    for each in (learner, same):
        update(each, batch)
    np.testing.assert_array_equal(policy.weights, other.weights)


@ON_DEVICES
def test_an_update_that_does_not_fit_leaves_all_as_it_was(device, monkeypatch):
    policy, learner = made(device, fcnet_hiddens=[256, 256])
    update(learner, make_batch(policy, 128))
    weights, large = policy.weights.copy(), make_batch(policy, 100_000 if device == "cuda" else 256)
    if device == "cuda":
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        # The batch has room; what the layers keep of it (100,000 x 256 numbers, several times) has not.
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**26) / total)
        free = lambda: torch.cuda.set_per_process_memory_fraction(1.0)  # noqa: E731
    else:
        index_select = torch.Tensor.index_select

        def out_of_memory(*_):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

        monkeypatch.setattr(torch.Tensor, "index_select", out_of_memory)
        free = lambda: monkeypatch.setattr(torch.Tensor, "index_select", index_select)  # noqa: E731
    try:
        with pytest.raises(GpuMemoryError, match=rf"memory of {device}.*a batch of {large.count} rows"):
            update(learner, large, minibatch_size=None)
    finally:
        free()
    np.testing.assert_array_equal(policy.weights, weights)
    update(learner, make_batch(policy, 128, 1))
    assert np.isfinite(policy.weights).all()


@ON_DEVICES
def test_the_use_of_a_gpu_is_known(device):
    policy, learner = made(device)
    update(learner, make_batch(policy, 64))
    usage = gpu_usage()
    if device == "cuda":
        assert any(name.startswith("vram_util_percent") for name in usage)
    assert all(0 <= share <= 1 for share in usage.values()) and (usage == {} or HAS_GPU)


# ---------------------------------------------------------------------- algorithms


def gpus(device) -> int:
    return int(device == "cuda")


def ppo(**training):
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0, num_envs_per_worker=4)
    settings = {"train_batch_size": 400, "sgd_minibatch_size": 100, "num_sgd_iter": 4, "learner": "torch"}
    return config.training(**{**settings, "model": {"fcnet_hiddens": [16]}, **training}).debugging(seed=3)


def ppo_with_a_memory():
    return ppo(model={"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "max_seq_len": 10})


def dqn():
    explores = {"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 1.0}
    config = DQNConfig().environment("CartPole-v1").exploration(exploration_config=explores)
    return config.training(num_steps_sampled_before_learning_starts=300, learner="torch").debugging(seed=3)


def sac():
    config = SACConfig().environment("Pendulum-v1").training(learner="torch", train_batch_size=64)
    config.exploration(exploration_config={"type": "StochasticSampling", "random_timesteps": 10_000})
    return config.training(num_steps_sampled_before_learning_starts=300).debugging(seed=3)


def trained(config, device):
    config.resources(num_gpus=gpus(device))
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=320)
    with config.build() as algo:
        algo.train()
        return algo.learner.weights.copy()


@ON_DEVICES
@pytest.mark.parametrize(
    "settings",
    [
        {"model": {"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "max_seq_len": 10}},
        {"model": {"use_gru": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "max_seq_len": 10}},
        {"model": {"use_attention": True, "attention_dim": 8, "fcnet_hiddens": [8], "max_seq_len": 10}},
        {"exploration_config": {"type": "RND", "embed_dim": 8, "num_sgd_iter": 2}},
    ],
    ids=["LSTM", "GRU", "attention", "RND"],
)
def test_ppo_trains_as_on_the_cpu(settings, device):
    found = [trained(ppo().update_from_dict(settings), each) for each in ("cpu", device)]
    np.testing.assert_allclose(found[1], found[0], atol=1e-3)


@ON_DEVICES
def test_a_worker_acts_on_its_gpu(device):
    config = ppo().rollouts(num_rollout_workers=1).resources(num_gpus_per_worker=gpus(device))
    config.evaluation(evaluation_interval=1, evaluation_num_workers=int(device == "cpu"), evaluation_duration=1)
    with config.build() as algo:
        result = algo.train()
        assert algo.workers.foreach_worker(lambda worker: worker.acts_elsewhere) == [device == "cuda"]
        assert result["num_env_steps_trained"] == 400 and result["evaluation"]["episodes_this_iter"] >= 1


@ON_DEVICES
def test_two_trials_share_a_gpu(device, tmp_path):
    sizes = {"num_rollout_workers": 0, "train_batch_size": 200, "sgd_minibatch_size": 100, "learner": "torch"}
    config = {**sizes, "env": CountingEnv, "num_gpus": 0.5 * gpus(device), "seed": tune.grid_search([1, 2])}
    analysis = tune.run("PPO", config=config, stop={"training_iteration": 2}, local_dir=str(tmp_path), verbose=0)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2


@contextlib.contextmanager
def nothing_waits(device):
    """Raises where something waits for the device."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return
    with counted_waits() as counts:
        yield
    for name in ("operations", "numpy", "lift_fresh"):  # of arrays here
        counts.pop(name, None)
    assert not counts


@ON_DEVICES
@pytest.mark.parametrize("make_config", [ppo, ppo_with_a_memory, dqn, sac])
def test_a_whole_update_waits_for_nothing(make_config, device):
    """From the time when the batch is there until the results are fetched."""
    # Steps that are recorded are timed at first, and that waits.
    config = make_config().framework(torch_cuda_graphs=False).resources(num_gpus=gpus(device))
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=320)
    with config.build() as algo:
        backend = algo.learner.backend
        for part in (backend, *backend._descents):
            part._on_gpu = True
        within, number = contextlib.ExitStack(), 0
        sent, finish = backend._batch, backend._finish

        def batch(*arguments):
            found = sent(*arguments)
            within.enter_context(nothing_waits(device))
            return found

        def finished(*arguments):
            nonlocal number
            number += 1
            within.close()
            return finish(*arguments)

        backend._batch, backend._finish = batch, finished
        try:
            algo.train()
        finally:
            within.close()
        assert number >= 1
