"""Factories that wrap environments with several agents: given spaces, adapted and augmented observations."""
