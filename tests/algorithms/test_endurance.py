"""A run that goes on: flat memory, and nothing left when its driver is killed."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from rllib import PPOConfig
from tests.runtime.runtime_support import shared_memory_files, wait_until

DRIVER = """
import sys
from rllib import PPOConfig
algo = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=4).training(
    train_batch_size=256, sgd_minibatch_size=128, num_sgd_iter=2).build()
print("training", flush=True)
while True:
    algo.train()
"""


def test_memory_of_every_process_stays_flat():
    """200 iterations; what is in use after the first 60 may grow by 5 %."""
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=4, num_envs_per_worker=2)
    config = config.training(
        train_batch_size=512, sgd_minibatch_size=128, num_sgd_iter=2, model={"fcnet_hiddens": [64]}
    )
    with config.build() as algo:
        _iterate(algo, 60)
        before = _memory()
        _iterate(algo, 140)
        after = _memory()
    assert before.keys() == after.keys()
    grown = {pid: (before[pid], after[pid]) for pid in before if after[pid] > 1.05 * before[pid]}
    assert not grown, f"pid: (before, after) in MiB: {grown}"


def _iterate(algo, times: int) -> None:
    for _ in range(times):
        algo.train()


def _memory() -> dict[int, float]:
    """RSS of this process and all below it, MiB."""
    own = psutil.Process()
    return {process.pid: process.memory_info().rss / 2**20 for process in (own, *own.children(recursive=True))}


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_killed_driver(signal_number, tmp_path):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    shared_memory = shared_memory_files()
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout.readline() == "training\n"
        started = psutil.Process(driver.pid).children(recursive=True)
        assert len(started) >= 6  # supervisor, zygote, four workers
        time.sleep(0.2)  # in the middle of iterations
        driver.send_signal(signal_number)
        driver.wait(timeout=10)
        _, alive = psutil.wait_procs(started, timeout=5)
        assert not alive
        assert shared_memory_files() <= shared_memory
        wait_until(lambda: not list(tmp_path.iterdir()), 5, "the session's directory with its sockets is not removed")
    finally:
        driver.kill()
        driver.stdout.close()
        driver.wait(timeout=10)
