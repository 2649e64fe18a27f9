"""Environments of generated runs: small and deterministic; they count steps and note actions that they cannot take.

A world is a dict that JSON can hold: `kind` says how it is reached, `observation` and `action` name its spaces.
"""

import contextlib
import math
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rllib.env.external import ExternalEnv, ExternalMultiAgentEnv
from rllib.env.external.exchange import EpisodeLost, RunEnded
from rllib.env.multi_agent import MultiAgentEnv

IMAGE = Box(0, 255, (24, 24, 1), np.uint8)
OBSERVATIONS = {
    "number": Box(-5, 5, (1,), np.float32),
    "numbers": Box(-5, 5, (3,), np.float32),
    "scalar": Box(-5, 5, (), np.float32),
    "doubles": Box(-5, 5, (3,), np.float64),
    "rows": Box(-5, 5, (2, 3), np.float32),
    "cube": Box(-5, 5, (2, 1, 2), np.float32),
    "unbounded": Box(-np.inf, np.inf, (2,), np.float32),
    "integers": Box(0, 5, (2,), np.int64),
    "choice": Discrete(4),
    "choice from 2": Discrete(3, start=2),
    "choices": MultiDiscrete([2, 3]),
    "bits": MultiBinary(3),
    "dict": Dict({"numbers": Box(-5, 5, (2,), np.float32), "choice": Discrete(3)}),
    "tuple": Tuple((Box(-5, 5, (2,), np.float32), MultiBinary(2))),
    "nested": Dict({
        "inner": Dict({"number": Box(-5, 5, (1,), np.float32)}),
        "pair": Tuple((Discrete(2), MultiBinary(1))),
    }),
    "image": IMAGE,
    "colours": Box(0, 255, (24, 24, 3), np.uint8),
    "image and numbers": Dict({"image": IMAGE, "numbers": Box(-5, 5, (2,), np.float32)}),
    "goal": Dict({
        "observation": Box(-5, 5, (2,), np.float32),
        "achieved_goal": Box(-5, 5, (1,), np.float32),
        "desired_goal": Box(-5, 5, (1,), np.float32),
    }),
}  # fmt: skip
DISCRETE = {"choice": Discrete(2), "choice from 2": Discrete(3, start=2), "one choice": Discrete(1)}
CONTINUOUS = {
    "number": Box(-2, 2, (1,), np.float32),
    "numbers": Box(np.array([-1, 0], np.float32), np.array([1, 10], np.float32)),
    "scalar": Box(-2, 1, (), np.float32),
    "doubles": Box(-1, 1, (2,), np.float64),
    "rows": Box(-1, 1, (2, 2), np.float32),
}
# Actions that a policy with a distribution alone can take.
OTHERS = {
    "unbounded": Box(-np.inf, np.inf, (2,), np.float32),
    "integers": Box(0, 3, (2,), np.int64),
    "choices": MultiDiscrete([2, 3]),
    "bits": MultiBinary(2),
    "dict": Dict({"number": Box(-1, 1, (1,), np.float32), "choice": Discrete(2)}),
    "tuple": Tuple((Discrete(2), Discrete(3, start=1))),
}
# Of tests alone, since one more in the tables above would make other draws of all seeds.
FAR = {"far": Box(3, 5, (1,), np.float32)}
ACTIONS = {**DISCRETE, **CONTINUOUS, **OTHERS, **FAR}
MASKED = ("choice", "choice from 2", "choices", "bits", "integers", "tuple")
HAS_IMAGE = ("image", "colours", "image and numbers")

# In this process, since `forget`: steps of environments, ended episodes, and sentences about wrong actions by what is
# wrong with them: the form, numbers outside of the bounds, or choices that a mask forbids.
steps: list[int] = [0]
episodes: list[int] = [0]
wrong: dict[str, list[str]] = {"form": [], "bounds": [], "mask": []}
_worlds: "weakref.WeakSet" = weakref.WeakSet()


def forget() -> None:
    """Begins the counts anew."""
    steps[0] = episodes[0] = 0
    for sentences in wrong.values():
        sentences.clear()


@contextlib.contextmanager
def others() -> Iterator[None]:
    """While a run goes on in other worlds: those so far are left, and steps that try the new ones are not counted."""
    before = steps[0], episodes[0]
    _worlds.clear()
    yield
    steps[0], episodes[0] = before


def all_are_over() -> bool:
    """Whether no environment of this process is within an episode, or has a step before it that begins the next one."""
    return not any(world.t or world.is_due for world in _worlds)


