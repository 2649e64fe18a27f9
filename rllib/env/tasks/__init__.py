"""Environments of the library, for tests, examples and benchmarks."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
