"""Sampling with several agents: seats of agents, lanes of policies, and the worker that steps the environments."""
