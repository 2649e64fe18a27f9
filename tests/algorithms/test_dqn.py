"""DQN: what its settings do, what they refuse, that runs repeat and go on, and probe environments."""

import os
import signal

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rllib.algorithms.base.from_checkpoint import LEARNER_FILE
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.algorithms.dqn import DQN, DQNConfig, RainbowConfig, SimpleQConfig
from rllib.storage.checkpoint import write_checkpoint
from tests.algorithms.algorithm_support import q_values, train
from tests.envs import (
    ActionReward,
    BoundedAction,
    ConstantReward,
    CountingEnv,
    DelayedReward,
    InfiniteHorizon,
    MatchObservation,
    ObservedReward,
    StackedCounting,
)

C51 = {"num_atoms": 21, "v_min": -2.0, "v_max": 2.0}
QUANTILES = {"num_quantiles": 21}
UNIFORM = {"replay_buffer_config": {"type": "ReplayBuffer"}}


def make_config(env="CartPole-v1", envs=1, workers=0, epsilon=None, env_config=None, cls=DQNConfig, **training):
    settings = {
        "num_steps_sampled_before_learning_starts": 100,
        "target_network_update_freq": 50,
        "lr": 3e-3,
        "gamma": 0.9,
        "hiddens": [],
        "model": {"fcnet_hiddens": [32]},
        **training,
    }
    if epsilon is None:
        noisy = training.get("noisy", cls().noisy)
        epsilon = {} if noisy else {"final_epsilon": 0.1, "epsilon_timesteps": 500}
    return (
        cls()
        .environment(env, env_config=env_config or {})
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=4)
        .training(**settings)
        .exploration(exploration_config=epsilon)
        .reporting(min_sample_timesteps_per_iteration=200)
        .debugging(seed=5)
    )


# ------------------------------------------------------------------ probes

EACH = pytest.mark.parametrize(
    "parts",
    [{}, C51, QUANTILES, {"n_step": 3}, {"double_q": False, "dueling": False, **UNIFORM}, {"noisy": True}],
    ids=str,
)


@EACH
def test_p1_value_of_a_constant(parts):
    noisy = parts.get("noisy")
    with make_config(ConstantReward, **parts).build() as algo:
        # What is learned is the values' mean over the noise; without it they are near that. After 7 iterations 4 of 12
        # seeds are off by more than 0.06, by up to 0.43; after 15 the largest of 12 is 0.03.
        train(algo, 15 if noisy else 7)
        np.testing.assert_allclose(q_values(algo, 0.0), 1.0, atol=0.06 if noisy else 0.02)


@EACH
def test_p2_value_depends_on_the_observation(parts):
    with make_config(ObservedReward, **parts).build() as algo:
        train(algo, 8)
        np.testing.assert_allclose(q_values(algo, -1.0, 1.0).mean(1), [-1.0, 1.0], atol=0.05)


@EACH
def test_p3_discounting(parts):
    with make_config(DelayedReward, **parts).build() as algo:
        train(algo, 10)
        np.testing.assert_allclose(q_values(algo, 0.0, 1.0).max(1), [0.9, 1.0], atol=0.05)


def test_p4_values_of_the_actions():
    with make_config(ActionReward).build() as algo:
        train(algo, 5)
        np.testing.assert_allclose(q_values(algo, 0.0), [[-1.0, 1.0]], atol=0.05)


def test_p5_actions_belong_to_their_observations():
    with make_config(MatchObservation, envs=4).build() as algo:
        train(algo, 8)
        assert algo.evaluate(50)["episode_reward_mean"] == 1.0


def test_p6_truncation_is_no_end():
    with make_config(InfiniteHorizon, env_config={"length": 10}, gamma=0.8, n_step=3, lr=0.01).build() as algo:
        train(algo, 20)
        np.testing.assert_allclose(q_values(algo, 0.0).max(), 5.0, rtol=0.05)


