"""Large arrays: stored, read in another process, sent there and back; and a batch of many columns as an argument.

The limit is one copy in memory of as many bytes, between arrays that have been touched before. The peers are Ray, and
Monarch and xoscar, which have no store: an array is an argument there. Each is measured once, before the rounds.
"""

import time

import numpy as np
from measure import Row, alternate, arguments, machine, peer, table

import runtime

WITHOUT_A_STORE = ("Monarch", "xoscar")


@runtime.remote
class Reader:
    def first(self, array):
        return float(array[0])

    def echo(self, array):
        return array

    def count(self, batch):
        return sum(len(column) for column in batch.values())

    def nothing(self):
        return None


def seconds(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def copy_of(array):
    """A function that copies the array's bytes to the same place again and again."""
    target = np.empty_like(array)
    target[:] = 0
    return lambda: np.copyto(target, array)


def measure(megabytes: int, rounds: int):
    array = np.ones(megabytes * 10**6 // 4, np.float32)
    batch = {f"column_{i}": np.ones((1000, 62), np.float32) for i in range(20)}
    reader = Reader.remote()
    copy, copy_column = copy_of(array), copy_of(np.concatenate(list(batch.values())))
    kept = runtime.put(array)

    def send():
        runtime.get(reader.first.remote(array))

    def get_first(ref=kept):
        runtime.get(reader.first.remote(ref))

    def call_and_copy():
        runtime.get(reader.nothing.remote())
        copy_column()

    memcpy = lambda: seconds(copy)  # noqa: E731
    return {
        "put": alternate(rounds, warm_up=2, ours=lambda: seconds(lambda: runtime.put(array)), limit=memcpy),
        "get": alternate(rounds, ours=lambda: seconds(lambda: runtime.get(kept)), limit=memcpy),
        "elsewhere": alternate(rounds, ours=lambda: seconds(get_first), limit=memcpy),
        "sent": alternate(rounds, warm_up=2, ours=lambda: seconds(send), limit=memcpy),
        "echo": alternate(
            rounds, warm_up=2, ours=lambda: seconds(lambda: runtime.get(reader.echo.remote(array))), limit=memcpy
        ),
        "batch": alternate(
            rounds,
            warm_up=5,
            ours=lambda: seconds(lambda: runtime.get(reader.count.remote(batch))),
            limit=lambda: seconds(call_and_copy),
        ),
    }


def main() -> None:
    parser = arguments(__doc__, rounds=10)
    parser.add_argument("--megabytes", type=int, default=100, help="size of the large array")
    options = parser.parse_args()
    print(machine())
    sizes = options.megabytes, options.rounds
    theirs, without_a_store = {}, {}
    if not options.no_peers:
        theirs = peer("ray", "ray_runtime", "put", *sizes) or {}
        found = {label: peer(label.lower(), f"{label.lower()}_runtime", "arrays", *sizes) for label in WITHOUT_A_STORE}
        without_a_store = {label: figures for label, figures in found.items() if figures}
    runtime.init("zeromq", num_cpus=2, object_store_memory=max(2**30, 8 * options.megabytes * 10**6))
    result = measure(options.megabytes, options.rounds)
    runtime.shutdown()
    size = f"{options.megabytes} MB"
    table(
        [
            row(result["put"], f"put {size}", "<= 1.05 limit", theirs.get("put_s")),
            row(result["get"], f"get {size} here", "<= 0.35 limit"),
            row(result["elsewhere"], f"read {size} in an actor", "<= 0.35 limit", theirs.get("get_elsewhere_s")),
            row(result["sent"], f"{size} as an argument, read in an actor", ""),
            *(
                row(result["sent"], "  beside it", "", figures["first_s"], label)
                for label, figures in without_a_store.items()
            ),
            row(result["echo"], f"{size} to an actor and back", "<= 2.4 limit"),
            *(
                row(result["echo"], "  beside it", "", figures["echo_s"], label)
                for label, figures in without_a_store.items()
            ),
            row(result["batch"], "20 columns, 5 MB, as argument (limit: a call and a copy)", "<= 1.5 limit"),
        ]
    )


def row(rounds, what, bar, peer_s=None, label="Ray") -> Row:
    figures = {"ours": 1e3 * rounds.median("ours"), "limit": 1e3 * rounds.median("limit")}
    peer_ms = 1e3 * peer_s if peer_s is not None else None
    return Row(what, "ms", **figures, limit_ratio=rounds.ratio("ours", "limit"), peer=peer_ms, peer_name=label, bar=bar)


if __name__ == "__main__":
    main()
