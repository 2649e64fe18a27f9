"""Words given to `load` change a model as they would have changed its constructor."""

import random

import pytest

from rllib import PPO, notices
from rllib.algorithms.base.registry import get_algorithm_class
from rllib.compat.methods.stable_baselines3.construction import changes_from_words, config_from_words
from rllib.compat.names.stable_baselines3.algorithms import _OVER_TIME, _VOCABULARIES
from rllib.compat.programs.sb3.models import QRDQN
from rllib.env.vec_env import make_vec_env
from rllib.exploration.epsilon import EpsilonGreedy
from rllib.schedules import Schedule

# Values of words, drawn for the constructor and for load.
VALUES = {
    "n_envs": [1, 2, 4],
    "n_steps": [1, 3, 32],
    "batch_size": [8, 64, 512],
    "n_epochs": [2, 7],
    "gamma": [0.9, 0.5],
    "gae_lambda": [0.9],
    "learning_rate": [1e-2, 1e-4],
    "clip_range": [0.1],
    "clip_range_vf": [0.3, None, -1],
    "target_kl": [0.1, None],
    "ent_coef": [0.02, 0.3],
    "vf_coef": [0.1],
    "max_grad_norm": [3.0],
    "normalize_advantage": [True, False],
    "rms_prop_eps": [1e-4],
    "use_rms_prop": [True, False],
    "train_freq": [1, 6, (1, "episode")],
    "gradient_steps": [-1, 1, 3, 5],
    "buffer_size": [500, 900],
    "learning_starts": [0, 70],
    "tau": [0.1],
    "target_update_interval": [1],
    "policy_delay": [2, 4],
    "target_policy_noise": [0.4],
    "target_noise_clip": [0.1],
    "exploration_initial_eps": [0.7],
    "exploration_final_eps": [0.2],
    "target_entropy": [-2.0],
    "top_quantiles_to_drop_per_net": [1],
    "replay_buffer_class": ["HerReplayBuffer", None],
    "replay_buffer_kwargs": [
        {"n_sampled_goal": 2},
        {"n_sampled_goal": 3, "goal_selection_strategy": "final"},
        {"handle_timeout_termination": False},
        {"handle_timeout_termination": True},
    ],
    "use_sde": [True],
    "use_sde_at_warmup": [True],
    "sde_sample_freq": [4],
    "n_delta": [4, 16],
    "n_top": [2, None],
    "delta_std": [0.1],
    "alive_bonus_offset": [-1.0],
    "stats_window_size": [7],
    "normalize": [True, False, {"norm_reward": False}],
    "seed": [3],
    "noise": [{"noise_type": "normal", "noise_std": 0.3}, {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.2}],
}
# Words that change a network, which a checkpoint continues with; and what a config keeps of other runs.
OF_NETWORKS = {"use_sde"}
NUM_DRAWS = 150


def _drawn(algorithm: str, policy: str, seed: int) -> tuple[dict, dict] | None:
    """Words of a constructor and of load; None where the words make something that the settings do not keep."""
    rng = random.Random(f"{algorithm} {policy} {seed}")
    vocabulary = _VOCABULARIES[algorithm]
    known = [word for word in VALUES if vocabulary.knows("noise_type" if word == "noise" else word)]
    if policy == "MlpLstmPolicy":
        known.remove("use_sde")

    def draw(words, count):
        drawn = {word: rng.choice(VALUES[word]) for word in rng.sample(words, count)}
        if "ent_coef" in drawn and algorithm not in ("PPO", "A2C"):
            drawn["ent_coef"] = rng.choice(["auto", "auto_0.5", 0.2])
        return {**drawn, **drawn.pop("noise", {})}

    words = draw(known, rng.randrange(6))
    changes = draw([word for word in known if word not in OF_NETWORKS], rng.randrange(1, 3))
    # A minibatch is never larger than its batch, one update a step is the same as n updates of n steps, Adam has no
    # constant of RMSprop, and without learning_starts none of what comes before.
    n_envs, both = words.get("n_envs", 1), {**vocabulary.defaults, **words}
    has_rounds = algorithm in ("PPO", "TRPO")
    if has_rounds and both["n_steps"] * n_envs < both["batch_size"] and "batch_size" not in changes:
        return None
    train_freq = words.get("train_freq", 4 if algorithm in ("DQN", "QRDQN") else 1)
    if train_freq != (1, "episode") and 1 < words.get("gradient_steps", 1) == train_freq * n_envs:
        return None
    if words.get("use_rms_prop") is False and "rms_prop_eps" in words:
        return None
    return words, changes


