"""`rllib train --seeds`: trials of the runtime's local engine, in this process; whole processes at the end."""

import io
import json
import os
import shutil
import signal

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load_file

import runtime
from rllib.algorithms.pg import PG
from rllib.cli.seeds.tables import LiveSeeds, SeedLines
from rllib.dashboard.index import Index
from rllib.errors import NotFiniteError
from rllib.runs import saving
from rllib.tune.experiment.seed_runs import RunCheckpoints, SeedTrainable
from rllib.tune.experiment.stoppers import ThresholdStopper
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.running.pool import TrialPool
from rllib.tune.running.runner import Interrupts
from tests.runtime.runtime_support import wait_until

SETTINGS = ("num_rollout_workers=0", "train_batch_size=40", "rollout_fragment_length=40", "model.fcnet_hiddens=[4]")
ONE = ("train", "PG", "tests.envs:DelayedReward", *SETTINGS)
TRAIN = (*ONE, "--name", "all")
# Of results: what depends on the clock, the process, or the place.
OF_A_PROCESS = ("time", "date", "pid", "hostname", "node_ip", "since_restore", "perf", "_ms", "per_s", "episode_id",
                "trial_id", "experiment_tag", "learner_cores")  # fmt: skip


@pytest.fixture
def steps(monkeypatch):
    """(seed, iteration) -> what happens before that iteration; with a session of the local engine."""
    runtime.init(engine="local", ignore_reinit_error=True)
    happens, step = {}, SeedTrainable.step

    def observed(self):
        happens.pop((self.config["seed"], self.iteration + 1), lambda: None)()
        return step(self)

    monkeypatch.setattr(SeedTrainable, "step", observed)
    return happens


def fail():
    raise RuntimeError("the environment is gone")


def results_of(run):
    return [json.loads(line) for line in (run / "result.json").read_text().splitlines()]


def iterations(folder):
    return [len(results_of(path)) for path in sorted(folder.glob("seed_*"))]


def checkpoints(run):
    return [int(path.name[-6:]) for path in sorted(run.glob("checkpoint_*"))]


def comparable(value):
    if not isinstance(value, dict):
        return value
    return {key: comparable(each) for key, each in value.items() if not any(part in key for part in OF_A_PROCESS)}


def test_each_seed_has_a_directory_and_the_last_line_has_their_return(rllib_command, steps, tmp_path):
    result = rllib_command(*TRAIN, "--seeds", 3, "--seed", 4, "--stop", "iterations=3", "--checkpoint-freq", 2)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "results" / "all"
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["seed_4", "seed_5", "seed_6"]
    assert iterations(folder) == [3, 3, 3] and checkpoints(folder / "seed_5") == [2, 3]
    assert json.loads((folder / "seeds.json").read_text()) == {"seeds": [4, 5, 6]}
    assert json.loads((folder / "seed_5" / "params.json").read_text())["seed"] == 5
    spec = json.loads((folder / "seed_5" / "run.json").read_text())
    assert (spec["algorithm"], spec["seed"], spec["stop"]) == ("PG", 5, {"training_iteration": 3.0})
    *_, last = result.output.splitlines()
    assert last.startswith("return      ") and last.endswith("(IQM of 3 seeds, 95 % interval) at 120 steps")
    assert "PG on tests.envs:DelayedReward, 3 seeds, until training_iteration >= 3: 3 of 3 ended" in result.output
    assert "resume" not in result.output


@pytest.mark.parametrize("more", [(), ("min_sample_timesteps_per_iteration=100", "--stop", "steps=80")])
def test_a_seed_has_the_results_of_a_run_of_its_own(rllib_command, steps, tmp_path, more):
    """Also where a stop criterion ends an iteration early, and when both are resumed with other settings."""
    stop = more or ("--stop", "iterations=3")
    assert rllib_command(*TRAIN, "--seeds", 2, "--seed", 4, *stop).exit_code == 0
    assert rllib_command(*ONE, "--seed", 5, "--name", "one", *stop).exit_code == 0
    together, alone = tmp_path / "results" / "all" / "seed_5", tmp_path / "results" / "one"
    assert list(map(comparable, results_of(together))) == list(map(comparable, results_of(alone)))
    again = ("lr=0.1", "--stop", "steps=240")
    for place in ("all", "one"):
        assert rllib_command("train", "--resume", f"results/{place}", *again).exit_code == 0
    found = results_of(together)
    assert found[-1]["timesteps_total"] == 240 and found[-1]["info"]["learner"]
    assert list(map(comparable, found)) == list(map(comparable, results_of(alone)))
    assert json.loads((together / "params.json").read_text())["lr"] == 0.1


