"""`rllib dataset`: what is in recorded steps, whether they can be right, and other formats of them."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import click
from gymnasium.vector import VectorEnv

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.videos import undrawn_environment
from rllib.algorithms.base.wiring import playable_environment, time_limit_of
from rllib.cli.columns import columns_option, parse_columns, refuse_loose
from rllib.cli.failures import EXIT_FAILURE, Mistake, as_typed, reported, user_input, writing
from rllib.cli.user_code import typed
from rllib.cli.values import Number
from rllib.env.agents import is_external, is_multi_agent
from rllib.offline.dataset import Dataset
from rllib.offline.options import ReadOptions
from rllib.offline.validation import faults
from rllib.offline.writing.minari_sets import PREFIX
from rllib.offline.writing.step_formats import FORMATS, checked_format, format_of
from rllib.progress import counted
from rllib.storage.encoding import space_from_json
from rllib.storage.local_path import expanded

_VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
_PATHS = click.argument("paths", nargs=-1, required=True, metavar="PATH...")


@click.group("dataset", short_help="Look at recorded steps, check and convert them.")
def command() -> None:
    """Look at recorded steps, check and convert them. PATH is a file, a directory or a pattern.

    \b
    rllib dataset info expert.parquet
    rllib dataset info log.csv --columns obs=position,speed
    rllib dataset validate logs/ --env Pendulum-v1
    rllib dataset convert logs/*.json best.parquet --top 0.1
    """


@command.command("info")
@_PATHS
@columns_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_VERBOSE
def info(paths: tuple[str, ...], columns: tuple[str, ...], as_json: bool, verbose: bool) -> None:
    """Show sizes, returns, ends of episodes, columns, spaces and metadata."""
    with reported(verbose):
        facts = _read(paths, columns).info()
        if as_json:
            click.echo(json.dumps(facts))
            return
        for line in _lines(facts):
            click.echo(line)


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [
        f"{facts['source']}",
        f"rows      {facts['rows']:,} in {counted(facts['episodes'], 'episode')}",
        f"ends      {facts['terminated']:,} terminated, {facts['truncated']:,} truncated; after "
        f"{facts['without_next']:,} the next observation is not known",
        f"length    {_spread(facts['lengths'])}",
    ]
    if "returns" in facts:
        deciles = "  ".join(f"{number:.4g}" for number in facts["returns"]["deciles"])
        lines += [f"return    {_spread(facts['returns'])}", f"          deciles {deciles}"]
    lines += [f"obs       {space_from_json(facts['observation_space'])}"]
    lines += [f"actions   {space_from_json(facts['action_space'])}"]
    for name, column in facts["columns"].items():
        shape = "x".join(map(str, column["shape"])) or "1"
        span = f"  {column['min']:.4g} to {column['max']:.4g}" if "min" in column else ""
        wrong = f"  {column['not_finite']:,} not finite" if column.get("not_finite") else ""
        lines.append(f"  {name:<18} {column['dtype']:<8} {shape:<8}{span}{wrong}")
    lines += [f"  {name}: {json.dumps(value)}" for name, value in facts["metadata"].items()]
    return lines + [f"note: {notice}" for notice in facts["notices"]]


def _spread(numbers: dict[str, float]) -> str:
    return f"{numbers['mean']:.4g} (mean; {numbers['min']:.4g} to {numbers['max']:.4g})"


@command.command("validate")
@_PATHS
@columns_option
@click.option("--env", metavar="ENV", help="Environment whose spaces the steps have to be of.")
@_VERBOSE
def validate(paths: tuple[str, ...], columns: tuple[str, ...], env: str | None, verbose: bool) -> None:
    """Look for all faults at once: damaged files and lines, values that cannot be right, ends and episodes that do not
    fit together. The exit code is 1 if there are any.
    """
    with reported(verbose):
        refuse_loose(paths)
        spaces: dict[str, Any] = {}
        limit = None
        if env is not None:
            with user_input():
                spaces, limit = _spaces_of(env)
        options = ReadOptions(max_episode_steps=limit, schema=parse_columns(columns))
        found = faults(paths, options, **spaces)
        for fault in found:
            click.echo(as_typed(fault))
        if found:
            click.echo(f"{counted(len(found), 'fault')}", err=True)
            sys.exit(EXIT_FAILURE)
        click.echo("no fault was found")


def _spaces_of(env: str) -> tuple[dict[str, Any], int | None]:
    """Spaces and time limit of an environment.

    Raises:
        ValueError: if there is none of this name, or it has not one agent.
    """
    typed({"env": env})
    # As a run that names it has it: an Atari game's frames are preprocessed.
    config = AlgorithmConfig().environment(env)
    factory, made = playable_environment(config), undrawn_environment(config)
    with contextlib.closing(made):
        if is_multi_agent(made) or is_external(made):
            kind = "has several agents" if is_multi_agent(made) else "drives its own loop"
            raise ValueError(
                f"--env {env}: {factory.name} {kind}; recorded steps are of one agent that is asked to act."
            )
        place = "single_" if isinstance(made, VectorEnv) else ""
        spaces = {name: getattr(made, f"{place}{name}") for name in ("observation_space", "action_space")}
    return spaces, time_limit_of(factory)


_SHARE = Number(0, 1, min_open=True)


@command.command("convert")
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.argument("target", metavar="DST")
@columns_option
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Of DST [default: as its name ends].")
@click.option("--top", type=_SHARE, metavar="SHARE", help="Keep the episodes with the highest returns.")
@click.option("--take", type=click.IntRange(min=1), metavar="N", help="Keep the first N steps, after --top.")
@click.option("--split", type=_SHARE, metavar="SHARE", help="Write this share of the episodes, drawn at random, to "
              "DST, and the others to DST_rest.")  # fmt: skip
@click.option("--normalized-actions", type=click.Choice(["yes", "no"]), default="no", show_default=True,
              help="Write actions in [-1, 1], which spans the bounds of their space, as RLlib does.")  # fmt: skip
@_VERBOSE
def convert(sources, target, columns, format_, top, take, split, normalized_actions, verbose) -> None:
    """Read all SRC, and write their episodes into one file DST, or to minari:NAMESPACE/NAME-v0."""
    with reported(verbose):
        target = expanded(target)
        with user_input():
            if not target.startswith(PREFIX):
                checked_format(format_ or format_of(target))
            parts = {target: _read(sources, columns)}
            if top is not None:
                parts[target] = parts[target].filter_top(top)
            if take is not None:
                parts[target] = parts[target].first(take)
            if split is not None:
                parts = dict(zip((target, _rest_of(target)), parts[target].split(split)))
        for path in parts:  # before one of two is written
            if not path.startswith(PREFIX) and Path(path).exists():
                raise Mistake(f"{path} is there already; give another name")
        for path, dataset in parts.items():
            with user_input(), writing(Path(path)):
                dataset.save(path, format_, normalized_actions=normalized_actions == "yes")
            click.echo(f"{path}  {len(dataset):,} rows in {counted(dataset.num_episodes, 'episode')}")


def _rest_of(target: str) -> str:
    """Path of the episodes that are not in the target."""
    if target.startswith(PREFIX):
        name, dash, version = target.rpartition("-v")
        return f"{name}-rest{dash}{version}"
    path = Path(target)
    return str(path.with_name(f"{path.stem}_rest{path.suffix}"))


def _read(paths: tuple[str, ...], columns: tuple[str, ...]) -> Dataset:
    refuse_loose(paths)
    with user_input():
        try:
            return Dataset.from_path(list(paths), schema=parse_columns(columns))
        except (OSError, ImportError) as error:
            raise Mistake(str(error)) from error
