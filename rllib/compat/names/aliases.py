"""Names of other versions of RLlib, in one place: their names here, and which of them have no effect here.

Ray 2.6's names are the canonical ones. A script may use other names; a log message (INFO, once per name) gives the
canonical one.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from rllib.notices import log_once, shortened

# Since Ray 2.10 rollout workers are called env runners.
RAY_2_10 = {
    "num_env_runners": "num_rollout_workers",
    "num_envs_per_env_runner": "num_envs_per_worker",
    "num_cpus_per_env_runner": "num_cpus_per_worker",
    "num_gpus_per_env_runner": "num_gpus_per_worker",
    "custom_resources_per_env_runner": "custom_resources_per_worker",
    "num_cpus_for_main_process": "num_cpus_for_local_worker",
    "num_gpus_per_learner": "num_gpus",
    "train_batch_size_per_learner": "train_batch_size",
    "minibatch_size": "sgd_minibatch_size",
    "num_epochs": "num_sgd_iter",
    "model_config": "model",
    "evaluation_num_env_runners": "evaluation_num_workers",
    "restart_failed_env_runners": "recreate_failed_workers",
    "ignore_env_runner_failures": "ignore_worker_failures",
    "max_num_env_runner_restarts": "max_num_worker_restarts",
    "delay_between_env_runner_restarts_s": "delay_between_worker_restarts_s",
    "num_consecutive_env_runner_failures_tolerance": "num_consecutive_worker_failures_tolerance",
    "model_config_dict": "model",
    # IMPALA's and APPO's.
    "num_aggregator_actors_per_learner": "num_aggregation_workers",
    "max_requests_in_flight_per_env_runner": "max_requests_in_flight_per_sampler_worker",
}

# Hooks that are given as functions, stored by name in the setting callback_functions. The last is Ray 0.8's.
HOOKS = (
    *("on_algorithm_init", "on_train_result", "on_evaluate_start", "on_evaluate_end", "on_checkpoint_loaded"),
    *("on_env_runners_recreated", "on_workers_recreated", "on_learn_on_batch", "on_create_policy"),
    *("on_environment_created", "on_sub_environment_created", "on_episode_created", "on_episode_start"),
    *("on_episode_step", "on_episode_end", "on_sample_end", "on_postprocess_trajectory", "on_postprocess_traj"),
)

# Spellings within Ray 2.0 - 2.9: attributes that differ from their arguments, and names of the first learner API.
RAY_2_6 = {
    "framework_str": "framework",
    "rl_module_spec": "model",
    "callbacks": "callbacks_class",
    "num_learner_workers": "num_learners",
    "num_gpus_per_learner_worker": "num_gpus",
    "num_cpus_per_learner_worker": "num_cpus_per_learner",
    "recreate_failed_env_runners": "recreate_failed_workers",
    # SAC's `optimization`.
    "actor_learning_rate": "actor_lr",
    "critic_learning_rate": "critic_lr",
    "entropy_learning_rate": "alpha_lr",
    # QMIX's.
    "optim_alpha": "decay",
    "optim_eps": "rmsprop_epsilon",
    # IMPALA's; an algorithm with a setting of this name keeps it.
    "epsilon": "rmsprop_epsilon",
    "enable_async_evaluation": "evaluation_parallel_to_training",
    "max_sample_requests_in_flight_per_worker": "max_requests_in_flight_per_sampler_worker",
    # Limits and modes of environments that are gymnasium's today.
    "horizon": "env_wrappers",
    "input": "input_",
    # Workers do the work of the learner_connectors that are accepted.
    "learner_connector": "env_to_module_connector",
    "remote_worker_envs": "gym_env_vectorize_mode",
}

# Keys of the config dicts of Ray 0.6 - 1.x.
RAY_0_8 = {
    "num_workers": "num_rollout_workers",
    "sample_batch_size": "rollout_fragment_length",
    "timesteps_per_batch": "train_batch_size",
    "lambda": "lambda_",
    "sgd_stepsize": "lr",
    "sgd_batchsize": "sgd_minibatch_size",
    "timesteps_per_iteration": "min_sample_timesteps_per_iteration",
    "min_iter_time_s": "min_time_s_per_iteration",
    "min_time_s_per_reporting": "min_time_s_per_iteration",
    "min_sample_timesteps_per_reporting": "min_sample_timesteps_per_iteration",
    "min_train_timesteps_per_reporting": "min_train_timesteps_per_iteration",
    "metrics_smoothing_episodes": "metrics_num_episodes_for_smoothing",
    "num_cpus_for_driver": "num_cpus_for_local_worker",
    "evaluation_num_episodes": "evaluation_duration",
    "use_pytorch": "framework",
    "vf_share_layers": "model",
    "learning_starts": "num_steps_sampled_before_learning_starts",
    "buffer_size": "replay_buffer_config",
    "prioritized_replay": "replay_buffer_config",
    "prioritized_replay_alpha": "replay_buffer_config",
    "prioritized_replay_beta": "replay_buffer_config",
    "prioritized_replay_eps": "replay_buffer_config",
    "worker_side_prioritization": "replay_buffer_config",
    "grad_norm_clipping": "grad_clip",
    "exploration_enabled": "explore",
    "Q_model": "q_model_config",
    "q_model": "q_model_config",
    "policy_model": "policy_model_config",
}

STABLE_BASELINES: Mapping[str, str] = {
    "env_wrapper": "env_wrappers",
    "replay_buffer_class": "replay_buffer_config",
    "replay_buffer_kwargs": "replay_buffer_config",
}

ALIASES: Mapping[str, str] = {
    **RAY_0_8,
    **RAY_2_6,
    **RAY_2_10,
    **STABLE_BASELINES,
    **dict.fromkeys(HOOKS, "callback_functions"),
}

# Result for a value without an effect: the setting keeps its value.
NOTHING = object()


def _model_of_spec(spec) -> Any:
    """The setting `model` for an RLModuleSpec (rllib/core), which this floor does not import."""
    if spec is None:
        return NOTHING
    if hasattr(spec, "to_models"):
        models = spec.to_models()
        return models["default_policy"] if list(models) == ["default_policy"] else {"of_policies": models}
    if not hasattr(spec, "to_model"):
        raise TypeError(
            f"rl_module_spec={spec!r:.80} must be an RLModuleSpec. Use .rl_module(rl_module_spec=RLModuleSpec("
            "module_class=MyModule, model_config={...})) with `from rllib.core import RLModuleSpec`."
        )
    return spec.to_model()


def _of_workers(make_pieces: Any) -> Any:
    """Nothing, for a learner_connector whose pieces repeat what the workers' connectors have done to the rows."""
    if make_pieces is None:
        return NOTHING
    try:
        made = make_pieces(None, None)
    except Exception:  # it reads spaces, as only pieces of a user's own do
        made = None
    pieces = made if isinstance(made, list | tuple) else [made]
    if all(getattr(piece, "is_done_by_workers", False) for piece in pieces):
        return NOTHING
    raise TypeError(
        f"learner_connector={shortened(make_pieces)} cannot be used: batches are changed by on_postprocess_trajectory "
        "and on_learn_on_batch of your callbacks, rewards by env_wrappers, and losses by learner_class, custom_loss "
        "and auxiliary_losses."
    )


