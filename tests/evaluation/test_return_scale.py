"""Rewards scaled by the spread of the discounted returns: what is counted, what is scaled, what is reported."""

import functools

import numpy as np
import pytest

from rllib import PPOConfig, SACConfig
from rllib import sample_batch as sb
from rllib.env.factories.registry import resolve
from rllib.evaluation.postprocess.advantages import AdvantageEstimator
from rllib.evaluation.postprocess.return_scale import ReturnRange, ReturnScale
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.models.catalog.catalog import policy_spec
from rllib.policy import Snapshot
from rllib.sample_batch import DEFAULT_POLICY
from tests.envs import CountingEnv, HundredReward, InfiniteHorizon, ProbeFailure, RaisingEnv
from tests.rollouts import rollout_settings

NO_END = np.zeros((4, 1), bool)


def returns_of(rewards, ended, valid, gamma):
    """The discounted returns of the transitions, environment by environment, as the formula says."""
    found = []
    for i in range(rewards.shape[1]):
        running = 0.0
        for t in range(len(rewards)):
            if not valid[t, i]:
                running = 0.0
                continue
            running = gamma * running + float(rewards[t, i])
            found.append(running)
            if ended[t, i]:
                running = 0.0
    return np.array(found)


def test_no_rewards_so_far_give_no_scale():
    """Rows of a replay may be of another run, which had some."""
    scale, worker = ReturnRange(0.9), ReturnRange(0.9, num_envs=1)
    assert scale.divisor(5.0) == 1
    for rewards, divisor in ((0.0, 1.0), (2.0, max(np.var([0, 0, 0, 0, 2, 3.8, 5.42, 6.878]) ** 0.5, 6.878 / 5))):
        worker.apply(np.full((4, 1), rewards, np.float32), NO_END)
        scale.merge(worker.pop_delta())
        np.testing.assert_allclose(scale.divisor(5.0), divisor, rtol=1e-6)


def test_returns_begin_anew_where_an_episode_was_cut_and_go_on_in_other_slots():
    """Closed form: rewards of 1 with gamma 0.5 in two steps, then in another one after a cut of the first slot."""
    before, worker = ReturnScale(0.5, num_envs=2), ReturnScale(0.5, num_envs=4)
    ones = np.ones((2, 2), np.float32)
    before.apply(ones.copy(), np.zeros((2, 2), bool))
    before.pop_delta()
    before.cut([0])
    worker.take_over(before, np.array([0, 2]))
    worker.apply(np.ones((1, 4), np.float32), np.zeros((1, 4), bool))
    assert worker.pop_delta()["mean"].ravel().tolist() == [1, 1, 1.75, 1]


def test_the_variance_is_that_of_the_discounted_returns():
    rng = np.random.default_rng(0)
    rewards = rng.normal(2, 3, (60, 3)).astype(np.float32)
    ended = rng.random((60, 3)) < 0.1
    valid = ~(np.roll(ended, 1, 0) & (rng.random((60, 3)) < 0.5))
    expected = returns_of(rewards, ended, valid, 0.9)
    driver, worker = ReturnScale(0.9), ReturnScale(0.9, num_envs=3)
    # Returns go on over the borders of fragments.
    for part in (slice(0, 7), slice(7, 8), slice(8, 60)):
        worker.apply(rewards[part].copy(), ended[part], valid[part])
        driver.merge(worker.pop_delta())
    assert driver.get_state()["count"] == len(expected)
    assert driver.variance == pytest.approx(expected.var(), rel=1e-6)


def test_rewards_are_divided_by_the_merged_deviation_and_clipped():
    scale = ReturnScale(0.5, clip=1.5, num_envs=1)
    scale.set_state({"count": np.array(10.0), "mean": np.array([7.0]), "m2": np.array([40.0])})
    rewards = np.array([[1.0], [-2.0], [30.0], [-30.0]], np.float32)
    scale.apply(rewards, NO_END)
    np.testing.assert_allclose(rewards[:, 0], [0.5, -1.0, 1.5, -1.5], rtol=1e-6)
    unclipped = np.array([[30.0]], np.float32)
    ReturnScale(0.5, None, 1).apply(unclipped, NO_END[:1])
    assert unclipped[0, 0] > 1000, "one return has no spread"


def test_what_invalid_rows_hold_does_not_matter():
    rewards = np.array([[1.0], [np.nan], [1.0], [2.0]], np.float32)
    valid = np.array([[True], [False], [True], [True]])
    scale = ReturnScale(0.5, num_envs=1)
    scale.apply(rewards, NO_END, valid)
    delta = scale.pop_delta()
    assert delta["count"].tolist() == [3.0]
    assert delta["mean"][0, 0] == pytest.approx((1 + 1 + 2.5) / 3)


def worker(env, *, env_config=None, num_envs=2, fragment_length=30, **more) -> RolloutWorker:
    made = env(env_config or {})
    settings = rollout_settings(
        env=resolve(env),
        env_config=env_config or {},
        policy=policy_spec(made.observation_space, made.action_space, {"fcnet_hiddens": [8]}),
        postprocess=AdvantageEstimator(gamma=0.9, lambda_=0.8),
        num_envs=num_envs,
        fragment_length=fragment_length,
        seed=3,
        make_return_scale=functools.partial(ReturnScale, 0.9),
        **more,
    )
    return RolloutWorker(settings)


