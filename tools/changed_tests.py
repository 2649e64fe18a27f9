"""Names the test files that a change is likely to break, those first that say most about it: `make check` runs them.

    python tools/changed_tests.py              of what git says has changed since the branch left main, committed or not
    python tools/changed_tests.py --since v1   since another commit
    python tools/changed_tests.py --most 20    twenty files instead of twelve

A changed test is one of them. Of a changed module they are the tests that import it or a name of it.
"""

import argparse
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("rllib", "runtime", "tools", "benchmarks")


def changed_files(since: str, root: Path = ROOT) -> list[Path]:
    """Paths below the root that differ from a commit, and new ones that git does not ignore."""

    def lines(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()

    base = lines("merge-base", since, "HEAD")[0]
    names = {*lines("diff", "--name-only", base), *lines("ls-files", "--others", "--exclude-standard")}
    return [Path(name) for name in sorted(names) if (root / name).is_file()]


def tests_of(changed: Iterable[Path], root: Path = ROOT) -> list[Path]:
    """Test files for changed files: the changed ones, then those that import most of what has changed."""
    changed = list(changed)
    tests = {path.relative_to(root): path.read_text() for path in (root / "tests").rglob("test_*.py")}
    first = [path for path in changed if path in tests]
    modules = [
        ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for path in changed
        if path.suffix == ".py" and path.parts[0] in PACKAGES
    ]
    counts = {path: sum(_imports(text, module) for module in modules) for path, text in tests.items()}
    # A test named after a module is about it.
    stems = {f"test_{module.rpartition('.')[2]}" for module in modules}
    counts |= {path: 1000 for path in counts if path.stem in stems}
    others = sorted((path for path in counts if counts[path] and path not in first), key=lambda path: -counts[path])
    return first + others


def _imports(text: str, module: str) -> bool:
    parent, _, name = module.rpartition(".")
    return any(form in text for form in (f"from {module} import", f"import {module}\n", f"from {parent} import {name}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default="main", metavar="COMMIT")
    parser.add_argument("--most", type=int, default=12, metavar="N")
    given = parser.parse_args()
    print("\n".join(map(str, tests_of(changed_files(given.since))[: given.most])))


if __name__ == "__main__":
    main()