def _hook_with(hook: str, function) -> Any:
    """A function for a hook as a part of the setting callback_functions."""
    return NOTHING if function is None else {hook: function}


# Names whose values have another form here; they can be set, but not read.
VALUE_CHANGES: Mapping[str, Callable[[Any], Any]] = {
    "use_pytorch": lambda value: "torch" if value else "tf",
    "vf_share_layers": lambda value: {"vf_share_layers": value},
    "buffer_size": lambda value: {"capacity": value},
    "replay_buffer_class": lambda value: {"type": value},
    "replay_buffer_kwargs": dict,
    "prioritized_replay": lambda value: {"type": "PrioritizedReplayBuffer" if value else "ReplayBuffer"},
    "prioritized_replay_alpha": lambda value: {"prioritized_replay_alpha": value},
    "prioritized_replay_beta": lambda value: {"prioritized_replay_beta": value},
    "prioritized_replay_eps": lambda value: {"prioritized_replay_eps": value},
    "worker_side_prioritization": lambda value: {"worker_side_prioritization": value},
    "horizon": lambda value: NOTHING if value is None else [{"TimeLimit": {"max_episode_steps": value}}],
    "remote_worker_envs": lambda value: "async" if value else NOTHING,
    "rl_module_spec": _model_of_spec,
    "learner_connector": _of_workers,
    **{hook: partial(_hook_with, hook) for hook in HOOKS},
}

# Values of other versions that have another name here: (setting, value) -> (value here, reason).
VALUES_TODAY: Mapping[tuple[str, str | int], tuple[Any, str]] = {
    ("evaluation_interval", 0): (None, "0 is no number of iterations"),
    ("observation_filter", "ConcurrentMeanStdFilter"): ("MeanStdFilter", "no threads share a filter here"),
    **{
        ("gym_env_vectorize_mode", mode.upper()): (mode, "modes are written in small letters")
        for mode in ("sync", "async", "vector_entry_point")
    },
}

# Settings that two names may give at once; the larger value counts. Ray has GPUs of the driver and of the learners, and
# here they always belong to a learner, wherever it is.
LARGER_OF_TWO = frozenset({"num_gpus"})

# Dicts of settings in Ray -> their keys that have no effect here.
DICTS_OF_SETTINGS: Mapping[str, frozenset[str]] = {
    "optimizer": frozenset({"debug"}),
    **dict.fromkeys(("optimization", "optimization_config"), frozenset()),
    # Ray 2.6's dict of the section multi_agent.
    "multiagent": frozenset({"replay_mode"}),
}
# Keys of a dict setting that are separate settings, as in Ray 1.13 and 2.0: setting -> key -> setting.
# The setting is also in KEYS_WITHOUT_EFFECT.
MOVED_OUT: Mapping[str, Mapping[str, str]] = {
    "replay_buffer_config": {
        **dict.fromkeys(("min_size_for_sampling", "learning_starts"), "num_steps_sampled_before_learning_starts"),
        **dict.fromkeys(("zero_init_states", "replay_zero_init_states"), "zero_init_states"),
    },
}
# Keys of Ray's dicts that the dict setting does not have here: setting -> key -> values without an effect. Any other
# value is refused as an unknown key.
KEYS_WITHOUT_EFFECT: Mapping[str, Mapping[str, tuple]] = {
    "replay_buffer_config": {
        "_enable_replay_buffer_api": (True, False),
        # -1 is Ray's mark of a key that is no longer there.
        "prioritized_replay": (-1,),
        "replay_batch_size": (-1,),
        "replay_mode": ("independent",),
        "replay_burn_in": (0,),
        "replay_zero_init_states": (True,),
        "storage_unit": ("timesteps",),
        "no_local_replay_buffer": (False,),
        "replay_buffer_shards_colocated_with_driver": (True,),
    },
    "q_model_config": {"post_fcnet_hiddens": ([],), "post_fcnet_activation": (None, "relu")},
}
# Keys of a dict setting that are another form of other keys: setting -> key -> value -> these other keys.
KEYS_TODAY: Mapping[str, Mapping[str, Callable[[Any], Mapping[str, Any]]]] = {
    "replay_buffer_config": {"prioritized_replay": VALUE_CHANGES["prioritized_replay"]},
}
# Dict of DICTS_OF_SETTINGS -> the settings that it has when it is read.
READABLE_DICTS: Mapping[str, tuple[str, ...]] = {
    "multiagent": ("policies", "policy_mapping_fn", "policies_to_train", "count_steps_by"),
}

