"""Names of steps, and which of them batches had."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, field

import numpy as np

from tests.witness.script import ACTION_REWARD, Family, Life, episode

# Name of a step: (serial, number, agent, step).
Step = tuple[int, int, int, int]


def life_of(family: Family, step: Step) -> Life:
    """The life in which a step is, by the script."""
    serial, number, agent, index = step
    life = episode(family, serial, number).lives.get(agent)
    assert life is not None and index <= life.length, f"the script has no such step: {step}"
    return life


def following(step: Step, count: int = 1) -> Step:
    """The step of the same life that comes `count` later."""
    return (*step[:3], step[3] + count)


def reward_of(family: Family, step: Step, action: float) -> float:
    """The reward of a step, in the environment's unit, as its row must show it."""
    return life_of(family, step).rewards[step[3]] + ACTION_REWARD * action


@dataclass
class Steps:
    """Steps that batches had, each once.

    Attributes:
        counts: how often each was there.
        cuts: steps whose life was cut after them where its script goes on, because a rule cuts there.
        actions: of each; in the environment's units.
    """

    counts: Counter = field(default_factory=Counter)
    cuts: set[Step] = field(default_factory=set)
    actions: dict[Step, float] = field(default_factory=dict)

    def add(self, step: Step, action: float) -> None:
        """Notes a row of a step.

        Raises:
            AssertionError: it was there before.
        """
        self.counts[step] += 1
        assert self.counts[step] == 1, f"{step} came twice"
        self.actions[step] = action

    def check_complete(
        self,
        family: Family,
        num_open: int = 0,
        left_out: Callable[[int, int], Collection[Step]] = lambda *_: (),
        agents: Container[int] | None = None,
        cuts_wait: bool = False,
    ) -> int:
        """Each life has all of its steps, but for the newest of each environment, which may lack its end.

        Args:
            family: of the scripts.
            num_open: number of episodes before the newest one that may lack their ends as well.
            left_out: function of an episode's serial and number: its steps that a rule leaves out of the batches.
            agents: those whose steps batches hold; None: all.
            cuts_wait: whether the end of a life that was cut may come with the next steps of its agent.

        Returns:
            Number of lives that are complete.
        """
        resumed = {step for step in self.cuts if following(step) in self.counts}
        assert not resumed, f"cut, and followed by a next step: {resumed}"
        by_life: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for *life, index in self.counts:
            by_life[tuple(life)].append(index)
        newest = Counter()
        for serial, number, _ in by_life:
            newest[serial] = max(newest[serial], number)
        complete = 0
        for serial, last in newest.items():
            for number in range(last + 1):
                missing = set(left_out(serial, number))
                for agent, life in episode(family, serial, number).lives.items():
                    if agents is not None and agent not in agents:
                        continue
                    steps = sorted(by_life[serial, number, agent])
                    wanted = [i for i in range(life.length) if (serial, number, agent, i) not in missing]
                    assert steps == wanted[: len(steps)], f"steps of {serial, number, agent}: {steps}, not {wanted}"
                    is_complete = len(steps) == len(wanted)
                    waits = cuts_wait and life.is_cut
                    waits = waits and not any(by_life[serial, later, agent] for later in range(number + 1, last + 1))
                    assert is_complete or waits or number >= last - num_open, (
                        f"{serial, number, agent} has {len(steps)} of {len(wanted)} steps"
                    )
                    complete += is_complete
        return complete


def close(given: float, wanted: float, what: str, tolerance: float = 1e-4) -> None:
    """Checks that two numbers are equal but for the rounding of float32."""
    # `not <=`: NaN is no number that was wanted.
    assert np.abs(np.float64(given) - wanted) <= tolerance * (1 + abs(wanted)), f"{what} {given}, not {wanted}"
