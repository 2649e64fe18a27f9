"""Workers that play an evaluation's episodes, or a number of steps, for the files of their recorders."""

from typing import ClassVar

import numpy as np
from numpy.random import Generator

from rllib import sample_batch as sb
from rllib.env.episodes import Episode
from rllib.evaluation import seeding
from rllib.evaluation.evaluator import Budget, Duration, environments_of
from rllib.evaluation.patience import Patience
from rllib.evaluation.postprocess.fragment import Fragment
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.evaluation.sampling_worker import SampleReport
from rllib.exploration.explorers import STOCHASTIC_SAMPLING, Explorer, StochasticSampling


class RecordingWorker(RolloutWorker):
    """Plays episodes or steps, exploring as a RolloutWorker does, in the columns that a recorder reads.

    Settings as for RolloutWorker; with complete_episodes=False the last episodes of a number of steps are cut.
    """

    streams: ClassVar[int] = seeding.EVALUATION_ENVIRONMENTS

    def play_episodes(self, duration: Duration, round_index: int, explore: bool = False) -> list[Episode]:
        """Plays episodes, and returns those that have ended, statistics of the raw rewards.

        Every environment plays its share of them and rests then, unless it is one of a VectorEnv: what that one does
        afterwards is not recorded.

        Args:
            duration: when to stop.
            round_index: seeds the environments, as for EvaluationWorker.
            explore: not read, the settings of the policy say it.
        """
        settings, stream = self.settings, self.stream
        settings.reseed(stream, self._indices, self.worker_index, round_index, self.streams)
        self._budget = budget = Budget(duration, stream.num_envs)
        self._cuts, self._rounds = not settings.complete_episodes, 0
        self._lengths = np.zeros(stream.num_envs, int)  # steps that the budget does not know of
        if stream.steps_apart:
            stream.wants_next = lambda i: i in stream.lives_lost or budget.goes_on(i, int(self._lengths[i]) + 1)
        episodes: list[Episode] = []
        with Patience(settings.sample_timeout_s, "the recording", ends_process=self.worker_index > 0) as patience:
            self._patience = patience
            while budget.playing.any():
                fragment, report = self._next_fragment()
                self._finish(fragment, report)
                episodes += report.episodes
        return episodes

    def _next_fragment(self) -> tuple[Fragment, SampleReport]:
        report, parts, left = SampleReport(), [], self.settings.fragment_length
        while left and self._budget.playing.any():
            self._patience.check(self._budget.playing & (not self._cuts), self._rounds)
            self._rounds += 1
            parts.append(self._part(left, report))
            left -= parts[-1].num_steps
        return self.lane.joined(parts), report

    def _part(self, most: int, report: SampleReport) -> Fragment:
        """The next step; with a number of steps up to `most` at once, until the shares are nearly over."""
        budget, cuts = self._budget, self._cuts
        playing = budget.playing.copy()
        rests = not playing.all()
        num_steps = most if cuts and not rests and all(budget.goes_on(i, most) for i in range(len(playing))) else 1
        part = self._steps(num_steps, report, playing.tolist() if rests and self.stream.steps_apart else None)
        if rests and not self.stream.steps_apart:
            part.mark_invalid(0, ~playing)
            for name in (sb.REWARDS, sb.TERMINATEDS, sb.TRUNCATEDS):
                part[name][:, ~playing] = 0
        made = playing * num_steps if part.valid is None else part.valid.sum(0)
        if cuts:
            for i in np.flatnonzero(playing):
                budget.spend(i, int(made[i]))
            return part
        self._lengths += made
        self._lengths[[i for _, i in part.failures]] = 0
        ended = part[sb.TERMINATEDS][0] | part[sb.TRUNCATEDS][0]
        ended[[i for _, i in part.lives_lost]] = False
        for i in np.flatnonzero(ended):
            budget.spend(i, int(self._lengths[i]))
            self._lengths[i] = 0
        return part


class EvaluationRecordingWorker(RecordingWorker):
    """Plays the episodes of an EvaluationWorker with the same index: the same seeds, exploration and draws."""

    def play_episodes(self, duration: Duration, round_index: int, explore: bool = False) -> list[Episode]:
        """As RecordingWorker's, but `explore` samples the actions, as for EvaluationWorker."""
        settings, lane = self.settings, self.lane
        played = environments_of(settings, duration, self.worker_index)
        self._indices = range(played.start, played.start + settings.num_envs)
        rng = None
        if explore:
            rng = seeding.generator(settings.seed, seeding.EVALUATION_ACTIONS, self.worker_index, round_index)
        self.policy.exploration = self.policy_settings.exploration.numbers_alone(lane.timesteps)
        lane.explorer = _EvaluationExplorer(lane.explorer, rng, len(played))
        return super().play_episodes(duration, round_index, explore)


class _EvaluationExplorer(Explorer):
    """Chooses the actions of an evaluation.

    Args:
        training: the worker's explorer in training.
        rng: draws the actions of all environments; None: the most likely ones are taken.
        num_envs: environments that act, the first ones: what is drawn depends on their number.
    """

    gives_values = False

    def __init__(self, training: Explorer, rng: Generator | None, num_envs: int):
        self.follows_policy = training.follows_policy
        self.policy, self.rngs, self.position = training.policy, training.rngs, training.position
        # Random first steps are training's alone.
        is_sampling = isinstance(training.exploration, StochasticSampling)
        self.exploration = STOCHASTIC_SAMPLING if is_sampling else training.exploration
        self._rng, self._num_envs = rng, num_envs

    def begin(self, num_steps: int, timesteps: int, active=None) -> np.ndarray:
        return np.empty((num_steps, 0), np.float32)  # `act` draws

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        acting, fetches = slice(self._num_envs), {}
        if state is not None:
            next_state[:] = state
        how = {"explore": self._rng is not None, "rng": self._rng, "filtered": True, "fetches": fetches}
        following = None if state is None else next_state[acting]
        actions[acting] = self.policy.choose(observations[acting], state=following, **how)
        dist_inputs[acting] = fetches[sb.ACTION_DIST_INPUTS]
        # The others rest; their rows are read as numbers, so that they have to be finite.
        actions[self._num_envs :] = 0
        dist_inputs[self._num_envs :] = 0
