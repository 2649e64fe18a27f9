"""The table of Stable-Baselines3's names, and of those of sb3-contrib, SBX and RL Zoo; table.py has its form."""

from rllib.compat.names.elsewhere import OF_STABLE_BASELINES
from rllib.compat.programs.table import Table

_HERE = "rllib.compat.programs.sb3"
_MODELS, _TOKENS, _TOOLS = f"{_HERE}.models", f"{_HERE}.tokens", f"{_HERE}.tools"
_ENVIRONMENTS, _LOGGER, _NOISE = f"{_HERE}.environments", f"{_HERE}.logger", f"{_HERE}.noise"
_EXTRACTORS, _PREPROCESSING, _MASKS = f"{_HERE}.extractors", f"{_HERE}.preprocessing", f"{_HERE}.masks"
_POLICY = f"{_HERE}.policy"
_VEC = "rllib.env.vec_env"
_CALLBACKS = (
    "BaseCallback CallbackList CheckpointCallback ConvertCallback EventCallback EveryNTimesteps "
    "LogEveryNTimesteps ProgressBarCallback StopTrainingOnMaxEpisodes StopTrainingOnNoModelImprovement "
    "StopTrainingOnRewardThreshold"
)
_OF_POLICIES = "MlpPolicy CnnPolicy MultiInputPolicy"
_OF_MEMORIES = "MlpLstmPolicy CnnLstmPolicy MultiInputLstmPolicy"
_BUFFERS = f"{_HERE}.buffers"
_EXAMPLES = f"{_HERE}.environments_of_examples"
_OF_IDENTITY = "IdentityEnv IdentityEnvBox IdentityEnvMultiBinary IdentityEnvMultiDiscrete FakeImageEnv"
_OF_INVALID = "InvalidActionEnvDiscrete InvalidActionEnvMultiBinary InvalidActionEnvMultiDiscrete"
_OF_VECTORS = {
    f"{_VEC}.base": "VecEnv VecEnvWrapper DummyVecEnv unwrap_vec_wrapper is_vecenv_wrapped",
    f"{_VEC}.subproc_vec_env": "SubprocVecEnv CloudpickleWrapper",
    f"{_VEC}.vec_normalize": "VecNormalize unwrap_vec_normalize sync_envs_normalization",
    f"{_VEC}.wrappers": "StackedObservations VecCheckNan VecExtractDictObs VecFrameStack VecMonitor VecTransposeImage",
    _ENVIRONMENTS: "VecVideoRecorder",
}
_SCHEDULES = (
    "ConstantSchedule FloatSchedule LinearSchedule get_schedule_fn get_linear_fn constant_fn update_learning_rate"
)
_VECTORIZED = (
    "is_vectorized_observation is_vectorized_box_observation is_vectorized_dict_observation "
    "is_vectorized_discrete_observation is_vectorized_multidiscrete_observation is_vectorized_multibinary_observation"
)


def _algorithm_rows(package: str, names: str) -> dict[str, dict[str, str]]:
    """Rows of the folder of each algorithm."""
    rows = {}
    for name in names.split():
        of_folder = {_MODELS: name, _TOKENS: _OF_POLICIES}
        rows |= {f"{package}.{name.lower()}": of_folder, f"{package}.{name.lower()}.policies": {_TOKENS: _OF_POLICIES}}
    return rows


