"""Every default is that of RLlib 2.6.3, or stands in default_differences.py with the reason."""

import math

import pytest

from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from rllib.cli.default_differences import DEFAULT_DIFFERENCES, NOT_IN_RLLIB, default_differences
from rllib.models.model_settings import ModelSettings

# What the __init__ of RLlib 2.6.3's AlgorithmConfig sets, of what has a setting here.
COMMON = {
    "num_gpus": 0, "num_cpus_per_worker": 1, "num_gpus_per_worker": 0, "num_cpus_for_local_worker": 1,
    "num_learners": 0, "num_cpus_per_learner": 1, "custom_resources_per_worker": {}, "framework": "torch",
    "env": None, "env_config": {}, "observation_space": None, "action_space": None, "render_env": False,
    "input_": "sampler",
    "clip_rewards": None, "normalize_actions": True, "clip_actions": False, "disable_env_checking": False,
    "num_rollout_workers": 0, "num_envs_per_worker": 1, "rollout_fragment_length": 200,
    "batch_mode": "truncate_episodes", "preprocessor_pref": "deepmind", "observation_filter": "NoFilter",
    "gamma": 0.99, "lr": 0.001, "grad_clip": None, "grad_clip_by": "global_norm", "train_batch_size": 32,
    "explore": True, "evaluation_interval": None, "evaluation_duration": 10, "evaluation_duration_unit": "episodes",
    "evaluation_config": None, "evaluation_num_workers": 0, "keep_per_episode_custom_metrics": False,
    "metrics_num_episodes_for_smoothing": 100, "min_time_s_per_iteration": None,
    "min_train_timesteps_per_iteration": 0, "min_sample_timesteps_per_iteration": 0,
    "export_native_model_files": False, "checkpoint_trainable_policies_only": False, "log_level": "WARN",
    "log_sys_usage": True, "seed": None, "ignore_worker_failures": False, "recreate_failed_workers": False,
    "max_num_worker_restarts": 1000, "delay_between_worker_restarts_s": 60.0,
    "restart_failed_sub_environments": False, "num_consecutive_worker_failures_tolerance": 100,
    "exploration_config.type": "StochasticSampling", "evaluation_config.explore": True,
    "model.fcnet_hiddens": [256, 256], "model.fcnet_activation": "tanh", "model.conv_filters": None,
    "model.conv_activation": "relu", "model.post_fcnet_hiddens": [], "model.post_fcnet_activation": "relu",
    "model.free_log_std": False, "model.vf_share_layers": True, "model.framestack": True, "model.dim": 84,
}  # fmt: skip
# And those of each algorithm, over its parent's.
PG = {**COMMON, "lr_schedule": None, "lr": 4e-4, "rollout_fragment_length": "auto", "train_batch_size": 200}
A3C = {
    **COMMON, "use_critic": True, "use_gae": True, "lambda_": 1.0, "grad_clip": 40.0, "lr_schedule": None,
    "vf_loss_coeff": 0.5, "entropy_coeff": 0.01, "entropy_coeff_schedule": None, "num_rollout_workers": 2,
    "rollout_fragment_length": 10, "lr": 1e-4, "min_time_s_per_iteration": 5,
    "max_requests_in_flight_per_sampler_worker": 2,
}  # fmt: skip
A2C = {**A3C, "microbatch_size": None, "rollout_fragment_length": "auto", "min_time_s_per_iteration": 10}
PPO = {
    **PG, "use_critic": True, "use_gae": True, "lambda_": 1.0, "use_kl_loss": True, "kl_coeff": 0.2,
    "kl_target": 0.01, "sgd_minibatch_size": 128, "num_sgd_iter": 30, "shuffle_sequences": True, "vf_loss_coeff": 1.0,
    "entropy_coeff": 0.0, "entropy_coeff_schedule": None, "clip_param": 0.3, "vf_clip_param": 10.0,
    "num_rollout_workers": 2, "train_batch_size": 4000, "lr": 5e-5, "model.vf_share_layers": False,
}  # fmt: skip
IMPALA = {
    **COMMON, "vtrace": True, "vtrace_clip_rho_threshold": 1.0, "vtrace_clip_pg_rho_threshold": 1.0,
    "minibatch_buffer_size": 1, "num_sgd_iter": 1, "replay_proportion": 0.0, "replay_buffer_num_slots": 0,
    "learner_queue_size": 16, "learner_queue_timeout": 300, "max_requests_in_flight_per_sampler_worker": 2,
    "broadcast_interval": 1, "num_aggregation_workers": 0, "grad_clip": 40.0, "opt_type": "adam", "lr_schedule": None,
    "decay": 0.99, "momentum": 0.0, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01,
    "rmsprop_epsilon": 0.1,  # named epsilon there
    "entropy_coeff_schedule": None, "rollout_fragment_length": 50, "train_batch_size": 500, "num_rollout_workers": 2,
    "num_gpus": 1, "lr": 5e-4, "min_time_s_per_iteration": 10,
}  # fmt: skip
APPO = {
    **IMPALA, "lambda_": 1.0, "clip_param": 0.4, "use_kl_loss": False, "kl_coeff": 1.0, "kl_target": 0.01,
    "num_gpus": 0, "target_update_frequency": 1, "replay_buffer_num_slots": 100, "tau": 1.0,
}  # fmt: skip
SIMPLE_Q = {
    **COMMON, "target_network_update_freq": 500, "num_steps_sampled_before_learning_starts": 1000,
    "store_buffer_in_checkpoints": False, "lr_schedule": None, "adam_epsilon": 1e-8, "grad_clip": 40.0, "tau": 1.0,
    "rollout_fragment_length": 4, "lr": 5e-4, "min_sample_timesteps_per_iteration": 1000,
    "evaluation_config.explore": False, "exploration_config.type": "EpsilonGreedy",
    "exploration_config.initial_epsilon": 1.0, "exploration_config.final_epsilon": 0.02,
    "exploration_config.epsilon_timesteps": 10_000, "replay_buffer_config.type": "MultiAgentReplayBuffer",
    "replay_buffer_config.capacity": 50_000, "replay_buffer_config.replay_sequence_length": 1,
}  # fmt: skip
DQN = {
    **SIMPLE_Q, "num_atoms": 1, "v_min": -10.0, "v_max": 10.0, "noisy": False, "sigma0": 0.5, "dueling": True,
    "hiddens": [256], "double_q": True, "n_step": 1, "training_intensity": None, "td_error_loss_fn": "huber",
    "rollout_fragment_length": "auto", "replay_buffer_config.type": "MultiAgentPrioritizedReplayBuffer",
    "replay_buffer_config.prioritized_replay_alpha": 0.6, "replay_buffer_config.prioritized_replay_beta": 0.4,
    "replay_buffer_config.prioritized_replay_eps": 1e-6, "replay_buffer_config.worker_side_prioritization": False,
}  # fmt: skip
APEX_DQN = {
    **DQN, "max_weight_sync_delay": 400, "num_replay_buffer_shards": 4, "n_step": 3, "train_batch_size": 512,
    "target_network_update_freq": 500_000, "training_intensity": 1, "num_steps_sampled_before_learning_starts": 50_000,
    "max_requests_in_flight_per_replay_worker": float("inf"), "max_requests_in_flight_per_sampler_worker": 2,
    "replay_buffer_config.capacity": 2_000_000, "replay_buffer_config.worker_side_prioritization": True,
    "num_rollout_workers": 32, "rollout_fragment_length": 50, "num_gpus": 1, "min_time_s_per_iteration": 30,
    "min_sample_timesteps_per_iteration": 25_000, "exploration_config": {"type": "PerWorkerEpsilonGreedy"},
}  # fmt: skip
for _name in ("type", "initial_epsilon", "final_epsilon", "epsilon_timesteps"):
    del APEX_DQN[f"exploration_config.{_name}"]
