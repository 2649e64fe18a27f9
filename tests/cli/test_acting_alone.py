"""Commands that act by a checkpoint start no workers, whatever the run needed them for."""

import json

import pytest
from click.testing import CliRunner
from multi_agent import BasicMultiAgent

from rllib import DQNConfig, IMPALAConfig, PPOConfig, SACConfig
from rllib.algorithms.base.config import alone
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from rllib.cli import command
from rllib.cli.checkpoints import acting_algorithm
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.policies import RandomPolicy
from rllib.runs.trackers import TRACKERS
from rllib.serving.learning.trainer import Trainer
from rllib.serving.loaded_policy import load_policy
from tests.damage import rewrite
from tests.hub_fake import installed

WORKERS = {"num_rollout_workers": 1, "evaluation_num_workers": 1}
# Runs with all settings that need workers.
RUNS = {
    "PPO": PPOConfig()
    .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1)
    .evaluation(evaluation_interval=1, evaluation_parallel_to_training=True, evaluation_duration="auto"),
    "IMPALA": IMPALAConfig().training(train_batch_size=64, num_aggregation_workers=1),
    "SAC": SACConfig()
    .environment("Pendulum-v1")
    .rollouts(sample_async=True)
    .evaluation(evaluation_interval=1, evaluation_parallel_to_training=True),
}
COMMANDS = {
    "evaluate": ("evaluate", "run", "--episodes", 1),
    "play": ("play", "run", "--episodes", 1),
    "record": ("record", "run", "--to", "run.json", "--steps", 5),
    "export": ("export", "run", "--format", "safetensors"),
    "push": ("push", "run", "me/pole", "--seeds", 1, "--episodes", 1, "--no-video"),
}


@pytest.fixture(scope="module", params=RUNS)
def run(request, tmp_path_factory):
    """The directory of a run with workers, which have ended."""
    config = RUNS[request.param].copy(copy_frozen=False).training(model={"fcnet_hiddens": [4]})
    if config.env is None:
        config.environment("CartPole-v1")
    config.update_from_dict(WORKERS)
    run = tmp_path_factory.mktemp(request.param) / "run"
    with config.build() as algo:
        algo.save(run / "checkpoint_000001")
    return run


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_command_acts_without_workers(verb, run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.parent)
    if verb == "play":
        pytest.importorskip("imageio_ffmpeg")
    if verb == "push":
        installed(monkeypatch, tmp_path)
    words = [str(word).replace("run.json", f"{tmp_path}/run.json") for word in COMMANDS[verb]]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output


def test_a_run_with_workers_learns_from_served_episodes(run):
    if run.parent.name.startswith("SAC"):
        Trainer(load_policy(run), {}).algorithm.stop()


@pytest.mark.parametrize("name", RUNS)
def test_a_worker_of_such_settings(name):
    config = RUNS[name].copy(copy_frozen=False).update_from_dict(WORKERS)
    if config.env is None:
        config.environment("CartPole-v1")
    RolloutWorker.from_config(config).stop()


@pytest.mark.parametrize("name", algorithm_names())
def test_no_relation_needs_processes_that_are_not_there(name):
    """Whatever a relation admits only with other processes is changed where there are none."""
    fresh = get_algorithm_config(name)
    with_processes = {**alone({}), "num_rollout_workers": 2, "evaluation_num_workers": 2, "num_learners": 1}
    checks = {key: member for key in dir(type(fresh)) if hasattr(member := getattr(type(fresh), key), "__relates__")}
    for check in checks.values():
        others = [each for each in check.__relates__ if each not in with_processes]
        if len(others) == len(check.__relates__) or any(each not in fresh.settings for each in check.__relates__):
            continue
        for setting in (each for each in others if not fresh.settings[each].merged):
            for value in (1, "auto"):
                config = get_algorithm_config(name).update_from_dict({**with_processes, setting: value})
                if setting == "num_gpus":  # whether there is one is asked where this process learns
                    continue
                if fresh.settings[setting].problem(config[setting]) or check(config):
                    continue
                config.update_from_dict(alone(config.to_dict()))
                assert check(config) is None, (setting, value)


