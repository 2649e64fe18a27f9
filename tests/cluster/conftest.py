"""Clusters of one and two nodes for the tests of programs on Ray."""

import tempfile

import pytest
from ray_cluster import RayCluster, free_port


@pytest.fixture(scope="module")
def cluster():
    """Function to get a cluster: `cluster(CPUs of the head, CPUs of each further node ..., dashboard=port)`.

    Further arguments of `ray start` are in `head` for the head and in `every` for all nodes. The cluster of the last
    call is there still if this one asks for the same, and no node was killed: a start takes seconds.
    """
    last = None
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as directory:

        def start(*cpus, dashboard=None, head=(), every=()):
            nonlocal last
            asked = cpus, dashboard, head, every
            if last is not None:
                made, *before = last
                if tuple(before) == asked and len(made.nodes) == len(cpus):
                    return made
                made.stop()
            first, *others = ((f"--num-cpus={count}", *every) for count in cpus)
            shown = f"--include-dashboard={str(dashboard is not None).lower()}"
            made = RayCluster(directory, shown, f"--dashboard-port={dashboard or free_port()}", *first, *head)
            last = made, *asked
            for arguments in others:
                made.add_node(*arguments)
            return made

        yield start
        if last is not None:
            last[0].stop()
