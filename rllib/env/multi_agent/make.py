"""From a factory to a running stream of environments with several agents."""

from rllib.env.factories.make import environment_maker
from rllib.env.factories.registry import EnvFactory, worker_name
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
    make = environment_maker(factory, num_envs, seeds, worker_index, num_workers, env_config, in_evaluation)
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