_NO_COMPILE = "networks run uncompiled"
_OFFLINE_EVALUATION = (
    "this process evaluates on held-out episodes (offline_validation_fraction), all of them, once every "
    "offline_evaluation_interval"
)
_NO_DATA_PIPELINE = "files are read by the process that learns, before it learns"

# Names that are accepted without effect, since they switch something that is always on, or that does not exist here; a
# log message gives the reason.
IGNORED: Mapping[str, str] = {
    **dict.fromkeys(
        ("create_env_on_local_worker", "create_env_on_driver", "create_local_env_runner"),
        "this process makes an environment whenever it samples, evaluates or checks one",
    ),
    **dict.fromkeys(
        ("validate_workers_after_construction", "validate_env_runners_after_construction"),
        "workers are always waited for, and errors of their environments raised",
    ),
    **dict.fromkeys(
        ("worker_health_probe_timeout_s", "env_runner_health_probe_timeout_s"),
        "a dead worker is seen at once, without probes; a silent one after sample_timeout_s",
    ),
    **dict.fromkeys(
        ("worker_restore_timeout_s", "env_runner_restore_timeout_s"),
        "a replaced worker is waited for as long as any other; see sample_timeout_s",
    ),
    **dict.fromkeys(
        ("metrics_episode_collection_timeout_s", "collect_metrics_timeout", "metrics_episode_collection_timeout"),
        "metrics come with the samples, so nothing is waited for",
    ),
    **dict.fromkeys(
        (
            "_disable_preprocessor_api",
            "_enable_learner_api",
            "_enable_rl_module_api",
            "_enable_new_api_stack",
            "enable_connectors",
            "enable_rl_module_and_learner",
            "enable_env_runner_and_connector_v2",
            *("_disable_execution_plan_api", "_disable_action_flattening"),
            "_disable_initialize_loss_from_dummy_batch",
        ),
        "there is one stack, and nothing to switch",
    ),
    "_fake_gpus": "where GPUs are only pretended, num_gpus is 0",
    "compress_observations": "observations travel through shared memory, uncompressed",
    "auto_wrap_old_gym_envs": "environments of the old gym API are always adapted",
    **dict.fromkeys(
        ("synchronize_filters", "synchronize_filter", "merge_env_runner_states", "broadcast_env_runner_states"),
        "the statistics of all workers are always merged",
    ),
    **dict.fromkeys(
        (
            *("torch_compile_learner_dynamo_backend", "torch_compile_learner_what_to_compile"),
            "torch_compile_worker_dynamo_backend",
        ),
        _NO_COMPILE,
    ),
    **dict.fromkeys(
        (
            *("final_prioritized_replay_beta", "beta_annealing_fraction"),
            "prioritized_replay_beta_annealing_timesteps",
        ),
        "prioritized_replay_beta stays what it is, as in Ray since 1.0",
    ),
    "num_data_loader_buffers": "there is one GPU, with one batch on it",
    "shuffle_batch_per_epoch": "minibatches are drawn again in every epoch",
    "is_atari": "Atari games are known by their id; see preprocessor_pref",
    "log_gradients": "results always have the norm of the gradient, grad_gnorm",
    "torch_skip_nan_gradients": "an update that is not finite ends the run, and the weights stay as they were before",
    **dict.fromkeys(("episodes_to_numpy", "episode_lookback_horizon"), "rows are always arrays"),
    "_use_msgpack_checkpoints": "checkpoints are never pickles",
    "_validate_config": "settings are always checked",
    "evaluation_force_reset_envs_before_iteration": "an evaluation always begins with a reset",
    **dict.fromkeys(
        (
            "evaluation_auto_duration_min_env_steps_per_sample",
            "evaluation_auto_duration_max_env_steps_per_sample",
        ),
        'evaluation_duration="auto" lasts as long as the parallel training',
    ),
    **dict.fromkeys(
        (
            *("offline_eval_runner_class", "offline_loss_for_module_fn", "offline_eval_batch_size_per_runner"),
            *("dataset_num_iters_per_offline_eval_runner", "offline_eval_rl_module_inference_only"),
            *("num_cpus_per_offline_eval_runner", "num_gpus_per_offline_eval_runner"),
            *("custom_resources_per_offline_eval_runner", "offline_evaluation_timeout_s"),
            *("max_requests_in_flight_per_offline_eval_runner", "broadcast_offline_eval_runner_states"),
            *("validate_offline_eval_runners_after_construction", "restart_failed_offline_eval_runners"),
            *("ignore_offline_eval_runner_failures", "max_num_offline_eval_runner_restarts"),
            *("offline_eval_runner_restore_timeout_s", "offline_eval_runner_health_probe_timeout_s"),
            *("offline_evaluation_duration", "offline_evaluation_parallel_to_training"),
        ),
        _OFFLINE_EVALUATION,
    ),
    "offline_sampling": "samples come from input_ alone where it names data",
    "postprocess_inputs": "an algorithm computes from recorded steps what it needs, such as returns",
    "shuffle_buffer_size": "rows are drawn uniformly from all recorded ones",
    "ignore_final_observation": "BC reads no observation after the last step",
    **dict.fromkeys(
        (
            *("input_read_episodes", "input_read_sample_batches", "input_read_batch_size", "input_compress_columns"),
            *("input_read_method", "input_read_method_kwargs"),
        ),
        "formats of files, and packed columns, are known by what is in them",
    ),
    **dict.fromkeys(
        (
            *("materialize_data", "materialize_mapped_data", "map_batches_kwargs", "iter_batches_kwargs"),
            *("prelearner_buffer_kwargs", "prelearner_module_synch_period"),
            "prelearner_use_recorded_module_states",
        ),
        _NO_DATA_PIPELINE,
    ),
    **dict.fromkeys(
        (
            *("eager_tracing", "eager_max_retraces", "enable_tf1_exec_eagerly", "tf_single_threaded"),
            *("tf_session_args", "local_tf_session_args", "_tf_policy_handles_more_than_one_loss"),
        ),
        "there is no TensorFlow",
    ),
    **dict.fromkeys(
        (
            *("sync_filters_on_rollout_workers_timeout_s", "timeout_s_sampler_manager"),
            *("timeout_s_aggregator_manager", "timeout_s_replay_manager"),
        ),
        "filters and requests travel with the samples; see sample_timeout_s",
    ),
    **dict.fromkeys(("num_multi_gpu_tower_stacks", "local_gpu_idx"), "there is one GPU, with one batch on it"),
    "always_attach_evaluation_results": "results hold an evaluation in the iterations that evaluate",
    "sampler_perf_stats_ema_coef": "the results' timers are means over the iteration",
    "in_evaluation": "evaluation knows itself",
    "output_write_remaining_data": "what waits is always written when a run stops",
    **dict.fromkeys(
        ("policy_map_capacity", "policy_map_cache"), "a policy is a vector of weights, and all of a run stay in memory"
    ),
    **dict.fromkeys(
        ("use_env_runner_state_server", "env_runner_state_server_max_concurrency"),
        "weights and statistics reach the workers with every round",
    ),
    **dict.fromkeys(
        ("evaluation_error_after_n_consecutive_skips", "evaluation_unhealthy_workers_timeout_s"),
        "an evaluation waits until its dead workers are replaced, and skips nothing",
    ),
    "policy_states_are_swappable": "a policy's weights are copied in any case",
    "vtrace_drop_last_ts": "the value of what followed the last step is known, so no step is dropped",
    "simple_optimizer": "the learner is chosen by .training(learner=...)",
    "num_cpus": "a run claims the CPUs of its workers and learners, num_cpus_per_worker and the like",
}

