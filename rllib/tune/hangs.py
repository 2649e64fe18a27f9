"""Trials that hang: whose process has not answered for longer than their time allows.

A trial that does not answer reports nothing either, so no stop criterion ever sees it. What has a bound in time is
therefore watched by the clock as well: a call that takes a trial beyond `stop={"time_total_s": ...}`, and beyond a
grace that its usual steps are given, is never waited for any longer.
"""

import time
from collections.abc import Mapping

from rllib.tune.trial_pool import Live

# A trial has at least so long to answer after its time is over.
GRACE_S = 5.0
_DOING = {"start": "its setup", "reset": "its setup", "step": "a step", "save": "saving", "close": "its cleanup"}


def time_limit_s(stop) -> float | None:
    """The time_total_s of a trial in `stop`, a dict or a list with such; the least of several, None without."""
    if isinstance(stop, Mapping):
        limit = stop.get("time_total_s")
        return float(limit) if limit is not None else None
    if isinstance(stop, (list, tuple)):
        return min((limit for one in stop if (limit := time_limit_s(one)) is not None), default=None)
    return None


def overdue(live: Live, limit_s: float | None) -> str | None:
    """Why a trial is not to be waited for any longer, as words; None: it is, or has answered already.

    Time counts as `time_total_s` does, by steps: setup has as long again, and waiting for its turn costs nothing. The
    grace is as long as its last step, so that one which ends a bit late still has its result taken.
    """
    if limit_s is None or not live.calls or live.ending is not None:
        return None
    last = live.trial.last_result
    used_s = last.get("time_total_s", 0.0) if live.calls[0][0] != "start" else 0.0
    grace_s = max(GRACE_S, last.get("time_this_iter_s", 0.0))
    if used_s + time.monotonic() - live.asked_at < limit_s + grace_s or live.has_answered():
        return None
    return f"time_total_s >= {limit_s:,.10g}: it hung in {doing(live)} and was killed"


def doing(live: Live) -> str:
    """What it was asked and has not answered, as words."""
    return _DOING.get(live.calls[0][0], "its end") if live.calls else "its end"