def test_the_profiles_of_the_seeds_are_named_at_the_end(rllib_command, steps, tmp_path):
    result = rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=2", "--profile")
    assert "profiles    results/all/seed_*/profile.json (open one in ui.perfetto.dev)" in result.output
    assert json.loads((tmp_path / "results/all/seed_0/profile.json").read_text()), "of the process that both share"


def test_a_seed_that_fails_does_not_take_the_others_with_it(rllib_command, steps, tmp_path):
    steps[1, 2] = fail
    result = rllib_command(*TRAIN, "--seeds", 3, "--stop", "iterations=3")
    assert result.exit_code == 1
    assert "failed      seed 1: RuntimeError: the environment is gone (results/all/seed_1/error.txt)" in result.output
    assert "resume      rllib train --resume results/all\n" in result.output
    assert "(IQM of 2 seeds" in result.output.splitlines()[-1]
    assert iterations(tmp_path / "results/all") == [3, 1, 3]


def test_the_batch_of_an_update_that_is_not_finite_is_kept(rllib_command, steps, tmp_path, monkeypatch):
    def not_finite(self):
        error = NotFiniteError("the gradient is NaN.")
        error.batch = {"obs": np.zeros((2, 3), np.float32)}
        raise error

    monkeypatch.setattr(PG, "train", not_finite)
    result = rllib_command(*TRAIN, "--seeds", 2)
    assert result.exit_code == 1 and "The batch is in" in result.output
    batch = load_file(tmp_path / "results/all/seed_1/failing_batch.safetensors")
    assert batch["obs"].shape == (2, 3)


def test_a_seed_that_goes_on_with_more_workers_claims_their_cores(rllib_command, steps, monkeypatch):
    claimed, start = [], TrialPool.start
    monkeypatch.setattr(
        TrialPool, "start", lambda self, trial, *more: [claimed.append(trial.resources), start(self, trial, *more)]
    )
    assert rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=1").exit_code == 0
    again = ("num_rollout_workers=1", "--stop", "iterations=2")
    assert rllib_command("train", "--resume", "results/all", *again).exit_code == 0
    assert [each.others.get("CPU", 0) for each in claimed] == [0, 0, 1, 1]


def test_resume_continues_what_is_unfinished(rllib_command, steps, tmp_path):
    steps[1, 2] = fail
    rllib_command(*TRAIN, "--seeds", 3, "--stop", "iterations=3")
    folder = tmp_path / "results" / "all"
    before = (folder / "seed_0" / "result.json").read_bytes()
    result = rllib_command("train", "--resume", "results/all", "--load-user-code")
    assert result.exit_code == 0, result.output
    assert (folder / "seed_0" / "result.json").read_bytes() == before, "it had reached the stop criterion"
    assert iterations(folder) == [3, 3, 3]
    result = rllib_command("train", "--resume", "results/all", "--stop", "iterations=4", "lr=0.1", "--load-user-code")
    assert result.exit_code == 0, result.output
    assert [results_of(folder / f"seed_{seed}")[-1]["info"]["learner"]["default_policy"]["learner_stats"]["cur_lr"]
            for seed in range(3)] == [0.1] * 3  # fmt: skip
    assert iterations(folder) == [4, 4, 4]
    result = rllib_command("train", "--resume", "results/all")
    assert result.exit_code == 0 and iterations(folder) == [4, 4, 4]
    assert "nothing to train: each seed has reached its stop criterion; give another --stop" in result.stderr