# Names of which every value is accepted without a warning: there is nothing to switch here.
_OF_OTHER_STACKS = frozenset(
    name
    for name, reason in IGNORED.items()
    if reason in ("there is one stack, and nothing to switch", "there is no TensorFlow")
) | {"_fake_gpus", "_validate_config", "_use_msgpack_checkpoints", "in_evaluation", "is_atari", "simple_optimizer"}
# Ray's defaults of the other names, in any version, in addition to None, False and empty values; for any other value, a
# warning says that it is not supported here.
_DEFAULTS_OF_IGNORED: Mapping[str, tuple] = {
    **dict.fromkeys(
        (
            *("create_env_on_local_worker", "create_env_on_driver", "create_local_env_runner", "log_gradients"),
            *("validate_workers_after_construction", "validate_env_runners_after_construction"),
            *("auto_wrap_old_gym_envs", "synchronize_filters", "synchronize_filter", "broadcast_env_runner_states"),
            *("shuffle_batch_per_epoch", "episodes_to_numpy", "evaluation_force_reset_envs_before_iteration"),
            *("materialize_mapped_data", "always_attach_evaluation_results", "vtrace_drop_last_ts"),
            *("output_write_remaining_data", "policy_states_are_swappable", "restart_failed_offline_eval_runners"),
            *("validate_offline_eval_runners_after_construction", "offline_eval_rl_module_inference_only"),
            "broadcast_offline_eval_runner_states",
        ),
        (True,),
    ),
    **dict.fromkeys(("worker_health_probe_timeout_s", "env_runner_health_probe_timeout_s"), (60, 30)),
    **dict.fromkeys(("worker_restore_timeout_s", "env_runner_restore_timeout_s"), (1800,)),
    **dict.fromkeys(("metrics_episode_collection_timeout_s", "metrics_episode_collection_timeout"), (60, 180)),
    "collect_metrics_timeout": (60, 180),
    "num_cpus": (0, 1),
    "merge_env_runner_states": ("training_only", True),
    "torch_compile_learner_dynamo_backend": ("inductor", "aot_eager"),
    "torch_compile_worker_dynamo_backend": ("onnxrt", "aot_eager"),
    "final_prioritized_replay_beta": (0.4, 1.0),
    "beta_annealing_fraction": (0.2, -1),
    "prioritized_replay_beta_annealing_timesteps": (20_000, 100_000),
    "num_data_loader_buffers": (1,),
    "episode_lookback_horizon": (1,),
    "evaluation_auto_duration_min_env_steps_per_sample": (100,),
    "evaluation_auto_duration_max_env_steps_per_sample": (2000,),
    "input_compress_columns": (["obs", "new_obs"],),
    "input_read_method": ("read_parquet", "read_json"),
    "prelearner_module_synch_period": (10,),
    **dict.fromkeys(("timeout_s_sampler_manager", "timeout_s_aggregator_manager", "timeout_s_replay_manager"), (0.0,)),
    "sync_filters_on_rollout_workers_timeout_s": (60, 10),
    "num_multi_gpu_tower_stacks": (1,),
    "local_gpu_idx": (0,),
    "policy_map_capacity": (100,),
    "env_runner_state_server_max_concurrency": (16,),
    "evaluation_unhealthy_workers_timeout_s": (0.0,),
    "offline_eval_batch_size_per_runner": (256,),
    "dataset_num_iters_per_offline_eval_runner": (1,),
    "num_cpus_per_offline_eval_runner": (1,),
    "num_gpus_per_offline_eval_runner": (0,),
    "offline_evaluation_timeout_s": (120,),
    "max_requests_in_flight_per_offline_eval_runner": (1,),
    "max_num_offline_eval_runner_restarts": (1000,),
    "offline_eval_runner_restore_timeout_s": (1800,),
    "offline_eval_runner_health_probe_timeout_s": (30,),
    "offline_evaluation_duration": (1,),
}


