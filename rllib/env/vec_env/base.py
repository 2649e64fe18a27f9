"""Vector environments that an algorithm steps itself, by the names of Stable-Baselines3's VecEnv.

From a `DummyVecEnv` of this library an algorithm makes new environments. For a program that uses its vector environment
during training, and for wrappers with a state such as VecNormalize, the object itself is stepped (given_vector.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

from rllib.env.vec_env.dummy_vec_env import DummyVecEnv as _InTurn
from rllib.env.vec_env.dummy_vec_env import Indices

Step = tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]


class VecEnv(ABC):
    """Base class of environments that are stepped together, and start again by themselves when an episode ends.

    Args:
        num_envs: number of environments, N.
        observation_space, action_space: spaces of one environment.

    Attributes:
        num_envs, observation_space, action_space: as above.
        reset_infos: the info of each environment's newest reset.
        render_mode: mode in which the environments draw themselves.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012  (SB3's name and form)

    def __init__(self, num_envs: int, observation_space: gymnasium.Space, action_space: gymnasium.Space):
        self.num_envs, self.observation_space, self.action_space = num_envs, observation_space, action_space
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self._seeds: list[int | None] = [None] * num_envs
        self._options: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self.render_mode = self.get_attr("render_mode")[0] if self.has_attr("render_mode") else None

    @abstractmethod
    def reset(self) -> Any:
        """Begins an episode in each environment. Returns the observations, [N, ...] in the structure of the space."""

    @abstractmethod
    def step_async(self, actions: Sequence) -> None:
        """Takes the actions of the next `step_wait`."""

    @abstractmethod
    def step_wait(self) -> Step:
        """Makes the step: observations, rewards [N], dones [N] and an info for each."""

    @abstractmethod
    def close(self) -> None:
        """Closes the environments."""

    @abstractmethod
    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """An attribute of each environment, or of those with these indices."""

    @abstractmethod
    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute of each environment, or of those with these indices."""

    @abstractmethod
    def env_method(self, method_name: str, *method_args, indices: Indices = None, **method_kwargs) -> list[Any]:
        """Calls a method of each environment, and returns what it returns."""

    @abstractmethod
    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        """Whether a wrapper of this class is around each environment."""

    def step(self, actions: Sequence) -> Step:
        """One step in each environment; see `step_wait`."""
        self.step_async(actions)
        return self.step_wait()

    def has_attr(self, attr_name: str) -> bool:
        """Whether the environments have an attribute."""
        try:
            self.get_attr(attr_name)
        except AttributeError:
            return False
        return True

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A picture [height, width, 3] of each environment, or None."""
        return self.env_method("render")

    def render(self, mode: str | None = None) -> np.ndarray | None:
        """Draws the environments. Returns the pictures side by side, where their mode is "rgb_array"."""
        if (mode or self.render_mode) != "rgb_array":
            self.env_method("render")
            return None
        pictures = [picture for picture in self.get_images() if picture is not None]
        return np.concatenate(pictures, axis=1) if pictures else None

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seeds the next `reset`: environment i gets seed + i. Returns these seeds."""
        if seed is None:
            seed = int(np.random.randint(0, np.iinfo(np.uint32).max, dtype=np.uint32))
        self._seeds = [seed + index for index in range(self.num_envs)]
        return list(self._seeds)

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Sets the `options` of the next `reset`: one dict for all environments, or one for each."""
        each = options if isinstance(options, list) else [options or {}] * self.num_envs
        self._options = [dict(given) for given in each]

    def getattr_depth_check(self, name: str, already_found: bool) -> str | None:
        """Name of the class that has an attribute, where a wrapper further out has it as well; None elsewhere."""
        return f"{type(self).__module__}.{type(self).__name__}" if already_found and hasattr(self, name) else None

    @property
    def unwrapped(self) -> "VecEnv":
        """The vector environment below all wrappers."""
        return self

    def _indices(self, indices: Indices) -> Iterable[int]:
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else indices


class DummyVecEnv(_InTurn, VecEnv):
    """Environments in this process, which are made at once.

    Args:
        env_fns: functions without arguments; each returns a new environment.

    Attributes:
        buf_rews, buf_dones, buf_infos, buf_obs: of the newest step.
        keys: keys of a Dict space's observations; [None] for others.
    """

    observation_space = action_space = render_mode = None

    def __init__(self, env_fns: Sequence):
        _InTurn.__init__(self, env_fns)
        space = self.envs[0].observation_space
        self.observation_space, self.action_space = space, self.envs[0].action_space
        self.render_mode = self.envs[0].render_mode
        self.metadata = self.envs[0].metadata
        self.keys = list(space.spaces) if isinstance(space, gymnasium.spaces.Dict) else [None]
        self._keep(None, (np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool), self.reset_infos))

    def reset(self):
        observations = super().reset()
        self.buf_obs = observations
        return observations

    def step_wait(self):
        made = super().step_wait()
        self._keep(made[0], made[1:])
        return made

    def _keep(self, observations, rest) -> None:
        self.buf_obs = observations
        self.buf_rews, self.buf_dones, self.buf_infos = rest


