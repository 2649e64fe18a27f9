"""SAC, TQC, TD3 and DDPG as algorithms: what they store, count, refuse, and where they go on. Losses: tests/losses."""

import gymnasium as gym
import numpy as np
import psutil
import pytest
import torch

from rllib import CrossQConfig, DDPGConfig, PPOConfig, PQNConfig, SACConfig, TD3Config, TQCConfig
from rllib import sample_batch as sb
from tests.algorithms.algorithm_support import learner_stats
from tests.envs import BoundedAction, GoalOnALine

torch.set_num_threads(1)

SMALL = {
    "model": {"fcnet_hiddens": [16, 16]},
    "train_batch_size": 32,
    "num_steps_sampled_before_learning_starts": 64,
    "replay_buffer_config": {"capacity": 2000},
    "lr": 1e-3,
}
OF_NUMBERS = [SACConfig, TQCConfig, TD3Config, DDPGConfig]
BOXES = [*OF_NUMBERS, CrossQConfig]


class Reach(gym.Env):
    """One step; the reward is -(a - o)^2, with the action within the bounds that are asked for."""

    def __init__(self, config):
        bound = config.get("bound", 1.0)
        self.bound = bound
        self.observation_space = gym.spaces.Box(-1, 1, (1,))
        self.action_space = gym.spaces.Box(-bound, bound, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._goal = self.np_random.uniform(-0.8, 0.8, 1).astype(np.float32)
        return self._goal, {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self._goal, -float((action[0] / self.bound - self._goal[0]) ** 2), True, False, {}


def config(kind, env="Pendulum-v1", workers=0, envs=1, seed=5, **training):
    env_config, fragment = training.pop("env_config", {}), training.pop("fragment", "auto")
    return (
        kind()
        .environment(env, env_config=env_config)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=fragment)
        .training(**{**SMALL, **training})
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=100)
        .debugging(seed=seed)
    )


def after(algo, iterations):
    for _ in range(iterations):
        algo.train()
    return algo.learner.weights.copy()


@pytest.mark.parametrize("kind", OF_NUMBERS)
def test_it_solves_a_probe(kind):
    """The action is ten times the observation, as far as the bounds reach."""
    bound = 10.0
    exploration = {"random_timesteps": 64} if not issubclass(kind, SACConfig) else {}
    training = {"tau": 0.05, "lr": 3e-3, "env_config": {"bound": bound}, "gamma": 0.9}
    if issubclass(kind, SACConfig):
        training |= {"initial_alpha": 0.1, "target_entropy": -2.0}
    chosen = config(kind, Reach, **training).exploration(exploration_config={**exploration})
    with chosen.build() as algo:
        after(algo, 12)
        observations = np.linspace(-0.7, 0.7, 9, dtype=np.float32)[:, None]
        actions = [algo.compute_single_action(each, explore=False) for each in observations]
        assert np.abs(np.stack(actions) / bound - observations).mean() < 0.15


def test_the_scale_of_actions_changes_nothing():
    """Bounds of +-10 and of +-1: the same run, since noise and entropies are in the policy's units."""
    for kind in OF_NUMBERS:
        weights = []
        for bound in (1.0, 8.0):
            with config(kind, Reach, env_config={"bound": bound}).build() as algo:
                weights.append(after(algo, 2))
        np.testing.assert_array_equal(*weights, err_msg=kind.__name__)


def test_discrete_actions():
    with config(SACConfig, "CartPole-v1").build() as algo:
        after(algo, 2)
        stats = learner_stats(algo.train())
        assert 0 < stats["entropy"] <= np.log(2) + 1e-6
        assert stats["target_entropy"] == pytest.approx(0.5 * np.log(2))
        assert algo.compute_single_action(algo.observation_space.sample()) in (0, 1)


# Of an episode's five steps, which are 15 rows.
HINDSIGHT = {"type": "HindsightReplayBuffer", "n_sampled_goal": 2}
STATE_DEPENDENT = {"model": {**SMALL["model"], "use_sde": True}, "fragment": 5}


