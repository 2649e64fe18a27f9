"""VMAS' scenarios: N environments with the same agents, stepped at once by torch."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import vmas

from rllib.env.multi_agent.vector_env import MultiAgentVectorEnv
from rllib.env.suites.refusals import unknown_id

# Steps of an episode, unless env_config says otherwise; VMAS' own default is no limit.
MAX_STEPS = 100


def make_vmas(scenario: str, /, num_envs: int = 1, **options: Any) -> "VmasVector":
    """A scenario of VMAS; env_config has arguments of vmas.make_env and of the scenario, such as n_agents."""
    folder = Path(vmas.__file__).parent / "scenarios"
    names = [path.stem for path in folder.rglob("*.py") if path.stem != "__init__"]
    if scenario not in names:  # VMAS would take a path for a name
        raise unknown_id("vmas", scenario, names)
    return VmasVector(scenario, num_envs, **options)


class VmasVector(MultiAgentVectorEnv):
    """N environments of a scenario; each draws first states from its own seed, whichever others there are.

    Args:
        scenario: its name.
        num_envs: N.
        options: options of vmas.make_env, with max_steps=100 by default; others are of the scenario.

    Raises:
        ValueError: if the agents' spaces differ, or the scenario does not take an option.
    """

    def __init__(self, scenario: str, num_envs: int = 1, **options: Any):
        given = {"max_steps": MAX_STEPS, "clamp_actions": True, **options, "terminated_truncated": True}
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*not used by the scenario")
            try:
                self._env = vmas.make_env(scenario, num_envs, **given)
            except UserWarning as warning:
                raise ValueError(f"env_config={options!r} does not fit 'vmas:{scenario}': {warning}") from warning
        self.num_envs, self.max_episode_steps = num_envs, given["max_steps"]
        self.possible_agents = [agent.name for agent in self._env.agents]
        observed, acted = (
            [_space(each) for each in space] for space in (self._env.observation_space, self._env.action_space)
        )
        if any(each != observed[0] for each in observed) or any(each != acted[0] for each in acted):
            raise ValueError(
                f"the agents of 'vmas:{scenario}' have different spaces ({observed}; {acted}), and VMAS' scenarios are "
                "taken where all agents are alike. Take another scenario, or one of PettingZoo's MPE "
                "(docs/guide/multi_agent.md)."
            )
        self.single_observation_space, self.single_action_space = observed[0], acted[0]
        self._streams: list[np.random.Generator] = []

    @property
    def unwrapped(self) -> Any:
        return self._env

    def reset(self, *, seed: int | list[int] | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        if seed is not None or not self._streams:
            seeds = seed if isinstance(seed, list) else np.random.SeedSequence(seed).generate_state(self.num_envs)
            self._streams = [np.random.default_rng(int(each)) for each in seeds]
        self._begin(range(self.num_envs))
        return self._observed(self._env.get_from_scenario(True, False, False, False)[0]), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        per_agent = torch.as_tensor(np.ascontiguousarray(actions), device=self._env.device).unbind(1)
        observations, rewards, terminated, truncated, _ = self._env.step(list(per_agent))
        final, info = self._observed(observations), {}
        terminated, truncated = terminated.cpu().numpy(), truncated.cpu().numpy()
        following = final
        if (ended := terminated | truncated).any():
            info = {"final_obs": final, "_final_obs": ended}
            self._begin(np.flatnonzero(ended).tolist())
            following = self._observed(self._env.get_from_scenario(True, False, False, False)[0])
        return following, torch.stack(rewards, 1).cpu().numpy().astype(np.float32), terminated, truncated, info

    def _begin(self, indices) -> None:
        """Resets these environments, each on the next number of its own stream: VMAS has one generator for all."""
        for index in indices:
            self._env.seed(int(self._streams[index].integers(2**31)))
            self._env.reset_at(index, return_observations=False)

    def _observed(self, observations: list) -> np.ndarray:
        return torch.stack(observations, 1).cpu().numpy()


def _space(space: Any) -> gymnasium.Space:
    """The space of gymnasium for one of the old gym, which VMAS has."""
    kind = type(space).__name__
    if kind == "Box":
        return gymnasium.spaces.Box(space.low, space.high, space.shape, space.dtype)
    if kind == "Discrete":
        return gymnasium.spaces.Discrete(int(space.n))
    return gymnasium.spaces.MultiDiscrete(space.nvec)
