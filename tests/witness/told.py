"""What a run must show whose episodes are told by loops outside: rows, dropped rows and counts, from the scripts."""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tests.witness.checks import Step, Steps, following
from tests.witness.doors.loops import EARLY_REWARD, MOST_PLACES, Manner
from tests.witness.script import ACTION_REWARD, CRASHED, Episode, Family, episode

# Algorithms that leave out the steps in which somebody else has acted.
DROP_LOGGED = ("PPO", "A2C", "PG")


@dataclass
class Told:
    """The scripts of a run's loops, and which of their steps become rows.

    Args:
        family, manner: of the loops.
        drops_logged: whether steps in which somebody else acts are left out.
        lives: most serials that a place plays, one after the other, where its episodes are lost in between.

    Attributes:
        steps: that were found.
    """

    family: Family
    manner: Manner
    drops_logged: bool
    lives: int = 1
    steps: Steps = field(default_factory=Steps)

    def left_out(self, serial: int, number: int) -> Collection[Step]:
        """The steps of an episode that a documented rule leaves out."""
        script = episode(self.family, serial, number)
        if not self.manner.trains(serial, number):
            return {(serial, number, agent, i) for agent, life in script.lives.items() for i in range(life.length)}
        return self.manner.logged_steps(script).keys() if self.drops_logged else ()

    def check_rows(self, is_complete: bool = True) -> int:
        """Each step that is not left out is there once, and has the logged action; returns the complete lives.

        Args:
            is_complete: whether all steps have to be there; False: any may lack, and their number is returned.
        """
        left_out, newest = self.left_out, self._newest()
        for step in self.steps.cuts if is_complete else ():  # before a step left out, or the last before a replacement
            is_newest = newest[step[0]] == step[1]
            assert is_newest or following(step) in left_out(*step[:2]), f"{step} is cut in the midst of its episode"
        for step, action in self.steps.actions.items():
            assert step not in left_out(*step[:2]), f"{step} was to be left out"
            script = episode(self.family, *step[:2])
            logged = self.manner.logged_steps(script).get(step)
            assert logged in (None, action), f"{step}: action {action}, not {logged}"
        return self.steps.check_complete(self.family, 1, left_out) if is_complete else len(self.steps.counts)

    def check_counts(self, result: Mapping, num_running: int = 1) -> None:
        """Steps, and the lengths and returns of episodes that have ended.

        Args:
            result: the last one.
            num_running: number of newest episodes of each serial whose ends may not have been told yet.
        """
        assert result["num_agent_steps_sampled"] == len(self.steps.counts)
        may_be, must_be, newest = [], [], self._newest()
        for serial in self._serials():
            last = newest.get(serial, -1)
            for number in itertools.count():
                script = episode(self.family, serial, number)
                if number > last and not self._is_left_out(script):
                    break
                if script.events[-1].end != CRASHED and self.manner.trains(serial, number):
                    told = self._length(script), *self._returns(script)
                    may_be.append(told)
                    must_be += [told] * (number <= last - num_running)
        hist = result["hist_stats"]
        found = list(zip(hist["episode_lengths"], hist["episode_reward"], strict=True))
        assert result["episodes_total"] == len(found)
        missing = _unmatched(must_be, found)[0]
        assert not missing, f"episodes (length, least and largest return) that were not counted: {missing}"
        unknown = _unmatched(may_be, found)[1]
        assert not unknown, f"episodes (length, return) that the scripts have not: {unknown}"

    def _newest(self) -> dict[int, int]:
        """Serial -> number of its newest episode that has rows."""
        newest: dict[int, int] = {}
        for serial, number, *_ in self.steps.counts:
            newest[serial] = max(newest.get(serial, 0), number)
        return newest

    def _serials(self) -> set[int]:
        """Serials of places whose loops may have told anything; some have no rows, as have some loops in between."""
        firsts = {serial - serial % MOST_PLACES for serial, *_ in self.steps.counts}
        firsts |= {first + k * MOST_PLACES for first in firsts for k in range(-3, 4) if first >= 3 * MOST_PLACES}
        places = self.lives * self.manner.num_loops * self.manner.num_places
        return {first + place for first in firsts for place in range(places)}

    def _is_left_out(self, script: Episode) -> bool:
        left_out = self.left_out(script.serial, script.number)
        name, lives = (script.serial, script.number), script.lives.items()
        return all((*name, agent, i) in left_out for agent, life in lives for i in range(life.length))

    def _length(self, script: Episode) -> int:
        """Number of turns of an episode."""
        return 1 + sum(map(self.manner.is_turn, script.events[:-1]))

    def _returns(self, script: Episode) -> tuple[float, float]:
        """Least and largest return: actions without rows are not known, each of which may have its reward."""
        name = script.serial, script.number
        logged = self.manner.logged_steps(script)
        total = EARLY_REWARD * self.manner.has_early_reward(*name)
        total += sum(reward for event in script.events for reward in event.rewards.values())
        num_unknown = 0
        for agent, life in script.lives.items():
            for i in range(life.length + life.is_cut):
                step = (*name, agent, i)
                action = logged.get(step, self.steps.actions.get(step))
                num_unknown += action is None
                total += ACTION_REWARD * (action or 0.0)
        return total, total + ACTION_REWARD * num_unknown


def _unmatched(episodes: list[tuple], found: list[tuple]) -> tuple[list, list]:
    """What has no counterpart in a largest matching of scripted episodes, and of lengths and returns."""
    left, missing = sorted(found), []
    for length, low, high in sorted(episodes, key=lambda each: each[2]):
        match = next((each for each in left if each[0] == length and low <= each[1] <= high), None)
        if match is None:
            missing.append((length, low, high))
        else:
            left.remove(match)
    return missing, left
