"""Tuned examples by name, and by the algorithm and the environment that they are for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rllib
from rllib.algorithms.base.registry import get_algorithm_class
from rllib.cli.values import read_file

# The source tree has the examples next to the library, an installed package in it.
_PACKAGE = Path(rllib.__file__).parent
TUNED_EXAMPLES = next(
    (path for path in (_PACKAGE / "tuned_examples", _PACKAGE.parent / "tuned_examples") if path.is_dir()), _PACKAGE
)
# Folders of searches, and of settings for the recorded steps that they name.
_NOT_FOR_AN_ENVIRONMENT = ("tune", "offline")


@dataclass(frozen=True)
class TunedSettings:
    """Settings of a tuned example, for an algorithm and an environment that were named without a file.

    Seed and name of the example's runs are left out: runs without a number should differ.

    Attributes:
        name: name of the example, like ppo/cartpole; None if there are several and none is the plain one.
        others: names of further examples for both.
        config: settings; {} without a name.
        stop: result key -> value at which a run stops; {} without a name.
    """

    name: str | None
    others: tuple[str, ...]
    config: Mapping[str, Any]
    stop: Mapping[str, float]

    def notice(self, has_stop: bool) -> str:
        """The line that says where the settings come from; `has_stop`: the user has given a stop criterion."""
        if self.name is None:
            return f"RLlib's defaults; there are settings in {' and '.join(self.others)}: -f {self.others[0]}"
        others = f" (there is also {', '.join(self.others)})" if self.others else ""
        what = "settings" if has_stop or not self.stop else "settings and stop"
        return f"{what} of {self.name}{others}; --defaults for RLlib's"


def example_name(path: Path) -> str:
    """Name of the tuned example in a file: ppo/cartpole."""
    return str(path.relative_to(TUNED_EXAMPLES).with_suffix(""))


def is_tuned_example(path: Path) -> bool:
    """Whether a file is a tuned example, by any path to it."""
    return TUNED_EXAMPLES.resolve() in path.resolve().parents


def tuned_settings(algorithm: str, env: str) -> TunedSettings | None:
    """The settings that the tuned examples have for an algorithm and an environment; None if they have none.

    Of several examples, the plain one is taken: it lies in the algorithm's folder, and the names of all others there
    begin with its name (ppo/cartpole before ppo/cartpole_cleanrl).

    Args:
        algorithm: name, in upper or lower case; examples are for built-in algorithms.
        env: name of the environment, as the examples spell it.

    Raises:
        ValueError: if there is no algorithm of this name.
    """
    algorithm = get_algorithm_class(algorithm).__name__ if ":" not in algorithm else algorithm
    found = dict(_examples_for(algorithm.lower(), env))
    if not found:
        return None
    own = [name for name in found if name.partition("/")[0].replace("_", "") == algorithm.lower()]
    plain = min(own, key=len, default=None)
    if plain is None or not all(name.startswith(plain) for name in own):
        return TunedSettings(None, tuple(found), {}, {})
    keys = found.pop(plain)
    return TunedSettings(plain, tuple(found), keys.get("config", {}), keys.get("stop", {}))


def _examples_for(algorithm: str, env: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, keys) of each example for both, in alphabetical order; `algorithm` in lower case."""
    for path in sorted(TUNED_EXAMPLES.glob("*/*.yaml")):
        if path.parent.name in _NOT_FOR_AN_ENVIRONMENT:
            continue
        text = path.read_text()
        if env not in text or f"algorithm: {algorithm}\n" not in text.lower():
            continue  # parsing all of them would take a quarter of a second
        keys = read_file(path)
        if keys.get("env") == env and str(keys.get("algorithm")).lower() == algorithm:
            yield example_name(path), keys
