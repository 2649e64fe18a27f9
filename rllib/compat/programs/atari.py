"""Ray's wrappers of Atari games that a program makes itself, by our preprocessing (`env/factories/atari.py`)."""

import gymnasium
import numpy as np

from rllib.env.factories.atari import AtariPreprocessing, resized

_COLOURED = 3  # dimensions of a picture


class _Grey(gymnasium.ObservationWrapper):
    """Pictures [H, W] of bytes, from those of any kind that the game is asked for."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        shape = env.observation_space.shape[:2]
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)

    def observation(self, observation):
        if observation.ndim == _COLOURED:
            # Weights of the colours in the luminance of Rec. 601, as ALE's grey pictures have them.
            return (observation @ (0.299, 0.587, 0.114)).round().astype(np.uint8)
        return observation


class _ChannelsLast(gymnasium.ObservationWrapper):
    """Stacked pictures [H, W, C], as programs' own networks read them."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        count, *size = env.observation_space.shape
        self.observation_space = gymnasium.spaces.Box(0, 255, (*size, count), np.uint8)

    def observation(self, observation):
        return np.moveaxis(observation, 0, -1)


class _Normalized(gymnasium.ObservationWrapper):
    """Pictures float32 from -1 to 1, from bytes."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, env.observation_space.shape, np.float32)

    def observation(self, observation):
        return observation.astype(np.float32) / 128 - 1


def wrap_deepmind(
    env: gymnasium.Env, dim: int = 84, framestack: bool = True, noframeskip: bool = False
) -> gymnasium.Env:
    """DeepMind's preprocessing of a game: grey pictures uint8 [dim, dim, 4], an episode for each life.

    Args:
        env: the game.
        dim: height and width of the pictures.
        framestack: 4 pictures in an observation; else 1.
        noframeskip: the game shows every frame, so that 4 become one step.
    """
    return _ChannelsLast(_preprocessed(env, dim, 4 if framestack else 1, 4 if noframeskip else 1))


def wrap_atari_for_new_api_stack(
    env: gymnasium.Env, dim: int = 64, frameskip: int = 4, framestack: int | None = None, grayscale: bool = True
) -> gymnasium.Env:
    """The same with other defaults, as float32 [dim, dim, pictures] from -1 to 1.

    Args:
        env: the game; it shows every frame.
        dim: height and width of the pictures.
        frameskip: frames of a step.
        framestack: pictures in an observation; None: 1.
        grayscale: True.

    Raises:
        ValueError: for pictures with colours.
    """
    if not grayscale:
        raise ValueError("grayscale=False cannot be used: pictures of Atari games are grey here. Leave it out.")
    return _Normalized(_ChannelsLast(_preprocessed(env, dim, framestack or 1, frameskip)))


def _preprocessed(env, dim, stack_num, frameskip):
    return AtariPreprocessing(
        _Grey(env), img_height=dim, img_width=dim, stack_num=stack_num, frameskip=frameskip, episodic_life=True
    )


def resize(img: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture [H, W] or [H, W, colours] of bytes as [height, width(, colours)], by the means of areas."""
    if img.ndim < _COLOURED:
        return resized(img, height, width)
    return np.stack([resized(img[..., channel], height, width) for channel in range(img.shape[-1])], axis=-1)
