"""Attributes of other libraries' classes that this library's classes do not have -> what to write instead, by class.

`explains` (did_you_mean.py) gives a class its table. tools/rllib_names.py tries every name of RLlib's classes, and
lists names that are neither in the class nor in its table.
"""

from collections.abc import Mapping


def _rows(advice: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, advice)


_FILES = "checkpoints are made of files, not of pickled objects; use save() and Algorithm.from_checkpoint(path)"
_REPLACED = "workers that have died are replaced automatically (docs/project/faults.md)"
_H5 = "there is no TensorFlow; use set_weights(), or Policy.from_checkpoint(path).get_weights()"
_CONNECTORS = (
    "connectors are functions of the config, .env_runners(env_to_module_connector=...) (docs/start/from_rllib.md)"
)
_LEARN = "use algo.learn_on_batch(batch, lr=...) (docs/guide/own_code.md)"
_NO_BUFFER_ON_GPU = f"a learner takes whole train batches: {_LEARN}"
_LEARNERS = "use algo.learners, which has a learner for each policy id, or algo.learn_on_batch(batch, lr=...)"
_SCHEDULED = "results have it under info/learner, and the config has the setting, which may be a schedule"

# For programs that set an attribute that does not exist here.
SETTING = (
    "Settings change by schedules (docs/guide/exploration.md), or from a checkpoint on, "
    "Algorithm.from_checkpoint(algo.save(), {SETTING: VALUE})."
)

ALGORITHM: Mapping[str, str] = {
    **_rows(_LEARNERS, "optimizer"),
    **_rows(_FILES, "get_checkpointable_components", "get_ctor_args_and_kwargs", "get_metadata", "from_state"),
    **_rows(_REPLACED, "restore_workers", "restore_env_runners", "restore_offline_eval_runners"),
    **_rows(_H5, "import_model", "import_policy_model_from_h5"),
    **_rows("use config.validate(), which build() calls, and @relation (docs/project/extend.md)", "validate_config"),
    **_rows("use the command rllib check-env, or rllib.check_env(env)", "validate_env"),
    **_rows("override training_step (docs/project/extend.md)", "execution_plan"),
    **_rows("use tune.run(stop=...), or a loop around train()", "should_stop"),
    **_rows("train() fills its result itself", "get_auto_filled_metrics"),
    **_rows('use result["time_total_s"]', "get_time_taken_sec"),
    **_rows("use config.update_from_dict(settings)", "merge_algorithm_configs"),
    **_rows("use default_resource_request(config)", "resource_help", "trial_resources"),
    **_rows(
        "policies are rllib.Policy; override make_policy_spec (docs/project/extend.md)", "get_default_policy_class"
    ),
    **_rows("use config, or config.to_dict()", "get_config", "raw_user_config"),
    **_rows("build a new algorithm from the other config", "reset", "reset_config"),
    **_rows("call train() in a loop", "train_buffered"),
    **_rows("use the result of train()", "collect_metrics"),
    **_rows(
        "use evaluation_interval and offline_validation_fraction (docs/guide/offline.md)",
        *("evaluate_offline", "offline_eval_runner_group"),
    ),
    **_rows("use algo.replays, which has a replay for each policy id", "local_replay_buffer"),
    **_rows("use get_policy(), or workers.local_worker()", "local_evaluator", "remote_evaluators"),
    **_rows("use evaluate(), or evaluation_workers", "eval_env_runner"),
}