def asks_for_something(name: str, value) -> bool:
    """Whether an ignored name has a value that is not supported here."""
    if name in _OF_OTHER_STACKS or value is None or value is False:
        return False
    plain = isinstance(value, bool | int | float | str | list | dict | tuple)
    return not (plain and (value in ({}, [], ()) or value in _DEFAULTS_OF_IGNORED.get(name, ())))


class Unavailable(NamedTuple):
    """A name of RLlib's that has no setting here; values without an effect are accepted."""

    harmless: tuple
    sentence: str


UNAVAILABLE: Mapping[str, Unavailable] = {
    "soft_horizon": Unavailable((False,), "episodes end where the environment says so"),
    "no_done_at_end": Unavailable(
        (False,), "episodes end where the environment says so, and one that a time limit cuts is bootstrapped"
    ),
    "monitor": Unavailable((False, None), "use .evaluation(evaluation_videos=1)"),
    "sample_async": Unavailable(
        (False,), "leave it out: PQN and what learns from a replay take it, IMPALA, APPO and A3C always do so"
    ),
    "optimizer": Unavailable((None,), "use opt_type, adam_epsilon, grad_clip and lr"),
    "placement_strategy": Unavailable(("PACK",), "everything runs on one machine"),
    "custom_evaluation_function": Unavailable((None,), "use the result of algo.evaluate()"),
    "custom_eval_function": Unavailable((None,), "use the result of algo.evaluate()"),
    "evaluation_sample_timeout_s": Unavailable((180.0, 120.0), "use sample_timeout_s"),
    **dict.fromkeys(
        ("offline_data_class", "prelearner_class", "prelearner_buffer_class"),
        Unavailable((None,), "write a function of an IOContext that returns a reader, and give it as input_"),
    ),
    **dict.fromkeys(
        ("input_filesystem", "input_filesystem_kwargs"),
        Unavailable((None, {}), "download the files first, and give their paths as input_"),
    ),
    **dict.fromkeys(
        ("output_filesystem", "output_filesystem_kwargs"),
        Unavailable((None, {}), "files are written on this machine; copy them afterwards"),
    ),
    **dict.fromkeys(
        ("output_write_method", "output_write_method_kwargs"),
        Unavailable((None, {}, "write_parquet", "write_json"), "use output_config={'format': 'parquet'}"),
    ),
    "observation_fn": Unavailable((None,), "wrap the environment, so that its observations are the changed ones"),
    "algorithm_config_overrides_per_module": Unavailable(
        ({}, None),
        "it is a dict of policy id -> settings, which policies={'p0': PolicySpec(config={'lr': 1e-4})} has then",
    ),
    "extra_python_environs_for_driver": Unavailable(({}, None), "set them in os.environ before the algorithm is built"),
    "extra_python_environs_for_worker": Unavailable(({}, None), "set them in os.environ before the algorithm is built"),
    "torch_compile_learner": Unavailable((False,), _NO_COMPILE),
    "torch_compile_learner_dynamo_mode": Unavailable((None,), _NO_COMPILE),
    "torch_compile_worker": Unavailable((False,), _NO_COMPILE),
    "torch_compile_worker_dynamo_mode": Unavailable((None,), _NO_COMPILE),
    # Settings of some algorithms that all of Ray's configs carry.
    "max_requests_in_flight_per_sampler_worker": Unavailable((2,), "each round asks every worker once"),
    "max_requests_in_flight_per_aggregator_worker": Unavailable((2,), "an aggregator has one batch to join at a time"),
    "num_aggregation_workers": Unavailable((0,), "IMPALA and APPO alone have it"),
    "differentiable_learner_configs": Unavailable(([], None), "no algorithm here learns to learn"),
    "custom_stats_cls_lookup": Unavailable(
        ({}, None), "values that are logged are reduced by log_value(..., reduce=...) (docs/start/from_rllib.md)"
    ),
    **dict.fromkeys(
        ("_env_runners_only", "_skip_learners"),
        Unavailable((False,), "rllib train --profile says what takes the time of a run"),
    ),
    "replay_mode": Unavailable(("independent", None), "the rows of each policy are drawn independently"),
    "use_critic": Unavailable((True,), "V-trace needs the critic"),
    "use_gae": Unavailable((True,), "V-trace has its own advantages"),
    "tau": Unavailable((1.0,), "the target network is copied whole"),
    "env_runner_cls": Unavailable((None,), "workers are always RolloutWorkers"),
    "update_worker_filter_stats": Unavailable((True,), "the statistics of all workers are always merged"),
    "use_worker_filter_stats": Unavailable((True,), "the statistics of all workers are always merged"),
    "remote_env_batch_wait_ms": Unavailable((0,), "environments live in their worker's process; use more workers"),
    "_learner_class": Unavailable((None,), "override make_learner of the trainee (docs/project/extend.md)"),
    "worker_cls": Unavailable((None,), "workers are always RolloutWorkers"),
    "sample_collector": Unavailable((None,), "workers write the rows of a batch as they come"),
    "optimization_config": Unavailable((None,), "use actor_lr, critic_lr and alpha_lr"),
    **dict.fromkeys(
        tuple(
            f"add_default_connectors_to_{pipeline}_pipeline"
            for pipeline in (
                "env_to_module",
                "module_to_env",
                "learner",
            )
        ),
        Unavailable((True,), "what the default connectors of RLlib do is always done"),
    ),
    **dict.fromkeys(
        ("on_evaluate_offline_start", "on_evaluate_offline_end", "on_offline_eval_runners_recreated"),
        Unavailable(
            (None,), "use on_train_result, whose result has the losses on held-out data (docs/guide/own_code.md)"
        ),
    ),
    **dict.fromkeys(
        ("num_sgd_iter", "sgd_minibatch_size"),
        Unavailable((None, 1, "auto"), "a train batch makes one update here, whose rows are train_batch_size"),
    ),
    **dict.fromkeys(
        ("max_requests_in_flight_per_learner", "max_requests_in_flight_per_aggregator_actor"),
        Unavailable((2, 3, 10, 100), "a learner and an aggregator have one batch at a time"),
    ),
    "use_circular_buffer": Unavailable((True, False), "APPO's ring has circular_buffer_num_batches"),
    "target_worker_clipping": Unavailable((2.0,), "ratios are clipped by clip_param alone"),
    "simple_queue_size": Unavailable((32,), "use learner_queue_size"),
    "torch_ddp_kwargs": Unavailable(({}, None), "gradients are summed by learner_collective"),
    "_torch_grad_scaler_class": Unavailable((None,), "use torch_autocast, which needs no scaling of gradients"),
    "_torch_lr_scheduler_classes": Unavailable((None,), "use a schedule: lr=[[0, 1e-3], [100_000, 1e-4]]"),
    "custom_resources_per_learner": Unavailable(({}, None), "a learner claims num_cpus_per_learner and num_gpus"),
    "custom_resources_for_main_process": Unavailable(({}, None), "this process claims CPUs alone"),
    "num_offline_eval_runners": Unavailable((None, 0, 1), _OFFLINE_EVALUATION),
    "offline_evaluation_type": Unavailable(
        (None, "eval_loss"), "losses on held-out episodes are one kind; for returns use off_policy_estimation_methods"
    ),
    # Of Ray 0.8.
    "soft_q": Unavailable((False,), "use exploration_config={'type': 'SoftQ', 'temperature': 1.0}"),
    "softmax_temp": Unavailable((1.0,), "use exploration_config={'type': 'SoftQ', 'temperature': 1.0}"),
    "parameter_noise": Unavailable((False,), "use exploration_config={'type': 'ParameterNoise'}"),
    "exploration_should_anneal": Unavailable((True,), "equal initial_scale and final_scale in exploration_config"),
    "_fake_sampler": Unavailable((False,), "samples come from the environment"),
    "grads_per_step": Unavailable((100,), "use min_sample_timesteps_per_iteration"),
    "eager": Unavailable((False,), "there is no TensorFlow"),
    "replay_ratio": Unavailable(
        (0.0,), "use replay_proportion=ratio / (1 - ratio), the number of replayed batches for each new one"
    ),
    "input_evaluation": Unavailable(
        (None, [], ["is", "wis"], ["simulation"]),
        "use .evaluation(off_policy_estimation_methods={'is': {'type': 'is'}, 'wis': {'type': 'wis'}})",
    ),
    **dict.fromkeys(
        ("memory", "memory_per_worker", "object_store_memory", "object_store_memory_per_worker"),
        Unavailable((0, None), "runtime.init(object_store_memory=...) bounds the store of the whole session"),
    ),
    "logger_creator": Unavailable((None,), "use tune.run(callbacks=[...]), or on_train_result of your callbacks"),
    "logger_config": Unavailable((None,), "use tune.run(callbacks=[...]), or on_train_result of your callbacks"),
    "fake_sampler": Unavailable((False,), "samples come from the environment"),
    "replay_sequence_length": Unavailable((None,), "networks with memory are not available yet"),
    "_separate_vf_optimizer": Unavailable((False,), "one optimizer moves policy and value"),
    "_lr_vf": Unavailable((0.0005,), "one optimizer moves policy and value"),
    "after_train_step": Unavailable((None,), "use on_train_result of your callbacks"),
    "before_learn_on_batch": Unavailable((None,), "use on_learn_on_batch of your callbacks"),
    "_minibatch_size": Unavailable(("auto",), "the learner takes whole train batches"),
    "categorical_distribution_temperature": Unavailable((1.0,), "use exploration_config with type SoftQ"),
    "_deterministic_loss": Unavailable((False,), "SAC's losses draw actions; TD3 has a deterministic actor"),
    "_use_beta_distribution": Unavailable((False,), "bounded actions are drawn from a squashed normal distribution"),
    "use_state_preprocessor": Unavailable(
        (False,), "networks read observations as they are; use more fcnet_hiddens in policy_model_config"
    ),
    # Of Stable-Baselines3.
    "use_sde": Unavailable((False,), "use .training(model={'use_sde': True})"),
    "use_sde_at_warmup": Unavailable((False,), "use exploration_config={'random_timesteps': 0}"),
    "sde_sample_freq": Unavailable((-1,), "use .training(model={'sde_sample_freq': 4})"),
    "rollout_buffer_class": Unavailable(
        (None,), "a train batch is a SampleBatch; see postprocess in docs/guide/own_code.md"
    ),
    "rollout_buffer_kwargs": Unavailable((None, {}), "a train batch is a SampleBatch"),
    "optimize_memory_usage": Unavailable(
        (False,), "a replay stores every observation once; use replay_buffer_config={'frame_stack_axis': -1} for stacks"
    ),
    "burnin_len": Unavailable((0,), "BC and MARWIL alone have it, as burn_in"),
    "burn_in_len": Unavailable((0,), "R2D2 has .training(replay_buffer_config={'replay_burn_in': 20})"),
    "zero_policy": Unavailable((True,), "directions start from the policy's initial weights"),
    "alive_bonus_offset": Unavailable((0,), "ARS has .training(offset=...), which is subtracted from rewards"),
}

