"""Fragments that wait until there are enough of them for a train batch."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rllib.errors import DamagedFileError
from rllib.replay.fragment_replay import FragmentReplay
from rllib.sample_batch import SampleBatch


class PolicyFragment(NamedTuple):
    """Rows of one policy of a fragment.

    Attributes:
        rows: rows of the policy.
        env_steps: steps of the environments that they were made in; as many as rows where there is one agent.
        steps: those by which a train batch fills: of the environments, or of all agents by count_steps_by.
    """

    rows: SampleBatch
    env_steps: int
    steps: int


class FragmentQueue:
    """Fragments of one policy in the order in which they arrived, each with the ones that are replayed with it.

    Args:
        batch_size: steps of a train batch, at least; it is made of whole fragments.
        replay: old fragments, of which some are mixed in.

    Attributes:
        num_steps: steps that wait.
    """

    def __init__(self, batch_size: int, replay: FragmentReplay[PolicyFragment]):
        self._batch_size, self._replay = batch_size, replay
        self._fragments: deque[PolicyFragment] = deque()
        self.num_steps = 0

    @property
    def is_full(self) -> bool:
        """Whether the fragments suffice for a train batch."""
        return self.num_steps >= self._batch_size

    def put(self, fragment: PolicyFragment) -> None:
        """Appends a new fragment, and those that are replayed with it."""
        for each in self._replay.mixed(fragment):
            self._fragments.append(each)
            self.num_steps += each.steps

    def pop_batch(self) -> list[PolicyFragment]:
        """Removes the fragments of one train batch, the oldest ones; the queue has to be full."""
        fragments, steps = [], 0
        while steps < self._batch_size:
            fragments.append(self._fragments.popleft())
            steps += fragments[-1].steps
        self.num_steps -= steps
        return fragments

    def get_state(self) -> dict[str, np.ndarray]:
        """Named arrays of the fragments that wait; without those that are kept for replay."""
        state = {}
        for i, (rows, env_steps, steps) in enumerate(self._fragments):
            state |= {f"{i}.{name}": column for name, column in rows.items()}
            in_lockstep = -1 if rows.num_steps is None else rows.num_steps
            state[f"{i}"] = np.array([rows.policy_version, in_lockstep, env_steps, steps])
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a state of `get_state`; nothing is kept for replay."""
        self.clear()
        for i in range(sum("." not in name for name in state)):
            first, (version, in_lockstep, env_steps, steps) = f"{i}.", state[f"{i}"].tolist()
            columns = {name.removeprefix(first): state[name] for name in state if name.startswith(first)}
            rows = SampleBatch(columns, policy_version=version, num_steps=None if in_lockstep < 0 else in_lockstep)
            self._fragments.append(PolicyFragment(rows, env_steps, steps))
            self.num_steps += steps

    @staticmethod
    def refuse_state(state: Mapping[str, np.ndarray]) -> None:
        """Refuses a state that `set_state` cannot restore, or with which a train batch would never be full.

        Raises:
            DamagedFileError: (a ValueError) see above.
        """
        for name in (name for name in state if "." not in name):
            numbers = state[name]
            if numbers.shape != (4,) or numbers.dtype.kind != "i" or numbers.min() < -1 or numbers[2:].min() < 0:
                raise DamagedFileError(
                    f"{name} of waiting fragments must be the numbers of a version, of steps in lockstep (-1: none), "
                    f"and two numbers of steps, but is {numbers.tolist()!r:.80}"
                )

    def clear(self) -> None:
        """Forgets all fragments, those for replay as well."""
        self._fragments.clear()
        self._replay.clear()
        self.num_steps = 0
