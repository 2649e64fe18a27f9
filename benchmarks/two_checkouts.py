"""Our figures in this checkout beside those in another one: has a change made anything slower?

    git worktree add ../before REVISION
    python benchmarks/two_checkouts.py ../before ppo_throughput actor_calls
    python benchmarks/two_checkouts.py ../before "learner_update --rounds 3"

The same script of this checkout measures both libraries in turn, A B A B ..., each time in a process of its own and
without the peers; the ratio is the median of the ratios of the rounds. A script that the other library cannot run is
reported and left out.
"""

import compileall
import os
import shlex
import statistics
import sys
from pathlib import Path

from measure import ROOT, aligned, arguments, figure, machine, printed

HEAD = ("what", "unit", "this", "other", "this / other", "spread", "")
NOISE = 0.05  # a median within this of the other's is not called slower or faster


def run(script: list[str], checkout: Path, timeout_s: float) -> dict[str, dict]:
    """The rows that a benchmark prints when it measures the library of `checkout`."""
    argv = [sys.executable, str(Path(__file__).resolve().parent / f"{script[0]}.py"), *script[1:], "--no-peers"]
    environment = os.environ | {
        "BENCHMARK_CHECKOUT": str(checkout),
        "BENCHMARK_JSON": "1",
        "PYTHONPATH": str(checkout),
    }
    return printed(argv, environment, timeout_s)["rows"]


def compare(script: list[str], other: Path, rounds: int, timeout_s: float) -> list[tuple[str, ...]]:
    """One line of the table for each figure that both libraries have."""
    made = [(run(script, ROOT, timeout_s), run(script, other, timeout_s)) for _ in range(rounds)]
    lines = []
    for what, row in made[0][0].items():
        if all(what in this and what in before for this, before in made):
            pairs = [(this[what]["ours"], before[what]["ours"]) for this, before in made]
            lines.append(line(f"{script[0]}: {what}", row["unit"], row["less_is_better"], pairs))
    return lines


def line(what: str, unit: str, less_is_better: bool, pairs: list[tuple[float, float]]) -> tuple[str, ...]:
    """The cells of one figure; `pairs` holds (this, other) of each round."""
    ratios = [this / before if before else float("nan") for this, before in pairs]
    ratio = statistics.median(ratios)
    gain = 1 / ratio if less_is_better else ratio
    verdict = "slower" if gain < 1 - NOISE else "faster" if gain > 1 + NOISE else "same"
    medians = (figure(statistics.median(side)) for side in zip(*pairs))
    return (what, unit, *medians, f"{ratio:.2f}", f"{min(ratios):.2f}-{max(ratios):.2f}", verdict)


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("scripts", nargs="+", help="names of benchmarks, with arguments in quotes")
    parser.add_argument("--timeout-s", type=float, default=1800, help="longest time that one run of a script may take")
    options = parser.parse_args()
    other = options.other.resolve()
    if not (other / "rllib").is_dir():
        parser.error(f"{other} is no checkout of this library: it has no folder rllib.")
    for package in (library / name for library in (ROOT, other) for name in ("runtime", "rllib")):
        compileall.compile_dir(package, quiet=1)  # as an installed library is: else starts would measure the compiler
    print(machine(), flush=True)
    lines = [HEAD]
    for script in map(shlex.split, options.scripts):
        try:
            lines += compare(script, other, options.rounds, options.timeout_s)
        except RuntimeError as error:
            print(f"# without {script[0]}: {error}", flush=True)
    aligned(lines)


if __name__ == "__main__":
    main()
