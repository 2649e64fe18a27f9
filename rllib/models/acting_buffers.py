"""Buffers for acting in batches of one shape in all processes (Policy.act_among)."""

import numpy as np

# Up to this number of environments, in all workers together, a run gives the same bits however they are distributed.
ENVIRONMENTS_ALIKE = 8


class ActingBuffers:
    """Buffers for batches of `total` rows, of which a process sets its own; the others are ones, or like one of these.

    Args:
        policy: acts (rllib/policy.py: Policy).
        total: number of rows in all processes together.
        rows: rows of this process.
    """

    def __init__(self, policy, total: int, rows: slice):
        self.rows = rows
        self.encoder = policy.spec.encoder
        # Networks that read observations as they are stored get them in an array that the first `act` makes.
        self.inputs = None if self.encoder.as_stored else policy.acting_inputs(total)
        self.noise = np.empty((total, 0), np.float32)  # of the form that is given: frozen policies have another
        self.dist_inputs = np.empty((total, policy.num_dist_inputs), np.float32)
        self.actions = np.empty((total, *policy.action_shape), policy.action_dtype)
        self.values = np.empty(total, np.float32)
        self.states = np.zeros((2, total, policy.state_size), np.float32)

    def of_all(self, observations: np.ndarray, noise: np.ndarray, with_values: bool) -> tuple:
        """Sets inputs and noise at `rows`; returns them and the arrays for the results, all of `total` rows."""
        if self.inputs is None:
            # Copies of a stored row: a user's network may not take any other numbers.
            self.inputs = np.repeat(observations[:1], len(self.actions), axis=0)
        if self.encoder.as_stored:
            self.inputs[self.rows] = observations
        else:
            self.encoder.encode(observations, self.inputs[self.rows])
        if self.noise.shape[1:] != noise.shape[1:] or self.noise.dtype != noise.dtype:
            self.noise = np.zeros((len(self.actions), *noise.shape[1:]), noise.dtype)
        self.noise[self.rows] = noise
        return self.inputs, self.noise, self.dist_inputs, self.actions, self.values if with_values else None

    def states_of_all(self, state: np.ndarray) -> np.ndarray:
        """Sets the states at `rows`; returns all states and memory for the next ones, [2, total, state_size]."""
        self.states[0, self.rows] = state
        return self.states

    def copy_to(self, dist_inputs: np.ndarray, actions: np.ndarray, values: np.ndarray | None) -> None:
        """Copies the results at `rows`."""
        dist_inputs[:] = self.dist_inputs[self.rows]
        actions[:] = self.actions[self.rows]
        if values is not None:
            values[:] = self.values[self.rows]
