"""Atari games as DeepMind's agents see them (Mnih et al., Nature 2015; Machado et al., arXiv:1709.06009).

Each step repeats an action for four frames and takes the maximum of the last two, grey, 84 x 84; the last four
such pictures are the observation [4, 84, 84], bytes, oldest first. Games begin with up to 30 frames without action,
then the fire button where there is one, and black pictures as history. In training the loss of a life ends an episode,
and the next one continues the game; rewards are clipped to their sign (`clips_rewards`). Reported returns are those
of whole games, unclipped, and evaluation plays whole games. The id determines sticky actions: 0.25 for "ALE/Pong-v5",
none for "PongNoFrameskip-v4".

There are two implementations: `ale_py.AtariVectorEnv`, which steps all games of a worker in C++, and
`AtariPreprocessing` for one game, where environments have to be stepped one by one (whole episodes).
"""

import functools
import importlib
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from rllib.env.factories.registry import EnvContext, EnvFactory, GymnasiumFactory

ENTRY_POINT = "ale_py.env:AtariEnv"
FIRE = 1  # the button's number, where a game has it
# Items of env_config that are settings of the preprocessing, under the names of ale_py's vector environment.
OPTIONS = ("img_height", "img_width", "stack_num", "frameskip", "noop_max", "use_fire_reset", "episodic_life")


def is_atari(factory: EnvFactory) -> bool:
    """Whether a factory makes games of the Arcade Learning Environment, by an id of gymnasium's registry."""
    return isinstance(factory, GymnasiumFactory) and factory.spec.entry_point == ENTRY_POINT


@dataclass(frozen=True)
class AtariFactory(EnvFactory):
    """Makes preprocessed games.

    env_config may change OPTIONS; its other items (`repeat_action_probability`, `full_action_space`, ...) are the
    game's.

    Attributes:
        spec: spec of the game itself.
        native: whether all of a worker's games are one vector environment in C++.
        size: height and width of the pictures.
        stack: pictures in an observation.
    """

    spec: EnvSpec
    native: bool = True
    size: int = 84
    stack: int = 4
    clips_rewards = True

    @property
    def name(self) -> str:
        return self.spec.id

    @property
    def max_episode_steps(self) -> int | None:
        return self.spec.max_episode_steps

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        options = {
            "img_height": self.size,
            "img_width": self.size,
            "stack_num": self.stack,
            "frameskip": 4,
            "noop_max": 30,
            "use_fire_reset": True,
            "episodic_life": True,
        }
        options |= {name: value for name, value in context.items() if name in OPTIONS}
        if context.in_evaluation:
            options["episodic_life"] = False
        game = {name: value for name, value in context.items() if name not in OPTIONS}
        if self.native:
            return _native(self.spec, context, options, game)
        spec = replace(self.spec, order_enforce=False)
        game = {**game, "frameskip": 1, "obs_type": "grayscale"}
        return AtariPreprocessing(gymnasium.make(spec, disable_env_checker=True, **game), **options)


def _native(spec: EnvSpec, context: EnvContext, options: dict[str, Any], game: dict[str, Any]) -> VectorEnv:
    options, episodic_life = {**options, "episodic_life": False}, options["episodic_life"]
    made = importlib.import_module("ale_py.vector_env").AtariVectorEnv(
        num_envs=context.num_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
        reward_clipping=False,
        # Workers share the cores; a run without workers uses all of them.
        num_threads=1 if context.num_workers else 0,
        **{**spec.kwargs, **game, **options},
    )
    # ale_py writes its mode into the dict that all vector environments share.
    VectorEnv.metadata.pop("autoreset_mode", None)
    return NativeAtari(made, episodic_life)


class NativeAtari(VectorWrapper):
    """AtariVectorEnv as gymnasium describes vector environments: a seed for each game, and a mask with final_obs.

    Args:
        env: plays whole games.
        episodic_life: the loss of a life ends an episode, and the game continues. ale_py's own setting of this name
            begins a new game instead, so that later lives would never be played.
    """

    takes_a_seed_each = True

    def __init__(self, env: VectorEnv, episodic_life: bool):
        super().__init__(env)
        self._episodic_life = episodic_life
        self._lives = np.zeros(env.num_envs, np.int32)

    def reset(self, *, seed=None, options=None):
        # ale_py takes 31 bits.
        seeds = None if seed is None else np.array(seed, np.int64) & 0x7FFFFFFF
        observations, infos = self.env.reset(seed=seeds, options=options)
        self._lives = infos["lives"].copy()
        return observations, infos

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = terminated | truncated
        if self._episodic_life:
            lives, self._lives = self._lives, infos["lives"].copy()
            lost = (self._lives > 0) & (self._lives < lives) & ~over
            if lost.any():
                finals = observations.copy()
                finals[over] = infos.get("final_obs", finals)[over]
                infos |= {"final_obs": finals, "life_lost": lost}
                terminated, over = terminated | lost, over | lost
        infos["_final_obs"] = over
        return observations, rewards, terminated, truncated, infos