@pytest.mark.parametrize(
    ("kind", "workers", "storage", "replay", "more"),
    [
        (SACConfig, 0, "memory", {}, {}),
        (SACConfig, 2, "disk", {}, {}),
        (TD3Config, 2, "memory", {}, {"policy_delay": 3}),
        (DDPGConfig, 0, "disk", {}, {"policy_delay": 3}),
        (SACConfig, 2, "memory", HINDSIGHT, {}),
        (TD3Config, 0, "disk", HINDSIGHT, {}),
        (SACConfig, 2, "memory", {}, STATE_DEPENDENT),
        (TQCConfig, 0, "memory", HINDSIGHT, STATE_DEPENDENT),
    ],
)
def test_a_restored_run_is_the_run_that_went_on(kind, workers, storage, replay, more, tmp_path):
    """To the bit: weights, target copies, optimizers, temperature, rows, priorities. Episodes end at the checkpoint."""
    replay = {"capacity": 300, "storage": storage, **replay}  # full, and written over, when it is saved
    training = {"replay_buffer_config": replay, "store_buffer_in_checkpoints": True, "training_intensity": 16}
    if "n_sampled_goal" in replay:
        environment, training["env_config"] = GoalOnALine, {"start": (-0.7, 0.4)}
    else:
        environment = BoundedAction
    with config(kind, environment, workers, 2, **training, **more).build() as algo:
        after(algo, 4)
        with kind.algo_class.from_checkpoint(algo.save(tmp_path / "saved")) as other:
            assert after(algo, 2).tobytes() == after(other, 2).tobytes()
            states = algo.get_state(), other.get_state()
    for file, expected in states[0].items():
        if file.endswith(".safetensors"):
            for name, array in expected.items():
                np.testing.assert_array_equal(states[1][file][name], array, err_msg=f"{file}: {name}")
    assert len(states[0]["policies/default_policy/replay.safetensors"]["columns.obs"]) == 300


def test_a_restored_run_has_the_state_of_the_saved_one(tmp_path):
    with config(SACConfig, Reach, store_buffer_in_checkpoints=True).build() as algo:
        after(algo, 2)
        state, saved = algo.get_state(), algo.save(tmp_path / "saved")
    with SACConfig.algo_class.from_checkpoint(saved) as again:
        restored = again.get_state()
    for file in (f"policies/default_policy/{name}.safetensors" for name in ("temperature", "learner", "replay")):
        for name, array in state[file].items():
            np.testing.assert_array_equal(restored[file][name], array, err_msg=name)


@pytest.mark.parametrize(("delay", "moves"), [(1, 12), (3, 4)])
def test_delayed_updates(delay, moves):
    """Actor and target copies move with every `policy_delay`-th update of the critics, and not in between."""
    with config(TD3Config, Reach, policy_delay=delay).build() as algo:
        algo.replay.add(algo.sample(64))
        actor, seen = algo.policy.weights.copy(), []
        for _ in range(12):
            algo.trainee.update(actor_lr=1e-3, critic_lr=1e-3)
            seen.append(not np.array_equal(actor, algo.policy.weights))
            actor = algo.policy.weights.copy()
        assert algo.metrics.counters["num_target_updates"] == moves
        assert seen == [(i + 1) % delay == 0 for i in range(12)]


def test_target_copies_move_with_every_update_or_by_steps():
    for freq, moves in ((0, 10), (50, 1)):
        with config(SACConfig, Reach, target_network_update_freq=freq).build() as algo:
            algo.replay.add(algo.sample(64))
            for _ in range(10):
                algo.trainee.update(actor_lr=0.0, critic_lr=0.0, alpha_lr=0.0)
            assert algo.metrics.counters["num_target_updates"] == moves


def test_a_temperature_that_stays():
    with config(SACConfig, Reach, initial_alpha=0.3, alpha_lr=0.0).build() as algo:
        after(algo, 2)
        assert learner_stats(algo.train())["alpha_value"] == pytest.approx(0.3)


def test_the_temperature_moves_against_the_entropy():
    for target, grows in ((5.0, True), (-50.0, False)):
        with config(SACConfig, Reach, target_entropy=target, initial_alpha=0.1).build() as algo:
            after(algo, 2)
            assert (learner_stats(algo.train())["alpha_value"] > 0.1) == grows


