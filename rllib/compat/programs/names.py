"""The table of Ray's names: module of Ray -> module here -> names, or the reason why a name is not here.

"Theirs=Ours" is a name that is called otherwise here; "*" represents all that our module exports. The first module of a
row is the counterpart of Ray's module, which `import ray.x as y` gives after `rllib convert`. Names of all eras stand
side by side, from 0.8 to 2.60. A name that has moved between Ray's modules is found by any of its paths, if one row of
the same package has it (lookup.py).
"""

from rllib.algorithms.base.registry import absent
from rllib.compat.programs.table import Table

_LAYERS = "rllib.compat.programs.layers"
_ARRAYS = "rllib.compat.programs.arrays"
_ANNOTATIONS = "rllib.compat.programs.annotations"
_FRAMEWORKS = "rllib.compat.programs.frameworks"
_CONSTANTS = "rllib.compat.programs.constants"
_COMPLETED = "rllib.compat.programs.completed"
_EXAMPLES = "rllib.compat.programs.example_scripts"
_POLICY = "rllib.compat.programs.policy"
_METRICS = """
    ALL_MODULES ENV_RUNNER_RESULTS ENV_RUNNER_SAMPLING_TIMER EPISODE_AGENT_RETURN_MEAN EPISODE_DURATION_SEC_MEAN
    EPISODE_LEN_MAX EPISODE_LEN_MEAN EPISODE_LEN_MIN EPISODE_MODULE_RETURN_MEAN EPISODE_RETURN_MAX EPISODE_RETURN_MEAN
    EPISODE_RETURN_MIN EVALUATION_ITERATION_TIMER EVALUATION_RESULTS FAULT_TOLERANCE_STATS LAST_TARGET_UPDATE_TS
    LEARNER_INFO LEARNER_RESULTS LEARNER_STATS_KEY LEARNER_UPDATE_TIMER LEARN_ON_BATCH_TIMER NUM_AGENT_STEPS_SAMPLED
    NUM_AGENT_STEPS_SAMPLED_LIFETIME NUM_AGENT_STEPS_SAMPLED_THIS_ITER NUM_AGENT_STEPS_TRAINED
    NUM_AGENT_STEPS_TRAINED_LIFETIME NUM_ENV_STEPS_SAMPLED NUM_ENV_STEPS_SAMPLED_LIFETIME
    NUM_ENV_STEPS_SAMPLED_THIS_ITER NUM_ENV_STEPS_TRAINED NUM_ENV_STEPS_TRAINED_LIFETIME NUM_ENV_STEPS_TRAINED_THIS_ITER
    NUM_EPISODES NUM_EPISODES_LIFETIME NUM_GRAD_UPDATES_LIFETIME NUM_MODULE_STEPS_SAMPLED
    NUM_MODULE_STEPS_SAMPLED_LIFETIME NUM_MODULE_STEPS_TRAINED NUM_TARGET_UPDATES REPLAY_BUFFER_RESULTS SAMPLE_TIMER
    SYNCH_WORKER_WEIGHTS_TIMER TD_ERROR_KEY TIMERS TRAINING_ITERATION_TIMER
    DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY
"""
_CORE_CONSTANTS = """
    ALL_MODULES COMPONENT_ENV_RUNNER COMPONENT_ENV_TO_MODULE_CONNECTOR COMPONENT_EVAL_ENV_RUNNER COMPONENT_LEARNER
    COMPONENT_LEARNER_GROUP COMPONENT_METRICS_LOGGER COMPONENT_MODULE_TO_ENV_CONNECTOR COMPONENT_OPTIMIZER
    COMPONENT_RL_MODULE DEFAULT_AGENT_ID DEFAULT_MODULE_ID DEFAULT_POLICY_ID
"""
_TUNE_RESULT = """
    DEFAULT_METRIC DONE EPISODE_REWARD_MEAN EPISODES_THIS_ITER EPISODES_TOTAL EXPERIMENT_TAG EXPR_ERROR_FILE
    EXPR_ERROR_PICKLE_FILE EXPR_PARAM_FILE EXPR_PARAM_PICKLE_FILE EXPR_PROGRESS_FILE EXPR_RESULT_FILE HOSTNAME
    MEAN_ACCURACY MEAN_LOSS NODE_IP PID SHOULD_CHECKPOINT TIME_THIS_ITER_S TIMESTEPS_THIS_ITER TIMESTEPS_TOTAL TIMESTAMP
    TIME_TOTAL_S TRAINING_ITERATION TRIAL_ID
"""
# Ray's folder below ray.rllib.algorithms -> our module, and the algorithms that it has.
_ALGORITHMS = {
    "a2c": ("rllib.algorithms.a2c", "A2C"),
    "a3c": ("rllib.algorithms.a3c", "A3C"),
    "apex_ddpg": ("rllib.algorithms.apex", "ApexDDPG"),
    "apex_dqn": ("rllib.algorithms.apex", "ApexDQN"),
    "appo": ("rllib.algorithms.appo", "APPO"),
    "ars": ("rllib.algorithms.ars", "ARS"),
    "bc": ("rllib.algorithms.offline.bc", "BC"),
    "cql": ("rllib.algorithms.offline.cql", "CQL"),
    "ddpg": ("rllib.algorithms.td3", "DDPG TD3"),
    "dqn": ("rllib.algorithms.dqn", "DQN SimpleQ Rainbow"),
    "es": ("rllib.algorithms.es", "ES"),
    "impala": ("rllib.algorithms.impala", "IMPALA"),
    "iql": ("rllib.algorithms.offline.iql", "IQL"),
    "marwil": ("rllib.algorithms.offline.marwil", "MARWIL"),
    "pg": ("rllib.algorithms.pg", "PG"),
    "ppo": ("rllib.algorithms.ppo", "PPO"),
    "qmix": ("rllib.algorithms.qmix", "QMix"),
    "r2d2": ("rllib.algorithms.r2d2", "R2D2"),
    "sac": ("rllib.algorithms.sac", "SAC"),
    "simple_q": ("rllib.algorithms.dqn", "SimpleQ"),
    "td3": ("rllib.algorithms.td3", "TD3"),
}
# Names of 0.8 to 1.x that were not NAMETrainer.
_TRAINERS = {"ApexDQN": "ApexTrainer", "ApexDDPG": "ApexDDPGTrainer", "IMPALA": "ImpalaTrainer"}
# Names of configs and classes of 2.0 to 2.6 with other letters.
_SPELLINGS = {"IMPALA": "Impala=IMPALA ImpalaConfig=IMPALAConfig"}
# Keys of the learner's results that its module names.
_KL_KEYS = "LEARNER_RESULTS_CURR_KL_COEFF_KEY LEARNER_RESULTS_KL_KEY"
_ENTROPY_KEY = "LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY"
_KEYS = {
    "appo": _KL_KEYS,
    "impala": _ENTROPY_KEY,
    "ppo": f"{_ENTROPY_KEY} {_KL_KEYS} LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY",
}


