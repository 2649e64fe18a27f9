"""Models of Stable-Baselines3: the zip of `model.save`, and the pickle of VecNormalize."""
