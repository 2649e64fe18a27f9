"""Environments that drive their own loop: a simulator, a game or a service that asks for actions when it needs them.

Unlike a gymnasium environment, such an environment is not stepped. It runs in a thread of its worker and calls the
methods below, for any number of episodes at once.
"""

import threading
from collections.abc import Hashable, Mapping
from typing import Any, SupportsFloat

import gymnasium

from rllib.env.external.checks import (
    AGENT,
    check_logged_agents,
    check_masks,
    check_observation,
    logged_action_of,
    space_of_agent,
)
from rllib.env.external.episodes import OpenEpisode
from rllib.env.external.exchange import StepRequest
from rllib.env.external.source import ACTION_TIMEOUT_S, EpisodeSource
from rllib.env.multi_agent.agent_spaces import ALL, COMMON, AgentID

# Seconds that a loop waits until the worker accepts its report.
REPORT_TIMEOUT_S = 60.0


class ExternalEnv(EpisodeSource):
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

    `run` is called in a thread of the worker, and must run as long as the worker's process. Threads that it starts may
    call the methods for several episodes at once; the calls for one episode must come one at a time.

    Args:
        action_space, observation_space: spaces of the policy; the action space comes first, as in RLlib.
        max_concurrent: largest number of episodes at a time; None: any number.

    Raises:
        TypeError: if a space is no gymnasium space (or dict).
    """

    def __init__(
        self,
        action_space: gymnasium.Space,
        observation_space: gymnasium.Space,
        max_concurrent: int | None = None,
    ):
        for name, space in (("action_space", action_space), ("observation_space", observation_space)):
            if not isinstance(space, gymnasium.Space | dict):
                raise TypeError(
                    f"{type(self).__name__}: {name} must be a gymnasium space, but is {space!r:.80}. The order is "
                    "(action_space, observation_space)."
                )
        super().__init__(action_space, observation_space)
        self.max_concurrent = max_concurrent

    # ------------------------------------------------------------------ called by the loop

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Begins an episode.

        Args:
            episode_id: id of the episode; a new id by default.
            training_enabled: whether the episode's steps are learned from. If not, its return is reported separately.

        Returns:
            the id of the episode.

        Raises:
            ValueError: if the id was used before, or too many episodes are under way.
        """
        return self._episode_table.start(episode_id, training_enabled, self.max_concurrent)

    def get_action(self, episode_id: str, observation: Any) -> Any:
        """Returns the policy's action for an observation.

        Args:
            episode_id: id of a running episode.
            observation: an element of the observation space.

        Raises:
            ValueError: if there is no such episode, or the observation does not lie in its space, or its action mask
                leaves no legal action.
            TimeoutError: if nothing is sampled for 300 s.
            EpisodeLost: if the episode cannot continue, as its worker or the run was restored or has started over.
            RunEnded: if the run has ended.
        """
        return self._act(episode_id, self._seen(observation))[AGENT]

    def log_action(self, episode_id: str, observation: Any, action: Any) -> None:
        """Reports an action that the policy has not chosen; arguments and errors as for `get_action`."""
        self._act(episode_id, self._seen(observation), {AGENT: logged_action_of(self.action_space, action)})

    def log_returns(self, episode_id: str, reward: SupportsFloat, info: Mapping | None = None) -> None:
        """Adds to the reward of the last action.

        Args:
            episode_id: id of a running episode.
            reward: a number of at most 1e9 in size; rewards add up until the next action.
            info: the environment's info dict.

        Raises:
            ValueError: if there is no such episode, or the reward is not finite, or too large.
        """
        self._episode_table.find(episode_id).add_rewards({AGENT: reward}, {AGENT: info} if info else {})

    def end_episode(self, episode_id: str, observation: Any, *, truncated: bool = False) -> None:
        """Ends an episode.

        Args:
            episode_id: id of a running episode.
            observation: the final observation.
            truncated: whether the episode has ended for a reason outside of the task, such as a time limit, so that
                its return is bootstrapped with the value of the final observation.

        Raises:
            ValueError: if there is no such episode, or the observation does not lie in its space.
        """
        self._end(episode_id, self._seen(observation), truncated)

    # ------------------------------------------------------------------ for one agent or several

    def _seen(self, observation: Any) -> dict[AgentID, Any]:
        check_observation(self.observation_space, observation)
        return {AGENT: observation}

    def _act(self, episode_id: str, observations: Mapping, logged: Mapping | None = None) -> Mapping[AgentID, Any]:
        episode = self._episode_table.find(episode_id)
        check_masks(self.mask_problem, observations, logged)
        with episode.lock:
            episode.check_agents(observations)
            episode.thread = threading.get_ident()
            request = episode.request(observations, logged, None)
            self.exchange.submit(request)
            self.exchange.take_part()
            self._wait(episode, request, ACTION_TIMEOUT_S if logged is None else REPORT_TIMEOUT_S)
        return request.actions

    def _end(self, episode_id: str, observations: Mapping, truncated: bool) -> None:
        episode = self._episode_table.find(episode_id)
        with episode.lock:
            request = episode.request(observations, None, (not truncated, truncated))
            self._episode_table.end(episode_id)
            self.exchange.submit(request)
            self.exchange.take_part()
            self._wait(episode, request, REPORT_TIMEOUT_S)

    def _wait(self, episode: OpenEpisode, request: StepRequest, timeout_s: float) -> None:
        try:
            if request.wait(timeout_s):
                return
            # The end of an episode is not withdrawn: the worker accepts it once sampling continues.
            is_withdrawn = not request.step.is_over and request.claim()
            if not (is_withdrawn or request.step.is_over) and request.wait(timeout_s):
                return  # the worker was about to answer
        except BaseException:
            self._episode_table.end(episode.id)
            raise
        if is_withdrawn:
            episode.take_back(request)
        raise TimeoutError(
            f"the algorithm has not sampled for {timeout_s:.0f} s, so that episode {episode.id} waits: is train() "
            "running?"
        )

    def _loop_of(self, episode_id: str) -> Hashable:
        episode = self._episode_table.running.get(episode_id)
        return episode and episode.thread


