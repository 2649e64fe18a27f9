"""The suites of JAX: how each makes the functions of an environment from its id and env_config."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rllib.env.suites.jitted.functions import NEVER, Functions, Transition, limited, space_of
from rllib.env.suites.jitted.vector import JittedVector
from rllib.env.suites.refusals import refuse_unknown_keys, refuse_wrong_values, unknown_id

# Pixels of the side of a picture, as convolutions need it.
_SMALLEST_PICTURE = 32
# Functions that were made in this process, so that the same environment is compiled once.
_MADE: dict[tuple[str, str, str], Functions] = {}


def gymnax(env_id: str, /, num_envs: int, **env_config: Any) -> JittedVector:
    """An environment of gymnax; env_config has fields of its parameters, and arguments of its class."""

    def make() -> Functions:
        import gymnax

        if env_id not in gymnax.registered_envs:
            raise unknown_id("gymnax", env_id, gymnax.registered_envs)
        _, params = gymnax.make(env_id)
        fields = [field.name for field in dataclasses.fields(params)]
        arguments = {key: value for key, value in env_config.items() if key not in fields}
        try:
            env, params = gymnax.make(env_id, **arguments)
        except TypeError:  # an argument of another class
            refuse_unknown_keys(f"gymnax:{env_id}", env_config, fields)
            raise
        refuse_wrong_values(f"gymnax:{env_id}", env_config, vars(params))
        params = params.replace(**{key: value for key, value in env_config.items() if key in fields})
        return _of_gymnax(env, params, "max_steps_in_episode")

    return _vector("gymnax", env_id, num_envs, env_config, make)


def craftax(env_id: str, /, num_envs: int, **env_config: Any) -> JittedVector:
    """An environment of Craftax; env_config has fields of its parameters."""

    def make() -> Functions:
        from craftax.craftax_env import make_craftax_env_from_name

        ids = [f"Craftax-{kind}-v1" for kind in ("Symbolic", "Pixels", "Classic-Symbolic", "Classic-Pixels")]
        if env_id not in ids:
            raise unknown_id("craftax", env_id, ids)
        env = make_craftax_env_from_name(env_id, auto_reset=False)
        params = env.default_params
        refuse_unknown_keys(f"craftax:{env_id}", env_config, vars(params))
        refuse_wrong_values(f"craftax:{env_id}", env_config, vars(params))
        return _of_gymnax(env, params.replace(**env_config), "max_timesteps")

    return _vector("craftax", env_id, num_envs, env_config, make)


def pgx(env_id: str, /, num_envs: int, **env_config: Any) -> JittedVector:
    """A game of Pgx for one player; observations have the mask of legal actions where it says anything."""

    def make() -> Functions:
        import pgx

        if env_id not in pgx.available_envs():
            raise unknown_id("pgx", env_id, pgx.available_envs())
        refuse_unknown_keys(f"pgx:{env_id}", env_config, [])
        env = pgx.make(env_id)
        if env.num_players > 1:
            raise ValueError(
                f"environment 'pgx:{env_id}' has {env.num_players} players, and Pgx's games are taken for one agent. "
                "Take the game from PettingZoo or OpenSpiel (docs/guide/multi_agent.md)."
            )
        has_mask = not env_id.startswith("minatar-")  # there every action is always legal
        shape = jax.eval_shape(env.init, jax.random.PRNGKey(0)).observation.shape
        board, actions = spaces.Box(0.0, 1.0, shape), env.num_actions
        masked = spaces.Dict({"observations": board, "action_mask": spaces.MultiBinary(actions)})

        def observed(state):
            board = state.observation.astype(jnp.float32)
            return {"observations": board, "action_mask": state.legal_action_mask} if has_mask else board

        def reset(key):
            state = env.init(key)
            return state, observed(state)

        def step(key, state, action):
            state = env.step(state, action, key)
            return Transition(state, observed(state), state.rewards[0], state.terminated, state.truncated, {})

        return Functions(reset, step, masked if has_mask else board, spaces.Discrete(actions))

    return _vector("pgx", env_id, num_envs, env_config, make)


def jumanji(env_id: str, /, num_envs: int, **env_config: Any) -> JittedVector:
    """An environment of Jumanji; env_config has arguments of its class."""

    def make() -> Functions:
        import jumanji
        from jumanji.specs import jumanji_specs_to_gym_spaces

        if env_id not in jumanji.registered_environments():
            raise unknown_id("jumanji", env_id, jumanji.registered_environments())
        env = _called(jumanji.make, f"jumanji:{env_id}", env_config, env_id)
        observed = _corrected(jumanji_specs_to_gym_spaces(env.observation_spec))
        if env.reward_spec.shape:
            raise ValueError(
                f"environment 'jumanji:{env_id}' gives a reward to each of {env.reward_spec.shape[0]} agents, and "
                "Jumanji's are taken for one agent. Take a suite of several agents (docs/guide/environments.md)."
            )

        def reset(key):
            state, timestep = env.reset(key)
            return state, _parts(timestep.observation, observed)

        def step(key, state, action):
            state, timestep = env.step(state, action)
            ended, terminated = timestep.last(), timestep.discount == 0
            observation = _parts(timestep.observation, observed)
            return Transition(
                state, observation, timestep.reward, ended & terminated, ended & ~terminated, dict(timestep.extras)
            )

        return Functions(reset, step, observed, jumanji_specs_to_gym_spaces(env.action_spec))

    return _vector("jumanji", env_id, num_envs, env_config, make)


def navix(env_id: str, /, num_envs: int, **env_config: Any) -> JittedVector:
    """A grid of NAVIX; env_config has arguments of its constructor, such as max_steps."""

    def make() -> Functions:
        import navix

        if env_id not in navix.registry():
            raise unknown_id("navix", env_id, navix.registry())
        env = _called(navix.make, f"navix:{env_id}", env_config, env_id)
        space = space_of(env.observation_space)
        # Its bounds are not those of the numbers. Small grids of them are no pictures.
        if is_grid := space.dtype.kind in "iu" and max(space.shape[:2], default=0) < _SMALLEST_PICTURE:
            space = spaces.Box(0.0, 255.0, (math.prod(space.shape),))

        def observed(timestep):
            return timestep.observation.reshape(-1) if is_grid else timestep.observation

        def reset(key):
            timestep = env.reset(key)
            return timestep, observed(timestep)

        def step(key, timestep, action):
            # Its step() would reset in place of the step after the end.
            timestep = env._step(timestep, action)
            return Transition(
                timestep, observed(timestep), timestep.reward, timestep.is_termination(), timestep.is_truncation(), {}
            )

        return Functions(reset, step, space, space_of(env.action_space))

    return _vector("navix", env_id, num_envs, env_config, make)


def brax(env_id: str, /, num_envs: int, **env_config: Any) -> JittedVector:
    """A robot of Brax; env_config has arguments of its class, and its `episode_length`, 1000 steps by default."""

    def make() -> Functions:
        from brax import envs

        if env_id not in envs._envs:
            raise unknown_id("brax", env_id, envs._envs)
        arguments = {"episode_length": 1000, **env_config}
        length = arguments.pop("episode_length")
        env = _called(envs.get_environment, f"brax:{env_id}", arguments, env_id)
        return limited(_of_brax(env), length)

    return _vector("brax", env_id, num_envs, env_config, make)


def playground(env_id: str, /, num_envs: int, **env_config: Any) -> JittedVector:
    """An environment of MuJoCo Playground; env_config has items of its config, among them `episode_length`."""

    def make() -> Functions:
        from mujoco_playground import registry

        if env_id not in registry.ALL_ENVS:
            raise unknown_id("playground", env_id, registry.ALL_ENVS)
        config = registry.get_default_config(env_id)
        refuse_unknown_keys(f"playground:{env_id}", env_config, config.keys())
        refuse_wrong_values(f"playground:{env_id}", env_config, config)
        if "impl" in config and jax.default_backend() == "cpu":
            config.impl = "jax"  # the other one, Warp, is for GPUs
        config.update(env_config)
        return limited(_of_brax(registry.load(env_id, config=config)), config.episode_length)

    return _vector("playground", env_id, num_envs, env_config, make)


def _vector(
    suite: str, env_id: str, num_envs: int, env_config: Mapping[str, Any], make: Callable[[], Functions]
) -> JittedVector:
    key = suite, env_id, cloudpickle.dumps(sorted(env_config.items()))
    if key not in _MADE:
        _MADE[key] = make()
    return JittedVector(f"{suite}:{env_id}", _MADE[key], num_envs)


def _called(function: Callable, name: str, env_config: Mapping[str, Any], *arguments: Any) -> Any:
    """The environment that a function makes with the items of env_config.

    Raises:
        ValueError: for an item that it does not take.
    """
    try:
        return function(*arguments, **env_config)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise ValueError(f"env_config={dict(env_config)!r} does not fit {name!r}: {error}") from error


def _of_gymnax(env: Any, params: Any, limit: str) -> Functions:
    """The functions of an environment with gymnax' interface.

    Args:
        env: has reset_env and step_env, which reset nothing.
        params: of its episodes.
        limit: their field of the time limit.
    """
    unlimited = params.replace(**{limit: NEVER})

    def reset(key):
        observation, state = env.reset_env(key, params)
        return state, observation

    def step(key, state, action):
        observation, state, reward, done, info = env.step_env(key, state, action, params)
        if hasattr(env, "is_truncated"):  # gymnax 1
            terminated, truncated = done, env.is_truncated(state, params)
        else:  # `done` is either; without the limit it would have been the end of the task alone
            terminated = env.is_terminal(state, unlimited)
            truncated = done & ~terminated
        return Transition(state, observation, reward, terminated, truncated, info)

    return Functions(reset, step, space_of(env.observation_space(params)), space_of(env.action_space(params)))


def _of_brax(env: Any) -> Functions:
    """The functions of an environment of Brax or MuJoCo Playground, whose actions are in [-1, 1]."""

    def reset(key):
        state = env.reset(key)
        return state, state.obs

    def step(key, state, action):
        state = env.step(state, action)
        done = state.done > 0
        return Transition(state, state.obs, state.reward, done, jnp.zeros_like(done), dict(state.metrics))

    _, observation = jax.eval_shape(reset, jax.random.PRNGKey(0))
    return Functions(reset, step, _unbounded(observation), spaces.Box(-1.0, 1.0, (env.action_size,), np.float32))


def _unbounded(observation: Any) -> spaces.Space:
    """The space without bounds of observations of these shapes."""
    if isinstance(observation, Mapping):
        return spaces.Dict({key: _unbounded(part) for key, part in observation.items()})
    return spaces.Box(-np.inf, np.inf, observation.shape, np.float32)


def _corrected(space: spaces.Space) -> spaces.Space:
    """Jumanji's space with MultiBinary in place of Boxes of bools, such as masks, and all numbers of its Discretes.

    Theirs leave out -1, TSP's position before the first city, and Snake's count of steps after the last one.
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _corrected(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(space.n + 2, start=-1)
    return spaces.MultiBinary(space.shape) if isinstance(space, spaces.Box) and space.dtype == bool else space


def _parts(observation: Any, space: spaces.Space) -> Any:
    """The observation as dicts, where its space is one of dicts and it is a class with these attributes."""
    if not isinstance(space, spaces.Dict):
        return observation
    return {key: _parts(getattr(observation, key), part) for key, part in space.spaces.items()}
