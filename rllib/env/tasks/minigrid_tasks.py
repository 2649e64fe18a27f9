"""MiniGrid's tasks as vectors: the picture, and the mission's letters one-hot (the extra `minigrid`)."""

import gymnasium

from rllib.extras import install_hint


class FlatMiniGrid(gymnasium.Wrapper):
    """A task whose observations are those of MiniGrid's FlatObsWrapper, which RL Baselines3 Zoo's settings are for.

    Args:
        config: the `env_config`; its "id" names the task, such as "MiniGrid-DoorKey-5x5-v0".

    Raises:
        ValueError: if minigrid is not installed, or no task is named.
    """

    def __init__(self, config: dict):
        try:
            from minigrid.wrappers import FlatObsWrapper
        except ImportError as error:
            raise ValueError(f"FlatMiniGrid needs minigrid. Use {install_hint('minigrid')}.") from error
        if "id" not in config:
            raise ValueError('FlatMiniGrid needs a task. Use env_config={"id": "MiniGrid-DoorKey-5x5-v0"}.')
        super().__init__(FlatObsWrapper(gymnasium.make(config["id"])))
