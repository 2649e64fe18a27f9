"""Steps of an expert or of a policy, which a discriminator tells apart."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Steps:
    """Columns of steps, each [B, ...] in the form of the policy's batches.

    Attributes:
        observations: as stored.
        actions: as played: within the bounds of the environment, in the policy's units.
        next_observations: as stored; of terminated steps the true final ones.
        terminated: bool.
        log_probs: float32, of the actions by the newest policy; None where no logit reads them.
        left_out_ends: terminated episodes whose last steps are not here, as it is unknown what followed them.
    """

    observations: np.ndarray
    actions: np.ndarray
    next_observations: np.ndarray
    terminated: np.ndarray
    log_probs: np.ndarray | None = None
    left_out_ends: int = 0

    def __len__(self) -> int:
        return len(self.terminated)
