"""The running episode of an environment, as hooks and `policy_mapping_fn` get it, and the slots of its agents."""

import copy
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rllib.env.spaces.actions import zero_action
from rllib.sample_batch import DEFAULT_POLICY

if TYPE_CHECKING:
    from rllib.env.multi_agent.stream import AgentStep
    from rllib.evaluation.worker import Worker

AGENT = "agent0"  # the agent of environments with one agent
# Steps of an episode, as its values are asked for.
Indices = int | list[int] | slice | None
_ALL = "__all__"  # represents the whole episode in the flags of several agents
_COMMON = "__common__"  # has the info of all of them together


class AgentSlot:
    """An agent of an episode, and its slot in the lane of its policy.

    Attributes:
        agent, policy_id: the agent, and the policy that acts for it.
        lane, index: where it acts; with one agent there is no lane, and the index is that of the environment.
        reward: sum of its rewards since it has acted.
        total: sum of all its rewards in the episode.
        num_rows: number of its closed rows in the episode.
        first_row: number of those that were closed in earlier fragments.
        is_open: whether it has acted and waits for what follows.
    """

    __slots__ = ("agent", "first_row", "index", "is_open", "lane", "num_rows", "policy_id", "reward", "total")

    def __init__(self, agent: Hashable, policy_id: str, lane: Any, index: int, total: float = 0.0):
        self.agent, self.policy_id, self.lane, self.index = agent, policy_id, lane, index
        self.reward, self.total = 0.0, total
        self.num_rows = self.first_row = 0
        self.is_open = False


class _Newest:
    """Newest values of an agent, of "__all__" or of "__common__"; None where there is none yet."""

    __slots__ = ("action", "action_before", "info", "observation", "reward", "reward_before", "terminated", "truncated")

    def __init__(self, action: Any = None):
        self.observation = self.info = None
        self.action = self.action_before = action
        self.reward = self.reward_before = 0.0
        self.terminated = self.truncated = False


_NOTHING = _Newest()


