"""The environments of Stable-Baselines3's and sb3-contrib's own examples: `common.envs` of both."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_BIT_PICTURE = 36


class IdentityEnv(gymnasium.Env):
    """The right action is the observation: a reward of 1 for it, else 0.

    Args:
        dim: number of actions; None: 1, or those of `space`.
        space: space of actions and observations, instead of `dim`.
        ep_length: steps of an episode, which is truncated then.
    """

    def __init__(self, dim: int | None = None, space: spaces.Space | None = None, ep_length: int = 100):
        if dim is not None and space is not None:
            raise AssertionError(f"dim={dim} and space={space} are both given: give one of them")
        self.action_space = self.observation_space = space or spaces.Discrete(1 if dim is None else dim)
        self.ep_length, self.current_step, self.num_resets = ep_length, 0, 0
        self._choose_next_state()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.action_space.seed(seed)
        self.current_step = 0
        self.num_resets += 1
        self._choose_next_state()
        return self.state, {}

    def step(self, action):
        reward = self._get_reward(action)
        self._choose_next_state()
        self.current_step += 1
        return self.state, reward, False, self.current_step >= self.ep_length, {}

    def _choose_next_state(self) -> None:
        self.state = self.action_space.sample()

    def _get_reward(self, action) -> float:
        return float(np.all(self.state == action))

    def render(self, mode: str = "human") -> None:
        """Does nothing."""


class IdentityEnvBox(IdentityEnv):
    """IdentityEnv of a number.

    Args:
        low, high: its bounds.
        eps: what an action may differ by.
        ep_length: as for IdentityEnv.
    """

    def __init__(self, low: float = -1.0, high: float = 1.0, eps: float = 0.05, ep_length: int = 100):
        self.eps = eps
        super().__init__(space=spaces.Box(low, high, (1,), np.float32), ep_length=ep_length)

    def _get_reward(self, action) -> float:
        return float(np.all(np.abs(self.state - action) <= self.eps))


class IdentityEnvMultiDiscrete(IdentityEnv):
    """IdentityEnv of two numbers.

    Args:
        dim: values of each.
        ep_length: as for IdentityEnv.
    """

    def __init__(self, dim: int = 1, ep_length: int = 100):
        super().__init__(space=spaces.MultiDiscrete([dim, dim]), ep_length=ep_length)


class IdentityEnvMultiBinary(IdentityEnv):
    """IdentityEnv of switches.

    Args:
        dim: their number.
        ep_length: as for IdentityEnv.
    """

    def __init__(self, dim: int = 1, ep_length: int = 100):
        super().__init__(space=spaces.MultiBinary(dim), ep_length=ep_length)


class FakeImageEnv(gymnasium.Env):
    """Random pictures and no reward, for episodes of ten steps.

    Args:
        action_dim: number of actions, or of their components.
        screen_height, screen_width, n_channels: height, width and number of channels of a picture.
        discrete: choices; False: numbers.
        channel_first: [channels, height, width]; False: [height, width, channels].
    """

    def __init__(
        self,
        action_dim: int = 6,
        screen_height: int = 84,
        screen_width: int = 84,
        n_channels: int = 1,
        discrete: bool = True,
        channel_first: bool = False,
    ):
        picture = (screen_height, screen_width)
        self.observation_shape = (n_channels, *picture) if channel_first else (*picture, n_channels)
        self.observation_space = spaces.Box(0, 255, self.observation_shape, np.uint8)
        self.action_space = spaces.Discrete(action_dim) if discrete else spaces.Box(-1, 1, (5,), np.float32)
        self.ep_length, self.current_step = 10, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.current_step = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.current_step += 1
        return self.observation_space.sample(), 0.0, False, self.current_step >= self.ep_length, {}

    def render(self, mode: str = "human") -> None:
        """Does nothing."""


class SimpleMultiObsEnv(gymnasium.Env):
    """A grid whose four inner cells are blocked, seen as a vector (of the column) and a picture (of the row).

    The last cell ends the episode with a reward of 1; another step costs 0.1, and the 101st truncates the episode. The
    way is along the border.

    Args:
        num_col, num_row: numbers of columns and rows of the grid.
        random_start: begin in a random cell; False: in the first.
        discrete_actions: 0 to 3 (left, down, right, up); False: four numbers, the largest of which counts.
        channel_last: pictures are [64, 64, 1]; False: [1, 64, 64].
    """

    def __init__(
        self,
        num_col: int = 4,
        num_row: int = 4,
        random_start: bool = True,
        discrete_actions: bool = True,
        channel_last: bool = True,
    ):
        self.vector_size, self.img_size = 5, [64, 64, 1] if channel_last else [1, 64, 64]
        self.random_start, self.discrete_actions = random_start, discrete_actions
        self.num_col, self.num_row, self.max_count = num_col, num_row, 100
        self.action_space = spaces.Discrete(4) if discrete_actions else spaces.Box(0, 1, (4,))
        self.observation_space = spaces.Dict({
            "vec": spaces.Box(0, 1, (self.vector_size,), np.float64),
            "img": spaces.Box(0, 255, self.img_size, np.uint8),
        })  # fmt: skip
        columns = np.random.random((num_col, self.vector_size))
        rows = np.random.randint(0, 255, (num_row, *self.img_size), np.uint8)
        self.state_mapping = [{"vec": column, "img": row} for column in columns for row in rows]
        self.max_state = len(self.state_mapping) - 1
        self.count = self.state = 0
        self.log = ""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.state = int(self.np_random.integers(self.max_state)) if self.random_start else 0
        return self.get_state_mapping(), {}

    def step(self, action):
        action = int(action if self.discrete_actions else np.argmax(action))
        self.count += 1
        before = self.state
        row, column = divmod(before, self.num_col)
        on_edge_of_rows = row in (0, self.num_row - 1)
        on_edge_of_columns = column in (0, self.num_col - 1)
        if action in (0, 2) and on_edge_of_rows and 0 <= column + action - 1 < self.num_col:
            self.state += action - 1
        elif action in (1, 3) and on_edge_of_columns and 0 <= row + 2 - action < self.num_row:
            self.state += (2 - action) * self.num_col
        at_end = self.state == self.max_state
        self.log = f"{('left', 'down', 'right', 'up')[action]}: {before} -> {self.state}"
        reward = 1.0 if at_end else -0.1
        return self.get_state_mapping(), reward, at_end, self.count > self.max_count, {"got_to_end": at_end}

    def get_state_mapping(self) -> dict[str, np.ndarray]:
        """The observation of the present cell."""
        return self.state_mapping[self.state]

    def render(self, mode: str = "human") -> None:
        """Prints the newest step."""
        print(self.log)


class BitFlippingEnv(gymnasium.Env):
    """Bits, all of which are to become 1, as an environment with goals; a reward of 0 at the goal, else -1.

    Args:
        n_bits: their number.
        continuous: numbers, of which those above 0 flip their bits; False: the number of the bit to flip.
        max_steps: largest number of steps of an episode; None: as many as bits.
        discrete_obs_space: bits as one number.
        image_obs_space: bits as the first pixels of a picture.
        channel_first: its form is [1, 36, 36]; False: [36, 36, 1].
        render_mode: "rgb_array": `render` returns the bits, instead of printing them.

    Raises:
        ValueError: for both forms of observations.
    """

    def __init__(
        self,
        n_bits: int = 10,
        continuous: bool = False,
        max_steps: int | None = None,
        discrete_obs_space: bool = False,
        image_obs_space: bool = False,
        channel_first: bool = True,
        render_mode: str = "human",
    ):
        if discrete_obs_space and image_obs_space:
            raise ValueError("discrete_obs_space=True and image_obs_space=True: give one of them")
        self.render_mode, self.continuous = render_mode, continuous
        self.discrete_obs_space, self.image_obs_space = discrete_obs_space, image_obs_space
        self.image_shape = (1, *[_BIT_PICTURE] * 2) if channel_first else (*[_BIT_PICTURE] * 2, 1)
        self._bits = spaces.MultiBinary(n_bits)
        self.observation_space = spaces.Dict({key: self._space() for key in _GOALS})
        self.action_space = spaces.Box(-1, 1, (n_bits,), np.float32) if continuous else spaces.Discrete(n_bits)
        self.state, self.desired_goal = np.zeros(n_bits, np.int8), np.ones(n_bits, np.int8)
        self.max_steps, self.current_step = n_bits if max_steps is None else max_steps, 0

    def _space(self) -> spaces.Space:
        if self.discrete_obs_space:
            return spaces.Discrete(2**self._bits.n)
        return spaces.Box(0, 255, self.image_shape, np.uint8) if self.image_obs_space else self._bits

    def convert_if_needed(self, state: np.ndarray) -> Any:
        """Bits [n_bits] as an observation."""
        if self.discrete_obs_space:
            return int(np.sum(state.astype(np.int64) << np.arange(len(state))))
        if self.image_obs_space:
            pixels = np.zeros(int(np.prod(self.image_shape)), np.uint8)
            pixels[: len(state)] = np.where(state, 255, 0)
            return pixels.reshape(self.image_shape)
        return state.copy()

    def _bits_of(self, observations: Any) -> np.ndarray:
        """Bits [..., n_bits] of one observation or several."""
        array = np.asarray(observations)
        if self.discrete_obs_space:
            return (array[..., None].astype(np.int64) >> np.arange(self._bits.n)) & 1
        if self.image_obs_space:
            return array.reshape(*array.shape[: array.ndim - 3], -1)[..., : self._bits.n] > 0
        return array

    def _observation(self) -> dict[str, Any]:
        state = self.convert_if_needed(self.state)
        return dict(zip(_GOALS, (state, state, self.convert_if_needed(self.desired_goal)), strict=True))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self._bits.seed(seed)
        self.current_step, self.state = 0, self._bits.sample()
        return self._observation(), {}

    def step(self, action):
        flipped = np.asarray(action) > 0 if self.continuous else int(action)
        self.state[flipped] = 1 - self.state[flipped]
        observation = self._observation()
        reward = float(self.compute_reward(observation["achieved_goal"], observation["desired_goal"], None))
        self.current_step += 1
        is_reached = reward == 0
        return observation, reward, is_reached, self.current_step >= self.max_steps, {"is_success": is_reached}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> np.ndarray:
        """0 where goals are equal, else -1; of one goal or several."""
        differs = np.any(self._bits_of(achieved_goal) != self._bits_of(desired_goal), axis=-1)
        return -np.asarray(differs, np.float32)

    def render(self):
        if self.render_mode == "rgb_array":
            return self.state.copy()
        print(self.state)
        return None


_GOALS = ("observation", "achieved_goal", "desired_goal")


# ---------------------------------------------------------------------- sb3-contrib


class _InvalidActions(IdentityEnv):
    """IdentityEnv with illegal actions, which are drawn at each step among those that are not right.

    Args:
        sizes: number of values of each part of an action.
        space: space of actions and observations.
        ep_length: as for IdentityEnv.
        n_invalid_actions: their number.
    """

    def __init__(self, sizes: Sequence[int], space: spaces.Space, ep_length: int, n_invalid_actions: int):
        self._sizes, self.n_invalid_actions = [int(size) for size in sizes], n_invalid_actions
        right = len(self._sizes)
        if n_invalid_actions > sum(self._sizes) - right:
            raise AssertionError(f"n_invalid_actions={n_invalid_actions} must be at most {sum(self._sizes) - right}")
        super().__init__(space=space, ep_length=ep_length)

    def _choose_next_state(self) -> None:
        super()._choose_next_state()
        starts = np.cumsum([0, *self._sizes[:-1]])
        others = np.setdiff1d(np.arange(sum(self._sizes)), starts + np.reshape(self.state, -1))
        self.invalid_actions = np.random.choice(others, self.n_invalid_actions, replace=False)

    def action_masks(self) -> list[bool]:
        """Which values of the parts, side by side, are legal."""
        return [index not in self.invalid_actions for index in range(sum(self._sizes))]


class InvalidActionEnvDiscrete(_InvalidActions):
    """A choice, some of whose actions are illegal.

    Args:
        dim: number of actions; None: 1.
        ep_length, n_invalid_actions: as above.
    """

    def __init__(self, dim: int | None = None, ep_length: int = 100, n_invalid_actions: int = 0):
        dim = 1 if dim is None else dim
        super().__init__([dim], spaces.Discrete(dim), ep_length, n_invalid_actions)


class InvalidActionEnvMultiDiscrete(_InvalidActions):
    """Several choices, some of whose actions are illegal.

    Args:
        dims: number of actions of each; None: two of 1.
        ep_length, n_invalid_actions: as above.
    """

    def __init__(self, dims: list[int] | None = None, ep_length: int = 100, n_invalid_actions: int = 0):
        dims = [1, 1] if dims is None else dims
        super().__init__(dims, spaces.MultiDiscrete(dims), ep_length, n_invalid_actions)


class InvalidActionEnvMultiBinary(_InvalidActions):
    """Switches, some of whose positions are illegal.

    Args:
        dim: their number; None: 1.
        ep_length, n_invalid_actions: as above.
    """

    def __init__(self, dim: int | None = None, ep_length: int = 100, n_invalid_actions: int = 0):
        dim = 1 if dim is None else dim
        super().__init__([2] * dim, spaces.MultiBinary(dim), ep_length, n_invalid_actions)
