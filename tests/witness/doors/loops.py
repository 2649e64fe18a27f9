"""Scripted episodes told by loops outside of the algorithm: what threads of an ExternalEnv and policy clients play.

A loop has several places, each with an environment serial of its own. Its steps are taken in turns, a step of each
place, so that episodes overlap. Which steps somebody else acts in, and which episodes are not learned from, follow from
the names of the episodes alone.
"""

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.witness.checks import Step
from tests.witness.doors.scripted import Player, ScriptedCrashError
from tests.witness.script import ACTION_REWARD, CRASHED, TRUNCATED, Episode, Event, Family

# Reward before the first action of an episode; it counts in the episode's return, and belongs to no row.
EARLY_REWARD = 1024.0
# Rewards that are refused, of one agent and of several: nothing of them is taken in.
WRONG_REWARDS = (float("nan"), 1e10, 10**400, None, {"0": 1.0})
WRONG_REWARDS_OF_AGENTS = (1.0, None, {"0": 1.0, "1": float("inf")}, {"0": 1.0, "1": 1e10})
# Serials of one environment's places; its first serial is a multiple of this.
MOST_PLACES = 32


@dataclass(frozen=True)
class Manner:
    """How loops play.

    Attributes:
        logs: whether somebody else acts in some of the steps.
        has_untrained: whether some of the episodes are not learned from.
        num_loops: threads, or clients, that play at once.
        num_places: episodes that each plays at once.
        asks_for_none: whether a step in which no agent acts or ends is a turn of its own, with no observation.
        raises: whether the script's crash ends the whole loop; if not, its episode alone is given up.
        errs: whether rewards and observations that are refused come before the right ones.
    """

    logs: bool = False
    has_untrained: bool = False
    num_loops: int = 1
    num_places: int = 1
    asks_for_none: bool = False
    raises: bool = False
    errs: bool = False

    def _drawn(self, *name: int) -> float:
        return float(np.random.default_rng((*name, 5)).random())

    def trains(self, serial: int, number: int) -> bool:
        """Whether an episode is learned from."""
        return not (self.has_untrained and self._drawn(serial, number) < 0.25)

    def logged(self, serial: int, number: int, time: int) -> int | None:
        """The action that somebody else chooses in a step of an environment; None: the policy is asked."""
        if not self.logs:
            return None
        drawn = self._drawn(serial, number, time)
        return int(drawn * 1000) % 2 if drawn < 0.2 else None

    def is_turn(self, event: Event) -> bool:
        """Whether what has followed a step is told with a turn of its own: what ends then must not come later."""
        return bool(event.seen or event.terminated or event.truncated or self.asks_for_none)

    def has_early_reward(self, serial: int, number: int) -> bool:
        """Whether an episode has a reward before its first action."""
        return (serial + number) % 3 == 0

    def logged_steps(self, script: Episode) -> dict[Step, int]:
        """The steps of an episode in which somebody else acts, with the actions."""
        return _logged_steps(self, script)


@functools.lru_cache(maxsize=10_000)
def _logged_steps(manner: Manner, script: Episode) -> dict[Step, int]:
    steps, counts, waiting, seen = {}, Counter(), set(), script.first
    for time, event in enumerate(script.events):
        action = manner.logged(script.serial, script.number, time)
        if action is not None and len(seen) == len(event.acting):  # else somebody has a final observation
            name = script.serial, script.number
            steps |= {(*name, agent, counts[agent]): action for agent in event.acting}
        waiting |= set(event.acting)
        counts.update(waiting & set(event.seen))
        waiting -= set(event.seen)
        seen = event.seen
    return steps


