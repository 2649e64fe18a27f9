"""Workers in processes of their own: the same data as in one process, and deaths that do not stop the run."""

import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

import runtime
from rllib import PPOConfig
from rllib import sample_batch as sb
from rllib.algorithms.base.wiring import log_crowds
from rllib.evaluation.evaluator import Duration, EvaluationWorker
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.evaluation.worker_set import FaultTolerance, WorkerSet
from rllib.policy import Snapshot
from rllib.processes import allocator, ensure_runtime, num_cores
from rllib.sample_batch import DEFAULT_POLICY
from runtime.errors import ActorDiedError
from runtime.host.machine import cpu_count
from runtime.session import engine
from runtime.util.fleet import SilentActorError
from tests.envs import CountingEnv, ProbeFailure, RaisingEnv, SleepEnv
from tests.evaluation.test_rollout_worker import settings

TRAINING = {"train_batch_size": 256, "sgd_minibatch_size": 64, "num_sgd_iter": 2, "lr": 1e-3}


def config(env="CartPole-v1", num_workers=2, num_envs=2, **env_config) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env, env_config=env_config)
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=num_envs)
        .training(model={"fcnet_hiddens": [16]}, **TRAINING)
        .debugging(seed=11)
    )


def pids(workers: WorkerSet) -> list[int]:
    return workers.foreach_worker(lambda worker: os.getpid())


def test_remote_workers_sample_the_same_transitions_as_a_local_one():
    batches = {}
    for num_workers, num_envs in ((0, 4), (1, 4), (2, 2)):
        with config(CountingEnv, num_workers, num_envs, offset=0.5).build() as algo:
            algo.train()
            batch = algo.sample(256)
            batches[num_workers] = {
                tuple(row)
                for row in np.column_stack(
                    [batch[sb.OBS], batch[sb.ACTIONS], batch[sb.REWARDS], batch[sb.TERMINATEDS], batch[sb.TRUNCATEDS]]
                ).tolist()
            }
    assert batches[0] == batches[1] == batches[2]


def test_threads_that_build_at_once_share_one_session():
    runtime.shutdown()
    with ThreadPoolExecutor(4) as pool:
        barrier = threading.Barrier(4)
        ids = [pool.submit(lambda: (barrier.wait(20), ensure_runtime(), engine().session_id)[-1]) for _ in range(4)]
        assert len({each.result(60) for each in ids}) == 1


def test_workers_may_share_a_cpu_in_thirds():
    with config(num_workers=3, num_envs=1).resources(num_cpus_per_worker=1 / 3).build():
        held = runtime.cluster_resources()["CPU"] - runtime.available_resources()["CPU"]
        assert held == pytest.approx(3 * 0.3333)


def test_a_process_may_use_the_cores_that_it_holds():
    with config(num_workers=1, num_envs=1).build() as algo:
        assert num_cores() == cpu_count()
        assert algo.workers.foreach_worker(lambda worker: num_cores()) == [1]
    of_task = runtime.remote(num_cores)
    assert runtime.get(of_task.options(num_cpus=0.5).remote()) == 1
    if cpu_count() > 1:
        assert runtime.get(of_task.options(num_cpus=2).remote()) == 2


def test_equal_seeds_give_equal_bits_with_two_workers():
    weights = []
    for _ in range(2):
        with config().build() as algo:
            for _ in range(3):
                algo.train()
            weights.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(*weights)


def test_columns_arrive_without_a_copy():
    workers = WorkerSet(settings(CountingEnv, fragment_length=3000), num_workers=1)
    (batch, _), *_ = workers.sample(_snapshots(workers))
    assert batch.count == 6000
    assert not batch[sb.OBS].flags.writeable
    workers.stop()


def _snapshots(workers: WorkerSet) -> dict[str, Snapshot]:
    (size,) = set(workers.foreach_worker(lambda worker: worker.policy.weights.size))
    return {DEFAULT_POLICY: Snapshot(np.zeros(size, np.float32))}


class Reader(RolloutWorker):
    """Notes in which memory of the machine the critics' weights of each snapshot lie."""

    def load_snapshots(self, snapshots):
        snapshot = snapshots[DEFAULT_POLICY]
        self.places = [*getattr(self, "places", []), place_of(snapshot.modules["critics"])]
        super().load_snapshots({DEFAULT_POLICY: replace(snapshot, modules=None)})