R2D2 = {
    **DQN, "zero_init_states": True, "use_h_function": True, "h_function_epsilon": 1e-3, "adam_epsilon": 1e-3,
    "lr": 1e-4, "gamma": 0.997, "train_batch_size": 1000, "target_network_update_freq": 1000,
    "training_intensity": 150, "num_rollout_workers": 2, "batch_mode": "complete_episodes",
    "replay_buffer_config.type": "MultiAgentReplayBuffer", "replay_buffer_config.capacity": 100_000,
    "replay_buffer_config.storage_unit": "sequences", "replay_buffer_config.replay_sequence_length": -1,
    "replay_buffer_config.replay_burn_in": 0,
}  # fmt: skip
for _name in ("alpha", "beta", "eps"):
    del R2D2[f"replay_buffer_config.prioritized_replay_{_name}"]
del R2D2["replay_buffer_config.worker_side_prioritization"]
QMIX = {
    **SIMPLE_Q, "mixer": "qmix", "mixing_embed_dim": 32, "double_q": True, "grad_clip": 10.0,
    "decay": 0.99, "rmsprop_epsilon": 1e-5,  # named optim_alpha and optim_eps there
    "batch_mode": "complete_episodes", "min_time_s_per_iteration": 1, "exploration_config.final_epsilon": 0.01,
    "exploration_config.epsilon_timesteps": 40_000, "replay_buffer_config.type": "ReplayBuffer",
    "replay_buffer_config.capacity": 1000,
}  # fmt: skip
_ACTOR_CRITIC = {
    **COMMON, "n_step": 1, "training_intensity": None, "store_buffer_in_checkpoints": False,
    "target_network_update_freq": 0, "train_batch_size": 256, "rollout_fragment_length": "auto",
    "num_steps_sampled_before_learning_starts": 1500, "model.fcnet_activation": "relu", "adam_epsilon": 1e-8,
    "replay_buffer_config.type": "MultiAgentPrioritizedReplayBuffer", "replay_buffer_config.capacity": 1_000_000,
    "replay_buffer_config.prioritized_replay_alpha": 0.6, "replay_buffer_config.prioritized_replay_beta": 0.4,
    "replay_buffer_config.prioritized_replay_eps": 1e-6, "replay_buffer_config.worker_side_prioritization": False,
}  # fmt: skip
# Its rates are those of RLlib's `optimization`, its layers those of q_model_config and policy_model_config.
SAC = {
    **_ACTOR_CRITIC, "twin_q": True, "tau": 5e-3, "initial_alpha": 1.0, "target_entropy": "auto", "lr": 3e-4,
    "min_time_s_per_iteration": 1, "min_sample_timesteps_per_iteration": 100,
}  # fmt: skip
_DETERMINISTIC = {
    **{name: default for name, default in _ACTOR_CRITIC.items() if not name.startswith("exploration_config")},
    "evaluation_config.explore": False, "target_noise": 0.2, "target_noise_clip": 0.5, "use_huber": False,
    "huber_threshold": 1.0, "lr": 1e-3, "model.fcnet_hiddens": [400, 300], "min_time_s_per_iteration": None,
    "min_sample_timesteps_per_iteration": 1000,
}  # fmt: skip
DDPG = {
    **_DETERMINISTIC, "twin_q": False, "policy_delay": 1, "smooth_target_policy": False, "l2_reg": 1e-6, "tau": 0.002,
    "replay_buffer_config.capacity": 50_000,
    "exploration_config": {
        "type": "OrnsteinUhlenbeckNoise", "random_timesteps": 1000, "ou_base_scale": 0.1, "ou_theta": 0.15,
        "ou_sigma": 0.2, "initial_scale": 1.0, "final_scale": 0.02, "scale_timesteps": 10_000,
    },
}  # fmt: skip
TD3 = {
    **_DETERMINISTIC, "twin_q": True, "policy_delay": 2, "smooth_target_policy": True, "l2_reg": 0.0, "tau": 5e-3,
    "train_batch_size": 100, "num_steps_sampled_before_learning_starts": 10_000,
    "replay_buffer_config.type": "MultiAgentReplayBuffer",
    "exploration_config": {
        "type": "GaussianNoise", "random_timesteps": 10_000, "stddev": 0.1, "initial_scale": 1.0, "final_scale": 1.0,
        "scale_timesteps": 1,
    },
}  # fmt: skip
APEX_DDPG = {
    **DDPG, "max_weight_sync_delay": 400, "num_replay_buffer_shards": 4, "n_step": 3, "train_batch_size": 512,
    "target_network_update_freq": 500_000, "training_intensity": 1, "num_steps_sampled_before_learning_starts": 50_000,
    "max_requests_in_flight_per_replay_worker": float("inf"), "max_requests_in_flight_per_sampler_worker": 2,
    "replay_buffer_config.capacity": 2_000_000, "replay_buffer_config.worker_side_prioritization": True,
    "num_rollout_workers": 32, "rollout_fragment_length": 50, "min_time_s_per_iteration": 30,
    "min_sample_timesteps_per_iteration": 25_000, "exploration_config": {"type": "PerWorkerOrnsteinUhlenbeckNoise"},
}  # fmt: skip
_EVOLUTION = {
    **COMMON, "noise_stdev": 0.02, "noise_size": 250_000_000, "eval_prob": 0.03, "report_length": 10,
    "observation_filter": "MeanStdFilter", "evaluation_config.explore": False,
}  # fmt: skip
ES = {
    **_EVOLUTION, "action_noise_std": 0.01, "l2_coeff": 0.005, "episodes_per_batch": 1000, "stepsize": 0.01,
    "train_batch_size": 10_000, "num_rollout_workers": 10,
}  # fmt: skip
ARS = {
    **_EVOLUTION, "action_noise_std": 0.0, "num_rollouts": 32, "rollouts_used": 32, "sgd_stepsize": 0.01, "offset": 0,
    "num_rollout_workers": 2, "model.output_layer_use_bias": True,
}  # fmt: skip
MARWIL = {
    **COMMON, "beta": 1.0, "bc_logstd_coeff": 0.0, "moving_average_sqd_adv_norm_update_rate": 1e-8,
    "moving_average_sqd_adv_norm_start": 100.0, "use_gae": True, "vf_coeff": 1.0, "lr": 1e-4, "train_batch_size": 2000,
}  # fmt: skip
BC = {**MARWIL, "beta": 0.0}
CQL = {
    **SAC, "bc_iters": 20_000, "temperature": 1.0, "num_actions": 10, "lagrangian": False, "lagrangian_thresh": 5.0,
    "min_q_weight": 5.0, "min_sample_timesteps_per_iteration": 0, "min_train_timesteps_per_iteration": 100,
}  # fmt: skip
RLLIB = {
    "PG": PG, "A2C": A2C, "A3C": A3C, "PPO": PPO, "IMPALA": IMPALA, "APPO": APPO, "SimpleQ": SIMPLE_Q, "DQN": DQN,
    "ApexDQN": APEX_DQN, "R2D2": R2D2, "QMix": QMIX, "SAC": SAC, "TD3": TD3, "DDPG": DDPG,
    "ApexDDPG": APEX_DDPG, "ES": ES, "ARS": ARS, "BC": BC, "MARWIL": MARWIL, "CQL": CQL,
}  # fmt: skip
# RLlib's A2C is its A3C's child, but asks for nothing ahead.
del A2C["max_requests_in_flight_per_sampler_worker"]


