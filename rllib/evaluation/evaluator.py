"""Evaluation of a policy: whole episodes, in environments that training does not use."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from rllib.env.checkup.driver import SpaceCheck
from rllib.env.episodes import Episode
from rllib.env.spaces.actions import ActionMapper, StructuredActionMapper, action_mapper
from rllib.env.streams.base import StepBuffers
from rllib.evaluation import seeding
from rllib.evaluation.callbacks import pop_logged
from rllib.evaluation.episode_hooks import StreamEpisodes
from rllib.evaluation.patience import Patience
from rllib.evaluation.settings import RolloutSettings
from rllib.evaluation.worker import Worker
from rllib.policy import Policy, Snapshots

# Environments that play an evaluation's episodes, where no number was chosen for it: they act together.
EPISODES_AT_ONCE = 8


@dataclass(frozen=True)
class Duration:
    """The length of an evaluation. Every episode that has begun by then is played to its end.

    Args:
        amount: at least 1; seconds may be any positive number.
        unit: "episodes", "timesteps" (of all environments together) or "seconds".
    """

    amount: float
    unit: Literal["episodes", "timesteps", "seconds"] = "episodes"

    def split(self, parts: int) -> list[Self]:
        """The shares of workers, or of environments, that play at the same time."""
        if self.unit == "seconds":
            return [self] * parts
        share, left_over = divmod(self.amount, parts)
        return [replace(self, amount=share + (part < left_over)) for part in range(parts)]


class Budget:
    """The part of an evaluation's duration that is left, by environment.

    Args:
        duration: of all of them together.
        num_envs: number of environments.

    Attributes:
        playing: [N] bool, the environments whose present episode counts.
    """

    def __init__(self, duration: Duration, num_envs: int):
        self._unit = duration.unit
        self._ends_at = time.monotonic() + duration.amount
        self._left = np.array([share.amount for share in duration.split(num_envs)])
        self._decided: dict[int, bool] = {}  # whether the clock has allowed another episode after the one that ended
        self.playing = self._left > 0

    def spend(self, env: int, length: int) -> None:
        """Accounts for an episode that has ended after `length` steps."""
        self.playing[env] = self.goes_on(env, length)
        self._decided.pop(env, None)
        self._left[env] -= length if self._unit == "timesteps" else 1

    def goes_on(self, env: int, length: int) -> bool:
        """Whether another episode counts after one of this length; with 0, whether the present one does."""
        if self._unit == "seconds":
            in_time = bool(self.playing[env]) and time.monotonic() < self._ends_at
            return self._decided.setdefault(env, in_time) if length else in_time
        spent = length if self._unit == "timesteps" else min(length, 1)
        return bool(self.playing[env]) and self._left[env] > spent


def environments_of(settings: RolloutSettings, duration: Duration, worker_index: int) -> range:
    """Indices in the run of the environments in which a worker plays its share of an evaluation.

    Args:
        settings: of the worker.
        duration: of the share.
        worker_index: 0 for the local worker, 1... for the remote ones.
    """
    # Steps and seconds are counted in num_envs: each environment exceeds them by its last episode.
    num_envs = settings.num_envs
    if settings.num_envs_of_episodes and duration.unit == "episodes":
        num_envs = min(int(duration.amount), settings.num_envs_of_episodes)
    # Shares of episodes, and so numbers of environments, may differ between workers; seeds of environments must.
    first = worker_index * (settings.num_envs_of_episodes or settings.num_envs)
    return range(first, first + num_envs)


class PolicyPlayer:
    """Chooses the actions of an evaluation's environments by a policy.

    Args:
        policy: acts.
        to_env: from its actions to the environments'.
        num_envs: N.
        rng: draws the actions; None: the most likely ones are taken.
    """

    def __init__(self, policy: Policy, to_env: Callable, num_envs: int, rng: np.random.Generator | None):
        self._policy, self._to_env, self._rng = policy, to_env, rng
        self._state = np.zeros((num_envs, policy.state_size), np.float32) if policy.state_size else None

    def act(self, observations: np.ndarray, acting: np.ndarray, where: Callable[[int], str]) -> Any:
        """The environments' actions.

        Args:
            observations: [N, ...], what the environments gave.
            acting: [N] bool; the others ignore their actions.
            where: gives an environment without a legal action in words.
        """
        policy = self._policy
        seen = policy.filter(observations, update=False) if policy.filters_observations else observations
        policy.check_masks(seen, where, acting)
        explore = self._rng is not None
        return self._to_env(policy.choose(seen, explore=explore, rng=self._rng, filtered=True, state=self._state))

    def forget(self, environments: Any) -> None:
        """Prepares new episodes in these environments."""
        if self._state is not None:
            self._state[environments] = 0


class EvaluationWorker(Worker):
    """A worker that plays whole episodes with a policy, in environments that are made for each evaluation.

    Arguments as for Worker.
    """

    kind = "evaluation worker"
    if_silent = (
        "its episodes are played to their end; a smaller evaluation_duration or a time limit (max_episode_steps) makes "
        "an evaluation shorter"
    )

    def load_snapshots(self, snapshots: Snapshots) -> None:
        super().load_snapshots(snapshots)
        for policy_id, policy in self.policies.items():
            if policy_id in snapshots:
                exploration = self.settings.policies[policy_id].exploration
                policy.exploration = exploration.numbers_alone(snapshots[policy_id].timesteps)

    def play_episodes(self, duration: Duration, round_index: int, explore: bool = False) -> list[Episode]:
        """Plays episodes and returns them, statistics of the raw rewards.

        Every environment plays its share of them to the end: taking the first ones to finish among all would favour
        short episodes. The policy's observation filter is applied, never updated.

        Args:
            duration: when to stop.
            round_index: number of this evaluation in the run; each evaluation has different seeds.
            explore: sample the actions instead of taking the most likely ones.

        Raises:
            ValueError: if the duration is not positive, or an observation is not finite or not in its Discrete space.
        """
        if duration.amount <= 0:
            raise ValueError(
                f"an evaluation lasts at least one of its {duration.unit}, but {duration.amount} were given"
            )
        settings, worker_index = self.settings, self.worker_index
        indices = environments_of(settings, duration, worker_index)
        try:
            with (
                Patience(settings.sample_timeout_s, "the evaluation", ends_process=worker_index > 0) as patience,
                # Training environments may be stepped in this process, too; evaluation must not change what they draw.
                seeding.keeping_process_state(),
                contextlib.closing(self._opened_stream(indices, round_index)) as self.stream,
            ):
                episodes = self._play(Budget(duration, len(indices)), patience, indices, round_index, explore)
        finally:
            self.stream = None
        if episodes and (logged := pop_logged(self.callbacks)):
            episodes[-1] = replace(episodes[-1], logged=logged)
        return episodes

    def _opened_stream(self, indices: range, round_index: int) -> Any:
        try:
            return self._open_stream(seeding.EVALUATION_ENVIRONMENTS, indices, self.worker_index, round_index)
        except Exception as error:
            if len(indices) > self.settings.num_envs:
                error.add_note(
                    f"an evaluation plays episodes in {len(indices)} environments at once here; "
                    'evaluation_config={"num_envs_per_worker": 1} plays all of them in one'
                )
            raise

    @property
    def _open_stream(self) -> Callable[..., Any]:
        return self.settings.open_stream

    def _play(
        self, budget: Budget, patience: Patience, indices: range, round_index: int, explore: bool
    ) -> list[Episode]:
        """Plays episodes in the environments of `stream`, whose indices in the run are given."""
        hooks = StreamEpisodes(self.callbacks, self, in_evaluation=True, first_env=indices[0], wants=budget.goes_on)
        rng = None
        if explore:
            rng = seeding.generator(self.settings.seed, seeding.EVALUATION_ACTIONS, self.worker_index, round_index)
        episodes = self._play_in_lockstep(budget, rng, patience)
        for episode in episodes:
            hooks.report(episode, episode.env_index)
        return episodes

    def _play_in_lockstep(self, budget: Budget, rng: np.random.Generator | None, patience: Patience) -> list[Episode]:
        settings, stream = self.settings, self.stream
        check = SpaceCheck(stream, self.worker_index)
        num_envs = stream.num_envs
        buffers = stream.new_buffers()
        observations, rewards = buffers.observations, buffers.rewards
        returns, lengths = np.zeros(num_envs), np.zeros(num_envs, int)
        costs = None if settings.cost_column is None else np.zeros(num_envs)
        mapping = settings.normalize_actions, settings.clip_actions
        player = self._make_player(action_mapper(stream.action_space, self.policy.distribution, *mapping), rng)
        finished: list[Episode] = []
        if stream.steps_apart:
            stream.wants_next = lambda i: i in stream.lives_lost or budget.goes_on(i, int(lengths[i]) + 1)
        stream.reset(buffers)
        first_observations = observations.copy()
        steps = 0

        def where(index: int) -> str:
            return f"environment {index} of {self.kind} {self.worker_index} has no legal action after {steps - 1} steps"

        resets_next = np.zeros(num_envs, bool)  # whose next action is ignored
        while budget.playing.any():
            check(observations, steps)
            steps += 1
            patience.check(budget.playing, steps)
            active = None if budget.playing.all() or not stream.steps_apart else budget.playing
            acting = ~resets_next if active is None else active
            ended = stream.step(player.act(observations, acting, where), buffers, active)
            returns += rewards
            if costs is not None:
                costs += self._costs_of(buffers)
            lengths += 1 if stream.reset_rows is None else ~stream.reset_rows
            resets_next[:] = False
            if stream.has_gaps:
                resets_next[[i for i, _ in ended]] = True
            for i in (i for i, _ in ended if i not in stream.lives_lost):
                if budget.playing[i]:
                    cost = None if costs is None else float(costs[i])
                    finished.append(Episode(float(returns[i]), int(lengths[i]), i, episode_cost=cost))
                    budget.spend(i, int(lengths[i]))
                    if stream.steps_apart and not budget.playing[i]:  # it rests: a policy can read this row
                        observations[i] = first_observations[i]
                returns[i], lengths[i] = 0.0, 0
            for i in stream.replaced:
                returns[i], lengths[i] = 0.0, 0
            if costs is not None:
                costs[lengths == 0] = 0
            player.forget([i for i, _ in ended])
            if stream.reset_rows is not None:
                player.forget(stream.reset_rows)
        return finished

    def _make_player(self, mapper: ActionMapper | StructuredActionMapper, rng: np.random.Generator | None) -> Any:
        """What chooses the actions in `stream`, with the methods of PolicyPlayer.

        Args:
            mapper: from the policy's actions to the environments'.
            rng: as for PolicyPlayer.
        """
        return PolicyPlayer(self.policy, mapper.to_env, self.stream.num_envs, rng)

    def _costs_of(self, buffers: StepBuffers) -> np.ndarray:
        """The costs [N] of a step, 0 in rows that are none."""
        costs, reset_rows = buffers.infos[self.settings.cost_column], self.stream.reset_rows
        return costs if reset_rows is None else np.where(reset_rows, 0, costs)