POLICY: Mapping[str, str] = {
    **_rows(_SCHEDULED, "cur_lr", "lr", "entropy_coeff", "kl_coeff"),
    **_rows(f"{_LEARN}, which counts and times the update", "learn_on_batch"),
    **_rows(
        _NO_BUFFER_ON_GPU,
        *("learn_on_loaded_batch", "load_batch_into_buffer", "learn_on_batch_from_replay_buffer"),
        "get_num_samples_loaded_into_buffer",
    ),
    **_rows("use algo.learner.compute_gradient(batch, ...) (docs/guide/own_code.md)", "compute_gradients"),
    **_rows("use algo.learner.apply_gradient(gradient, lr=...) (docs/guide/own_code.md)", "apply_gradients"),
    **_rows("give the algorithm a `loss` (docs/guide/networks.md)", "loss"),
    **_rows(_CONNECTORS, "get_connector_metrics", "reset_connectors", "restore_connectors"),
    **_rows("there is no TensorFlow", "get_session"),
    **_rows(_H5, "import_model_from_h5"),
    **_rows("use snapshot() and load_snapshot(), or export_checkpoint(path)", "serialize", "deserialize", "from_state"),
    **_rows("use the attribute exploration", "get_exploration_info", "get_exploration_state"),
    **_rows(
        "the timestep comes with a snapshot",
        *("on_global_var_update", "global_timestep", "global_timestep_for_envs"),
    ),
    **_rows("use platform.node()", "get_host"),
    **_rows("use the attribute columns", "init_view_requirements", "view_requirements"),
    **_rows(
        "sequences are columns of rows with seq_lens (docs/guide/networks.md)",
        *("maybe_add_time_dimension", "maybe_remove_time_dimension"),
    ),
    **_rows("override make_policy_spec of the algorithm (docs/project/extend.md)", "make_rl_module"),
    **_rows("use the attribute model", "base_model", "q_model", "target_model", "model_gpu_towers"),
    **_rows("networks compute on a CPU; updates on what .resources(num_gpus=1) says", "device", "devices"),
    # Of Stable-Baselines3's policies.
    **_rows("use algo.predict(observations), or rllib.load_policy(path).predict(observations)", "predict"),
    **_rows("use parameters(), arrays by name, or algo.get_parameters()", "state_dict", "named_parameters"),
    **_rows("use set_weights(parameters), or algo.set_parameters(parameters)", "load_state_dict", "load_from_vector"),
    **_rows("use compute_log_likelihoods(actions, observations) and values(observations)", "evaluate_actions"),
    **_rows("use values(observations)", "predict_values"),
    **_rows("use dist_inputs(observations), and dist_class", "get_distribution"),
    **_rows("methods of a policy take arrays; torch.as_tensor makes tensors for the attribute model", "obs_to_tensor"),
    **_rows(
        "the network is the attribute model",
        *("action_net", "actor", "critic", "features_extractor", "mlp_extractor", "q_net", "value_net"),
    ),
    **_rows("optimizers belong to algo.learner", "optimizer"),
}

WORKER: Mapping[str, str] = {
    **_rows(_LEARN, "learn_on_batch", "sample_and_learn"),
    **_rows("use compute_gradient(), or algo.learner.compute_gradient(batch, ...)", "compute_gradients"),
    **_rows("use algo.learner.apply_gradient(gradient, lr=...)", "apply_gradients"),
    **_rows("use algo.add_policy(policy_id)", "add_policy"),
    **_rows("use algo.remove_policy(policy_id)", "remove_policy"),
    **_rows("use algo.set_policy_mapping_fn(function)", "set_policy_mapping_fn"),
    **_rows("use algo.set_policies_to_train(ids)", "set_is_policy_to_train", "get_policies_to_train"),
    **_rows("sample() returns a report with the batch, which has the episodes", "get_metrics"),
    **_rows("use sample(), and batch.count", "sample_with_count"),
    **_rows("use policy.filter of each policy", "get_filters", "filters"),
    **_rows("filters are merged by the driver with every report (docs/guide/environments.md)", "sync_filters"),
    **_rows("a snapshot has the number of steps: load_snapshot(snapshot)", "get_global_vars", "set_global_vars"),
    **_rows("a worker is used by one thread at a time", "lock", "unlock"),
    **_rows("use platform.node()", "get_host"),
    **_rows("use runtime.util.get_node_ip_address()", "get_node_ip"),
    **_rows("use socket.socket() and bind(('', 0))", "find_free_port"),
    **_rows("use the attribute settings", "creation_args"),
    **_rows("gradients of several learners are summed by .learners(num_learners=2)", "setup_torch_data_parallel"),
    **_rows(_REPLACED, "assert_healthy"),
    **_rows(
        "environments are made with the worker: change those that there are by foreach_env, or set their tasks by "
        ".environment(env_task_fn=...) (docs/guide/environments.md)",
        "make_env",
    ),
    **_rows("environments are made with the worker; use the attribute stream", "async_env", "base_env"),
    **_rows("the network is get_policy().model", "make_module", "module"),
    **_rows(_FILES, "get_checkpointable_components", "get_ctor_args_and_kwargs", "get_metadata"),
    **_rows("use get_policy().observation_space and action_space", "get_spaces"),
}

