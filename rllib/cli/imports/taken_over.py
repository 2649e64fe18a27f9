"""The directory that an import command makes, and what it prints."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from rllib.cli.failures import Mistake, user_input, writing
from rllib.cli.run_directory import SPEC, RunDirectory
from rllib.cli.spec import RunSpec
from rllib.cli.user_code import typed
from rllib.cli.values import LocalPath, is_assignment, parse_assignments
from rllib.compat.files.imported import ImportedModel, refuse_used
from rllib.did_you_mean import similar_path
from rllib.progress import counted

output_option = click.option("-o", "--output", required=True, type=LocalPath(), help="The directory, a "
                             "new one.")  # fmt: skip
env_option = click.option("--env", metavar="ENV", help="Environment that the model was trained in; without it the "
                          "policy can act, and not learn.")  # fmt: skip
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")


def settings_of(words: Sequence[str]) -> dict:
    """The settings KEY=VALUE of a command line.

    Raises:
        Mistake: for another word.
    """
    if others := [word for word in words if not is_assignment(word)]:
        raise Mistake(f"{others[0]!r} is no setting: give KEY=VALUE, such as env_wrappers=[FrameStackObservation]")
    with user_input():
        return parse_assignments(words, "lr=1e-4")


def refuse_missing(*paths: Path | None) -> None:
    """Raises a Mistake if one of these paths, as far as they are given, does not exist."""
    for path in paths:
        if path is not None and not path.exists():
            hint = similar_path(path)
            raise Mistake(f"there is no {path}{hint and f'.{hint}'}")


def take_over(output: Path, env: str | None, write: Callable[[Path], ImportedModel]) -> None:
    """Imports a model into a directory, and prints what it has become.

    With an environment the directory is that of a run, which `rllib train --resume` continues; without one it is the
    checkpoint.

    Args:
        output: the directory.
        env: name of the environment, if one was given.
        write: imports the model as a checkpoint at a path.

    Raises:
        Mistake: if the directory has files, or the model cannot be taken over.
    """
    typed({"env": env})
    with user_input(), writing(output):
        refuse_used(output)
        made = write(output / "checkpoint_000000" if env else output)
        if env:
            _write_run(output, made, env)
    _show(output, made)


def _write_run(output: Path, made: ImportedModel, env: str) -> None:
    directory = RunDirectory(output)
    try:
        directory.write_spec(RunSpec(algorithm=made.algorithm, env=env))
    finally:
        directory.log.close()


def _show(output: Path, made: ImportedModel) -> None:
    of = f"{made.algorithm} on {made.env}" if made.env else made.algorithm
    click.echo(
        f"imported    {of}, trained for {counted(made.timesteps, 'step')}" if made.timesteps else f"imported    {of}"
    )
    for sentence in made.left_out:
        click.echo(f"left out    {sentence}")
    click.echo(f"checkpoint  {made.path}")
    if (output / SPEC).exists():
        click.echo(f"evaluate    rllib evaluate {output}")
        click.echo(f"resume      rllib train --resume {output}")
    else:
        click.echo(f"serve       rllib serve {output}")
