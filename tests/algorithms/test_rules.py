"""What the algorithms' settings exclude: each declared rule is broken, and each remedy of its mistake ends it."""

import functools
from collections.abc import Mapping

import numpy as np
import pytest

import rllib.algorithms
from rllib.algorithms.base.registry import ALGORITHMS, get_algorithm_class
from rllib.config.config_object import rules_of
from rllib.config.conflicts import SettingsError
from rllib.config.setting_types import allows

PATH = "/tmp/recorded"
DATA = {"input_": PATH}
CUSTOM = {"custom_model": "own"}
HINDSIGHT = {"type": "HindsightReplayBuffer"}
CONV = {"conv_filters": [[16, [8, 8], 4]]}
LSTM = {"use_lstm": True}
POLICIES = {"policies": ["p0", "p1"]}
WARM = {"actor_warmup_updates": 3}
TAUGHT = {"teacher": "/tmp/teacher", "teacher_coeff": 1.0}


# (algorithm, settings, names in the mistake); the mistake is one by a rule about several settings.
CASES = [
    ("A2C", {"microbatch_size": 300, "train_batch_size": 200}, "microbatch_size"),
    ("PPO", {"lr": {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}, "cost_limit": 1.0}, "cost_limit"),
    ("PPO", {"lr": {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}, "lr_schedule": [[0, 1e-3]]}, "lr"),
    ("PPO", {"recompute_advantages": True, "cost_limit": 0.0}, "recompute_advantages"),
    ("PPO", {"recompute_advantages": True, "use_critic": False, "use_gae": False}, "recompute_advantages"),
    ("PPO", {"use_critic": False}, "use_gae"),
    ("PPO", {"cost_limit": 0.0, "use_critic": False, "use_gae": False}, "cost_limit"),
    ("PPO", {"cost_limit": 0.0, "custom_loss": len}, "custom_loss"),
    ("PPO", {"cost_limit": 1.0, **POLICIES}, "cost_limit"),
    ("PPO", {"cost_limit": 1.0, "info_columns": {"cost": {"shape": [2]}}}, "info_columns"),
    ("PPO", {"cost_limit": 0.0, **TAUGHT}, "cost_limit"),
    ("PPO", {"teacher": "/tmp/teacher"}, "teacher_coeff"),
    ("PPO", {**TAUGHT, "exploration_config": {"type": "RND"}}, "exploration_config"),
    ("PPO", {**TAUGHT, **DATA}, "input_"),
    ("PPO", {"policies": {"p0": TAUGHT}, "exploration_config": {"type": "RND"}}, "exploration_config"),
    ("PPO", {"teacher_observation_keys": ["mass"], "output": PATH}, "output"),
    ("PPO", {**TAUGHT, "teacher": {"one": "/tmp/teacher"}}, "teacher_mapping_fn"),
    ("PPO", {"teacher_mapping_fn": len}, "teacher_mapping_fn"),
    ("PPO", {"teacher_observation_keys": ["a", "b"], "critic_observation_keys": ["b"]}, "critic_observation_keys"),
    ("Distillation", {"teacher": None}, "teacher"),
    ("Distillation", {"teacher": 3}, "teacher"),
    ("DAgger", {"num_learners": 2}, "aggregate"),
    ("PPO", {**WARM, "use_critic": False, "use_gae": False}, "actor_warmup_updates"),
    ("PPO", {**WARM, "lr": {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}}, "actor_warmup_updates"),
    ("A2C", {**WARM, "weight_decay": 0.1}, "weight_decay"),
    ("APPO", {**WARM, "custom_loss": len}, "custom_loss"),
    ("PPO", {**WARM, "cost_limit": 1.0}, "actor_warmup_updates"),
    ("TRPO", {"num_learners": 1}, "num_learners"),
    ("TRPO", {"use_gae": False}, "use_gae"),
    ("TRPO", {"use_critic": False, "use_gae": False}, "use_critic"),
    ("TRPO", {"opt_type": "adamw"}, "weight_decay"),
    ("IMPALA", {"rollout_fragment_length": 600}, "rollout_fragment_length"),
    ("IMPALA", {"replay_proportion": 1.0}, "replay_proportion"),
    ("IMPALA", {"minibatch_buffer_size": 2}, "minibatch_buffer_size"),
    ("IMPALA", {"num_aggregation_workers": 1, "num_rollout_workers": 0}, "num_rollout_workers"),
    ("IMPALA", {"num_aggregation_workers": 17}, "learner_queue_size"),
    ("DQN", {"sample_async": True}, "num_rollout_workers"),
    ("DQN", {"margin_weight": 1.0}, "margin_weight"),
    ("DQN", {"num_atoms": 51, "v_min": 5.0, "v_max": 5.0}, "v_min"),
    ("DQN", {"num_atoms": 51, "num_quantiles": 32}, "num_quantiles"),
    ("DQN", {"implicit_quantiles": True}, "num_quantiles"),
    ("DQN", {"implicit_quantiles": True, "num_quantiles": 8, "model": LSTM}, "model"),
    ("DQN", {"munchausen_alpha": 0.9, "num_atoms": 51, "double_q": False}, "num_atoms"),
    ("DQN", {"munchausen_alpha": 0.9}, "double_q"),
    ("DQN", {"noisy": True, "exploration_config": {"type": "SoftQ"}}, "exploration_config"),
    ("DQN", {"noisy": True, "model": {"output_layer_use_bias": False}}, "model"),
    ("DQN", {"hiddens": [0]}, "hiddens"),
    ("DQN", {"replay_buffer_config": HINDSIGHT, **DATA}, "input_"),
    ("IQL", {"disturbances": {"observation_noise": 0.1}, **DATA}, "disturbances"),
    ("DQN", {"replay_buffer_config": HINDSIGHT, "clip_rewards": True}, "clip_rewards"),
    ("DQN", {"replay_buffer_config": HINDSIGHT, "normalize_returns": True}, "normalize_returns"),
    ("DQN", {"replay_buffer_config": {"storage": "gpu"}}, "num_gpus"),
    ("DQN", {"replay_buffer_config": {"storage": "gpu"}, "num_learners": 1}, "num_learners"),
    ("DQN", {"replay_buffer_config": {"storage": "gpu"}, "input_": {"sampler": 0.5, PATH: 0.5}}, "input_"),
    ("R2D2", {"replay_buffer_config": {"storage": "gpu"}, "model": LSTM}, "replay_buffer_config"),
    ("R2D2", {"num_atoms": 51, "model": LSTM}, "use_h_function"),
    ("R2D2", {"num_quantiles": 32, "model": LSTM}, "use_h_function"),
    ("R2D2", {"munchausen_alpha": 0.9, "double_q": False, "model": LSTM}, "munchausen_alpha"),
    *(
        ("R2D2", {"replay_buffer_config": given, "model": LSTM}, "replay_buffer_config")
        for given in (HINDSIGHT, {"frame_stack_axis": 0})
    ),
    (
        "R2D2",
        {"model": {**LSTM, "post_lstm_hiddens": [16], "post_lstm_activation": "tanh"}, "hiddens": [16]},
        "hiddens",
    ),
    ("ApexDQN", {"replay_buffer_config": {"capacity": 10}}, "replay_buffer_config"),
    ("ApexDQN", {"replay_buffer_config": {"capacity": 3}, "num_replay_buffer_shards": 4}, "num_replay_buffer_shards"),
    ("ApexDDPG", {"param_resets": [10]}, "param_resets"),
    ("ApexDDPG", {"model": {"network": "simba"}}, "model"),
    ("ApexDDPG", {"model": LSTM}, "model"),
    ("ApexDDPG", {"policy_model_config": CUSTOM}, "policy_model_config"),
    ("QMIX", {"model": LSTM}, "model"),
    ("QMIX", {"model": {"free_log_std": True}}, "model"),
    ("SAC", {"cost_limit": 1.0, "model": LSTM}, "cost_limit"),
    ("SAC", {"num_atoms": 11, "model": LSTM}, "num_atoms"),
    ("SAC", {"v_min": 5.0, "v_max": 5.0}, "v_min"),
    ("SAC", {"model": {"network": "xqc"}}, "num_atoms"),
    ("SAC", {"scale_rewards": True, "v_max": -1.0}, "v_max"),
    ("SAC", {"scale_rewards": True, "normalize_returns": True}, "normalize_returns"),
    ("SAC", {"scale_rewards": True, **DATA}, "scale_rewards"),
    ("SAC", {"scale_rewards": True, "replay_buffer_config": HINDSIGHT}, "scale_rewards"),
    ("SAC", {"target_critics_sampled": 3}, "target_critics_sampled"),
    ("SAC", {"cost_limit": 0.0, "replay_buffer_config": HINDSIGHT}, "cost_limit"),
    ("SAC", {"cost_limit": 0.0, "num_atoms": 11}, "num_atoms"),
    ("SAC", {"cost_limit": 0.0, "model": {"network": "simba"}}, "cost_limit"),
    ("SAC", {"cost_limit": 0.0, **DATA}, "cost_limit"),
    ("SAC", {"param_resets": [3, 2]}, "param_resets"),
    ("SAC", {"param_resets": [10], **DATA}, "param_resets"),
    ("SAC", {"auxiliary_losses": {"mine": len}}, "auxiliary_losses"),
    ("SAC", {"learner_class": "missing"}, "learner_class"),
    ("SAC", {"model": CUSTOM}, "model"),
    ("SAC", {"policy_model_config": CUSTOM, "model": {"network": "simba"}}, "policy_model_config"),
    ("SAC", {"q_model_config": {"vf_share_layers": True}}, "q_model_config"),
    ("SAC", {"q_model_config": CONV}, "share_encoder"),
    ("SAC", {"q_model_config": {"max_seq_len": 5}}, "q_model_config"),
    ("SAC", {"zero_init_states": False}, "zero_init_states"),
    ("SAC", {"replay_buffer_config": {"replay_burn_in": 4}}, "replay_buffer_config"),
    ("SAC", {"replay_buffer_config": {"replay_sequence_length": -1}}, "replay_buffer_config"),
    ("SAC", {"model": LSTM, "policy_model_config": CUSTOM}, "policy_model_config"),
    ("SAC", {"model": {**LSTM, "network": "simba"}}, "model"),
    ("SAC", {"model": {"use_attention": True}}, "model"),
    ("SAC", {"model": LSTM, "learner": "numpy"}, "learner"),
    ("SAC", {"model": LSTM, **DATA}, "input_"),
    ("SAC", {"model": {**LSTM, "post_lstm_hiddens": []}}, "q_model_config"),
    ("SAC", {"model": {"network": "simba", "fcnet_activation": "tanh"}}, "model"),
    ("SAC", {"policy_model_config": {"free_log_std": True}}, "policy_model_config"),
    ("SAC", {"model": {"network": "simba"}, **DATA}, "input_"),
    ("SAC", {"model": {"network": "simba"}, "num_learners": 2}, "num_learners"),
    ("SAC", {"policy_model_config": {"network": "xqc"}, "num_atoms": 11}, "policy_model_config"),
    ("TQC", {"model": {"network": "xqc"}}, "model"),
    ("TQC", {"top_quantiles_to_drop_per_net": 25}, "n_quantiles"),
    ("TD3", {"model": {"use_sde": True}}, "policy_model_config"),
    ("CrossQ", {"model": LSTM}, "model"),
    ("CrossQ", {"num_learners": 2}, "num_learners"),
    ("CrossQ", {"q_model_config": {"layer_norm": True}}, "q_model_config"),
    ("CrossQ", {"policy_model_config": {"use_sde": True}}, "batch_norm_actor"),
    ("CrossQ", {"policy_model_config": CUSTOM}, "batch_norm_actor"),
    ("CrossQ", {"q_model_config": CUSTOM}, "q_model_config"),
    ("BC", {"bc_loss": "mse", "bc_logstd_coeff": 0.1, **DATA}, "bc_logstd_coeff"),
    ("GAIL", {"gamma": 1.0}, "absorbing"),
    ("GAIL", {"discriminator_inputs": ["actions"]}, "discriminator_inputs"),
    ("GAIL", {"normalize_returns": True}, "normalize_returns"),
    ("GAIL", {"time_limit_ends_episode": True}, "time_limit_ends_episode"),
    ("AIRL", {"time_limit_ends_episode": True}, "time_limit_ends_episode"),
    ("GAILSAC", {"time_limit_ends_episode": True}, "time_limit_ends_episode"),
    ("GAIL", {"observation_filter": "MeanStdFilter", "rollout_fragment_length": 8}, "observation_filter"),
    ("GAIL", {"observation_filter": "MeanStdFilter", "batch_mode": "complete_episodes"}, "observation_filter"),
    ("GAIL", {"observation_filter": "MeanStdFilter", "sample_quorum": 0.5}, "sample_quorum"),
    ("GAILSAC", {"observation_filter": "MeanStdFilter"}, "observation_filter"),
    ("GAIL", {"use_gae": False, "use_critic": False}, "use_critic"),
    ("GAIL", {"demonstrations": None}, "demonstrations"),
    ("GAIL", {"off_policy_estimation_methods": {"is": {"type": "is"}}}, "off_policy_estimation_methods"),
    ("GAIL", {"label_smoothing": 0.1, "reward_form": "lsgan"}, "label_smoothing"),
    ("GAILSAC", {"n_step": 2}, "n_step"),
    ("GAILSAC", {"replay_buffer_config": HINDSIGHT}, "replay_buffer_config"),
    ("GAILSAC", {"replay_buffer_config": {"storage": "gpu"}, "num_gpus": 1}, "replay_buffer_config"),
    ("AIRL", {"absorbing": True}, "absorbing"),
    ("AIRL", {"discriminator_inputs": ["actions"]}, "discriminator_inputs"),
    ("SQIL", {"input_": {PATH: 0.5, f"{PATH}2": 0.5}}, "input_"),
    ("AIRL", {"reward_form": "gail"}, "reward_form"),
    ("SQIL", {"reward_scale": 2.0, **DATA}, "reward_scale"),
    ("ReBRAC", {"input_": {"sampler": 0.5, PATH: 0.5}}, "input_"),
    ("IQL", {"policy_model_config": CUSTOM, **DATA}, "policy_model_config"),
    ("ES", {"noise_size": 10**15}, "noise_size"),
    ("ES", {"model": CUSTOM}, "model"),
    ("ES", {"model": {"use_sde": True}}, "model"),
    ("IQL", {"policy_model_config": {"use_sde": True}, **DATA}, "policy_model_config"),
]  # fmt: skip


