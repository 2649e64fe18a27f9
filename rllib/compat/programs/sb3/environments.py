"""Environments as Stable-Baselines3's programs make them: make_vec_env, wrappers of Atari games, films."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

import rllib
from rllib.env.checkup.report import EnvironmentCheckError
from rllib.env.factories.atari import resized
from rllib.env.factories.registry import EnvContext, resolve
from rllib.env.streams.legacy import as_gymnasium
from rllib.env.vec_env.base import DummyVecEnv, VecEnv, VecEnvWrapper
from rllib.env.vec_env.monitor import Monitor, is_wrapped
from rllib.runs.video import VideoFile, fps_of

# Random steps of `check_env`: programs call it each time they are run, also of an environment in a Monitor.
_CHECKED_STEPS = 20


def as_trained_in(env: Any, monitors: bool = True) -> Any:
    """The vector environment that a model samples from.

    Args:
        env: an id, class or function; an environment; a vector environment.
        monitors: put a Monitor around an environment that has none.

    Raises:
        TypeError: for a vector environment of gymnasium.
    """
    if isinstance(env, VectorEnv):
        raise TypeError(f"{env} is a vector environment of gymnasium. Give make_vec_env(id, n_envs=8).")
    if hasattr(env, "step_async") and not isinstance(env, type):
        return env
    if not isinstance(env, gymnasium.Env):
        env = resolve(env).make(EnvContext())
    env = as_gymnasium(env)
    if monitors and not is_wrapped(env, Monitor):
        env = Monitor(env)
    return DummyVecEnv([lambda: env])


def make_vec_env(
    env_id: str | Callable[..., gymnasium.Env],
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | None = None,
    wrapper_class: Callable[..., gymnasium.Env] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    vec_env_cls: Callable[..., VecEnv] | None = None,
    vec_env_kwargs: Mapping[str, Any] | None = None,
    monitor_kwargs: Mapping[str, Any] | None = None,
    wrapper_kwargs: Mapping[str, Any] | None = None,
) -> VecEnv:
    """Several equal environments, each in a Monitor.

    Args:
        env_id: a registered id, or a class or function that makes an environment.
        n_envs: how many.
        seed: environment i gets seed + i at its first reset; its spaces get seed + start_index + i.
        start_index: see `seed`, and of the files.
        monitor_dir: directory of i.monitor.csv; None: no files.
        wrapper_class: a wrapper around each Monitor, with `wrapper_kwargs`.
        env_kwargs: arguments of each environment.
        vec_env_cls: class of the vector environment, with `vec_env_kwargs`; None: DummyVecEnv.
        monitor_kwargs: arguments of each Monitor.
        wrapper_kwargs: arguments of the wrapper.
    """

    def maker(rank: int) -> Callable[[], gymnasium.Env]:
        def make() -> gymnasium.Env:
            env = _made(env_id, dict(env_kwargs or {}))
            if seed is not None:
                env.action_space.seed(seed + rank)
            file = None if monitor_dir is None else str(Path(monitor_dir, str(rank)))
            env = Monitor(env, filename=file, **(monitor_kwargs or {}))
            return env if wrapper_class is None else wrapper_class(env, **(wrapper_kwargs or {}))

        return make

    if monitor_dir is not None:
        Path(monitor_dir).mkdir(parents=True, exist_ok=True)
    made = (vec_env_cls or DummyVecEnv)(
        [maker(start_index + index) for index in range(n_envs)], **(vec_env_kwargs or {})
    )
    if seed is not None:
        made.seed(seed)
    return made


def _made(env_id: Any, arguments: dict[str, Any]) -> gymnasium.Env:
    if not isinstance(env_id, str):
        return as_gymnasium(env_id(**arguments))
    if env_id in gymnasium.registry or ":" in env_id:
        try:
            return gymnasium.make(env_id, **{"render_mode": "rgb_array", **arguments})
        except TypeError:  # some cannot be drawn
            return gymnasium.make(env_id, **arguments)
    return as_gymnasium(resolve(env_id).make(EnvContext(arguments)))  # which says what there is


def check_env(env: Any, warn: bool = True, skip_render_check: bool = True) -> None:
    """Checks an environment with random actions, and raises an error for what is wrong.

    Args:
        env: the environment, made already.
        warn: warn of what is no error, but may be a mistake.
        skip_render_check: without effect: pictures are not looked at.

    Raises:
        AssertionError: with all that is wrong, or if it is no environment of gymnasium.
    """
    if not isinstance(env, gymnasium.Env):
        raise AssertionError(f"env={env!r:.80} must be an environment: derive its class from gymnasium.Env")
    try:
        report = rllib.check_env(env, steps=_CHECKED_STEPS)
    except EnvironmentCheckError as error:
        raise AssertionError(str(error)) from None
    if warn:
        for finding in report.of("warning"):
            warnings.warn(f"{finding.seen}. {finding.rule} {finding.remedy}", UserWarning, stacklevel=2)


# ---------------------------------------------------------------------- Atari


class NoopResetEnv(gymnasium.Wrapper):
    """Begins an episode with 1 to `noop_max` steps of the action 0.

    Args:
        env: the game.
        noop_max: most of them.
    """

    def __init__(self, env: gymnasium.Env, noop_max: int = 30):
        super().__init__(env)
        self.noop_max, self.override_num_noops, self.noop_action = noop_max, None, 0

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        number = self.override_num_noops or int(self.unwrapped.np_random.integers(1, self.noop_max + 1))
        for _ in range(number):
            observation, _, terminated, truncated, info = self.env.step(self.noop_action)
            if terminated or truncated:
                observation, info = self.env.reset(**kwargs)
        return observation, info


class FireResetEnv(gymnasium.Wrapper):
    """Begins an episode with the actions 1 (FIRE) and 2, for games that wait for it."""

    def reset(self, **kwargs):
        self.env.reset(**kwargs)
        for action in (1, 2):
            observation, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                observation, info = self.env.reset(**kwargs)
        return observation, info


class EpisodicLifeEnv(gymnasium.Wrapper):
    """Ends an episode with each life; the game itself is reset when all lives are lost.

    Args:
        env: the game.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.lives, self.was_real_done = 0, True

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.was_real_done = terminated or truncated
        lives = self.env.unwrapped.ale.lives()
        terminated = terminated or 0 < lives < self.lives
        self.lives = lives
        return observation, reward, terminated, truncated, info

    def reset(self, **kwargs):
        if self.was_real_done:
            observation, info = self.env.reset(**kwargs)
        else:
            observation, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                observation, info = self.env.reset(**kwargs)
        self.lives = self.env.unwrapped.ale.lives()
        return observation, info


