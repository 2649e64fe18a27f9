"""Environments that drive their own loop: a simulator, a game or a service that asks for actions when it needs them.

Unlike a gymnasium environment it is not stepped. It runs in a thread of its worker and calls the methods below, for any
number of episodes at once.
"""

import itertools
import math
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, SupportsFloat

import gymnasium

from rllib.env.external.exchange import Exchange, Turn
from rllib.env.multi_agent.agent_spaces import ALL, COMMON, RESERVED, AgentID
from rllib.env.multi_agent.stream import AgentStep
from rllib.env.spaces.supported import LARGEST, fits_at_once, logged_action, mismatch, too_large
from rllib.env.traffic import Traffic

if TYPE_CHECKING:
    from rllib.env.policy_server.weights import PublishedPolicy

# The agent of an environment that has one.
AGENT = "agent0"
# Seconds that a loop waits for an action, or for its report to be taken.
ACTION_TIMEOUT_S, REPORT_TIMEOUT_S = 300.0, 60.0
# Ids of ended episodes that are remembered, for messages.
_REMEMBERED = 10_000
_NO_ENDS = MappingProxyType({ALL: False})


class _Episode:
    """An episode under way: what is to be handed over with its next turn."""

    def __init__(self, episode_id: str, trains: bool):
        self.id, self.trains = episode_id, trains
        self.lock = threading.Lock()  # one call at a time
        self.rewards: dict[AgentID, float] = {}
        self.infos: dict[AgentID, Any] = {}
        self.terminateds: dict[AgentID, bool] = {}
        self.truncateds: dict[AgentID, bool] = {}
        self.num_turns = 0
        self.thread: int | None = None  # identity of the one that has called last
        # Agents that have ended with an earlier turn, and those before the newest one.
        self._ended: frozenset[AgentID] = frozenset()
        self._ended_before = self._ended

    def check_agents(self, observations: Mapping[AgentID, Any]) -> None:
        """Raises ValueError for an observation of an agent that has ended."""
        if self._ended and (ended := self._ended & observations.keys()):
            agent = min(ended, key=repr)
            raise ValueError(
                f"agent {agent!r:.80} has ended in episode {self.id}: its last observation comes with the turn that "
                "ends it"
            )

    def step(self, observations: Mapping[AgentID, Any], end: tuple[bool, bool] | None) -> AgentStep:
        """The step that ends with these observations; `end` is (terminated, truncated) if it is the last."""
        rewards, self.rewards, infos, self.infos = self.rewards, {}, self.infos, {}
        if end is None and not self.terminateds and not self.truncateds:
            return AgentStep(observations, rewards, _NO_ENDS, _NO_ENDS, infos, False, False)
        has_ended = {agent for flags in (self.terminateds, self.truncateds) for agent, flag in flags.items() if flag}
        self._ended_before, self._ended = self._ended, self._ended | has_ended
        terminated, truncated = end or (False, False)
        terminateds = {**self.terminateds, ALL: terminated}
        truncateds = {**self.truncateds, ALL: truncated}
        has_ends = end is not None or any(self.terminateds.values()) or any(self.truncateds.values())
        return AgentStep(observations, rewards, terminateds, truncateds, infos, end is not None, has_ends)

    def turn(self, observations: Mapping[AgentID, Any], logged: Mapping | None, end: tuple[bool, bool] | None) -> Turn:
        """The next turn; `end` as for `step`."""
        self.num_turns += 1
        return Turn(self.id, self.step(observations, end), logged, self.trains, is_first=self.num_turns == 1)

    def withdraw(self, turn: Turn) -> None:
        """Makes a turn that nobody waits for any longer one that has not happened, with all that came with it."""
        turn.is_withdrawn = True
        self.num_turns -= 1
        self._ended = self._ended_before

    def take_back(self, turn: Turn) -> None:
        """Withdraws a turn, and keeps what was logged before it for the next."""
        self.withdraw(turn)
        for agent, reward in turn.step.rewards.items():
            self.rewards[agent] = self.rewards.get(agent, 0.0) + reward
        self.infos = {**turn.step.infos, **self.infos}