FOUND: dict[str, dict[str, str]] = {
    "stable_baselines3": {
        _MODELS: "PPO A2C DQN SAC TD3 DDPG get_system_info",
        _TOKENS: "HerReplayBuffer",
        "rllib.compat.files.sb3.written": "__version__=VERSION",
    },
    **_algorithm_rows("stable_baselines3", "PPO A2C DQN SAC TD3 DDPG"),
    "stable_baselines3.her": {_TOKENS: "HerReplayBuffer GoalSelectionStrategy"},
    "stable_baselines3.her.goal_selection_strategy": {_TOKENS: "GoalSelectionStrategy KEY_TO_GOAL_STRATEGY"},
    "stable_baselines3.common.atari_wrappers": {
        _ENVIRONMENTS: "AtariWrapper ClipRewardEnv EpisodicLifeEnv FireResetEnv MaxAndSkipEnv NoopResetEnv "
        "StickyActionEnv WarpFrame"
    },
    "stable_baselines3.common.base_class": {_MODELS: "BaseAlgorithm", _ENVIRONMENTS: "maybe_make_env"},
    "stable_baselines3.common.on_policy_algorithm": {_MODELS: "OnPolicyAlgorithm"},
    "stable_baselines3.common.off_policy_algorithm": {_MODELS: "OffPolicyAlgorithm"},
    "stable_baselines3.common.buffers": {
        _BUFFERS: "BaseBuffer ReplayBuffer DictReplayBuffer",
        _TOKENS: "NStepReplayBuffer RolloutBuffer DictRolloutBuffer",
    },
    "stable_baselines3.common.callbacks": {"rllib.callbacks": _CALLBACKS, f"{_HERE}.callbacks": "EvalCallback"},
    "stable_baselines3.common.distributions": {},
    "stable_baselines3.common.env_checker": {_ENVIRONMENTS: "check_env"},
    "stable_baselines3.common.envs": {_EXAMPLES: f"{_OF_IDENTITY} BitFlippingEnv SimpleMultiObsEnv"},
    "stable_baselines3.common.envs.bit_flipping_env": {_EXAMPLES: "BitFlippingEnv"},
    "stable_baselines3.common.envs.identity_env": {_EXAMPLES: _OF_IDENTITY},
    "stable_baselines3.common.envs.multi_input_envs": {_EXAMPLES: "SimpleMultiObsEnv"},
    "stable_baselines3.common.env_util": {
        _ENVIRONMENTS: "make_vec_env make_atari_env",
        f"{_VEC}.monitor": "is_wrapped unwrap_wrapper",
    },
    "stable_baselines3.common.evaluation": {"rllib": "evaluate_policy"},
    "stable_baselines3.common.logger": {
        _LOGGER: "Logger configure KVWriter SeqWriter HumanOutputFormat JSONOutputFormat CSVOutputFormat "
        "TensorBoardOutputFormat make_output_format filter_excluded_keys FormatUnsupportedError Video Figure Image "
        "HParam read_csv read_json DEBUG INFO WARN ERROR DISABLED"
    },
    "stable_baselines3.common.monitor": {
        f"{_VEC}.monitor": "Monitor ResultsWriter get_monitor_files load_results LoadMonitorResultsError"
    },
    "stable_baselines3.common.noise": {
        _NOISE: "ActionNoise NormalActionNoise OrnsteinUhlenbeckActionNoise VectorizedActionNoise"
    },
    "stable_baselines3.common.policies": {
        _TOKENS: "BaseModel BasePolicy ActorCriticPolicy ActorCriticCnnPolicy MultiInputActorCriticPolicy "
        "ContinuousCritic"
    },
    "stable_baselines3.common.preprocessing": {
        _PREPROCESSING: "preprocess_obs get_obs_shape get_flattened_obs_dim get_action_dim check_for_nested_spaces "
        "maybe_transpose",
        f"{_VEC}.wrappers": "is_image_space is_image_space_channels_first",
    },
    "stable_baselines3.common.results_plotter": {
        _TOOLS: "plot_curves plot_results rolling_window ts2xy window_func X_TIMESTEPS X_EPISODES X_WALLTIME "
        "POSSIBLE_X_AXES EPISODES_WINDOW",
        f"{_VEC}.monitor": "load_results",
    },
    "stable_baselines3.common.running_mean_std": {f"{_VEC}.vec_normalize": "RunningMeanStd"},
    "stable_baselines3.common.sb2_compat.rmsprop_tf_like": {_TOKENS: "RMSpropTFLike"},
    "stable_baselines3.common.torch_layers": {
        _EXTRACTORS: "BaseFeaturesExtractor CombinedExtractor FlattenExtractor MlpExtractor NatureCNN create_mlp "
        "get_actor_critic_arch"
    },
    "stable_baselines3.common.type_aliases": {
        _BUFFERS: "ReplayBufferSamples DictReplayBufferSamples",
        _TOOLS: "TrainFreq TrainFrequencyUnit",
    },
    "stable_baselines3.common.utils": {
        _TOOLS: f"{_SCHEDULES} {_VECTORIZED} TrainFreq TrainFrequencyUnit "
        "explained_variance safe_mean zip_strict polyak_update get_device "
        "get_parameters_by_name get_latest_run_id configure_logger check_for_correct_spaces check_shape_equal "
        "should_collect_more_steps",
        _MODELS: "set_random_seed get_system_info",
        _PREPROCESSING: "obs_as_tensor",
    },
    "stable_baselines3.common.vec_env": _OF_VECTORS,
    # ------------------------------------------------------------------ sb3-contrib
    "sb3_contrib": {_MODELS: "ARS CrossQ MaskablePPO QRDQN RecurrentPPO TQC TRPO"},
    **_algorithm_rows("sb3_contrib", "ARS CrossQ QRDQN TQC TRPO"),
    "sb3_contrib.ars.policies": {_TOKENS: f"LinearPolicy {_OF_POLICIES}"},
    "sb3_contrib.ppo_mask": {_MODELS: "MaskablePPO", _TOKENS: _OF_POLICIES},
    "sb3_contrib.ppo_recurrent": {_MODELS: "RecurrentPPO", _TOKENS: _OF_MEMORIES},
    "sb3_contrib.common.envs": {_EXAMPLES: _OF_INVALID},
    "sb3_contrib.common.envs.invalid_actions_env": {_EXAMPLES: _OF_INVALID},
    "sb3_contrib.common.maskable.callbacks": {_MASKS: "MaskableEvalCallback"},
    "sb3_contrib.common.maskable.evaluation": {_MASKS: "evaluate_policy"},
    "sb3_contrib.common.maskable.policies": {
        _TOKENS: f"MaskableActorCriticPolicy MaskableActorCriticCnnPolicy MaskableMultiInputActorCriticPolicy "
        f"{_OF_POLICIES}"
    },
    "sb3_contrib.common.maskable.utils": {_MASKS: "get_action_masks is_masking_supported"},
    "sb3_contrib.common.wrappers": {_MASKS: "ActionMasker", f"{_HERE}.time_feature": "TimeFeatureWrapper"},
    # ------------------------------------------------------------------ SBX
    "sbx": {_MODELS: "PPO SAC DQN TQC CrossQ DDPG TD3"},
    **_algorithm_rows("sbx", "PPO SAC DQN TQC CrossQ TD3"),
    # ------------------------------------------------------------------ RL Zoo
    "rl_zoo3": {_TOOLS: "linear_schedule get_latest_run_id", f"{_HERE}.zoo": "ALGOS"},
    "rl_zoo3.utils": {_TOOLS: "linear_schedule get_latest_run_id", f"{_HERE}.zoo": "ALGOS"},
}

