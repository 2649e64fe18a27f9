"""Samples with several agents: steps N environments, whose agents act in the lanes of their policies."""

import itertools
import operator
from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rllib.env.multi_agent.agent_spaces import AgentID
from rllib.env.multi_agent.stream import MAX_EMPTY_STEPS, MultiAgentStream
from rllib.env.multi_agent.vector_stream import VectorAgentsStream
from rllib.env.spaces.actions import action_mapper
from rllib.env.streams.base import successor_seed
from rllib.evaluation import seeding
from rllib.evaluation.episode_hooks import EpisodeHooks
from rllib.evaluation.multi_agent.agent_lane import AgentLane, ChoosingLane
from rllib.evaluation.multi_agent.dense import DenseSteps, can_be_dense
from rllib.evaluation.multi_agent.environment_episode import EnvironmentEpisode, OutOfSlotsError
from rllib.evaluation.multi_agent.hand_written_lane import HandWrittenLane
from rllib.evaluation.multi_agent.lane_set import LaneSet, double_slots
from rllib.evaluation.multi_agent.recording_lane import RecordingLane
from rllib.evaluation.multi_agent.settings import AgentSettings
from rllib.evaluation.patience import Patience
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.sampling_worker import SampleReport, SamplingWorker
from rllib.evaluation.settings import RolloutSettings
from rllib.models.acting_buffers import ENVIRONMENTS_ALIKE
from rllib.sample_batch import MultiAgentBatch, SampleBatch
from rllib.spans import stopwatch