def config_of(name: str, settings: Mapping):
    config = get_algorithm_class(name).get_default_config().environment("CartPole-v1")
    needs_data = config.needs_data and "input_" not in settings
    if "demonstrations" in config.settings and "demonstrations" not in settings:
        config.offline_data(demonstrations=PATH)
    taught = TAUGHT if config.get("teacher_coeff") else {}
    return config.update_from_dict({**taught, **settings, **(DATA if needs_data else {})})


def mistakes_of(config) -> list:
    return list(config.mistakes())


def broken_rules(config) -> dict:
    """Rule -> its mistake, of those about several settings."""
    found = {}
    for rule, (names, check) in rules_of(type(config)).items():
        if all(name in config.settings for name in names) and (mistake := check(config)):
            found[check if hasattr(check, "__relates__") else rule] = mistake
    return found


def after(config, remedy: Mapping):
    return config.copy(copy_frozen=False).apply(remedy)


@pytest.mark.parametrize(("algorithm", "settings", "name"), CASES, ids=lambda value: None)
def test_each_remedy_ends_the_mistake(algorithm, settings, name):
    config = config_of(algorithm, settings)
    with pytest.raises(SettingsError) as caught:
        config.validate()
    assert any(name in mistake.names for mistake in caught.value.mistakes)
    for rule, mistake in broken_rules(config).items():
        assert not isinstance(mistake, str)
        assert set(mistake.names) <= config.settings.keys()
        for remedy in mistake.remedies:
            assert rule not in broken_rules(after(config, remedy)), remedy


