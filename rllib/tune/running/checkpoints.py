"""Checkpoints of the trials of an experiment: when they are due, which are kept, and takeovers (PBT)."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rllib.tune.experiment.records import checkpoint_record, exploit_record, removed_record
from rllib.tune.experiment.spec import CheckpointConfig
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.running import instructions
from rllib.tune.running.running_trial import RunningTrial
from rllib.tune.states import TERMINATED

logger = logging.getLogger(__name__)


class Checkpoints:
    """Keeps account of the checkpoints of all trials.

    Args:
        config: when trials are saved, and which checkpoints are kept.
        do: takes the instructions that follow.
    """

    def __init__(self, config: CheckpointConfig, do: Callable[[tuple], None]):
        self._config, self._do = config, do
        self.at_end = config.checkpoint_at_end

    def is_due(self, trial: Trial) -> bool:
        """Whether the settings ask for a checkpoint of the last result."""
        return self._config.is_due(trial.last_result, trial.checkpoints)

    def take(self, trial: Trial, path: str) -> None:
        """Adds a checkpoint of the trial's last result, which has been written to this directory."""
        numbers = {key: stats["last"] for key, stats in trial.metric_analysis.items()}
        iteration = trial.last_result.get("training_iteration", 0)
        self.add(trial, TrialCheckpoint(Path(path).name, iteration, numbers))

    def add(self, trial: Trial, checkpoint: TrialCheckpoint) -> None:
        """Adds a checkpoint that lies in the trial's directory, and removes checkpoints that are no longer kept."""
        trial.checkpoints.append(checkpoint)
        self._do(instructions.Record(checkpoint_record(trial, checkpoint)))
        self._do(instructions.CallHook("on_checkpoint", trial, {"checkpoint": checkpoint}))
        self._remove_superfluous(trial)

    def _remove_superfluous(self, trial: Trial) -> None:
        """Removes a checkpoint and records it after that: one that is recorded and missing is found by `go_back`.

        One that is there without a record would count as written after all others.
        """
        for old in self._config.superfluous(trial.checkpoints):
            trial.checkpoints.remove(old)
            self._do(instructions.Remove(trial, old))
            self._do(instructions.Record(removed_record(trial, old)))

    def go_back(self, trial: Trial, results: Sequence[Mapping], found: list[TrialCheckpoint]) -> None:
        """Takes the trial back to the results and checkpoints that its files have; the journal has the same then.

        A process, or the driver, may have died between the writing of a checkpoint and its record. Without a record it
        would count as newer than all others, also than a state that the trial takes over later.
        """
        known, there = ({each.name for each in checkpoints} for checkpoints in (trial.checkpoints, found))
        for checkpoint in trial.checkpoints:
            if checkpoint.name not in there:
                self._do(instructions.Record(removed_record(trial, checkpoint)))
        for checkpoint in found:
            if checkpoint.name not in known:
                self._do(instructions.Record(checkpoint_record(trial, checkpoint)))
        trial.go_back(results, found)
        self._remove_superfluous(trial)  # the driver may have died before it did


class Takeover(NamedTuple):
    """A trial is to continue from the newest checkpoint of `source`, with this configuration.

    `is_live`: whether the source was running when that was decided. One that has ended since is not taken over: it is
    at its end, and not where it was.
    """

    trial: Trial
    source: Trial
    config: dict
    is_live: bool = False


class Takeovers:
    """Takeovers of an experiment: each waits until neither of its two trials is being saved.

    Until it is carried out or called off, its trial does not start, and a running one does not step: the results of its
    own state would follow those that the scheduler has seen, and come a second time from the state taken over.

    Args:
        running: trial id -> trial that has a process; kept up to date by the caller.
        is_function: whether the trainable is a function, which saves its own checkpoints.
        do: takes the instructions that follow.
        warn_once: (topic, message) -> None.
    """

    def __init__(
        self,
        running: Mapping[str, RunningTrial],
        is_function: bool,
        do: Callable[[tuple], None],
        warn_once: Callable[[str, str], None],
    ):
        self._running, self._is_function, self._do, self._warn_once = running, is_function, do, warn_once
        self._waiting: dict[str, list[Takeover]] = {}  # id of a trial that is being saved -> what waits for it
        self._to_come: Counter[str] = Counter()  # trial id -> takeovers that are neither carried out nor called off

    def state_of(self, source: Trial) -> Mapping[str, float] | None:
        """Numbers of the state that a takeover from this trial would copy (see `Runner.saved_state`)."""
        running = self._running.get(source.trial_id)
        if running and not self._is_function and (running.ending is None or running.ending[0] == "PAUSED"):
            return None
        if source.checkpoint is None:
            self._warn_once(f"state {source}", f"{source} has no checkpoint for another trial to continue from")
            return {}
        return source.checkpoint.metrics

    def begin(self, takeover: Takeover) -> None:
        """Saves the source, if it runs and has news, and takes its checkpoint over when that is done."""
        trial, source, config, _ = takeover
        self._to_come[trial.trial_id] += 1
        saves = self._running.get(source.trial_id)
        if saves and saves.ending is None and not (source.is_saved or self._is_function or saves.is_saving):
            saves.save()
        if self._is_saving(source) or self._is_saving(trial):
            self._do(instructions.Record(exploit_record(trial, source, config)))
        self._carry_out(takeover._replace(is_live=saves is not None and saves.ending is None))

    def is_to_come(self, trial: Trial) -> bool:
        """Whether the trial is to take over the state of another one."""
        return self._to_come[trial.trial_id] > 0

    def adopted(self, trial: Trial) -> None:
        """A takeover has been carried out."""
        self._to_come[trial.trial_id] -= 1

    def release(self, trial: Trial) -> None:
        """Carries out takeovers that have waited for this trial to be saved, or to end."""
        for takeover in self._waiting.pop(trial.trial_id, []):
            self._carry_out(takeover)

    def _is_saving(self, trial: Trial) -> bool:
        running = self._running.get(trial.trial_id)
        return running is not None and running.is_saving

    def _has_ended(self, source: Trial) -> bool:
        running = self._running.get(source.trial_id)
        ending = running.ending[0] if running and running.ending else source.status
        return ending == TERMINATED

    def _carry_out(self, takeover: Takeover) -> None:
        trial, source, config, is_live = takeover
        for blocking in (source, trial):
            if self._is_saving(blocking):
                self._waiting.setdefault(blocking.trial_id, []).append(takeover)
                return
        if trial.is_finished:
            return
        called_off = is_live and self._has_ended(source)
        if source.checkpoint is not None and not called_off:
            self._do(instructions.Adopt(trial, source, config))
            return
        if called_off:
            logger.info("%s has ended before %s could take over its state, and continues with its own", source, trial)
        else:
            self._warn_once(f"exploit {source}", f"{source} has no checkpoint that {trial} could continue from")
        self._to_come[trial.trial_id] -= 1
        running = self._running.get(trial.trial_id)
        if running and running.ending is None and not running.calls:
            running.ask("step")
