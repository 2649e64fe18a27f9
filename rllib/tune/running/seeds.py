"""A trial of several seeds: the trainable runs once for each, and its results are their medians.

Searcher, scheduler, stop criteria and checkpoints see one trial. Each seed has its own process. A result is made
of the seeds' results at equal steps: seeds that are ahead count with their last result up to the steps of the slowest.
A checkpoint has a part of each seed, seed_N, and medians.json: the results of seeds that are ahead.
"""

import json
import logging
import os
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import runtime
from rllib.errors import DamagedFileError
from rllib.registered import REGISTRIES
from rllib.runs.entries import SEEDS, plain, scalar
from rllib.storage.encoding import decode, encode
from rllib.storage.foreign_files import WRONG_FORM, json_object, read_inside
from rllib.storage.signatures import run_key
from rllib.tune.running.actor import Definition, TrialActor
from rllib.tune.trainables.checkpoint import put_in_place, temporary_directory
from rllib.tune.trainables.resources import Resources
from rllib.tune.trainables.session import TrialContext
from rllib.tune.trainables.trainable import Trainable
from runtime.errors import RuntimeFailure
from runtime.util.closing import CLOSE_S, Closable, close_and_kill

logger = logging.getLogger(__name__)

_STEPS = "timesteps_total"
# Sections of which each seed's numbers are in results, next to the numbers at the top.
_SECTIONS = ("evaluation", "custom_metrics")
# Of each seed's own process, or counted again for the trial.
_OF_A_PROCESS = frozenset((
    "training_iteration", "time_this_iter_s", "time_total_s", "time_since_restore", "iterations_since_restore",
    "timesteps_since_restore", "timesteps_this_iter", "episodes_this_iter", "done", "timestamp", "date", "pid",
    "hostname", "node_ip", "trial_id", "experiment_tag", "config",
))  # fmt: skip
# The seed of a trial has more time to close (seconds) than its own workers have.
SEED_CLOSE_S = CLOSE_S + 2
_MEDIANS = "medians.json"


@dataclass(frozen=True)
class SeveralSeeds:
    """Settings of trials with several seeds.

    Attributes:
        trainable_class: class that each seed runs.
        number: number of seeds: the `seed` of the configuration, or 0, and the following.
        request: (configuration) -> resources of one seed.
        chdir_to_trial_dir, log_to_file: as in an ExperimentSpec, for the directory of each seed.
    """

    trainable_class: type[Trainable]
    number: int
    request: Callable[[dict[str, Any]], Resources]
    chdir_to_trial_dir: bool = True
    log_to_file: Any = False

    def trainable(self) -> type["SeedsTrainable"]:
        """The class of the trials."""
        return type(self.trainable_class.__name__, (SeedsTrainable,), {"several": self})

    def resources(self, config: dict[str, Any]) -> Resources:
        """Resources of a trial: those of all seeds. The trial's own process waits for them, and takes none."""
        total = self.request(config).total()
        return Resources({"CPU": 0}, {name: quantity * self.number for name, quantity in total.items()})


