"""Protocol of dense simulators: N environments with the same A agents each, as arrays [N, A, ...].

All agents act in every step, and an episode ends for all of them at once. So a step needs no dict, and rows of the
agents are rows of the arrays. `OneOfVector` gives a vector of one environment the interface of a MultiAgentEnv.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult


class MultiAgentVectorEnv:
    """N environments with A agents each, in arrays; an ended episode is followed by a reset within the same step.

    A subclass sets the attributes. Every array that reset() and step() return is a new one.

    Attributes:
        num_envs: N.
        possible_agents: ids of the A agents, in the order of the arrays.
        single_observation_space, single_action_space: of one agent of one environment; all agents have the same.
        state_space: space of one environment's state; None if it has none.
        max_episode_steps: time limit; None: none.
        metadata: "autoreset_mode" is SAME_STEP.
    """

    metadata: ClassVar[dict] = {"autoreset_mode": AutoresetMode.SAME_STEP}
    num_envs: int
    possible_agents: list[AgentID]
    single_observation_space: gymnasium.Space
    single_action_space: gymnasium.Space
    state_space: gymnasium.Space | None = None
    max_episode_steps: int | None = None
    render_mode: str | None = None

    @property
    def num_agents(self) -> int:
        """A."""
        return len(self.possible_agents)

    @abstractmethod
    def reset(self, *, seed: int | list[int] | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode in every environment.

        Args:
            seed: seed of all first states from now on; a list has one for each environment. None: generators continue.
            options: options of the environment.

        Returns:
            observations [N, A, *observation_shape], and an info.
        """

    @abstractmethod
    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Makes a step of all environments.

        Args:
            actions: [N, A, *action_shape].

        Returns:
            observations [N, A, *observation_shape], of the new episodes where one has ended; rewards [N, A];
            terminated and truncated, bool [N]; an info. Where episodes have ended, `info["final_obs"]` has the last
            observations of all environments, and `info["_final_obs"]`, bool [N], says which of them have ended.
        """

    def state(self) -> np.ndarray:
        """States [N, *state_shape] of the environments, which no agent sees.

        Raises:
            NotImplementedError: if there are none.
        """
        raise NotImplementedError(f"{type(self).__name__} has no state()")

    def close(self) -> None:
        """Frees what the environments hold."""


class OneOfVector(MultiAgentEnv):
    """A MultiAgentVectorEnv of one environment as a MultiAgentEnv: for checks, evaluation and play.

    Args:
        env: with num_envs=1.

    Raises:
        ValueError: if it has several environments.
    """

    def __init__(self, env: MultiAgentVectorEnv):
        if env.num_envs != 1:
            raise ValueError(
                f"{type(env).__name__} has {env.num_envs} environments, and can stand for a single one only with "
                "num_envs=1"
            )
        self.env, self.possible_agents = env, list(env.possible_agents)
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self.state_space, self.render_mode = env.state_space, env.render_mode
        self.metadata = {}
        self.agents = list(self.possible_agents)
        # First observations of the episode that the vector has begun by itself.
        self._begun: np.ndarray | None = None

    @property
    def unwrapped(self) -> Any:
        return self.env

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        observations, self._begun = self._begun, None
        if observations is None or seed is not None or options is not None:
            # Seeds in a list, so that the environment is the one that has this seed among several.
            seeds = [seed] if isinstance(seed, int) else seed
            observations, _ = self.env.reset(seed=seeds, options=options)
        self.agents = list(self.possible_agents)
        return dict(zip(self.possible_agents, observations[0])), {}

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        actions = np.stack([action_dict[agent] for agent in self.possible_agents])
        observations, rewards, terminated, truncated, info = self.env.step(actions[None])
        is_terminated, is_truncated = bool(terminated[0]), bool(truncated[0])
        if is_terminated or is_truncated:
            observations, self._begun, self.agents = info["final_obs"], observations, []
        agents = self.possible_agents
        return (
            dict(zip(agents, observations[0])),
            dict(zip(agents, rewards[0].tolist())),
            dict.fromkeys(agents, is_terminated) | {ALL: is_terminated},
            dict.fromkeys(agents, is_truncated) | {ALL: is_truncated},
            {},
        )

    def state(self) -> np.ndarray:
        """The state of the environment."""
        return self.env.state()[0]

    def close(self) -> None:
        self.env.close()