def test_reported_returns_stay_raw_and_each_return_is_counted_once():
    sampler = worker(HundredReward)
    batch, report = sampler.sample()
    assert {episode.episode_return for episode in report.episodes} == {1000.0}
    assert 0 < batch[sb.REWARDS].max() <= 10
    assert report.return_deltas[DEFAULT_POLICY]["count"].sum() == report.env_steps
    _, again = sampler.sample()
    assert again.return_deltas[DEFAULT_POLICY]["count"].sum() == again.env_steps


def test_complete_episodes_count_their_own_steps_alone():
    sampler = worker(CountingEnv, env_config={"lengths": [2, 50, 7]}, num_envs=4, fragment_length=3)
    whole = worker(
        CountingEnv, env_config={"lengths": [2, 50, 7]}, num_envs=4, fragment_length=3, complete_episodes=True
    )
    for each in (sampler, whole):
        batch, report = each.sample()
        assert report.return_deltas[DEFAULT_POLICY]["count"].sum() == batch.count


def test_a_return_begins_anew_after_an_exception():
    sampler = worker(RaisingEnv, env_config={"step": 40}, num_envs=1)
    sampler.sample()
    with pytest.raises(ProbeFailure):
        sampler.sample()
    _, report = sampler.sample()
    fresh = worker(InfiniteHorizon, num_envs=1)
    assert report.return_deltas[DEFAULT_POLICY]["count"].sum() == 30
    expected = fresh.sample()[1].return_deltas[DEFAULT_POLICY]["mean"][0, 0]
    assert report.return_deltas[DEFAULT_POLICY]["mean"][0, 0] == pytest.approx(expected)


def test_the_scale_stands_still_until_a_snapshot_brings_another():
    sampler = worker(InfiniteHorizon, num_envs=1)
    weights = sampler.policy.weights.copy()
    state = {"count": np.array(4.0), "mean": np.array([0.0]), "m2": np.array([400.0])}
    sampler.load_snapshot(Snapshot(weights, return_state=state))
    for _ in range(2):
        np.testing.assert_allclose(sampler.sample()[0][sb.REWARDS], 0.1, rtol=1e-5)


# ---------------------------------------------------------------------- in a run


def config(num_workers: int = 0, num_envs: int = 4, factor: float = 1.0) -> PPOConfig:
    return (
        PPOConfig()
        .environment(ScaledReward, env_config={"factor": factor}, normalize_returns=True)
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=num_envs)
        .training(train_batch_size=128, sgd_minibatch_size=64, num_sgd_iter=2, lr=1e-3, model={"fcnet_hiddens": [16]})
        .debugging(seed=3)
    )


class ScaledReward(CountingEnv):
    """CountingEnv, whose rewards are multiplied by `factor`."""

    def __init__(self, config: dict | None = None):
        super().__init__(config)
        self.factor = (config or {}).get("factor", 1.0)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward * self.factor, *rest


def weights_after(made: PPOConfig, iterations: int = 3):
    with made.build() as algo:
        for _ in range(iterations):
            result = algo.train()
        return algo.policy.weights.copy(), result["episode_reward_mean"], algo.get_state()


def test_a_run_does_not_depend_on_the_scale_of_the_rewards():
    weights, reward, _ = weights_after(config())
    scaled_weights, scaled_reward, _ = weights_after(config(factor=1024.0))
    np.testing.assert_allclose(scaled_weights, weights, atol=1e-5)
    assert scaled_reward == pytest.approx(1024 * reward)


class ClippedReward(ScaledReward):
    """ScaledReward, whose rewards are clipped to +-1."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, float(np.clip(reward, -1, 1)), *rest


@pytest.mark.parametrize("clip", [True, 1.0])
@pytest.mark.parametrize("scaled_by", ["normalize_returns", "scale_rewards"])
def test_clipped_rewards_are_scaled_as_those_of_an_environment_that_clips(scaled_by, clip):
    """Of rewards of 100 and more, signs and bounds of 1 are the same."""
    weights = []
    for env, clips in ((ClippedReward, {}), (ScaledReward, {"clip_rewards": clip})):
        made = config(factor=100.0)
        if scaled_by == "scale_rewards":
            made = SACConfig().training(
                num_steps_sampled_before_learning_starts=10, scale_rewards=True, model={"fcnet_hiddens": [16]}
            )
            made.debugging(seed=3).reporting(min_time_s_per_iteration=0)
        weights.append(weights_after(made.environment(env, env_config={"factor": 100.0}, **clips), 2)[0])
    np.testing.assert_array_equal(*weights)


def test_bits_do_not_depend_on_the_split_of_environments():
    expected, _, state = weights_after(config())
    weights, _, split_state = weights_after(config(2, 2))
    np.testing.assert_array_equal(weights, expected)
    name = "policies/default_policy/returns.safetensors"
    assert state[name]["count"] == 3 * 128
    np.testing.assert_array_equal(split_state[name]["m2"], state[name]["m2"])


def test_checkpoints_have_the_statistics_and_old_ones_need_none(tmp_path):
    with config().build() as algo:
        algo.train()
        path, variance = algo.save(tmp_path / "with"), algo.snapshot().return_state
    with PPOConfig.from_dict({}).algo_class.from_checkpoint(path) as restored:
        assert restored.snapshot().return_state == variance
        assert restored.compute_single_action(np.zeros(1, np.float32)) in (0, 1)
    plain = config().environment(normalize_returns=False)
    with plain.build() as algo:
        path = algo.save(tmp_path / "without")
    with config().build() as algo:
        algo.restore(path)
        assert algo.snapshot().return_state["count"] == 0
