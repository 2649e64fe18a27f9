"""Pure functions of arrays and numbers: advantage estimates, losses, and their closed-form gradients."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
