"""Checks of environments: in the driver, before any worker starts, so that errors show in the user's own process; and
while a policy is evaluated.
"""

import copy
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rllib.config.conflicts import Unfit
from rllib.env.agents import is_external, is_multi_agent
from rllib.env.factories.make import hand_over_tensors, make_environment, stream_over
from rllib.env.factories.registry import EnvContext, EnvFactory
from rllib.env.factories.wrapped import wrapper_chain
from rllib.env.spaces.actions import action_mapper
from rllib.env.spaces.batches import batch_of
from rllib.env.spaces.goals import Goals, check_computed, require_goals
from rllib.env.spaces.supported import mismatch
from rllib.env.streams.base import EnvironmentStream, StepBuffers
from rllib.env.streams.process import EnvironmentProcess
from rllib.env.streams.sync import close_all
from rllib.models.distributions.choose import distribution_for
from rllib.models.observations.masks import MaskedOutputs, choice_problem, has_key, masked_columns
from rllib.sample_batch import Column

if TYPE_CHECKING:
    from rllib.env.multi_agent.examine import ExaminedAgents

logger = logging.getLogger(__name__)

CHECKED_STEPS = 8


class Examined(NamedTuple):
    """Spaces and device of a checked environment.

    Attributes:
        observation_space, action_space: spaces of a single environment.
        device: device of the environment's tensors; None if it returns arrays, or was not stepped.
        agents: the agents of a multi-agent environment, which has no spaces itself; None with a single agent.
        is_external: whether the environment drives its own loop.
        steps_apart: whether a worker's environments can be stepped and reset without the others.
    """

    observation_space: gymnasium.Space | None
    action_space: gymnasium.Space | None
    device: str | None = None
    agents: "ExaminedAgents | None" = None
    is_external: bool = False
    steps_apart: bool = True


def check_environment(factory: EnvFactory, env_config: dict | None = None, **options) -> tuple:
    """`examine_environment` for its spaces alone: (observation_space, action_space); the same arguments and errors."""
    return examine_environment(factory, env_config, **options)[:2]


def examine_environment(
    factory: EnvFactory,
    env_config: dict | None = None,
    *,
    num_envs: int = 1,
    check: bool = True,
    info_columns: Sequence[Column] = (),
    action_mask_key: str | None = None,
    needs_goals: bool = False,
    tensors: bool = False,
) -> Examined:
    """Makes one environment, takes a few random steps on the path that training takes, and closes it.

    Args:
        factory: from `registry.resolve`.
        env_config: the user's dict.
        num_envs: number of environments per worker; a VectorEnv is made with this number, any other environment once.
        check: False takes no steps and only reads the spaces.
        info_columns: keys of the info dicts that are to be columns.
        action_mask_key: key of the mask in Dict observations; the steps then take legal actions.
        needs_goals: the environment must be one with goals (goals.py), and compute the rewards of its steps.
        tensors: it hands over torch tensors, where it can.

    Raises:
        ValueError, TypeError: naming the part of the observation, its value and the bound or shape it violates, or
            the rule of the environment API that is violated.
        Exception: whatever the environment raises, with its own traceback and a note.
    """
    made = make_environment(factory, EnvContext(env_config, num_envs=num_envs))
    try:
        drives_itself, has_several = is_external(made), is_multi_agent(made)
    except BaseException:  # of a constructor that runs in the environment's own process
        close_all([made])
        raise
    if drives_itself and isinstance(made, EnvironmentProcess):
        close_all([made])
        raise Unfit(
            f"gym_env_vectorize_mode='async', but {factory.name} drives its own loop, whose calls are answered in the "
            "process of the worker.",
            'Use gym_env_vectorize_mode="sync", and more workers for more of them.',
            {"gym_env_vectorize_mode": "sync"},
        )
    if drives_itself:
        from rllib.env.external.examine import examine_external

        observed, acted, agents = examine_external(made, factory.name)
        return Examined(observed, acted, agents=agents, is_external=True)
    if has_several:
        from rllib.env.multi_agent.examine import examine_agents

        return Examined(None, None, agents=examine_agents(made, factory.name, check, action_mask_key))
    if tensors:
        hand_over_tensors(made)
    seeds = list(range(num_envs)) if isinstance(made, VectorEnv) else [0]
    with stream_over(lambda _: made, seeds, checked_steps=CHECKED_STEPS, info_columns=info_columns) as stream:
        goals = require_goals(stream.observation_space, stream.environments[0]) if needs_goals else None
        if check:
            try:
                _take_steps(stream, factory.name, action_mask_key, goals)
            except Exception as error:
                if chain := wrapper_chain(made):
                    error.add_note(f"the observation spaces, from the environment through its wrappers: {chain}")
                raise
        return Examined(stream.observation_space, stream.action_space, stream.device, steps_apart=stream.steps_apart)


