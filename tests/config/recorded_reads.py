"""Records which settings are read by code that acts by them: not by their checks, copies, prints or files."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from unittest.mock import patch

from rllib.algorithms.base import policies
from rllib.algorithms.base.space_rules import broken_rules
from rllib.compat.names import aliases
from rllib.config.config_object import ConfigObject


class Reads(defaultdict):
    """Config class -> names of its settings that were read."""

    def __init__(self):
        super().__init__(set)
        self.checks = 0  # checks of settings under way, whose reads do not count
        self._by_object: dict[int, tuple[ConfigObject, set[str]]] = {}

    def note(self, config: ConfigObject, names: Iterable[str]) -> None:
        """Counts settings of a config as read."""
        self[type(config)].update(names)
        self._by_object.setdefault(id(config), (config, set()))[1].update(names)

    def of(self, config: ConfigObject) -> set[str]:
        """Names of the settings that were read from this very object."""
        return self._by_object.get(id(config), (config, set()))[1]


@contextlib.contextmanager
def recorded_reads() -> Iterator[Reads]:
    """Records reads of configs, as attributes or items, in this process."""
    reads = Reads()

    def note(config, name):
        if not reads.checks and not name.startswith("_"):
            setting = config._find(name)
            if setting is not None:
                reads.note(config, [setting.name])
            elif name in aliases.READABLE_DICTS:
                reads.note(config, aliases.READABLE_DICTS[name])

    def noting(method):
        def read(self, name, *default):
            note(self, name)
            return method(self, name, *default)

        return read

    def unrecorded(method):
        def check(self, *args, **kwargs):
            reads.checks += 1
            try:
                result = method(self, *args, **kwargs)
                return iter(list(result)) if isinstance(result, Iterator) else result
            finally:
                reads.checks -= 1

        return check

    def freeze(self):
        self.__dict__["_frozen"] = True  # its attributes go on through __getattr__
        return self

    unread = ("validate", "mistakes", "log_without_effect")
    kept = {name: vars(ConfigObject)[name] for name in ("__getattr__", "__getitem__", "get", "freeze", *unread)}
    changed = {name: noting(kept[name]) for name in ("__getattr__", "__getitem__", "get")}
    changed |= {name: unrecorded(kept[name]) for name in unread} | {"freeze": freeze}
    try:
        for name, method in changed.items():
            setattr(ConfigObject, name, method)
        with patch.object(policies, "broken_rules", unrecorded(broken_rules)):
            yield reads
    finally:
        for name, method in kept.items():
            setattr(ConfigObject, name, method)
