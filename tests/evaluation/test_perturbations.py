"""Trials: what they play depends on their number alone, and the noise is where it should be."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from rllib.env.factories.registry import resolve
from rllib.evaluation import seeding
from rllib.evaluation.evolution.noise_table import NoiseTable
from rllib.evaluation.evolution.perturbations import PerturbationWorker, Trial
from rllib.evaluation.settings import NO_POSTPROCESS, RolloutSettings
from rllib.evaluation.worker_set import WorkerSet
from rllib.models.catalog.catalog import policy_spec
from rllib.models.observations.filters import RunningMoments
from rllib.policy import Snapshot
from rllib.sample_batch import DEFAULT_POLICY
from tests.envs import CountingEnv, ProbeFailure, RaisingEnv
from tests.rollouts import rollout_settings

TABLE = NoiseTable.draw(5000, np.random.default_rng(0))


def settings(env="CartPole-v1", num_envs=3, env_config=None, hiddens=(4,), **overrides) -> RolloutSettings:
    made = gymnasium.make(env) if isinstance(env, str) else env(env_config or {})
    spec = policy_spec(
        made.observation_space,
        made.action_space,
        {"fcnet_hiddens": list(hiddens), "vf_share_layers": True},
        observation_filter=overrides.pop("observation_filter", "NoFilter"),
    )
    return rollout_settings(
        env=resolve(env),
        env_config=env_config or {},
        policy=spec,
        postprocess=NO_POSTPROCESS,
        num_envs=num_envs,
        fragment_length=1,
        seed=3,
        **overrides,
    )


def snapshots(weights, **more) -> dict[str, Snapshot]:
    return {DEFAULT_POLICY: Snapshot(weights, **more)}


def worker(*args, index=0, **kwargs) -> PerturbationWorker:
    return PerturbationWorker(settings(*args, **kwargs), index, noise=TABLE.values)


def weights_of(made) -> np.ndarray:
    size = made.only_policy.spec.layout().size if isinstance(made, RolloutSettings) else made.policy.layout.size
    return np.random.default_rng(5).normal(0, 0.5, size).astype(np.float32)


def trials(count, scale=0.5, **more) -> list[Trial]:
    return [Trial(number, 7 * number, scale * (-1) ** number, **more) for number in range(count)]


def played(made, given) -> list[tuple[float, int]]:
    outcomes = made.play(given, snapshots(weights_of(made)))
    assert [outcome.trial for outcome in outcomes] == given
    return [(outcome.episode.episode_return, outcome.episode.length) for outcome in outcomes]


def test_results_do_not_depend_on_environments_order_or_the_past():
    given = trials(12)
    expected = played(worker(num_envs=1), given)
    assert len(set(expected)) > 5
    for num_envs in (2, 5, 20):
        made = worker(num_envs=num_envs)
        assert played(made, given) == expected
        assert played(made, given[4:6]) == expected[4:6], "once more, after other episodes"
        assert played(made, given[::-1]) == expected[::-1]
    assert played(worker(index=7), given) == expected


@pytest.mark.parametrize("num_workers", [1, 2])
def test_remote_workers_play_the_same_from_the_same_table(num_workers):
    given, made = trials(7), settings()
    local = WorkerSet(made, 0, worker_class=PerturbationWorker, shared=[TABLE.values])
    remote = WorkerSet(made, num_workers, worker_class=PerturbationWorker, shared=[TABLE.values])
    sent = snapshots(weights_of(made))
    remote_outcomes = remote.share_out(PerturbationWorker.play, given, sent)
    assert remote_outcomes == local.share_out(PerturbationWorker.play, given, sent)
    assert remote.foreach_worker(lambda worker: worker.noise.values.tobytes()) == [TABLE.values.tobytes()] * num_workers
    remote.stop()


def test_scale_zero_plays_the_weights_themselves():
    made = worker()
    made.policy.set_weights(weights_of(made))
    env = gymnasium.make("CartPole-v1")
    for trial, (total, length) in zip(trials(3, scale=0.0), played(made, trials(3, scale=0.0))):
        observation, _ = env.reset(seed=_seed_of(made, trial))
        over, steps = False, 0
        while not over:
            action = made.policy.choose(observation[None], explore=False)[0]
            observation, _, terminated, truncated, _ = env.step(action)
            over, steps = terminated or truncated, steps + 1
        assert total == length == steps


def test_perturbed_weights_are_weights_plus_scaled_direction():
    made, other = worker(), worker()
    trial = Trial(4, index=11, scale=-0.3)
    base = weights_of(made)
    direct = base - np.float32(0.3) * TABLE.direction(11, len(base))
    first = made.play([trial], snapshots(base))[0].episode
    assert first == other.play([Trial(4)], snapshots(direct))[0].episode


def _seed_of(made, trial) -> int:
    return seeding.environment_seed(made.settings.seed, seeding.EPISODES, trial.number)


class Echo(gymnasium.Env):
    """Reward = action, a hundred steps."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Box(-100.0, 100.0, (1,), np.float32)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), float(action[0]), self.t == 100, False, {}


