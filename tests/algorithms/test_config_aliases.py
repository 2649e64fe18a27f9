"""Names of every era, each row of the tables."""

import inspect
import json
import logging
import re
from pathlib import Path

import gymnasium as gym
import pytest

import rllib
from rllib import notices
from rllib.algorithms.a2c import A2CConfig
from rllib.algorithms.apex import ApexDQNConfig
from rllib.algorithms.appo import APPOConfig
from rllib.algorithms.ars import ARSConfig
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from rllib.algorithms.base.settings.exploration import exploration_settings
from rllib.algorithms.crossq import CrossQConfig
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.algorithms.pg import PGConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.algorithms.sac import SACConfig
from rllib.algorithms.td3 import DDPGConfig, TD3Config
from rllib.compat.names import aliases


class Endless(gym.Env):
    """An environment without an end."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample() * 0, {}

    def step(self, action):
        return self.observation_space.sample() * 0, 1.0, False, False, {}


# A right value for each canonical setting that has other names.
VALUES = {
    "actor_lr": 1e-3,
    "critic_lr": 2e-3,
    "alpha_lr": 3e-3,
    "input_": {"obs": [[0.0]], "actions": [0]},
    "num_rollout_workers": 3,
    "num_envs_per_worker": 3,
    "num_cpus_per_worker": 2.0,
    "num_gpus_per_worker": 0.5,
    "custom_resources_per_worker": {"accelerator": 1},
    "num_cpus_for_local_worker": 1.0,
    "decay": 0.95,
    "rmsprop_epsilon": 0.1,
    "num_gpus": 1.0,
    "num_learners": 0,
    "num_cpus_per_learner": "auto",
    "train_batch_size": 512,
    "sgd_minibatch_size": 64,
    "num_sgd_iter": 5,
    "model": {"fcnet_hiddens": [8], "vf_share_layers": False},
    "evaluation_num_workers": 1,
    "evaluation_duration": 7,
    "recreate_failed_workers": False,
    "ignore_worker_failures": True,
    "max_num_worker_restarts": 5,
    "delay_between_worker_restarts_s": 0.5,
    "num_consecutive_worker_failures_tolerance": 5,
    "framework": "torch",
    "callbacks_class": int,
    "metrics_num_episodes_for_smoothing": 10,
    "rollout_fragment_length": 50,
    "lambda_": 0.5,
    "lr": 0.5,
    "min_time_s_per_iteration": 2.0,
    "min_sample_timesteps_per_iteration": 100,
    "min_train_timesteps_per_iteration": 100,
    "num_steps_sampled_before_learning_starts": 100,
    "env_wrappers": ["TimeAwareObservation"],
    "num_aggregation_workers": 1,
    "max_requests_in_flight_per_sampler_worker": 1,
    "evaluation_parallel_to_training": True,
    "grad_clip": 2.0,
    "explore": False,
    "q_model_config": {"fcnet_hiddens": [8]},
    "policy_model_config": {"fcnet_hiddens": [8]},
}
SAME_VALUE = sorted(aliases.ALIASES.keys() - aliases.VALUE_CHANGES.keys())


def config_with(canonical):
    """A config of an algorithm that has this setting."""
    return next(config() for config in (PPOConfig, DQNConfig, SACConfig, IMPALAConfig) if canonical in config.settings)


@pytest.fixture(autouse=True)
def _notices_are_new(monkeypatch):
    monkeypatch.setattr(notices, "_noticed", set())


@pytest.mark.parametrize("old", SAME_VALUE)
def test_an_old_name_sets_and_reads_the_canonical_setting(old):
    canonical = aliases.ALIASES[old]
    value = VALUES[canonical]
    config = config_with(canonical).update_from_dict({old: value})
    assert config[canonical] == config[old] == config.get(old) == value
    assert old in config
    assert old not in list(config)
    if old not in ("lambda", "callbacks"):  # a keyword of Python, and the name of a section
        assert getattr(config, old) == value
        assert config_with(canonical).__setattr__(old, value) is None


@pytest.mark.parametrize("new", sorted(aliases.RAY_2_10))
def test_a_newer_name_works_in_the_section_of_its_setting(new):
    value = VALUES[aliases.RAY_2_10[new]]
    config = config_with(aliases.RAY_2_10[new])
    getattr(config, config.settings[aliases.RAY_2_10[new]].section)(**{new: value})
    assert config[aliases.RAY_2_10[new]] == value


@pytest.mark.parametrize(
    ("old", "value", "canonical", "expected"),
    [
        ("use_pytorch", True, "framework", "torch"),
        ("use_pytorch", False, "framework", "tf"),
        ("vf_share_layers", True, "model", {"vf_share_layers": True}),
        ("buffer_size", 777, "replay_buffer_config", {"capacity": 777}),
        ("prioritized_replay", False, "replay_buffer_config", {"type": "ReplayBuffer"}),
        ("prioritized_replay_alpha", 0.5, "replay_buffer_config", {"prioritized_replay_alpha": 0.5}),
        ("prioritized_replay_beta", 0.5, "replay_buffer_config", {"prioritized_replay_beta": 0.5}),
        ("prioritized_replay_eps", 0.5, "replay_buffer_config", {"prioritized_replay_eps": 0.5}),
        ("worker_side_prioritization", True, "replay_buffer_config", {"worker_side_prioritization": True}),
        ("horizon", 10, "env_wrappers", [{"TimeLimit": {"max_episode_steps": 10}}]),
        ("remote_worker_envs", True, "gym_env_vectorize_mode", "async"),
    ],
)
def test_an_old_name_whose_value_changed_sets_the_new_value(old, value, canonical, expected):
    changed = config_with(canonical).update_from_dict({old: value})[canonical]
    assert {**changed, **expected} == changed if isinstance(expected, dict) else changed == expected
    assert old in aliases.VALUE_CHANGES
    assert old not in PPOConfig()


@pytest.mark.parametrize("mode", gym.VectorizeMode)
def test_a_mode_of_gymnasium_is_its_name(mode):
    config = PPOConfig().environment("CartPole-v1").env_runners(gym_env_vectorize_mode=mode)
    assert config.gym_env_vectorize_mode == mode.value
    assert config.settings["gym_env_vectorize_mode"].mistake(config.gym_env_vectorize_mode) is None


def test_the_switches_of_stacks_may_be_given_by_position():
    assert PPOConfig().api_stack(False, False).to_dict() == PPOConfig().to_dict()


def test_every_name_with_a_changed_value_is_among_these():
    assert aliases.VALUE_CHANGES.keys() == {
        "use_pytorch",
        "vf_share_layers",
        "buffer_size",
        "prioritized_replay",
        "prioritized_replay_alpha",
        "prioritized_replay_beta",
        "prioritized_replay_eps",
        "worker_side_prioritization",
        "horizon",
        "remote_worker_envs",
        "replay_buffer_class",
        "replay_buffer_kwargs",
        "rl_module_spec",  # tests/core/test_modules.py
        "learner_connector",  # tests/core/test_connectors.py
        *aliases.HOOKS,  # test_callback_functions.py
    }


@pytest.mark.parametrize(("name", "value"), [("horizon", None), ("remote_worker_envs", False)])
def test_an_old_name_that_asks_for_nothing_leaves_the_setting(name, value):
    config = PPOConfig().environment(env_wrappers=["TimeAwareObservation"]).rollouts(gym_env_vectorize_mode="async")
    before = config.to_dict()
    assert config.rollouts(**{name: value}).to_dict() == before


def test_a_horizon_ends_the_episodes_of_a_class():
    with PGConfig().environment(Endless).rollouts(horizon=10).build() as algo:
        assert algo.train()["episode_len_mean"] == 10


def test_zero_is_no_evaluation(caplog):
    with caplog.at_level(logging.INFO, "rllib"):
        assert PPOConfig().evaluation(evaluation_interval=0).evaluation_interval is None
    assert "evaluation_interval=0 is None here" in caplog.text


def test_an_old_name_for_a_part_of_the_model_leaves_the_rest_of_it():
    config = PPOConfig().update_from_dict({"model": {"fcnet_hiddens": [8]}, "vf_share_layers": True})
    assert config.model == {"fcnet_hiddens": [8], "vf_share_layers": True}
    config["vf_share_layers"] = False
    assert config.model == {"fcnet_hiddens": [8], "vf_share_layers": False}


@pytest.mark.parametrize("name", sorted(aliases.IGNORED))
def test_what_has_no_effect_is_accepted_and_told(name, caplog):
    before = PPOConfig().to_dict()
    with caplog.at_level(logging.INFO, "rllib"):
        config = PPOConfig().update_from_dict({name: True})
    assert config.to_dict() == before
    assert f"{name} has no effect here: {aliases.IGNORED[name]}" in caplog.messages


@pytest.mark.parametrize("name", sorted(aliases.IGNORED.keys() - aliases._OF_OTHER_STACKS))
def test_what_has_no_effect_is_a_warning_where_it_asks_for_something(name, caplog, monkeypatch):
    monkeypatch.setattr(notices, "_noticed", set())
    for _ in range(2):
        PPOConfig().update_from_dict({name: "something"})
    assert [(line.levelname, line.message) for line in caplog.records] == [
        ("WARNING", f"{name} has no effect here: {aliases.IGNORED[name]}")
    ]
    caplog.clear()
    for nothing in (None, False, {}, [], *aliases._DEFAULTS_OF_IGNORED.get(name, ())):
        PPOConfig().update_from_dict({name: nothing})
    assert not caplog.records


@pytest.mark.parametrize("name", sorted(aliases.UNAVAILABLE))
def test_what_is_not_available_is_refused_unless_it_asks_for_nothing(name):
    unavailable = aliases.UNAVAILABLE[name]
    config_class = next(config for config in (PPOConfig, DQNConfig, SACConfig) if name not in config.settings)
    before = config_class().to_dict()
    for harmless in unavailable.harmless:
        assert config_class().update_from_dict({name: harmless}).to_dict() == before
    with pytest.raises(TypeError, match=f"{name}='something' cannot be used: "):
        config_class().update_from_dict({name: "something"})


ALL = [get_algorithm_config(name) for name in algorithm_names()]


@pytest.mark.parametrize("name", sorted(name for name, ours in aliases.OF_MODEL.items() if name != ours))
def test_a_key_of_the_model_by_a_name_of_elsewhere_is_refused_with_ours(name):
    config = PPOConfig().environment("CartPole-v1").training(model={name: [8]})
    with pytest.raises(ValueError, match=f"model: there is no '{name}'. Did you mean '{aliases.OF_MODEL[name]}'"):
        config.validate()


@pytest.mark.parametrize("name", sorted(aliases.ELSEWHERE))
def test_names_of_other_libraries_are_refused_with_ours_in_every_algorithm(name):
    """The word that is known goes before one that looks alike, whether or not the algorithm has its setting."""
    used = set()
    for config in ALL:
        if name in config.settings or name in config:
            continue
        with pytest.raises(TypeError, match=f"no setting '{name}'") as raised:
            config.update_from_dict({name: 1})
        hints = [hint for hint in aliases.ELSEWHERE[name] if set(hint.split("+")) <= config.settings.keys()]
        places = [f".{config.settings[each].section}({each}=...)" for each in hints[0].split("+")] if hints else []
        used.update(hints[:1])
        sentence = f"Did you mean {' or '.join(places)}?" if places else "Its describe() lists all settings."
        assert str(raised.value).endswith(f"{name!r}. {sentence}")
    assert used == set(aliases.ELSEWHERE[name])


# What Stable-Baselines3, Ray 0.8, 2.6 and later call it, and what the message has to say.
FOREIGN_WORDS = [
    (DQNConfig, "n_steps", 3, "Did you mean .training(n_step=...)?"),
    (SACConfig, "n_steps", 3, "Did you mean .training(n_step=...)?"),
    (PPOConfig, "n_steps", 3, "Did you mean .training(train_batch_size=...)?"),
    (PPOConfig, "clip_range_vf", 0.2, "Did you mean .training(vf_clip_param=...)?"),
    (SACConfig, "ent_coef", "auto", "Did you mean .training(initial_alpha=...) or .training(target_entropy=...)?"),
    (CrossQConfig, "ent_coef", "auto", "Did you mean .training(initial_alpha=...) or .training(target_entropy=...)?"),
    (SACConfig, "hidden_layer_sizes", [64], "Did you mean .training(model={'fcnet_hiddens': ...})?"),
    (PPOConfig, "net_arch", [64], "Did you mean .training(model={'fcnet_hiddens': ...})?"),
    (PPOConfig, "activation_fn", "relu", "Did you mean .training(model={'fcnet_activation': ...})?"),
    (DQNConfig, "fcnet_hiddens", [64], "Did you mean .training(model={'fcnet_hiddens': ...})?"),
    (PPOConfig, "gpu", True, "Did you mean .resources(num_gpus=...)?"),
    (SACConfig, "tensorboard_log", "x", "Did you mean .reporting(log_dir=...)?"),
    (PPOConfig, "use_sde", True, "use .training(model={'use_sde': True})"),
    (SACConfig, "sde_sample_freq", 4, "use .training(model={'sde_sample_freq': 4})"),
    (SACConfig, "use_sde_at_warmup", True, "use exploration_config={'random_timesteps': 0}"),
    (SACConfig, "train_freq", 4, ".rollouts(rollout_fragment_length=...) or .training(training_intensity=...)?"),
    (SACConfig, "gradient_steps", 4, "Did you mean .training(training_intensity=...)?"),
    (SACConfig, "action_noise", None, "Did you mean .exploration(exploration_config=...)?"),
    (PPOConfig, "verbose", 1, "Did you mean .debugging(log_level=...)?"),
    (PPOConfig, "device", "cuda", "Did you mean .resources(num_gpus=...)?"),
    (PPOConfig, "stats_window_size", 5, "Did you mean .reporting(metrics_num_episodes_for_smoothing=...)?"),
    (PPOConfig, "rollout_buffer_class", int, "a train batch is a SampleBatch"),
    (DQNConfig, "optimize_memory_usage", True, "a replay stores every observation once"),
    (A2CConfig, "use_rms_prop", True, "Did you mean .training(opt_type=...)?"),
    (ARSConfig, "n_delta", 8, "Did you mean .training(num_rollouts=...)?"),
    (ARSConfig, "n_top", 8, "Did you mean .training(rollouts_used=...)?"),
    (ARSConfig, "delta_std", 0.1, "Did you mean .training(noise_stdev=...)?"),
    (ARSConfig, "zero_policy", False, "directions start from the policy's initial weights"),
    (ARSConfig, "alive_bonus_offset", -1, "offset="),
    (PPOConfig, "learner_connector", int, "on_postprocess_trajectory and on_learn_on_batch"),
    (DQNConfig, "num_epochs", 3, "a train batch makes one update here"),
    (SACConfig, "minibatch_size", 64, "a train batch makes one update here"),
    (PPOConfig, "circular_buffer_num_batches", 4, "has no setting 'circular_buffer_num_batches'"),
    (IMPALAConfig, "circular_buffer_iterations_per_batch", 2, "has no setting"),
    (APPOConfig, "simple_queue_size", 3, "use learner_queue_size"),
    (PPOConfig, "max_requests_in_flight_per_env_runner", 7, "each round asks every worker once"),
    (PPOConfig, "max_sample_requests_in_flight_per_worker", 7, "each round asks every worker once"),
    (PPOConfig, "_torch_lr_scheduler_classes", [int], "use a schedule"),
    (PPOConfig, "input_evaluation", ["dm"], "off_policy_estimation_methods={'is'"),
    (PPOConfig, "num_offline_eval_runners", 3, "this process evaluates on held-out episodes"),
    (PPOConfig, "offline_evaluation_type", "eval_return", "for returns use off_policy_estimation_methods"),
    (DQNConfig, "soft_q", True, "'type': 'SoftQ'"),
    (DQNConfig, "final_prioritised_replay_beta", 1, "Did you mean .training(prioritized_replay_beta=...)"),
]


@pytest.mark.parametrize(("config_class", "name", "value", "says"), FOREIGN_WORDS)
def test_a_foreign_word_is_refused_with_what_it_is_here(config_class, name, value, says):
    with pytest.raises(TypeError) as raised:
        config_class().update_from_dict({name: value})
    assert says in str(raised.value)


def test_the_exploration_of_a_dict_of_ray_0_8():
    """Its schedule's length is a product, and each of its numbers has a name of its own."""
    config = DQNConfig.from_dict(
        {"env": "CartPole-v1", "exploration_fraction": 0.2, "schedule_max_timesteps": 50_000,
         "exploration_initial_eps": 0.9, "exploration_final_eps": 0.1,
         "per_worker_exploration": False, "final_prioritized_replay_beta": 1.0}
    )  # fmt: skip
    config.validate()
    assert exploration_settings(config.exploration_config, config.default_exploration) == {
        "type": "EpsilonGreedy", "initial_epsilon": 0.9, "final_epsilon": 0.1, "epsilon_timesteps": 10_000,
        "warmup_timesteps": 0, "random_timesteps": 0,
    }  # fmt: skip
    noise = TD3Config.from_dict({"env": "Pendulum-v1", "pure_exploration_steps": 5, "exploration_gaussian_sigma": 0.3})
    noise.validate()
    assert noise.exploration_config == {"random_timesteps": 5, "stddev": 0.3}
    drifting = DDPGConfig.from_dict(
        {"env": "Pendulum-v1", "exploration_ou_theta": 0.3, "exploration_ou_sigma": 0.4,
         "exploration_ou_noise_scale": 0.5, "exploration_final_scale": 0.6,
         "exploration_fraction": 0.5, "schedule_max_timesteps": 100}
    )  # fmt: skip
    drifting.validate()
    settings = exploration_settings(drifting.exploration_config, drifting.default_exploration)
    assert [settings[key] for key in ("ou_theta", "ou_sigma", "ou_base_scale", "final_scale", "scale_timesteps")] == [
        0.3, 0.4, 0.5, 0.6, 50,
    ]  # fmt: skip


