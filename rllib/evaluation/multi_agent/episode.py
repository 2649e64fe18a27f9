"""The running episode of several agents, as `policy_mapping_fn` and callbacks get it."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rllib.env.multi_agent.agent_spaces import ALL, AgentID
from rllib.env.multi_agent.stream import AgentStep
from rllib.env.spaces.actions import zero_action

if TYPE_CHECKING:
    from rllib.evaluation.multi_agent.lanes import Slots
    from rllib.evaluation.worker import Worker


class Seat:
    """An agent of an episode, and its slot in the lane of its policy.

    Attributes:
        agent, policy_id: who sits here, and what acts for it.
        lane, slot: where it acts.
        reward: sum of its rewards since it has acted.
        total: sum of all its rewards in the episode.
        num_rows: its closed rows in the episode.
        first_row: number of them that were closed in earlier fragments.
        is_open: whether it has acted and waits for what follows.
    """

    __slots__ = ("agent", "first_row", "is_open", "lane", "num_rows", "policy_id", "reward", "slot", "total")

    def __init__(self, agent: AgentID, policy_id: str, lane: "Slots", slot: int, total: float):
        self.agent, self.policy_id, self.lane, self.slot = agent, policy_id, lane, slot
        self.reward, self.total = 0.0, total
        self.num_rows = self.first_row = 0
        self.is_open = False


class AgentEpisode:
    """An episode of an environment with several agents, from before its reset on.

    The methods `last_..._for` and `prev_..._for` know what `begin` and `stepped` have recorded; a worker without
    callbacks for episodes records nothing.

    Args:
        number: of the episode in its environment, from 0.
        env_id: index of the environment within the worker.
        first_env: index in the run of the worker's first environment.
        worker: has the environment.
        choose: function of (agent, this episode) that returns the id of the agent's policy; called once an agent.
        make_rng: makes the random stream of the episode.

    Attributes:
        episode_id: index of the environment in the run << 32 | number; so it does not depend on the number of workers.
        env_id, worker: see the arguments.
        started: whether the environment has been reset; False in on_episode_created.
        length: steps of the environment so far.
        seats: agent -> its seat, of all agents that have had an observation.
        loose: rewards of agents that have not had one.
        user_data: a dict for the user's code.
        custom_metrics: name -> number; the results have name_mean, name_min and name_max.
        hist_data: name -> list of numbers; joined over episodes they are in the results' `hist_stats`.
        media: name -> any object; listed in the results' `episode_media`.
        is_faulty: whether the environment raised, so that the episode is void.
    """

    def __init__(
        self,
        number: int,
        env_id: int,
        first_env: int,
        worker: "Worker",
        choose: Callable[[AgentID, "AgentEpisode"], str],
        make_rng: Callable[[int, int], np.random.Generator],
    ):
        self.number, self.env_id, self.worker = number, env_id, worker
        self.episode_id = (first_env + env_id) << 32 | number
        self._choose, self._make_rng = choose, make_rng
        self.started = False
        self.length = 0
        self.seats: dict[AgentID, Seat] = {}
        self.loose: dict[AgentID, float] = {}
        self.user_data: dict[str, Any] = {}
        self.custom_metrics: dict[str, float] = {}
        self.hist_data: dict[str, list[float]] = {}
        self.media: dict[str, Any] = {}
        self.is_faulty = False
        self._policies: dict[AgentID, str] = {}
        self._observations: dict[AgentID, Any] = {}
        self._infos: dict[AgentID, Any] = {}
        # (newest, the one before it) by agent.
        self._actions: dict[AgentID, tuple[Any, Any]] = {}
        self._rewards: dict[AgentID, tuple[float, float]] = {}
        self._terminated: set[AgentID] = set()
        self._truncated: set[AgentID] = set()

    @cached_property
    def rng(self) -> np.random.Generator:
        """A random stream of this episode, for a mapping that draws opponents and the like.

        Numbers from it do not depend on the number of workers, as those of `numpy.random` do.
        """
        return self._make_rng(self.env_id, self.number)

    # ------------------------------------------------------------------ agents and policies

    def policy_for(self, agent_id: AgentID) -> str:
        """Id of the policy that acts for an agent in the whole episode; the mapping is asked once."""
        policy_id = self._policies.get(agent_id)
        if policy_id is None:
            # A mapping that asks for other agents may have mapped this one meanwhile.
            policy_id = self._policies.setdefault(agent_id, self._choose(agent_id, self))
        return policy_id

    def get_agents(self) -> list[AgentID]:
        """The agents that have had an observation, in the order in which they have appeared."""
        return list(self.seats)

    def agent_index(self, agent_id: AgentID) -> int:
        """Position of an agent in `get_agents`.

        Raises:
            ValueError: if it has not had an observation.
        """
        return self.get_agents().index(agent_id)

    @property
    def agent_rewards(self) -> dict[tuple[AgentID, str], float]:
        """Total reward by (agent, policy), of the agents that have had an observation."""
        return {(seat.agent, seat.policy_id): seat.total for seat in self.seats.values()}

    @property
    def total_reward(self) -> float:
        """Sum of the raw rewards of all agents so far."""
        return sum(self.agent_rewards.values()) + sum(self.loose.values())

    # ------------------------------------------------------------------ names of RLlib's new API stack

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True  # of length 0 as well

    @property
    def id_(self) -> str:
        """`episode_id` as a string."""
        return str(self.episode_id)

    @property
    def custom_data(self) -> dict[str, Any]:
        """The same dict as `user_data`."""
        return self.user_data

    def env_steps(self) -> int:
        """Steps of the environment so far."""
        return self.length

    def get_return(self) -> float:
        """Sum of the raw rewards of all agents so far."""
        return self.total_reward

    def module_for(self, agent_id: AgentID) -> str:
        """`policy_for`."""
        return self.policy_for(agent_id)

    @property
    def is_done(self) -> bool:
        """Whether the episode was terminated or truncated as a whole."""
        return self.last_terminated_for(ALL) or self.last_truncated_for(ALL)

    # ------------------------------------------------------------------ records for callbacks

    def begin(self, observations: Mapping, infos: Mapping) -> None:
        """Records the result of reset()."""
        self.started = True
        self._observations.update(observations)
        self._infos.update(infos)

    def stepped(self, actions: Mapping, step: AgentStep) -> None:
        """Records a step of the environment with these actions."""
        self._observations.update(step.observations)
        self._infos.update(step.infos)
        for agent, action in actions.items():
            newest = self._actions.get(agent)
            self._actions[agent] = action, newest and newest[0]
        for agent, reward in step.rewards.items():
            self._rewards[agent] = float(reward or 0.0), self.last_reward_for(agent)
        self._terminated.update(agent for agent, flag in step.terminateds.items() if flag)
        self._truncated.update(agent for agent, flag in step.truncateds.items() if flag)

    def last_observation_for(self, agent_id: AgentID) -> Any:
        """The newest observation of an agent, as returned by the environment; None before the first."""
        return self._observations.get(agent_id)

    last_raw_obs_for = last_observation_for

    def last_info_for(self, agent_id: AgentID) -> Any:
        """The newest info of an agent, or of "__common__"; None where there is none."""
        return self._infos.get(agent_id)

    def last_action_for(self, agent_id: AgentID) -> Any:
        """The newest action of an agent, in the environment's units; zeros before its first."""
        return self._action_for(agent_id, 0)

    def prev_action_for(self, agent_id: AgentID) -> Any:
        """The action before that; zeros where there is none."""
        return self._action_for(agent_id, 1)

    def _action_for(self, agent_id: AgentID, age: int) -> Any:
        action = self._actions.get(agent_id, (None, None))[age]
        return zero_action(self.worker.stream.spaces(self.env_id).action(agent_id)) if action is None else action

    def last_reward_for(self, agent_id: AgentID) -> float:
        """The newest reward that the environment gave to an agent; 0 before the first."""
        return self._rewards.get(agent_id, (0.0, 0.0))[0]

    def prev_reward_for(self, agent_id: AgentID) -> float:
        """The reward before that; 0 where there is none."""
        return self._rewards.get(agent_id, (0.0, 0.0))[1]

    def last_terminated_for(self, agent_id: AgentID) -> bool:
        """Whether an agent, or the whole episode, was terminated."""
        return not self._terminated.isdisjoint((agent_id, ALL))

    def last_truncated_for(self, agent_id: AgentID) -> bool:
        """Whether an agent, or the whole episode, was truncated."""
        return not self._truncated.isdisjoint((agent_id, ALL))
