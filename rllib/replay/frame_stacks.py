"""Stacks of the last k frames, each frame stored once.

An observation of k stacked frames shares k - 1 of them with the observation before it, and what followed a step is what
the next step begins with. So frames go into a ring, and a stack is a position in it: that of its newest frame. Nothing
is assumed about episodes or padding: what a stack has in common with the one before it is found by comparing them, and
where that is nothing (an episode begins) all k frames are written. What comes out is what went in, to the bit.
"""

import math

import numpy as np

# Frames more than there are steps, as a share of them: each new episode takes k instead of 1.
SPARE = 1 / 8


class FrameStacks:
    """A ring of frames for each of E environments.

    Args:
        shape: of a stack.
        dtype: of a frame.
        axis: that of the frames in a stack, the oldest first; 0 or -1.
        num_envs: E.
        num_steps: steps of each environment that there is to be room for.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, axis: int, num_envs: int, num_steps: int):
        self._axis = axis
        self.length = shape[axis]
        frame = tuple(np.delete(shape, axis).tolist())
        self.frames = np.zeros((num_envs, _frames_for(num_steps, self.length), *frame), dtype)
        self.written = np.zeros(num_envs, np.int64)
        self._newest = np.zeros((num_envs, self.length, *frame), dtype)

    @staticmethod
    def bytes_for(shape: tuple[int, ...], dtype: str, axis: int, num_envs: int, num_steps: int) -> int:
        """What `size_bytes` would be."""
        frames = num_envs * _frames_for(num_steps, shape[axis])
        return frames * math.prod(shape) // shape[axis] * np.dtype(dtype).itemsize

    def append(self, env: int, stack: np.ndarray) -> int:
        """The position of a stack [*shape] that follows the last one of this environment, or equals it."""
        stack = np.moveaxis(stack, self._axis, 0)
        newest = self._newest[env]
        if self.written[env] and np.array_equal(stack, newest):
            return int(self.written[env]) - 1
        goes_on = self.written[env] and np.array_equal(stack[:-1], newest[1:])
        for frame in stack[-1:] if goes_on else stack:
            self.frames[env, self.written[env] % self.frames.shape[1]] = frame
            self.written[env] += 1
        newest[:] = stack
        return int(self.written[env]) - 1

    def oldest(self) -> np.ndarray:
        """[E] int64: the least position of each environment whose frames have not been overwritten."""
        return np.maximum(self.written - self.frames.shape[1], 0) + self.length - 1

    def take(self, envs: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The stacks [B, *shape] at these positions [B] of these environments [B]."""
        places = (positions[:, None] + np.arange(1 - self.length, 1)) % self.frames.shape[1]
        return np.moveaxis(self.frames[envs[:, None], places], 1, 1 if self._axis == 0 else -1)

    @property
    def size_bytes(self) -> int:
        """Memory of the ring."""
        return self.frames.nbytes

    def get_state(self) -> dict[str, np.ndarray]:
        """Named arrays: the frames (a view) and how many were written."""
        filled = min(int(self.written.max(initial=0)), self.frames.shape[1])
        return {"frames": self.frames[:, :filled], "written": self.written.copy()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Takes over what `get_state` gave; the shapes must be the same."""
        self.frames[:, : state["frames"].shape[1]] = state["frames"]
        self.written[:] = state["written"]
        for env in np.flatnonzero(self.written):
            stack = self.take(np.array([env]), self.written[env : env + 1] - 1)[0]
            self._newest[env] = np.moveaxis(stack, self._axis, 0)


def _frames_for(num_steps: int, length: int) -> int:
    """Frames to keep for so many steps with stacks of this length."""
    return num_steps + int(num_steps * SPARE) + 2 * length
