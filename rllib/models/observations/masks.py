"""Action masks: the observation says which actions are legal, and the network gives the others no chance.

A Dict observation with the key "action_mask" holds one number for each choice of an action, 0 where it is illegal. The
mask is part of the network's function: the encoder puts it first into the inputs (encoders.py: MaskedEncoder), and a
masked network writes LOWEST where a choice is illegal (in torch: in_torch.py, MaskedModule). A mask that comes from
infos or from a method becomes a part of the observation first (env/factories/masks.py). So stored distribution inputs
are masked, and losses, KL, entropies, ratios of probabilities and target networks hold without a line about masks
(arXiv:2006.14171).

Masked inputs are replaced, not lowered by a constant: masking twice changes nothing, and nothing is NaN, since
0 * LOWEST is 0. No gradient flows through them.

A row without any legal choice is computed as if all were legal: the last observation of an episode often has such a
mask, and no action is taken there. `without_choice` finds rows in which one is.
"""

from collections.abc import Callable

import numpy as np
from gymnasium import spaces

from rllib.config.conflicts import Unfit
from rllib.models.observations.encoders import MaskedEncoder
from rllib.models.observations.flat_spaces import Leaf, flat_leaves

# Represents an input of an illegal action: far below all others, and finite.
LOWEST = np.finfo(np.float32).min


def masked_columns(space: spaces.Space, key: str | None, distribution) -> slice | None:
    """Columns of the mask in a stored row of a Dict observation; None if the observations have none.

    Args:
        space: space of the observations.
        key: key of the mask; None: there is none.
        distribution: distribution of the actions.

    Raises:
        ValueError: for a mask of another length than the actions have choices, or of numbers that are no mask.
    """
    # A distribution of the user's own has no choices that are known here: its network reads the mask itself.
    if not has_key(space, key) or distribution.choices is None:
        return None
    leaves = [leaf for leaf in flat_leaves(space) if leaf.path.startswith(f"[{key!r}]")]
    needed = num_choices(distribution)
    given = sum(leaf.stop - leaf.start for leaf in leaves)
    off = f"Or use .environment(action_mask_key=None), and the policy reads {key!r} as it reads other numbers."
    as_numbers = {"action_mask_key": None}
    if not needed:
        raise Unfit(
            f"the observations have the key {key!r}, but continuous actions cannot be masked.",
            f"Leave it out of the observations. {off}",
            as_numbers,
        )
    if bad := next((leaf for leaf in leaves if not _is_mask(leaf)), None):
        raise Unfit(
            f"the observation's {key!r} is {bad.space}, but a mask is zeros and ones: use MultiBinary({needed}), or a "
            f"Box from 0 to 1 of {needed} numbers.",
            off,
            as_numbers,
        )
    if len(space.spaces) == 1:
        raise Unfit(f"the observations hold nothing but {key!r}.", f"Add what the policy is to read. {off}", as_numbers)
    if given != needed:
        raise Unfit(
            f"the observation's {key!r} is {space[key]}, {given} numbers, but the actions have {needed} choices, and "
            f"the mask needs a number for each: MultiBinary({needed}).",
            off,
            as_numbers,
        )
    return slice(leaves[0].start, leaves[-1].stop)


def refuse_nested(space: spaces.Space, key: str | None, distribution) -> None:
    """Refuses a mask inside of a part of the observations, where no network looks for it.

    Args:
        space, key, distribution: as for `masked_columns`.

    Raises:
        Unfit: if there is one, and actions that could be masked.
    """
    if key is None or has_key(space, key) or not distribution.choices:
        return
    if nested := next((leaf for leaf in flat_leaves(space) if f"[{key!r}]" in leaf.path), None):
        raise Unfit(
            f"the observations have {key!r} at observation{nested.path}, but a mask of legal actions is read at the "
            f"top of a Dict alone, observation[{key!r}]: illegal actions would be taken.",
            "Move it there, with a number for each choice of the whole action. Or use .environment(action_mask_key="
            f"None), and the policy reads {key!r} as it reads other numbers.",
            {"action_mask_key": None},
        )


def has_key(space: spaces.Space, key: str | None) -> bool:
    """Whether observations of the space have a part of this name."""
    return isinstance(space, spaces.Dict) and key in space.spaces


def _is_mask(leaf: Leaf) -> bool:
    if isinstance(leaf.space, spaces.Box):
        return bool((leaf.space.low >= 0).all())
    return isinstance(leaf.space, spaces.MultiBinary)


def num_choices(distribution) -> int:
    """Number of choices of an action, over all of its parts: the length of a mask."""
    return sum(stop - start for start, stop in distribution.choices) // distribution.num_atoms


def parts_of_mask(distribution) -> list[tuple[slice, slice]]:
    """Slices of the mask and of the distribution inputs for each part of an action that is a choice."""
    atoms, found, first = distribution.num_atoms, [], 0
    for start, stop in distribution.choices:
        last = first + (stop - start) // atoms
        found.append((slice(first, last), slice(start, stop)))
        first = last
    return found


def without_choice(mask: np.ndarray, distribution) -> np.ndarray:
    """Whether masks [B, num_choices] leave some part of the action without a legal choice, bool [B]."""
    none = [~mask[:, columns].any(-1) for columns, _ in parts_of_mask(distribution)]
    return np.logical_or.reduce(none)


