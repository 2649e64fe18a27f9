"""How torch computes updates: recorded steps, bfloat16, and what is said when the memory does not suffice.

On the CPU `Replays` stands for CUDA graphs: it calls the recorded function again. A recording that read a minibatch
or a learning rate of the past would show as other weights.
"""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from learner_support import SETTINGS, make_batch, make_policy

from rllib import CrossQConfig, DQNConfig, PPOConfig, R2D2Config, SACConfig
from rllib import sample_batch as sb
from rllib.errors import GpuMemoryError, LearnerError
from rllib.learners.in_torch.recorded_steps import EAGER_STEPS, TIMED_STEPS, CudaGraphs
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import OptimizerSettings
from rllib.learners.updates.torch_options import DEFAULTS, TorchOptions
from rllib.losses.ppo import PPO_LOSS
from tests.envs import MaskedProbe
from tests.gpu import DEVICES
from tests.tensor_envs import counted_waits

torch.set_num_threads(1)


class Replays:
    """Stands for CudaGraphs. The clock goes on by a second with each look at it, and by more within repeated steps."""

    def __init__(self, repeating_s: float = 0.0, num_failures: int = 0):
        self.repeating_s, self.num_failures, self.num_recorded, self.time = repeating_s, num_failures, 0, 0.0

    def record(self, function):
        if self.num_failures:
            self.num_failures -= 1
            raise RuntimeError("operation not permitted when stream is capturing")
        self.num_recorded += 1
        results = []

        def repeat():
            self.time += self.repeating_s
            results[:] = function()

        return repeat, results

    def now(self) -> float:
        self.time += 1
        return self.time


def updated(graphs=None, device="cpu", options=DEFAULTS, num_updates=3, optimizer="adam", **changes):
    """The weights after a few PPO updates of 32 steps each, and what records the steps."""
    policy = make_policy()
    objective = Objective(PPO_LOSS, optimizer=OptimizerSettings(optimizer), grad_clip=0.5)
    learner = make_learner(policy, objective, kind="torch", device=device, torch_options=options)
    recorded = learner.backend.record_steps(graphs)[0] if graphs is not None else None
    found = []
    for number in range(num_updates):
        batch, settings = make_batch(policy, 128, number), {**SETTINGS, "lr": 1e-3 / (number + 1), **changes}
        found.append(
            learner.update(batch, num_epochs=8, minibatch_size=32, rng=np.random.default_rng(number), **settings)
        )
    return policy.weights.copy(), found, recorded


@pytest.mark.parametrize("config", [PPOConfig(), DQNConfig()], ids=["PPO", "DQN"])
def test_illegal_actions_stay_illegal_in_bfloat16(config):
    config.environment(MaskedProbe, action_mask_key="action_mask").framework(torch_autocast="bfloat16")
    config.training(learner="torch", train_batch_size=128, model={"fcnet_hiddens": [8]})
    if isinstance(config, DQNConfig):
        config.training(num_steps_sampled_before_learning_starts=64)
    with config.reporting(min_sample_timesteps_per_iteration=200, min_time_s_per_iteration=0).build() as algo:
        for _ in range(2):
            algo.train()
        assert algo.num_updates and np.isfinite(algo.get_policy().weights).all()


def test_recorded_steps_do_what_steps_do():
    graphs = Replays()
    weights, statistics, _ = updated()
    others, same, recorded = updated(graphs)
    np.testing.assert_allclose(others, weights, atol=1e-6)
    for one, other in zip(statistics, same):
        assert one == pytest.approx(other, abs=1e-5)
    # The first step of an update is checked, and takes no recording.
    assert (recorded.num_repeated, graphs.num_recorded) == (3 * 31 - EAGER_STEPS, 1)


@pytest.mark.parametrize("numbers_in_python", [False, True])
def test_other_settings_and_shapes(numbers_in_python):
    """Of 100 rows, 64 and 36 alternate. Numbers that change need no other recording, unless the loss asks for them."""

    def run(graphs):
        policy = make_policy()
        learner = make_learner(policy, PPO_LOSS, kind="torch")
        learner.backend.record_steps(graphs)
        for kl_coeff in (0.1, 0.2, 0.3):
            settings = {**SETTINGS, "kl_coeff": kl_coeff, "lr": 1e-3}
            rng = np.random.default_rng(0)
            learner.update(make_batch(policy, 100), num_epochs=20, minibatch_size=64, rng=rng, **settings)
        return policy.weights

    graphs = Replays(num_failures=int(numbers_in_python))
    np.testing.assert_allclose(run(graphs), run(Replays(num_failures=2)), atol=1e-6)
    assert graphs.num_recorded == (6 if numbers_in_python else 2)


