"""The verbs of the `rllib` command, a module each; `record` is in the module of `play`."""
