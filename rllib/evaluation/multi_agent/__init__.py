"""Sampling with several agents: slots of agents, lanes of policies, and the worker that steps the environments."""
