"""`rllib benchmark`."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from rllib.algorithms.base.registry import get_algorithm_class
from rllib.benchmark.picture import draw, refuse_other_kinds
from rllib.benchmark.plan import Plan, algorithm_folder
from rllib.benchmark.standings import read_standings
from rllib.benchmark.suite import Suite, label, read_suite, suite_names
from rllib.benchmark.tables import as_csv, as_json, as_markdown, legend, rows_of
from rllib.cli.benchmark.entries import DEFAULTS, Entry, described, entries_of
from rllib.cli.benchmark.estimate import time_left
from rllib.cli.completion import algorithms_like, settings_like
from rllib.cli.display import QuietDisplay, shown_logs
from rllib.cli.failures import EXIT_FAILURE, EXIT_SIGNAL, Mistake, TakesSettings, reported, user_input, writing
from rllib.cli.folders import Folders
from rllib.cli.seeds.compare import table
from rllib.cli.seeds.training import SeedTraining, begun, failures_of, taken_up
from rllib.cli.user_code import typed
from rllib.cli.values import SEED, LocalPath, Number, is_assignment, parse_assignments
from rllib.progress import elapsed
from rllib.runs.drawing import RETURN, refuse_missing_matplotlib
from rllib.runs.naming import file_name
from rllib.runs.safe_files import write_whole
from rllib.tune.states import TERMINATED


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes words for the shell: the suite, then algorithms and the settings of the first one."""
    words = ctx.params.get("words") or ()
    if not words:
        return [name for name in suite_names() if name.startswith(incomplete)]
    return [*algorithms_like(incomplete), *(settings_like(words[1], incomplete) if len(words) > 1 else [])]


@click.command("benchmark", cls=TakesSettings, short_help="Compare algorithms on a suite, next to published scores.")
@click.argument("words", nargs=-1, metavar="SUITE ALGO... [KEY=VALUE]...", shell_complete=_complete)
@click.option("--algo", "algorithms", multiple=True, metavar="ALGO", help="As ALGO; repeatable.")
@click.option("--seeds", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Seeds of each "
              "algorithm on each task, from --seed on.")  # fmt: skip
@click.option("--seed", type=SEED, default=0, show_default=True, help="The first seed.")
@click.option("--tasks", multiple=True, metavar="TASK,...", help="Tasks of the suite  [default: all]; repeatable.")
@click.option("--steps", type=Number(min=1), metavar="N", help="Environment steps of each run  [default: the suite's].")
@click.option("--metric", default=RETURN, show_default=True, help="Result key or a/b path of the scores.")
@click.option("--defaults", is_flag=True, help="Take RLlib's defaults, also where a tuned example has settings.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Most seeds that train at a time  [default: as "
              "many as have room].")  # fmt: skip
@click.option("--name", help="Name of the benchmark's directory  [default: benchmark_SUITE].")
@click.option("--results-dir", type=LocalPath(file_okay=False), default="results", show_default=True,
              help="Directory in which benchmarks get their own.")  # fmt: skip
@click.option("--plot", type=LocalPath(dir_okay=False), multiple=True, metavar="FILE", help="The picture, a .png, .svg "
              "or .pdf file; repeatable  [default: figure.png in the benchmark's directory].")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="List what would be trained, and how long it takes; write nothing.")
@click.option("--table", "only_table", is_flag=True, help="Train nothing: table and picture of the runs that are "
              "there.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Show only the table, and where the results are.")
@click.option("-v", "--verbose", is_flag=True, help="Show debug messages, and tracebacks of errors.")
def command(
    words, algorithms, seeds, seed, tasks, steps, metric, defaults, jobs, name, results_dir, plot, dry_run, only_table,
    quiet, verbose,
) -> None:  # fmt: skip
    """Train ALGO on each task of SUITE with several seeds, and write a table and a picture: interquartile means with
    their intervals, and published scores with their sources. Suites: atari5, classic, dmc, minatar, minigrid, mujoco5.

    \b
    rllib benchmark classic PPO DQN --seeds 5
    rllib benchmark mujoco5 --algo SAC --dry-run
    rllib benchmark classic PPO --tasks CartPole-v1 --steps 1e5 lr=1e-3 --name slower

    Settings are those of the tuned example for ALGO on the task, else of the suite's example for ALGO, else RLlib's
    defaults; KEY=VALUE take precedence for all. Ctrl-C saves checkpoints. The same command again trains what is
    missing: more seeds, tasks, algorithms and steps add to what is there. Runs are those of rllib train, for rllib
    compare, report, plot, evaluate and dashboard.
    """
    with reported(verbose):
        with user_input():
            suite, plan, settings = _asked(words, algorithms, tasks, range(seed, seed + seeds), steps, metric)
            directory = results_dir / file_name(name or f"benchmark_{suite.name}")
            pictures = _pictures(plot, directory)
            entries = entries_of(plan, suite, directory, settings, defaults)
            if not only_table:
                _refuse(suite, entries)
        if dry_run:
            _show_plan(entries)
            return
        plan.write(directory)
        seen, failures = None, []
        if not only_table:
            with shown_logs(QuietDisplay(), verbose, quiet):
                seen, failures = _train(entries, jobs, quiet)
        if seen:
            click.echo(f"results     {directory}\nresume      {_same_command()}")
            sys.exit(EXIT_SIGNAL + seen)
        _write(directory, plan, pictures)
        if unequal := _unequal_settings(entries):
            click.echo(f"Note: {unequal}")
        for failure in failures:
            click.echo(f"failed      {failure}")
        if failures:
            click.echo(f"resume      {_same_command()}")
            sys.exit(EXIT_FAILURE)