# Ray's mark of a key that is no longer there, which its files of settings (params.json) hold, and names that have it in
# some version. No setting here of these names has a meaning for -1.
_GONE = -1
_MARKED_GONE = frozenset(
    {
        *RAY_0_8,
        *("burn_in", "custom_async_evaluation_function", "enable_async_evaluation", "monitor", "policy_map_cache"),
        *("replay_batch_size", "replay_mode", "replay_sequence_length", "sample_async", "sgd_minibatch_size"),
        *("target_update_frequency", "use_critic", "use_state_preprocessor", "worker_cls", "input_evaluation"),
        *("horizon", "soft_horizon", "no_done_at_end", "evaluation_num_episodes"),
    }
)
# Names that Ray's configs write into their files about themselves -> values without an effect.
_NOTES: Mapping[str, tuple] = {
    **dict.fromkeys(("_is_atari", "_rl_module_spec"), (None, True, False)),
    **dict.fromkeys(("_env_to_module_connector", "_module_to_env_connector", "_learner_connector"), (None,)),
    **dict.fromkeys(("_model_config", "_per_module_overrides"), ({}, None)),
    **dict.fromkeys(
        (
            *("_dont_auto_sync_env_runner_states", "_evaluation_parallel_to_training_wo_thread"),
            *("_run_training_always_in_thread", "_set_off_policy_estimation_methods", "input_spaces_jsonable"),
        ),
        (True, False),
    ),
    "num_gpu_loader_threads": (8,),
}
# Ray's note of the exploration_config before it was switched off: any value.
_PRIOR_EXPLORATION = ("_AlgorithmConfig__prior_exploration_config", "_prior_exploration_config")
# Ray's defaults in its files that no setting here can have; texts by their beginning.
_DEFAULTS_OF_RAY: Mapping[str, tuple] = {
    **dict.fromkeys(
        ("callbacks", "callbacks_class"),
        ("<class 'ray.rllib.algorithms.callbacks.DefaultCallbacks'>", "<class 'ray.rllib.callbacks.callbacks.RLlib"),
    ),
    "policies": ({"default_policy": [None, None, None, None]}, {"default_policy": {}}),
    "policy_mapping_fn": ("<function AlgorithmConfig.DEFAULT_POLICY_MAPPING_FN at ",),
    "sample_collector": ("<class 'ray.rllib.evaluation.collectors.",),
    "lambda": (1.0,),  # of BC and MARWIL, which do not bootstrap
    "max_requests_in_flight_per_env_runner": (1,),
    "max_requests_in_flight_per_replay_worker": (float("inf"),),
    "smooth_target_policy": ([True], (True,)),
    "train_batch_size_per_learner": (None,),
}