def _environment(algorithm: str) -> str:
    return "CartPole-v1" if algorithm in ("DQN", "QRDQN") else "Pendulum-v1"


def _class_of(algorithm: str) -> type:
    """QR-DQN is DQN with quantiles, and has a class of its own in programs for Stable-Baselines3 alone."""
    return QRDQN if algorithm == "QRDQN" else get_algorithm_class(algorithm)


def _constructed(algorithm: str, words: dict, policy: str = "MlpPolicy"):
    config = _class_of(algorithm).get_default_config()
    return config_from_words(config, policy, _environment(algorithm), words)


@pytest.mark.parametrize(
    ("algorithm", "policy"), [*((name, "MlpPolicy") for name in _VOCABULARIES), ("PPO", "MlpLstmPolicy")]
)
def test_a_word_means_the_same_as_in_the_constructor(algorithm, policy):
    count = 0
    for seed in range(NUM_DRAWS):
        if (drawn := _drawn(algorithm, policy, seed)) is None:
            continue
        words, changes = drawn
        both = {**words, **changes}
        for name in ("replay_buffer_kwargs",):  # keys that are not given stay
            if name in words and name in changes:
                both[name] = {**words[name], **changes[name]}
        try:
            loaded, expected = _constructed(algorithm, words, policy), _constructed(algorithm, both, policy)
        except ValueError:  # refused where it is constructed
            continue
        default = _class_of(algorithm).get_default_config()
        loaded.update_from_dict(changes_from_words(default, None, "auto", changes, loaded.to_dict()))
        assert _settings(loaded) == _settings(expected), (words, changes)
        count += 1
    assert count > NUM_DRAWS // 3


def _settings(config) -> dict:
    """The settings, without those that have no effect beside the others."""
    settings = {name: config[name] for name in config}
    if settings["opt_type"] != "rmsprop":
        settings.pop("rmsprop_epsilon")
    if not settings["normalize_returns"]:
        settings.pop("normalized_reward_clip")
    if settings["observation_filter"] == "NoFilter":
        settings.pop("observation_clip")
    if "replay_buffer_config" in settings and settings["replay_buffer_config"]["type"] != "HerReplayBuffer":
        replay = settings["replay_buffer_config"]
        of_goals = ("n_sampled_goal", "goal_selection_strategy")
        settings["replay_buffer_config"] = {key: replay[key] for key in replay if key not in of_goals}
    # A network continues with its sequences.
    settings["model"] = {key: value for key, value in settings["model"].items() if key != "max_seq_len"}
    for name in ("sgd_stepsize", "training_intensity"):  # of products and quotients
        if settings.get(name) is not None:
            settings[name] = pytest.approx(settings[name])
    return settings


# What no draw has: numbers of environments of workers, and updates that no words make.
@pytest.mark.parametrize(
    ("algorithm", "words", "changes", "expected"),
    [
        ("PPO", {"n_envs": 8, "n_steps": 32, "num_rollout_workers": 2}, {"n_envs": 4},
         {"num_envs_per_worker": 2, "train_batch_size": 128}),
        ("PPO", {"n_envs": 8, "n_steps": 32, "batch_size": 64}, {"n_steps": 4},
         {"train_batch_size": 32, "sgd_minibatch_size": 32}),
        ("PPO", {"n_steps": 32}, {"num_envs_per_worker": 4}, {"num_envs_per_worker": 4, "train_batch_size": 128}),
        ("DQN", {"n_envs": 4, "train_freq": 4, "training_intensity": 1.0}, {"n_envs": 2}, {"training_intensity": 2.0}),
        ("DQN", {"n_envs": 4, "train_freq": 4, "training_intensity": 1.0}, {"train_freq": 8},
         {"training_intensity": 0.5, "rollout_fragment_length": 8}),
        ("SAC", {"use_sde": True, "use_sde_at_warmup": True}, {"learning_starts": 50},
         {"exploration_config": {"type": "StochasticSampling", "random_timesteps": 0}}),
        ("DQN", {"replay_buffer_kwargs": {"handle_timeout_termination": False}},
         {"replay_buffer_kwargs": {"handle_timeout_termination": True}}, {"time_limit_ends_episode": False}),
        ("ARS", {"n_delta": 8, "n_top": 2}, {"n_top": None}, {"rollouts_used": 8}),
        ("TD3", {"learning_starts": 7, "exploration_config": {"stddev": 0.3}}, {"exploration_config": {"stddev": 0.2}},
         {"exploration_config": {"type": "GaussianNoise", "stddev": 0.2, "random_timesteps": 7, "initial_scale": 1.0,
                                 "final_scale": 1.0}}),
    ],
)  # fmt: skip
def test_settings_that_words_stand_for(algorithm, words, changes, expected):
    loaded = _constructed(algorithm, words)
    default = get_algorithm_class(algorithm).get_default_config()
    loaded.update_from_dict(changes_from_words(default, None, "auto", changes, loaded.to_dict()))
    assert {name: loaded[name] for name in expected} == expected