class SeedsTrainable(Trainable):
    """Runs a trainable once for each seed; made by `SeveralSeeds`, with `several` set."""

    several: SeveralSeeds

    def setup(self, config: dict[str, Any]) -> None:
        first = config.get("seed") or 0
        self._merger = Merger(range(first, first + self.several.number))
        self._actors: dict[int, Closable] = {}  # by seed; made by the first step, or by a restore
        self._reported: dict[int, str] = {}  # seed -> checkpoint that came with its last result

    def step(self) -> dict[str, Any]:
        self._begin(None)
        answers = self._ask("step", {seed: () for seed in self._merger.unfinished})
        self._reported = {seed: path for seed, (_, path) in answers.items() if path is not None}
        return self._merger.merged({seed: result for seed, (result, _) in answers.items()})

    def train(self) -> dict[str, Any]:
        result = super().train()
        return {"done": True, "no_report": True} if result.get("no_report") else result

    def take_reported(self) -> str | None:
        """Joins the checkpoints that functions have reported, if all seeds have; returns the path, or None."""
        reported, self._reported = self._reported, {}
        if len(reported) < self.several.number:
            return None
        temporary = temporary_directory(self.logdir)
        for seed, path in reported.items():
            os.rename(path, temporary / _name(seed))
        self._write_medians(temporary)
        place = Path(self.logdir) / f"checkpoint_{self._iteration:06d}"
        return str(put_in_place(temporary, place, self._metadata(None, temporary)))

    def save_checkpoint(self, checkpoint_dir: str) -> str:
        self._ask("save", {seed: (str(Path(checkpoint_dir, _name(seed))),) for seed in self._actors})
        self._write_medians(Path(checkpoint_dir))
        return checkpoint_dir

    def load_checkpoint(self, checkpoint: str) -> None:
        """Restores each seed from its own part; from a checkpoint of a single run, all seeds from that."""
        parts = {seed: Path(checkpoint, _name(seed)) for seed in self._merger.seeds}
        are_there = all(part.is_dir() for part in parts.values())
        if are_there:
            self._read_medians(checkpoint)
        self._begin({seed: str(part if are_there else checkpoint) for seed, part in parts.items()})

    def _write_medians(self, directory: Path) -> None:
        (directory / _MEDIANS).write_text(json.dumps(encode(self._merger.get_state())))

    def _read_medians(self, checkpoint: str) -> None:
        try:
            self._merger.set_state(decode(json_object(read_inside(checkpoint, _MEDIANS))))
        except FileNotFoundError:  # of an earlier version: each seed counts with its first result
            return
        except WRONG_FORM as error:
            raise DamagedFileError(f"the checkpoint {checkpoint} is damaged: {_MEDIANS}: {error!r}") from error

    def cleanup(self) -> None:
        actors, self._actors = self._actors, {}
        names = {f"{_name(seed)} of {self.trial_name}": actor for seed, actor in actors.items()}
        close_and_kill(names, SEED_CLOSE_S, logger)

    @classmethod
    def check_export(cls, formats) -> None:
        cls.several.trainable_class.check_export(formats)

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        written = self._ask("export", {seed: (list(export_formats),) for seed in self._actors})
        return {f"{_name(seed)}/{name}": path for seed, paths in written.items() for name, path in paths.items()}

    def _begin(self, restore: Mapping[int, str] | None) -> None:
        """Starts the processes of the seeds, unless they run."""
        if self._actors:
            return
        several = self.several
        registered = [entry for registry in REGISTRIES for entry in registry.entries()]
        definition = Definition(several.trainable_class, registered, several.chdir_to_trial_dir, run_key())
        shared, one = runtime.put(definition), several.request(self.config)
        starts = {}
        for seed in self._merger.seeds:
            directory = Path(self.logdir, _name(seed))
            directory.mkdir(exist_ok=True)
            options = {"oversubscribe": True, "label": f"{self.trial_name} {_name(seed)}", **one.actor_options()}
            self._actors[seed] = Closable(runtime.remote(TrialActor).options(**options).remote(os.getpid()))
            start = restore[seed] if restore else None
            config = {**self.config, "seed": seed}
            starts[seed] = (shared, config, self._context_of(seed, directory, one), start, several.log_to_file)
        self._ask("start", starts)

    def _context_of(self, seed: int, directory: Path, resources: Resources) -> TrialContext:
        outer = self._context
        return TrialContext(
            self.trial_id, f"{self.trial_name}_{_name(seed)}", str(directory),
            outer.experiment_name if outer else "", outer.experiment_tag if outer else "", dict(resources.own),
            bool(outer and outer.load_user_code),
        )  # fmt: skip

    def _ask(self, what: str, arguments: Mapping[int, Sequence]) -> dict[int, Any]:
        """Calls a method of the seeds' processes at the same time.

        Raises:
            the exception of the first seed that fails, with a note that names the seed.
        """
        asked = {getattr(self._actors[seed].handle, what).remote(*given): seed for seed, given in arguments.items()}
        answers, pending = {}, list(asked)
        while pending:
            done, pending = runtime.wait(pending)
            for reference in done:
                try:
                    answers[asked[reference]] = runtime.get(reference)
                except RuntimeFailure as failure:
                    cause = getattr(failure, "cause", None) or failure
                    cause.add_note(f"This was seed {asked[reference]}, and the trial ends with it.")
                    raise cause from failure
        return {seed: answers[seed] for seed in arguments}


def _name(seed: int) -> str:
    """Name of a seed's directory, in the trial's and in checkpoints."""
    return f"seed_{seed}"


