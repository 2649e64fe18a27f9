"""The option --columns: what the columns of recorded steps are, where their names do not tell."""

from collections.abc import Sequence
from pathlib import Path

import click

from rllib import sample_batch as sb
from rllib.cli.failures import Mistake
from rllib.did_you_mean import did_you_mean
from rllib.offline.records import DONES, FOREIGN_NAMES, T

columns_option = click.option(
    "--columns", multiple=True, metavar="NAME=COLUMN,...", help="Columns of the data that are obs, actions, rewards, "
    "terminateds, truncateds, dones or eps_id, as in obs=position,speed; repeatable.",
)  # fmt: skip
# What a column can be said to be.
_NAMES = (
    sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS, DONES, sb.EPS_ID, T, *sb.PROBABILITIES,
)  # fmt: skip


def refuse_loose(words: Sequence[str]) -> None:
    """Raises a Mistake for an argument that is meant as a further entry of --columns, such as actions=torque."""
    for word in words:
        name = word.partition("=")[0]
        if "=" in word and FOREIGN_NAMES.get(name, name) in _NAMES and not Path(word).exists():
            raise Mistake(f"{word} has no option before it: write --columns {word}, since each entry takes its own")


def parse_columns(entries: Sequence[str]) -> dict[str, str | list[str]]:
    """Our name of a column -> that of the data, or those of several.

    Args:
        entries: of --columns.

    Raises:
        Mistake: for an entry of another form, and for a name that no column has here.
    """
    schema: dict[str, str | list[str]] = {}
    for entry in entries:
        name, is_pair, columns = entry.partition("=")
        theirs = [each.strip() for each in columns.split(",") if each.strip()]
        if not (is_pair and theirs):
            raise Mistake(f"--columns {entry} must be NAME=COLUMN,..., as in --columns obs=position,speed")
        ours = FOREIGN_NAMES.get(name.strip(), name.strip())
        if ours not in _NAMES:
            hint = did_you_mean(ours, (*_NAMES, *FOREIGN_NAMES))
            raise Mistake(f"--columns {entry}: a column is one of {', '.join(_NAMES)}.{hint}")
        if ours in schema:
            raise Mistake(f"--columns says twice what {ours} is; leave one of them out")
        schema[ours] = theirs[0] if len(theirs) == 1 else theirs
    return schema
