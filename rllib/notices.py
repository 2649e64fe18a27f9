"""Lines of the log that are written once in a process, and values in messages."""

import logging
import re
from collections.abc import Mapping

logger = logging.getLogger("rllib")

# A name with a password, or with http a word that may be one. A name alone is no secret, and in abfs://CONTAINER@HOST
# it is part of the place. A password may hold "@". A URL that was made a path has one slash.
_LOGIN = re.compile(r"(?P<scheme>\w:/{1,2})[^/\s:]*:[^/\s]*@|(?P<http>https?:/{1,2})[^/\s]*@")

_noticed: set = set()


def log_once(name: str, message: str, level: int = logging.INFO) -> None:
    """Logs the notice about this name, the first time in this process."""
    if name not in _noticed:
        _noticed.add(name)
        logger.log(level, "%s", message)


def log_unused_arguments(function: str, reason: str, **given) -> None:
    """Warns, once in a process, of each argument that was given to a function and has no effect.

    Args:
        function: its name.
        reason: a clause.
        given: name of an argument -> its value, or whether it asks for anything; None and False do not.
    """
    for name, value in given.items():
        if value is not None and value is not False:
            log_once(f"{function}({name})", f"{function}: {name} has no effect: {reason}.", logging.WARNING)


def log_without_effect(given: Mapping[str, tuple[str, bool]]) -> None:
    """Logs names without effect, a line for all that have the same reason, the first time in this process.

    It is a warning where the value asks for something that is not done here.

    Args:
        given: name -> why it has no effect, and whether its value asks for something.
    """
    by_reason: dict[tuple[str, int], list[str]] = {}
    for name, (reason, asks) in given.items():
        level = logging.WARNING if asks else logging.INFO
        if (name, level) not in _noticed:
            _noticed.add((name, level))
            by_reason.setdefault((reason, level), []).append(name)
    for (reason, level), same in by_reason.items():
        logger.log(level, "%s %s no effect here: %s", ", ".join(same), "has" if len(same) == 1 else "have", reason)


def shortened(value, length: int = 80) -> str:
    """repr for messages, cut where it would bury the rest."""
    text = shown(repr(value))
    return text if len(text) <= length else f"{text[: length - 3]}..."


def shown(text: str) -> str:
    """A URL, or a text with URLs, for messages and files: without names and passwords of logins."""
    return _LOGIN.sub(lambda found: found["http"] or found["scheme"], text)


def why_raised(trace: str, length: int = 300) -> str:
    """What a traceback ends with, in one line: the exception with its notes, which would hide it if shown alone.

    Args:
        trace: text of a traceback, as traceback.format_exc() gives it.
        length: length of the line at most; a longer part of it is cut, so that those behind it are seen.
    """
    lines = trace.strip().splitlines()
    frames = [index for index, line in enumerate(lines) if line.startswith("  ")]
    # A message whose lines are indented, too, hides its beginning: the rest is shown.
    said = [line.strip() for line in lines[frames[-1] + 1 if frames else -1 :] if line.strip()] or lines[-1:]
    said = [*said[:1], *said[1:][-2:]]  # a message of many lines
    most = length // max(len(said), 1)
    return "; ".join(line if len(line) <= most else f"{line[: most - 3]}..." for line in said)
