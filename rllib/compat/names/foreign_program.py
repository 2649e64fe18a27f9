"""Whether this process runs a program that was written for another library, under its import hook.

Some checks of this library have no counterpart there. A program that runs unchanged has never been held to them, so
they warn where a program of this library is refused.
"""

_is_running = False


def mark() -> None:
    """Says that this process runs such a program; import hooks call it, in workers too."""
    global _is_running
    _is_running = True


def is_running() -> bool:
    """Whether `mark` was called."""
    return _is_running