def place_of(array: np.ndarray) -> tuple[int, int]:
    """Number of the file in which an array lies, in whatever process it is mapped, and its place there."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, inode, *_ = line.split()
        first, end = (int(each, 16) for each in span.split("-"))
        if first <= address < end:
            return int(inode), int(offset, 16) + address - first
    raise LookupError("it is not mapped")


def test_weights_are_put_once_and_all_workers_read_that_memory(monkeypatch):
    workers = WorkerSet(settings(CountingEnv), num_workers=3, worker_class=Reader)
    weights, puts, put = _snapshots(workers)[DEFAULT_POLICY].weights, [], runtime.put
    monkeypatch.setattr(runtime, "put", lambda value: puts.append(value) or put(value))
    for version in range(2):
        workers.sample({DEFAULT_POLICY: Snapshot(weights, version, modules={"critics": np.ones(50_000, np.float32)})})
    assert len(puts) == 2
    places = workers.foreach_worker(lambda worker: worker.places)
    assert len(places) == 3 and places[0] == places[1] == places[2]
    assert all(inode for inode, _ in places[0])
    workers.stop()


@pytest.mark.parametrize("moment", ["between", "during"])
def test_killed_workers_are_replaced(moment):
    env, env_config = ("CartPole-v1", {}) if moment == "between" else (SleepEnv, {"seconds": 0.005})
    with config(env, num_workers=4, num_envs=1, **env_config).build() as algo:
        algo.train()
        before = pids(algo.workers)
        if moment == "between":
            for pid in before[1:3]:
                os.kill(pid, signal.SIGKILL)
        else:
            victims = " ".join(map(str, before[1:3]))
            killer = psutil.Popen(["sh", "-c", f"sleep 0.1; kill -9 {victims}"])
        result = algo.train()
        if moment == "during":
            killer.wait(timeout=10)
        result = algo.train()
        assert result["num_healthy_workers"] == 4
        assert result["num_remote_worker_restarts"] == 2
        assert result["timesteps_total"] == 3 * 256
        after = pids(algo.workers)
        assert len(set(after)) == 4
        assert (after[0], after[3]) == (before[0], before[3])


def test_a_worker_replaced_in_a_restored_run_plays_no_episode_again(tmp_path):
    """Whatever was replaced before the checkpoint and after it."""
    firsts = []

    def note_firsts(algo):
        firsts.extend(np.unique(algo.sample(256)[sb.OBS] % 1).tolist())

    def replace_worker(algo):
        os.kill(pids(algo.workers)[0], signal.SIGKILL)
        note_firsts(algo)

    with config(CountingEnv, num_workers=1, num_envs=1, offset=0.5).build() as algo:
        note_firsts(algo)
        replace_worker(algo)
        algo.save(tmp_path / "saved")
    with type(algo).from_checkpoint(tmp_path / "saved") as restored:
        note_firsts(restored)
        replace_worker(restored)
    assert len(firsts) == len(set(firsts)) > 100


def test_without_restart_a_death_ends_the_run_with_its_reason():
    with config().fault_tolerance(recreate_failed_workers=False).build() as algo:
        algo.train()
        os.kill(pids(algo.workers)[0], signal.SIGKILL)
        with pytest.raises(ActorDiedError, match=r"(?i)sigkill"):
            algo.train()


def test_ignored_deaths_leave_the_others_working():
    tolerance = {"recreate_failed_workers": False, "ignore_worker_failures": True}
    with config().fault_tolerance(**tolerance).build() as algo:
        os.kill(pids(algo.workers)[0], signal.SIGKILL)
        result = algo.train()
        assert result["num_healthy_workers"] == 1
        assert result["timesteps_total"] >= 256


@pytest.mark.parametrize("how", [lambda: os._exit(3), lambda: sys.exit(3)], ids=["_exit", "sys.exit"])
def test_a_worker_that_dies_in_every_first_fragment_ends_the_run(how, caplog):
    """With the default settings: after a few attempts, in seconds, with what ended the process."""
    with config(Deadly, deed=how).build() as algo:
        started = time.monotonic()
        with pytest.raises(ActorDiedError, match=r"exit\(3\)|exit code 3") as caught:
            algo.train()
        assert time.monotonic() - started < 20
        assert any("num_consecutive_worker_failures_tolerance=3" in note for note in caught.value.__notes__)
        assert any("steps environments of Deadly: native code that crashes" in note for note in caught.value.__notes__)
        assert 3 <= len([record for record in caplog.records if "is replaced" in record.message]) <= 6


def test_the_tolerated_failures_in_a_row_are_exact():
    tolerance = {"num_consecutive_worker_failures_tolerance": 1, "delay_between_worker_restarts_s": 0.01}
    with config(Deadly, num_workers=1, deed=lambda: os._exit(3)).fault_tolerance(**tolerance).build() as algo:
        with pytest.raises(ActorDiedError):
            algo.train()
        assert algo.workers.num_restarts == 1


class Deadly(CountingEnv):
    """Does the deed in the 20th step, but not in the driver's check."""

    def __init__(self, config):
        super().__init__(config)
        self.deed, self.steps = config["deed"], 0

    def step(self, action):
        self.steps += 1
        if self.steps == 20:
            self.deed()
        return super().step(action)


