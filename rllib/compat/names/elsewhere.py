"""Names of Stable-Baselines3 that this library does not have, and what replaces them here, for messages."""

from collections.abc import Mapping

_CALLBACKS = "use from rllib.callbacks import {}"
_PROCESSES = "use rllib.make_vec_env(id, n_envs=8) and num_rollout_workers=4, whose processes act as well"
_PICTURES = "it is not needed: the network finds the channels of pictures by itself"
_OF_ATARI = "give an Atari game by its id: DeepMind's preprocessing, and stacks of 4 frames, are the default"
_RESULTS = "results are the dicts of algo.train(), and files in log_dir (docs/start/runs.md)"
_REPLAY = "use replay_buffer_config={'type': 'ReplayBuffer', 'capacity': 1_000_000} (docs/guide/replay.md)"
_TORSO = "use model={'custom_model': Module} (docs/guide/networks.md)"
_DISTRIBUTIONS = "a distribution of your own is registered with rllib.register_action_dist (docs/guide/networks.md)"
_FROM_TORCH = "policies are chosen by name, PPO('MlpPolicy', env), and read by algo.get_policy()"
_PLOTS = "use rllib plot RUN (docs/start/runs.md)"
_SCHEDULE = "use a schedule, lr=[[0, 1e-3], [1_000_000, 0]] (docs/guide/exploration.md)"
_SEEDS = "use seed=... of the algorithm, which seeds all of its processes"