def test_action_noise_has_its_size_and_is_off_without_scale():
    made = worker(Echo, hiddens=[], normalize_actions=False)
    zero = np.zeros(made.policy.layout.size, np.float32)
    quiet = made.play([Trial(n) for n in range(50)], snapshots(zero))
    assert all(outcome.episode.episode_return == 0 for outcome in quiet)
    noisy = made.play([Trial(n, 0, 1e-9, 2.0) for n in range(200)], snapshots(zero))
    returns = [outcome.episode.episode_return for outcome in noisy]
    assert abs(np.std(returns) - 2.0 * np.sqrt(100)) < 4 * 20 / np.sqrt(2 * 200)
    assert len(set(returns)) == 200


def test_the_filter_stands_still_and_observed_trials_bring_moments():
    made = worker(CountingEnv, env_config={"lengths": [4]}, observation_filter="MeanStdFilter")
    state = made.policy.filter.get_state() | {"count": np.asarray(50.0), "mean": np.array([1.0]), "m2": np.array([9.0])}
    given = [Trial(0), Trial(1, observed=True), Trial(2, observed=True)]
    outcomes = made.play(given, snapshots(weights_of(made), filter_state=state))
    assert outcomes[0].observations is None
    total = RunningMoments(1)
    for outcome in outcomes[1:]:
        part = RunningMoments(1)
        part.set_state(outcome.observations)
        total.merge(part)
    assert total.count == 8, "the observations that were acted upon, 0 to 3, twice"
    np.testing.assert_allclose([total.mean[0], total.variance[0]], [1.5, 1.25])
    for name, array in made.policy.filter.get_state().items():
        np.testing.assert_array_equal(array, state[name])


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
def test_nan_is_named_where_it_appears(observation_filter):
    class Nan(CountingEnv):
        def step(self, action):
            observation, *rest = super().step(action)
            return (np.full_like(observation, np.nan) if observation[0] >= 2 else observation), *rest

    made = worker(Nan, observation_filter=observation_filter)
    filter_state = None if observation_filter == "NoFilter" else RunningMoments(1).get_state()
    with pytest.raises(ValueError, match="obs of environment 0 of rollout worker 0 is not finite after 2 steps"):
        made.play(trials(4), snapshots(weights_of(made), filter_state=filter_state))


def test_environments_that_only_reset_together_are_refused():
    made = settings()

    def vector(config):
        return gymnasium.make_vec("CartPole-v1", num_envs=3)

    with pytest.raises(ValueError, match="VectorEnv"):
        PerturbationWorker(replace(made, env=resolve(vector)), noise=TABLE.values)


def test_the_users_exception_comes_through():
    made = worker(RaisingEnv, env_config={"step": 20, "vector_index": 1})
    with pytest.raises(ProbeFailure):
        made.play(trials(6), snapshots(weights_of(made)))
