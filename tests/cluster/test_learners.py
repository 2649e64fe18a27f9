"""Several learners on a Ray cluster of two nodes: they equal one, and go on when one of them or its node dies."""

import os
import signal
import time

import numpy as np
import pytest
from learner_updates import process_ids, record, replay
from ray_cluster import needs_ray, processes_of

import runtime
from rllib.algorithms.ppo import PPOConfig
from rllib.learners.updates.collective import SharedSums
from runtime.util import get_node_ip_address

pytestmark = [*needs_ray, pytest.mark.timeout(300)]


@pytest.fixture
def two_nodes(cluster):
    """A session on two nodes of two CPUs each: the cluster."""
    made = cluster(2, 2)
    runtime.init("ray", address=made.address, log_to_driver=False)
    deadline = time.monotonic() + 60
    while runtime.cluster_resources().get("CPU") != 4:  # a node's resources are known a moment after it has joined
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield made
    runtime.shutdown()


@pytest.fixture(scope="module")
def updates():
    """Ten updates of 9 steps each, by one learner on one machine."""
    return record(ppo(), 10)


def ppo(**learners):
    return (
        PPOConfig()
        .environment("CartPole-v1")
        # 130 rows: the last minibatch of an epoch is of 2, a row for each learner.
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=65, sample_timeout_s=3)
        .training(train_batch_size=130, sgd_minibatch_size=64, num_sgd_iter=3, lr=1e-3, model={"fcnet_hiddens": [16]})
        .learners(**learners)
        .debugging(seed=0)
    )


def two_learners(collective):
    """A CPU for each: what claims one is spread over the nodes."""
    return ppo(num_learners=2, num_cpus_per_learner=1, learner_collective=collective)


def nodes_of(algo, cluster) -> list[str]:
    """The nodes of the learners."""
    pids = process_ids(algo)
    return [next(node for node in cluster.nodes if pid in processes_of(node)) for pid in pids]


TRIES = 15  # Ray has put both on one node five times in a row


def on_both_nodes(collective, cluster):
    """An algorithm whose two learners lie on different nodes. They are asked for so; Ray need not do it at once."""
    for _ in range(TRIES):
        algo = two_learners(collective).build()
        if set(nodes_of(algo, cluster)) == set(cluster.nodes):
            return algo
        algo.stop()
    raise AssertionError(f"both learners were on one node, {TRIES} times")


@pytest.mark.parametrize("collective", ["gloo", "auto"])
def test_two_learners_on_two_nodes_equal_one(collective, two_nodes, updates):
    """Processes of the test's nodes reach one another's memory, so that "auto" takes it; gloo goes over TCP."""
    found = []
    for _ in range(2):
        with on_both_nodes(collective, two_nodes) as algo:
            found.append(replay(algo, updates))
            shares = algo.learner.backend._block is not None
            assert shares == (collective == "auto" and SharedSums.is_available())
    np.testing.assert_array_equal(*found)
    with ppo().build() as algo:
        assert abs(found[0] - replay(algo, updates)).max() <= 1e-5


def test_two_learners_train_to_the_end(two_nodes):
    with two_learners("gloo").build() as algo:
        for iteration in range(1, 4):
            assert algo.train()["num_env_steps_trained"] == 130 * iteration


@runtime.remote(num_cpus=1)
class Neighbour:
    def address(self):
        return get_node_ip_address()


def test_every_node_is_reached_at_its_own_address(two_nodes):
    """Not at the one that the default route leads to, and not at what its name stands for."""
    neighbours = [Neighbour.remote() for _ in range(4)]
    found = runtime.get([each.address.remote() for each in neighbours], timeout=120)
    known = {node["NodeManagerAddress"] for node in runtime.nodes() if node["Alive"]}
    assert set(found) == known and len(known) == 2


@pytest.mark.parametrize("collective", ["gloo", "auto"])
def test_a_learner_that_is_killed_is_replaced(collective, two_nodes, updates):
    with two_learners(collective).build() as algo:
        undisturbed = replay(algo, updates)
    with two_learners(collective).build() as algo:
        replay(algo, updates[:4])
        for victim in (0, 1):
            pid = process_ids(algo)[victim]
            replay(algo, updates[4 + victim : 5 + victim], lambda pid=pid: os.kill(pid, signal.SIGKILL))
        weights = replay(algo, updates[6:])
        assert algo.learner.backend.fleet.num_restarts == 2
    np.testing.assert_array_equal(weights, undisturbed)


@pytest.mark.parametrize("collective", ["gloo", "auto"])
def test_the_node_of_a_learner_dies(collective, two_nodes, updates):
    """Its learner is replaced on the node that is left, and the run is the same to the bit."""
    with two_learners(collective).build() as algo:
        undisturbed = replay(algo, updates)
    with on_both_nodes(collective, two_nodes) as algo:
        replay(algo, updates[:5])
        two_nodes.kill(two_nodes.nodes[1])
        began = time.monotonic()
        weights = replay(algo, updates[5:])
        assert time.monotonic() - began < 120
        assert nodes_of(algo, two_nodes) == two_nodes.nodes * 2
    np.testing.assert_array_equal(weights, undisturbed)