@pytest.mark.parametrize("workers", [0, 2])
def test_p7_every_stored_transition_counts_up(workers):
    training = {"num_steps_sampled_before_learning_starts": 10_000, "n_step": 1}
    with make_config(CountingEnv, envs=3, workers=workers, **training).build() as algo:
        train(algo, 2)
        batch = algo.replay.sample(1000, np.random.default_rng(0))
        np.testing.assert_array_equal(batch["new_obs"], batch["obs"] + 1)
        np.testing.assert_array_equal(batch["rewards"], batch["new_obs"][:, 0])


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("parts", [{}, UNIFORM, {"n_step": 3}], ids=str)
def test_p7_vector_environments_of_every_autoreset_mode(mode, parts):
    def make(config):
        return SyncVectorEnv([CountingEnv for _ in range(3)], autoreset_mode=mode)

    with make_config(make, envs=3, **{"lr": 1e-3, **parts}).build() as algo:
        train(algo, 2)
        batch = algo.replay.sample(1000, np.random.default_rng(0))
        moved = batch["new_obs"] - batch["obs"]
        assert moved.min() == 1 and moved.max() == algo.config.n_step
        assert batch["obs"].min() == 0
        assert algo.timesteps == algo.metrics.counters["num_env_steps_sampled"] >= 400


# ------------------------------------------------------------------ exactness


def run(config, iterations=3):
    with config.build() as algo:
        train(algo, iterations)
        return algo.policy.weights.copy()


@pytest.mark.parametrize("parts", [{}, {**C51, "n_step": 3, "noisy": True}], ids=str)
def test_equal_seeds_give_equal_bits(parts):
    assert np.array_equal(run(make_config(**parts)), run(make_config(**parts)))


def test_workers_sample_what_one_process_samples():
    assert np.array_equal(run(make_config(envs=2)), run(make_config(envs=1, workers=2)))


def test_priorities_with_exponent_zero_are_the_uniform_run():
    flat = {"replay_buffer_config": {"prioritized_replay_alpha": 0.0}}
    assert np.array_equal(run(make_config(**flat)), run(make_config(**UNIFORM)))


@pytest.mark.parametrize("parts", [{}, C51, {"noisy": True}], ids=str)
def test_the_torch_learner_learns_the_same(parts):
    numpy_run = run(make_config(learner="numpy", **parts), 1)
    np.testing.assert_allclose(run(make_config(learner="torch", **parts), 1), numpy_run, atol=2e-3)


def test_epsilon_follows_the_steps_whatever_the_number_of_environments():
    seen = []
    for envs in (1, 8):
        with make_config(envs=envs, epsilon={"final_epsilon": 0.0, "epsilon_timesteps": 800}).build() as algo:
            while algo.timesteps < 640:
                algo.training_step()
            seen.append((algo.timesteps, algo._explored_by()))
    assert seen == [(640, {"epsilon": pytest.approx(0.2)})] * 2