def mask_size(space: gymnasium.Space) -> int:
    """Numbers in the mask of legal actions of a space."""
    match space:
        case Discrete():
            return int(space.n)
        case MultiDiscrete():
            return int(space.nvec.sum())
        case MultiBinary():
            return 2 * int(np.prod(space.shape))
        case Tuple():
            return sum(map(mask_size, space.spaces))
        case Box():
            return int((space.high - space.low + 1).sum())
    raise TypeError(f"{space} has no mask")


def first_choices(space: gymnasium.Space) -> int:
    """Choices of the first part of an action: those that masks forbid."""
    match space:
        case Discrete():
            return int(space.n)
        case MultiDiscrete():
            return int(space.nvec.flat[0])
        case MultiBinary():
            return 2
        case Tuple():
            return first_choices(space.spaces[0])
    return int(space.high.flat[0] - space.low.flat[0] + 1)


def first_choice(space: gymnasium.Space, action) -> int:
    """Which of them an action has taken."""
    match space:
        case Discrete():
            return int(action) - int(space.start)
        case Tuple():
            return first_choice(space.spaces[0], action[0])
        case Box():
            return int(np.ravel(action)[0] - space.low.flat[0])
    return int(np.ravel(action)[0])


def check_space(space: gymnasium.Space, action, whose: str = "") -> bool:
    """Whether an action lies in a space; if not, it is noted."""
    if action in space:
        return True
    kind = "bounds" if action in _unbounded(space) else "form"
    wrong[kind].append(f"{action!r} ({type(action).__name__}){whose} is no action of {space}")
    return False


def _unbounded(space: gymnasium.Space) -> gymnasium.Space:
    """A space with the same form, whose numbers have no bounds."""
    match space:
        case Box() if space.dtype.kind == "f":
            return Box(-np.inf, np.inf, space.shape, space.dtype)
        case Dict():
            return Dict({key: _unbounded(part) for key, part in space.spaces.items()})
        case Tuple():
            return Tuple(map(_unbounded, space.spaces))
    return space


def observed(space: gymnasium.Space, t: int):
    """The observation of a space after t steps."""
    match space:
        case Box() if space.dtype == np.uint8:
            return np.full(space.shape, t * 37 % 256, np.uint8)
        case Box() if np.issubdtype(space.dtype, np.integer):
            return np.full(space.shape, t % 6, space.dtype)
        case Box():
            return np.full(space.shape, 2 * math.sin(t), space.dtype)
        case Discrete():
            return int(space.start) + t % int(space.n)
        case MultiDiscrete():
            return np.array([t % n for n in space.nvec], space.dtype)
        case MultiBinary():
            return np.full(space.shape, t % 2, space.dtype)
        case Dict():
            return {key: observed(part, t) for key, part in space.spaces.items()}
    return tuple(observed(part, t) for part in space.spaces)


def size_of(action) -> float:
    """A bounded number that depends on every part of an action."""
    if isinstance(action, Mapping):
        return sum(map(size_of, action.values()))
    if isinstance(action, tuple):
        return sum(map(size_of, action))
    return float(np.clip(np.sum(action), -3, 3)) / 10


