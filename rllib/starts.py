"""starts.json of a run or experiment: a line for each start, with its command, machine, versions and git commit.

It is for people, and for `rllib report`: nothing of a run depends on it.
"""

import importlib.metadata
import logging
import os
import platform
import re
import shlex
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

import rllib
from rllib.notices import shown
from rllib.progress import in_notebook
from rllib.runs.entries import encode
from rllib.runs.safe_files import AppendedFile
from rllib.storage.foreign_files import read_inside

logger = logging.getLogger(__name__)

STARTS = "starts.json"
_LIBRARIES = (
    "torch", "numpy", "gymnasium", "ale-py", "mujoco", "pettingzoo", "envpool", "jax", "gymnax", "craftax",
    "pgx", "jumanji", "navix", "brax", "playground", "vmas", "lbforaging", "rware",
)  # fmt: skip
# Options and settings of a command whose value is a login.
_LOGIN = re.compile(r"(?i)([\w.-]*(?:api_?key|token|password|passwd|secret|credential)[\w.-]*)[\"']?\s*(=|:|$)")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_LONGEST_BYTES = 1 << 22


def note_start(directory: Path) -> None:
    """Appends what starts here to starts.json, once in a process. A file that cannot be written is a warning."""
    known = read_starts(directory)
    own = {"hostname": socket.gethostname(), "pid": os.getpid()}
    if known and {key: known[-1].get(key) for key in own} == own:
        return
    try:
        file = AppendedFile(directory / STARTS)
        try:
            file.cut_half_line()
            file.append(encode({"time": time.time(), **own, **described()}) + b"\n")
        finally:
            file.close()
    except OSError as error:
        logger.warning("%s could not be written (%s); a report will not name the machine", directory / STARTS, error)


def read_starts(directory: Path) -> list[dict[str, Any]]:
    """Reads the starts of a run, the oldest first; [] without the file. Lines that hold none are left out."""
    starts = []
    with suppress(OSError, ValueError):
        for line in read_inside(directory, STARTS, _LONGEST_BYTES).split(b"\n"):
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                starts.append(msgspec.json.decode(line, type=dict))
    return starts


def described() -> dict[str, Any]:
    """The command of this process without logins, the machine, versions, and the git commit of the directory."""
    return {
        "command": command_line(sys.argv),
        "directory": os.getcwd(),
        "system": platform.platform(),
        "cpu": _processor(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": _gpus(),
        "versions": {"python": platform.python_version(), **_versions()},
        "git_commit": commit_of(Path.cwd()),
    }


def command_line(arguments: Sequence[str]) -> str:
    """The command, as one would type it, with dots in place of logins; "" in a notebook."""
    if in_notebook() or not arguments:
        return ""
    script, *words = arguments
    name = Path(script).name
    first = (
        ["python", "-m", Path(script).parent.name] if name == "__main__.py"
        else ["python", script] if script == "-c" or name.endswith(".py")
        else [name]
    )  # fmt: skip
    hidden, is_login = [], False
    for word in words:
        hidden.append("..." if is_login else _without_login(word))
        # "--token VALUE" has its value in the next word.
        match = _LOGIN.fullmatch(word)
        is_login = bool(match) and word.startswith("-") and not match[2]
    return shlex.join([*first, *hidden])


def _without_login(word: str) -> str:
    """The word; of NAME=VALUE whose name is one of a login the name alone, and of a URL what is no login."""
    match = _LOGIN.search(word)
    return shown(f"{word[: match.end()]}..." if match and match[2] else word)


def commit_of(directory: Path) -> str | None:
    """The commit that is checked out where a directory lies; None outside of a repository. No program runs."""
    with suppress(OSError, UnicodeDecodeError):
        for place in (directory, *directory.parents):
            if (git := place / ".git").exists():
                break
        else:
            return None
        if git.is_file():  # of a further worktree: "gitdir: PATH"
            git = place / git.read_text().partition(":")[2].strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head if _COMMIT.fullmatch(head) else None
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
        return _commit_of_branch(common, head.removeprefix("ref: "))
    return None


def _commit_of_branch(git: Path, name: str) -> str | None:
    loose = git / name
    if loose.is_file() and _COMMIT.fullmatch(found := loose.read_text().strip()):
        return found
    for line in (git / "packed-refs").read_text().splitlines():
        commit, _, branch = line.partition(" ")
        if branch == name and _COMMIT.fullmatch(commit):
            return commit
    return None


def _versions() -> dict[str, str]:
    found = {"rllib": rllib.__version__}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _processor() -> str:
    """Name of the processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    """Names of NVIDIA's GPUs, without a start of CUDA: a process that has started it can no longer fork."""
    names = []
    with suppress(OSError):
        for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
            lines = file.read_text(errors="replace").splitlines()
            names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    torch = sys.modules.get("torch")
    if not names and torch is not None and torch.cuda.is_initialized():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    # Some containers have the devices alone.
    return names or ["NVIDIA GPU"] * sum(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*"))
