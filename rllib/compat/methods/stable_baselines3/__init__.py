"""Arguments, attributes and methods by which programs for Stable-Baselines3 use an algorithm."""