class MaxAndSkipEnv(gymnasium.Wrapper):
    """Repeats each action, sums the rewards, and returns the larger pixels of the last two frames.

    Args:
        env: the game.
        skip: number of repetitions.
    """

    def __init__(self, env: gymnasium.Env, skip: int = 4):
        super().__init__(env)
        self._skip = skip
        space = env.observation_space
        self._newest = np.zeros((2, *space.shape), space.dtype)

    def step(self, action):
        total, terminated, truncated, info = 0.0, False, False, {}
        for index in range(self._skip):
            observation, reward, terminated, truncated, info = self.env.step(action)
            if index >= self._skip - 2:
                self._newest[index - self._skip + 2] = observation
            total += float(reward)
            if terminated or truncated:
                break
        return self._newest.max(axis=0), total, terminated, truncated, info


class ClipRewardEnv(gymnasium.RewardWrapper):
    """Signs of rewards: -1, 0 or 1."""

    def reward(self, reward):
        return np.sign(float(reward))


class StickyActionEnv(gymnasium.Wrapper):
    """Repeats the action before instead of the given one, now and then.

    Args:
        env: the game.
        action_repeat_probability: how often.
    """

    def __init__(self, env: gymnasium.Env, action_repeat_probability: float):
        super().__init__(env)
        self.action_repeat_probability, self._sticky_action = action_repeat_probability, 0

    def reset(self, **kwargs):
        self._sticky_action = 0
        return self.env.reset(**kwargs)

    def step(self, action):
        if self.unwrapped.np_random.random() >= self.action_repeat_probability:
            self._sticky_action = action
        return self.env.step(self._sticky_action)


class WarpFrame(gymnasium.ObservationWrapper):
    """Grey pictures of another size, [height, width, 1].

    Args:
        env: the game.
        width, height: in pixels.
    """

    def __init__(self, env: gymnasium.Env, width: int = 84, height: int = 84):
        super().__init__(env)
        self.width, self.height = width, height
        self.observation_space = spaces.Box(0, 255, (height, width, 1), env.observation_space.dtype)

    def observation(self, observation):
        grey = observation
        if observation.shape[-1] == 3:
            grey = np.rint(observation @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)[..., None]
        return np.asarray(resized(grey[..., 0], self.height, self.width)).reshape(self.height, self.width, 1)


