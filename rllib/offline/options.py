"""Options of reading recorded steps: the keys of `input_config` that all formats share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rllib.did_you_mean import did_you_mean

_CHOICES = {
    "dones": ("auto", "terminated", "truncated"),
    "actions": ("auto", "environment", "normalized"),
    "densities": ("auto", "environment", "normalized"),
    "on_error": ("raise", "skip"),
    "ends": ("auto", "flags"),
}


@dataclass(frozen=True)
class ReadOptions:
    """The choices that a reader leaves to its user.

    Attributes:
        schema: our column name -> the file's, where they differ; or those of several columns of single numbers, of
            which it consists.
        dones: meaning of the flag `dones`, which old files have: "terminated"; "truncated"; or "auto": truncated where
            an episode is as long as the environment allows, or as most of the longest ones are, else terminated.
        actions: units of actions of a Box: those of the "environment"; "normalized", where [-1, 1] spans the bounds; or
            "auto", as the file's metadata, its bounds and its columns tell.
        densities: units in which recorded densities (action_logp, action_prob) of a Box are: as `actions`; "auto": as
            the file's metadata tells, else normalized where the actions are, or where an RLlib policy has written
            its columns.
        check: refuse data in which one step does not follow from the one before.
        on_error: "raise", or "skip" lines and files that cannot be read.
        policy: id of the policy whose rows are taken from files with several.
        max_episode_steps: time limit of the environment, where the data does not say it.
        ends: ends of episodes where they have no numbers: by "flags"; or "auto", by flags if any of them is set, else
            each line or file is an episode.
        parts_read: of Dict observations the only keys that are read, so that data without the others can be; (): all.
        reads_actions: False: recorded actions are left out, so that data without any can be read.

    Raises:
        ValueError: for a choice that there is not, and for a schema of another form.
    """

    schema: Mapping[str, str | Sequence[str]] | None = None
    dones: str = "auto"
    actions: str = "auto"
    densities: str = "auto"
    check: bool = True
    on_error: str = "raise"
    policy: str | None = None
    max_episode_steps: int | None = None
    ends: str = "auto"
    parts_read: Sequence[str] = ()
    reads_actions: bool = True

    def __post_init__(self):
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r} must be one of {', '.join(map(repr, choices))}")

        for ours, theirs in (self.schema or {}).items():
            several = [theirs] if isinstance(theirs, str) else theirs
            if not (isinstance(several, list | tuple) and several and all(isinstance(each, str) for each in several)):
                raise ValueError(
                    f"input_read_schema has {theirs!r:.60} for {ours!r:.40}, but it needs a column, or a list of them"
                )

    @property
    def skips_errors(self) -> bool:
        """Whether lines and files that cannot be read are left out."""
        return self.on_error == "skip"


def read_options(given: Mapping[str, Any]) -> ReadOptions:
    """The options of a dict.

    Raises:
        ValueError: for a key that is none of them.
    """
    known = [field.name for field in fields(ReadOptions)]
    for name in given:
        if name not in known:
            raise ValueError(
                f"{name!r} is no option of reading data.{did_you_mean(name, known)} There are {', '.join(known)}."
            )
    return ReadOptions(**given)
