"""`rllib benchmark` on classic control: trials of the runtime's local engine, in this process."""

import csv
import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import runtime
from rllib.benchmark import Suite, read_standings
from rllib.cli.benchmark import estimate
from rllib.dashboard.index import Index
from rllib.runs.measures import iqm
from rllib.tune.experiment.seed_runs import SeedTrainable
from tests.cli.test_train_seeds import comparable, results_of

SETTINGS = ("num_rollout_workers=0", "num_envs_per_worker=1", "rollout_fragment_length=200", "train_batch_size=200",
            "model.fcnet_hiddens=[4]", "min_time_s_per_iteration=0", "--defaults")  # fmt: skip
PG = ("benchmark", "classic", "PG", *SETTINGS, "--seeds", 2, "--steps", 400)
CLASSIC = (*PG, "--tasks", "CartPole-v1,MountainCar-v0")
ONE = (*PG, "--tasks", "MountainCar-v0")


@pytest.fixture
def steps(monkeypatch):
    """(task, seed, iteration) -> what happens before that iteration; with a session of the local engine."""
    runtime.init(engine="local", ignore_reinit_error=True)
    happens, step = {}, SeedTrainable.step

    def observed(self):
        happens.pop((self.config["env"], self.config["seed"], self.iteration + 1), lambda: None)()
        return step(self)

    monkeypatch.setattr(SeedTrainable, "step", observed)
    yield happens
    runtime.shutdown()


@pytest.fixture
def matplotlib_missing(monkeypatch):
    def refuse():
        raise ImportError("plots need matplotlib")

    monkeypatch.setattr("rllib.cli.benchmark.benchmark.refuse_missing_matplotlib", refuse)


def stop_at_once():
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)


def runs_below(folder):
    return {str(path.parent.relative_to(folder)): results_of(path.parent) for path in folder.rglob("result.json")}


def tables_of(folder):
    return {path.name: path.read_bytes() for path in folder.glob("table.*")}


def test_a_benchmark_cut_off_goes_on_to_what_one_run_gives(rllib_command, steps, tmp_path, matplotlib_missing):
    assert rllib_command(*CLASSIC, "--name", "whole").exit_code == 0
    whole, cut = (tmp_path / "results" / name for name in ("whole", "cut"))
    steps["MountainCar-v0", 0, 1] = stop_at_once
    stopped = rllib_command(*CLASSIC, "--name", "cut")
    assert stopped.exit_code == 130 and not tables_of(cut)
    assert (
        stopped.output.splitlines()[-1] == "resume      rllib benchmark classic PG num_rollout_workers=0 "
        "num_envs_per_worker=1 rollout_fragment_length=200 train_batch_size=200 'model.fcnet_hiddens=[4]' "
        "min_time_s_per_iteration=0 --seeds 2 --tasks CartPole-v1,MountainCar-v0 --steps 400 --defaults --name cut"
    )
    before = {path: path.read_bytes() for path in (cut / "PG" / "CartPole-v1").rglob("result.json")}
    assert rllib_command(*CLASSIC, "--name", "cut").exit_code == 0
    assert before == {path: path.read_bytes() for path in before}, "what had ended is not trained again"
    assert tables_of(cut) == tables_of(whole) and tables_of(whole)
    ours, theirs = runs_below(cut), runs_below(whole)
    assert len(ours) == 4 and comparable_runs(ours) == comparable_runs(theirs)


def test_a_run_cut_off_goes_on_from_its_checkpoint(rllib_command, steps, tmp_path, matplotlib_missing):
    steps["MountainCar-v0", 1, 2] = lambda: signal.raise_signal(signal.SIGINT)
    one_seed = (*ONE, "--seed", 1, "--seeds", 1, "--steps")
    assert rllib_command(*one_seed, 600).exit_code == 130
    run = tmp_path / "results" / "benchmark_classic" / "PG" / "MountainCar-v0" / "seed_1"
    before = (run / "result.json").read_bytes()
    assert before.count(b"\n") == 2, "the iteration that was running has ended"
    assert rllib_command(*one_seed, 600).exit_code == 0
    assert (run / "result.json").read_bytes().startswith(before) and len(results_of(run)) == 3