def ours(config, name):
    """The default of a setting, or of a key of one."""
    name, _, key = name.partition(".")
    if not key:
        return config[name]
    if name == "evaluation_config":
        return False  # evaluations explore only where evaluation_config says so
    return {**(ModelSettings.defaults() if name == "model" else {}), **config[name]}[key]


def test_all_algorithms_are_compared():
    assert {*RLLIB, *NOT_IN_RLLIB} == set(algorithm_names())


@pytest.mark.parametrize("algorithm", RLLIB)
def test_defaults_are_rllibs_or_declared_with_a_reason(algorithm):
    config = get_algorithm_config(algorithm)
    declared = {
        difference.setting: (difference.rllib, difference.ours) for difference in default_differences(algorithm)
    }
    assert declared.keys() <= RLLIB[algorithm].keys()
    for name, default in RLLIB[algorithm].items():
        assert (default, ours(config, name)) == declared.get(name, (default, default)), name


def test_what_is_declared_differs_and_has_a_reason():
    for difference in DEFAULT_DIFFERENCES:
        assert difference.rllib != difference.ours and difference.reason.endswith(".")
        assert set(difference.algorithms) <= set(RLLIB)


@pytest.mark.parametrize("algorithm", NOT_IN_RLLIB)
def test_what_rllib_does_not_have_departs_from_nothing(algorithm):
    assert default_differences(algorithm) == []


@pytest.mark.parametrize("algorithm", algorithm_names())
def test_default_targets_follow(algorithm):
    """Half the way within a million environment steps: a small tau is for moves with each update."""
    config = get_algorithm_config(algorithm)
    names = "tau", "target_network_update_freq"
    if not all(name in config.settings and name not in config.refuses for name in names):
        return
    share, every = (config[name] for name in names)
    moves = 1 if share >= 0.5 else math.log(0.5) / math.log1p(-share)
    assert moves * max(every, 1) <= 1_000_000
