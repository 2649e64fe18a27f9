"""The simple_spread of the multi-agent particle environments, N of them in numpy.

Agents have to cover landmarks without running into one another (Lowe et al., arXiv:1706.02275). Equal to mpe2's
simple_spread_v3 step by step, with its default world; a test compares them.
"""

import numpy as np
from gymnasium.spaces import Box, Discrete

from rllib.env.multi_agent.vector_env import MultiAgentVectorEnv

TIME_STEP = 0.1
DAMPING = 0.25
SENSITIVITY = 5.0  # acceleration of an action
SIZE = 0.15  # radius of an agent
CONTACT_FORCE, CONTACT_MARGIN = 1e2, 1e-3
# Directions of the five actions: none, left, right, down, up.
_DIRECTIONS = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], np.float64)


class VectorSpread(MultiAgentVectorEnv):
    """N games of A agents and A landmarks in a plane; positions are drawn from [-1, 1].

    An agent observes its velocity and position, the relative positions of landmarks and of the other agents, and
    2 (A - 1) zeros where mpe2 has messages: [6 A] float32. Its reward is local_ratio times the agents that it touches,
    negative, plus (1 - local_ratio) times the negative sum over landmarks of the distance to the nearest agent.
    Episodes are truncated after `max_cycles` steps. The state is the observations of all agents, [A * 6 A].

    Args:
        num_envs: N.
        num_agents: A.
        local_ratio: share of the agent's own reward.
        max_cycles: steps of an episode.

    Attributes:
        positions, velocities: of agents, float64 [N, A, 2]; may be set between steps.
        landmarks: float64 [N, A, 2]; likewise.
        steps: int64 [N], of the running episodes so far.
    """

    def __init__(self, num_envs: int = 1, num_agents: int = 3, local_ratio: float = 0.5, max_cycles: int = 25):
        if not 0 <= local_ratio <= 1:
            raise ValueError(f"local_ratio={local_ratio} is a share: 0 to 1")
        if num_envs < 1 or num_agents < 1 or max_cycles < 1:
            given = f"num_envs={num_envs}, num_agents={num_agents}, max_cycles={max_cycles}"
            raise ValueError(f"{given} must be at least 1 each")
        self.num_envs, self.local_ratio, self.max_episode_steps = num_envs, local_ratio, max_cycles
        self.possible_agents = [f"agent_{index}" for index in range(num_agents)]
        self.single_observation_space = Box(-np.inf, np.inf, (6 * num_agents,), np.float32)
        self.single_action_space = Discrete(len(_DIRECTIONS))
        self.state_space = Box(-np.inf, np.inf, (6 * num_agents**2,), np.float32)
        # Row a: the agents other than a, in their order.
        self._others = np.array([[b for b in range(num_agents) if b != a] for a in range(num_agents)], int)
        self._others = self._others.reshape(num_agents, num_agents - 1)
        self._generators = [np.random.default_rng() for _ in range(num_envs)]
        self.positions = self.velocities = self.landmarks = np.zeros((num_envs, num_agents, 2))
        self.steps = np.zeros(num_envs, np.int64)

    def reset(self, *, seed: int | list[int] | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            seeds = seed if isinstance(seed, list) else np.random.SeedSequence(seed).spawn(self.num_envs)
            # gymnasium's generator of a seed, so that equal seeds give mpe2's first states.
            self._generators = [np.random.Generator(np.random.PCG64(each)) for each in seeds]
        self.positions, self.velocities, self.landmarks = (np.zeros(self.positions.shape) for _ in range(3))
        self.steps = np.zeros(self.num_envs, np.int64)
        self._place(range(self.num_envs))
        return self._observe(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        force = SENSITIVITY * _DIRECTIONS[actions] + self._contact_forces()
        self.positions = self.positions + self.velocities * TIME_STEP
        self.velocities = self.velocities * (1 - DAMPING) + force * TIME_STEP
        self.steps = self.steps + 1
        rewards, observations, info = self._rewards(), self._observe(), {}
        truncated = self.steps >= self.max_episode_steps
        if truncated.any():
            info = {"final_obs": observations, "_final_obs": truncated}
            self._place(np.flatnonzero(truncated))
            observations = self._observe()
        return observations, rewards, np.zeros(self.num_envs, bool), truncated, info

    def state(self) -> np.ndarray:
        return self._observe().reshape(self.num_envs, -1)

    def _place(self, indices) -> None:
        """Begins episodes in some environments, drawing in the order of mpe2: agents, then landmarks."""
        for index in indices:
            drawn = self._generators[index].uniform(-1, 1, (2, *self.positions.shape[1:]))
            self.positions[index], self.landmarks[index] = drawn
            self.velocities[index], self.steps[index] = 0, 0

    def _contact_forces(self) -> np.ndarray:
        """Forces [N, A, 2] that push touching agents apart: a soft maximum of their overlap and 0."""
        apart = self._between_agents()
        distances = np.sqrt((apart**2).sum(-1))
        overlap = np.logaddexp(0, (2 * SIZE - distances) / CONTACT_MARGIN) * CONTACT_MARGIN
        # An agent does not push itself; its distance of 0 would divide by 0.
        scale = CONTACT_FORCE * overlap / np.where(distances == 0, 1, distances)
        return (scale[..., None] * apart).sum(2)

    def _between_agents(self) -> np.ndarray:
        """Vectors [N, A, A, 2] from the second agent to the first."""
        return self.positions[:, :, None] - self.positions[:, None]

    def _rewards(self) -> np.ndarray:
        distances = np.sqrt((self._between_agents() ** 2).sum(-1))
        touched = (distances < 2 * SIZE).sum(2) - 1  # all but itself
        to_landmarks = np.sqrt(((self.landmarks[:, :, None] - self.positions[:, None]) ** 2).sum(-1))
        common = -to_landmarks.min(2).sum(1)
        return (common[:, None] * (1 - self.local_ratio) - touched * self.local_ratio).astype(np.float32)

    def _observe(self) -> np.ndarray:
        count, agents = self.num_envs, self.num_agents
        landmarks = self.landmarks[:, None] - self.positions[:, :, None]
        others = self.positions[:, self._others] - self.positions[:, :, None]
        parts = (self.velocities, self.positions, landmarks, others, np.zeros((count, agents, 2 * (agents - 1))))
        return np.concatenate([part.reshape(count, agents, -1) for part in parts], -1, dtype=np.float32)
