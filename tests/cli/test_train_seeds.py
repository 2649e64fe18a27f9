"""`rllib train --seeds`: most tests have a stand-in for the process of each seed (seed_stand_in.py)."""

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rllib.cli.seeds import training
from rllib.cli.seeds.panel import SeedPanel
from rllib.cli.seeds.processes import SeedRun, Share, State, gpus_of, shares, train_side_by_side
from rllib.tune.running.runner import Interrupts
from tests.runtime.runtime_support import wait_until

SETTINGS = ("num_rollout_workers=0", "train_batch_size=400")
TRAIN = ("train", "PPO", "CartPole-v1", "--defaults", *SETTINGS, "--name", "all")
STAND_IN = Path(__file__).with_name("seed_stand_in.py")


@pytest.fixture
def stand_in(monkeypatch):
    """Lets each seed's process write files alone; returns a function that says which seeds do what."""
    monkeypatch.setattr(training, "command_of", lambda arguments: [sys.executable, "-S", str(STAND_IN), *arguments])
    return lambda variable, *seeds: monkeypatch.setenv(variable, ",".join(map(str, seeds)))


def results_of(run):
    return [json.loads(line) for line in (run / "result.json").read_text().splitlines()]


def arguments_of(run):
    return json.loads((run / "arguments.json").read_text())


def test_each_seed_is_a_run_of_its_own_and_the_last_line_has_their_return(rllib_command, stand_in, tmp_path):
    result = rllib_command(*TRAIN, "--seeds", 3, "--seed", 4, "--stop", "iterations=3", "--checkpoint-freq", 2)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "results" / "all"
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["seed_4", "seed_5", "seed_6"]
    own = ["--seed", "5", "--name", "seed_5", "--results-dir", "results/all"]
    given = ["train", "PPO", "CartPole-v1", *SETTINGS, "--defaults", "--stop", "iterations=3", "--checkpoint-freq", "2"]
    found = arguments_of(folder / "seed_5")
    assert found[-6:] == own and sorted(found[:-6]) == sorted(given)
    *_, last = result.output.splitlines()
    assert last == "return      18.00 [15.00, 21.00] (IQM of 3 seeds, 95 % interval) at 300 steps"
    assert "seed 4   done" in result.output and "resume" not in result.output


def test_the_profiles_of_the_seeds_are_named_at_the_end(rllib_command, stand_in):
    result = rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=2", "--profile")
    assert "profiles    results/all/seed_*/profile.json (open one in ui.perfetto.dev)" in result.output


def test_a_seed_that_fails_does_not_take_the_others_with_it(rllib_command, stand_in, tmp_path):
    stand_in("FAILING", 1)
    result = rllib_command(*TRAIN, "--seeds", 3, "--stop", "iterations=3")
    assert result.exit_code == 1
    assert "failed      seed 1: Error: RuntimeError: the environment is gone (results/all/seed_1.log)" in result.output
    assert "resume      rllib train --resume results/all" in result.output
    assert result.output.splitlines()[-1].startswith("return      6.00 [3.00, 9.00] (IQM of 2 seeds")
    assert [len(results_of(tmp_path / "results/all" / f"seed_{seed}")) for seed in range(3)] == [3, 1, 3]


def test_resume_continues_what_is_unfinished(rllib_command, stand_in, tmp_path):
    stand_in("FAILING", 1)
    rllib_command(*TRAIN, "--seeds", 3, "--stop", "iterations=3")
    folder = tmp_path / "results" / "all"
    shutil.rmtree(folder / "seed_2")  # it was interrupted before it began
    before = arguments_of(folder / "seed_0")
    stand_in("FAILING")
    result = rllib_command("train", "--resume", "results/all")
    assert result.exit_code == 0, result.output
    assert arguments_of(folder / "seed_0") == before, "it had reached the stop criterion"
    assert arguments_of(folder / "seed_1") == ["train", "--resume", "results/all/seed_1"]
    assert arguments_of(folder / "seed_2")[:3] == ["train", "-f", "results/all/settings.yaml"]
    assert [len(results_of(folder / f"seed_{seed}")) for seed in range(3)] == [3, 3, 3]
    result = rllib_command("train", "--resume", "results/all", "--stop", "iterations=4", "lr=0.1")
    assert result.exit_code == 0, result.output
    expected = {"train", "--resume", "results/all/seed_0", "--stop", "iterations=4", "lr=0.1"}
    assert set(arguments_of(folder / "seed_0")) == expected
    assert len(results_of(folder / "seed_2")) == 4


