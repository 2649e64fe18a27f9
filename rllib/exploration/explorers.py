"""Exploration in workers: the types of exploration_config.

A description (`Exploration`) is sent to the workers, and each makes an `Explorer` of it, which chooses the actions in
place of the policy. Everything random comes from the streams of the environments, so what an environment sees does not
depend on which worker it is in; schedules run over the environment steps of the whole run, step by step.

Names and settings are those of Ray 2.6's exploration classes.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
from gymnasium import spaces

from rllib.policy import Policy


class Place(msgspec.Struct, frozen=True):
    """Where an explorer acts.

    Attributes:
        worker_index: 0 for the local worker, 1... for the remote ones.
        num_workers: remote workers of the run.
        num_envs: environments of this worker.
        low, high: bounds of a continuous action as the policy gives it, where there are some.
        shared_rng: draws what all environments of the run have in common, the same numbers in each worker.
    """

    worker_index: int
    num_workers: int
    num_envs: int
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    shared_rng: np.random.Generator | None = None

    @property
    def stride(self) -> int:
        """Environment steps that the whole run makes in one step of this worker."""
        return self.num_envs * max(self.num_workers, 1)


class Explorer:
    """Chooses actions in the environments of one worker. This one samples from the policy's distribution.

    Args:
        exploration: the description.
        policy: the policy that acts.
        rngs: one for each environment.
        place: where it acts.
    """

    def __init__(self, exploration: "Exploration", policy: Policy, rngs: Sequence[np.random.Generator], place: Place):
        self.exploration = exploration.in_worker(place)
        self.policy = policy
        self.rngs = rngs
        self.place = place

    @property
    def gives_values(self) -> bool:
        """Whether `act` can write the values of the observations."""
        return self.policy.gives_values

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        """Draws the noise of the next steps.

        Args:
            num_steps: T, steps of each environment.
            timesteps: environment steps that the run has made before.
            active: of each environment, whether it makes these steps; None: all do. For the others nothing is drawn, so
                that what an environment sees does not depend on how long the episodes of its neighbours are.

        Returns:
            noise [T, N, ...], whose rows `act` gets one by one; zeros where nothing was drawn.
        """
        numbers = self.exploration.numbers(timesteps + self.place.stride * np.arange(num_steps))
        drawn = {i: self.policy.noise(self.rngs[i], num_steps, **numbers) for i in self._drawing(active)}
        if len(drawn) == len(self.rngs) == 1:
            return drawn[0][:, None]
        if len(drawn) == len(self.rngs):
            return np.stack(list(drawn.values()), axis=1)
        some = next(iter(drawn.values()))
        noise = np.zeros((num_steps, len(self.rngs), *some.shape[1:]), some.dtype)
        for i, own in drawn.items():
            noise[:, i] = own
        return noise

    def _drawing(self, active: Sequence[bool] | None) -> Sequence[int]:
        """The environments that make the next steps."""
        return range(len(self.rngs)) if active is None else np.flatnonzero(active).tolist()

    def act(
        self,
        observations: np.ndarray,
        noise: np.ndarray,
        dist_inputs: np.ndarray,
        actions: np.ndarray,
        values: np.ndarray | None = None,
        state: np.ndarray | None = None,
        next_state: np.ndarray | None = None,
    ) -> None:
        """Chooses one action per environment; arguments as for `Policy.act`."""
        self.policy.act(observations, noise, dist_inputs, actions, values, state, next_state)

    def episodes_ended(self, environments: Sequence[int]) -> None:
        """Called when these environments begin new episodes with the next action."""

    def end(self) -> None:
        """Called after the steps since `begin`; the policy's weights may change."""

    def start_over(self) -> None:
        """Called when the running episodes were dropped: every environment begins a new one."""

    def get_state(self) -> list[dict[str, Any]]:
        """The state of each environment's exploration, JSON-able."""
        return [{} for _ in self.rngs]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restores what `get_state` returned; every environment begins a new episode."""


class Greedy(Explorer):
    """Takes the most probable actions: for `explore=False`. The streams of the environments move on all the same."""

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        return np.zeros_like(super().begin(num_steps, timesteps, active))


class NoisyWeightsExplorer(Explorer):
    """Draws new noise in the weights at every step, the same for all environments of all workers.

    The paper of NoisyNet draws before every action of its one environment (arXiv:1706.10295, section 3.1). Environments
    in lockstep share a draw, so that one product computes all of them; their observations differ, and the next step
    draws again. Workers share it too, so that runs do not depend on how environments are shared out.
    """

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        self.policy.resample(self.place.shared_rng)
        self.policy.act(observations, noise, dist_inputs, actions, values, state, next_state)

    def get_state(self) -> list[dict[str, Any]]:
        return [{"shared_rng": self.place.shared_rng.bit_generator.state} for _ in self.rngs]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        # Checkpoints of earlier versions have none: there the first environment's stream drew.
        if "shared_rng" in state[0]:
            self.place.shared_rng.bit_generator.state = state[0]["shared_rng"]


class StateDependentNoiseExplorer(Explorer):
    """Adds noise that is linear in what the policy's head reads, by a matrix Theta of each environment (gSDE).

    Theta is drawn when a fragment begins, and every `sample_freq` steps if that is positive.
    """

    def __init__(self, exploration: "Exploration", policy: Policy, rngs: Sequence[np.random.Generator], place: Place):
        super().__init__(exploration, policy, rngs, place)
        self._thetas: np.ndarray | None = None  # [N, width, actions]
        self._steps = 0  # since the fragment began
        self._active: Sequence[int] = range(len(rngs))

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        if active is None:
            self._thetas, self._steps = None, 0
        self._active = self._drawing(active)
        return np.zeros((num_steps, len(self.rngs), self.policy.distribution.size), np.float32)

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        sigma = self.policy.network.sigma
        if self._thetas is None:
            self._thetas = np.zeros((len(self.rngs), *sigma.shape), np.float32)
        freq = self.exploration.sample_freq
        if self._steps == 0 or (freq > 0 and self._steps % freq == 0):
            for i in self._active:
                self._thetas[i] = sigma * self.rngs[i].standard_normal(sigma.shape, dtype=np.float32)
        self._steps += 1
        self.policy.act(observations, noise, dist_inputs, actions, values, state, next_state)
        # One product an environment, so that its bits do not depend on how many others there are.
        drawn = np.matmul(self.policy.acting_features(len(actions))[:, None, :], self._thetas)
        actions += drawn.reshape(actions.shape)


class Exploration(msgspec.Struct, frozen=True, dict=True):
    """Base of the types of exploration_config: their fields are the settings, with defaults."""

    explorer: ClassVar[type[Explorer]] = Explorer
    # Whether workers explore to different degrees for the whole run, as in Ape-X; without workers, by the schedule.
    differs_by_worker: ClassVar[bool] = False

    def numbers(self, timesteps) -> dict[str, Any]:
        """Keyword arguments of the distribution's `noise` at these environment steps, a number or an array."""
        return {}

    def numbers_alone(self, timesteps: int) -> dict[str, Any]:
        """The same for a policy that acts by itself: in evaluation, in the user's loops, in deployment."""
        return self.numbers(timesteps)

    def for_actions(self, action_space: spaces.Space) -> "Exploration":
        """The exploration to use with these actions."""
        return self

    def in_worker(self, place: Place) -> "Exploration":
        """The exploration of one worker."""
        return self


