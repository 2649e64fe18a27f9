"""Samples from an external environment: answers the step requests of its episodes, and makes rows of them.

Each running episode occupies one of the worker's environments; environments are added when episodes wait for one. Rows
follow the multi-agent rules (evaluation/multi_agent/environment_episode.py), also with a single agent. All waiting step
requests are answered together, with one pass through each network. Clients that act by a copy of the policy send parts
of episodes; their step requests are processed in sequence as if their actions had been requested here
(env/policy_server/samples.py).
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rllib.env.external.checks import AGENT
from rllib.env.external.exchange import AgentRefused, EpisodeLost, RunEnded, StepRequest, fail_all
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

# Initial number of environments. If more episodes are under way, the fragment ends, and the number is doubled.
FIRST_ENVIRONMENTS = 2
# A fragment ends after this multiple of the passes that it was made for, but not before this number of passes.
_MOST_PASSES, _LEAST_PASSES = 4, 256
# Number of environment indices reserved for each worker; indices are part of the keys of random streams.
_ENVIRONMENTS_OF_A_WORKER = 1 << 20


def _lone(agent: AgentID, episode, worker) -> str:
    """The policy of the single agent."""
    return DEFAULT_POLICY


class ExternalWorker(MultiAgentWorker):
    """An episode source, the policies, and the loop that answers its step requests.

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
        # The recorder gets the reported steps of all episodes; lanes hold only the steps that are learned from.
        make_recorder, self.settings = self.settings.make_recorder, replace(self.settings, make_recorder=None)
        self.settings.seed_process(seeding.ENVIRONMENTS, self.worker_index, self._incarnation)
        context = EnvContext(self.settings.env_config, self.worker_index, 0, self.settings.num_workers)
        env = make_environment(self.settings.env, context)
        if self._is_lone:
            spaces = {DEFAULT_POLICY: (env.observation_space, env.action_space)}
            more = {"numbers": {DEFAULT_POLICY: 0}, "only": AGENT}
            agents = AgentSettings(_lone, spaces, {DEFAULT_POLICY: 1}, frozenset(spaces), **more)
            self.settings = replace(self.settings, agents=agents)
        self.settings = replace(self.settings, acts_among_all=False)
        self._warned_of_dropped_rows = False
        # Policy id -> observation statistics that lanes counted before they got further slots.
        self._counted: dict[str, list[dict[str, np.ndarray]]] = {}

        def remake() -> EpisodeSource:
            made = make_environment(self.settings.env, context)
            self._set_mask_check(made)
            return made

        self._set_mask_check(env)
        where = f"{self.kind} {self.worker_index}"
        stream = ExternalStream(env, len(self._indices), where, remake if self.settings.replace_failed_envs else None)
        self._publisher = PolicyPublisher(self.settings, self.worker_index, stream)
        self.stream = stream  # whose spaces the recorder reads
        self._recorder = make_recorder and make_recorder(self)
        return stream

    def _make_lanes(self) -> None:
        super()._make_lanes()
        self._forget_episodes()

    def change_settings(self, settings: RolloutSettings) -> None:
        super().change_settings(replace(settings, make_recorder=None))
        self._set_mask_check(*self.stream.environments)

    def _set_mask_check(self, env: EpisodeSource) -> None:
        legal = LegalActions(self.policies, self.settings.agents, ExternalSpaces(env))
        env.mask_problem = legal.problem if legal.reads_masks else None

    def _forget_episodes(self) -> None:
        if self._recorder is not None:
            self._recorder.start_over()
        # Episode id -> environment of a running episode; and the free environments.
        self._env_of: dict[str, int] = {}
        self._free = list(reversed(range(len(self._episodes))))
        # Environments whose episodes must end before a fragment of whole episodes ends: the episodes that are learned
        # from and began before the fragment had enough rows.
        self._awaited: set[int] = set()
        # Environments whose episodes made no step while a fragment waited for their end; the next step of an episode
        # removes its environment from this set.
        self._silent: set[int] = set()
        self._is_closing = False  # whether the fragment has enough rows
        # First step requests of episodes that have to wait: for an environment, or while the fragment is closing.
        self._waiting: list[StepRequest] = []
        self._admits_now = False  # whether waiting episodes begin in the next pass though the fragment is closing
        # Step requests for the next pass: their episode acts already in this pass, or its agents wait for slots.
        self._later: list[StepRequest] = []
        # Policies that have fewer slots than agents in an episode.
        self._crowded: set[str] = set()
        self._accepted: list[StepRequest] = []

    def finish_recording(self) -> None:
        """Writes the recorded steps that wait, and closes their files."""
        if self._recorder is not None:
            self._recorder.close()

    def close(self) -> None:
        error = RunEnded("the run that this environment samples for has ended")
        fail_all((*self._waiting, *self._later), lambda request: error)
        try:
            self.finish_recording()
        finally:
            super().close()

    # ------------------------------------------------------------------ copies of the policy

    def load_snapshots(self, snapshots: Snapshots) -> None:
        """Uses these policies from now on, and publishes the policy to loops that act by copies of it."""
        super().load_snapshots(snapshots)
        if self._is_lone and self.stream.acts_by_copies:
            (lane,) = self.lanes.values()
            self._publisher.publish(snapshots[DEFAULT_POLICY], lane)

    def start_over(self, incarnation: int | None = None) -> None:
        """Drops the running episodes; their loops get EpisodeLost with the next call. Arguments as in RolloutWorker."""
        super().start_over(incarnation)
        self._publisher.start_over()

    def _cut_all(self) -> dict[str, RecordingLane]:
        """As in MultiAgentWorker; the episodes are lost, and their loops get EpisodeLost with the next call."""
        lanes = super()._cut_all()
        self._lose_episodes()
        return lanes

    def _drop_episodes(self) -> None:
        super()._drop_episodes()
        self._lose_episodes()

    def _lose_episodes(self) -> None:
        """Forgets the running episodes; waiting loops get EpisodeLost."""
        fail_all((*self._waiting, *self._later, *self._accepted), _lost)
        self._forget_episodes()

    # ------------------------------------------------------------------ sampling

    def _step_through(self, report: SampleReport) -> None:
        report.rows_too_old = 0 if self.stream.acts_by_copies else None
        self._num_rows, self._row_at = 0, time.monotonic()
        self._answer_requests(report)
        while not self._num_closed:  # the fragment ended for lack of environments or rows, or all episodes are carried
            if self._lacks_rows():
                raise SampleTimeoutError(
                    f"for {self.settings.sample_timeout_s:g} s {self.kind} {self.worker_index} has got steps that are "
                    "not learned from alone: of episodes with training_enabled=False, with actions of others, or of "
                    f"clients with weights that are older than max_lag_updates={self.settings.max_lag_updates}"
                )
            for lane in self.lanes.values():
                self._end_fragment(lane)
            self._answer_requests(report)

    def _answer_requests(self, report: SampleReport) -> None:
        """The hot loop: until enough rows are closed, and in complete_episodes mode until their episodes are over.

        Step requests are answered in the threads that submit them, one at a time. In complete_episodes mode new
        episodes wait while the fragment is closing, unless running episodes cannot end before (`_admits_waiting`).
        Episodes that still run at the fragment's end are carried over to the next fragment, with all their rows.
        """
        settings = self.settings
        self._add_environments()
        wanted, is_complete = settings.fragment_length * settings.num_envs, settings.complete_episodes
        steps_at_once = -(-wanted // max(len(self._env_of), 1))
        most = max(_MOST_PASSES * steps_at_once, _LEAST_PASSES)
        self._begin_fragment(steps_at_once)
        clock, made = stopwatch("step", "act"), 0
        begun = clock()

        def answer(requests: list[StepRequest]) -> bool:
            nonlocal made, begun
            taken = clock()
            report.env_time_s += taken - begun
            ends = not requests and self._is_over(wanted, made >= most)
            while (requests or self._admits_now) and not ends:
                begins, self._admits_now = self._admits_now or not self._is_closing, False
                if begins and self._waiting:
                    requests, self._waiting = requests + self._waiting, []
                self._accepted, num_waiting = requests, len(self._waiting)
                step = made % steps_at_once
                if made and not step:
                    self._prepare(steps_at_once)
                if (longest := min([request.run_length for request in requests], default=0)) > 0:
                    left = min(steps_at_once - step, most - made)
                    if not is_complete:
                        left = min(left, -(-(wanted - self._num_sampled) // len(requests)))
                    # At least one request of each client remains for `_answer`, which may end the fragment.
                    count = self._accept_runs(requests, min(longest, left - 1))
                    made, step = made + count, step + count
                continues = not self._is_closing or any(
                    self._env_of.get(request.episode_id) in self._awaited for request in requests
                )
                made += self._answer(requests, step, report, begins)
                if continues and len(self._waiting) - num_waiting < len(requests):  # not all wait to begin
                    self._answered_at = time.monotonic()
                ends = self._is_over(wanted, made >= most)
                requests, self._later = self._later, []
                if requests and not ends:
                    requests += self.stream.arrived()
            self._later = requests
            report.inference_time_s += clock() - taken
            begun = clock()
            return ends

        requests, self._waiting, self._later = self._waiting + self._later, [], []
        if not answer(requests):
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
        """Begins a fragment, with room for this number of steps of each environment."""
        for lane in self.lanes.values():
            lane.begin(num_steps)
        for each in self._episodes:
            each.begin_fragment()
        self._answered_at = self._let_in_at = time.monotonic()
        self._awaited, self._is_closing, self._admits_now = self._trained(), False, False

    def _trained(self) -> set[int]:
        """Environments of the running episodes that are learned from, except for silent ones."""
        return {index for index in self._env_of.values() if self._episodes[index].trains} - self._silent

    def _is_over(self, wanted: int, is_full: bool) -> bool:
        """Whether the fragment ends now; also updates whether it is closing, and whether waiting episodes begin.

        Args:
            wanted: number of steps that the fragment should have.
            is_full: whether the fragment has reached its largest number of passes, as happens with fewer steps than
                `wanted` if few slots act in each pass.
        """
        is_complete, num_closed = self.settings.complete_episodes, self._num_closed
        is_enough = (num_closed if self._counts_rows else self._num_steps) >= wanted
        if num_closed != self._num_rows:
            self._num_rows, self._row_at = num_closed, time.monotonic()
        self._is_closing = is_complete and is_enough
        may_begin = not self._is_closing or self._admits_waiting()
        if self._crowded or (may_begin and self._waiting and not self._free):  # the next fragment has more environments
            return True
        if self._is_closing:
            self._admits_now = may_begin
            return not self._awaited or self._is_idle()
        self._admits_now = bool(self._waiting and self._free)  # one was freed in the pass that made them wait
        return is_enough or (is_full and not is_complete) or self._lacks_rows()

    def _lacks_rows(self) -> bool:
        """Whether no row to learn from has come for sample_timeout_s, though loops have requested actions."""
        now, limit_s = time.monotonic(), self.settings.sample_timeout_s
        return now - self._row_at >= limit_s > now - self._answered_at

    @property
    def _num_sampled(self) -> int:
        """Steps of the fragment so far: closed rows, or, where environment steps are counted, steps of episodes."""
        return self._num_closed if self._counts_rows else self._num_steps

    @property
    def _counts_rows(self) -> bool:
        return self._is_lone or self.settings.agents.counts_agent_steps

    @property
    def _num_steps(self) -> int:
        return sum([each.num_steps for each in self._episodes])

    def _admits_waiting(self) -> bool:
        """Whether waiting episodes may begin while the fragment is closing.

        They may if the episodes that the fragment waits for seem to be blocked until the waiting ones begin.
        """
        waiting = [request.episode_id for request in self._waiting if not request.is_withdrawn]
        if not waiting or not self._awaited:
            return False
        env, now = self.stream.environments[0], time.monotonic()
        awaited = [episode_id for episode_id, index in self._env_of.items() if index in self._awaited]
        stands_still = now - max(self._answered_at, self._let_in_at) >= env.standstill_s
        if stands_still or not (self._later or not env.is_blocked(awaited, waiting)):
            self._let_in_at = now
            return True
        return False

    def _is_idle(self) -> bool:
        """Whether the loops of all episodes that the fragment waits for have been silent beyond the time limit."""
        limit_s, patience_s = self.settings.sample_timeout_s, self.stream.environments[0].patience_s
        are_others_there = self._waiting or self._awaited < self._trained()
        if patience_s is not None and are_others_there:
            limit_s = min(patience_s, limit_s)
        return time.monotonic() - self._answered_at >= limit_s

    def _carry_episodes(self) -> None:
        """Carries running episodes over to the next fragment, except silent ones, whose rows would become too old."""
        is_cut = self._is_closing and self._is_idle()
        if is_cut and self._awaited:
            logger.info("the ends of %d silent episodes are left to later fragments", len(self._awaited))
            self._silent |= self._awaited
        for index in self._env_of.values():
            if not (is_cut and index in self._awaited):
                self._episodes[index].carry()

    def _report_traffic(self, report: SampleReport) -> None:
        traffic = self.stream.environments[0].take_traffic()
        traffic.worker_index = self.worker_index
        traffic.policy_versions = {i: lane.policy_version for i, lane in self.lanes.items()}
        report.traffic = traffic if report.traffic is None else report.traffic.then(traffic)

    def _serve(self, answer: Callable[[list[StepRequest]], bool], report: SampleReport) -> None:
        """Has step requests answered until the fragment is over.

        Args:
            answer: function of step requests; returns whether the fragment is over.
            report: counts the episodes of an environment that was replaced.

        Raises:
            SampleTimeoutError: if no step request comes in time.
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
        """Doubles the environments until each waiting episode has one, and the slots of policies with too few."""
        count = len(self._episodes)
        while count - len(self._env_of) < len(self._waiting):
            count *= 2
        for policy_id in self._crowded:
            double_slots(self._num_slots, policy_id)
        if count > len(self._episodes) or self._crowded:
            # A lane with further slots has other shapes of observation statistics: keep the present ones apart.
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

    def _accept_runs(self, requests: list[StepRequest], count: int) -> int:
        """Accepts several step requests of each client that acts itself at once, as arrays.

        The rows equal those that `_answer` makes of one step request after the other.

        Args:
            requests: one step request for each client; each advances in place to the one after the accepted ones.
            count: number of requests of each client to accept, at most the smallest `run_length` of `requests`.

        Returns:
            number of passes that `_answer` would have made: `count`, or 0 if requests must be processed one by one.
        """
        if count < 1 or not self._is_lone or self._hooks.follows_episodes or self._recorder is not None:
            return 0
        (lane,) = self.lanes.values()
        # A recurrent state, and filter statistics that change with each observation, need single steps.
        if lane.remembers or lane.policy.filters_observations:
            return 0
        indices = {self._env_of.get(request.episode_id) for request in requests}
        if len(indices) < len(requests) or None in indices:
            return 0
        running = [(request, self._episodes[self._env_of[request.episode_id]]) for request in requests]
        if not all(episode.can_run and not self._is_too_old(request.acted.version) for request, episode in running):
            return 0
        rows = lane.open_run(count)
        for request, episode in running:
            run = request.run(count)
            lane.put_run(episode.run(run.rewards).index, rows, **run._asdict())
        return count

    def _answer(self, requests: list[StepRequest], step: int, report: SampleReport, begins: bool) -> bool:
        """Accepts these step requests, and answers them with actions.

        Args:
            requests: in the order in which they came.
            step: number of the step since the lanes were prepared.
            report: receives the episodes that have ended.
            begins: whether new episodes may begin.

        Returns:
            whether the policies have acted.
        """
        acting: list[tuple[StepRequest, ExternalEpisode]] = []
        behind: list[StepRequest] = []
        held = {request.episode_id for request in self._waiting}
        for request in requests:
            if request.is_withdrawn:
                continue
            if request.episode_id in held:  # the episode's previous step request is not answered yet
                (self._waiting if request.episode_id not in self._env_of else behind).append(request)
                continue
            held.add(request.episode_id)
            try:
                index = self._accept(request, begins, report)
            except AgentRefused as error:
                self._refuse(request, error, report)
                continue
            except OutOfSlotsError as error:
                self._crowded.update(error.args)
                request.put_back()
                behind.append(request)
                continue
            if index is not None:
                acting.append((request, self._episodes[index]))
        self._lane_set.receive()
        if acting:
            self._act(acting, step)
        for request, episode in acting:
            actions, drops = episode.actions(), False
            if request.logged is not None:
                actions, drops = request.logged, self._drops_logged_rows()
                self._log(episode, actions)
            elif request.acted is not None:
                drops = self._drops(request.acted, episode, report)
            episode.acted(actions, drops)
            if self._recorder is not None:
                (lane,) = self.lanes.values()
                seen, action = request.step.observations[AGENT], actions[AGENT]
                self._recorder.acted(request.episode_id, seen, action, lane.policy_version)
            request.answer(actions)
            self._continue(request)
        self._later += behind  # last: a request that gives an episode up must come after the rest of its part
        return bool(acting)

    def _accept(self, request: StepRequest, begins: bool, report: SampleReport) -> int | None:
        """Accepts a step request; returns the environment of its episode, or None if no action is needed now.

        Raises:
            AgentRefused: if an agent has no policy.
            OutOfSlotsError: if a policy has too few slots; the step request must be accepted in the next fragment.
        """
        index = self._env_of.get(request.episode_id)
        if index is None:
            return self._begin(request, begins)
        if not request.claim():
            return None
        episode = self._episodes[index]
        if index in self._silent:  # the silent loop has made another step
            self._silent.remove(index)
            if not self._is_closing:
                self._awaited.add(index)
        if request.is_first:  # its agents had to wait for slots
            return self._begin_late(request, index)
        is_over = episode.follow(request.step, request.is_void)
        if self._recorder is not None and not request.is_void:
            self._recorder.followed(request.episode_id, request.step)
        if is_over:
            self._end(request, index, report)
            return None
        return index

    def _refuse(self, request: StepRequest, error: AgentRefused, report: SampleReport) -> None:
        """Ends the episode of a step request that cannot be accepted; all other episodes continue."""
        if not self._has_refused:  # clients cause this error; num_faulty_episodes counts every case
            logger.warning("episode %s is void; further ones are not logged", request.episode_id, exc_info=error)
        self._has_refused = True
        self._void(request.episode_id)
        report.num_faulty_episodes += 1
        request.fail(error)
        self._continue(request)

    def _void(self, episode_id: str) -> None:
        self._episodes[self._env_of[episode_id]].void()
        self._leave(episode_id)

    def _leave(self, episode_id: str) -> None:
        """Frees the environment of an episode that is over."""
        if self._recorder is not None:
            self._recorder.dropped(episode_id)
        index = self._env_of.pop(episode_id)
        self._awaited.discard(index)
        self._silent.discard(index)
        self._free.append(index)

    def _continue(self, request: StepRequest) -> None:
        """Schedules the episode's following step request for the next pass, if it has already come."""
        if (following := request.following()) is not None:
            self._later.append(following)

    def _act(self, acting: list[tuple[StepRequest, ExternalEpisode]], step: int) -> None:
        """Chooses the actions of these step requests; writes the actions of clients that have acted themselves."""
        acted = [(request.acted, episode) for request, episode in acting if request.acted is not None]
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
        """Whether to drop the row of an action that a client has chosen itself."""
        if self._is_too_old(acted.version):
            report.rows_too_old += episode.trains
            return True
        return acted.is_logged and self._drops_logged_rows()

    def _is_too_old(self, version: int) -> bool:
        """Whether rows with actions chosen by weights of this version are too old to learn from."""
        limit, (lane,) = self.settings.max_lag_updates, self.lanes.values()
        # A version above the present one is of the run before it was restored.
        return limit is not None and not 0 <= lane.policy_version - version <= limit

    def _begin(self, request: StepRequest, begins: bool) -> int | None:
        """Starts an episode with its first step request; returns its environment, None if it cannot start now."""
        if not request.is_first:
            request.fail(_lost(request))
            self._continue(request)
        elif request.step.is_over:  # no agent has acted in the episode
            request.answer({})
            self._continue(request)
        elif not begins or not self._free:
            self._waiting.append(request)
        elif request.claim():
            index = self._free.pop()
            self._env_of[request.episode_id] = index
            if request.trains and not self._is_closing:
                self._awaited.add(index)
            self.stream.begin(index, request)
            self._episodes[index].begin(request.trains, request.step.rewards)
            return index
        return None

    def _begin_late(self, request: StepRequest, index: int) -> int | None:
        """Assigns slots to the first agents of an episode that already has an environment; returns as `_accept`."""
        if not request.step.is_over:
            self._episodes[index].begin_late(request.step)
            return index
        self._void(request.episode_id)  # no agent has acted in the episode
        request.answer({})
        self._continue(request)
        return None

    def _end(self, request: StepRequest, index: int, report: SampleReport) -> None:
        """Reports the episode that a step request has ended."""
        episode = self._episodes[index]
        result = episode.result
        if self._is_lone:
            result = replace(result, agent_returns={}, agent_lengths={})
        if request.is_void:
            report.num_faulty_episodes += 1
        else:
            (report.episodes if episode.trains else report.untrained_episodes).append(result)
        self.stream.episode_ended()
        self._leave(request.episode_id)
        request.answer({})
        self._continue(request)

    def _log(self, episode: ExternalEpisode, actions: Mapping[AgentID, Any]) -> None:
        for slot in episode.acting:
            if isinstance(slot.lane, RecordingLane):
                slot.lane.log(slot.index, actions[slot.agent])

    def _drops_logged_rows(self) -> bool:
        if self.settings.drops_logged_rows and not self._warned_of_dropped_rows:
            self._warned_of_dropped_rows = True
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


def _lost(request: StepRequest) -> EpisodeLost:
    return EpisodeLost(
        f"episode {request.episode_id} is not known here: the run was restored, or has started over, as where a policy "
        "begins or ends to learn. Start a new one."
    )
