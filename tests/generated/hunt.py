"""Runs many draws in a process of its own, which is replaced when it dies or hangs; shrinks what fails."""

import contextlib
import faulthandler
import gc
import itertools
import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.generated.draw import Draw

# A draw that takes longer hangs (seconds), on a machine whose cores are free.
HANGS_S = 60.0
# A short name, for sockets; on a file system in memory, where files are there at once, if there is one.
_IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
# Draws after which a process is replaced all the same: what a long one gathers is no fault of a draw.
MOST_DRAWS = 500


class Runner:
    """Runs draws one after another; use it as a context.

    Args:
        hangs_s: how long a draw may take (seconds), on a machine whose cores are free.
        preload: whether a new process loads torch before its first draw, and not during one.
    """

    def __init__(self, hangs_s: float = HANGS_S, preload: bool = True):
        self.hangs_s, self._preload = hangs_s, preload
        self._context = multiprocessing.get_context("spawn")
        self._process = self._connection = None
        self._directory = tempfile.TemporaryDirectory(prefix="draws_", dir=_IN_MEMORY, ignore_cleanup_errors=True)
        self._stacks = Path(self._directory.name, "stacks")
        self._draws = 0

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self._end()
        self._directory.cleanup()

    def run(self, draw: Draw) -> dict:
        """The outcome of a draw, as Outcome.to_json gives it."""
        if self._process is None or self._draws >= MOST_DRAWS:
            self._end()
            self._start()
        self._draws += 1
        self._connection.send(draw)
        try:
            limit = self.hangs_s * max(os.getloadavg()[0] / (os.cpu_count() or 1), 1)
            if self._connection.poll(limit):
                return self._connection.recv()
            kind, message = "hang", f"it has not ended within {limit:.0f} s"
            with contextlib.suppress(OSError):
                os.kill(self._process.pid, signal.SIGUSR2)
                self._process.join(5)
        except (EOFError, ConnectionError):
            self._process.join(5)
            limit = 0.0
            kind, message = "death", f"the process has ended with exit status {self._process.exitcode}"
        details = self._stacks.read_text() if self._stacks.exists() else ""
        self._end()
        fault = {"stage": "run", "kind": kind, "message": message, "place": _place_in(details)}
        return {
            "seed": draw["seed"], "algorithm": draw["algorithm"], "trained": False, "refusals": [], "faults": [fault],
            "exact": False, "changes": 0, "refused_changes": [], "refused_restores": [], "restored_with": False,
            "kept_out": False, "read_faulty": False, "seconds": limit, "details": details,
        }  # fmt: skip

    def _start(self) -> None:
        self._stacks.unlink(missing_ok=True)
        self._connection, other = self._context.Pipe()
        self._process = self._context.Process(
            target=_serve, args=(other, self._directory.name, self._preload), name="draws"
        )
        self._process.start()
        other.close()
        self._draws = 0

    def _end(self) -> None:
        if self._process is None:
            return
        self._connection.close()
        self._process.join(20)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join(20)
        self._process = None


def _place_in(stacks: str) -> str:
    """The innermost line of the library in the stack of the main thread."""
    main = stacks.rpartition("Current thread")[2] or stacks
    for line in main.splitlines():
        if "/rllib/" in line or "/runtime/" in line:
            path, _, rest = line.strip().removeprefix('File "').partition('", line ')
            return f"{path.rpartition('/rllib/')[2] or path}:{rest.partition(' in ')[2]}"
    return ""


def _serve(connection, directory: str, preload: bool) -> None:
    """Runs draws until there are no more; in a process group of its own, with directories of its own."""
    os.setsid()
    files, sessions = Path(directory, "files"), Path(directory, "sessions")
    for each in (files, sessions):
        each.mkdir(mode=0o700, exist_ok=True)
    os.environ |= {"TMPDIR": str(files), "XDG_RUNTIME_DIR": str(sessions)}
    # Threads that wait for one another take a loaded machine's time.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    tempfile.tempdir = None
    stacks = open(Path(directory, "stacks"), "w")  # noqa: SIM115 - open as long as the process
    faulthandler.enable(stacks, all_threads=True)
    faulthandler.register(signal.SIGUSR2, stacks, all_threads=True)
    # Here alone, since it takes seconds; what is loaded is left out of each draw's garbage collection.
    if preload:
        import torch._dynamo  # noqa: F401

    from tests.generated.trial import run

    gc.collect()
    gc.freeze()
    with contextlib.suppress(EOFError, ConnectionError):  # there are no more, or the program has ended within a draw
        while True:
            connection.send(run(connection.recv()).to_json())


# ------------------------------------------------------------------ smaller draws with the same fault


def names_of_faults(outcome: dict) -> set[str]:
    """What is the same for faults of one cause."""
    return {f"{fault['stage']}: {fault['kind']} {fault['place']}".strip() for fault in outcome["faults"]}


def shrunk(draw: Draw, outcome: dict, runner: Runner, limit_s: float = 240.0) -> Draw:
    """A draw with fewer settings and one of the same faults: the smallest that is found within limit_s seconds."""
    wanted, ends = names_of_faults(outcome), time.monotonic() + limit_s
    smaller = True
    while smaller:
        smaller = False
        for candidate in itertools.takewhile(lambda _: time.monotonic() < ends, _smaller(draw)):
            if names_of_faults(runner.run(candidate)) & wanted:
                draw, smaller = candidate, True
                break
    return draw


# The plainest world, to which a draw's is brought near.
_PLAIN = {"observation": "numbers", "end": "terminated", "length": 5}
# These keep runs short.
_LAST = (
    "min_time_s_per_iteration",
    "noise_size",
    "model",
    "seed",
    "num_rollout_workers",
    "dataset_num_iters_per_learner",
)


def _smaller(draw: Draw) -> Iterator[Draw]:
    settings, world, changes = draw["settings"], draw["world"], draw.get("changes", ())
    for name in ("changes", "restored with", "in its place", "typed", "of the new", "mapped"):
        if draw.get(name):
            yield {key: value for key, value in draw.items() if key != name}
    if "restored with" in draw:
        given = draw["restored with"]["settings"]
        for name in given if len(given) > 1 else ():
            fewer = {key: value for key, value in given.items() if key != name}
            yield {**draw, "restored with": {**draw["restored with"], "settings": fewer}}
    for i in range(len(changes)):
        yield {**draw, "changes": [*changes[:i], *changes[i + 1 :]]}
    for name in settings:
        if name not in _LAST:
            yield {**draw, "settings": {key: value for key, value in settings.items() if key != name}}
    for name, value in settings.items():
        if isinstance(value, dict) and len(value) > 1 and "named" not in value:
            for key in value:
                yield {**draw, "settings": {**settings, name: {k: v for k, v in value.items() if k != key}}}
    for name in world:
        if name in _PLAIN and world[name] != _PLAIN[name]:
            yield {**draw, "world": {**world, name: _PLAIN[name]}}
        elif name == "data" and world[name].get("fault"):
            yield {**draw, "world": {**world, "data": {**world["data"], "fault": None}}}
        elif name in ("uneven", "fails", "mask"):
            yield {**draw, "world": {key: value for key, value in world.items() if key != name}}


def save_case(draw: Draw, outcome: dict, directory: Path) -> Path:
    """Writes a draw as a case that the tests run."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{draw['algorithm'].lower()}_{draw['seed']}.json"
    shown = {"faults": sorted(names_of_faults(outcome)), "message": outcome["faults"][0]["message"][:300]}
    path.write_text(json.dumps({**draw, "found": shown}, indent=1) + "\n")
    return path
