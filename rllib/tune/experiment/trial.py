"""One trial of an experiment: its configuration, state, results and checkpoints, and the paths of its files."""

import math
import re
import sys
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rllib.result import ByAllNames, Result, as_result
from rllib.runs.entries import flatten
from rllib.runs.naming import names_of_keys, short
from rllib.tune.states import FINISHED, PENDING
from rllib.tune.trainables.resources import Resources

# Characters of a directory's name; file systems take 255 bytes, and paths of 4096 hold a few levels more.
_LONGEST_NAME = 120


@dataclass
class TrialCheckpoint:
    """A checkpoint directory of a trial.

    Attributes:
        name: name of the directory inside the trial's.
        iteration: training_iteration at which it was made.
        metrics: numbers of the trial's last result then, by "a/b" path or a name of later versions.
    """

    name: str
    iteration: int
    metrics: dict[str, float] = field(default_factory=dict)

    def __post_init__(self):
        self.metrics = ByAllNames(self.metrics)


class MetricAnalysis:
    """Statistics of every number that a trial has reported: max, min, avg, last, last-5-avg, last-10-avg.

    NaN counts as no report, except in `last`. An experiment keeps this for thousands of trials: settled statistics are
    packed into one array of doubles, under keys that trials with the same metrics share.
    """

    STATISTICS = ("max", "min", "avg", "last", "last-5-avg", "last-10-avg")

    def __init__(self):
        self._packed: tuple[tuple[str, ...], array] | None = None
        self._stats: dict[str, dict[str, float]] = {}
        self._recent: dict[str, deque] = {}
        self._counts: dict[str, int] = {}

    def add(self, numbers: Mapping[str, float]) -> None:
        if self._packed is not None:
            self._stats, self._packed = self.stats, None
        for key, value in numbers.items():
            stats = self._stats.get(key)
            if stats is None:
                stats = self._stats[key] = {"max": math.nan, "min": math.nan, "avg": math.nan, "last": value}
                stats["last-5-avg"] = stats["last-10-avg"] = math.nan
            stats["last"] = value
            if math.isnan(value):
                continue
            count = self._counts[key] = self._counts.get(key, 0) + 1
            if count == 1:
                stats["max"] = stats["min"] = stats["avg"] = value
                recent = self._recent[key] = deque(maxlen=10)
            else:
                stats["max"], stats["min"] = max(stats["max"], value), min(stats["min"], value)
                mean = stats["avg"]
                are_finite = math.isfinite(value) and math.isfinite(mean)
                stats["avg"] += (value - mean) / count if are_finite else value  # inf - inf would be NaN
                recent = self._recent[key]
            recent.append(value)
            last = list(recent)
            stats["last-10-avg"] = sum(last) / len(last)
            stats["last-5-avg"] = sum(last[-5:]) / len(last[-5:])

    def settle(self) -> None:
        """Packs the statistics, after the last result."""
        self._recent, self._counts = {}, {}
        if self._stats:
            keys = tuple(self._stats)
            values = array("d", [s[name] for s in self._stats.values() for name in self.STATISTICS])
            self._packed, self._stats = (_shared_keys.setdefault(keys, keys), values), {}

    @property
    def stats(self) -> dict[str, dict[str, float]]:
        """Metric -> statistic -> value."""
        if self._packed is None:
            return self._stats
        keys, values = self._packed
        count = len(self.STATISTICS)
        return {
            key: dict(zip(self.STATISTICS, map(_number, values[i * count : (i + 1) * count])))
            for i, key in enumerate(keys)
        }


# Metrics of settled trials; one entry for each kind of results.
_shared_keys: dict[tuple[str, ...], tuple[str, ...]] = {}


def _number(value: float) -> float | int:
    """A whole number as an int again."""
    return int(value) if value.is_integer() else value