class MultiAgentWorker(SamplingWorker[MultiAgentBatch]):
    """N environments with several agents, the policies, and the loop between them.

    Arguments as for RolloutWorker; the settings have `agents`.

    Raises:
        the user's own exception, with a note naming worker and environment, when an environment fails.
    """

    stream: MultiAgentStream | VectorAgentsStream
    episode_class: ClassVar[type[EnvironmentEpisode]] = EnvironmentEpisode

    def __init__(
        self,
        settings: RolloutSettings,
        worker_index: int = 0,
        incarnation: int = 0,
        allocate: Callable[..., np.ndarray] = np.empty,
    ):
        super().__init__(settings, worker_index)
        self._incarnation, self._allocate = incarnation, allocate
        self._indices = self._first_indices(settings.num_envs)
        self.stream = self._open()
        self._num_slots = self.settings.agents.first_slots()
        self._hand_written = self.settings.agents.make_hand_written()
        self._streams: dict[tuple[int, int, int], np.random.Generator] = {}
        # Part of the key of the episodes' random streams, which differ from those before a restore.
        self._episode_key = (incarnation,)
        self._hooks = EpisodeHooks(self.callbacks, self)
        self._hooks.report_environments(self._hooks.environment_made)
        self._make_lanes()

    def _first_indices(self, count: int) -> range:
        """Indices of this worker's environments in the run."""
        first = max(self.worker_index - 1, 0) * count
        return range(first, first + count)

    def _open(self) -> MultiAgentStream | VectorAgentsStream:
        """Opens the environments."""
        which = seeding.ENVIRONMENTS, self._indices, self.worker_index, self._incarnation
        if can_be_dense(self.settings, self.callbacks):
            return self.settings.open_stream(*which, arrays=True)
        return self.settings.open_agents(*which)

    def _make_lanes(self) -> None:
        """Makes lanes without running episodes for the agents of the environments."""
        is_dense = isinstance(self.stream, VectorAgentsStream)
        if is_dense:
            self._num_slots.update(Counter(self.settings.agents.fixed.values()))
        self._lane_set = LaneSet(
            self,
            self.stream,
            self._indices,
            self._num_slots,
            self._make_lane,
            episode_key=self._episode_key,
            hooks=self._hooks if self._hooks.follows_episodes else None,
            episode_class=self.episode_class,
        )
        self._episodes = self._lane_set.episodes
        # Steps all agents at once; None where environments are stepped one by one.
        self._dense: DenseSteps | None = None
        if is_dense:
            self._dense = DenseSteps(self.stream, self.settings.agents.fixed, self._lane_set.lanes)

    @property
    def policy_map(self) -> Mapping[str, Any]:
        return ChainMap(self.policies, self._hand_written)

    # ------------------------------------------------------------------ lanes

    def _make_lane(self, policy_id: str, number: int, count: int, describe: Callable[[int], str]) -> AgentLane:
        settings, agents = self.settings, self.settings.agents
        if policy_id in self._hand_written:
            chooser, rngs = self._hand_written[policy_id], self._rngs(policy_id, number)
            return HandWrittenLane(chooser, policy_id, count, describe=describe, rngs=rngs)
        policy, own, spaces = self.policies[policy_id], settings.policies[policy_id], agents.spaces[policy_id]
        policy.observation_space, policy.action_space = spaces
        total = count * max(settings.num_workers, 1)
        is_alike = settings.acts_among_all and total <= ENVIRONMENTS_ALIKE and not self.acts_elsewhere
        start = self._indices[0] * self._num_slots[policy_id] if is_alike else 0
        among = total if is_alike else count, slice(start, start + count)
        policy.act_among(*among)
        rngs = self._rngs(policy_id, number)
        if policy_id not in agents.trained:
            mapper = action_mapper(spaces[1], policy.distribution, settings.normalize_actions, settings.clip_actions)
            # Policies that do not learn draw from their distributions, and do not explore beyond that.
            how = {"describe": describe, "rngs": rngs if own.explore else None, "exploration": {}}
            return ChoosingLane(policy, *spaces, count, mapper, **how)
        if policy.filters_observations:
            policy.filter.keep_apart(count)
        lane = RecordingLane(
            policy,
            own,
            settings,
            observation_space=spaces[0],
            action_space=spaces[1],
            rngs=rngs,
            worker_index=self.worker_index,
            incarnation=self._incarnation,
            stream=self.stream,
            describe=describe,
            allocate=self._allocate,
            by_slot=is_alike,
        )
        if lane.teacher is not None:
            lane.teacher.act_among(*among)
        return lane

    def _rngs(self, policy_id: str, number: int) -> list[np.random.Generator]:
        """Random streams of a policy's slots; existing streams keep their state when slots are added.

        The first slot of the first policy has the stream that the environment has in single-agent sampling.
        """
        made = []
        for index in self._indices:
            for position in range(self._num_slots[policy_id]):
                if (index, number, position) not in self._streams:
                    is_first = number == position == 0
                    kind, more = (seeding.ACTIONS, ()) if is_first else (seeding.AGENTS_ACTIONS, (number, position))
                    self._streams[index, number, position] = seeding.generator(
                        self.settings.seed, kind, index, self._incarnation, *more
                    )
                made.append(self._streams[index, number, position])
        return made

    @property
    def lanes(self) -> dict[str, RecordingLane]:
        return {i: lane for i, lane in self._lane_set.lanes.items() if isinstance(lane, RecordingLane)}

    def _grow(self, policy_id: str) -> None:
        """Doubles the slots of a policy that has too few in one environment; all episodes start over."""
        before = self._cut_all()
        double_slots(self._num_slots, policy_id)
        for removed in self._num_slots.keys() - self.settings.agents.spaces.keys():  # their episodes are cut here
            self._num_slots.pop(removed)
            self.policies.pop(removed, None)
            self._hand_written.pop(removed, None)
        self._lane_set.make(self._num_slots)
        self._go_on_from(before)

    def _cut_all(self) -> dict[str, RecordingLane]:
        """Cuts the running episodes before lanes are replaced; returns the recording lanes, for `_go_on_from`."""
        self._hooks.start_over()
        if self._dense is not None:
            self._dense.forget()
        for lane in self.lanes.values():
            lane.cut_all()
        return self.lanes

    def _go_on_from(self, before: Mapping[str, RecordingLane]) -> None:
        """Passes the state of the replaced lanes to new lanes, in which no episode runs."""
        for policy_id, lane in self.lanes.items():
            if policy_id in before:
                count, old_count = (each.num_slots // self.settings.num_envs for each in (lane, before[policy_id]))
                environments, positions = np.divmod(np.arange(before[policy_id].num_slots), old_count)
                lane.take_over(before[policy_id], environments * count + np.minimum(positions, count - 1))

    def change_settings(self, settings: RolloutSettings) -> None:
        """Uses other policies or another mapping, from the next fragment on.

        Running episodes continue with their policies. They start over if a policy that they may need starts or stops
        learning, gets further slots, or was replaced by another policy with the same id; and, where the environments
        are stepped in arrays, if agents get other policies.
        """
        before, agents = self.settings.agents, settings.agents
        lanes = self._lane_set
        # Ids under which another policy was added after one was removed.
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
                self._replace_lanes(slots, renewed)
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
                self._replace_lanes({i: max(count, kept_slots.get(i, 0)) for i, count in slots.items()}, renewed)
                return
        for policy_id in slots.keys() - lanes.lanes.keys():
            self._num_slots[policy_id] = slots[policy_id]
            lanes.add(policy_id, agents.numbers[policy_id], slots[policy_id])

    def _stays_dense(self, before: AgentSettings) -> bool:
        """Whether agents are still stepped in arrays, with the same policies, of which the same ones learn."""
        agents = self.settings.agents
        if agents.fixed != before.fixed or not can_be_dense(self.settings, self.callbacks):
            return False
        return all((i in before.trained) == (i in agents.trained) for i in agents.fixed.values())

    def _replace_lanes(self, slots: Mapping[str, int], renewed: Collection[str]) -> None:
        """Makes new lanes and starts new episodes; steps environments one by one if arrays are no longer possible.

        Args:
            slots: policy id -> its slots in one environment.
            renewed: ids of policies whose new lanes take over no state.
        """
        before = {i: lane for i, lane in self._cut_all().items() if i not in renewed}
        self._num_slots = dict(slots)
        for policy_id in self.policies.keys() - slots.keys():
            del self.policies[policy_id]
        if self._dense is not None and not can_be_dense(self.settings, self.callbacks):
            self.stream.close()
            which = seeding.ENVIRONMENTS, self._indices, self._incarnation
            self.stream = self.settings.open_agents(*which[:2], self.worker_index, self._incarnation)
            # Other seeds than the vector's, so that its first episodes are not repeated.
            self.stream.reseed([successor_seed(seed, 1) for seed in self.settings.seeds(*which)])
            self._make_lanes()
        elif self._dense is not None:
            self._make_lanes()
        else:
            self._lane_set.make(self._num_slots)
        self._go_on_from(before)

    def _drop_removed(self) -> None:
        """Drops removed policies, once the episodes in which they act are over."""
        known = self.settings.agents.spaces
        for policy_id in self._lane_set.remove_unused([i for i in self._lane_set.lanes if i not in known]):
            self.policies.pop(policy_id, None)
            self._num_slots.pop(policy_id)
            self._hand_written.pop(policy_id, None)

    # ------------------------------------------------------------------ weights and state

    def get_state(self) -> list[dict]:
        """Random stream and exploration of each slot, policy by policy, and the newest episode of each environment.

        The state leaves out removed policies.
        """
        known = self.settings.agents.spaces
        lanes = {i: lane for i, lane in sorted(self._lane_set.lanes.items()) if i in known}
        of_slots = [
            {"policy": i, "slots": self._num_slots[i], **each} for i, lane in lanes.items() for each in lane.get_state()
        ]
        return [*of_slots, *({"episode": each.played} for each in self._episodes)]

    def set_state(self, state: list[dict]) -> None:
        """Restores the state that `get_state` returned, with its number of slots; called after `start_over`."""
        lanes, by_policy = self._lane_set.lanes, {}
        for each in state:
            if "policy" in each:
                by_policy.setdefault(each["policy"], []).append(each)
        for episode, number in zip(self._episodes, [each["episode"] for each in state if "episode" in each]):
            episode.number = number
        # Workers may have had different numbers of slots in an environment: of those, slots that lack a state are new.
        split = {i: self._by_environment(i, own) for i, own in by_policy.items() if i in lanes}
        slots = {i: max(map(len, own)) for i, own in split.items() if len(own) == len(self._indices)}
        if self._dense is None and any(count != self._num_slots[i] for i, count in slots.items()):
            self._num_slots.update(slots)
            self._lane_set.make(self._num_slots)
        for policy_id, count in slots.items():
            if self._num_slots[policy_id] == count:
                lane = self._lane_set.lanes[policy_id]
                new = lane.get_state()
                saved = [
                    own + new[index * count + len(own) : (index + 1) * count]
                    for index, own in enumerate(split[policy_id])
                ]
                lane.set_state(list(itertools.chain.from_iterable(saved)))

    def _by_environment(self, policy_id: str, slots: list[dict]) -> list[list[dict]]:
        """The states of a policy's slots, environment by environment."""
        # Older checkpoints have no entry `slots`, the number of slots in one environment.
        found, left = [], slots
        while left:
            count = left[0].get("slots", self._num_slots.get(policy_id, 1))
            found.append(left[:count])
            left = left[count:]
        return found

    def takes_state(self, state: Any) -> bool:
        """Whether a saved state is of this kind of worker; `set_state` restores the policies whose slots fit."""
        is_of_slots = isinstance(state, list) and all(isinstance(each, dict) for each in state)
        return is_of_slots and all("policy" in each or "episode" in each for each in state)

    def split_state(self, state):
        of_episodes = [each for each in state if "episode" in each] if self.takes_state(state) else []
        parts: list[list[dict]] = [[] for _ in of_episodes]
        of_slots = [each for each in state if "policy" in each] if parts else []
        for policy_id, group in itertools.groupby(of_slots, operator.itemgetter("policy")):
            for part, slots in zip(parts, self._by_environment(policy_id, list(group))):
                part += slots
        return [[*part, episode] for part, episode in zip(parts, of_episodes, strict=True)]

    def _drop_episodes(self) -> None:
        self._lane_set.start_over()
        self._hooks.start_over()
        if self._dense is not None:
            self._dense.forget()
        self._drop_removed()

    def _begin_life(self, incarnation: int) -> None:
        self._episode_key = (incarnation,)
        self._lane_set.number_anew(self._episode_key)

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
                # The environments made steps whose rows are incomplete: the next sample starts new episodes.
                for lane in self.lanes.values():
                    lane.note_rows_without_choice(error, lane.acting)
                self.start_over()
                raise
        fragments = {policy_id: self._end_fragment(lane) for policy_id, lane in self.lanes.items()}
        return {policy_id: fragment for policy_id, fragment in fragments.items() if fragment.num_steps}, report

    def _finish(self, fragments: dict[str, Fragment], report: SampleReport) -> None:
        for policy_id, fragment in fragments.items():
            self.lanes[policy_id].finish(fragment)
        cut = [each.running for each in self._episodes if each.is_running and not each.is_carried]
        self._hooks.postprocess(fragments, cut)
        longest_running = max(each.length for each in self._episodes)
        report.longest_running = longest_running if self._dense is None else self._dense.longest_running
        report.policy_numbers = dict(self._lane_set.numbers)
        self._hooks.report()

    def _make_rows(self, fragments: dict[str, Fragment], report: SampleReport) -> SampleBatch | MultiAgentBatch:
        batches = {}
        for policy_id, fragment in fragments.items():
            if policy_id in self.settings.agents.trained:  # else the policy was removed, and its episode still runs
                lane = self.lanes[policy_id]
                has_gaps = not fragment.is_in_lockstep(self.settings.fragment_length)
                batches[policy_id] = lane.to_batch(fragment, has_gaps)
                batches[policy_id].policy_version = lane.oldest_version
        return self._joined(batches, report)

    def _joined(self, batches: dict[str, SampleBatch], report: SampleReport) -> SampleBatch | MultiAgentBatch:
        """The rows of all policies in the form that the algorithm receives."""
        return MultiAgentBatch(batches, report.env_steps)

    def _end_fragment(self, lane: RecordingLane) -> Fragment:
        return lane.end(*self._open_and_free(lane))

    def _open_and_free(self, lane: RecordingLane) -> tuple[np.ndarray, np.ndarray | None]:
        """Whether each slot has an open row, and whether it is free, bool [S] each; None for the second: none is."""
        is_open = np.zeros(lane.num_slots, bool)
        if self._dense is not None:
            return is_open, None
        is_free = np.ones(lane.num_slots, bool)
        for episode in self._episodes:
            own = [slot for slot in episode.living if slot.lane is lane]
            is_free[[slot.index for slot in own]] = False
            is_open[[slot.index for slot in own if slot.is_open and episode.trains]] = True
        return is_open, is_free

    def _step_through(self, report: SampleReport) -> None:
        """The hot loop."""
        if self._dense is not None:
            return self._step_in_arrays(report)
        settings, episodes = self.settings, self._episodes
        num_steps, is_complete = settings.fragment_length, settings.complete_episodes
        for lane in self.lanes.values():
            lane.begin(num_steps)
        for each in episodes:
            each.begin_fragment()
        if not all(each.is_running for each in episodes):
            # Then no environment runs an episode: with its fragment, an episode ends in all environments or in none.
            self._lane_set.start(episodes)
            self._lane_set.receive()
        clock = stopwatch("act", "step")
        wanted = num_steps * settings.num_envs if settings.agents.counts_agent_steps else None
        made = closed = idle = 0

        def is_short(each=None) -> bool:
            return made < num_steps if wanted is None else self._num_closed < wanted

        while is_short():
            step = made % num_steps
            if made and not step:
                self._prepare(num_steps)
            made += 1
            self._step(step, episodes, report, clock, is_short if is_complete else None)
            if wanted is not None:
                before, closed = closed, self._num_closed
                idle = 0 if closed > before else idle + 1
                if idle >= MAX_EMPTY_STEPS:
                    raise self._idle_error(idle)
        self._advance(made)
        report.env_steps = made * settings.num_envs
        if is_complete:
            self._complete(report, clock)
        report.rows = report.env_steps if wanted is None else self._num_closed
        report.env_steps -= report.num_faulty_episodes  # a step in which an environment fails does not count
        self._report_steps(report, [each.closed_rows() for each in episodes])

    def _idle_error(self, steps: int) -> ValueError:
        """The error for environments in which no agent completes a step while agent steps are counted."""
        return ValueError(
            f"no agent has completed a step in {steps:,} steps of each environment of rollout worker "
            f"{self.worker_index}, and count_steps_by='agent_steps' asks for steps of agents. Give agents an "
            "observation after their actions, or use .multi_agent(count_steps_by='env_steps')."
        )

    def _step_in_arrays(self, report: SampleReport) -> None:
        """The hot loop where all agents act in each step of a vector of environments."""
        dense, num_steps, clock = self._dense, self.settings.fragment_length, stopwatch("act", "step")
        for lane in self.lanes.values():
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
        return sum([each.num_closed for each in self._episodes])

    def _prepare(self, num_steps: int, active: list[bool] | None = None) -> None:
        """Prepares further steps in the same fragment; `active`: whether each environment makes them, None: all do."""
        for policy_id, lane in self.lanes.items():
            lane.make_room(num_steps)
            slots = None if active is None else np.repeat(active, self._num_slots[policy_id]).tolist()
            lane.prepare(num_steps, slots)

    def _advance(self, num_steps: int) -> None:
        for lane in self.lanes.values():
            lane.end_steps(num_steps)

    def _step(
        self,
        step: int,
        episodes: Sequence[EnvironmentEpisode],
        report: SampleReport,
        clock: Callable[[], float],
        goes_on: Callable[[EnvironmentEpisode], bool] | None,
    ) -> None:
        """Steps these environments once; where an episode is over and `goes_on` allows it, the next episode starts.

        Args:
            step: number of the step since `_prepare`.
            episodes: episodes of the environments to step.
            report: counts episodes and times.
            clock: a stopwatch.
            goes_on: whether the next episode starts in an environment whose episode is over; None: always.
        """
        lane_set = self._lane_set
        begun = clock()
        lane_set.act(step)
        acted = clock()
        over = lane_set.step(episodes)
        if over:
            ended = [each.result for each in over if each.result is not None]
            report.episodes += ended
            report.num_faulty_episodes += len(over) - len(ended)
            lane_set.start(each for each in over if goes_on is None or goes_on(each))
        stepped = clock()
        lane_set.receive()
        report.env_time_s += stepped - acted
        report.inference_time_s += acted - begun + clock() - stepped

    def _complete(self, report: SampleReport, clock) -> None:
        """Steps the running episodes until they are over; the next episodes start with the next fragment."""
        patience = Patience(self.settings.sample_timeout_s, "batch_mode='complete_episodes'")
        running = [each for each in self._episodes if each.is_running]
        steps = 0
        while running:
            steps += 1
            patience.check(np.array([each.is_running for each in self._episodes]), steps)
            self._prepare(1, [each.is_running for each in self._episodes])
            self._step(0, running, report, clock, lambda each: each.result is None)
            self._advance(1)
            report.env_steps += len(running)
            running = [each for each in running if each.is_running]