def test_what_no_word_says_stays():
    words = {"use_sde": True, "policy_kwargs": {"log_std_init": -2.0}, "replay_buffer_config": {"type": "Prioritized"}}
    loaded = _constructed("SAC", words)
    default = get_algorithm_class("SAC").get_default_config()
    changes = {"sde_sample_freq": 4, "buffer_size": 500}
    loaded.update_from_dict(changes_from_words(default, None, "auto", changes, loaded.to_dict()))
    assert (loaded.model["log_std_init"], loaded.model["sde_sample_freq"]) == (-2.0, 4)
    assert (loaded.replay_buffer_config["type"], loaded.replay_buffer_config["capacity"]) == ("Prioritized", 500)


def test_updates_without_a_number_of_steps_are_refused():
    saved = _constructed("DQN", {}).to_dict() | {"rollout_fragment_length": "auto"}
    default = get_algorithm_class("DQN").get_default_config()
    with pytest.raises(ValueError, match=r"gradient_steps=2 needs train_freq"):
        changes_from_words(default, None, "auto", {"gradient_steps": 2}, saved)


@pytest.mark.parametrize("algorithm", _VOCABULARIES)
def test_functions_that_do_not_change_need_no_length(algorithm):
    saved, default = _constructed(algorithm, {}).to_dict(), _class_of(algorithm).get_default_config()
    numbers = {word: 0.05 for word in sorted(_OVER_TIME) if _VOCABULARIES[algorithm].knows(word)}
    functions = {word: lambda _: 0.05 for word in numbers}
    # As programs give them, with functions that a model makes from other words.
    functions |= {"lr_schedule": lambda _: 0.0, "exploration_schedule": lambda _: 0.0}
    functions = {"clip_range": lambda _: 0.0, **functions}
    changes = [changes_from_words(default, None, "auto", words, saved) for words in (functions, numbers)]
    assert changes[0] == changes[1]
    assert changes[0]


# Setting that each word over time becomes, where its values are the word's.
SETTINGS_OVER_TIME = {"learning_rate": "lr", "clip_range": "clip_param", "clip_range_vf": "vf_clip_param"}
CURVES = {"line": lambda left: 0.1 * left + 0.01, "curve": lambda left: 0.1 * left**2 + 0.01, "lin": "lin_0.1"}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("algorithm", sorted(_VOCABULARIES.keys() - {"ARS"}))
def test_a_share_is_of_the_steps_that_follow(algorithm, curve):
    saved, default = _constructed(algorithm, {}).to_dict(), _class_of(algorithm).get_default_config()
    given, function = CURVES[curve], CURVES[curve] if callable(CURVES[curve]) else lambda left: 0.1 * left
    words = {word: given for word in SETTINGS_OVER_TIME if _VOCABULARIES[algorithm].knows(word)}
    changes = changes_from_words(default, None, "auto", words, saved, range(500, 1500))
    for word in words:
        schedule = Schedule(changes[SETTINGS_OVER_TIME[word]])
        values = [schedule(timestep) for timestep in (0, 500, 750, 1500, 2000)]
        assert values == pytest.approx([function(left) for left in (1.0, 1.0, 0.75, 0.0, 0.0)])


@pytest.mark.parametrize("further", [{}, {"exploration_final_eps": 0.2}, {"exploration_initial_eps": 0.9}], ids=str)
def test_epsilon_falls_within_the_steps_that_follow(further):
    saved, default = _constructed("DQN", {"learning_starts": 10}).to_dict(), get_algorithm_class("DQN")
    default = default.get_default_config()
    words = {"exploration_fraction": 0.5, **further}
    exploration = changes_from_words(default, None, "auto", words, saved, range(500, 1500))["exploration_config"]
    epsilon = EpsilonGreedy(**{key: value for key, value in exploration.items() if key != "type"})
    initial, final = further.get("exploration_initial_eps", 1.0), further.get("exploration_final_eps", 0.05)
    expected = [initial, (initial + final) / 2, final, final]
    assert [epsilon.numbers(timestep)["epsilon"] for timestep in (500, 750, 1000, 1500)] == pytest.approx(expected)