class RandomStartExplorer(Explorer):
    """Samples from the policy's distribution; the first steps of the run are uniform over all actions instead.

    An action before tanh is drawn so that its tanh is uniform.
    """

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        """[T, N, noise + size]: noise for the policy, then random actions, or NaN where it acts."""
        noise = super().begin(num_steps, timesteps, active)
        drawn = np.full((num_steps, len(self.rngs), self._size), np.nan, np.float32)
        steps = timesteps + self.place.stride * np.arange(num_steps)
        for i in self._drawing(active):
            # Always drawn, so that the streams of runs with other settings stay in step.
            drawn[:, i] = self._uniform(self.rngs[i], num_steps)
        drawn[steps >= self.exploration.random_timesteps] = np.nan
        return np.concatenate([noise, drawn], axis=2)

    @property
    def _size(self) -> int:
        return math.prod(self.policy.action_shape)

    def _uniform(self, rng: np.random.Generator, count: int) -> np.ndarray:
        choices = self.policy.distribution.choices
        if choices:
            return np.stack([rng.integers(stop - start, size=count) for start, stop in choices], axis=1)
        limit = 1 - np.finfo(np.float32).eps
        return np.arctanh(rng.uniform(-limit, limit, (count, self._size)))

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        size = self._size
        own = np.ascontiguousarray(noise[:, :-size])
        super().act(observations, own, dist_inputs, actions, values, state, next_state)
        drawn = noise[:, -size:]
        at_random = ~np.isnan(drawn[:, 0])
        actions.reshape(len(actions), size)[at_random] = drawn[at_random]


