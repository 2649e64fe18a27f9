"""Places that users name: paths of this machine, and URLs of folders in remote storage such as s3://BUCKET/PATH."""

import os
import re
from pathlib import Path

from rllib.notices import shown
from rllib.storage.local_path import path_text

# At least two letters: "c://" is a path of another system.
_URL = re.compile(r"(?P<protocol>[A-Za-z][A-Za-z0-9+.-]+)://(?P<path>.*)", re.DOTALL)
# Path("s3://bucket") has a single slash.
_MADE_A_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
_CHAIN = re.compile(r"[A-Za-z0-9+.-]+(::[A-Za-z0-9+.-]+)*::[A-Za-z0-9+.-]+://")
_LOCAL = ("file", "local")


def place_of(given: str | os.PathLike) -> Path | str:
    """The place that a path or a URL names: a Path on this machine, or a URL (str) of remote storage.

    `file:///PATH` is the path on this machine. "~" is the home directory; a relative path stays relative.

    Raises:
        ValueError: for a URL that names no folder, a chain of several protocols, or a URL that was made a Path.
        TypeError: for anything but a string or a path.
    """
    text = path_text(given)
    if isinstance(text, bytes):
        return Path(os.fsdecode(text))
    if not isinstance(given, str) and _MADE_A_PATH.match(text):
        raise ValueError(f"{shown(text)} was a URL before it became a Path, which has lost a slash. Give it as a str.")
    if _CHAIN.match(text):
        raise ValueError(f"{shown(text)} chains several protocols; give one, as in s3://BUCKET/PATH")
    if not (match := _URL.fullmatch(text)):
        return Path(os.path.expanduser(text))
    protocol, path = match["protocol"].lower(), match["path"].rstrip("/")
    if protocol in _LOCAL:
        if not match["path"].startswith("/"):
            raise ValueError(f"{text} names no absolute path; write it as file:///PATH, or as a path without file://")
        return Path(match["path"])
    if not path:
        raise ValueError(f"{shown(text)} names no folder; write {protocol}://BUCKET/PATH")
    return f"{protocol}://{path}"


def is_url(place: Path | str) -> bool:
    """Whether a place, as `place_of` returns it, is in remote storage."""
    return isinstance(place, str)


def protocol_of(url: str) -> str:
    return url.partition("://")[0]


def joined(url: str, name: str) -> str:
    """The URL of an entry of a folder."""
    return f"{url.rstrip('/')}/{name}"


def parent_and_name(url: str) -> tuple[str, str]:
    """The URL of the folder above, and the last part of the path.

    Raises:
        ValueError: if there is no folder above.
    """
    parent, _, name = url.rstrip("/").rpartition("/")
    if not name or parent.endswith(("/", ":")):
        raise ValueError(f"{shown(url)} has no folder above it; write {protocol_of(url)}://BUCKET/RUN")
    return parent, name
