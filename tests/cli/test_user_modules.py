"""Environments in modules of the user's, and settings under the names of other versions."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rllib.cli import command
from tests.damage import rewrite

ROOT = Path(__file__).parents[2]
QUICK = ("num_rollout_workers=1", "train_batch_size=64", "sgd_minibatch_size=64", "num_sgd_iter=1")
MODULE = """
import gymnasium


class Mine(gymnasium.Wrapper):
    def __init__(self, config):
        super().__init__(gymnasium.make("CartPole-v1"))
"""


def test_the_installed_command_finds_modules_of_the_directory_where_it_is_started(tmp_path):
    (tmp_path / "my_module.py").write_text(MODULE)
    # As the script that pip installs: Python itself does not add the present directory (-P).
    rllib = (sys.executable, "-P", "-c", "from rllib.cli import main; main()")
    found = subprocess.run(
        [*rllib, "train", "PPO", "my_module:Mine", *QUICK, "--stop", "iterations=1"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("python", [("-P", "-c", "from rllib.cli import main; main()"), ("-m", "rllib")])
def test_no_file_of_the_present_directory_stands_for_an_installed_module(tmp_path, python):
    for name in ("csv", "secrets", "numpy", "msgspec"):
        (tmp_path / f"{name}.py").write_text("print('instead of another')\n")
    told = subprocess.run(
        [sys.executable, *python, "evaluate", "."], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "is no checkpoint of this library" in told.stderr and told.stdout == "", told.stderr


OWN = "a_module_that_no_other_test_imports"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with a module that leaves a file where it is imported, and the run of its environment, typed."""
    directory = tmp_path_factory.mktemp("trained")
    (directory / f"{OWN}.py").write_text(f"open('imported', 'w')\n{MODULE}")
    settings = ("num_rollout_workers=0", *QUICK[1:], "model.fcnet_hiddens=[8]", "--stop", "iterations=1", "--name", "r")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setattr(sys, "path", [*sys.path])
        done = CliRunner().invoke(command, ["train", "PPO", f"{OWN}:Mine", *settings])
    assert "evaluate results/r/checkpoint_000001 --load-user-code" in done.output, done.output
    (directory / "imported").unlink()
    return directory


