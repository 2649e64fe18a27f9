"""What programs for Stable-Baselines3 ask of an algorithm: its constructor's words, attributes and methods."""
