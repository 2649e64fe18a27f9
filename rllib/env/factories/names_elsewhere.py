"""Ids that environments had earlier or have in other packages, and the environments of RLlib's examples."""

import re
from collections.abc import Collection

from rllib.extras import install_hint

_ID = re.compile(r"(?:(?P<namespace>[\w-]+)/)?(?P<name>[\w:.-]+?)-v(?P<version>\d+)")
# Atari's variants: frames between two actions ("Deterministic": 4; "NoFrameskip": 1; none: drawn from 2 to 4), memory
# instead of a picture.
_ATARI = re.compile(r"(?P<game>[A-Z][A-Za-z]+?)(?P<ram>-ram)?(?P<frames>Deterministic|NoFrameskip)?")
# Adapters of shimmy, which gymnasium has registered for messages.
_OLD_GYM = re.compile(r"GymV2[16]Environment-v\d+")
_BULLET = re.compile(r"Roboschool(?P<robot>\w+)|(?P<bullet>\w+)Bullet(?:Env)?")
# Beginning of ids -> module that registers them, extra that brings it.
_ELSEWHERE = {
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
    "dm_control/": ("shimmy", "dm-control"),
    **dict.fromkeys(
        ("Fetch", "HandManipulate", "HandReach", "Adroit", "FrankaKitchen", "PointMaze_", "AntMaze_"),
        ("gymnasium_robotics", "robotics"),
    ),
}


# Packages without classes or ids of gymnasium -> an id here, extra that brings it.
_WITHOUT_IDS = {
    "dm_control": ("shimmy:dm_control/cartpole-balance-v0", "dm-control"),
    "minatar": ("rllib.env.tasks.minatar_games:MinAtar/Breakout-v1", "minatar"),
}


def module_advice(module: str) -> str | None:
    """A sentence on names of a package that has environments, but none of gymnasium's; None for any other module."""
    found = _WITHOUT_IDS.get(module)
    return f'Its names are like "{found[0]}" here, with {install_hint(found[1])}.' if found else None


def id_today(env_id: str, known: Collection[str]) -> str | None:
    """A sentence that says what to use instead of an id.

    Args:
        env_id: not registered, or registered without an environment.
        known: registered ids, Atari's among them where it is installed.
    """
    for beginning, (module, extra) in _ELSEWHERE.items():
        if env_id.startswith(beginning):
            return f'Its id is "{module}:{env_id}" here, or a newer version, with {install_hint(extra)}.'
    if _OLD_GYM.fullmatch(env_id):
        return "Environments of the old gym API are adapted here: pass a function that makes one, such as by gym.make."
    parts = _ID.fullmatch(env_id)
    if parts is None:
        return None
    name, version = parts["name"], int(parts["version"])
    newest = _newest(parts["namespace"], name, known)
    if newest is not None and newest > version:
        return f'Use "{_id(parts["namespace"], name, newest)}", its version today.'
    if (parts["namespace"] or "ALE").upper() not in ("ALE", "ATARI"):
        return None  # a game of this name of another package
    return _atari(name, known) or _bullet(name, known)


def _newest(namespace: str | None, name: str, known: Collection[str]) -> int | None:
    pattern = re.compile(re.escape(_id(namespace, name, "")) + r"(\d+)")
    versions = [int(match[1]) for match in map(pattern.fullmatch, known) if match]
    return max(versions, default=None)


def _id(namespace: str | None, name: str, version) -> str:
    return f"{namespace}/{name}-v{version}" if namespace else f"{name}-v{version}"


def _atari(name: str, known: Collection[str]) -> str | None:
    parts = _ATARI.fullmatch(name)
    if parts is None or f"ALE/{parts['game']}-v5" not in known:
        return None
    game = f'"ALE/{parts["game"]}-v5"'
    if parts["ram"]:
        return f"Use {game} with env_config={{'obs_type': 'ram'}} and .rollouts(preprocessor_pref=None)."
    return f'Use "{parts["game"]}NoFrameskip-v4", whose actions are repeated for 4 frames here, or {game}.'


def _bullet(name: str, known: Collection[str]) -> str | None:
    parts = _BULLET.fullmatch(name)
    if parts is None:
        return None
    robot = parts["robot"] or parts["bullet"]
    newest = _newest(None, robot, known)
    if newest is None:
        return None
    return f'PyBullet and Roboschool end with gym; use MuJoCo\'s "{_id(None, robot, newest)}".'


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


def example_here(name: str) -> str | None:
    """The name of the environment that replaces one of RLlib's examples; None for any other name."""
    parts = _MODULE.fullmatch(name)
    return parts and _HERE.get(parts["name"])


def example_advice(name: str) -> str | None:
    """Advice for an environment of RLlib's examples that nothing replaces; None for any other name."""
    parts = _MODULE.fullmatch(name)
    why = parts and _INSTEAD.get(parts["name"])
    return f"It is an example of RLlib's: {why}." if why else None


def unwrapped_config(env_config: dict) -> dict:
    """The config of an example, which Ray's files give as an argument of the environment, `config` or `env_config`."""
    inner = next((env_config[key] for key in ("config", "env_config") if isinstance(env_config.get(key), dict)), None)
    return env_config if inner is None or len(env_config) > 1 else dict(inner)
