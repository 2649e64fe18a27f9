"""Checkpoints of the trials of an experiment: when they are due, and which are kept."""

from collections.abc import Callable
from pathlib import Path

from rllib.tune.experiment.records import checkpoint_record, removed_record
from rllib.tune.experiment.spec import CheckpointConfig
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.running import instructions


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
        """Whether checkpoint_freq asks for a checkpoint of the last result."""
        frequency = self._config.checkpoint_frequency
        return bool(frequency) and trial.last_result["training_iteration"] % frequency == 0

    def take(self, trial: Trial, path: str) -> None:
        """Adds a checkpoint of the trial's last result, which has been written to this directory."""
        numbers = {key: stats["last"] for key, stats in trial.metric_analysis.items()}
        iteration = trial.last_result.get("training_iteration", 0)
        self.add(trial, TrialCheckpoint(Path(path).name, iteration, numbers))

    def add(self, trial: Trial, checkpoint: TrialCheckpoint) -> None:
        """Adds a checkpoint that lies in the trial's directory, and removes those that it makes superfluous."""
        trial.checkpoints.append(checkpoint)
        self._do(instructions.Record(checkpoint_record(trial, checkpoint)))
        self._do(instructions.CallHook("on_checkpoint", trial, {"checkpoint": checkpoint}))
        for old in self._config.superfluous(trial.checkpoints):
            trial.checkpoints.remove(old)
            self._do(instructions.Record(removed_record(trial, old)))
            self._do(instructions.Remove(trial, old))
