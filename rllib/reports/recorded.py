"""What the files of runs say of them, for a report."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rllib.cli.run_directory import BEST, SEEDS
from rllib.dashboard import details
from rllib.dashboard.index import Index
from rllib.dashboard.result_file import read_object
from rllib.errors import DamagedFileError
from rllib.notices import why_raised
from rllib.runs.entries import is_number, lookup
from rllib.runs.files import UNREADABLE
from rllib.starts import read_starts
from rllib.storage.checkpoint import read_manifest
from rllib.tune.experiment.directory import JOURNALS
from rllib.tune.reporting.runs import Run

VIDEOS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
_EVALUATION = "evaluation"


@dataclass
class Evaluation:
    """The newest evaluation of a run.

    Attributes:
        steps: of the run at that time; None if they are unknown.
        numbers: return and others by their keys.
    """

    steps: float | None
    numbers: dict[str, float]


@dataclass
class Facts:
    """What is recorded of a run.

    Attributes:
        run: results and settings.
        status, reason: as the dashboard has them.
        starts: the oldest first; of a trial those of its experiment.
        versions: versions of libraries, by its newest checkpoint; {} without one.
        checkpoints: name, iteration, size and time of each, the newest first.
        best: content of best.json; {} without it.
        evaluation: the newest; None if there was none.
        error: the exception in error.txt; "" if it has not failed.
        problems: sentences about damaged files.
    """

    run: Run
    status: str = "unknown"
    reason: str = ""
    starts: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    error: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest result; {} before the first."""
        return self.run.results[-1] if self.run.results else {}

    def number(self, key: str) -> float | None:
        """A number of the newest result."""
        value = lookup(self.last, key)
        return value if is_number(value) else None

    @property
    def hosts(self) -> list[str]:
        """Names of the machines on which results were made."""
        return list(dict.fromkeys(str(result["hostname"]) for result in self.run.results if result.get("hostname")))


def facts_of(runs: Sequence[Run]) -> list[Facts]:
    """Reads the files of runs."""
    indices: dict[Path, dict[Path, Any]] = {}
    found = []
    for run in runs:
        root = _root(run.place)
        if root not in indices:
            index = Index(root)
            index.refresh(budget_s=0.0)
            indices[root] = {each.path.resolve(): each for each in index.runs.values() if each.path}
        found.append(_facts(run, indices[root].get(run.place.resolve())))
    return found


def videos_of(runs: Sequence[Run]) -> list[Path]:
    """Videos in the directories of runs, and in those that were named, and the newest of each run's evaluations."""
    found: list[Path] = []
    for place in dict.fromkeys(place for run in runs for place in (run.given, run.place)):
        found += [*_videos_in(place), *_videos_in(place / "videos")[-1:]]
    return found


def _videos_in(place: Path) -> list[Path]:
    """Videos in a directory, by name; no links."""
    if place.is_symlink() or not place.is_dir():
        return []
    with os.scandir(place) as entries:
        files = [Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False)]
    return sorted(path for path in files if path.suffix.lower() in VIDEOS)


def _root(place: Path) -> Path:
    """The directory by which the state of a run is known: of a trial its experiment's."""
    parent = place.resolve().parent
    return parent if (parent / SEEDS).is_file() or any(parent.glob(JOURNALS)) else place.resolve()


def _facts(run: Run, known: Any) -> Facts:
    facts = Facts(run, evaluation=_evaluation(run.results))
    facts.starts = read_starts(run.place) or read_starts(_root(run.place))
    facts.best = _object(run.place / BEST)
    if known is None:
        return facts
    facts.status, facts.reason = known.row["status"], known.row["reason"]
    facts.problems = list(known.row["problems"])
    facts.checkpoints = details.checkpoints(known)
    if facts.checkpoints:
        facts.versions = _versions(run.place / facts.checkpoints[0]["name"])
    if facts.status == "failed":
        facts.error = _why_raised(run.place) or facts.reason
    return facts


def _evaluation(results: Sequence[Mapping[str, Any]]) -> Evaluation | None:
    for result in reversed(results):
        numbers = result.get(_EVALUATION)
        if isinstance(numbers, Mapping) and is_number(lookup(numbers, "episode_reward_mean")):
            steps = lookup(result, "timesteps_total")
            known = {key: value for key, value in numbers.items() if is_number(value)}
            return Evaluation(steps if is_number(steps) else None, known)
    return None


def _versions(checkpoint: Path) -> dict[str, str]:
    try:
        versions = read_manifest(checkpoint).get("versions")
    except (OSError, ValueError, *UNREADABLE):
        return {}
    return {str(name): str(version) for name, version in versions.items()} if isinstance(versions, Mapping) else {}


def _object(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except (OSError, *UNREADABLE):
        return {}


def _why_raised(place: Path) -> str:
    try:
        text, _ = details.tail(place / "error.txt")
    except (OSError, DamagedFileError):
        return ""
    return why_raised(text)
