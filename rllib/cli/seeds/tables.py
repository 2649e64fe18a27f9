"""Displays of several seeds side by side, a row for each: redrawn on a terminal, else printed at growing intervals."""

from collections.abc import Sequence
from datetime import timedelta

from rllib.progress import elapsed, number
from rllib.tune.experiment.stoppers import ThresholdStopper
from rllib.tune.experiment.trial import Trial
from rllib.tune.reporting.reporters import CLIReporter, LiveReporter, TuneReporterBase

_HEADINGS = ["seed", "status", "iter", "time", "steps", "steps/s", "return", "goal"]


class SeedTable(TuneReporterBase):
    """Base of the tables.

    Args:
        title: title of the run.
        stop: whose goal the last column measures.

    Attributes:
        note: a sentence next to the title.
    """

    def __init__(self, title: str, stop: ThresholdStopper, **more):
        super().__init__(parameter_columns=["seed"], max_progress_rows=1000, **more)
        self.note = ""
        self._title, self._stop = title, stop
        # Progress towards a return counts from a seed's own first return.
        self._stops: dict[str, ThresholdStopper] = {}

    def rows(self, trials: Sequence[Trial], most: int | None = None) -> tuple[list[str], list[list[str]], int]:
        shown = self._chosen(trials, min(self._max_rows, most or self._max_rows))
        return _HEADINGS, [self._row(trial) for trial in shown], len(trials) - len(shown)

    def _row(self, trial: Trial) -> list[str]:
        result = trial.last_result
        stop = self._stops.setdefault(trial.trial_id, ThresholdStopper(self._stop.thresholds))
        return [
            str(trial.config["seed"]),
            trial.status,
            number(result.get("training_iteration"), 0),
            elapsed(result["time_total_s"]) if result else "-",
            number(result.get("timesteps_total"), 0),
            number(result.get("num_env_steps_sampled_throughput_per_sec"), 0),
            number(result.get("episode_reward_mean")),
            f"{stop.progress(result):.0%}" if stop.thresholds else "-",
        ]

    def _headline(self, trials, status, done) -> str:
        ended = sum(trial.is_finished for trial in trials)
        clock = timedelta(seconds=int(status["elapsed_s"]))
        return f"{self._title}: {ended} of {len(trials)} ended, {clock}{self.note and f'. {self.note}'}"

    def summary(self, trials, status) -> list[str]:
        return [self._headline(trials, status, False), f"Results in {status['directory']}"]


class SeedLines(SeedTable, CLIReporter):
    """A table of text."""


class LiveSeeds(SeedTable, LiveReporter):
    """A table that is redrawn."""