# Earlier folders -> the ones whose rows count for them.
MOVED = {
    "stable_baselines3.common.cmd_util": "stable_baselines3.common.env_util",
    "sb3_contrib.common.maskable.buffers": "stable_baselines3.common.buffers",
    "sbx.common": "stable_baselines3.common",
}

_ZOO = "use rllib train -f FILE --env ID, which reads the Zoo's files of settings (docs/start/from_sb3.md)"
_DISTRIBUTIONS = (
    "model.policy.get_distribution(obs) has log_prob, entropy, sample and mode; one of your own is registered with "
    "rllib.register_action_dist (docs/guide/networks.md)"
)

# Module or name -> why it is not here, or what to use instead. A module's reason holds for all below it.
MISSING: dict[str, str] = {
    "stable_baselines3.common.distributions": _DISTRIBUTIONS,
    "stable_baselines3.common.save_util": "model.save(path) and PPO.load(path) read and write files of models",
    "stable_baselines3.common.type_aliases": "they are names in annotations alone",
    "sb3_contrib.common.recurrent": "RecurrentPPO takes the policy's name: 'MlpLstmPolicy'",
    "sb3_contrib.common.maskable.distributions": _DISTRIBUTIONS,
    "rl_zoo3": _ZOO,
}


def reason_for(path: str) -> str | None:
    """The reason why a module or name is not here, or what to use instead; None if nothing is known about it.

    Args:
        path: with all its parents.
    """
    known = path
    while known and known not in MISSING:
        known = known.rpartition(".")[0]
    return MISSING[known] if known else OF_STABLE_BASELINES.get(path.rpartition(".")[2])


TABLE = Table(
    libraries=("stable_baselines3", "sb3_contrib", "sbx", "rl_zoo3"),
    hook="rllib.as_sb3",
    guide="docs/start/from_sb3.md",
    found=FOUND,
    where_built={},
    moved=MOVED,
    reason_for=reason_for,
)
