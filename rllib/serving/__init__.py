"""Trained policies without the parts that train: in a program, as a file for other programs, or behind HTTP."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