def raising_once(tmp_path) -> dict:
    """The env_config of an environment that raises in worker 1, and no more once it has done so."""
    return {"marker": str(tmp_path / "raised"), "worker_index": 1}


class RaisesOnce(RaisingEnv):
    """As RaisingEnv, unless the file `marker` exists, which it writes when it raises."""

    def follow(self, action):
        if self.meant and self.steps == 10 and not os.path.exists(self.config["marker"]):
            open(self.config["marker"], "w").close()
            raise ProbeFailure("asked to fail once")
        return super().follow(action)


def test_recreate_failed_workers_replaces_one_whose_environment_raises(tmp_path):
    with config(RaisesOnce, **raising_once(tmp_path)).fault_tolerance(recreate_failed_workers=True).build() as algo:
        before = pids(algo.workers)
        result = algo.train()
        assert (result["num_healthy_workers"], result["num_remote_worker_restarts"]) == (2, 1)
        after = pids(algo.workers)
        assert after[0] != before[0] and after[1] == before[1]


def test_an_environment_that_raises_in_every_first_fragment_ends_the_run_with_its_exception():
    tolerance = {"recreate_failed_workers": True, "delay_between_worker_restarts_s": 0.01}
    with config(RaisingEnv, step=20, worker_index=1).fault_tolerance(**tolerance).build() as algo:
        with pytest.raises(ProbeFailure, match="step 20") as caught:
            algo.train()
        assert any("num_consecutive_worker_failures_tolerance=3" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("where", [{"step": 40}, {"init": True}], ids=str)
def test_ignore_worker_failures_leaves_out_workers_whose_environment_raises(where):
    with config(RaisingEnv, worker_index=1, **where).fault_tolerance(ignore_worker_failures=True).build() as algo:
        for _ in range(2):
            result = algo.train()
        assert (result["num_healthy_workers"], result["num_remote_worker_restarts"]) == (1, 0)
        assert result["timesteps_total"] >= 2 * 256


def test_the_exception_shows_when_no_worker_is_left_to_ignore_it():
    tolerance = {"ignore_worker_failures": True}
    with (
        config(RaisingEnv, step=20).fault_tolerance(**tolerance).build() as algo,
        pytest.raises(ProbeFailure, match="step 20"),
    ):
        algo.train()


def test_a_silent_worker_is_replaced(caplog):
    tolerance = FaultTolerance(silence_s=0.5, patience=2, delay_s=0.0)
    workers = WorkerSet(settings(CountingEnv), num_workers=2, fault_tolerance=tolerance)
    snapshots = _snapshots(workers)
    os.kill(workers.foreach_worker(lambda worker: os.getpid())[0], signal.SIGSTOP)
    started = time.monotonic()
    answers = workers.sample(snapshots)
    assert [batch.count for batch, _ in answers] == [60, 60]
    assert time.monotonic() - started < 20
    assert workers.num_restarts == 1
    assert "rollout worker 1 has not answered for 0.5 s" in caplog.text
    # So that `debugging(log_level=...)` has a say.
    assert {record.name for record in caplog.records if "answered" in record.message} == {"rllib.evaluation.worker_set"}
    workers.stop()


def test_the_users_exception_names_worker_and_environment():
    with config(RaisingEnv, step=20, worker_index=2, vector_index=1).build() as algo:
        with pytest.raises(ProbeFailure, match="asked to fail in step 20") as caught:
            algo.train()
        assert "environment 1 of rollout worker 2" in "".join(caught.value.__notes__)
        assert "tests/envs.py" in str(caught.value), "the remote traceback shows the user's line"


def test_an_environment_that_only_fails_in_workers_fails_in_build():
    with pytest.raises(ProbeFailure):
        config(RaisingEnv, init=True, worker_index=1).build()


def test_workers_have_no_torch_and_little_memory_of_their_own():
    with config().build() as algo:
        algo.train()
        found = algo.workers.foreach_worker(lambda worker: (os.getpid(), "torch" in sys.modules))
        for pid, has_torch in found:
            assert not has_torch
            assert psutil.Process(pid).memory_full_info().uss < 40 * 2**20


def test_evaluation_on_workers_favours_no_short_episodes():
    """Three episodes on two workers: two and one, each played to its end."""
    workers = WorkerSet(
        settings(CountingEnv, env_config={"lengths": [5, 60]}, num_envs=1), 2, worker_class=EvaluationWorker
    )
    snapshots = _snapshots(workers)
    lengths = [e.length for e in workers.start_episodes(snapshots, Duration(3), round_index=1, explore=False)()]
    assert len(lengths) == 3
    assert len(workers.start_episodes(snapshots, Duration(1), round_index=2, explore=False)()) == 1
    workers.stop()


class SlowOrHanging(CountingEnv):
    """Each step takes `step_s`; the first one of all takes a minute where there is a `marker` to say that it was."""

    def __init__(self, config):
        super().__init__(config)
        self.config = dict(config)

    def step(self, action):
        marker = self.config.get("marker")
        if marker and not os.path.exists(marker):
            open(marker, "w").close()
            time.sleep(60)
        time.sleep(self.config.get("step_s", 0))
        return super().step(action)


class AlwaysHanging(CountingEnv):
    def step(self, action):
        time.sleep(60)


def evaluated(tolerance_s, made) -> tuple[int, int]:
    """Episodes of an evaluation by one remote worker, and how often that was replaced."""
    tolerance = FaultTolerance(silence_s=tolerance_s, patience=2, delay_s=0.0)
    workers = WorkerSet(made, 1, fault_tolerance=tolerance, worker_class=EvaluationWorker)
    episodes = workers.start_episodes(_snapshots(workers), Duration(2), round_index=1, explore=False)()
    workers.stop()
    return len(episodes), workers.num_restarts


def test_an_evaluation_worker_that_plays_is_never_given_up(caplog):
    made = settings(SlowOrHanging, env_config={"lengths": [20], "step_s": 0.03}, num_envs=2)
    assert evaluated(0.2, made) == (2, 0)
    assert "evaluation worker 1 has not answered for 0.4 s; its episodes are played to their end" in caplog.text
    assert "rollout" not in caplog.text


def test_an_evaluation_worker_whose_environment_hangs_is_replaced(caplog, tmp_path):
    config = {"lengths": [5], "marker": str(tmp_path / "marker")}
    started = time.monotonic()
    assert evaluated(60.0, settings(SlowOrHanging, env_config=config, num_envs=2, sample_timeout_s=0.2)) == (2, 1)
    assert time.monotonic() - started < 30
    assert "evaluation worker 1 is replaced" in caplog.text


def test_an_evaluation_worker_that_hangs_again_is_silent_not_dead():
    made = settings(AlwaysHanging, num_envs=2, sample_timeout_s=0.1)
    sentence = r"evaluation worker 1 did not answer within 10 x sample_timeout_s=0.1 s; does an environment hang\?"
    with pytest.raises(SilentActorError, match=sentence):
        evaluated(60.0, made)


def test_evaluation_on_its_own_workers():
    with config().evaluation(evaluation_num_workers=2, evaluation_duration=6).build() as algo:
        evaluation = algo.evaluate()
        assert evaluation["episodes_this_iter"] == 6
        assert evaluation["num_healthy_workers"] == 2


def test_course_exercise_runs_as_it_stands(capsys):
    """The exercise of the course on distributed RLlib, its import line changed, all of it."""
    from rllib.algorithms.ppo import PPOConfig  # isort: skip
    import time
    import warnings

    warnings.filterwarnings("ignore", category=DeprecationWarning)

    ppo_config_many = (
        PPOConfig()
        .framework("torch")
        .rollouts(num_rollout_workers=2, num_envs_per_worker=2)
        .training(model={"fcnet_hiddens": [32, 32]})
    )

    ppo_config_single = (
        PPOConfig()
        .framework("torch")
        .rollouts(num_rollout_workers=1, num_envs_per_worker=1)
        .training(model={"fcnet_hiddens": [32, 32]})
    )

    ppo_many = ppo_config_many.build(env="FrozenLake-v1")
    t = time.time()
    for _ in range(5):
        ppo_many.train()
    print(f"Elapsed time with 2 workers, 2 envs each: {time.time() - t:.1f}s.")
    ppo_many.stop()

    ppo_single = ppo_config_single.build(env="FrozenLake-v1")
    t = time.time()
    for _ in range(5):
        ppo_single.train()
    print(f"Elapsed time with 1 worker, 1 env: {time.time() - t:.1f}s.")
    ppo_single.stop()

    assert capsys.readouterr().out.count("Elapsed time") == 2


# ---- items shared out


class Scaler:
    """A worker that is no RolloutWorker: it multiplies by an array that all of them map."""

    kind, if_silent = "scaler", ""

    def __init__(self, settings, worker_index, incarnation, allocate, factors):
        self.worker_index, self.factors = worker_index, factors

    def close(self):
        pass


def multiply(worker, share, power):
    return [float(np.sum(worker.factors[item] ** power)) for item in share]


def killing(worker, share, power, marker):
    if worker.worker_index == 1 and not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return multiply(worker, share, power)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_items_come_back_in_order_whoever_worked_on_them(num_workers):
    factors = allocator(num_workers)((5,), np.float64)
    factors[:] = [1, 2, 3, 4, 5]
    workers = WorkerSet(settings(CountingEnv), num_workers, worker_class=Scaler, shared=[factors])
    assert workers.share_out(multiply, [4, 0, 2, 2, 1], np.array([2.0])) == [25.0, 1.0, 9.0, 9.0, 4.0]
    assert workers.share_out(multiply, [3], np.array([2.0])) == [16.0], "fewer items than workers"
    workers.stop()


@pytest.mark.parametrize("restart", [True, False])
def test_the_share_of_a_dead_worker_is_worked_on_again(restart, tmp_path):
    workers = WorkerSet(
        settings(CountingEnv),
        2,
        fault_tolerance=FaultTolerance(restart=restart, ignore=True),
        worker_class=Scaler,
        shared=[np.arange(5.0)],
    )
    found = workers.share_out(killing, [0, 1, 2, 3, 4], np.array([1.0]), str(tmp_path / "killed"))
    assert found == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert workers.num_healthy_workers == 1 + restart
    workers.stop()


@pytest.mark.parametrize(
    ("method", "takes"),
    [
        ("foreach_worker", "function(worker)"),
        ("foreach_env", "function(environment)"),
        ("foreach_env_with_context", "function(environment, EnvContext)"),
        ("foreach_policy", "function(policy, policy id)"),
        ("foreach_policy_to_train", "function(policy, policy id)"),
        ("foreach_worker_with_id", "function(index, worker)"),
        ("foreach_env_runner", "function(worker), or the name of a method"),
    ],
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_is_no_function_is_refused_before_workers_are_asked(method, takes, num_workers):
    told = re.escape(f"{method} needs a {takes}") + ".* but got 3"
    with config(num_workers=num_workers).build() as algo, pytest.raises(TypeError, match=told):
        getattr(algo.workers, method)(3)


def test_a_function_for_remote_workers_alone_leaves_the_local_one_out():
    with config(num_workers=0).build() as algo:
        assert algo.workers.foreach_worker(lambda worker: worker.worker_index) == [0]
        assert algo.workers.foreach_worker(lambda worker: worker.worker_index, local_worker=False) == []


@pytest.mark.parametrize(
    ("workers", "cpus", "evaluation", "told"),
    [
        (1, cpu_count() + 97, 0, f"1 rollout workers with num_cpus_per_worker={cpu_count() + 97} claim"),
        (1, 1, cpu_count() + 1, f"{cpu_count() + 1} evaluation workers with num_cpus_per_worker=1 claim"),
        (1, 1, 1, ""),
        (0, 99, 0, ""),
    ],
)
def test_more_workers_than_cpus_are_worth_a_line(workers, cpus, evaluation, told, caplog):
    asked = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=workers)
    log_crowds(asked.resources(num_cpus_per_worker=cpus).evaluation(evaluation_num_workers=evaluation))
    lines = [record.getMessage() for record in caplog.records if "claim" in record.getMessage()]
    assert [told in line for line in lines] == [True] * bool(told)