@pytest.mark.parametrize(("algorithm", "settings", "name"), CASES, ids=lambda value: None)
def test_the_first_remedies_end_them_all(algorithm, settings, name):
    """A program that applies remedies arrives at settings that are right."""
    config = config_of(algorithm, settings)
    for _ in range(5):
        mistakes = mistakes_of(config)
        if not mistakes:
            return
        without = [mistake for mistake in mistakes if not mistake.remedies]
        assert all(mistake.advice for mistake in without)
        if without:
            return
        config = after(config, mistakes[0].remedies[0])
    assert not mistakes_of(config)


REFUSED = sorted(
    {
        (algorithm, name)
        for algorithm in ALGORITHMS
        for base in get_algorithm_class(algorithm).config_class.__mro__
        for name in vars(base).get("refuses", {})
    }
)
# Other values than the defaults, of settings whose type does not tell one.
OTHERS = {
    "opt_type": "sgd",
    "grad_clip_by": "value",
    "learner": "torch",
    "batch_mode": "complete_episodes",
    "torch_autocast": "bfloat16",
    "torch_matmul_precision": "high",
    "learner_collective": "gloo",
    "lr_schedule": [[0, 0.1]],
    "auxiliary_losses": {"mine": len},
    "custom_loss": len,
    "learner_class": "missing",
    "learner_config_dict": {"mine": 1},
    "clip_rewards": True,
    "rollout_fragment_length": 7,
    "param_resets": [10],
    "grad_clip": 0.5,
    "weight_decay": 0.1,
    "target_critics_sampled": 1,
    "cost_limit": 0.0,
    "momentum": 0.5,
    "teacher": "/tmp/teacher",
    "actor_warmup_updates": 3,
}


