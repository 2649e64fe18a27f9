"""RL Zoo's table of algorithms."""

from rllib.compat.programs.sb3.models import (
    A2C,
    ARS,
    DDPG,
    DQN,
    PPO,
    QRDQN,
    SAC,
    TD3,
    TQC,
    TRPO,
    CrossQ,
    MaskablePPO,
    RecurrentPPO,
)

# Name on the command line -> class.
ALGOS = {
    "a2c": A2C, "ddpg": DDPG, "dqn": DQN, "ppo": PPO, "sac": SAC, "td3": TD3, "ars": ARS, "crossq": CrossQ, "tqc": TQC,
    "trpo": TRPO, "qrdqn": QRDQN, "ppo_lstm": RecurrentPPO, "ppo_mask": MaskablePPO,
}  # fmt: skip
