"""Names of types that programs for Ray write in annotations."""

from collections.abc import Callable, Hashable
from typing import Any

AgentID = Hashable
EnvID = EpisodeID = int | str
ModuleID = PolicyID = str
UnrollID = int

AlgorithmConfigDict = EnvConfigDict = ModelConfigDict = PartialAlgorithmConfigDict = PartialTrainerConfigDict = dict
EnvInfoDict = GradInfoDict = LearnerStatsDict = ModelWeights = MultiAgentDict = MultiAgentPolicyConfigDict = dict
MultiEnvDict = NamedParamDict = ParamDict = PolicyState = ResultDict = StateDict = TrainerConfigDict = dict
ModelInputDict = ViewRequirementsDict = dict

AgentToModuleMappingFn = EnvCreator = IsPolicyToTrain = ShouldModuleBeUpdatedFn = Callable

DeviceType = EnvActionType = EnvObsType = EnvType = EpisodeType = FileType = FromConfigSpec = Any
LearningRateOrSchedule = LocalOptimizer = ModelGradients = NetworkType = Optimizer = Param = ParamRef = Any
RLModuleSpecType = SampleBatchType = SpaceStruct = TensorShape = TensorStructType = TensorType = Any

ParamList = PolicyOutputType = StateBatches = list

__all__ = [name for name in dir() if not name.startswith("_") and name not in ("Any", "Callable", "Hashable")]
