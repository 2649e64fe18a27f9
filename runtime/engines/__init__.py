"""The engines: each does the verbs of `base.Engine`."""
