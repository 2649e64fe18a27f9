"""Paths that users name, which may be relative, begin with "~" or have ".."."""

import os
from pathlib import Path

__all__ = ["local_path"]


def local_path(given: str | os.PathLike) -> Path:
    """The absolute path of what a user names, with "~" as the home directory and without "..".

    Its last part is that of the given path, also where this is a link. A link before a ".." is followed, as the system
    does it: of LINK/../x the directory is the one that holds the link's target.
    """
    path = Path(os.path.expanduser(given)).absolute()
    parts = path.parts
    if ".." not in parts:
        return path
    end = len(parts) - parts[::-1].index("..")
    return Path(*parts[:end]).resolve().joinpath(*parts[end:])
