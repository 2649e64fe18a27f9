"""Places to write to that the files of an experiment name: its trials take none outside of its directory unasked."""

from collections.abc import Iterator, Mapping
from typing import Any

from rllib.tune.schedulers.base import TrialScheduler
from rllib.tune.search.base import Searcher
from rllib.tune.trainables.resolve import Resolved, possible_settings


def possible_with(resolved: Resolved, space: Mapping[str, Any], *parts: Any) -> list[Mapping[str, Any]]:
    """`possible_settings` of a search space, and of what these parts, schedulers and searchers, add to it."""
    spaces = [space]
    for part in parts:
        if isinstance(part, TrialScheduler):
            spaces.append(part.changes(space))
        for searcher in _searchers(part):
            spaces += searcher.further_spaces(space)
    return [settings for each in spaces for settings in possible_settings(resolved, each)]


def held_configs(searcher: Any) -> list[Mapping[str, Any]]:
    """Configurations that a searcher, or one that it wraps, has drawn and will suggest again."""
    return [config for each in _searchers(searcher) for config in each.held_configs()]


def _searchers(part: Any) -> Iterator[Searcher]:
    """The part, if it is a searcher, and those that it wraps."""
    while isinstance(part, Searcher):
        yield part
        part = getattr(part, "searcher", None)
