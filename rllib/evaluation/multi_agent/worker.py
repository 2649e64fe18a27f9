"""Samples with several agents: steps N environments, whose agents act in the lanes of their policies."""

from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.stream import MultiAgentStream
from rllib.env.multi_agent.vector_stream import VectorAgentsStream
from rllib.env.spaces.actions import action_mapper
from rllib.env.streams.base import successor_seed
from rllib.evaluation import seeding
from rllib.evaluation.episode_hooks import EpisodeHooks
from rllib.evaluation.lane import Lane
from rllib.evaluation.multi_agent.dense import DenseSteps, can_be_dense
from rllib.evaluation.multi_agent.lanes import ChoosingSlots, HandWrittenSlots, RecordingSlots, Slots, stored_columns
from rllib.evaluation.multi_agent.seating import Seating, double_slots
from rllib.evaluation.multi_agent.seats import EnvironmentSeats, OutOfSlotsError
from rllib.evaluation.multi_agent.settings import AgentSettings
from rllib.evaluation.patience import Patience
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.sampling_worker import SampleReport, SamplingWorker
from rllib.evaluation.settings import RolloutSettings
from rllib.models.acting_buffers import ENVIRONMENTS_ALIKE
from rllib.policy import Snapshots
from rllib.sample_batch import WAITED, Column, MultiAgentBatch, SampleBatch
from rllib.spans import stopwatch


