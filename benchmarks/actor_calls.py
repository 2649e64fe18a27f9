"""Calls of one actor, one after the other and many in flight, of a coroutine method, and queued tasks that do nothing.

The limit is what two bare processes reach with a pair of PUSH/PULL sockets over ipc: a byte there and back, and for the
calls in flight pickled messages, since a call without its values in a pickle is none. Calls in flight carry a number
each, and once a list, since the runtime packs the former alone (runtime/engines/zeromq/transport/packed.py).

The peers are Ray, Monarch and xoscar, each in a separate process that is measured once, before the rounds. Monarch
and xoscar are called from coroutines, as their documentation has it, with up to 256 calls in flight.
"""

import os
import pickle
import tempfile
import time

import zmq
from measure import Row, alternate, arguments, machine, peer, table

import runtime

WINDOW = 256  # messages on their way: no queue without a bound, as in the runtime


class Raw:
    """A forked process that sends back what it gets, and the sockets to talk to it."""

    def __init__(self, directory):
        there, back = f"ipc://{directory}/there", f"ipc://{directory}/back"
        self.pid = os.fork()
        if self.pid == 0:
            self._echo(there, back)
        context = zmq.Context()
        self.pull, self.push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        for socket in (self.pull, self.push):
            socket.set_hwm(0)
        self.pull.bind(back)
        self.push.connect(there)

    def _echo(self, there, back):
        context = zmq.Context()
        pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        for socket in (pull, push):
            socket.set_hwm(0)
        pull.bind(there)
        push.connect(back)
        while message := pull.recv():
            push.send(message if len(message) == 1 else pickle.dumps(pickle.loads(message)))
        os._exit(0)

    def call(self):
        self.push.send(b"x")
        self.pull.recv()

    def many(self, count):
        sent = 0
        for received in range(count):
            while sent < min(count, received + WINDOW):
                self.push.send(pickle.dumps(((sent,), {})))
                sent += 1
            pickle.loads(self.pull.recv())

    def close(self):
        self.push.send(b"")
        os.waitpid(self.pid, 0)


@runtime.remote
class Echo:
    def echo(self, value=None):
        return value


class AsyncEcho:
    async def echo(self, value=None):
        return value


def start_async_actor():
    """An actor whose method is a coroutine; None in an earlier checkout, which has none of that kind."""
    try:
        return runtime.remote(AsyncEcho).remote()
    except TypeError:
        return None


@runtime.remote
def nothing():
    return None


def call_times(call, count: int) -> list[float]:
    """Seconds of each of `count` calls, shortest first."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return sorted(times)


def rate(work, count: int) -> float:
    """Calls a second."""
    started = time.perf_counter()
    work(count)
    return count / (time.perf_counter() - started)


def measure(options, raw, actor, async_actor):
    def sync(call, share):
        return lambda: 1e6 * call_times(call, options.calls)[int(share * options.calls)]

    def ours():
        runtime.get(actor.echo.remote())

    def many(count, actor=actor):
        runtime.get([actor.echo.remote(number) for number in range(count)])

    def lists(count):
        runtime.get([actor.echo.remote([number]) for number in range(count)])

    def tasks(count):
        runtime.get([nothing.remote() for _ in range(count)])

    rounds = options.rounds
    result = {
        "sync": alternate(rounds, ours=sync(ours, 0.5), limit=sync(raw.call, 0.5)),
        "sync p99": alternate(rounds, ours=sync(ours, 0.99), limit=sync(raw.call, 0.99)),
        "pipelined": alternate(
            rounds,
            ours=lambda: rate(many, options.pipelined),
            lists=lambda: rate(lists, options.pipelined),
            limit=lambda: rate(raw.many, options.pipelined),
        ),
        "tasks": alternate(max(1, rounds // 3), ours=lambda: rate(tasks, options.tasks)),
    }
    if async_actor is not None:
        result["coroutines"] = alternate(
            max(1, rounds // 3), ours=lambda: rate(lambda count: many(count, async_actor), options.pipelined)
        )
    return result


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--calls", type=int, default=2000, help="calls one after the other in each round")
    parser.add_argument("--pipelined", type=int, default=20_000, help="calls in flight in each round")
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks queued in each round")
    options = parser.parse_args()
    print(machine())
    theirs = {} if options.no_peers else peers(options)
    with tempfile.TemporaryDirectory() as directory:
        raw = Raw(directory)
        runtime.init("zeromq", num_cpus=2)
        actor = Echo.remote()
        call_times(lambda: runtime.get(actor.echo.remote()), 200)
        result = measure(options, raw, actor, start_async_actor())
        runtime.shutdown()
        raw.close()
    table(rows(result, theirs))
    print(*(result[name].spread(side) for name in ("sync", "pipelined") for side in ("ours", "limit")), sep="; ")


def peers(options) -> dict[str, dict]:
    """What each of the peers has measured, by its name in the table; without those that are not there."""
    found = {"Ray": peer("ray", "ray_runtime", "calls", options.calls, options.tasks)}
    for name, label in (("monarch", "Monarch"), ("xoscar", "xoscar")):
        found[label] = peer(name, f"{name}_runtime", "calls", options.calls)
    return {label: figures for label, figures in found.items() if figures}


def rows(result, theirs) -> list[Row]:
    def row(name, what, unit, bar, key=None, factor=1.0, side="ours", label="Ray"):
        rounds = result[name]
        figures = {
            "ours": rounds.median(side),
            "limit": rounds.median("limit"),
            "limit_ratio": rounds.ratio(side, "limit"),
        }
        figure = theirs.get(label, {}).get(key)
        theirs_in_unit = factor * figure if figure else None
        return Row(what, unit, **figures, peer=theirs_in_unit, peer_name=label, bar=bar)

    described = [
        ("sync", "actor call, median", "us", "<= 1.6 limit", "sync_call_s", 1e6),
        ("sync", "  beside Ray", "us", "<= 0.25 peer", "sync_call_s", 1e6),
        ("sync p99", "actor call, 99 %", "us", "<= 5 limit", "sync_call_p99_s", 1e6),
        ("pipelined", "calls in flight", "1/s", ">= 0.6 limit", "pipelined_calls_per_s"),
        ("pipelined", "calls in flight, a list each", "1/s", "", "pipelined_calls_per_s", 1.0, "lists"),
        ("coroutines", "calls of a coroutine", "1/s", ">= 5 peer", "coroutine_calls_per_s"),
        ("tasks", "queued tasks", "1/s", ">= 6000", "tasks_per_s"),
        ("tasks", "  beside Ray", "1/s", ">= 5 peer", "tasks_per_s"),
    ]
    made = [row(*cells) for cells in described if cells[0] in result]
    for label in [name for name in theirs if name != "Ray"]:
        made += [
            row("sync", "  actor call, median", "us", "", "sync_call_s", 1e6, label=label),
            row("pipelined", "  calls in flight", "1/s", "", "pipelined_calls_per_s", label=label),
        ]
    return made


if __name__ == "__main__":
    main()
