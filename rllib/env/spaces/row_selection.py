"""Parts of stored observations: the rows of another space from those of one that has more, and their structure."""

import numpy as np
from gymnasium import spaces

from rllib.env.spaces.observations import observation_column
from rllib.models.observations.flat_spaces import Leaf, flat_leaves, parts

# Adapters put an observation that is no Dict under this key (env/factories/masks.py, previous_steps.py).
_OUTER = "['observations']"


class RowSelection:
    """Takes the observations of one space out of those of another one that has the same parts, and more.

    Parts are found by their keys. Where adapters have put the whole of one observation under the key "observations",
    they are found there.

    Args:
        given: space of the observations that are there.
        wanted: space of those that are taken out.
        key: key of the given observations, under which the wanted ones may be as a whole; None: there is none.

    Attributes:
        shape, dtype: shape and dtype of one row.

    Raises:
        ValueError: naming the first part that is not there, or is another.
    """

    def __init__(self, given: spaces.Space, wanted: spaces.Space, key: str | None = None):
        column, source = observation_column(wanted), observation_column(given)
        self.shape, self.dtype = column.shape, np.dtype(column.dtype)
        self._columns: np.ndarray | None = None
        if given == wanted or (_is_plain(given) and _is_plain(wanted) and _are_alike(given, wanted)):
            return
        available = {leaf.path: leaf for leaf in flat_leaves(given)}
        if parts(given) is None or (parts(wanted) is None and isinstance(wanted, spaces.Discrete)):
            raise ValueError(f"they are {given}, and not {wanted}")
        columns = []
        for leaf in flat_leaves(wanted):
            found = _found(available, leaf, "" if key is None else f"[{key!r}]")
            columns.append(np.arange(found.start, found.stop))
        self._columns = np.concatenate(columns)
        if len(self._columns) == source.shape[0] and (self._columns == np.arange(source.shape[0])).all():
            self._columns = None

    @property
    def takes_all(self) -> bool:
        """Whether rows stay as they are."""
        return self._columns is None

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Rows [N, *shape] from stored observations [N, ...] of the given space; the same where nothing changes."""
        if self._columns is None:
            return rows.astype(self.dtype, copy=False)
        return rows[:, self._columns].astype(self.dtype, copy=False).reshape(len(rows), *self.shape)


def _is_plain(space: spaces.Space) -> bool:
    """Whether observations of the space are stored in its own shape."""
    return isinstance(space, spaces.Box | spaces.Discrete)


def _are_alike(one: spaces.Space, other: spaces.Space) -> bool:
    """Whether values of two spaces without parts are of one form; their bounds may differ."""
    if type(one) is not type(other) or one.shape != other.shape:
        return False
    if isinstance(one, spaces.Box):
        return True
    choices = [getattr(space, "n", None) if isinstance(space, spaces.Discrete) else None for space in (one, other)]
    numbers = [space.nvec.tolist() if isinstance(space, spaces.MultiDiscrete) else None for space in (one, other)]
    return choices[0] == choices[1] and numbers[0] == numbers[1] and np.array_equal(_start(one), _start(other))


def _start(space: spaces.Space):
    return getattr(space, "start", 0)


def _found(available: dict[str, Leaf], leaf: Leaf, under: str) -> Leaf:
    outer = (under, _OUTER + under) if under else ()
    for path in (
        *(prefix + leaf.path for prefix in outer),
        leaf.path,
        _OUTER + leaf.path,
        leaf.path.removeprefix(_OUTER),
    ):
        if (found := available.get(path)) is not None:
            if not _are_alike(found.space, leaf.space):
                raise ValueError(f"observation{leaf.path} is {found.space}, and not {leaf.space}")
            return found
    raise ValueError(f"there is no observation{leaf.path}, {leaf.space}; there are {', '.join(available) or 'no keys'}")


def structured(space: spaces.Space, rows: np.ndarray):
    """Stored observations [N, ...] as a batch in the structure of their space, as vector environments give it.

    Args:
        space: space of one observation.
        rows: as ObservationColumn stores them.

    Returns:
        an array [N, ...], or a dict or tuple of arrays.
    """
    return rows if _is_plain(space) else _structured(space, iter(flat_leaves(space)), rows)


def _structured(space: spaces.Space, leaves, rows: np.ndarray):
    inner = parts(space)
    if inner is None:
        return _values(next(leaves), rows)
    values = {key: _structured(part, leaves, rows) for key, part in inner}
    return values if isinstance(space, spaces.Dict) else tuple(values.values())


def _values(leaf: Leaf, rows: np.ndarray) -> np.ndarray:
    own = rows[:, leaf.start : leaf.stop]
    if leaf.choices is None:
        return own.reshape(len(rows), *leaf.shape).astype(leaf.space.dtype)
    ends = np.cumsum(leaf.choices)[:-1]
    numbers = np.stack([part.argmax(1) for part in np.split(own, ends, axis=1)], axis=1)
    return numbers.reshape(len(rows), *leaf.shape).astype(leaf.space.dtype) + _start(leaf.space)
