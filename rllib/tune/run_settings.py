"""How the trials of an experiment are run."""

from dataclasses import dataclass

from rllib.tune.stoppers import Stopper


@dataclass
class RunSettings:
    """How trials are run.

    Attributes:
        stopper: decides when a trial, or the whole experiment, ends.
        metric, mode: by which trials are compared; None where nobody compares.
        trial_time_s: of which a trial that does not answer has had enough, as time_total_s; None: it is waited for.
        num_samples: how many configurations a searcher is asked for; -1: as many as the time allows.
        checkpoint_freq: iterations between checkpoints; 0: none.
        checkpoint_at_end: a checkpoint when the trial ends.
        max_failures: how often a trial may fail and go on from its last checkpoint; -1: always.
        fail_fast: the first trial that fails for good ends the experiment; "raise": with its own exception.
        time_budget_s: for the experiment; None: as long as it takes.
        max_concurrent: trials at once; 0: as many as fit.
        export_formats: what a trial that ends in order exports.
        restore: directory of a checkpoint from which every trial starts.
    """

    stopper: Stopper
    metric: str | None = None
    mode: str | None = None
    trial_time_s: float | None = None
    num_samples: int = 1
    checkpoint_freq: int = 0
    checkpoint_at_end: bool = False
    max_failures: int = 0
    fail_fast: bool | str = False
    time_budget_s: float | None = None
    max_concurrent: int = 0
    export_formats: tuple[str, ...] = ()
    restore: str | None = None
