"""`rllib config`."""

import itertools
import shutil
import textwrap

import click

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.completion import complete_algorithm
from rllib.cli.default_differences import default_differences
from rllib.cli.failures import Mistake, reported, user_input
from rllib.cli.user_code import typed
from rllib.compat.names.aliases import other_names
from rllib.config.config_object import ConfigObject
from rllib.config.sections import SettingRow

_INDENT = 4
_NARROWEST, _WIDEST = 80, 120


@click.command("config", short_help="Show every setting of an algorithm.")
@click.argument("algorithm", metavar="ALGO", shell_complete=complete_algorithm)
@click.argument("words", nargs=-1, metavar="[WORD]...")
def command(algorithm: str, words: tuple[str, ...]) -> None:
    """Show every setting of ALGO: name, type, default and meaning, by the section of the config that sets it, with the
    names that it has in other versions of RLlib; for a dict, its keys. With WORDs, only those whose names or meaning
    contain one of them.
    Then come what excludes what, and the defaults that are not RLlib's, with the reasons.
    """
    with reported(verbose=False):
        with user_input():
            typed({"algorithm": algorithm})
            config = get_algorithm_config(algorithm)
        rows = config.describe()
        rows = [row for row in rows if _matches(row, words) or _keys(config, row, words)]
        if not rows:
            raise Mistake(f"{algorithm} has no setting that contains {' or '.join(map(repr, words))}")
    width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
    for section, settings in itertools.groupby(rows, key=lambda row: row.section):
        click.echo(f".{section}()")
        for row in settings:
            click.echo(f"  {row.name}: {row.type} = {row.default!r}")
            others = other_names(row.name)
            click.echo(_indented(row.meaning + (f" (also: {', '.join(others)})" if others else ""), width))
            for key in _keys(config, row, words):
                text = f"[{key.name!r}]: {key.type} = {key.default!r}. {key.meaning}"
                click.echo(textwrap.fill(text, width, initial_indent="    ", subsequent_indent=" " * _INDENT * 2))
    _show_rules(type(config), {row.name for row in rows}, width)
    _show_differences(type(config).__name__.removesuffix("Config"), {row.name for row in rows}, width)


def _matches(row: SettingRow, words: tuple[str, ...]) -> bool:
    text = " ".join((row.name, *other_names(row.name), row.meaning)).lower()
    return not words or any(word.lower() in text for word in words)


def _keys(config: ConfigObject, row: SettingRow, words: tuple[str, ...]) -> list[SettingRow]:
    """Keys of a setting that is a dict: all if its own name is asked for, else those that contain one of the words."""
    declared = config.settings[row.name].keys
    keys = [] if declared is None else declared.of.describe()
    return keys if row.name in words else [key for key in keys if _matches(key, words)]


def _show_rules(config_class: type[ConfigObject], names: set[str], width: int) -> None:
    """Prints which of these settings exclude or need others, and why; a message says what ends a mistake."""
    shown = [rule for rule in config_class.describe_rules() if names.intersection(rule.names)]
    if shown:
        click.echo("What excludes what")
    for rule in shown:
        text = ": ".join(filter(None, (rule.rule, rule.why))).replace("`", "")
        click.echo(textwrap.fill(text, width, initial_indent="  ", subsequent_indent="    "))


def _show_differences(algorithm: str, names: set[str], width: int) -> None:
    """Prints the defaults of these settings that differ from RLlib's."""
    shown = [
        difference for difference in default_differences(algorithm) if difference.setting.partition(".")[0] in names
    ]
    if shown:
        click.echo("Defaults that are not RLlib 2.6's")
    for difference in shown:
        click.echo(f"  {difference.setting}: {difference.ours!r}, RLlib's is {difference.rllib!r}")
        click.echo(_indented(difference.reason, width))


def _indented(text: str, width: int) -> str:
    margin = " " * _INDENT * 2
    return textwrap.fill(text, width, initial_indent=margin, subsequent_indent=margin)
