"""SBX, which is Stable-Baselines3 in JAX: DQN on CartPole-v1, sampling and training, environment steps a second.

One environment, one update of 64 rows per 4 steps, a 64x64 ReLU network. It compiles before the steps that count; its
gradients are not clipped, for which it has no setting.
"""

from importlib import metadata

from sb3_dqn_throughput import train
from sbx import DQN

if __name__ == "__main__":
    train(DQN, __doc__, {"sbx": metadata.version("sbx-rl"), "jax": metadata.version("jax")})
