"""Algorithms by name, imported when they are first used; `import rllib` reads only the names and stays quick."""

import importlib
import inspect

from rllib.did_you_mean import did_you_mean

# name -> module with the classes NAME, the algorithm, and NAMEConfig, its settings
ALGORITHMS = {
    "ARS": "rllib.algorithms.ars",
    "ES": "rllib.algorithms.es",
    "PPO": "rllib.algorithms.ppo",
    "IMPALA": "rllib.algorithms.impala",
    "APPO": "rllib.algorithms.appo",
    "A2C": "rllib.algorithms.a2c",
    "A3C": "rllib.algorithms.a3c",
    "PG": "rllib.algorithms.pg",
    "TRPO": "rllib.algorithms.trpo",
    "PQN": "rllib.algorithms.pqn",
    "DQN": "rllib.algorithms.dqn",
    "SimpleQ": "rllib.algorithms.dqn",
    "Rainbow": "rllib.algorithms.dqn",
    "ApexDQN": "rllib.algorithms.apex",
    "R2D2": "rllib.algorithms.r2d2",
    "QMix": "rllib.algorithms.qmix",
    "VDN": "rllib.algorithms.qmix",
    "SAC": "rllib.algorithms.sac",
    "TQC": "rllib.algorithms.sac",
    "CrossQ": "rllib.algorithms.crossq",
    "TD3": "rllib.algorithms.td3",
    "DDPG": "rllib.algorithms.td3",
    "ApexDDPG": "rllib.algorithms.apex",
    "Distillation": "rllib.algorithms.distillation",
    "DAgger": "rllib.algorithms.distillation",
    "GAIL": "rllib.algorithms.gail",
    "GAILSAC": "rllib.algorithms.gail_sac",
    "AIRL": "rllib.algorithms.airl",
    "AMP": "rllib.algorithms.amp",
    "SQIL": "rllib.algorithms.sqil",
    "SQILDQN": "rllib.algorithms.sqil",
    "BC": "rllib.algorithms.offline.bc",
    "MARWIL": "rllib.algorithms.offline.marwil",
    "TD3BC": "rllib.algorithms.offline.td3_bc",
    "ReBRAC": "rllib.algorithms.offline.rebrac",
    "IQL": "rllib.algorithms.offline.iql",
    "AWAC": "rllib.algorithms.offline.awac",
    "CQL": "rllib.algorithms.offline.cql",
}
# Ray's other names of algorithms
ALSO = {"APEX": "ApexDQN", "APEX_DDPG": "ApexDDPG"}

_MULTI_AGENT = "PPO and others train policies of several agents, PPOConfig().multi_agent(policies=...)"
_MODEL_BASED = "no algorithm here learns a model of the environment. Use SAC or TD3, which need few steps"
_BANDITS = "there are no bandits; a bandit is an environment whose episodes have one step, for PPO or DQN"
# Algorithms of other libraries that are not available here -> the reason, or what to use instead.
ABSENT = {
    **dict.fromkeys(("CRR", "AWR"), "use AWAC, which weighs recorded actions by their advantages"),
    "DT": "no algorithm here is conditioned on a return. Use IQL or CQL",
    **dict.fromkeys(("MADDPG", "AlphaStar", "MAPPO"), _MULTI_AGENT),
    **dict.fromkeys(("Dreamer", "DreamerV2", "DreamerV3", "MBMPO"), _MODEL_BASED),
    **dict.fromkeys(("BanditLinUCB", "BanditLinTS"), _BANDITS),
    **dict.fromkeys(("AlphaZero", "LeelaChessZero", "MuZero"), "no algorithm here plans by a search in a tree"),
    "MAML": "no algorithm here learns to learn. Use PPO, and continue from its checkpoint on each task",
    "SlateQ": "no algorithm here chooses slates. Use PPO with a MultiDiscrete action space",
    "DDPPO": "use PPO with .learners(num_learners=2): each learner updates on a part of every minibatch",
    **dict.fromkeys(("ACKTR", "ACER"), "use A2C or PPO"),
    "PPO2": "use PPO",
    "QRDQN": "use DQN with .training(num_quantiles=200)",
    "C51": "use DQN with .training(num_atoms=51, v_min=..., v_max=...)",
    "IQN": "use DQN with .training(num_quantiles=32, implicit_quantiles=True)",
    "HER": "it is a replay: .training(replay_buffer_config={'type': 'HerReplayBuffer'}) of DQN, SAC, TD3 or DDPG",
    **dict.fromkeys(
        ("RecurrentPPO", "ppo_lstm"), "use PPO with .training(model={'use_lstm': True}) (docs/guide/networks.md)"
    ),
    "RNNSAC": "use R2D2, or PPO with .training(model={'use_lstm': True}) (docs/guide/networks.md)",
    "MaskablePPO": "use PPO, which reads masks from the observation (docs/guide/action_spaces.md)",
    "RandomAgent": "use rllib check-env ENV, or .exploration(exploration_config={'type': 'Random'}) of DQN",
}