class RunningEpisode:
    """An episode of an environment, from before its reset on.

    With one agent the agent id of the `..._for` methods is optional, and may be any. The methods `last_..._for`,
    `prev_..._for` and `get_...` return what was recorded; a worker without callbacks for episodes records nothing.

    Args:
        worker: the worker that has the environment.
        env_id: index of the environment within the worker.
        number: number of the episode in its environment, from 0.
        first_env: index in the run of the worker's first environment.
        choose: function of (agent, this episode) that returns the id of the agent's policy, and is called once an
            agent. None: there is one agent.
        make_rng: makes the random stream of the episode, of (env_id, number); with several agents.
        only: id of the only agent, where its policy is chosen and its steps come as those of several agents.
        remembers: whether all steps are kept, for hooks of RLlib's new API stack.

    Attributes:
        episode_id: index of the environment in the run << 32 | number; so it does not depend on the number of workers.
        env_id, worker: see the arguments.
        started: whether the environment has been reset; False in on_episode_created.
        length: steps of the environment so far.
        slots: agent -> its slot, of all agents that have had an observation.
        loose: rewards of agents that have not had one.
        user_data: a dict for the user's code.
        custom_metrics: name -> number; the results have name_mean, name_min and name_max.
        hist_data: name -> list of numbers; joined over episodes they are in the results' `hist_stats`.
        media: name -> any object; listed in the results' `episode_media`.
        is_faulty: whether the environment raised, so that the episode is void.
        game_goes_on: whether the episode has ended with a life of a game whose next life is the next episode.
    """

    def __init__(
        self,
        worker: "Worker",
        env_id: int,
        number: int,
        first_env: int = 0,
        *,
        choose: Callable[[Hashable, "RunningEpisode"], str] | None = None,
        make_rng: Callable[[int, int], np.random.Generator] | None = None,
        only: Hashable = None,
        remembers: bool = False,
    ):
        self.worker, self.env_id, self.number = worker, env_id, number
        self.episode_id = (first_env + env_id) << 32 | number
        self._choose, self._make_rng = choose, make_rng
        self.started = False
        self.length = 0
        self.slots: dict[Hashable, AgentSlot] = {}
        self.loose: dict[Hashable, float] = {}
        self.user_data: dict[str, Any] = {}
        self.custom_metrics: dict[str, float] = {}
        self.hist_data: dict[str, list[float]] = {}
        self.media: dict[str, Any] = {}
        self.is_faulty = False
        self.game_goes_on = False
        self._policies: dict[Hashable, str] = {}
        self._newest: dict[Hashable, _Newest] = {}
        self._alone: _Newest | None = None
        self._only = only
        # Method -> values from the reset on; None: the newest alone are kept.
        self._history: dict[str, list] | None = None
        if choose is None:
            self._alone = _Newest(zero_action(worker.stream.action_space))
            self._own = self.slots[AGENT] = AgentSlot(AGENT, DEFAULT_POLICY, None, env_id)
        if remembers:
            self._history = {name: [] for name in ("observations", "infos", "actions", "rewards")}

    @cached_property
    def rng(self) -> np.random.Generator:
        """A random stream of this episode, for a mapping that draws opponents and the like.

        Numbers from it do not depend on the number of workers, as those of `numpy.random` do.

        Raises:
            AttributeError: with one agent, for which no mapping is asked.
        """
        if self._make_rng is None:
            raise AttributeError("the episode of an only agent has no random stream: no policy is chosen in it")
        return self._make_rng(self.env_id, self.number)

    # ------------------------------------------------------------------ agents and policies

    def policy_for(self, agent_id: Hashable = None) -> str:
        """Id of the policy that acts for an agent in the whole episode; the mapping is asked once."""
        if self._alone is not None:
            return DEFAULT_POLICY
        policy_id = self._policies.get(agent_id)
        if policy_id is None:
            # A mapping that asks for other agents may have mapped this one meanwhile.
            policy_id = self._policies.setdefault(agent_id, self._choose(agent_id, self))
        return policy_id

    def get_agents(self) -> list[Hashable]:
        """The agents that have had an observation, in the order in which they have appeared."""
        return list(self.slots)

    def agent_index(self, agent_id: Hashable) -> int:
        """Position of an agent in `get_agents`.

        Raises:
            ValueError: if it has not had an observation.
        """
        return self.get_agents().index(agent_id)

    @property
    def agent_rewards(self) -> dict[tuple[Hashable, str], float]:
        """Total reward by (agent, policy), of the agents that have had an observation."""
        return {(slot.agent, slot.policy_id): slot.total for slot in self.slots.values()}

    @property
    def total_reward(self) -> float:
        """Sum of the raw rewards of all agents so far."""
        return sum(self.agent_rewards.values()) + sum(self.loose.values())

    # ------------------------------------------------------------------ records for callbacks

    def begin(self, observations: Mapping, infos: Mapping) -> None:
        """Records the result of reset() by agent."""
        self.started = True
        for agent, observation in observations.items():
            self._record_of(agent).observation = observation
        for agent, info in infos.items():
            self._record_of(agent).info = info
        if self._history is not None:
            self._keep_reset(observations, infos)

    def stepped(self, actions: Mapping, step: "AgentStep") -> None:
        """Records a step of the environment with these actions by agent."""
        for agent, action in actions.items():
            record = self._record_of(agent)
            record.action_before, record.action = record.action, action
        for agent, observation in step.observations.items():
            self._record_of(agent).observation = observation
        for agent, info in step.infos.items():
            self._record_of(agent).info = info
        for agent, reward in step.rewards.items():
            record = self._record_of(agent)
            record.reward_before, record.reward = record.reward, float(reward or 0.0)
        for agent, flag in step.terminateds.items():
            if flag:
                self._record_of(agent).terminated = True
        for agent, flag in step.truncateds.items():
            if flag:
                self._record_of(agent).truncated = True
        if step.is_over and not self.is_done:
            # Each agent has ended by its own flag, and "__all__" was never set.
            whole = self._record_of(_ALL)
            whole.terminated = all(self._of(agent).terminated for agent in self.slots)
            whole.truncated = not whole.terminated
        if self._history is not None:
            self._keep_step(actions, step)

    def _keep_reset(self, observations: Mapping, infos: Mapping) -> None:
        """Keeps the result of reset(): the values of the only agent, or dicts by agent."""
        if self._only is not None:
            observations, infos = observations[self._only], infos.get(self._only, {})
        else:
            infos = _of_agents(infos)
        self._history["observations"].append(copy.deepcopy(observations))
        self._history["infos"].append(infos)

    def _keep_step(self, actions: Mapping, step: "AgentStep") -> None:
        """Keeps a step as `_keep_reset` does."""
        if self._only is not None:
            record = self._record_of(self._only)
            newest = record.observation, step.infos.get(self._only, {}), record.action, record.reward
        else:
            rewards = {agent: float(reward or 0.0) for agent, reward in step.rewards.items()}
            newest = dict(step.observations), _of_agents(step.infos), dict(actions), rewards
        observations, *others = newest
        for values, value in zip(self._history.values(), (copy.deepcopy(observations), *others)):
            values.append(value)

    def _record_of(self, agent: Hashable) -> _Newest:
        record = self._newest.get(agent)
        if record is None:
            record = self._newest[agent] = _Newest()
        return record

    def begin_alone(self, observation: Any, info: dict) -> None:
        """Records the result of reset() of an environment with one agent."""
        self.started = True
        self._alone.observation, self._alone.info = observation, info
        if self._history is not None:
            self._history["observations"].append(copy.deepcopy(observation))
            self._history["infos"].append(info)

    def stepped_alone(self, action: Any, result: tuple) -> None:
        """Records the result of step(action) of an environment with one agent."""
        record, own = self._alone, self._own
        observation, reward, record.terminated, record.truncated, info = result
        if isinstance(reward, np.ndarray | list):  # of one element, as write_rewards takes it
            reward = np.asarray(reward).item()
        self.length += 1
        own.total += float(reward)
        record.observation, record.info = observation, info
        record.action_before, record.action = record.action, action
        record.reward_before, record.reward = record.reward, reward
        if self._history is not None:
            # Environments may write into an array that they returned.
            newest = copy.deepcopy(observation), info, copy.copy(action), float(reward)
            for values, value in zip(self._history.values(), newest):
                values.append(value)

    def ended(self) -> None:
        """Records the end of an only agent's episode; if the environment has not reported it, a limit has ended it."""
        self._alone.truncated = bool(self._alone.truncated) or not self._alone.terminated

    def _of(self, agent_id: Hashable) -> _Newest:
        if self._alone is not None:
            return self._alone
        if self._only is not None and agent_id != _ALL:
            agent_id = self._only
        if agent_id is None:
            raise TypeError("several agents act in this episode: give the id of one, as last_reward_for(agent_id)")
        return self._newest.get(agent_id, _NOTHING)

    def last_observation_for(self, agent_id: Hashable = None) -> Any:
        """The newest observation of an agent, as returned by the environment; None before the first."""
        return self._of(agent_id).observation

    last_raw_obs_for = last_observation_for

    def last_info_for(self, agent_id: Hashable = None) -> Any:
        """The newest info of an agent, or of "__common__"; None where there is none."""
        return self._of(agent_id).info

    def last_action_for(self, agent_id: Hashable = None) -> Any:
        """The newest action of an agent, in the environment's units; zeros before its first."""
        return self._or_zeros(self._of(agent_id).action, agent_id)

    def prev_action_for(self, agent_id: Hashable = None) -> Any:
        """The action before that; zeros where there is none."""
        return self._or_zeros(self._of(agent_id).action_before, agent_id)

    def _or_zeros(self, action: Any, agent_id: Hashable) -> Any:
        if action is None:
            agent_id = agent_id if self._only is None else self._only
            return zero_action(self.worker.stream.spaces(self.env_id).action(agent_id))
        return action

    def last_reward_for(self, agent_id: Hashable = None) -> float:
        """The newest reward that the environment gave to an agent; 0 before the first."""
        return float(self._of(agent_id).reward)

    def prev_reward_for(self, agent_id: Hashable = None) -> float:
        """The reward before that; 0 where there is none."""
        return float(self._of(agent_id).reward_before)

    def last_terminated_for(self, agent_id: Hashable = None) -> bool:
        """Whether an agent, or the whole episode, was terminated."""
        return bool(self._of(agent_id).terminated or self._of(_ALL).terminated)

    def last_truncated_for(self, agent_id: Hashable = None) -> bool:
        """Whether an agent, or the whole episode, was truncated; a time limit is known from `on_episode_end` on."""
        return bool(self._of(agent_id).truncated or self._of(_ALL).truncated)

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

    @property
    def t(self) -> int:
        """Steps of the environment so far."""
        return self.length

    env_t = t

    @property
    def t_started(self) -> int:
        """0: hooks get the whole episode, in no chunks."""
        return 0

    @property
    def has_several_agents(self) -> bool:
        """Whether its values are those of several agents, by agent."""
        return self._alone is None and self._only is None

    @property
    def agent_ids(self) -> set[Hashable]:
        """The agents that have had an observation."""
        return set(self.slots)

    @property
    def agent_episodes(self) -> dict[Hashable, "AgentEpisode"]:
        """The parts of the agents that have had an observation."""
        return {agent: AgentEpisode(self, agent) for agent in self.slots}

    def agent_steps(self) -> int:
        """Steps of all agents so far; of several, those whose rewards are complete."""
        return self.length if self._alone is not None else sum(slot.num_rows for slot in self.slots.values())

    def get_return(self) -> float:
        """Sum of the raw rewards of all agents so far."""
        return self.total_reward

    def module_for(self, agent_id: Hashable = None) -> str:
        """`policy_for`."""
        return self.policy_for(agent_id)

    @property
    def is_terminated(self) -> bool:
        """Whether the episode was terminated as a whole."""
        return self.last_terminated_for(_ALL)

    @property
    def is_truncated(self) -> bool:
        """Whether the episode was truncated as a whole."""
        return self.last_truncated_for(_ALL)

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended."""
        return self.is_terminated or self.is_truncated

    @property
    def is_reset(self) -> bool:
        """Whether there is a first observation."""
        return self.started

    def get_observations(self, indices: Indices = None, agent_ids: Any = None, **options: Any) -> Any:
        """Observations as the environment returned them, that of the reset first.

        Args:
            indices: one step, or several; negative ones count from the end. None: all, as a list.
            agent_ids: with several agents, one or several whose values are asked for; None: all.
            options: RLlib's further arguments.

        Returns:
            The value, or a list; with several agents {agent: value} or {agent: list}, of those that had any in these
            steps of the environment.

        Raises:
            RuntimeError: for others than the newest, where the episode keeps that alone.
            TypeError: for an option without the value that RLlib has by default, other than `fill`.
        """
        return self._kept("observations", indices, self.last_observation_for, agent_ids, options)

    def get_infos(self, indices: Indices = None, agent_ids: Any = None, **options: Any) -> Any:
        """The infos of the observations; arguments and errors as for `get_observations`."""
        return self._kept("infos", indices, self.last_info_for, agent_ids, options)

    def get_actions(self, indices: Indices = None, agent_ids: Any = None, **options: Any) -> Any:
        """Actions in the environment's units; arguments and errors as for `get_observations`."""
        return self._kept("actions", indices, self.last_action_for, agent_ids, options)

    def get_rewards(self, indices: Indices = None, agent_ids: Any = None, **options: Any) -> Any:
        """Raw rewards; arguments and errors as for `get_observations`.

        With several agents they belong to the step in which the environment has given them, whether or not the agent
        has an observation then; RLlib adds them up until it has.
        """
        return self._kept("rewards", indices, self.last_reward_for, agent_ids, options)

    def _kept(self, name: str, indices: Any, newest: Callable[[], Any], agent_ids: Any, options: dict) -> Any:
        for option, value in options.items():
            # Nothing is filled up: a step beyond the episode is an IndexError.
            if option != "fill" and value is not None and value is not (option == "env_steps"):
                raise TypeError(f"episode.get_{name}({option}={value!r}) is not supported. Leave {option} out.")
        has_several = self.has_several_agents
        if self._history is None and indices == -1 and not has_several:
            return newest()
        if self._history is None:
            also = " The newest value of an agent is " + newest.__name__ + "(agent_id)." if has_several else ""
            raise RuntimeError(
                f"episode.get_{name}({'' if indices is None else indices}) needs all steps, but this episode keeps the "
                "newest alone, since its hooks are those of RLlib 2.6. Name an argument of the later ones: "
                f"def on_episode_end(self, *, episode, env_runner, **kwargs).{also}"
            )
        history = self._history[name]
        if has_several:
            return _by_agent(history, indices, agent_ids)
        if indices is None:
            return list(history)
        if isinstance(indices, int | np.integer | slice):
            return history[indices]
        return [history[index] for index in indices]