@pytest.fixture
def own_run(trained, tmp_path, monkeypatch):
    """The directory of that run, in the present directory."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.delitem(sys.modules, OWN)
    importlib.invalidate_caches()
    return tmp_path / "results/r"


@pytest.mark.parametrize("words", [("evaluate", "--episodes", "1"), ("train", "--stop", "iterations=2", "--resume")])
def test_a_module_of_the_present_directory_that_a_run_names_is_imported_on_request_alone(own_run, rllib_command, words):
    refused = rllib_command(*words, own_run)
    assert refused.exit_code == 2 and "use --load-user-code" in refused.output
    assert ".py is in the current directory" in refused.output
    assert not Path("imported").exists()
    done = rllib_command(*words, own_run, "--load-user-code")
    assert done.exit_code == 0 and Path("imported").exists(), done.output


@pytest.mark.parametrize("typed", ["{}.py:Mine", "./{}.py:Mine", "../there/{}.py:Mine", "./{}:Mine"])
def test_the_name_of_a_file_leads_to_that_of_its_module(rllib_command, tmp_path, typed):
    (tmp_path / "unimported_world.py").write_text(MODULE)
    for verb in (("train", "PPO"), ("check-env",)):
        refused = rllib_command(*verb, typed.format("unimported_world"))
        assert refused.exit_code == 2 and "Write 'unimported_world:Mine'" in refused.output, refused.output
        refused = rllib_command(*verb, "unimported_world")
        assert refused.exit_code == 2 and "unimported_world:CLASS" in refused.output, refused.output


def test_a_class_in_the_present_directory_is_not_imported_for_a_checkpoint(own_run, rllib_command):
    (checkpoint,) = own_run.glob("checkpoint_*")
    config = json.loads((checkpoint / "config.json").read_text()) | {"env": {"$import": f"{OWN}:Mine"}}
    rewrite(checkpoint, "config.json", json.dumps(config).encode())
    assert rllib_command("evaluate", checkpoint, "--episodes", "1").exit_code == 2
    assert not Path("imported").exists()


def test_a_file_names_no_module_of_the_present_directory_unless_it_is_trusted(rllib_command, tmp_path):
    name = "another_module_that_no_other_test_imports"
    (tmp_path / f"{name}.py").write_text(MODULE)
    settings = dict(word.split("=") for word in ("num_rollout_workers=0", *QUICK[1:]))
    keys = {"algorithm": "PPO", "env": f"{name}:Mine", "stop": {"iterations": 1},
            "config": {key: int(value) for key, value in settings.items()}}  # fmt: skip
    (tmp_path / "run.yaml").write_text(json.dumps(keys))
    refused = rllib_command("train", "-f", "run.yaml")
    assert refused.exit_code == 2 and "--load-user-code" in refused.output
    done = rllib_command("train", "-f", "run.yaml", "--load-user-code")
    assert done.exit_code == 0, done.output


def test_a_run_that_is_taken_up_calls_no_function_that_its_files_name(own_run, rllib_command):
    (checkpoint,) = own_run.glob("checkpoint_*")
    harm = {"env": "os:system", "env_config": {"command": "touch owned"}}
    config = json.loads((checkpoint / "config.json").read_text()) | harm
    rewrite(checkpoint, "config.json", json.dumps(config).encode())
    (own_run / "run.json").write_text(json.dumps(json.loads((own_run / "run.json").read_text()) | {"env": "os:system"}))
    refused = rllib_command("train", "--resume", own_run, "--stop", "iterations=2")
    assert refused.exit_code == 2 and "is no environment class" in refused.output
    assert not Path("owned").exists()


@pytest.mark.parametrize("name", ["result.json", "params.json", "run.json", "error.txt"])
def test_a_run_that_is_taken_up_writes_through_no_link(own_run, rllib_command, tmp_path, name):
    target = tmp_path / "target"
    target.write_text((own_run / name).read_text() if (own_run / name).exists() else "")
    (own_run / name).unlink(missing_ok=True)
    (own_run / name).symlink_to(target)
    before = target.read_text()
    refused = rllib_command("train", "--resume", own_run, "--load-user-code", "--stop", "iterations=2")
    assert refused.exit_code == 2 and "is a link that leads out of" in refused.output
    assert target.read_text() == before


def test_what_a_file_says_does_nothing_to_the_terminal(own_run, rllib_command):
    spec = json.loads((own_run / "run.json").read_text()) | {"\x1b]0;title\x07": 1}
    (own_run / "run.json").write_text(json.dumps(spec))
    refused = rllib_command("train", "--resume", own_run)
    assert refused.exit_code == 2 and r"\x1b]0;title\x07" in refused.output and "\x1b" not in refused.output


def test_an_error_of_the_environment_in_a_worker_is_shown_once_and_from_its_own_lines_on(tmp_path):
    step = "    def step(self, action):\n        raise RuntimeError('the motor is off')\n"
    (tmp_path / "my_module.py").write_text(f"{MODULE}\n{step}")
    settings = (*QUICK, "disable_env_checking=true")
    failed = subprocess.run(
        [sys.executable, "-m", "rllib", "train", "PPO", "my_module:Mine", *settings, "--stop", "iterations=1"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert failed.returncode == 1 and "worker 1 (CartPoleEnv) raised in step()" in failed.stderr, failed.stderr
    assert failed.stderr.count("raised in step()") == 1
    assert failed.stderr.count('  File "') == 1 and "my_module.py" in failed.stderr


STUDY = """import torch
from rllib import A2CConfig


def loss(*given):
    return {result}


config = A2CConfig().environment('CartPole-v1').rollouts(num_rollout_workers=0)
config.training(train_batch_size=20, custom_loss=loss)
"""


@pytest.mark.parametrize(
    "file, line",
    [
        ("import json\n{}['lr']\n", 2),  # while it is imported
        (STUDY.format(result="given[9]"), 6),
        (STUDY.format(result="torch.stack([])"), 6),
    ],
)
def test_an_error_of_the_users_code_in_this_process_names_its_line(rllib_command, own_modules, tmp_path, file, line):
    (tmp_path / "mistaken_study.py").write_text(file)
    failed = rllib_command("train", "-f", "mistaken_study.py", "--stop", "iterations=1")
    assert failed.exit_code == 1
    assert failed.output.count('  File "') == 1 and f'mistaken_study.py", line {line}' in failed.output, failed.output


def test_config_shows_and_finds_other_names_of_a_setting(rllib_command):
    result = rllib_command("config", "PPO", "num_epochs")
    assert result.exit_code == 0
    assert "num_sgd_iter: int = 30" in result.output and "(also: num_epochs)" in result.output
    assert "lr:" not in result.output


ALGORITHM = """
from rllib import PG, PGConfig


class MineConfig(PGConfig):
    pass


