"""Several copies of a single-agent environment as one environment with as many agents."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from rllib.env.factories.registry import EnvContext, resolve
from rllib.env.multi_agent.agent_spaces import ALL
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult
from rllib.env.streams.legacy import LegacyEnvironment, adapt_spaces
from rllib.env.streams.sync import take_off_wrappers


def make_multi_agent(env_name_or_creator: str | type | Callable) -> type[MultiAgentEnv]:
    """Makes a class of environments whose agents each act in an environment of their own.

    The class takes one argument, the `env_config`: its item "num_agents" (default 1) is the number of agents, 0 to
    n - 1; the others go to the single-agent environment. An agent whose episode has ended gets no observation until
    the episodes of all have, which ends the whole episode. `reset(seed=s)` seeds the environment of agent i with
    s + i.

    Args:
        env_name_or_creator: whatever `.environment(env)` takes for a single agent.

    Raises:
        ValueError, TypeError: if it names no environment.
    """
    factory = resolve(env_name_or_creator)

    class Copies(AgentCopies):
        def __init__(self, config: dict | None = None):
            rest = EnvContext(config)
            if isinstance(config, EnvContext):
                vars(rest).update(vars(config))
            num_agents = rest.pop("num_agents", 1)
            if not isinstance(num_agents, int) or num_agents < 1:
                raise ValueError(f"env_config['num_agents'] = {num_agents!r} must be an int of at least 1")
            super().__init__([factory.make(rest) for _ in range(num_agents)])

    Copies.__name__ = Copies.__qualname__ = f"MultiAgent{factory.name}"
    return Copies


class AgentCopies(MultiAgentEnv):
    """Single-agent environments side by side; agent i acts in the i-th.

    Args:
        envs: one for each agent.
    """

    def __init__(self, envs: list[gymnasium.Env]):
        self.envs = [adapt_spaces(env) for env in envs]
        self.possible_agents = list(range(len(envs)))
        self.agents = list(self.possible_agents)
        self.observation_spaces = {agent: env.observation_space for agent, env in enumerate(self.envs)}
        self.action_spaces = {agent: env.action_space for agent, env in enumerate(self.envs)}
        self.metadata = getattr(self.envs[0], "metadata", None) or {}
        self.render_mode = getattr(self.envs[0], "render_mode", None)
        # Each wrapper costs a call a step: time limits are kept here.
        bare = [take_off_wrappers(env) for env in self.envs]
        self._steps, self._limits = [env.step for env, _ in bare], [limit for _, limit in bare]
        self._elapsed = [0] * len(envs)
        self._truncated: set[int] = set()

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.agents, self._truncated = list(self.possible_agents), set()
        self._elapsed = [0] * len(self.envs)
        observations, infos = {}, {}
        for agent, env in enumerate(self.envs):
            own_seed = None if seed is None else seed + agent
            observations[agent], infos[agent] = LegacyEnvironment(env).reset(seed=own_seed, options=options)
        return observations, infos

    def step(self, action_dict: dict[int, Any]) -> StepResult:
        results: StepResult = {}, {}, {}, {}, {}
        observations, rewards, terminateds, truncateds, infos = results
        steps, elapsed, limits = self._steps, self._elapsed, self._limits
        ended = []
        for agent, action in action_dict.items():
            stepped = steps[agent](action)
            if len(stepped) == 4:
                stepped = LegacyEnvironment.convert(stepped)
            observations[agent], rewards[agent], terminated, truncated, infos[agent] = stepped
            elapsed[agent] += 1
            truncated = truncated or elapsed[agent] >= limits[agent]
            terminateds[agent], truncateds[agent] = terminated, truncated
            if terminated or truncated:
                ended.append(agent)
        if ended:
            self._truncated.update(agent for agent in ended if not terminateds[agent])
            self.agents = [agent for agent in self.agents if agent not in ended]
        # Who has ended in which way is in the agents' own flags; the flag of all says that everybody has.
        is_over = not self.agents
        terminateds[ALL] = is_over and not self._truncated
        truncateds[ALL] = is_over and bool(self._truncated)
        return results

    def render(self) -> np.ndarray | None:
        """The environments' images in one: below one another where they are wider than high, else side by side."""
        frames = [env.render() for env in self.envs]
        if any(not isinstance(frame, np.ndarray) for frame in frames):
            return None
        height, width = frames[0].shape[:2]
        return np.concatenate(frames, axis=0 if width > height else 1)

    def close(self) -> None:
        for env in self.envs:
            env.close()