def test_a_seed_that_begins_again_has_the_stop_criterion_of_the_others(rllib_command, stand_in, tmp_path):
    rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=3", "lr=0.1")
    folder = tmp_path / "results/all"
    shutil.rmtree(folder / "seed_1")
    rllib_command("train", "--resume", "results/all", "--stop", "return=100", "gamma=0.9")
    settings = json.loads((folder / "settings.yaml").read_text())
    assert settings["stop"] == {"episode_reward_mean": 100.0}, "the earlier one does not hold for any seed"
    assert settings["config"]["gamma"] == 0.9


def test_ctrl_c_ends_all_seeds_in_order(rllib_command, stand_in, tmp_path, monkeypatch):
    stand_in("HANGING", 0, 1)
    monkeypatch.setattr(training, "_places", lambda need, count: [Share(), Share()])
    folder, pressed = tmp_path / "results" / "all", []

    def press_when_both_hang(run):
        if not pressed and all((folder / f"seed_{seed}" / "result.json").exists() for seed in (0, 1)):
            pressed.append(os.kill(os.getpid(), signal.SIGINT))
        poll(run)

    poll = SeedRun.poll
    monkeypatch.setattr(SeedRun, "poll", press_when_both_hang)
    result = rllib_command(*TRAIN, "--seeds", 3, "--stop", "iterations=3")
    assert result.exit_code == 130, result.output
    assert "Each seed finishes its iteration, then saves a checkpoint." in result.stderr
    assert "resume      rllib train --resume results/all" in result.output
    assert not (folder / "seed_2").exists(), "it had not begun"
    stand_in("HANGING")
    monkeypatch.setattr(SeedRun, "poll", poll)
    assert rllib_command("train", "--resume", "results/all").exit_code == 0
    assert [len(results_of(folder / f"seed_{seed}")) for seed in range(3)] == [3, 3, 3]


