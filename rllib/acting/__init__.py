"""Actions of a trained policy outside of training."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
