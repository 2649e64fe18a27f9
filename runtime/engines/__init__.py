"""The engines: each implements the API functions of `base.Engine`."""
