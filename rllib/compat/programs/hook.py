"""The import hook: `import ray` or `import stable_baselines3`, and everything below, gives this library's objects.

A finder on `sys.meta_path` goes before the one that would find an installed library of that name. It serves any module
of the libraries that are switched on: those of the tables (names.py, names_of_sb3.py), and others with stand-ins in
place of all names, so that a program fails where it uses a name, not where it imports it. Example code of Ray
(`ray.rllib.examples`, `ray.tune.examples`) that the table does not have is read from its files (ray_files.py), and
imports through the hook in turn.

With engine="ray" the real Ray runs together with the hook. Its modules need their names in `sys.modules`, so from the
moment that our engine asks for it, `sys.modules` has Ray's, and `__import__` decides by the importing module which of
the two is meant: Ray and our engine get Ray, all others what this module serves.
"""

import builtins
import importlib
import importlib.abc
import importlib.machinery
import sys
import threading
import types

from rllib.compat.names import foreign_program
from rllib.compat.programs.absent import absent, place_in_program
from rllib.compat.programs.lookup import find, modules, present_path, reason_for, row, table_of
from rllib.compat.programs.ray_files import example, source
from rllib.did_you_mean import nearest

# Import of this module says that our engine is about to load the installed Ray.
_ENGINE = "runtime.engines.ray.connection"
# Modules that get the installed Ray, once it is loaded: Ray itself, and our engine.
_OWN = ("ray", "runtime")

_served: dict[str, "ServedModule"] = {}
_lock = threading.RLock()


class ServedModule(types.ModuleType):
    """A module of another library whose names are this library's objects, looked up when they are first read."""

    def __init__(self, name: str):
        super().__init__(name, f"{name}, served by {table_of(name).hook}")
        self.__path__ = []  # any module may have submodules

    def __getattr__(self, name: str):
        value = _value(self.__name__, name)
        types.ModuleType.__setattr__(self, name, value)
        return value

    def __setattr__(self, name: str, value):
        # The import system binds a module in its package. ray.util.placement_group is a function as well.
        if isinstance(value, ServedModule) and name in row(present_path(self.__name__)):
            return
        super().__setattr__(name, value)

    def __dir__(self):
        return sorted({*vars(self), *row(present_path(self.__name__))})

    def __reduce__(self):
        return served, (self.__name__,)


def served(name: str) -> ServedModule:
    """The module that a program sees under this name."""
    with _lock:
        if name not in _served:
            _served[name] = ServedModule(name)
        return _served[name]


def _value(module: str, name: str):
    if (ours := row(present_path(module)).get(name)) is not None:
        value = ours.load()
        # ray.exceptions is a module of ours as well, which knows no stand-ins.
        return served(f"{module}.{name}") if isinstance(value, types.ModuleType) else value
    if name == "__all__":
        return sorted(row(present_path(module)))
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    path = f"{module}.{name}"
    if present_path(path) in modules() or source(path):
        return _module(path)
    own = example(module)
    if own is not None and hasattr(own, name):
        return getattr(own, name)
    if (ours := find(module, name)) is not None:
        return ours.load()
    return absent(path, reason_for(present_path(path)) or _similar(module, name), place_in_program())


def _module(path: str) -> types.ModuleType:
    return served(path) if _gives_way(path) else importlib.import_module(path)


def _gives_way(path: str) -> bool:
    """Whether sys.modules has the installed library under this name."""
    return path.partition(".")[0] == "ray" and _ray_is_loaded()


def _similar(module: str, name: str) -> str | None:
    near = nearest(name, row(present_path(module)))
    return f"did you mean {' or '.join(near)}" if near else None


# ---------------------------------------------------------------------- the finder


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves the modules of the libraries that are switched on.

    Attributes:
        libraries: first packages of their modules' names.
    """

    def __init__(self):
        self.libraries: set[str] = set()

    def find_spec(self, fullname, path=None, target=None):
        if fullname == _ENGINE and "ray" in self.libraries:
            _give_way()
        if fullname.partition(".")[0] not in self.libraries or _gives_way(fullname):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return served(spec.name)

    def exec_module(self, module):
        pass


_finder = _Finder()
_import = builtins.__import__


def install(*libraries: str) -> None:
    """Serves libraries' names in this process from now on; calling it again changes nothing.

    The process counts as that of a program for another library then.

    Args:
        libraries: their packages, of one table.

    Raises:
        ImportError: the program has imported one of them before, and holds objects of it.
    """
    for library in libraries:
        # In Ray's own worker processes, ray is imported before any code of this library.
        of_engine = library == "ray" and _ENGINE.rpartition(".")[0] in sys.modules
        if library in _finder.libraries or library not in sys.modules:
            continue
        if not of_engine:
            raise ImportError(
                f"the installed {library} has been imported already: `import {table_of(library).hook}` must come "
                f"before `import {library}`"
            )
        _by_caller()
    _finder.libraries.update(libraries)
    foreign_program.mark()
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _give_way() -> None:
    """Leaves the name `ray` in sys.modules to the installed Ray."""
    if not _ray_is_loaded():
        for name, module in list(sys.modules.items()):
            if isinstance(module, ServedModule) and name.partition(".")[0] == "ray":
                del sys.modules[name]
        _by_caller()


def _by_caller() -> None:
    builtins.__import__ = _import_by_caller


def _ray_is_loaded() -> bool:
    return builtins.__import__ is _import_by_caller


def _import_by_caller(name, globals=None, locals=None, fromlist=(), level=0):
    if level == 0 and name.partition(".")[0] == "ray" and globals is not None:
        importer = globals.get("__name__") or ""
        if importer.partition(".")[0] not in _OWN:
            return served(name) if fromlist else served("ray")
    return _import(name, globals, locals, fromlist, level)