def _take_steps(stream: EnvironmentStream, name: str, action_mask_key: str | None, goals: Goals | None) -> None:
    buffers = stream.new_buffers()
    stream.reset(buffers)
    draw = _legal_actions(stream, name, action_mask_key) or _any_actions(stream.action_space, stream.num_envs)
    ended: list = []
    for _ in range(CHECKED_STEPS):
        drawn = draw(buffers.observations, [index for index, _ in ended] if stream.has_gaps else [])
        ended = stream.step(drawn, buffers)
        if goals is not None:
            _check_goals(stream, buffers, ended, goals)


def _check_goals(stream: EnvironmentStream, buffers: StepBuffers, ended: list, goals: Goals) -> None:
    """Compares the rewards of one step with the results of compute_reward, for all environments."""
    following = buffers.observations.copy()
    for index, final in ended:
        following[index] = final
    made = np.ones(stream.num_envs, bool) if stream.reset_rows is None else ~stream.reset_rows
    names = [column.name for column in stream.info_columns if not column.before_action]
    infos = [{name: buffers.infos[name][i] for name in names} for i in np.flatnonzero(made)]
    if infos:
        rewards, terminated = buffers.rewards[made], buffers.terminated[made]
        check_computed(goals, stream.environments[0], following[made], rewards, terminated, infos)


def _any_actions(space, count: int) -> Callable:
    """(observations, environments that reset next) -> random actions."""
    space = copy.deepcopy(space)  # sampling must not move the generator of the user's space
    space.seed(0)

    def draw(observations: np.ndarray, resetting: list[int]):
        return batch_of(space, [space.sample() for _ in range(count)])

    return draw


def _legal_actions(stream: EnvironmentStream, name: str, key: str | None) -> Callable | None:
    """As `_any_actions`, for observations with a mask; None if they have none."""
    if not has_key(stream.observation_space, key):
        return None
    distribution = distribution_for(stream.action_space)
    columns = masked_columns(stream.observation_space, key, distribution)
    rng, masks = np.random.default_rng(0), MaskedOutputs(distribution)
    to_env = action_mapper(stream.action_space, distribution, True, False).to_env
    inputs = np.zeros((stream.num_envs, distribution.num_inputs), np.float32)

    def where(row: int) -> str:
        return f"{name} gives an observation without a legal action"

    def draw(observations: np.ndarray, resetting: list[int]) -> np.ndarray:
        mask = observations[:, columns]
        acting = np.ones(len(mask), bool)
        acting[resetting] = False
        if problem := choice_problem(mask, distribution, where, acting):
            raise ValueError(problem)
        masked = inputs.copy()
        masks.write(masked, masks.illegal(mask))
        return to_env(distribution.sample(masked, distribution.noise(rng, stream.num_envs)))

    return draw


class SpaceCheck:
    """Checks every observation that a policy receives in an evaluation against its space.

    One that is not finite, or no number of a Discrete space, is an error: the policy's answer would mean nothing. One
    beyond the bounds of a Box is logged once, since training accepts such observations, too.

    Args:
        stream: returns the observations.
        worker_index: for messages.
    """

    def __init__(self, stream: EnvironmentStream, worker_index: int):
        self._space = space = stream.observation_space
        if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
            self._space = space = gymnasium.spaces.flatten_space(space)  # they are stored flat
        self._worker_index = worker_index
        self._is_float = stream.observation_dtype.kind == "f"
        self._is_box = isinstance(space, gymnasium.spaces.Box)
        if self._is_box:
            self._low, self._high = (bound.astype(stream.observation_dtype) for bound in (space.low, space.high))
        else:
            self._low, self._high = space.start, space.start + space.n - 1
        # Pixels cannot leave their bounds.
        self._has_warned = stream.observation_dtype == np.uint8 and (self._low == 0).all() and (self._high == 255).all()

    def __call__(self, observations: np.ndarray, steps: int) -> None:
        """Checks observations [N, *shape] as stored.

        Args:
            observations: see above.
            steps: number of steps made before.

        Raises:
            ValueError: naming the environment and the step.
        """
        if self._is_float and not np.isfinite(observations.sum(dtype=np.float64)):
            raise ValueError(self._problem(observations, ~np.isfinite(observations), steps))
        if self._has_warned:
            return
        outside = (observations < self._low) | (observations > self._high)
        if not outside.any():
            return
        problem = self._problem(observations, outside, steps)
        if not self._is_box:
            raise ValueError(problem)
        self._has_warned = True
        logger.warning("%s; the evaluation continues, and further ones are not logged", problem)

    def _problem(self, observations: np.ndarray, is_bad: np.ndarray, steps: int) -> str:
        index = int(np.argwhere(is_bad)[0][0])
        row = observations[index]
        problem = mismatch(self._space, row) or f"observation {row.tolist()} is not finite"
        return f"environment {index} of evaluation worker {self._worker_index}: the {problem}, after {steps} steps"