def test_updates_per_step():
    """32 rows for each round of 4 steps; with an intensity, that many rows a step, whatever the fragments."""
    for intensity, updates in ((None, 25), (16, 50), (2, 6)):
        with make_config(training_intensity=intensity).build() as algo:
            algo.train()
            assert algo.num_updates == pytest.approx(updates, abs=1 + 32 // 16)


def test_statistics_of_the_iteration_stand_with_those_of_each_policy():
    class ByPolicy(DQN):
        def training_step(self):
            stats = super().training_step()["default_policy"]
            return {"default_policy": {**stats, "of_the_step": 1.0}}

    with ByPolicy(make_config()) as algo:
        algo.train()
        stats = algo.train()["info"]["learner"]["default_policy"]["learner_stats"]
        assert stats["of_the_step"] == 1.0
        assert stats["updates_per_step_sampled"] == pytest.approx(0.25, abs=0.01)
        assert "cur_epsilon" in stats and "of_the_step" not in algo.trainee.stats


def test_a_learning_rate_may_have_its_objectives_name():
    with make_config().build() as algo:
        algo.train()
        batch = algo.replay.sample(32, np.random.default_rng(0), 0.0)
        algo.trainee.add_targets(batch)
        stats = algo.learn_on_batch(batch, lr={"policy": 0.0}, shuffle=False)
        assert "cur_lr" not in stats and np.isfinite(stats["total_loss"])


def test_the_target_network_follows_at_its_own_pace():
    with make_config(target_network_update_freq=300).build() as algo:
        algo.train()
        assert not np.array_equal(algo.trainee.target.weights, algo.policy.weights)
        assert algo.metrics.counters["num_target_updates"] == 0
        algo.train()
        assert algo.metrics.counters["num_target_updates"] == 1


@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_the_target_network_goes_part_of_the_way(tau):
    with make_config(target_network_update_freq=200, tau=tau).build() as algo:
        begin = algo.trainee.target.weights.copy()
        algo.train()
        assert algo.metrics.counters["num_target_updates"] == 1
        np.testing.assert_allclose(algo.trainee.target.weights - begin, tau * (algo.policy.weights - begin), atol=1e-6)


@pytest.mark.parametrize("parts", [{}, {**C51, "n_step": 3, "noisy": True}], ids=str)
def test_a_checkpoint_goes_on_as_if_nothing_had_been(parts, tmp_path):
    config = make_config(ConstantReward, store_buffer_in_checkpoints=True, training_intensity=5, **parts)
    with config.build() as algo, config.build() as other:
        train(algo, 2)
        other.restore(algo.save(tmp_path / "checkpoint"))
        assert other._explored_by() == algo._explored_by() and len(other.replay) == len(algo.replay)
        for each in (algo, other):
            train(each, 1)
        assert np.array_equal(algo.policy.weights, other.policy.weights)
        assert np.array_equal(algo.trainee.target.weights, other.trainee.target.weights)


STACKS = {"frame_stack_axis": -1, "capacity": 3000}


@pytest.mark.parametrize(
    ("env", "replay"),
    [(ConstantReward, {}), (StackedCounting, STACKS), (ConstantReward, UNIFORM["replay_buffer_config"])],
)
def test_a_run_that_has_gone_on_is_restored_in_place(env, replay, tmp_path):
    """Rows that came after the checkpoint are gone, with their priorities."""
    of_env = {"axis": -1} if env is StackedCounting else {}
    config = make_config(env, env_config=of_env, store_buffer_in_checkpoints=True, replay_buffer_config=replay)
    with config.build() as algo, config.build() as other:
        algo.train()
        path = algo.save(tmp_path / "checkpoint")
        train(algo, 2)
        for each in (algo, other):
            each.restore(path)
            train(each, 1)
        assert len(algo.replay) == len(other.replay) < 500
        assert np.array_equal(algo.policy.weights, other.policy.weights)


def test_rows_that_are_loaded_replace_those_that_are_there(tmp_path):
    with make_config(ConstantReward).build() as algo:
        algo.train()
        rows, path = len(algo.replay), algo.save_replay_buffer(tmp_path / "rows")
        train(algo, 2)
        algo.load_replay_buffer(path)
        assert len(algo.replay) == rows
        algo.train()  # the rows of before are not drawn: there are none of their numbers


def test_a_run_that_is_restored_without_its_replay_fills_it_before_it_learns(tmp_path):
    config = make_config(num_steps_sampled_before_learning_starts=60)
    with config.build() as algo, config.build() as other:
        train(algo, 1)
        other.restore(algo.save(tmp_path / "checkpoint"))
        first, updates = other.timesteps, other.num_updates
        while other.num_updates == updates:
            other.training_step()
        assert other.timesteps - first == 60 and len(other.replay) >= 56  # rows of steps that have ended
        again, rows = config.build(), len(algo.replay)
        with again:
            again.restore(other.save(tmp_path / "second"))
            assert not again.trainee.learning_has_started
        algo.restore(tmp_path / "checkpoint")
        assert algo.trainee.learning_has_started and len(algo.replay) == rows, "this one has its rows"


def test_a_replay_on_the_disk_changes_no_bit_and_is_saved_and_restored(tmp_path):
    config = make_config(store_buffer_in_checkpoints=True, training_intensity=5)
    on_disk = config.copy().training(replay_buffer_config={"storage": str(tmp_path)})
    with config.build() as algo, on_disk.build() as other, on_disk.build() as third:
        for each in (algo, other):
            train(each, 2)
        third.restore(other.save(tmp_path / "checkpoint"))
        algo.restore(algo.save(tmp_path / "checkpoint in memory"))
        assert len(third.replay) == len(algo.replay)
        for each in (algo, third):
            train(each, 1)
        assert np.array_equal(algo.policy.weights, third.policy.weights)


@pytest.mark.parametrize("added", [50, 130])
def test_a_replay_that_was_saved_as_steps_of_environments_becomes_rows(added):
    """Format 1 had a ring of steps [T, E], here of 100 steps of 2 environments; their numbers are the observations."""
    config = make_config(CountingEnv, envs=2, n_step=3, replay_buffer_config={"capacity": 200})
    filled, oldest = min(added, 100), max(added - 100, 0)
    step = np.arange(oldest, added)[np.argsort(np.arange(oldest, added) % 100)]
    numbers = np.repeat(step[:, None], 2, 1).astype(np.float32)
    old = {
        "columns.obs": numbers[..., None],
        "columns.new_obs": numbers[..., None] + 1,
        "columns.actions": np.zeros((filled, 2), np.int64),
        "columns.rewards": np.ones((filled, 2), np.float32),
        "columns.terminateds": np.zeros((filled, 2), bool),
        "columns.truncateds": np.zeros((filled, 2), bool),
        "columns.loss_mask": numbers != 40,
        "steps": np.array([oldest, added]),
        "priorities": numbers.reshape(-1).astype(float),
        "largest": np.array(500.0),
    }
    with config.build() as algo:
        algo.set_state({**algo.get_state(), "policies/default_policy/replay.safetensors": old})
        rows = algo.replay.get_state()
        obs = rows["columns.obs"][:, 0]
        assert sorted(obs.tolist()) == sorted(np.delete(numbers, np.flatnonzero(step == 40), 0).ravel().tolist())
        length = np.select([(obs == 39) | (obs == added - 1), (obs == 38) | (obs == added - 2)], [1, 2], 3)
        np.testing.assert_array_equal(rows["columns.new_obs"][:, 0] - obs, length)
        np.testing.assert_allclose(rows["columns.discounts"], 0.9**length, rtol=1e-6)
        np.testing.assert_allclose(rows["columns.rewards"], (1 - 0.9**length) / 0.1, rtol=1e-6)
        np.testing.assert_array_equal(rows["priorities"], obs)
        names = "obs", "new_obs", "actions", "rewards", "discounts"
        algo.replay.add({name: rows[f"columns.{name}"][:1] for name in names})
        assert algo.replay.get_state()["priorities"].max() == 500
        with pytest.raises(ValueError, match="stacked frames in a format that is no longer read"):
            stacked = {**old, "stacks.frames": np.zeros(3)}
            algo.set_state({**algo.get_state(), "policies/default_policy/replay.safetensors": stacked})


def test_a_checkpoint_that_held_the_target_network_in_a_file_of_its_own(tmp_path):
    """As those of format 1 did, with the step of its last update in the algorithm's state."""
    config = make_config(target_network_update_freq=150)
    with config.build() as algo, config.build() as other:
        train(algo, 2)
        state = algo.get_state()
        learner = state[LEARNER_FILE]
        state["target.safetensors"] = {"weights": learner.pop("target_policy.weights")}
        state["algorithm.json"]["state"]["target_updated_at"] = int(learner.pop("target_policy.moved_at"))
        other.restore(write_checkpoint(tmp_path / "old", state))
        assert np.array_equal(algo.trainee.target.weights, other.trainee.target.weights)
        assert not np.array_equal(other.trainee.target.weights, other.policy.weights)
        assert other.learner.get_state()["target_policy.moved_at"] == algo.learner.get_state()["target_policy.moved_at"]


def test_evaluation_is_greedy_and_results_have_rays_names():
    with make_config(MatchObservation).build() as algo:
        result = train(algo, 3)
        stats = result["info"]["learner"]["default_policy"]["learner_stats"]
        assert {"mean_q", "min_q", "max_q", "mean_td_error", "cur_lr", "grad_gnorm"} <= stats.keys()
        observation = np.zeros(1, np.float32)
        best = int(q_values(algo, 0.0).argmax())
        assert {int(algo.compute_single_action(observation, explore=False)) for _ in range(20)} == {best}


# ------------------------------------------------------------------ presets and mistakes


def test_presets():
    rainbow = RainbowConfig()
    parts = rainbow.double_q, rainbow.dueling, rainbow.n_step, rainbow.num_atoms, rainbow.noisy
    assert parts == (True, True, 3, 51, True)
    assert rainbow.replay_settings().has_priorities
    with make_config(ConstantReward, cls=RainbowConfig, v_min=-2.0, v_max=2.0, num_atoms=21).build() as algo:
        train(algo, 10)
        np.testing.assert_allclose(q_values(algo, 0.0), 1.0, atol=0.06)
        assert algo.policy.is_noisy and "cur_epsilon" not in algo.trainee.stats  # private: before the first result
    with make_config(ConstantReward, cls=SimpleQConfig).build() as algo:
        train(algo, 5)
        np.testing.assert_allclose(q_values(algo, 0.0), 1.0, atol=0.02)


@pytest.mark.parametrize("parts", [{}, {"noisy": True}, {"dueling": False}], ids=str)
def test_hiddens_are_rectified_whatever_activation_the_model_has(parts):
    """With "linear" throughout Q would be affine: doubling the distance from an observation would double the change."""
    with make_config(ConstantReward, model={"fcnet_activation": "linear"}, hiddens=[32], **parts).build() as algo:
        at, near, far = q_values(algo, 0.0, 1.0, 2.0)
        assert abs((far - at) - 2 * (near - at)).max() > 1e-3
    with make_config(ConstantReward, model={"fcnet_activation": "linear"}, hiddens=[], **parts).build() as algo:
        at, near, far = q_values(algo, 0.0, 1.0, 2.0)
        np.testing.assert_allclose(far - at, 2 * (near - at), atol=1e-5)


def test_old_names():
    config = get_algorithm_config("DQN").update_from_dict(
        {"buffer_size": 777, "prioritized_replay": False, "learning_starts": 55}
    )
    assert config.replay_settings()["capacity"] == 777
    assert config.replay_settings().has_priorities is False
    assert config.num_steps_sampled_before_learning_starts == 55


@pytest.mark.parametrize("algorithm", ["DQN", "SimpleQ", "Rainbow"])
def test_rays_default_replay_settings_are_accepted(algorithm):
    config = get_algorithm_config(algorithm).environment("CartPole-v1")
    config.training(replay_buffer_config={"replay_sequence_length": 1, "worker_side_prioritization": False}).validate()


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"num_atoms": 51, "v_min": 1.0, "v_max": 1.0}, "v_min=1.0 must be below v_max=1.0"),
        ({"num_atoms": 51, "num_quantiles": 20}, "two forms of the return's distribution"),
        ({"replay_buffer_config": {"type": "Reservoir"}}, "type='Reservoir' must be"),
        ({"replay_buffer_config": {"size": 5}}, "there is no 'size'"),
        ({"replay_buffer_config": {"prioritized_replay_alpha": -1}}, "must be a number >= 0"),
        ({"replay_buffer_config": {"worker_side_prioritization": True}}, "prioritization=True must be False"),
        ({"n_step": 0}, "n_step=0 must be an integer >= 1"),
        ({"hiddens": [0]}, "must be a list of positive integers"),
        ({"noisy": True, "sigma0": 0}, "sigma0=0.0 must be a number > 0"),
        ({"target_network_update_freq": 0}, "must be an integer >= 1"),
        ({"replay_buffer_config": {"capacity": 10**13}}, "GiB are free"),
        ({"replay_buffer_config": {"capacity": 10**12, "storage": "disk"}}, "GiB free. Use"),
        ({"replay_buffer_config": {"storage": "/none/such"}}, "storage='/none/such' must be 'memory', 'gpu', 'disk'"),
        ({"num_atoms": 5, "v_min": float("-inf")}, "v_min=-inf must be below v_max=10.0, and both be finite"),
        ({"noisy": True, "sigma0": float("inf")}, "sigma0=inf must be a number > 0 and finite"),
        ({"training_intensity": float("inf")}, "training_intensity=inf must be a number > 0 and finite"),
        ({"hiddens": 256}, "hiddens=256 must be a list of integers"),
        ({"replay_buffer_config": {"prioritized_replay_beta": 2.0}}, "must be a number >= 0 and <= 1"),
        ({"replay_buffer_config": {"prioritized_replay_beta": ((0, 0.4), (9, -1))}}, "must be a number >= 0 and <= 1"),
    ],
    ids=str,
)
def test_mistakes_in_training(training, message):
    with pytest.raises(ValueError) as raised:
        make_config(**training).build()
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("exploration", "message"),
    [
        ({"epsilon_timesteps": float("inf")}, "epsilon_timesteps=inf must be an integer"),
        ({"epsilon_timesteps": None}, "epsilon_timesteps=None must be an integer"),
        ({"initial_epsilon": 0.1, "final_epsilon": 0.5}, "final_epsilon=0.5 and initial_epsilon=0.1"),
        ({"type": "StochasticSampling"}, "this algorithm explores by EpsilonGreedy or PerWorkerEpsilonGreedy"),
        ({"epsilon_timestep": 5}, "there is no 'epsilon_timestep'"),
        ({"type": "ParameterNoise", "sub_exploration": "Random"}, "sub_exploration='Random' must be a dict"),
        ({"type": "GaussianNoise"}, "it changes continuous actions"),
    ],
    ids=str,
)
def test_mistakes_in_exploration(exploration, message):
    with pytest.raises(ValueError) as raised:
        make_config(epsilon=exploration).build()
    assert message in str(raised.value)


