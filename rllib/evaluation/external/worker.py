"""Samples from an external environment: answers the turns of its episodes, and makes rows of them.

An episode is that of one of the worker's environments, of which more are added where episodes wait for one, and its
rows follow the rules of several agents (evaluation/multi_agent/environment_episode.py); there may be one agent. All
turns that wait are answered together, with one pass through each network. Clients that act themselves, by copies of the
policy, send parts of episodes, whose turns follow one another here as if their actions had been asked for
(env/policy_server/samples.py).
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rllib.env.external.checks import AGENT
from rllib.env.external.exchange import AgentRefused, EpisodeLost, RunEnded, Turn, fail_all
from rllib.env.external.source import EpisodeSource
from rllib.env.external.stream import EnvironmentReplaced, ExternalSpaces, ExternalStream
from rllib.env.factories.make import make_environment
from rllib.env.factories.registry import EnvContext
from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.errors import SampleTimeoutError
from rllib.evaluation import seeding
from rllib.evaluation.external.episode import ExternalEpisode
from rllib.evaluation.external.legal_actions import LegalActions
from rllib.evaluation.external.policy_publisher import PolicyPublisher
from rllib.evaluation.multi_agent.environment_episode import OutOfSlotsError
from rllib.evaluation.multi_agent.lane_set import double_slots
from rllib.evaluation.multi_agent.recording_lane import RecordingLane
from rllib.evaluation.multi_agent.settings import AgentSettings
from rllib.evaluation.multi_agent.worker import MultiAgentWorker
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.sampling_worker import SampleReport
from rllib.evaluation.settings import RolloutSettings
from rllib.policy import Snapshots
from rllib.sample_batch import DEFAULT_POLICY, SampleBatch
from rllib.spans import stopwatch

if TYPE_CHECKING:
    from rllib.env.policy_server.samples import Acted

logger = logging.getLogger(__name__)

# Environments at first; they double between two fragments, of which the first ends when more episodes are under way.
FIRST_ENVIRONMENTS = 2
# A fragment ends after this multiple of the passes that it was made for, and after at least this number.
_MOST_PASSES, _LEAST_PASSES = 4, 256
# Environments of a worker have numbers of their own in the run, which key their random streams.
_ENVIRONMENTS_OF_A_WORKER = 1 << 20


def _lone(agent: AgentID, episode, worker) -> str:
    """The policy of the only agent."""
    return DEFAULT_POLICY


class ExternalWorker(MultiAgentWorker):
    """An episode source, the policies, and the loop that answers its turns.

    Arguments as for RolloutWorker. Without `agents` in the settings the environment has one agent, and samples are
    SampleBatches.

    Raises:
        the exception of the environment's `run`, with a note.
    """

    if_silent: ClassVar[str] = "does the loop outside ask for actions? It may be silent for sample_timeout_s"
    episode_class = ExternalEpisode
    stream: ExternalStream

    _has_refused = False

    def _first_indices(self, count: int) -> range:
        first = self.worker_index * _ENVIRONMENTS_OF_A_WORKER
        return range(first, first + FIRST_ENVIRONMENTS)

    def _open(self) -> ExternalStream:
        self._is_lone = self.settings.agents is None
        self.settings.seed_process(seeding.ENVIRONMENTS, self.worker_index, self._incarnation)
        context = EnvContext(self.settings.env_config, self.worker_index, 0, self.settings.num_workers)
        env = make_environment(self.settings.env, context)
        if self._is_lone:
            spaces = {DEFAULT_POLICY: (env.observation_space, env.action_space)}
            more = {"numbers": {DEFAULT_POLICY: 0}, "only": AGENT}
            agents = AgentSettings(_lone, spaces, {DEFAULT_POLICY: 1}, frozenset(spaces), **more)
            self.settings = replace(self.settings, agents=agents)
        self.settings = replace(self.settings, acts_among_all=False)
        self._told_of_dropped_rows = False
        # Policy id -> statistics of observations that lanes have counted before they grew.
        self._counted: dict[str, list[dict[str, np.ndarray]]] = {}

        def remake() -> EpisodeSource:
            made = make_environment(self.settings.env, context)
            self._look_at_masks(made)
            return made

        self._look_at_masks(env)
        where = f"{self.kind} {self.worker_index}"
        stream = ExternalStream(env, len(self._indices), where, remake if self.settings.replace_failed_envs else None)
        self._publisher = PolicyPublisher(self.settings, self.worker_index, stream)
        return stream

    def _make_lanes(self) -> None:
        super()._make_lanes()
        self._forget_episodes()

    def change_settings(self, settings: RolloutSettings) -> None:
        super().change_settings(settings)
        self._look_at_masks(*self.stream.environments)

    def _look_at_masks(self, env: EpisodeSource) -> None:
        legal = LegalActions(self.policies, self.settings.agents, ExternalSpaces(env))
        env.mask_problem = legal.problem if legal.reads_masks else None

    def _forget_episodes(self) -> None:
        # Environments of the running episodes, by their ids, and those that are free.
        self._env_of: dict[str, int] = {}
        self._free = list(reversed(range(len(self._episodes))))
        # Environments whose episodes end before a fragment of whole episodes: those that are learned from and began
        # before it had enough rows.
        self._awaited: set[int] = set()
        self._is_closing = False  # whether it has enough rows
        # First turns of episodes that have to wait: for an environment, or while the fragment is closing.
        self._waiting: list[Turn] = []
        self._lets_begin = False  # whether they begin in the next pass though the fragment is closing
        # Turns of episodes that act already in this pass, or whose agents have to wait for slots.
        self._later: list[Turn] = []
        # Policies that have fewer slots than agents in an episode.
        self._crowded: set[str] = set()
        self._taken: list[Turn] = []

    def close(self) -> None:
        error = RunEnded("the run that this environment samples for has ended")
        fail_all((*self._waiting, *self._later), lambda turn: error)
        super().close()

    # ------------------------------------------------------------------ copies of the policy

    def load_snapshots(self, snapshots: Snapshots) -> None:
        """Uses these policies from now on, and gives them to loops that act by copies of the policy."""
        super().load_snapshots(snapshots)
        if self._is_lone and self.stream.acts_by_copies:
            (lane,) = self.lanes.values()
            self._publisher.publish(snapshots[DEFAULT_POLICY], lane)

    def start_over(self, incarnation: int | None = None) -> None:
        """Drops the running episodes; their loops get EpisodeLost with the next call. Arguments as in RolloutWorker."""
        super().start_over(incarnation)
        self._publisher.start_over()
        self._lose_episodes()

    def _cut_all(self) -> dict[str, RecordingLane]:
        """The same; loops cannot begin anew by themselves, and get EpisodeLost with the next call."""
        lanes = super()._cut_all()
        self._lose_episodes()
        return lanes

    def _lose_episodes(self) -> None:
        """Drops what is known of the running episodes, and tells the loops that wait."""
        fail_all((*self._waiting, *self._later, *self._taken), _lost)
        self._forget_episodes()

    # ------------------------------------------------------------------ sampling

    def _step_through(self, report: SampleReport) -> None:
        report.rows_too_old = 0 if self.stream.acts_by_copies else None
        self._num_rows, self._row_at = 0, time.monotonic()
        self._take_turns(report)
        while not self._num_closed:  # it has ended for want of environments or rows, or episodes are carried
            if self._lacks_rows():
                raise SampleTimeoutError(
                    f"for {self.settings.sample_timeout_s:g} s {self.kind} {self.worker_index} has got steps that are "
                    "not learned from alone: of episodes with training_enabled=False, with actions of others, or of "
                    f"clients with weights that are older than max_lag_updates={self.settings.max_lag_updates}"
                )
            for lane in self.lanes.values():
                self._end_fragment(lane)
            self._take_turns(report)

    def _take_turns(self, report: SampleReport) -> None:
        """The hot loop: until enough rows are closed, and in complete_episodes mode until their episodes are over.

        Turns are answered in the threads that hand them over, one at a time. In complete_episodes mode new episodes
        wait while the fragment is closing, but where running ones cannot end before (`_lets_in`). What then runs at the
        fragment's end goes on in the next one, with all its rows.
        """
        settings = self.settings
        self._add_environments()
        wanted, is_complete = settings.fragment_length * settings.num_envs, settings.complete_episodes
        steps_at_once = -(-wanted // max(len(self._env_of), 1))
        most = max(_MOST_PASSES * steps_at_once, _LEAST_PASSES)
        self._begin_fragment(steps_at_once)
        clock, made = stopwatch("step", "act"), 0
        begun = clock()

        def answer(turns: list[Turn]) -> bool:
            nonlocal made, begun
            taken = clock()
            report.env_time_s += taken - begun
            ends = not turns and self._is_over(wanted, made >= most)
            while (turns or self._lets_begin) and not ends:
                begins, self._lets_begin = self._lets_begin or not self._is_closing, False
                if begins and self._waiting:
                    turns, self._waiting = turns + self._waiting, []
                self._taken, num_waiting = turns, len(self._waiting)
                step = made % steps_at_once
                if made and not step:
                    self._prepare(steps_at_once)
                left = min(steps_at_once - step, most - made)
                if not is_complete:
                    left = min(left, -(-(wanted - self._num_sampled) // len(turns)))
                count = self._take_runs(turns, left - 1)  # the turns after them are answered, and may be the last
                made, step = made + count, step + count
                goes_on = not self._is_closing or any(self._env_of.get(t.episode_id) in self._awaited for t in turns)
                made += self._answer(turns, step, report, begins)
                if goes_on and len(self._waiting) - num_waiting < len(turns):  # not all wait to begin
                    self._answered_at = time.monotonic()
                ends = self._is_over(wanted, made >= most)
                turns, self._later = self._later, []
                if turns and not ends:
                    turns += self.stream.arrived()
            self._later = turns
            report.inference_time_s += clock() - taken
            begun = clock()
            return ends

        turns, self._waiting, self._later = self._waiting + self._later, [], []
        if not answer(turns):
            self._serve(answer, report)
        self._advance(made)
        if is_complete:
            self._carry_episodes()
        report.rows = self._num_sampled
        report.env_steps += self._num_closed if self._is_lone else self._num_steps
        self._report_traffic(report)
        if not self._is_lone:
            self._report_steps(report, [each.closed_rows() for each in self._episodes])

    def _begin_fragment(self, num_steps: int) -> None:
        """Begins a fragment, with memory for this number of steps of each environment."""
        for lane in self.lanes.values():
            lane.begin(num_steps)
        for each in self._episodes:
            each.begin_fragment()
        self._answered_at = self._let_in_at = time.monotonic()
        self._awaited, self._is_closing, self._lets_begin = self._trained(), False, False

    def _trained(self) -> set[int]:
        """Environments of the running episodes that are learned from."""
        return {index for index in self._env_of.values() if self._episodes[index].trains}

    def _is_over(self, wanted: int, is_full: bool) -> bool:
        """Whether the fragment ends now; else notes whether it is closing, and whether waiting episodes begin.

        Args:
            wanted: steps that it is to have.
            is_full: whether it needs no more memory, though it has fewer, since few slots have acted in each pass.
        """
        is_complete, is_enough = self.settings.complete_episodes, self._num_sampled >= wanted
        if self._num_closed != self._num_rows:
            self._num_rows, self._row_at = self._num_closed, time.monotonic()
        self._is_closing = is_complete and is_enough
        may_begin = not self._is_closing or self._lets_in()
        if self._crowded or (may_begin and self._waiting and not self._free):  # the next fragment has more environments
            return True
        if self._is_closing:
            self._lets_begin = may_begin
            return not self._awaited or self._is_silent()
        self._lets_begin = bool(self._waiting and self._free)  # one was freed in the pass in which they had to wait
        return is_enough or (is_full and not is_complete) or self._lacks_rows()

    def _lacks_rows(self) -> bool:
        """Whether nothing that is learned from has come for too long, though loops have asked for actions."""
        now, limit_s = time.monotonic(), self.settings.sample_timeout_s
        return now - self._row_at >= limit_s > now - self._answered_at

    @property
    def _num_sampled(self) -> int:
        """Steps of the fragment so far: rows of a lone agent; of several agents, steps that they make together."""
        if self._is_lone or self.settings.agents.counts_agent_steps:
            return self._num_closed
        return self._num_steps

    @property
    def _num_steps(self) -> int:
        return sum(each.num_steps for each in self._episodes)

    def _lets_in(self) -> bool:
        """Whether episodes may begin while the fragment is closing: those that it waits for seem to wait for them."""
        waiting = [turn.episode_id for turn in self._waiting if not turn.is_withdrawn]
        if not waiting or not self._awaited:
            return False
        env, now = self.stream.environments[0], time.monotonic()
        awaited = [episode_id for episode_id, index in self._env_of.items() if index in self._awaited]
        stands_still = now - max(self._answered_at, self._let_in_at) >= env.standstill_s
        if stands_still or not (self._later or not env.is_blocked(awaited, waiting)):
            self._let_in_at = now
            return True
        return False

    def _is_silent(self) -> bool:
        """Whether the loops of all episodes that the fragment waits for have been silent for too long."""
        limit_s, patience_s = self.settings.sample_timeout_s, self.stream.environments[0].patience_s
        are_others_there = self._waiting or self._awaited < self._trained()
        if patience_s is not None and are_others_there:
            limit_s = min(patience_s, limit_s)
        return time.monotonic() - self._answered_at >= limit_s

    def _carry_episodes(self) -> None:
        """Leaves running episodes to the next fragment: whole, but for silent ones, whose rows would grow old."""
        is_cut = self._is_closing and self._is_silent()
        if is_cut and self._awaited:
            logger.info("the ends of %d silent episodes are left to the next fragment", len(self._awaited))
        for index in self._env_of.values():
            if not (is_cut and index in self._awaited):
                self._episodes[index].carry()

    def _report_traffic(self, report: SampleReport) -> None:
        traffic = self.stream.environments[0].take_traffic()
        traffic.worker_index = self.worker_index
        traffic.policy_versions = {i: lane.policy_version for i, lane in self.lanes.items()}
        report.traffic = traffic if report.traffic is None else report.traffic.then(traffic)

    def _serve(self, answer: Callable[[list[Turn]], bool], report: SampleReport) -> None:
        """Has turns answered until the fragment is over.

        Args:
            answer: function of turns; returns whether the fragment is over.
            report: counts the episodes of an environment that was replaced.

        Raises:
            SampleTimeoutError: if nobody asks.
        """
        limit_s = interval_s = self.settings.sample_timeout_s
        if self.settings.complete_episodes:
            interval_s = min(self.stream.environments[0].standstill_s, limit_s)
        while True:
            try:
                if self.stream.serve(answer, interval_s):
                    return
            except EnvironmentReplaced:
                self._void_all(report)
                continue
            if answer([]):
                return
            if not self._is_closing and time.monotonic() - self._answered_at >= limit_s:
                raise self.stream.silence(limit_s)

    def _void_all(self, report: SampleReport) -> None:
        """Ends the episodes of an environment that was replaced."""
        for index in self._env_of.values():
            self._episodes[index].void()
        report.num_faulty_episodes += len(self._env_of)
        fail_all((*self._waiting, *self._later), _lost)
        self._forget_episodes()
        self._publisher.publish_again()

    def _add_environments(self) -> None:
        """Doubles environments until each episode that waits has one, and the slots of policies that have too few."""
        count = len(self._episodes)
        while count - len(self._env_of) < len(self._waiting):
            count *= 2
        for policy_id in self._crowded:
            double_slots(self._num_slots, policy_id)
        if count > len(self._episodes) or self._crowded:
            # A lane that grows counts observations for more slots from now on.
            for policy_id, lane in self.lanes.items():
                if (seen := lane.policy.filter.pop_delta()) is not None:
                    self._counted.setdefault(policy_id, []).append(seen)
            self._free = list(reversed(range(len(self._episodes), count))) + self._free
            self._indices = range(self._indices[0], self._indices[0] + count)
            self.stream.num_envs = count
            self._lane_set.widen(self._indices, self._num_slots)
        self._crowded.clear()

    def _pop_deltas(self, report: SampleReport) -> None:
        super()._pop_deltas(report)
        counted, self._counted = self._counted, {}
        for policy_id, deltas in counted.items():
            if policy_id in report.filter_deltas:
                deltas.append(report.filter_deltas[policy_id])
            report.filter_deltas[policy_id] = {
                name: np.concatenate([each[name] for each in deltas]) for name in deltas[0]
            }

    def _take_runs(self, turns: list[Turn], most: int) -> int:
        """Takes in, as arrays, turns of clients that have acted themselves, up to the first that needs to be looked at.

        The rows are those of `_answer` for one turn after the other.

        Args:
            turns: those that follow replace them.
            most: number of passes.

        Returns:
            number of passes that `_answer` would have made.
        """
        count = min(most, *[turn.run_length for turn in turns])
        if count < 1 or not self._is_lone or self._hooks.follows_episodes:
            return 0
        (lane,) = self.lanes.values()
        # One step after the other: a memory, and a filter whose statistics each observation changes.
        if lane.remembers or lane.policy.filters_observations:
            return 0
        indices = {self._env_of.get(turn.episode_id) for turn in turns}
        if len(indices) < len(turns) or None in indices:
            return 0
        running = [(turn, self._episodes[self._env_of[turn.episode_id]]) for turn in turns]
        if not all(episode.can_run and not self._is_too_old(turn.acted.version) for turn, episode in running):
            return 0
        rows = lane.open_run(count)
        for turn, episode in running:
            run = turn.run(count)
            lane.put_run(episode.run(run.rewards).index, rows, **run._asdict())
        return count

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
        acting: list[tuple[Turn, ExternalEpisode]] = []
        behind: list[Turn] = []
        held = {turn.episode_id for turn in self._waiting}
        for turn in turns:
            if turn.is_withdrawn:
                continue
            if turn.episode_id in held:  # its turn before is not over yet
                (self._waiting if turn.episode_id not in self._env_of else behind).append(turn)
                continue
            held.add(turn.episode_id)
            try:
                index = self._take(turn, begins, report)
            except AgentRefused as error:
                self._refuse(turn, error, report)
                continue
            except OutOfSlotsError as error:
                self._crowded.update(error.args)
                turn.put_back()
                behind.append(turn)
                continue
            if index is not None:
                acting.append((turn, self._episodes[index]))
        self._lane_set.receive()
        if acting:
            self._act(acting, step)
        for turn, episode in acting:
            actions, drops = episode.actions(), False
            if turn.logged is not None:
                actions, drops = turn.logged, self._drops_logged_rows()
                self._log(episode, actions)
            elif turn.acted is not None:
                drops = self._drops(turn.acted, episode, report)
            episode.acted(actions, drops)
            turn.answer(actions)
            self._go_on(turn)
        self._later += behind  # the rest of a part comes before the turn that gives its episode up
        return bool(acting)

    def _take(self, turn: Turn, begins: bool, report: SampleReport) -> int | None:
        """Takes a turn in; returns the environment of its episode where it acts next, and None elsewhere.

        Raises:
            AgentRefused: if an agent has no policy.
            OutOfSlotsError: if a policy has too few slots; the turn is to be taken in with the next fragment.
        """
        index = self._env_of.get(turn.episode_id)
        if index is None:
            return self._begin(turn, begins)
        if not turn.claim():
            return None
        episode = self._episodes[index]
        if turn.is_first:  # its agents had to wait for slots
            return self._begin_late(turn, index)
        if episode.follow(turn.step, turn.is_void):
            self._end(turn, index, report)
            return None
        return index

    def _refuse(self, turn: Turn, error: AgentRefused, report: SampleReport) -> None:
        """Ends the episode of a turn that cannot be taken in, and lets all others go on."""
        if not self._has_refused:  # clients cause it; all are counted in num_faulty_episodes
            logger.warning("episode %s is void; further ones are not logged", turn.episode_id, exc_info=error)
        self._has_refused = True
        self._void(turn.episode_id)
        report.num_faulty_episodes += 1
        turn.fail(error)
        self._go_on(turn)

    def _void(self, episode_id: str) -> None:
        self._episodes[self._env_of[episode_id]].void()
        self._leave(episode_id)

    def _leave(self, episode_id: str) -> None:
        """Frees the environment of an episode that is over."""
        index = self._env_of.pop(episode_id)
        self._awaited.discard(index)
        self._free.append(index)

    def _go_on(self, turn: Turn) -> None:
        """Takes the turn that follows, where it is there already, in the next pass."""
        if (following := turn.following()) is not None:
            self._later.append(following)

    def _act(self, acting: list[tuple[Turn, ExternalEpisode]], step: int) -> None:
        """Chooses the actions of these turns; those of clients that have acted themselves are written down."""
        acted = [(turn.acted, episode) for turn, episode in acting if turn.acted is not None]
        if not acted:
            self._lane_set.act(step)
            return
        (lane,) = self.lanes.values()
        if len(acted) == len(acting) and not lane.remembers:
            lane.open_without_choice()
        else:
            self._lane_set.act(step)
        for each, episode in acted:
            (slot,) = episode.acting
            lane.put(slot.index, each.action, each.dist_inputs, each.version)
        lane.give_put()

    def _drops(self, acted: "Acted", episode: ExternalEpisode, report: SampleReport) -> bool:
        """Whether the row of an action that a client has chosen itself is not learned from."""
        if self._is_too_old(acted.version):
            report.rows_too_old += episode.trains
            return True
        return acted.is_logged and self._drops_logged_rows()

    def _is_too_old(self, version: int) -> bool:
        """Whether rows of clients that have acted by weights of this version are not learned from."""
        limit, (lane,) = self.settings.max_lag_updates, self.lanes.values()
        # Weights of a version that is still to come are of the run before it was restored.
        return limit is not None and not 0 <= lane.policy_version - version <= limit

    def _begin(self, turn: Turn, begins: bool) -> int | None:
        """Gives the episode of its first turn an environment; None if it has none, or has to wait."""
        if not turn.is_first:
            turn.fail(_lost(turn))
            self._go_on(turn)
        elif turn.step.is_over:  # nobody has acted in it
            turn.answer({})
            self._go_on(turn)
        elif not begins or not self._free:
            self._waiting.append(turn)
        elif turn.claim():
            index = self._free.pop()
            self._env_of[turn.episode_id] = index
            if turn.trains and not self._is_closing:
                self._awaited.add(index)
            self.stream.begin(index, turn)
            self._episodes[index].begin(turn.trains, turn.step.rewards)
            return index
        return None

    def _begin_late(self, turn: Turn, index: int) -> int | None:
        """Gives slots to the first agents of an episode that has its environment already; returns as `_take`."""
        if not turn.step.is_over:
            self._episodes[index].begin_late(turn.step)
            return index
        self._void(turn.episode_id)  # nobody has acted in it
        turn.answer({})
        self._go_on(turn)
        return None

    def _end(self, turn: Turn, index: int, report: SampleReport) -> None:
        """Reports the episode that a turn has ended."""
        episode = self._episodes[index]
        result = episode.result
        if self._is_lone:
            result = replace(result, agent_returns={}, agent_lengths={})
        if turn.is_void:
            report.num_faulty_episodes += 1
        else:
            (report.episodes if episode.trains else report.untrained_episodes).append(result)
        self.stream.episode_ended()
        self._leave(turn.episode_id)
        turn.answer({})
        self._go_on(turn)

    def _log(self, episode: ExternalEpisode, actions: Mapping[AgentID, Any]) -> None:
        for slot in episode.acting:
            if isinstance(slot.lane, RecordingLane):
                slot.lane.log(slot.index, actions[slot.agent])

    def _drops_logged_rows(self) -> bool:
        if self.settings.drops_logged_rows and not self._told_of_dropped_rows:
            self._told_of_dropped_rows = True
            logger.warning(
                "log_action: steps with actions that the policy has not chosen are not learned from, since this "
                "algorithm learns from its own actions alone. DQN, SAC, IMPALA and their kin learn from them."
            )
        return self.settings.drops_logged_rows

    def _end_fragment(self, lane: RecordingLane) -> Fragment:
        counts = np.zeros(lane.num_slots, np.int64)
        for episode in self._episodes:
            for slot, count in episode.carried_rows(lane).items():
                counts[slot] += count
        return lane.end(*self._open_and_free(lane), counts)

    def _joined(self, batches: dict[str, SampleBatch], report: SampleReport) -> Any:
        return batches[DEFAULT_POLICY] if self._is_lone else super()._joined(batches, report)


def _lost(turn: Turn) -> EpisodeLost:
    return EpisodeLost(
        f"episode {turn.episode_id} is not known here: the run was restored, or has started over, as where a policy "
        "begins or ends to learn. Start a new one."
    )
