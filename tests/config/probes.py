"""Finds by observation what each setting of each algorithm does: it acts, is refused, or says that it does not act.

1. A short run of every algorithm, with all defaults that can be left, records which settings are read (recorded_reads).
2. A setting that this algorithm did not read gets another value, drawn from its declaration, and the run is repeated:
   the value may be refused, told of, or read now.
3. What is left is looked for in runs of other kinds (`SITUATIONS`), in which it has a meaning.

Settings and algorithms are those that are declared; nothing here names one that is only to be read.
"""

import contextlib
import io
import logging
import math
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from rllib import notices
from rllib.algorithms.base.config import frozen
from rllib.config.sections import Setting
from tests.algorithms.test_every_algorithm import small
from tests.config.recorded_reads import recorded_reads

# Outcomes, from the best evidence to none.
ACTS, REFUSED, TOLD, NOTHING = "acts", "refused", "told", "nothing"


def other_value(setting: Setting) -> Any:
    """A valid value that differs from the default, drawn from the declaration.

    Raises:
        LookupError: if the declaration does not say what a value looks like, as for functions and classes.
    """
    for value in candidates(setting.type, setting.default, setting):
        with contextlib.suppress(TypeError):
            if _right(setting, value):
                return setting.converted(value)
    raise LookupError(f"{setting.name}: no value of {setting.type} is known to be right")


def _right(setting: Setting, value) -> bool:
    free = Setting(setting.name, setting.section, setting.type, setting.default, "", setting.range)
    return free.problem(value) is None and value != setting.default


def _some_function(*args, **kwargs):
    """Value of settings that take functions or classes: whoever reads it fails by it, and shows so that it is read."""
    raise LookupError("the drawn value was called")


def candidates(type_, default, setting) -> Iterator[Any]:
    origin = get_origin(type_)
    if origin is Literal:
        yield from get_args(type_)
    elif origin in (Union, types.UnionType):
        for alternative in get_args(type_):
            yield from candidates(alternative, default, setting)
    elif type_ is bool:
        yield from (True, False)
    elif type_ in (int, float):
        number = default if isinstance(default, int | float) and not isinstance(default, bool) else 1
        low = setting.range.low if setting.range and setting.range.low > -math.inf else 0
        if type_ is float and math.isfinite(number):
            yield from (number / 2, number * 2)
        yield from (number + 1, low + 1, low + 0.5, low)
    elif type_ is str:
        yield "other"
    elif origin is list:
        yield ["obs"] if get_args(type_) == (str,) else [5]
    elif type_ is list:
        yield [[0, 0.01], [1000, 0.02]]
    elif type_ is dict:
        yield {"some": 1}
    elif type_ is Any:
        yield from (_some_function, "other", True)
    elif type_ is types.NoneType:
        yield None


class Messages(logging.Handler):
    """Messages of the library's loggers, whatever their level."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record) -> None:
        self.lines.append(record.getMessage())

    def tell_of(self, name: str) -> bool:
        """Whether a line says that this name has no effect."""
        of_it = [line for line in self.lines if "no effect" in line and name in line]
        return any(re.search(rf"\b{name}\b.*no effect|no effect.*\b{name}\b", line) for line in of_it)


@contextlib.contextmanager
def messages() -> Iterator[Messages]:
    """Collects what is logged; notices that are given once a process are given again."""
    handler, library = Messages(), logging.getLogger("rllib")
    level, noticed = library.level, set(notices._noticed)
    library.addHandler(handler)
    library.setLevel(logging.DEBUG)
    notices._noticed.clear()
    try:
        yield handler
    finally:
        library.removeHandler(handler)
        library.setLevel(level)
        notices._noticed.update(noticed)


@dataclass
class Outcome:
    """What a run showed: settings that were read, the refusal, and what was logged."""

    read: set[str] = field(default_factory=set)
    refusal: str = ""
    told: Messages = field(default_factory=Messages)


def base(name: str):
    """The algorithm's short run."""
    config = small(name).debugging(seed=1, log_level="DEBUG")
    config.reporting(min_sample_timesteps_per_iteration=1)
    return config


def run(config, work: Path, iterations: int | str | None = 2) -> Outcome:
    """Builds, trains, evaluates and saves with these settings; with iterations=None it only builds."""
    outcome = Outcome()
    with recorded_reads() as reads, messages() as outcome.told, contextlib.redirect_stderr(io.StringIO()):
        try:
            with config.build() as algorithm:
                if iterations == "learn":
                    algorithm.learn(1)
                for _ in range(0 if iterations in ("learn", None) else iterations):
                    algorithm.train()
                if iterations is not None:
                    algorithm.save(str(work / "checkpoint"))
        except Exception as error:  # whatever the drawn value makes of the run shows that it is read
            outcome.refusal = str(error)
    outcome.read = set().union(*(reads[kind] for kind in reads if isinstance(config, kind))) if reads else set()
    return outcome


def changed(config, setting: Setting, value):
    """The config with another value of one setting."""
    return config._assign(setting.section, {setting.name: value}, merge=False)


def checked(config) -> Outcome:
    """Refusals and notices of these settings before anything is built."""
    outcome = Outcome()
    with messages() as outcome.told:
        try:
            frozen(type(config), config, None)
        except (TypeError, ValueError) as error:
            outcome.refusal = str(error)
    return outcome


def evidence(setting: Setting, make: Callable[[], Any], work: Path) -> str:
    """What is seen of another value of a setting that the shortest run does not read.

    Args:
        setting: of the config.
        make: makes the config of the shortest run.
        work: a directory.

    Returns:
        an outcome.
    """
    try:
        value = other_value(setting)
    except LookupError:
        return NOTHING
    try:
        config = changed(make(), setting, value)
    except (TypeError, ValueError):
        return REFUSED
    # build() warns of most settings without effect, in a third of the time of a run.
    for look in (lambda: checked(config), lambda: run(config, work, None), lambda: run(config, work)):
        outcome = look()
        if outcome.told.tell_of(setting.name):
            return TOLD
        if setting.name in outcome.refusal:
            return REFUSED
    return ACTS if setting.name in outcome.read else NOTHING
