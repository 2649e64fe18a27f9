"""Several learners equal one, with every kind of sum, and also when some of them die."""

import contextlib
import os
import re
import signal
import threading
import time

import numpy as np
import psutil
import pytest
import torch
from learner_updates import Update, process_ids, record, replay

import runtime
from rllib import (
    A2CConfig,
    A3CConfig,
    APPOConfig,
    CrossQConfig,
    DDPGConfig,
    DQNConfig,
    ESConfig,
    IMPALAConfig,
    PGConfig,
    PPOConfig,
    PQNConfig,
    R2D2Config,
    RainbowConfig,
    SACConfig,
    TD3Config,
    TQCConfig,
)
from rllib.errors import LearnerError, LearnersLostError
from rllib.learners.group import learner_group
from rllib.sample_batch import ADVANTAGES, SampleBatch
from runtime import errors
from runtime.util import get_node_ip_address
from tests.gpu import DEVICES
from tests.runtime.runtime_support import MARKER, Leftovers

NET = {"fcnet_hiddens": [16, 16]}
MEMORY = {**NET, "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 8}
NOTHING: dict = {}
CONFIGS = {
    "PPO": lambda: (
        PPOConfig()
        .environment("CartPole-v1")
        # 130 rows: the last minibatch of an epoch is of 2, fewer than there are learners.
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=65)
        .training(train_batch_size=130, sgd_minibatch_size=64, num_sgd_iter=2, lr=1e-3)
    ),
    "PPO standardised by minibatches": lambda: CONFIGS["PPO"]().training(standardize_advantages="minibatch"),
    "PPO with a memory": lambda: CONFIGS["PPO"](),
    "IMPALA": lambda: (
        IMPALAConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=3, rollout_fragment_length=20)
        .training(train_batch_size=60, standardize_advantages=True)
    ),
    "APPO": lambda: (
        APPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=3, rollout_fragment_length=20)
        .training(train_batch_size=60, num_sgd_iter=2)
    ),
    "DQN": lambda: (
        DQNConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0)
        .training(num_steps_sampled_before_learning_starts=40, train_batch_size=33, noisy=True)
    ),
    "SAC": lambda: (
        SACConfig()
        .environment("Pendulum-v1")
        .rollouts(num_rollout_workers=0)
        .training(num_steps_sampled_before_learning_starts=40, train_batch_size=33, q_model_config=NET)
    ),
    "TD3": lambda: (
        TD3Config()
        .environment("Pendulum-v1")
        .rollouts(num_rollout_workers=0)
        .training(num_steps_sampled_before_learning_starts=40, train_batch_size=32, q_model_config=NET)
    ),
    "A2C": lambda: (
        A2CConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=10)
        .training(train_batch_size=20, microbatch_size=7)
    ),
    "A3C": lambda: (
        A3CConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=10)
    ),
    "PG": lambda: (
        PGConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=25)
        .training(train_batch_size=50)
    ),
    "PQN": lambda: (
        PQNConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=35)
        .training(train_batch_size=70, sgd_minibatch_size=33, num_sgd_iter=2)
    ),
    "Rainbow": lambda: (
        RainbowConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0)
        .training(num_steps_sampled_before_learning_starts=40, train_batch_size=33)
    ),
    "R2D2": lambda: (
        R2D2Config()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0)
        .training(num_steps_sampled_before_learning_starts=100, train_batch_size=40)
    ),
    "discrete SAC": lambda: (
        SACConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0)
        .training(num_steps_sampled_before_learning_starts=40, train_batch_size=33, q_model_config=NET)
    ),
    "TQC": lambda: (
        TQCConfig()
        .environment("Pendulum-v1")
        .rollouts(num_rollout_workers=0)
        .training(num_steps_sampled_before_learning_starts=40, train_batch_size=33, q_model_config=NET)
    ),
    "DDPG": lambda: (
        DDPGConfig()
        .environment("Pendulum-v1")
        .rollouts(num_rollout_workers=0)
        .training(num_steps_sampled_before_learning_starts=40, train_batch_size=33, q_model_config=NET)
    ),
}


def config(name: str, training: dict, **learners):
    model = MEMORY if name in ("PPO with a memory", "R2D2") else NET
    built = CONFIGS[name]().training(model=model).training(**training).debugging(seed=0).learners(**learners)
    return built.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)


