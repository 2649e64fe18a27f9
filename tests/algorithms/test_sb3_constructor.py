"""`PPO("MlpPolicy", env, ...)` and the other names of Stable-Baselines3 on an algorithm."""

import shutil
from typing import ClassVar

import gymnasium
import numpy as np
import pytest

from rllib import A2C, DQN, IMPALA, PPO, SAC, TD3, Algorithm, PPOConfig, load_policy, notices
from rllib.env.vec_env import DummyVecEnv, make_vec_env
from rllib.runs.files import read_results
from rllib.storage.checkpoint import CheckpointError
from tests.envs import BoundedAction, CountingEnv, GoalOnALine

# Defaults of Stable-Baselines3 2.9.2, as its signatures have them.
PPO_DEFAULTS = {
    "lr": 3e-4, "train_batch_size": 2048, "sgd_minibatch_size": 64, "num_sgd_iter": 10, "gamma": 0.99, "lambda_": 0.95,
    "clip_param": 0.2, "vf_clip_param": None, "standardize_advantages": "minibatch", "entropy_coeff": 0.0,
    "vf_loss_coeff": 0.5, "grad_clip": 0.5, "target_kl": None, "use_kl_loss": False, "kl_coeff": 0.0,
    "adam_epsilon": 1e-5, "num_rollout_workers": 0, "num_envs_per_worker": 1, "normalize_actions": False,
    "clip_actions": True, "model/fcnet_hiddens": [64, 64], "model/fcnet_activation": "tanh",
    "model/vf_share_layers": False,
}  # fmt: skip
A2C_DEFAULTS = {
    "lr": 7e-4, "train_batch_size": 5, "gamma": 0.99, "lambda_": 1.0, "entropy_coeff": 0.0, "vf_loss_coeff": 0.5,
    "grad_clip": 0.5, "opt_type": "rmsprop", "rmsprop_epsilon": 1e-5, "standardize_advantages": False,
}  # fmt: skip
DQN_DEFAULTS = {
    "lr": 1e-4, "train_batch_size": 32, "num_steps_sampled_before_learning_starts": 100, "gamma": 0.99, "tau": 1.0,
    "rollout_fragment_length": 4, "target_network_update_freq": 10_000, "grad_clip": 10, "double_q": False,
    "dueling": False, "replay_buffer_config/capacity": 1_000_000, "replay_buffer_config/type": "ReplayBuffer",
    "exploration_config/final_epsilon": 0.05, "model/fcnet_hiddens": [64, 64], "model/fcnet_activation": "relu",
}  # fmt: skip
SAC_DEFAULTS = {
    "lr": 3e-4, "train_batch_size": 256, "tau": 0.005, "gamma": 0.99,
    "replay_buffer_config/capacity": 1_000_000, "target_entropy": "auto", "initial_alpha": 1.0,
}  # fmt: skip


