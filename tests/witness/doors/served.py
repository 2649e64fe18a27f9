"""Scripted episodes that a served policy acts in: decisions and rewards as `rllib serve --learn` gets them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rllib.serving.learning.packets import Decision, Gap, Reward, array_bytes
from tests.witness.checks import Step
from tests.witness.doors.scripted import ACTION_SPACE, OBSERVATION_SPACE
from tests.witness.script import ACTION_REWARD, TRUNCATED, Episode, Family, episode, observation


@dataclass(frozen=True)
class Served:
    """Episodes of one agent, several of which run at once.

    Attributes:
        family: of the scripts.
        serials: of the clients, each of which plays one episode after the other.
        num_episodes: of each client.
        delay: most messages by which a reward comes later than the next decision.
        is_lossy: whether some rewards never come, some decisions are lost on their way, and some answers are, so that
            the client repeats its request.
    """

    family: Family
    serials: range = range(3)
    num_episodes: int = 6
    delay: int = 0
    is_lossy: bool = False

    def action(self, step: Step) -> int:
        """The action that was answered."""
        return int(np.random.default_rng((*step, 3)).integers(2))

    def fate(self, step: Step) -> str:
        """What happens to a decision: "", "unrewarded" or "lost"."""
        drawn = np.random.default_rng((*step, 4)).random() if self.is_lossy else 1.0
        return "unrewarded" if drawn < 0.08 else "lost" if drawn < 0.16 else ""

    def scripts(self) -> list[Episode]:
        return [episode(self.family, serial, number) for number in range(self.num_episodes) for serial in self.serials]

    def left_out(self, serial: int, number: int) -> set[Step]:
        """Steps that cannot be learned from, since their reward or decision is missing.

        What was before a lost decision has no observation that followed, if it was not given; so it is no row, too.
        """
        steps = [(serial, number, 0, i) for i in range(len(episode(self.family, serial, number).events))]
        missing = {step for step in steps if self.fate(step)}
        lost = {step for step in missing if self.fate(step) == "lost"}
        return missing | {step for step in steps if (*step[:3], step[3] + 1) in lost}

    def cuts(self, script: Episode, max_steps: int) -> set[Step]:
        """Steps before which an episode is cut: by a missing reward or decision, or since it has so many decisions."""
        cuts, count = set(), 0
        for i in range(len(script.events)):
            step = (script.serial, script.number, 0, i)
            fate, before = self.fate(step), (*step[:3], i - 1)
            if fate == "lost":
                cuts |= {before, step}
                count = 0
                continue
            if count == max_steps:
                cuts.add(step)
                count = 0
            count += 1
            cuts |= {step} if fate else set()
        return cuts

    def messages(self, seed: int = 0) -> Iterator[Decision | Gap | Reward]:
        """What the learner hears, in the order in which it comes."""
        rng, time = np.random.default_rng(seed), 0.0
        late: list[tuple[float, Reward]] = []
        places = {serial: [serial, 0, 0] for serial in self.serials}
        while places:
            serial = int(rng.choice(list(places)))
            _, number, i = places[serial]
            script, step, time = episode(self.family, serial, number), (serial, number, 0, i), time + 1.0
            name, fate = f"{serial}-{number}", self.fate(step)
            if fate == "lost":
                yield Gap(name, time)
            else:
                seen, action = (
                    array_bytes(OBSERVATION_SPACE, observation(*step)),
                    array_bytes(ACTION_SPACE, self.action(step)),
                )
                if self.is_lossy and np.random.default_rng((*step, 5)).random() < 0.2:
                    other = array_bytes(ACTION_SPACE, 1 - self.action(step))
                    yield Decision(f"{name}-{i}", name, time - 0.5, 0, seen, other)
                yield Decision(f"{name}-{i}", name, time, 0, seen, action)
            if not fate:
                late.append((time + rng.integers(self.delay + 1), self._reward(script, step)))
            due, late = [each for at, each in late if at <= time], [each for each in late if each[0] > time]
            yield from due
            places[serial][2] += 1
            if places[serial][2] == len(script.events):
                places[serial] = [serial, number + 1, 0]
            if places[serial][1] == self.num_episodes:
                del places[serial]
        yield from (each for _, each in late)

    def _reward(self, script: Episode, step: Step) -> Reward:
        i, end = step[3], script.events[step[3]].end
        reward = script.lives[0].rewards[i] + ACTION_REWARD * self.action(step)
        final = array_bytes(OBSERVATION_SPACE, observation(*step[:3], i + 1)) if end == TRUNCATED else None
        name = f"{script.serial}-{script.number}-{i}"
        return Reward(0, name, reward, bool(end) and end != TRUNCATED, end == TRUNCATED, final)
