"""xoscar's actors, one in a separate process (benchmarks/peers/setup xoscar); see runtime_common.py."""

import asyncio
from importlib import metadata

import xoscar
from runtime_common import measured, report


class Echo(xoscar.Actor):
    """Answers with its argument, or with a part of it."""

    async def echo(self, value):
        return value

    async def first(self, array):
        return float(array[0])


async def run() -> dict:
    pool = await xoscar.create_actor_pool("127.0.0.1", n_process=1)
    async with pool:
        strategy = xoscar.allocate_strategy.ProcessIndex(1)  # 0 is this process
        actor = await xoscar.create_actor(Echo, address=pool.external_address, allocate_strategy=strategy)
        methods = {"echo": actor.echo, "first": actor.first}

        async def call(name: str, value):
            return await methods[name](value)

        return await measured(call)


if __name__ == "__main__":
    report(asyncio.run(run()), xoscar=metadata.version("xoscar"))
