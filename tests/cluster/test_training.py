"""Training on a Ray cluster of two nodes: the same bits as on one machine, and what happens when a node dies."""

import hashlib
import json
import time
from pathlib import Path

import pytest
from ray_cluster import needs_ray

import runtime
from rllib import tune
from rllib.algorithms.ppo import PPOConfig
from rllib.cli.values import read_file
from runtime.errors import UnschedulableError
from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy

pytestmark = [*needs_ray, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "tuned_examples" / "ppo" / "cartpole.yaml"
SLOTS = {"slot": 2}  # of each node: Ray has room for two workers there and no more


@pytest.fixture
def two_nodes(cluster):
    """Two nodes of two CPUs and two slots each."""
    return cluster(2, 2, every=(f"--resources={json.dumps(SLOTS)}",))


@pytest.fixture
def session():
    """Function to start a session, ended after the test."""
    yield runtime.init
    runtime.shutdown()


def ppo(**rollouts):
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(**{"num_rollout_workers": 4, "num_envs_per_worker": 2, **rollouts})
        .training(train_batch_size=512, sgd_minibatch_size=128, num_sgd_iter=2)
        .debugging(seed=7)
    )


def weights_after_each_iteration(iterations):
    """Of the training that `make train` does, but with four workers, and their nodes."""
    example = read_file(EXAMPLE)
    config = PPOConfig().environment(example["env"]).debugging(seed=example["seed"]).update_from_dict(example["config"])
    config.rollouts(num_rollout_workers=4, num_envs_per_worker=2).resources(custom_resources_per_worker={"slot": 1})
    algorithm = config.build()
    try:
        digests = []
        for _ in range(iterations):
            algorithm.train()
            digests.append(hashlib.sha256(algorithm.get_policy().weights).hexdigest())
        return digests, set(algorithm.workers.foreach_worker(_node_id))
    finally:
        algorithm.stop()


def _node_id(worker):
    return runtime.get_runtime_context().get_node_id()


def test_two_nodes_give_the_same_bits_as_one_machine(session, two_nodes):
    session("zeromq", num_cpus=2, resources={"slot": 4})
    expected, _ = weights_after_each_iteration(4)
    runtime.shutdown()
    session("ray", address=two_nodes.address, log_to_driver=False)
    found, nodes = weights_after_each_iteration(4)
    assert found == expected
    assert len(nodes) == 2


def test_weights_are_put_once_and_copied_once_to_each_node(session, two_nodes, monkeypatch):
    """Four workers on two nodes: of the weights of an update each node's store has one copy."""
    import ray.experimental

    session("ray", address=two_nodes.address, log_to_driver=False)
    put, placed = runtime.put, []
    with (
        ppo()
        .training(model={"fcnet_hiddens": [256, 256]})
        .resources(custom_resources_per_worker={"slot": 1})
        .build() as algo
    ):
        monkeypatch.setattr(runtime, "put", lambda value: placed.append(put(value)) or placed[-1])
        algo.train()
        rounds = placed.copy()
        nodes = set(algo.workers.foreach_worker(_node_id))
        where = ray.experimental.get_object_locations([each.inner for each in rounds])
    assert len(rounds) == 1 and len(nodes) == 2
    assert [sorted(each["node_ids"]) for each in where.values()] == [sorted(nodes)]


@runtime.remote
class Holder:
    def node(self):
        return runtime.get_runtime_context().get_node_id()


def test_a_worker_goes_where_its_resources_are_free(session, two_nodes):
    session("ray", address=two_nodes.address, log_to_driver=False)
    here = runtime.get_runtime_context().get_node_id()
    holder = Holder.options(resources={"slot": 2}, scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False))
    first = holder.remote()
    assert runtime.get(first.node.remote()) == here
    worker = Holder.options(num_cpus=1, oversubscribe=True, resources={"slot": 1}).remote()
    assert runtime.get(worker.node.remote(), timeout=60) != here


def test_a_search_of_eight_trials(session, two_nodes, tmp_path):
    session("ray", address=two_nodes.address, log_to_driver=False)
    config = {
        "env": "CartPole-v1",
        "num_rollout_workers": 1,
        "train_batch_size": 512,
        "sgd_minibatch_size": 128,
        "lr": tune.grid_search([1e-4, 3e-4, 1e-3, 3e-3]),
        "seed": tune.grid_search([1, 2]),
    }
    analysis = tune.run("PPO", config=config, stop={"training_iteration": 3}, local_dir=str(tmp_path), verbose=0)
    assert len(analysis.trials) == 8
    assert all(trial.status == "TERMINATED" for trial in analysis.trials)
    assert all(trial.last_result["timesteps_total"] == 3 * 512 for trial in analysis.trials)


def test_training_goes_on_when_a_node_dies(session, two_nodes):
    session("ray", address=two_nodes.address, log_to_driver=False)
    here = runtime.get_runtime_context().get_node_id()
    algorithm = ppo(sample_timeout_s=20).build()
    try:
        for iteration in range(1, 9):
            if iteration == 4:
                elsewhere = sum(node != here for node in algorithm.workers.foreach_worker(_node_id))  # as Ray likes
                assert elsewhere >= 1
                two_nodes.kill(two_nodes.nodes[1])
            began = time.monotonic()
            result = algorithm.train()
            assert time.monotonic() - began < 120
            assert result["num_env_steps_sampled"] == result["timesteps_total"] == 512 * iteration
        assert algorithm.workers.num_healthy_workers == 4 and algorithm.workers.num_restarts >= elsewhere
        assert len(set(algorithm.workers.foreach_worker(_node_id))) == 1
    finally:
        algorithm.stop()


def test_more_gpus_than_the_cluster_has_are_refused(session, cluster):
    session("ray", address=cluster(2, head=("--num-gpus=1",)).address, log_to_driver=False)
    with pytest.raises(UnschedulableError, match=r"2 learners with num_gpus=1 each ask for 2 GPUs, but .* has 1\."):
        PPOConfig().environment("CartPole-v1").learners(num_learners=2).resources(num_gpus=1).build()
