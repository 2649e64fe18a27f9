"""Plays whole episodes with perturbed weights, many perturbations at once.

Each of the N environments of a worker has its own weights; one batched product acts for all of them. Whenever an
episode ends, its environment takes the next trial from the queue. What a trial plays depends on its number alone (its
seed, its noise), not on the worker or the environment, nor on what was played before: the results are the same bits
with any number of workers and environments, and after a worker has died.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rllib.env.episodes import Episode
from rllib.env.spaces.actions import action_mapper
from rllib.env.spaces.observations import are_finite
from rllib.evaluation import seeding
from rllib.evaluation.episode_hooks import StreamEpisodes
from rllib.evaluation.evolution.noise_table import NoiseTable
from rllib.evaluation.lane import OF_ENVIRONMENT
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker import Worker
from rllib.models.distributions.standard import DiagGaussian
from rllib.models.observations.filters import RunningMoments
from rllib.policy import Policy, Snapshots
from rllib.sample_batch import DEFAULT_POLICY

logger = logging.getLogger(__name__)

NOISE_STEPS = 64  # steps of an episode for which action noise is drawn at once
SUSPICIOUS_LENGTH = 100_000


@dataclass(frozen=True)
class Trial:
    """One episode to be played with weights + scale * direction(index).

    Attributes:
        number: number of the episode, counted over the run; it seeds the environment and the action noise.
        index: where the direction begins in the noise table.
        scale: +sigma, -sigma, or 0 for the weights themselves, without any noise.
        action_noise_std: of normal noise on continuous actions, in the policy's units.
        observed: whether the episode's observations are counted for the observation filter.
    """

    number: int
    index: int = 0
    scale: float = 0.0
    action_noise_std: float = 0.0
    observed: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of a trial: scalars, and the moments of its raw observations if they were to be counted."""

    trial: Trial
    episode: Episode
    observations: dict[str, np.ndarray] | None = None


