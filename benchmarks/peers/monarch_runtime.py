"""Monarch's actors, one in a separate process (benchmarks/peers/setup monarch); see runtime_common.py."""

import asyncio
from importlib import metadata

from monarch.actor import Actor, endpoint, shutdown_context, this_host
from runtime_common import measured, report


class Echo(Actor):
    """Answers with its argument, or with a part of it."""

    @endpoint
    async def echo(self, value):
        return value

    @endpoint
    async def first(self, array):
        return float(array[0])


async def run() -> dict:
    processes = this_host().spawn_procs(per_host={"processes": 1})
    actor = processes.spawn("echo", Echo)
    methods = {"echo": actor.echo, "first": actor.first}

    async def call(name: str, value):
        return await methods[name].call_one(value)

    found = await measured(call)
    await processes.stop()
    return found


if __name__ == "__main__":
    found = asyncio.run(run())
    shutdown_context().get()
    report(found, monarch=metadata.version("torchmonarch"))
