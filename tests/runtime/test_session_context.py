"""What `init` returns, what the runtime says of where code runs, and how a session ends."""

import os
import signal
import socket

import pytest
from runtime_support import ENGINES, process_alive, wait_until

import runtime
from runtime.util import get_node_ip_address, placement_group, remove_placement_group
from runtime.util.closing import ClosingActor
from runtime.util.fleet import Fleet
from runtime.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@pytest.mark.parametrize("name", ENGINES)
def test_what_init_returns(fresh, name):
    with fresh(name, num_cpus=3) as session:
        assert session["CPU"] == 3 == session.get("CPU")
        info = session.address_info
        assert info["node_id"] == session["node_id"] == runtime.get_runtime_context().get_node_id()
        assert info["session_id"] == runtime.get_runtime_context().get_session_id()
        assert info["node_ip_address"] == get_node_ip_address() and session.dashboard_url == ""
        assert (os.path.isdir(session.session_dir) and info["address"] == session.session_dir) or name != "zeromq"
        assert fresh(name, ignore_reinit_error=True).address_info == info
        with pytest.raises(KeyError):
            session["nothing"]
    assert not runtime.is_initialized() and not os.path.isdir(session.session_dir)


def test_further_arguments_of_rays_init(fresh, caplog):
    """What changes nothing here is said and ignored; of the others the message says what to use."""
    fresh("local", dashboard_port=8265, configure_logging=True)
    assert "without effect on this engine, and ignored: init(dashboard_port=..., configure_logging=...)" in caplog.text
    runtime.shutdown()
    with pytest.raises(
        ValueError, match=r"init\(_temp_dir=...\) is Ray's; set the environment variable XDG_RUNTIME_DIR"
    ):
        fresh(_temp_dir="/tmp/ray")
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'num_cpu'\. Did you mean 'num_cpus'"):
        fresh("local", num_cpu=2)


def test_disconnect_ends_the_session(fresh):
    fresh("local").disconnect()
    assert not runtime.is_initialized()


def test_gpu_ids(fresh, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-abc")
    fresh(num_gpus=2)
    assert runtime.get(runtime.remote(num_gpus=2)(runtime.get_gpu_ids).remote()) == [3, "GPU-abc"]
    assert runtime.get_gpu_ids() == []


def test_fleets_end_with_a_session_that_has_died(fresh):
    fresh("zeromq", num_cpus=1)
    actor = runtime.remote(ClosingActor).options(num_cpus=0)
    stopped, left = (Fleet(lambda index, incarnation: actor.remote(), range(1), close_s=1.0) for _ in range(2))
    node_pid = runtime.context.current_engine().node_pid
    os.kill(node_pid, signal.SIGKILL)
    wait_until(lambda: not process_alive(node_pid))
    stopped.stop()
    runtime.shutdown()
    assert not runtime.is_initialized() and not left.members


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_session_ends_whatever_comes_before(fresh, monkeypatch, error):
    called = []

    def fails():
        raise error("asked to")

    monkeypatch.setattr(runtime.session, "_before_shutdown", [fails, lambda: called.append("the next")])
    fresh("local")
    with pytest.raises(error, match="asked to"):
        runtime.shutdown()
    assert called == ["the next"] and not runtime.is_initialized()


def test_the_machine_is_the_only_node(engine):
    [node] = runtime.nodes()
    assert node["NodeID"] == runtime.get_runtime_context().get_node_id() and node["Alive"]
    assert node["Resources"] == runtime.cluster_resources() and node["NodeManagerHostname"] == socket.gethostname()
    assert socket.inet_aton(node["NodeManagerAddress"])


@runtime.remote
class Where:
    def ids(self):
        context = runtime.get_runtime_context()
        return {
            "job": context.get_job_id(),
            "node": context.get_node_id(),
            "worker": context.get_worker_id(),
            "actor": context.get_actor_id(),
            "task": context.get_task_id(),
            "group": context.get_placement_group_id(),
            "captures": context.should_capture_child_tasks_in_placement_group,
            "resources": context.get_assigned_resources(),
            "accelerators": context.get_accelerator_ids(),
        }


def test_context_of_a_driver_and_of_an_actor(engine):
    context = runtime.get_runtime_context()
    assert context.get_actor_id() is None and context.get_task_id() is None and context.get_placement_group_id() is None
    assert context.get_accelerator_ids() == {"GPU": []} and context.get() == {
        "job_id": context.get_job_id(),
        "node_id": context.get_node_id(),
    }
    group = placement_group([{"CPU": 2}])
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    ids = runtime.get(Where.options(num_cpus=2, scheduling_strategy=strategy).remote().ids.remote(), timeout=20)
    assert ids["job"] == context.get_job_id() and ids["node"] == context.get_node_id()
    assert ids["group"] == group.id.hex() and ids["captures"] and ids["resources"] == {"CPU": 2}
    assert ids["actor"] and ids["task"] and (engine == "local" or ids["worker"] != context.get_worker_id())
    remove_placement_group(group)
