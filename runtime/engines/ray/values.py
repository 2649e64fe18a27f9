"""Values as Ray stores them, generators as it streams them, and the ids of objects and actors that it knows.

Every argument, result and stored value is pickled here, not by Ray: so the same things can be pickled on all engines,
and errors name the part that cannot. What Ray gets is the pickle alone, or a `Packed`: the pickle, its buffers, which
Ray lays into shared memory, and the value's own Ray references and handles. Ray's serializer sees and counts
them there, as it does with any reference inside a value.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import NamedTuple

import ray

from ... import context
from ...errors import SessionClosedError
from ...pickling import Pickler
from ...remote.actors import ActorHandle, handle_from_state, handle_session, handle_state
from ...remote.generators import DynamicObjectRefGenerator
from ...remote.refs import ForeignRef, ObjectRef
from ..base import Engine, refusal
from ..writable import freeze


class Reference(ObjectRef):
    """A reference around Ray's, which counts it."""

    __slots__ = ("__weakref__", "engine", "inner")

    def __init__(self, engine, inner: ray.ObjectRef):
        self.engine, self.inner = engine, inner

    @property
    def id(self) -> bytes:
        """Ray's id."""
        return self.inner.binary()

    def __reduce_ex__(self, protocol):
        refuse_plain_pickle(sys._getframe(1))
        return _reference, (self.engine.session_id, self.id, _exported(self.inner))


class ActorId(bytes):
    """The id of an actor, with what a call needs: each handle's lease holds one, and Ray counts these.

    Attributes:
        handle: Ray's.
        session_id: that it belongs to.
        class_name: name of the user's class, for messages.
        calls: (method, num_returns, options) -> Ray's function that makes such a call.
        on_end: called when the actor is killed, or the handle is dropped.
        may_restart: False if it is known that the actor never starts again.
    """

    def __new__(cls, handle, session_id: str, class_name: str):
        self = bytes.__new__(cls, handle._actor_id.binary())
        self.handle, self.session_id, self.class_name = handle, session_id, class_name
        self.calls, self.on_end, self.may_restart = {}, None, True
        return self

    def __reduce__(self):
        return _actor_id, (self.session_id, bytes(self), self.class_name, _exported(self.handle))


def _reference(session_id, id_, data):
    engine = context.engine_of(session_id)
    return ForeignRef(session_id, id_) if engine is None else Reference(engine, ray.cloudpickle.loads(data))


def _actor_id(session_id, id_, class_name, data):
    if context.engine_of(session_id) is None:
        return id_
    return ActorId(ray.cloudpickle.loads(data), session_id, class_name)


def _exported(inner) -> bytes:
    """Ray's reference or handle for a pickle that is not Ray's: Ray then keeps the value until this process ends."""
    return ray.cloudpickle.dumps(inner) if ray.is_initialized() else b""


class Argument(NamedTuple):
    """Stands in the arguments of a call for a reference that Ray replaces by its value."""

    index: int


class Refusal(NamedTuple):
    """Represents a value that there will never be; `decode` raises its error."""

    error: Exception


class Packed:
    """A pickled value that is more than bytes.

    Args:
        data: the pickle.
        objects: Ray's references and handles inside, in the order of the pickle's persistent ids.
        buffers: of the pickle.
    """

    __slots__ = ("buffers", "data", "objects")

    def __init__(self, data: bytes, objects: list, *buffers):
        self.data, self.objects, self.buffers = data, objects, buffers

    def __reduce__(self):
        return Packed, (self.data, self.objects, *map(pickle.PickleBuffer, self.buffers))


def encode(value) -> bytes | Packed:
    """A copy of the value (of large arrays when Ray stores it). Raises whatever pickling raises.

    Plain pickle first, in C; what it cannot write goes through cloudpickle.
    """
    buffers = []
    try:
        data = pickle.dumps(value, 5, buffer_callback=buffers.append)
        if b"__main__" not in data:
            return _composed(data, [], buffers)
    except Exception:  # user code runs in here; if it is to blame, it fails below again
        pass
    file, buffers = io.BytesIO(), []
    pickler = _Pickler(file, protocol=5, buffer_callback=buffers.append)
    pickler.objects = []
    pickler.dump(value)
    return _composed(file.getvalue(), pickler.objects, buffers)