@pytest.mark.parametrize("is_saved", [False, True])
def test_seeds_write_to_a_place_that_is_typed_again(rllib_command, steps, tmp_path, is_saved):
    output = f"output={tmp_path / 'steps'}"
    rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=1", *([output] if is_saved else []))
    shutil.rmtree(tmp_path / "steps", ignore_errors=True)
    resume = ("train", "--resume", "results/all", "--stop", "iterations=2")
    if is_saved:
        refused = rllib_command(*resume)
        assert refused.exit_code == 2 and "give output again" in refused.output, refused.output
        assert iterations(tmp_path / "results" / "all") == [1, 1] and not (tmp_path / "steps").exists()
    typed = rllib_command(*resume, output)
    assert typed.exit_code == 0 and any((tmp_path / "steps").iterdir()), typed.output
    assert iterations(tmp_path / "results" / "all") == [2, 2]


def test_a_seed_that_begins_again_has_the_settings_of_the_others(rllib_command, steps, tmp_path):
    """Changes hold from then on, also for a seed that has no checkpoint, and when nothing is given once more."""
    steps[1, 1] = fail
    rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=2", "lr=0.1")
    folder = tmp_path / "results/all"
    steps[1, 1] = fail
    assert rllib_command("train", "--resume", "results/all", "--stop", "iterations=3", "gamma=0.9").exit_code == 1
    assert rllib_command("train", "--resume", "results/all").exit_code == 0
    assert iterations(folder) == [3, 3]
    for seed in (0, 1):
        params, spec = (
            json.loads((folder / f"seed_{seed}" / name).read_text()) for name in ("params.json", "run.json")
        )
        assert (params["lr"], params["gamma"], params["seed"]) == (0.1, 0.9, seed)
        assert spec["stop"] == {"training_iteration": 3.0} and spec["config"]["gamma"] == 0.9


def test_ctrl_c_lets_all_seeds_save_and_end(rllib_command, steps, tmp_path):
    steps[0, 2] = lambda: signal.raise_signal(signal.SIGINT)
    result = rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=50")
    folder = tmp_path / "results" / "all"
    assert result.exit_code == 130, result.output
    assert "Each seed finishes its iteration, then saves a checkpoint." in result.stderr
    assert "resume      rllib train --resume results/all" in result.output
    assert max(iterations(folder)) < 50
    for seed in (0, 1):
        assert checkpoints(folder / f"seed_{seed}") == [len(results_of(folder / f"seed_{seed}"))]
    seen = max(iterations(folder))
    assert rllib_command("train", "--resume", "results/all", "--stop", f"iterations={seen + 1}").exit_code == 0
    assert iterations(folder) == [seen + 1, seen + 1]


def test_sigterm_interrupts_as_ctrl_c_does(rllib_command, steps):
    steps[0, 2] = lambda: signal.raise_signal(signal.SIGTERM)
    assert rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=50").exit_code == 128 + signal.SIGTERM


