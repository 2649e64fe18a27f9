"""What the config says about workers: what they do, what their processes need, and what happens when one fails."""

from functools import partial

from rllib.algorithms.algorithm_config import AlgorithmConfig
from rllib.env.registry import EnvFactory
from rllib.evaluation.callbacks import make_callbacks
from rllib.evaluation.fault_tolerance import FaultTolerance
from rllib.evaluation.settings import RolloutSettings


def rollout_settings(config: AlgorithmConfig, env: EnvFactory, **more) -> RolloutSettings:
    """What rollout workers and evaluation do.

    Args:
        config: of the algorithm.
        env: what makes its environments.
        more: what the algorithm decides: `policy`, `postprocess`, `seed`, `exploration`, `sequences`, `acts_among_all`,
            `learner`.
    """
    return RolloutSettings(
        env=env,
        env_config=dict(config.env_config),
        num_envs=config.num_envs_per_worker,
        fragment_length=config.get_rollout_fragment_length(),
        num_workers=config.num_rollout_workers,
        complete_episodes=config.batch_mode == "complete_episodes",
        explore=config.explore,
        normalize_actions=config.normalize_actions,
        clip_actions=config.clip_actions,
        clip_rewards=env.clips_rewards if config.clip_rewards is None else config.clip_rewards,
        callbacks=partial(make_callbacks, config.callbacks_class),
        config=config if config.callbacks_class else None,
        sample_timeout_s=config.sample_timeout_s,
        check_env=not config.disable_env_checking,
        seeds_driver=config.seed is not None,
        replace_failed_envs=config.restart_failed_sub_environments,
        **more,
    )


def actor_options(config: AlgorithmConfig) -> dict:
    """Resources of a worker, as for `runtime.remote`."""
    return {
        "num_cpus": config.num_cpus_per_worker,
        "num_gpus": config.num_gpus_per_worker,
        "resources": config.custom_resources_per_worker,
    }


def fault_tolerance(config: AlgorithmConfig) -> FaultTolerance:
    """What the config says about processes that fail."""
    restart = config.recreate_failed_workers
    if restart is None and config.ignore_worker_failures and config.needs_all_workers:
        restart = True
    return FaultTolerance(
        restart=restart,
        ignore=config.ignore_worker_failures,
        max_restarts=config.max_num_worker_restarts,
        delay_s=config.delay_between_worker_restarts_s,
        max_consecutive_failures=config.num_consecutive_worker_failures_tolerance,
        sample_timeout_s=config.sample_timeout_s,
    )
