"""`rllib train --seeds N`: starts or resumes the runs of several seeds, and says what came of them."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from rllib.cli.failures import EXIT_FAILURE, EXIT_SIGNAL, Mistake
from rllib.cli.folders import Folders
from rllib.cli.run_directory import PROFILE, RunDirectory
from rllib.cli.seeds.folder import SETTINGS, SeedFolder
from rllib.cli.seeds.panel import display_of
from rllib.cli.seeds.processes import SeedRun, Share, State, command_of, shares, train_side_by_side
from rllib.cli.spec import RunSpec
from rllib.cli.user_code import flag_for
from rllib.progress import counted
from rllib.remote.url import joined
from rllib.result import Result
from rllib.runs.files import read_results
from rllib.runs.measures import interval, iqm
from rllib.storage.checkpoint import newest_checkpoint
from rllib.storage.whole import remove_whole
from rllib.tune.experiment.stoppers import ThresholdStopper
from rllib.tune.reporting.scores import final_scores

# Options whose values each seed gets from here, or that are about the whole folder.
_OF_THE_FOLDER = ("seeds", "seed", "name", "results_dir", "storage_path", "resume", "quiet")
_ON_INTERRUPT = "Each seed finishes its iteration, then saves a checkpoint. Once more: stop at once, without."


def repeated_arguments(context: click.Context) -> list[str]:
    """The words and options of a command line that hold for the run of each seed."""
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if name in _OF_THE_FOLDER or name not in context.params or not is_given:
            continue
        value = context.params[name]
        if isinstance(parameter, click.Argument):
            arguments += map(str, value)
        elif parameter.is_flag:
            arguments.append(parameter.opts[0])
        elif parameter.count:
            arguments += [parameter.opts[0]] * value
        else:
            for each in value if parameter.multiple else [value]:
                arguments += [parameter.opts[0], str(each)]
    return arguments


def train_seeds(
    spec: RunSpec, need: Mapping[str, float], count: int, arguments: Sequence[str], folders: Folders, quiet: bool
) -> None:
    """Trains `count` seeds, from `spec.seed` or 0 on, as many at a time as the cores suffice for.

    Args:
        spec: of each run but for its seed.
        need: "cpu" and "gpu" of each run.
        count: number of seeds.
        arguments: of `rllib train` for each seed.
        folders: in which the folder of the seeds is made.
        quiet: whether to show the end alone.

    Raises:
        Mistake: if the folder cannot be made.
        SystemExit: after a signal, or if a seed has failed.
    """
    first = spec.seed or 0
    folder = SeedFolder.new(folders.results, spec, list(range(first, first + count)), folders.storage)
    runs = [_begun(folder, seed, arguments, folders.storage) for seed in folder.seeds]
    _train(folder, spec, need, runs, quiet)


def resume_seeds(
    folder: SeedFolder,
    spec: RunSpec,
    need: Mapping[str, float],
    arguments: Sequence[str],
    folders: Folders,
    quiet: bool,
) -> None:
    """Resumes the seeds of a folder from their checkpoints, those that have none from the beginning.

    A seed whose last result has reached the stop criterion stays as it is.

    Args:
        spec: of each run, with the stop criterion that holds from now on.
        need, arguments, folders, quiet: as for `train_seeds`.

    Raises:
        Mistake: if a seed that has no checkpoint cannot begin again, or another process trains one of them.
        SystemExit: after a signal, or if a seed has failed.
    """
    runs = [_continued(folder, seed, spec, arguments, folders.storage) for seed in folder.seeds]
    # Those that begin again would stop by the earlier criterion, too.
    folder.change_settings(spec)
    _train(folder, spec, need, runs, quiet)


def _begun(folder: SeedFolder, seed: int, arguments: Sequence[str], storage: str | None) -> SeedRun:
    """The run of a seed that begins."""
    own = ["--seed", str(seed), "--name", folder.name_of(seed), "--results-dir", str(folder.path)]
    command = command_of(["train", *arguments, *own, *_storage(folder, storage)])
    return SeedRun(seed, folder.run(seed), command, folder.log(seed))


def _continued(folder: SeedFolder, seed: int, spec: RunSpec, arguments: Sequence[str], storage: str | None) -> SeedRun:
    """The run of a seed in an earlier folder."""
    path = folder.run(seed)
    for result in read_results(path)[-1:] if path.is_dir() else ():
        if ThresholdStopper(spec.stop).reached("", Result(result)):
            return SeedRun(seed, path, [], folder.log(seed), State.DONE, result)
    if path.is_dir() and newest_checkpoint(path) is not None:
        command = command_of(["train", "--resume", str(path), *arguments, *_storage(folder, storage)])
        return SeedRun(seed, path, command, folder.log(seed))
    if not (folder.path / SETTINGS).is_file():
        raise Mistake(
            f"seed {seed} has no checkpoint to continue from, and its settings came from a program. Start it again as "
            f"before, with --seed {seed} --name {folder.name_of(seed)} --results-dir {folder.path}, in place of --seeds"
        )
    if path.exists():
        RunDirectory(path).close()  # refuses a run that another process trains
        remove_whole(path)
    return _begun(folder, seed, ["-f", str(folder.path / SETTINGS), *arguments], storage)


def _storage(folder: SeedFolder, storage: str | None) -> list[str]:
    return ["--storage-path", joined(storage, folder.path.name)] if storage else []


def _train(folder: SeedFolder, spec: RunSpec, need: Mapping[str, float], runs: Sequence[SeedRun], quiet: bool) -> None:
    """Trains the runs and says how they ended."""
    places = _places(need, sum(run.state is State.WAITING for run in runs))
    stoppers = {run.seed: ThresholdStopper(spec.stop) for run in runs}
    goal = str(ThresholdStopper(spec.stop)) or "Ctrl-C"
    at_once = f", {len(places)} at a time" if len(places) < len(runs) else ""
    title = f"{spec.algorithm} on {spec.world}, {counted(len(runs), 'seed')}{at_once}, until {goal}"
    display = display_of(runs, title, str(folder.path), lambda run: stoppers[run.seed].progress(run.result), quiet)
    try:
        seen = train_side_by_side(runs, places, display.show, lambda: display.note(_ON_INTERRUPT))
    finally:
        display.close()
    _show(folder, runs, flag_for(spec.env, spec.algorithm))
    if seen:
        sys.exit(EXIT_SIGNAL + seen)
    if any(run.state is not State.DONE for run in runs):
        sys.exit(EXIT_FAILURE)


def _places(need: Mapping[str, float], count: int) -> list[Share]:
    """Shares of this machine for at most `count` runs."""
    there = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return shares(need, sorted(there), _gpus() if need["gpu"] else [], count)


def _gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    import torch  # takes seconds, and few runs ask for a GPU

    return [str(index) for index in range(torch.cuda.device_count())]


def _show(folder: SeedFolder, runs: Sequence[SeedRun], flag: str) -> None:
    """Prints which seeds have failed, the commands that follow, and the return over the seeds."""
    for run in runs:
        if run.state is State.FAILED:
            click.echo(f"failed      seed {run.seed}: {run.error} ({run.log})")
    place = shlex.quote(str(folder.path))
    click.echo(f"results     {place}")
    if any((run.path / PROFILE).is_file() for run in runs):
        click.echo(f"profiles    {place}/seed_*/{PROFILE} (open one in ui.perfetto.dev)")
    if any(run.state is not State.DONE for run in runs):
        click.echo(f"resume      rllib train --resume {place}{flag}")
    scored = [run for run in runs if run.state is not State.FAILED and run.result]
    if not scored:
        return
    click.echo(f"plot        rllib plot {place}")
    try:
        click.echo(f"return      {_summary([run.path for run in scored])}")
    except ValueError as error:  # no episode has ended
        click.echo(f"return      none: {error}")


def _summary(paths: Sequence[Path]) -> str:
    """The interquartile mean of the return over runs, with its interval, at the last steps that all have reached."""
    steps, returns = final_scores(*paths)
    (low,), (high,) = interval(returns[:, None])
    seeds = counted(len(paths), "seed")
    return f"{iqm(returns):,.2f} [{low:,.2f}, {high:,.2f}] (IQM of {seeds}, 95 % interval) at {steps:,.0f} steps"