def test_one_factor_of_a_schedule_is_refused():
    """Stable-Baselines3's exploration_fraction is one of the run, which a config does not know."""
    with pytest.raises(ValueError, match="are two factors of one number of steps, and one is missing"):
        DQNConfig().environment("CartPole-v1").training(exploration_fraction=0.1).validate()


def test_pretended_gpus_are_none():
    assert PPOConfig.from_dict({"num_gpus": 4, "_fake_gpus": True}).num_gpus == 0
    assert PPOConfig.from_dict({"num_gpus": 1, "_fake_gpus": False}).num_gpus == 1


def test_towers_of_ray_are_learners():
    with pytest.raises(ValueError, match="four: num_learners=4 and num_gpus=1"):
        PPOConfig().environment("CartPole-v1").resources(num_gpus=4).validate()


def test_target_kl_and_kl_target_are_two_settings():
    """Stable-Baselines3 and CleanRL end the epochs by the first; RLlib's steers the penalty."""
    config = PPOConfig().training(target_kl=0.02)
    assert (config.target_kl, config.kl_target) == (0.02, 0.01)


@pytest.mark.parametrize(("name", "why"), sorted(aliases.UNAVAILABLE_SECTIONS.items()))
def test_sections_that_are_not_there_say_why(name, why):
    with pytest.raises(AttributeError) as raised:
        getattr(PPOConfig(), name)(something=1)
    assert why in str(raised.value)


