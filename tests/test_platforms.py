"""Other systems than Linux: one process imports, trains, evaluates, saves and draws by what every system has.

Proved on Linux, with what the others lack hidden from rllib and runtime (other_systems/sitecustomize.py).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SYSTEMS = pytest.mark.parametrize("system", ["darwin", "win32"])
# A run in one process, as its user writes it.
RUN = """
import sys
assert sys.platform == SYSTEM

from rllib import Algorithm, PPOConfig, load_policy

config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).debugging(seed=0)
config.training(train_batch_size=200, sgd_minibatch_size=100, num_sgd_iter=2, model={"fcnet_hiddens": [16]})
config.evaluation(evaluation_interval=1, evaluation_duration=2)
with config.build() as algo:
    for _ in range(2):
        result = algo.train()
        path = algo.save("checkpoint")
assert result["training_iteration"] == 2 and "evaluation" in result
action = load_policy(path).compute_single_action([0, 0.1, 0, -0.1], explore=False)
with Algorithm.from_checkpoint(path) as algo:
    assert algo.compute_single_action([0, 0.1, 0, -0.1], explore=False) == action
    assert algo.train()["training_iteration"] == 3
"""


def run(system, code, directory):
    path = [str(ROOT / "tests" / "other_systems"), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OTHER_SYSTEM": system}
    command = [sys.executable, "-c", code.replace("SYSTEM", repr(system))]
    result = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@SYSTEMS
def test_one_process_trains_evaluates_saves_and_acts(system, tmp_path):
    run(system, RUN, tmp_path)


# As `rllib push` and Tune copy a checkpoint.
COPIED = """
from pathlib import Path
from rllib.errors import DamagedFileError
from rllib.storage.foreign_files import copy_inside

Path("run/checkpoint/policies").mkdir(parents=True)
Path("run/checkpoint/policies/a.json").write_text("{}")
copy_inside("run", "checkpoint", Path("copy"))
assert Path("copy/policies/a.json").read_text() == "{}"
Path("run/checkpoint/link").symlink_to(Path("run").absolute())
try:
    copy_inside("run", "checkpoint", Path("second"))
except DamagedFileError as error:
    print(error)
"""


@SYSTEMS
def test_a_checkpoint_is_copied_without_its_links(system, tmp_path):
    assert "is a symbolic link, which is not followed" in run(system, COPIED, tmp_path)


WORKERS = """
import runtime
from rllib import PPOConfig

config = PPOConfig().environment("CartPole-v1")
for asked in ("rollouts(num_rollout_workers=2)", 'rollouts(gym_env_vectorize_mode="async", num_envs_per_worker=2)'):
    try:
        eval("config.copy()." + asked).build()
    except runtime.errors.PlatformError as error:
        print(error)
with runtime.init("local"):
    assert runtime.get(runtime.remote(abs).remote(-3)) == 3
"""


@SYSTEMS
def test_who_asks_for_processes_is_told_what_they_need(system, tmp_path):
    workers, environments = run(system, WORKERS, tmp_path).splitlines()
    for message in (workers, environments):
        assert f"need Linux with kernel 5.3 or newer, and this is {system!r}" in message
    assert ".rollouts(num_rollout_workers=0)" in workers
    assert 'gym_env_vectorize_mode="sync"' in environments


# What a user types, then the same files by the process beside the run in this one.
FILES = """
from pathlib import Path
from click.testing import CliRunner
from rllib.cli import command
from rllib import PPO
from rllib.runs.follower import Follower
from rllib.serving.export import export_policy

SMALL = ["num_rollout_workers=0", "train_batch_size=200", "sgd_minibatch_size=100", "num_sgd_iter=1"]

def rllib(*arguments):
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output

rllib("train", "PPO", "CartPole-v1", *SMALL, "--stop", "iterations=2", "--name", "first")
rllib("train", "--resume", "results/first", "--stop", "iterations=3")
rllib("evaluate", "results/first", "--episodes", "2")
rllib("plot", "results/first", "-o", "curves.png", "-o", "curves.html")
rllib("export", "results/first", "--format", "torch", "-o", "first.pt2")
assert list(Path("results/first").glob("events.out.tfevents*")) and Path("results/first/curve.png").exists()

class Kept:
    points_per_poll = 100
    results = []
    def on_result(self, result): self.results.append(result["training_iteration"])
    def close(self): pass

follower = Follower(Path("results/first"), lambda: [Kept()])
follower.poll()
follower.close()
assert Kept.results == [1, 2, 3]
"""


@pytest.mark.slow  # torch.export takes most of it
@SYSTEMS
def test_commands_write_files_curves_and_exports(system, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra 'plot'")
    run(system, FILES, tmp_path)
    assert (tmp_path / "first.pt2").exists() and (tmp_path / "curves.png").exists()


EVERY = """
from rllib.algorithms.base.registry import get_algorithm_config

for name, env, more in (
    ("A2C", "CartPole-v1", {}),
    ("IMPALA", "CartPole-v1", {}),
    ("PQN", "CartPole-v1", {}),
    ("ES", "CartPole-v1", {"episodes_per_batch": 4, "train_batch_size": 10, "noise_size": 10_000}),
    ("DQN", "CartPole-v1", {"num_steps_sampled_before_learning_starts": 50}),
    ("DQN", "CartPole-v1", {"replay_buffer_config": {"storage": ".", "capacity": 1000}}),
    ("SAC", "Pendulum-v1", {"num_steps_sampled_before_learning_starts": 50}),
    ("BC", "CartPole-v1", {"input_": DATA, "train_batch_size": 32}),
    ("BC", "CartPole-v1", {"input_": DATA, "train_batch_size": 32, "offline_memory": 1}),
):
    config = get_algorithm_config(name).environment(env).rollouts(num_rollout_workers=0).debugging(seed=0)
    config.update_from_dict({"model": {"fcnet_hiddens": [8]}, "min_time_s_per_iteration": 0, **more})
    config.reporting(min_sample_timesteps_per_iteration=100)
    with config.build() as algo:
        algo.train()
        algo.save("checkpoint_" + name)
    print(name)
"""


@pytest.mark.slow  # one run of each kind of algorithm
@SYSTEMS
def test_each_kind_of_algorithm_trains_in_one_process(system, tmp_path):
    data = str(ROOT / "tests" / "data" / "offline" / "cartpole_expert.npz")
    assert len(run(system, f"DATA = {data!r}\n{EVERY}", tmp_path).splitlines()) == 9


def test_the_hidden_names_are_hidden(tmp_path):
    """The proof proves something: each of these fails where it is asked for by rllib or the main program."""
    code = """
import os, runtime
from pathlib import Path
from runtime.host import machine

for each in (
    *("os.fork()", "os.pread", "__import__('fcntl')", "__import__('socket').AF_UNIX"),
    "__import__('mmap').MADV_RANDOM",
):
    try:
        eval(each)
    except (AttributeError, ImportError) as error:
        print(each)
try:
    machine.memory_limits()
except FileNotFoundError as error:
    print(error)
"""
    hidden = run("win32", code, tmp_path).splitlines()
    assert len(hidden) == 6 and "/proc/meminfo" in hidden[-1]
