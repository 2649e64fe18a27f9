"""Resources of sessions, tasks and actors, on every engine. The shared session has 4 CPUs and 2 of "token"."""

import numpy as np
import pytest
from runtime_support import wait_until

import runtime


@runtime.remote
def nothing():
    return 1


@runtime.remote
class Idle:
    def resources(self):
        return runtime.get_runtime_context().get_assigned_resources()


def free(name):
    return runtime.available_resources().get(name, 0)


def test_the_session_says_what_it_has(engine):
    total = runtime.cluster_resources()
    assert total["CPU"] == 4 and total["token"] == 2 and total["memory"] > 0 and "GPU" not in total
    assert runtime.available_resources() == total


@pytest.mark.parametrize(
    "options, named",
    [
        ({"num_cpus": 5}, "CPU: 5"),
        ({"num_gpus": 1}, "GPU: 1"),
        ({"resources": {"token": 3}}, "token: 3"),
        ({"resources": {"unknown": 0.5}}, "unknown: 0.5"),
        ({"memory": 10**18}, "memory"),
    ],
)
def test_what_can_never_fit_is_refused_at_once(engine, options, named):
    with pytest.raises(runtime.UnschedulableError, match=f"task nothing.*{named}.*it has CPU: 4"):
        nothing.options(**options).remote()
    with pytest.raises(ValueError, match=f"actor Idle.*{named}"):
        Idle.options(**options).remote()


def test_refused_inside_a_task_as_well(engine):
    @runtime.remote
    def outer():
        nothing.options(num_cpus=64).remote()

    with pytest.raises(runtime.UnschedulableError, match="CPU: 64"):
        runtime.get(outer.remote(), timeout=30)


def test_an_actor_holds_what_it_asked_for(engine):
    actor = Idle.options(num_cpus=1.5, resources={"token": 0.25}).remote()
    held = runtime.get(actor.resources.remote())
    assert held == {"CPU": 1.5, "token": 0.25}
    wait_until(lambda: free("CPU") == 2.5 and free("token") == 1.75)
    runtime.kill(actor)
    wait_until(lambda: free("CPU") == 4 and free("token") == 2)


def test_an_actor_without_num_cpus_holds_none(engine):
    actor = Idle.remote()
    assert runtime.get(actor.resources.remote()) == {}
    wait_until(lambda: free("CPU") == 4)


def test_fractions_add_up(engine):
    actors = [Idle.options(num_cpus=0.1).remote() for _ in range(3)]
    runtime.get([a.resources.remote() for a in actors])
    wait_until(lambda: free("CPU") == pytest.approx(3.7))
    del actors
    wait_until(lambda: free("CPU") == 4)


def test_thirds_and_other_fractions_are_rounded_down(engine):
    actors = [Idle.options(num_cpus=share).remote() for share in (1 / 3, 0.33333, 1 / 6)]
    resources = runtime.get([a.resources.remote() for a in actors])
    assert resources == [{"CPU": 0.3333}, {"CPU": 0.3333}, {"CPU": 0.1666}]
    actors.append(Idle.options(num_cpus=0, resources={"token": 1 / 6}).remote())
    assert runtime.get(actors[-1].resources.remote()) == {"token": 0.1666}
    exact = Idle.options(num_cpus=0.29, resources={"token": np.float32(0.5)}).remote()
    assert runtime.get(exact.resources.remote()) == {"CPU": 0.29, "token": 0.5}
    del actors, exact
    wait_until(lambda: free("CPU") == 4 and free("token") == 2)


def test_actors_may_exceed_the_cpus_when_asked(engine):
    actors = [Idle.options(num_cpus=2, oversubscribe=True).remote() for _ in range(3)]
    assert runtime.get([a.resources.remote() for a in actors], timeout=30) == [{"CPU": 2}] * 3
    wait_until(lambda: free("CPU") == (4 if engine == "ray" else 0))  # Ray is asked for none
    huge = Idle.options(num_cpus=100, oversubscribe=True).remote()
    assert runtime.get(huge.resources.remote(), timeout=30) == {"CPU": 100}
    with pytest.raises(runtime.UnschedulableError):
        Idle.options(num_cpus=1, oversubscribe=True, resources={"token": 3}).remote()


def test_a_failed_constructor_gives_its_resources_back(engine):
    @runtime.remote(num_cpus=4)
    class Fails:
        def __init__(self):
            raise ValueError("no")

        def ping(self):
            pass

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            runtime.get(Fails.remote().ping.remote(), timeout=30)
    wait_until(lambda: free("CPU") == 4)


def test_a_task_waits_for_resources_held_by_an_actor(engine):
    actor = Idle.options(resources={"token": 2}).remote()
    runtime.get(actor.resources.remote())
    ref = nothing.options(resources={"token": 1}).remote()
    assert runtime.wait([ref], timeout=0.2) == ([], [ref])
    with pytest.raises(runtime.GetTimeoutError):
        runtime.get(ref, timeout=0.1)
    runtime.kill(actor)
    assert runtime.get(ref, timeout=30) == 1


def test_an_actor_waits_for_resources(engine):
    first = Idle.options(num_cpus=4).remote()
    second = Idle.options(num_cpus=4).remote()
    runtime.get(first.resources.remote())
    ref = second.resources.remote()
    assert runtime.wait([ref], timeout=0.2) == ([], [ref])
    del first
    assert runtime.get(ref, timeout=30) == {"CPU": 4}


def test_a_waiting_actor_can_be_killed(engine):
    first = Idle.options(num_cpus=4).remote()
    runtime.get(first.resources.remote())
    second = Idle.options(num_cpus=4).remote()
    ref = second.resources.remote()
    runtime.kill(second)
    with pytest.raises(runtime.ActorDiedError):
        runtime.get(ref, timeout=30)


def test_a_task_that_waits_lends_its_cpus(engine):
    @runtime.remote(num_cpus=4)
    def outer(depth):
        return depth if depth == 0 else runtime.get(outer.remote(depth - 1))

    assert runtime.get(outer.remote(3), timeout=50) == 0


def test_a_task_sees_what_it_holds(engine):
    @runtime.remote(num_cpus=2, resources={"token": 1})
    def holds():
        return runtime.get_runtime_context().get_assigned_resources()

    assert runtime.get(holds.remote()) == {"CPU": 2, "token": 1}
