"""Sampling from a MultiAgentVectorEnv: all agents act in each step, so that no Python loop over agents is needed.

The rows equal those that the same environments give when they are stepped one by one. A lane's slots are the agents of
its policy, ordered by environment, and all slots write the same row at a time.
"""

from collections.abc import Mapping

import numpy as np

from rllib.env.episodes import Episode
from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.vector_stream import VectorAgentsStream
from rllib.evaluation.callbacks import DefaultCallbacks, hears
from rllib.evaluation.episode_hooks import EPISODE_HOOKS
from rllib.evaluation.multi_agent.agent_lane import AgentLane, NetworkLane
from rllib.evaluation.settings import RolloutSettings

_HOOKS = (*EPISODE_HOOKS, "on_sub_environment_created")


def can_be_dense(settings: RolloutSettings, callbacks: DefaultCallbacks) -> bool:
    """Whether a worker with these settings may sample from arrays, if its environment provides them.

    This needs the same network for an agent in all episodes, no callback that receives single episodes or environments,
    and no teacher that reads observations which its policy does not read.
    """
    agents = settings.agents
    ids = set((agents.fixed or {}).values())
    return (
        bool(ids)
        and not agents.counts_agent_steps
        and not settings.complete_episodes
        and not settings.replace_failed_envs
        and ids.isdisjoint(agents.hand_written)
        and not any(own.teacher_reads_more for own in settings.policies.values())
        and not any(hears(callbacks, hook) for hook in _HOOKS)
    )


class DenseSteps:
    """Steps a vector of environments with the actions of lanes, and writes the results into the lanes' rows.

    Args:
        stream: the environments.
        fixed: agent -> policy id.
        lanes: policy id -> its lane, whose slots are in the order of environments, and of agents within each.
    """

    def __init__(self, stream: VectorAgentsStream, fixed: Mapping[AgentID, str], lanes: Mapping[str, AgentLane]):
        self._stream = stream
        self._keys = [(agent, fixed[agent]) for agent in stream.agents]
        ids = [policy_id for _, policy_id in self._keys]
        # (lane, positions of its agents)
        self._parts: list[tuple[NetworkLane, list[int]]] = []
        for policy_id in dict.fromkeys(ids):
            lane, positions = lanes[policy_id], [at for at, each in enumerate(ids) if each == policy_id]
            if not isinstance(lane, NetworkLane) or lane.num_slots != stream.num_envs * len(positions):
                raise ValueError(f"the lane of policy {policy_id!r} has other slots than agents of the environments")
            self._parts.append((lane, positions))
        self._returns = np.zeros((stream.num_envs, len(ids)))
        self._lengths = np.zeros(stream.num_envs, np.int64)
        self.forget()

    @property
    def longest_running(self) -> int:
        """Steps of the longest running episode."""
        return int(self._lengths.max())

    def forget(self) -> None:
        """Drops the running episodes; the next step is preceded by a reset."""
        self._is_running = False
        self._returns[:], self._lengths[:] = 0, 0

    def start(self) -> None:
        """Starts an episode in every environment, unless episodes are running."""
        if self._is_running:
            return
        self._is_running = True
        self._see(self._stream.reset())
        for lane, _ in self._parts:
            lane.states[:] = 0

    def act(self, step: int) -> None:
        """Chooses the actions of all agents; `step` is the number of the step since the lanes were prepared."""
        for lane, _ in self._parts:
            lane.act(step)

    def step(self) -> list[Episode]:
        """Makes a step of all environments with the chosen actions; returns the episodes that have ended."""
        observations, rewards, terminated, truncated, final = self._stream.step(self._actions())
        self._returns += rewards
        self._lengths += 1
        ended = np.flatnonzero(terminated | truncated) if final is not None else ()
        for lane, positions in self._parts:
            per_env = len(positions)
            slots = [(index, index * per_env + position) for index in ended for position in range(per_env)]
            if lane.records:
                for index, slot in slots:
                    if lane.every_final_observation or not terminated[index]:
                        lane.keep_final(slot, final[index, positions[slot - index * per_env]])
                flags = [(slot, bool(terminated[index]), bool(truncated[index])) for index, slot in slots]
                lane.close_all(rewards[:, positions].reshape(-1), flags)
            for _, slot in slots:
                lane.begin_episode(slot)
        self._see(observations)
        return [self._end(index) for index in ended]

    def _see(self, observations: np.ndarray) -> None:
        for lane, positions in self._parts:
            seen = observations if len(self._parts) == 1 else observations[:, positions]
            lane.see_all(seen.reshape(-1, *observations.shape[2:]))

    def _actions(self) -> np.ndarray:
        """The actions of all agents [N, A, *action]; a new array, which the environments may keep."""
        count, given = self._stream.num_envs, [np.asarray(lane.mapped_actions) for lane, _ in self._parts]
        actions = np.empty((count, len(self._keys), *given[0].shape[1:]), given[0].dtype)
        for (_, positions), own in zip(self._parts, given):
            actions[:, positions] = own.reshape(count, len(positions), *own.shape[1:])
        return actions

    def _end(self, index: int) -> Episode:
        returns = self._returns[index].tolist()
        length = int(self._lengths[index])
        self._returns[index], self._lengths[index] = 0, 0
        return Episode(
            sum(returns),
            length,
            int(index),
            agent_returns=dict(zip(self._keys, returns)),
            agent_lengths=dict.fromkeys(self._keys, length),
        )

    def rows(self, num_steps: int) -> dict[tuple[AgentID, str], int]:
        """Number of rows by (agent, policy) of this number of steps."""
        return dict.fromkeys(self._keys, num_steps * self._stream.num_envs)
