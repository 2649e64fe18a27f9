"""Scripted episodes as environments: one agent, several agents."""

import os
import signal
import threading

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from rllib.env.multi_agent import MultiAgentEnv
from tests.witness.forms import ACTIONS, FORMS, Actions, is_legal, legal, masked
from tests.witness.script import (
    ACTION_REWARD,
    BASE,
    BEFORE_CRASH,
    CRASHED,
    DIED,
    HUNG,
    Episode,
    Event,
    Family,
    cost,
    episode,
    observation,
)

ALL = "__all__"
# Spaces of those doors that have no others.
OBSERVATION_SPACE, ACTION_SPACE = FORMS["box"].space, ACTIONS["discrete"].space


class ScriptedCrashError(RuntimeError):
    """The environment fails, as its script says."""


class BrokenRuleError(BaseException):
    """The library has broken a rule of environments. No Exception, so that no environment is replaced for it."""


def check(is_kept: bool, rule: str) -> None:
    """Raises BrokenRuleError unless the rule is kept."""
    if not is_kept:
        raise BrokenRuleError(rule)


class Player:
    """Goes through the episodes of one environment.

    Args:
        config: `family` of the scripts; `form`, `actions` and `mask` name the spaces and how legal choices are said.
    """

    def __init__(self, config):
        self.family: Family = config["family"]
        self.actions, self.mask = ACTIONS[config.get("actions", "discrete")], config.get("mask", "none")
        self.form = FORMS[config.get("form", "box")]
        if self.mask == "observation":
            self.form = masked(self.form, self.actions)
        self.serial, self.number = -1, -1
        self.episode: Episode | None = None
        self.time = 0
        self._steps: dict[int, int] = {}
        self._open: set[int] = set()

    def reset(self, seed: int | None) -> list[int]:
        """Begins the next episode; returns the agents that are there. Raises ScriptedCrashError as the script says."""
        if seed is not None:
            self.serial, self.number, self.episode = seed % BASE**4, -1, None
        check(self.serial >= 0, "the first reset has a seed")
        is_over = self.episode is not None and self.time == len(self.episode.events)
        if is_over and self.episode.events[-1].said == BEFORE_CRASH:
            raise ScriptedCrashError("reset, as the script says")
        self.number += 1
        self.episode, self.time = episode(self.family, self.serial, self.number), 0
        self._steps, self._open = {}, set()
        return self.episode.first

    def place(self, agent: int) -> tuple[int, int, int, int]:
        """Name of the step at which an agent is."""
        return self.serial, self.number, agent, self._steps.get(agent, 0)

    def observe(self, agent: int):
        """Observation of an agent, in the environment's form."""
        return self.form.give(observation(*self.place(agent)))

    def cost(self, agent: int) -> float:
        """Cost of the agent's next step."""
        return cost(*self.place(agent))

    def legal(self, agent: int) -> np.ndarray:
        """Mask of an agent's legal choices."""
        return legal(self.actions, self.place(agent))

    def reward_of(self, agent: int, action) -> float:
        """The action's term of a reward, before the step."""
        if self.mask != "none":
            check(is_legal(self.actions, self.place(agent), action), f"action {action} at {self.place(agent)} is legal")
        return ACTION_REWARD * self.actions.number(action)

    def step(self, acting) -> Event:
        """The next event. Raises ScriptedCrashError, ends the process or does not return where the script says so."""
        check(self.time < len(self.episode.events), "an episode that is over is not stepped")
        event = self.episode.events[self.time]
        check(sorted(acting) == event.acting, f"{event.acting} act, not {sorted(acting)}")
        self.time += 1
        self._open |= set(acting)
        if event.end == CRASHED:
            raise ScriptedCrashError("as the script says")
        if event.end == DIED:
            os.kill(os.getpid(), signal.SIGKILL)
        if event.end == HUNG:
            threading.Event().wait()
        for agent in {*event.seen, *event.terminated}:
            if agent in self._open:
                self._open.discard(agent)
                self._steps[agent] = self._steps.get(agent, 0) + 1
        return event


class Single(gymnasium.Env):
    """An environment with one agent."""

    def __init__(self, config):
        self.player = Player(config)
        self.observation_space, self.action_space = self.player.form.space, self.player.actions.space

    def reset(self, *, seed=None, options=None):
        self.player.reset(seed)
        return self.player.observe(0), self._info()

    def step(self, action):
        own, info = self.player.reward_of(0, action), {"cost": self.player.cost(0)}
        event = self.player.step([0])
        return self.player.observe(0), event.rewards[0] + own, *event.flags, info | self._info()

    def action_masks(self):
        """Legal choices, as sb3-contrib asks for them."""
        return self.player.legal(0).astype(bool)

    def _info(self):
        return {"action_mask": self.player.legal(0)} if self.player.mask == "info" else {}


class Continuous(Single):
    """The same with actions of one number between bounds that are not symmetric."""

    def __init__(self, config):
        super().__init__(config)
        self.action_space = Box(-1.0, 3.0, (1,), np.float32)
        self.player.actions = Actions(self.action_space, lambda action: float(np.asarray(action).item()), np.asarray)


class Several(MultiAgentEnv):
    """An environment with several agents, by the kind of its scripts."""

    def __init__(self, config):
        super().__init__()
        self.player = Player(config)
        # Else the end of all that have come would end the episode, and others may come later.
        self.possible_agents = list(range(self.player.family.num_agents))
        self.observation_space, self.action_space = self.player.form.space, self.player.actions.space

    def reset(self, *, seed=None, options=None):
        return {agent: self.player.observe(agent) for agent in self.player.reset(seed)}, {}

    def step(self, action_dict):
        own = {agent: self.player.reward_of(agent, action) for agent, action in action_dict.items()}
        event = self.player.step(action_dict)
        rewards = dict(event.rewards)
        for agent, reward in own.items():
            rewards[agent] = rewards.get(agent, 0.0) + reward
        is_terminated, is_truncated = event.flags
        terminateds = dict.fromkeys(event.terminated, True) | {ALL: is_terminated}
        truncateds = dict.fromkeys(event.truncated, True) | {ALL: is_truncated}
        observations = {agent: self.player.observe(agent) for agent in event.seen}
        return observations, rewards, terminateds, truncateds, {}


def world(family: Family, case) -> dict:
    """The env_config of scripted environments."""
    return {"family": family, **{name: case[name] for name in ("form", "actions", "mask") if name in case}}


def set_environment(config, env, family: Family, case) -> None:
    """Sets a config's environment, with the time limit of its scripts around it."""
    limit = [{"TimeLimit": {"max_episode_steps": family.limit}}] if family.limit else []
    config.environment(env, env_config=world(family, case), env_wrappers=limit)
