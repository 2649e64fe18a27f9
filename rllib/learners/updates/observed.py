"""Running statistics of observations, by which SimBa's and SimbaV2's networks normalise their inputs."""

from collections.abc import Iterable

from rllib.learners.updates.objective import ModuleVector
from rllib.learners.updates.target_copy import TargetCopy
from rllib.models.observations.filters import RunningMoments
from rllib.models.residual.layout import ResidualLayout


class ObservedMoments:
    """Moments of the observations that a policy has seen, in float64, and their places in a learner's weights.

    All networks normalise all rows, also those stored long ago, by the newest statistics: the actor, the critics, and
    also target networks, which do not follow them slowly.

    Args:
        vector: the policy's network and the critics.
        targets: target copies of these.

    Attributes:
        moments: moments of encoded observations.
    """

    def __init__(self, vector: ModuleVector, targets: Iterable[TargetCopy]):
        self._policy = vector.policy
        flats = [(layout, vector[name]) for name, layout in vector.layouts.items()]
        flats += [(vector.layouts[target.module], target.weights) for target in targets]
        self._places = [
            layout.split(flat)[1:]
            for layout, flat in flats
            if isinstance(layout, ResidualLayout) and not layout.residual.is_by_batch
        ]
        self.moments = RunningMoments(vector.policy.spec.num_inputs)

    def __bool__(self) -> bool:
        """Whether any network normalises by these moments."""
        return bool(self._places)

    def add(self, observations) -> None:
        """Adds observations [B, *shape], as stored, and writes the new statistics into the networks."""
        inputs = self._policy.encode(observations, self._policy.new_inputs(len(observations)))
        self.moments.add(inputs[:, :-1])
        self.write()

    def write(self) -> None:
        """Writes the statistics into the networks; before the second observation they keep mean 0 and variance 1."""
        if self.moments.count < 2:
            return
        for mean, variance in self._places:
            mean[:], variance[:] = self.moments.mean, self.moments.variance
