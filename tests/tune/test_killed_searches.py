"""Experiments that are killed at drawn changes of their files, once or twice, and resumed.

With one CPU, and schedulers whose decisions depend on results alone, a resumed experiment has to end as one that was
never killed: the same trials with the same results, ends, statistics and checkpoints, and the same best one. Of
populations the descent of every result is checked, since what a takeover finds depends on what was saved.
"""

import itertools
import json
import math
import random
import shutil
from pathlib import Path

import pytest

import runtime
from rllib import tune
from rllib.runs.files import read_results
from rllib.tune import schedulers
from tests.crashes import crash_at

ITERATIONS = 9


def score(rate: float, n: int) -> float:
    """Crosses other trials' curves; infinite once."""
    return math.inf if (rate, n) == (0.3, 2) else rate * n + (n % 3) * (0.4 - rate) * 0.9


def other(n: int) -> float:
    """A number that nothing is decided by; infinite once."""
    return math.inf if n == 2 else -n


class Curve(tune.Trainable):
    """A trainable whose state is the number of its steps."""

    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"score": score(self.config["rate"], self.n), "n": self.n, "other": other(self.n)}

    def save_checkpoint(self, checkpoint_dir):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


def reports(config):
    """The same as a function, which saves itself at every fourth step."""
    found, n = tune.get_checkpoint(), 0
    if found:
        n = found.to_dict()["n"]
    while n < ITERATIONS:
        n += 1
        checkpoint = tune.Checkpoint.from_dict({"n": n}) if n % 4 == 0 else None
        tune.report({"score": score(config["rate"], n), "n": n, "other": other(n)}, checkpoint=checkpoint)


SCHEDULERS = {
    "fifo": lambda **names: None,
    "asha": lambda **names: schedulers.ASHAScheduler(max_t=ITERATIONS, reduction_factor=3, brackets=2, **names),
    "hyperband": lambda **names: schedulers.HyperBandScheduler(max_t=ITERATIONS, **names),
    "median": lambda **names: schedulers.MedianStoppingRule(
        "training_iteration", grace_period=1, min_samples_required=2, **names
    ),
}
CHECKPOINTS = [
    {},
    {"checkpoint_freq": 1, "keep_checkpoints_num": 1},
    {"checkpoint_freq": 2, "keep_checkpoints_num": 2, "checkpoint_score_attr": "score", "checkpoint_at_end": True},
]


def search(directory: Path, trainable, scheduler: str, checkpoints: dict, resume: bool) -> None:
    runtime.init(engine="local", num_cpus=1)
    names = {"metric": "score", "mode": "max"}
    made = SCHEDULERS[scheduler](**names)
    tune.run(
        trainable, config={"rate": tune.grid_search([0.1, 0.9, 0.5, 0.3, 0.7])}, scheduler=made,
        stop={"training_iteration": ITERATIONS}, local_dir=str(directory), name="x", verbose=0, tensorboard=False,
        resume=resume, **checkpoints, **(names if made is None else {}),
    )  # fmt: skip


def outcome(directory: Path) -> dict:
    """All that the experiment's files say of each trial, by its rate."""
    check_checkpoints(directory)
    analysis = tune.ExperimentAnalysis(directory / "x", default_metric="score", default_mode="max")
    return {
        "best": analysis.get_best_config(scope="all")["rate"],
        **{
            trial.config["rate"]: (
                trial.status,
                trial.stopped_by,
                [result["n"] for result in read_results(Path(trial.logdir))],
                repr([trial.metric_analysis[key] for key in ("score", "other")]),
                sorted(path.name for path in Path(trial.logdir).glob("checkpoint_*")),
            )
            for trial in analysis.trials
        },
    }


def check_checkpoints(directory: Path) -> None:
    """The journal has the checkpoints that are there, and those of curves have the numbers of their results."""
    for trial in tune.ExperimentAnalysis(directory / "x").trials:
        there = sorted(path.name for path in Path(trial.logdir).glob("checkpoint_*"))
        assert sorted(checkpoint.name for checkpoint in trial.checkpoints) == there, trial
        for checkpoint in trial.checkpoints if "other" in trial.last_result else ():
            rate, n = trial.config["rate"], checkpoint.iteration
            assert checkpoint.metrics["score"] == score(rate, n) and checkpoint.metrics["other"] == other(n), trial