@pytest.fixture(scope="module")
def recorded():
    """A function: the first updates of a run with one learner, recorded once."""
    records: dict = {}

    def updates_of(name: str, count: int = 50, **training) -> list[Update]:
        key = name, count, *training
        if key not in records:
            records[key] = record(config(name, training), count)
        return records[key]

    return updates_of


def replayed(name: str, updates: list[Update], training: dict = NOTHING, **learners) -> np.ndarray:
    with config(name, training, **learners).build() as algo:
        return replay(algo, updates)


@pytest.mark.parametrize("name", CONFIGS)
def test_several_learners_equal_one(name, recorded):
    updates = recorded(name, 15 if name == "PPO with a memory" else 50)  # torch computes its updates, eight steps each
    one = replayed(name, updates)
    for count in (1, 2, 3):
        several = replayed(name, updates, num_learners=count)
        assert abs(several - one).max() <= 1e-5, count
    np.testing.assert_array_equal(several, replayed(name, updates, num_learners=3))


@pytest.mark.parametrize("collective", ["shared_memory", "gloo"])
@pytest.mark.parametrize("name", ["PPO standardised by minibatches", "APPO"])
def test_several_learners_in_torch_equal_one(name, collective, recorded):
    updates, torch = recorded(name), {"learner": "torch"}
    one = replayed(name, updates, torch)
    several = replayed(name, updates, torch, num_learners=2, learner_collective=collective)
    assert abs(several - one).max() <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["numpy", "torch"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", CONFIGS)
def test_several_learners_equal_one_by_gloo(name, count, learner, recorded):
    updates, kind = recorded(name), {"learner": learner}
    several = [replayed(name, updates, kind, num_learners=count, learner_collective="gloo") for _ in range(2)]
    assert abs(several[0] - replayed(name, updates, kind)).max() <= 1e-5
    np.testing.assert_array_equal(*several)


@pytest.mark.parametrize("learner", ["numpy", "torch"])
def test_statistics_are_those_of_the_whole_batch(learner, recorded):
    (update,) = recorded("DQN")[-1:]
    found = []
    for learners in ({}, {"num_learners": 3}):
        with config("DQN", {"learner": learner}, **learners).build() as algo:
            found.append(algo.learner.update(update.batch, rng=np.random.default_rng(0), **update.arguments))
    one, several = found
    assert one.keys() == several.keys()
    np.testing.assert_allclose(several["td_error"], one["td_error"], rtol=1e-4, atol=1e-5)
    for name in ("total_loss", "mean_q", "min_q", "max_q", "grad_gnorm"):
        assert several[name] == pytest.approx(one[name], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("learner", ["numpy", "torch"])
@pytest.mark.parametrize("parts", [{"microbatch_size": 7}, {"minibatch_size": 11}])
def test_extremes_of_parts_are_those_of_the_whole_batch(learner, parts, recorded):
    (update,) = recorded("DQN")[-1:]
    found = []
    for its_parts in ({}, parts):
        with config("DQN", {"learner": learner}).build() as algo:
            arguments = {**update.arguments, "lr": 0.0, **its_parts}
            found.append(algo.learner.update(update.batch, rng=np.random.default_rng(0), **arguments))
    whole, of_parts = found
    for name in ("mean_q", "min_q", "max_q"):
        assert of_parts[name] == pytest.approx(whole[name], rel=1e-5)


def test_a_gradient_is_computed_and_applied_by_all(recorded):
    (update,) = recorded("A2C", 1)
    settings = {name: update.arguments[name] for name in ("vf_loss_coeff", "entropy_coeff")}
    found = []
    for learners in ({}, {"num_learners": 3}):
        with config("A2C", {}, **learners).build() as algo:
            gradient, statistics = algo.learner.compute_gradient(update.batch, **settings)
            norm = algo.learner.apply_gradient(gradient, lr=0.1)
            found.append((gradient, norm, statistics["total_loss"], algo.learner.weights.copy()))
    for one, several in zip(*found):
        np.testing.assert_allclose(several, one, rtol=1e-4, atol=1e-5)


def test_weights_that_the_driver_changes_reach_the_learners(recorded):
    updates = recorded("SAC", 4)
    found = []
    for learners in ({}, {"num_learners": 2}):
        with config("SAC", {}, **learners).build() as algo:
            replay(algo, updates[:2])
            weights = algo.get_weights()
            algo.set_weights({policy: flat * 0.5 for policy, flat in weights.items()})
            found.append(replay(algo, updates[2:]))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-5)


def test_advantages_are_recomputed_between_the_epochs(recorded):
    training = {"recompute_advantages": True}
    found = []
    for learners in ({}, {"num_learners": 2}):
        with config("PPO", training, **learners).build() as algo:
            algo.train()
            found.append(algo.learner.weights.copy())
    np.testing.assert_allclose(*found, rtol=0, atol=1e-5)


def test_checkpoints_move_between_numbers_of_learners(tmp_path, recorded):
    updates = recorded("PPO", 4)
    with config("PPO", {}, num_learners=2).build() as algo:
        replay(algo, updates[:2])
        algo.save(tmp_path / "two")
        expected = replay(algo, updates[2:])
    for learners in ({}, {"num_learners": 3}):
        with config("PPO", {}, **learners).build() as algo:
            algo.restore(tmp_path / "two")
            np.testing.assert_allclose(replay(algo, updates[2:]), expected, rtol=0, atol=1e-5)


def test_results_say_how_busy_the_processes_are_and_how_full_their_gpus(monkeypatch):
    with config("PPO", {}, num_learners=2).build() as algo:
        perf = algo.train()["perf"]
        assert 0 < perf["learner_util_percent"] <= 1 and "vram_util_percent0" not in perf
        group = algo.learner.backend
        group.usage()
        assert group.usage()["learner_util_percent"] == 0, "nothing since"
        full = [{"vram_util_percent0": 0.5, "vram_util_percent1": 0.25}, {"vram_util_percent0": 0.75}]
        answers = {rank: learner_group.Outcome(0, busy_s=1e-9, gpus=gpus) for rank, gpus in enumerate(full)}
        monkeypatch.setattr(group, "_ask", lambda *_, **__: answers)
        group._outcomes("train")
        perf = group.usage()
        assert (perf["vram_util_percent0"], perf["vram_util_percent1"]) == (0.75, 0.25)


# ---------------------------------------------------------------------- those who die


@pytest.mark.parametrize("name", ["PPO", "SAC"])
def test_a_learner_that_is_killed_is_replaced_in_the_middle_of_training(name, recorded):
    """The others have the same state, so the run is the same to the bit."""
    updates = recorded(name)[:20]
    undisturbed = replayed(name, updates, num_learners=2)
    with config(name, {}, num_learners=2).build() as algo:
        rng, victims = np.random.default_rng(0), []

        def kill_one() -> None:
            time.sleep(rng.uniform(0, 0.002))
            os.kill(victims.pop(), signal.SIGKILL)

        for update in updates:
            victims.append(process_ids(algo)[rng.integers(2)])
            weights = replay(algo, [update], kill_one)
        restarts = algo.learner.backend.fleet.num_restarts
    assert restarts >= len(updates) - 1
    np.testing.assert_array_equal(weights, undisturbed)


@pytest.mark.parametrize(
    ("learner", "collective"),
    [("torch", "shared_memory"), *(pytest.param(kind, "gloo", marks=pytest.mark.slow) for kind in ("numpy", "torch"))],
)
def test_learners_that_are_killed_while_three_sum(learner, collective, recorded):
    updates, kind = recorded("PPO")[:6], {"learner": learner}
    learners = {"num_learners": 3, "learner_collective": collective}
    undisturbed = replayed("PPO", updates, kind, **learners)
    with config("PPO", kind, **learners).build() as algo:
        for number, update in enumerate(updates):
            victim = process_ids(algo)[number % 3]
            weights = replay(algo, [update], lambda victim=victim: (time.sleep(0.003), os.kill(victim, signal.SIGKILL)))
        assert algo.learner.backend.fleet.num_restarts >= 5
    np.testing.assert_array_equal(weights, undisturbed)


TWO_GPUS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 2])
def test_learners_on_a_gpu_that_they_share(device, count, recorded):
    """A whole GPU for one, half of it for each of two, of which one is killed in each update."""
    updates = recorded("PPO", 4)
    one = replayed("PPO", updates, {"learner": "torch"})
    learners = {"num_learners": count, "learner_collective": "auto" if count == 1 else "gloo"}
    settings = config("PPO", {"learner": "torch"}, **learners).resources(num_gpus=float(device == "cuda") / count)
    with settings.build() as algo:
        for update in updates:
            victim = process_ids(algo)[-1]
            kill = None if count == 1 else lambda victim=victim: os.kill(victim, signal.SIGKILL)
            weights = replay(algo, [update], kill)
        assert algo.learner.backend.fleet.num_restarts >= (0 if count == 1 else 3)
        assert ("vram_util_percent0" in algo.learner.backend.usage()) == (device == "cuda")
    np.testing.assert_allclose(weights, one, rtol=0, atol=1e-5 if device == "cpu" else 1e-4)