# ---------------------------------------------------------------------- what is asked for


def _asked(
    words: Sequence[str],
    algorithms: Sequence[str],
    tasks: Sequence[str],
    seeds: range,
    steps: float | None,
    metric: str,
) -> tuple[Suite, Plan, dict[str, Any]]:
    """The suite, what is compared on it, and the settings of all algorithms.

    A shell passes "--algo PPO DQN" and "--tasks A B" with the last word outside of the option: it is one of the words.
    """
    names = [word for word in words if not is_assignment(word)]
    if not names:
        raise Mistake(f"say on which suite, as in rllib benchmark classic PPO. Suites: {', '.join(suite_names())}.")
    suite = read_suite(names[0])
    known = {label(task) for task in suite.tasks}
    given = [each.strip() for word in tasks for each in word.split(",")]
    given += [word for word in names[1:] if label(word) in known]
    chosen = list(dict.fromkeys(map(suite.task_called, given))) or list(suite.tasks)
    named = [*algorithms, *(word for word in names[1:] if label(word) not in known)]
    if not named:
        raise Mistake(f"say which algorithm, as in rllib benchmark {suite.name} PPO")
    typed(*({"algorithm": each} for each in named))
    plan = Plan(
        suite=suite.name,
        algorithms=list(dict.fromkeys(map(_called, named))),
        steps={task: suite.tasks[task].steps if steps is None else int(steps) for task in chosen},
        seeds=list(seeds),
        metric=metric,
    )
    return suite, plan, _settings(words)


def _called(algorithm: str) -> str:
    """The algorithm's own name: PPO of "ppo". One of the user's code keeps what was typed."""
    return algorithm if ":" in algorithm else get_algorithm_class(algorithm).__name__


def _settings(words: Sequence[str]) -> dict[str, Any]:
    settings = parse_assignments(filter(is_assignment, words), "lr=1e-3")
    for key, instead in {"seed": "--seed", "env": "--tasks", "log_dir": "--results-dir"}.items():
        if key in settings:
            raise Mistake(f"{key} is no setting of all runs of a benchmark; use {instead}")
    return settings


def _pictures(given: Sequence[Path], directory: Path) -> list[Path]:
    """The pictures to draw; none if the user names none and matplotlib is missing."""
    for path in given:
        refuse_other_kinds(path)
    try:
        refuse_missing_matplotlib()
    except ImportError as error:
        if given:
            raise Mistake(str(error)) from error
        click.echo(f"no picture: {error}", err=True)
        return []
    return list(given) or [directory / "figure.png"]


def _refuse(suite: Suite, entries: Sequence[Entry]) -> None:
    """Raises a Mistake for what cannot run, before anything does."""
    try:
        suite.refuse_missing_packages()
    except ImportError as error:
        raise Mistake(str(error)) from error
    for entry in entries:
        entry.refuse_others()
        if entry.missing():
            entry.refuse_misfits(suite)


def _same_command() -> str:
    """What was typed, for a shell."""
    context = click.get_current_context()
    typed_ones = ["rllib", "benchmark", *context.params["words"]]
    for parameter in context.command.params:
        if (
            isinstance(parameter, click.Option)
            and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        ):
            value = context.params[parameter.name]
            for each in value if parameter.multiple else [value]:
                typed_ones += [parameter.opts[-1], *([] if parameter.is_flag else [_typed(each)])]
    return shlex.join(typed_ones)