class Pictures(CountingEnv):
    """Shows grey pictures, the brighter the later."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8)

    def reset(self, **how):
        return np.zeros((36, 36, 3), np.uint8), super().reset(**how)[1]

    def step(self, action):
        observation, *rest = super().step(action)
        return np.full((36, 36, 3), observation[0], np.uint8), *rest


def setting(config, path):
    name, _, key = path.partition("/")
    return config[name][key] if key else config[name]


@pytest.mark.parametrize(
    ("algorithm", "env", "expected"),
    [
        (PPO, "CartPole-v1", PPO_DEFAULTS),
        (A2C, "CartPole-v1", A2C_DEFAULTS),
        (DQN, "CartPole-v1", DQN_DEFAULTS),
        (SAC, "Pendulum-v1", SAC_DEFAULTS),
    ],
)
def test_settings_that_are_not_given_are_those_of_the_other_library(algorithm, env, expected):
    with algorithm("MlpPolicy", env) as algo:
        assert {path: setting(algo.config, path) for path in expected} == expected


def test_words_are_translated():
    env = make_vec_env("CartPole-v1", n_envs=4)
    kwargs = {"net_arch": [16], "activation_fn": "ReLU"}
    with PPO("MlpPolicy", env, learning_rate=1e-3, n_steps=32, batch_size=16, n_epochs=2, seed=3, policy_kwargs=kwargs,
             verbose=0) as algo:  # fmt: skip
        config = algo.config
        assert (config.lr, config.train_batch_size, config.sgd_minibatch_size) == (1e-3, 128, 16)
        assert (config.num_sgd_iter, config.seed, config.num_envs_per_worker) == (2, 3, 4)
        assert config.model["fcnet_hiddens"] == [16] and config.model["fcnet_activation"] == "relu"
        assert algo.n_envs == 4 and algo.device == "cpu"
        algo.learn(128)
        assert algo.num_timesteps == 128


def test_a_deviation_of_its_own_is_for_continuous_actions_alone():
    with PPO("MlpPolicy", BoundedAction, n_steps=64) as algo:
        assert algo.config.model["free_log_std"] is True
    with PPO("MlpPolicy", CountingEnv, n_steps=64) as algo:
        assert not algo.config.model.get("free_log_std")


def test_settings_of_this_library_stand_beside_the_words():
    with PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32, n_envs=4, grad_clip=1.0, train_batch_size=64,
             model={"fcnet_hiddens": [8]}) as algo:  # fmt: skip
        assert algo.config.grad_clip == 1.0 and algo.config.train_batch_size == 64
        assert algo.config.model["fcnet_hiddens"] == [8] and algo.config.model["fcnet_activation"] == "tanh"
    with pytest.raises(ValueError, match="n_envs=3 environments cannot be divided among num_rollout_workers=2"):
        PPO("MlpPolicy", "CartPole-v1", n_envs=3, num_rollout_workers=2)


@pytest.mark.parametrize(
    "env",
    [
        CountingEnv,
        CountingEnv(),
        lambda config: CountingEnv(config),
        DummyVecEnv([CountingEnv, CountingEnv]),
        make_vec_env(CountingEnv, n_envs=2),
        make_vec_env(lambda: CountingEnv(), n_envs=2),
    ],
)
def test_an_environment_may_have_any_form(env):
    with PPO("MlpPolicy", env, n_steps=20, batch_size=20, n_epochs=1) as algo:
        algo.learn(40)
        assert algo.num_timesteps == 40
        assert algo.evaluate(3)["episodes_this_iter"] == 3


def test_pictures_and_dicts_have_policies_of_their_own():
    with PPO("CnnPolicy", Pictures) as algo:
        assert algo.predict(np.zeros((2, 36, 36, 3), np.uint8))[0].shape == (2,)
    with PPO("MultiInputPolicy", GoalOnALine, n_steps=8, batch_size=8, n_epochs=1) as algo:
        algo.learn(8)
        env = algo.get_env()
        assert algo.predict(env.reset(), deterministic=True)[0].shape == (1, 1)


def test_a_memory_is_the_recurrent_policy():
    with PPO("MlpLstmPolicy", CountingEnv, n_steps=16, batch_size=16, n_epochs=1,
             policy_kwargs={"lstm_hidden_size": 8, "net_arch": [4]}) as algo:  # fmt: skip
        model = algo.config.model
        assert model["use_lstm"] and model["lstm_cell_size"] == 8
        assert model["fcnet_hiddens"] == [] and model["post_lstm_hiddens"] == [4]
        assert model["post_lstm_activation"] == "tanh" and not model["vf_share_memory"]
        algo.learn(16)
        env, states, starts = algo.get_env(), None, np.ones(1, bool)
        observations = env.reset()
        for _ in range(4):
            actions, states = algo.predict(observations, state=states, episode_start=starts, deterministic=True)
            observations, _, starts, _ = env.step(actions)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: PPO(env="CartPole-v1", verbose=1), TypeError, r'Use PPO\("MlpPolicy", env, verbose=...\), or PPOC'),
        (lambda: PPO(PPOConfig(), n_steps=5), TypeError, "first argument is the name of a policy, not PPOConfig"),
        (lambda: PPO("MlpPolicy", "CartPole-v1", learn_rate=1), ValueError, "'learn_rate'.*learning_rate"),
        (lambda: PPO("MlpPolicy", "CartPole-v1", buffer_size=1), ValueError, "'buffer_size'"),
        (lambda: PPO("MyPolicy", "CartPole-v1"), ValueError, "policy='MyPolicy' is none of"),
        (lambda: DQN("MlpLstmPolicy", "CartPole-v1"), ValueError, "R2D2"),
        (lambda: PPO("MlpPolicy"), ValueError, "no environment"),
        (lambda: IMPALA("MlpPolicy", "CartPole-v1"), ValueError, "no words .* are known for 'IMPALA'"),
        (lambda: PPO("MlpPolicy", "CartPole-v7"), ValueError, "CartPole"),
    ],
)
def test_what_cannot_be_said_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_each_run_writes_into_a_directory_of_its_own(tmp_path):
    names = []
    for _ in range(2):
        with PPO("MlpPolicy", CountingEnv, n_steps=16, batch_size=16, n_epochs=1, tensorboard_log=tmp_path) as algo:
            algo.learn(16)
            names.append(algo.directory.name)
    assert names == ["PPO_1", "PPO_2"] and (tmp_path / "PPO_2/result.json").exists()


@pytest.mark.parametrize("name", [None, "mine"])
def test_a_loaded_model_goes_on_in_the_files_of_its_run_unless_steps_begin_anew(tmp_path, name):
    words = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "tensorboard_log": tmp_path / "logs"}
    first, second = (tmp_path / f"logs/{name or 'PPO'}_{number}" for number in (1, 2))
    with PPO("MlpPolicy", CountingEnv, **words) as algo:
        assert algo.config.tensorboard_groups
        algo.learn(16, tb_log_name=name).save(tmp_path / "model")
        assert algo.directory == first
        with PPO.load(tmp_path / "model", env=CountingEnv) as loaded:
            assert loaded.learn(16, tb_log_name=name, reset_num_timesteps=False).num_timesteps == 32
            assert loaded.directory == first and len(read_results(first)) == 2
        with PPO.load(tmp_path / "model", env=CountingEnv) as loaded:
            assert loaded.learn(16, tb_log_name=name).num_timesteps == 16
            assert loaded.directory == second and len(read_results(second)) == 1
        with PPO.load(tmp_path / "model", env=CountingEnv) as loaded:
            # The first directory has a result that is newer than the checkpoint, and keeps it.
            loaded.learn(16, tb_log_name=name, reset_num_timesteps=False)
            assert loaded.directory.name.endswith("_3") and len(read_results(first)) == 2


def test_a_loaded_model_writes_nowhere_if_its_run_is_elsewhere(tmp_path, caplog):
    words = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
    with PPO("MlpPolicy", CountingEnv, **words, tensorboard_log=tmp_path / "logs") as algo:
        algo.learn(16).save(tmp_path / "model")
    shutil.rmtree(tmp_path / "logs")
    with PPO.load(tmp_path / "model", env=CountingEnv) as loaded:
        loaded.learn(16)
    assert not (tmp_path / "logs").exists() and "which is not there: give tensorboard_log" in caplog.text
    with PPO.load(tmp_path / "model", env=CountingEnv, tensorboard_log=tmp_path / "mine") as loaded:
        loaded.learn(16)
        assert loaded.directory == tmp_path / "mine/PPO_1" and len(read_results(loaded.directory)) == 1


def test_each_learn_that_resets_the_steps_or_has_another_name_has_a_directory(tmp_path):
    with PPO("MlpPolicy", CountingEnv, n_steps=16, batch_size=16, n_epochs=1, tensorboard_log=tmp_path) as algo:
        names = []
        for name, resets in ((None, True), (None, False), (None, True), ("second", False), ("second", False)):
            algo.learn(16, tb_log_name=name, reset_num_timesteps=resets)
            names.append((algo.directory.name, len(read_results(algo.directory))))
        assert names == [("PPO_1", 1), ("PPO_1", 2), ("PPO_2", 1), ("second_1", 1), ("second_1", 2)]
        assert algo.config.log_dir == str(tmp_path / "second_1")


def test_a_name_of_files_without_files_is_told(caplog, monkeypatch):
    monkeypatch.setattr(notices, "_noticed", set())
    with trained(CountingEnv) as algo:
        for _ in range(2):
            algo.learn(16, tb_log_name="mine")
    assert len([line for line in caplog.messages if "tb_log_name='mine' has no effect" in line]) == 1


@pytest.mark.parametrize(
    "make, steps",
    [
        (lambda: DQN("MlpPolicy", "CartPole-v1", learning_starts=50), 300),
        (lambda: SAC("MlpPolicy", "Pendulum-v1", learning_starts=110, batch_size=8), 120),
        (lambda: A2C("MlpPolicy", "CartPole-v1"), 55),
    ],
    ids=["DQN", "SAC", "A2C"],
)
def test_a_run_is_as_long_as_it_was_told(make, steps):
    with make() as algo:
        assert algo.learn(steps).num_timesteps == steps
        assert algo.learn(steps, reset_num_timesteps=False).num_timesteps == 2 * steps
        assert algo.goal == {}


def test_the_newest_checkpoint_of_a_run_is_loaded(tmp_path):
    with trained(CountingEnv) as algo:
        for number in (1, 2):
            algo.learn(16).save(tmp_path / f"checkpoint_00000{number}")
    for load in (PPO.load, PPO.from_checkpoint):
        with load(tmp_path) as loaded:
            assert loaded.timesteps == 48
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is no checkpoint of this library"):
        PPO.load(tmp_path / "empty")


def test_verbose_prints_tables(capsys):
    with PPO("MlpPolicy", CountingEnv, n_steps=16, batch_size=16, n_epochs=1, verbose=1) as algo:
        algo.learn(64, log_interval=2)
    shown = capsys.readouterr().out
    assert shown.count("ep_rew_mean") == 2 and "total_timesteps           | 64 " in shown
    with PPO("MlpPolicy", CountingEnv, n_steps=16, batch_size=16, n_epochs=1) as algo:
        algo.learn(16)
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------------- checkpoints


def trained(env, **words):
    return PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, **words).learn(16)


@pytest.mark.parametrize(("saved", "loaded"), [("agent", "agent.zip"), ("agent.zip", "agent"), ("agent", "agent")])
def test_the_ending_of_a_name_does_not_matter(saved, loaded, tmp_path):
    with trained(CountingEnv) as algo:
        algo.save(tmp_path / saved)
        weights = algo.get_weights()
    with PPO.load(tmp_path / loaded) as again:
        np.testing.assert_equal(again.get_weights(), weights)
        assert again.num_timesteps == 16
        again.learn(16, reset_num_timesteps=False)
        assert again.num_timesteps == 32


def test_load_changes_environment_device_and_words(tmp_path):
    with trained("CartPole-v1") as algo:
        path = algo.save(tmp_path / "agent")
    env = make_vec_env("CartPole-v1", n_envs=2)
    with Algorithm.load(path) as again:
        assert type(again) is PPO
    with PPO.load(path, env, device="cpu", learning_rate=1e-4, custom_objects={"clip_range": 0.1},
                  print_system_info=False, force_reset=False, train_batch_size=32) as again:  # fmt: skip
        config = again.config
        assert (config.lr, config.clip_param, config.num_envs_per_worker) == (1e-4, 0.1, 2)
        assert config.num_gpus == 0 and config.train_batch_size == 32 and config.gamma == 0.99
    with pytest.raises(ValueError, match="'learn_rate'"):
        PPO.load(path, learn_rate=1)


def test_without_an_environment_that_has_a_name_it_acts(tmp_path):
    env = CountingEnv({"lengths": [2]})
    with trained(env) as algo:
        path = algo.save(tmp_path / "agent")
        observation = np.ones((3, 1), np.float32)
        expected = algo.predict(observation, deterministic=True)[0]
    with PPO.load(path) as again:
        np.testing.assert_array_equal(again.predict(observation, deterministic=True)[0], expected)
        assert again.get_env() is None
    with PPO.load(path, env=env) as again:
        again.learn(16)
        assert again.num_timesteps == 16


def test_a_file_of_the_other_library_is_named(tmp_path):
    (tmp_path / "agent.zip").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match=r"agent.zip is a file, as Stable-Baselines3 writes it.*rllib import-sb3"):
        PPO.load(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="nothing"):
        PPO.load(tmp_path / "nothing")


def test_a_replay_is_saved_alone(tmp_path):
    def built():
        return DQN("MlpPolicy", CountingEnv, learning_starts=8, train_freq=4, buffer_size=500,
                   min_sample_timesteps_per_iteration=40)  # fmt: skip

    with built() as algo:
        algo.learn(40)
        algo.save_replay_buffer(tmp_path / "replay.pkl")
        rows, path = len(algo.replays["default_policy"]), algo.save(tmp_path / "agent")
    with DQN.load(path) as again:
        assert len(again.replays["default_policy"]) == 0
        again.load_replay_buffer(tmp_path / "replay.pkl")
        assert len(again.replays["default_policy"]) == rows and again.trainee.learning_has_started
        again.learn(40)
    with PPO("MlpPolicy", CountingEnv, n_steps=16) as algo, pytest.raises(AttributeError, match="has no replay"):
        algo.save_replay_buffer(tmp_path / "other")


# ---------------------------------------------------------------------- attributes


def test_parameters_go_from_one_to_another(tmp_path):
    with trained(CountingEnv) as algo, trained(CountingEnv) as other:
        parameters = algo.get_parameters()
        assert set(parameters) == {"policy"}
        assert sum(value.size for value in parameters["policy"].values()) == algo.policy.weights.size
        other.set_parameters(parameters)
        np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)
        name = next(iter(parameters["policy"]))
        parameters["policy"][name][:] = 7
        assert not np.any(algo.policy.parameters()[name] == 7), "copies"
        with pytest.raises(ValueError, match="weights by name must match"):
            other.set_parameters({"policy": {name: parameters["policy"][name]}})
        other.set_parameters({"policy": {name: parameters["policy"][name], "else": np.ones(3)}}, exact_match=False)
        assert np.all(other.policy.parameters()[name] == 7)
        other.set_parameters(str(algo.save(tmp_path / "agent")))
        np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)
        with pytest.raises(ValueError, match="there is no policy 'value'"):
            other.set_parameters({"value": {}})


def test_a_loop_of_the_other_library():
    with trained(gymnasium.make("CartPole-v1"), n_envs=2) as model:
        vec_env = model.get_env()
        assert vec_env is model.get_env() and vec_env.num_envs == 2
        obs = vec_env.reset()
        for _ in range(30):
            action, _states = model.predict(obs, deterministic=True)
            obs, rewards, _, _ = vec_env.step(action)
        assert obs.shape == (2, 4) and rewards.tolist() == [1.0, 1.0]
        assert model.get_vec_normalize_env() is None


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("set_env", r"PPO.load\(path, env=env\)"),
        ("set_logger", r"\.reporting\(log_dir=\.\.\.\)"),
        ("learning_rate", "use algo.config.lr"),
        ("gamma", "use algo.config.gamma"),
        ("batch_size", "use algo.config.sgd_minibatch_size"),
        ("replay_buffer", "algo.replays"),
    ],
)
def test_other_attributes_are_answered_with_what_to_write(name, advice):
    with PPO("MlpPolicy", CountingEnv, n_steps=16) as algo:
        with pytest.raises(AttributeError, match=rf"'PPO' object has no attribute '{name}': .*{advice}"):
            getattr(algo, name)
        with pytest.raises(AttributeError, match=r"^'PPO' object has no attribute 'nonsense'$"):
            _ = algo.nonsense


def test_a_loaded_policy_reads_what_the_constructor_made(tmp_path):
    with trained(BoundedAction) as algo:
        policy = load_policy(algo.save(tmp_path / "agent"))
        batch = np.zeros((2, 1), np.float32)
        expected = algo.predict(batch, deterministic=True)[0]
        np.testing.assert_array_equal(policy.predict(batch, deterministic=True)[0], expected)


def test_workers_make_copies_of_a_pattern():
    with PPO("MlpPolicy", CountingEnv({"lengths": [5]}), n_steps=20, batch_size=20, n_epochs=1, n_envs=2,
             num_rollout_workers=1) as algo:  # fmt: skip
        algo.learn(40)
        assert algo.n_envs == 2 and algo.train()["episode_len_mean"] == 5


def test_shares_of_a_run_are_of_the_length_that_learn_is_given():
    def built(**words):
        return DQN("MlpPolicy", CountingEnv, learning_starts=8, min_sample_timesteps_per_iteration=40, seed=3, **words)

    with built() as algo, built(n_timesteps=400) as told:
        weights = algo.get_weights()
        algo.learn(400)
        assert algo.config.exploration_config["epsilon_timesteps"] == 40
        assert algo.config.exploration_config == told.config.exploration_config
        told.learn(40)
        assert told.config.exploration_config["epsilon_timesteps"] == 40
        # Later runs go on by the first one's length.
        algo.learn(800)
        assert algo.config.exploration_config["epsilon_timesteps"] == 40
    with built() as algo:
        np.testing.assert_equal(algo.get_weights(), weights)


def test_a_schedule_over_the_remaining_share_needs_no_length_of_its_own():
    with trained_by(lambda remaining: 1e-3 * remaining, seed=None) as algo:
        before, seed, env = algo.get_weights(), algo.seed, algo.get_env()
        algo.learn(32)
        assert algo.get_env() is env
        assert algo.seed == seed and algo.config.lr["timesteps"] == 32
        assert algo.train()["info/learner/default_policy/learner_stats/cur_lr"] == 0
    with trained_by("lin_1e-3", seed=seed) as again:
        np.testing.assert_equal(again.get_weights(), before)
        zeros = {name: 0 * value for name, value in again.get_parameters()["policy"].items()}
        again.set_parameters({"policy": zeros})
        again.learn(16)
        assert again.config.lr["timesteps"] == 16
        assert np.abs(again.policy.weights).max() < 0.01, "it kept what it was given"


def trained_by(learning_rate, seed):
    words = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "learning_rate": learning_rate, "seed": seed}
    return PPO("MlpPolicy", CountingEnv, **words)


def test_an_algorithm_whose_words_know_the_length_stays_as_it_was_built():
    with PPO("MlpPolicy", CountingEnv, n_steps=16, batch_size=16, n_epochs=1) as algo:
        workers = algo.workers
        algo.learn(16)
        assert algo.workers is workers


class _Recorded(gymnasium.Env):
    """Episodes of seven equal steps; the class keeps all actions."""

    actions: ClassVar[list] = []

    def __init__(self, action_space):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        self.actions.append(np.ravel(action)[0])
        return np.zeros(1, np.float32), 0.0, self.time == 7, False, {}


@pytest.mark.parametrize(
    ("kind", "words", "space"),
    [
        (DQN, {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0}, gymnasium.spaces.Discrete(10_000)),
        (TD3, {"noise_type": "normal", "noise_std": 0.0}, gymnasium.spaces.Box(-1, 1, (1,), np.float32)),
    ],
)
@pytest.mark.parametrize(
    ("n_envs", "train_freq", "gradient_steps", "learning_starts"), [(1, 2, 1, 31), (4, 1, -1, 30), (3, 5, 2, 31)]
)
def test_random_steps_and_updates_by_the_loop_of_the_other_library(
    kind, words, space, n_envs, train_freq, gradient_steps, learning_starts
):
    words = {**words, "n_envs": n_envs, "train_freq": train_freq, "gradient_steps": gradient_steps, "batch_size": 4}
    model = kind(
        "MlpPolicy", lambda: _Recorded(space), learning_starts=learning_starts, buffer_size=200, learning_rate=1e-12,
        policy_kwargs={"net_arch": [4]}, seed=3, **words,
    )  # fmt: skip
    _Recorded.actions.clear()
    model.learn(80)
    steps = updates = num_random = 0
    while steps < 80:
        for _ in range(train_freq):
            num_random += n_envs if steps < learning_starts else 0
            steps += n_envs
        if steps > learning_starts:
            updates += gradient_steps if gradient_steps > 0 else n_envs * train_freq
    actions = _Recorded.actions[-steps:]
    chosen = actions[-1]
    assert (model.timesteps, model.trainees["default_policy"].num_updates) == (steps, updates)
    # A random action may be the chosen one.
    assert np.sum([action != chosen for action in actions[:num_random]]) >= num_random - 1
    assert all(action == chosen for action in actions[num_random:])
