"""Games made with Unity and its ML-Agents as environments with several agents.

The package mlagents_envs is not among the requirements (docs/project/decisions/decisions_agents.md says why); any
release that runs here will do.
"""

import os
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space, Tuple

from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult

# Of ML-Agents: the editor, and programs, which add the number of their worker.
EDITOR_PORT, PROGRAM_PORT = 5004, 5005
_MOST_WORKERS = 256
_MOST_IDLE_STEPS = 10_000


class Unity3DEnv(MultiAgentEnv):
    """A game of Unity, by the name and arguments of RLlib's wrapper.

    An agent's id is the name of its behavior and its number in the game, "Striker?team=0_3"; agents with the same
    behavior have the same spaces. Unity gives an agent a new number with each of its episodes, so ids cannot be listed.
    An agent acts in the steps in which the game asks for its decision. Its end is a truncation where the game calls it
    interrupted. The episode of all ends after `episode_horizon` steps.

    Args:
        file_name: path of the game's program; None: the game that runs in Unity's editor.
        port: first port; None: 5004 for the editor, 5005 for a program. A program takes the next free one.
        seed: seed of the game's random numbers.
        no_graphics: whether it draws nothing.
        timeout_wait: limit of the connection and of each answer (seconds).
        episode_horizon: steps of an episode.

    Raises:
        ImportError: if mlagents_envs is not installed.
    """

    # A name in a file or a checkpoint may not make it (registry.py): it starts the program that these arguments name.
    starts_programs: ClassVar = ("file_name",)

    def __init__(
        self,
        file_name: str | None = None,
        port: int | None = None,
        seed: int = 0,
        no_graphics: bool = False,
        timeout_wait: int = 300,
        episode_horizon: int = 1000,
    ):
        super().__init__()
        try:
            from mlagents_envs.base_env import ActionTuple
            from mlagents_envs.environment import UnityEnvironment
            from mlagents_envs.exception import UnityWorkerInUseException
        except ImportError as error:
            raise ImportError(
                f"Unity3DEnv needs the package mlagents_envs ({error}). Use pip install mlagents-envs: 1.1.0 runs on "
                "Python 3.10.1 to 3.10.12, and 0.28.0, the newest without that limit, where its protobuf does."
            ) from error
        self._action_tuple = ActionTuple
        first = port if port is not None else EDITOR_PORT if file_name is None else PROGRAM_PORT
        program = None if file_name is None else os.path.expanduser(file_name)
        workers = range(_MOST_WORKERS if file_name is not None else 1)
        for worker_id in workers:
            try:
                self.unity_env = UnityEnvironment(
                    file_name=program, worker_id=worker_id, base_port=first, seed=seed, no_graphics=no_graphics,
                    timeout_wait=timeout_wait,
                )  # fmt: skip
                break
            except UnityWorkerInUseException as error:
                if worker_id == workers[-1]:
                    raise OSError(f"ports {first} to {first + worker_id} of this machine are in use") from error
        self.episode_horizon, self.episode_timesteps = episode_horizon, 0
        self.unity_env.reset()
        self._specs = dict(self.unity_env.behavior_specs.items())
        self._waiting: dict[str, list[AgentID]] = {}  # by behavior: agents whose decision the game waits for, in order

    def get_observation_space(self, agent_id: AgentID) -> Space:
        boxes = [Box(-np.inf, np.inf, tuple(each.shape), np.float32) for each in self._spec(agent_id).observation_specs]
        return boxes[0] if len(boxes) == 1 else Tuple(boxes)

    def get_action_space(self, agent_id: AgentID) -> Space:
        spec, parts = self._spec(agent_id).action_spec, []
        if spec.continuous_size:
            parts.append(Box(-1.0, 1.0, (spec.continuous_size,), np.float32))
        if spec.discrete_size:
            branches = spec.discrete_branches
            parts.append(Discrete(branches[0]) if len(branches) == 1 else MultiDiscrete(branches))
        return parts[0] if len(parts) == 1 else Tuple(parts)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.episode_timesteps = 0
        self.unity_env.reset()
        observations, *_ = self._results()
        for _ in range(_MOST_IDLE_STEPS):  # the game may begin with steps in which no agent decides
            if observations:
                break
            self.unity_env.step()
            observations, *_ = self._results()
        else:
            raise RuntimeError(f"in {_MOST_IDLE_STEPS:,} steps after its reset the game has asked for no decision")
        self.agents = list(observations)
        return observations, {}

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        for name, agents in self._waiting.items():
            if agents:
                self.unity_env.set_actions(name, self._actions(name, [action_dict[agent] for agent in agents]))
        self.unity_env.step()
        self.episode_timesteps += 1
        observations, rewards, terminateds, truncateds = self._results()
        ended = {*terminateds, *truncateds}
        self.agents = [agent for agent in dict.fromkeys([*self.agents, *observations]) if agent not in ended]
        is_over = self.episode_timesteps >= self.episode_horizon
        return observations, rewards, {**terminateds, ALL: False}, {**truncateds, ALL: is_over}, {}

    def close(self) -> None:
        self.unity_env.close()

    def _spec(self, agent_id: AgentID) -> Any:
        name = str(agent_id).rpartition("_")[0]
        if name not in self._specs:
            raise ValueError(f"there is no behavior of agent {agent_id!r}; there are {', '.join(self._specs)}")
        return self._specs[name]

    def _actions(self, name: str, actions: list[Any]) -> Any:
        spec = self._specs[name].action_spec
        has_both = spec.continuous_size and spec.discrete_size
        continuous = [action[0] if has_both else action for action in actions] if spec.continuous_size else None
        discrete = [action[1] if has_both else action for action in actions] if spec.discrete_size else None
        return self._action_tuple(
            continuous=None if continuous is None else np.array(continuous, np.float32),
            discrete=None if discrete is None else np.array(discrete, np.int32).reshape(len(actions), -1),
        )

    def _results(self) -> tuple[dict, dict, dict, dict]:
        """Observations, rewards, terminateds and truncateds of the agents that decide next, or have ended."""
        observations, rewards, terminateds, truncateds = {}, {}, {}, {}
        for name in self._specs:
            deciding, ended = self.unity_env.get_steps(name)
            self._waiting[name] = [f"{name}_{agent}" for agent in deciding.agent_id]
            for steps in (ended, deciding):
                for index, number in enumerate(steps.agent_id):
                    agent = f"{name}_{number}"
                    parts = tuple(np.asarray(each[index], np.float32) for each in steps.obs)
                    observations[agent] = parts[0] if len(parts) == 1 else parts
                    rewards[agent] = float(steps.reward[index])
            for index, number in enumerate(ended.agent_id):
                kind = truncateds if ended.interrupted[index] else terminateds
                kind[f"{name}_{number}"] = True
        return observations, rewards, terminateds, truncateds
