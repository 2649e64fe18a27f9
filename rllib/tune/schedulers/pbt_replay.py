"""Training one trial with the schedule of hyperparameters that population based training has found."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from rllib.tune.schedulers.base import TrialScheduler


class PopulationBasedTrainingReplay(TrialScheduler):
    """Changes a trial's configuration at the iterations at which PBT changed it.

    Args:
        policy_file: pbt_policy_TRIAL.txt of a PBT experiment.

    Raises:
        ValueError: if the file does not exist, or is no policy file of PBT.
    """

    needs_metric = False

    def __init__(self, policy_file: str | os.PathLike):
        super().__init__()
        path = Path(policy_file).expanduser()
        if not path.is_file():
            raise ValueError(
                f"There is no policy file {path}. PBT writes pbt_policy_TRIAL.txt for every changed trial."
            )
        try:
            lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
            # The source's iteration and the configuration from there on.
            self._changes = [(int(line[3]), line[5]) for line in lines]
            self.config = lines[0][4]
        except (ValueError, IndexError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is no policy file of PBT: {type(error).__name__}: {error}") from None
        self._trial_id: str | None = None
        self._num_done = 0

    def on_trial_add(self, runner, trial) -> None:
        """Starts with the first configuration.

        Raises:
            ValueError: if there is more than one trial.
        """
        if self._trial_id not in (None, trial.trial_id):
            raise ValueError("PopulationBasedTrainingReplay replays one trial: use num_samples=1 and no grid_search")
        if self._trial_id is None:
            self._trial_id = trial.trial_id
            trial.config = {**trial.config, **self.config}

    def on_trial_result(self, runner, trial, result: Mapping) -> str:
        due = [config for iteration, config in self._changes if iteration <= self.progress(result)]
        if len(due) <= self._num_done:
            return self.CONTINUE
        self._num_done = len(due)
        runner.exploit(trial, trial, {**trial.config, **due[-1]})
        return self.NOOP

    def debug_string(self) -> str:
        return f"PBT replay: {self._num_done} of {len(self._changes)} changes made"

    def get_state(self):
        return {"trial_id": self._trial_id, "num_done": self._num_done}

    def set_state(self, state) -> None:
        self._trial_id, self._num_done = state["trial_id"], state["num_done"]
