"""How a command ends: 0 done, 1 failed, 2 the user's mistake, 130 interrupted; one clear message each."""

import re
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from rllib.storage.foreign_files import printable

EXIT_FAILURE = 1
EXIT_MISTAKE = 2
EXIT_SIGNAL = 128  # plus the signal's number, as shells do

_LIBRARY = Path(__file__).parents[1]
_OWN = (str(_LIBRARY), str(_LIBRARY.with_name("runtime")), str(Path(click.__file__).parent))
# With its lines of code, which are indented further.
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line \d+.*\n(?:    .*\n)*', re.MULTILINE)


class Mistake(click.ClickException):
    """What the user asked for cannot be done; the message says what can."""

    exit_code = EXIT_MISTAKE


@contextmanager
def user_input() -> Iterator[None]:
    """A ValueError or TypeError raised inside is the user's mistake; one that carries notes is their environment's."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if getattr(error, "__notes__", None):
            raise
        raise Mistake(str(error)) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An OSError raised inside that names the path, what is beside it or a directory above is the user's mistake."""
    try:
        yield
    except OSError as error:
        if not isinstance(error.filename, str):  # the disk is full, say
            raise
        named, directory = Path(error.filename).absolute(), path.absolute().parent
        if named != directory and directory not in named.parents and named not in directory.parents:
            raise
        raise Mistake(f"{path} cannot be written: {error.strerror}. Give another place with -o.") from error


@contextmanager
def reported(verbose: bool) -> Iterator[None]:
    """Turns an exception of a command into a message and an exit code.

    A traceback is shown where it is the user's own code that raised, from their first frame on, and with `verbose`.
    """
    try:
        yield
    except click.ClickException as error:
        if verbose:
            traceback.print_exc()
        error.message = printable(error.message)
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_SIGNAL + signal.SIGINT)
    except BrokenPipeError:
        raise  # the reader of the output has gone; click ends quietly
    except Exception as error:
        _show(error, verbose)
        sys.exit(EXIT_FAILURE)


def _show(error: Exception, verbose: bool) -> None:
    if verbose:
        traceback.print_exc()
    elif getattr(error, "__notes__", None):
        told = traceback.TracebackException(type(error), error, _users_frames(error.__traceback__))
        # The traceback that comes from another process ends with the notes.
        told.__notes__ = [note for note in told.__notes__ if str(note) not in str(error)]
        click.echo(printable(_FRAME.sub(_unless_own, "".join(told.format()))).rstrip(), err=True)
    else:
        click.echo(printable(f"Error: {type(error).__name__}: {error}"), err=True)


def _unless_own(frame: re.Match) -> str:
    """A frame of a traceback as text; nothing if it is one of ours, above or below the user's."""
    return "" if frame["file"].startswith(_OWN) else frame[0]


def _users_frames(frames):
    """The traceback from where our code called the user's; None if it never did."""
    while frames and frames.tb_frame.f_code.co_filename.startswith(_OWN):
        frames = frames.tb_next
    return frames