def _typed(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------- training


def _train(entries: Sequence[Entry], jobs: int | None, quiet: bool) -> tuple[int | None, list[str]]:
    """Trains what is missing; returns the number of the signal that ended it, and which seeds have failed."""
    failures = []
    for number, entry in enumerate(entries, 1):
        for training in _trainings(entry, jobs, quiet):
            if not quiet:
                click.echo(f"{number} of {len(entries)}: {entry.title}, settings: {entry.origin}", err=True)
            if seen := training.run(quiet):
                return seen, failures
            failures += [f"{entry.title}, {each}" for each in failures_of(training.folder, training.trials)]
            failures += [f"{entry.title}, {each}" for each in _lost(entry, training)]
    return None, failures


def _lost(entry: Entry, training: SeedTraining) -> list[str]:
    """Which seeds have ended, but have no longer the results that say so: their files were damaged or removed."""
    reached, lost = entry.reached(), []
    for trial in training.trials:
        seed = trial.config["seed"]
        if trial.status == TERMINATED and reached.get(seed, entry.steps) < entry.steps:
            file, folder = training.folder.run(seed) / "result.json", training.folder.path
            lost.append(
                f"seed {seed}: it has ended, but {file} has {reached[seed]:,} of {entry.steps:,} steps. Put the file "
                f"back; or remove {folder}, whose seeds are then trained again"
            )
    return lost


def _trainings(entry: Entry, jobs: int | None, quiet: bool) -> Iterator[SeedTraining]:
    """The folders of an entry that are not finished, and one for the seeds that are in none; each is then trained."""
    for folder in entry.folders():
        if min(entry.reached().get(seed, entry.steps) for seed in folder.seeds) < entry.steps:
            # 0: as many as have room, also where fewer were asked for when the folder was made.
            yield taken_up(folder, entry.spec, Folders(folder.path.parent), quiet, at_once=jobs or 0)
    if missing := entry.missing():
        path = entry.new_folder()
        algorithm_folder(entry.directory, entry.algorithm).mkdir(parents=True, exist_ok=True)
        spec = msgspec.structs.replace(entry.spec, name=path.name)
        yield begun(spec, missing, Folders(path.parent), quiet, at_once=jobs)


# ---------------------------------------------------------------------- what is shown


def _unequal_settings(entries: Sequence[Entry]) -> str:
    """A sentence that says which algorithms had defaults where others had tuned settings; "" if there are none."""
    tuned = {entry.algorithm for entry in entries if entry.origin != DEFAULTS}
    others = dict.fromkeys(entry.algorithm for entry in entries if entry.algorithm not in tuned)
    if not tuned or not others:
        return ""
    return (
        f"{' and '.join(others)} had the defaults, and the others tuned settings. --defaults takes them "
        "everywhere, and KEY=VALUE holds for all."
    )


def _show_plan(entries: Sequence[Entry]) -> None:
    """Prints what there is to train, and how long that takes."""
    rows = [["task", "algorithm", "ended", "steps", "settings", "left"]]
    total_s, steps, is_least = 0.0, 0, False
    for entry in entries:
        left = time_left(entry)
        total_s, steps, is_least = total_s + left.time_s, steps + left.steps, is_least or left.is_least
        rows.append([*described(entry), _time(left.time_s, left.is_least) if left.steps else "-"])
    click.echo("\n".join(table(rows)))
    click.echo(f"\n{steps:,} steps are left: {_time(total_s, is_least)} if one run follows the other")


def _time(time_s: float, is_least: bool) -> str:
    return f"{'more than' if is_least else 'about'} {elapsed(time_s)}"


def _write(directory: Path, plan: Plan, pictures: Sequence[Path]) -> None:
    """Writes table and pictures into the directory, prints the table, and where they are.

    The plan is this command's: another one may train other algorithms in the directory at the same time.
    """
    with user_input():
        standings = read_standings(directory, plan)
    for suffix, content in (
        ("md", as_markdown(standings).encode()),
        ("csv", as_csv(standings).encode()),
        ("json", as_json(standings)),
    ):
        write_whole(directory / f"table.{suffix}", content)
    click.echo("\n".join(["", *table(rows_of(standings)), "", *legend(standings)]))
    for note in standings.notes:
        click.echo(f"Note: {note}.")
    click.echo(f"results     {directory}")
    click.echo(f"table       {directory / 'table.md'} (also .csv and .json)")
    for path in pictures if standings.has_curves else ():
        with writing(path):
            draw(standings, path)
        click.echo(f"picture     {path}")
    if len(standings.plan.algorithms) > 1:
        places = [str(algorithm_folder(directory, name)) for name in standings.plan.algorithms]
        click.echo(f"compare     rllib compare {shlex.join(places)} --measure improvement")