RAYS_ARGUMENTS = json.loads((Path(__file__).parents[1] / "data/ray/arguments_2_60.json").read_text())


@pytest.mark.parametrize("algorithm", sorted(RAYS_ARGUMENTS.keys() - {"base"}))
def test_every_argument_of_rays_sections_is_known_and_its_default_taken(algorithm):
    """Arguments of Ray 2.60's section methods with their defaults, where these are literals in its source."""
    for arguments in (RAYS_ARGUMENTS["base"], RAYS_ARGUMENTS[algorithm]):
        for section, defaults in arguments.items():
            for name, default in {**defaults, **RAYS_ARGUMENTS[algorithm].get(section, {})}.items():
                getattr(get_algorithm_config(algorithm), section)(**{name: default})


@pytest.mark.parametrize(
    ("section", "guest"), [(section, guest) for section, guests in aliases.GUESTS.items() for guest in sorted(guests)]
)
def test_a_section_takes_the_settings_it_had_in_another_era(section, guest):
    config = next(kind() for kind in (PPOConfig, IMPALAConfig) if guest in kind.settings)
    value = VALUES.get(guest, config[guest])
    assert getattr(config, section)(**{guest: value})[guest] == value


def test_env_runners_take_what_newer_scripts_give_them():
    config = PPOConfig().env_runners(
        num_env_runners=4,
        num_envs_per_env_runner=2,
        rollout_fragment_length=100,
        num_cpus_per_env_runner=1,
        explore=False,
        validate_env_runners_after_construction=True,
    )
    assert (config.num_rollout_workers, config.num_envs_per_worker, config.explore) == (4, 2, False)
    assert "num_env_runners" in inspect.signature(PPOConfig.env_runners).parameters


