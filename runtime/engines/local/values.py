"""Values of the local engine: pickled as between processes, and the references to them."""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Callable

from ... import context, errors
from ...pickling import Pickler
from ...remote.actors import handle_session
from ...remote.refs import ObjectRef, SessionBound, Unseen
from ..writable import freeze


class Stored:
    """A pickled value: the references and handles inside it are kept as they are, buffers as read-only bytes."""

    __slots__ = ("buffers", "data", "objects")

    def __init__(self, value):
        self.objects, self.buffers, file = [], [], io.BytesIO()
        _LocalPickler(file, self).dump(value)
        self.data = file.getvalue()

    def load(self):
        """A new copy of the value; arrays share the stored memory."""
        unpickler = _LocalUnpickler(io.BytesIO(self.data), buffers=self.buffers)
        unpickler.objects = self.objects
        return unpickler.load()

    def keep_buffer(self, buffer):
        with buffer.raw() as view:
            self.buffers.append(bytes(view))
            freeze(view.obj)


class _LocalPickler(Pickler):
    def __init__(self, file, stored):
        super().__init__(file, protocol=5, buffer_callback=stored.keep_buffer)
        self.stored = stored

    def persistent_id(self, obj):
        if isinstance(obj, SessionBound):
            session_id = obj.session_id if isinstance(obj, ObjectRef) else handle_session(obj)
            if context.engine_of(session_id) is None:
                raise errors.SessionClosedError(f"{obj!r} belongs to another session")
            self.stored.objects.append(obj)
            return len(self.stored.objects) - 1
        return None


class _LocalUnpickler(pickle.Unpickler):
    def persistent_load(self, index):
        return self.objects[index]


def dumps(value) -> bytes:
    """The bytes of a `Stored`, for finding out what can be pickled."""
    return Stored(value).data


class Reference(ObjectRef):
    """A reference of the local engine: pending, or with a stored value or an error (made again for each `get`)."""

    __slots__ = ("__weakref__", "engine", "error", "id", "stored", "unseen")

    def __init__(self, engine, id_):
        self.engine, self.id = engine, id_
        self.stored: Stored | None = None
        self.error: Callable[[], BaseException] | None = None
        self.unseen: Unseen | None = None  # of the error

    @property
    def done(self) -> bool:
        return self.stored is not None or self.error is not None

    def __await__(self):
        return self.engine.get([self], None)[0]
        yield  # it is there at once, or never


class References:
    """Makes the references of a session.

    Args:
        engine: what they belong to.
    """

    def __init__(self, engine):
        self._engine = engine
        self._ids = itertools.count(1)

    def new_id(self) -> bytes:
        """An id that nothing else of the session has."""
        return next(self._ids).to_bytes(16, "big")

    def new(self) -> Reference:
        """A pending reference."""
        return Reference(self._engine, self.new_id())

    def check_own(self, refs) -> None:
        """Refuses references of another session."""
        for ref in refs:
            if not isinstance(ref, Reference) or ref.engine is not self._engine:
                raise errors.SessionClosedError(f"{ref!r} belongs to another session")