def comparable_runs(runs):
    return {name: [comparable(result) for result in results] for name, results in runs.items()}


def test_jobs_limits_how_many_seeds_train_at_a_time(rllib_command, steps, matplotlib_missing):
    order = []
    for seed in (0, 1):
        for iteration in (1, 2):
            steps["MountainCar-v0", seed, iteration] = lambda seed=seed: order.append(seed)
    assert rllib_command(*ONE, "--jobs", 1).exit_code == 0
    assert order == [0, 0, 1, 1]


def test_a_folder_in_which_no_run_has_begun_is_made_again(rllib_command, steps, tmp_path, matplotlib_missing):
    folder = tmp_path / "results" / "benchmark_classic" / "PG" / "MountainCar-v0"
    (folder / "seed_0").mkdir(parents=True)  # the program was killed before it had described the seeds
    (folder / "experiment_state-2026-11-30_09-41-12.json").write_text("{}\n")
    assert rllib_command(*ONE, "--seeds", 1).exit_code == 0
    assert [path.name for path in folder.glob("seed_*")] == ["seed_0"]
    (folder / "seeds.json").unlink()  # which no program does
    refused = rllib_command(*ONE, "--seeds", 1)
    assert refused.exit_code == 2 and "none of this benchmark; give another --name" in refused.output, refused.output
    notes = tmp_path / "results" / "mine" / "PG" / "MountainCar-v0" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("of the user")
    assert rllib_command(*ONE, "--name", "mine").exit_code == 2 and notes.exists()


def test_the_table_has_interquartile_means_beside_published_scores(rllib_command, steps, tmp_path):
    result = rllib_command(*CLASSIC, "--algo", "A2C", "--plot", "figure.svg", "--plot", "figure.pdf")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "results" / "benchmark_classic"
    finals = [results_of(folder / "PG" / "CartPole-v1" / f"seed_{seed}")[-1]["episode_reward_mean"] for seed in (0, 1)]
    content = json.loads((folder / "table.json").read_text())
    of_pg = content["algorithms"]["PG"]["tasks"]["CartPole-v1"]
    assert of_pg["scores"] == dict(zip("01", finals)) and of_pg["iqm"]["value"] == iqm(np.array(finals))
    rows = list(csv.DictReader((folder / "table.csv").open()))
    zoo = [row for row in rows if row["method"] == "SB3 Zoo a2c" and row["task"] == "CartPole-v1"]
    assert [(row["origin"], row["value"]) for row in zoo] == [("published", "500.0")]
    assert zoo[0]["source"].startswith("https://github.com/DLR-RM/rl-baselines3-zoo/blob/")
    assert {(row["method"], row["runs"]) for row in rows if row["origin"] == "measured" and row["steps"]} == {
        ("PG", "2"), ("A2C", "2"),
    }  # fmt: skip
    assert "| task | steps | A2C (2 seeds) | PG (2 seeds) |" in (folder / "table.md").read_text()
    drawn = (tmp_path / "figure.svg").read_text()
    assert all(text in drawn for text in ("CartPole-v1", "MountainCar-v0", "SB3 Zoo a2c", "all tasks"))
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_more_seeds_steps_and_algorithms_add_to_what_is_there(rllib_command, steps, tmp_path, matplotlib_missing):
    one_task = (*CLASSIC[:2], *SETTINGS, "--tasks", "MountainCar-v0", "--steps", 200)
    assert rllib_command(*one_task, "PG", "--seeds", 1).exit_code == 0
    folder = tmp_path / "results" / "benchmark_classic"
    assert rllib_command(*one_task, "PG", "A2C", "--seeds", 3).exit_code == 0
    assert {name for name in runs_below(folder) if name.startswith("PG")} == {
        "PG/MountainCar-v0/seed_0", "PG/MountainCar-v0_from_1/seed_1", "PG/MountainCar-v0_from_1/seed_2",
    }  # fmt: skip
    assert len(runs_below(folder)) == 6
    assert rllib_command(*one_task, "PG", "--seeds", 3, "--steps", 400).exit_code == 0
    assert [len(results) for name, results in sorted(runs_below(folder).items()) if name.startswith("PG")] == [2] * 3
    standing = read_standings(folder).standings["PG"]["MountainCar-v0"]
    assert list(standing.scores) == [0, 1, 2]
    compared = rllib_command("compare", "results/benchmark_classic/PG", "results/benchmark_classic/A2C")
    assert compared.exit_code == 0 and compared.output.splitlines()[2].startswith("PG      3"), compared.output
    assert rllib_command("report", "results/benchmark_classic/PG").exit_code == 0
    index = Index(tmp_path / "results")
    index.refresh()
    assert len(index.changes()["runs"]) == 6


