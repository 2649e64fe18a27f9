"""Exit codes and messages of commands: 0 done, 1 failed, 2 the user's mistake, 130 interrupted."""

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
# A frame of a traceback with its lines of code, which are indented further.
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line \d+.*\n(?:    .*\n)*', re.MULTILINE)


class Mistake(click.ClickException):
    """A request of the user that cannot be fulfilled; the message says what can be done."""

    exit_code = EXIT_MISTAKE


@contextmanager
def user_input() -> Iterator[None]:
    """Turns a ValueError or TypeError into a Mistake, unless it has notes: then the user's environment raised it."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if getattr(error, "__notes__", None):
            raise
        raise Mistake(str(error)) from error


@contextmanager
def storage_input() -> Iterator[None]:
    """As `user_input`, for a place in remote storage that the user named: a missing package is a Mistake, too."""
    try:
        with user_input():
            yield
    except ImportError as error:
        raise Mistake(str(error)) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError about the path, a file beside it or a directory above it into a Mistake."""
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

    A traceback is shown where it is the user's own code that raised, from its first frame on, and with `verbose`.
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
        shown = traceback.TracebackException(type(error), error, _users_frames(error.__traceback__))
        # The traceback that comes from another process ends with the notes.
        shown.__notes__ = [note for note in shown.__notes__ if str(note) not in str(error)]
        click.echo(printable(_FRAME.sub(_unless_own, "".join(shown.format()))).rstrip(), err=True)
    else:
        click.echo(printable(f"Error: {type(error).__name__}: {error}"), err=True)


def _unless_own(frame: re.Match) -> str:
    """Text of a traceback's frame; empty for a frame of the library."""
    return "" if frame["file"].startswith(_OWN) else frame[0]


def _users_frames(frames):
    """Traceback from the user's first frame on; None if there is none."""
    while frames and frames.tb_frame.f_code.co_filename.startswith(_OWN):
        frames = frames.tb_next
    return frames
