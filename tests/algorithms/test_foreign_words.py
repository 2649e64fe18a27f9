"""A word of another library that a config is given means what it means there, whatever it looks like here."""

import pytest

import rllib
from rllib.algorithms.base.registry import algorithm_names
from rllib.compat.names.aliases import ELSEWHERE

# Words of Stable-Baselines3 whose nearest name here is another thing -> the setting that is meant.
MEANT = [
    *((name, "n_steps", "n_step") for name in ("DQN", "SAC", "TD3", "DDPG", "TQC", "CrossQ")),
    ("PPO", "n_steps", "train_batch_size"),
    ("PPO", "clip_range_vf", "vf_clip_param"),
    ("PPO", "clip_range", "clip_param"),
    ("PPO", "ent_coef", "entropy_coeff"),
    *((name, "ent_coef", "initial_alpha") for name in ("SAC", "TQC", "CrossQ")),
    *((name, "tensorboard_log", "log_dir") for name in ("PPO", "DQN", "SAC", "ARS")),
    ("DQN", "train_freq", "rollout_fragment_length"),
    ("SAC", "train_freq", "rollout_fragment_length"),
    ("SAC", "gradient_steps", "training_intensity"),
    ("TD3", "action_noise", "exploration_config"),
    ("PPO", "verbose", "log_level"),
    ("PPO", "device", "num_gpus"),
    ("PPO", "stats_window_size", "metrics_num_episodes_for_smoothing"),
    ("A2C", "use_rms_prop", "opt_type"),
    ("ARS", "n_delta", "num_rollouts"),
    ("ARS", "n_top", "rollouts_used"),
    ("ARS", "delta_std", "noise_stdev"),
    ("PPO", "batch_size", "sgd_minibatch_size"),
    ("DQN", "batch_size", "train_batch_size"),
    ("PPO", "policy_kwargs", "model"),
    # Of CleanRL, as docs/start/from_cleanrl.md has them.
    ("PPO", "anneal_lr", "lr"),
    ("PPO", "num_minibatches", "sgd_minibatch_size"),
    ("PPO", "norm_adv", "standardize_advantages"),
    ("PPO", "clip_vloss", "vf_clip_param"),
    ("DQN", "train_frequency", "rollout_fragment_length"),
    ("DQN", "target_network_frequency", "target_network_update_freq"),
    ("DQN", "start_e", "exploration_config"),
    ("DQN", "end_e", "exploration_config"),
]


@pytest.mark.parametrize(("algorithm", "word", "setting"), MEANT)
def test_a_known_word_goes_before_a_similar_one(algorithm, word, setting):
    config = getattr(rllib, f"{algorithm}Config")()
    with pytest.raises(TypeError, match=rf"has no setting '{word}'\. Did you mean \.\w+\({setting}=\.\.\.\)"):
        config.update_from_dict({word: 1})
    with pytest.raises(AttributeError, match=rf"has no .*'{word}'\. Did you mean \.\w+\({setting}=\.\.\.\)"):
        getattr(config, word)


@pytest.mark.parametrize(
    ("algorithm", "word", "value", "advice"),
    [
        ("PPO", "use_sde", True, r"model=\{'use_sde': True\}"),
        ("PPO", "sde_sample_freq", 4, r"model=\{'sde_sample_freq': 4\}"),
        ("SAC", "use_sde_at_warmup", True, "random_timesteps"),
        ("PPO", "rollout_buffer_class", dict, "SampleBatch"),
        ("DQN", "optimize_memory_usage", True, "frame_stack_axis"),
        ("ARS", "zero_policy", False, "initial weights"),
    ],
)
def test_what_is_no_setting_says_what_to_do(algorithm, word, value, advice):
    config = getattr(rllib, f"{algorithm}Config")()
    with pytest.raises(TypeError, match=rf"{word}=.* cannot be used: .*{advice}"):
        config.update_from_dict({word: value})


def test_every_hint_is_a_setting_of_some_algorithm():
    names = [getattr(rllib, f"{name}Config")().settings for name in algorithm_names()]
    for word, hints in ELSEWHERE.items():
        for hint in hints:
            assert any(set(hint.split("+")) <= settings.keys() for settings in names), (word, hint)
