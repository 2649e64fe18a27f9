"""An experiment that goes on: what searcher, scheduler and trials knew is put back."""

from rllib.tune.experiment import ExperimentDirectory
from rllib.tune.trial import ERROR, TERMINATED, Trial
from rllib.tune.trial_runner import TrialRunner


def take_up(runner: TrialRunner, directory: ExperimentDirectory, resume) -> None:
    """Puts the trials of the journal, and what searcher and scheduler knew, into the runner."""
    if not directory.trials:
        return
    snapshot = directory.read_snapshot()
    if snapshot:
        runner.searcher.set_state(snapshot["searcher"])
        runner.scheduler.set_state(snapshot["scheduler"])
    again = {"ERRORED_ONLY", "AUTO+ERRORED", "RESTART_ERRORED"}
    only_errored = resume == "ERRORED_ONLY"

    def runs_again(trial: Trial) -> bool:
        if trial.status == ERROR:
            return resume in again
        return trial.status != TERMINATED and not only_errored

    runner.resume(directory.trials, runs_again)
    for trial in directory.trials[snapshot.get("num_trials", 0) :]:
        _replay(runner, trial)


def _replay(runner: TrialRunner, trial: Trial) -> None:
    """The searcher catches up with a trial that it suggested after its state was last written."""
    suggested = runner.searcher.suggest(trial.trial_id)
    if suggested != trial.config:
        runner.searcher.on_trial_complete(trial.trial_id, error=True)
    elif trial.is_finished:
        runner.searcher.on_trial_complete(trial.trial_id, trial.last_result, error=trial.status == ERROR)
