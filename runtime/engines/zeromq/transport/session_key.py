"""The key of a session: who has not read its file cannot send a frame that any process of the session would accept."""

from __future__ import annotations

import os
import stat

from . import wire

NAME = "key"


def create_key(session: str) -> None:
    """Writes a new key into a session's directory.

    Raises:
        OSError: it cannot be written, or there is one.
    """
    descriptor = os.open(os.path.join(session, NAME), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(os.urandom(wire.SESSION_KEY_BYTES))


def use_key(session: str) -> None:
    """Has this process send and accept frames of this session.

    Raises:
        PermissionError: the file belongs to another user, or others may read it.
        OSError, ValueError: there is none, or it is no key.
    """
    path = os.path.join(session, NAME)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(f"{path} must be a file of this user that no other user may read")
        key = os.read(descriptor, wire.SESSION_KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(key) != wire.SESSION_KEY_BYTES:
        raise ValueError(f"{path} holds no key of a session")
    wire.use_key(key)