_typed: dict[str, type] = {}


def algorithm_names() -> list[str]:
    """Names of the built-in algorithms."""
    return list(ALGORITHMS)


def get_algorithm_class(name: str) -> type:
    """The class of an algorithm: get_algorithm_class("PPO") is PPO. Case is ignored.

    Raises:
        ValueError: if there is no algorithm of this name, with the known names, or what to use instead.
    """
    if name in _typed:
        return _typed[name]
    known = _by_lower(name, {**dict(zip(ALGORITHMS, ALGORITHMS)), **ALSO})
    if known is None:
        raise ValueError(f"there is no algorithm {name!r}{_why_not(name)}")
    return getattr(importlib.import_module(ALGORITHMS[known]), known)


def get_algorithm_config(name: str):
    """A new config of that algorithm with its defaults: get_algorithm_config("PPO") is PPOConfig(); raises as above."""
    return get_algorithm_class(name).get_default_config()


def register_typed_algorithm(name: str) -> None:
    """Registers the algorithm class named by "module:Class", a name that the user has typed.

    Names in files and checkpoints never import a user's module; typed names may. Does nothing for a name without a
    colon, whose mistakes `get_algorithm_class` reports.

    Raises:
        ValueError: if there is no such module, or no such algorithm class in it.
    """
    module_name, _, class_name = name.rpartition(":")
    if not module_name or name in _typed:
        return
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not module_name.startswith(error.name or "?"):
            raise  # the module exists, but a module that it imports does not
        raise ValueError(
            f"algorithm {name!r} names the module {module_name!r}, which cannot be found ({error}). Install it, or "
            "start from the directory it lies in."
        ) from None
    found = getattr(module, class_name, None)  # a package may import the class lazily, at this access
    if problem := algorithm_problem(found):
        own = [key for key, value in vars(module).items() if algorithm_problem(value) is None]
        has = f" It has {', '.join(own)}." if own else ""
        raise ValueError(f"{class_name!r} of the module {module_name!r} {problem}.{has}")
    _typed[name] = found


def algorithm_problem(found) -> str | None:
    """Reason why an object is no algorithm class that can be built: "is no class of algorithms"; None if it is one."""
    if not isinstance(found, type) or not hasattr(found, "config_class"):
        return "is no class of algorithms"
    if inspect.isabstract(found):
        return f"is a base of algorithms without {', '.join(sorted(found.__abstractmethods__))}"
    return None


def absent(name: str) -> str | None:
    """Advice for a known algorithm that is not available here; None for any other name."""
    known = _by_lower(name, dict(zip(ABSENT, ABSENT)))
    return ABSENT.get(known)


def _by_lower(name, table: dict[str, str]) -> str | None:
    lower = {each.lower(): known for each, known in table.items()}
    return lower.get(name.lower()) if isinstance(name, str) else None


def _why_not(name) -> str:
    """The end of the error message for an unknown algorithm."""
    if not isinstance(name, str):
        name = ""
    if instead := absent(name):
        return f": {instead}."
    if ":" in name:
        return (
            ": a class of your own is imported only where its name is typed on the command line, as in rllib train "
            f"{name} ENV (with a file or a run, --algo {name}). In a program, give the class itself, or its config."
        )
    return f".{did_you_mean(name, ALGORITHMS, repr)} There are: {', '.join(ALGORITHMS)}."
