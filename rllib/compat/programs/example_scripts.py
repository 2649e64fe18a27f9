"""Command lines and runs of example scripts: Ray's module `ray.rllib.examples.utils`.

parser = add_rllib_example_script_args(default_reward=450)
args = parser.parse_args()
run_rllib_example_script_experiment(PPOConfig().environment("CartPole-v1"), args)
"""

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import runtime
from rllib import tune
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.compat.programs.constants import (
    ENV_RUNNER_RESULTS,
    EPISODE_RETURN_MEAN,
    EVALUATION_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    TRAINING_ITERATION,
    WANDB_ENV_VAR,
)
from rllib.processes import PRELOAD

RETURN = f"{ENV_RUNNER_RESULTS}/{EPISODE_RETURN_MEAN}"
EVALUATION_RETURN = f"{EVALUATION_RESULTS}/{RETURN}"


def _number_or_auto(text: str) -> int | str:
    return text if text == "auto" else int(text)


# Option -> keyword arguments of argparse's add_argument. A dict without "type" and "default" is a switch.
_OPTIONS: dict[str, dict[str, Any]] = {
    "--algo": {"type": str, "default": "PPO", "help": "algorithm by its name"},
    "--framework": {"choices": ["tf", "tf2", "torch"], "default": "torch", "help": "torch"},
    "--env": {"type": str, "default": None, "help": "environment, where the script names none"},
    "--num-env-runners": {"type": int, "default": None, "help": "processes that sample; 0: none but this"},
    "--num-envs-per-env-runner": {"type": int, "default": None, "help": "environments of each"},
    "--num-agents": {"type": int, "default": 0, "help": "agents of the script's environment; 0: one, without ids"},
    "--evaluation-num-env-runners": {"type": int, "default": 0, "help": "processes that evaluate"},
    "--evaluation-interval": {"type": int, "default": 0, "help": "iterations between two evaluations; 0: none"},
    "--evaluation-duration": {"type": _number_or_auto, "default": 10, "help": "episodes or timesteps, or auto"},
    "--evaluation-duration-unit": {"choices": ["episodes", "timesteps"], "default": "episodes"},
    "--evaluation-parallel-to-training": {"help": "evaluate while training continues"},
    "--output": {"type": str, "default": None, "help": "directory for the sampled steps"},
    "--log-level": {"choices": ["INFO", "DEBUG", "WARN", "ERROR"], "default": None},
    "--no-tune": {"help": "train in this process, without Tune"},
    "--num-samples": {"type": int, "default": 1, "help": "trials"},
    "--max-concurrent-trials": {"type": int, "default": None, "help": "trials that run at the same time"},
    "--verbose": {"type": int, "default": 2, "help": "0 to 2, of Tune"},
    "--checkpoint-freq": {"type": int, "default": 0, "help": "iterations between two checkpoints; 0: none"},
    "--checkpoint-at-end": {"help": "write a checkpoint at the end"},
    "--tune-max-report-freq": {"type": int, "default": 5, "help": "seconds between two tables of the trials"},
    "--wandb-key": {"type": str, "default": None, "help": "key of Weights & Biases; the runs are logged there"},
    "--wandb-project": {"type": str, "default": None},
    "--wandb-run-name": {"type": str, "default": None},
    "--as-test": {"help": "fail unless --stop-reward is reached"},
    "--as-release-test": {"help": "the same as --as-test"},
    "--num-learners": {"type": int, "default": None, "help": "processes that learn; 0: this one"},
    "--num-cpus-per-learner": {"type": float, "default": None},
    "--num-gpus-per-learner": {"type": float, "default": None, "help": "GPUs of each [default: 1 if there are enough]"},
    "--num-aggregator-actors-per-learner": {"type": int, "default": None, "help": "processes that join fragments"},
    "--num-cpus": {"type": int, "default": 0, "help": "CPUs of the session; 0: those of this machine"},
    "--num-gpus": {"type": int, "default": None, "help": "with --old-api-stack, GPUs of the learner"},
    "--old-api-stack": {"help": "settings by their names of 2.6; both work here"},
    "--enable-new-api-stack": {"help": argparse.SUPPRESS},
    "--local-mode": {"help": argparse.SUPPRESS},
}  # fmt: skip


def add_rllib_example_script_args(
    parser: argparse.ArgumentParser | None = None,
    default_reward: float = 100.0,
    default_iters: int = 200,
    default_timesteps: int = 100_000,
) -> argparse.ArgumentParser:
    """Adds the options that Ray's example scripts have in common.

    Args:
        parser: parser to which the options are added; None: a new one.
        default_reward, default_iters, default_timesteps: defaults of --stop-reward (mean return of episodes),
            --stop-iters (iterations) and --stop-timesteps (steps of the environments).

    Returns:
        The parser.
    """
    parser = argparse.ArgumentParser() if parser is None else parser
    for option, settings in _OPTIONS.items():
        is_switch = "default" not in settings
        parser.add_argument(option, **settings, **({"action": "store_true"} if is_switch else {}))
    parser.add_argument("--stop-reward", type=float, default=default_reward, help="mean return that ends the run")
    parser.add_argument("--stop-iters", type=int, default=default_iters, help="iterations that end it")
    parser.add_argument("--stop-timesteps", type=int, default=default_timesteps, help="steps that end it")
    return parser


