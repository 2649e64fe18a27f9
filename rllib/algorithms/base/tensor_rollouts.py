"""Checks whether rollouts can stay on the device of environments that return torch tensors."""

from collections.abc import Iterator
from typing import Protocol

import gymnasium

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.config.conflicts import Mistake
from rllib.evaluation.callbacks import DefaultCallbacks, hears
from rllib.evaluation.episode_hooks import EPISODE_HOOKS
from rllib.evaluation.postprocess.base import Postprocess
from rllib.exploration.explorers import Exploration, StochasticSampling
from rllib.policy import Policy
from rllib.sample_batch import DEFAULT_POLICY

PAGE = "docs/scale/learners.md"


def device_for(config: AlgorithmConfig, found: str | None, was_checked: bool) -> str | None:
    """The device of the rollouts; None if they are arrays.

    Args:
        config: settings of the algorithm.
        found: device of the tensors that the environment returned in the driver's check; None: it returned arrays.
        was_checked: whether the driver made this check.

    Raises:
        ValueError: if the config asks for tensors and the environment gives none.
    """
    if config.tensor_rollouts is False:
        return None
    if config.tensor_rollouts and was_checked and found is None:
        raise config.error(
            Mistake(
                "tensor_rollouts=True needs an environment that hands over torch tensors, but its reset() gives "
                "arrays.",
                ("tensor_rollouts",),
                ({"tensor_rollouts": None},),
                note='Or wrap the vector environment: gymnasium.wrappers.vector.NumpyToTorch(env, device="cuda").',
            )
        )
    if config.tensor_rollouts and found is None:
        return "cuda" if config.num_gpus else "cpu"
    return found


def refuse_agents(config: AlgorithmConfig) -> None:
    """Refuses a config that asks for rollouts of tensors in an environment with several agents."""
    if config.tensor_rollouts:
        raise config.error(
            Mistake(
                "tensor_rollouts=True is for environments with one agent, and this one has several.",
                ("tensor_rollouts",),
                ({"tensor_rollouts": None},),
            )
        )


class Sampling(Protocol):
    """The members of an algorithm that decide whether rollouts can be tensors."""

    config: AlgorithmConfig
    policy: Policy
    action_space: gymnasium.Space
    callbacks: DefaultCallbacks
    is_synchronous: bool
    takes_tensors: bool
    workers_learn: bool
    samples_sequences: bool

    def make_postprocess(self, policy_id: str) -> Postprocess: ...

    def make_exploration(self, config: AlgorithmConfig) -> Exploration: ...


def refuse(algorithm: Sampling, device: str) -> None:
    """Raises one ValueError with all settings and parts that exclude rollouts of tensors on this device."""
    problems = [*_of_settings(algorithm.config, device), *_of_parts(algorithm)]
    if problems:
        lines = "".join(f"\n- {problem}" for problem in problems)
        raise algorithm.config.error(
            Mistake(
                f"the environment hands over torch tensors on {device}, where rollouts are to stay ({PAGE}), but:"
                f"{lines}\n",
                ("tensor_rollouts",),
                ({"tensor_rollouts": False},),
                advice="Or use .rollouts(tensor_rollouts=False): each step is copied into arrays, which any algorithm "
                "takes.",
            )
        )


def _of_settings(config: AlgorithmConfig, device: str) -> Iterator[str]:
    if config.num_rollout_workers:
        yield (
            f"num_rollout_workers={config.num_rollout_workers}: tensors on a device do not travel between processes. "
            "Use .rollouts(num_rollout_workers=0)."
        )
    if config.num_learners:
        yield f"num_learners={config.num_learners}: one learner in this process. Use .learners(num_learners=0)."
    is_on_gpu = device.startswith("cuda")
    if is_on_gpu and not config.num_gpus:
        yield "num_gpus=0: the learner has to be on the same device. Use .resources(num_gpus=1)."
    if config.num_gpus and not is_on_gpu:
        yield (
            f"num_gpus={config.num_gpus:g}: the learner has to be on the same device. Make the environment on the GPU, "
            'such as by env_config={"device": "cuda"}, or use .resources(num_gpus=0).'
        )
    if config.batch_mode != "truncate_episodes":
        yield f'batch_mode="{config.batch_mode}": all environments are stepped at once. Use "truncate_episodes".'
    if config.normalize_returns:
        yield "normalize_returns=True is for arrays. Let the environment scale its rewards."
    if config.time_limit_ends_episode:
        yield "time_limit_ends_episode=True is for arrays. Let the environment terminate its episodes at the limit."
    if names := [column.name for column in config.get_info_columns()]:
        yield f"info_columns={names} are for arrays. Put the values into a Dict observation."
    if config.restart_failed_sub_environments:
        yield "restart_failed_sub_environments=True: the environments are one object. Leave it out."
    if config.action_mask_from != "observation":
        yield f'action_mask_from="{config.action_mask_from}": put the mask into a Dict observation.'


def _of_parts(algorithm: Sampling) -> Iterator[str]:
    """Messages about parts of the algorithm that need arrays."""
    from rllib.env.tensors.spaces import maps_tensors
    from rllib.models.tensors import draws_tensors

    name, config, policy = type(algorithm).__name__, algorithm.config, algorithm.policy
    is_able = algorithm.is_synchronous and algorithm.takes_tensors and not algorithm.workers_learn
    if not is_able or not algorithm.make_postprocess(DEFAULT_POLICY).takes_tensors:
        yield f"{name} has no form of its rollouts for tensors. Use PPO, A2C or PG."
        return
    if algorithm.samples_sequences:
        yield "recompute_advantages and intrinsic rewards (RND, Curiosity) need batches of arrays. Leave them out."
    if policy.state_size:
        yield "a policy with a memory is trained from arrays. Use a model without use_lstm, use_gru, use_attention."
    if not draws_tensors(policy.distribution) or not maps_tensors(algorithm.action_space):
        yield (
            f"actions of {algorithm.action_space} with the distribution {type(policy.distribution).__name__} are drawn "
            "as arrays. Use Discrete, MultiDiscrete, MultiBinary or Box of floats, and no custom_action_dist."
        )
    exploration = algorithm.make_exploration(config)
    if type(exploration) is not StochasticSampling or exploration.random_timesteps:
        yield f'exploration by {type(exploration).__name__} is for arrays. Use {{"type": "StochasticSampling"}}.'
    heard = _hooks_of_episodes(algorithm.callbacks)
    if heard:
        yield f"callbacks {', '.join(heard)}: single episodes are not followed. Use on_sample_end or on_train_result."


def _hooks_of_episodes(callbacks: DefaultCallbacks) -> list[str]:
    return [hook for hook in EPISODE_HOOKS if hears(callbacks, hook)]
