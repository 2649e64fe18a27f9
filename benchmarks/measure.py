"""What every benchmark needs: the machine in a line, rounds that alternate, peers in their own python, a table.

A figure of one run says little on a shared machine; a ratio of two things that took turns in one run says more. So a
benchmark hands the ways of doing the same work to `alternate`, which runs them A B A B ... and takes the median of the
ratios of the rounds. The scripts run from a checkout (`python benchmarks/NAME.py`) and measure that checkout, or the
one that BENCHMARK_CHECKOUT names: `benchmarks/two_checkouts.py` runs the same script on both in turn.
"""

import argparse
import inspect
import json
import math
import multiprocessing
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

# The checkout whose library is measured.
ROOT = Path(os.environ.get("BENCHMARK_CHECKOUT") or Path(__file__).resolve().parent.parent)
PEERS = Path(__file__).resolve().parent / "peers"
PACKAGES = ("numpy", "torch", "gymnasium", "pyzmq", "ray")
# They choose older instructions, for equal bits on different processors: Haswell halves numpy's products where there is
# AVX-512, and leaves those of JAX and torch as they are.
LIMITS = ("OPENBLAS_CORETYPE", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")

# Set before numpy is imported: one thread a process, as with every peer; two processes would else fight for the cores.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


# ---------------------------------------------------------------------------------------------------------- machine


def machine() -> str:
    """One line: processor, cores this process may use, memory, load, and the versions of what is measured with.

    It ends with the variables that choose older instructions for matrix products, where they are set.
    """
    cores = len(os.sched_getaffinity(0))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    return ", ".join(
        [
            _cpu_model(),
            f"{cores} core{'s' * (cores != 1)}",
            f"{memory_gib:.0f} GiB",
            f"load {os.getloadavg()[0]:.1f}",
            f"Python {platform.python_version()}",
            *versions,
            *(f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)),
        ]
    )


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# ------------------------------------------------------------------------------------------------------------ rounds


@dataclass
class Rounds:
    """What the sides measured, one value per side and round; a side that could not be run is not there."""

    values: dict[str, list[float]]

    def median(self, side: str) -> float | None:
        return statistics.median(self.values[side]) if side in self.values else None

    def ratio(self, side: str, other: str) -> float | None:
        """Median over the rounds of side / other; None when one of them could not be run."""
        if side not in self.values or other not in self.values:
            return None
        return statistics.median(a / b for a, b in zip(self.values[side], self.values[other]))

    def spread(self, side: str) -> str:
        """Lowest and highest value, for a line below the table."""
        return f"{side} {figure(min(self.values[side]))}-{figure(max(self.values[side]))}"


def alternate(rounds: int = 7, warm_up: int = 1, **sides: Callable[[], float | None] | None) -> Rounds:
    """Run the sides in turn, round after round: `alternate(7, ours=f, limit=g, peer=h)`.

    Args:
        rounds: how often each side is run and counted.
        warm_up: rounds before those, thrown away.
        sides: functions without arguments that do the work once and return its value (a rate or a time; the same unit
            for all). One that is None, or returns None (a peer that is not set up), is left out.
    """
    present = {name: side for name, side in sides.items() if side is not None}
    values: dict[str, list[float]] = {name: [] for name in present}
    for index in range(warm_up + rounds):
        for name in list(present):
            value = present[name]()
            # A run that is cut off leaves what it measured.
            print(f"# round {index - warm_up + 1} {name}: {figure(value)}", file=sys.stderr, flush=True)
            if value is None:
                del present[name], values[name]
            elif index >= warm_up:
                values[name].append(value)
    return Rounds(values)


# ------------------------------------------------------------------------------------------------------------- table


