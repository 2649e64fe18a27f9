"""Messages between the processes that answer requests and the learner; each is one packet of a socket.

An observation or an action is sent as the bytes of its array; its space defines dtype and shape.
"""

import socket
from typing import Any

import msgspec
import numpy as np

# Bytes of a packet; the kernel's usual limit for a socket's buffer is 208 KiB, with its own records.
MOST_BYTES = 96 << 10


class Decision(msgspec.Struct, array_like=True, tag="decision"):
    """An action that was answered.

    Attributes:
        action_id: id of the action.
        episode_id: id of the episode; None: the decision is an episode of one step.
        at: time on the machine's monotonic clock (seconds).
        version: version of the policy that has acted.
        observation, action: bytes of the arrays.
    """

    action_id: str
    episode_id: str | None
    at: float
    version: int
    observation: bytes
    action: bytes


class Gap(msgspec.Struct, array_like=True, tag="gap"):
    """A decision of an episode that could not be sent: the steps before and after it are not consecutive.

    Attributes:
        episode_id: id of the episode.
        at: time of the decision (seconds).
    """

    episode_id: str
    at: float


class Reward(msgspec.Struct, array_like=True, tag="reward"):
    """The reward of an action.

    Attributes:
        request: number of the request, which the answer repeats.
        action_id: id of the action.
        reward: a finite number.
        terminated, truncated: whether the episode has ended; terminated is None where the client did not report it.
        next_observation: bytes of the next observation; None: it is the next decision's observation.
    """

    request: int
    action_id: str
    reward: float
    terminated: bool | None = None
    truncated: bool = False
    next_observation: bytes | None = None


class Ask(msgspec.Struct, array_like=True, tag="ask"):
    """A request for the statistics; `resume` also makes the present level of returns the baseline."""

    request: int
    resume: bool = False


class Answer(msgspec.Struct, array_like=True):
    """The learner's answer: an HTTP status, and a message or the statistics."""

    request: int
    status: int
    content: Any = None


encode = msgspec.msgpack.Encoder().encode
decode_of_worker = msgspec.msgpack.Decoder(Decision | Gap | Reward | Ask).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Connected sockets that keep packets whole, do not block, and can be inherited."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for each in pair:
        each.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            each.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    return pair


def array_bytes(space, value) -> bytes:
    """The bytes of a value in a space whose values are single arrays."""
    return np.ascontiguousarray(value, space.dtype).tobytes()


def array_of(space, content: bytes):
    """The value of these bytes: an array with the space's dtype and shape."""
    return np.frombuffer(content, space.dtype).reshape(space.shape)
