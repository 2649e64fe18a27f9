"""Whether this process runs a program that was written for another library, under its import hook.

Some checks of this library have no counterpart in the other library, so its programs may not pass them: for these
programs the checks warn, instead of raising an error.
"""

_is_running = False


def mark() -> None:
    """Marks this process as running such a program; import hooks call this function, in workers, too."""
    global _is_running
    _is_running = True


def is_running() -> bool:
    """Whether `mark` was called."""
    return _is_running