def decode(stored: bytes | Packed):
    """A new copy of the value; its arrays share the stored memory."""
    if type(stored) is bytes:
        return pickle.loads(stored)
    if stored is None:  # Ray's own value of a generator that has ended
        return None
    if type(stored) is Refusal:
        raise stored.error
    if isinstance(stored, ray.DynamicObjectRefGenerator):
        engine = context.current_engine()
        return DynamicObjectRefGenerator([Reference(engine, inner) for inner in stored])
    if not stored.objects:
        return pickle.loads(stored.data, buffers=stored.buffers)
    unpickler = _Unpickler(io.BytesIO(stored.data), buffers=stored.buffers)
    unpickler.objects = stored.objects
    return unpickler.load()


def dumps(value) -> bytes:
    """The value in one piece. Ray keeps what the references and handles inside represent until this process ends."""
    return ray.cloudpickle.dumps(encode(value))


def loads(data: bytes):
    """The value that `dumps` has written."""
    return decode(ray.cloudpickle.loads(data))


def _composed(data, objects, buffers):
    if not objects and not buffers:
        return data
    views = [buffer.raw().toreadonly() for buffer in buffers]
    for view in views:
        freeze(view.obj)
    return Packed(data, objects, *views)


class _Pickler(Pickler):
    def persistent_id(self, obj):
        if isinstance(obj, ObjectRef):
            return self._number(obj, obj.session_id, lambda: obj.inner), None
        if isinstance(obj, ActorHandle):
            actor_id, class_name, methods = handle_state(obj)
            return self._number(obj, handle_session(obj), lambda: actor_id.handle), (class_name, methods)
        return None

    def _number(self, obj, session_id, inner) -> int:
        if context.engine_of(session_id) is None:
            raise SessionClosedError(f"{obj!r} belongs to another session")
        self.objects.append(inner())
        return len(self.objects) - 1


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, identity):
        index, handle = identity
        engine, inner = context.current_engine(), self.objects[index]
        if handle is None:
            return Reference(engine, inner)
        return handle_from_state(ActorId(inner, engine.session_id, handle[0]), *handle)


def refuse_plain_pickle(frame) -> None:
    """Makes the plain pickle in `encode` fail where `frame` belongs to a `__reduce_ex__` that it has called.

    References and handles are then carried next to the pickle. The frame tells; a flag would cost every call.
    """
    if frame.f_code is encode.__code__:
        raise TypeError("references and handles are carried next to the pickle")


class Turn(Reference):
    """Done when a generator has its next value, or has ended; for `wait`, which Ray does with the generator itself."""

    __slots__ = ()

    @property
    def id(self) -> bytes:
        """Id of the generator."""
        return self.inner.completed().binary()


class RayStream:
    """The results of one generator; see base.Stream."""

    def __init__(self, engine: Engine, inner: ray.ObjectRefGenerator):
        self._engine, self._inner = engine, inner
        self.completed = Reference(engine, inner.completed())

    def next_reference(self) -> Reference:
        return Turn(self._engine, self._inner)

    def take(self) -> Reference | None:
        if not self._engine.is_open:
            raise refusal(SessionClosedError)  # without a connection, Ray's own error says nothing of it
        try:
            return Reference(self._engine, next(self._inner))
        except StopIteration:
            return None

    @property
    def is_finished(self) -> bool:
        return self._inner.is_finished()

    def close(self) -> None:
        """Ray lets the generator run to its end."""


class Refused:
    """The one value of a generator that will never run is its error; see base.Stream."""

    def __init__(self, completed: Reference):
        self.completed, self.is_finished = completed, False

    def next_reference(self) -> Reference:
        """Done at once."""
        return self.completed

    def take(self) -> Reference | None:
        taken = None if self.is_finished else self.completed
        self.is_finished = True
        return taken

    def close(self) -> None:
        """There is nothing to end."""
