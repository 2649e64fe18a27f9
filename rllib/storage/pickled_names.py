"""Pickles that name classes of other libraries, written without those libraries.

What such a library reads is a class's name, and the attributes of an object. Both are written here as they stand;
nothing of that library needs to be installed, and nothing is unpickled.
"""

import io
import pickle
from typing import Any, ClassVar


class Named:
    """A class or function of another library.

    Args:
        path: "module.Name".
    """

    def __init__(self, path: str):
        self.path = path


class Instance:
    """An object of another library's class, made without its constructor.

    Args:
        path: "module.Name" of the class.
        attributes: by name.
    """

    def __init__(self, path: str, attributes: dict[str, Any]):
        self.path, self.attributes = path, attributes


class _Writer(pickle._Pickler):
    """Writes `Named` and `Instance` as what they represent."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def _save_named(self, named: Named) -> None:
        module, _, name = named.path.rpartition(".")
        self.save(module)
        self.save(name)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(named)

    def _save_instance(self, instance: Instance) -> None:
        self.save(Named(instance.path))
        self.write(pickle.EMPTY_TUPLE + pickle.NEWOBJ)
        self.memoize(instance)
        self.save(instance.attributes)
        self.write(pickle.BUILD)

    dispatch[Named] = _save_named
    dispatch[Instance] = _save_instance


def dumps_with_names(value: Any) -> bytes:
    """The pickle of a value in which `Named` and `Instance` represent what another library has.

    Raises:
        Exception: as `pickle.dumps`, for a value that has no pickle.
    """
    written = io.BytesIO()
    _Writer(written, 4).dump(value)
    return written.getvalue()
