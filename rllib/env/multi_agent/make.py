"""From a factory to a running stream of environments with several agents."""

from typing import Any

from rllib.env.factories.make import make_environment
from rllib.env.factories.registry import EnvContext, EnvFactory, worker_name
from rllib.env.multi_agent.stream import MultiAgentStream
from rllib.env.streams.sync import close_all


def make_agents_stream(
    factory: EnvFactory,
    *,
    num_envs: int,
    seeds: list[int],
    worker_index: int = 0,
    num_workers: int = 0,
    env_config: dict | None = None,
    check: bool | int = True,
    in_evaluation: bool = False,
    replace_failed: bool = False,
) -> MultiAgentStream:
    """Makes the environments of one worker; arguments and errors as for `make_stream` (rllib/env/factories/make.py)."""

    def make(index: int) -> Any:
        context = EnvContext(env_config, worker_index, index, num_workers, num_envs, in_evaluation=in_evaluation)
        return make_environment(factory, context)

    made: list = []
    try:
        made.extend(map(make, range(num_envs)))
        return MultiAgentStream(
            made,
            seeds,
            worker=worker_name(worker_index, in_evaluation),
            warns=worker_index == 0,
            checked_steps=int(check),
            remake=make if replace_failed else None,
        )
    except BaseException:
        close_all(made)
        raise
