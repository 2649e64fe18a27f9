"""Python files with a `config` and a `stop`, as in Ray's tuned examples."""

import subprocess
import sys

import pytest

from rllib.cli.spec import load_specs


@pytest.fixture
def file_of(tmp_path, monkeypatch):
    """Writes a module of a name that no other test has, and forgets it afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    names = []

    def write(text, name="tuned_settings_of_a_test"):
        names.extend([name] * name.startswith("tuned"))
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return path

    yield write
    for name in names:
        sys.modules.pop(name, None)


CONFIG = "from rllib import PPOConfig\nconfig = PPOConfig().environment('CartPole-v1').training(lr=1e-3)\n"


def test_config_and_stop_become_a_run(file_of):
    (keys,) = load_specs(file_of(f"{CONFIG}stop = {{'episode_reward_mean': 150, 'timesteps_total': 10}}\n"))
    assert keys == {
        "algorithm": "PPO", "env": "CartPole-v1", "config": {"lr": 1e-3},
        "stop": {"episode_reward_mean": 150, "timesteps_total": 10},
    }  # fmt: skip


def test_the_file_trains_in_an_environment_of_its_own(rllib_command, file_of, tmp_path):
    file_of(
        "import gymnasium\nfrom rllib import PPOConfig\n\n\n"
        "class Own(gymnasium.Wrapper):\n    def __init__(self, config):\n"
        "        super().__init__(gymnasium.make('CartPole-v1'))\n\n\n"
        "config = PPOConfig().environment(Own).rollouts(num_rollout_workers=0).training(train_batch_size=64, "
        "sgd_minibatch_size=64, num_sgd_iter=1, model={'fcnet_hiddens': [4]})\n"
        "stop = {'training_iteration': 1}\n"
    )
    result = rllib_command("train", "file", "tuned_settings_of_a_test.py", "--name", "run")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "results" / "run" / "run.json").is_file()
    assert rllib_command("train", "-f", "tuned_settings_of_a_test.py", "--env", "CartPole-v1").exit_code == 0


def test_the_file_may_read_its_own_arguments(file_of):
    text = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n" + CONFIG
    assert load_specs(file_of(text))[0]["stop"] == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stop = {}\n", "must have a variable `config`"),
        ("config = {'env': 'CartPole-v1'}\n", "must have a variable `config`"),
        (f"{CONFIG}stop = 3\n", "stop=3 must be a dict"),
    ],
)
def test_other_files_are_refused(file_of, text, message):
    with pytest.raises(ValueError, match=message):
        load_specs(file_of(text))


@pytest.mark.parametrize(
    ("name", "message"), [("textwrap", "has the name of the module"), ("ppo.v2", "its name has a dot")]
)
def test_a_file_that_cannot_be_imported_by_its_name_is_refused(file_of, name, message):
    with pytest.raises(ValueError, match=message):
        load_specs(file_of(CONFIG, name))


RAYS = """
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN

config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=1)
stop = {f"{ENV_RUNNER_RESULTS}/{EPISODE_RETURN_MEAN}": 150.0}

if __name__ == "__main__":
    raise SystemExit("it is imported")
"""


def test_a_file_of_ray_is_read_without_ray(rllib_command, file_of, tmp_path):
    """In a process of its own: Ray's imports are served from then on."""
    code = (
        "import sys; from pathlib import Path; from rllib.cli.spec import load_specs; "
        "print(load_specs(Path(sys.argv[1]))[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, file_of(RAYS)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "'algorithm': 'PPO'" in done.stdout and "'num_rollout_workers': 1" in done.stdout
    assert "{'env_runners/episode_return_mean': 150.0}" in done.stdout