class VecEnvWrapper(VecEnv):
    """Base class of wrappers around a vector environment; attributes that it does not have are those within.

    Args:
        venv: the vector environment.
        observation_space, action_space: spaces of one environment; None: as within.

    Attributes:
        venv: as above.
    """

    def __init__(
        self,
        venv: VecEnv,
        observation_space: gymnasium.Space | None = None,
        action_space: gymnasium.Space | None = None,
    ):
        self.venv = venv
        super().__init__(venv.num_envs, observation_space or venv.observation_space, action_space or venv.action_space)
        self.metadata = getattr(venv, "metadata", {})

    @property
    def reset_infos(self):
        """The info of each environment's newest reset."""
        return self.venv.reset_infos

    @reset_infos.setter
    def reset_infos(self, infos):
        """Stays that of the environments within."""

    def step_async(self, actions):
        self.venv.step_async(actions)

    @abstractmethod
    def reset(self): ...

    @abstractmethod
    def step_wait(self): ...

    def seed(self, seed=None):
        return self.venv.seed(seed)

    def set_options(self, options=None):
        return self.venv.set_options(options)

    def close(self):
        return self.venv.close()

    def render(self, mode=None):
        return self.venv.render(mode=mode)

    def get_images(self):
        return self.venv.get_images()

    def has_attr(self, attr_name):
        return self.venv.has_attr(attr_name)

    def get_attr(self, attr_name, indices=None):
        return self.venv.get_attr(attr_name, indices)

    def set_attr(self, attr_name, value, indices=None):
        return self.venv.set_attr(attr_name, value, indices)

    def env_method(self, method_name, *method_args, indices=None, **method_kwargs):
        return self.venv.env_method(method_name, *method_args, indices=indices, **method_kwargs)

    def env_is_wrapped(self, wrapper_class, indices=None):
        return self.venv.env_is_wrapped(wrapper_class, indices=indices)

    def __getattr__(self, name: str) -> Any:
        if name == "venv" or (name.startswith("__") and name.endswith("__")):  # before the constructor, in copies
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.venv, name)

    def getattr_depth_check(self, name, already_found):
        found = super().getattr_depth_check(name, already_found)
        return found or self.venv.getattr_depth_check(name, already_found or name in vars(self))

    @property
    def unwrapped(self):
        return self.venv.unwrapped


def unwrap_vec_wrapper(env: Any, vec_wrapper_class: type) -> Any:
    """The outermost wrapper of a class around a vector environment; None without one."""
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, vec_wrapper_class):
            return env
        env = env.venv
    return None


def is_vecenv_wrapped(env: Any, vec_wrapper_class: type) -> bool:
    """Whether a wrapper of a class is around a vector environment."""
    return unwrap_vec_wrapper(env, vec_wrapper_class) is not None
