"""The import hook: `import ray` and everything below it gives this library's objects under Ray's names.

A finder on `sys.meta_path` goes before the one that would find an installed Ray. It serves any module of Ray: those of
the table (names.py), and others with stand-ins instead of all names, so that a program fails where it uses a name,
not where it imports it. Example code of Ray (`ray.rllib.examples`, `ray.tune.examples`) that the table does not have is
read from the files of an installed Ray, or of RLLIB_RAY_SOURCES, and imports through the hook in turn.

With engine="ray" the real Ray runs together with the hook. Its modules need their names in `sys.modules`, so from the
moment that our engine asks for it, `sys.modules` has Ray's, and `__import__` decides by the importing module which of
the two is meant: Ray and our engine get Ray, all others what this module serves.
"""

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
import types
from pathlib import Path

from rllib.compat.programs.absent import absent, place_in_program
from rllib.compat.programs.lookup import find, modules, present_path, row
from rllib.compat.programs.names import reason_for
from rllib.did_you_mean import nearest

# Directory that holds Ray's `rllib/examples` and `tune/examples`; set for workers by a program that lies in one.
SOURCES = "RLLIB_RAY_SOURCES"
# Import of this module says that our engine is about to load the installed Ray.
_ENGINE = "runtime.engines.ray.connection"
_EXAMPLES = ("ray.rllib.examples", "ray.tune.examples")
# Who gets the installed Ray, once it is loaded: itself, and our engine.
_OWN = ("ray", "runtime")

_served: dict[str, "ServedModule"] = {}
_lock = threading.RLock()


class ServedModule(types.ModuleType):
    """A module of Ray whose names are ours; they are looked up when they are first asked for."""

    def __init__(self, name: str):
        super().__init__(name, f"{name}, served by rllib.as_ray")
        self.__path__ = []  # any module may have others below it

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
    """The module of Ray that a program sees under this name."""
    with _lock:
        if name not in _served:
            _served[name] = ServedModule(name)
        return _served[name]


def _value(module: str, name: str):
    if (ours := row(present_path(module)).get(name)) is not None:
        return ours.load()
    if name == "__all__":
        return sorted(row(present_path(module)))
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    path = f"{module}.{name}"
    if present_path(path) in modules() or _source(path):
        return _module(path)
    example = _example(module)
    if example is not None and hasattr(example, name):
        return getattr(example, name)
    if (ours := find(module, name)) is not None:
        return ours.load()
    return absent(path, reason_for(present_path(path)) or _similar(module, name), place_in_program())


def _module(path: str) -> types.ModuleType:
    return served(path) if _ray_is_loaded() else importlib.import_module(path)


def _similar(module: str, name: str) -> str | None:
    near = nearest(name, row(present_path(module)))
    return f"did you mean {' or '.join(near)}" if near else None


# ---------------------------------------------------------------------- files of Ray's examples


def _source(module: str) -> Path | None:
    """The file of a module of Ray's examples, where it lies today or by the path that is asked for; None: none."""
    if not module.startswith(_EXAMPLES):
        return None
    for root in _roots():
        for path in dict.fromkeys((present_path(module), module)):
            place = root.joinpath(*path.split(".")[1:])
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file():
                    return file
            if place.is_dir():
                return place
    return None


def _roots() -> list[Path]:
    given = os.environ.get(SOURCES)
    installed = importlib.machinery.PathFinder.find_spec("ray")
    places = [given] if given else []
    return [Path(place) for place in (*places, *(installed.submodule_search_locations if installed else ()))]


def sources_of(program: Path) -> Path | None:
    """The folder of Ray's sources that a program lies in: it holds rllib/examples or tune/examples."""
    for folder in program.resolve().parents:
        if folder.name == "examples" and folder.parent.name in ("rllib", "tune"):
            return folder.parent.parent
    return None


_examples: dict[str, types.ModuleType | None] = {}


def _example(module: str) -> types.ModuleType | None:
    """The module that a file of examples makes; the file is run once, when a name is first asked for."""
    if module not in _examples:
        file = _source(module)
        if file is None or file.is_dir():
            return None
        is_package = file.name == "__init__.py"
        spec = importlib.util.spec_from_file_location(
            module, file, submodule_search_locations=[str(file.parent)] if is_package else None
        )
        _examples[module] = run = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(run)
        except BaseException:
            del _examples[module]
            raise
    return _examples[module]


# ---------------------------------------------------------------------- the finder


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves the modules of Ray."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname == _ENGINE:
            _give_way()
        if fullname.partition(".")[0] != "ray" or _ray_is_loaded():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return served(spec.name)

    def exec_module(self, module):
        pass


_finder = _Finder()
_import = builtins.__import__


def install() -> None:
    """Serves Ray's names in this process from now on; calling it again changes nothing.

    Raises:
        ImportError: the program has imported the installed Ray before, and holds objects of it.
    """
    if _finder in sys.meta_path:
        return
    if "ray" in sys.modules:
        # In a worker process of Ray's it is there before any code of ours.
        if _ENGINE.rpartition(".")[0] not in sys.modules:
            raise ImportError(
                "the installed Ray has been imported already: `import rllib.as_ray` must come before `import ray`"
            )
        _by_caller()
    sys.meta_path.insert(0, _finder)


def _give_way() -> None:
    """Leaves the name `ray` in sys.modules to the installed Ray."""
    if not _ray_is_loaded():
        for name in [name for name, module in sys.modules.items() if isinstance(module, ServedModule)]:
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
