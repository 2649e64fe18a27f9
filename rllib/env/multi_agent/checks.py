"""Checks of the steps of an environment with several agents.

The first steps are examined whole: the form of the dicts, ids, spaces, flags. Later ones as far as it costs next to
nothing: "__all__", agents that come back after their end, rewards that are not finite.
"""

import logging
import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from rllib.did_you_mean import did_you_mean
from rllib.env.multi_agent.adapt import DictEnv, FourValuesEnv
from rllib.env.multi_agent.agent_spaces import ALL, COMMON, RESERVED, AgentID, AgentSpaces, known_agents
from rllib.env.multi_agent.multi_agent_env import MultiAgentEnv, StepResult
from rllib.env.multi_agent.old_api import five_values, is_pair
from rllib.env.spaces.bounds import misfit
from rllib.env.streams.first_results import WITHOUT_THIS_CHECK, env_name, is_end
from rllib.env.streams.legacy import takes_seed, warn_of_legacy
from rllib.env.streams.rewards import FLOAT32_MAX, reward_problem

logger = logging.getLogger("rllib.env")

RESET_RULE = "reset() returns (observations, infos), both dicts by agent."
STEP_RULE = "step() returns (observations, rewards, terminateds, truncateds, infos), five dicts by agent."
ALL_RULE = 'Flags have the key "__all__": True or False, whether the episode is over for all agents.'
DONE_RULE = "A done agent cannot come back within an episode."
SPACE_RULE = "Observations lie in their agent's observation space: shape, bounds, no NaN."
REWARD_RULE = "A reward is a finite number."
FLAG_RULE = "terminateds and truncateds have True or False by agent."
AGENT_RULE = "possible_agents has all agents that may ever appear."
ID_RULE = 'Ids of agents are hashable values other than "__all__" and "__common__".'

_NAMES = ("observations", "rewards", "terminateds", "truncateds", "infos")
_FIVE_DICTS = (dict,) * 5
_LEGACY_API = (
    "reset(self, *, seed=None, options=None) -> (observations, infos); step(self, action_dict) -> "
    "(observations, rewards, terminateds, truncateds, infos), dicts by agent"
)


class BrokenRule(ValueError):
    """A result of an environment breaks a rule of environments with several agents.

    Attributes:
        seen: what was returned, with its environment, agent and step.
        rule: the rule.
        remedy: what to do.
    """

    def __init__(self, seen: str, rule: str, remedy: str):
        super().__init__(f"{seen}. {rule} {remedy}")
        self.seen, self.rule, self.remedy = seen, rule, remedy

    def __reduce__(self):
        return type(self), (self.seen, self.rule, self.remedy)


