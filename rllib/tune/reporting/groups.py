"""Groups of runs that differ in their seed only: a curve, a row or a side of a comparison each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllib.runs.naming import names_apart, names_by_difference, text_of
from rllib.tune.reporting.runs import Run


@dataclass
class Group:
    """Runs that differ in their seed only.

    Attributes:
        name: by what differs between the groups.
        runs: one or more.
    """

    name: str
    runs: list[Run]

    @property
    def settings(self) -> Mapping[str, Any]:
        """ "a/b" path -> value of each setting, the seed left out."""
        return self.runs[0].settings

    @property
    def seeds(self) -> list[int | None]:
        return [run.seed for run in self.runs]


def groups_of(runs: Sequence[Run]) -> list[Group]:
    """Groups runs whose settings differ in the seed only, and names each group by what differs between them.

    Runs in two directories that were named are two groups even if all their settings are equal: their code may differ.
    Runs that were named themselves are together. Two runs with one seed are never in one group, since they are no two
    samples.
    """
    groups: dict[tuple, list[Run]] = {}
    for run in runs:
        # Without settings it is unknown which runs differ in the seed only.
        groups.setdefault((folder_of(run), text_of(run.settings) if run.params else run.name), []).append(run)
    apart = [part for group in groups.values() for part in _without_repeated_seeds(group)]
    names = names_of(apart, [group[0].settings for group in apart])
    return [Group(name, group) for name, group in zip(names, apart)]


def names_of(groups: Sequence[Sequence[Run]], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of groups of runs by what differs between the settings of each, or by their places."""
    if len(groups) == 1 and len(groups[0]) > 1 and not any(map(folder_of, groups[0])):
        return [f"{groups[0][0].name} and {len(groups[0]) - 1} more"]
    return names_by_difference(settings, names_of_places(groups))


def names_of_places(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Names of groups by a directory that holds the group alone, or else by its first run."""
    if any(run.place is None for group in groups for run in group):
        return [group[0].name for group in groups]
    folders = _held_alone([{folder_of(run) for run in group} for group in groups])
    parents = _held_alone([{run.place.parent if len(group) > 1 else None for run in group} for group in groups])
    places = [folder or parent or group[0].place for folder, parent, group in zip(folders, parents, groups)]
    names = names_apart([place.resolve() for place in places])
    scattered = [
        not folder and not parent and len(group) > 1 for folder, parent, group in zip(folders, parents, groups)
    ]
    return [
        f"{group[0].name} and {len(group) - 1} more" if apart else name
        for name, apart, group in zip(names, scattered, groups)
    ]


def folder_of(run: Run) -> Path | None:
    """The directory that was named, if it is not the run's own."""
    return run.given if run.given != run.place else None


def _held_alone(directories: Sequence[set[Path | None]]) -> list[Path | None]:
    """Of the directories of each group the only one, if no other group has it."""
    counts = Counter(place for own in directories for place in own)
    return [next(iter(own)) if len(own) == 1 and counts[next(iter(own))] == 1 else None for own in directories]


def _without_repeated_seeds(runs: list[Run]) -> list[list[Run]]:
    """The runs as one group; by directory, or each alone, where a seed would be in a group twice."""
    if not _repeats_a_seed(runs):
        return [runs]
    folders: dict[Path | None, list[Run]] = {}
    for run in runs:
        folders.setdefault(run.place and run.place.parent, []).append(run)
    if any(map(_repeats_a_seed, folders.values())):
        return [[run] for run in runs]
    return list(folders.values())


def _repeats_a_seed(runs: Sequence[Run]) -> bool:
    seeds = [run.seed for run in runs if run.seed is not None]
    return len(set(seeds)) < len(seeds)
