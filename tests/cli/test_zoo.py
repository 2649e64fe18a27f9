"""Files of RL Baselines3 Zoo: chosen by environment, read as data, and trained."""

import pytest

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.files.literals import read_literal
from rllib.cli.spec import load_specs

PPO = """
atari:
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  frame_stack: 4
  policy: 'CnnPolicy'
  n_envs: 8
  n_timesteps: !!float 1e7
  learning_rate: lin_2.5e-4
CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: 'MlpPolicy'
  n_steps: 32
  batch_size: 256
  learning_rate: lin_0.001
  policy_kwargs: "dict(net_arch=[16], activation_fn=nn.ReLU,
                       ortho_init=False)"
Pendulum-v0: &pendulum
  normalize: "{'norm_obs': True, 'norm_reward': False}"
  n_timesteps: 2000
  policy: 'MlpPolicy'
  policy_kwargs: dict(log_std_init=-2)
MountainCarContinuous-v0:
  <<: *pendulum
  env_wrapper: {gymnasium.wrappers.time_limit.TimeLimit: {max_episode_steps: 100}}
  frame_stack: 2
"""


def chosen(tmp_path, text, env, algorithm=None, name="ppo.yml", **more):
    path = tmp_path / name
    path.write_text(text)
    (keys,) = load_specs(path, {"env": env, "algorithm": algorithm, **more})
    return keys


def checked(keys):
    get_algorithm_config(keys["algorithm"]).environment(keys["env"]).update_from_dict(keys["config"]).validate()
    return keys["config"]


def test_a_section_becomes_a_run(tmp_path):
    keys = chosen(tmp_path, PPO, "CartPole-v1")
    assert keys["algorithm"] == "PPO" and keys["stop"] == {"timesteps_total": 100_000}
    config = checked(keys)
    assert config["train_batch_size"] == 256 and config["lr"]["timesteps"] == 100_000
    assert config["model"] == {
        "fcnet_hiddens": [16], "fcnet_activation": "relu", "fcnet_weights_initializer": "uniform",
        "vf_share_layers": False,
    }  # fmt: skip


def test_continuous_actions_are_looked_up(tmp_path):
    config = checked(chosen(tmp_path, PPO, "MountainCarContinuous-v0"))
    assert config["model"]["free_log_std"] and config["model"]["log_std_init"] == -2
    assert config["observation_filter"] == "MeanStdFilter" and not config["normalize_returns"]
    assert config["env_wrappers"] == [
        {"TimeLimit": {"max_episode_steps": 100}}, {"FrameStackObservation": {"stack_size": 2}}, "FlattenObservation"
    ]  # fmt: skip


def test_another_version_of_the_environment_gets_its_settings(tmp_path):
    keys = chosen(tmp_path, PPO, "Pendulum-v1")
    assert keys["env"] == "Pendulum-v1" and checked(keys)["observation_filter"] == "MeanStdFilter"


def test_games_share_a_section(tmp_path):
    pytest.importorskip("ale_py")
    config = checked(chosen(tmp_path, PPO, "PongNoFrameskip-v4"))
    assert config["model"]["conv_filters"] == "nature" and "env_wrappers" not in config


def test_steps_of_the_command_line_are_the_length_of_schedules(tmp_path):
    keys = chosen(tmp_path, PPO, "CartPole-v1", stop={"steps": 5000})
    assert keys["config"]["lr"]["timesteps"] == 5000 and keys["stop"] == {"timesteps_total": 5000}


def test_the_zoo_trains(rllib_command, tmp_path):
    (tmp_path / "a2c.yml").write_text(
        "CartPole-v1: {n_envs: 2, n_timesteps: 400, policy: MlpPolicy, policy_kwargs: 'dict(net_arch=[8])'}\n"
    )
    result = rllib_command("train", "-f", "a2c.yml", "vf_loss_coeff=0.25")
    assert result.exit_code == 0, result.output
    assert "timesteps_total 400 >= 400" in result.output


