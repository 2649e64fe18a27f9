"""Games made with Godot as environments with several agents: `env="godot:port=11008"`.

Their plug-in (Godot RL Agents 0.8, protocol 0.7) is spoken here directly, so its Python package is not needed.
"""

import atexit
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

from rllib.env.engines.godot_game import DEFAULT_PORT, GodotGame
from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult
from rllib.storage.local_path import local_path

# Marks sensors whose values are images, written in hexadecimal.
_IMAGE = "2d"
_MOST_NUMBERS = 1 << 26
# Games that were started by hand, by port: they serve the next environment on their port.
_kept: dict[int, GodotGame] = {}


class GodotEnv(MultiAgentEnv):
    """A game with one agent for each AIController in training mode.

    An agent's id is the name of its policy in the game and its number, "shared_policy_0". An agent that is done has
    left the episode, which ends when all are done: the plug-in does not tell a time limit from an end, so all ends are
    terminations. Spaces of one entry represent themselves; several are a Dict by name.

    A game that was started by hand stays connected when the environment is closed, and serves the next one on its port.

    Args:
        port: where the game connects.
        program: path of an exported game, which is started, with its own free port.
        seed: seed of the game that is started.
        show_window: whether it draws.
        action_repeat: number of frames that an action lasts; None: as the game says.
        speedup: factor of its clock; None: as the game says.
        framerate: of its physics (1/s), independent of the clock; None: as the game says.
        arguments: further ones of the program.
        timeout_s: limit of its connection and of each answer (seconds).

    Raises:
        ValueError: for both port and program, or a program that is none.
        TimeoutError, ConnectionError: see GodotGame.
    """

    # A name in a file or a checkpoint may not make it (registry.py): it starts the program that these arguments name.
    starts_programs: ClassVar = ("program", "arguments")

    def __init__(
        self,
        port: int | None = None,
        program: str | os.PathLike | None = None,
        *,
        seed: int = 0,
        show_window: bool = False,
        action_repeat: int | None = None,
        speedup: float | None = None,
        framerate: int | None = None,
        arguments: Sequence[str] = (),
        timeout_s: float = 60.0,
    ):
        super().__init__()
        if program is None:
            self._game = _connected(DEFAULT_PORT if port is None else port, timeout_s)
        elif port is not None:
            raise ValueError("give the port of a running game, or the program of one to start, which gets a free port")
        else:
            path = str(local_path(program))
            if not (os.path.isfile(path) and os.access(path, os.X_OK)):
                raise ValueError(f"{path} is no program: give the file that Godot has exported for this system")
            command = [path, f"--env_seed={seed}", *([] if show_window else ["--disable-render-loop", "--headless"])]
            command += [] if framerate is None else ["--fixed-fps", str(framerate)]
            command += [
                f"--{name}={value}"
                for name, value in (("action_repeat", action_repeat), ("speedup", speedup))
                if value is not None
            ]
            self._game = GodotGame(0, [*command, *arguments], timeout_s)
        try:
            self._read_spaces(self._game.info)
        except (KeyError, TypeError, AttributeError) as error:
            self._game.close()
            raise ConnectionError(f"the game's env_info is not that of protocol 0.7: {error!r}") from None

    def _read_spaces(self, info: Mapping[str, Any]) -> None:
        count = info["n_agents"]
        if type(count) is not int or count < 1:
            raise ConnectionError(f"the game has {count!r} agents: it needs an AIController in training mode")
        names = info.get("agent_policy_names") or ["shared_policy"] * count
        seen, acted = (
            [spaces] * count if isinstance(spaces, dict) else spaces
            for spaces in (info["observation_space"], info["action_space"])
        )
        if not len(names) == len(seen) == len(acted) == count:
            raise ConnectionError(
                f"the game has {count} agents, but {len(names)} names of policies, {len(seen)} observation spaces and "
                f"{len(acted)} action spaces"
            )
        self.possible_agents = [f"{name}_{index}" for index, name in enumerate(names)]
        self._sensors = [{name: _observed(name, each) for name, each in spaces.items()} for spaces in seen]
        self._actuators = [{name: _acted(name, each) for name, each in spaces.items()} for spaces in acted]
        self.observation_spaces = dict(zip(self.possible_agents, map(_joined, self._sensors)))
        self.action_spaces = dict(zip(self.possible_agents, map(_joined, self._actuators)))
        # Actions of agents that have left, since the game wants one for each.
        self._idle = [{name: _plain(space, _zero(space)) for name, space in each.items()} for each in self._actuators]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._observations(self._game.ask({"type": "reset"}, "reset")), {}

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        actions = [
            self._action(index, action_dict[agent]) if agent in action_dict else self._idle[index]
            for index, agent in enumerate(self.possible_agents)
        ]
        answer = self._game.ask({"type": "action", "action": actions})
        observations = self._observations(answer)
        rewards, dones = (self._by_agent(answer, name) for name in ("reward", "done"))
        infos = self._by_agent(answer, "info") if answer.get("info") else {}
        self.agents = [agent for agent in self.agents if not dones[agent]]
        terminateds = {agent: bool(dones[agent]) for agent in observations}
        return (
            observations,
            {agent: float(rewards[agent]) for agent in observations},
            {**terminateds, ALL: not self.agents},
            {ALL: False},
            {agent: infos[agent] for agent in observations if infos.get(agent)},
        )

    def close(self) -> None:
        game, self._game = self._game, None
        if game is None:
            return
        if game.was_launched:
            game.close()
        else:
            _kept[game.port] = game

    def _action(self, index: int, action: Any) -> dict[str, Any]:
        spaces = self._actuators[index]
        parts = action if len(spaces) > 1 else dict.fromkeys(spaces, action)
        return {name: _plain(space, parts[name]) for name, space in spaces.items()}

    def _observations(self, answer: Mapping[str, Any]) -> dict[AgentID, Any]:
        """Observations of the agents in play."""
        given = self._by_agent(answer, "obs")
        observations = {}
        for agent, spaces in zip(self.possible_agents, self._sensors):
            if agent not in self.agents:
                continue
            try:
                parts = {name: _read(name, space, given[agent][name]) for name, space in spaces.items()}
            except (KeyError, TypeError, ValueError) as error:
                raise ConnectionError(f"the game's observation of {agent} does not fit its space: {error!r}") from None
            observations[agent] = parts if len(parts) > 1 else next(iter(parts.values()))
        return observations

    def _by_agent(self, answer: Mapping[str, Any], name: str) -> dict[AgentID, Any]:
        values = answer.get(name)
        if not isinstance(values, list) or len(values) != len(self.possible_agents):
            raise ConnectionError(
                f"the game must answer with {name!r} of {len(self.possible_agents)} agents, but its answer is "
                f"{values!r:.200}"
            )
        return dict(zip(self.possible_agents, values))


