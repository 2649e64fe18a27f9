"""Target networks: copies of weights that follow them slowly (Mnih et al., Nature 2015; tau of arXiv:1509.02971)."""

from collections.abc import Mapping

import numpy as np

from rllib.models.arithmetic import kernels
from rllib.models.dense.network_spec import NetworkSpec
from rllib.policy import Policy


class TargetCopy:
    """A copy of the weights of a learner's module.

    Args:
        module: name of the module; "policy" is the network of the learner's policy.
        tau: step towards the module's weights in an update of the copy: copy += tau * (weights - copy); 1 copies them.
        every: least distance between updates, in the unit of the clock given to `follow` (updates, environment steps).

    Attributes:
        weights: flat float32, changed in place; it exists from `attach` on.
        policy: a Policy on these weights, with separate noise, if they are a copy of the policy's; else None.

    Raises:
        ValueError: if tau is not within 0 ... 1 or `every` is below 1.
    """

    def __init__(self, module: str, tau: float = 1.0, every: int = 1):
        if not 0 <= tau <= 1 or every < 1:
            raise ValueError(f"tau must be within 0 ... 1 and every at least 1, but got tau={tau!r}, every={every!r}")
        self.module, self.tau, self.every = module, tau, every
        self._moved_at = 0
        self._is_elsewhere = False

    def attach(self, source: np.ndarray, spec: NetworkSpec | None = None) -> None:
        """Copies `source`, the module's flat weights, and follows that memory from now on.

        Args:
            source: float32 [weights], the memory itself.
            spec: spec of the policy if the module is its network, else None.
        """
        self._source = source
        self.weights = source.copy()
        self.policy = None if spec is None else Policy(spec, self.weights)

    def act_on(self, device: str) -> None:
        """Lets the policy compute on a torch device, if it can (`Policy.act_on`); `follow` updates those weights."""
        self._is_elsewhere = self.policy.act_on(device)

    def _renew(self) -> None:
        if self._is_elsewhere:
            self.policy.take_weights(self.weights)

    def follow(self, now: int) -> bool:
        """Updates the copy if at least `every` has passed since its last update.

        Args:
            now: the clock, which never decreases.

        Returns:
            whether the copy was updated.
        """
        if now - self._moved_at < self.every:
            return False
        self._moved_at = now
        if self.tau == 1:
            # Not by the formula: 0 * NaN would stay NaN.
            np.copyto(self.weights, self._source)
        else:
            kernels.move_towards(self.weights, self._source, self.tau)
        self._renew()
        return True

    def start_over(self) -> None:
        """Copies the module's weights, whatever tau is."""
        np.copyto(self.weights, self._source)
        self._renew()

    def get_state(self) -> dict[str, np.ndarray]:
        """Copies of the weights and of the time of the last update by the clock."""
        return {"weights": self.weights.copy(), "moved_at": np.array(self._moved_at)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_state`, for a module of the same size."""
        self.weights[:] = state["weights"]
        self._renew()
        self._moved_at = int(state["moved_at"])