@pytest.mark.parametrize(("algorithm", "name"), REFUSED)
def test_a_refused_setting_is_named_with_its_default(algorithm, name):
    config = config_of(algorithm, {})
    default = config.settings[name].default
    other = OTHERS.get(name, (not default) if isinstance(default, bool) else None)
    config.update_from_dict({name: default / 2 + 0.25 if other is None and type(default) is float else other})
    if config[name] is None or config[name] == default:
        config.update_from_dict({name: 2 if default != 2 else 3})
    (mistake,) = [mistake for mistake in mistakes_of(config) if mistake.names == (name,)][:1]
    assert mistake.remedies == ({name: default},)
    assert not any(each.names == (name,) for each in mistakes_of(after(config, mistake.remedies[0])))


@functools.cache
def rules_that_are_broken() -> frozenset:
    return frozenset(rule for algorithm, settings, _ in CASES for rule in broken_rules(config_of(algorithm, settings)))


def test_no_rule_of_the_algorithms_is_left_out():
    """A new rule needs a case."""
    own = set()
    for algorithm in ALGORITHMS:
        for base in get_algorithm_class(algorithm).config_class.__mro__:
            if base.__module__.startswith(rllib.algorithms.__name__) and ".base." not in base.__module__:
                own |= {rule for rule in vars(base).get("conflicts", ())}
                own |= {member for member in vars(base).values() if hasattr(member, "__relates__")}
    left_out = own - rules_that_are_broken()
    assert [getattr(rule, "__qualname__", None) or (rule.names, rule.why) for rule in left_out] == []