class World(gymnasium.Env):
    """One agent; the reward is 0.5 and a term of the action, or with goals that of `compute_reward`.

    Config:
        observation, action: names of spaces.
        length: steps of an episode; every third one is a step shorter where `uneven` is set.
        end: "terminated", "truncated", "both", or "mixed", which takes the first two in turn.
        mask: where masks of legal actions are: None, "observation", "info" or "method".
        fails, hangs, dies: number of the step, counted over all episodes, that raises, or never returns, or ends its
            process; 0 or absent: none.
    """

    def __init__(self, config: Mapping[str, Any]):
        self.config = dict(config)
        self.inner, self.action_space = OBSERVATIONS[config["observation"]], ACTIONS[config["action"]]
        self.mask = config.get("mask")
        self.observation_space = self.inner
        if self.mask:
            self.choices = first_choices(self.action_space)
        if self.mask == "observation":
            mask = MultiBinary(mask_size(self.action_space))
            self.observation_space = Dict({"action_mask": mask, "observations": self.inner})
        self.t = self.number = 0
        self.is_due = False  # mode NEXT_STEP: whether the next step begins an episode
        self.task = 1
        self.gain = 1.0  # which disturbances change
        self._steps = 0
        _worlds.add(self)

    def get_task(self):
        return self.task

    def set_task(self, task):
        self.task = task

    def action_masks(self):
        mask = np.ones(mask_size(self.action_space), np.int8)
        if self.choices > 1:
            mask[self.t % self.choices] = 0
        return mask

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.number, self.is_due = 0, self.number + 1, False
        return self.seen(), self._info()

    def step(self, action):
        self.check(action)
        self._steps += 1
        if self._steps == self.config.get("fails"):
            raise RuntimeError("the world fails, as it was asked to")
        if self._steps == self.config.get("hangs"):
            threading.Event().wait()
        if self._steps == self.config.get("dies"):
            os._exit(3)
        self.t += 1
        steps[0] += 1
        over = self.t >= self.config["length"] - (self.config.get("uneven", False) and self.number % 3 == 0)
        terminated, truncated = self._end() if over else (False, False)
        seen = self.seen()
        reward = 0.5 + size_of(action) * self.task * self.gain
        if self.config["observation"] == "goal":
            shown = seen["observations"] if self.mask == "observation" else seen
            reward = float(self.compute_reward(shown["achieved_goal"], shown["desired_goal"], {}))
        outcome = seen, reward, terminated, truncated, self._info()
        if self.config.get("form") == "arrays":
            outcome = seen, np.array([reward]), terminated, truncated, self._info()
        elif self.config.get("form") == "old":
            limit = {"TimeLimit.truncated": truncated and not terminated}
            outcome = seen, reward, terminated or truncated, {**self._info(), **limit}
        if over:
            self.t, self.is_due = 0, self.config.get("autoreset") == "NEXT_STEP"
            episodes[0] += 1
        return outcome

    def compute_reward(self, achieved_goal, desired_goal, info):
        """Of goals [1] or [B, 1]."""
        return (np.abs(achieved_goal - desired_goal).sum(-1) < 0.5).astype(np.float32)

    def _end(self) -> tuple[bool, bool]:
        end = self.config.get("end", "terminated")
        if end == "mixed":
            end = "terminated" if self.number % 2 else "truncated"
        return end != "truncated", end != "terminated"

    def seen(self):
        seen = observed(self.inner, self.t)
        return {"action_mask": self.action_masks(), "observations": seen} if self.mask == "observation" else seen

    def _info(self) -> dict:
        info = {"cost": float(self.t % 2), "extra": float(self.t), "pair": np.full(2, self.t, np.float32)}
        return info | {"action_mask": self.action_masks()} if self.mask == "info" else info

    def check(self, action) -> None:
        if isinstance(action, np.floating):  # gymnasium's SyncVectorEnv makes these of actions without axes
            action = np.asarray(action)
        in_space = check_space(self.action_space, action)
        masked = in_space and self.mask and self.choices > 1
        if masked and first_choice(self.action_space, action) == self.t % self.choices:
            wrong["mask"].append(f"{action!r} is illegal in step {self.t}")


def vector(context):
    """A VectorEnv of worlds; `autoreset` names its mode."""
    mode = AutoresetMode[context["autoreset"]]
    return SyncVectorEnv([lambda: World(context)] * context.num_envs, autoreset_mode=mode)


def tensors(context):
    """The same, with torch tensors."""
    from tests.tensor_envs import Tensors  # torch is imported where it is used

    return Tensors(vector(context), "final_obs")


class Worlds(MultiAgentEnv):
    """Several agents.

    Config: as of World, and
        agents: number of agents.
        style: "all" act in each step; "turns": one after another; "dying": each but the first ends before the others.
    """

    def __init__(self, config: Mapping[str, Any]):
        super().__init__()
        self.config = dict(config)
        self.possible_agents = [f"agent_{i}" for i in range(config["agents"])]
        self.agents = list(self.possible_agents)
        self.observation_spaces = dict.fromkeys(self.agents, OBSERVATIONS[config["observation"]])
        self.action_spaces = dict.fromkeys(self.agents, ACTIONS[config["action"]])
        self.t = self.number = 0
        self.is_due = False
        self.gain = 1.0
        self.living: list[str] = []
        _worlds.add(self)

    def acting(self) -> list[str]:
        if self.config["style"] == "turns" and self.living:
            return [self.living[self.t % len(self.living)]]
        return list(self.living)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.number, self.living = 0, self.number + 1, list(self.possible_agents)
        observations = {agent: self.seen(agent) for agent in self.acting()}
        return observations if self.config.get("form") == "old" else (observations, {})

    def seen(self, agent: str):
        return observed(self.observation_spaces[agent], self.t)

    def step(self, action_dict):
        if set(action_dict) != set(self.acting()):
            wrong["form"].append(f"actions of {sorted(action_dict)}, but {self.acting()} act")
        for agent, action in action_dict.items():
            check_space(self.action_spaces[agent], action, f" of {agent}")
        self.t += 1
        steps[0] += 1
        rewards = {agent: 1.0 + size_of(action_dict.get(agent, 0)) * self.gain for agent in self.living}
        over = self.t >= self.config["length"]
        terminated, truncated = World._end(self) if over else (False, False)
        dying = set()
        if self.config["style"] == "dying":
            dying = {
                each for i, each in enumerate(self.possible_agents) if i and self.t >= self.config["length"] - 2 * i
            }
        terminateds = {agent: terminated or agent in dying for agent in self.living}
        truncateds = {agent: truncated for agent in self.living}
        ended = [agent for agent in self.living if over or agent in dying]
        self.living = [agent for agent in self.living if agent not in ended]
        seen = {agent: self.seen(agent) for agent in (*ended, *self.acting())}
        terminateds["__all__"], truncateds["__all__"] = terminated, truncated
        if over:
            self.t = 0
            episodes[0] += 1
        if self.config.get("form") == "old":
            dones = {agent: terminateds[agent] or truncated for agent, truncated in truncateds.items()}
            late = {agent: {"TimeLimit.truncated": dones[agent] and not terminateds[agent]} for agent in seen}
            return seen, rewards, dones, late
        return seen, rewards, terminateds, truncateds, {}