class AtariWrapper(gymnasium.Wrapper):
    """All of the above, as DeepMind's agents play.

    Args:
        env: the game.
        noop_max: of NoopResetEnv; 0: without.
        frame_skip: of MaxAndSkipEnv; 1: without.
        screen_size: of WarpFrame.
        terminal_on_life_loss: EpisodicLifeEnv.
        clip_reward: ClipRewardEnv.
        action_repeat_probability: of StickyActionEnv; 0: without.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        terminal_on_life_loss: bool = True,
        clip_reward: bool = True,
        action_repeat_probability: float = 0.0,
    ):
        if action_repeat_probability > 0.0:
            env = StickyActionEnv(env, action_repeat_probability)
        if noop_max > 0:
            env = NoopResetEnv(env, noop_max=noop_max)
        if frame_skip > 1:
            env = MaxAndSkipEnv(env, skip=frame_skip)
        if terminal_on_life_loss:
            env = EpisodicLifeEnv(env)
        if "FIRE" in env.unwrapped.get_action_meanings():
            env = FireResetEnv(env)
        env = WarpFrame(env, width=screen_size, height=screen_size)
        super().__init__(ClipRewardEnv(env) if clip_reward else env)


def make_atari_env(
    env_id: Any,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | None = None,
    wrapper_kwargs: Mapping[str, Any] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    vec_env_cls: Callable[..., VecEnv] | None = None,
    vec_env_kwargs: Mapping[str, Any] | None = None,
    monitor_kwargs: Mapping[str, Any] | None = None,
) -> VecEnv:
    """`make_vec_env` with an AtariWrapper around each game; its ids are those of a game without further wrappers."""
    if isinstance(env_id, str) and env_id not in gymnasium.registry:
        import ale_py

        gymnasium.register_envs(ale_py)
    return make_vec_env(
        env_id,
        n_envs=n_envs,
        seed=seed,
        start_index=start_index,
        monitor_dir=monitor_dir,
        wrapper_class=AtariWrapper,
        env_kwargs=env_kwargs,
        vec_env_cls=vec_env_cls,
        vec_env_kwargs=vec_env_kwargs,
        monitor_kwargs=monitor_kwargs,
        wrapper_kwargs=wrapper_kwargs,
    )


def maybe_make_env(env: Any, verbose: int) -> gymnasium.Env:
    """The environment of an id, or what was given already."""
    return gymnasium.make(env, render_mode="rgb_array") if isinstance(env, str) else env


# ---------------------------------------------------------------------- films


class VecVideoRecorder(VecEnvWrapper):
    """Films the environments: an MP4 of `video_length` steps each time that `record_video_trigger` says so.

    Args:
        venv: the vector environment, made with render_mode="rgb_array".
        video_folder: directory of the films.
        record_video_trigger: function of the number of steps; True begins a film.
        video_length: steps of a film.
        name_prefix: how their names begin.

    Raises:
        ValueError: for another render_mode, or a `render_fps` that is no number.
        ImportError: without the package that writes films.
    """

    def __init__(
        self,
        venv: VecEnv,
        video_folder: str,
        record_video_trigger,
        video_length: int = 200,
        name_prefix: str = "rl-video",
    ):
        super().__init__(venv)
        if self.render_mode != "rgb_array":
            raise ValueError(f"a film needs render_mode='rgb_array', but the environments have {self.render_mode!r}")
        self.frames_per_sec = fps_of(venv)
        self.video_folder, self.video_length, self.name_prefix = Path(video_folder), video_length, name_prefix
        self.video_folder.mkdir(parents=True, exist_ok=True)
        self.record_video_trigger, self.step_id = record_video_trigger, 0
        self.recording, self._frames, self._begun = False, [], 0

    def reset(self):
        observations = self.venv.reset()
        if self.record_video_trigger(self.step_id):
            self._begin()
        return observations

    def step_wait(self):
        made = self.venv.step_wait()
        self.step_id += 1
        if self.recording:
            self._capture()
            if len(self._frames) > self.video_length:
                self._write()
        elif self.record_video_trigger(self.step_id):
            self._begin()
        return made

    def _begin(self) -> None:
        self._write()
        self.recording, self._begun = True, self.step_id
        self._capture()

    def _capture(self) -> None:
        picture = self.venv.render(mode="rgb_array")
        if picture is not None:
            self._frames.append(np.asarray(picture, np.uint8))

    def _write(self) -> None:
        if self._frames:
            name = f"{self.name_prefix}-step-{self._begun}-to-step-{self._begun + self.video_length}.mp4"
            with VideoFile(self.video_folder / name, self.frames_per_sec) as film:
                for frame in self._frames:
                    film.add(frame)
        self.recording, self._frames = False, []

    def close(self):
        self._write()
        return self.venv.close()