@pytest.mark.slow
def test_seeds_that_fail_are_named_and_the_others_go_on(rllib_command, steps, tmp_path, matplotlib_missing):
    def fail():
        raise RuntimeError("the environment is gone")

    steps["CartPole-v1", 0, 2] = fail
    failed = rllib_command(*CLASSIC)
    assert failed.exit_code == 1 and "failed      PG on CartPole-v1, seed 0: " in failed.output, failed.output
    assert "Note: PG on CartPole-v1, seed 0, has 200 of 400 steps and is left out." in failed.output
    again = rllib_command(*CLASSIC)
    assert again.exit_code == 0 and "Note" not in again.output


@pytest.mark.parametrize(
    "words, message",
    [
        ((), "say on which suite"),
        (("clasic", "PPO"), "no suite 'clasic'. Did you mean classic?"),
        (("classic",), "say which algorithm"),
        (("classic", "PPPO"), "no algorithm 'PPPO'. Did you mean 'PPO'"),
        (("classic", "PPO", "--tasks", "CartPole"), "no task 'CartPole'. Did you mean 'CartPole-v1'?"),
        (("classic", "PPO", "lrr=1"), "Did you mean lr"),
        (("classic", "PPO", "seed=3"), "use --seed"),
        (("classic", "PPO", "--plot", "figure.gif"), ".png, .svg or .pdf"),
        (("classic", "PPO", "TD3"), "TD3 on CartPole-v1: TD3Config: TD3 is for continuous actions"),
        (("classic", "BC"), "learns from recorded data"),
        (("classic", "PPO", "--lr", "1"), "lr=VALUE"),
    ],
)
def test_wrong_words_are_refused_before_anything_runs(rllib_command, tmp_path, words, message):
    result = rllib_command("benchmark", *words)
    assert result.exit_code == 2 and message in result.output, result.output
    assert not (tmp_path / "results").exists()


def test_packages_that_are_missing_are_named(rllib_command, monkeypatch):
    monkeypatch.setattr("rllib.benchmark.suite.importlib.util.find_spec", lambda name: None)
    result = rllib_command("benchmark", "minigrid", "PPO")
    assert result.exit_code == 2 and "needs minigrid: pip install" in result.output, result.output


def test_other_settings_than_those_that_are_there_are_refused(rllib_command, steps, matplotlib_missing):
    assert rllib_command(*ONE, "--seeds", 1).exit_code == 0
    other = rllib_command(*ONE, "lr=0.5")
    assert other.exit_code == 2 and "runs with other settings: lr. Give" in other.output, other.output


def test_a_dry_run_lists_the_runs_and_writes_nothing(rllib_command, steps, tmp_path, monkeypatch, matplotlib_missing):
    monkeypatch.setattr(estimate, "_TRIED_S", 0.0)
    listed = rllib_command("benchmark", "classic", "PPO", "--algo", "A2C", "--tasks", "CartPole-v1", "--dry-run")
    assert listed.exit_code == 0, listed.output
    lines = [line.split() for line in listed.output.splitlines()]
    assert [line[:7] for line in lines if "CartPole-v1" in line] == [
        ["CartPole-v1", name, "0", "of", "10", "runs", "500,000"] for name in ("A2C", "PPO")
    ]
    assert "ppo/cartpole" in listed.output and "10,000,000 steps are left" in listed.output
    assert not (tmp_path / "results").exists()


