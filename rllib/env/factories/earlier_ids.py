"""Ids of environments that have another id today, or lie in another package; for messages."""

import re
from collections.abc import Collection

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


def id_today(env_id: str, known: Collection[str]) -> str | None:
    """A sentence that says what to use instead of an id.

    Args:
        env_id: not registered, or registered without an environment.
        known: registered ids, Atari's among them where it is installed.
    """
    for beginning, (module, extra) in _ELSEWHERE.items():
        if env_id.startswith(beginning):
            return f'Its id is "{module}:{env_id}" here, or a newer version, with pip install \'rllib[{extra}]\'.'
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
