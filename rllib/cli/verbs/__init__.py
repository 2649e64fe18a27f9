"""The verbs of the `rllib` command, a module each."""
