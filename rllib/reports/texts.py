"""Numbers and dates as text, a dash where there is none."""

from datetime import UTC, datetime
from typing import Any

from rllib.tune.reporting.comparison import written


def numeral(value: float | None) -> str:
    return "-" if value is None else written(value)


def whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def moment(time_s: Any) -> str | None:
    try:
        return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M} UTC"
    except (TypeError, ValueError, OSError, OverflowError):
        return None