class StochasticSampling(Exploration):
    """Actions are drawn from the policy's own distribution.

    Attributes:
        random_timesteps: the first environment steps of the run are uniformly random instead; only for algorithms that
            do not need the probabilities of the actions taken.
    """

    random_timesteps: int = 0

    @property
    def explorer(self) -> type[Explorer]:
        return RandomStartExplorer if self.random_timesteps else Explorer


class RandomStartStateDependentNoiseExplorer(RandomStartExplorer, StateDependentNoiseExplorer):
    """The first steps of the run are uniform over all actions; then the noise is a function of the state."""


class StateDependentNoise(Exploration):
    """Noise that is a function of the state for several steps; needs a network with model={"use_sde": True}.

    Attributes:
        sample_freq: steps of an environment after which the function is drawn anew; -1: with each fragment alone.
        random_timesteps: as for StochasticSampling.
    """

    sample_freq: int = -1
    random_timesteps: int = 0

    @property
    def explorer(self) -> type[Explorer]:
        return RandomStartStateDependentNoiseExplorer if self.random_timesteps else StateDependentNoiseExplorer


class EpsilonGreedy(Exploration):
    """The action of the highest value, or with probability epsilon any.

    Attributes:
        initial_epsilon: epsilon for the first warmup_timesteps environment steps.
        final_epsilon: epsilon in the end, reached in a straight line.
        epsilon_timesteps: environment steps from one to the other.
        warmup_timesteps: environment steps before that.
    """

    initial_epsilon: float = 1.0
    final_epsilon: float = 0.05
    epsilon_timesteps: int = 10_000
    warmup_timesteps: int = 0

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"epsilon": np.interp(timesteps, *self._schedule)}

    @functools.cached_property
    def _schedule(self) -> np.ndarray:
        """Timesteps and epsilons of the corners, [2, corners]."""
        start, length = self.warmup_timesteps, self.epsilon_timesteps
        corners = [(0, self.initial_epsilon)] if start or length else []
        corners += [(start, self.initial_epsilon)] if start and length else []
        return np.array([*corners, (start + length, self.final_epsilon)], np.float64).T


STOCHASTIC_SAMPLING = StochasticSampling()

# Constants of Ape-X (arXiv:1803.00933, section 4.1).
BASE, EXPONENT = 0.4, 7.0


def worker_epsilon(worker_index: int, num_workers: int) -> float:
    """Epsilon of actor i of N, 0.4^(1 + 7 i / (N - 1)) with i from 0; the worker's index counts from 1."""
    return BASE ** (1 + EXPONENT * (worker_index - 1) / max(num_workers - 1, 1))


class PerWorkerEpsilonGreedy(EpsilonGreedy):
    """Epsilon-greedy with a different epsilon in each worker, for the whole run; without workers, by the schedule."""

    differs_by_worker = True

    def in_worker(self, place: Place) -> Exploration:
        if not place.num_workers:
            return EpsilonGreedy(*msgspec.structs.astuple(self))
        epsilon = worker_epsilon(place.worker_index, place.num_workers) if place.worker_index else 0.0
        return EpsilonGreedy(epsilon, epsilon, 0)


class SoftQ(Exploration):
    """Actions are drawn with probabilities softmax(Q / temperature)."""

    temperature: float = 1.0

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"temperature": self.temperature}


class RandomValues(Exploration):
    """Any of the actions that have values, all with equal probability."""

    def numbers(self, timesteps) -> dict[str, Any]:
        return {"epsilon": 1.0}


class NoisyWeights(Exploration):
    """The noise of noisy layers alone makes actions vary (arXiv:1706.10295)."""

    without_memory = "layers with noise in their weights have no state"
    explorer = NoisyWeightsExplorer


