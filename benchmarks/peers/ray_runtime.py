"""Ray's runtime without RLlib: actor calls, tasks, the object store, the start of actors.

    ray_runtime.py calls         sync and pipelined actor calls, also of a coroutine, queued no-op tasks
    ray_runtime.py put [MB]      seconds to put an array of that size, steady state; to get it in another process
    ray_runtime.py start [N]     seconds until N actors have answered their first call
"""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import json
import logging
import statistics
import sys
import time

import numpy as np
import ray


@ray.remote
class Echo:
    def echo(self, value=None):
        return value

    def first(self, array):
        return float(array[0])


@ray.remote
class AsyncEcho:
    async def echo(self, value=None):
        return value


@ray.remote
def nothing():
    return None


def calls(count: str = "2000", tasks: str = "10000") -> dict:
    """Medians and rates after a warm-up of 200 calls."""
    actor = Echo.remote()
    for _ in range(200):
        ray.get(actor.echo.remote())
    times = []
    for _ in range(int(count)):
        started = time.perf_counter()
        ray.get(actor.echo.remote())
        times.append(time.perf_counter() - started)
    pipelined = int(count) * 10
    pipelined_s = in_flight_s(actor, pipelined)
    async_actor = AsyncEcho.remote()
    in_flight_s(async_actor, 200)
    coroutines_s = in_flight_s(async_actor, pipelined)
    ray.get([nothing.remote() for _ in range(100)])
    started = time.perf_counter()
    ray.get([nothing.remote() for _ in range(int(tasks))])
    tasks_s = time.perf_counter() - started
    return {
        "sync_call_s": statistics.median(times),
        "sync_call_p99_s": sorted(times)[len(times) * 99 // 100],
        "pipelined_calls_per_s": pipelined / pipelined_s,
        "coroutine_calls_per_s": pipelined / coroutines_s,
        "tasks_per_s": int(tasks) / tasks_s,
    }


def in_flight_s(actor, count: int) -> float:
    """Seconds of `count` calls in flight."""
    started = time.perf_counter()
    ray.get([actor.echo.remote() for _ in range(count)])
    return time.perf_counter() - started


def put(megabytes: str = "100", rounds: str = "10") -> dict:
    """An array is dropped before the next one is put."""
    array = np.ones(int(megabytes) * 10**6 // 4, np.float32)
    actor = Echo.remote()
    put_s, get_s = [], []
    for _ in range(int(rounds) + 2):
        started = time.perf_counter()
        ref = ray.put(array)
        put_s.append(time.perf_counter() - started)
        started = time.perf_counter()
        ray.get(actor.first.remote(ref))
        get_s.append(time.perf_counter() - started)
        del ref
    return {"put_s": statistics.median(put_s[2:]), "get_elsewhere_s": statistics.median(get_s[2:])}


def start(count: str = "16") -> dict:
    """No worker of that many is there beforehand; each imports numpy, as it has to unpickle this file's actor."""
    started = time.perf_counter()
    actors = [Echo.options(num_cpus=0).remote() for _ in range(int(count))]
    ray.get([actor.echo.remote() for actor in actors])
    return {"ready_s": time.perf_counter() - started}


def main() -> None:
    what, *sizes = sys.argv[1:]
    started = time.perf_counter()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    init_s = time.perf_counter() - started
    result = {"calls": calls, "put": put, "start": start}[what](*sizes)
    print(json.dumps(result | {"init_s": init_s, "ray": ray.__version__}))


if __name__ == "__main__":
    main()
