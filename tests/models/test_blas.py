"""A policy keeps numpy's matrix products on one thread, unless large updates or the environment ask for more."""

import contextlib
import os
import subprocess
import sys

import pytest

from rllib import PPOConfig, SACConfig
from rllib.algorithms import off_policy_actor_critic
from rllib.algorithms.sac import SAC
from rllib.learners import numpy_learner
from rllib.models.blas import SYMBOLS

# Prints the number of threads before and after a policy was made; numpy is imported first, as users do.
CODE = """
import numpy as np
import ctypes
from pathlib import Path
package = Path(np.__file__).parent
paths = [*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")]
if not paths:
    raise SystemExit(77)
library = ctypes.CDLL(str(paths[0]))
names = [name.replace("_set_", "_get_") for name in SYMBOLS]
threads = next(getattr(library, name) for name in names if hasattr(library, name))
import gymnasium as gym
from rllib.models.catalog import policy_spec
from rllib.policy import Policy
import os
if ASKED:
    os.environ["OPENBLAS_NUM_THREADS"] = ASKED
Policy(policy_spec(gym.spaces.Discrete(2), gym.spaces.Discrete(2)))
from rllib.models.blas import blas_threads
found = [threads()]
with blas_threads(WITHIN):
    found.append(threads())
print(*found, threads())
"""


@pytest.mark.parametrize(
    ("asked", "within", "threads"), [("", 1, [1, 1, 1]), ("", 2, [1, 2, 1]), ("2", 1, [2, 2, 2])]
)
def test_number_of_threads(asked, within, threads):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    code = f"SYMBOLS = {SYMBOLS!r}; ASKED = {asked!r}; WITHIN = {within}\n{CODE}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode == 77:
        pytest.skip("this numpy does not bring its own OpenBLAS")
    assert done.returncode == 0, done.stderr
    if max(threads) > 1 and (os.cpu_count() or 1) < 2:
        pytest.skip("one core cannot show two threads")
    assert [int(each) for each in done.stdout.split()] == threads


@pytest.mark.parametrize(
    ("config", "cores", "threads"),
    [
        (SACConfig().training(train_batch_size=256), 1, 1),
        (SACConfig().training(train_batch_size=256), 8, 3),  # 256 rows, 3 networks of 256x256
        (SACConfig().training(train_batch_size=32), 8, 1),
        (PPOConfig().training(train_batch_size=512, sgd_minibatch_size=512), 8, 1),
    ],
    ids=["one core", "large", "small", "PPO"],
)
def test_updates_take_as_many_threads_as_they_are_worth(monkeypatch, config, cores, threads):
    taken = []

    @contextlib.contextmanager
    def noted(count):
        taken.append(count)
        yield

    monkeypatch.setattr(numpy_learner, "blas_threads", noted)
    monkeypatch.setattr(off_policy_actor_critic, "num_cores", lambda: cores)
    if config.algo_class is SAC:
        config.training(num_steps_sampled_before_learning_starts=10)
    config.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=12)
    with config.rollouts(num_rollout_workers=0).build(env="Pendulum-v1") as algo:
        while not taken:
            algo.train()
    assert set(taken) == {threads}
