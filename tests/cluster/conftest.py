"""Clusters of two nodes for the tests of training on Ray."""

import tempfile

import pytest
from ray_cluster import RayCluster, free_port


@pytest.fixture
def cluster():
    """Function to start a cluster: `cluster(CPUs of the head, CPUs of each further node ..., dashboard=port)`."""
    started = []
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:

        def start(*cpus, dashboard=None):
            first, *others = (f"--num-cpus={count}" for count in cpus)
            shown = f"--include-dashboard={str(dashboard is not None).lower()}"
            head = RayCluster(directory, shown, f"--dashboard-port={dashboard or free_port()}", first)
            started.append(head)
            for count in others:
                head.add_node(count)
            return head

        yield start
        for head in started:
            head.stop()
