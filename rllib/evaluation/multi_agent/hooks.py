"""Calls the user's hooks of episodes with several agents, and collects the metrics that they report."""

from collections import Counter
from collections.abc import Iterable, Mapping

from rllib.env.episodes import Episode
from rllib.env.multi_agent.stream import AgentStep
from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.evaluation.episode_hooks import EnvironmentHooks, add_metrics
from rllib.evaluation.multi_agent.episode import AgentEpisode, Seat
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.worker import Worker
from rllib.sample_batch import SampleBatch

# Agents of an episode, and the number of rows that each has in the present fragment.
Part = list[tuple[Seat, int]]


class AgentEpisodeHooks(EnvironmentHooks):
    """The events of episodes (seats.EpisodeEvents) as calls of the user's callbacks.

    Args:
        callbacks, worker, in_evaluation: as for EnvironmentHooks.
    """

    def __init__(self, callbacks: DefaultCallbacks, worker: Worker, *, in_evaluation: bool = False):
        super().__init__(callbacks, worker, in_evaluation)
        self.start_over()
        if self.report_environments():
            worker.stream.watch(self.environment_made)

    def start_over(self) -> None:
        """Forgets the episodes that were not reported, and their rows."""
        self._finished: list[tuple[AgentEpisode, Episode]] = []
        self._parts: list[tuple[AgentEpisode, Part]] = []

    # ------------------------------------------------------------------ called for each environment

    def created(self, episode: AgentEpisode) -> None:
        """Calls `on_episode_created`."""
        self._callbacks.on_episode_created(**self._arguments, env_index=episode.env_id, episode=episode)

    def started(self, episode: AgentEpisode, observations: Mapping, infos: Mapping) -> None:
        """Calls `on_episode_start`."""
        episode.begin(observations, infos)
        self._callbacks.on_episode_start(**self._arguments, episode=episode, env_index=episode.env_id)

    def stepped(self, episode: AgentEpisode, actions: Mapping, step: AgentStep) -> None:
        """Calls `on_episode_step`."""
        episode.stepped(actions, step)
        if self._hears_steps:
            self._callbacks.on_episode_step(**self._arguments, episode=episode, env_index=episode.env_id)

    def ended(self, episode: AgentEpisode, result: Episode) -> None:
        """Calls `on_episode_end`."""
        self._note_part(episode)
        self._finished.append((episode, result))
        self._callbacks.on_episode_end(**self._arguments, episode=episode, env_index=episode.env_id)

    def failed(self, episode: AgentEpisode) -> None:
        """Keeps the rows of a void episode, which are learned from."""
        self._note_part(episode)

    def _note_part(self, episode: AgentEpisode) -> None:
        if self._hears_parts:
            rows = [(seat, seat.num_rows - seat.first_row) for seat in episode.seats.values() if seat.lane.records]
            self._parts.append((episode, [(seat, count) for seat, count in rows if count]))

    # ------------------------------------------------------------------ called by the worker

    def postprocess(self, fragments: Mapping[str, Fragment], running: Iterable[AgentEpisode]) -> None:
        """Calls `on_postprocess_trajectory` for each agent's part of an episode in full fragments.

        Args:
            fragments: policy id -> its packed fragment, which gets the changes that the hook makes to the batches.
            running: episodes that are cut by the fragment's end.
        """
        if not self._hears_parts:
            return
        for episode in running:
            self._note_part(episode)
        parts, self._parts = self._parts, []
        rows_before: Counter[tuple[str, int]] = Counter()
        known = self._worker.settings.policies
        for episode, part in parts:
            columns, seats = [], []
            for seat, count in part:
                fragment, slot = fragments[seat.policy_id], (seat.policy_id, seat.slot)
                first = rows_before[slot] + (0 if fragment.starts is None else int(fragment.starts[seat.slot]))
                rows_before[slot] += count
                rows = slice(first, first + count)
                if seat.policy_id in known:  # else it was removed, and nothing learns from its rows
                    columns.append({name: column[rows, seat.slot] for name, column in fragment.columns.items()})
                    seats.append(seat)
            self._postprocess(episode, seats, columns)

    def _postprocess(self, episode: AgentEpisode, seats: list[Seat], columns: list[dict]) -> None:
        """Calls the hook for the agents of an episode, with views of their rows."""
        policies, settings = self._worker.policy_map, self._worker.settings.policies
        original_batches = {}
        for seat, own in zip(seats, columns):
            computed = {column.name for column in settings[seat.policy_id].postprocess.columns}
            original = SampleBatch({name: column.copy() for name, column in own.items() if name not in computed})
            original_batches[seat.agent] = seat.policy_id, policies[seat.policy_id], original
        for seat, own in zip(seats, columns):
            batch = SampleBatch(dict(own))
            self._callbacks.on_postprocess_trajectory(
                worker=self._worker,
                episode=episode,
                agent_id=seat.agent,
                policy_id=seat.policy_id,
                policies=policies,
                postprocessed_batch=batch,
                original_batches=original_batches,
            )
            for name, column in own.items():
                column[:] = batch[name]

    def report(self) -> None:
        """Copies the metrics that hooks have reported into the episodes that have ended since the last call."""
        finished, self._finished = self._finished, []
        for episode, result in finished:
            add_metrics(episode, result)