# Modules' names: classes and functions -> what to write.
OF_STABLE_BASELINES: Mapping[str, str] = {
    **{
        name: _CALLBACKS.format(name)
        for name in (
            *("BaseCallback", "CallbackList", "CheckpointCallback", "ConvertCallback", "EvalCallback", "EventCallback"),
            *("EveryNTimesteps", "LogEveryNTimesteps", "ProgressBarCallback", "StopTrainingOnMaxEpisodes"),
            *("StopTrainingOnNoModelImprovement", "StopTrainingOnRewardThreshold"),
        )
    },
    # Environments.
    "DummyVecEnv": "use from rllib.env.vec_env import DummyVecEnv",
    "make_vec_env": "use from rllib import make_vec_env",
    "SubprocVecEnv": _PROCESSES,
    "VecEnv": "use DummyVecEnv of rllib.env.vec_env, or gymnasium.vector.VectorEnv for a vector of your own",
    "VecEnvWrapper": "wrap each environment, .environment(env_wrappers=[Wrapper])",
    "VecNormalize": "use .rollouts(observation_filter='MeanStdFilter') and .environment(normalize_returns=True); both "
    "are saved with the policy (docs/guide/environments.md)",
    "VecFrameStack": "use .environment(env_wrappers=[{'FrameStackObservation': {'stack_size': 4}}])",
    "StackedObservations": "use .environment(env_wrappers=[{'FrameStackObservation': {'stack_size': 4}}])",
    "VecTransposeImage": _PICTURES,
    "is_image_space": _PICTURES,
    "VecCheckNan": "it is not needed: what is not finite is an error, and names the environment",
    "VecExtractDictObs": "use .environment(ignore_observation_keys=[...]) with the other keys",
    "VecMonitor": "it is not needed: episodes are counted in any case",
    "VecVideoRecorder": "use .evaluation(evaluation_videos=1), or rllib record RUN -o a.mp4 (docs/guide/evaluation.md)",
    "Monitor": "it is not needed: episodes are counted in any case, and their infos kept by info_columns",
    "ResultsWriter": _RESULTS,
    "load_results": _RESULTS,
    "get_monitor_files": _RESULTS,
    "CloudpickleWrapper": "it is not needed: functions are sent to workers as they are",
    **dict.fromkeys(
        ("is_vecenv_wrapped", "unwrap_vec_wrapper", "unwrap_wrapper", "is_wrapped"),
        "use env_is_wrapped of a DummyVecEnv",
    ),
    **dict.fromkeys(
        ("sync_envs_normalization", "unwrap_vec_normalize", "RunningMeanStd"),
        "filters belong to the policy, and are the same wherever it acts (docs/guide/environments.md)",
    ),
    **dict.fromkeys(
        (
            *("make_atari_env", "AtariWrapper", "ClipRewardEnv", "EpisodicLifeEnv", "FireResetEnv", "MaxAndSkipEnv"),
            *("NoopResetEnv", "WarpFrame", "StickyActionEnv"),
        ),
        _OF_ATARI,
    ),
    # Parts of algorithms.
    "NormalActionNoise": "use exploration_config={'type': 'GaussianNoise', 'stddev': 0.1, 'initial_scale': 1.0, "
    "'final_scale': 1.0} (docs/guide/exploration.md)",
    "OrnsteinUhlenbeckActionNoise": "exploration_config={'type': 'OrnsteinUhlenbeckNoise'} (docs/guide/exploration.md)",
    **dict.fromkeys(("ActionNoise", "VectorizedActionNoise"), "use exploration_config (docs/guide/exploration.md)"),
    "HerReplayBuffer": "replay_buffer_config={'type': 'HerReplayBuffer'} of DQN, SAC or TD3 (docs/guide/replay.md)",
    **dict.fromkeys(("ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer", "BaseBuffer"), _REPLAY),
    **dict.fromkeys(
        ("RolloutBuffer", "DictRolloutBuffer"),
        "a train batch is a SampleBatch; hooks change it (docs/guide/own_code.md)",
    ),
    **dict.fromkeys(
        ("BaseFeaturesExtractor", "FlattenExtractor", "NatureCNN", "CombinedExtractor", "MlpExtractor", "create_mlp"),
        _TORSO,
    ),
    **dict.fromkeys(
        (
            *("Distribution", "DiagGaussianDistribution", "SquashedDiagGaussianDistribution"),
            *("CategoricalDistribution", "MultiCategoricalDistribution", "BernoulliDistribution"),
            "StateDependentNoiseDistribution",
            *("TanhBijector", "make_proba_distribution", "sum_independent_dims", "kl_divergence"),
        ),
        _DISTRIBUTIONS,
    ),
    **dict.fromkeys(
        (
            *("ActorCriticPolicy", "ActorCriticCnnPolicy", "MultiInputActorCriticPolicy", "BasePolicy", "BaseModel"),
            *("ContinuousCritic", "MlpPolicy", "CnnPolicy", "MultiInputPolicy"),
        ),
        _FROM_TORCH,
    ),
    **dict.fromkeys(
        ("BaseAlgorithm", "OnPolicyAlgorithm", "OffPolicyAlgorithm"),
        "the base of all algorithms is rllib.Algorithm (docs/project/extend.md)",
    ),
    # Results and tools.
    "evaluate_policy": "use from rllib import evaluate_policy",
    "configure": "use .reporting(log_dir=...), which writes CSV, JSON and TensorBoard's files (docs/start/runs.md)",
    **dict.fromkeys(
        (
            *("Logger", "KVWriter", "SeqWriter", "HumanOutputFormat", "JSONOutputFormat", "CSVOutputFormat"),
            *("TensorBoardOutputFormat", "make_output_format", "configure_logger", "read_csv", "read_json"),
            *("filter_excluded_keys", "FormatUnsupportedError", "TextOutputFormat"),
        ),
        "the files of a run are those of .reporting(log_dir=...) (docs/start/runs.md)",
    ),
    **dict.fromkeys(
        ("Video", "Figure", "Image", "HParam"),
        "a run's pictures are its videos and plots, and its settings are in params.json",
    ),
    **dict.fromkeys(("plot_results", "plot_curves", "ts2xy", "rolling_window", "window_func"), _PLOTS),
    **dict.fromkeys(
        (
            *("LinearSchedule", "ConstantSchedule", "FloatSchedule", "get_schedule_fn", "get_linear_fn"),
            *("constant_fn", "update_learning_rate"),
        ),
        _SCHEDULE,
    ),
    **dict.fromkeys(
        (
            *("is_vectorized_observation", "is_vectorized_box_observation", "is_vectorized_dict_observation"),
            *("is_vectorized_discrete_observation", "is_vectorized_multibinary_observation"),
            "is_vectorized_multidiscrete_observation",
        ),
        "predict knows a batch of observations by its shape",
    ),
    **dict.fromkeys(
        (
            *("preprocess_obs", "get_obs_shape", "get_flattened_obs_dim", "get_action_dim", "check_for_nested_spaces"),
            *("check_for_correct_spaces", "check_shape_equal", "maybe_make_env"),
        ),
        "policies take observations as the environment gives them, and give actions as it takes them",
    ),
    **dict.fromkeys(("maybe_transpose", "is_image_space_channels_first"), _PICTURES),
    "get_actor_critic_arch": "use policy_kwargs={'net_arch': [64, 64]} of the constructor",
    "get_latest_run_id": "use algo.directory, or log_dir",
    "get_parameters_by_name": "use algo.get_parameters(), whose values have names",
    "obs_as_tensor": "use algo.get_policy().encode(observations), and torch.as_tensor",
    "polyak_update": "target networks move by the settings tau and target_network_update_freq",
    "safe_mean": "use numpy.mean; results have NaN where there is no episode yet",
    "should_collect_more_steps": "use rollout_fragment_length and training_intensity",
    "zip_strict": "use zip(strict=True)",
    "set_random_seed": _SEEDS,
    "get_device": "use num_gpus=1 of .resources(), or device='cuda' of the constructor",
    "get_system_info": "use python -m pip freeze; checkpoints name the versions that wrote them",
    "explained_variance": "results have it as vf_explained_var",
    "RMSpropTFLike": "use opt_type='rmsprop' of PG, PPO and A2C",
    "ProgressBar": "use algo.learn(n, progress_bar=True)",
}