def _algorithm_rows() -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for folder, (module, names) in _ALGORITHMS.items():
        served = []
        for name in names.split():
            trainer = _TRAINERS.get(name, f"{name}Trainer")
            served += [name, f"{name}Config", f"{trainer}={name}", *_SPELLINGS.get(name, "").split()]
        first = names.split()[0]
        rows[f"ray.rllib.algorithms.{folder}"] = {
            module: " ".join(served),
            "rllib.compat.programs.default_configs": f"DEFAULT_CONFIG={first}",
            **({_CONSTANTS: _KEYS[folder]} if folder in _KEYS else {}),
        }
    return rows


FOUND: dict[str, dict[str, str]] = {
    # ------------------------------------------------------------------ ray itself
    "ray": {"runtime": "*", "runtime.remote.refs": "ObjectID=ObjectRef", _CONSTANTS: "__version__=RAY_VERSION"},
    "ray._common.deprecation": {_ANNOTATIONS: "Deprecated deprecation_warning"},
    "ray.actor": {"runtime": "ActorHandle exit_actor"},
    "ray.cloudpickle": {"cloudpickle": "dump dumps load loads Pickler CloudPickler register_pickle_by_value"},
    "ray.exceptions": {"runtime.exceptions": "*"},
    "ray.runtime_context": {"runtime": "get_runtime_context", "runtime.runtime_context": "RuntimeContext"},
    "ray.util": {"runtime.util": "*", _COMPLETED: "as_completed map_unordered", _ANNOTATIONS: "log_once"},
    "ray.util.actor_pool": {"runtime.util.actor_pool": "ActorPool"},
    "ray.util.annotations": {_ANNOTATIONS: "PublicAPI DeveloperAPI Deprecated"},
    "ray.util.debug": {_ANNOTATIONS: "log_once"},
    "ray.util.joblib": {"runtime.util.joblib": "register_ray"},
    "ray.util.multiprocessing": {"runtime.util.multiprocessing": "Pool AsyncResult TimeoutError"},
    "ray.util.placement_group": {
        "runtime.util.placement_group": "placement_group placement_group_table remove_placement_group "
        "get_placement_group get_current_placement_group",
        "runtime.scheduling": "PlacementGroup",
    },
    "ray.util.queue": {"runtime.util.queue": "Queue Empty Full"},
    "ray.util.scheduling_strategies": {
        "runtime.util.scheduling_strategies": "PlacementGroupSchedulingStrategy NodeAffinitySchedulingStrategy"
    },
    "ray.util.serialization": {"runtime.util.serialization": "register_serializer deregister_serializer"},
    # ------------------------------------------------------------------ ray.tune, ray.train, ray.air
    "ray.tune": {"rllib.tune": "*"},
    "ray.tune.analysis": {"rllib.tune": "ExperimentAnalysis"},
    "ray.tune.callback": {"rllib.tune": "Callback"},
    "ray.tune.error": {"rllib.errors": "TuneError"},
    "ray.tune.execution.placement_groups": {"rllib.tune": "PlacementGroupFactory"},
    "ray.tune.experiment": {"rllib.tune": "Experiment", "rllib.tune.experiment.trial": "Trial"},
    "ray.tune.logger": {
        "rllib.tune": "CSVLoggerCallback JsonLoggerCallback Logger LoggerCallback TBXLoggerCallback DEFAULT_LOGGERS "
        "pretty_print",
    },
    "ray.tune.integration.mlflow": {"rllib.tune": "MLflowLoggerCallback"},
    "ray.tune.integration.wandb": {"rllib.tune": "WandbLoggerCallback"},
    "ray.tune.progress_reporter": {"rllib.tune": "CLIReporter JupyterNotebookReporter ProgressReporter"},
    "ray.tune.registry": {"rllib.tune": "register_env register_trainable register_input get_trainable_cls"},
    "ray.tune.result": {_CONSTANTS: _TUNE_RESULT},
    "ray.tune.result_grid": {"rllib.tune": "ResultGrid"},
    "ray.tune.schedulers": {"rllib.tune.schedulers": "*"},
    "ray.tune.schedulers.pb2": {"rllib.tune.schedulers": "PB2"},
    "ray.tune.search": {"rllib.tune.search": "*"},
    "ray.tune.search.basic_variant": {"rllib.tune.search": "BasicVariantGenerator"},
    "ray.tune.search.bayesopt": {"rllib.tune.search": "BayesOptSearch"},
    "ray.tune.search.optuna": {"rllib.tune.search": "OptunaSearch"},
    "ray.tune.search.sample": {
        "rllib.tune.search.domains": "Domain Categorical=Choice Float Integer Function choice uniform quniform "
        "loguniform randint randn sample_from"
    },
    "ray.tune.stopper": {
        "rllib.tune": "CombinedStopper ExperimentPlateauStopper FunctionStopper MaximumIterationStopper Stopper "
        "TimeoutStopper TrialPlateauStopper"
    },
    "ray.tune.trainable": {"rllib.tune": "Trainable with_parameters with_resources"},
    "ray.tune.trial": {"rllib.tune.experiment.trial": "Trial"},
    "ray.tune.tune": {"rllib.tune": "run run_experiments"},
    "ray.tune.tune_config": {"rllib.tune": "TuneConfig"},
    "ray.tune.tuner": {"rllib.tune": "Tuner"},
    "ray.air": {"rllib.tune": "RunConfig CheckpointConfig FailureConfig Checkpoint"},
    "ray.air.config": {"rllib.tune": "RunConfig CheckpointConfig FailureConfig"},
    "ray.air.constants": {
        _CONSTANTS: "EXPR_ERROR_FILE EXPR_ERROR_PICKLE_FILE EXPR_PARAM_FILE EXPR_PARAM_PICKLE_FILE EXPR_PROGRESS_FILE "
        "EXPR_RESULT_FILE TIMESTAMP TIME_THIS_ITER_S TRAINING_ITERATION"
    },
    "ray.air.integrations.mlflow": {"rllib.tune": "MLflowLoggerCallback"},
    "ray.air.integrations.wandb": {"rllib.tune": "WandbLoggerCallback", _CONSTANTS: "WANDB_ENV_VAR"},
    "ray.air.session": {
        "rllib.tune": "report get_checkpoint get_trial_id get_trial_name get_trial_dir get_experiment_name "
        "get_trial_resources"
    },
    "ray.train": {
        "rllib.tune": "report get_checkpoint get_context Checkpoint RunConfig CheckpointConfig FailureConfig"
    },
    # ------------------------------------------------------------------ ray.rllib
    "ray.rllib": {
        "rllib": "SampleBatch MultiAgentEnv ExternalEnv RolloutWorker Algorithm AlgorithmConfig",
        _POLICY: "Policy",
    },
    "ray.rllib.algorithms.trainer": {
        "rllib": "Trainer=Algorithm",
        "rllib.compat.programs.default_configs": "COMMON_CONFIG=Common",
        _ANNOTATIONS: "with_common_config=unchanged",
    },
    "ray.rllib.algorithms": {"rllib": "Algorithm AlgorithmConfig"},
    "ray.rllib.algorithms.algorithm": {"rllib": "Algorithm"},
    "ray.rllib.algorithms.algorithm_config": {
        "rllib": "AlgorithmConfig",
        _ANNOTATIONS: "NotProvided",
    },
    "ray.rllib.algorithms.callbacks": {"rllib": "DefaultCallbacks make_multi_callbacks RLlibCallback=DefaultCallbacks"},
    "ray.rllib.algorithms.registry": {
        "rllib.algorithms.base.registry": "get_algorithm_class get_agent_class=get_algorithm_class "
        "get_trainer_class=get_algorithm_class"
    },
    **_algorithm_rows(),
    "ray.rllib.callbacks": {"rllib": "RLlibCallback=DefaultCallbacks"},
    "ray.rllib.callbacks.callbacks": {"rllib": "RLlibCallback=DefaultCallbacks"},
    "ray.rllib.callbacks.utils": {"rllib": "make_callback=make_multi_callbacks"},
    "ray.rllib.core": {_CONSTANTS: _CORE_CONSTANTS},
    "ray.rllib.core.learner.learner": {_CONSTANTS: "DEFAULT_OPTIMIZER ENTROPY_KEY LR_KEY POLICY_LOSS_KEY VF_LOSS_KEY"},
    "ray.rllib.env": {
        "rllib.env": "EnvContext ExternalEnv ExternalMultiAgentEnv MultiAgentEnv PettingZooEnv ParallelPettingZooEnv"
    },
    "ray.rllib.env.env_context": {"rllib.env": "EnvContext"},
    "ray.rllib.env.external_env": {"rllib.env": "ExternalEnv"},
    "ray.rllib.env.external_multi_agent_env": {"rllib.env": "ExternalMultiAgentEnv"},
    "ray.rllib.env.multi_agent_env": {
        "rllib.env": "MultiAgentEnv make_multi_agent",
        "rllib.env.multi_agent": "ENV_STATE",
    },
    "ray.rllib.env.policy_client": {"rllib.client": "PolicyClient"},
    "ray.rllib.env.policy_server_input": {"rllib": "PolicyServerInput"},
    "ray.rllib.env.utils": {_FRAMEWORKS: "try_import_open_spiel try_import_pyspiel"},
    "ray.rllib.env.wrappers.atari_wrappers": {
        "rllib.compat.programs.atari": "wrap_atari_for_new_api_stack wrap_deepmind"
    },
    "ray.rllib.env.wrappers.group_agents_wrapper": {"rllib.env.multi_agent": "GroupAgentsWrapper=GroupedEnv"},
    "ray.rllib.env.wrappers.open_spiel": {"rllib.env.multi_agent.openspiel": "OpenSpielEnv"},
    "ray.rllib.env.wrappers.pettingzoo_env": {"rllib.env": "PettingZooEnv ParallelPettingZooEnv"},
    "ray.rllib.env.wrappers.unity3d_env": {"rllib.env.engines.unity": "Unity3DEnv"},
    "ray.rllib.evaluation": {"rllib": "RolloutWorker SampleBatch MultiAgentBatch"},
    "ray.rllib.evaluation.episode": {"rllib.evaluation.running_episode": "Episode=RunningEpisode"},
    "ray.rllib.evaluation.rollout_worker": {"rllib": "RolloutWorker"},
    "ray.rllib.evaluation.sample_batch_builder": {"rllib.evaluation.sample_batch_builder": "SampleBatchBuilder"},
    "ray.rllib.evaluation.worker_set": {"rllib.evaluation.worker_set": "WorkerSet"},
    "ray.rllib.models": {
        "rllib": "ModelCatalog",
        "rllib.compat.programs.default_configs": "MODEL_DEFAULTS=Model",
    },
    "ray.rllib.models.catalog": {
        "rllib": "ModelCatalog",
        "rllib.compat.programs.default_configs": "MODEL_DEFAULTS=Model",
    },
    "ray.rllib.models.torch.fcnet": {"rllib.models.user.model_v2": "FullyConnectedNetwork=TorchFC"},
    "ray.rllib.models.torch.misc": {_LAYERS: "SlimFC AppendBiasLayer normc_initializer same_padding valid_padding"},
    "ray.rllib.models.torch.recurrent_net": {"rllib.models.user.model_v2": "RecurrentNetwork"},
    "ray.rllib.models.torch.torch_action_dist": {
        "rllib.models.distributions.user": "TorchDistributionWrapper",
    },
    "ray.rllib.models.torch.torch_modelv2": {"rllib.models.user.model_v2": "TorchModelV2"},
    "ray.rllib.models.utils": {_LAYERS: "get_activation_fn"},
    "ray.rllib.offline": {"rllib.offline": "IOContext InputReader JsonReader JsonWriter"},
    "ray.rllib.offline.estimators": {
        "rllib.evaluation.estimators": "DirectMethod DoublyRobust ImportanceSampling OffPolicyEstimator "
        "WeightedImportanceSampling"
    },
    "ray.rllib.policy": {"rllib": "PolicySpec", _POLICY: "Policy"},
    "ray.rllib.policy.policy": {"rllib": "PolicySpec", _POLICY: "Policy"},
    "ray.rllib.policy.sample_batch": {
        "rllib": "SampleBatch MultiAgentBatch concat_samples",
        _CONSTANTS: "DEFAULT_POLICY_ID",
    },
    "ray.rllib.utils": {
        _ANNOTATIONS: "override PublicAPI DeveloperAPI deep_update merge_dicts flatten_dict force_list",
        _FRAMEWORKS: "try_import_tf try_import_tfp try_import_torch",
        "rllib": "check_env",
    },
    "ray.rllib.utils.annotations": {
        _ANNOTATIONS: "override PublicAPI DeveloperAPI ExperimentalAPI Deprecated OldAPIStack "
        "OverrideToImplementCustomLogic OverrideToImplementCustomLogic_CallToSuperRecommended"
    },
    "ray.rllib.utils.debug": {_ANNOTATIONS: "update_global_seed_if_necessary"},
    "ray.rllib.utils.debug.deterministic": {_ANNOTATIONS: "update_global_seed_if_necessary"},
    "ray.rllib.utils.deprecation": {_ANNOTATIONS: "Deprecated DEPRECATED_VALUE deprecation_warning"},
    "ray.rllib.utils.error": {_ANNOTATIONS: "EnvError"},
    "ray.rllib.utils.framework": {
        _FRAMEWORKS: "try_import_jax try_import_tf try_import_tfp try_import_torch",
        _LAYERS: "get_activation_fn",
    },
    "ray.rllib.utils.images": {"rllib.compat.programs.atari": "resize"},
    "ray.rllib.utils.metrics": {_CONSTANTS: _METRICS},
    "ray.rllib.utils.metrics.learner_info": {_CONSTANTS: "LEARNER_INFO LEARNER_STATS_KEY"},
    "ray.rllib.utils.numpy": {
        _ARRAYS: "convert_to_numpy huber_loss l2_loss one_hot relu sigmoid softmax SMALL_NUMBER LARGE_INTEGER "
        "MIN_LOG_NN_OUTPUT MAX_LOG_NN_OUTPUT"
    },
    "ray.rllib.utils.pre_checks.env": {"rllib": "check_env"},
    "ray.rllib.utils.serialization": {_ARRAYS: "convert_numpy_to_python_primitives"},
    "ray.rllib.utils.spaces.space_utils": {
        _ARRAYS: "batch clip_action flatten_to_single_ndarray normalize_action unbatch unsquash_action"
    },
    "ray.rllib.utils.test_utils": {
        "rllib.compat.programs.comparison": "check",
        _EXAMPLES: "add_rllib_example_script_args check_learning_achieved run_rllib_example_script_experiment "
        "should_stop",
    },
    "ray.rllib.utils.torch_utils": {
        _LAYERS: "FLOAT_MAX FLOAT_MIN convert_to_torch_tensor explained_variance global_norm huber_loss l2_loss "
        "one_hot sequence_mask"
    },
    "ray.rllib.utils.typing": {"rllib.compat.programs.type_names": "*"},
    # ------------------------------------------------------------------ ray.rllib.examples
    "ray.rllib.examples.utils": {
        _EXAMPLES: "add_rllib_example_script_args check_learning_achieved run_rllib_example_script_experiment "
        "should_stop"
    },
    "ray.rllib.examples.envs.classes.multi_agent": {
        "rllib.env.tasks.multi_agent_cartpole": "MultiAgentCartPole",
        "rllib.env.tasks.multi_agent_pendulum": "MultiAgentPendulum",
        "rllib.env.tasks.two_step_game": "TwoStepGame TwoStepGameWithGroupedAgents",
        "rllib.env": "make_multi_agent make_multiagent=make_multi_agent",
    },
    "ray.rllib.examples.envs.classes.multi_agent.two_step_game": {
        "rllib.env.tasks.two_step_game": "TwoStepGame TwoStepGameWithGroupedAgents"
    },
    "ray.rllib.examples._old_api_stack.policy.random_policy": {"rllib.policies": "RandomPolicy"},
}

