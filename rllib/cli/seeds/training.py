"""`rllib train --seeds N`: an experiment of Tune with a grid over the seed, and what came of it."""

import math
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import click

from rllib.cli.failures import EXIT_FAILURE, EXIT_SIGNAL, as_typed, user_input
from rllib.cli.folders import Folders
from rllib.cli.run_directory import directory_name
from rllib.cli.seeds.folder import SeedFolder
from rllib.cli.seeds.tables import LiveSeeds, SeedLines
from rllib.cli.spec import RunSpec, merged_keys
from rllib.cli.user_code import flag_for
from rllib.cli.values import iteration_goal
from rllib.env.factories.registry import resolve
from rllib.notices import why_raised
from rllib.progress import can_redraw, counted
from rllib.runs.files import PROFILE
from rllib.runs.measures import interval, iqm
from rllib.tune.experiment.changes import change_experiment
from rllib.tune.experiment.seed_runs import RunCheckpoints, SeedDirectories, of_seeds
from rllib.tune.experiment.spec import ExperimentSpec
from rllib.tune.experiment.stoppers import ThresholdStopper
from rllib.tune.experiment.trial import Trial
from rllib.tune.reporting.scores import final_scores
from rllib.tune.running.build import prepare
from rllib.tune.running.runner import Interrupts, TrialRunner
from rllib.tune.running.tuner import with_saved_settings
from rllib.tune.search import domains
from rllib.tune.states import ERROR, TERMINATED
from rllib.tune.trainables.resolve import Resolved, resolve_trainable

_ON_INTERRUPT = "Each seed finishes its iteration, then saves a checkpoint. Once more: stop at once, without."
# What each seed's process prints is in this file of its directory.
LOG = "log.txt"


@dataclass
class SeedTraining:
    """Seeds of a folder that are trained side by side, as many at a time as have room.

    Attributes:
        folder: folder of the seeds.
        trials: one for each seed.
        runner: trains them; None: each seed has reached its stop criterion.
        table: shows their progress.
    """

    folder: SeedFolder
    trials: Sequence[Trial]
    runner: TrialRunner | None
    table: SeedLines | LiveSeeds

    @property
    def has_ended(self) -> bool:
        """Whether each seed has reached its stop criterion, and all files have arrived in remote storage."""
        lacking = self.runner is not None and self.runner.directory.lacking
        is_whole = len(self.trials) == len(self.folder.seeds)
        return is_whole and not lacking and all(trial.status == TERMINATED for trial in self.trials)

    def run(self, quiet: bool) -> int | None:
        """Trains until all seeds have ended, or a signal comes, whose number is returned.

        After the first one, each seed finishes its iteration and saves a checkpoint.
        """

        def note() -> None:
            if quiet or isinstance(self.table, SeedLines):
                click.echo(_ON_INTERRUPT, err=True)
            else:
                self.table.note = _ON_INTERRUPT

        if self.runner is None:
            return None
        interrupts = Interrupts(signal.SIGINT, signal.SIGTERM, on_first=note)
        try:
            self.runner.run(interrupts, patience_s=math.inf)
        except KeyboardInterrupt:
            return interrupts.seen or signal.SIGINT
        return None


def begun(
    spec: RunSpec,
    seeds: Sequence[int],
    folders: Folders,
    quiet: bool,
    profile: bool = False,
    keep_best: bool = False,
    at_once: int | None = None,
) -> SeedTraining:
    """A new folder of seeds.

    Args:
        spec: spec of each run but for its seed.
        seeds: seeds of the runs.
        folders: in which the folder of the seeds is made.
        quiet: whether to show the end alone.
        profile, keep_best: as the options of `rllib train`.
        at_once: largest number of seeds that train at a time; None: as many as have room.

    Raises:
        Mistake: for settings that do not fit together.
    """
    config = {**spec.config, "env": spec.env, "seed": domains.grid_search(list(seeds))}
    experiment = ExperimentSpec(
        trainable=_trainable(spec, len(seeds)), config={**config, "profile": True} if profile else config,
        name=directory_name(spec), local_dir=folders.results, storage_path=folders.storage, stop=spec.stop,
        checkpoint_config=_checkpoints(spec, keep_best), trial_dirname_creator=SeedDirectories(), log_to_file=LOG,
        chdir_to_trial_dir=False, verbose=int(not quiet), max_concurrent_trials=at_once,
    )  # fmt: skip
    table = _table(spec, len(seeds))
    with user_input():
        runner, _ = prepare(experiment, reporter=table)
    folder = SeedFolder(folders.results / runner.directory.path.name, seeds)
    folder.describe(spec)
    return SeedTraining(folder, runner.trials, runner, table)


