"""Level-based foraging and the robot warehouse: environments of gymnasium whose agents' values are tuples."""

import importlib
from typing import Any

import gymnasium

from rllib.env.multi_agent.adapt import TimeLimitedAgents
from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult
from rllib.env.suites.refusals import refuse_unknown_keys, unknown_id

# They call the end by their own time limit a termination; without it, the limit is counted here.
_NEVER = 2**31


class TupleAgents(MultiAgentEnv):
    """An environment whose observations, actions and rewards are tuples, one entry for each agent.

    Args:
        env: an episode ends for all its agents at once.
    """

    def __init__(self, env: gymnasium.Env):
        self.env = env
        self.possible_agents = [f"agent_{index}" for index in range(len(env.action_space.spaces))]
        self.observation_spaces = dict(zip(self.possible_agents, env.observation_space.spaces))
        self.action_spaces = dict(zip(self.possible_agents, env.action_space.spaces))
        self.metadata, self.render_mode = env.metadata, env.render_mode
        self.agents = list(self.possible_agents)

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        observations, _ = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return dict(zip(self.possible_agents, observations)), {}

    def step(self, action_dict: dict[AgentID, Any]) -> StepResult:
        actions = tuple(action_dict[agent] for agent in self.possible_agents)
        observations, rewards, terminated, truncated, _ = self.env.step(actions)
        if terminated or truncated:
            self.agents = []
        agents = self.possible_agents
        return (
            dict(zip(agents, observations)),
            dict(zip(agents, map(float, rewards))),
            dict.fromkeys([*agents, ALL], bool(terminated)),
            dict.fromkeys([*agents, ALL], bool(truncated)),
            {},
        )

    def render(self):
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def lbforaging(env_id: str, /, **env_config: Any) -> MultiAgentEnv:
    """An environment of lbforaging; env_config has arguments of its class."""
    return _made("lbforaging", env_id, "max_episode_steps", env_config)


def rware(env_id: str, /, **env_config: Any) -> MultiAgentEnv:
    """An environment of RWARE; env_config has arguments of its class."""
    return _made("rware", env_id, "max_steps", env_config)


def _made(suite: str, env_id: str, limit: str, env_config: dict[str, Any]) -> MultiAgentEnv:
    """An environment that a module registers with gymnasium.

    Args:
        suite: the module.
        env_id: its id.
        limit: argument of its class that is the time limit (steps).
        env_config: arguments of its class.
    """
    importlib.import_module(suite)
    own = {spec.id: spec for spec in gymnasium.registry.values() if str(spec.entry_point).partition(".")[0] == suite}
    if env_id not in own:
        raise unknown_id(suite, env_id, own)
    make = gymnasium.envs.registration.load_env_creator(own[env_id].entry_point)
    arguments = {**own[env_id].kwargs, **env_config}
    steps = arguments[limit]
    try:
        env = make(**{**arguments, limit: _NEVER})
    except TypeError:
        refuse_unknown_keys(f"{suite}:{env_id}", env_config, own[env_id].kwargs)
        raise
    return TimeLimitedAgents(TupleAgents(env), steps)
