"""Transparent environments: what an algorithm must make of them is known in closed form.

Every class takes an optional config dict, so that all can be given to `.environment(cls, env_config={...})`.
"""

import functools
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class ProbeEnv(gymnasium.Env):
    """Base of the probes: observations of one float in [-1, 1] and two actions; `first` resets, `follow` steps."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, config: dict | None = None):
        self.config = dict(config or {})
        self.t = 0
        self.x = 0.0

    def first(self) -> float:
        return 0.0

    def follow(self, action) -> tuple[float, float, bool, bool]:
        """(x', reward, terminated, truncated) after self.t steps, the last with this action."""
        raise NotImplementedError

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.x = self.first()
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.t += 1
        self.x, reward, terminated, truncated = self.follow(action)
        return np.array([self.x], np.float32), reward, terminated, truncated, {}


class Lives(ProbeEnv):
    """A game of three lives, of 2, 3 and 4 steps; steps of the first are worth 1, of the second 10, of the third 100.

    A life ends an episode, and its reset goes on with the game. `fails` of the config: the step of the third game
    that raises.
    """

    life, games, steps = 0, 0, 0

    def first(self):
        if not self.life:
            self.games, self.steps = self.games + 1, 0
        return self.life / 2

    def follow(self, action):
        self.steps += 1
        if self.games == 3 and self.steps == self.config.get("fails"):
            raise RuntimeError("the game broke")
        reward, ends = 10.0**self.life, self.t == self.life + 2
        if ends:
            self.life = (self.life + 1) % 3
        return self.life / 2, reward, ends, False

    def step(self, action):
        *result, info = super().step(action)
        return *result, {**info, "life_lost": result[2] and self.life > 0}


class ConstantReward(ProbeEnv):
    """P1: one step, observation 0, reward 1. V = 1."""

    def follow(self, action):
        return 0.0, 1.0, True, False


class ObservedReward(ProbeEnv):
    """P2: one step, observation -1 or 1 at random, reward = observation. V(x) = x."""

    def first(self):
        return float(self.np_random.choice([-1.0, 1.0]))

    def follow(self, action):
        return 0.0, self.x, True, False


class DelayedReward(ProbeEnv):
    """P3: two steps, observations 0 then 1, reward 1 at the end. V(0) = gamma, V(1) = 1."""

    def follow(self, action):
        return (1.0, 0.0, False, False) if self.t == 1 else (0.0, 1.0, True, False)


class ActionReward(ProbeEnv):
    """P4: one step, action 1 is worth 1, action 0 is worth -1. pi(1) -> 1."""

    def follow(self, action):
        return 0.0, 1.0 if action == 1 else -1.0, True, False


class MatchObservation(ProbeEnv):
    """P5: one step, observation 0 or 1 at random, reward 1 if the action equals it, else 0."""

    def first(self):
        return float(self.np_random.integers(2))

    def follow(self, action):
        return 0.0, float(action == int(self.x)), True, False


class InfiniteHorizon(ProbeEnv):
    """P6: reward 1 for ever, observation 0, truncated each `length` (100) steps. V = 1 / (1 - gamma)."""

    def follow(self, action):
        return 0.0, 1.0, False, self.t >= self.config.get("length", 100)


class CountingEnv(gymnasium.Env):
    """P7: observation = step count t, reward = t; episodes end in turn by termination, truncation, and both flags.

    Every stored transition obeys s' = s + 1, and s' = 0 never occurs in one.

    Config:
        lengths: episode lengths in steps, in turn ([3, 5, 4]).
        offset: each episode draws a random number below this (0) and adds it to its observations, so that another
            seed shows; at most 0.5.
    """

    action_space = Discrete(2)
    observation_space = Box(0.0, 1e6, (1,), np.float32)

    def __init__(self, config: dict | None = None):
        config = config or {}
        self.lengths = config.get("lengths", [3, 5, 4])
        self.offset = config.get("offset", 0.0)
        self.episode = -1
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        self.start = self.offset * self.np_random.random()
        return np.array([self.start], np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t >= self.lengths[self.episode % len(self.lengths)]
        terminated, truncated = [(True, False), (False, True), (True, True)][self.episode % 3]
        return np.array([self.start + self.t], np.float32), float(self.t), over and terminated, over and truncated, {}


class BoundedAction(ProbeEnv):
    """P12: one step, a continuous action in [0, 10], reward -(a - 7)^2 / 10. The best action is 7."""

    action_space = Box(0.0, 10.0, (1,), np.float32)

    def follow(self, action):
        value = float(action[0])
        if not 0.0 <= value <= 10.0:
            raise ValueError(f"action {value} lies outside [0, 10]")
        return 0.0, -((value - 7.0) ** 2) / 10, True, False


class Team(gymnasium.Env):
    """One step of a group of two, whose members are shown -1 and 1, with a reward of 1. V = 1."""

    observation_space = Tuple([Box(-1.0, 1.0, (1,), np.float32)] * 2)
    action_space = MultiDiscrete([3, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._shown(), {}

    def step(self, action):
        if action not in self.action_space:
            raise ValueError(f"{action} is no action of {self.action_space}")
        return self._shown(), 1.0, True, False, {}

    def _shown(self):
        return np.array([-1], np.float32), np.array([1], np.float32)


class GoalOnALine(gymnasium.Env):
    """A goal environment: an action moves a place in [-1, 1] by up to 0.5; reward 0 within 0.1 of the goal, else -1.

    Episodes are truncated after five steps.

    Config:
        start: place and goal of every episode (None: drawn at each reset).
    """

    action_space = Box(-1.0, 1.0, (1,), np.float32)
    observation_space = Dict(
        {name: Box(-1.0, 1.0, (1,), np.float32) for name in ("observation", "achieved_goal", "desired_goal")}
    )

    def __init__(self, config: dict | None = None):
        self.start = (config or {}).get("start")
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        start = self.np_random.uniform(-1, 1, 2) if self.start is None else self.start
        self.place, self.goal = np.reshape(start, (2, 1)).astype(np.float32)
        return self._observation(), {}

    def step(self, action):
        self.t += 1
        self.place = np.clip(self.place + np.float32(0.5) * action, -1, 1).astype(np.float32)
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self._observation(), reward, False, self.t >= 5, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        """Of goals [1] or [B, 1]."""
        return -(np.abs(achieved_goal - desired_goal) > 0.1)[..., 0].astype(float)

    def _observation(self) -> dict:
        return {"observation": self.place, "achieved_goal": self.place, "desired_goal": self.goal}


class HundredReward(ProbeEnv):
    """Reward 100 a step, terminated after `length` (10) steps: the return is 100 * length, whatever is clipped."""

    def follow(self, action):
        return 0.0, 100.0, self.t >= self.config.get("length", 10), False


class SleepEnv(ProbeEnv):
    """Sleeps in each step, as a slow simulator does; reward 1.

    Config:
        seconds: how long (0.005).
        worker_index: only there (None: everywhere).
        length: steps of an episode (100).
    """

    def __init__(self, config: dict | None = None):
        super().__init__(config)
        sleeps = self.config.get("worker_index") in (None, getattr(config, "worker_index", None))
        self.seconds = self.config.get("seconds", 0.005) if sleeps else 0.0

    def follow(self, action):
        if self.seconds:
            time.sleep(self.seconds)
        return 0.0, 1.0, self.t >= self.config.get("length", 100), False


class ProbeFailure(RuntimeError):
    """What RaisingEnv raises: a class that no library knows."""


class RaisingEnv(ProbeEnv):
    """Raises ProbeFailure where the config says; otherwise reward 1 and episodes of 1000 steps.

    Config:
        step: raise in the step with this number, counted over all episodes from 1 (None: never).
        reset: raise in the reset with this number, from 1 (None: never).
        init: raise in the constructor.
        worker_index, vector_index: only there (None: everywhere).
    """

    def __init__(self, config: dict | None = None):
        super().__init__(config)
        self.steps = self.resets = 0
        self.meant = all(
            self.config.get(name) in (None, getattr(config, name, None)) for name in ("worker_index", "vector_index")
        )
        if self.meant and self.config.get("init"):
            raise ProbeFailure("asked to fail in __init__")

    def first(self):
        self.resets += 1
        if self.meant and self.resets == self.config.get("reset"):
            raise ProbeFailure(f"asked to fail in reset {self.resets}")
        return 0.0

    def follow(self, action):
        self.steps += 1
        if self.meant and self.steps == self.config.get("step"):
            raise ProbeFailure(f"asked to fail in step {self.steps}")
        return 0.0, 1.0, self.t >= 1000, False


class SimpleCorridor:
    """The corridor of the old Ray introduction, word for word but for its base class: old gym API, lists."""

    def __init__(self, config):
        self.end_pos = config["corridor_length"]
        self.cur_pos = 0
        self.action_space = Discrete(2)
        self.observation_space = Box(0.0, self.end_pos, shape=(1, ))  # fmt: skip

    def reset(self):
        self.cur_pos = 0
        return [self.cur_pos]

    def step(self, action):
        if action == 0 and self.cur_pos > 0:
            self.cur_pos -= 1
        elif action == 1:
            self.cur_pos += 1
        done = self.cur_pos >= self.end_pos
        return [self.cur_pos], 1 if done else 0, done, {}


class SampledEnv(gymnasium.Env):
    """After t steps the observation is `nth_sample(space, t)`, reward t; episodes of 3, 5 and 4 steps in turn.

    Config:
        space: the observation space.
        action_space: Discrete(2) by default. Actions outside of it are refused.
    """

    def __init__(self, config: dict | None = None):
        self.observation_space = config["space"]
        self.action_space = config.get("action_space", Discrete(2))
        self.episode = -1
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        return nth_sample(self.observation_space, 0), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} does not lie in {self.action_space}")
        self.t += 1
        over = self.t >= (3, 5, 4)[self.episode % 3]
        return nth_sample(self.observation_space, self.t), float(self.t), over and self.episode % 2 == 0, over, {}


def nth_sample(space: gymnasium.Space, n: int):
    """The same sample of a space for the same n."""
    space.seed(n)
    return space.sample()


class MatchParts(gymnasium.Env):
    """One step, a Dict observation of several kinds; half a reward for each part that the two-part action tells.

    The first number of the action should be `goal`, the second whether the `picture` is bright; `noise` says nothing.
    """

    observation_space = Dict(
        goal=Discrete(3, start=1),
        inner=Tuple([Box(0, 255, (2, 2, 1), np.uint8), Box(-np.inf, np.inf, (2,), np.float64)]),
    )
    action_space = MultiDiscrete([3, 2])

    def __init__(self, config: dict | None = None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal, self.bright = int(self.np_random.integers(3)), int(self.np_random.integers(2))
        picture = np.full((2, 2, 1), 200 if self.bright else 20, np.uint8)
        return {"goal": self.goal + 1, "inner": (picture, self.np_random.normal(size=2))}, {}

    def step(self, action):
        reward = 0.5 * (action[0] == self.goal) + 0.5 * (action[1] == self.bright)
        return self.reset()[0], float(reward), True, False, {}


class MatchPicture(gymnasium.Env):
    """One step; a picture of bytes with a bright square in one of four corners, reward 1 for the corner's number.

    Config:
        size: of its sides (10).
        truncated: episodes end by truncation.
    """

    action_space = Discrete(4)

    def __init__(self, config: dict | None = None):
        config = config or {}
        self.size, self.truncated = config.get("size", 10), config.get("truncated", False)
        self.observation_space = Box(0, 255, (self.size, self.size, 1), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.corner, half = int(self.np_random.integers(4)), self.size // 2
        picture = self.np_random.integers(0, 60, self.observation_space.shape, np.uint8)
        down, right = divmod(self.corner, 2)
        picture[down * half : down * half + half, right * half : right * half + half] += 150
        return picture, {}

    def step(self, action):
        reward = float(action == self.corner)
        return self.reset()[0], reward, not self.truncated, self.truncated, {}


class PointAtPixel(gymnasium.Env):
    """One step; a picture of bytes with one bright pixel, and an action that points at it, in [-1, 1] along each axis.

    The reward is minus the mean square of the distances along both axes. A policy that does not see reaches at most
    -0.41, the variance of a place, by always pointing at the centre.

    Config:
        wrap: observations are a Dict, with this number of zeros beside the picture (None: the picture alone).
        channels_first: the picture is [1, 10, 10].
    """

    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, config: dict | None = None):
        config = config or {}
        self.wrap = config.get("wrap")
        self.shape = (1, 10, 10) if config.get("channels_first") else (10, 10, 1)
        picture = Box(0, 255, self.shape, np.uint8)
        self.observation_space = picture
        if self.wrap is not None:
            self.observation_space = Dict(image=picture, speed=Box(-1, 1, (self.wrap,), np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.integers(10, size=2)
        picture = np.zeros((10, 10), np.uint8)
        picture[tuple(self.place)] = 255
        picture = picture.reshape(self.shape)
        return picture if self.wrap is None else {"image": picture, "speed": np.zeros(self.wrap, np.float32)}, {}

    def step(self, action):
        reward = -float(np.square(action - (self.place - 4.5) / 4.5).mean())
        return self.reset()[0], reward, True, False, {}


class MaskedProbe(gymnasium.Env):
    """Two steps; action a is worth a / 2, and in every second observation the best one, 2, is illegal and raises.

    Always the best legal action: 1.5 on average. The final observation has a mask of zeros, as where a game is over.

    Config:
        mask: "observation" (MultiBinary), "int8" or "float" (Box in the observation), "info", "method".
        key: name of the mask in the observation or info.
        never: no action is legal from this step of every episode on, and none raises.
    """

    action_space = Discrete(3)

    def __init__(self, config: dict | None = None):
        config = dict(config or {})
        self.kind, self.never = config.get("mask", "observation"), config.get("never", 2)
        self.key = config.get("key", "action_mask")
        masks = {"int8": Box(0, 1, (3,), np.int8), "float": Box(0, 1, (3,), np.float64)}
        self.has_mask = self.kind not in ("info", "method")
        self.observation_space = Box(0.0, 1.0, (2,), np.float32)
        if self.has_mask:
            mask = masks.get(self.kind, MultiBinary(3))
            self.observation_space = Dict({self.key: mask, "observations": self.observation_space})

    def action_masks(self):
        if self.t >= self.never:
            return np.zeros(3, np.int8)
        return np.array([1, 1, self.state], np.int8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.seen()

    def step(self, action):
        mask = self.action_masks()
        if mask.any() and not mask[action]:
            raise ValueError(f"action {action} is illegal")
        self.t += 1
        observation, info = self.seen()
        return observation, action / 2, self.t == 2, False, info

    def seen(self):
        self.state = int(self.np_random.integers(2))
        observation, mask = np.eye(2, dtype=np.float32)[self.state], self.action_masks()
        if self.has_mask:
            return {
                self.key: mask.astype(self.observation_space[self.key].dtype),
                "observations": observation,
            }, {}
        return observation, {self.key: mask} if self.kind == "info" else {}


class StackedCounting(gymnasium.Env):
    """The last four numbers of steps, each on a frame of 2 x 8, after zeros; episodes of 30 steps, reward 1."""

    action_space = Discrete(2)

    def __init__(self, config):
        self.axis = config["axis"]
        self.observation_space = Box(0, 100, self.stack([0] * 4).shape, np.float32)

    def stack(self, numbers):
        return np.stack([np.full((2, 8), number, np.float32) for number in numbers], self.axis)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.stack([0, 0, 0, 0]), {}

    def step(self, action):
        self.t += 1
        return self.stack([max(self.t - i, 0) for i in (3, 2, 1, 0)]), 1.0, self.t == 30, False, {}


class StructuredProbe(ProbeEnv):
    """P5 and P12 at once: one step, observation x 0 or 1 at random, an action of three parts that earn up to 1 each.

    The parts are worth 1 where jump is 5 + x, where the bit is 1 - x, and where the number is 3 + 4 x.
    """

    action_space = Dict(arm=Tuple([Box(0.0, 10.0, (1,), np.float64), MultiBinary(1)]), jump=Discrete(2, start=5))

    def first(self):
        return float(self.np_random.integers(2))

    def follow(self, action):
        if action not in self.action_space:
            raise ValueError(f"{action} lies outside {self.action_space}")
        (number,), (bit,) = action["arm"]
        choices = float(action["jump"] == 5 + self.x) + float(bit == 1 - self.x)
        return 0.0, choices + 1 - float(number - 3 - 4 * self.x) ** 2 / 10, True, False


def in_vector(env, mode: AutoresetMode, kind=SyncVectorEnv, **options):
    """Creator of a VectorEnv of environments of a class, as a user would write it."""
    return lambda context: kind(
        [functools.partial(env, dict(context))] * context.num_envs, autoreset_mode=mode, **options
    )