class Mine(PG):
    config_class = MineConfig

    def training_step(self):
        return super().training_step()
"""
SMALL = ("CartPole-v1", "num_rollout_workers=0", "train_batch_size=64")


def test_an_algorithm_of_ones_own_is_trained_resumed_evaluated_and_searched(tmp_path, rllib):
    """Its module is imported because its name is typed; a file or a checkpoint that names it imports nothing."""
    (tmp_path / "my_module.py").write_text(ALGORITHM)
    code, output = rllib("train", "my_module:Mine", *SMALL, "--stop", "iterations=1", "--name", "x")
    assert code == 0, output
    checkpoint = "results/x/checkpoint_000001"
    assert f"rllib evaluate {checkpoint} --load-user-code" in output

    resume = ("train", "--resume", "results/x", "--stop", "iterations=2")
    code, output = rllib(*resume)
    assert code == 2 and "a class of your own is imported only where its name is typed" in output
    code, output = rllib(*resume, "--algo", "PPO")
    assert code == 2 and "continues with the same algorithm, my_module:Mine" in output
    code, output = rllib(*resume, "--algo", "my_module:Mine")
    checkpoint = "results/x/checkpoint_000002"
    assert code == 0 and checkpoint in output, output

    code, output = rllib("evaluate", checkpoint, "--episodes", "1")
    assert code == 2 and "Use --load-user-code if you trust" in output, output
    code, output = rllib("evaluate", checkpoint, "--episodes", "1", "--load-user-code")
    assert code == 0, output

    code, output = rllib("tune", "my_module:Mine", *SMALL, "--search", "lr=0.1,0.2", "--stop", "iterations=1", "-q")
    assert code == 0 and "settings    lr=" in output, output


@pytest.mark.parametrize("module", ["rllib", "plain_module", "lazy_package"])
def test_an_algorithm_is_found_where_its_module_has_it_or_imports_it_when_it_is_asked_for(
    tmp_path, rllib_command, monkeypatch, module
):
    """These names are typed in this process, so no other test may have them."""
    (tmp_path / "plain_module.py").write_text(ALGORITHM)
    (tmp_path / "lazy_package.py").write_text(
        "def __getattr__(name):\n    import plain_module\n\n    return getattr(plain_module, name)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("plain_module", "lazy_package"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    done = rllib_command("config", f"{module}:{'PG' if module == 'rllib' else 'Mine'}")
    assert done.exit_code == 0 and "train_batch_size" in done.output, done.output


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("my_other:Mine", "names the module 'my_other', which cannot be found"),
        ("my_module:Yours", "'Yours' of the module 'my_module' is no class of algorithms. It has Mine."),
        ("my_module:settings", "'settings' of the module 'my_module' is no class of algorithms. It has Mine."),
        ("my_module:Base", "'Base' of the module 'my_module' is a base of algorithms without training_step. It has"),
        ("rllib:Algorithm", "'Algorithm' of the module 'rllib' is a base of algorithms without training_step."),
    ],
)
@pytest.mark.parametrize("words", [("train", "CartPole-v1"), ("tune", "CartPole-v1"), ("config",)])
def test_what_is_no_algorithm_is_told(tmp_path, rllib_command, monkeypatch, words, typed, message):
    (tmp_path / "my_module.py").write_text(
        "from rllib import Algorithm\n\n\nclass Base(Algorithm):\n    pass\n\n\n"
        "class Mine:\n    config_class = dict\n\n\ndef settings():\n    1 / 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    result = rllib_command(words[0], typed, *words[1:])
    assert result.exit_code == 2 and message in result.stderr


def test_a_file_names_no_code(rllib_command, tmp_path, monkeypatch):
    (tmp_path / "my_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "run.yaml").write_text("algorithm: my_module:Mine\nenv: CartPole-v1\n")
    for verb in ("train", "tune"):
        result = rllib_command(verb, "-f", "run.yaml")
        assert result.exit_code == 2 and "--algo my_module:Mine" in result.stderr


@pytest.mark.parametrize(
    ("name", "instead"),
    [("CRR", "use AWAC"), ("ddppo", "num_learners=2"), ("ACKTR", "use A2C or PPO")],
)
@pytest.mark.parametrize("words", [("train", "CartPole-v1"), ("tune", "CartPole-v1"), ("config",)])
def test_an_absent_algorithm_is_told_with_what_to_use(rllib_command, words, name, instead):
    result = rllib_command(words[0], name, *words[1:])
    assert result.exit_code == 2 and f"there is no algorithm {name!r}: " in result.stderr and instead in result.stderr
