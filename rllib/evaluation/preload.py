"""What rollout workers need imported; apart, so that who starts the runtime need not import it as well."""

# Imported once by the zygote, so that workers share the pages and start within milliseconds.
PRELOAD = ("numpy", "gymnasium", "rllib.evaluation.worker_set")