@pytest.mark.parametrize(
    ("algorithm", "section"),
    [
        ("SAC", "{n_timesteps: 50000, learning_rate: lin_7.3e-4, buffer_size: 50000, batch_size: 512, ent_coef: 0.1, "
         "train_freq: 32, gradient_steps: 32, gamma: 0.9999, tau: 0.01, learning_starts: 0, use_sde: true, "
         "policy_kwargs: 'dict(log_std_init=-3.67, net_arch=[64, 64])'}"),
        ("TQC", "{n_timesteps: 20000, learning_rate: 1e-3, top_quantiles_to_drop_per_net: 5}"),
        ("TD3", "{n_timesteps: 300000, noise_type: ornstein-uhlenbeck, noise_std: 0.5, gradient_steps: 1, "
         "train_freq: 1, learning_rate: 1e-3, batch_size: 256, policy_kwargs: 'dict(net_arch=[400, 300])'}"),
        ("DDPG", "{n_timesteps: 2e6, noise_type: normal, noise_std: 0.1, gradient_steps: -1, "
         "train_freq: [1, episode]}"),
        ("ARS", "{n_envs: 1, n_timesteps: 2e6, policy: MlpPolicy, normalize: 'dict(norm_obs=True, norm_reward=False)', "
         "learning_rate: 0.018, n_delta: 4, n_top: 1, delta_std: 0.1, policy_kwargs: 'dict(net_arch=[16])', "
         "zero_policy: false, alive_bonus_offset: -1}"),
    ],
)  # fmt: skip
def test_each_algorithm_has_words(tmp_path, algorithm, section):
    keys = chosen(tmp_path, f"MountainCarContinuous-v0: {section}\n", None, algorithm, "settings.yml")
    assert keys["algorithm"] == algorithm and keys["env"] == "MountainCarContinuous-v0"
    checked(keys)


@pytest.mark.parametrize(
    ("text", "env", "message"),
    [
        (PPO, None, "has settings of 3 environments. Choose one, as in --env CartPole-v1"),
        (PPO, "Acrobot-v1", "has no settings of Acrobot-v1"),
        ("CartPole-v1: {n_timesteps: 9}\nAcrobot-v1:\n", "Acrobot-v1", "the section Acrobot-v1 is empty"),
        ("CartPole-v1: {n_timesteps: 9, env_kwargs: 3}", None, "env_kwargs=3 must be a mapping"),
        ("CartPole-v1: {n_timesteps: 9, env_wrapper: [{TimeLimit: 3}]}", None, "TimeLimit=3 must be a mapping"),
        ("CartPole-v1: {n_timesteps: 0}", None, "n_timesteps=0 must be a number"),
        ("CartPole-v1: {n_timesteps: 9, n_stepss: 3}", None, "CartPole-v1: PPO has no 'n_stepss'.* mean n_steps"),
        ("CartPole-v1: {n_timesteps: 9, callback: x.Y}", None, "callback cannot be used: a file runs no code"),
        ("CartPole-v1: {n_timesteps: 9, env_wrapper: rl_zoo3.wrappers.HistoryWrapper}", None, "FrameStackObservation"),
        ('CartPole-v1: {n_timesteps: 9, policy_kwargs: \'__import__("os").system("true")\'}', None, "must be data"),
    ],
)
def test_mistakes_name_the_file_and_the_section(tmp_path, text, env, message):
    with pytest.raises(ValueError, match=message):
        chosen(tmp_path, text, env)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dict(a=[1, 2.5], b=nn.ReLU, c=dict(d=None))", {"a": [1, 2.5], "b": "nn.ReLU", "c": {"d": None}}),
        ("{'a': (1, -2), 'b': True}", {"a": (1, -2), "b": True}),
        ("HerReplayBuffer", "HerReplayBuffer"),
        ("dict(\n  a=1,\n  )", {"a": 1}),
    ],
)
def test_expressions_are_read_as_data(text, value):
    assert read_literal(text) == value


@pytest.mark.parametrize(
    "text",
    ["open('x')", "dict(**a)", "{**a}", "[x for x in y]", "1 if a else 2", "f'{x}'", "a()", "2 ** 9999999", "lambda: 1",
     "a[0]", "{[1]: 2}", "dict([1])", "getattr(a, 'b')()", "a.b(1)", "(", "", "(" * 500],
)  # fmt: skip
def test_expressions_that_would_run_are_refused(text):
    with pytest.raises(ValueError, match=r"must be data|is no expression"):
        read_literal(text)
