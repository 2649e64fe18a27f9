"""The checks of `rllib.check_env` and `rllib check-env`: what was seen, the rule, what to do."""
