"""Environments with several agents for tests, and a slow reference of the rows that an agent's steps make."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Tuple

from rllib.env.multi_agent import MultiAgentEnv, make_multi_agent


class Clock(gymnasium.Env):
    """A single-agent environment: a fixed reward in each step, and an end after `length` steps.

    Args:
        length: number of steps.
        reward: of each step.
        counts: whether the observation is the number of steps so far rather than 0.
        truncates: whether the end is a truncation as well.
    """

    action_space = Discrete(2)

    def __init__(self, length, reward=1.0, counts=False, truncates=False):
        self.observation_space = Box(0, length, (1,), np.float32) if counts else Discrete(2)
        self.length, self.reward, self.counts, self.truncates = length, reward, counts, truncates
        self.t = 0

    def _seen(self):
        return np.array([self.t], np.float32) if self.counts else 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        is_over = self.t >= self.length
        return self._seen(), self.reward, is_over, is_over and self.truncates, {}


class BasicMultiAgent(MultiAgentEnv):
    """`num` agents that all act in each step; each ends after 25 steps with a reward of 1 for every one."""

    def __init__(self, num=2):
        super().__init__()
        self.clocks = [Clock(25) for _ in range(num)]
        self._agent_ids = set(range(num))
        self.observation_space = self.action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {agent: clock.reset()[0] for agent, clock in enumerate(self.clocks)}, {}

    def step(self, action_dict):
        results = {agent: self.clocks[agent].step(action) for agent, action in action_dict.items()}
        observations, rewards, terminateds, truncateds, infos = (
            {agent: result[part] for agent, result in results.items()} for part in range(5)
        )
        terminateds["__all__"] = all(clock.t >= clock.length for clock in self.clocks)
        truncateds["__all__"] = False
        return observations, rewards, terminateds, truncateds, infos


class RoundRobinMultiAgent(MultiAgentEnv):
    """Agents that observe one after another, whatever their state; the last reward of each is 0.

    The episode ends when all agents, but for `spare` of them, have been seen to be done.

    Args:
        lengths: number of steps of each agent.
        reward: of each step but the last.
        counts: whether an observation is the number of the agent's own steps.
        truncates: whether ends are truncations as well.
        spare: number of agents that need not be done.
    """

    def __init__(self, lengths=(5,) * 5, reward=100.0, counts=True, truncates=True, spare=0):
        super().__init__()
        self.clocks = [Clock(length, reward, counts, truncates) for length in lengths]
        self._agent_ids, self.spare = set(range(len(lengths))), spare
        self.observation_space, self.action_space = self.clocks[-1].observation_space, Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn, self.seen_done = 0, set()
        self.last = {agent: (clock.reset()[0], 0.0, False, False, {}) for agent, clock in enumerate(self.clocks)}
        return {0: self._of_turn()[0]}, {}

    def _of_turn(self):
        result = self.last[self.turn]
        self.turn = (self.turn + 1) % len(self.clocks)
        return result

    def step(self, action_dict):
        for agent, action in action_dict.items():
            self.last[agent] = self.clocks[agent].step(action)
        agent = self.turn
        observation, reward, terminated, truncated, info = self._of_turn()
        if terminated:
            reward = 0.0
            self.seen_done.add(agent)
        is_over = len(self.seen_done) >= len(self.clocks) - self.spare
        return (
            {agent: observation},
            {agent: reward},
            {agent: terminated, "__all__": is_over},
            {agent: truncated, "__all__": is_over and truncated},
            {agent: info},
        )


class EarlyDoneMultiAgent(RoundRobinMultiAgent):
    """Two agents in turn, with 3 and 5 steps: the first to be done ends the episode."""

    def __init__(self):
        super().__init__(lengths=(3, 5), reward=1.0, counts=False, truncates=False, spare=1)


class FlexAgentsMultiAgent(MultiAgentEnv):
    """Agents with new ids appear, and others end, at random; they all act in each step."""

    observation_space = action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clocks, self.next_id, self.t = {}, 0, 0
        return self._spawn(), {}

    def _spawn(self):
        agent = self.next_id
        self.next_id += 1
        self.clocks[agent] = Clock(25)
        return {agent: self.clocks[agent].reset()[0]}

    @property
    def agents(self):
        return list(getattr(self, "clocks", ()))

    def step(self, action_dict):
        self.t += 1
        results = {agent: self.clocks[agent].step(action) for agent, action in action_dict.items()}
        observations, rewards, terminateds, truncateds, infos = (
            {agent: result[part] for agent, result in results.items()} for part in range(5)
        )
        if self.np_random.random() > 0.75:
            observations |= self._spawn()
        if len(self.clocks) > 1 and self.np_random.random() > 0.25:
            leaver = int(self.np_random.choice(list(self.clocks)))
            terminateds[leaver] = True
        self.clocks = {agent: clock for agent, clock in self.clocks.items() if not terminateds.get(agent)}
        terminateds["__all__"] = not self.clocks
        truncateds["__all__"] = self.t >= 100
        return observations, rewards, terminateds, truncateds, infos


class SometimesZeroAgentsMultiAgent(MultiAgentEnv):
    """Three agents of which any number, none included, observes in a step."""

    observation_space = action_space = Discrete(2)
    possible_agents = (0, 1, 2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._some(), {}

    def _some(self):
        return {agent: 0 for agent in self.possible_agents if self.np_random.random() < 0.4}

    def step(self, action_dict):
        self.t += 1
        is_over = self.t >= 30
        rewards = dict.fromkeys(action_dict, 1.0)
        return self._some(), rewards, {"__all__": is_over}, {"__all__": False}, {}


class NameTheSignal(MultiAgentEnv):
    """Each agent is shown a signal, one-hot, and gets 1 for the action that names it: at best `length` an episode.

    A continuous action names signal i by its place between -0.5 and 0.5, and its distance from there is subtracted.

    Args:
        config: the items "sizes" (numbers of the agents' signals, (2, 3) by default), "in_turn" (one agent acts in a
            step), "is_continuous", and "length" (steps of each agent in an episode, 8).
    """

    possible_agents = ("first", "second")

    def __init__(self, config=None):
        super().__init__()
        config = config or {}
        self.sizes = dict(zip(self.possible_agents, config.get("sizes", (2, 3))))
        self.in_turn, self.is_continuous = config.get("in_turn", False), config.get("is_continuous", False)
        self.length = config.get("length", 8)
        self.observation_spaces = {agent: Box(0, 1, (size,), np.float32) for agent, size in self.sizes.items()}
        self.action_spaces = {
            agent: Box(-1, 1, (1,), np.float32) if self.is_continuous else Discrete(size)
            for agent, size in self.sizes.items()
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.agents, self.left = list(self.possible_agents), dict.fromkeys(self.possible_agents, self.length)
        self.turn, self.signals = 0, {}
        return self._shown(), {}

    def _shown(self):
        agents = [self.possible_agents[self.turn]] if self.in_turn else self.possible_agents
        self.signals = {agent: int(self.np_random.integers(self.sizes[agent])) for agent in agents}
        return {agent: np.eye(self.sizes[agent], dtype=np.float32)[i] for agent, i in self.signals.items()}

    def step(self, action_dict):
        rewards = {agent: self.reward(agent, self.signals[agent], action) for agent, action in action_dict.items()}
        for agent in action_dict:
            self.left[agent] -= 1
        self.turn = 1 - self.turn
        is_over = not any(self.left.values())
        if is_over:
            self.agents = []
        return self._shown(), rewards, {"__all__": is_over}, {"__all__": False}, {}

    def reward(self, agent, signal, action) -> float:
        """What the agent gets for its action."""
        if not self.is_continuous:
            return float(action == signal)
        return 1.0 - abs(float(action[0]) - (signal / (self.sizes[agent] - 1) - 0.5))


class PairsNameTheSignal(NameTheSignal):
    """Each agent is a group of two, whose members are shown the same signal; each that names it gets half of the 1."""

    def __init__(self, config=None):
        super().__init__(config)
        self.observation_spaces = {agent: Tuple([space] * 2) for agent, space in self.observation_spaces.items()}
        self.action_spaces = {agent: Tuple([Discrete(size)] * 2) for agent, size in self.sizes.items()}

    def _shown(self):
        return {agent: (signal, signal.copy()) for agent, signal in super()._shown().items()}

    def reward(self, agent, signal, action) -> float:
        return sum(int(each) == signal for each in action) / 2


MultiAgentCartPole = make_multi_agent("CartPole-v1")
MultiAgentMountainCar = make_multi_agent("MountainCarContinuous-v0")


def collect(env, act, num_steps, seed=None):
    """Rows of one environment in the order in which they close, open rows by agent, (returns, length) of episodes.

    The slow reference. A row opens when its agent acts. It closes at the first later step, that one included, in which
    the agent has an observation or is done, or the episode ends, and has all rewards of the steps between.
    """
    rows, opened, returns, episodes, t = [], {}, {}, [], 0
    (observations, _), done = env.reset(seed=seed), set()
    for _ in range(num_steps):
        acting = {agent: value for agent, value in observations.items() if agent not in done}
        actions = {agent: act(agent, value) for agent, value in acting.items()}
        for agent, value in acting.items():
            opened[agent] = dict(agent=agent, obs=value, action=actions[agent], reward=0.0, episode=len(episodes))
        observations, rewards, terminateds, truncateds, _ = env.step(actions)
        for agent, reward in rewards.items():
            returns[agent] = returns.get(agent, 0.0) + reward
            if agent in opened:
                opened[agent]["reward"] += reward
        for agent in list(opened):
            is_terminated = bool(terminateds.get(agent) or terminateds["__all__"])
            is_truncated = bool(truncateds.get(agent) or truncateds["__all__"])
            if agent in observations or is_terminated or is_truncated:
                row = opened.pop(agent)
                row.update(terminated=is_terminated, truncated=is_truncated, next_obs=observations.get(agent), t=t)
                if agent in observations or is_terminated:
                    rows.append(row)
                else:  # it cannot be bootstrapped: the row before ends at what it acted on
                    before = [r for r in rows if r["agent"] == agent and r["episode"] == row["episode"]]
                    if before and not before[-1]["terminated"]:
                        before[-1].update(truncated=True, next_obs=row["obs"])
        done |= {agent for flags in (terminateds, truncateds) for agent, v in flags.items() if v and agent != "__all__"}
        t += 1
        if terminateds["__all__"] or truncateds["__all__"]:
            episodes.append((returns, t))
            returns, opened, t = {}, {}, 0
            (observations, _), done = env.reset(), set()
    return rows, opened, episodes
