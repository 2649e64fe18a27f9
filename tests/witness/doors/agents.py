"""Doors of several agents: MultiAgentEnv, groups of agents, and simulators in arrays."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Tuple

from rllib.env.multi_agent import MultiAgentEnv, MultiAgentVectorEnv
from tests.witness.doors.scripted import ALL, Player, Several, check, set_environment
from tests.witness.forms import ACTIONS, Actions, Form
from tests.witness.script import BASE, OBSERVATION_SIZE, decoded, observation


@contextmanager
def several(config, family, case):
    """A MultiAgentEnv."""
    set_environment(config, Several, family, case)
    yield


# ---- groups

# The number of a group's action is the sum of its members', each of them so often.
_TIMES = (1, 2)


class Members(MultiAgentEnv):
    """Two agents that always act together, who share the episodes and the rewards of a script with one agent."""

    possible_agents = ("first", "second")

    def __init__(self, config):
        super().__init__()
        self.player = Player(config)
        self.observation_space, self.action_space = self.player.form.space, self.player.actions.space

    def reset(self, *, seed=None, options=None):
        self.player.reset(seed)
        return self._observations(), {}

    def step(self, action_dict):
        own = [self.player.reward_of(0, action_dict[agent]) for agent in self.possible_agents]
        event = self.player.step([0])
        half = event.rewards[0] // 2
        parts = half + _TIMES[0] * own[0], event.rewards[0] - half + _TIMES[1] * own[1]
        rewards = dict(zip(self.possible_agents, parts))
        return self._observations(), rewards, *self._ends(*event.flags), {}

    def _ends(self, is_terminated, is_truncated):
        """Both flags. Every second truncated episode terminates the first member, and truncates the other."""
        if is_terminated or not is_truncated or self.player.place(0)[1] % 2:
            return {ALL: is_terminated}, {ALL: is_truncated}
        first, second = self.possible_agents
        return {first: True, second: False, ALL: False}, {first: False, second: True, ALL: False}

    def _observations(self):
        serial, number, _, step = self.player.place(0)
        rows = (observation(serial, number, member, step) for member in range(2))
        return dict(zip(self.possible_agents, map(self.player.form.give, rows)))


def _team(config):
    return Members(config).with_agent_groups({"team": list(Members.possible_agents)})


@contextmanager
def groups(config, family, case):
    """Agents in a group, which stands for the one agent of the scripts."""
    set_environment(config, _team, family, case)
    yield


def of_group(form: Form) -> Form:
    """The form of a group of two, as the form of its first member."""

    def both(row):
        serial, number, _, step = decoded(row)
        return row, observation(serial, number, 1, step)

    def plain(rows):
        width = rows.shape[-1] // 2
        first, second = form.plain(rows[..., :width]), form.plain(rows[..., width:])
        for one, other in zip(first.reshape(-1, OBSERVATION_SIZE), second.reshape(-1, OBSERVATION_SIZE), strict=True):
            assert not one.any() or np.array_equal(both(one)[1], other), f"members at {one * BASE} and {other * BASE}"
        return first

    def stored(row):
        return np.concatenate([np.ravel(form.stored(each)) for each in both(row)])

    return Form(Tuple((form.space, form.space)), form.give, stored, plain, form.model)


@dataclass(frozen=True)
class ActionsOfGroup(Actions):
    """The actions of a group of two, side by side.

    Attributes:
        member: the actions of each.
    """

    member: Actions = ACTIONS["discrete"]

    def log_prob(self, inputs, stored):
        members = zip(np.split(inputs, 2, -1), np.split(stored, 2, -1), strict=True)
        return sum(self.member.log_prob(*each) for each in members)


def actions_of_group(actions: Actions) -> Actions:
    """The actions of a group of two."""

    def plain(stored, squashed=False):
        parts = np.split(stored, 2, -1)
        if len(actions.choices) == 1:  # a single choice is a number, not a row of one
            parts = [part[..., 0] for part in parts]
        return sum(times * actions.plain(part, squashed) for times, part in zip(_TIMES, parts))

    low, high = actions.bounds
    bounds = sum(_TIMES) * low, sum(_TIMES) * high
    return ActionsOfGroup(Tuple((actions.space,) * 2), actions.number, plain, actions.choices * 2, bounds, actions)


# ---- simulators in arrays


class Dense(MultiAgentVectorEnv):
    """N environments in which all agents act in each step, as arrays."""

    def __init__(self, num_envs=1, family=None, form="box", actions="discrete", mask="none"):
        self.num_envs = num_envs
        config = {"family": family, "form": form, "actions": actions, "mask": mask}
        self.players = [Player(config) for _ in range(num_envs)]
        self.possible_agents = list(range(family.num_agents))
        first = self.players[0]
        self.single_observation_space, self.single_action_space = first.form.space, first.actions.space

    def reset(self, *, seed=None, options=None):
        if isinstance(seed, int):
            seed = [seed + 1000 * index for index in range(self.num_envs)]
        for index, player in enumerate(self.players):
            player.reset(None if seed is None else seed[index])
        return self._observations(), {}

    def step(self, actions):
        check(actions.shape[:2] == (self.num_envs, self.num_agents), f"actions of shape {actions.shape}")
        rewards = np.zeros((self.num_envs, self.num_agents), np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for index, player in enumerate(self.players):
            own = [player.reward_of(agent, action) for agent, action in enumerate(actions[index])]
            event = player.step(self.possible_agents)
            terminated[index], truncated[index] = event.flags
            rewards[index] = [event.rewards.get(agent, 0.0) + own[agent] for agent in self.possible_agents]
        ended = terminated | truncated
        info = {"final_obs": self._observations(), "_final_obs": ended} if ended.any() else {}
        for index in np.flatnonzero(ended):
            self.players[index].reset(None)
        return self._observations(), rewards, terminated, truncated, info

    def _observations(self):
        return np.stack([[player.observe(agent) for agent in self.possible_agents] for player in self.players])


@contextmanager
def dense(config, family, case):
    """A MultiAgentVectorEnv, stepped at once where that is possible, else one by one."""
    set_environment(config, Dense, family, case)
    yield
