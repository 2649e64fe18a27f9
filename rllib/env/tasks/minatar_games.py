"""MinAtar's games by their ids, as in "rllib.env.tasks.minatar_games:MinAtar/Breakout-v1" (the extra `minatar`).

MinAtar registers its ids where it is asked to, and gymnasium does not ask since version 1.
"""

from rllib.extras import install_hint

try:
    from minatar.gym import register_envs
except ImportError as error:
    raise ImportError(f"MinAtar's games need MinAtar: {install_hint('minatar')}") from error

register_envs()
