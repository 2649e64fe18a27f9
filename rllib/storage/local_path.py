"""Paths that users name, which may be relative, begin with "~" or have "..", and URLs file:///PATH."""

import glob
import os
import re
from pathlib import Path

__all__ = ["SCRIPT_DIRECTORY", "expanded", "local_path", "of_script", "path_text"]

# Environment variable (Ray's name) with the directory of the script; its trials work in their own directories.
SCRIPT_DIRECTORY = "TUNE_ORIG_WORKING_DIR"
_LOCAL_URL = re.compile(r"(?:file|local)://", re.IGNORECASE)


def path_text(given: str | bytes | os.PathLike) -> str | bytes:
    """As os.fspath, with an error that says what a path is."""
    if not isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"a path must be a string or a pathlib.Path, as in 'results/run', but got {given!r:.80}")
    return os.fspath(given)


def expanded(given: str | os.PathLike) -> str:
    """What a user names as a path, which stays relative where it is: with "~" as the home directory; of a URL its path.

    A URL of remote storage stays as it is.
    """
    path = path_text(given)
    if isinstance(given, str) and (url := _LOCAL_URL.match(path)):
        path = path[url.end() :]
    return os.path.expanduser(path)


def local_path(given: str | os.PathLike) -> Path:
    """The absolute path of what a user names, with "~" as the home directory and without ".."; of file:///PATH, PATH.

    Its last part is that of the given path, also where this is a link. A link before a ".." is followed, as the system
    does it: of LINK/../x the directory is the one that holds the link's target.
    """
    path = Path(expanded(given)).absolute()
    parts = path.parts
    if ".." not in parts:
        return path
    end = len(parts) - parts[::-1].index("..")
    return Path(*parts[:end]).resolve().joinpath(*parts[end:])


def of_script(path: str) -> str:
    """A relative path or pattern: from the directory of the script, where it leads nowhere from that of its trial."""
    script = os.environ.get(SCRIPT_DIRECTORY)
    if script is None or os.path.isabs(path) or os.path.exists(path) or glob.glob(path):
        return path
    there = os.path.join(script, path)
    return there if os.path.exists(there) or glob.glob(there) else path
