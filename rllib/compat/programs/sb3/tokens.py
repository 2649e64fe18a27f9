"""Classes that programs give to constructors by their names, and that stand for settings: buffers and policies."""

from enum import Enum
from typing import Any, NoReturn

from rllib.compat.names.elsewhere import OF_STABLE_BASELINES
from rllib.compat.programs.sb3.buffers import DictReplayBuffer, ReplayBuffer
from rllib.compat.programs.sb3.policy import ModelPolicy


class _Token:
    """A class that is given, and not made: an object of it raises a TypeError with what to write."""

    def __init__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"{name} is given to a model's constructor as a class. {_INSTEAD.get(name, _USUAL)}")


_USUAL = "Here it has no objects."
_INSTEAD = {name: f"For one of your own, {advice}." for name, advice in OF_STABLE_BASELINES.items() if "Buffer" in name}


class NStepReplayBuffer(_Token, ReplayBuffer):
    """The replay of n-step returns, which `n_steps` chooses."""


class HerReplayBuffer(_Token, DictReplayBuffer):
    """The replay with further goals."""


class RolloutBuffer(_Token):
    """The rows of a round."""


class DictRolloutBuffer(RolloutBuffer):
    """The rows of a round, of Dict observations."""


class GoalSelectionStrategy(Enum):
    """Which states become further goals."""

    FUTURE = 0
    FINAL = 1
    EPISODE = 2


KEY_TO_GOAL_STRATEGY = {strategy.name.lower(): strategy for strategy in GoalSelectionStrategy}


class BaseModel(_Token):
    """Base class of networks."""


class BasePolicy(BaseModel):
    """Base class of policies."""

    load = staticmethod(ModelPolicy.load)


class MlpPolicy(BasePolicy):
    """Layers."""


class CnnPolicy(BasePolicy):
    """Convolutions."""


class MultiInputPolicy(BasePolicy):
    """Observations of a Dict."""


class ActorCriticPolicy(MlpPolicy):
    """Layers of policy and value."""


class ActorCriticCnnPolicy(CnnPolicy):
    """Convolutions, and heads of policy and value."""


class MultiInputActorCriticPolicy(MultiInputPolicy):
    """Policy and value of a Dict's observations."""


class MaskableActorCriticPolicy(ActorCriticPolicy):
    """Layers of policy and value, with masks."""


class MaskableActorCriticCnnPolicy(ActorCriticCnnPolicy):
    """Convolutions, and heads of policy and value, with masks."""


class MaskableMultiInputActorCriticPolicy(MultiInputActorCriticPolicy):
    """Policy and value of a Dict's observations, with masks."""


class LinearPolicy(BasePolicy):
    """A linear policy of ARS."""


class ContinuousCritic(BaseModel):
    """Layers of action values."""


class MlpLstmPolicy(BasePolicy):
    """A memory, then layers."""


class CnnLstmPolicy(BasePolicy):
    """Convolutions, then a memory."""


class MultiInputLstmPolicy(BasePolicy):
    """A memory, of a Dict's observations."""


class RMSpropTFLike(_Token):
    """RMSprop as TensorFlow has it, as optimizer_class."""