class PerturbationWorker(Worker):
    """N environments that play trials.

    Args:
        settings: which environments and policy; num_envs of them are stepped in lockstep.
        worker_index, incarnation: as for RolloutWorker.
        allocate: not used; the results are small.
        noise: the noise table's numbers.

    Raises:
        ValueError: if the environments cannot start episodes on seeds of their own (VectorEnv).
        the environment's own exception, if it cannot be made or reset.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        worker_index: int = 0,
        incarnation: int = 0,
        allocate: Callable[..., np.ndarray] = np.empty,
        noise: np.ndarray | None = None,
    ):
        super().__init__(settings, worker_index)
        self.noise = NoiseTable(noise)
        count = settings.num_envs
        first = max(worker_index - 1, 0) * count
        self.stream = settings.open_stream(seeding.ENVIRONMENTS, range(first, first + count), worker_index, incarnation)
        self.stream.resets_ended = False
        mapping = settings.normalize_actions, settings.clip_actions
        self._mapper = action_mapper(self.stream.action_space, self.policy.distribution, *mapping)
        self._weights = np.zeros((count, self.policy.layout.size), np.float32)
        self._network = self.policy.spec.network_per_row(self.policy.layout, self._weights)
        self._buffers = self.stream.new_buffers()
        self._raw = self._buffers.observations
        self._action_noise = ActionNoise(self.policy, settings.seed, count)
        self._slots: list[_Running | None] = [None] * count
        try:
            self.stream.restart(0, 0, self._raw)  # raises now if it cannot
        except BaseException:
            self.stream.close()
            raise
        self._hooks = StreamEpisodes(self.callbacks, self)

    def play(self, trials: Sequence[Trial], snapshots: Snapshots) -> list[Outcome]:
        """One episode for each trial.

        Args:
            trials: any number.
            snapshots: snapshots of the policy whose weights they perturb; its filter statistics normalise from the
                first step to the last.

        Returns:
            one outcome a trial, in their order.
        """
        snapshot = snapshots[DEFAULT_POLICY]
        if snapshot.filter_state is not None:
            self.policy.filter.set_state(snapshot.filter_state)
        weights = snapshot.weights
        # A run that an exception ended has left episodes behind.
        self._slots = [None] * len(self._slots)
        self._hooks.start_over()
        queue = deque(enumerate(trials))
        outcomes: list[Outcome | None] = [None] * len(trials)
        for slot in range(min(len(self._slots), len(trials))):
            self._begin(slot, *queue.popleft(), weights)
        self._raw[len(trials) :] = self._raw[0]  # idle environments; their rows are computed, not looked at
        self._loop(queue, outcomes, weights)
        return outcomes

    def _loop(self, queue: deque, outcomes: list, weights: np.ndarray) -> None:
        """The hot loop: computes actions of all environments, and steps the active ones."""
        raw, slots, policy = self._raw, self._slots, self.policy
        totals, step = np.zeros(len(slots)), 0
        filtered = np.empty(raw.shape, np.float32) if policy.filters_observations else None
        playing = [running is not None for running in slots]
        while any(playing):
            for slot, running in enumerate(slots):
                if running is not None and running.observed is not None:
                    running.observed.append(raw[slot].copy())
            if not are_finite(raw):
                self._refuse_not_finite(playing, step)
            seen = raw if filtered is None else policy.filter(raw, out=filtered, update=False)
            actions = policy.distribution.mode(self._network.forward(policy.encode(seen)))
            actions = self._action_noise.added_to(actions, step, slots)
            active = None if all(playing) else playing
            ended = self.stream.step(self._mapper.to_env(actions), self._buffers, active)
            step += 1
            totals += self._buffers.rewards
            for slot, _ in ended:
                running = slots[slot]
                outcomes[running.position] = self._outcome(slot, running, float(totals[slot]), step)
                totals[slot], slots[slot] = 0.0, None
                if queue:
                    self._begin(slot, *queue.popleft(), weights, step)
                playing[slot] = slots[slot] is not None
            for slot in self.stream.replaced:
                totals[slot] = 0.0
                self._begin(slot, slots[slot].position, slots[slot].trial, weights, step)
            if step % SUSPICIOUS_LENGTH == 0:
                self._warn_of_endless(step)

    def _begin(self, slot: int, position: int, trial: Trial, weights: np.ndarray, step: int = 0) -> None:
        row = self._weights[slot]
        if trial.scale:
            np.multiply(self.noise.direction(trial.index, len(row)), np.float32(trial.scale), out=row)
            row += weights
        else:
            row[:] = weights
        seed = seeding.environment_seed(self.settings.seed, seeding.EPISODES, trial.number)
        self.stream.restart(slot, seed, self._raw)
        self._slots[slot] = _Running(position, trial, step, [] if trial.observed else None)
        self._action_noise.begin(slot, trial)

    def _outcome(self, slot: int, running: "_Running", total: float, step: int) -> Outcome:
        episode = Episode(total, step - running.start)
        self._hooks.report(episode, slot)
        if running.observed is None:
            return Outcome(running.trial, episode)
        rows = np.array(running.observed)
        moments = RunningMoments(rows[0].size)
        moments.add(rows.reshape(len(rows), -1))
        return Outcome(running.trial, episode, moments.get_state())

    def _refuse_not_finite(self, playing: Sequence[bool], step: int) -> None:
        """Raises an error for an observation that a policy would act on: its actions, and the filter, became NaN."""
        for slot in np.flatnonzero(playing):
            if not np.isfinite(self._raw[slot]).all():
                raise ValueError(
                    f"obs of environment {slot} of rollout worker {self.worker_index} is not finite after "
                    f"{step - self._slots[slot].start} steps of an episode: {self._raw[slot]}; {OF_ENVIRONMENT}"
                )

    def _warn_of_endless(self, step: int) -> None:
        longest = max(step - running.start for running in self._slots if running is not None)
        if longest >= SUSPICIOUS_LENGTH:
            logger.warning(
                "an episode of rollout worker %d has not ended after %d steps; whole episodes are needed here: limit "
                "them with env_config={'max_episode_steps': ...} or gymnasium.wrappers.TimeLimit",
                self.worker_index,
                longest,
            )


@dataclass(slots=True)
class _Running:
    """The trial that an environment plays."""

    position: int
    trial: Trial
    start: int  # step of the worker's loop at which it began
    observed: list[np.ndarray] | None


class ActionNoise:
    """Normal noise on continuous actions, each episode's from its own stream; other actions have none."""

    def __init__(self, policy: Policy, seed: int, num_envs: int):
        self._seed = seed
        self._shape = policy.action_shape
        self._continuous = isinstance(policy.distribution, DiagGaussian)
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        self._drawn = np.zeros((num_envs, NOISE_STEPS, *self._shape), np.float32) if self._continuous else None

    def begin(self, slot: int, trial: Trial) -> None:
        """An environment begins to play this trial."""
        if self._continuous:
            noisy = trial.action_noise_std > 0
            self._rngs[slot] = seeding.generator(self._seed, seeding.EPISODE_ACTIONS, trial.number) if noisy else None
            self._drawn[slot] = 0

    def added_to(self, actions: np.ndarray, step: int, slots: "list[_Running | None]") -> np.ndarray:
        """Actions [N, *shape] with the noise of this step of the loop."""
        if not self._continuous or not any(self._rngs):
            return actions
        actions = actions.copy()
        for slot, running in enumerate(slots):
            rng = self._rngs[slot]
            if running is None or rng is None:
                continue
            now = (step - running.start) % NOISE_STEPS
            if now == 0:
                rng.standard_normal(dtype=np.float32, out=self._drawn[slot])
                self._drawn[slot] *= np.float32(running.trial.action_noise_std)
            actions[slot] += self._drawn[slot, now]
        return actions