def test_what_cannot_be_recorded_goes_on_without():
    weights, *_ = updated()
    others, _, recorded = updated(Replays(num_failures=2))
    np.testing.assert_allclose(others, weights, atol=1e-6)
    assert not recorded.is_on
    assert "capturing" in recorded.why_off


def test_recordings_that_are_slower_are_given_up():
    weights, *_ = updated()
    others, _, recorded = updated(Replays(repeating_s=5.0))
    np.testing.assert_allclose(others, weights, atol=1e-6)
    assert recorded.num_repeated == TIMED_STEPS
    assert recorded.why_off == "4 recorded steps took 24 s, and 4 s without a recording"


def test_other_optimizers_are_not_recorded():
    _, _, recorded = updated(Replays(), optimizer="rmsprop")
    assert recorded is None


class Capturing(Replays):
    """As Replays; what waits for the device is refused, and torch finds a CUDA stream that captures a recorded step."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.is_capturing = False
        stream = SimpleNamespace(is_capturing=lambda: self.is_capturing)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
        monkeypatch.setattr(torch.accelerator, "current_stream", lambda *_: stream)

    def record(self, function):
        repeat, results = super().record(function)
        self.is_capturing = True
        try:
            with counted_waits() as counts:
                repeat()
        finally:
            self.is_capturing = False
        counts.pop("operations")
        if counts:
            raise RuntimeError(f"operation not permitted when stream is capturing: {dict(counts)}")
        return repeat, results


def test_torch_lets_the_optimizer_be_captured(monkeypatch):
    """Adam refuses to be captured unless it is `capturable` (torch.optim.Optimizer, the health check of its step)."""
    _, _, recorded = updated(Capturing(monkeypatch), num_updates=1)
    assert recorded.num_repeated > 0, recorded.why_off


def test_one_recording_serves_all_numbers_of_ppo(monkeypatch):
    graphs = Capturing(monkeypatch)
    _, _, recorded = updated(graphs)  # with another learning rate in each update
    _, _, others = updated(graphs, num_updates=1, kl_coeff=0.4)
    assert recorded.why_off is None and others.why_off is None
    assert graphs.num_recorded == 2, "nothing has to be recorded again for each number"


@pytest.mark.parametrize("num_atoms", [1, 11])
def test_steps_of_dqn_wait_for_nothing(num_atoms, monkeypatch):
    def config():
        return small_dqn().training(num_atoms=num_atoms, v_min=-10.0, v_max=10.0)

    _, (recorded,) = trained(config, Capturing(monkeypatch))
    assert recorded.num_repeated > 0, recorded.why_off


def trained(make_config, graphs=None):
    config = make_config().environment("CartPole-v1").training(learner="torch").debugging(seed=3)
    config.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=1000)
    with config.build() as algo:
        recorded = []
        if graphs is not None:
            recorded = algo.learners["default_policy"].backend.record_steps(graphs)
        algo.train()
        return algo.get_policy().weights.copy(), recorded


# Actions are drawn uniformly, so that rounding does not decide about later rows.
def small_dqn():
    explores = {"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 1.0}
    config = DQNConfig().training(num_steps_sampled_before_learning_starts=900).exploration(exploration_config=explores)
    return config.rollouts(rollout_fragment_length=4)


def small_sac():
    explores = {"type": "StochasticSampling", "random_timesteps": 10_000}
    config = SACConfig().exploration(exploration_config=explores)
    return config.training(num_steps_sampled_before_learning_starts=970, train_batch_size=32)


def ppo_with_a_memory():
    model = {"use_lstm": True, "lstm_cell_size": 16, "fcnet_hiddens": [16], "max_seq_len": 10}
    return PPOConfig().training(train_batch_size=200, sgd_minibatch_size=50, num_sgd_iter=4, model=model)


# Minibatches of sequences differ in the number of these, so that few shapes come again.
@pytest.mark.parametrize("make_config, least", [(small_dqn, 10), (small_sac, 10), (ppo_with_a_memory, 0)])
def test_algorithms_with_recorded_steps(make_config, least):
    weights, _ = trained(make_config)
    others, recorded = trained(make_config, Replays())
    assert sum(each.num_repeated for each in recorded) >= least
    np.testing.assert_allclose(others, weights, atol=1e-4)


@pytest.mark.parametrize("model", [{}, {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 10}], ids=["", "lstm"])
def test_an_update_waits_as_often_with_eight_epochs_as_with_one(model, monkeypatch):
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0, rollout_fragment_length=128)
    config.training(learner="torch", train_batch_size=128, model={"fcnet_hiddens": [8], **model}).debugging(seed=0)
    waits, transfers = [], []
    with config.build() as algo:
        backend = algo.learner.backend
        for part in (backend, *backend._descents):
            part._on_gpu = True  # the CPU stands for one
        take = backend._transfers.take
        batch = algo.sample(128)
        for num_epochs in (1, 8):
            transfers.append(0)

            def counted(array):
                transfers[-1] += 1
                return take(array)

            monkeypatch.setattr(backend._transfers, "take", counted)
            with counted_waits() as counts:
                algo.learner.update(batch, num_epochs=num_epochs, rng=np.random.default_rng(0), lr=0.0, **SETTINGS)
            for name in ("operations", "numpy", "lift_fresh"):  # of arrays here
                counts.pop(name, None)
            waits.append(dict(counts))
    assert waits[0] == waits[1] and transfers[0] == transfers[1]
    assert waits[0].get("cpu") == 1, "the results come back in one transfer"


def test_steps_are_recorded_on_the_device_of_the_learner(monkeypatch):
    """What runs on another device than the recorded stream is not in the graph, and its repetition does nothing."""
    now = {"device": "cuda:0", "stream": "default of cuda:0"}

    @contextlib.contextmanager
    def changed(**entries):
        before = dict(now)
        now.update(entries)
        try:
            yield
        finally:
            now.update(before)

    @contextlib.contextmanager
    def graph(_, stream):  # the end of a capture that has failed raises before torch sets the stream back
        before, now["stream"] = now["stream"], stream
        yield
        now["stream"] = before

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay="replay"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"new on {device}")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"default of {device}")
    monkeypatch.setattr(torch.cuda, "device", lambda device: changed(device=str(device)))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: changed(stream=stream))
    monkeypatch.setattr(torch.cuda, "graph", graph)
    graphs = CudaGraphs(torch.device("cuda:1"))
    assert graphs.record(lambda: dict(now)) == ("replay", {"device": "cuda:1", "stream": "new on cuda:1"})

    def waits():
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        graphs.record(waits)
    assert now == {"device": "cuda:0", "stream": "default of cuda:0"}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("autocast", [None, "bfloat16"])
def test_cuda_graphs(device, autocast):
    weights, *_ = updated(device=device, options=TorchOptions(autocast, cuda_graphs=False))
    graphs = CudaGraphs(torch.device("cuda")) if device == "cuda" else Replays()
    others, _, recorded = updated(graphs, device=device, options=TorchOptions(autocast))
    np.testing.assert_allclose(others, weights, atol=1e-5 if autocast is None else 5e-3)
    assert recorded.num_repeated >= TIMED_STEPS, recorded.why_off


def test_networks_compute_in_bfloat16():
    weights, statistics, _ = updated(num_updates=1)
    others, [found], _ = updated(num_updates=1, options=TorchOptions(autocast="bfloat16"))
    assert found == pytest.approx(statistics[0], abs=0.05)
    # Weights step by the learning rate: rounding to 8 bits does not change where they go.
    assert 0 < np.abs(others - weights).max() < 32e-3
    assert np.corrcoef(others, weights)[0, 1] > 0.99


def test_rounded_probabilities_are_no_mistake_in_the_rows():
    """The larger the logits, the further are those of bfloat16 from the ones of the policy that has acted."""
    how = {"num_epochs": 1, "minibatch_size": 128, "lr": 1e-3, **SETTINGS}
    for options, wrong in ((TorchOptions(autocast="bfloat16"), 0.0), (DEFAULTS, 0.0), (DEFAULTS, 0.5)):
        policy = make_policy()
        policy.weights[:] *= 20
        batch = make_batch(policy, 128)
        batch[sb.ACTION_LOGP] += np.float32(wrong)
        learner = make_learner(policy, PPO_LOSS, kind="torch", torch_options=options)
        expected = pytest.raises(LearnerError, match="log-probabilities differ") if wrong else contextlib.nullcontext()
        with expected:
            learner.update(batch, rng=np.random.default_rng(0), **how)


ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "max_seq_len": 4,
    "attention_memory_inference": 5,
    "attention_memory_training": 5,
}
CONTINUOUS = SACConfig().environment("Pendulum-v1")
RESIDUAL = {"simba": {}, "simbav2": {}, "xqc": {"num_atoms": 11}, "flashsac": {"num_atoms": 11}}


@pytest.mark.parametrize(
    ("config", "model"),
    [
        (PPOConfig().training(sgd_minibatch_size=20, num_sgd_iter=1), ATTENTION),
        (PPOConfig().training(sgd_minibatch_size=20, num_sgd_iter=1), {**ATTENTION, "vf_share_memory": True}),
        (R2D2Config().training(training_intensity=2), ATTENTION),
        *[(CONTINUOUS.copy().training(**more), {"network": name}) for name, more in RESIDUAL.items()],
        (CrossQConfig().environment("Pendulum-v1").training(q_model_config={"fcnet_hiddens": [8]}), {}),
    ],
    ids=["PPO, attention", "PPO, shared attention", "R2D2, attention", *RESIDUAL, "CrossQ"],
)
def test_every_network_trains_in_bfloat16(config, model):
    """Statistics of whole batches and gates are of full precision, whatever the products are."""
    found = []
    for autocast in (None, "bfloat16"):
        made = config.copy()
        if made.env is None:
            made.environment("CartPole-v1")
        made.rollouts(num_rollout_workers=0, rollout_fragment_length=20).framework(torch_autocast=autocast)
        made.training(learner="torch", train_batch_size=40, model={"fcnet_hiddens": [8], **model})
        if not isinstance(made, PPOConfig):
            made.training(num_steps_sampled_before_learning_starts=20, replay_buffer_config={"capacity": 100})
        made.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=40).debugging(seed=0)
        with made.build() as algo:
            stats = algo.train()["info/learner/default_policy/learner_stats"]
            assert np.isfinite(algo.get_policy().weights).all()
            assert algo.num_updates
        found.append({name: value for name, value in stats.items() if name.endswith("loss")})
    full, less = found
    assert less == pytest.approx(full, rel=0.1, abs=0.1)


def test_bfloat16_in_numpy_is_refused():
    with pytest.raises(ValueError, match="torch_autocast='bfloat16' does not reach this learner, which computes in"):
        PPOConfig().environment("CartPole-v1").framework(torch_autocast="bfloat16").build()


def test_unknown_choices_are_refused():
    with pytest.raises(ValueError, match=r"torch_autocast"):
        PPOConfig().framework(torch_autocast="float16").validate()
    with pytest.raises(ValueError, match="matmul_precision must be one of"):
        TorchOptions(matmul_precision="low")


def test_the_precision_of_products_is_torchs_own():
    before = torch.get_float32_matmul_precision()
    try:
        make_learner(make_policy(), PPO_LOSS, kind="torch", torch_options=TorchOptions(matmul_precision="medium"))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_too_little_memory_names_batch_network_and_settings(monkeypatch):
    policy = make_policy()
    learner = make_learner(policy, PPO_LOSS, kind="torch")
    before = policy.weights.copy()

    def out_of_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(learner.backend, "_batch", out_of_memory)
    with pytest.raises(LearnerError, match=r"a batch of 100 rows \(0 MiB\) and \d+ weights. Halve sgd_minibatch_size"):
        learner.update(make_batch(policy, 100), rng=np.random.default_rng(0), lr=1e-3, **SETTINGS)
    np.testing.assert_array_equal(policy.weights, before)


def out_of_memory(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_too_little_memory_for_the_learner_itself(monkeypatch):
    monkeypatch.setattr(torch.optim, "Adam", out_of_memory)
    with pytest.raises(GpuMemoryError, match=r"\d+ weights, their gradients .* memory of cpu. Use a smaller network"):
        make_learner(make_policy(), PPO_LOSS, kind="torch")


def test_too_little_memory_to_act(monkeypatch):
    policy = make_policy()
    assert policy.act_on("cpu")
    monkeypatch.setattr(torch, "cat", out_of_memory)
    with pytest.raises(GpuMemoryError, match=r"7 observations to act on \(0 MiB\) .* Halve num_envs_per_worker"):
        policy.values(np.zeros((7, 4), np.float32))
    monkeypatch.setattr(torch, "zeros", out_of_memory)
    with pytest.raises(GpuMemoryError, match=r"\d+ weights to act by do not fit .*num_gpus_per_worker=0"):
        policy.act_on("cpu")


def constants_elsewhere(loss, minibatch, outputs, model):
    return loss + (minibatch["advantages"] * torch.ones(len(minibatch["advantages"]), device="meta")).sum()


def constants_here(loss, minibatch, outputs, model):
    """As if the learner, and so the minibatch, were elsewhere."""
    return loss + (minibatch["advantages"].to("meta") * torch.ones(len(minibatch["advantages"]))).sum()


@pytest.mark.parametrize("custom", [constants_elsewhere, constants_here])
def test_tensors_of_a_user_s_loss_on_another_device_are_named(custom):
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=128, custom_loss=custom)
    with config.build() as algo, pytest.raises(LearnerError, match="an update on cpu has met a tensor on another") as e:
        algo.train()
    assert "outputs.new_zeros(n)" in str(e.value) and isinstance(e.value.__cause__, RuntimeError)