class ExternalMultiAgentEnv(ExternalEnv):
    """An ExternalEnv whose episodes have several agents: observations, actions and rewards are dicts by agent.

    Args:
        action_space, observation_space: spaces of all agents, or dicts agent -> space.
        max_concurrent: as for ExternalEnv.
    """

    has_several_agents = True

    def get_action(self, episode_id: str, observation_dict: Mapping[AgentID, Any]) -> Mapping[AgentID, Any]:
        """Returns the actions of the agents that have an observation; errors as for ExternalEnv."""
        return self._act(episode_id, self._seen(observation_dict))

    def log_action(self, episode_id: str, observation_dict: Mapping, action_dict: Mapping) -> None:
        """Reports actions of the agents with an observation that their policies have not chosen."""
        observations = self._seen(observation_dict)
        check_logged_agents(observations, action_dict)
        actions = {agent: logged_action_of(self.action_space, action, agent) for agent, action in action_dict.items()}
        self._act(episode_id, observations, actions)

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
            episode_id: id of a running episode.
            reward_dict: agent -> reward, a finite number.
            info_dict: agent -> the environment's info dict.
            multiagent_done_dict: agent -> whether it has terminated; it may have a final observation in the next call.
                The key "__all__" is ignored: `end_episode` ends the episode.
            truncated_dict: agent -> whether it has ended for a reason outside of the task.

        Raises:
            ValueError: if there is no such episode or agent, or a reward is not finite, or too large, or an argument
                is no dict by agent; nothing is accepted then.
        """
        episode = self._episode_table.find(episode_id)
        given = [reward_dict, *(each or {} for each in (info_dict, multiagent_done_dict, truncated_dict))]
        for each in given:
            if not isinstance(each, Mapping):
                raise ValueError(f"rewards, infos and ends of agents are dicts by agent, but one is {each!r:.80}")
        rewards, infos, *flags = given
        # Loops pass on the dicts that their environment returns, which have the key "__all__".
        terminateds, truncateds = ({agent: flag for agent, flag in each.items() if agent != ALL} for each in flags)
        for agent in {*rewards, *(infos.keys() - {COMMON}), *terminateds, *truncateds}:
            space_of_agent(self.observation_space, agent, "observation")
        episode.add_rewards(rewards, infos)
        episode.terminateds.update(terminateds)
        episode.truncateds.update(truncateds)

    def end_episode(self, episode_id: str, observation_dict: Mapping[AgentID, Any], *, truncated: bool = False) -> None:
        """Ends an episode for all agents; arguments as for ExternalEnv."""
        self._end(episode_id, self._seen(observation_dict), truncated)

    def _seen(self, observation: Any) -> dict[AgentID, Any]:
        if not isinstance(observation, Mapping):
            raise ValueError(f"observations must be a dict by agent, but are {observation!r:.80}")
        for agent, each in observation.items():
            check_observation(self.observation_space, each, agent)
        return dict(observation)