def test_a_newer_script_configures_ppo():
    config = (
        PPOConfig()
        .api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2)
        .learners(num_learners=0, num_gpus_per_learner=0)
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .training(train_batch_size_per_learner=2000, minibatch_size=128, num_epochs=10, lr=[[0, 1e-3], [100_000, 1e-4]])
        .experimental(_disable_preprocessor_api=True)
        .fault_tolerance(restart_failed_env_runners=True)
        .evaluation(evaluation_interval=5, evaluation_num_env_runners=1)
    )
    config.validate()
    assert (config.train_batch_size, config.sgd_minibatch_size, config.num_sgd_iter) == (2000, 128, 10)
    assert config.model["fcnet_hiddens"] == [64, 64]


def test_a_dict_of_the_year_2019_configures_ppo():
    config = PPOConfig.from_dict(
        {
            "env": "CartPole-v1",
            "env_config": {"corridor_length": 5},
            "num_workers": 4,
            "num_envs_per_worker": 2,
            "sample_batch_size": 100,
            "train_batch_size": 800,
            "lambda": 0.95,
            "kl_coeff": 0.5,
            "sgd_stepsize": 1e-4,
            "sgd_minibatch_size": 128,
            "num_sgd_iter": 10,
            "vf_share_layers": True,
            "use_pytorch": True,
            "monitor": False,
            "horizon": None,
            "multiagent": {},
            "input": "sampler",
            "output": None,
            "create_env_on_driver": True,
            "num_cpus_for_driver": 1,
            "min_iter_time_s": 0,
            "timesteps_per_iteration": 0,
            "log_level": "WARN",
        }
    )
    config.validate()
    assert (config.num_rollout_workers, config.rollout_fragment_length, config.lambda_) == (4, 100, 0.95)
    assert (config.lr, config.framework_str, config.model) == (1e-4, "torch", {"vf_share_layers": True})