def run_rllib_example_script_experiment(
    base_config: AlgorithmConfig,
    args: argparse.Namespace | None = None,
    *,
    stop: Mapping[str, float] | None = None,
    success_metric: Mapping[str, float] | None = None,
    trainable: Any = None,
    tune_callbacks: Sequence[Any] | None = None,
    keep_config: bool = False,
    keep_ray_up: bool = False,
    scheduler: Any = None,
    progress_reporter: Any = None,
) -> Any:
    """Trains by a config and the options of `add_rllib_example_script_args`, until one of the goals is reached.

    Args:
        base_config: config to which the options' settings are applied.
        args: the options; None: the options of the command line.
        stop: key of a result, as "env_runners/episode_return_mean", -> value that ends the run; None: as the options
            --stop-reward, --stop-timesteps and --stop-iters say.
        success_metric: key -> value that the best trial must reach with --as-test; None: the return in `stop`.
        trainable: trainable that Tune runs instead of the config's algorithm.
        tune_callbacks, scheduler, progress_reporter: objects of Tune.
        keep_config: leave `base_config` as it is.
        keep_ray_up: leave the session open.

    Returns:
        The last result with --no-tune, else Tune's ResultGrid.

    Raises:
        ValueError: for an option that is not supported; or with --as-test, if the goal was not reached.
    """
    args = add_rllib_example_script_args().parse_args() if args is None else args
    _check_options(args)
    as_test = args.as_test or args.as_release_test
    runtime.init(num_cpus=args.num_cpus or None, preload=PRELOAD, ignore_reinit_error=True)
    if stop is None:
        steps = f"{ENV_RUNNER_RESULTS}/{NUM_ENV_STEPS_SAMPLED_LIFETIME}"
        stop = {RETURN: args.stop_reward, steps: args.stop_timesteps, TRAINING_ITERATION: args.stop_iters}
    if not keep_config:
        _apply_options(base_config, args)
    try:
        if args.no_tune:
            return _train(base_config, stop, args.stop_iters)
        results = tune.Tuner(
            trainable or base_config.algo_class,
            param_space=base_config,
            run_config=tune.RunConfig(
                stop=dict(stop),
                verbose=1 if as_test else args.verbose,
                callbacks=[*(tune_callbacks or ()), *_trackers(base_config, args)],
                failure_config=tune.FailureConfig(max_failures=0, fail_fast="raise"),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=args.checkpoint_freq, checkpoint_at_end=args.checkpoint_at_end
                ),
                progress_reporter=progress_reporter or _reporter(base_config, args),
            ),
            tune_config=tune.TuneConfig(
                num_samples=args.num_samples, max_concurrent_trials=args.max_concurrent_trials, scheduler=scheduler
            ),
        ).fit()
    finally:
        if not keep_ray_up:
            runtime.shutdown()
    if as_test:
        _check_success(results, success_metric or _goal(stop, args))
    return results


def _check_options(args):
    if args.enable_new_api_stack:
        raise ValueError("--enable-new-api-stack is out of date: the names of both API stacks work. Leave it out.")
    if args.local_mode:
        raise ValueError("--local-mode is out of date. Use --no-tune --num-env-runners=0, or runtime.init('local').")
    if args.no_tune and (args.as_test or args.as_release_test):
        raise ValueError("--as-test looks at the best of Tune's trials: leave --no-tune out")


def _apply_options(config, args):
    config.framework(args.framework)
    if args.env is not None and config.env is None:
        config.environment(args.env)
    runners = {
        "num_env_runners": args.num_env_runners,
        "num_envs_per_env_runner": args.num_envs_per_env_runner,
    }
    config.env_runners(**{name: value for name, value in runners.items() if value is not None})
    if args.old_api_stack:
        config.api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False)
        if args.num_gpus is not None:
            config.resources(num_gpus=args.num_gpus)
    else:
        _apply_learners(config, args)
    if args.evaluation_interval > 0:
        config.evaluation(
            evaluation_num_env_runners=args.evaluation_num_env_runners,
            evaluation_interval=args.evaluation_interval,
            evaluation_duration=args.evaluation_duration,
            evaluation_duration_unit=args.evaluation_duration_unit,
            evaluation_parallel_to_training=args.evaluation_parallel_to_training,
        )
    if args.log_level is not None:
        config.debugging(log_level=args.log_level)
    if args.output is not None:
        config.offline_data(output=args.output)