@pytest.mark.parametrize(
    ("device", "collective"), [("cpu", "gloo"), pytest.param("cuda", "nccl", marks=[pytest.mark.gpu, TWO_GPUS])]
)
def test_learners_with_a_gpu_each(device, collective, recorded):
    updates = recorded("PPO", 4)
    one = replayed("PPO", updates, {"learner": "torch"})
    settings = config("PPO", {"learner": "torch"}, num_learners=2, learner_collective=collective)
    with settings.resources(num_gpus=int(device == "cuda")).build() as algo:
        np.testing.assert_allclose(replay(algo, updates), one, rtol=0, atol=1e-4)


def test_learners_that_were_interrupted_have_one_state_again(recorded):
    """The driver's own code fails while they compute: where each of them stops is up to chance."""
    updates = recorded("PPO")[:8]
    with config("PPO", {}, num_learners=2).build() as algo:
        replay(algo, updates[:1])

        def fail() -> None:
            time.sleep(0.001)
            raise RuntimeError("in the driver")

        for update in updates[1:6]:
            with pytest.raises(RuntimeError, match="in the driver"):
                replay(algo, [update], fail)
        group = algo.learner.backend
        assert group.states  # asked for, they are brought together
        one, other = group._ask("get_states").values()
        for (name, first), second in zip(one[0].items(), other[0].values()):
            np.testing.assert_array_equal(first, second, err_msg=name)


