"""How soon a session and its actors are there, and what an idle one costs in memory.

The limit is a bare fork of this process whose child says that it runs; an actor answers its first call.
"""

import os
import time
from pathlib import Path

from measure import Row, alternate, arguments, machine, peer, table

import runtime


@runtime.remote
class Actor:
    def echo(self, value=None):
        return value

    def private_mib(self):
        """Memory that this process shares with no other (USS)."""
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024


def seconds(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def start(count: int) -> float:
    """Seconds until so many new actors have answered."""
    actors = []

    def work():
        actors.extend(Actor.options(num_cpus=0).remote() for _ in range(count))
        runtime.get([actor.echo.remote() for actor in actors])

    taken = seconds(work)
    for actor in actors:
        runtime.kill(actor)
    return taken


def fork(count: int) -> float:
    """Seconds until so many forked children have written a byte."""
    children = []

    def work():
        ends = [os.pipe() for _ in range(count)]
        for _, write in ends:
            pid = os.fork()
            if pid == 0:
                os.write(write, b"x")
                os._exit(0)
            children.append(pid)
        for read, write in ends:
            os.read(read, 1)
            os.close(read)
            os.close(write)

    taken = seconds(work)
    for pid in children:
        os.waitpid(pid, 0)
    return taken


def session() -> float:
    """Seconds of `init`; a session before this one has imported all there is to import."""
    return seconds(lambda: runtime.init("zeromq", num_cpus=2))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--actors", type=int, default=16, help="actors started at once")
    options = parser.parse_args()
    print(machine())
    theirs = {} if options.no_peers else peer("ray", "ray_runtime", "start", options.actors) or {}
    init_s, shutdown_s = [], []
    for _ in range(options.rounds):
        init_s.append(session())
        shutdown_s.append(seconds(runtime.shutdown))
    session()
    one = alternate(options.rounds, warm_up=2, ours=lambda: 1e3 * start(1), limit=lambda: 1e3 * fork(1))
    many = alternate(options.rounds, ours=lambda: start(options.actors), limit=lambda: fork(options.actors))
    actors = [Actor.remote() for _ in range(8)]
    mib = sorted(runtime.get([actor.private_mib.remote() for actor in actors]))[4]
    runtime.shutdown()
    ray = {"peer_name": "Ray"}
    table(
        [
            Row("init", "s", median(init_s), peer=theirs.get("init_s"), bar="<= 0.35", **ray),
            Row("shutdown", "s", median(shutdown_s), bar="<= 0.5"),
            Row("one actor ready", "ms", one.median("ours"), one.median("limit"), bar="<= 30"),
            Row(
                f"{options.actors} actors ready",
                "s",
                many.median("ours"),
                many.median("limit"),
                peer=theirs.get("ready_s"),
                bar=f"<= {0.2 * max(1, options.actors / 16):.3g}",
                **ray,
            ),
            Row("private memory of an idle actor", "MiB", mib, bar="<= 8"),
        ]
    )


def median(values) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
