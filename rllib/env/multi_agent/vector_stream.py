"""A stream over a MultiAgentVectorEnv: all agents of all environments are stepped at once, in arrays."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rllib.env.agents import agent_interface
from rllib.env.multi_agent.stream import EXAMINED_STEPS
from rllib.env.multi_agent.vector_env import MultiAgentVectorEnv
from rllib.env.spaces.bounds import misfit
from rllib.env.streams.first_results import WITHOUT_THIS_CHECK, env_name
from rllib.env.streams.rewards import reward_problem
from rllib.env.streams.sync import close_all


def is_dense(env: Any) -> bool:
    """Whether an environment is a MultiAgentVectorEnv that resets ended episodes within the same step."""
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    return agent_interface(env) == "arrays" and mode == AutoresetMode.SAME_STEP


class VectorAgentsStream:
    """N environments with the same A agents each, in one MultiAgentVectorEnv.

    Args:
        env: the stream owns and closes it.
        seeds: one int per environment, given to the first reset.
        worker: owner of the environments, for messages.
        warns: whether warnings that are the same in every worker are logged.
        checked_steps: 0: first results are not checked against the spaces.

    Attributes:
        agents: ids, in the order of the arrays.
        num_envs: N.
    """

    def __init__(
        self,
        env: MultiAgentVectorEnv,
        seeds: Sequence[int],
        *,
        worker: str = "rollout worker 0",
        warns: bool = True,
        checked_steps: int = 1,
    ):
        self._env, self.num_envs, self.agents = env, env.num_envs, tuple(env.possible_agents)
        self._name, self._warns = f"{env_name(env)} of {worker}", warns
        self._examined = EXAMINED_STEPS + 1 if checked_steps else 0
        self.reseed(seeds)

    @property
    def environments(self) -> list:
        """The vector, as the only one."""
        return [self._env]

    @property
    def observation_space(self):
        """The observation space of every agent."""
        return self._env.single_observation_space

    @property
    def action_space(self):
        """The action space of every agent."""
        return self._env.single_action_space

    def watch(self, environment_made: Callable[[int, Any], None]) -> None:
        """Does nothing: environments of a vector are not replaced."""

    def reseed(self, seeds: Sequence[int]) -> None:
        """Sets the seeds of the next reset, one int per environment."""
        self._seeds: list[int] | None = list(map(int, seeds))

    def reset(self) -> np.ndarray:
        """Starts an episode in every environment; returns the observations [N, A, *observation]."""
        seeds, self._seeds = self._seeds, None
        try:
            observations, _ = self._env.reset(seed=seeds)
        except Exception as error:
            error.add_note(f"{self._name} raised in reset()")
            raise
        if self._examined:
            self._check_observations(observations, "reset()")
        return observations

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Makes a step of all environments; ended ones are reset.

        Args:
            actions: [N, A, *action].

        Returns:
            observations [N, A, *observation], rewards [N, A], terminated and truncated, bool [N], and the last
            observations of all environments, which count where one has ended; None where none has.

        Raises:
            ValueError: for results that the protocol does not allow; the environment's own exception, with a note.
        """
        try:
            observations, rewards, terminated, truncated, info = self._env.step(actions)
        except Exception as error:
            error.add_note(f"{self._name} raised in step()")
            raise
        if self._examined:
            self._examined -= 1
            self._check_observations(observations, "step()")
            self._check_shape("rewards", rewards, (self.num_envs, len(self.agents)))
            for name, flags in (("terminated", terminated), ("truncated", truncated)):
                self._check_shape(name, flags, (self.num_envs,))
        if not math.isfinite(float(np.sum(rewards, dtype=np.float64))):
            index, agent = np.argwhere(~np.isfinite(rewards))[0]
            problem = reward_problem(rewards[index, agent].item())
            raise ValueError(f"environment {index} of {self._name}: agent {self.agents[agent]!r}: {problem}")
        final = info.get("final_obs") if (terminated | truncated).any() else None
        if final is None and (terminated | truncated).any():
            raise ValueError(
                f"{self._name}: an episode has ended, but the info has no final_obs. step() returns the last "
                "observations as info['final_obs'], [N, A, ...], in addition to those of the next episodes."
            )
        return observations, rewards, terminated, truncated, final

    def _check_observations(self, observations: np.ndarray, method: str) -> None:
        space = self._env.single_observation_space
        self._check_shape(f"observations of {method}", observations, (self.num_envs, len(self.agents), *space.shape))
        for index in range(self.num_envs):
            for agent, seen in zip(self.agents, observations[index]):
                if problem := misfit(space, seen, env_name(self._env), warns=self._warns):
                    raise ValueError(
                        f"environment {index} of {self._name}: agent {agent!r}: the {problem} (returned by {method}). "
                        f"Correct the observation or single_observation_space; {WITHOUT_THIS_CHECK}"
                    )

    def _check_shape(self, name: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
        if np.shape(values) != shape:
            raise ValueError(
                f"{self._name}: {name} have the shape {list(np.shape(values))}, but {self.num_envs} environments of "
                f"{len(self.agents)} agents need {list(shape)}"
            )

    def close(self) -> None:
        """Closes the environments. May be called twice."""
        close_all([self._env])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
