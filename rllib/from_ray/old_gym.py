"""`import gym` of programs that are older than gymnasium, where gym itself is not installed: gymnasium's modules."""

import importlib
import importlib.abc
import importlib.machinery
import sys


class _OldGym(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports gymnasium.x under the name gym.x, as the same object."""

    def find_spec(self, fullname, path=None, target=None):
        return importlib.machinery.ModuleSpec(fullname, self) if fullname.partition(".")[0] == "gym" else None

    def create_module(self, spec):
        module = importlib.import_module("gymnasium" + spec.name.removeprefix("gym"))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = module.__spec__.loader_state  # the import system has set the other name's spec


_finder = _OldGym()


def install() -> None:
    """Adds the finder behind all others, so that a gym that is installed goes first."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