# ---------------------------------------------------------------------- noise on continuous actions


class NoiseExplorer(Explorer):
    """Adds noise to the most probable actions of a deterministic policy; the first steps of the run are random.

    The noise is in the units of the policy's actions (where they are normalised, the bounds are -1 and 1), and the sum
    is clipped to the bounds. What is stored is the action that was played. Its probability under the policy means
    nothing, so algorithms that need one cannot explore like this.

    Raises:
        ValueError: if the first actions are to be random but have no bounds.
    """

    def __init__(self, exploration, policy, rngs, place):
        super().__init__(exploration, policy, rngs, place)
        if place.low is None or not np.isfinite([place.low, place.high]).all():
            raise ValueError(
                f"{type(self.exploration).__name__} needs continuous actions with finite bounds, but they reach from "
                f"{place.low} to {place.high}. Wrap the environment so that its action space has bounds."
            )
        self._low, self._high = place.low.reshape(-1), place.high.reshape(-1)
        self._shape = self._low.shape
        # What `rng.uniform` computes, without its handling of arrays, which takes five times as long.
        self._lowest, self._span = self._low.astype(np.float64), np.subtract(self._high, self._low, dtype=np.float64)
        self._zeros = policy.noise(np.random.default_rng(), place.num_envs) * 0

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        """[T, N, 2, size]: random actions, or NaN where the policy acts, and noise for these."""
        steps = timesteps + self.place.stride * np.arange(num_steps)
        noise = np.zeros((num_steps, len(self.rngs), 2, *self._shape), np.float32)
        for i in self._drawing(active):
            rng = self.rngs[i]
            # Both are always drawn, so that the streams of runs with other settings stay in step.
            noise[:, i, 0] = self._lowest + self._span * rng.random((num_steps, *self._shape))
            noise[:, i, 1] = rng.standard_normal((num_steps, *self._shape), np.float32)
        noise[steps >= self.exploration.random_timesteps, :, 0] = np.nan
        noise[:, :, 1] *= self.exploration.scale(steps)[:, None, None]
        return noise

    def act(self, observations, noise, dist_inputs, actions, values=None, state=None, next_state=None) -> None:
        self.policy.act(observations, self._zeros, dist_inputs, actions, values, state, next_state)
        flat = actions.reshape(len(actions), -1)
        at_random = ~np.isnan(noise[:, 0])
        flat += self.added(noise[:, 1])
        np.clip(flat, self._low, self._high, out=flat)
        flat[at_random] = noise[:, 0][at_random]

    def added(self, noise: np.ndarray) -> np.ndarray:
        """The noise to add to the actions, [N, size], from scaled normal numbers [N, size]."""
        return noise


