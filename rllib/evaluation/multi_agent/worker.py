"""Samples with several agents: steps N environments, whose agents act in the lanes of their policies."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.stream import MultiAgentStream
from rllib.evaluation import seeding
from rllib.evaluation.lane import Lane
from rllib.evaluation.multi_agent.lanes import ChoosingSlots, HandWrittenSlots, RecordingSlots, Slots, stored_columns
from rllib.evaluation.multi_agent.seats import EnvironmentSeats, OutOfSlotsError
from rllib.evaluation.multi_agent.settings import FIRST_SLOTS
from rllib.evaluation.patience import Patience
from rllib.evaluation.rollout_worker import SampleReport
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker import Worker
from rllib.models.acting_buffers import ENVIRONMENTS_ALIKE
from rllib.policy import Snapshots
from rllib.sample_batch import MultiAgentBatch, SampleBatch
from rllib.spans import span, stopwatch

logger = logging.getLogger(__name__)


class MultiAgentWorker(Worker):
    """N environments with several agents, the policies, and the loop between them.

    Arguments as for RolloutWorker; the settings have `agents`.

    Raises:
        the user's own exception, with a note naming worker and environment, when an environment fails.
    """

    stream: MultiAgentStream

    def __init__(
        self,
        settings: RolloutSettings,
        worker_index: int = 0,
        incarnation: int = 0,
        allocate: Callable[..., np.ndarray] = np.empty,
    ):
        super().__init__(settings, worker_index)
        self._incarnation, self._allocate = incarnation, allocate
        first = max(worker_index - 1, 0) * settings.num_envs
        self._indices = range(first, first + settings.num_envs)
        self._num_slots = {policy_id: FIRST_SLOTS for policy_id in settings.agents.spaces} | dict(
            settings.agents.num_slots
        )
        self.stream = settings.open_agents(seeding.ENVIRONMENTS, self._indices, worker_index, incarnation)
        self._make_lanes()

    # ------------------------------------------------------------------ lanes

    def _make_lanes(self) -> None:
        """Makes the slots of every policy, and the seats of every environment."""
        self.lanes: dict[str, Slots] = {}
        for number, policy_id in enumerate(sorted(self.settings.agents.spaces)):
            self.lanes[policy_id] = self._make_slots(policy_id, number)
        self._recording = {i: lane for i, lane in self.lanes.items() if isinstance(lane, RecordingSlots)}
        self._seats = [
            EnvironmentSeats(
                index,
                self.stream,
                self.lanes,
                {i: range(index * count, (index + 1) * count) for i, count in self._num_slots.items()},
                self._policy_of,
            )
            for index in range(self.settings.num_envs)
        ]

    def _make_slots(self, policy_id: str, number: int) -> Slots:
        settings, agents = self.settings, self.settings.agents
        count = self._num_slots[policy_id] * settings.num_envs
        if policy_id in agents.hand_written:
            return HandWrittenSlots(agents.hand_written[policy_id](), policy_id, count)
        policy, spaces = self.policies[policy_id], agents.spaces[policy_id]
        policy.observation_space, policy.action_space = spaces
        if policy_id not in agents.trained:
            rng = seeding.generator(settings.seed, seeding.AGENTS_ACTIONS, self._indices[0], self._incarnation, number)
            return ChoosingSlots(policy, *spaces, count, rng=rng, mapping=self._mapping)
        total = count * max(settings.num_workers, 1)
        is_alike = settings.acts_among_all and total <= ENVIRONMENTS_ALIKE and not self.acts_elsewhere
        if is_alike:
            start = self._indices[0] * self._num_slots[policy_id]
            policy.act_among(total, slice(start, start + count))
        if policy.filters_observations:
            policy.filter.keep_apart(count)
        lane = Lane(
            policy,
            settings.policies[policy_id],
            settings,
            given=stored_columns(spaces[0]),
            action_space=spaces[1],
            rngs=list(self._rngs(policy_id, number)),
            worker_index=self.worker_index,
            incarnation=self._incarnation,
            stream=self.stream,
            place=lambda slot: self._place(policy_id, slot),
            allocate=self._allocate,
            by_slot=is_alike,
        )
        return RecordingSlots(lane, *spaces)

    def _rngs(self, policy_id: str, number: int) -> Iterator[np.random.Generator]:
        """Random streams of a policy's slots. A lone agent has the stream that its environment has with one agent."""
        settings = self.settings
        for index in self._indices:
            for place in range(self._num_slots[policy_id]):
                if number == place == 0:
                    yield seeding.generator(settings.seed, seeding.ACTIONS, index, self._incarnation)
                else:
                    key = index, self._incarnation, number, place
                    yield seeding.generator(settings.seed, seeding.AGENTS_ACTIONS, *key)

    @property
    def _mapping(self) -> tuple[bool, bool]:
        return self.settings.normalize_actions, self.settings.clip_actions

    def _place(self, policy_id: str, slot: int) -> str:
        index = slot // self._num_slots[policy_id]
        agents = [seat.agent for seat in self._seats[index].living if (seat.policy_id, seat.slot) == (policy_id, slot)]
        who = f"agent {agents[0]!r} of " if agents else ""
        return f"{who}environment {index} of rollout worker {self.worker_index} (policy {policy_id!r})"

    def _policy_of(self, agent: AgentID, seats: EnvironmentSeats) -> str:
        return self.settings.agents.policy_of(agent, seats, self)

    def _grow(self, policy_id: str) -> None:
        """Doubles the slots of a policy, more of whose agents are in one environment; all episodes start over."""
        self._num_slots[policy_id] *= 2
        logger.info(
            "more than %d agents of policy %r are in one environment: its slots double, and the running episodes start "
            "over. An environment that has possible_agents is sampled without this.",
            self._num_slots[policy_id] // 2,
            policy_id,
        )
        versions = {i: (lane.lane.policy_version, lane.lane.timesteps) for i, lane in self._recording.items()}
        self._make_lanes()
        for i, lane in self._recording.items():
            lane.lane.policy_version, lane.lane.timesteps = versions[i]

    # ------------------------------------------------------------------ weights and state

    def load_snapshots(self, snapshots: Snapshots) -> None:
        """Uses these versions of the policies from now on."""
        for policy_id, snapshot in snapshots.items():
            lane = self._recording.get(policy_id)
            if lane is not None:
                lane.lane.load_snapshot(snapshot)
            elif policy_id in self.policies:
                self.policies[policy_id].load_snapshot(snapshot)

    def take_in(self, report: SampleReport) -> None:
        """Merges what a report counts of observations and returns, as a driver does; for loops of your own."""
        for policy_id, lane in self._recording.items():
            lane.lane.merge(report.filter_deltas.get(policy_id), report.return_deltas.get(policy_id))

    def get_state(self) -> list[dict]:
        """Random stream and exploration of each slot, policy by policy."""
        return [{"policy": i, **each} for i, lane in self._recording.items() for each in lane.lane.get_state()]

    def set_state(self, state: list[dict]) -> None:
        """Restores the state that `get_state` returned."""
        for policy_id, lane in self._recording.items():
            own = [each for each in state if each["policy"] == policy_id]
            if len(own) == lane.num_slots:
                lane.lane.set_state(own)

    def start_over(self, incarnation: int | None = None) -> None:
        """Drops the running episodes; arguments as for RolloutWorker."""
        for seats in self._seats:
            seats.forget()
        for lane in self.lanes.values():
            lane.start_over()
        if incarnation is not None:
            self.stream.reseed(self.settings.seeds(seeding.ENVIRONMENTS, self._indices, incarnation))
            self.settings.seed_process(seeding.ENVIRONMENTS, self.worker_index, incarnation)

    # ------------------------------------------------------------------ sampling

    def sample(self) -> tuple[MultiAgentBatch, SampleReport]:
        """One fragment of every environment, as rows of each trained policy, and its report."""
        report = SampleReport()
        while True:
            try:
                self._step_through(report)
                break
            except OutOfSlotsError as error:
                self.start_over()
                self._grow(*error.args)
                report = SampleReport()
            except BaseException:
                # The environments have gone on without the rows: the next sample starts new episodes.
                self.start_over()
                raise
        started = time.perf_counter()
        batches = {}
        for policy_id, lane in self._recording.items():
            batch = self._finished(lane)
            if batch is not None:
                batches[policy_id] = batch
            seen, returned = lane.lane.pop_deltas()
            if seen is not None:
                report.filter_deltas[policy_id] = seen
            if returned is not None:
                report.return_deltas[policy_id] = returned
        report.inference_time_s += time.perf_counter() - started
        report.longest_running = max(seats.length for seats in self._seats)
        samples = MultiAgentBatch(batches, report.env_steps)
        self.callbacks.on_sample_end(worker=self, samples=samples)
        return samples, report

    def _finished(self, lane: RecordingSlots) -> SampleBatch | None:
        """The rows of a lane; None where none was closed."""
        is_open = np.zeros(lane.num_slots, bool)
        for seats in self._seats:
            for seat in seats.living:
                if seat.lane is lane and seat.is_open:
                    is_open[seat.slot] = True
        with span("finish"):
            fragment = lane.end(is_open)
            if not fragment.num_steps:
                return None
            lane.lane.finish(fragment)
        with span("make rows"):
            batch = lane.lane.to_batch(fragment, has_gaps=not fragment.is_in_lockstep(self.settings.fragment_length))
        batch.policy_version = lane.oldest_version
        return batch

    def _step_through(self, report: SampleReport) -> None:
        """The hot loop."""
        settings, seats = self.settings, self._seats
        num_steps, is_complete = settings.fragment_length, settings.complete_episodes
        for lane in self._recording.values():
            lane.begin(num_steps)
        for each in seats:
            each.begin_fragment()
        self._start_episodes()
        counted: Counter[tuple[AgentID, str]] = Counter()
        for each in seats:
            each.agent_steps = counted
        clock = stopwatch("act", "step")
        wanted = num_steps * settings.num_envs if settings.agents.counts_agent_steps else None
        made = 0
        while made < num_steps if wanted is None else counted.total() < wanted:
            if made and made % num_steps == 0:
                self._prepare(num_steps)
            goes_on = not is_complete or (wanted is None and made + 1 < num_steps)
            self._step(made % num_steps, seats, report, clock, starts_next=goes_on)
            made += 1
        self._advance(made)
        report.env_steps = report.rows = made * settings.num_envs
        if wanted is not None:
            report.rows = counted.total()
        if is_complete:
            self._complete(report, clock)
        report.agent_steps = Counter()
        report.agent_steps_by_agent = Counter()
        for (agent, policy_id), count in counted.items():
            report.agent_steps[policy_id] += count
            report.agent_steps_by_agent[agent] += count

    def _start_episodes(self) -> None:
        """Starts an episode in environments that have none."""
        waiting = [each for each in self._seats if not each.is_running]
        for each in waiting:
            each.start()
        if waiting:  # all of them: an episode ends with its fragment for all environments or for none
            self._receive()

    def _receive(self) -> None:
        for lane in self.lanes.values():
            lane.receive()

    def _prepare(self, num_steps: int, active: list[bool] | None = None) -> None:
        """Prepares further steps in the same fragment; `active` says which environments make them."""
        for policy_id, lane in self._recording.items():
            lane.make_room(num_steps)
            slots = None if active is None else np.repeat(active, self._num_slots[policy_id]).tolist()
            lane.prepare(num_steps, slots)

    def _advance(self, num_steps: int) -> None:
        for lane in self._recording.values():
            lane.lane.end_steps(num_steps)

    def _step(self, step: int, seats, report: SampleReport, clock, starts_next: bool) -> None:
        """One step of these environments."""
        begun = clock()
        for lane in self.lanes.values():
            if lane.acting:
                lane.act(step)
        acted = clock()
        for each in seats:
            episode = each.act_and_step(starts_next)
            if episode is not None:
                report.episodes.append(episode)
            if each.has_failed:
                report.num_faulty_episodes += 1
        stepped = clock()
        self._receive()
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
            self._step(0, running, report, clock, starts_next=False)
            self._advance(1)
            report.env_steps += len(running)
            running = [each for each in running if each.is_running]
