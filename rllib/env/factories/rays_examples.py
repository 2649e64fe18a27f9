"""Environments of RLlib's examples, which its files name by their modules, and what stands for them here."""

import re

# ray.rllib.examples.env of Ray 0.8 - 2.9, .envs.classes since.
_MODULE = re.compile(r"ray\.rllib\.examples\.(?:env|envs\.classes)(?:\.[\w.]+)?[.:](?P<name>\w+)")
_TASKS = "rllib.env.tasks"
_HERE = {
    "RepeatAfterMeEnv": f"{_TASKS}.memory:RepeatAfterMe",
    "StatelessCartPole": f"{_TASKS}.memory:CartPoleNoVel",
    "MultiAgentCartPole": f"{_TASKS}.multi_agent_cartpole:MultiAgentCartPole",
    "MultiAgentPendulum": f"{_TASKS}.multi_agent_pendulum:MultiAgentPendulum",
    "RockPaperScissors": f"{_TASKS}.rock_paper_scissors:RockPaperScissors",
    "GuessTheNumber": f"{_TASKS}.guess_the_number:GuessTheNumber",
    "TwoStepGame": f"{_TASKS}.two_step_game:TwoStepGame",
    "TwoStepGameWithGroupedAgents": f"{_TASKS}.two_step_game:TwoStepGameWithGroupedAgents",
    "TicTacToe": f"{_TASKS}.tic_tac_toe:TicTacToe",
}
_DRAWN = "it has random observations and rewards, for tests of spaces. Write a gymnasium.Env with your spaces"
_FAILING = "it fails on purpose; failing environments are replaced here as well (.fault_tolerance())"
_SLATES = "it is for SlateQ. Use PPO with a MultiDiscrete action space, and an environment of your own"
_MODEL = "it tells its rewards to algorithms that learn a model, and there is none here. Use"
_INSTEAD = {
    **dict.fromkeys(("RandomEnv", "RandomLargeObsSpaceEnv", "RandomLargeObsSpaceEnvContActions"), _DRAWN),
    "RandomMultiAgentEnv": _DRAWN.replace("gymnasium.Env", "MultiAgentEnv"),
    **dict.fromkeys(("CartPoleCrashing", "MultiAgentCartPoleCrashing"), _FAILING),
    **dict.fromkeys(
        ("RecommSys001", "RecSimEnv", "InterestEvolutionRecSimEnv", "LongTermSatisfactionRecSimEnv"), _SLATES
    ),
    **dict.fromkeys(("CartPoleWrapper", "CartPoleMassEnv", "CartPoleSparseRewards"), f"{_MODEL} CartPole-v1"),
    **dict.fromkeys(("PendulumWrapper", "PendulumMassEnv"), f"{_MODEL} Pendulum-v1"),
    **dict.fromkeys(("HalfCheetahWrapper", "HalfCheetahRandDirecEnv"), f"{_MODEL} HalfCheetah-v5"),
    "HopperWrapper": f"{_MODEL} Hopper-v5",
    "TransformedActionPendulum": "use Pendulum-v1: policies act in [-1, 1], whatever the bounds of actions are",
    "SimpleCorridor": "write it as a class of your own (docs/start/from_rllib.md has it)",
    "ParametricActionsCartPole": "use rllib.env.tasks.masked:MaskedCartPole (docs/guide/action_spaces.md)",
}


def name_here(name: str) -> str | None:
    """The name of the environment that stands for one of RLlib's examples; None for any other name."""
    parts = _MODULE.fullmatch(name)
    return parts and _HERE.get(parts["name"])


def advice(name: str) -> str | None:
    """Advice for an environment of RLlib's examples that nothing stands for; None for any other name."""
    parts = _MODULE.fullmatch(name)
    why = parts and _INSTEAD.get(parts["name"])
    return f"It is an example of RLlib's: {why}." if why else None


def unwrapped_config(env_config: dict) -> dict:
    """The config of an example, which Ray's files give as an argument of the environment, `config` or `env_config`."""
    inner = next((env_config[key] for key in ("config", "env_config") if isinstance(env_config.get(key), dict)), None)
    return env_config if inner is None or len(env_config) > 1 else dict(inner)