@pytest.mark.parametrize("n_critics", [1, 3])
def test_any_number_of_critics(n_critics):
    with config(SACConfig, Reach, n_critics=n_critics).build() as algo:
        after(algo, 2)
        names = algo.learner.vector.named_parameters("critics")
        assert sum(name.endswith("head.weight") for name in names) == n_critics


def test_the_first_actions_are_uniform():
    """Before tanh they are stored, so that their tanh is uniform; then the policy acts."""
    chosen = config(SACConfig, Reach, envs=4).exploration(exploration_config={"random_timesteps": 2000})
    with chosen.build() as algo:
        first = np.tanh(algo.sample(2000)[sb.ACTIONS]).reshape(-1)
        assert np.abs(np.sort(first) - np.linspace(-1, 1, len(first))).max() < 0.08
        later = algo.sample(400)[sb.ACTIONS]
        assert np.abs(later).max() < 6 and np.isfinite(later).all()


@pytest.mark.parametrize("part", ["model", "policy_model_config"])
@pytest.mark.parametrize("kind", [SACConfig, TQCConfig])
def test_uniform_actions_before_state_dependent_noise(kind, part):
    """As Stable-Baselines3's learning_starts: uniform first, then one function of the state for a whole fragment."""
    sde = {"fcnet_hiddens": [4], "use_sde": True, "log_std_init": -1.0}
    chosen = config(kind, Reach, envs=4, fragment=10, **{part: sde})
    with chosen.exploration(exploration_config={"random_timesteps": 2000}).build() as algo:
        first = np.tanh(algo.sample(2000)[sb.ACTIONS]).reshape(-1)
        assert np.abs(np.sort(first) - np.linspace(-1, 1, len(first))).max() < 0.08
        later = algo.sample(40)
    network = algo.policy.network
    means = network.forward_policy(algo.policy.encode(later[sb.OBS], algo.policy.new_inputs(40)))[:, :1]
    noise, features = later[sb.ACTIONS] - np.clip(means, -2, 2), network.acting_features(40).T
    assert np.abs(noise).max() > 1e-2
    for rows in np.arange(40).reshape(10, 4).T:  # of one environment: 10 rows, and the 4 numbers of Theta explain them
        theta = np.linalg.lstsq(features[rows], noise[rows], rcond=1e-5)[0]
        np.testing.assert_allclose(features[rows] @ theta, noise[rows], atol=1e-5)


def test_the_actors_own_settings_choose_the_noise():
    given = {"model": {"use_sde": True}, "policy_model_config": {"use_sde": False}}
    with config(SACConfig, Reach, **given).build() as algo:
        assert not np.isnan(after(algo, 1)).any()


def test_several_updates_for_each_step():
    with config(SACConfig, Reach, training_intensity=64).build() as algo:
        after(algo, 2)
        steps = algo.timesteps - SMALL["num_steps_sampled_before_learning_starts"] + 1
        assert algo.num_updates == pytest.approx(2 * steps, abs=2)


@pytest.mark.parametrize(("envs", "intensity", "ratio"), [(1, None, 1), (8, None, 1 / 8), (1, 32, 1), (8, 32, 1)])
def test_the_ratio_of_updates_is_reported(envs, intensity, ratio):
    """By default an update follows each round; with an intensity of train_batch_size, 32, each step asks for one."""
    with config(SACConfig, Reach, envs=envs, training_intensity=intensity).build() as algo:
        after(algo, 5)
        stats = learner_stats(algo.train())
    assert stats["updates_per_step_sampled"] == pytest.approx(ratio, rel=0.03)
    assert stats["rows_trained_per_step_sampled"] == pytest.approx(32 * ratio, rel=0.03)


class WholeNumbers(Reach):
    def __init__(self, config):
        super().__init__(config)
        self.action_space = gym.spaces.Box(0, 5, (1,), np.int64)


