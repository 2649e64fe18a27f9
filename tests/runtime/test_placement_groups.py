"""Placement groups and scheduling strategies, on every engine. The shared session has 4 CPUs and 2 of "token"."""

import pickle

import pytest
from runtime_support import wait_until

import runtime
from runtime.util import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from runtime.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy


def free(name="CPU"):
    return runtime.available_resources().get(name, 0)


@pytest.fixture
def make(engine):
    """Function that makes a group, removed after the test."""
    made = []

    def make(*args, **kwargs):
        made.append(placement_group(*args, **kwargs))
        return made[-1]

    yield make
    for group in made:
        remove_placement_group(group)


@runtime.remote
def current():
    group = get_current_placement_group()
    return None if group is None else group.id


@runtime.remote
def current_of_child(**options):
    return runtime.get(current.options(num_cpus=0, **options).remote())


@runtime.remote
class Placed:
    def current(self):
        return get_current_placement_group(), runtime.get_runtime_context().get_assigned_resources()

    def current_of_child(self):
        return runtime.get(current.remote())


@pytest.mark.parametrize("name", ["local", "zeromq"])
def test_a_group_of_an_earlier_session_means_none_of_this_one(fresh, name):
    """Sessions number their groups alike."""
    fresh(name)
    earlier = placement_group([{"CPU": 1}])
    runtime.shutdown()
    fresh(name)
    group = placement_group([{"CPU": 2}])
    assert earlier != group and pickle.loads(pickle.dumps(earlier)) == earlier
    strategy = within(earlier)
    for use in (earlier.ready, earlier.wait, current.options(scheduling_strategy=strategy).remote):
        with pytest.raises(runtime.SessionClosedError, match="another session"):
            use()
    assert placement_group_table(earlier) == {}
    remove_placement_group(earlier)
    assert placement_group_table(group)["state"] == "CREATED"
    remove_placement_group(group)


def within(group, index=-1, captures=None):
    return PlacementGroupSchedulingStrategy(group, index, captures)


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
def test_a_group_books_its_bundles_until_it_is_removed(make, strategy):
    group = make([{"CPU": 2}, {"CPU": 1, "token": 1}], strategy)
    assert runtime.get(group.ready()) == group and group.wait(5)
    assert group.bundle_count == 2 and group.bundle_specs == [{"CPU": 2}, {"CPU": 1, "token": 1}]
    assert (free(), free("token")) == (1, 1)
    remove_placement_group(group)
    remove_placement_group(group)
    wait_until(lambda: (free(), free("token")) == (4, 2))


def test_one_bundle_can_be_spread_strictly(make):
    assert make([{"CPU": 1}], "STRICT_SPREAD").wait(5)


