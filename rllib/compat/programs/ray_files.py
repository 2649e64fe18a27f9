"""Example code of Ray, read from its files: those of an installed Ray, or of RLLIB_RAY_SOURCES."""

import importlib
import importlib.machinery
import importlib.util
import os
import types
from pathlib import Path

from rllib.compat.programs.lookup import present_path

# Directory that holds Ray's `rllib/examples` and `tune/examples`; set for workers by a program that lies in one.
SOURCES = "RLLIB_RAY_SOURCES"
_EXAMPLES = ("ray.rllib.examples", "ray.tune.examples")


def source(module: str) -> Path | None:
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


def example(module: str) -> types.ModuleType | None:
    """The module that a file of examples makes; the file is run once, when a name is first asked for."""
    if module not in _examples:
        file = source(module)
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
