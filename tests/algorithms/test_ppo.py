"""PPO as a user meets it: reproducible, restorable, and clear about mistakes."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import DQN, Algorithm, DefaultCallbacks, PPOConfig
from rllib import sample_batch as sb
from rllib.algorithms.ppo import PPO
from rllib.errors import CheckpointError, LearnerError
from rllib.losses.returns import standardized
from tests.algorithms.algorithm_support import learner_stats
from tests.envs import CountingEnv, HundredReward, ProbeFailure, RaisingEnv, SimpleCorridor, SleepEnv

SMALL = {"train_batch_size": 128, "sgd_minibatch_size": 64, "num_sgd_iter": 2, "model": {"fcnet_hiddens": [16]}}


def config(env="CartPole-v1", num_workers=0, num_envs=4, seed=0, env_config=None, **training) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=num_envs)
        .training(**{**SMALL, "lr": 1e-3, **training})
        .debugging(seed=seed)
    )


def weights_after(iterations: int, config: PPOConfig) -> np.ndarray:
    with config.build() as algo:
        for _ in range(iterations):
            algo.train()
        return algo.policy.weights.copy()


def test_equal_seeds_give_equal_bits_and_others_do_not():
    first, again, other = (weights_after(5, config(seed=seed)) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_target_kl_ends_the_epochs_on_a_batch():
    steps = {}
    for target_kl in (None, 0.005):
        with config(lr=0.01, num_sgd_iter=20, target_kl=target_kl).build() as algo:
            algo.train()
            steps[target_kl] = algo.metrics.counters["num_grad_updates"]
            assert algo.num_updates == 1
    assert steps[0.005] < steps[None] / 2


def test_coefficients_follow_their_schedules():
    halved = {"type": "exponential", "initial": 0.8, "decay_rate": 0.5, "timesteps": 128}
    schedules = {"vf_loss_coeff": halved, "vf_clip_param": [[0, 5.0], [1000, 1.0]], "entropy_coeff": halved}
    with config(lr=lambda timestep: 1e-3 / (1 + timestep), kl_coeff=halved, **schedules).build() as algo:
        found = [learner_stats(algo.train()) for _ in range(3)]
        assert algo.trainee.scheduled("vf_clip_param", "vf_loss_coeff")["vf_loss_coeff"] == pytest.approx(0.1)
    # They are read before a batch is sampled.
    assert [stats["cur_lr"] for stats in found] == pytest.approx([1e-3, 1e-3 / 129, 1e-3 / 257])
    assert [stats["cur_kl_coeff"] for stats in found] == pytest.approx([0.8, 0.4, 0.2])
    assert [stats["entropy_coeff"] for stats in found] == pytest.approx([0.8, 0.4, 0.2])


def test_result_counts_what_happened():
    with config().build() as algo:
        for _ in range(4):
            result = algo.train()
    assert result["timesteps_total"] == result["num_env_steps_trained"] == 4 * 128
    assert result["training_iteration"] == 4
    assert result["num_healthy_workers"] == 0
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert {
        "cur_kl_coeff",
        "cur_lr",
        "total_loss",
        "policy_loss",
        "vf_loss",
        "vf_explained_var",
        "kl",
        "entropy",
    } <= set(stats)
    assert result["config"]["lr"] == 1e-3
    assert 0 < result["timers"]["sample_time_ms"] < result["timers"]["training_iteration_time_ms"]


def test_the_minima_of_reporting_make_an_iteration_longer():
    with config().reporting(min_sample_timesteps_per_iteration=1000).build() as algo:
        assert algo.train()["timesteps_this_iter"] == 8 * 128


def test_first_minibatch_has_ratio_one():
    with config().build() as algo:
        algo.train()
        batch = algo.sample(128)
        dist_inputs, _ = algo.policy.network.forward(algo.policy.encode(batch[sb.OBS]))
        ratio = np.exp(algo.policy.log_prob(dist_inputs, batch[sb.ACTIONS]) - batch[sb.ACTION_LOGP])
        np.testing.assert_allclose(ratio, 1.0, atol=1e-5)


def test_a_batch_of_other_weights_is_refused():
    with config().build() as algo:
        batch = algo.sample(128)
        algo.policy.weights[:] += np.random.default_rng(0).normal(0, 0.1, algo.policy.weights.shape)
        with pytest.raises(LearnerError, match="weights"):
            algo.learn_on_batch(batch, lr=1e-3, clip_param=0.2, kl_coeff=0.0, vf_loss_coeff=1.0, entropy_coeff=0.0)


@pytest.mark.parametrize("batch", [{}, None, {"obs": np.zeros((4, 4), np.float32)}])
def test_what_is_no_batch_is_refused(batch):
    with config().build() as algo, pytest.raises(TypeError, match="learn_on_batch needs a SampleBatch, but got"):
        algo.learn_on_batch(batch, lr=1e-3)


def test_a_batch_of_a_policy_that_does_not_learn_is_refused():
    with config().build() as algo, pytest.raises(KeyError, match="'p1' learns here; those that do: default_policy"):
        algo.learn_on_batch(algo.sample(128), "p1", lr=1e-3)


def test_training_goes_on_exactly_where_a_checkpoint_left_it(tmp_path):
    """Episodes and fragments end together here, so that the state of the environments is no part of it."""
    with _aligned() as whole:
        for _ in range(6):
            whole.train()
        expected = whole.policy.weights.copy()
    with _aligned() as first:
        for _ in range(3):
            first.train()
        path = first.save(tmp_path / "checkpoint")
    with _aligned() as second:
        second.restore(path)
        for _ in range(3):
            result = second.train()
        np.testing.assert_array_equal(second.policy.weights, expected)
        assert result["training_iteration"] == 6
        assert result["iterations_since_restore"] == 3
        assert result["timesteps_total"] == 6 * 128


def _aligned() -> PPO:
    return config(CountingEnv, env_config={"lengths": [32]}, seed=3).build()


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path):
    with config().build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match=r"is of PPO, not of DQN. Use PPO.from_checkpoint\(path\), or"):
        DQN.from_checkpoint(path)
    PPO.from_checkpoint(path).stop()


def test_from_checkpoint_needs_nothing_but_the_directory(tmp_path):
    with config().build() as algo:
        algo.train()
        path = algo.save(tmp_path / "checkpoint")
        observation = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
        action = algo.compute_single_action(observation, explore=False)
        before = algo.evaluate(num_episodes=5)
    restored = Algorithm.from_checkpoint(path)
    try:
        assert isinstance(restored, PPO)
        assert restored.config.train_batch_size == 128
        assert restored.compute_single_action(observation, explore=False) == action
        np.testing.assert_array_equal(restored.policy.weights, algo.policy.weights)
        assert restored.evaluate(num_episodes=5)["hist_stats"] == before["hist_stats"]
        restored.train()
    finally:
        restored.stop()


def test_a_cut_off_checkpoint_is_refused(tmp_path):
    with config().build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    weights = next(path.rglob("weights.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"weights\.safetensors"):
        Algorithm.from_checkpoint(path)


def test_a_filter_stays_with_the_policy(tmp_path):
    with config().rollouts(observation_filter="MeanStdFilter").build() as algo:
        for _ in range(3):
            algo.train()
        path = algo.save(tmp_path / "checkpoint")
        statistics = algo.policy.filter.get_state()
        assert algo.policy.filter.count == 3 * 128 + 4, "every observation seen once: T * N, and the first of each"
        before = algo.evaluate(num_episodes=10)["episode_reward_mean"]
    restored = Algorithm.from_checkpoint(path)
    for name, array in restored.policy.filter.get_state().items():
        np.testing.assert_array_equal(array, statistics[name])
    assert restored.evaluate(num_episodes=10)["episode_reward_mean"] == before
    restored.stop()


def test_corridor_of_the_old_api_is_solved():
    with config(SimpleCorridor, env_config={"corridor_length": 5}, lr=5e-3, num_sgd_iter=8).build() as algo:
        for _ in range(30):
            result = algo.train()
        assert result["episode_len_mean"] < 6
        assert result["episode_reward_mean"] == 1.0


def test_reported_returns_are_of_raw_rewards():
    with config(HundredReward).environment(clip_rewards=True).build() as algo:
        assert algo.train()["episode_reward_mean"] == 1000.0


def test_large_rewards_do_not_stop_learning():
    """The value loss is clipped in units of value: rewards times 1000 with the default vf_clip_param still learn."""

    class Thousandfold(SimpleCorridor):
        def step(self, action):
            observation, reward, done, info = super().step(action)
            return observation, 1000 * reward, done, info

    with config(Thousandfold, env_config={"corridor_length": 5}, lr=5e-3, num_sgd_iter=8).build() as algo:
        for _ in range(30):
            result = algo.train()
        assert result["episode_len_mean"] < 6


def test_evaluation_every_few_iterations():
    with config().evaluation(evaluation_interval=2, evaluation_duration=3).build() as algo:
        assert "evaluation" not in algo.train()
        evaluation = algo.train()["evaluation"]
        assert evaluation["episodes_this_iter"] == 3
        assert evaluation["env_runners/episode_return_mean"] == evaluation["episode_reward_mean"]


def test_the_users_exception_comes_through_with_its_place():
    algo = config(RaisingEnv, env_config={"step": 20, "vector_index": 2}).build()
    with algo, pytest.raises(ProbeFailure, match="asked to fail in step 20") as caught:
        algo.train()
    assert any("environment 2 of rollout worker 0" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("where", ["init", "reset"])
def test_an_environment_that_cannot_start_fails_in_build(where):
    with pytest.raises(ProbeFailure):
        config(RaisingEnv, env_config={where: 1}).build()


def test_unknown_environment_names_the_nearest():
    with pytest.raises(ValueError, match="CartPole-v1"):
        config("CartPol-v1").build()


def test_every_mistake_is_reported_at_once():
    broken = config(sgd_minibatch_size=500, gamma=2.0, model={"fcnet_hidden": [3]}).framework("tf")
    with pytest.raises(ValueError) as caught:
        broken.build()
    for name in ("sgd_minibatch_size=500", "gamma=2.0", "tf", "fcnet_hiddens"):
        assert name in str(caught.value)


def test_algorithm_takes_a_plain_dict():
    with PPO(config={"env": "CartPole-v1", "num_workers": 0, "lambda": 0.9, **SMALL}) as algo:
        assert algo.config.lambda_ == 0.9
        json.dumps(algo.train()["info"])


def test_a_stopped_algorithm_says_so():
    algo = config().build()
    algo.stop()
    algo.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        algo.train()
    assert algo.compute_single_action(np.zeros(4, np.float32)) in (0, 1)


def test_standardised_advantages():
    values = standardized(np.array([1.0, 2.0, 3.0], np.float32))
    np.testing.assert_allclose([values.mean(), values.std()], [0.0, 1.0], atol=1e-6)
    np.testing.assert_array_equal(standardized(np.full(4, 3.0, np.float32)), np.zeros(4))


def test_restored_runs_play_new_episodes(tmp_path):
    with config(CountingEnv, env_config={"offset": 0.5}).build() as algo:
        first = algo.sample(128)[sb.OBS][:4, 0]
        path = algo.save(tmp_path / "checkpoint")
    with Algorithm.from_checkpoint(path) as restored:
        again = restored.sample(128)[sb.OBS][:4, 0]
        twice = restored.save(tmp_path / "again")
    with Algorithm.from_checkpoint(twice) as restored:
        third = restored.sample(128)[sb.OBS][:4, 0]
    assert len({*first.tolist(), *again.tolist(), *third.tolist()}) == 12


def test_another_number_of_environments_can_be_restored(tmp_path):
    with config().build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    with Algorithm.from_checkpoint(path, {"num_envs_per_worker": 2}) as restored:
        assert restored.train()["timesteps_this_iter"] == 128


def test_another_network_is_not_restored(tmp_path):
    with config().build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    relu = config(model={"fcnet_hiddens": [16], "fcnet_activation": "relu"})
    with relu.build() as other, pytest.raises(ValueError, match="differs from this one in activation"):
        other.restore(path)
    # Who has called from_checkpoint is not told to.
    with pytest.raises(
        ValueError, match=r"own network.*leave out the settings that change them \(env, model"
    ) as raised:
        Algorithm.from_checkpoint(path, {"model": {"fcnet_hiddens": [8]}})
    assert "from_checkpoint" not in str(raised.value)


def test_a_stopped_algorithm_can_still_be_saved_and_evaluated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with config().evaluation(evaluation_num_workers=1).build() as algo:
        algo.train()
    path = algo.save()
    assert path.name == "checkpoint_000001"
    assert algo.evaluate(2)["episodes_this_iter"] == 2
    with Algorithm.from_checkpoint(path) as restored:
        np.testing.assert_array_equal(restored.policy.weights, algo.policy.weights)


def test_rows_that_are_no_transitions_bring_no_second_round():
    def make(context):
        return gymnasium.vector.SyncVectorEnv([lambda: CountingEnv({"lengths": [10]})] * 4)

    with config(make, num_envs=4).build() as algo:
        assert 110 <= algo.train()["timesteps_this_iter"] < 128
        assert algo.evaluate(6)["episodes_this_iter"] == 6


def test_the_init_hook_may_restore_and_train(tmp_path):
    with config().build() as algo:
        algo.train()
        path = algo.save(tmp_path / "checkpoint")
        algo.train()
        expected = algo.numbers()["kl_coeff"]

    class Resume(DefaultCallbacks):
        def on_algorithm_init(self, *, algorithm, **kwargs):
            algorithm.restore(path)
            algorithm.train()

    with config().callbacks(Resume).build() as resumed:
        assert resumed.metrics.iteration == 2
        assert resumed.numbers()["kl_coeff"] == expected != {"default_policy": 0.2}


def test_habits_of_other_libraries_are_told_the_way():
    with pytest.raises(ValueError, match=r"PPO\(env='CartPole-v1'\)"):
        PPO("CartPole-v1")
    with config().build() as algo:
        with pytest.raises(ValueError, match="give its first part alone"):
            algo.compute_single_action((np.zeros(4, np.float32), {}))
        with pytest.raises(ValueError, match=r"has shape \(3,\)"):
            algo.compute_single_action(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"observation_space=.* is not that of the environment"):
        config().environment(observation_space=Box(-1, 1, (2,))).build()
    config().environment(action_space=Discrete(2)).build().stop()


def test_time_counts_evaluation():
    with (
        config(SleepEnv, env_config={"seconds": 0.001, "length": 20})
        .evaluation(evaluation_interval=1, evaluation_duration=8)
        .build() as algo
    ):
        result = algo.train()
    assert (
        result["time_this_iter_s"] * 1e3 >= result["timers"]["evaluation_time_ms"] + result["timers"]["learn_time_ms"]
    )


def test_fragments_of_auto_make_the_train_batch_in_one_round():
    """13 / (1 worker x 3 environments) is 4 steps each, one short of 13; a second round would double the batch."""
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0, num_envs_per_worker=3)
    config.training(train_batch_size=13, sgd_minibatch_size=13, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    with config.build() as algo:
        result = algo.train()
    assert result["num_env_steps_sampled"] == result["num_env_steps_trained"] == 12