def test_without_training_the_table_is_of_what_is_there(rllib_command, steps, tmp_path):
    result = rllib_command(*CLASSIC, "--table")
    assert result.exit_code == 0 and "PG on CartPole-v1, seeds 0, 1, has no result yet" in result.output, result.output
    assert not (tmp_path / "results" / "benchmark_classic" / "figure.png").exists()


def test_where_the_packages_are_missing_the_table_is_made_all_the_same(rllib_command, steps, monkeypatch):
    assert rllib_command(*ONE).exit_code == 0

    def missing(self):
        raise ImportError("absent")

    monkeypatch.setattr(Suite, "refuse_missing_packages", missing)
    result = rllib_command(*ONE[:3], "--tasks", "MountainCar-v0", "--seeds", 2, "--steps", 400, "--table")
    assert result.exit_code == 0 and "PG (2 seeds)" in result.output, result.output


def test_another_command_in_the_directory_does_not_change_the_table(rllib_command, steps, tmp_path, matplotlib_missing):
    """Two shells train two algorithms in it at the same time."""
    plan = tmp_path / "results" / "benchmark_classic" / "benchmark.json"
    steps["MountainCar-v0", 1, 2] = lambda: plan.write_text(plan.read_text().replace('"PG"', '"TRPO"'))
    result = rllib_command(*ONE)
    assert result.exit_code == 0 and "PG (2 seeds)" in result.output and "TRPO" not in result.output, result.output


@pytest.mark.parametrize("damage", ["cut off", "another content", "removed", "run removed"])
def test_a_run_whose_results_are_lost_is_named(rllib_command, steps, tmp_path, matplotlib_missing, damage):
    assert rllib_command(*ONE).exit_code == 0
    folder = tmp_path / "results" / "benchmark_classic" / "PG" / "MountainCar-v0"
    lost = folder / "seed_1" / "result.json"
    {
        "cut off": lambda: lost.write_bytes(lost.read_bytes()[:-1000]),
        "another content": lambda: lost.write_text("content\n"),
        "removed": lost.unlink,
        "run removed": lambda: shutil.rmtree(lost.parent),
    }[damage]()
    result = rllib_command(*ONE)
    assert result.exit_code == 1 and "PG (1 seed)" in result.output, result.output
    assert f"seed 1: it has ended, but {lost.relative_to(tmp_path)} has" in result.output
    shutil.rmtree(folder)
    assert rllib_command(*ONE).exit_code == 0


def test_a_damaged_record_of_the_runs_is_a_mistake(rllib_command, steps, tmp_path, matplotlib_missing):
    assert rllib_command(*ONE).exit_code == 0
    (journal,) = (tmp_path / "results").rglob("experiment_state-*.json")
    journal.write_text("{\n")
    result = rllib_command(*ONE)
    assert result.exit_code == 2 and f"{journal.name} is damaged" in result.output, result.output


def test_a_folder_in_which_another_process_begins_is_left_to_it(rllib_command, steps, tmp_path, matplotlib_missing):
    """It holds the journal, and has not yet written which seeds it trains."""
    assert rllib_command(*ONE).exit_code == 0
    (journal,) = (tmp_path / "results").rglob("experiment_state-*.json")
    (journal.parent / "seeds.json").unlink()
    for path in journal.parent.rglob("result.json"):
        path.unlink()
    code = (
        "import sys, time; from rllib.tune.experiment.directory import Journal; from pathlib import Path; "
        "journal = Journal(Path(sys.argv[1])); print('held', flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", code, journal], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "held\n"
            result = rllib_command(*ONE)
            assert result.exit_code == 2 and "another process has begun to train in" in result.output, result.output
            assert journal.is_file()
        finally:
            other.kill()


def test_defaults_are_named_where_others_have_tuned_settings(rllib_command, steps, tmp_path, matplotlib_missing):
    """PPO has a tuned example for the task, SAC has none."""
    both = ("benchmark", "classic", "PPO", "SAC", "--tasks", "Acrobot-v1", "--seeds", 1, "--steps", 100, "--table")
    assert "Note: SAC had the defaults, and the others tuned settings" in rllib_command(*both).output
    assert "had the defaults" not in rllib_command(*both, "--defaults").output