def group(context):
    """All agents as one group."""
    worlds = Worlds({**context, "style": "all"})
    return worlds.with_agent_groups({"team": worlds.possible_agents})


def parallel(context):
    """The agents as a PettingZoo ParallelEnv."""
    import pettingzoo  # belongs to an extra

    class Parallel(pettingzoo.ParallelEnv):
        metadata: dict = {"name": "worlds"}  # noqa: RUF012
        render_mode = None

        def __init__(self):
            self.worlds = Worlds(context)
            self.possible_agents, self.agents = self.worlds.possible_agents, []

        def observation_space(self, agent):
            return self.worlds.observation_spaces[agent]

        def action_space(self, agent):
            return self.worlds.action_spaces[agent]

        def reset(self, seed=None, options=None):
            seen, _ = self.worlds.reset(seed=seed)
            self.agents = list(self.possible_agents)
            return seen, {agent: {} for agent in seen}

        def step(self, actions):
            acting = list(self.agents)
            seen, rewards, terminateds, truncateds, _ = self.worlds.step(actions)
            self.agents = list(self.worlds.living)
            return (
                {agent: seen.get(agent, self.worlds.seen(agent)) for agent in acting},
                {agent: rewards.get(agent, 0.0) for agent in acting},
                {agent: terminateds.get(agent, False) for agent in acting},
                {agent: truncateds.get(agent, False) for agent in acting},
                {agent: {} for agent in acting},
            )

        def render(self):
            return None

    return Parallel()


def aec(context):
    """The agents as a PettingZoo AECEnv."""
    from pettingzoo.utils.conversions import parallel_to_aec

    return parallel_to_aec(parallel(context))


class External(ExternalEnv):
    """A world that drives its own loop."""

    def __init__(self, config: Mapping[str, Any]):
        self.world = World(config)
        super().__init__(self.world.action_space, self.world.observation_space)

    def run(self):
        with contextlib.suppress(EpisodeLost, RunEnded):
            while True:
                play(self, self.world)


def play(interface, world: World) -> None:
    """Plays an episode of a world through an ExternalEnv or a client."""
    observation, _ = world.reset()
    episode = interface.start_episode()
    over = truncated = False
    while not over:
        action = interface.get_action(episode, observation)
        observation, reward, terminated, truncated, info = world.step(action)
        interface.log_returns(episode, reward, info)
        over = terminated or truncated
    interface.end_episode(episode, observation, truncated=truncated and not terminated)


class ExternalWorlds(ExternalMultiAgentEnv):
    """Worlds of several agents, all of which act in each step, that drive their own loop."""

    def __init__(self, config: Mapping[str, Any]):
        self.worlds = Worlds({**config, "style": "all"})
        agent = self.worlds.possible_agents[0]
        super().__init__(self.worlds.action_spaces[agent], self.worlds.observation_spaces[agent])

    def run(self):
        with contextlib.suppress(RunEnded):
            while True:
                with contextlib.suppress(EpisodeLost):  # a policy has begun or ended to learn
                    self._play()

    def _play(self):
        """An episode."""
        seen, _ = self.worlds.reset()
        episode, over = self.start_episode(), False
        while not over:
            actions = self.get_action(episode, seen)
            seen, rewards, terminateds, truncateds, _ = self.worlds.step(actions)
            self.log_returns(episode, rewards)
            over = terminateds["__all__"] or truncateds["__all__"]
        self.end_episode(episode, seen)


# How a world is reached -> what is given as `env`; "client" has none.
DOORS = {
    "single": World, "data": World, "vector": vector, "tensors": tensors, "agents": Worlds, "group": group,
    "parallel": parallel, "aec": aec, "external": External, "external agents": ExternalWorlds, "client": None,
}  # fmt: skip
OF_AGENTS = ("agents", "parallel", "aec", "external agents")
ONE_AGENT = ("single", "data", "vector", "tensors", "external", "client")
EXTERNAL = ("external", "external agents", "client")