# Attributes and methods of its models.
OF_ITS_MODELS: Mapping[str, str] = {
    "set_logger": "results are written by .reporting(log_dir=...), and algo.logger.record(name, value) adds to them",
    "set_env": "an algorithm keeps its environments. Use PPO.load(path, env=env), or a second algorithm and "
    "other.set_parameters(algo.get_parameters())",
    "env": "use algo.get_env()",
    "set_random_seed": _SEEDS,
    "collect_rollouts": "use algo.sample() in a training_step (docs/project/extend.md)",
    "_setup_learn": "learn() prepares itself; a loop of your own calls train(), one iteration each",
    "_last_episode_starts": "callbacks of learn() have self.locals['dones']",
    "_vec_normalize_env": "use get_vec_normalize_env()",
    "dump_logs": "results are written after each iteration",
    "replay_buffer": "use algo.replays['default_policy'] of an algorithm with a replay",
    **dict.fromkeys(
        ("save_replay_buffer", "load_replay_buffer"),
        "this algorithm has no replay; those that have one write it with store_buffer_in_checkpoints=True as well",
    ),
    "rollout_buffer": "a train batch is the SampleBatch that algo.sample() returns",
    "ep_info_buffer": "results have the episodes' returns in hist_stats",
    "ep_success_buffer": "use info_columns and custom_metrics (docs/guide/own_code.md)",
    "policy_class": "use algo.get_policy()",
    **dict.fromkeys(
        (
            *("actor", "critic", "critic_target", "q_net", "q_net_target", "actor_target", "actor_batch_norm_stats"),
            *("actor_batch_norm_stats_target", "critic_batch_norm_stats", "critic_batch_norm_stats_target"),
            *("batch_norm_stats", "batch_norm_stats_target", "log_ent_coef", "ent_coef_optimizer", "ent_coef_tensor"),
            *("quantile_net", "quantile_net_target"),
        ),
        "use algo.get_policy().model and algo.learner",
    ),
    "exploration_rate": "results have it as cur_epsilon",
    "exploration_schedule": "use algo.config.exploration_config",
    "start_time": "results have time_total_s",
    "policy_aliases": "policies are chosen by name, PPO('MlpPolicy', env)",
    **dict.fromkeys(("rollout_buffer_class", "rollout_buffer_kwargs"), "a train batch is a SampleBatch"),
    "optimize_memory_usage": "use algo.config.replay_buffer_config['frame_stack_axis']",
    "use_sde_at_warmup": "use algo.config.exploration_config['random_timesteps']",
    "tensorboard_log": "use algo.directory",
    **{
        word: f"use algo.config.{settings}"
        for word, settings in (
            *(("gamma", "gamma"), ("learning_rate", "lr"), ("lr_schedule", "lr"), ("seed", "seed"), ("tau", "tau")),
            *(("n_steps", "train_batch_size, or n_step"), ("batch_size", "sgd_minibatch_size, or train_batch_size")),
            *(("n_epochs", "num_sgd_iter"), ("gae_lambda", "lambda_"), ("ent_coef", "entropy_coeff, or initial_alpha")),
            *(("clip_range", "clip_param"), ("clip_range_vf", "vf_clip_param"), ("vf_coef", "vf_loss_coeff")),
            *(("max_grad_norm", "grad_clip"), ("normalize_advantage", "standardize_advantages")),
            *(("target_kl", "target_kl"), ("policy_kwargs", "model"), ("use_sde", "model['use_sde']")),
            *(("sde_sample_freq", "model['sde_sample_freq']"), ("buffer_size", "replay_buffer_config['capacity']")),
            *(("replay_buffer_class", "replay_buffer_config"), ("replay_buffer_kwargs", "replay_buffer_config")),
            *(("train_freq", "rollout_fragment_length"), ("gradient_steps", "training_intensity")),
            *(("learning_starts", "num_steps_sampled_before_learning_starts"), ("target_entropy", "target_entropy")),
            *(("target_update_interval", "target_network_update_freq"), ("action_noise", "exploration_config")),
            *(("exploration_fraction", "exploration_config"), ("exploration_final_eps", "exploration_config")),
            *(("exploration_initial_eps", "exploration_config"), ("policy_delay", "policy_delay")),
            *(("target_policy_noise", "target_noise"), ("target_noise_clip", "target_noise_clip")),
        )
    },
}
