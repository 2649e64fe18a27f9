"""RLlib's new API stack: modules, learners, connectors and logged metrics, as far as programs touch them.

    from rllib.core import Columns, ConnectorV2, RLModuleSpec, TorchLearner, TorchRLModule, ValueFunctionAPI

docs/start/from_rllib.md says what each becomes here, and what is refused.
"""

from rllib.lazy_names import lazy_names

_MODULES = "rllib.core.modules."
_PIECES = "rllib.core.connectors.pieces"
_CONNECTOR = "rllib.core.connectors.connector"
# Loaded on first use: modules import torch, connectors gymnasium.
_LAZY = {
    "Columns": "rllib.core.columns",
    "ConnectedEnv": "rllib.core.connectors.connected_env",
    **dict.fromkeys(("ConnectorV2", "ConnectorPipelineV2"), _CONNECTOR),
    **dict.fromkeys(
        (
            *("AddObservationsFromEpisodesToBatch", "FlattenObservations", "FrameStackingEnvToModule"),
            *("FrameStackingLearner", "GetActions", "MeanStdFilter", "MultiAgentObservationPreprocessor"),
            *("NormalizeAndClipActions", "PrevActionsPrevRewards"),
            "SingleAgentObservationPreprocessor",
        ),
        _PIECES,
    ),
    **dict.fromkeys(("BuiltInCatalog", "BuiltInRLModule"), _MODULES + "built_in"),
    **dict.fromkeys(
        ("TorchCategorical", "TorchDiagGaussian", "TorchMultiCategorical"), _MODULES + "action_distribution"
    ),
    "DefaultModelConfig": _MODULES + "default_model_config",
    "MetricsLogger": "rllib.core.metrics.metrics_logger",
    **dict.fromkeys(("MultiRLModuleSpec", "RLModuleSpec"), _MODULES + "module_spec"),
    **dict.fromkeys(
        ("InferenceOnlyAPI", "QNetAPI", "RLModule", "TargetNetworkAPI", "TorchRLModule", "ValueFunctionAPI"),
        _MODULES + "rl_module",
    ),
    "TorchLearner": "rllib.core.learner.torch_learner",
}
# RLlib's names of one thing.
_SAME = {
    **{
        f"{algorithm}{kind}": "TorchLearner"
        for algorithm in ("", "PPO", "APPO", "IMPALA", "DQN", "SAC", "BC", "MARWIL", "CQL")
        for kind in ("Learner", "TorchLearner")
        if algorithm + kind != "TorchLearner"
    },
    **{
        f"{default}{algorithm}TorchRLModule": "BuiltInRLModule"
        for algorithm in ("PPO", "APPO", "IMPALA", "DQN", "SAC", "BC", "CQL")
        for default in ("Default", "")  # the name in earlier versions
    },
    **{f"{algorithm}Catalog": "BuiltInCatalog" for algorithm in ("PPO", "DQN", "SAC", "BC")},
    "EnvToModulePipeline": "ConnectorPipelineV2",
    "ModuleToEnvPipeline": "ConnectorPipelineV2",
}
# Names that are not here -> advice.
_ELSEWHERE = {
    "MultiRLModule": "policies share no layers; MultiRLModuleSpec(rl_module_specs={...}) gives each policy its module",
    "SelfSupervisedLossAPI": "a module's further losses are auxiliary_losses (docs/guide/networks.md)",
    "Catalog": "build the layers in the setup() of a TorchRLModule",
    "LearnerGroup": "algo.learner_group has get_weights() and set_weights()",
    "LearnerConnectorPipeline": "batches are changed by on_postprocess_trajectory and on_learn_on_batch of callbacks",
    "SingleAgentEpisode": "connectors and hooks get episodes with its methods; samples are SampleBatches",
}

__all__ = list(_LAZY | _SAME)

__getattr__, __dir__ = lazy_names(globals(), _LAZY, _ELSEWHERE.get, lambda name: _SAME.get(name, name))
