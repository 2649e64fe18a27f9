"""Prints the dependencies of the library at one end of their ranges, as constraints for pip.

    python tools/bounds.py oldest     numpy==2.0, for each lower bound of pyproject.toml
    python tools/bounds.py newest     nothing: pip takes the newest that a range admits

`make oldest` and `make newest` run the quick tests with them.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*>=\s*([0-9.]+)")


def oldest(root: Path = ROOT) -> list[str]:
    """ "name==version" for each dependency of the library that has a lower bound, without those of extras."""
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    found = [_BOUND.match(line) for line in declared]
    return [f"{each[1]}=={_whole(each[2])}" for each in found if each]


def _whole(version: str) -> str:
    """A version as releases have it: of "13" any 13.x would be older than what `>=13` means."""
    return version if "." in version else f"{version}.0"


if __name__ == "__main__":
    if sys.argv[1:] not in (["oldest"], ["newest"]):
        sys.exit(__doc__)
    print("\n".join(oldest() if sys.argv[1] == "oldest" else []))
