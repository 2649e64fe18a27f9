"""Arrays from `empty` in engines that copy what they store: writable until they are put, returned or passed on."""

from __future__ import annotations

import weakref

_writable = weakref.WeakValueDictionary()  # id -> array made by empty() and not yet stored


def empty(shape: tuple[int, ...], dtype):
    """See api.empty."""
    import numpy as np  # numpy takes longer to import than the whole runtime

    array = np.empty(shape, dtype)
    _writable[id(array)] = array
    return array


def freeze(array) -> None:
    """Storing an array made by `empty`, or a view of it, ends the time in which it may be written."""
    while array is not None:
        if _writable.pop(id(array), None) is not None:
            array.flags.writeable = False
        array = getattr(array, "base", None)
