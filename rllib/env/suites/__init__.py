"""Suites of environments by name, "gymnax:CartPole-v1": which there are, and adapters of those that need one."""