def turns(loops, family: Family, serials, manner: Manner, first: int = 0) -> Iterator[None]:
    """Plays the places of one loop in turns, without end.

    Args:
        loops: of each place, what has the methods of an ExternalEnv.
        family: of the scripts.
        serials: of each place.
        manner: how.
        first: number of each place's first episode.

    Yields:
        after each request.

    Raises:
        ScriptedCrashError: as the script says, if the manner raises.
    """
    places = [_place(loop, family, serial, manner, first) for loop, serial in zip(loops, serials)]
    while True:
        for place in places:
            next(place)
            yield


def _place(loop, family: Family, serial: int, manner: Manner, first: int) -> Iterator[None]:
    play = _several if family.num_agents > 1 else _single
    player = Player({"family": family})
    player.serial, player.number = serial, first - 1
    while True:
        player.reset(None)
        trains = manner.trains(serial, player.number)
        loop_id = loop.start_episode(training_enabled=trains)
        try:
            yield from play(loop, loop_id, player, manner)
        except ScriptedCrashError:
            if manner.raises:
                raise


def _err(loop, episode_id: str, rewards: tuple, observation) -> None:
    """Makes mistakes, each of which is refused."""
    for reward in rewards:
        with pytest.raises(ValueError):
            loop.log_returns(episode_id, reward)
    with pytest.raises(ValueError):
        loop.get_action(episode_id, observation)


def _single(loop, episode_id: str, player: Player, manner: Manner) -> Iterator[None]:
    serial, number = player.serial, player.number
    if manner.has_early_reward(serial, number):
        loop.log_returns(episode_id, EARLY_REWARD)
    while True:
        seen, action = player.observe(0), manner.logged(serial, number, player.time)
        if action is None:
            action = int(loop.get_action(episode_id, seen))
        else:
            loop.log_action(episode_id, seen, action)
        yield
        event = player.step([0])
        if manner.errs:
            _err(loop, episode_id, WRONG_REWARDS, np.zeros(99))
        loop.log_returns(episode_id, event.rewards[0] - 1)  # in parts
        loop.log_returns(episode_id, 1 + ACTION_REWARD * action)
        if event.end:
            loop.end_episode(episode_id, player.observe(0), truncated=event.end == TRUNCATED)
            yield
            return


def _several(loop, episode_id: str, player: Player, manner: Manner) -> Iterator[None]:
    serial, number = player.serial, player.number
    if manner.has_early_reward(serial, number):
        loop.log_returns(episode_id, {"0": EARLY_REWARD})
    seen, ended, is_due = player.episode.first, set(), True
    while True:
        observations = {str(agent): player.observe(agent) for agent in seen}
        acting = [agent for agent in seen if agent not in ended]
        logged, actions = manner.logged(serial, number, player.time), {}
        if logged is not None and len(acting) == len(seen) > 0:
            actions = dict.fromkeys(observations, logged)
            loop.log_action(episode_id, observations, actions)
            yield
        elif observations or is_due:
            actions = loop.get_action(episode_id, observations)
            assert sorted(actions) == sorted(map(str, acting)), f"{sorted(actions)} have actions, not {acting}"
            yield
        event = player.step(acting)
        rewards = {str(agent): reward for agent, reward in event.rewards.items()}
        for agent, action in actions.items():
            rewards[agent] = rewards.get(agent, 0.0) + ACTION_REWARD * int(action)
        if manner.errs:
            _err(loop, episode_id, WRONG_REWARDS_OF_AGENTS, {"0": np.zeros(99)})
        loop.log_returns(
            episode_id,
            rewards,
            None,
            {str(agent): True for agent in event.terminated},
            truncated_dict={str(agent): True for agent in event.truncated},
        )
        ending = {*event.terminated, *event.truncated}
        seen, ended, is_due = event.seen, ended | ending, manner.is_turn(event)
        if event.end:
            final = {str(agent): player.observe(agent) for agent in seen}
            loop.end_episode(episode_id, final, truncated=event.end == TRUNCATED)
            yield
            return


def is_over(script: Episode) -> bool:
    """Whether an episode comes to an end that its loop tells."""
    return script.events[-1].end != CRASHED
