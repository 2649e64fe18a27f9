"""What a run must show whose episodes are told by loops outside: rows, dropped rows and counts, from the scripts."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tests.witness.checks import Step, Steps
from tests.witness.doors.loops import EARLY_REWARD, Manner
from tests.witness.script import ACTION_REWARD, CRASHED, Episode, Family, episode

# Algorithms that leave out the steps in which somebody else has acted.
DROP_LOGGED = ("PPO", "A2C", "PG")


@dataclass
class Told:
    """The scripts of a run's loops, and which of their steps become rows.

    Args:
        family, manner: of the loops.
        drops_logged: whether steps in which somebody else acts are left out.

    Attributes:
        steps: that were found.
    """

    family: Family
    manner: Manner
    drops_logged: bool
    steps: Steps = field(default_factory=Steps)

    def left_out(self, serial: int, number: int) -> Collection[Step]:
        """The steps of an episode that a documented rule leaves out."""
        script = episode(self.family, serial, number)
        if not self.manner.trains(serial, number):
            return {(serial, number, agent, i) for agent, life in script.lives.items() for i in range(life.length)}
        return self.manner.logged_steps(script).keys() if self.drops_logged else ()

    def check_rows(self, num_open: int = 0) -> int:
        """Each step that is not left out is there once, and has the logged action; returns the complete lives."""
        left_out = self.left_out
        for step, action in self.steps.actions.items():
            assert step not in left_out(*step[:2]), f"{step} was to be left out"
            script = episode(self.family, *step[:2])
            logged = self.manner.logged_steps(script).get(step)
            assert logged in (None, action), f"{step}: action {action}, not {logged}"
        return self.steps.check_complete(self.family, num_open, left_out)

    def check_counts(self, result: Mapping, num_running: int = 1) -> None:
        """Steps, and the lengths and returns of episodes that have ended.

        Args:
            result: the last one.
            num_running: number of newest episodes of each serial whose ends may not have been told yet.
        """
        assert result["num_agent_steps_sampled"] == len(self.steps.counts)
        newest = Counter()
        for serial, number, *_ in self.steps.counts:
            newest[serial] = max(newest[serial], number)
        may_be, must_be = Counter(), Counter()
        for serial, last in newest.items():
            for number in range(last + 1):
                script = episode(self.family, serial, number)
                if script.events[-1].end != CRASHED and self.manner.trains(serial, number):
                    told = self._length(script), self._return(script)
                    may_be[told] += 1
                    must_be[told] += number <= last - num_running
        hist = result["hist_stats"]
        found = Counter(zip(hist["episode_lengths"], hist["episode_reward"], strict=True))
        assert result["episodes_total"] == found.total()
        assert not +(must_be - found), f"episodes (length, return) that were not counted: {must_be - found}"
        assert not found - may_be, f"episodes (length, return) that the scripts have not: {found - may_be}"

    def _length(self, script: Episode) -> int:
        """Number of turns of an episode."""
        seen = [script.first, *(event.seen for event in script.events[:-1])]
        return sum(bool(each) or self.manner.asks_for_none for each in seen)

    def _return(self, script: Episode) -> float:
        name = script.serial, script.number
        logged = self.manner.logged_steps(script)
        total = EARLY_REWARD * self.manner.has_early_reward(*name)
        total += sum(reward for event in script.events for reward in event.rewards.values())
        for agent, life in script.lives.items():
            for i in range(life.length):
                step = (*name, agent, i)
                total += ACTION_REWARD * logged.get(step, self.steps.actions.get(step, 0.0))
        return total


