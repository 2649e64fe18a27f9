"""`rllib convert`: a program for Ray, with this library's imports."""

import tokenize
from pathlib import Path

import click

from rllib.cli.failures import EXIT_FAILURE, Mistake, reported
from rllib.cli.values import LocalPath
from rllib.compat.programs.conversion import Converted, convert, difference


@click.command("convert", short_help="Show a program for Ray with rllib's imports.")
@click.argument("files", type=LocalPath(exists=True), nargs=-1, required=True)
@click.option("--write", is_flag=True, help="Edit the files, which may be no links, instead of showing the difference.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
def command(files, write, verbose) -> None:
    """Show, as a unified diff, FILES (programs, or directories with programs) with imports of rllib and runtime in the
    place of those of Ray. Names that are not here keep their import, and are listed with what to use instead; the exit
    code is 1 then. `python -m rllib.as_ray FILE` runs a program without changing it.
    """
    with reported(verbose):
        complete = True
        programs = list(_programs(files))
        if write and (links := [str(file) for file in programs if file.is_symlink()]):
            raise Mistake(
                f"{', '.join(links)} leads to another place, where --write would edit. Give the files themselves."
            )
        for file in programs:
            source, encoding = _read(file)
            converted = _converted(file, source)
            changes = difference(source, converted.source, str(file))
            if write and changes:
                file.write_text(converted.source, encoding=encoding, newline="")
                click.echo(f"{file}: {_count(changes)} lines changed")
            elif changes:
                click.echo(changes, nl=False)
            for line, name, reason in converted.missing:
                complete = False
                click.echo(f"{file}:{line}: {name} is not here{f': {reason}' if reason else ''}", err=True)
        if not complete:
            raise SystemExit(EXIT_FAILURE)


def _programs(files):
    for path in files:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _read(file: Path) -> tuple[str, str]:
    """A program's text, with its ends of lines as they are, and its encoding."""
    try:
        with open(file, "rb") as binary:
            encoding, _ = tokenize.detect_encoding(binary.readline)
        with open(file, encoding=encoding, newline="") as text:
            return text.read(), encoding
    except (SyntaxError, UnicodeDecodeError) as error:
        raise Mistake(f"{file} is no Python program: {error}") from error


def _converted(file: Path, source: str) -> Converted:
    try:
        return convert(source)
    except SyntaxError as error:
        raise Mistake(f"{file}:{error.lineno}: this is no Python: {error.msg}") from error


def _count(changes: str) -> int:
    return sum(line.startswith("-") and not line.startswith("---") for line in changes.splitlines())
