"""The parts of a benchmark: the seeds of one algorithm on one task, their settings, and what of them is there."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rllib.algorithms.base.registry import get_algorithm_class, get_algorithm_config
from rllib.benchmark.plan import Plan, task_folder, task_folders
from rllib.benchmark.suite import Suite, label
from rllib.cli.failures import Mistake, message_of
from rllib.cli.seeds.folder import SeedFolder
from rllib.cli.spec import RunSpec, find_file, load_spec, make_spec, merged_keys
from rllib.cli.tuned_examples import tuned_settings
from rllib.cli.values import hint_at_stop
from rllib.config.conflicts import SettingsError
from rllib.progress import counted
from rllib.runs.drawing import STEPS
from rllib.runs.files import read_results
from rllib.tune.experiment.directory import JOURNALS, lock_held

# Origin of settings that are those of no example.
DEFAULTS = "defaults"


@dataclass(frozen=True)
class Entry:
    """The seeds of one algorithm on one task.

    Attributes:
        directory: directory of the benchmark.
        spec: spec of each run but for its seed.
        seeds: seeds of the runs.
        origin: of the settings, for people: "ppo/cartpole", "ppo/halfcheetah for another task", "defaults".
    """

    directory: Path
    spec: RunSpec
    seeds: list[int]
    origin: str

    @property
    def algorithm(self) -> str:
        return self.spec.algorithm

    @property
    def task(self) -> str:
        return self.spec.env

    @property
    def steps(self) -> int:
        """Environment steps of each run."""
        return int(self.spec.stop[STEPS])

    @property
    def title(self) -> str:
        return f"{self.algorithm} on {label(self.task)}"

    def folders(self) -> list[SeedFolder]:
        """The folders of these seeds that have been described; training begins later."""
        found = (SeedFolder.at(path) for path in task_folders(self.directory, self.algorithm, self.task))
        return [folder for folder in found if folder and not set(folder.seeds).isdisjoint(self.seeds)]

    def missing(self) -> list[int]:
        """The seeds that are in no folder."""
        there = {seed for folder in self.folders() for seed in folder.seeds}
        return [seed for seed in self.seeds if seed not in there]

    def new_folder(self) -> Path:
        """Path of the folder for the missing seeds. What a killed program has left there without a run is removed."""
        missing = self.missing()
        places = (
            task_folder(self.directory, self.algorithm, self.task),
            task_folder(self.directory, self.algorithm, self.task, missing[0]),
        )
        path = next(path for path in places if SeedFolder.at(path) is None)
        if path.exists():
            journals = list(path.glob(JOURNALS))
            if any(map(lock_held, journals)):
                raise Mistake(f"another process has begun to train in {path}")
            if any(path.rglob("result.json")) or not journals:
                raise Mistake(f"{path} is there, and none of this benchmark; give another --name")
            shutil.rmtree(path)
        return path

    def reached(self) -> dict[int, int]:
        """Seed -> environment steps of its last result; 0 without one."""
        found = dict.fromkeys(self.seeds, 0)
        for folder in self.folders():
            for seed in found.keys() & set(folder.seeds):
                for result in read_results(folder.run(seed))[-1:]:
                    found[seed] = int(result.get(STEPS) or 0)
        return found

    def refuse_others(self) -> None:
        """Raises a Mistake if runs that are there have other settings."""
        for folder in self.folders():
            before = folder.spec()
            if (before.env, before.config) != (self.spec.env, msgspec.to_builtins(self.spec.config)):
                differing = sorted(
                    key
                    for key in before.config.keys() | self.spec.config.keys()
                    if before.config.get(key) != self.spec.config.get(key)
                )
                raise Mistake(
                    f"{folder.path} has runs with other settings: {', '.join(differing) or 'env'}. Give this benchmark "
                    "another --name, or the settings with which it began."
                )

    def refuse_misfits(self, suite: Suite) -> None:
        """Raises a Mistake if the algorithm cannot be built for the task with these settings."""
        try:
            config = get_algorithm_config(self.algorithm).environment(self.task)
            with hint_at_stop(self.spec.config):
                config.update_from_dict(self.spec.config)
            get_algorithm_class(self.algorithm).check_fit(config)
        except (TypeError, ValueError) as error:
            if getattr(error, "__notes__", None):  # the environment raised it
                raise
            about_env = isinstance(error, SettingsError) and any(each.no_setting_ends_it for each in error.mistakes)
            hint = f" The suite {suite.name} has {suite.actions} actions." if about_env else ""
            raise Mistake(f"{self.title}: {message_of(error)}{hint}") from error


def entries_of(plan: Plan, suite: Suite, directory: Path, settings: dict[str, Any], with_defaults: bool) -> list[Entry]:
    """The parts of a benchmark, a task of all algorithms before the next one.

    Args:
        plan: what is compared.
        suite: its suite.
        directory: directory of the benchmark.
        settings: settings of all algorithms, which take precedence over those of tuned examples.
        with_defaults: whether tuned examples are left aside.

    Raises:
        ValueError, TypeError: for settings that no algorithm has.
    """
    return [
        _entry(plan, suite, directory, algorithm, task, settings, with_defaults)
        for task in plan.steps
        for algorithm in plan.algorithms
    ]


def _entry(
    plan: Plan, suite: Suite, directory: Path, algorithm: str, task: str, settings: dict[str, Any], with_defaults: bool
) -> Entry:
    config, origin = ({}, DEFAULTS) if with_defaults else _tuned(suite, algorithm, task)
    below = {"algorithm": algorithm, "config": {**suite.config, **config}}
    given = {
        "env": task,
        "config": settings,
        "stop": {STEPS: plan.steps[task]},
        "name": task_folder(directory, algorithm, task).name,
    }
    spec = make_spec(merged_keys(below, given), {}, f"{algorithm} on {label(task)}")
    return Entry(directory, spec, plan.seeds, origin)


def _tuned(suite: Suite, algorithm: str, task: str) -> tuple[dict[str, Any], str]:
    """Settings for an algorithm on a task, and where they come from: an example for both, the suite's, or none."""
    tuned = tuned_settings(algorithm, task)
    if tuned is not None and tuned.name is not None:
        return dict(tuned.config), tuned.name
    if name := suite.examples.get(algorithm):
        return dict(load_spec(find_file(name)).get("config", {})), f"{name} for another task"
    return {}, DEFAULTS


def described(entry: Entry) -> list[str]:
    """A row of a list of what runs: task, algorithm, runs that are there, steps of each, origin of the settings."""
    reached = entry.reached()
    ended = sum(steps >= entry.steps for steps in reached.values())
    begun = sum(0 < steps < entry.steps for steps in reached.values())
    state = f"{ended} of {counted(len(reached), 'run')}" + (f", {begun} begun" if begun else "")
    return [label(entry.task), entry.algorithm, state, f"{entry.steps:,}", entry.origin]
