"""The environments of a worker together, by the names that other libraries have."""

from typing import Any

import gymnasium

from rllib.env.streams.base import EnvironmentStream


class BaseEnv:
    """The environments of a worker, with the interface of RLlib's BaseEnv and names of gymnasium's VectorEnv."""

    def __init__(self, stream: EnvironmentStream):
        self._stream = stream
        self.num_envs = stream.num_envs
        self.observation_space, self.action_space = stream.observation_space, stream.action_space

    @property
    def envs(self) -> list:
        """The environments, without gymnasium's outermost standard wrappers."""
        return self._stream.environments

    def get_sub_environments(self, as_dict: bool = False) -> list | dict:
        """`envs`, or index -> environment."""
        return dict(enumerate(self.envs)) if as_dict else self.envs

    get_unwrapped = get_sub_environments

    @property
    def single_observation_space(self) -> Any:
        """`observation_space`, which is that of one environment."""
        return self.observation_space

    @property
    def single_action_space(self) -> Any:
        """`action_space`, which is that of one environment."""
        return self.action_space

    def get_attr(self, name: str) -> tuple:
        """The attribute of each environment, or of the one that it wraps."""
        return tuple(getattr(self._owner_of(env, name), name) for env in self.envs)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of each environment, where it or one that it wraps has it.

        Args:
            name: name of the attribute.
            values: a list or tuple with one for each environment, or one for all.

        Raises:
            ValueError: for a list of another length.
        """
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"set_attr({name!r}) needs {self.num_envs} values, one an environment, not {len(values)}")
        for env, value in zip(self.envs, values, strict=True):
            setattr(self._owner_of(env, name), name, value)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple:
        """Results of a method of each environment, or of the one that it wraps."""
        return tuple(getattr(self._owner_of(env, name), name)(*args, **kwargs) for env in self.envs)

    @staticmethod
    def _owner_of(env: Any, name: str) -> Any:
        """The outermost of an environment and those that it wraps that has an attribute; the innermost if none does."""
        while isinstance(env, gymnasium.Wrapper) and not (name in vars(env) or hasattr(type(env), name)):
            env = env.env
        return env

    @property
    def vector_env(self) -> "BaseEnv":
        """This object, which has `envs`."""
        return self

    @property
    def unwrapped(self) -> "BaseEnv":
        """This object, whose `envs` are not wrapped."""
        return self

    def try_render(self, env_id: int = 0):
        """Result of the environment's render()."""
        return self.envs[env_id].render()

    def render(self):
        """Result of the first environment's render()."""
        return self.try_render()