def test_a_signal_to_the_whole_job_is_one_request_to_save(tmp_path):
    """A queue's manager tells each process to end, and the parent passes on what it was told."""
    with Interrupts(signal.SIGINT, signal.SIGTERM) as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.seen == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    program = (
        "import signal, time\n"
        "for number in (signal.SIGTERM, signal.SIGINT):\n"
        "    signal.signal(number, lambda number, frame: print(signal.Signals(number).name, flush=True))\n"
        "print('begun', flush=True)\n"
        "while True: time.sleep(1)"
    )
    run = SeedRun(0, tmp_path, [sys.executable, "-c", program], tmp_path / "log")
    run.start(Share())
    try:
        for told in ("begun", "SIGTERM", "SIGINT"):
            wait_until(lambda told=told: told in run.log.read_text().split(), 30)
            run.interrupt()
    finally:
        run.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1"], "1 is not in the range x>=2"),
        (["--seeds", "2", "seed=3"], "--seeds counts from --seed; leave out the setting seed=3"),
        (["--seeds", "2", "--num-samples", "2"], "--seeds is for a single run; leave out grid_search"),
        (["--seeds", "2", "lrr=1"], "lrr"),
        (["--seeds", "2", "num_sgd_iter=0"], "num_sgd_iter"),
        (["--seeds", "2", "log_dir=x"], "leave out log_dir"),
    ],
)
def test_bad_input_is_refused_before_a_seed_begins(rllib_command, stand_in, tmp_path, arguments, message):
    result = rllib_command(*TRAIN, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not (tmp_path / "results").exists()


def test_the_name_of_an_earlier_folder_is_refused_with_how_to_resume_it(rllib_command, stand_in):
    assert rllib_command(*TRAIN, "--seeds", 2).exit_code == 0
    result = rllib_command(*TRAIN, "--seeds", 2)
    assert result.exit_code == 2
    assert "resume it: rllib train --resume results/all" in result.stderr
    for flag, value in (("--seeds", 3), ("--seed", 0)):
        fixed = rllib_command("train", "--resume", "results/all", flag, value)
        assert fixed.exit_code == 2 and f"leave out {flag}\n" in fixed.stderr


@pytest.mark.parametrize("wrong", ["lrr=1", "lr=-1", "num_sgd_iter=0"])
@pytest.mark.parametrize("stop", [(), ("--stop", "iterations=9")])
def test_a_wrong_setting_is_refused_whether_or_not_a_seed_continues(rllib_command, stand_in, tmp_path, wrong, stop):
    assert rllib_command(*TRAIN, "--seeds", 2, "--stop", "iterations=1").exit_code == 0
    settings = (tmp_path / "results/all/settings.yaml").read_bytes()
    result = rllib_command("train", "--resume", "results/all", wrong, *stop)
    assert result.exit_code == 2 and wrong.partition("=")[0] in result.stderr
    assert (tmp_path / "results/all/settings.yaml").read_bytes() == settings


def test_a_damaged_folder_is_a_mistake(rllib_command, tmp_path):
    (tmp_path / "seeds.json").write_text('{"seeds": 3}')
    result = rllib_command("train", "--resume", ".")
    assert result.exit_code == 2 and "seeds.json is damaged" in result.stderr
    (tmp_path / "seeds.json").write_text('{"seeds": [0, 1]}')
    result = rllib_command("train", "--resume", ".")
    assert result.exit_code == 2 and "no seed in . has begun" in result.stderr


@pytest.mark.parametrize(
    ("need", "cores", "gpus", "most", "expected"),
    [
        ((1, 0), 2, [], 5, [Share(frozenset({0})), Share(frozenset({1}))]),
        ((3, 0), 2, [], 5, [Share()]),
        ((1, 0), 8, [], 3, [Share(frozenset({0, 1})), Share(frozenset({2, 3})), Share(frozenset({4, 5}))]),
        ((1, 1), 2, ["0"], 2, [Share()]),
        ((1, 1), 2, ["4", "7"], 2, [Share(frozenset({0}), "4"), Share(frozenset({1}), "7")]),
        ((1, 0.5), 2, ["4"], 3, [Share(frozenset({0}), "4"), Share(frozenset({1}), "4")]),
        ((1, 2), 2, ["0", "1", "2", "3"], 9, [Share(frozenset({0}), "0,1"), Share(frozenset({1}), "2,3")]),
        ((1, 0.6), 3, ["0", "1"], 3, [Share(frozenset({0}), "0"), Share(frozenset({1}), "1")]),  # the third waits
        ((1, 0.6), 3, ["0"], 3, [Share()]),
        ((1, 2), 3, ["0", "1", "2"], 3, [Share()]),
        ((1, 1), 3, [], 3, [Share()]),  # the run says that there is no GPU
    ],
)
def test_the_machine_is_divided_among_the_runs_that_fit(need, cores, gpus, most, expected):
    assert shares(dict(zip(("cpu", "gpu"), need)), range(cores), gpus, most) == expected


@pytest.mark.parametrize("gpus", range(6))
@pytest.mark.parametrize("need", [0.1, 0.25, 0.3, 0.3333, 0.4, 0.5, 0.6, 0.9, 1, 2, 3])
def test_no_run_is_without_the_gpus_that_it_asks_for(need, gpus):
    names = [str(index) for index in range(gpus)]
    places = shares({"cpu": 1, "gpu": need}, range(100), names, 100)
    taken = dict.fromkeys(names, 0.0)
    for place in places if len(places) > 1 else ():
        own = place.gpus.split(",")
        assert len(own) == len(set(own)) == math.ceil(need)
        for name in own:
            taken[name] += need / len(own)
    assert all(amount <= 1 + 1e-6 for amount in taken.values())
    assert len(places) == max(1, gpus // math.ceil(need) * (int(1 / need) if need < 1 else 1))


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([0], 0), ([0.6], 0.6), ([0, 0.3, 0.3], 0.6), ([0.7, 0.1, 0.2], 1), ([0.1] * 10, 1), ([0.6, 0.6], 2),
        ([0.6] * 3, 3), ([1, 0.1, 0.1], 2), ([2, 0.5], 3), ([0.6, 0.6, 0.4, 0.4], 2),
    ],
)  # fmt: skip
def test_gpus_of_a_run_are_whole_where_its_processes_need_several(processes, expected):
    assert gpus_of(processes) == expected