@dataclass
class Row:
    """One line of the table: a figure of ours beside the limit and the peer's, all in the same unit.

    `bar` reads "<= 2.0 limit", ">= 8 peer" or "<= 10": the last one is about the figure itself. The ratios are
    ours / limit and ours / peer: the medians of `Rounds.ratio` where there are rounds, else those of the figures.
    """

    what: str
    unit: str
    ours: float
    limit: float | None = None
    peer: float | None = None
    bar: str = ""
    limit_ratio: float | None = None
    peer_ratio: float | None = None
    peer_name: str = ""

    @classmethod
    def of(cls, rounds: Rounds, against: str, what: str, unit: str, ours: str = "ours", **more) -> "Row":
        """The row of the sides called `ours`, "limit" and `against`, with the medians over the rounds."""
        figures = {"ours": rounds.median(ours), "limit": rounds.median("limit"), "peer": rounds.median(against)}
        ratios = {"limit_ratio": rounds.ratio(ours, "limit"), "peer_ratio": rounds.ratio(ours, against)}
        return cls(what, unit, **figures, **ratios, **more)

    def __post_init__(self):
        if self.limit_ratio is None and self.limit:
            self.limit_ratio = self.ours / self.limit
        if self.peer_ratio is None and self.peer:
            self.peer_ratio = self.ours / self.peer
        if self.bar and not _BAR.fullmatch(self.bar):
            raise ValueError(f"bar={self.bar!r} must read like '<= 2.0 limit', '>= 8 peer' or '<= 10'.")

    @property
    def less_is_better(self) -> bool:
        """Whether the figure is a time or a size; a rate has a unit that ends in "/s"."""
        return not self.unit.endswith("/s")

    def verdict(self) -> str:
        """pass, miss, or "-": no bar, or nothing to hold it against here."""
        if not self.bar:
            return "-"
        relation, bound, against = _BAR.fullmatch(self.bar).groups()
        value = {None: self.ours, "limit": self.limit_ratio, "peer": self.peer_ratio}[against]
        if value is None:
            return "-"
        met = value <= float(bound) if relation == "<=" else value >= float(bound)
        return "pass" if met else "MISS"


def rows(rounds: Rounds, what: str, unit: str, peers: dict[str, tuple[str, str]], ours: str = "ours") -> list[Row]:
    """A row beside each peer that was there, one alone where there was none; `peers`: side -> (label, bar)."""
    there = {side: peers[side] for side in peers if side in rounds.values} or {"": ("", "")}
    return [Row.of(rounds, side, what, unit, ours, peer_name=label, bar=bar) for side, (label, bar) in there.items()]


_BAR = re.compile(r"(<=|>=)\s*([0-9.]+)(?:\s*x?\s*(limit|peer))?")
_HEAD = ("what", "unit", "ours", "limit", "peer", "of limit", "of peer", "bar", "")


def table(rows: Sequence[Row]) -> None:
    """Print the rows in aligned columns; with BENCHMARK_JSON set, also our figures as one line of JSON.

    A row whose name is indented holds the figure of the row above it beside another peer.
    """
    aligned([_HEAD, *(_cells(row) for row in rows)])
    if os.environ.get("BENCHMARK_JSON"):
        own = [row for row in rows if not row.what.startswith(" ")]
        figures = {row.what: {"unit": row.unit, "ours": row.ours, "less_is_better": row.less_is_better} for row in own}
        print(json.dumps({"rows": figures}), flush=True)


def aligned(lines: Sequence[Sequence[str]]) -> None:
    """Print cells in columns: the first two, the name and the unit, to the left, figures to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        texts = [cell.ljust(width) for cell, width in zip(line[:2], widths)]
        figures = [cell.rjust(width) for cell, width in zip(line[2:], widths[2:])]
        print("  ".join(texts + figures).rstrip(), flush=True)


def _cells(row: Row) -> tuple[str, ...]:
    peer = f"{row.peer_name} {figure(row.peer)}".strip() if row.peer is not None else "-"
    ratios = (f"{ratio:.2f}" if ratio is not None else "-" for ratio in (row.limit_ratio, row.peer_ratio))
    return (row.what, row.unit, figure(row.ours), figure(row.limit), peer, *ratios, row.bar or "-", row.verdict())


def figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


# ------------------------------------------------------------------------------------------- scripts that print JSON


def peer(name: str, script: str, *arguments: object, timeout_s: float = 600) -> dict | None:
    """Run benchmarks/peers/SCRIPT.py in the peer's own python; the object of the JSON line it prints.

    None, and a line that says why, when its environment is not set up or the script failed.
    """
    python = PEERS / "venvs" / name / "bin" / "python"
    if not python.exists():
        print(f"# without {script}: not set up; benchmarks/peers/setup {name}", flush=True)
        return None
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    environment.pop("PYTHONPATH", None)
    try:
        return printed([str(python), str(PEERS / f"{script}.py"), *map(str, arguments)], environment, timeout_s)
    except RuntimeError as error:
        print(f"# without {script}: {error}", flush=True)
        return None


def peer_side(key: str, name: str, script: str, *arguments: object) -> Callable[[], float | None]:
    """The peer as a side of `alternate`: one figure of what it prints."""

    def side() -> float | None:
        result = peer(name, script, *arguments)
        return result and result[key]

    return side


def ours(script: str, *arguments: object, timeout_s: float = 600) -> dict:
    """Run benchmarks/SCRIPT.py in a process of its own, as the peers are; the object of the JSON line it prints."""
    argv = [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), *map(str, arguments)]
    return printed(argv, dict(os.environ), timeout_s)


def unchanged(hook: str, program: Path, *arguments: object) -> float:
    """Environment steps a second that another library's program prints under `python -m HOOK`, with this checkout."""
    argv = [sys.executable, "-m", hook, str(program), *map(str, arguments)]
    return printed(argv, {**os.environ, "PYTHONPATH": str(ROOT)}, 600)["env_steps_per_s"]


