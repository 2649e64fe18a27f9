"""Base of the workers that sample: one fragment of every environment, as rows, and a report of it."""

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rllib.env.episodes import Episode
from rllib.env.traffic import Traffic
from rllib.evaluation.callbacks import pop_logged
from rllib.evaluation.lane import Lane
from rllib.evaluation.worker import Worker
from rllib.policy import Snapshots
from rllib.sample_batch import MultiAgentBatch, SampleBatch
from rllib.spans import span

# What one fragment's rows are: a SampleBatch, or with several agents a MultiAgentBatch.
RowsT = TypeVar("RowsT", SampleBatch, MultiAgentBatch)


@dataclass
class SampleReport:
    """Statistics that a worker sends with its batch, in the same message.

    Attributes:
        episodes: the ones that ended in this fragment.
        num_faulty_episodes: those in which an environment failed and was replaced.
        longest_running: steps of the longest episode still going on.
        env_steps: transitions of the fragment, which move the run's clock; rows where there is no environment.
        rows: steps that were made, including those that are no transitions, by which a train batch fills: in
            complete_episodes mode more than were asked for.
        env_time_s, inference_time_s: seconds spent in the environments and in the policy.
        filter_deltas: policy id -> observation statistics since the last report, to be merged by the driver; empty
            without a filter.
        return_deltas: the same for discounted returns; empty where rewards are not scaled by them.
        agent_steps: policy id -> steps of its agents; empty where there is one agent.
        agent_steps_by_agent: agent -> its steps; empty where there is one.
        policy_numbers: policy id -> number of the policy that acted under it (AgentSettings.numbers); empty where there
            is one agent.
        untrained_episodes: episodes of external environments with training_enabled=False.
        rows_too_old: steps of clients that were dropped, since the weights that acted are too old; None where no client
            acts by itself.
        traffic: of an environment that drives its own loop; None for others.
        logged: values that the user's hooks have logged (hooks/arguments.py); None without any.
        env_log: means of numbers that a vector environment has logged in the fragment (pop_log of tensors/adapters.py).
        rounds_late: rounds of sampling that have ended since the worker was asked for the fragment; None where every
            fragment is waited for.
    """

    episodes: Sequence[Episode] = field(default_factory=list)
    num_faulty_episodes: int = 0
    longest_running: int = 0
    env_steps: int = 0
    rows: int = 0
    env_time_s: float = 0.0
    inference_time_s: float = 0.0
    filter_deltas: dict[str, Any] = field(default_factory=dict)
    return_deltas: dict[str, Any] = field(default_factory=dict)
    agent_steps: dict[str, int] = field(default_factory=dict)
    agent_steps_by_agent: dict[Any, int] = field(default_factory=dict)
    policy_numbers: dict[str, int] = field(default_factory=dict)
    untrained_episodes: list[Episode] = field(default_factory=list)
    rows_too_old: int | None = None
    traffic: Traffic | None = None
    logged: list | None = None
    env_log: dict[str, float] = field(default_factory=dict)
    rounds_late: int | None = None


class SamplingWorker(Worker, Generic[RowsT]):
    """A worker whose environments continue from sample to sample.

    `sample` calls `_collect` (the steps), `_finish` (what is computed of all of them at once) and `_make_rows`.
    """

    # Indices in the run of the worker's environments.
    _indices: range

    @property
    @abstractmethod
    def lanes(self) -> Mapping[str, Lane]:
        """The lanes of policies whose steps become rows, by policy id."""

    def load_snapshots(self, snapshots: Snapshots) -> None:
        lanes = self.lanes
        for policy_id, lane in lanes.items():
            if policy_id in snapshots:
                lane.load_snapshot(snapshots[policy_id])
        super().load_snapshots({i: snapshot for i, snapshot in snapshots.items() if i not in lanes})

    def take_in(self, report: SampleReport) -> None:
        """Merges what the observation filters and return scales of a worker have counted, as a driver does.

        For loops of your own; with one worker it is its own report.
        """
        for policy_id, lane in self.lanes.items():
            lane.merge(report.filter_deltas.get(policy_id), report.return_deltas.get(policy_id))

    def start_over(self, incarnation: int | None = None) -> None:
        """Drops the running episodes; the next sample starts new ones.

        Args:
            incarnation: seeds the environments and the process's global generators again; by default they continue.
        """
        self._drop_episodes()
        if incarnation is not None:
            self.settings.reseed(self.stream, self._indices, self.worker_index, incarnation)
            self._begin_life(incarnation)

    @abstractmethod
    def _drop_episodes(self) -> None:
        """Drops the running episodes, and whatever waits for the next fragment."""

    def _begin_life(self, incarnation: int) -> None:
        """Seeds everything random but the environments for another incarnation."""

    def sample(self) -> tuple[RowsT, SampleReport]:
        """One fragment of every environment, as rows, and its report.

        Returns:
            fragment_length * num_envs rows in truncate_episodes mode; in complete_episodes mode at least as many, each
            episode whole.
        """
        fragment, report = self._collect()
        started = time.perf_counter()
        with span("finish"):
            self._finish(fragment, report)
        report.inference_time_s += time.perf_counter() - started
        with span("make rows"):
            samples = self._make_rows(fragment, report)
        self._pop_deltas(report)
        self.callbacks.on_sample_end(worker=self, samples=samples)
        report.logged = pop_logged(self.callbacks)
        return samples, report

    @abstractmethod
    def _collect(self) -> tuple[Any, SampleReport]:
        """Makes the steps of a fragment; returns what holds them, and a report that counts rows and times."""

    @abstractmethod
    def _finish(self, fragment: Any, report: SampleReport) -> None:
        """Computes for the whole fragment at once, and reports its episodes."""

    @abstractmethod
    def _make_rows(self, fragment: Any, report: SampleReport) -> RowsT:
        """The rows of a finished fragment; counts its transitions in the report."""

    def _pop_deltas(self, report: SampleReport) -> None:
        """Reports statistics of observations and returns since the last sample."""
        for policy_id, lane in self.lanes.items():
            seen, returned = lane.pop_deltas()
            if seen is not None:
                report.filter_deltas[policy_id] = seen
            if returned is not None:
                report.return_deltas[policy_id] = returned