def test_a_learner_that_may_not_be_replaced_ends_the_run_until_it_is_restored(tmp_path, recorded):
    updates = recorded("PPO", 4)
    with config("PPO", {}, num_learners=2).fault_tolerance(recreate_failed_workers=False).build() as algo:
        replay(algo, updates[:2])
        algo.save(tmp_path / "checkpoint")
        os.kill(process_ids(algo)[1], signal.SIGKILL)
        with pytest.raises(errors.ActorDiedError, match="learner 1"):
            replay(algo, updates[2:])
        with pytest.raises(LearnersLostError, match="some have ended that may not be replaced"):
            replay(algo, updates[2:])
        algo.restore(tmp_path / "checkpoint")
        np.testing.assert_array_equal(replay(algo, updates[2:]), replayed("PPO", updates, num_learners=2))


def test_a_learner_that_dies_at_every_update_ends_the_run(recorded, monkeypatch):
    (update,) = recorded("PPO", 1)
    with config("PPO", {}, num_learners=2).build() as algo:
        group = algo.learner.backend
        ask = group._ask

        def ask_and_kill(method, *arguments, **more):
            if method == "train":
                # Before the request, so that no step can be made: a whole update is shorter than a kill may take.
                os.kill(ask("process_id")[1], signal.SIGKILL)
            return ask(method, *arguments, **more)

        monkeypatch.setattr(group, "_ask", ask_and_kill)
        with pytest.raises(LearnersLostError, match="the same step was begun 4 times"):
            replay(algo, [update])


def test_a_learner_that_dies_between_updates_is_replaced(recorded):
    updates = recorded("PPO", 4)
    with config("PPO", {}, num_learners=2).build() as algo:
        replay(algo, updates[:2])
        os.kill(process_ids(algo)[0], signal.SIGKILL)
        np.testing.assert_array_equal(replay(algo, updates[2:]), replayed("PPO", updates, num_learners=2))


@pytest.mark.parametrize(("collective", "silence_s"), [("auto", 0.3), ("gloo", 0.8)])  # gloo is imported meanwhile
def test_a_learner_that_hangs_is_named_and_replaced(collective, silence_s, recorded, caplog):
    updates = recorded("PPO", 2)
    learners = {"num_learners": 2, "learner_collective": collective}
    settings = config("PPO", {}, **learners).rollouts(sample_timeout_s=silence_s)
    with settings.build() as algo:
        replay(algo, updates[:1])
        stopped = process_ids(algo)[1]
        os.kill(stopped, signal.SIGSTOP)
        weights = replay(algo, updates[1:])
    np.testing.assert_array_equal(weights, replayed("PPO", updates, **learners))
    who = f"learner 1 (process {stopped} on {get_node_ip_address()})"
    assert f"learner 1 is replaced: {who} did not answer within 10 x sample_timeout_s={silence_s} s" in caplog.text
    assert "learner 0 is replaced" not in caplog.text


