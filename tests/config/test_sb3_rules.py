"""Values of words that the translation reads are checked in the words that were given."""

import pytest
from gymnasium.spaces import Discrete

from rllib import notices
from rllib.compat.names.stable_baselines3 import settings_from_sb3
from rllib.compat.names.stable_baselines3.algorithms import _VOCABULARIES
from rllib.compat.names.stable_baselines3.rules import RULES

# Values of kinds that a careless program has, and the words that may have one.
WRONG = {
    "3": {"noise_type"},
    "False": {"noise_type"},
    "nothing": {"noise_type"},
    2.5: {"alive_bonus_offset", "exploration_fraction", "noise_std"},
    -7: {"alive_bonus_offset"},
    float("nan"): set(),
    (): set(),
}


@pytest.mark.parametrize("word", RULES)
def test_values_of_another_kind_are_refused(word):
    algorithms = [name for name, vocabulary in _VOCABULARIES.items() if vocabulary.knows(word)] or ["PPO"]
    for algorithm in algorithms:
        for value, taken in WRONG.items():
            if word not in taken and not (algorithm not in ("TD3", "DDPG") and word == "action_noise"):
                with pytest.raises(ValueError, match=rf"^{word}="):
                    settings_from_sb3(algorithm, {"noise_type": "normal", word: value}
                                      if algorithm in ("TD3", "DDPG") else {word: value}, defaults=True)  # fmt: skip


@pytest.mark.parametrize("word", [word for word in RULES if RULES[word].words == "True or False"])
@pytest.mark.parametrize("value", [0, 1, None])
def test_a_flag_is_no_number(word, value):
    algorithm = next(name for name, vocabulary in _VOCABULARIES.items() if vocabulary.knows(word))
    with pytest.raises(ValueError, match=rf"^{word}={value} must be True or False"):
        settings_from_sb3(algorithm, {word: value}, defaults=True)


@pytest.mark.parametrize(
    ("algorithm", "words", "named"),
    [
        ("SAC", {"ent_coef": "auto_x"}, "ent_coef='auto_x'"),
        ("SAC", {"ent_coef": "auto0.1"}, "ent_coef='auto0.1'"),
        ("SAC", {"ent_coef": "auto_0"}, "ent_coef='auto_0'"),
        ("SAC", {"ent_coef": None}, "ent_coef=None"),
        ("SAC", {"ent_coef": "0.2"}, "ent_coef='0.2' .* without quotes"),
        ("TD3", {"noise_std": 0.1}, "noise_std=0.1"),
        ("DQN", {"gradient_steps": 0}, "gradient_steps=0"),
        ("PPO", {"batch_size": 1}, "normalize_advantage=True"),
        ("PPO", {"n_steps": 1}, "normalize_advantage=True"),
        ("PPO", {"use_sde": True, "action_space": Discrete(2)}, "use_sde=True"),
        ("PPO", {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [8]}}}, "net_arch="),
        ("PPO", {"policy_kwargs": {"net_arch": {"pi": 8, "vf": 8}}}, "net_arch="),
        ("SAC", {"policy_kwargs": {"net_arch": {"pi": [8], "vf": [8]}}}, "net_arch="),
        ("SAC", {"policy_kwargs": {"net_arch": {"qf": [8]}}}, "net_arch="),
        ("DQN", {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [8]}}}, "net_arch="),
        ("SAC", {"policy_kwargs": {"n_quantiles": 5}}, "n_quantiles"),
        ("SAC", {"policy_kwargs": {"batch_norm_eps": 5}}, "batch_norm_eps"),
        ("TD3", {"policy_kwargs": {"log_std_init": -1}}, "log_std_init"),
        ("PPO", {"policy_kwargs": {"ortho_init": "False"}}, "ortho_init='False'"),
        ("PPO", {"policy_kwargs": {"optimizer_kwargs": "eps"}}, "optimizer_kwargs='eps'"),
        ("CrossQ", {"policy_kwargs": {"optimizer_kwargs": {"betas": 0.5}}}, "betas=0.5"),
        ("A2C", {"policy_kwargs": {"optimizer_kwargs": {"eps": 1e-3}}}, "optimizer_kwargs="),
        ("PPO", {"normalize": {"norm_obs": "False"}}, "norm_obs='False'"),
    ],
)
def test_what_no_constructor_takes_is_refused(algorithm, words, named):
    with pytest.raises(ValueError, match=named):
        settings_from_sb3(algorithm, words, defaults=True)