def _apply_learners(config, args):
    """Learners as the options ask for; without --num-gpus-per-learner each gets a GPU, if there is one for each."""
    if args.num_gpus:
        raise ValueError("--num-gpus goes with --old-api-stack; else use --num-learners=N --num-gpus-per-learner=1")
    count = (config.num_learners if args.num_learners is None else args.num_learners) or 1
    there = runtime.cluster_resources().get("GPU", 0)
    each = args.num_gpus_per_learner
    if each is None:
        each = int(there >= count)
    elif each * count > there:
        raise ValueError(
            f"--num-gpus-per-learner={each:g} for {count} learner(s) asks for {each * count:g} GPUs, but there are "
            f"{there:g}. Leave the option out to learn without one."
        )
    asked = {
        "num_learners": args.num_learners,
        "num_gpus_per_learner": each,
        "num_cpus_per_learner": args.num_cpus_per_learner,
        "num_aggregator_actors_per_learner": args.num_aggregator_actors_per_learner,
    }
    config.learners(**{name: value for name, value in asked.items() if value is not None})


def _train(config, stop, iterations) -> Any:
    """Trains in this process, a line for each iteration; returns the last result."""
    result = None
    with config.build() as algorithm:
        for iteration in range(int(stop.get(TRAINING_ITERATION, iterations))):
            result = algorithm.train()
            line = f"iter={iteration} R={_value(result, RETURN)}"
            if (evaluated := _value(result, EVALUATION_RETURN)) is not None:
                line += f" R(eval)={evaluated}"
            print(line)
            if should_stop(stop, result, keep_ray_up=True):
                break
        return result


def should_stop(stop: Mapping[str, float], results: Mapping[str, Any], keep_ray_up: bool = False) -> bool:
    """Whether a result has reached one of the goals; the first that it has is printed.

    Args:
        stop: key, nested by "/", -> value. A result that has no number under it has not reached it.
        keep_ray_up: leave the session open when a goal is reached.
    """
    for key, goal in stop.items():
        value = _value(results, key)
        if isinstance(value, (int, float)) and value >= goal:  # NaN is not
            print(f"Stop criterion ({key}={goal}) fulfilled!")
            if not keep_ray_up:
                runtime.shutdown()
            return True
    return False


def check_learning_achieved(
    tune_results: Any, min_value: float, evaluation: bool | None = None, metric: str = RETURN
) -> None:
    """Checks that the best of Tune's trials has reached a value at any time.

    Args:
        tune_results: ResultGrid, or ExperimentAnalysis.
        evaluation: look at the evaluation's return.
        metric: key of a result.

    Raises:
        ValueError: if none has.
    """
    if evaluation:
        metric = EVALUATION_RETURN
    _check_success(tune_results, {metric: min_value})


def _value(result: Mapping[str, Any], key: str) -> Any:
    value: Any = result
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part.strip() not in value:
            return None
        value = value[part.strip()]
    return value


def _trackers(config, args) -> list:
    key = args.wandb_key or os.environ.get(WANDB_ENV_VAR)
    if not key:
        return []
    os.environ.setdefault(WANDB_ENV_VAR, key)
    named = {"name": args.wandb_run_name} if args.wandb_run_name else {}
    project = args.wandb_project or f"{args.algo}-{config.env}".lower()
    return [tune.WandbLoggerCallback(project=project, **named)]


def _reporter(config, args):
    columns = {
        TRAINING_ITERATION: "iter",
        "time_total_s": "total time (s)",
        NUM_ENV_STEPS_SAMPLED_LIFETIME: "ts",
        RETURN: "combined return" if args.num_agents else "episode return mean",
    }
    if args.num_agents:
        policies = f"{ENV_RUNNER_RESULTS}/module_episode_returns_mean"
        columns |= {f"{policies}/{policy}": f"return {policy}" for policy in config.policies or ()}
    return tune.CLIReporter(metric_columns=columns, max_report_frequency=args.tune_max_report_freq)


def _goal(stop, args) -> dict[str, float]:
    return next(({key: stop[key]} for key in (EVALUATION_RETURN, RETURN) if key in stop), {RETURN: args.stop_reward})


def _check_success(results, goals):
    trials = results.trials if isinstance(results, tune.ExperimentAnalysis) else [result.trial for result in results]
    for key, goal in goals.items():
        reached = [trial.metric_analysis[key]["max"] for trial in trials if key in trial.metric_analysis]
        best = max((value for value in reached if not math.isnan(value)), default=-math.inf)
        if best < goal:
            raise ValueError(f"`{key}` of {goal:g} not reached: the best trial has {best:g}")
        print(f"`{key}` of {goal} reached")