def test_a_signal_to_the_whole_job_is_one_request_to_save():
    """A queue's manager tells each process to end, and the parent passes on what it was told."""
    with Interrupts(signal.SIGINT, signal.SIGTERM) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.seen == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1"], "1 is not in the range x>=2"),
        (["--seeds", "2", "seed=3"], "--seeds counts from --seed; leave out the setting seed=3"),
        (["--seeds", "2", "--num-samples", "2"], "--seeds is for a single run; leave out grid_search"),
        (["--seeds", "2", "lrr=1"], "lrr"),
        (["--seeds", "2", "lr=-1"], "lr"),
        (["--seeds", "2", "log_dir=x"], "leave out log_dir"),
    ],
)
def test_bad_input_is_refused_before_a_seed_begins(rllib_command, tmp_path, arguments, message):
    result = rllib_command(*TRAIN, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not (tmp_path / "results").exists()


def test_a_missing_environment_or_package_is_said_once_before_a_seed_begins(rllib_command, tmp_path, monkeypatch):
    refused = rllib_command("train", "PPO", "CartPol-v1", "--seeds", "2")
    assert refused.exit_code == 2 and refused.output.count("Did you mean 'CartPole-v1'?") == 1, refused.output
    monkeypatch.setattr("rllib.runs.trackers.WandbRun.package", "no_such_package")
    refused = rllib_command(*TRAIN, "--seeds", "2", "wandb={project: p}")
    assert refused.exit_code == 1 and refused.output.count("logging to wandb needs its package") == 1, refused.output
    assert not (tmp_path / "results").exists()


def test_what_cannot_change_is_refused_with_how_to_resume(rllib_command, steps):
    assert rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=1").exit_code == 0
    result = rllib_command(*TRAIN, "--seeds", 2)
    assert result.exit_code == 2
    assert "resume it: rllib train --resume results/all" in result.stderr
    for flag, value in (("--seeds", 3), ("--seed", 0)):
        fixed = rllib_command("train", "--resume", "results/all", flag, value)
        assert fixed.exit_code == 2 and f"leave out {flag}\n" in fixed.stderr
    fixed = rllib_command("train", "--resume", "results/all", "seed=3")
    assert fixed.exit_code == 2 and "leave out seed=3" in fixed.stderr
    one = rllib_command("train", "--resume", "results/all/seed_1")
    assert one.exit_code == 2 and "rllib train --resume results/all\n" in one.stderr


@pytest.mark.parametrize("wrong", ["lrr=1", "lr=-1"])
@pytest.mark.parametrize("stop", [(), ("--stop", "iterations=9")])
def test_a_wrong_setting_is_refused_whether_or_not_a_seed_continues(rllib_command, steps, tmp_path, wrong, stop):
    assert rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=1").exit_code == 0
    (journal,) = (tmp_path / "results/all").glob("experiment_state-*.json")
    before = journal.read_bytes()
    result = rllib_command("train", "--resume", "results/all", wrong, *stop)
    assert result.exit_code == 2 and wrong.partition("=")[0] in result.stderr
    assert journal.read_bytes() == before


def test_a_folder_that_cannot_be_resumed_says_why(rllib_command, tmp_path):
    (tmp_path / "seeds.json").write_text('{"seeds": 3}')
    result = rllib_command("train", "--resume", ".")
    assert result.exit_code == 2 and "seeds.json is damaged" in result.stderr
    (tmp_path / "seeds.json").write_text('{"seeds": [0, 1]}')
    result = rllib_command("train", "--resume", ".")
    assert result.exit_code == 2 and "no seed in . has begun" in result.stderr
    (tmp_path / "seed_1").mkdir()
    (tmp_path / "seed_1" / "run.json").write_text('{"algorithm": "PG", "env": "CartPole-v1"}')
    result = rllib_command("train", "--resume", ".")
    assert result.exit_code == 2 and "as by rllib train --resume seed_1" in result.stderr


def test_another_experiment_with_a_number_behind_the_name_is_not_meant(rllib_command, steps, tmp_path):
    for name in ("all", "all_2"):
        assert rllib_command(*ONE, "--name", name, "--seeds", 2, "--stop", "iterations=1").exit_code == 0
    assert rllib_command("train", "--resume", "results/all", "--stop", "iterations=2").exit_code == 0
    assert [iterations(tmp_path / "results" / name) for name in ("all", "all_2")] == [[2, 2], [1, 1]]


def test_other_commands_read_the_folder(rllib_command, steps, tmp_path):
    for name, rate in (("slow", 0.001), ("fast", 0.1)):
        more = ("--name", name, f"lr={rate}", "--stop", "iterations=2", "--seeds", 3)
        assert rllib_command(*ONE, *more).exit_code == 0
    compared = rllib_command("compare", "results/slow", "results/fast")
    assert all(f"\n{name}" in compared.output for name in ("lr=0.001  3 ", "lr=0.1    3 ")), compared.output
    evaluated = rllib_command("evaluate", "results/slow", "--episodes", 1)
    assert "(IQM of 3 seeds, 95 % interval; 3 episodes)" in evaluated.output
    assert rllib_command("evaluate", "results/slow/seed_1", "--episodes", 1).exit_code == 0
    index = Index(tmp_path / "results")
    index.refresh()
    rows = {row["id"]: row for row in index.changes()["runs"]}
    assert {id: row["folder"] for id, row in rows.items()} == {
        f"{name}/seed_{seed}": name for name in ("slow", "fast") for seed in range(3)
    }
    assert {row["status"] for row in rows.values()} == {"finished"}


# ---------------------------------------------------------------------- checkpoints


def test_seeds_are_saved_as_a_single_run_is(rllib_command, steps, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "SAVE_EVERY_S", 0.0)
    folder, seen = tmp_path / "results" / "all", []
    for iteration in range(1, 5):
        steps[1, iteration] = lambda: seen.append(checkpoints(folder / "seed_1"))
    assert rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=4").exit_code == 0
    assert [each[-1:] for each in seen] == [[], [1], [2], [3]]
    assert checkpoints(folder / "seed_1") == [4], "the newest one is kept"


def checkpoint(iteration, **metrics):
    return TrialCheckpoint(f"checkpoint_{iteration:06}", iteration, metrics)


def test_checkpoints_grow_rarer_with_the_age_of_a_seed():
    """With iterations of 4 seconds: after 4, then 12 (at least 5 seconds later), 24, 48."""
    made = []
    for iteration in range(1, 13):
        result = {"training_iteration": iteration, "time_total_s": 4.0 * iteration}
        if RunCheckpoints().is_due(result, made):
            made.append(checkpoint(iteration, time_total_s=4.0 * iteration))
    assert [each.iteration for each in made] == [1, 3, 6, 12]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [7]),
        ({"keep_best": True}, [4, 7]),
        ({"checkpoint_frequency": 2}, [2, 4, 6, 7]),
        ({"checkpoint_frequency": 2, "num_to_keep": 2}, [6, 7]),
        ({"checkpoint_frequency": 2, "num_to_keep": 2, "keep_best": True}, [4, 6, 7]),
        ({"checkpoint_frequency": 3, "keep_best": True}, [4, 6, 7]),
    ],
)
def test_the_newest_and_the_best_are_kept(settings, kept):
    returns = {2: 5.0, 4: 9.0, 6: 8.0, 7: float("nan")}
    made = [checkpoint(iteration, episode_reward_mean=value) for iteration, value in returns.items()]
    superfluous = RunCheckpoints(**settings).superfluous(made)
    assert [each.iteration for each in made if each not in superfluous] == kept


