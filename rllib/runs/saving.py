"""When a run that has no number of iterations between its checkpoints is saved."""

# After the first iteration, and then when it is twice as old as at the last time, at intervals between these: a run
# that fails has a checkpoint, and loses half of its time at most.
MIN_SAVE_S, SAVE_EVERY_S = 5.0, 300.0


def is_save_due(age_s: float, saved_s: float | None) -> bool:
    """Whether a run is to be saved.

    Args:
        age_s: seconds since it began.
        saved_s: the same at its newest checkpoint; None: there is none.
    """
    return saved_s is None or age_s - saved_s >= min(SAVE_EVERY_S, max(MIN_SAVE_S, saved_s))