class Merger:
    """Results of several seeds as one.

    Args:
        seeds: seeds of the trial.

    Attributes:
        seeds: the same.
        unfinished: seeds that are not done.
    """

    def __init__(self, seeds: Sequence[int]):
        self.seeds, self.unfinished = list(seeds), list(seeds)
        # Results of each seed, the oldest first: the newest up to the common steps, and those behind it.
        self._history: dict[int, deque[Mapping[str, Any]]] = {seed: deque() for seed in self.seeds}

    def merged(self, results: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """The medians over all seeds at equal steps, after a further result of each that is not done.

        Args:
            results: of the unfinished seeds.

        Returns:
            numbers as medians without NaN, lists one after the other, else the first seed's values; "timesteps_total":
            the common steps, those of the slowest of `results`; "seeds": seed -> its numbers there; "done", when all
            seeds are. If all are functions that have returned without a report: {"done": True, "no_report": True}.
        """
        reports = {seed: result for seed, result in results.items() if not result.get("no_report")}
        for seed, result in reports.items():
            self._history[seed].append(result)
        self.unfinished = [seed for seed in self.unfinished if not results[seed].get("done")]
        if not reports:  # functions that have returned
            return {"done": True, "no_report": True}
        steps = _common_steps(reports.values())
        chosen = self._at(steps)
        common = median_of(list(map(_shared, chosen.values())))
        numbers = {str(seed): _numbers(result) for seed, result in chosen.items()}
        merged = {**common, SEEDS: numbers}
        if steps is not None:
            merged[_STEPS] = steps
        return {**merged, "done": True} if not self.unfinished else merged

    def get_state(self) -> dict[str, Any]:
        """The unfinished seeds, and the results that further medians need, as data that JSON can hold."""
        history = {seed: [_as_data(_shared(result)) for result in results] for seed, results in self._history.items()}
        return {"unfinished": self.unfinished, "history": history}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores a state of `get_state`. Seeds that were all done then continue, as a single run does."""
        self.unfinished = [seed for seed in self.seeds if seed in state["unfinished"]] or list(self.seeds)
        self._history = {seed: deque(map(dict, state["history"][seed])) for seed in self.seeds}

    def _at(self, steps: float | None) -> dict[int, Mapping[str, Any]]:
        """The newest result of each seed up to these steps, or else its first; earlier ones are forgotten."""
        for history in self._history.values():
            while len(history) > 1 and (steps is None or history[1].get(_STEPS, 0) <= steps):
                history.popleft()
        return {seed: history[0] for seed, history in self._history.items() if history}


def _shared(result: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a seed's result that count for the trial."""
    return {key: value for key, value in result.items() if key not in _OF_A_PROCESS}


def _common_steps(results: Iterable[Mapping[str, Any]]) -> float | None:
    """The steps that all results have reached; None if they do not count steps."""
    steps = [result.get(_STEPS) for result in results]
    return None if None in steps else min(steps)


def median_of(values: Sequence) -> Any:
    """The median of numbers, key by key in mappings; lists one after the other; else the first value."""
    first = scalar(values[0])
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for value in values if isinstance(value, Mapping) for key in value)
        having = {key: [value[key] for value in values if isinstance(value, Mapping) and key in value] for key in keys}
        return {key: median_of(of_key) for key, of_key in having.items()}
    if isinstance(first, list):
        return [item for value in values if isinstance(value, list) for item in value]
    numbers = [number for number in map(scalar, values) if _is_number(number)]
    if not _is_number(first) or not numbers:
        return first
    return statistics.median([number for number in numbers if number == number] or [first])


def _as_data(value) -> Any:
    """The value as data: scalars as Python's own numbers, and objects that are no data as JSON shows them."""
    value = scalar(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): _as_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_as_data, value))
    is_data = value is None or type(value) in (bool, int, float, str)
    return value if is_data or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf") else plain(value)


def _numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a seed's result, at its top and in sections."""
    numbers = {key: number for key, value in result.items()
               if key not in _OF_A_PROCESS and _is_number(number := scalar(value))}  # fmt: skip
    sections = {key: _numbers(result[key]) for key in _SECTIONS if isinstance(result.get(key), Mapping)}
    return numbers | sections


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
