"""From environments to SampleBatches: rollout workers, the set of them, and evaluation."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
