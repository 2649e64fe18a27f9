"""Arrays beyond the shared memory: written to the disk and, when the page cache has let go of them, read back.

The limit is the same bytes by `write` to a new file, and by `read` of a file that is not in the page cache either. As
with dd, the kernel decides when what is written reaches the disk.
"""

import os
import tempfile
import time

import numpy as np
from measure import Row, alternate, arguments, machine, table

import runtime
from runtime import context


def new_file(directory) -> int:
    return os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)


def evict(file: int) -> None:
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def evict_objects(directory) -> None:
    """Has the page cache let go of what the session has written to the directory."""
    files = f"/proc/{context.current_engine().node_pid}/fd"
    for fd in os.listdir(files):
        if os.readlink(f"{files}/{fd}").startswith(directory):
            with open(f"{files}/{fd}", "rb+") as file:
                evict(file.fileno())


def measure(array, directory, rounds):
    target = np.ones_like(array)

    def put():
        started = time.perf_counter()
        ref = runtime.put(array)
        seconds = time.perf_counter() - started
        del ref
        return seconds

    def write():
        file = new_file(directory)
        started = time.perf_counter()
        os.write(file, array)
        seconds = time.perf_counter() - started
        os.close(file)
        return seconds

    def get():
        ref = runtime.put(array)
        evict_objects(directory)
        started = time.perf_counter()
        np.copyto(target, runtime.get(ref))
        return time.perf_counter() - started

    def read():
        file = new_file(directory)
        os.write(file, array)
        evict(file)
        started = time.perf_counter()
        os.preadv(file, [target], 0)
        seconds = time.perf_counter() - started
        os.close(file)
        return seconds

    return {
        "written": alternate(rounds, warm_up=1, ours=put, limit=write),
        "read back": alternate(rounds, warm_up=1, ours=get, limit=read),
    }


def main() -> None:
    parser = arguments(__doc__, rounds=10)
    parser.add_argument("--megabytes", type=int, default=200, help="size of the array")
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="on the disk to measure")
    options = parser.parse_args()
    print(machine())
    array = np.random.default_rng(0).integers(0, 255, options.megabytes * 10**6, dtype=np.uint8)
    directory = os.path.abspath(options.directory)
    runtime.init("zeromq", num_cpus=1, object_store_memory=2**20, object_spilling_directory=directory)
    results = measure(array, directory, options.rounds)
    runtime.shutdown()
    table([row(rounds, f"{options.megabytes} MB {what}", "<= 1.43 limit") for what, rounds in results.items()])


def row(rounds, what, bar) -> Row:
    figures = {"ours": 1e3 * rounds.median("ours"), "limit": 1e3 * rounds.median("limit")}
    return Row(what, "ms", **figures, limit_ratio=rounds.ratio("ours", "limit"), bar=bar)


if __name__ == "__main__":
    main()