def test_numbers_in_remedies_are_settings_of_the_right_type():
    for algorithm, settings, _ in CASES:
        config = config_of(algorithm, settings)
        for mistake in mistakes_of(config):
            for remedy in mistake.remedies:
                assert not any(isinstance(value, np.generic) for value in remedy.values())
                after(config, remedy)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_a_number_that_could_be_a_schedule_is_finite(name):
    """Schedules have no other numbers, and would say so without the name of the setting."""
    settings = get_algorithm_class(name).config_class.settings
    for setting in (each for each in settings.values() if allows(each.type, list) and allows(each.type, float)):
        mistake = setting.mistake(np.inf)
        assert mistake is not None and mistake.names == (setting.name,), setting.name
        assert "finite" in mistake.problem or "<=" in mistake.problem


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_a_schedule_keeps_to_the_rule_of_its_setting(name):
    """A function that fell below zero, as by 1 - t / T after T steps, made learning rates and clips negative."""
    config_class = get_algorithm_class(name).config_class
    for setting in config_class.settings.values():
        if not allows(setting.type, list) or setting.range is None:
            continue

        def leaves(timestep, bound=setting.range.low):
            return bound + (1 - timestep / 100) / 2

        config = config_class().update_from_dict({setting.name: leaves})
        schedule = config.get_schedule(setting.name.removesuffix("_schedule"))
        assert schedule(100) == setting.range.low
        with pytest.raises(ValueError, match=f"^{setting.name}=.* must return a number .*, but gave .* at 101 "):
            schedule(101)