class GaussianNoise(Exploration):
    """Independent normal noise of a standard deviation that shrinks.

    Attributes:
        random_timesteps: the first environment steps of the run are uniformly random.
        stddev: standard deviation at scale 1.
        initial_scale, final_scale, scale_timesteps: the scale goes from one to the other in scale_timesteps environment
            steps after the random ones.
    """

    random_timesteps: int = 1000
    stddev: float = 0.1
    initial_scale: float = 1.0
    final_scale: float = 0.02
    scale_timesteps: int = 10_000
    explorer = NoiseExplorer

    def numbers_alone(self, timesteps: int) -> dict[str, Any]:
        return _without_explorer(self, timesteps, self.stddev)

    def scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of normal noise at these environment steps, float32."""
        return (self.stddev * _scale(self, timesteps)).astype(np.float32)


class PerWorkerGaussianNoise(GaussianNoise):
    """Normal noise with a different scale in each worker, for the whole run; without workers, by the schedule."""

    differs_by_worker = True

    def in_worker(self, place: Place) -> Exploration:
        return GaussianNoise(**_of_worker(self, place))


class OrnsteinUhlenbeckExplorer(NoiseExplorer):
    """x moves by theta * (0 - x) + sigma * normal at each step, and starts at zero in each episode."""

    def __init__(self, exploration, policy, rngs, place):
        super().__init__(exploration, policy, rngs, place)
        self._state = np.zeros((len(rngs), *self._shape), np.float32)
        self._scales = iter(())

    def begin(self, num_steps: int, timesteps: int, active: Sequence[bool] | None = None) -> np.ndarray:
        steps = timesteps + self.place.stride * np.arange(num_steps)
        self._scales = iter(self.exploration.base_scale(steps).tolist())
        return super().begin(num_steps, timesteps, active)

    def added(self, noise: np.ndarray) -> np.ndarray:
        self._state *= 1 - self.exploration.ou_theta
        self._state += noise
        return self._state * next(self._scales)

    def episodes_ended(self, environments: Sequence[int]) -> None:
        self._state[environments] = 0

    def start_over(self) -> None:
        self._state[:] = 0

    def set_state(self, state: Sequence[dict[str, Any]]) -> None:
        self.start_over()


class OrnsteinUhlenbeckNoise(Exploration):
    """Noise that drifts: successive steps resemble one another (Lillicrap et al., arXiv:1509.02971).

    Attributes:
        random_timesteps, initial_scale, final_scale, scale_timesteps: as for GaussianNoise.
        ou_base_scale: factor of the process at scale 1.
        ou_theta: share of the way back to zero that it makes in a step.
        ou_sigma: standard deviation of its steps.
    """

    random_timesteps: int = 1000
    ou_base_scale: float = 0.1
    ou_theta: float = 0.15
    ou_sigma: float = 0.2
    initial_scale: float = 1.0
    final_scale: float = 0.02
    scale_timesteps: int = 10_000
    explorer = OrnsteinUhlenbeckExplorer

    def numbers_alone(self, timesteps: int) -> dict[str, Any]:
        # Single actions have no step before: they get what the process spreads to, sigma / sqrt(1 - (1 - theta)^2).
        kept = (1 - self.ou_theta) ** 2
        spread = self.ou_sigma / math.sqrt(1 - kept) if kept < 1 else self.ou_sigma
        return _without_explorer(self, timesteps, self.ou_base_scale * spread)

    def scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of normal noise, which the process adds up, at these environment steps, float32."""
        return np.full(len(timesteps), self.ou_sigma, np.float32)

    def base_scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of the process itself at these environment steps."""
        return self.ou_base_scale * _scale(self, timesteps)


class PerWorkerOrnsteinUhlenbeckNoise(OrnsteinUhlenbeckNoise):
    """Drifting noise with a different scale in each worker, for the whole run; without workers, by the schedule."""

    differs_by_worker = True

    def in_worker(self, place: Place) -> Exploration:
        return OrnsteinUhlenbeckNoise(**_of_worker(self, place))


def _of_worker(exploration: GaussianNoise | OrnsteinUhlenbeckNoise, place: Place) -> dict[str, Any]:
    """The settings of noise in one worker: its scale is what `worker_epsilon` is for discrete actions."""
    settings = msgspec.structs.asdict(exploration)
    if place.num_workers:
        scale = worker_epsilon(place.worker_index, place.num_workers) if place.worker_index else 0.0
        settings |= {"initial_scale": scale, "final_scale": scale}
    return settings


def _without_explorer(exploration: GaussianNoise | OrnsteinUhlenbeckNoise, timesteps: int, stddev: float) -> dict:
    """How a deterministic policy explores by itself; stddev is that at scale 1."""
    stddev *= float(_scale(exploration, timesteps))
    return {"stddev": stddev, "epsilon": 1.0 if timesteps < exploration.random_timesteps else 0.0}


def _scale(exploration: GaussianNoise | OrnsteinUhlenbeckNoise, timesteps: np.ndarray) -> np.ndarray:
    share = np.clip((timesteps - exploration.random_timesteps) / max(exploration.scale_timesteps, 1), 0, 1)
    return exploration.initial_scale + (exploration.final_scale - exploration.initial_scale) * share


class RandomActions(Exploration):
    """Uniformly random actions, always."""

    random_timesteps: float = float("inf")
    explorer = NoiseExplorer

    def numbers_alone(self, timesteps: int) -> dict[str, Any]:
        return {"epsilon": 1.0}

    def scale(self, timesteps: np.ndarray) -> np.ndarray:
        """Factor of normal noise: none."""
        return np.zeros(len(timesteps), np.float32)


class Random(Exploration):
    """Random actions, whatever their space."""

    def for_actions(self, action_space: spaces.Space) -> Exploration:
        return RandomActions() if isinstance(action_space, spaces.Box) else RandomValues()
