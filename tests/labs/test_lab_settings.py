"""Settings of tasks: this library's entry points in every form, those for rsl_rl, and the defaults."""

import gymnasium
import pytest

from rllib import PPOConfig
from rllib.env.suites.labs.simulation import check_task
from rllib.env.suites.labs.task_config import change
from rllib.labs.command import ENTRY_POINT
from rllib.labs.entry_points import settings_of
from rllib.labs.rsl_rl_settings import from_rsl_rl


def of(task, changes=(), lab="isaaclab", key=ENTRY_POINT, **env_config):
    check_task(lab, task, env_config)
    return settings_of(lab, task, key, dict(changes))


def test_the_defaults_are_those_of_locomotion(labs):
    """isaaclab_tasks/.../velocity/config/anymal_d/agents/rsl_rl_ppo_cfg.py: AnymalDRoughPPORunnerCfg."""
    found = of("Isaac-Point-Bare-v0")
    assert "rllib_cfg_entry_point" in found.source and "locomotion" in found.source
    keys, config = found.keys, found.keys["config"]
    assert (keys["max_iterations"], keys["save_interval"], keys["num_mini_batches"]) == (1500, 50, 4)
    assert config["lr"] == {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}
    wanted = {
        "rollout_fragment_length": 24, "num_sgd_iter": 5, "clip_param": 0.2, "vf_clip_param": 0.2, "gamma": 0.99,
        "lambda_": 0.95, "entropy_coeff": 0.005, "vf_loss_coeff": 1.0, "grad_clip": 1.0, "use_kl_loss": False,
    }  # fmt: skip
    assert {name: config[name] for name in wanted} == wanted
    model = config["model"]
    assert model["fcnet_hiddens"] == model["vf_hiddens"] == [512, 256, 128] and model["fcnet_activation"] == "elu"
    assert model["free_log_std"] and model["log_std_init"] == 0.0 and not model["vf_share_layers"]
    PPOConfig().update_from_dict(config)


def test_settings_for_rsl_rl_are_translated(labs):
    found = of("Isaac-Point-v0")
    assert "rsl_rl_cfg_entry_point" in found.source
    keys, config = found.keys, found.keys["config"]
    assert (keys["seed"], keys["max_iterations"], keys["experiment_name"]) == (7, 2, "point_of_rsl_rl")
    assert config["lr"] == {"type": "kl_adaptive", "initial": 5e-4, "desired_kl": 0.02}
    assert config["vf_clip_param"] == config["clip_param"] == 0.25 and config["vf_loss_coeff"] == 0.5
    assert config["observation_filter"] == "MeanStdFilter" and config["observation_clip"] is None
    assert config["model"]["fcnet_hiddens"] == [32, 16] and config["model"]["vf_hiddens"] == [48]
    assert config["model"]["log_std_init"] == pytest.approx(-0.693, abs=1e-3)
    PPOConfig().update_from_dict(config)


def test_settings_of_mjlab_are_translated(labs):
    keys = of("Mjlab-Point", lab="mjlab").keys
    assert keys["group"] == "actor" and keys["critic_group"] == "critic"
    assert keys["config"]["model"]["fcnet_hiddens"] == [32] and keys["config"]["model"]["vf_hiddens"] == [24, 24]


def test_another_keyword_or_a_file_is_named(labs):
    """Isaac Lab's tasks have further settings for rsl_rl, such as rsl_rl_with_symmetry_cfg_entry_point."""
    found = of("Isaac-Point-Own-v0", key="rsl_rl_other_cfg_entry_point")
    assert "of rsl_rl_other_cfg_entry_point" in found.source and found.keys["config"]["gamma"] == 0.98
    for lab, task in (("isaaclab", "Isaac-Point-v0"), ("mjlab", "Mjlab-Point")):
        for key in ("isaaclab_tasks.agents.own:point", "isaaclab_tasks.agents:point.yaml"):
            found = of(task, lab=lab, key=key)
            assert found.source == f"--agent {key}" and found.keys["config"]["model"]["fcnet_hiddens"] in (
                [8],
                [32, 32],
            )
        for key, message in (
            ("mine", r"is registered without 'mine'\. .*MODULE:FILE\.yaml"),
            ("absent.module:name", "--agent absent.module:name cannot be imported: No module named 'absent'"),
            ("absent.yaml", "--agent='absent.yaml' names the file absent.yaml, which there is not"),
        ):
            with pytest.raises(ValueError, match=message):
                of(task, lab=lab, key=key)


@pytest.mark.parametrize(
    ("sets", "groups"),
    [
        ({"policy": ["policy"], "critic": ["policy", "critic"]}, {"group": "policy", "critic_group": "critic"}),
        ({"policy": ["policy"], "critic": ["policy"]}, {"group": "policy", "critic_group": None}),
        ({"actor": ("state",)}, {"group": "state"}),
    ],
)
def test_the_value_reads_what_the_settings_say(sets, groups):
    keys, _ = from_rsl_rl({"obs_groups": sets})
    assert {name: keys[name] for name in ("group", "critic_group") if name in keys} == groups


def test_without_a_desired_kl_the_rate_is_fixed():
    keys, _ = from_rsl_rl({"algorithm": {"desired_kl": None, "learning_rate": 3e-4}})
    assert keys["config"]["lr"] == 3e-4
    PPOConfig().update_from_dict(keys["config"])


