"""`rllib record`: episodes of a trained policy as a video, or its steps as data to learn from."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rllib.algorithms.base.recorded.acting import ActingPlan, recorded_steps
from rllib.cli.agent_slots import SlotOptions
from rllib.cli.checkpoints import PLACE, acting_algorithm, latest
from rllib.cli.failures import Mistake, reported, user_input, writing
from rllib.cli.leftovers import removed_if_unused
from rllib.cli.played_in import refuse_no_environment, refuse_nowhere_to_evaluate, settings_of_environment
from rllib.cli.values import LocalPath, Number
from rllib.cli.verbs.play import acting_options, show, video_of
from rllib.env.episodes import Episode
from rllib.offline.dataset import Dataset
from rllib.offline.writing.minari_sets import PREFIX, check_name
from rllib.offline.writing.rolling import new_run_id
from rllib.offline.writing.step_formats import FORMATS, SUFFIXES, checked_format, default_format, format_of
from rllib.progress import counted
from rllib.storage.local_path import expanded

_OF_DATA = ("steps", "random_share", "noise", "workers", "format_")
_OF_VIDEOS = ("output", "fps")


@click.command("record", short_help="Write a video of a trained policy, or its steps as data.")
@click.argument("checkpoint", type=PLACE)
@click.option("-o", "--output", type=LocalPath(),
              help="File of the video, .mp4, .webm or .gif [default: CHECKPOINT.mp4].")  # fmt: skip
@click.option("--to", metavar="PATH", help="Write the steps as data instead: a file (.parquet, .json, .npz, .hdf5), a "
              "directory, or minari:NAMESPACE/NAME-v0.")  # fmt: skip
@click.option("--episodes", type=click.IntRange(min=1), help="How many to play [default: 1 for a video].")
@click.option("--steps", type=click.IntRange(min=1), help="With --to: number of steps, instead of episodes [default: "
              "10000].")  # fmt: skip
@click.option("--random", "random_share", type=Number(0, 1), metavar="SHARE",
              help="With --to: share of the steps with a random action.")  # fmt: skip
@click.option("--noise", type=Number(min=0), metavar="STD", help="With --to: noise on continuous actions, "
              "where [-1, 1] spans their bounds.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=0), metavar="K", help="With --to: processes that act [default: this "
              "one].")  # fmt: skip
@click.option("--format", "format_", type=click.Choice(FORMATS), help="With --to: of the data [default: as the name of "
              "the file ends, else parquet].")  # fmt: skip
@acting_options
def command(checkpoint, output, to, episodes, policies, against, verbose, load_user_code, **how) -> None:
    """Write a video of episodes that the policy of CHECKPOINT plays, or that of the last checkpoint of a run's
    directory. With --to, write what happens in each step as data to learn from.

    \b
    rllib record results/PPO_CartPole-v1_... -o cartpole.mp4
    rllib record results/PPO_CartPole-v1_... --to expert.parquet --steps 20000 --explore
    """
    with reported(verbose):
        checkpoint = latest(checkpoint)
        if to is None:
            _refuse(how, _OF_DATA, "is for data: give --to PATH")
            options = {name: how[name] for name in ("seed", "explore", "fps", "env")}
            slots = SlotOptions(policies, against)
            path = output or video_of(checkpoint)
            show(checkpoint, path, slots, episodes=episodes or 1, load_user_code=load_user_code, **options)
            return
        _refuse({**how, "output": output}, _OF_VIDEOS, "is for videos: leave out --to")
        if policies or against:
            raise Mistake("--policy and --against are for videos of several agents; data is recorded of one")
        if episodes is None:
            how["steps"] = how["steps"] or 10_000
        del how["fps"]
        overrides = settings_of_environment(how.pop("env"))
        how.update(num_episodes=episodes, num_steps=how.pop("steps"), num_workers=how.pop("workers") or 0)
        how.update({name: how[name] or 0.0 for name in ("random_share", "noise")})
        dataset, _ = write_steps(checkpoint, to, load_user_code, overrides, **how)
        mean, returns = dataset.metadata["behaviour"]["mean_return"], dataset.returns
        if mean is not None:
            click.echo(f"return  {mean:.2f} (mean of whole episodes; all {returns.min():g} to {returns.max():g})")


def _refuse(given: dict, names: tuple[str, ...], why: str) -> None:
    flags = {"random_share": "random", "format_": "format"}
    for name in names:
        if given[name] is not None:
            raise Mistake(f"--{flags.get(name, name)} {why}")


def write_steps(
    checkpoint: Path,
    to: str,
    load_user_code: bool,
    overrides: Mapping[str, Any],
    *,
    format_: str | None = None,
    is_quiet: bool = False,
    **planned,
) -> tuple[Dataset, list[Episode]]:
    """Records steps of a checkpoint into files, and prints what there is.

    Args:
        checkpoint: its directory.
        to: file, directory or dataset of Minari.
        load_user_code: as for Algorithm.from_checkpoint.
        overrides: settings that differ from those of the training run.
        format_: of the data; None: as the name of the file ends.
        is_quiet: print nothing.
        planned: as for ActingPlan.

    Returns:
        the steps, and the statistics of their whole episodes.

    Raises:
        Mistake: for a target that cannot be written, or a wrong length.
    """
    made = contextlib.nullcontext() if to.startswith(PREFIX) else removed_if_unused(Path(expanded(to)))
    with made:
        with user_input():
            target, plan = _target(to, format_), ActingPlan(**planned)
            algorithm = acting_algorithm(checkpoint, load_user_code, **overrides)
            (refuse_nowhere_to_evaluate if plan.as_evaluation else refuse_no_environment)(algorithm)
        with algorithm, user_input():
            dataset, episodes = recorded_steps(algorithm, plan)
        with user_input(), writing(Path(target)):
            dataset.save(target, format_)
    if not is_quiet:
        click.echo(f"{target}{_size(target)}")
        click.echo(f"rows    {len(dataset):,} in {counted(dataset.num_episodes, 'episode')}")
    return dataset, episodes


def _target(to: str, format_: str | None) -> str:
    """The file, or the dataset of Minari, that is written.

    Raises:
        ValueError: for a format that cannot be written here, and if it is there already.
    """
    if to.startswith(PREFIX):
        check_name(to.removeprefix(PREFIX))
        return to
    path = Path(expanded(to))
    if path.suffix.lower() in SUFFIXES or (path.suffix and not path.is_dir() and format_ is not None):
        checked_format(format_ or format_of(path))
        if path.exists():
            raise ValueError(f"{path} is there already; give another name, or a directory, where files are added")
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)
    name = checked_format(format_ or default_format())
    path.mkdir(parents=True, exist_ok=True)
    return str(path / f"output-{new_run_id()}_worker-0_0.{name}")


def _size(target: str) -> str:
    return "" if target.startswith(PREFIX) else f"  {Path(target).stat().st_size / 2**20:.2f} MiB"