def test_a_replay_that_does_not_fit_is_refused_before_any_process_starts():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(ValueError, match=r"a replay of 10000000000000 rows takes .* GiB are free.*'storage'"):
        config(SACConfig, Reach, workers=2, replay_buffer_config={"capacity": 10**13}).build()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_td3_without_its_three_additions_is_ddpg():
    """Each has defaults of its own for what both share, which are given here."""
    shared = {"l2_reg": 1e-6, "tau": 0.01, "model": SMALL["model"], "replay_buffer_config": {"type": "ReplayBuffer"}}
    plain = {"twin_q": False, "policy_delay": 1, "smooth_target_policy": False}
    noise = {"type": "GaussianNoise", "random_timesteps": 64, "stddev": 0.2}
    noise |= {"initial_scale": 1.0, "final_scale": 0.5, "scale_timesteps": 150}
    weights = []
    for kind, more in ((TD3Config, plain), (DDPGConfig, {})):
        with config(kind, **shared, **more).exploration(exploration_config=noise).build() as algo:
            weights.append(after(algo, 3))
    np.testing.assert_array_equal(*weights)


class Regulator(gym.Env):
    """x' = x + u at a cost of x^2 + u^2. Episodes are cut after ten steps or beyond 2, so the horizon is infinite."""

    observation_space = gym.spaces.Box(-3, 3, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, config):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = self.np_random.uniform(-1, 1, 1), 0
        return self.x.astype(np.float32), {}

    def step(self, action):
        reward = -float(self.x[0] ** 2 + action[0] ** 2)
        self.x, self.t = self.x + action, self.t + 1
        return self.x.astype(np.float32), reward, False, self.t == 10 or abs(self.x[0]) > 2, {}


def test_ddpg_finds_the_gain_of_a_linear_regulator():
    """u = -K x with K = gamma P / (1 + gamma P) = 0.588403, P = 1 + gamma P / (1 + gamma P) = 1.588403 at 0.9.

    The actor starts late and moves slowly: driven into the flat ends of tanh by the first critics, it would stay there.
    """
    noise = {"type": "GaussianNoise", "random_timesteps": 400, "stddev": 0.3, "final_scale": 1.0}
    training = {"gamma": 0.9, "tau": 0.02, "critic_lr": [[0, 3e-3], [6000, 3e-4]], "actor_lr": 3e-4}
    training |= {"train_batch_size": 64, "num_steps_sampled_before_learning_starts": 400}
    training |= {"model": {"fcnet_hiddens": [32, 32], "fcnet_activation": "tanh"}}
    replay = {"replay_buffer_config": {"type": "ReplayBuffer", "capacity": 10_000}}
    chosen = config(DDPGConfig, Regulator, envs=4, **training, **replay).exploration(exploration_config=noise)
    with chosen.build() as algo:
        after(algo, 70)
        states = np.linspace(-0.8, 0.8, 9, dtype=np.float32)[:, None]
        actions = np.stack([algo.compute_single_action(state, explore=False) for state in states])
    assert -(actions * states).sum() / (states**2).sum() == pytest.approx(0.588403, abs=0.06)


class Unbounded(Reach):
    def __init__(self, config):
        super().__init__(config)
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (1,))


class OneSided(Reach):
    def __init__(self, config):
        super().__init__(config)
        self.action_space = gym.spaces.Box(0.0, np.inf, (1,))


@pytest.mark.parametrize(
    ("kind", "env", "message"),
    [
        (SACConfig, Unbounded, "SAC squashes actions into their bounds, but .* is not bounded"),
        (SACConfig, OneSided, r"is not bounded on all sides.*Box\(0\.0, 1\.0, \(1,\)\)"),
        (TQCConfig, "CartPole-v1", r"TQC is for continuous actions, .* Discrete\(2\)\. Use SAC or DQN"),
        (TD3Config, "CartPole-v1", r"TD3 is for continuous actions, .* Discrete\(2\)\. Use SAC or DQN"),
        *((kind, WholeNumbers, "a Box of floats, .*int64.*PPO for all others, integer Boxes too") for kind in BOXES),
    ],
)
def test_spaces_that_do_not_fit(kind, env, message):
    with pytest.raises(ValueError, match=message):
        config(kind, env).build()


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"q_model_config": {"vf_hiddens": [8]}}, "q_model_config=.* may have network, fcnet_hiddens"),
        ({"q_model_config": {"use_lstm": True}}, "q_model_config=.*together, or none has. Set it in model"),
        ({"policy_model_config": {"free_log_std": True}}, "free_log_std=True is not available"),
        ({"custom_loss": print}, "the losses are over actor and critics"),
        ({"initial_alpha": 0.0}, "initial_alpha=0.0 must be a number > 0 and finite"),
        ({"target_entropy": "automatic"}, "target_entropy='automatic' must be"),
        ({"n_critics": 0}, "n_critics=0 must be"),
    ],
)
def test_settings_that_do_not_fit(training, message):
    with pytest.raises(ValueError, match=message):
        config(SACConfig, Reach, **training).build()


