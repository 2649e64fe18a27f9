"""Algorithms by name, loaded when they are asked for; `import rllib` reads the names and stays quick."""

import importlib

from rllib.did_you_mean import nearest

# name -> module, whose classes NAME and NAMEConfig are the algorithm and its settings
ALGORITHMS = {
    "ARS": "rllib.algorithms.ars",
    "ES": "rllib.algorithms.es",
    "PPO": "rllib.algorithms.ppo",
    "IMPALA": "rllib.algorithms.impala",
    "APPO": "rllib.algorithms.appo",
    "A2C": "rllib.algorithms.a2c",
    "A3C": "rllib.algorithms.a3c",
    "PG": "rllib.algorithms.pg",
    "PQN": "rllib.algorithms.pqn",
    "DQN": "rllib.algorithms.dqn",
    "SimpleQ": "rllib.algorithms.dqn",
    "Rainbow": "rllib.algorithms.rainbow",
    "ApexDQN": "rllib.algorithms.apex_dqn",
    "R2D2": "rllib.algorithms.r2d2",
    "SAC": "rllib.algorithms.sac",
    "TQC": "rllib.algorithms.tqc",
    "CrossQ": "rllib.algorithms.crossq",
    "TD3": "rllib.algorithms.td3",
    "DDPG": "rllib.algorithms.td3",
    "ApexDDPG": "rllib.algorithms.apex_ddpg",
}
# Other names that Ray has for them
ALSO = {"APEX": "ApexDQN", "APEX_DDPG": "ApexDDPG"}


def algorithm_names() -> list[str]:
    """The algorithms that are built in."""
    return list(ALGORITHMS)


def get_algorithm_class(name: str) -> type:
    """The class of an algorithm: get_algorithm_class("PPO") is PPO. Upper and lower case are the same.

    Raises:
        ValueError: if there is none of this name; tells which there are.
    """
    by_lower = {each.lower(): known for each, known in (*zip(ALGORITHMS, ALGORITHMS), *ALSO.items())}
    known = by_lower.get(name.lower()) if isinstance(name, str) else None
    if known is None:
        near = nearest(name, ALGORITHMS) if isinstance(name, str) else []
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(f"there is no algorithm {name!r}.{hint} There are: {', '.join(ALGORITHMS)}.")
    return getattr(importlib.import_module(ALGORITHMS[known]), known)


def get_algorithm_config(name: str):
    """A new config of that algorithm with its defaults: get_algorithm_config("PPO") is PPOConfig(); raises as above."""
    return get_algorithm_class(name).get_default_config()