def test_the_best_return_is_saved_and_that_of_evaluations_counts_from_the_first_on():
    due = RunCheckpoints(checkpoint_frequency=100, keep_best=True).is_due
    made = [checkpoint(1, episode_reward_mean=5.0)]
    assert due({"training_iteration": 2, "episode_reward_mean": 6.0}, made)
    assert not due({"training_iteration": 2, "episode_reward_mean": 5.0}, made)
    assert not due({"training_iteration": 2, "episode_reward_mean": None}, [])
    evaluated = {"training_iteration": 3, "episode_reward_mean": 1.0, "evaluation": {"episode_reward_mean": 2.0}}
    assert due(evaluated, made)
    made.append(checkpoint(3, **{"episode_reward_mean": 1.0, "evaluation/episode_reward_mean": 2.0}))
    assert not due({"training_iteration": 4, "episode_reward_mean": 100.0}, made)


# ---------------------------------------------------------------------- room and display


@pytest.mark.parametrize(
    ("cores", "gpus", "number", "request_", "expected"),
    [
        (2, 0, 5, {"cpu": 1}, 1),
        (8, 0, 3, {"cpu": 1}, 2),
        (8, 0, 2, {"cpu": 1, "extra_cpu": 2}, 2),
        (2, 0, 5, {"cpu": 1, "extra_cpu": 4}, 1),
        (8, 1, 4, {"cpu": 1, "gpu": 1}, 8),
        (8, 1, 4, {"cpu": 1, "gpu": 0.5}, 4),
        (8, 0, 4, {"cpu": 1, "gpu": 1}, 8),  # which no session without a GPU can give
    ],
)
def test_cores_that_would_be_idle_are_divided_among_the_seeds(monkeypatch, cores, gpus, number, request_, expected):
    class Request:
        default_resource_request = staticmethod(lambda config: request_)

    monkeypatch.setattr(runtime, "cluster_resources", lambda: {"CPU": cores, **({"GPU": gpus} if gpus else {})})
    one = type("One", (SeedTrainable,), {"algorithm_class": Request, "number": number, "goal": {}})
    assert one.default_resource_request({})["cpu"] == expected