def printed(argv: list[str], environment: dict[str, str], timeout_s: float) -> dict:
    """Run a program; the object of the last JSON line that it prints.

    Raises:
        RuntimeError: if it failed, was not finished in time or printed no such line.
    """
    results = [line for line in _output(argv, environment, timeout_s).splitlines() if line.startswith("{")]
    if not results:
        raise RuntimeError(f"{Path(argv[1]).name} printed no result.")
    return json.loads(results[-1])


def command(argv: Sequence[str], timeout_s: float = 600) -> tuple[float, str]:
    """Seconds from starting a program of this checkout to its end, and what it printed.

    Raises:
        RuntimeError: if it failed or was not finished in time; with the end of what it said.
    """
    started = time.perf_counter()
    output = _output(list(argv), {**os.environ, "PYTHONPATH": str(ROOT)}, timeout_s)
    return time.perf_counter() - started, output


def _output(argv: list[str], environment: dict[str, str], timeout_s: float) -> str:
    finished = _run(argv, environment, timeout_s)
    if finished is None:
        raise RuntimeError(f"{' '.join(argv)} was not finished after {timeout_s:.0f} s.")
    if finished.returncode != 0:
        said = "\n".join((finished.stdout + finished.stderr).splitlines()[-10:])
        raise RuntimeError(f"{' '.join(argv)} ended with exit code {finished.returncode}:\n{said}")
    return finished.stdout


def _run(argv: list[str], environment: dict[str, str], timeout_s: float) -> subprocess.CompletedProcess | None:
    """Like subprocess.run, but after the time-out the whole process group ends, not its leader alone; then None."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        argv, env=environment, cwd=ROOT, text=True, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise
    return subprocess.CompletedProcess(argv, process.returncode, output, errors)


# --------------------------------------------------------------------------------------------------------- processes


def together(function: Callable, count: int, *arguments) -> list:
    """Call `function(*arguments)` in `count` forked processes at the same time; their results.

    They start together, behind a barrier. A function that sets something up first is a generator function: what comes
    before its first `yield` runs ahead of the barrier, and the second thing it yields is the result.
    """
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)
    results = [context.Pipe(duplex=False) for _ in range(count)]
    processes = [
        context.Process(target=_one_of_many, args=(function, arguments, barrier, sender), daemon=True)
        for _, sender in results
    ]
    for process in processes:
        process.start()
    for _, sender in results:
        sender.close()
    try:
        return [receiver.recv() for receiver, _ in results]
    except EOFError:
        raise RuntimeError(f"A process of {function.__name__} died; its error stands above.") from None
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _one_of_many(function: Callable, arguments: tuple, barrier, sender) -> None:
    try:
        running = function(*arguments) if inspect.isgeneratorfunction(function) else None
        if running:
            next(running)
        barrier.wait(60)
        sender.send(next(running) if running else function(*arguments))
    except BaseException:
        barrier.abort()
        raise


def pinned(*cores: int) -> None:
    """Keep this process, and what it starts from now on, to these cores (by their number among those it may use)."""
    usable = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {usable[core % len(usable)] for core in cores})


# --------------------------------------------------------------------------------------------------------- arguments


def at_least_1(text: str) -> int:
    """A number on the command line, of what there has to be one of."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be an integer >= 1")
    return int(text)


def above_0(text: str) -> float:
    """A time or a rate on the command line."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} must be a number > 0")
    return number


def arguments(description: str, rounds: int = 7) -> argparse.ArgumentParser:
    """A parser with what all scripts take; each adds its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--rounds", type=at_least_1, default=rounds, help="how often each side is measured")
    parser.add_argument("--no-peers", action="store_true", help="leave the other libraries out")
    return parser
