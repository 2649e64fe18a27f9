"""Networks, action distributions, filters, and the catalog that chooses them from an environment's spaces."""

from rllib.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(globals())
