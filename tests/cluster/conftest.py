"""Clusters of two nodes for the tests of training on Ray."""

import tempfile

import pytest
from ray_cluster import RayCluster, free_port


@pytest.fixture
def cluster():
    """Function to start a cluster: `cluster(CPUs of the head, CPUs of each further node ..., dashboard=port)`.

    Further arguments of `ray start` for the head are in `head`.
    """
    started = []
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:

        def start(*cpus, dashboard=None, head=()):
            first, *others = (f"--num-cpus={count}" for count in cpus)
            shown = f"--include-dashboard={str(dashboard is not None).lower()}"
            made = RayCluster(directory, shown, f"--dashboard-port={dashboard or free_port()}", first, *head)
            started.append(made)
            for count in others:
                made.add_node(count)
            return made

        yield start
        for made in started:
            made.stop()