def test_a_seed_keeps_to_its_cores(tmp_path):
    cores = frozenset([min(os.sched_getaffinity(0))])
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    run = SeedRun(0, tmp_path, [sys.executable, "-S", "-c", f"import time; time.sleep(0.2); {code}"], tmp_path / "log")
    train_side_by_side([run], [Share(cores)], lambda: None)
    assert run.state is State.DONE
    assert (tmp_path / "log").read_text().strip() == str(sorted(cores))


@pytest.mark.parametrize("width", range(1, 60, 4))
def test_the_panel_is_drawn_in_a_narrow_terminal(width):
    runs = [SeedRun(seed, Path(), [], Path(), State.RUNNING) for seed in range(3)]
    runs[0].result = {"training_iteration": 7, "timesteps_total": 4000, "time_total_s": 3.0, "episode_reward_mean": 2.5}
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    panel = SeedPanel(runs, "PPO on CartPole-v1", "results/all", lambda run: 0.5, console)
    panel.note("Each seed saves.")
    panel.close()
    assert console.file.getvalue()


def test_the_panel_has_a_row_for_each_seed():
    runs = [SeedRun(seed, Path(), [], Path()) for seed in range(3)]
    runs[0].state = State.RUNNING
    runs[0].result = {
        "training_iteration": 7,
        "timesteps_total": 4000,
        "time_total_s": 3.0,
        "episode_reward_mean": 21.5,
    }
    runs[1].state, runs[1].error = State.FAILED, "Error: gone"
    console = Console(file=io.StringIO(), width=110)
    panel = SeedPanel(runs, "PPO on CartPole-v1", "results/all", lambda run: 0.5, console)
    panel.note("Each seed saves.")
    panel.close()
    text = console.file.getvalue()
    first, second, third = (next(line for line in text.splitlines() if f" {seed}  {state}" in line) for seed, state in
                            enumerate(("running", "failed", "waiting")))  # fmt: skip
    assert "4,000" in first and "21.5" in first and "7" in first
    assert "Error: gone" in second
    assert "PPO on CartPole-v1: 1 of 3 ended" in text and "Each seed saves." in text
    assert third


@pytest.mark.slow
def test_seeds_train_and_end_with_the_program_that_started_them(rllib, tmp_path):
    """Whole processes: two seeds end in order although their parent is killed, and are resumed."""
    process = rllib.start(*TRAIN, "--seeds", 2, "--stop", "iterations=100000", "--checkpoint-freq", 1)
    folder = tmp_path / "results" / "all"
    wait_until(lambda: all((folder / f"seed_{seed}" / "checkpoint_000001").exists() for seed in (0, 1)), 90)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    def lives(name):
        return subprocess.run(["pgrep", "-f", "--", f"--results-dir {name}"], capture_output=True).returncode == 0

    wait_until(lambda: not lives("results/all"), 60)
    seen = max(int(path.name[-6:]) for path in folder.glob("seed_*/checkpoint_*"))
    code, output = rllib("train", "--resume", "results/all", "--stop", f"iterations={seen + 1}")
    assert code == 0, output
    assert "(IQM of 2 seeds, 95 % interval)" in output.splitlines()[-1]
