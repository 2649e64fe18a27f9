"""Environments that are stepped in turn, by the names of Stable-Baselines3's DummyVecEnv.

    env = make_vec_env("CartPole-v1", n_envs=4)
    observations = env.reset()
    observations, rewards, dones, infos = env.step(actions)

An algorithm does not train in these objects: it makes its own environments from what they are made of (given.py).
"""

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

from rllib.did_you_mean import explains
from rllib.env.spaces.batches import batch_of

logger = logging.getLogger(__name__)

Indices = int | Iterable[int] | None


@explains(
    dict.fromkeys(
        ("save", "load"),
        "numbers of .rollouts(observation_filter='MeanStdFilter') are saved with the algorithm: use model.save(path)",
    )
)
class DummyVecEnv:
    """Environments in this process, which start again by themselves when an episode ends.

    They are made when they are first needed.

    Args:
        env_fns: functions without arguments; each returns a new environment.

    Attributes:
        num_envs: number of environments, N.
        reset_infos: the info of each environment's newest reset.

    Raises:
        TypeError: if one of `env_fns` cannot be called.
        ValueError: if there is none; with the first use, if two of them return one environment.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gymnasium.Env]]):
        self.env_fns = list(env_fns)
        if not self.env_fns:
            raise ValueError("a vector environment needs at least one function that makes an environment")
        for each in self.env_fns:
            if not callable(each):
                raise TypeError(
                    f"a vector environment takes functions that make environments, but got {each!r:.80}. "
                    "Use DummyVecEnv([lambda: env])."
                )
        self.num_envs = len(self.env_fns)
        self.reset_infos: list[dict[str, Any]] = [{} for _ in self.env_fns]
        self._seeds: list[int | None] = [None] * self.num_envs
        self._options: list[dict | None] = [None] * self.num_envs
        self._actions: Sequence = ()
        # What an algorithm makes environments of; None: of `env_fns`.
        self.env_id: str | type | None = None
        self.env_config: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.num_envs} environments>"

    @functools.cached_property
    def envs(self) -> list[gymnasium.Env]:
        """The environments."""
        made = [make() for make in self.env_fns]
        if len(set(map(id, made))) != len(made):
            raise ValueError(
                "two of the functions return one and the same environment, which cannot be in two episodes at once. "
                "Let each make its own: DummyVecEnv([lambda: gymnasium.make('CartPole-v1') for _ in range(4)])."
            )
        return made

    @property
    def observation_space(self) -> gymnasium.Space:
        """Space of one environment's observations."""
        return self.envs[0].observation_space

    @property
    def action_space(self) -> gymnasium.Space:
        """Space of one environment's actions."""
        return self.envs[0].action_space

    @property
    def render_mode(self) -> str | None:
        """Mode in which the environments draw themselves."""
        return self.envs[0].render_mode

    @property
    def unwrapped(self) -> "DummyVecEnv":
        """The object itself."""
        return self

    # ------------------------------------------------------------------ episodes

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seeds the next `reset`: environment i gets seed + i. Returns these seeds."""
        self._seeds = [None if seed is None else seed + index for index in range(self.num_envs)]
        return list(self._seeds)

    def set_options(self, options: list[dict] | dict | None = None) -> None:
        """Sets the `options` of the next `reset`: one dict for all environments, or one for each."""
        each = options if isinstance(options, list) else [options] * self.num_envs
        self._options = [dict(given) if given else None for given in each]

    def reset(self) -> Any:
        """Begins an episode in each environment. Returns the observations, [N, ...] in the structure of the space."""
        first = []
        for index, (env, seed, options) in enumerate(zip(self.envs, self._seeds, self._options, strict=True)):
            observation, self.reset_infos[index] = env.reset(seed=seed, **({"options": options} if options else {}))
            first.append(observation)
        self.seed(None)
        self.set_options(None)
        return batch_of(self.observation_space, first)

    def step(self, actions: Sequence) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """One step of each environment.

        Args:
            actions: N of them.

        Returns:
            observations: [N, ...] in the structure of the space; of the next episode where one has ended.
            rewards: float32 [N].
            dones: bool [N], whether an episode has ended, by termination or truncation.
            infos: a dict for each, with "TimeLimit.truncated", and at the end of an episode its "terminal_observation".

        Raises:
            ValueError: for another number of actions.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Sequence) -> None:
        """Takes the actions of the next `step_wait`."""
        if len(actions) != self.num_envs:
            raise ValueError(f"{self.num_envs} environments take as many actions, but got {len(actions)}")
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Makes the step whose actions were given; see `step`."""
        rewards, dones = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool)
        observations, infos = [], []
        for index, (env, action) in enumerate(zip(self.envs, self._actions, strict=True)):
            observation, rewards[index], terminated, truncated, info = env.step(action)
            info = {**info, "TimeLimit.truncated": bool(truncated and not terminated)}
            dones[index] = terminated or truncated
            if dones[index]:
                info["terminal_observation"] = observation
                observation, self.reset_infos[index] = env.reset()
            observations.append(observation)
            infos.append(info)
        return batch_of(self.observation_space, observations), rewards, dones, infos

    def close(self) -> None:
        """Closes the environments."""
        for env in self.__dict__.get("envs", ()):  # those that were never needed do not exist
            env.close()

    # ------------------------------------------------------------------ pictures

    def get_images(self) -> list[np.ndarray | None]:
        """A picture [height, width, 3] of each environment that was made with render_mode="rgb_array", or None."""
        return [env.render() if env.render_mode == "rgb_array" else None for env in self.envs]

    def render(self, mode: str | None = None) -> np.ndarray | None:
        """Draws the environments, as their render_mode says.

        Args:
            mode: "rgb_array": return the pictures. "human": show them, which needs environments that were made with
                render_mode="human". None: the environments' own.

        Returns:
            the pictures side by side, uint8 [height, N x width, 3]; None without them.
        """
        mode = mode or self.render_mode
        if mode == "human" and self.render_mode != "human":
            _warn_once("nothing is shown: make the environments with render_mode='human' to watch them")
            return None
        if mode == "human":
            for env in self.envs:
                env.render()
            return None
        pictures = [picture for picture in self.get_images() if picture is not None]
        return np.concatenate(pictures, axis=1) if pictures else None

    # ------------------------------------------------------------------ the environments themselves

    def _chosen(self, indices: Indices) -> list[gymnasium.Env]:
        if indices is None:
            return self.envs
        return [self.envs[index] for index in ([indices] if isinstance(indices, int) else indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Whether each environment, or a wrapper of it, has an attribute."""
        return all(env.has_wrapper_attr(attr_name) for env in self.envs)

    def get_attr(self, attr_name: str, indices: Indices = None) -> list:
        """An attribute of each environment, or of those with these indices."""
        return [env.get_wrapper_attr(attr_name) for env in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute of each environment, where it has one of this name within its wrappers."""
        for env in self._chosen(indices):
            env.set_wrapper_attr(attr_name, value)

    def env_method(self, method_name: str, *method_args, indices: Indices = None, **method_kwargs) -> list:
        """Calls a method of each environment and returns what it returns."""
        return [env.get_wrapper_attr(method_name)(*method_args, **method_kwargs) for env in self._chosen(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        """Whether a wrapper of this class is around each environment."""
        return [any(isinstance(each, wrapper_class) for each in _layers(env)) for env in self._chosen(indices)]


def _layers(env) -> Iterable[gymnasium.Env]:
    yield env
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        yield env


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning("%s", message)