@pytest.mark.parametrize(
    "bundles, strategy, text",
    [
        ([{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD", "another machine, and this session has one. Use SPREAD"),
        ([{"CPU": 3}, {"CPU": 2}], "PACK", "the placement group asks for CPU: 5.*it has CPU: 4"),
        ([{"GPU": 1}], "PACK", "GPU: 1"),
        ([{"unknown": 1}], "PACK", "unknown: 1"),
    ],
)
def test_a_group_that_can_never_be_is_refused(make, engine, bundles, strategy, text):
    if engine == "ray":  # where nodes may join
        assert not make(bundles, strategy).wait(0.3)
        return
    with pytest.raises(runtime.UnschedulableError, match=text):
        placement_group(bundles, strategy)


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        (([],), ValueError, "at least one dict"),
        (([{}],), ValueError, r"bundles\[0\] must ask for something"),
        (([{"CPU": 1}, {"CPU": 0}],), ValueError, r"bundles\[1\] must ask"),
        (([{"CPU": -1}],), ValueError, ">= 0"),
        (([{"CPU": "1"}],), TypeError, "must be a number"),
        ((["CPU"],), TypeError, r"bundles\[0\] must be a dict"),
        (([{"GPU": 1.5}],), ValueError, "whole number"),
        (([{"CPU": 1}], "TIGHT"), ValueError, "there are 'PACK', 'SPREAD'"),
        (([{"CPU": 1}], "PACK", 3), TypeError, "name must be a string"),
        (([{"CPU": 1}], "PACK", "", "for ever"), ValueError, "'detached'"),
    ],
)
def test_wrong_arguments(engine, arguments, error, text):
    with pytest.raises(error, match=text):
        placement_group(*arguments)


def test_a_group_waits_while_its_resources_are_taken(make):
    first, second = make([{"CPU": 3}]), make([{"CPU": 2}])
    assert first.wait(5) and not second.wait(0)
    assert placement_group_table(second)["state"] == "PENDING"
    remove_placement_group(first)
    assert second.wait(5)


def test_tasks_and_actors_run_within_a_group(make):
    group = make([{"CPU": 1}, {"CPU": 2}])
    assert runtime.get(current.remote()) is None and get_current_placement_group() is None
    assert runtime.get(current.options(scheduling_strategy=within(group)).remote(), timeout=20) == group.id
    assert runtime.get(current.options(placement_group=group).remote(), timeout=20) == group.id
    actor = Placed.options(num_cpus=2, scheduling_strategy=within(group, 1)).remote()
    assert runtime.get(actor.current.remote(), timeout=20) == (group, {"CPU": 2})
    assert free() == 1, "the actor has its CPUs from the bundle"
    outside = [current.options(num_cpus=1).remote() for _ in range(3)]
    assert runtime.get(outside, timeout=20) == [None] * 3


def test_what_does_not_fit_a_bundle_is_refused(make):
    group = make([{"CPU": 1}, {"CPU": 2}])
    with pytest.raises(runtime.UnschedulableError, match=r"current.*CPU: 3 does not fit into a bundle.*: CPU: 1; CPU"):
        current.options(num_cpus=3, scheduling_strategy=within(group)).remote()
    with pytest.raises(ValueError, match=r"actor Placed.*CPU: 2 does not fit"):
        Placed.options(num_cpus=2, scheduling_strategy=within(group, 0)).remote()
    with pytest.raises(ValueError, match="bundle_index=2 must be -1"):
        within(group, 2)
    with pytest.raises(TypeError, match=r"must be what util\.placement_group"):
        within("group")


def test_a_group_captures_the_children_that_ask_for_nothing_else(make):
    group = make([{"CPU": 2}])
    inside = current_of_child.options(scheduling_strategy=within(group, captures=True))
    assert runtime.get(inside.remote(), timeout=20) == group.id
    assert runtime.get(inside.remote(placement_group=None), timeout=20) is None
    assert runtime.get(inside.remote(scheduling_strategy="DEFAULT"), timeout=20) is None
    without = current_of_child.options(scheduling_strategy=within(group))
    assert runtime.get(without.remote(), timeout=20) is None
    actor = Placed.options(scheduling_strategy=within(group, captures=True)).remote()
    assert runtime.get(actor.current_of_child.remote(), timeout=20) == group.id


def test_a_captured_child_that_fits_no_bundle_fails(make):
    group = make([{"CPU": 1}])

    @runtime.remote
    def parent():
        return runtime.get(current.options(num_cpus=2).remote())

    with pytest.raises(runtime.RuntimeFailure, match="CPU: 2 does not fit into a bundle"):
        runtime.get(parent.options(scheduling_strategy=within(group, captures=True)).remote(), timeout=20)


def test_a_removed_group_ends_what_is_in_it(make, engine):
    group = make([{"CPU": 1}])
    actor = Placed.options(num_cpus=1, scheduling_strategy=within(group)).remote()
    runtime.get(actor.current.remote())
    waiting = current.options(scheduling_strategy=within(group)).remote()
    remove_placement_group(group)
    with pytest.raises(runtime.ActorDiedError, match=r"placement group(, which)? was removed"):
        while True:  # the actor may answer until it is killed
            runtime.get(actor.current.remote(), timeout=20)
    if engine != "ray":  # which loses it if it has just been submitted
        with pytest.raises(runtime.TaskPlacementGroupRemoved, match="task current"):
            runtime.get(waiting, timeout=20)
    with pytest.raises(runtime.TaskPlacementGroupRemoved):
        runtime.get(current.options(scheduling_strategy=within(group)).remote(), timeout=20)
    with pytest.raises(runtime.ActorDiedError, match="cannot start: its placement group has been removed"):
        runtime.get(Placed.options(scheduling_strategy=within(group)).remote().current.remote(), timeout=20)
    assert placement_group_table(group)["state"] == "REMOVED"


def test_groups_are_found_by_name_and_in_the_table(make):
    group = make([{"CPU": 1}], name="learners")
    assert group.wait(5) and get_placement_group("learners") == group
    entry = placement_group_table(group)
    assert entry["placement_group_id"] == group.id.hex() and entry["name"] == "learners"
    assert entry["bundles"] == {0: {"CPU": 1}} and entry["strategy"] == "PACK" and entry["state"] == "CREATED"
    assert entry["bundles_to_node_id"] == {0: runtime.get_runtime_context().get_node_id()}
    assert placement_group_table()[group.id.hex()] == entry
    with pytest.raises(ValueError, match=r"named 'learners' in the namespace .* already"):
        placement_group([{"CPU": 1}], name="learners")
    remove_placement_group(group)
    with pytest.raises(ValueError, match="no placement group named 'learners'"):
        get_placement_group("learners")


def test_a_handle_can_be_pickled(make):
    group = make([{"CPU": 1}])
    copy = pickle.loads(pickle.dumps(group))
    assert copy == group and hash(copy) == hash(group) and copy.wait(5)


def test_strategies_that_name_a_node(engine):
    here = runtime.get_runtime_context().get_node_id()
    for strategy in ("SPREAD", "DEFAULT", NodeAffinitySchedulingStrategy(here, soft=False)):
        assert runtime.get(current.options(scheduling_strategy=strategy).remote(), timeout=20) is None
    there = NodeAffinitySchedulingStrategy("elsewhere", soft=True)
    assert runtime.get(current.options(scheduling_strategy=there).remote(), timeout=20) is None
    with pytest.raises(runtime.UnschedulableError, match=f"'elsewhere', and this session has only '{here}'"):
        current.options(scheduling_strategy=NodeAffinitySchedulingStrategy("elsewhere", soft=False)).remote()


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"scheduling_strategy": "TIGHT"}, ValueError, "there are 'DEFAULT' and 'SPREAD'"),
        ({"scheduling_strategy": 3}, TypeError, "PlacementGroupSchedulingStrategy"),
        ({"placement_group": "group"}, TypeError, "must be what util.placement_group"),
    ],
)
def test_wrong_strategies(engine, options, error, text):
    with pytest.raises(error, match=text):
        current.options(**options)