def test_gpus_of_driver_and_learner_may_both_be_given():
    """Scripts of Ray 2.6 give both; the learner is in the driver here."""
    config = PPOConfig().resources(num_gpus=0, num_gpus_per_learner_worker=0, num_learner_workers=0)
    assert config.num_gpus == 0
    assert PPOConfig().resources(num_gpus=0, num_gpus_per_learner_worker=1).num_gpus == 1


def test_a_mistake_names_the_setting_as_it_was_given(monkeypatch):
    config = PPOConfig().environment("CartPole-v1").learners(num_gpus_per_learner=3)
    with pytest.raises(ValueError, match=r"num_gpus=3.* num_gpus_per_learner is called num_gpus here\.$"):
        config.copy().validate()
    monkeypatch.setattr("rllib.algorithms.base.settings.updates.why_no_cuda", lambda: "there is no GPU")
    config.learners(num_gpus_per_learner=1)
    with pytest.raises(ValueError, match=r"num_gpus=1, but there is no GPU\. .* num_gpus_per_learner is called"):
        config.validate()
    config.resources(num_gpus=1)
    with pytest.raises(ValueError, match=r"Use .resources\(num_gpus=0\)\.$"):
        config.validate()
    with pytest.raises(ValueError, match=r"num_env_runners is called num_rollout_workers here\.$"):
        PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=-1).validate()


