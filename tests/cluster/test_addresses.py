"""Drivers outside the cluster, and clusters that grow."""

import importlib.util
import json
import time

import numpy as np
import pytest
from ray_cluster import needs_ray

import runtime
from rllib.algorithms.ppo import PPOConfig

pytestmark = [*needs_ray, pytest.mark.timeout(300)]


@runtime.remote
def add(a, b):
    return a + b


@runtime.remote
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, other):
        self.value += sum(runtime.get(other))
        return self.value

    def count(self, n):
        yield from range(n)

    def fail(self):
        raise KeyError("fail")


@pytest.fixture
def session():
    """Function to start a session, ended after the test."""
    yield runtime.init
    runtime.shutdown()


@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs pip install 'ray[client]'")
def test_a_driver_outside_the_cluster(session, cluster):
    session("ray", address=cluster(2).client_address, log_to_driver=False)
    array = runtime.put(np.arange(3))
    assert runtime.get(add.remote(array, array)).tolist() == [0, 2, 4]
    counter = Counter.options(name="counter").remote()
    assert runtime.get(counter.add.remote([runtime.put(1), add.remote(1, 1)])) == 3
    assert runtime.get(runtime.get_actor("counter").add.remote([runtime.put(1)])) == 4
    with pytest.raises(KeyError, match="fail"):
        runtime.get(counter.fail.remote())
    with pytest.raises(ValueError, match=r"Counter\.count\(\) is a generator, which Ray Client .* `ray job submit`"):
        counter.count.remote(3)
    runtime.kill(counter)
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=1)
    algorithm = config.training(train_batch_size=200, sgd_minibatch_size=100, num_sgd_iter=1).build()
    assert algorithm.train()["timesteps_total"] == 200
    algorithm.stop()


def test_what_fits_no_node_is_not_refused_where_an_autoscaler_adds_nodes(session, cluster, monkeypatch, tmp_path):
    kinds = {
        "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
        "large": {"resources": {"CPU": 2, "token": 1}, "node_config": {}, "min_workers": 0, "max_workers": 1},
    }
    config = {
        "cluster_name": "test",
        "max_workers": 1,
        "upscaling_speed": 20,
        "idle_timeout_minutes": 10,
        "provider": {"type": "fake_multinode"},
        "available_node_types": kinds,
        "head_node_type": "ray.head.default",
        **{key: {} for key in ["auth", "file_mounts"]},
        **{key: [] for key in ["cluster_synced_files", "initialization_commands", "setup_commands"]},
        **{key: [] for key in ["head_setup_commands", "worker_setup_commands"]},
        **{key: [] for key in ["head_start_ray_commands", "worker_start_ray_commands"]},
    }
    (tmp_path / "cluster.json").write_text(json.dumps(config))
    monkeypatch.setenv("RAY_FAKE_CLUSTER", "1")
    monkeypatch.setenv("AUTOSCALER_UPDATE_INTERVAL_S", "1")
    head = cluster(1, head=(f"--autoscaling-config={tmp_path / 'cluster.json'}",))
    session("ray", address=head.address, log_to_driver=False)
    deadline = time.monotonic() + 60
    while True:  # until the autoscaler has reported for the first time
        try:
            ref = add.options(resources={"token": 1}).remote(1, 2)
            break
        except runtime.UnschedulableError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert isinstance(ref, runtime.ObjectRef)


def test_what_fits_no_node_of_a_cluster_of_a_fixed_size(session, cluster):
    session("ray", address=cluster(1).address, log_to_driver=False)
    with pytest.raises(runtime.UnschedulableError, match="token: 1, which this session can never give"):
        add.options(resources={"token": 1}).remote(1, 2)