# Ray's defaults by names of other versions, which its files have in addition to the names here.
_DEFAULTS_BY_OTHER_NAMES: Mapping[str, tuple] = {
    **dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "entropy_learning_rate"), (3e-4,)),
    "circular_buffer_num_batches": (4, 8),
    "circular_buffer_iterations_per_batch": (2, 20),
}


def gives_way(name: str, value) -> bool:
    """Whether a value under this name counts only if the setting has no other value under another name."""
    if name in _DEFAULTS_BY_OTHER_NAMES:
        return isinstance(value, int | float) and value in _DEFAULTS_BY_OTHER_NAMES[name]
    return isinstance(value, dict) and not value  # tables and arrays have an == of their own


def is_written_by_ray(name: str, value) -> bool:
    """Whether Ray writes this name and value into its files of settings without an effect.

    A number that a setting here can have still counts.
    """
    if name in _PRIOR_EXPLORATION:
        return True
    if type(value) is int and value == _GONE:
        return name in _MARKED_GONE
    values = (*_NOTES.get(name, ()), *_DEFAULTS_OF_RAY.get(name, ()))
    return any(
        value.startswith(each) if isinstance(each, str) and isinstance(value, str)
        else type(value) is type(each) and value == each
        for each in values
    )  # fmt: skip


# Names of other libraries (and, where the text says so, of other algorithms of Ray): hints for error messages, since
# the values do not always mean the same. The first hint counts whose settings, joined by +, the algorithm has.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "learning_rate": ("lr",),
    "anneal_lr": ("lr",),
    "n_envs": ("num_envs_per_worker",),
    "num_envs": ("num_envs_per_worker",),
    # A number for each environment there, for all together here.
    "n_steps": ("n_step", "train_batch_size"),
    "num_steps": ("rollout_fragment_length",),
    "batch_size": ("sgd_minibatch_size", "train_batch_size"),
    "n_epochs": ("num_sgd_iter",),
    "update_epochs": ("num_sgd_iter",),
    "gae_lambda": ("lambda_",),
    "clip_range": ("clip_param",),
    "clip_range_vf": ("vf_clip_param",),
    "clip_coef": ("clip_param",),
    "clip_vloss": ("vf_clip_param",),
    "num_minibatches": ("sgd_minibatch_size",),
    "ent_coef": ("entropy_coeff", "initial_alpha+target_entropy"),
    "vf_coef": ("vf_loss_coeff",),
    "max_grad_norm": ("grad_clip",),
    "normalize_advantage": ("standardize_advantages",),
    "norm_adv": ("standardize_advantages",),
    "rms_prop_eps": ("rmsprop_epsilon",),
    "use_rms_prop": ("opt_type",),
    "optimizer_class": ("opt_type",),
    "target_update_interval": ("target_network_update_freq",),
    "target_network_frequency": ("target_network_update_freq",),
    "target_policy_noise": ("target_noise",),
    "train_freq": ("rollout_fragment_length+training_intensity", "rollout_fragment_length"),
    "train_frequency": ("rollout_fragment_length+training_intensity", "rollout_fragment_length"),
    "gradient_steps": ("training_intensity",),
    "action_noise": ("exploration_config",),
    "start_e": ("exploration_config",),
    "end_e": ("exploration_config",),
    "policy_kwargs": ("model",),
    "tensorboard_log": ("log_dir",),
    "verbose": ("log_level",),
    "device": ("num_gpus",),
    "stats_window_size": ("metrics_num_episodes_for_smoothing",),
    "eval_freq": ("evaluation_interval",),
    "n_eval_episodes": ("evaluation_duration",),
    "n_delta": ("num_rollouts",),
    "n_top": ("rollouts_used",),
    "delta_std": ("noise_stdev",),
    "env_id": ("env",),
    "wrapper_class": ("env_wrappers",),
    "gpu": ("num_gpus",),
}