def test_a_setting_given_twice_with_the_same_value_is_given_once():
    assert PPOConfig.from_dict({"num_workers": 3, "num_rollout_workers": 3}).num_rollout_workers == 3


def test_a_section_without_effect_is_taken_with_one_notice(caplog):
    with caplog.at_level(logging.INFO, "rllib"):
        for _ in range(2):
            PPOConfig().api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
    switches = "enable_rl_module_and_learner, enable_env_runner_and_connector_v2"
    assert caplog.messages == [f"{switches} have no effect here: there is one stack, and nothing to switch"]


def test_observations_to_be_compressed_are_taken_with_a_notice(caplog):
    with caplog.at_level(logging.INFO, "rllib"):
        PPOConfig().rollouts(compress_observations=True)
    assert "compress_observations has no effect here" in caplog.text


def test_the_concurrent_filter_is_taken_with_a_notice(caplog):
    with caplog.at_level(logging.INFO, "rllib"):
        config = PPOConfig().rollouts(observation_filter="ConcurrentMeanStdFilter")
    assert config.observation_filter == "MeanStdFilter"
    assert "observation_filter='ConcurrentMeanStdFilter' is 'MeanStdFilter' here" in caplog.text


def test_the_dict_optimizer_of_apex_holds_its_settings():
    optimizer = {"num_replay_buffer_shards": 2, "max_weight_sync_delay": 200, "debug": False}
    config = ApexDQNConfig.from_dict({"optimizer": optimizer})
    assert (config.num_replay_buffer_shards, config.max_weight_sync_delay) == (2, 200)
    assert PPOConfig.from_dict({"optimizer": {}}) is not None
    with pytest.raises(TypeError, match="PPOConfig has no setting 'num_replay_buffer_shards'"):
        PPOConfig.from_dict({"optimizer": optimizer})