def test_when_all_learners_die_the_last_checkpoint_is_asked_for(tmp_path, recorded):
    updates = recorded("PPO", 4)
    with config("PPO", {}, num_learners=2).build() as algo:
        replay(algo, updates[:2])
        algo.save(tmp_path / "checkpoint")
        for pid in process_ids(algo):
            os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(LearnersLostError, match=r"all 2 have ended.*algo.restore\(path\)"):
                replay(algo, updates[2:])
        with pytest.raises(LearnersLostError) as lost:
            algo.train()
        assert lost.value.__notes__ == [f"The newest checkpoint of this run is {tmp_path / 'checkpoint'}."]
        with pytest.raises(LearnersLostError):
            algo.save(tmp_path / "without a memory")
        algo.restore(tmp_path / "checkpoint")
        np.testing.assert_array_equal(replay(algo, updates[2:]), replayed("PPO", updates, num_learners=2))


class Killer(threading.Thread):
    """Kills one of the processes of `victims` at random times, until `stop`.

    Attributes:
        victims: pids, which the test renews.
        num_during_updates: kills that fell within an update, by `is_updating`.
    """

    def __init__(self, seed: int):
        super().__init__(daemon=True)
        self.victims, self.is_updating, self.num_during_updates = [], False, 0
        self._rng, self._stopped = np.random.default_rng(seed), threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._rng.uniform(0.3, 1.2)):
            if self.victims:
                pid = self.victims[self._rng.integers(len(self.victims))]
                self.victims = []  # until the test has found out who lives
                during = self.is_updating
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.num_during_updates += during and self.is_updating

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@pytest.mark.slow
def test_cartpole_is_solved_while_learners_are_killed(monkeypatch, session_parent):
    """One of two at any time: PPO reaches 475, every step is counted once, and nothing is left."""
    runtime.shutdown()
    monkeypatch.setenv(MARKER, str(os.getpid()))
    children = set(psutil.Process().children(recursive=True))
    before = Leftovers(str(os.getpid()), session_parent)
    settings = {"lr": 1e-3, "train_batch_size": 1024, "sgd_minibatch_size": 256, "num_sgd_iter": 10}
    built = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=2, num_envs_per_worker=4)
    built = built.training(**settings).learners(num_learners=2).debugging(seed=0)
    killer, best, update = Killer(0), 0.0, learner_group.LearnerGroup.train

    def watched(group, *arguments, **more):
        killer.is_updating = True
        try:
            return update(group, *arguments, **more)
        finally:
            killer.is_updating = False

    monkeypatch.setattr(learner_group.LearnerGroup, "train", watched)
    with built.build() as algo:
        killer.start()
        try:
            while best < 475:
                killer.victims = process_ids(algo)
                result = algo.train()
                best = max(best, result["episode_reward_mean"])
                sampled, iteration = result["num_env_steps_sampled"], result["training_iteration"]
                assert result["num_env_steps_trained"] == sampled == 1024 * iteration
                assert iteration < 300
        finally:
            killer.stop()
        assert killer.num_during_updates >= 3 and result["info"]["num_learner_restarts"] >= 5
    runtime.shutdown()
    before.check(timeout_s=10.0, own=False)  # processes, session directories, shared memory
    assert set(psutil.Process().children(recursive=True)) == children, "zombies count as well"


# ---------------------------------------------------------------------- what is wrong


def test_an_update_that_fails_is_everybodys_and_the_learners_live_on(recorded):
    updates = recorded("PPO", 2)
    with config("PPO", {}, num_learners=2).build() as algo:
        bad = SampleBatch({**updates[0].batch, ADVANTAGES: np.full(updates[0].batch.count, np.nan, np.float32)})
        with pytest.raises(LearnerError, match="Columns with NaN or infinity: advantages"):
            replay(algo, [updates[0]._replace(batch=bad)])
        replay(algo, updates)
        assert algo.learner.backend.fleet.num_restarts == 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: config("PPO", {"sgd_minibatch_size": 4}, num_learners=5),
            "more than the 4 rows of sgd_minibatch_size",
        ),
        (
            lambda: config("A2C", {"microbatch_size": None}, num_learners=21),
            "more than the 20 rows of train_batch_size",
        ),
        (lambda: config("PPO", {}, num_learners=2, learner_collective="nccl"), "nccl.* needs num_gpus"),
        (
            lambda: config("PPO", {}, num_learners=2, learner_collective="shared_memory").resources(num_gpus=0.5),
            "shared_memory.* sums on CPUs",
        ),
        (lambda: config("PPO", {}, num_learners=-1), "num_learners=-1"),
        (lambda: CrossQConfig().environment("Pendulum-v1").learners(num_learners=2), "CrossQ normalises by the whole"),
        (lambda: ESConfig().environment("CartPole-v1").learners(num_learners=2), "num_learners=2: there is no"),
    ],
)
def test_what_cannot_be_shared_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build().build()