def test_an_end_of_epsilon_keeps_its_length():
    saved, default = _constructed("DQN", {"n_timesteps": 1000}).to_dict(), get_algorithm_class("DQN")
    default = default.get_default_config()
    changes = changes_from_words(default, None, "auto", {"exploration_final_eps": 0.2}, saved, range(500, 1500))
    assert changes == {"exploration_config": {**saved["exploration_config"], "final_epsilon": 0.2}}


@pytest.mark.parametrize("resets", [True, False])
def test_a_loaded_model_takes_shares_of_its_next_learn(tmp_path, resets):
    rates = {}

    def note(variables, _):
        result = variables["result"]
        rates[result["timesteps_total"]] = result["info"]["learner"]["default_policy"]["learner_stats"]["cur_lr"]

    words = {"n_steps": 16, "batch_size": 8, "n_epochs": 1}
    with PPO("MlpPolicy", "CartPole-v1", **words) as model:
        path = model.learn(32).save(tmp_path / "model")
    functions = {"learning_rate": lambda left: 1e-3 * left**2, "custom_objects": {"clip_range": lambda left: left}}
    with PPO.load(path, **functions) as loaded:
        assert loaded.config.get_schedule("lr")(loaded.timesteps) == 1e-3
        before = loaded.get_weights()["default_policy"]
        loaded.learn(64, note, reset_num_timesteps=resets)
        assert (loaded.timesteps, loaded.num_timesteps) == (96, 64 if resets else 96)
        assert any((old != new).any() for old, new in zip(before, loaded.get_weights()["default_policy"]))
    # An update reads the rate of the round's first step.
    first, length = (32, 64) if resets else (0, 96)
    expected = {step: 1e-3 * (1 - (step - 16 - first) / length) ** 2 for step in (48, 64, 80, 96)}
    assert rates == pytest.approx(expected)


def test_a_saved_model_takes_its_words(tmp_path):
    words = {"n_steps": 16, "n_envs": 2, "batch_size": 8, "n_epochs": 1}
    with PPO("MlpLstmPolicy", "CartPole-v1", **words) as model:
        path = model.learn(32).save(tmp_path / "model")
    with PPO.load(path, n_steps=8, learning_rate=1e-3) as loaded:
        assert (loaded.config.train_batch_size, loaded.config.sgd_minibatch_size, loaded.config.lr) == (16, 8, 1e-3)
        loaded.learn(16)


def test_a_length_without_a_share_is_told(caplog, monkeypatch):
    monkeypatch.setattr(notices, "_noticed", set())
    saved = _constructed("DQN", {"n_timesteps": 1000}).to_dict()
    default = get_algorithm_class("DQN").get_default_config()
    assert changes_from_words(default, None, "auto", {"n_timesteps": 5000}, saved) == {}
    assert "n_timesteps has no effect" in caplog.text


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
    assert "is ignored" not in caplog.text
    assert _constructed(algorithm, {**words, **wrong})[next(iter(wrong))] == next(iter(wrong.values()))
    assert f"{next(iter(wrong))}={next(iter(wrong.values()))} is used" in caplog.text


@pytest.mark.parametrize("words", [{"n_envs": 2}, {"num_envs_per_worker": 2}, {"num_envs_per_worker": 1}], ids=str)
def test_two_numbers_of_environments_are_refused(words):
    config = get_algorithm_class("PPO").get_default_config()
    with pytest.raises(ValueError, match=r"made: 4, n.*: [12]\)"):
        config_from_words(config, "MlpPolicy", make_vec_env("CartPole-v1", n_envs=4), words)
    with pytest.raises(ValueError, match=r"n_envs: 3, num_envs_per_worker of 2 workers: 4"):
        config_from_words(
            config, "MlpPolicy", "CartPole-v1", {"n_envs": 3, "num_envs_per_worker": 2, "num_rollout_workers": 2}
        )


def test_environments_of_each_worker_are_so_many_in_all():
    config = _constructed("PPO", {"num_envs_per_worker": 2, "num_rollout_workers": 2, "n_steps": 16})
    assert (config.num_envs_per_worker, config.train_batch_size) == (2, 64)


def test_load_tells_of_one_setting_under_two_names(caplog):
    default = get_algorithm_class("PPO").get_default_config()
    changes = changes_from_words(default, None, "auto", {"learning_rate": 0.11, "lr": 0.22}, {})
    assert changes["lr"] == 0.22
    assert "lr=0.22 is used; lr=0.11, which" in caplog.text
