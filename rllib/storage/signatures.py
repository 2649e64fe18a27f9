"""Signatures: which files that hold code this run has written itself.

A run is a program and the processes of its trials. They share a key, which stands in no file; so a file of another run,
and of an earlier one of the same experiment, is not theirs.
"""

import hmac
import secrets

_key = secrets.token_bytes(32)


def run_key() -> bytes:
    """Key with which this process signs what it writes."""
    return _key


def join_run(key: bytes) -> None:
    """Makes this process one of the run that has this key."""
    global _key
    _key = key


def signature(content: bytes) -> bytes:
    """The run's signature of a content, 32 bytes."""
    return hmac.digest(_key, content, "sha256")


def wrote(content: bytes, signed: bytes) -> bool:
    """Whether this run has written a content that has this signature."""
    return hmac.compare_digest(signed, signature(content))