def gpu_config(num_learners=0, num_gpus=0.0, workers=0, per_worker=0.0, evaluators=0):
    made = config("PPO", {}, num_learners=num_learners).rollouts(num_rollout_workers=workers)
    made.evaluation(evaluation_num_workers=evaluators, evaluation_interval=1 if evaluators else None)
    return made.training(train_batch_size=130 * max(workers, 1)).resources(
        num_gpus=num_gpus, num_gpus_per_worker=per_worker
    )


@pytest.fixture
def one_gpu():
    """A session with one GPU, which need not exist."""
    runtime.shutdown()
    runtime.init(num_cpus=2, num_gpus=1)
    yield
    runtime.shutdown()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"num_learners": 2, "num_gpus": 1}, "2 learners with num_gpus=1 each ask for 2 GPUs, but this session has 1"),
        ({"num_learners": 3, "num_gpus": 0.4}, "3 learners with num_gpus=0.4 each ask for 1.2 GPUs"),
        ({"workers": 2, "per_worker": 1}, "2 rollout workers with num_gpus_per_worker=1 each ask for 2 GPUs"),
        ({"workers": 1, "per_worker": 2}, "1 rollout workers with num_gpus_per_worker=2 each ask for 2 GPUs"),
        (
            {"num_learners": 1, "num_gpus": 0.5, "workers": 1, "per_worker": 0.25, "evaluators": 2},
            "1 learners with num_gpus=0.5 each and 1 rollout workers with num_gpus_per_worker=0.25 each and 2 "
            "evaluation workers with num_gpus_per_worker=0.25 each ask for 1.25 GPUs, but this session has 1",
        ),
    ],
    ids=str,
)
def test_more_gpus_than_there_are_are_refused(asked, message, one_gpu):
    with pytest.raises(errors.UnschedulableError, match=re.escape(message)):
        gpu_config(**asked).build()


def test_fractions_that_need_more_gpus_than_they_add_up_to():
    runtime.shutdown()
    runtime.init(num_cpus=2, num_gpus=2)
    try:
        with pytest.raises(errors.UnschedulableError, match=r"3 learners with num_gpus=0\.6 each ask for 1\.8 GPUs"):
            gpu_config(num_learners=3, num_gpus=0.6).build()
    finally:
        runtime.shutdown()


def test_gpus_without_cuda_are_refused_by_the_processes(one_gpu):
    """Fractions that add up to the GPU; that torch has no CUDA here is then what each process says."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    for asked in ({"num_learners": 3, "num_gpus": 1 / 3}, {"workers": 2, "per_worker": 0.5}):
        with pytest.raises(ValueError, match=r"(is built for CPUs|finds no device).* Use .resources\(num_gpus.*=0\)"):
            gpu_config(**asked).build()


def test_learners_that_share_cores_are_told_of_once(monkeypatch, caplog):
    monkeypatch.setattr(learner_group, "cpu_count", lambda: 2)
    with config("PPO", {}, num_learners=3).build() as algo:
        algo.train()
    with config("PPO", {}, num_learners=2).build():
        pass
    told = [record.getMessage() for record in caplog.records if "num_learners" in record.getMessage()]
    assert told == [
        "num_learners=3 learners share 2 cores and take turns, which is slower than a core for each. Use "
        ".learners(num_learners=2)."
    ]


def test_several_learners_need_several_processes():
    runtime.shutdown()
    runtime.init("local")
    try:
        with pytest.raises(ValueError, match='num_learners=2 need a process each, but the engine "local"'):
            config("PPO", {}, num_learners=2).build()
        with config("PPO", {}, num_learners=1).build() as algo:
            assert algo.train()["num_env_steps_trained"] == 130
    finally:
        runtime.shutdown()
