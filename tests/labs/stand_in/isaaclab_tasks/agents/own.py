"""Settings as an object of this library."""

from rllib import PPOConfig


def point():
    return PPOConfig().training(gamma=0.9, lr=[[0, 1e-3], [1000, 0.0]], model={"fcnet_hiddens": [8]})
