"""Settings of Ray's tuned examples: which of them `rllib train -f` takes, and why it does not take the others."""

import logging
import re
import sys
from pathlib import Path

import pytest
import yaml

from rllib import DQNConfig
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.spec import is_search, load_spec, make_spec
from rllib.env.factories.registry import EnvContext, module_of, resolve

FILES = yaml.safe_load((Path(__file__).parents[1] / "data" / "rays_tuned_examples.yaml").read_text())


NO_GPU = re.compile(r"num_gpus=[\d.]+, but ")
# What is not taken, by a part of the message.
SEVERAL_GPUS = "four: num_learners=4 and num_gpus=1"
REFUSED = {
    **dict.fromkeys(
        ("impala/atari-impala-multi-gpu", "impala/pong-impala-fast", "ppo/hopper-ppo", "ppo/humanoid-ppo-gae",
         "ppo/walker2d-ppo"), SEVERAL_GPUS
    ),
    **dict.fromkeys(
        ("ddpg/pendulum-ddpg", "ppo/unity3d-soccer-strikers-vs-goalie-ppo", "sac/halfcheetah-sac", "sac/pendulum-sac"),
        "no_done_at_end=True cannot be used",
    ),
    "sac/cartpole-continuous-pybullet-sac": "soft_horizon=True cannot be used",
    "sac/atari-sac": "Did you mean 'fcnet_activation'",
    "dqn/pong-rainbow": "no setting 'gpu'. Did you mean .resources(num_gpus=...)",
    "pg/cartpole-crashing-with-remote-envs-pg": "train_batch_size=200 must be a multiple of rollout_fragment_length=50",
}  # fmt: skip


def mistakes(name, tmp_path):
    """What `rllib train -f` refuses before it builds anything; that this machine has no GPU is not meant."""
    path = tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump({"experiment": {"stop": {"training_iteration": 1}, **FILES[name]}}))
    keys = load_spec(path)
    settings = dict(keys.get("config", {}))
    try:
        if not is_search(keys):
            settings = dict(make_spec(keys, {}, name).config)
        config = get_algorithm_config(keys["algorithm"]).environment("CartPole-v1")
        drawn = [key for key, value in settings.items() if isinstance(value, dict) and "grid_search" in value]
        config.update_from_dict({key: value for key, value in settings.items() if key not in (*drawn, "env")})
        found = [f"{each.problem} {each.advice or each.remedies}" for each in config.mistakes()]
        return [each for each in found if not NO_GPU.search(each)]
    except (ValueError, TypeError) as error:
        return [str(error)]


def test_all_are_taken_but_these(tmp_path):
    refused = {name: found for name in FILES if (found := mistakes(name, tmp_path))}
    assert refused.keys() == REFUSED.keys()
    for name, found in refused.items():
        assert any(REFUSED[name] in each for each in found), found
    assert len(FILES) - len(refused) >= 0.8 * len(FILES)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("memory.RepeatAfterMe", ("repeat_after_me_env.RepeatAfterMeEnv", {"config": {"repeat_delay": 2}})),
        ("memory.CartPoleNoVel", ("stateless_cartpole.StatelessCartPole", {})),
        ("multi_agent_cartpole.MultiAgentCartPole", ("multi_agent.MultiAgentCartPole", {"config": {"num_agents": 3}})),
        ("two_step_game.TwoStepGameWithGroupedAgents", (
            "two_step_game.TwoStepGameWithGroupedAgents", {"env_config": {"separate_state_space": True}}
        )),
    ],
)  # fmt: skip
@pytest.mark.parametrize("package", ["ray.rllib.examples.env", "ray.rllib.examples.envs.classes"])
def test_rays_examples_of_environments_are_ours(package, name, config):
    path, env_config = config
    env = resolve(f"{package}.{path}").make(EnvContext(env_config))
    assert f"{type(env).__module__}.{type(env).__name__}".endswith(name)
    if "num_agents" in str(env_config):
        assert len(env.possible_agents) == 3
    env.close()
    assert module_of(f"{package}.{path}").startswith("rllib.env.tasks."), "code that needs no trust"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("random_env.RandomEnv", "random observations and rewards"),
        ("cartpole_crashing.CartPoleCrashing", "it fails on purpose"),
        ("transformed_action_space_env.TransformedActionPendulum", "use Pendulum-v1"),
    ],
)
def test_other_examples_are_refused_with_advice(name, advice):
    pytest.importorskip("gymnasium")
    with pytest.raises(ValueError, match=advice):
        resolve(f"ray.rllib.examples.env.{name}")


@pytest.mark.parametrize("part", ["without", "whole"])
@pytest.mark.parametrize(
    "name",
    [
        "ray.rllib.examples.env.random_env.RandomEnv",
        "ray.rllib.examples.envs.classes.random_env:RandomEnv",
        "ray.rllib.examples.env.of_my_own.Unknown",
        "ray.rllib.env.wrappers.recsim:Unknown",
        "ray:Unknown",
    ],
)
def test_an_installed_ray_is_not_imported_for_a_name(name, part, tmp_path, monkeypatch):
    imported = {"without": "raise ModuleNotFoundError('No module named tree', name='tree')", "whole": ""}[part]
    tmp_path.joinpath("ray").mkdir()
    tmp_path.joinpath("ray", "__init__.py").write_text(f"import sys\nsys.ray_was_imported = True\n{imported}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.delitem(sys.modules, "rllib.as_ray", raising=False)
    with pytest.raises(ValueError, match=name.rpartition(":")[2] or name):
        resolve(name)
    assert not hasattr(sys, "ray_was_imported")


def test_agents_of_rays_files_act_by_the_policy_of_their_number(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump({"experiment": FILES["appo/multi-agent-cartpole-appo"]}))
    mapping = load_spec(path)["config"]["multiagent"]["policy_mapping_fn"]
    assert mapping == {"0": "p0", "1": "p1", "2": "p2", "3": "p3"}


def test_steps_before_learning_stood_in_the_replays_settings():
    config = DQNConfig().training(replay_buffer_config={"min_size_for_sampling": 77, "capacity": 900})
    assert config.num_steps_sampled_before_learning_starts == 77
    assert config.replay_buffer_config["capacity"] == 900 and "min_size_for_sampling" not in config.replay_buffer_config


def test_a_replay_smaller_than_what_is_sampled_before_learning_warns(caplog):
    config = DQNConfig().environment("CartPole-v1").training(replay_buffer_config={"capacity": 500})
    config.training(model={"fcnet_hiddens": [8]}, hiddens=[])
    with caplog.at_level(logging.WARNING), config.build() as algorithm:
        assert "capacity=500 is below num_steps_sampled_before_learning_starts=1000" in caplog.text
        assert algorithm.train()["num_env_steps_sampled"] >= 1000