class MultiAgentWorker(SamplingWorker):
    """N environments with several agents, the policies, and the loop between them.

    Arguments as for RolloutWorker; the settings have `agents`.

    Raises:
        the user's own exception, with a note naming worker and environment, when an environment fails.
    """

    stream: MultiAgentStream | VectorAgentsStream
    seats_class: ClassVar[type[EnvironmentSeats]] = EnvironmentSeats

    def __init__(
        self,
        settings: RolloutSettings,
        worker_index: int = 0,
        incarnation: int = 0,
        allocate: Callable[..., np.ndarray] = np.empty,
    ):
        super().__init__(settings, worker_index)
        self._incarnation, self._allocate = incarnation, allocate
        self._indices = self._places(settings.num_envs)
        self.stream = self._open()
        self._num_slots = self.settings.agents.first_slots()
        self._hand_written = self.settings.agents.make_hand_written()
        self._streams: dict[tuple[int, int, int], np.random.Generator] = {}
        # What tells the random streams of the episodes from those before a restore.
        self._episode_key = (incarnation,)
        self._hooks = EpisodeHooks(self.callbacks, self)
        self._hooks.report_environments(self._hooks.environment_made)
        self._seat()

    def _places(self, count: int) -> range:
        """Indices in the run of this worker's environments."""
        first = max(self.worker_index - 1, 0) * count
        return range(first, first + count)

    def _open(self) -> MultiAgentStream | VectorAgentsStream:
        """Opens the environments."""
        place = seeding.ENVIRONMENTS, self._indices, self.worker_index, self._incarnation
        if can_be_dense(self.settings, self.callbacks):
            return self.settings.open_stream(*place, arrays=True)
        return self.settings.open_agents(*place)

    def _seat(self) -> None:
        """Makes lanes and seats for the environments."""
        is_dense = isinstance(self.stream, VectorAgentsStream)
        if is_dense:
            self._num_slots.update(Counter(self.settings.agents.fixed.values()))
        self._seating = Seating(
            self,
            self.stream,
            self._indices,
            self._num_slots,
            self._make_slots,
            episode_key=self._episode_key,
            hooks=self._hooks if self._hooks.follows_episodes else None,
            seats_class=self.seats_class,
        )
        self._seats = self._seating.seats
        # Steps all agents at once; None where environments are stepped one by one.
        self._dense: DenseSteps | None = None
        if is_dense:
            self._dense = DenseSteps(self.stream, self.settings.agents.fixed, self._seating.lanes)

    @property
    def policy_map(self) -> Mapping[str, Any]:
        return ChainMap(self.policies, self._hand_written)

    # ------------------------------------------------------------------ lanes

    def _make_slots(self, policy_id: str, number: int, count: int, place: Callable[[int], str]) -> Slots:
        settings, agents = self.settings, self.settings.agents
        if policy_id in self._hand_written:
            chooser, rngs = self._hand_written[policy_id], self._rngs(policy_id, number)
            return HandWrittenSlots(chooser, policy_id, count, place=place, rngs=rngs)
        policy, own, spaces = self.policies[policy_id], settings.policies[policy_id], agents.spaces[policy_id]
        policy.observation_space, policy.action_space = spaces
        total = count * max(settings.num_workers, 1)
        is_alike = settings.acts_among_all and total <= ENVIRONMENTS_ALIKE and not self.acts_elsewhere
        start = self._indices[0] * self._num_slots[policy_id] if is_alike else 0
        policy.act_among(total if is_alike else count, slice(start, start + count))
        rngs = self._rngs(policy_id, number)
        if policy_id not in agents.trained:
            mapper = action_mapper(spaces[1], policy.distribution, settings.normalize_actions, settings.clip_actions)
            # Policies that do not learn draw from their distributions, and do not explore beyond that.
            how = {"place": place, "rngs": rngs if own.explore else None, "exploration": {}}
            return ChoosingSlots(policy, *spaces, count, mapper, **how)
        if policy.filters_observations:
            policy.filter.keep_apart(count)
        lane = Lane(
            policy,
            own,
            settings,
            given=stored_columns(spaces[0], [Column(WAITED, (), "bool")] if own.marks_waiting else []),
            action_space=spaces[1],
            rngs=rngs,
            worker_index=self.worker_index,
            incarnation=self._incarnation,
            stream=self.stream,
            place=place,
            allocate=self._allocate,
            by_slot=is_alike,
        )
        return RecordingSlots(lane, *spaces)

    def _rngs(self, policy_id: str, number: int) -> list[np.random.Generator]:
        """Random streams of a policy's slots, which go on where slots are added.

        A lone agent has the stream that its environment has with one agent.
        """
        made = []
        for index in self._indices:
            for place in range(self._num_slots[policy_id]):
                if (index, number, place) not in self._streams:
                    is_first = number == place == 0
                    kind, more = (seeding.ACTIONS, ()) if is_first else (seeding.AGENTS_ACTIONS, (number, place))
                    self._streams[index, number, place] = seeding.generator(
                        self.settings.seed, kind, index, self._incarnation, *more
                    )
                made.append(self._streams[index, number, place])
        return made

    @property
    def _recording(self) -> dict[str, RecordingSlots]:
        return {i: lane for i, lane in self._seating.lanes.items() if isinstance(lane, RecordingSlots)}

    def _grow(self, policy_id: str) -> None:
        """Doubles the slots of a policy, more of whose agents are in one environment; all episodes start over."""
        before = self._cut_all()
        double_slots(self._num_slots, policy_id)
        for removed in self._num_slots.keys() - self.settings.agents.spaces.keys():  # whose episodes end by this
            self._num_slots.pop(removed)
            self.policies.pop(removed, None)
            self._hand_written.pop(removed, None)
        self._seating.place(self._num_slots)
        self._go_on_from(before)

    def _cut_all(self) -> dict[str, RecordingSlots]:
        """Cuts the running episodes before lanes are replaced; returns the lanes, whose rows so far are complete."""
        self._hooks.start_over()
        if self._dense is not None:
            self._dense.forget()
        for lane in self._recording.values():
            lane.lane.cut_all()
        return self._recording

    def _go_on_from(self, before: Mapping[str, RecordingSlots]) -> None:
        """Lets new lanes, in which no episode runs, go on where the lanes before them have ended."""
        for policy_id, lane in self._recording.items():
            if policy_id in before:
                count, old_count = (each.num_slots // self.settings.num_envs for each in (lane, before[policy_id]))
                environments, places = np.divmod(np.arange(before[policy_id].num_slots), old_count)
                lane.lane.take_over(before[policy_id].lane, environments * count + np.minimum(places, count - 1))

    def change_settings(self, settings: RolloutSettings) -> None:
        """Goes on with other policies or another mapping, from the next fragment on.

        Running episodes go on with their policies. They start over where a policy that they may need begins or ends to
        learn, gets further slots, or is another one with the id of a policy that was removed; and where the
        environments are in arrays and agents act by other policies.
        """
        before, agents = self.settings.agents, settings.agents
        lanes = self._seating
        # Policies with the ids of others that were removed.
        renewed = [i for i, number in lanes.numbers.items() if agents.numbers.get(i, number) != number]
        for policy_id in renewed:
            self.policies.pop(policy_id, None)
            self._hand_written.pop(policy_id, None)
        super().change_settings(settings)
        for policy_id, chooser in agents.make_hand_written().items():
            self._hand_written.setdefault(policy_id, chooser)
        slots = agents.first_slots()
        if self._dense is not None:
            if renewed or not self._stays_dense(before):
                self._seat_anew(slots, renewed)
                return
        else:
            for policy_id in lanes.remove_unused(renewed):
                del self._num_slots[policy_id]
            kept = slots.keys() & lanes.lanes.keys()
            if any(
                i in renewed or (i in before.trained) != (i in agents.trained) or slots[i] > self._num_slots[i]
                for i in kept
            ):
                kept_slots = {i: count for i, count in self._num_slots.items() if i not in renewed}
                self._seat_anew({i: max(count, kept_slots.get(i, 0)) for i, count in slots.items()}, renewed)
                return
        for policy_id in slots.keys() - lanes.lanes.keys():
            self._num_slots[policy_id] = slots[policy_id]
            lanes.add(policy_id, agents.numbers[policy_id], slots[policy_id])

    def _stays_dense(self, before: AgentSettings) -> bool:
        """Whether the agents go on in arrays by the same policies, of which the same ones learn."""
        agents = self.settings.agents
        if agents.fixed != before.fixed or not can_be_dense(self.settings, self.callbacks):
            return False
        return all((i in before.trained) == (i in agents.trained) for i in agents.fixed.values())

    def _seat_anew(self, slots: Mapping[str, int], renewed: Collection[str]) -> None:
        """Begins new episodes in other lanes; one by one, where agents can no longer act in arrays.

        Args:
            slots: policy id -> its slots in one environment.
            renewed: ids of policies that take nothing over from the lanes before.
        """
        before = {i: lane for i, lane in self._cut_all().items() if i not in renewed}
        self._num_slots = dict(slots)
        for policy_id in self.policies.keys() - slots.keys():
            del self.policies[policy_id]
        if self._dense is not None and not can_be_dense(self.settings, self.callbacks):
            self.stream.close()
            place = seeding.ENVIRONMENTS, self._indices, self._incarnation
            self.stream = self.settings.open_agents(*place[:2], self.worker_index, self._incarnation)
            # Other episodes than those that the vector began with.
            self.stream.reseed([successor_seed(seed, 1) for seed in self.settings.seeds(*place)])
            self._seat()
        elif self._dense is not None:
            self._seat()
        else:
            self._seating.place(self._num_slots)
        self._go_on_from(before)

    def _drop_removed(self) -> None:
        """Drops policies that were removed, once the episodes in which they act are over."""
        known = self.settings.agents.spaces
        for policy_id in self._seating.remove_unused([i for i in self._seating.lanes if i not in known]):
            self.policies.pop(policy_id, None)
            self._num_slots.pop(policy_id)
            self._hand_written.pop(policy_id, None)

    # ------------------------------------------------------------------ weights and state

    def load_snapshots(self, snapshots: Snapshots) -> None:
        """Uses these versions of the policies from now on."""
        for policy_id, snapshot in snapshots.items():
            lane = self._recording.get(policy_id)
            if lane is not None:
                lane.lane.load_snapshot(snapshot)
            elif policy_id in self.policies:
                self.policies[policy_id].load_snapshot(snapshot)

    @property
    def lanes(self) -> dict[str, Lane]:
        return {policy_id: lane.lane for policy_id, lane in self._recording.items()}

    def get_state(self) -> list[dict]:
        """Random stream and exploration of each slot, policy by policy, and the newest episode of each environment.

        There is nothing of policies that were removed.
        """
        known = self.settings.agents.spaces
        lanes = {i: lane for i, lane in sorted(self._seating.lanes.items()) if i in known}
        of_slots = [
            {"policy": i, "slots": self._num_slots[i], **each} for i, lane in lanes.items() for each in lane.get_state()
        ]
        return [*of_slots, *({"episode": seats.played} for seats in self._seats)]

    def set_state(self, state: list[dict]) -> None:
        """Restores the state that `get_state` returned, with as many slots; after `start_over`."""
        lanes, by_policy = self._seating.lanes, {}
        for each in state:
            if "policy" in each:
                by_policy.setdefault(each["policy"], []).append(each)
        for seats, number in zip(self._seats, [each["episode"] for each in state if "episode" in each]):
            seats.number = number
        # Earlier checkpoints do not say how many slots there are in an environment.
        slots = {i: own[0].get("slots", self._num_slots.get(i)) for i, own in by_policy.items() if i in lanes}
        fitting = {i: count for i, count in slots.items() if len(by_policy[i]) == count * len(self._indices)}
        if self._dense is None and any(count != self._num_slots[i] for i, count in fitting.items()):
            self._num_slots.update(fitting)
            self._seating.place(self._num_slots)
        for policy_id in fitting:
            if self._num_slots[policy_id] == fitting[policy_id]:
                self._seating.lanes[policy_id].set_state(by_policy[policy_id])

    def takes_state(self, state: Any) -> bool:
        """Whether a saved state is one of this kind of worker; `set_state` takes what fits of it, by policy."""
        is_of_slots = isinstance(state, list) and all(isinstance(each, dict) for each in state)
        return is_of_slots and all("policy" in each or "episode" in each for each in state)

    def _drop_episodes(self) -> None:
        self._seating.start_over()
        self._hooks.start_over()
        if self._dense is not None:
            self._dense.forget()
        self._drop_removed()

    def _begin_life(self, incarnation: int) -> None:
        self._episode_key = (incarnation,)
        self._seating.number_anew(self._episode_key)

    # ------------------------------------------------------------------ sampling

    def _collect(self) -> tuple[dict[str, Fragment], SampleReport]:
        self._drop_removed()
        while True:
            report = SampleReport()
            try:
                self._step_through(report)
                break
            except OutOfSlotsError as error:
                self._grow(*error.args)
            except BaseException as error:
                # The environments have gone on without the rows: the next sample starts new episodes.
                for lane in self._recording.values():
                    lane.lane.note_rows_without_choice(error, lane.acting)
                self.start_over()
                raise
        fragments = {policy_id: self._end_fragment(lane) for policy_id, lane in self._recording.items()}
        return {policy_id: fragment for policy_id, fragment in fragments.items() if fragment.num_steps}, report

    def _finish(self, fragments: dict[str, Fragment], report: SampleReport) -> None:
        for policy_id, fragment in fragments.items():
            self._recording[policy_id].lane.finish(fragment)
        cut = [seats.episode for seats in self._seats if seats.is_running and not seats.is_carried]
        self._hooks.postprocess(fragments, cut)
        longest_running = max(seats.length for seats in self._seats)
        report.longest_running = longest_running if self._dense is None else self._dense.longest_running
        report.policy_numbers = dict(self._seating.numbers)
        self._hooks.report()

    def _make_rows(self, fragments: dict[str, Fragment], report: SampleReport) -> SampleBatch | MultiAgentBatch:
        batches = {}
        for policy_id, fragment in fragments.items():
            if policy_id in self.settings.agents.trained:  # else it was removed, and its episode is not over
                lane = self._recording[policy_id]
                has_gaps = not fragment.is_in_lockstep(self.settings.fragment_length)
                batches[policy_id] = lane.lane.to_batch(fragment, has_gaps)
                batches[policy_id].policy_version = lane.oldest_version
        return self._joined(batches, report)

    def _joined(self, batches: dict[str, SampleBatch], report: SampleReport) -> SampleBatch | MultiAgentBatch:
        """The rows of all policies as the algorithm gets them."""
        return MultiAgentBatch(batches, report.env_steps)

    def _end_fragment(self, lane: RecordingSlots) -> Fragment:
        return lane.end(*self._open_and_free(lane))

    def _open_and_free(self, lane: RecordingSlots) -> tuple[np.ndarray, np.ndarray | None]:
        """Whether each slot has an open row, and whether it has no agent, bool [S]; None: all have one."""
        is_open = np.zeros(lane.num_slots, bool)
        if self._dense is not None:
            return is_open, None
        is_free = np.ones(lane.num_slots, bool)
        for seats in self._seats:
            own = [seat for seat in seats.living if seat.lane is lane]
            is_free[[seat.slot for seat in own]] = False
            is_open[[seat.slot for seat in own if seat.is_open and seats.trains]] = True
        return is_open, is_free

    def _step_through(self, report: SampleReport) -> None:
        """The hot loop."""
        if self._dense is not None:
            return self._step_in_arrays(report)
        settings, seats = self.settings, self._seats
        num_steps, is_complete = settings.fragment_length, settings.complete_episodes
        for lane in self._recording.values():
            lane.begin(num_steps)
        for each in seats:
            each.begin_fragment()
        if not all(each.is_running for each in seats):
            # None is: an episode ends with its fragment in all environments or in none.
            self._seating.start(seats)
            self._seating.receive()
        clock = stopwatch("act", "step")
        wanted = num_steps * settings.num_envs if settings.agents.counts_agent_steps else None
        made = 0

        def is_short(each=None) -> bool:
            return made < num_steps if wanted is None else self._num_closed < wanted

        while is_short():
            step = made % num_steps
            if made and not step:
                self._prepare(num_steps)
            made += 1
            self._step(step, seats, report, clock, is_short if is_complete else None)
        self._advance(made)
        report.env_steps = made * settings.num_envs
        if is_complete:
            self._complete(report, clock)
        report.rows = report.env_steps if wanted is None else self._num_closed
        report.env_steps -= report.num_faulty_episodes  # a step in which an environment fails is none
        self._report_steps(report, [each.closed_rows() for each in seats])

    def _step_in_arrays(self, report: SampleReport) -> None:
        """The hot loop where all agents act in each step of a vector of environments."""
        dense, num_steps, clock = self._dense, self.settings.fragment_length, stopwatch("act", "step")
        for lane in self._recording.values():
            lane.begin(num_steps)
        dense.start()
        for step in range(num_steps):
            begun = clock()
            dense.act(step)
            acted = clock()
            report.episodes += dense.step()
            report.inference_time_s += acted - begun
            report.env_time_s += clock() - acted
        self._advance(num_steps)
        report.env_steps = report.rows = num_steps * self.settings.num_envs
        self._report_steps(report, [dense.rows(num_steps)])

    @staticmethod
    def _report_steps(report: SampleReport, counts: Sequence[Mapping[tuple[AgentID, str], int]]) -> None:
        """Writes numbers of agents' rows by (agent, policy) into the report."""
        report.agent_steps = Counter()
        report.agent_steps_by_agent = Counter()
        for counted in counts:
            for (agent, policy_id), count in counted.items():
                report.agent_steps[policy_id] += count
                report.agent_steps_by_agent[agent] += count

    @property
    def _num_closed(self) -> int:
        return sum(each.num_closed for each in self._seats)

    def _prepare(self, num_steps: int, active: list[bool] | None = None) -> None:
        """Prepares further steps in the same fragment; `active` says which environments make them."""
        for policy_id, lane in self._recording.items():
            lane.make_room(num_steps)
            slots = None if active is None else np.repeat(active, self._num_slots[policy_id]).tolist()
            lane.prepare(num_steps, slots)

    def _advance(self, num_steps: int) -> None:
        for lane in self._recording.values():
            lane.lane.end_steps(num_steps)

    def _step(
        self,
        step: int,
        seats: Sequence[EnvironmentSeats],
        report: SampleReport,
        clock: Callable[[], float],
        goes_on: Callable[[EnvironmentSeats], bool] | None,
    ) -> None:
        """One step of these environments; the next episode starts where one is over and the environment goes on.

        Args:
            step: number of the step since `_prepare`.
            seats: of the environments.
            report: counts episodes and times.
            clock: a stopwatch.
            goes_on: whether an environment whose episode is over goes on; None: all do.
        """
        seating = self._seating
        begun = clock()
        seating.act(step)
        acted = clock()
        over = seating.step(seats)
        if over:
            ended = [each.result for each in over if each.result is not None]
            report.episodes += ended
            report.num_faulty_episodes += len(over) - len(ended)
            seating.start(each for each in over if goes_on is None or goes_on(each))
        stepped = clock()
        seating.receive()
        report.env_time_s += stepped - acted
        report.inference_time_s += acted - begun + clock() - stepped

    def _complete(self, report: SampleReport, clock) -> None:
        """Goes on until the running episodes are over; the next ones start with the next fragment."""
        patience = Patience(self.settings.sample_timeout_s, "batch_mode='complete_episodes'")
        running = [each for each in self._seats if each.is_running]
        steps = 0
        while running:
            steps += 1
            patience.check(np.array([each.is_running for each in self._seats]), steps)
            self._prepare(1, [each.is_running for each in self._seats])
            self._step(0, running, report, clock, lambda each: each.result is None)
            self._advance(1)
            report.env_steps += len(running)
            running = [each for each in running if each.is_running]