def test_a_result_of_such_a_run_is_of_the_episodes_that_were_asked_for(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    done = CliRunner().invoke(command, ["evaluate", "run", "--episodes", "2", "--json"])
    assert json.loads(done.output)["episodes"] == 2


@pytest.mark.parametrize("has_rows", [False, True])
@pytest.mark.parametrize("of", ["run", "policy", "added policy", "section of a policy"])
def test_acting_needs_no_replay(tmp_path, of, has_rows):
    """Whatever disk or size it has: that of a foreign checkpoint, or more than fits here."""
    (tmp_path / "disk").mkdir()
    replay = {"replay_buffer_config": {"storage": str(tmp_path / "disk"), "capacity": 5000}}
    config = DQNConfig().rollouts(num_rollout_workers=0).training(model={"fcnet_hiddens": [4]}, hiddens=[])
    config.training(store_buffer_in_checkpoints=has_rows)
    own = {"training": replay} if of == "section of a policy" else replay
    if of == "run":
        config.environment("CartPole-v1").training(**replay)
    else:
        policies = {"a": None, "b": own if of != "added policy" else None, "random": RandomPolicy}
        config.environment(BasicMultiAgent).multi_agent(policies=policies, policy_mapping_fn="b")
    with config.build() as algo:
        if of == "added policy":
            algo.add_policy("c", config=own, policies_to_train=["a", "b", "c"])
        checkpoint = algo.save(tmp_path / "run" / "checkpoint")
    with acting_algorithm(checkpoint, False) as algo:
        for policy_id in algo.trainees:
            kept = algo.config_of(policy_id).replay_buffer_config
            assert kept["storage"] == "memory" and (kept["capacity"] < 5000) == (not has_rows)
        assert of != "added policy" or "c" in algo.policies
    assert not any((tmp_path / "disk").iterdir())


def test_acting_logs_and_listens_nowhere(tmp_path):
    config = PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [4]})
    with config.rollouts(num_rollout_workers=0).build() as algo:
        checkpoint = algo.save(tmp_path / "checkpoint")
    spaces = json.loads((checkpoint / "policies" / "default_policy" / "policy.json").read_text())
    settings = json.loads((checkpoint / "config.json").read_text()) | {name: {} for name in TRACKERS}
    settings |= {"env": None, "listen": "0.0.0.0:0"}
    settings |= {name: spaces[name] for name in ("observation_space", "action_space")}
    rewrite(checkpoint, "config.json", json.dumps(settings).encode())
    with acting_algorithm(checkpoint, False) as algo:
        assert not any(algo.config[name] is not None for name in (*TRACKERS, "listen"))
    done = CliRunner().invoke(command, ["evaluate", str(checkpoint), "--env", "CartPole-v1", "--episodes", "1"])
    assert done.exit_code == 0, done.output


def test_a_replay_of_a_gpu_is_in_memory_whatever_else_of_it_is_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    config = DQNConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [4]}, hiddens=[])
    with config.build() as algo:
        checkpoint = algo.save(tmp_path / "checkpoint")
    settings = json.loads((checkpoint / "config.json").read_text()) | {"num_gpus": 1}
    settings["replay_buffer_config"]["storage"] = "gpu"
    rewrite(checkpoint, "config.json", json.dumps(settings).encode())
    size = {"capacity": 2000}
    for given in ({"buffer_size": 2000}, {"replay_buffer_config": size}, {"training": {"replay_buffer_config": size}}):
        with acting_algorithm(checkpoint, False, **given) as algo:
            assert algo.config.replay_buffer_config["storage"] == "memory"
            assert algo.config.replay_buffer_config["capacity"] == 2000
    with pytest.raises(ValueError, match="replay_buffer_config=5 must be a dict"):
        acting_algorithm(checkpoint, False, replay_buffer_config=5)