def taken_up(
    folder: SeedFolder,
    spec: RunSpec,
    folders: Folders,
    quiet: bool,
    changed: Mapping[str, Any] = MappingProxyType({}),
    keep_best: bool = False,
    load_user_code: bool = False,
    at_once: int | None = None,
) -> SeedTraining:
    """The seeds of a folder, which continue from their checkpoints, or start from scratch if they have none.

    A seed whose last result has reached the stop criterion stays as it is.

    Args:
        folder: folder of the seeds.
        spec: spec of each run, from now on.
        folders: whose `storage` gets a copy of the folder.
        quiet, at_once: as for `begun`.
        changed: settings that differ from before.
        keep_best, load_user_code: as the options of `rllib train`.

    Raises:
        Mistake: if the folder is damaged, another process trains there, or settings do not fit together.
    """

    def new(config: dict[str, Any]) -> dict[str, Any]:
        return merged_keys({"algorithm": spec.algorithm, "config": config}, {"config": changed})["config"]

    path = folder.path.absolute()
    given = ExperimentSpec(
        trainable=_trainable(spec, len(folder.seeds)), name=path.name, local_dir=path.parent, resume="AUTO+ERRORED",
        storage_path=folders.storage, verbose=int(not quiet), load_user_code=load_user_code,
        max_concurrent_trials=at_once,
    )  # fmt: skip
    table = _table(spec, len(folder.seeds))
    with user_input():
        if isinstance(spec.env, str):
            resolve(spec.env)  # once, not in each seed
        kept = with_saved_settings(given, path, changed).checkpoints
        checkpoints = _checkpoints(spec, keep_best or getattr(kept, "keep_best", False))
        settings = {"stop": spec.stop, "checkpoint_config": checkpoints}
        trials = change_experiment(path, new, settings, load_user_code)
        folder.describe(spec)
        if len(trials) == len(folder.seeds) and all(trial.status == TERMINATED for trial in trials):
            return SeedTraining(folder, trials, None, table)
        runner, _ = prepare(with_saved_settings(given, path, changed), path, table)
    return SeedTraining(folder, runner.trials, runner, table)


def train_seeds(
    spec: RunSpec, seeds: Sequence[int], folders: Folders, quiet: bool, profile: bool, keep_best: bool
) -> None:
    """Trains seeds side by side, and says how they ended; see `begun`.

    Raises:
        Mistake: as `begun`.
        SystemExit: after a signal, or if a seed has failed.
    """
    _finish(begun(spec, seeds, folders, quiet, profile, keep_best), spec, quiet)


def resume_seeds(
    folder: SeedFolder,
    spec: RunSpec,
    changed: Mapping[str, Any],
    folders: Folders,
    quiet: bool,
    keep_best: bool,
    load_user_code: bool,
) -> None:
    """Resumes the seeds of a folder, and says how they ended; see `taken_up`.

    Raises:
        Mistake: as `taken_up`.
        SystemExit: after a signal, or if a seed has failed.
    """
    training = taken_up(folder, spec, folders, quiet, changed, keep_best, load_user_code)
    if training.runner is None:
        click.echo("nothing to train: each seed has reached its stop criterion; give another --stop", err=True)
        _show(folder, training.trials, "")
        return
    _finish(training, spec, quiet)


def _finish(training: SeedTraining, spec: RunSpec, quiet: bool) -> None:
    """Trains the seeds and says how they ended."""
    seen = training.run(quiet)
    _show(training.folder, training.trials, flag_for(spec.env, spec.algorithm))
    if seen:
        sys.exit(EXIT_SIGNAL + seen)
    if not training.has_ended:
        sys.exit(EXIT_FAILURE)


def _trainable(spec: RunSpec, count: int) -> Resolved:
    return of_seeds(resolve_trainable(spec.algorithm), count, iteration_goal(spec.stop))


def _checkpoints(spec: RunSpec, keep_best: bool) -> RunCheckpoints:
    every, most = spec.checkpoint_freq, spec.keep_checkpoints_num
    return RunCheckpoints(checkpoint_frequency=every, num_to_keep=most, keep_best=keep_best)


def _table(spec: RunSpec, count: int) -> SeedLines | LiveSeeds:
    stop = ThresholdStopper(spec.stop)
    title = f"{spec.algorithm} on {spec.world}, {counted(count, 'seed')}, until {stop if spec.stop else 'Ctrl-C'}"
    if can_redraw():
        return LiveSeeds(title, stop)
    lines = SeedLines(title, stop)
    lines.slow_down()
    return lines


def failures_of(folder: SeedFolder, trials: Sequence[Trial]) -> list[str]:
    """Which seeds have failed, why, and where the traceback is."""
    return [
        f"seed {seed}: {as_typed(why_raised(trial.error))} ({folder.run(seed) / 'error.txt'})"
        for trial in trials
        if trial.status == ERROR and (seed := trial.config["seed"]) is not None
    ]


def _show(folder: SeedFolder, trials: Sequence[Trial], flag: str) -> None:
    """Prints which seeds have failed, the commands that follow, and the return over the seeds."""
    for failure in failures_of(folder, trials):
        click.echo(f"failed      {failure}")
    place = shlex.quote(str(folder.path))
    click.echo(f"results     {place}")
    if any((folder.run(seed) / PROFILE).is_file() for seed in folder.seeds):
        click.echo(f"profiles    {place}/seed_*/{PROFILE} (open one in ui.perfetto.dev)")
    ended = [trial for trial in trials if trial.status == TERMINATED]
    if len(ended) < len(folder.seeds):
        click.echo(f"resume      rllib train --resume {place}{flag}")
    scored = [folder.run(each.config["seed"]) for each in trials if each.status != ERROR and each.last_result]
    if not scored:
        return
    click.echo(f"plot        rllib plot {place}")
    try:
        steps, returns = final_scores(*scored)
    except ValueError as error:  # no episode has ended
        click.echo(f"return      none: {error}")
        return
    (low,), (high,) = interval(returns[:, None])
    what = f"IQM of {counted(len(scored), 'seed')}, 95 % interval"
    click.echo(f"return      {iqm(returns):,.2f} [{low:,.2f}, {high:,.2f}] ({what}) at {steps:,.0f} steps")
