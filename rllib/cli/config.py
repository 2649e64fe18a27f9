"""`rllib config`."""

import itertools
import shutil
import textwrap

import click

from rllib.algorithms.registry import get_algorithm_config
from rllib.cli.failures import Mistake, reported, user_input

_INDENT = 4
_NARROWEST, _WIDEST = 80, 120


@click.command("config", short_help="Show every setting of an algorithm.")
@click.argument("algorithm", metavar="ALGO")
@click.argument("words", nargs=-1, metavar="[WORD]...")
def command(algorithm: str, words: tuple[str, ...]) -> None:
    """Show every setting of ALGO: name, type, default and meaning, by the section of the config that sets it. With
    WORDs, only settings whose name or meaning contains one of them.
    """
    with reported(verbose=False):
        with user_input():
            config = get_algorithm_config(algorithm)
        rows = [row for row in config.describe() if _matches(row, words)]
        if not rows:
            raise Mistake(f"{algorithm} has no setting that contains {' or '.join(map(repr, words))}")
    width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
    for section, settings in itertools.groupby(rows, key=lambda row: row.section):
        click.echo(f".{section}()")
        for row in settings:
            click.echo(f"  {row.name}: {row.type} = {row.default!r}")
            margin = " " * _INDENT * 2
            click.echo(textwrap.fill(row.meaning, width, initial_indent=margin, subsequent_indent=margin))


def _matches(row, words: tuple[str, ...]) -> bool:
    text = f"{row.name} {row.meaning}".lower()
    return not words or any(word.lower() in text for word in words)
