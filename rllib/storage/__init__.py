"""Values in files: JSON with its types, tensors, and checkpoints made of both."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
