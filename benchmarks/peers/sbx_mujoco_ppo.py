"""SBX, which is Stable-Baselines3 in JAX: PPO on a MuJoCo task, environment steps a second (setup sbx).

It keeps to one core, as the other sides keep to one thread: JAX starts a thread for each core that it may use.
"""

from importlib import metadata

from continuous_common import keep_to
from sb3_mujoco_ppo import train

if __name__ == "__main__":
    keep_to(1)  # before JAX, which counts the cores, is imported
    from sbx import PPO

    train(PPO, __doc__, sbx=metadata.version("sbx-rl"), jax=metadata.version("jax"))
