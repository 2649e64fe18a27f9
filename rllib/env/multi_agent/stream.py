"""A stream over environments with several agents, each stepped with the actions of those agents that act."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rllib.env.multi_agent.adapt import as_multi_agent
from rllib.env.multi_agent.agent_spaces import ALL, AgentID, AgentOrder, AgentSpaces, known_agents
from rllib.env.multi_agent.checks import CheckedAgents
from rllib.env.multi_agent.multi_agent_env import StepResult
from rllib.env.streams.base import MAX_FAILURES_IN_A_ROW, log_exit, successor_seed
from rllib.env.streams.first_results import env_name
from rllib.env.streams.sync import close_all, take_off_wrappers

logger = logging.getLogger("rllib.env")

# Steps of an episode that are examined whole.
EXAMINED_STEPS = 8
# An environment whose agents have had no observation for this number of steps in a row will not end its episode.
MAX_EMPTY_STEPS = 1000


class AgentStep(NamedTuple):
    """Result of a step of one environment, by agent.

    Attributes:
        observations: of the agents that act in the next step, and final ones of agents that have ended.
        rewards: of any agents.
        terminateds, truncateds: bools, and "__all__".
        infos: dicts; "__common__" is the info of all.
        is_over: whether the episode has ended for all agents; `reset` then starts the next.
        has_ends: whether it has ended for any.
    """

    observations: Mapping[AgentID, Any]
    rewards: Mapping[AgentID, float]
    terminateds: Mapping[AgentID, bool]
    truncateds: Mapping[AgentID, bool]
    infos: Mapping[AgentID, Any]
    is_over: bool
    has_ends: bool


class MultiAgentStream:
    """N environments with several agents.

    Gymnasium's outermost standard wrappers are taken off; the limit of a TimeLimit is kept here.

    Args:
        envs: the stream owns and closes them.
        seeds: one int per environment, given to its first reset.
        worker: owner of the environments, for messages.
        warns: whether warnings that are the same in every worker are logged.
        checked_steps: 0: first results are not checked against the spaces.
        remake: makes the environment with a given index again; one that raises is then closed and replaced. None: its
            errors are raised.
    """

    def __init__(
        self,
        envs: Sequence,
        seeds: Sequence[int],
        *,
        worker: str = "rollout worker 0",
        warns: bool = True,
        checked_steps: int = 1,
        remake: Callable[[int], Any] | None = None,
    ):
        self.num_envs = len(envs)
        self._worker, self._warns, self._remake = worker, warns, remake
        self._warns_of_dropped_row = warns
        self._examined = EXAMINED_STEPS if checked_steps else 0
        self._checked: list[CheckedAgents] = []
        self._limits: list[float] = []
        for index, env in enumerate(envs):
            checked, limit = self._wrapped(env, index)
            self._checked.append(checked)
            self._limits.append(limit)
        self._known = [known_agents(env) for env in self.environments]
        self._orders = [AgentOrder(known) for known in self._known]
        self.reseed(seeds)
        self._failures, self._replacements = [0] * self.num_envs, [0] * self.num_envs
        # (newest step without any observation, number of them in a row) of each environment.
        self._empty_steps = [(0, 0)] * self.num_envs
        self._environment_made: Callable[[int, Any], None] | None = None

    def _wrapped(self, env, index: int) -> tuple[CheckedAgents, float]:
        bare, limit = take_off_wrappers(env)
        where = f"environment {index} of {self._worker} ({env_name(bare)})"
        warns = self._warns and index == 0
        return CheckedAgents(as_multi_agent(bare), self._examined, warns=warns, environment=where), limit

    @property
    def environments(self) -> list:
        """The environments, or their adapters to the interface of MultiAgentEnv."""
        return [checked.env for checked in self._checked]

    @property
    def observation_space(self):
        """The observation space that the first environment gives: of all agents, by agent, or None."""
        return self.environments[0].observation_space

    @property
    def action_space(self):
        """The action space that the first environment gives: of all agents, by agent, or None."""
        return self.environments[0].action_space

    def watch(self, environment_made: Callable[[int, Any], None]) -> None:
        """Calls this function with (index, environment) for each environment that replaces a failed one."""
        self._environment_made = environment_made

    def spaces(self, index: int) -> AgentSpaces:
        """Spaces of the agents of an environment; complete after its first reset."""
        return self._checked[index].spaces

    def order(self, index: int) -> AgentOrder:
        """Positions of the agents of an environment: of the known ones; others it has to `meet` in each episode."""
        return self._orders[index]

    def reseed(self, seeds: Sequence[int]) -> None:
        """Sets the seeds of the next resets, one int per environment."""
        self._seeds: list[int | None] = list(map(int, seeds))
        self._given_seeds = list(self._seeds)

    def reset(self, index: int) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]] | None:
        """Starts an episode in one environment.

        Returns:
            observations and infos, by agent; None where the environment has raised and was replaced. The new one has to
            be reset.
        """
        seed, self._seeds[index] = self._seeds[index], None
        self._empty_steps[index] = 0, 0
        length = self._checked[index].time
        try:
            observations, infos = self._checked[index].reset(seed)
        except (Exception, SystemExit) as error:
            self._replace(index, error, "in reset()" + (f" after an episode of {length} steps" if length else ""))
            return None
        if not self._known[index]:  # others may come in each episode
            self._orders[index] = AgentOrder()
        return observations, infos

    def step(self, index: int, actions: dict[AgentID, Any]) -> AgentStep | None:
        """One step of one environment.

        Args:
            index: which environment.
            actions: of the agents that act; {} where no agent does.

        Returns:
            the result; None where the environment has raised and was replaced. Its episode is void, and the new one has
            to be reset.
        """
        result = self.quick_step(index, actions)
        return AgentStep(*result, is_over=False, has_ends=False) if type(result) is tuple else result

    def quick_step(self, index: int, actions: dict[AgentID, Any]) -> StepResult | AgentStep | None:
        """`step` for hot paths.

        Returns:
            the plain tuple of the five dicts where exactly the agents that have acted have observations and rewards,
            and none has ended: the same agents act again. Else what `step` returns.
        """
        checked = self._checked[index]
        try:
            result = checked.step(actions)
        except (Exception, SystemExit) as error:
            step = checked.time
            where = f"in step() at step {step} of its episode, actions {actions!r:.200}"
            self._replace(index, error, where)
            return None
        self._failures[index] = 0
        if checked.is_alike and checked.time < self._limits[index]:
            return result
        observations, rewards, terminateds, truncateds, infos = result
        is_over = bool(terminateds[ALL] or truncateds[ALL])
        if not is_over:
            if checked.time >= self._limits[index]:
                truncateds, is_over = {**truncateds, ALL: True}, True
            elif not observations or checked.has_ends:
                is_over = self._is_deserted(index, observations)
        has_ends = is_over or checked.has_ends
        return AgentStep(observations, rewards, terminateds, truncateds, infos, is_over, has_ends)

    def _is_deserted(self, index: int, observations: Mapping) -> bool:
        """Whether all agents have ended, without a word of "__all__".

        Raises:
            ValueError: if no agent has acted for too long.
        """
        checked = self._checked[index]
        if checked.ended and observations.keys() <= checked.ended.keys():
            everybody = self._known[index] or checked.seen
            if all(agent in checked.ended for agent in everybody):
                return True
        if observations:
            return False
        last, count = self._empty_steps[index]
        count = count + 1 if last == checked.time - 1 else 1
        self._empty_steps[index] = checked.time, count
        if count >= MAX_EMPTY_STEPS:
            raise ValueError(
                f"no agent has had an observation for {MAX_EMPTY_STEPS:,} steps of environment {index} of "
                f'{self._worker} ({env_name(checked.env)}): is "__all__" never set? Return terminateds '
                '{"__all__": True} when the episode is over.'
            )
        return False

    def warn_of_dropped_row(self, agent: AgentID) -> None:
        """Logs once that an episode was truncated while an agent waited, so that its last step is not learned from."""
        if self._warns_of_dropped_row:
            self._warns_of_dropped_row = False
            logger.warning(
                "an episode was truncated while agent %r waited for an observation after its action: this last step of "
                "the agent is not learned from, since nothing says what followed. Give all agents an observation in "
                "the step that is truncated, if there is one.",
                agent,
            )

    def _replace(self, index: int, error: BaseException, where: str) -> None:
        """Closes an environment that has raised, and makes a new one in its place.

        Raises:
            error itself, where environments are not replaced, or this one has failed too often in a row.
        """
        place = f"environment {index} of {self._worker} ({env_name(self._checked[index].env)})"
        error.add_note(f"{place} raised {where}")
        if isinstance(error, SystemExit):
            log_exit(error, place, where)
        if isinstance(error, SystemExit) or self._remake is None:
            raise error
        self._failures[index] += 1
        if self._failures[index] > MAX_FAILURES_IN_A_ROW:
            error.add_note(f"it is not replaced again: it has failed {self._failures[index]} times in a row")
            raise error
        logger.warning("%s raised %s; it is replaced by a new one", place, where, exc_info=error)
        close_all([self._checked[index].env])
        try:
            self._checked[index], self._limits[index] = self._wrapped(self._remake(index), index)
        except Exception as failure:
            self._replace(index, failure, "when it was made again")
            return
        self._replacements[index] += 1
        self._seeds[index] = successor_seed(self._given_seeds[index], self._replacements[index])
        if self._environment_made is not None:
            self._environment_made(index, self.environments[index])

    def close(self) -> None:
        """Closes every environment. May be called twice."""
        close_all([checked.env for checked in self._checked])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