# Rows of parts that may be missing from an installation: a name is served where its module has it.
WHERE_BUILT: dict[str, dict[str, str]] = {
    # The paths below it, and those of ray.rllib.connectors, need no rows: classes are found by their names.
    "ray.rllib.core": {"rllib.core": "*"},
    "ray.rllib.connectors.env_to_module": {"rllib.core": "MeanStdFilter"},
    "ray.rllib.connectors.env_to_module.mean_std_filter": {"rllib.core": "MeanStdFilter"},
    "ray.rllib.utils.metrics.metrics_logger": {"rllib.core": "MetricsLogger"},
    "ray.air.result": {"rllib.tune": "Result"},
    "ray.rllib.env.apis.task_settable_env": {"rllib.env": "TaskSettableEnv"},
    "ray.rllib.models.preprocessors": {"rllib.models.observations": "Preprocessor get_preprocessor"},
    "ray.rllib.utils.filter": {"rllib.models.observations": "MeanStdFilter NoFilter"},
    "ray.train": {"rllib.tune": "Result SyncConfig"},
    "ray.tune.stopper": {"rllib.tune": "NoopStopper"},
    "ray.tune.syncer": {"rllib.tune": "SyncConfig"},
    "ray.rllib.evaluation.postprocessing": {"rllib": "Postprocessing compute_advantages"},
}

