"""Words given to `load` change a model as they would have changed its constructor."""

import pytest

from rllib.algorithms.base.registry import get_algorithm_class
from rllib.algorithms.base.stable_baselines.construction import changes_from_words, config_from_words
from rllib.env.vec_env import make_vec_env

# Algorithm, words of the constructor, words of load.
CASES = [
    ("PPO", {"n_envs": 8, "n_steps": 32, "batch_size": 64}, {"n_steps": 16}),
    ("PPO", {"n_envs": 8, "n_steps": 32, "batch_size": 64}, {"n_steps": 4}),
    ("PPO", {"n_envs": 8, "n_steps": 32, "batch_size": 64}, {"n_envs": 2}),
    ("PPO", {"n_envs": 8, "n_steps": 32, "batch_size": 64}, {"batch_size": 128}),
    ("PPO", {"n_envs": 8, "n_steps": 32, "batch_size": 64}, {"batch_size": 512}),
    ("PPO", {"n_envs": 8, "n_steps": 32, "num_rollout_workers": 2}, {"n_envs": 4}),
    ("PPO", {"n_steps": 32}, {"gamma": 0.9, "clip_range": 0.1, "n_epochs": 3}),
    ("A2C", {"n_envs": 4, "n_steps": 5}, {"n_steps": 10}),
    ("A2C", {"n_envs": 4, "n_steps": 5}, {"n_envs": 2}),
    ("DQN", {"n_envs": 4, "train_freq": 4, "gradient_steps": 8}, {"gradient_steps": 4}),
    ("DQN", {"n_envs": 4, "train_freq": 4, "gradient_steps": 8}, {"gradient_steps": 1}),
    ("DQN", {"n_envs": 4, "train_freq": 4, "gradient_steps": 8}, {"train_freq": 8}),
    ("DQN", {"n_envs": 4, "train_freq": 4, "gradient_steps": 8}, {"batch_size": 64}),
    ("DQN", {"n_envs": 4, "train_freq": 4, "gradient_steps": 8}, {"n_envs": 1}),
    ("DQN", {"train_freq": 4, "gradient_steps": -1}, {"n_envs": 2}),
    ("DQN", {"train_freq": 4, "gradient_steps": 2}, {"train_freq": (1, "episode"), "gradient_steps": -1}),
    ("DQN", {"train_freq": (1, "episode"), "gradient_steps": -1}, {"train_freq": 2, "gradient_steps": 1}),
    ("DQN", {"n_timesteps": 1000, "exploration_initial_eps": 0.8}, {"exploration_final_eps": 0.5}),
    ("DQN", {"buffer_size": 700}, {"buffer_size": 500}),
    ("SAC", {"learning_starts": 300, "ent_coef": 0.2}, {"ent_coef": "auto"}),
    ("SAC", {"learning_starts": 300, "train_freq": 2, "gradient_steps": 2}, {"learning_starts": 10}),
    ("TD3", {"noise_type": "normal", "noise_std": 0.3}, {"learning_starts": 10}),
    ("TD3", {"learning_starts": 300}, {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.3}),
    ("ARS", {"n_delta": 16}, {"learning_rate": 0.1}),
    ("ARS", {"n_delta": 16, "n_top": 4}, {"learning_rate": 0.1}),
]


def _environment(algorithm: str) -> str:
    return "Pendulum-v1" if algorithm in ("SAC", "TD3") else "CartPole-v1"


def _constructed(algorithm: str, words: dict):
    config = get_algorithm_class(algorithm).get_default_config()
    return config_from_words(config, "MlpPolicy", _environment(algorithm), words)


@pytest.mark.parametrize(("algorithm", "words", "changes"), CASES, ids=str)
def test_a_word_means_the_same_as_in_the_constructor(algorithm, words, changes):
    loaded = _constructed(algorithm, words)
    default = get_algorithm_class(algorithm).get_default_config()
    loaded.update_from_dict(changes_from_words(default, None, "auto", changes, loaded.to_dict()))
    expected = _constructed(algorithm, {**words, **changes})
    assert {name: loaded[name] for name in loaded} == {name: expected[name] for name in expected}


def test_an_environment_of_several_is_a_number_of_environments():
    config = _constructed("PPO", {"n_envs": 8, "n_steps": 32, "num_rollout_workers": 2})
    default = get_algorithm_class("PPO").get_default_config()
    changes = changes_from_words(default, make_vec_env("CartPole-v1", n_envs=4), "auto", {}, config.to_dict())
    assert (changes["num_envs_per_worker"], changes["train_batch_size"]) == (2, 4 * 32)


def test_a_share_of_a_run_of_unknown_length_is_refused():
    config = _constructed("DQN", {})
    default = get_algorithm_class("DQN").get_default_config()
    with pytest.raises(ValueError, match=r"exploration_fraction .* Give n_timesteps"):
        changes_from_words(default, None, "auto", {"exploration_fraction": 0.5}, config.to_dict())


# Words, and settings of this library that stand beside them: right, and saying something else.
@pytest.mark.parametrize(
    ("algorithm", "words", "right", "wrong"),
    [
        ("PPO", {"learning_rate": 1e-3}, {"lr": 1e-3}, {"lr": 1e-4}),
        ("PPO", {"n_steps": 64, "n_envs": 8}, {"train_batch_size": 512}, {"train_batch_size": 64}),
        ("PPO", {"batch_size": 32}, {"sgd_minibatch_size": 32}, {"sgd_minibatch_size": 64}),
        ("PPO", {"gae_lambda": 0.8}, {"lambda_": 0.8}, {"lambda_": 0.9}),
        ("DQN", {"batch_size": 64}, {"train_batch_size": 64}, {"train_batch_size": 32}),
        ("TD3", {"noise_type": "normal", "noise_std": 0.1, "n_steps": 3}, {"n_step": 3}, {"n_step": 1}),
    ],
)
def test_one_setting_under_two_names_is_told_where_they_differ(algorithm, words, right, wrong, caplog):
    assert _constructed(algorithm, {**words, **right})[next(iter(right))] == next(iter(right.values()))
    assert "counts" not in caplog.text
    assert _constructed(algorithm, {**words, **wrong})[next(iter(wrong))] == next(iter(wrong.values()))
    assert f"{next(iter(wrong))}={next(iter(wrong.values()))} counts" in caplog.text


def test_two_numbers_of_environments_are_refused():
    env = make_vec_env("CartPole-v1", n_envs=4)
    config = get_algorithm_class("PPO").get_default_config()
    with pytest.raises(ValueError, match=r"n_envs=2 .* 4 environments"):
        config_from_words(config, "MlpPolicy", env, {"n_envs": 2})