@pytest.mark.parametrize("part", ["model", "policy_model_config"])
def test_a_deterministic_actor_has_no_state_dependent_noise(part):
    with pytest.raises(ValueError, match=r"use_sde=True learns the standard deviations .* use SAC or TQC"):
        config(TD3Config, Reach, **{part: {"use_sde": True}}).build()


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"n_quantiles": 5, "top_quantiles_to_drop_per_net": 5}, "drop_per_net=5 and n_quantiles=5: "),
        ({"n_quantiles": 1}, "n_quantiles=1 must be"),
        ({"top_quantiles_to_drop_per_net": -1}, "top_quantiles_to_drop_per_net=-1 must be"),
    ],
)
def test_quantiles_that_do_not_fit(training, message):
    with pytest.raises(ValueError, match=message):
        config(TQCConfig, Reach, **training).build()


def test_rllibs_names_for_the_layers():
    chosen = TD3Config().training(actor_hiddens=[32], critic_hiddens=[24, 24], critic_hidden_activation="tanh")
    assert chosen.network_settings("policy_model_config")["fcnet_hiddens"] == [32]
    assert chosen.q_model_config == {"fcnet_hiddens": [24, 24], "fcnet_activation": "tanh"}


def test_rllibs_names_for_the_learning_rates():
    rates = {"actor_learning_rate": 1e-3, "critic_learning_rate": 2e-3, "entropy_learning_rate": 3e-3}
    for chosen in (
        SACConfig().training(optimization_config=rates),
        SACConfig().update_from_dict({"optimization": rates, "_deterministic_loss": False}),
    ):
        assert (chosen.actor_lr, chosen.critic_lr, chosen.alpha_lr) == (1e-3, 2e-3, 3e-3)
    TD3Config().training(use_state_preprocessor=False)
    with pytest.raises(TypeError, match="TD3Config has no setting 'entropy_learning_rate'"):
        TD3Config().update_from_dict({"optimization": rates})


@pytest.mark.parametrize(
    ("kind", "name", "advice"),
    [
        (SACConfig, "_deterministic_loss", "TD3 has a deterministic actor"),
        (SACConfig, "_use_beta_distribution", "a squashed normal distribution"),
        (TD3Config, "use_state_preprocessor", "networks read observations as they are"),
    ],
)
def test_rllibs_switches_that_stay_off(kind, name, advice):
    kind().training(**{name: False})
    with pytest.raises(TypeError, match=f"{name}=True cannot be used: .*{advice}"):
        kind().training(**{name: True})


def test_random_steps_need_an_algorithm_without_probabilities():
    with pytest.raises(ValueError, match="random_timesteps=100 plays actions that the policy did not draw"):
        PPOConfig().environment(Reach).exploration(exploration_config={"random_timesteps": 100}).build()
    given = {"type": "ParameterNoise", "random_timesteps": 100}
    PQNConfig().environment("CartPole-v1").exploration(exploration_config=given).validate()


def test_the_temperature_has_every_constant_of_the_optimizer():
    """The first step of RMSprop without a running mean is lr * g / (|g| + epsilon)."""
    rates = {"actor_lr": 0.0, "critic_lr": 0.0, "alpha_lr": 0.1}
    training = {"opt_type": "rmsprop", "decay": 0.0, "rmsprop_epsilon": 3.0, "weight_decay": 0.5}
    with config(SACConfig, Reach, initial_alpha=1.0, target_entropy=-4.0, **training).build() as algo:
        algo.replay.add(algo.sample(64))
        gradient = algo.trainee.update(**rates)["entropy"] + 4.0
        expected = -0.1 * gradient / (abs(gradient) + 3.0)
        assert np.log(algo.trainee.temperature.alpha) == pytest.approx(expected, rel=1e-5)