def test_the_replay_does_without_a_worker_that_is_left_out():
    config = make_config(workers=2, n_step=3).fault_tolerance(
        recreate_failed_workers=False, ignore_worker_failures=True
    )
    with config.build() as algo:
        train(algo, 1)
        os.kill(algo.workers.foreach_worker(lambda worker: os.getpid())[0], signal.SIGKILL)
        result = train(algo, 2)
        assert result["num_healthy_workers"] == 1 and result["num_env_steps_trained"] > 0


@pytest.mark.parametrize("parts", [{}, {"n_step": 3}], ids=str)
def test_whole_episodes(parts):
    """Each batch holds all rows of its episodes; they have 3, 5 and 4 steps in turn."""
    config = make_config(CountingEnv, envs=2, **parts).rollouts(batch_mode="complete_episodes")
    with config.build() as algo:
        train(algo, 2)
        assert len(algo.replay) == algo.timesteps
        batch = algo.replay.sample(1000, np.random.default_rng(0))
        assert (batch["new_obs"] - batch["obs"]).max() == algo.config.n_step


def test_steps_are_counted_when_they_are_made_and_rows_come_when_they_are_complete():
    """A fragment of 4 steps in an endless episode; the last two rows of three steps wait for the next fragment."""
    training = {"n_step": 3, "num_steps_sampled_before_learning_starts": 1000}
    with make_config(InfiniteHorizon, env_config={"length": 10**6}, envs=2, **training).build() as algo:
        for fragments in range(1, 4):
            algo.training_step()
            assert algo.timesteps == 8 * fragments and len(algo.replay) == 8 * fragments - 2 * 2


