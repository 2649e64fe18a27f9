"""Imports of rollout workers, in a module of their own: the process that starts the runtime need not import them."""

# Imported once by the zygote, so that workers share the pages and start within milliseconds.
PRELOAD = ("numpy", "gymnasium", "rllib.evaluation.worker_set", "rllib.evaluation.postprocess.advantages")
