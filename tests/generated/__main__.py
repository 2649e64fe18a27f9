"""Runs draws of new seeds and prints what became of them.

python -m tests.generated --first 1000 --minutes 30     writes failing draws, made smaller, to tests/generated/cases
python -m tests.generated --first 7 --draws 1           one seed
python -m tests.generated --algorithms GAIL AIRL        draws of these algorithms alone
"""

import argparse
import contextlib
import itertools
import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.generated.draw import draw
from tests.generated.hunt import Runner, names_of_faults, save_case, shrunk

CASES = Path(__file__).with_name("cases")


class Tally:
    """Counts of draws by what became of them.

    Args:
        strict: refusals without a remedy are faults.
    """

    def __init__(self, strict: bool = False):
        self.begun, self.strict = time.monotonic(), strict
        self.total = self.trained = self.remedied = self.unremedied = self.failed = self.exact = self.in_a_row = 0
        self.changed = self.refused_changes = self.restored_with = self.kept_out = self.read_faulty = 0
        self.faults: Counter[str] = Counter()
        self.examples: dict[str, tuple[int, str]] = {}
        self.refusals: Counter[str] = Counter()

    def add(self, outcome: dict) -> None:
        """Counts the outcome of a draw, as Outcome.to_json gives it."""
        self.total += 1
        lacks = {_shape(message) for message, remedy in outcome["refusals"] if remedy is None}
        self.refusals.update(lacks)
        faults = names_of_faults(outcome)
        for name in faults:
            self.faults[name] += 1
            messages = [fault["message"] for fault in outcome["faults"] if fault["stage"] == name.partition(":")[0]]
            self.examples.setdefault(name, (outcome["seed"], messages[0]))
        self.unremedied += bool(lacks)
        self.changed += bool(outcome["changes"])
        self.refused_changes += len(outcome["refused_changes"])
        self.restored_with += outcome["restored_with"]
        self.kept_out += outcome["kept_out"]
        self.read_faulty += outcome["read_faulty"]
        self.failed += bool(faults)
        if faults or (lacks and self.strict):
            self.in_a_row = 0
            return
        self.in_a_row += 1
        self.exact += outcome["exact"]
        if outcome["trained"] and not lacks:
            self.trained += not outcome["refusals"]
            self.remedied += bool(outcome["refusals"])

    def row(self, first: int) -> str:
        """A row of the table in docs/project/proof.md."""
        columns = commit(), f"{first} to {first + self.total - 1}", self.total, self.in_a_row
        shares = map(self._share, (self.trained, self.remedied, self.exact))
        return f"| {' | '.join(map(str, (*columns, *shares, f'{self._per_minute():.0f}')))} |"

    def lines(self) -> Iterator[str]:
        """What has been counted, in words, and each kind of fault with its first seed."""
        yield f"{self.total} draws, {self._per_minute():.0f} a minute; {self.in_a_row} in a row without a fault"
        yield f"trained as drawn {self._share(self.trained)}, with remedies {self._share(self.remedied)}"
        yield f"refused without a remedy {self._share(self.unremedied)}, faults {self._share(self.failed)}"
        yield f"compared after a restore, bit by bit: {self._share(self.exact)}"
        yield f"policies changed {self._share(self.changed)}, {self.refused_changes} changes were refused"
        yield f"restored with other settings {self._share(self.restored_with)}"
        yield f"faults in data {self._share(self.read_faulty)}, checkpoints of others {self._share(self.kept_out)}"
        for name, count in self.faults.most_common():
            seed, message = self.examples[name]
            yield f"  {count:4d} {name}  (seed {seed}: {message[:200]})"

    def _per_minute(self) -> float:
        return 60 * self.total / (time.monotonic() - self.begun)

    def _share(self, count: int) -> str:
        return f"{count} ({100 * count / max(self.total, 1):.0f} %)"


def _shape(message: str) -> str:
    """A refusal without its values, so that equal rules count together."""
    first = message.partition("\n- ")[2].partition("\n")[0] or message
    words = first.partition(": ")[2] if first.partition(": ")[0].endswith("Config") else first
    return "".join("#" if letter.isdigit() else letter for letter in words)[:110]


def commit() -> str:
    """The commit of the working tree, with a plus where it has changes."""

    def run(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, cwd=CASES.parent).stdout.strip()

    return run("rev-parse", "--short", "HEAD") + ("+" if run("status", "--porcelain", "--", "../../rllib") else "")


def main(words=None) -> int:
    given = _arguments(words)
    tally, ends = Tally(given.strict), time.monotonic() + 60 * given.minutes
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it says what it has counted then, too
    with Runner() as runner, contextlib.suppress(KeyboardInterrupt):
        for seed in itertools.islice(itertools.count(given.first), given.draws):
            if time.monotonic() > ends:
                break
            drawn = draw(seed)
            if given.algorithms and drawn["algorithm"] not in given.algorithms:
                continue
            outcome = runner.run(drawn)
            new = names_of_faults(outcome) - tally.faults.keys()
            tally.add(outcome)
            if given.log:
                with given.log.open("a") as file:
                    file.write(json.dumps({**outcome, "draw": drawn}, default=str) + "\n")
            if new and not given.no_shrinking:
                path = save_case(shrunk(drawn, outcome, runner), outcome, given.cases)
                print(f"seed {seed}: {', '.join(sorted(new))}; {path}", flush=True)
    print("\n".join([*tally.lines(), tally.row(given.first)]))
    if given.refusals:
        print("\n".join(f"  {count:4d} {message}" for message, count in tally.refusals.most_common()))
    return int(tally.failed > 0 or (tally.strict and tally.unremedied > 0))


def _arguments(words) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=int(time.time()), help="first seed; by default the time")
    parser.add_argument("--minutes", type=float, help="how long; by default 30, or until --draws are run")
    parser.add_argument("--draws", type=int, help="number of seeds at most")
    parser.add_argument("--algorithms", nargs="+", help="leave out draws of all others")
    parser.add_argument("--log", type=Path, help="file for the outcomes, a line of JSON each")
    parser.add_argument("--refusals", action="store_true", help="list refusals that have no remedy")
    parser.add_argument("--strict", action="store_true", help="refusals that have no remedy are faults")
    parser.add_argument("--cases", type=Path, default=CASES, help="directory for draws that fail")
    parser.add_argument("--no-shrinking", action="store_true", help="leave draws that fail as they are, and unwritten")
    given = parser.parse_args(words)
    if given.minutes is None:
        given.minutes = 30.0 if given.draws is None else math.inf
    return given


if __name__ == "__main__":
    sys.exit(main())