def test_a_setting_given_by_two_of_its_names_is_refused():
    with pytest.raises(TypeError, match="num_rollout_workers is given twice"):
        PPOConfig().update_from_dict({"num_workers": 1, "num_rollout_workers": 2})


@pytest.mark.parametrize("config_class", [PPOConfig, SACConfig, AlgorithmConfig])
def test_settings_given_to_the_constructor_are_refused_with_their_section(config_class):
    for name, setting in config_class.settings.items():
        call = f"Use {config_class.__name__}().{setting.section}({name}=None)."
        with pytest.raises(TypeError, match=re.escape(call)):
            config_class(**{name: None})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 1e-3}, "PPOConfig() takes no settings; its sections do. Use PPOConfig().training(lr=0.001)."),
        (
            {"env": "CartPole-v1", "num_workers": 2, "lr": 0.1, "gamma": 0.9},
            "PPOConfig().environment(env='CartPole-v1').rollouts(num_workers=2).training(lr=0.1, gamma=0.9).",
        ),
        ({"vf_share_layers": True}, "PPOConfig().training(vf_share_layers=True)."),
        ({"lrr": 1e-3}, "PPOConfig has no setting 'lrr'. Did you mean .training(lr=...)"),
        ({"input": "data"}, "PPOConfig().offline_data(input='data')."),
        ({"enable_connectors": True}, "enable_connectors has no effect here."),
    ],
)
def test_settings_given_to_the_constructor_are_refused_with_what_to_do(given, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        PPOConfig(**given)


def test_a_dict_given_to_the_constructor_is_refused():
    with pytest.raises(TypeError, match=r"Use PPOConfig\.from_dict"):
        PPOConfig({"lr": 1e-3})


def test_the_constructor_of_a_derived_class_may_take_arguments():
    class Mine(PPOConfig):
        def __init__(self, algo_class=None, size=1):
            super().__init__(algo_class)
            self.training(train_batch_size=size * 1000)

    assert Mine(size=2).train_batch_size == 2000


def test_the_notice_comes_once_per_name(caplog):
    with caplog.at_level(logging.INFO, "rllib"):
        PPOConfig().update_from_dict({"num_workers": 1}).update_from_dict({"num_workers": 2})
        PPOConfig().rollouts(num_rollout_workers=1)
    assert caplog.messages == ["the setting num_workers is called num_rollout_workers here"]


def test_no_name_is_in_two_tables():
    tables = (aliases.ALIASES, aliases.IGNORED, aliases.UNAVAILABLE, AlgorithmConfig.settings)
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))


# What every config of Ray 2.6 holds beside the settings that there are here, as params.json of an old run has it.
CARRIED_BY_RAY_2_6 = {
    "extra_python_environs_for_driver": {},
    "eager_max_retraces": 20,
    "tf_session_args": {"intra_op_parallelism_threads": 2},
    "torch_compile_worker": False,
    "torch_compile_learner_dynamo_mode": None,
    "action_mask_key": "action_mask",
    "env_runner_cls": None,
    "update_worker_filter_stats": True,
    "max_requests_in_flight_per_sampler_worker": 2,
    "policy_map_capacity": 100,
    "output_compress_columns": ["obs", "new_obs"],
    "ope_split_batch_by_episode": True,
    "enable_async_evaluation": False,
    "in_evaluation": False,
    "sync_filters_on_rollout_workers_timeout_s": 60.0,
    "logger_config": None,
    "rl_module_spec": None,
    "_disable_execution_plan_api": True,
}


def test_the_whole_dict_of_a_run_of_ray_is_taken():
    assert PPOConfig().update_from_dict(CARRIED_BY_RAY_2_6).to_dict() == PPOConfig().to_dict()


@pytest.mark.parametrize("config", ALL, ids=lambda config: type(config).__name__)
def test_a_dict_of_another_algorithm_sets_what_both_have(config):
    other = PPOConfig().training(lr=0.5, train_batch_size=77)
    changed = type(config)().update_from_dict(other.to_dict())
    both = [name for name, setting in config.settings.items() if name in other.settings and not setting.merged]
    assert len(both) > 100 and {name: changed[name] for name in both} == {name: other[name] for name in both}


