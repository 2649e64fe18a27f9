"""Actor runtimes without tasks and object store: what the scripts of monarch and xoscar measure alike.

    SCRIPT calls [COUNT]           calls one after the other, and ten times as many in flight
    SCRIPT arrays [MB] [ROUNDS]    an array of that size as an argument, and to an actor and back

Both are driven from a coroutine, which is how their documentation calls actors.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import numpy as np

WINDOW = 256  # calls on their way


async def calls(call: Callable[..., Awaitable], count: str = "2000") -> dict:
    """Medians and rates after a warm-up of 200 calls; `call(name, *arguments)` awaits a method of the actor."""
    times = []
    for _ in range(200 + int(count)):
        started = time.perf_counter()
        await call("echo", None)
        times.append(time.perf_counter() - started)
    times = sorted(times[200:])
    pipelined = 10 * int(count)
    numbers = iter(range(pipelined))

    async def one_after_the_other() -> None:
        for number in numbers:
            await call("echo", number)

    started = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(WINDOW)))
    pipelined_s = time.perf_counter() - started
    return {
        "sync_call_s": statistics.median(times),
        "sync_call_p99_s": times[len(times) * 99 // 100],
        "pipelined_calls_per_s": pipelined / pipelined_s,
    }


async def arrays(call: Callable[..., Awaitable], megabytes: str = "100", rounds: str = "10") -> dict:
    """Seconds, after a warm-up of two."""
    array = np.ones(int(megabytes) * 10**6 // 4, np.float32)
    found = {"first": [], "echo": []}
    for _ in range(2 + int(rounds)):
        for name, times in found.items():
            started = time.perf_counter()
            await call(name, array)
            times.append(time.perf_counter() - started)
    return {f"{name}_s": statistics.median(times[2:]) for name, times in found.items()}


async def measured(call: Callable[..., Awaitable]) -> dict:
    """What the command line asks for."""
    what, *sizes = sys.argv[1:]
    return await {"calls": calls, "arrays": arrays}[what](call, *sizes)


def report(found: dict, **versions: str) -> None:
    print(json.dumps({**found, **versions}), flush=True)
