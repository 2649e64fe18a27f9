"""The side of callers: drivers and workers that submit tasks and call actors."""
