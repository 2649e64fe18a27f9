"""The order in which the files of a run travel, so that a copy never names a file that it lacks.

Uploads send data first and the files that name it last; removals and downloads go the other way round:

| files                                          | named by                                        |
|------------------------------------------------|-------------------------------------------------|
| results, events, settings                      | the journal of an experiment                    |
| data of a checkpoint                           | its manifest.json (or .tune.json)               |
| whole checkpoints                              | best.json, the journal                          |
| experiment_state-*.json, the journal           | search_state.json, by its number of records     |
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

# Files of a checkpoint without which it is none, in the order in which they are written.
MARKS = ("manifest.json", ".tune.json")
# Files at the top of a run or experiment that name others, in the order of uploads.
RECORDS = ("experiment_state-*.json", "search_state.json", "best.json", "run.json")


def is_passing(name: str) -> bool:
    """Whether a file or directory with this name is being written or replaced, and will have another name."""
    return name.startswith(".") and (".tmp" in name or ".old-" in name)


def record_rank(name: str) -> int | None:
    """Place of a file in RECORDS; None if it is none of them."""
    return next((rank for rank, pattern in enumerate(RECORDS) if fnmatchcase(name, pattern)), None)


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def by_checkpoint(names: Iterable[str]) -> dict[str | None, list[str]]:
    """Names by the folder of the checkpoint that they are part of, at any depth; under None those of no checkpoint.

    A checkpoint within another one counts as part of it.
    """
    names = list(names)
    marked = {folder_of(name) for name in names if mark_rank(name)} - {""}
    folders = {folder for folder in marked if _enclosing(folder, marked) is None}
    found: dict[str | None, list[str]] = {}
    for name in names:
        found.setdefault(_enclosing(name, folders), []).append(name)
    return found


def _enclosing(name: str, folders: set[str]) -> str | None:
    at = folder_of(name)
    while at and at not in folders:
        at = folder_of(at)
    return at or None


def mark_rank(name: str) -> int:
    """Place of a file of a checkpoint in the order of uploads: 0 for data, more for MARKS."""
    last = name.rpartition("/")[2]
    return MARKS.index(last) + 1 if last in MARKS else 0


def in_download_order(names: Iterable[str]) -> list[str]:
    """Names with the files first that name others."""
    return sorted(names, key=lambda name: (-1 if (rank := record_rank(name)) is None else rank, name), reverse=True)
