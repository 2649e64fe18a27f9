"""Learners: one interface, one implementation in numpy and one in torch."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
