"""Processes that train the seeds of a run side by side, each by an `rllib train` of its own."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from rllib.cli.failures import EXIT_SIGNAL
from rllib.errors import DamagedFileError
from rllib.runs.files import results_in
from rllib.storage.growing_lines import GrowingLines
from rllib.tune.running.runner import Interrupts

_POLL_S = 0.1
# Seconds that processes have to end after a second Ctrl-C.
_END_S = 5.0
# Rounding error of sums of fractions of a GPU.
_SHARE_ERROR = 1e-6
# Exit codes of a run that SIGTERM has ended, before and after it could save.
_INTERRUPTED = (-signal.SIGTERM, EXIT_SIGNAL + signal.SIGTERM)


class State(StrEnum):
    """Stage of a seed's run."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


ENDED = (State.DONE, State.INTERRUPTED, State.FAILED)


class Share(NamedTuple):
    """Part of the machine for one of several runs side by side.

    Attributes:
        cores: numbers of its cores; empty: all.
        gpus: value of CUDA_VISIBLE_DEVICES; None: as it is.
    """

    cores: frozenset[int] = frozenset()
    gpus: str | None = None


def gpus_of(processes: Sequence[float]) -> float:
    """GPUs of a run, as the runtime divides them: a fraction of one, or a whole number.

    A fraction is of one GPU, so three processes with 0.6 each need three.

    Args:
        processes: number of GPUs that each process of the run asks for.
    """
    taken: list[float] = []
    for amount in processes:
        fitting = [index for index, share in enumerate(taken) if share + amount <= 1 + _SHARE_ERROR]
        if amount < 1 and fitting:
            taken[max(fitting, key=taken.__getitem__)] += amount
        elif amount:
            taken += [min(amount, 1)] * math.ceil(amount)
    return round(taken[0], 4) if len(taken) == 1 else len(taken)  # fractions have four digits


def shares(need: Mapping[str, float], cores: Sequence[int], gpus: Sequence[str], most: int) -> list[Share]:
    """Divides the machine among as many runs as fit on it, at least one; further ones wait, as trials of Tune do.

    Args:
        need: "cpu" and "gpu" of each run; "gpu" as from `gpus_of`.
        cores: numbers of the cores that are there.
        gpus: names of the GPUs that are there; several runs share one if each needs a fraction and all of them fit.
        most: number of runs.
    """
    fit = [most, int(len(cores) / max(need["cpu"], 1))]
    whole, per_gpu = math.ceil(need["gpu"]), 1
    if need["gpu"]:
        per_gpu = max(1, int(1 / need["gpu"] + _SHARE_ERROR))
        fit.append(len(gpus) // whole * per_gpu)
    count = max(1, min(fit))
    if count == 1:
        return [Share()]
    width = len(cores) // count
    own_cores = [frozenset(cores[width * index : width * (index + 1)]) for index in range(count)]
    if not need["gpu"]:
        return [Share(each) for each in own_cores]
    first = [index // per_gpu * whole for index in range(count)]
    return [Share(each, ",".join(gpus[at : at + whole])) for each, at in zip(own_cores, first)]


@dataclass(eq=False)
class SeedRun:
    """One seed and its process.

    Attributes:
        seed: the seed.
        path: directory of its run, in which the process writes result.json.
        command: of the process; empty: there is nothing left to do.
        log: file to which the process prints.
        state: its stage.
        result: the newest result; {} before the first.
        error: last line that a process printed which has failed.
    """

    seed: int
    path: Path
    command: list[str]
    log: Path
    state: State = State.WAITING
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    _process: subprocess.Popen | None = field(default=None, repr=False)
    _is_told: bool = field(default=False, repr=False)
    _lines: GrowingLines = field(init=False, repr=False)

    def __post_init__(self):
        self._lines = GrowingLines(self.path / "result.json")

    def start(self, share: Share) -> None:
        """Starts the process on its share of the machine."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if share.gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = share.gpus
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment,
                process_group=0,  # Ctrl-C is this program's to answer
            )  # fmt: skip
        if share.cores and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(self._process.pid, share.cores)
        self.state = State.RUNNING

    def poll(self) -> None:
        """Reads new results, and looks whether the process has ended."""
        if self._process is None:
            return
        code = self._process.poll()
        self._read()
        if code is None:
            return
        self.state = State.DONE if code == 0 else State.INTERRUPTED if code in _INTERRUPTED else State.FAILED
        if self.state is State.FAILED:
            lines = self.log.read_text(errors="replace").strip().splitlines()
            said = [line for line in lines if line.startswith("Error")] or lines
            self.error = said[-1] if said else f"its process ended with code {code}"
        self._release()

    def _read(self) -> None:
        with contextlib.suppress(OSError, DamagedFileError):
            for result in results_in(self._lines.read()):
                self.result = result

    def interrupt(self) -> None:
        """Asks the run to save and to end; the second time, to end at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT if self._is_told else signal.SIGTERM)
            self._is_told = True
        elif self.state is State.WAITING:
            self.state = State.INTERRUPTED

    def kill(self) -> None:
        """Ends a process that does not end by itself; the run's own processes follow it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.state = State.INTERRUPTED
            self._release()

    def _release(self) -> None:
        self._process.stdin.close()
        self._process = None


def command_of(arguments: Sequence[str]) -> list[str]:
    """The command of a process that runs `rllib ARGUMENTS` and ends with this one."""
    return [sys.executable, "-P", "-m", "rllib.cli.seeds.one", *arguments]


def train_side_by_side(
    runs: Sequence[SeedRun],
    places: Sequence[Share],
    show: Callable[[], None],
    on_interrupt: Callable[[], None] = lambda: None,
) -> int | None:
    """Runs the processes, as many at a time as there are places; one that fails leaves the others alone.

    Args:
        runs: of the seeds; those that are not waiting are left out.
        places: shares of the machine.
        show: called after every change, and several times a second.
        on_interrupt: called at the first Ctrl-C, after which all runs save and end.

    Returns:
        number of the signal that has interrupted them; None without one.
    """
    free = list(places)
    at: dict[int, Share] = {}
    interrupts = Interrupts(signal.SIGINT, signal.SIGTERM, on_first=on_interrupt)
    is_told = False
    try:
        with interrupts:
            while any(run.state not in ENDED for run in runs):
                if interrupts.seen and not is_told:
                    is_told = True
                    for run in runs:
                        run.interrupt()
                for run in runs:
                    if run.state is State.WAITING and free:
                        at[run.seed] = free.pop(0)
                        run.start(at[run.seed])
                    run.poll()
                    if run.state in ENDED and run.seed in at:
                        free.append(at.pop(run.seed))
                show()
                time.sleep(_POLL_S)
    except KeyboardInterrupt:  # the second: nothing more is saved
        _end(runs)
    except BaseException:
        _end(runs)
        raise
    show()
    return interrupts.seen


def _end(runs: Sequence[SeedRun]) -> None:
    for run in runs:
        run.interrupt()
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline and any(run.state is State.RUNNING for run in runs):
        time.sleep(_POLL_S)
        for run in runs:
            run.poll()
    for run in runs:
        run.kill()