def trials(count=3):
    made = [Trial(str(seed), seed, "PPO", {"seed": seed}) for seed in range(count)]
    made[0].status = "RUNNING"
    made[0].last_result = {
        "training_iteration": 7, "timesteps_total": 4000, "time_total_s": 3.0, "episode_reward_mean": 21.5
    }  # fmt: skip
    made[1].status, made[1].error = "ERROR", "Traceback\nRuntimeError: gone\n"
    return made


STATUS = {"directory": "results/all", "elapsed_s": 3.0, "scheduler": "FIFOScheduler", "used": {}, "total": {}}
STOP = ThresholdStopper({"training_iteration": 14})


@pytest.mark.parametrize("width", range(1, 120, 7))
def test_the_table_is_drawn_in_a_narrow_terminal(width):
    console = Console(file=io.StringIO(), width=width, height=20, force_terminal=True)
    table = LiveSeeds("PPO on CartPole-v1, 3 seeds", STOP, console=console)
    table.note = "Each seed saves."
    table.report(trials(), False, STATUS)
    table.report(trials(), True, STATUS)
    assert console.file.getvalue()


def test_the_table_has_a_row_for_each_seed():
    console = Console(file=io.StringIO(), width=110, height=30)
    live = LiveSeeds("PPO on CartPole-v1, 3 seeds", STOP, console=console)
    live.note = "Each seed saves."
    live.report(trials(), True, STATUS)
    assert "Each seed saves." in console.file.getvalue()
    for text in (console.file.getvalue(), SeedLines("PPO on CartPole-v1, 3 seeds", STOP).text(trials(), STATUS)):
        lines = [line.split() for line in text.splitlines()]
        assert "PPO on CartPole-v1, 3 seeds: 1 of 3 ended" in text and "RuntimeError: gone" in text
        assert ["0", "RUNNING", "7", "3.0", "s", "4,000", "-", "21.5", "50%"] in lines
        assert ["2", "PENDING", "-", "-", "-", "-", "-", "0%"] in lines


# ---------------------------------------------------------------------- whole processes


@pytest.mark.slow
def test_seeds_are_resumed_when_the_program_was_killed(rllib, tmp_path):
    process = rllib.start(*TRAIN, "--seeds", 2, "--stop", "iterations=100000", "--checkpoint-freq", 1)
    folder = tmp_path / "results" / "all"
    wait_until(lambda: all((folder / f"seed_{seed}" / "checkpoint_000001").exists() for seed in (0, 1)), 90)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    seen = max(int(path.name[-6:]) for path in folder.glob("seed_*/checkpoint_*"))
    code, output = rllib("train", "--resume", "results/all", "--stop", f"iterations={seen + 50}", "--load-user-code")
    assert code == 0, output
    assert "(IQM of 2 seeds, 95 % interval)" in output.splitlines()[-1]


@pytest.mark.slow
def test_ctrl_c_waits_for_a_long_iteration(rllib, tmp_path):
    """Longer than an experiment of Tune would: the state after the iteration is saved."""
    (tmp_path / "slow.py").write_text(
        "import time\nfrom tests.envs import DelayedReward\n\n\nclass Slow(DelayedReward):\n"
        "    def step(self, action):\n        time.sleep(0.1)\n        return super().step(action)\n"
    )
    process = rllib.start("train", "PG", "slow:Slow", *SETTINGS, "--name", "all", "--seeds", 2)
    folder = tmp_path / "results" / "all"
    wait_until(lambda: all((folder / f"seed_{seed}" / "result.json").exists() for seed in (0, 1)), 90)
    wait_until(lambda: min(iterations(folder)) >= 1, 90)
    before = max(iterations(folder))
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert max(iterations(folder)) >= before + 1
    for run in folder.glob("seed_*"):
        assert checkpoints(run)[-1] == len(results_of(run))