def has_begun(directory: Path) -> bool:
    return any(b"\n" in file.read_bytes() for file in directory.glob("x/experiment_state-*.json"))


def killed_and_resumed(directory: Path, run, calls: list[str], rng: random.Random) -> list[int]:
    """Runs an experiment that is killed once or twice, and resumes it; returns at which calls.

    Half of the kills come when a file has just got its name, or lost it, and no record tells of it.
    """
    directory.mkdir()
    renamed = [number for number, call in enumerate(calls, 1) if call.startswith(("rename", "replace"))]
    killed_at = []
    for _ in range(rng.choice([1, 2])):
        at = rng.choice([rng.randint(1, len(calls)), rng.choice(renamed) + 1])
        killed_at.append(max(2, at // (1 + len(killed_at))))
        resume = has_begun(directory)
        if not resume:
            shutil.rmtree(directory / "x", ignore_errors=True)
        crash_at(killed_at[-1], directory, lambda resume=resume: run(directory, resume))
    resume = has_begun(directory)
    if not resume:
        shutil.rmtree(directory / "x", ignore_errors=True)
    crash_at(0, directory, lambda: run(directory, resume))
    assert not list(directory.rglob("*tmp*")), killed_at
    return killed_at


DRAWS = [2, pytest.param(60, marks=pytest.mark.slow)]


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("checkpoints", range(len(CHECKPOINTS)))
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("trainable", [Curve, reports])
def test_a_search_that_is_killed_ends_as_one_that_is_not(tmp_path, trainable, scheduler, checkpoints, draws):
    if trainable is reports and checkpoints:
        pytest.skip("functions save themselves")

    def run(directory, resume):
        search(directory, trainable, scheduler, CHECKPOINTS[checkpoints], resume)

    (tmp_path / "whole").mkdir()
    calls = crash_at(0, tmp_path / "whole", lambda: run(tmp_path / "whole", False))
    expected = outcome(tmp_path / "whole")
    for seed in range(draws):
        directory = tmp_path / str(seed)
        killed_at = killed_and_resumed(directory, run, calls, random.Random(seed))
        assert outcome(directory) == expected, f"seed {seed}: killed at {killed_at} of {len(calls)}"
        shutil.rmtree(directory)


# ---------------------------------------------------------------------- populations


class Descent(tune.Trainable):
    """Its state is the list of its steps: trial, number and rate of each."""

    def setup(self, config):
        self.line = []

    def step(self):
        self.line = [*self.line, [self.trial_id[-1], round(self.config["rate"], 6)]]
        return {"score": sum(rate for _, rate in self.line), "line": self.line, "rate": self.config["rate"]}

    def save_checkpoint(self, checkpoint_dir):
        return {"line": self.line}

    def load_checkpoint(self, checkpoint):
        self.line = checkpoint["line"]


def population(directory: Path, kind: str, checkpoints: dict, resume: bool, synch: bool = True) -> None:
    runtime.init(engine="local", num_cpus=2)
    names = {"time_attr": "training_iteration", "metric": "score", "mode": "max", "synch": synch, "seed": 1}
    made = (
        schedulers.PopulationBasedTraining(
            perturbation_interval=2, hyperparam_mutations={"rate": tune.uniform(0, 1)}, **names
        )
        if kind == "pbt"
        else schedulers.PB2(perturbation_interval=2, hyperparam_bounds={"rate": [0, 1]}, **names)
    )
    tune.run(
        Descent, config={"rate": tune.grid_search([0.1, 0.5, 0.9, 0.3])}, scheduler=made,
        stop={"training_iteration": 6}, local_dir=str(directory), name="x", verbose=0, tensorboard=False,
        resume=resume, **checkpoints,
    )  # fmt: skip


def check_descent(directory: Path) -> None:
    """Each trial has one result of each iteration, and goes on from its own state or from one that it took over."""
    file = directory / "x/pbt_global.txt"
    taken = [json.loads(line)[5]["rate"] for line in file.read_text().splitlines()] if file.exists() else []
    found = list((directory / "x").glob("*/result.json"))
    assert len(found) == 4
    check_checkpoints(directory)
    for path in found:
        before: list = []
        results = read_results(path.parent)
        assert [result["training_iteration"] for result in results] == [1, 2, 3, 4, 5, 6]
        for result in results:
            *earlier, (own, rate) = result["line"]
            assert len(earlier) + 1 == result["training_iteration"] and own == result["trial_id"][-1]
            if earlier == before:
                assert not before or rate == before[-1][1], "its own state, with another one's settings"
            else:
                assert earlier and earlier[-1][0] != own, "an earlier state of its own"
                assert any(abs(each - result["rate"]) < 1e-9 for each in taken), "pbt_global.txt lacks the takeover"
            before = result["line"]


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("checkpoints", range(2))
@pytest.mark.parametrize("kind", ["pbt", "pb2"])
def test_members_of_a_population_that_is_killed_train_each_iteration_once(tmp_path, kind, checkpoints, draws):
    def run(directory, resume):
        population(directory, kind, CHECKPOINTS[checkpoints], resume)

    (tmp_path / "whole").mkdir()
    calls = crash_at(0, tmp_path / "whole", lambda: run(tmp_path / "whole", False))
    check_descent(tmp_path / "whole")
    for seed in range(draws):
        print("seed", seed, killed_and_resumed(tmp_path / str(seed), run, calls, random.Random(seed)))
        check_descent(tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))
    first = next(number for number, call in enumerate(calls, 1) if call == "open x/pbt_global.txt")
    for at in (*range(first - 2, first + 2), *(first - 11, first - 8)):  # a takeover is recorded, and copied
        directory = tmp_path / f"at {at}"
        directory.mkdir()
        for resume, killed_at in ((False, at), (True, 0)):
            crash_at(killed_at, directory, lambda resume=resume, to=directory: run(to, resume))
        check_descent(directory)


# ---------------------------------------------------------------------- trials that do not go back


def calls_of_records(calls: list[str], directory: Path) -> list[tuple[int, dict]]:
    """The records of an experiment that was not killed, and the number of the call that writes each.

    The first one is left out: it is written before the file has its name.
    """
    [journal] = directory.glob("x/experiment_state-*.json")
    writes = [number for number, call in enumerate(calls, 1) if call.startswith("write x/experiment_state-")]
    _, *records = map(json.loads, journal.read_text().splitlines())
    return list(zip(writes, records, strict=True))


def reported(directory: Path) -> set[tuple[str, int]]:
    """Trial and iteration of each result that an experiment, which may have been killed, had reported."""
    [journal] = directory.glob("x/experiment_state-*.json")
    *lines, _ = journal.read_text().split("\n")
    records = [record for record in map(json.loads, lines) if record["type"] == "result"]
    return {(record["id"], record["iteration"]) for record in records}


def in_a_takeover(records: list[tuple[int, dict]]) -> list[int]:
    """Calls before the first takeover that was carried out: before and after its source was saved, and copied."""
    done = next(place for place, (_, record) in enumerate(records) if {"config", "iteration"} <= record.keys())
    return [number for number, _ in records[done - 3 : done + 1]]


def in_a_halving(records: list[tuple[int, dict]]) -> list[int]:
    """Calls before which a scheduler had ended the first of several paused trials, and no others."""
    ended = [number for number, record in records if (record.get("stopped_by") or "") == "the scheduler"]
    return ended[1:2]


DO_NOT_GO_BACK = {
    "takeover": (lambda *args: population(args[0], "pbt", args[1], args[2], synch=False), in_a_takeover),
    "halving": (lambda *args: search(args[0], Curve, "hyperband", *args[1:]), in_a_halving),
    "halving of functions": (lambda *args: search(args[0], reports, "hyperband", {}, args[2]), in_a_halving),
}


def litter(directory: Path) -> None:
    """Leaves in the directory of each trial a draft, a checkpoint without a record, and a record without one."""
    for trial in tune.ExperimentAnalysis(directory / "x").trials:
        if trial.status in ("PENDING", "RUNNING", "PAUSED") and Path(trial.logdir).exists():
            Path(trial.logdir, ".checkpoint.tmp-0123456789ab").mkdir()
            if trial.checkpoint:
                Path(trial.checkpoint_path(trial.checkpoint)).rename(Path(trial.logdir, "checkpoint_000099"))


@pytest.mark.parametrize("checkpoints", [{}, {"checkpoint_freq": 1}])
@pytest.mark.parametrize("kind", DO_NOT_GO_BACK)
def test_trials_that_do_not_go_back_keep_their_results_and_records(tmp_path, kind, checkpoints):
    """Those that will take over another state, those that the scheduler has ended, and functions that are paused."""
    run, moments = DO_NOT_GO_BACK[kind]
    if "functions" in kind and checkpoints:
        pytest.skip("functions save themselves")
    (tmp_path / "whole").mkdir()
    calls = crash_at(0, tmp_path / "whole", lambda: run(tmp_path / "whole", checkpoints, False))
    killed_at = moments(calls_of_records(calls, tmp_path / "whole"))
    assert killed_at
    for at, is_littered in itertools.product(killed_at, (False, True)):
        directory = tmp_path / f"{at} {is_littered}"
        directory.mkdir()
        crash_at(at, directory, lambda to=directory: run(to, checkpoints, False))
        before = reported(directory)
        if is_littered:
            litter(directory)
        crash_at(0, directory, lambda to=directory: run(to, checkpoints, True))
        check_checkpoints(directory)
        assert not list(directory.rglob("*tmp*"))
        kept = {(result["trial_id"], result["training_iteration"])
                for path in directory.glob("x/*/result.json") for result in read_results(path.parent)}  # fmt: skip
        assert before and before <= kept, f"killed at {at}: {before - kept} are lost"
        if kind != "takeover" and not is_littered:
            assert outcome(directory) == outcome(tmp_path / "whole")


# ---------------------------------------------------------------------- trials that fail


class Fails(tune.Trainable):
    """Reports drawn numbers, also NaN and infinite ones, and raises at one step, a number of times."""

    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        failures = Path(self.logdir, "failures")
        if self.n == self.config["fails_at"] and (before := read_count(failures)) < self.config["fails"]:
            failures.write_text(str(before + 1))
            raise RuntimeError("as it was to")
        return {"value": drawn(self.config["id"], self.n), "nested": {"value": float(self.n)}}

    def save_checkpoint(self, checkpoint_dir):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


def read_count(file: Path) -> int:
    return int(file.read_text()) if file.exists() else 0


def drawn(trial: str, n: int) -> float:
    return random.Random(f"{trial}/{n}").choice([math.nan, math.inf, -math.inf, 1.5, -2.0, 1e300])


@pytest.mark.parametrize("draws", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_what_a_trial_has_reported_counts_after_failures_and_when_it_is_read_again(tmp_path, draws):
    runtime.init(engine="local", num_cpus=2)
    for seed in range(draws):
        rng = random.Random(seed)
        directory = tmp_path / str(seed)
        analysis = tune.run(
            Fails, metric="value", mode="max", stop={"training_iteration": 5}, local_dir=str(directory), name="x",
            config={"id": tune.grid_search([f"{seed}/{number}" for number in range(rng.choice([1, 3]))]),
                    "fails_at": rng.randint(1, 5), "fails": rng.choice([0, 1, 2])},
            checkpoint_freq=rng.choice([0, 1, 2]), keep_checkpoints_num=rng.choice([None, 1]), verbose=0,
            max_failures=rng.choice([0, 1, -1]), raise_on_failed_trial=False, tensorboard=False,
        )  # fmt: skip
        again = tune.ExperimentAnalysis(directory / "x", default_metric="value", default_mode="max")
        for trial, read in zip(analysis.trials, again.trials, strict=True):
            iterations = [result["training_iteration"] for result in read_results(Path(trial.logdir))]
            numbers = [drawn(trial.config["id"], n) for n in iterations]
            numbers = [number for number in numbers if number == number]
            assert iterations == list(range(1, len(iterations) + 1)), seed
            stats = trial.metric_analysis.get("value", {})
            if numbers:
                assert (stats["max"], stats["min"]) == (max(numbers), min(numbers)), f"seed {seed}: {stats}"
            assert repr(trial.metric_analysis) == repr(read.metric_analysis), seed
            assert trial.last_result.keys() - {"pid"} == read.last_result.keys() - {"pid"}, seed
            assert [each.name for each in trial.checkpoints] == [each.name for each in read.checkpoints], seed
        for scope in ("last", "all", "avg"):
            assert best(analysis, scope) == best(again, scope), seed


def best(analysis, scope: str) -> str | None:
    try:
        return analysis.get_best_trial(scope=scope, filter_nan_and_inf=False).trial_id
    except ValueError:
        return None