# Earlier folders of Ray -> the ones whose rows count for them.
MOVED = {
    "ray.rllib.agents": "ray.rllib.algorithms",
    "ray.rllib.evaluation.sample_batch": "ray.rllib.policy.sample_batch",
    "ray.rllib.examples.env": "ray.rllib.examples.envs.classes",
    "ray.rllib.examples.models": "ray.rllib.examples._old_api_stack.models",
    "ray.rllib.examples.policy": "ray.rllib.examples._old_api_stack.policy",
    "ray.tune.sample": "ray.tune.search.sample",
    "ray.tune.session": "ray.air.session",
    "ray.tune.suggest": "ray.tune.search",
}

_CLUSTERS = "a cluster of machines is Ray's: runtime.init(engine='ray', address=...) (docs/scale/runtime.md)"
_DISTRIBUTED_TRAINING = (
    "torch models are not trained over several machines here; a function with tune.with_resources trains one in a trial"
)
_SEARCHER = "use tune.search.OptunaSearch, whose samplers are TPE, GP, CMA-ES and QMC"
_TENSORFLOW = "there are no networks in TensorFlow; write them in torch (docs/guide/networks.md)"
_UNIFORM_MODEL = "a network of your own is a torch module, model={'custom_model': Module} (docs/guide/networks.md)"
_CONNECTORS = "observations are changed by env_wrappers and observation_filter (docs/guide/environments.md)"
_RUNNERS = (
    "environments of your own kind are MultiAgentEnv, ExternalEnv or gymnasium's VectorEnv (docs/guide/environments.md)"
)
_WORKERS = (
    "an algorithm makes its workers: algo.env_runner, or RolloutWorker.from_config(config) (docs/guide/own_code.md)"
)
_EXAMPLE_FILES = (
    "it is an example of Ray: copy its file next to the program; rllib.as_ray reads it from an installed Ray, or from "
    "the sources that RLLIB_RAY_SOURCES names"
)
_RECORDED = "recorded steps are read by rllib.offline.Dataset (docs/guide/offline.md)"
_LOSSES = "a loss is changed by custom_loss and auxiliary_losses (docs/guide/networks.md)"

