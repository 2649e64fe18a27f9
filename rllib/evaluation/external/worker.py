"""Samples from an external environment: answers the turns of its episodes, and makes rows of them.

An episode has a place, as an environment with several agents has its seats (evaluation/multi_agent/seats.py), and its
rows follow the same rules; where the environment has one agent, its seat is the only one. All turns that wait are
answered together, with one pass through each network.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from rllib.env.external.exchange import EpisodeLost, Turn
from rllib.env.external.stream import ExternalStream
from rllib.env.factories.make import make_environment
from rllib.env.factories.registry import EnvContext
from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.errors import SampleTimeoutError
from rllib.evaluation import seeding
from rllib.evaluation.external.seats import ExternalSeats
from rllib.evaluation.multi_agent.lanes import RecordingSlots
from rllib.evaluation.multi_agent.settings import AgentSettings
from rllib.evaluation.multi_agent.worker import MultiAgentWorker
from rllib.evaluation.rollout_worker import SampleReport
from rllib.sample_batch import DEFAULT_POLICY, SampleBatch
from rllib.spans import stopwatch

logger = logging.getLogger(__name__)

# Places at first; they double between two fragments when more episodes are under way.
FIRST_PLACES = 2
# A fragment ends after this multiple of the passes that it was made for, and after at least this number.
_MOST_PASSES, _LEAST_PASSES = 4, 256
# Places of a worker have numbers of their own in the run, which key their random streams.
_PLACES_OF_A_WORKER = 1 << 20


def _lone(agent: AgentID, episode, worker) -> str:
    """The policy of the only agent."""
    return DEFAULT_POLICY


class ExternalWorker(MultiAgentWorker):
    """An ExternalEnv, the policies, and the loop that answers its turns.

    Arguments as for RolloutWorker. Without `agents` in the settings the environment has one agent, and samples are
    SampleBatches.

    Raises:
        the exception of the environment's `run`, with a note.
    """

    if_silent: ClassVar[str] = "does the loop outside ask for actions? It may be silent for sample_timeout_s"
    seats_class = ExternalSeats
    stream: ExternalStream

    def _places(self, count: int) -> range:
        first = self.worker_index * _PLACES_OF_A_WORKER
        return range(first, first + FIRST_PLACES)

    def _open(self) -> ExternalStream:
        self._is_lone = self.settings.agents is None
        self.settings.seed_process(seeding.ENVIRONMENTS, self.worker_index, self._incarnation)
        context = EnvContext(self.settings.env_config, self.worker_index, 0, self.settings.num_workers)
        env = make_environment(self.settings.env, context)
        if self._is_lone:
            spaces = {DEFAULT_POLICY: (env.observation_space, env.action_space)}
            agents = AgentSettings(
                _lone, spaces, {DEFAULT_POLICY: 1}, frozenset(spaces), numbers={DEFAULT_POLICY: 0}
            )
            self.settings = replace(self.settings, agents=agents)
        self.settings = replace(self.settings, acts_among_all=False)
        self._told_of_dropped_rows = False
        return ExternalStream(env, len(self._indices), f"{self.kind} {self.worker_index}")

    def _seat(self) -> None:
        super()._seat()
        self._forget_episodes()

    def _forget_episodes(self) -> None:
        # Places of the running episodes, by their ids, and the places that are free.
        self._place_of: dict[str, int] = {}
        self._free = list(reversed(range(len(self._seats))))
        # First turns of episodes that have to wait for the next fragment.
        self._waiting: list[Turn] = []
        # Turns of episodes that act already in this pass.
        self._later: list[Turn] = []
        self._taken: list[Turn] = []

    def start_over(self, incarnation: int | None = None) -> None:
        """Drops the running episodes; their loops get EpisodeLost with the next call. Arguments as in RolloutWorker."""
        super().start_over(incarnation)
        for turn in (*self._waiting, *self._later, *self._taken):
            if not turn.is_answered:
                turn.fail(_lost(turn))
        self._forget_episodes()

    # ------------------------------------------------------------------ sampling

    def _step_through(self, report: SampleReport) -> None:
        self._collect(report)
        limit = time.monotonic() + self.settings.sample_timeout_s
        while not self._num_closed:  # it has ended for want of places, or nothing is learned from
            if time.monotonic() > limit:
                raise SampleTimeoutError(
                    f"for {self.settings.sample_timeout_s:g} s {self.kind} {self.worker_index} has got steps that are "
                    "not learned from alone: of episodes with training_enabled=False, or with actions of others"
                )
            for lane in self._recording.values():
                lane.end(self._open_slots(lane))
            self._collect(report)

    def _collect(self, report: SampleReport) -> None:
        """The hot loop: until enough rows are closed, and in complete_episodes mode until all episodes are over."""
        settings = self.settings
        self._make_places()
        wanted, is_complete = settings.fragment_length * settings.num_envs, settings.complete_episodes
        steps_at_once = -(-wanted // max(len(self._place_of), 1))
        most = max(_MOST_PASSES * steps_at_once, _LEAST_PASSES)
        for lane in self._recording.values():
            lane.begin(steps_at_once)
        for each in self._seats:
            each.begin_fragment()
        clock, made = stopwatch("act", "step"), 0
        turns, self._waiting = self._waiting, []
        while True:
            is_full = self._num_closed >= wanted
            if is_full and not (is_complete and self._place_of):
                break
            begun = clock()
            turns, self._later = turns + self._later, []
            if not turns:
                turns = self.stream.take(settings.sample_timeout_s)
            self._taken = turns
            taken = clock()
            report.env_time_s += taken - begun
            step = made % steps_at_once
            if made and not step:
                self._prepare(steps_at_once)
            made += self._answer(turns, step, report, begins=not (is_full and is_complete))
            report.inference_time_s += clock() - taken
            turns = []
            if self._waiting and not self._free and not is_complete:
                break  # the next fragment has more places
            if made >= most and not is_complete:
                break  # few of the slots have acted in each pass: the next fragment needs no more memory than this
        self._advance(made)
        report.env_steps = report.rows = self._num_closed
        self._report_traffic(report)
        if not self._is_lone:
            self._report_steps(report, [each.closed_rows() for each in self._seats])

    def _report_traffic(self, report: SampleReport) -> None:
        traffic = self.stream.environments[0].take_traffic()
        traffic.worker_index = self.worker_index
        traffic.policy_versions = {i: slots.lane.policy_version for i, slots in self._recording.items()}
        report.traffic = traffic if report.traffic is None else report.traffic.then(traffic)

    def _make_places(self) -> None:
        """Doubles the places until each episode that waits has one."""
        count = len(self._seats)
        while count - len(self._place_of) < len(self._waiting):
            count *= 2
        if count > len(self._seats):
            self._free = list(reversed(range(len(self._seats), count))) + self._free
            self._indices = range(self._indices[0], self._indices[0] + count)
            self.stream.num_envs = count
            self._seating.widen(self._indices, self._num_slots)

    def _answer(self, turns: list[Turn], step: int, report: SampleReport, begins: bool) -> bool:
        """Takes these turns in, and gives the actions of all of them.

        Args:
            turns: in the order in which they came.
            step: number of the step since the lanes were prepared.
            report: gets the episodes that have ended.
            begins: whether new episodes may begin.

        Returns:
            whether the policies have acted.
        """
        acting: list[tuple[Turn, ExternalSeats]] = []
        held = {turn.episode_id for turn in self._waiting}
        for turn in turns:
            if turn.is_withdrawn:
                continue
            if turn.episode_id in held:  # its turn before is not over yet
                (self._waiting if turn.episode_id not in self._place_of else self._later).append(turn)
                continue
            held.add(turn.episode_id)
            place = self._place_of.get(turn.episode_id)
            if place is None:
                place = self._begin(turn, begins)
                if place is None:
                    continue
            elif not turn.claim():
                continue
            else:
                if turn.is_void:
                    self._seats[place].drops_next = True
                if self._seats[place].follow(turn.step):
                    self._end(turn, place, report)
                    continue
            acting.append((turn, self._seats[place]))
        self._seating.receive()
        if not acting:
            return False
        self._seating.act(step)
        for turn, seats in acting:
            actions = seats.actions()
            is_logged = turn.logged is not None
            if is_logged:
                actions = turn.logged
                self._log(seats, actions)
            seats.acted(actions, drops=is_logged and self._drops_logged_rows())
            turn.answer(actions)
        return True

    def _begin(self, turn: Turn, begins: bool) -> int | None:
        """Gives the episode of its first turn a place; None if it has none, or has to wait."""
        if not turn.is_first:
            turn.fail(_lost(turn))
        elif turn.step.is_over:  # nobody has acted in it
            turn.answer({})
        elif not begins or not self._free:
            self._waiting.append(turn)
        elif turn.claim():
            place = self._free.pop()
            self._place_of[turn.episode_id] = place
            self.stream.place(place, turn)
            self._seats[place].begin(turn.trains, turn.step.rewards)
            return place
        return None

    def _end(self, turn: Turn, place: int, report: SampleReport) -> None:
        """Reports the episode that a turn has ended."""
        seats = self._seats[place]
        result = seats.result
        if self._is_lone:
            result = replace(result, agent_returns={}, agent_lengths={})
        if turn.is_void:
            report.num_faulty_episodes += 1
        else:
            (report.episodes if seats.trains else report.untrained_episodes).append(result)
        self.stream.episode_ended()
        del self._place_of[turn.episode_id]
        self._free.append(place)
        turn.answer({})

    def _log(self, seats: ExternalSeats, actions: Mapping[AgentID, Any]) -> None:
        for seat in seats.acting:
            if isinstance(seat.lane, RecordingSlots):
                seat.lane.log(seat.slot, actions[seat.agent])

    def _drops_logged_rows(self) -> bool:
        if self.settings.drops_logged_rows and not self._told_of_dropped_rows:
            self._told_of_dropped_rows = True
            logger.warning(
                "log_action: steps with actions that the policy has not chosen are not learned from, since this "
                "algorithm learns from its own actions alone. DQN, SAC, IMPALA and their kin learn from them."
            )
        return self.settings.drops_logged_rows

    def _open_slots(self, lane: RecordingSlots) -> np.ndarray:
        is_open = np.zeros(lane.num_slots, bool)
        for seats in self._seats:
            if seats.trains:
                is_open[[seat.slot for seat in seats.living if seat.lane is lane and seat.is_open]] = True
        return is_open

    def _joined(self, batches: dict[str, SampleBatch], report: SampleReport) -> Any:
        return batches[DEFAULT_POLICY] if self._is_lone else super()._joined(batches, report)


def _lost(turn: Turn) -> EpisodeLost:
    return EpisodeLost(
        f"episode {turn.episode_id} is not known here: the run was restored, or has started over. Start a new one."
    )