def test_whole_numbers_may_be_floats():
    assert make_config(replay_buffer_config={"capacity": 1e6}).replay_settings()["capacity"] == 10**6


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"epsilon": [(0, 1.0), (500, 0.1)]}, (1.0, 0.1, 500)),
        ({"epsilon": 0.3}, (0.3, 0.3, 0)),
        ({"exploration_final_eps": 0.1}, (1.0, 0.1, 10_000)),
    ],
    ids=str,
)
def test_epsilon_by_the_names_of_other_eras(given, expected):
    for config in (DQNConfig().training(**given), DQNConfig().update_from_dict(given)):
        with config.environment(ConstantReward).build() as algo:
            initial, final, timesteps = expected
            # Private: what workers are sent
            assert algo._rollout_settings.only_policy.exploration.numbers(0) == {"epsilon": initial}
            assert algo._rollout_settings.only_policy.exploration.numbers(timesteps) == {"epsilon": final}
        assert config.rmsprop_epsilon == 1e-5
    with pytest.raises(TypeError, match="must be a number, or two points"):
        DQNConfig().training(epsilon=[(0, 1.0)])


def test_noise_in_the_weights_is_the_only_exploration():
    message = "noisy=True explores by noise in the weights alone"
    for exploration in ({"type": "SoftQ"}, {"type": "ParameterNoise"}, {"final_epsilon": 0.1}):
        with pytest.raises(ValueError, match=message):
            make_config(noisy=True, epsilon=exploration).build()
    make_config(noisy=True, epsilon={"initial_epsilon": 0, "final_epsilon": 0}).validate()


