"""EnvPool's environments, stepped by threads in C++, as gymnasium has vector environments."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import envpool
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rllib.env.suites.refusals import refuse_unknown_keys, refuse_wrong_values, unknown_id
from rllib.models.observations.flat_spaces import positive_floats

# Options of EnvPool that are given by the run.
_OWN = {"num_envs", "seed", "env_seed", "gym_reset_return_info"}


class EnvPoolVector(VectorEnv):
    """N environments of EnvPool in one object; the step after the end of an episode resets.

    EnvPool takes seeds when it is made, and ignores seeds of reset(): a reset with seeds makes it again. Its
    spaces describe a single environment; where they have no bounds, it writes those of C++'s numeric_limits. A step
    that ends an episode in both ways counts as truncated.

    Args:
        name: EnvPool's id.
        num_envs: N.
        options: options of envpool.make, such as max_episode_steps or num_threads.

    Raises:
        ValueError: for an id, option or kind of value that EnvPool does not have, several players, or a batch_size
            other than N.
    """

    metadata: ClassVar[dict] = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    takes_a_seed_each = True

    def __init__(self, name: str, /, num_envs: int, **options: Any):
        if options.get("batch_size", num_envs) != num_envs:
            raise ValueError(
                f"batch_size={options['batch_size']}: all {num_envs} environments of a worker are stepped at once. "
                "Leave it out."
            )
        if name not in (ids := envpool.list_all_envs()):
            raise unknown_id("envpool", name, ids)
        try:
            defaults = envpool.make_spec(name, num_envs=num_envs).config._asdict()
            refuse_unknown_keys(f"envpool:{name}", options, defaults.keys() - _OWN)
            refuse_wrong_values(f"envpool:{name}", options, defaults)
            spec = envpool.make_spec(name, num_envs=num_envs, **options)
        except ImportError as error:  # it names the system's libraries that a family of environments needs
            raise ValueError(f"environment 'envpool:{name}' lacks a library of the system: {error}") from error
        players = getattr(spec.config, "max_num_players", 1)
        if players > 1:
            raise ValueError(
                f"environment 'envpool:{name}' is a game of {players} players, and EnvPool's are taken for one agent. "
                "Take the game from PettingZoo or OpenSpiel (docs/guide/multi_agent.md)."
            )
        self.name_in_suite = f"envpool:{name}"
        self.num_envs, self._name, self._options = num_envs, name, options
        with _no_lost_digits():
            self.single_observation_space = _without_bounds(spec.observation_space)
            self.single_action_space = _without_bounds(spec.action_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._pool: Any = None

    def reset(self, *, seed: list[int] | int | None = None, options: dict | None = None) -> tuple:
        if self._pool is None or seed is not None:
            self.close_extras()
            # EnvPool's seeds are 32-bit numbers with a sign.
            seeds = np.random.SeedSequence(seed).generate_state(self.num_envs) if not isinstance(seed, list) else seed
            given = [int(each) & 0x7FFFFFFF for each in seeds]
            self._pool = envpool.make(
                self._name, env_type="gymnasium", num_envs=self.num_envs, seed=given, **self._options
            )
        with _no_lost_digits():  # the first reset makes its spaces
            return self._pool.reset()

    def step(self, actions: np.ndarray) -> tuple:
        return self._pool.step(actions)

    def close_extras(self, **kwargs) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


@contextlib.contextmanager
def _no_lost_digits() -> Iterator[None]:
    """Keeps gymnasium from warning, in each worker, that bounds of EnvPool's spaces have more digits than float32."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting")
        yield


def _without_bounds(space: spaces.Space) -> spaces.Space:
    """The space with -inf and inf where EnvPool has the bounds of C++'s numeric_limits."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _without_bounds(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_without_bounds(part) for part in space.spaces])
    if not isinstance(space, spaces.Box) or not (unbounded := positive_floats(space)).any():
        return space
    low, high = np.where(unbounded, -np.inf, space.low), np.where(unbounded, np.inf, space.high)
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype)