@dataclass(eq=False, repr=False)
class Trial:
    """One configuration and its run.

    Attributes:
        trial_id: unique in the experiment, and in the order of creation.
        index: 0, 1, ... in the order of creation.
        trainable_name: name of the trainable.
        config: resolved configuration.
        evaluated_params: "a/b" path -> value that the search has chosen.
        experiment_dir: directory of the experiment, in which the trial's directory lies.
        resources: resources that it needs to run.
        custom_name: replaces the name that is made of the parameters.
        status: PENDING, RUNNING, PAUSED, TERMINATED or ERROR.
        last_result: the newest result; {} before the first.
        checkpoints: the oldest first.
        error: traceback of the last failure; None without one.
        num_failures: number of failures.
        stopped_by: reason for its end, in words; None while it runs, and if the trainable itself was done.
        pid: id of its process, while it runs.
        seed: drawn by an algorithm whose configuration has none; params.json has it.
        infinite: iteration -> numbers of that result that are infinite, by "a/b" path. Its files have null there.
    """

    trial_id: str
    index: int
    trainable_name: str
    config: dict[str, Any]
    evaluated_params: dict[str, Any] = field(default_factory=dict)
    experiment_dir: Path = Path()
    resources: Resources = field(default_factory=Resources.default)
    custom_name: str | None = None
    status: str = PENDING
    last_result: dict[str, Any] = field(default_factory=dict)
    analysis: MetricAnalysis = field(default_factory=MetricAnalysis)
    checkpoints: list[TrialCheckpoint] = field(default_factory=list)
    error: str | None = None
    exception: BaseException | None = None
    num_failures: int = 0
    stopped_by: str | None = None
    pid: int | None = None
    hostname: str = ""
    seed: int | None = None
    infinite: dict[int, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self):
        # "3_lr=0.01,layers=2": the number, and the end of each path, such as no other one has, with its value.
        names = names_of_keys(self.evaluated_params)
        chosen = ",".join(f"{names[key]}={short(value)}" for key, value in self.evaluated_params.items())
        self.experiment_tag = f"{self.index}_{chosen}" if chosen else str(self.index)
        portable = re.sub(r"[^A-Za-z0-9.,=+-]+", "_", f"{self.identifier}_{self.experiment_tag}")
        self.dirname = portable[:_LONGEST_NAME].rstrip("._") or "trial"

    @property
    def identifier(self) -> str:
        """The trainable and its environment, as in "PPO_CartPole-v1"."""
        env = self.config.get("env") if isinstance(self.config, Mapping) else None
        env = env if isinstance(env, str) else getattr(env, "__name__", "") if env is not None else ""
        return f"{self.trainable_name}_{env}" if env else self.trainable_name

    @property
    def name(self) -> str:
        """Name for people: trainable, environment, number and the chosen parameters."""
        return self.custom_name or f"{self.identifier}_{self.experiment_tag}"

    @property
    def logdir(self) -> str:
        return str(self.experiment_dir / self.dirname)

    local_path = path = logdir

    @property
    def local_dir(self) -> str:
        """Directory of the experiment, in which the trial's directory lies."""
        return str(self.experiment_dir)

    local_experiment_path = local_dir

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """Metric, by any of its names -> statistic -> value, over all its results."""
        return ByAllNames(self.analysis.stats)

    @property
    def checkpoint(self) -> TrialCheckpoint | None:
        """The newest checkpoint."""
        return self.checkpoints[-1] if self.checkpoints else None

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to restore the trial from."""
        return bool(self.checkpoints)

    def checkpoint_path(self, checkpoint: TrialCheckpoint) -> str:
        return str(Path(self.logdir) / checkpoint.name)

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    @property
    def error_file(self) -> str | None:
        """Path of error.txt, if it has failed."""
        return str(Path(self.logdir) / "error.txt") if self.error else None

    @property
    def is_saved(self) -> bool:
        """Whether there is a checkpoint of its last result."""
        checkpoint = self.checkpoint
        return bool(checkpoint) and checkpoint.iteration == self.last_result.get("training_iteration")

    def checkpoint_path_at(self, iteration: int) -> str:
        """Directory of a new checkpoint after this iteration."""
        return str(Path(self.logdir) / f"checkpoint_{iteration:06d}")

    def take(self, result: dict[str, Any]) -> None:
        """Makes a result the last one, and adds its numbers, by "a/b" path, to the statistics."""
        self.last_result = as_result(result)
        numbers = numbers_in(result)
        if infinite := {key: value for key, value in numbers.items() if value in (math.inf, -math.inf)}:
            self.infinite[result.get("training_iteration", 0)] = infinite
        self.analysis.add(numbers)

    def go_back(self, results: Sequence[Mapping[str, Any]], checkpoints: list[TrialCheckpoint]) -> None:
        """Replaces all results and checkpoints by these, the oldest first."""
        self.checkpoints = checkpoints
        self.last_result, self.analysis = {}, MetricAnalysis()
        for result in results:
            self.take({**result, "config": self.config})

    def is_done(self) -> None:
        """Marks the last result as the final one."""
        self.last_result = Result({**self.last_result, "done": True})

    def settle(self) -> None:
        """Packs statistics and last result of a trial that has ended. Equal keys of results become one string."""
        self.analysis.settle()
        self.last_result = Result(
            {sys.intern(key) if type(key) is str else key: value for key, value in self.last_result.items()}
        )

    def __str__(self):
        return self.name

    def __repr__(self):
        return f"Trial({self.name}, {self.status})"


def numbers_in(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a result, by "a/b" path."""
    return {
        key: value for key, value in flatten(result) if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
