"""A vector environment in Stable-Baselines3's form as gymnasium's: an algorithm samples from the object itself."""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

# The method, and the key of infos, by which environments give masks of their legal actions.
_MASKS, _MASK = "action_masks", "action_mask"


class InPlace:
    """The setting `env` for a vector environment that is stepped itself, by the only worker.

    Args:
        venv: the vector environment.
        takes_seeds: whether a run's seed is given to it; else it keeps its own.
        masks: whether to ask it for masks of the legal actions.
        window: number of newest episodes that are kept.

    Attributes:
        venv: as above; a program may put another one with the same spaces in its place.
        episodes, successes: what infos say of the newest episodes, and whether they were successful.
        steps: variables of each step since `steps` was emptied; None: they are not kept.
    """

    def __init__(self, venv: Any, takes_seeds: bool, masks: bool = False, window: int = 100):
        self.venv, self.takes_seeds, self.masks = venv, takes_seeds, masks
        self.episodes: collections.deque = collections.deque(maxlen=window)
        self.successes: collections.deque = collections.deque(maxlen=window)
        self.steps: list[dict[str, Any]] | None = None
        self.last_observations: Any = None
        self.__qualname__ = type(venv.unwrapped).__name__

    def __call__(self, context) -> "GivenVector":
        return GivenVector(self)

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return NotInFiles, (self.__qualname__,)

    def settings(self) -> dict[str, Any]:
        """Settings of a config."""
        settings = {"env": self, "num_envs_per_worker": self.venv.num_envs, "disable_env_checking": True}
        return {**settings, "action_mask_from": "info"} if self.masks else settings


class NotInFiles:
    """In a checkpoint: the environment was an object of the program."""

    def __init__(self, name: str):
        self.__qualname__ = name

    def __call__(self, context):
        raise ValueError(f"the environment, {self.__qualname__}, was made by a program: give it to load(path, env=env)")


class GivenVector(VectorEnv):
    """Steps a vector environment of another form.

    Closing it leaves the environment open, which belongs to the program.

    Args:
        place: where it stands.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  (gymnasium's form)

    def __init__(self, place: InPlace):
        self._place, self.spec = place, None
        venv = place.venv
        self.num_envs, self.render_mode = venv.num_envs, getattr(venv, "render_mode", None)
        self.single_observation_space, self.single_action_space = venv.observation_space, venv.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def envs(self) -> list[Any]:
        """The single environments, or what asks them in their processes."""
        return [_Single(self._place, index) for index in range(self.num_envs)]

    def reset(self, *, seed=None, options=None):
        place = self._place
        if seed is not None and place.takes_seeds:
            place.venv.seed(int(seed))
        place.last_observations = place.venv.reset()
        infos: dict[str, Any] = {}
        if place.masks:
            infos[_MASK] = self._newest_masks()
        return place.last_observations, infos

    def step(self, actions):
        place = self._place
        observations, rewards, dones, infos = place.venv.step(actions)
        dones = np.asarray(dones, bool)
        truncated = np.zeros(self.num_envs, bool)
        further: dict[str, Any] = {}
        if place.masks:
            further[_MASK] = self._newest_masks()
        if dones.any():
            finals = np.full(self.num_envs, None, object)
            for index in np.flatnonzero(dones):
                info = infos[index]
                truncated[index] = info.get("TimeLimit.truncated", False)
                finals[index] = info["terminal_observation"]
                if "episode" in info:
                    place.episodes.append(info["episode"])
                if info.get("is_success") is not None:
                    place.successes.append(info["is_success"])
            further |= {
                "final_obs": finals,
                "_final_obs": dones.copy(),
                "final_info": self._final_infos(infos, further),
            }
        if place.steps is not None:
            of_step = {"actions": np.array(actions), "obs": place.last_observations, "new_obs": observations}
            place.steps.append({**of_step, "rewards": rewards, "dones": dones, "infos": infos})
        place.last_observations = observations
        return observations, np.asarray(rewards, np.float64), dones & ~truncated, truncated, further

    def _final_infos(self, infos, further: dict[str, Any]) -> dict[str, Any]:
        """Of a final observation no mask is known: no action follows it, and none is left out of its value."""
        return {_MASK: np.ones_like(further[_MASK])} if self._place.masks else {}

    def _newest_masks(self) -> np.ndarray:
        if not self._place.venv.has_attr(_MASKS):
            raise ValueError(
                f"the environment has no method {_MASKS}(), which MaskablePPO asks for the legal actions. Give it one, "
                "put ActionMasker(env, function) around it, or use PPO."
            )
        return np.stack(self._place.venv.env_method(_MASKS)).astype(np.int8)

    def close(self, **kwargs):
        """Leaves the environment open."""

    def close_extras(self, **kwargs):
        """Nothing is to be closed."""

    def call(self, name: str, *args, **kwargs) -> tuple:
        """Calls a method of each environment."""
        return tuple(self._place.venv.env_method(name, *args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        # Rewards of further goals are those of the first environment.
        if name.startswith("_") or name not in ("compute_reward", "compute_terminated"):
            raise AttributeError(name)
        return getattr(self.envs[0], name)


class _Single:
    """One of the environments."""

    def __init__(self, place: InPlace, index: int):
        self._place, self._index = place, index

    @property
    def unwrapped(self) -> "_Single":
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":
            raise AttributeError(name)
        venv = self._place.venv
        if name.startswith("compute_"):
            if not venv.has_attr(name):
                raise AttributeError(name)
            return self._method(name)
        try:
            return venv.get_attr(name, indices=self._index)[0]
        except AttributeError:
            raise AttributeError(name) from None

    def _method(self, name: str) -> Callable[..., Any]:
        return lambda *args: self._place.venv.env_method(name, *args, indices=self._index)[0]
