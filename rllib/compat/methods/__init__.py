"""Methods of algorithms by the names of Ray RLlib and Stable-Baselines3."""