def _connected(port: int, timeout_s: float) -> GodotGame:
    """The game that was kept on a port, or the next one that connects there."""
    kept = _kept.pop(port, None)
    if kept is not None:
        if kept.is_connected():
            return kept
        kept.close()
    return GodotGame(port, timeout_s=timeout_s)


@atexit.register
def _close_kept() -> None:
    while _kept:
        _kept.popitem()[1].close()


def _observed(name: str, entry: Mapping[str, Any]) -> Space:
    if entry["space"] == "discrete":
        return Discrete(entry["size"])
    if entry["space"] != "box":
        raise ConnectionError(f"the game's sensor {name!r} has a space of kind {entry['space']!r}; box and discrete do")
    shape = tuple(entry["size"])
    if not all(type(size) is int and size > 0 for size in shape) or math.prod(shape) > _MOST_NUMBERS:
        raise ConnectionError(f"the game's sensor {name!r} has the shape {shape!r:.80}")
    # The plug-in says [-1, 1], which no game has to keep to.
    return Box(0, 255, shape, np.uint8) if _IMAGE in name else Box(-np.inf, np.inf, shape, np.float32)


def _acted(name: str, entry: Mapping[str, Any]) -> Space:
    kind, size = entry["action_type"], entry["size"]
    if kind not in ("discrete", "continuous") or type(size) is not int or size < 1:
        raise ConnectionError(f"the game's action {name!r} is {entry!r:.80}; it must be discrete or continuous")
    return Discrete(size) if kind == "discrete" else Box(-1.0, 1.0, (size,), np.float32)


def _joined(spaces: Mapping[str, Space]) -> Space:
    return Dict(spaces) if len(spaces) > 1 else next(iter(spaces.values()))


def _read(name: str, space: Space, value: Any) -> Any:
    if isinstance(space, Discrete):
        return int(value)
    if _IMAGE in name:
        return np.frombuffer(bytes.fromhex(value), np.uint8).reshape(space.shape)
    return np.asarray(value, np.float32).reshape(space.shape)


def _zero(space: Space) -> Any:
    return 0 if isinstance(space, Discrete) else np.zeros(space.shape)


def _plain(space: Space, value: Any) -> int | list[float]:
    return int(value) if isinstance(space, Discrete) else np.asarray(value, float).reshape(-1).tolist()