def test_what_has_no_counterpart_is_said():
    algorithm = {"symmetry_cfg": {"use": 1}, "optimizer": "adamw", "schedule": "fixed", "learning_rate": 1e-4}
    keys, left_out = from_rsl_rl({"algorithm": algorithm, "policy": {"activation": "crelu"}})
    assert [each.partition("=")[0] for each in left_out] == ["symmetry_cfg", "optimizer", "activation"]
    assert keys["config"]["lr"] == 1e-4
    _, left_out = from_rsl_rl({"algorithm": {"class_name": "mine:MyPPO"}, "actor": {"obs_normalization": True},
                               "critic": {"obs_normalization": False, "activation": "relu"}})  # fmt: skip
    assert [each.partition("=")[0] for each in left_out] == ["class_name", "normalization", "activation"]


@pytest.mark.parametrize(
    "runner",
    [
        {"policy": {"class_name": "ActorCriticRecurrent"}},
        {"class_name": "DistillationRunner"},
        {"actor": {"rnn_type": "lstm"}},
        {"actor": {"cnn_cfg": {"kernel_size": 3}}},
        {"obs_groups": {"actor": ["policy", "images"]}},
    ],
)
def test_other_networks_of_rsl_rl_are_refused(runner):
    with pytest.raises(ValueError, match=r"(?s)rllib_cfg_entry_point|Join them"):
        from_rsl_rl(runner)


def test_an_entry_point_is_a_file_a_function_a_dict_or_a_config(labs):
    of_file = of("Isaac-Point-Own-v0").keys
    assert (of_file["clip_actions"], of_file["max_iterations"], of_file["config"]["lr"]) == (5.0, 3, 1e-3)
    assert of_file["config"]["model"]["fcnet_hiddens"] == [32, 32], "the file's"
    assert of_file["config"]["num_sgd_iter"] == 5, "what it leaves out is that of locomotion"
    of_function = of("Isaac-Point-Function-v0").keys["config"]
    assert of_function["gamma"] == 0.9 and of_function["lr"] == [[0, 1e-3], [1000, 0.0]]
    of_dict = of("Isaac-Point-Dict-v0").keys
    assert of_dict["max_iterations"] == 2 and of_dict["config"]["gamma"] == 0.5


def test_the_command_line_takes_precedence(labs):
    keys = of("Isaac-Point-Own-v0", {"max_iterations": 9, "lambda": 0.5, "model": {"fcnet_hiddens": [4]}}).keys
    assert keys["max_iterations"] == 9 and keys["config"]["model"]["fcnet_hiddens"] == [4]
    config = PPOConfig().update_from_dict(keys["config"])
    assert config.lambda_ == 0.5 and config.model["vf_hiddens"] == [32, 32]


def register(**keywords):
    gymnasium.register(
        "Isaac-Point-Wrong-v0", "point_mass:PointMassEnv", kwargs={"env_cfg_entry_point": "", **keywords}
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (3, "must be a mapping with keys like algorithm"),
        ({"max_iteration": 3}, "Did you mean max_iterations"),
        ({"algorithm": {"learning_rate": 1}}, "must be a name, such as PPO"),
        ({"config": 3}, "must be a mapping of settings"),
        ("isaaclab_tasks.agents:absent.yaml", "which there is not"),
        ("isaaclab_tasks.agents.own:pont", "Did you mean point"),
        ("nothing", "must be MODULE:NAME or MODULE:FILE.yaml"),
        (lambda: PPOConfig, "must be a mapping"),
    ],
)
def test_a_wrong_entry_point_is_refused(labs, entry, message):
    check_task("isaaclab", "Isaac-Point-v0", {})
    register(**{ENTRY_POINT: entry})
    with pytest.raises(ValueError, match=message):
        of("Isaac-Point-Wrong-v0")


def test_a_file_is_data(labs):
    """Tags by which YAML would make objects of Python are refused."""
    (labs / "evil.yaml").write_text("config: !!python/object/apply:os.system ['touch ran']\n")
    check_task("isaaclab", "Isaac-Point-v0", {})
    register(**{ENTRY_POINT: str(labs / "evil.yaml")})
    with pytest.raises(ValueError, match="is not YAML"):
        of("Isaac-Point-Wrong-v0")
    assert not (labs / "ran").exists()


def test_settings_for_rsl_rl_that_cannot_be_imported_leave_the_defaults(labs):
    found = of("Isaac-Point-Missing-v0")
    assert "a_package_that_is_not_installed" in found.source and "locomotion" in found.source
    assert found.keys["max_iterations"] == 1500


def test_fields_of_a_task_keep_their_types(labs):
    from point_mass import PointMassCfg

    cfg = PointMassCfg()
    change(cfg, {"sim": {"gravity": [0, 0, -3.7], "dt": 1}, "events": {"push": None}, "seed": 3}, "env")
    assert cfg.sim.gravity == (0, 0, -3.7) and cfg.sim.dt == 1.0 and isinstance(cfg.sim.dt, float)
    assert cfg.events == {"push": None} and cfg.seed == 3
    for wrong, message in (
        ({"simm": 1}, "env of the task has no 'simm'. Did you mean 'sim'"),
        ({"sim": {"dtt": 1}}, "env.sim of the task has no 'dtt'"),
        ({"sim": 3}, "would replace a SimCfg"),
        ({"decimation": "2"}, "must be of the type int"),
        ({"is_finite_horizon": 1}, "must be of the type bool"),
    ):
        with pytest.raises(ValueError, match=message):
            change(cfg, wrong, "env")