def test_noise_in_the_weights_explores():
    """Both actions are tried without any epsilon, and evaluation is silent."""
    with make_config(MatchObservation, noisy=True, hiddens=[16]).build() as algo:
        train(algo, 6)
        actions = algo.replay.get_state()["columns.actions"][:500]
        assert 50 < actions.sum() < 450
        assert algo.evaluate(50)["episode_reward_mean"] == 1.0


def test_continuous_actions_are_refused():
    with pytest.raises(ValueError, match="needs a Discrete action space"):
        make_config(BoundedAction).build()


class TestFramesOfStackedObservations:
    @pytest.mark.parametrize("axis", [0, -1])
    def test_the_run_is_the_same_and_its_replay_smaller(self, axis):
        results = []
        for stored in (axis, None):
            config = make_config(StackedCounting, env_config={"axis": axis}, replay_buffer_config={
                "capacity": 2000, "frame_stack_axis": stored,
            })  # fmt: skip
            with config.build() as algo:
                info = train(algo, 3)["info"]
                results.append((algo.policy.weights.copy(), info["replay"]))
        (single, small), (whole, large) = results
        assert np.array_equal(single, whole)
        assert small["num_entries"] == large["num_entries"] == 600
        assert small["size_bytes"] < 0.4 * large["size_bytes"]

    def test_bad_input(self):
        with pytest.raises(ValueError, match="frame_stack_axis=1 must be 0 or -1"):
            make_config(replay_buffer_config={"frame_stack_axis": 1}).build()
        with pytest.raises(ValueError, match=r"have the shape \(4,\). Leave it at None"):
            make_config(replay_buffer_config={"frame_stack_axis": -1}).build()
