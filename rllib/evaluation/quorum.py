"""The number of workers that a round of sampling waits for (the setting sample_quorum)."""

import math

# A share such as 0.55 of 20 workers is 11, though the product of the two floats is a little more.
_ROUNDING = 1e-9


def quorum_of(share: float, num_workers: int) -> int:
    """Number of workers that have to answer: the share of all of them, rounded up, and at least one.

    Args:
        share: 0 < share <= 1.
        num_workers: that are there.
    """
    return max(1, math.ceil(share * num_workers - _ROUNDING))
