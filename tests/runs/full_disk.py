"""A disk that is full, for this process and those that it starts."""

import contextlib
import resource


@contextlib.contextmanager
def disk_of(size_bytes):
    """No file grows larger: the call that would is a short write, and the next an OSError, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