class ExternalEnv(threading.Thread):
    """An environment that drives its own loop. Subclass it, and write the loop as `run`:

    >>> class Serving(ExternalEnv):
    ...     def run(self):
    ...         while True:
    ...             episode, observation, done = self.start_episode(), world.begin(), False
    ...             while not done:
    ...                 action = self.get_action(episode, observation)
    ...                 observation, reward, done = world.step(action)
    ...                 self.log_returns(episode, reward)
    ...             self.end_episode(episode, observation)

    `run` is called in a thread of the worker, and goes on as long as the worker lives. Its threads may call the methods
    for several episodes at once; each episode is followed by one thread at a time.

    Args:
        action_space, observation_space: of the policy, in RLlib's order.
        max_concurrent: most episodes at once; None: any number.

    Raises:
        TypeError: for a space that is none.
    """

    def __init__(
        self,
        action_space: gymnasium.Space,
        observation_space: gymnasium.Space,
        max_concurrent: int | None = None,
    ):
        super().__init__(daemon=True, name=f"rllib-{type(self).__name__}")
        for name, space in (("action_space", action_space), ("observation_space", observation_space)):
            if not isinstance(space, gymnasium.Space | dict):
                raise TypeError(
                    f"{type(self).__name__}: {name} must be a gymnasium space, but is {space!r:.80}. The order is "
                    "(action_space, observation_space)."
                )
        self.action_space, self.observation_space, self.max_concurrent = action_space, observation_space, max_concurrent
        self.exchange = Exchange()
        # Says what is wrong with the action mask of an agent's observation, or with an action logged for it. The worker
        # sets it where a policy reads masks.
        self.mask_problem: Callable[..., str | None] | None = None
        self._running: dict[str, _Episode] = {}
        # Ids of episodes that are over, and what is said about them.
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def run(self) -> None:
        """The loop over episodes; to be written."""
        raise NotImplementedError(f"{type(self).__name__} must write run(), the loop over its episodes")

    # ------------------------------------------------------------------ called by the loop

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Begins an episode.

        Args:
            episode_id: its id; a new one by default.
            training_enabled: whether its steps are learned from. If not, its return is reported apart.

        Returns:
            its id.

        Raises:
            ValueError: if the id was used before, or too many episodes are under way.
        """
        with self._lock:
            if episode_id is None:
                episode_id = uuid.uuid4().hex
            if episode_id in self._ended:
                raise ValueError(f"Episode {episode_id} has already completed.")
            if episode_id in self._running:
                raise ValueError(f"Episode {episode_id} is already started")
            if self.max_concurrent is not None and len(self._running) >= self.max_concurrent:
                raise ValueError(
                    f"{len(self._running)} episodes are under way, and max_concurrent={self.max_concurrent}: end one "
                    "before the next begins"
                )
            self._running[episode_id] = _Episode(episode_id, training_enabled)
        return episode_id

    def get_action(self, episode_id: str, observation: Any) -> Any:
        """The policy's action on an observation.

        Args:
            episode_id: of a running episode.
            observation: in the observation space.

        Raises:
            ValueError: if there is no such episode, or the observation does not lie in its space, or its action mask
                leaves no legal action.
            TimeoutError: if nothing is sampled for 300 s.
            EpisodeLost, RunEnded: if the episode, or the run, cannot go on.
        """
        return self._act(episode_id, self._seen(observation))[AGENT]

    def log_action(self, episode_id: str, observation: Any, action: Any) -> None:
        """Reports an action that somebody else has chosen; arguments and errors as for `get_action`."""
        self._act(episode_id, self._seen(observation), {AGENT: self._logged(action)})

    def log_returns(self, episode_id: str, reward: SupportsFloat, info: Mapping | None = None) -> None:
        """Adds to the reward of the last action.

        Args:
            episode_id: of a running episode.
            reward: a number of at most 1e9; rewards add up until the next action.
            info: what the environment says beside it.

        Raises:
            ValueError: if there is no such episode, or the reward is not finite, or too large.
        """
        self._add_rewards(self._found(episode_id), {AGENT: reward}, {AGENT: info} if info else {})

    def end_episode(self, episode_id: str, observation: Any, *, truncated: bool = False) -> None:
        """Ends an episode.

        Args:
            episode_id: of a running episode.
            observation: the final one.
            truncated: whether it has ended for a reason outside of the task, such as a time limit, so that its value
                goes on.

        Raises:
            ValueError: if there is no such episode, or the observation does not lie in its space.
        """
        self._end(episode_id, self._seen(observation), truncated)

    # ------------------------------------------------------------------ for one agent or several

    def _seen(self, observation: Any) -> dict[AgentID, Any]:
        self._check(observation)
        return {AGENT: observation}

    def _check(self, observation: Any, agent: AgentID = AGENT) -> None:
        """Raises ValueError for an observation that does not lie in its space; its bounds are not minded."""
        space = self._space_of("observation", agent)
        if fits_at_once(space, observation, bounded=False):
            return
        problem = mismatch(space, observation, bounded=False) or too_large(space, observation, "observation")
        if problem:
            raise ValueError(_of_agent(problem, agent))

    def _logged(self, action: Any, agent: AgentID = AGENT) -> Any:
        """An action that somebody else has chosen, as its space has it; raises ValueError if it does not lie there."""
        space = self._space_of("action", agent)
        if fits_at_once(space, action):
            return action
        try:
            return logged_action(space, action)
        except ValueError as error:
            raise ValueError(_of_agent(str(error), agent)) from None

    def _space_of(self, kind: str, agent: AgentID):
        """The observation or action space of an agent; raises ValueError for one that is unknown."""
        space = getattr(self, f"{kind}_space")
        if isinstance(space, dict):  # by agent; a space of gymnasium is none
            if agent not in space:
                known = ", ".join(map(repr, space))
                raise ValueError(f"there is no agent {agent!r:.80}; there are {kind} spaces of {known}")
            space = space[agent]
        if agent in RESERVED:
            raise ValueError(f"{agent!r} stands for no agent, and has no {kind}")
        return space

    def _found(self, episode_id: str) -> _Episode:
        episode = self._running.get(episode_id)
        if episode is None:
            if episode_id in self._ended:
                raise ValueError(self._ended[episode_id])
            raise ValueError(f"Episode {episode_id} not found.")
        return episode

    def _check_masks(self, observations: Mapping, logged: Mapping | None) -> None:
        """Raises ValueError for agents without a legal action, and for logged actions that are not legal."""
        if self.mask_problem is None:
            return
        for agent, each in observations.items():
            given = () if logged is None else (logged[agent],)
            if problem := self.mask_problem(agent, each, *given):
                raise ValueError(_of_agent(problem, agent))

    def _act(self, episode_id: str, observations: Mapping, logged: Mapping | None = None) -> Mapping[AgentID, Any]:
        episode = self._found(episode_id)
        self._check_masks(observations, logged)
        with episode.lock:
            episode.check_agents(observations)
            episode.thread = threading.get_ident()
            turn = episode.turn(observations, logged, None)
            self.exchange.hand_over(turn)
            self.exchange.take_part()
            self._wait(episode, turn, ACTION_TIMEOUT_S if logged is None else REPORT_TIMEOUT_S)
        return turn.actions

    def _end(self, episode_id: str, observations: Mapping, truncated: bool) -> None:
        episode = self._found(episode_id)
        with episode.lock:
            turn = episode.turn(observations, None, (not truncated, truncated))
            self._forget(episode_id)
            self.exchange.hand_over(turn)
            self.exchange.take_part()
            self._wait(episode, turn, REPORT_TIMEOUT_S)

    def _wait(self, episode: _Episode, turn: Turn, timeout_s: float) -> None:
        try:
            if turn.wait(timeout_s):
                return
            # An end stands, and is taken in when sampling goes on.
            is_withdrawn = not turn.step.is_over and turn.claim()
            if not (is_withdrawn or turn.step.is_over) and turn.wait(timeout_s):
                return  # the worker was about to answer
        except BaseException:
            self._forget(episode.id)
            raise
        if is_withdrawn:
            episode.take_back(turn)
        raise TimeoutError(
            f"the algorithm has not sampled for {timeout_s:.0f} s, so that episode {episode.id} waits: is train() "
            "running?"
        )

    def _forget(self, episode_id: str, reason: str | None = None) -> None:
        with self._lock:
            self._running.pop(episode_id, None)
            self._ended[episode_id] = reason or f"Episode {episode_id} has already completed."
            if len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)

    def _add_rewards(self, episode: _Episode, rewards: Mapping[AgentID, SupportsFloat], infos: Mapping) -> None:
        numbers = {agent: self._finite(episode, agent, reward) for agent, reward in rewards.items()}
        for agent, number in numbers.items():  # all of them are right
            episode.rewards[agent] = episode.rewards.get(agent, 0.0) + number
        episode.infos.update(infos)

    @staticmethod
    def _finite(episode: _Episode, agent: AgentID, reward: SupportsFloat) -> float:
        """A reward as a number; raises ValueError for any other value."""
        try:
            number = float(reward)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if abs(episode.rewards.get(agent, 0.0) + number) <= LARGEST:
            return number
        of = "" if agent == AGENT else f" of agent {agent!r}"
        raise ValueError(
            f"the reward{of} in episode {episode.id}, after {episode.num_turns} steps, must be a finite number, of "
            f"at most {LARGEST:g} in size, but is {reward!r:.80}; rewards near 1 are learned from best"
        )

    # Whether its loops act by copies of the policy, which `publish` gives them.
    publishes_policy = False

    def publish(self, policy: "PublishedPolicy") -> None:
        """Receives the policy that its worker acts by from now on."""

    # Longest time that whole episodes of others wait for the end of a silent one (seconds); None: any time.
    patience_s: float | None = None
    # An episode that could begin waits this long for running ones that do not go on: their loop may wait for it in turn
    # (seconds).
    standstill_s = 0.05

    def is_blocked(self, running: Collection[str], waiting: Collection[str]) -> bool:
        """Whether all loops of running episodes are known to wait for the beginning of others.

        Args:
            running: ids of the episodes that act.
            waiting: ids of those that have to wait before they begin.
        """
        if self.exchange.num_waiting():
            return False
        loops = {self._loop_of(episode_id) for episode_id in waiting} - {None}
        return bool(loops) and all(self._loop_of(episode_id) in loops for episode_id in running)

    def _loop_of(self, episode_id: str) -> Hashable:
        """Thread or client that makes the calls of a running episode, one at a time; None: it is not known."""
        episode = self._running.get(episode_id)
        return episode and episode.thread

    def open(self) -> None:
        """Called when a worker begins with this environment, before its loop is started."""

    def take_traffic(self) -> Traffic:
        """Counts since the last call, which the worker reports with its samples."""
        return Traffic(open_episodes=len(self._running), rows_waiting=self.exchange.num_waiting())

    def describe_silence(self) -> str:
        """Possible reason why nobody has asked for an action for long, for a message."""
        return f"Does {type(self).__name__}.run() call get_action?"

    def close(self) -> None:
        """Called when the worker ends; may be overridden to stop what `run` has started."""


def _of_agent(problem: str, agent: AgentID) -> str:
    return problem if agent == AGENT else f"{problem} (agent {agent!r})"


class ExternalMultiAgentEnv(ExternalEnv):
    """An ExternalEnv whose episodes have several agents: observations, actions and rewards are dicts by agent.

    Args:
        action_space, observation_space: of all agents, or dicts of them by agent.
        max_concurrent: as for ExternalEnv.
    """

    def get_action(self, episode_id: str, observation_dict: Mapping[AgentID, Any]) -> Mapping[AgentID, Any]:
        """Actions of the agents that have an observation; errors as for ExternalEnv."""
        return self._act(episode_id, self._seen(observation_dict))

    def log_action(self, episode_id: str, observation_dict: Mapping, action_dict: Mapping) -> None:
        """Reports the actions that somebody else has chosen for the agents that have an observation."""
        observations = self._seen(observation_dict)
        self._check_logged(observations, action_dict)
        actions = {agent: self._logged(action, agent) for agent, action in action_dict.items()}
        self._act(episode_id, observations, actions)

    @staticmethod
    def _check_logged(observations: Mapping, actions: Mapping) -> None:
        """Raises ValueError unless the agents with an observation are those with an action."""
        if actions.keys() != observations.keys():
            raise ValueError(
                f"log_action needs an action for each agent with an observation: {list(observations)!s:.200}, but got "
                f"{list(actions)!s:.200}"
            )

    def log_returns(
        self,
        episode_id: str,
        reward_dict: Mapping[AgentID, SupportsFloat],
        info_dict: Mapping[AgentID, Any] | None = None,
        multiagent_done_dict: Mapping[AgentID, bool] | None = None,
        *,
        truncated_dict: Mapping[AgentID, bool] | None = None,
    ) -> None:
        """Adds to the rewards of the agents' last actions.

        Args:
            episode_id: of a running episode.
            reward_dict: agent -> a finite number.
            info_dict: agent -> what the environment says beside it.
            multiagent_done_dict: agents that have ended; they may have a final observation in the next call. "__all__"
                is left out: `end_episode` ends the episode.
            truncated_dict: agents that have ended for a reason outside of the task.

        Raises:
            ValueError: if there is no such episode or agent, or a reward is not finite, or too large, or what is given
                is no dict by agent; nothing is taken in then.
        """
        episode = self._found(episode_id)
        given = [reward_dict, *(each or {} for each in (info_dict, multiagent_done_dict, truncated_dict))]
        for each in given:
            if not isinstance(each, Mapping):
                raise ValueError(f"rewards, infos and ends of agents are dicts by agent, but one is {each!r:.80}")
        rewards, infos, *flags = given
        # Loops hand over what their environment returns.
        terminateds, truncateds = ({agent: flag for agent, flag in each.items() if agent != ALL} for each in flags)
        for agent in {*rewards, *(infos.keys() - {COMMON}), *terminateds, *truncateds}:
            self._space_of("observation", agent)
        self._add_rewards(episode, rewards, infos)
        episode.terminateds.update(terminateds)
        episode.truncateds.update(truncateds)

    def end_episode(self, episode_id: str, observation_dict: Mapping[AgentID, Any], *, truncated: bool = False) -> None:
        """Ends an episode for all agents; arguments as for ExternalEnv."""
        self._end(episode_id, self._seen(observation_dict), truncated)

    def _seen(self, observation: Any) -> dict[AgentID, Any]:
        if not isinstance(observation, Mapping):
            raise ValueError(f"observations must be a dict by agent, but are {observation!r:.80}")
        for agent, each in observation.items():
            self._check(each, agent)
        return dict(observation)