# Every keyword that the policies of Stable-Baselines3 2.9 and sb3-contrib 2.9 read, beside those of all.
_OF_CRITICS = {"net_arch": {"pi": [8], "qf": [9]}, "n_critics": 3, "share_features_extractor": False}
_BY_NORMALISATION = {"batch_norm_momentum": 0.1, "batch_norm_eps": 0.1, "renorm_warmup_steps": 9}
_OF_ACTORS = {"log_std_init": -1.0, "ortho_init": False, "squash_output": True, "share_features_extractor": False}


@pytest.mark.parametrize(
    ("algorithm", "keywords"),
    [
        ("PPO", {**_OF_ACTORS, "net_arch": {"pi": [8], "vf": [9]}}),
        ("A2C", {**_OF_ACTORS, "net_arch": {"pi": [8], "vf": [9]}}),
        ("DQN", {"net_arch": [8]}),
        ("SAC", {**_OF_CRITICS, "log_std_init": -2.0}),
        ("TQC", {**_OF_CRITICS, "log_std_init": -2.0, "n_quantiles": 5}),
        ("CrossQ", {**_OF_CRITICS, "log_std_init": -2.0, **_BY_NORMALISATION}),
        ("TD3", _OF_CRITICS),
        ("DDPG", {**_OF_CRITICS, "n_critics": 1}),
        ("ARS", {"net_arch": [8], "with_bias": False, "squash_output": True}),
    ],
)
def test_keywords_that_a_policy_reads_are_taken(algorithm, keywords):
    for given in (keywords, *({key: value} for key, value in keywords.items())):
        assert settings_from_sb3(algorithm, {"policy_kwargs": {"activation_fn": "Tanh", **given}}, defaults=True)


@pytest.mark.parametrize(
    ("algorithm", "words", "told"),
    [
        ("PPO", {"policy_kwargs": {"log_std_init": -1}, "action_space": Discrete(2)}, "log_std_init"),
        ("PPO", {"sde_sample_freq": 4}, "sde_sample_freq"),
        ("PPO", {"policy_kwargs": {"share_features_extractor": True}}, "share_features_extractor"),
        ("PPO", {"_init_setup_model": False}, "_init_setup_model"),
        ("A2C", {"sde_sample_freq": 4}, "sde_sample_freq"),
        ("SAC", {"policy_kwargs": {"log_std_init": -1}}, "log_std_init"),
        ("SAC", {"sde_sample_freq": 4}, "sde_sample_freq"),
        ("SAC", {"use_sde_at_warmup": True}, "use_sde_at_warmup"),
        ("DQN", {"replay_buffer_kwargs": {"copy_info_dict": True}}, "copy_info_dict"),
        ("ARS", {"device": "cuda"}, "device"),
    ],
)
def test_words_without_effect_are_told(algorithm, words, told, caplog, monkeypatch):
    monkeypatch.setattr(notices, "_noticed", set())
    settings_from_sb3(algorithm, words, defaults=True)
    assert told in caplog.text


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        # Stable-Baselines3: eps=1e-5 is of Adam without keywords (ActorCriticPolicy); all others have torch's defaults.
        ({"optimizer_class": "Adam"}, {"adam_epsilon": 1e-5}),
        ({"optimizer_kwargs": {"weight_decay": 0.1}}, {"adam_epsilon": 1e-8, "weight_decay": 0.1}),
        ({"optimizer_class": "AdamW"}, {"adam_epsilon": 1e-8, "weight_decay": 0.01}),
        ({"optimizer_class": "RMSprop"}, {"rmsprop_epsilon": 1e-8}),
        ({"optimizer_class": "Adam", "optimizer_kwargs": {"eps": 1e-3}}, {"adam_epsilon": 1e-3}),
    ],
)
def test_constants_of_optimizers_are_those_of_the_library(keywords, expected):
    settings = settings_from_sb3("PPO", {"policy_kwargs": keywords}, defaults=True)
    assert {name: settings.get(name) for name in expected} == expected
