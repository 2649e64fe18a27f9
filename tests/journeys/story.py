"""The pages of docs/journeys as programs: their files, and their commands and programs one after the other.

A block of Python whose first line is `# NAME.py` is a file of that name. Blocks of sh and the other blocks of Python
are one script: a reader runs a program of the page in the directory where the commands before it left their files.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "journeys"


def files_of(page: str) -> dict[str, str]:
    """Name -> content of the files that a page has the reader write."""
    blocks = re.findall(
        r"^```py(?:thon)?\n(# (\S+\.py)\n.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL
    )
    return {name: content for content, name in blocks}


def script_of(page: str) -> str:
    """The shell commands and programs of a page, with free ports in place of its own."""
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    is_file = re.compile(r"# \S+\.py\n").match
    script = "".join(
        block if language == "sh" else f"python - <<'PROGRAM'\n{block}PROGRAM\n"
        for language, block in blocks
        if language == "sh" or not is_file(block)
    )
    for port in sorted(set(re.findall(r"\b81\d\d\b", script))):
        script = script.replace(port, str(free_port()))
    return script


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def environment() -> dict[str, str]:
    """Variables by which `python` and `rllib` are those of the tests."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}


def told(page: str, directory: Path, timeout_s: float = 900) -> str:
    """Runs a page's story in a directory; returns what its commands have printed.

    Raises:
        AssertionError: if a command fails.
    """
    for name, content in files_of(page).items():
        (directory / name).write_text(content)
    process = subprocess.Popen(
        ["bash", "-euxo", "pipefail", "-c", script_of(page)],
        cwd=directory, env=environment(), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # servers of a story that did not come to its end
    assert process.returncode == 0, output
    return output


def returns_in(output: str) -> list[float]:
    """The mean returns that programs of a story have printed, in their order."""
    return [float(number) for number in re.findall(r"^mean return ([-\d.]+)", output, re.MULTILINE)]
