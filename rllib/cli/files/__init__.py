"""Files of other libraries that hold settings: RL Baselines3 Zoo's, and Python files with a config."""
