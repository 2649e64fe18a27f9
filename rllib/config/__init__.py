"""Config objects: settings, declared once, in sections, under the names of every era of RLlib."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