class AtariPreprocessing(gymnasium.Wrapper):
    """The same preprocessing for one game that is stepped frame by frame.

    Args:
        env: observations are grey pictures [H, W], one per frame; `info["lives"]` counts lives, if the game has some.
        img_height, img_width: height and width of the pictures.
        stack_num: pictures in an observation.
        frameskip: number of frames for which an action is repeated.
        noop_max: largest number of frames without action at the beginning (drawn from 1 to noop_max); 0 for none.
        use_fire_reset: press the fire button after them, in games that have it.
        episodic_life: the loss of a life ends the episode, with `info["life_lost"]`; `reset` then continues the game.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        *,
        img_height: int = 84,
        img_width: int = 84,
        stack_num: int = 4,
        frameskip: int = 4,
        noop_max: int = 30,
        use_fire_reset: bool = True,
        episodic_life: bool = False,
    ):
        super().__init__(env)
        self._size = img_height, img_width
        self._frameskip = frameskip
        self._noop_max = noop_max
        self._episodic_life = episodic_life
        meanings = getattr(env.unwrapped, "get_action_meanings", list)()
        self._fires = use_fire_reset and "FIRE" in meanings[FIRE : FIRE + 1]
        self._pictures: deque[np.ndarray] = deque(maxlen=stack_num)
        self._lives = 0
        self._game_is_over = True
        self._info: dict = {}  # of the newest frame of a step
        self.observation_space = gymnasium.spaces.Box(0, 255, (stack_num, *self._size), np.uint8)

    def reset(self, *, seed=None, options=None):
        if not self._game_is_over and seed is None and not options:
            return self._observation(), self._info  # the game continues with the next life
        info = self._new_game(seed, options)
        if self._game_is_over:  # it ended in the frames without action
            info = self._new_game(None, options)
        return self._observation(), info

    def step(self, action):
        lives = self._lives
        reward, terminated, truncated, info = self._frames(action)
        if self._episodic_life and 0 < self._lives < lives:
            terminated, info = True, {**info, "life_lost": not self._game_is_over}
        return self._observation(), reward, terminated, truncated, info

    def _new_game(self, seed: int | None, options: dict | None) -> dict:
        frame, info = self.env.reset(seed=seed, options=options)
        self._game_is_over, self._lives = False, info.get("lives", 0)
        waits = self.env.unwrapped.np_random.integers(1, self._noop_max + 1) if self._noop_max else 0
        for _ in range(waits):
            frame, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                frame, info = self.env.reset()
        if self._fires:
            frame, _, terminated, truncated, info = self.env.step(FIRE)
            self._game_is_over, self._lives = terminated or truncated, info.get("lives", 0)
        self._pictures.extend([np.zeros(self._size, np.uint8)] * (self._pictures.maxlen - 1))
        self._pictures.append(resized(frame, *self._size))
        return info

    def _frames(self, action) -> tuple[float, bool, bool, dict]:
        """Repeats an action and appends the resulting picture; returns (reward, terminated, truncated, info)."""
        total, last = 0.0, []
        for _ in range(self._frameskip):
            frame, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            last = [*last[-1:], frame]
            if terminated or truncated:
                break
        self._lives, self._game_is_over, self._info = info.get("lives", 0), terminated or truncated, info
        # Games draw some things in every other frame only.
        self._pictures.append(resized(np.maximum(*last) if len(last) > 1 else last[0], *self._size))
        return total, terminated, truncated, info

    def _observation(self) -> np.ndarray:
        return np.stack(self._pictures)


def resized(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A grey picture [H, W] of bytes as [height, width]: each new pixel is the mean of the area that it covers."""
    down = _area_means(picture.shape[0], height)
    across = _area_means(picture.shape[1], width)
    return np.rint(down @ picture.astype(np.float32) @ across.T).astype(np.uint8)


@functools.cache
def _area_means(before: int, after: int) -> np.ndarray:
    """[after, before]: the share of each old pixel in each new one."""
    edges = np.linspace(0, before, after + 1)
    pixels = np.arange(before)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.float32(np.maximum(overlap, 0) * (after / before))