def _of_agents(infos: Mapping) -> dict[Hashable, Any]:
    """Infos without that of all agents together."""
    return {agent: info for agent, info in infos.items() if agent != _COMMON}


def _by_agent(history: list[Mapping], indices: Any, agent_ids: Any) -> dict[Hashable, Any]:
    """Values by agent of steps whose values are dicts by agent; arguments as for `get_observations`."""
    asked = None if agent_ids is None else set(agent_ids) if isinstance(agent_ids, list | set | tuple) else {agent_ids}
    if isinstance(indices, int | np.integer):
        return {agent: value for agent, value in history[indices].items() if asked is None or agent in asked}
    if indices is None or isinstance(indices, slice):
        steps = history[slice(None) if indices is None else indices]
    else:
        steps = [history[index] for index in indices]
    found: dict[Hashable, Any] = {}
    for step in steps:
        for agent, value in step.items():
            if asked is None or agent in asked:
                found.setdefault(agent, []).append(value)
    return found


class AgentEpisode:
    """What one agent has seen, done and got in an episode, by the names of RLlib's episodes of one agent.

    Args:
        episode: of all agents.
        agent_id: the agent.

    Attributes:
        agent_id: see the arguments.
    """

    has_several_agents = False

    def __init__(self, episode: "RunningEpisode", agent_id: Hashable):
        self._episode, self.agent_id = episode, agent_id

    @property
    def id_(self) -> str:
        """Id of the episode and the agent, as a string."""
        return f"{self._episode.id_}_{self.agent_id}"

    @property
    def multi_agent_episode_id(self) -> str:
        """Id of the episode of all agents."""
        return self._episode.id_

    @property
    def module_id(self) -> str:
        """Id of the policy that acts for the agent."""
        return self._episode.policy_for(self.agent_id)

    def __len__(self) -> int:
        """Number of its actions; needs all steps, as `get_observations` does."""
        return len(self.get_actions())

    def __bool__(self) -> bool:
        return True  # of length 0 as well

    def get_return(self) -> float:
        """Sum of its raw rewards."""
        return self._episode.slots[self.agent_id].total

    @property
    def is_terminated(self) -> bool:
        """Whether the agent, or the whole episode, was terminated."""
        return self._episode.last_terminated_for(self.agent_id)

    @property
    def is_truncated(self) -> bool:
        """Whether the agent, or the whole episode, was truncated."""
        return self._episode.last_truncated_for(self.agent_id)

    @property
    def is_done(self) -> bool:
        """Whether the agent has ended."""
        return self.is_terminated or self.is_truncated

    def get_observations(self, indices: Any = None) -> Any:
        """Its observations, the first of them first.

        Args:
            indices: index of a step of its agent, or several; negative ones count from the end. None: all, as a list.

        Raises:
            RuntimeError: where the episode keeps the newest values alone (RunningEpisode.get_observations).
        """
        return self._own("observations", indices)

    def get_infos(self, indices: Any = None) -> Any:
        """The infos of its observations; arguments and errors as for `get_observations`."""
        return self._own("infos", indices)

    def get_actions(self, indices: Any = None) -> Any:
        """Its actions in the environment's units; arguments and errors as for `get_observations`."""
        return self._own("actions", indices)

    def get_rewards(self, indices: Any = None) -> Any:
        """Its raw rewards; arguments and errors as for `get_observations`."""
        return self._own("rewards", indices)

    def _own(self, name: str, indices: Any) -> Any:
        values = getattr(self._episode, f"get_{name}")(agent_ids=self.agent_id).get(self.agent_id, [])
        if indices is None or isinstance(indices, list):
            return values if indices is None else [values[index] for index in indices]
        return values[indices]