# Module or name of Ray -> why it is not here, or what to use instead. A module's reason holds for all below it.
MISSING: dict[str, str] = {
    "ray.air.integrations.keras": _TENSORFLOW,
    "ray.air.integrations.mlflow.setup_mlflow": "give tune.MLflowLoggerCallback to the callbacks of the run",
    "ray.air.integrations.wandb.setup_wandb": "give tune.WandbLoggerCallback to the callbacks of the run",
    "ray.air.ScalingConfig": _DISTRIBUTED_TRAINING,
    "ray.autoscaler": _CLUSTERS,
    "ray.cluster_utils": _CLUSTERS,
    **dict.fromkeys(("ray.client", "ray.ClientBuilder"), "use ray.init(address=...)"),
    **dict.fromkeys(("ray._private", "ray._raylet", "ray.services", "ray.worker"), "it belongs to the inside of Ray"),
    "ray.state": "use ray.nodes(), ray.cluster_resources(), or the command `runtime status` (docs/scale/runtime.md)",
    "ray.dag": "call the tasks one after the other, with references as arguments",
    "ray.data": "there are no data sets of Ray's; recorded steps are read by rllib.offline (docs/guide/offline.md)",
    "ray.internal": "it belongs to the inside of Ray",
    "ray.experimental": "it belongs to the inside of Ray",
    "ray.get_webui_url": "there is no dashboard; the command `runtime` shows a session (docs/scale/runtime.md)",
    "ray.job_submission": "start the program itself; a session belongs to the program that starts it",
    "ray.LoggingConfig": "logging is Python's: logging.getLogger('runtime') and 'rllib'",
    "ray.register_custom_serializer": "use runtime.util.register_serializer",
    "ray.rllib.connectors": _CONNECTORS,
    "ray.rllib.core.learner": _LOSSES,
    "ray.rllib.core.models": _UNIFORM_MODEL,
    "ray.rllib.core.rl_module": _UNIFORM_MODEL,
    "ray.rllib.core.distribution": "use model={'custom_action_dist': ...} (docs/guide/networks.md)",
    "ray.rllib.env.base_env": _RUNNERS,
    "ray.rllib.env.env_runner": _WORKERS,
    "ray.rllib.env.env_runner_group": _RUNNERS,
    "ray.rllib.env.external.rllink": "clients speak by rllib.client.PolicyClient (docs/guide/external.md)",
    "ray.rllib.env.multi_agent_episode": "callbacks get an episode with these values (docs/guide/own_code.md)",
    "ray.rllib.env.single_agent_episode": "callbacks get an episode with these values (docs/guide/own_code.md)",
    "ray.rllib.env.single_agent_env_runner": _WORKERS,
    "ray.rllib.env.multi_agent_env_runner": _WORKERS,
    "ray.rllib.env.vector_env": _RUNNERS,
    "ray.rllib.env.wrappers.dm_control_wrapper": "give the environment as 'dm_control/cartpole-balance-v0'",
    "ray.rllib.env.wrappers.recsim": "there is no wrapper for RecSim; write a gymnasium.Env around it",
    "ray.rllib.examples": _EXAMPLE_FILES,
    "ray.rllib.execution": "training_step calls self.train_batches(), and learn_on_batch of each trainee "
    "(docs/project/extend.md)",
    "ray.rllib.models.tf": _TENSORFLOW,
    "ray.rllib.models.modelv2": _UNIFORM_MODEL,
    "ray.rllib.models.torch": _UNIFORM_MODEL,
    "ray.rllib.models.preprocessors": "observations in Dict and Tuple spaces are taken as they are",
    "ray.rllib.offline.offline_data": _RECORDED,
    "ray.rllib.offline.offline_prelearner": _RECORDED,
    "ray.rllib.policy.eager_tf_policy": _TENSORFLOW,
    "ray.rllib.policy.policy_template": _LOSSES,
    "ray.rllib.policy.tf_policy": _TENSORFLOW,
    "ray.rllib.policy.tf_policy_template": _TENSORFLOW,
    "ray.rllib.policy.torch_policy": _LOSSES,
    "ray.rllib.policy.torch_policy_template": _LOSSES,
    "ray.rllib.policy.torch_policy_v2": _LOSSES,
    "ray.rllib.policy.view_requirement": (
        "columns of your own are info_columns, and a memory is a module with states (docs/guide/networks.md)"
    ),
    "ray.rllib.utils.exploration": "give it by name: exploration_config={'type': ...} (docs/guide/exploration.md)",
    "ray.rllib.utils.replay_buffers": "give it by name: replay_buffer_config={'type': ...} (docs/guide/replay.md)",
    "ray.rllib.utils.schedules": "a schedule is a list: lr=[[0, 1e-3], [100_000, 1e-5]] (docs/guide/exploration.md)",
    "ray.rllib.utils.spaces.repeated": "observations of changing length are not taken: pad them to the longest",
    "ray.rllib.utils.tf_utils": _TENSORFLOW,
    "ray.serve": "use rllib serve CHECKPOINT, or load_policy in a server of your own (docs/deploy/deployment.md)",
    "ray.train": _DISTRIBUTED_TRAINING,
    "ray.tune.experiment.config_parser": "give the settings to tune.run or tune.Tuner",
    "ray.tune.integration.keras": _TENSORFLOW,
    "ray.tune.integration.lightgbm": "report from a callback of LightGBM's: tune.report({...})",
    "ray.tune.integration.pytorch_lightning": "report from a callback of Lightning's: tune.report({...})",
    "ray.tune.integration.xgboost": "report from a callback of XGBoost's: tune.report({...})",
    "ray.tune.examples": _EXAMPLE_FILES,
    "ray.tune.execution": "it belongs to the inside of Ray",
    "ray.tune.schedulers.HyperBandForBOHB": "use ASHAScheduler with OptunaSearch",
    "ray.tune.schedulers.ResourceChangingScheduler": "trials keep the resources that they start with",
    "ray.tune.schedulers.hb_bohb": "use ASHAScheduler with OptunaSearch",
    "ray.tune.schedulers.resource_changing_scheduler": "trials keep the resources that they start with",
    "ray.tune.search.ax": _SEARCHER,
    "ray.tune.search.bohb": _SEARCHER,
    "ray.tune.search.hebo": _SEARCHER,
    "ray.tune.search.hyperopt": _SEARCHER,
    "ray.tune.search.nevergrad": _SEARCHER,
    "ray.tune.search.zoopt": _SEARCHER,
    "ray.tune.syncer": "there is nothing to synchronise: leave sync_config out",
    "ray.tune.utils": "it belongs to the inside of Ray; a trial starts when the GPUs that it asks for are free",
    "ray.util.collective": "learners sum their gradients by learner_collective (docs/scale/learners.md)",
    "ray.util.dask": "there is no scheduler for Dask; Dask has its own scheduler for processes",
    "ray.util.iter": "use tasks that yield, whose values come one by one (docs/scale/runtime.md)",
    "ray.util.metrics": "return numbers from tasks; a run's metrics are in its results",
    "ray.util.sgd": _DISTRIBUTED_TRAINING,
    "ray.util.spark": _CLUSTERS,
    "ray.util.state": "the command `runtime` shows what happens in a session (docs/scale/runtime.md)",
    "ray.workflow": "there are no workflows that survive their program",
}


def is_of_tensorflow(module: str) -> bool:
    """Whether a module of Ray belongs to its networks in TensorFlow, whose helpers have names of those for torch."""
    return reason_for(module) == _TENSORFLOW


def reason_for(path: str) -> str | None:
    """The reason why a module or name of Ray is not here; None if nothing is known about it.

    Args:
        path: with all its parents: "ray.tune.search.ax.AxSearch".
    """
    known = path
    while known and known not in MISSING:
        known = known.rpartition(".")[0]
    if known:
        return MISSING[known]
    if path.startswith("ray.rllib.algorithms."):
        words = path.removeprefix("ray.rllib.algorithms.").split(".")
        names = (word.removesuffix("Config").removesuffix("Trainer") for word in (words[-1], words[0]))
        return next(filter(None, map(absent, names)), None)
    return None


TABLE = Table(("ray",), "rllib.as_ray", "docs/start/from_rllib.md", FOUND, WHERE_BUILT, MOVED, reason_for)