def test_a_dict_of_another_algorithm_is_refused_where_it_asks_for_something():
    with pytest.raises(TypeError, match="SACConfig has no setting 'clip_param'"):
        SACConfig().update_from_dict(PPOConfig().training(clip_param=0.11).to_dict())
    for assign in (lambda: SACConfig().training(clip_param=0.3), lambda: setattr(SACConfig(), "clip_param", 0.3)):
        with pytest.raises((TypeError, AttributeError), match="SACConfig has no setting 'clip_param'"):
            assign()


def test_a_key_of_the_users_own_is_refused_with_the_places_for_it():
    with pytest.raises(TypeError, match=r"has no setting 'zebra'.*env_config, or into a config class of yours"):
        PPOConfig().update_from_dict({"zebra": 3})


@pytest.mark.parametrize("config", ALL, ids=lambda config: type(config).__name__)
def test_keys_of_rays_dicts_that_ask_for_nothing_are_taken(config):
    before = config.to_dict()
    for name, keys in aliases.KEYS_WITHOUT_EFFECT.items():
        for key, values in keys.items() if name in config.settings else ():
            for value in values if key not in (config.settings[name].default or ()) else ():
                assert config.update_from_dict({name: {key: value}}).to_dict() == before, (name, key, value)


def test_keys_of_rays_replay_that_ask_for_something_act_or_are_refused():
    written = {"_enable_replay_buffer_api": True, "type": "MultiAgentPrioritizedReplayBuffer", "capacity": 500}
    for is_prioritized, kind in ((True, "PrioritizedReplayBuffer"), (False, "ReplayBuffer")):
        config = DQNConfig().environment("CartPole-v1")
        config.training(replay_buffer_config={**written, "prioritized_replay": is_prioritized}).validate()
        assert (config.replay_buffer_config["type"], config.replay_buffer_config["capacity"]) == (kind, 500)
    for key, value in {"replay_mode": "lockstep", "replay_burn_in": 4, "storage_unit": "fragments"}.items():
        with pytest.raises(ValueError, match=key):
            DQNConfig().environment("CartPole-v1").training(replay_buffer_config={key: value}).validate()


@pytest.mark.parametrize("config", ALL, ids=lambda config: type(config).__name__)
def test_no_rate_for_all_networks_leaves_it_where_they_have_rates_of_their_own(config):
    """Ray's SAC refuses any other lr than None in the new API stack."""
    given = type(config)().update_from_dict({"lr": None})
    if "actor_lr" in config.settings:
        assert given.lr == config.lr
        given.lr = 0.5
        given.lr = None
        assert given.lr == 0.5
    elif "lr" in config.settings:
        assert given.settings["lr"].mistake(given.lr)


@pytest.mark.parametrize("config", ALL, ids=lambda config: type(config).__name__)
def test_own_aliases_set_a_setting(config):
    for name, (setting, change) in type(config).own_aliases.items():
        assert setting in config.settings and callable(change), name


@pytest.mark.parametrize(
    ("algorithm", "given", "setting"), [("BC", "burnin_len", "burn_in"), ("MARWIL", "burnin_len", "burn_in"),
                                        ("IQL", "weight_temp", "beta")],
)  # fmt: skip
def test_an_own_alias_sets_its_setting(algorithm, given, setting):
    assert get_algorithm_config(algorithm).training(**{given: 3})[setting] == 3


def test_switches_of_a_replay_are_read_or_refused():
    """A key that nothing reads has one value: the other is refused, and not ignored."""
    package = Path(rllib.__file__).parent
    sources = "".join(path.read_text() for path in package.rglob("*.py") if path.name != "replay_settings.py")
    checked = set()
    for config in (each for each in ALL if "replay_buffer_config" in each.settings):
        for key, value in config.settings["replay_buffer_config"].default.items():
            if not isinstance(value, bool) or re.search(rf"\.{key}\b", sources):
                continue
            checked.add(key)
            given = config.copy(copy_frozen=False).training(replay_buffer_config={key: not value})
            with pytest.raises(ValueError, match=rf"{key}={not value} must be {value}"):
                given.environment("CartPole-v1").validate()
    assert checked >= {"no_local_replay_buffer", "replay_buffer_shards_colocated_with_driver"}
