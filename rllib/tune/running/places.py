"""Places to write to that the files of an experiment name: its trials take none outside of its directory unasked."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import runtime
from rllib.tune.schedulers.base import TrialScheduler
from rllib.tune.search.base import Searcher
from rllib.tune.search.space import drawn_again, draws_unlisted
from rllib.tune.trainables.resolve import Resolved, possible_settings, settings_of


def working_directory(trial_dir: Path, moves: bool) -> Path:
    """Directory in which a trial's process works, from which relative paths of its settings lead.

    Args:
        trial_dir: the trial's directory.
        moves: the setting chdir_to_trial_dir. With the engine "local" all trials work in the driver's directory.
    """
    shares_process = runtime.is_initialized() and runtime.get_runtime_context().node_id == "local"
    return trial_dir if moves and not shares_process else Path.cwd()


def possible_with(resolved: Resolved, space: Mapping[str, Any], *parts: Any) -> list[Mapping[str, Any]]:
    """`possible_settings` of a search space, and of what these parts, schedulers and searchers, add to it."""
    spaces = [space]
    for part in parts:
        if isinstance(part, TrialScheduler):
            spaces.append(part.changes(space))
        for searcher in _searchers(part):
            spaces += searcher.further_spaces(space)
    return [settings for each in spaces for settings in possible_settings(resolved, each)]


def drawn_by_functions(
    resolved: Resolved, space: Mapping[str, Any], configs: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Settings of trials, with what the program's functions in the space return now.

    A value that a file has in place of a function's could be anybody's. The function is called again, with what the
    trial has drawn: a path that depends on other settings is the same. One that is random or has the date is not.

    Args:
        resolved: the trainable.
        space: a search space.
        configs: configurations with which its trials began.
    """
    found = []
    for config in configs if draws_unlisted(space) else ():
        with contextlib.suppress(Exception):  # any error of a user's function: it returns nothing then
            found.append(settings_of(resolved, drawn_again(space, config)))
    return found


def held_configs(searcher: Any) -> list[Mapping[str, Any]]:
    """Configurations that a searcher, or one that it wraps, has drawn and will suggest again."""
    return [config for each in _searchers(searcher) for config in each.held_configs()]


def _searchers(part: Any) -> Iterator[Searcher]:
    """The part, if it is a searcher, and those that it wraps."""
    while isinstance(part, Searcher):
        yield part
        part = getattr(part, "searcher", None)
