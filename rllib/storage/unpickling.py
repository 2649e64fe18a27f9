"""Reads what cloudpickle has written, without a change of the classes of this process.

cloudpickle carries a class of `__main__` by value and gives it its identity back where it is known, but sets all its
attributes again: its methods would become copies that see copied globals, and its attributes be those of the file.
"""

import io
import pickle
from typing import Any

from cloudpickle import cloudpickle


def unpickled(content: bytes) -> Any:
    """The pickled value; a class that this process has already is left as it is.

    Args:
        content: written by cloudpickle or pickle. It may run code.
    """
    return _Unpickler(content).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes):
        super().__init__(io.BytesIO(content))
        self._known = set(cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS)

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return self._set_state if found is cloudpickle._class_setstate else found

    def _set_state(self, made: type, state: Any) -> type:
        return made if made in self._known else cloudpickle._class_setstate(made, state)