WORKER_SET: Mapping[str, str] = {
    **_rows("use .rollouts(num_rollout_workers=N) before build()", "add_workers", "reset"),
    **_rows("use algo.add_policy(policy_id)", "add_policy"),
    **_rows("use algo.set_policies_to_train(ids)", "is_policy_to_train"),
    **_rows(
        "use foreach_worker, which waits for all answers, or the attribute fleet",
        *("foreach_worker_async", "foreach_env_runner_async", "fetch_ready_async_reqs"),
        "foreach_env_runner_async_fetch_ready",
    ),
    **_rows(_REPLACED, "probe_unhealthy_workers", "probe_unhealthy_env_runners"),
    **_rows("use num_healthy_workers", "num_healthy_env_runners"),
    **_rows("use num_restarts", "num_remote_worker_restarts", "num_env_runners_dropped_lifetime"),
    **_rows("use num_in_flight", "num_in_flight_async_reqs"),
    **_rows("use list(fleet.members)", "healthy_worker_ids", "healthy_env_runner_ids"),
    **_rows("statistics are merged with every round", "sync_env_runner_states", "get_merged_env_runner_state"),
    **_rows("use algo.observation_space and action_space", "get_spaces"),
}

# A built-in network by the names of RLlib's modules.
MODULE: Mapping[str, str] = {
    **_rows(
        "use state_dict(), whose tensors are copies; what learns are algo.learners",
        *("parameters", "named_parameters", "modules", "named_modules", "children"),
    ),
    **_rows("it computes on a CPU; updates on what .resources(num_gpus=1) says", "to", "cuda", "cpu", "device"),
    **_rows(
        "use get_state() and set_state(), or algo.save_to_path() and RLModule.from_checkpoint(path)",
        *("save_to_path", "restore_from_path", "get_checkpointable_components", "get_ctor_args_and_kwargs"),
    ),
    **_rows("use algo.learners, which train the networks", "train", "requires_grad_", "zero_grad"),
}

CONFIG: Mapping[str, str] = {
    **_rows("use to_dict(); a checkpoint holds it as config.json", "serialize", "from_state", "get_state"),
    **_rows("use the attribute is_multi_agent", "get_multi_agent_setup"),
    **_rows("use the attribute model, which a spec becomes", "rl_module_spec"),
    **_rows("use get_evaluation_config_object()", "get_evaluation_config"),
    **_rows(
        "override make_policy_spec of the algorithm (docs/project/extend.md)",
        *("get_default_rl_module_spec", "get_rl_module_spec", "get_multi_rl_module_spec", "get_marl_module_spec"),
        "get_multi_agent_module_spec",
    ),
    **_rows(
        "override make_learner of the trainee (docs/project/extend.md), or give a loss (docs/guide/networks.md)",
        *("get_default_learner_class", "build_learner", "build_learner_group", "get_learner_group_config"),
    ),
    **_rows(
        _CONNECTORS,
        *("build_env_to_module_connector", "build_module_to_env_connector", "build_learner_connector"),
    ),
    **_rows("use validate(), which names every mistake", "validate_train_batch_size_vs_rollout_fragment_length"),
    **_rows("use rllib.register_env(name, creator)", "register_env"),
    **_rows("networks run uncompiled", "get_torch_compile_learner_config", "get_torch_compile_worker_config"),
    **_rows("settings are attributes of the config itself", "get_learner_hyperparameters", "get_config_for_module"),
    **_rows("use policies_to_train", "is_policy_to_train"),
    **_rows("a setting always has a value; set it to its default", "pop"),
    **_rows("use is_offline", "is_online"),
    **_rows("use train_batch_size", "total_train_batch_size"),
    **_rows("workers are always RolloutWorkers", "uses_new_env_runners"),
    **_rows(
        "no algorithm here learns to learn",
        *("get_differentiable_learner_classes", "get_differentiable_learner_configs"),
    ),
}

TRAINABLE: Mapping[str, str] = {
    **_rows("use the attribute config", "get_config"),
    **_rows("call train() in a loop", "train_buffered"),
    **_rows("override reset_config", "reset"),
    **_rows("use default_resource_request(config)", "resource_help", "trial_resources"),
    **_rows("use os.getpid() and runtime.util.get_node_ip_address()", "get_current_ip_pid"),
    **_rows("every trial is an actor", "is_actor"),
    **_rows("the results of train() have these counters", "get_auto_filled_metrics"),
    **_rows("use save(directory) and restore(directory)", "get_state", "save_to_object", "restore_from_object"),
    **_rows("remove the directory that save() returned", "delete_checkpoint"),
}

TRIAL_CONTEXT: Mapping[str, str] = {
    **_rows("use get_trial_dir(), which is in the experiment's directory on this machine", "get_storage"),
    **_rows("give the trainable its values by tune.with_parameters(function, name=value)", "get_metadata"),
}
CHECKPOINT: Mapping[str, str] = _rows("files are on this machine; use path", "filesystem")

ANALYSIS: Mapping[str, str] = {
    **_rows("use trials, whose attributes Trial lists", "runner_data"),
    **_rows("progress.csv and result.json are both written", "set_filetype"),
    **_rows("files are on this machine; use experiment_path", "filesystem"),
}