class CheckedAgents:
    """An environment with several agents whose results are checked; it is reset and stepped through this object.

    After the first reset and step, `env` is the environment or the adapter that an old API needs.

    Args:
        env: the environment.
        num_steps: number of steps that are examined whole; 0: none, and no reset either.
        warns: whether a notice is logged where an adapter, or a default, is needed.
        environment: what it is called in messages, such as "environment 2 of rollout worker 1"; None: by its class.

    Attributes:
        env: see above.
        spaces: spaces of the agents; known after the first reset.
        time: number of steps of the present episode so far.
        ended: {agent: step of this episode in which it has ended}, counted from 1.
        has_ends: whether the newest step has ended an agent or the episode.
        is_alike: whether exactly the agents that acted in the newest step have an observation and a reward, and none
            has ended: the same agents act again.
    """

    def __init__(self, env: MultiAgentEnv, num_steps: int = 8, *, warns: bool = True, environment: str | None = None):
        self.env, self.spaces = env, AgentSpaces(env)
        self.time = 0
        self.ended: dict[AgentID, int] = {}
        self.has_ends = self.is_alike = False
        self._possible = set(getattr(env, "possible_agents", None) or ())
        self._steps_left, self._warns = num_steps, warns
        self._name = environment or env_name(env)
        self.seen: set[AgentID] = set()
        self._has_reset = self._has_warned = False

    def reset(self, seed: int | None = None) -> tuple[dict, dict]:
        """Starts an episode: (observations, infos) by agent. No observation is one too: agents may come later.

        Raises:
            BrokenRule: naming what was returned, the rule, and what to do.
        """
        if seed is not None and not takes_seed(self._given):
            self._adapt("reset() takes no seed")
        result = self.env.reset() if seed is None else self.env.reset(seed=seed)
        if not is_pair(result):
            self._check_dict(result, "observations", "reset()", RESET_RULE)
            self._adapt("reset() returns the observations alone")
            result = result, {}
        observations, infos = result
        self.time, self.ended = 0, {}
        self._check_dict(observations, "observations", "reset()", RESET_RULE)
        self._check_dict(infos, "infos", "reset()", RESET_RULE)
        if not self._has_reset:
            self.spaces, self._has_reset = AgentSpaces(self.env, observations), True
        if self._steps_left > 0:
            self._check_agents(observations, "observations")
            self._check_observations(observations)
        self.seen = set(observations)
        return observations, infos

    def step(self, actions: Mapping[AgentID, Any]) -> StepResult:
        """Makes a step: observations, rewards, terminateds, truncateds, infos by agent.

        Both dicts of flags have the key "__all__". An agent whose first observation comes with its end is left out
        of the observations, since it never acts.

        Raises:
            BrokenRule: naming what was returned, the rule, and what to do.
        """
        result = self.env.step(actions)
        if actions and type(result) is tuple and len(result) == 5:
            observations, rewards, terminateds, truncateds, infos = result
            agents = actions.keys()
            # Most steps are of this kind. Everything below would leave them as they are.
            if (
                type(observations) is type(rewards) is type(terminateds) is type(truncateds) is type(infos) is dict
                and observations.keys() == agents
                and rewards.keys() == agents
                and not any(terminateds.values())
                and not any(truncateds.values())
                and ALL in terminateds
                and ALL in truncateds
                and _are_finite(rewards)
            ):
                self.time += 1
                if self._steps_left > 0:
                    self._steps_left -= 1
                    self._examine(*result)
                if self.ended:
                    self._check_ended(observations)
                self.has_ends, self.is_alike = False, True
                return result
        self.is_alike = False
        if type(result) is not tuple or tuple(map(type, result)) != _FIVE_DICTS:
            result = self._five(result)
        self.time += 1
        observations, rewards, terminateds, truncateds, infos = result
        if ALL not in terminateds or ALL not in truncateds:
            terminateds, truncateds = self._with_all(terminateds, truncateds)
        if self._steps_left > 0:
            self._steps_left -= 1
            self._examine(observations, rewards, terminateds, truncateds, infos)
        rewards = self._checked_rewards(rewards)
        if self.ended:
            self._check_ended(observations)
        self.has_ends = any(terminateds.values()) or any(truncateds.values())
        if self.has_ends:
            self._note_ends(terminateds, truncateds)
        if not observations.keys() <= self.seen:
            unseen = observations.keys() - self.seen
            if late := unseen & self.ended.keys():
                observations = {agent: value for agent, value in observations.items() if agent not in late}
            self.seen |= unseen
        return observations, rewards, terminateds, truncateds, infos

    def _five(self, result) -> StepResult:
        if isinstance(result, tuple) and len(result) == 4:
            self._adapt("step() returns 4 values")
            result = five_values(result)
        if not isinstance(result, tuple) or len(result) != 5:
            given = f"{len(result)} values" if isinstance(result, tuple) else f"{result!r:.60}"
            raise self._broken(f"step() returned {given}", STEP_RULE, "Return all five.")
        for name, values in zip(_NAMES, result):
            self._check_dict(values, name, "step()", STEP_RULE)
        return result

    def _with_all(self, terminateds: Mapping, truncateds: Mapping) -> tuple[Mapping, Mapping]:
        """Both flags with "__all__", which counts as False where only one of them lacks it."""
        if ALL not in terminateds and ALL not in truncateds:
            raise self._broken(
                f'terminateds = {dict(terminateds)!r:.200} lacks the key "__all__", and so does truncateds', ALL_RULE,
                'Return {"__all__": False, ...} while agents are left.',
            )  # fmt: skip
        lacking = "terminateds" if ALL not in terminateds else "truncateds"
        if self._warns and not self._has_warned:
            self._has_warned = True
            logger.warning('%s: %s lacks the key "__all__", which is taken as False. %s', self._name, lacking, ALL_RULE)
        return {ALL: False, **terminateds}, {ALL: False, **truncateds}

    def _examine(self, observations, rewards, terminateds, truncateds, infos) -> None:
        self._check_agents(observations, "observations")
        self._check_agents(rewards, "rewards")
        for name, flags in (("terminateds", terminateds), ("truncateds", truncateds)):
            self._check_agents([agent for agent in flags if agent != ALL], name)
            for agent, flag in flags.items():
                try:
                    is_end(f"{name}[{agent!r}]", flag)
                except TypeError:
                    seen = f"{name}[{agent!r}] is {flag!r:.60} ({type(flag).__name__})"
                    raise self._broken(seen, FLAG_RULE, f"Return bool({name[:-1]}).") from None
        for agent, info in infos.items():
            if info is not None and not isinstance(info, Mapping):
                whose = "all agents" if agent == COMMON else f"agent {agent!r}"
                raise self._broken(
                    f"the info of {whose} is {info!r:.60}", "infos has a dict by agent.", "Return {} for no info."
                )
        self._check_observations(observations)

    def _check_dict(self, values, name: str, method: str, rule: str) -> None:
        if not isinstance(values, Mapping):
            raise self._broken(
                f"{method} returned {values!r:.60} ({type(values).__name__}) as {name}", rule,
                "Return {agent: value, ...}; {} where there is nothing for any agent.",
            )  # fmt: skip

    def _check_agents(self, agents: Iterable[Hashable], name: str) -> None:
        """Looks for reserved and for unknown ids among the keys of a dict."""
        for agent in agents:
            if isinstance(agent, str) and agent in RESERVED:
                raise self._broken(
                    f"{name} has the key {agent!r}", ID_RULE, "Leave it out, or give the agent another id."
                )
            if self._possible and agent not in self._possible:
                listed = ", ".join(map(repr, known_agents(self.env)[:8])) + (", ..." if len(self._possible) > 8 else "")
                raise self._broken(
                    f"{name} has the agent {agent!r}, but possible_agents are {listed}", AGENT_RULE,
                    f"Correct the id, or add it to possible_agents.{did_you_mean(agent, self._possible, repr)}",
                )  # fmt: skip

    def _check_observations(self, observations: Mapping) -> None:
        where = f"returned by step() at step {self.time} of the episode" if self.time else "returned by reset()"
        for agent, observation in observations.items():
            space = self.spaces.observation(agent)
            if problem := misfit(space, observation, env_name(self._given), warns=self._warns):
                raise self._broken(
                    f"agent {agent!r}: the {problem} ({where})", SPACE_RULE,
                    f"Correct the observation or the agent's observation space; {WITHOUT_THIS_CHECK}",
                )  # fmt: skip

    def _checked_rewards(self, rewards: Mapping) -> Mapping:
        """The rewards, of which an array of one number has become that number."""
        if _are_finite(rewards):
            return rewards
        numbers = dict(rewards)
        for agent, reward in rewards.items():
            if reward is None and agent in self.ended:
                continue
            if problem := reward_problem(reward):
                seen = f"agent {agent!r}: {problem}, at step {self.time} of the episode"
                raise self._broken(seen, REWARD_RULE, "Look for a division by zero, or a reward that was not set.")
            numbers[agent] = np.asarray(reward).item()
        return numbers

    def _check_ended(self, observations: Mapping) -> None:
        """Refuses observations of agents that have ended in an earlier step; rewards count in their returns."""
        for agent in observations.keys() & self.ended.keys():
            raise self._broken(
                f"agent {agent!r} was done at step {self.ended[agent]} of the episode, and has an observation at step "
                f"{self.time}",
                DONE_RULE,
                "Set its flag in its last step only, or give the agent that comes a new id.",
            )

    def _note_ends(self, terminateds: Mapping, truncateds: Mapping) -> None:
        for flags in (terminateds, truncateds):
            for agent, flag in flags.items():
                if flag and agent != ALL:
                    self.ended.setdefault(agent, self.time)

    def _broken(self, seen: str, rule: str, remedy: str) -> BrokenRule:
        return BrokenRule(f"{self._name}: {seen}", rule, remedy)

    def _adapt(self, reason: str) -> None:
        if isinstance(self.env, FourValuesEnv):
            return
        if self._warns:
            warn_of_legacy(self._given, reason, _LEGACY_API)
        self.env = FourValuesEnv(self._given)

    @property
    def _given(self):
        """The environment without the adapter that it would have if it were new."""
        return self.env.env if isinstance(self.env, DictEnv) else self.env


def _are_finite(rewards: Mapping) -> bool:
    """Whether all rewards are numbers that float32 can hold."""
    try:
        return math.fsum(map(abs, rewards.values())) <= FLOAT32_MAX
    # Some reward is no number, or an array of one.
    except (TypeError, ValueError, OverflowError):
        return False
