"""Members of a group: how its observation divides into theirs, and what their network and a mixer read of it."""

from dataclasses import dataclass

from rllib.storage.json_dataclass import Described

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Members(Described):
    """The parts of a group's encoded observation, without the mask: one for each member, side by side and alike.

    Attributes:
        count: number of members.
        width: numbers of one part.
        own: columns (start, stop) of a part that the network reads for its member.
        state: columns of the first part that hold the state of the environment; none: observations have no state.
        ids: whether the network also reads which member it computes for, one-hot.
    """

    count: int
    width: int
    own: Ranges
    state: Ranges = ()
    ids: bool = True
    kind = "members"

    @property
    def num_own(self) -> int:
        """Numbers that the network reads of a part."""
        return sum(stop - start for start, stop in self.own)

    @property
    def num_inputs(self) -> int:
        """Inputs of the network, without the closing 1."""
        return self.num_own + self.ids * self.count

    def mixed_by(self, first: int = 0) -> Ranges:
        """Columns of an encoded observation that a mixer reads: the state, or all that the members read.

        Args:
            first: columns before the first part: those of a mask.
        """
        if self.state:
            return tuple((first + start, first + stop) for start, stop in self.state)
        starts = range(first, first + self.count * self.width, self.width)
        return joined(tuple((at + start, at + stop) for at in starts for start, stop in self.own))


def joined(ranges: Ranges) -> Ranges:
    """The same columns in as few ranges as hold them; `ranges` are in order."""
    found: list[tuple[int, int]] = []
    for start, stop in ranges:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)