def choice_problem(
    masks: np.ndarray, distribution, where: Callable[[int], str], acting: np.ndarray | None = None
) -> str | None:
    """Message about the first mask that leaves no legal action, and what to do; None if all leave one.

    Args:
        masks: [B, num_choices].
        distribution: distribution of the actions.
        where: function of the row that returns the beginning of the message.
        acting: bool [B], rows that are acted upon; None: all. The others may have any mask.
    """
    without = without_choice(masks, distribution)
    if acting is not None:
        without &= acting
    if not without.any():
        return None
    row = int(without.argmax())
    return (
        f"{where(row)}: the action mask is {masks[row].astype(int).tolist()}, and each part of an action needs a "
        "choice that is not 0. Let the environment end the episode where nothing can be done, or have a legal action "
        "that does nothing."
    )


class MaskedOutputs:
    """Writes LOWEST into distribution inputs where a choice is illegal.

    Args:
        distribution: reads the outputs.

    Attributes:
        without_choice: [B] bool, rows of the last pass that had no legal choice; None if all had one.
    """

    def __init__(self, distribution):
        self._parts = parts_of_mask(distribution)
        self.without_choice: np.ndarray | None = None

    def illegal(self, mask: np.ndarray) -> list[np.ndarray]:
        """Illegal choices of each part, bool [choices, 1, B]; none are marked where all are illegal.

        Args:
            mask: [B, num_choices].
        """
        found, without = [], None
        for columns, _ in self._parts:
            illegal = mask[:, columns].T == 0
            none = illegal.all(0)
            if none.any():
                illegal[:, none] = False
                without = none if without is None else without | none
            found.append(illegal[:, None])
        self.without_choice = without
        return found

    def write(self, outputs: np.ndarray, illegal: list[np.ndarray], value: float = LOWEST) -> None:
        """Writes a value into the outputs of illegal choices.

        Args:
            outputs: [B, K], best in feature-major memory.
            illegal: result of `illegal`.
            value: to write.
        """
        features = outputs.T
        for (_, where), bad in zip(self._parts, illegal):
            part = features[where]
            by_choice = part.reshape(len(bad), len(part) // len(bad), part.shape[1])
            np.copyto(by_choice, value, where=bad)


class MaskedNetwork:
    """A policy's network with a mask in its inputs: the wrapped network, with masked outputs.

    Args:
        network: reads the inputs without the mask.
        encoder: puts the mask into the inputs.
        distribution: reads the outputs.

    Attributes:
        network: the wrapped network.
        masks: masks the outputs.
    """

    def __init__(self, network, encoder: MaskedEncoder, distribution):
        self.network = network
        self.masks, self._split = MaskedOutputs(distribution), encoder.split
        self.closed_form, self.gives_values = network.closed_form, network.gives_values
        self._illegal: list[np.ndarray] = []  # of the last forward

    @property
    def gradient(self) -> np.ndarray:
        """The buffer of `backward`."""
        return self.network.gradient

    def forward(self, inputs: np.ndarray, *sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution inputs [B, K] and values [B]; remembers what backward needs."""
        mask, others = self._split(inputs)
        dist_inputs, values = self.network.forward(others, *sequences)
        self._illegal = self.masks.illegal(mask)
        return self._masked(dist_inputs, self._illegal), values

    def backward(self, gradients: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The gradient with respect to the weights; arguments as for NumpyNetwork.backward.

        The gradient with respect to illegal choices is set to zero in place.
        """
        self.masks.write(gradients[0], self._illegal, 0.0)
        return self.network.backward(gradients)

    def forward_policy(self, inputs: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        mask, others = self._split(inputs)
        return self._masked(self.network.forward_policy(others, values), self.masks.illegal(mask))

    def forward_value(self, inputs: np.ndarray) -> np.ndarray:
        return self.network.forward_value(self._split(inputs)[1])

    def step(self, inputs: np.ndarray, *states: np.ndarray | None) -> np.ndarray:
        """One step of a network with a memory."""
        mask, others = self._split(inputs)
        return self._masked(self.network.step(others, *states), self.masks.illegal(mask))

    def _masked(self, outputs: np.ndarray, illegal: list[np.ndarray]) -> np.ndarray:
        # Buffers of the built-in networks may be overwritten; a user's module may return its own parameters.
        outputs = outputs if self.closed_form else outputs.copy()
        self.masks.write(outputs, illegal)
        return outputs

    def resample(self, rng: np.random.Generator) -> None:
        """Draws new noise for the noisy layers."""
        self.network.resample(rng)

    @property
    def noise(self) -> np.ndarray:
        """Noise in the weights of the noisy layers."""
        return self.network.noise

    def silence(self) -> None:
        """Sets the noise in the weights to zero."""
        self.network.silence()


class MaskedNetworkPerRow:
    """A network with separate weights for each row (dense/in_numpy.py: NetworkPerRow) and a mask in its inputs.

    Args:
        network, encoder, distribution: as for MaskedNetwork.
    """

    def __init__(self, network, encoder: MaskedEncoder, distribution):
        self._network, self._split, self._masks = network, encoder.split, MaskedOutputs(distribution)

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """Distribution inputs [N, K] of encoded observations [N, num_inputs + 1]."""
        mask, others = self._split(inputs)
        outputs = self._network.forward(others)
        self._masks.write(outputs, self._masks.illegal(mask))
        return outputs
