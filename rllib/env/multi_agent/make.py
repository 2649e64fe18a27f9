"""From a factory to a running stream of environments with several agents."""

from collections.abc import Callable
from typing import Any

from rllib.env.factories.make import environment_maker
from rllib.env.factories.registry import EnvFactory, worker_name
from rllib.env.multi_agent.stream import MultiAgentStream
from rllib.env.multi_agent.vector_stream import VectorAgentsStream, is_dense
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
    arrays: bool = False,
) -> MultiAgentStream | VectorAgentsStream:
    """Makes the environments of one worker; arguments and errors as for `make_stream` (rllib/env/factories/make.py).

    With `arrays`, a MultiAgentVectorEnv is made once, for all of them: its class, or the function that makes it, gets
    `num_envs` with the items of env_config. If it does not accept `num_envs`, each environment is made separately.
    """
    context = worker_index, num_workers
    make = environment_maker(factory, num_envs, seeds, *context, env_config, in_evaluation)
    made: list = []
    try:
        made.append(make(0))
        if arrays and is_dense(made[0]):
            for_all = {**(env_config or {}), "num_envs": num_envs}
            make_all = environment_maker(factory, num_envs, seeds, *context, for_all, in_evaluation)
            vector = _vector(made[0], make_all, num_envs)
            if vector is not None:
                return VectorAgentsStream(
                    vector,
                    seeds,
                    worker=worker_name(worker_index, in_evaluation),
                    warns=worker_index == 0,
                    checked_steps=int(check),
                )
        made.extend(map(make, range(1, num_envs)))
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


def _vector(first, make: Callable[[int], Any], num_envs: int):
    """A vector of this number of environments; None where the constructor makes no such one.

    Args:
        first: a vector of one environment, which is closed if it is not the result.
        make: makes the vector.
        num_envs: number of environments.
    """
    if first.num_envs == num_envs:
        return first
    try:
        vector = make(0)
    except TypeError:  # it takes no num_envs
        return None
    if vector.num_envs != num_envs:
        vector.close()
        return None
    first.close()
    return vector