# Keys of the setting `model` by their names in other libraries, and settings that replace it.
OF_MODEL: Mapping[str, str] = {
    **dict.fromkeys(
        ("hidden_layer_sizes", "hidden_layers", "hidden_sizes", "hidden_units", "net_arch", "layer_sizes", "layers"),
        "fcnet_hiddens",
    ),
    **dict.fromkeys(("hidden_activation", "activation", "activation_fn", "nonlinearity"), "fcnet_activation"),
    **{name: name for name in ("fcnet_hiddens", "fcnet_activation", "conv_filters", "custom_model", "use_lstm")},
    "lstm_hidden_size": "lstm_cell_size",
    "ortho_init": "orthogonal_gains",
    "share_features_extractor": "vf_share_layers",
    "shared_lstm": "vf_share_memory",
    "features_extractor_class": "custom_model",
    "features_extractor_kwargs": "custom_model_config",
}

# Other names of sections, and settings that a section accepts in addition to its own, as in some version of RLlib.
SECTION_ALIASES: Mapping[str, str] = {"env_runners": "rollouts", "rl_module": "training"}
_OF_FAULTS = frozenset(
    {
        "recreate_failed_workers",
        "ignore_worker_failures",
        "restart_failed_sub_environments",
        "max_num_worker_restarts",
        "delay_between_worker_restarts_s",
        "num_consecutive_worker_failures_tolerance",
    }
)
GUESTS: Mapping[str, frozenset[str]] = {
    "rollouts": _OF_FAULTS,
    "env_runners": frozenset(
        {
            *("explore", "exploration_config"),
            *("num_cpus_per_worker", "num_gpus_per_worker", "custom_resources_per_worker"),
            *("max_requests_in_flight_per_sampler_worker", *_OF_FAULTS),
        }
    ),
    "training": frozenset({"clip_actions"}),
    "resources": frozenset({"num_learners", "num_cpus_per_learner"}),
    "learners": frozenset({"num_gpus", "num_aggregation_workers", "learner_class", "learner_config_dict"}),
}

# Sections of RLlib that do not exist here -> the reason.
UNAVAILABLE_SECTIONS: Mapping[str, str] = {
    "python_environment": "workers run the Python of this process; install what they need there",
}


def other_names(setting: str) -> list[str]:
    """Names of a setting, or of a part of it, in other versions."""
    return [other for other, name in ALIASES.items() if name == setting]


def translate(name: str, value) -> tuple[str, Any]:
    """The canonical name and value for a name of any version; an unknown name is returned unchanged."""
    canonical = ALIASES.get(name)
    if canonical is None:
        return name, value
    log_once(name, f"the setting {name} is called {canonical} here")
    return canonical, VALUE_CHANGES.get(name, lambda same: same)(value)


def value_today(name: str, value):
    """The present name of a setting's value from any version; other values are returned unchanged.

    A class of torch that represents an activation becomes its name, which files and checkpoints can hold, and a
    DefaultModelConfig a dict.
    """
    if name == "model" and dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        today = _estimator_today if name == "off_policy_estimation_methods" else activation_today
        return {key: today(item) for key, item in value.items()}
    if name == "gym_env_vectorize_mode" and isinstance(value, enum.Enum):  # gymnasium.VectorizeMode
        return value.value
    today = VALUES_TODAY.get((name, value)) if isinstance(value, str | int) else None
    if today is None:
        return value
    log_once(f"{name}={value}", f"{name}={value!r} is {today[0]!r} here: {today[1]}")
    return today[0]


def _estimator_today(given):
    """Arguments of an estimator with names instead of the library's classes, which files can hold."""
    if isinstance(given, type) and given.__module__.startswith("rllib.evaluation.estimators."):
        return given.__name__
    if isinstance(given, Mapping):
        return {key: _estimator_today(item) for key, item in given.items()}
    return given


# torch's modules of these functions, by their names.
ACTIVATIONS_OF_TORCH = {
    "Tanh": "tanh",
    "ReLU": "relu",
    "SiLU": "swish",
    "Sigmoid": "sigmoid",
    "ELU": "elu",
    "LeakyReLU": "leaky_relu",
    "GELU": "gelu",
    "Identity": "linear",
}


def activation_today(value):
    """Name of an activation that is given as a class of torch, such as torch.nn.Tanh; other values unchanged."""
    is_of_torch = isinstance(value, type) and value.__module__.startswith("torch.nn.")
    return ACTIVATIONS_OF_TORCH.get(value.__name__, value) if is_of_torch else value
