"""The only environment of a vector of one, for what steps environments one by one: players, videos, exports."""

from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from rllib.env.factories.registry import EnvContext, WrappingFactory
from rllib.env.streams.tensors_as_arrays import AsArrays
from rllib.env.streams.vector import autoreset_mode, entry, info_at, seed_argument


class SingleOfVector(gymnasium.Env):
    """The environment of a vector of one. Each reset() begins an episode, whatever the vector's autoreset mode.

    Args:
        vector: has one environment, and hands over arrays or tensors.
    """

    def __init__(self, vector: VectorEnv):
        self._vector, self._mode = vector, autoreset_mode(vector)
        self._in_arrays = AsArrays(vector, self._mode)
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space
        self.metadata, self.render_mode = vector.metadata, vector.render_mode

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        given = None if seed is None else seed_argument(self._vector, [seed])
        batch, infos = self._in_arrays.reset(seed=given, options=options)
        return entry(batch, 0), info_at(infos, 0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        space = self.action_space
        actions = concatenate(space, [action], create_empty_array(space, 1))
        batch, rewards, terminated, truncated, infos = self._in_arrays.step(actions)
        if (terminated[0] or truncated[0]) and self._mode is AutoresetMode.SAME_STEP:
            batch, infos = infos["final_obs"], infos.get("final_info", {})
        return entry(batch, 0), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info_at(infos, 0)

    def render(self) -> Any:
        return self._vector.render()[0]

    def close(self) -> None:
        self._vector.close()


@dataclass(frozen=True)
class SingleFactory(WrappingFactory):
    """A factory of the same environments; where the other one makes a vector of one, of its only environment."""

    def make(self, context: EnvContext) -> Any:
        made = self.factory.make(context)
        return SingleOfVector(made) if isinstance(made, VectorEnv) and made.num_envs == 1 else made
