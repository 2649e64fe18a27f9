"""Who holds what: an item is free exactly when nobody needs it, in whatever order the messages arrive."""

import itertools
import random

import pytest

from runtime.engines.zeromq.node.refcounts import ACTOR, BLOCK, OBJECT, RefCounts

A, B, C = 1, 2, 3


def freed(refcounts):
    return [key for key, _ in refcounts.take_freed()]


def test_creator_holds_what_it_registers():
    refcounts = RefCounts()
    refcounts.register(b"k", BLOCK, A)
    assert freed(refcounts) == []
    refcounts.add(b"k", A, -1)
    assert freed(refcounts) == [b"k"] and not refcounts.items


def test_registering_twice_counts_once():
    refcounts = RefCounts()
    refcounts.register(b"k", OBJECT, A)
    refcounts.register(b"k", OBJECT, A)
    refcounts.add(b"k", A, -1)
    assert freed(refcounts) == [b"k"]


def orders(*senders):
    """Every way in which the messages of several senders can arrive; each sender's own stay in order."""
    places = [i for i, sender in enumerate(senders) for _ in sender]
    for order in set(itertools.permutations(places)):
        sources = [iter(sender) for sender in senders]
        yield [next(sources[i]) for i in order]


def test_a_release_may_overtake_the_hold():
    # A makes the item and gives it to B; B gives it to C; each lets go when it has.
    a = [("register", A), ("add", B, 1), ("add", A, -1)]
    b = [("add", C, 1), ("add", B, -1)]
    c = [("add", C, -1)]
    for order in orders(a, b, c):
        refcounts = RefCounts()
        for position, (what, *rest) in enumerate(order):
            if what == "register":
                refcounts.register(b"k", BLOCK, rest[0])
            else:
                refcounts.add(b"k", *rest)
            if position < len(order) - 1:
                assert freed(refcounts) == [], order[: position + 1]
        assert freed(refcounts) == [b"k"] and not refcounts.items, order


def test_a_dead_holder_holds_nothing():
    refcounts = RefCounts()
    refcounts.register(b"k", ACTOR, A)
    refcounts.add(b"k", B, 1)
    refcounts.add(b"k", B, 1)
    refcounts.add(b"k", A, -1)
    assert freed(refcounts) == []
    refcounts.drop_holder(B)
    assert freed(refcounts) == [b"k"]


def test_an_object_holds_what_its_value_needs():
    refcounts = RefCounts()
    refcounts.register(b"block", BLOCK, A)
    refcounts.register(b"object", OBJECT, A)
    refcounts.add(b"block", b"object", 1)
    refcounts.add(b"block", A, -1)
    assert freed(refcounts) == []
    refcounts.add(b"object", A, -1)
    assert freed(refcounts) == [b"object", b"block"]


def test_counts_of_the_unregistered_leave_nothing_behind():
    refcounts = RefCounts()
    refcounts.add(b"k", B, -1)
    refcounts.add(b"k", B, 1)
    assert not refcounts.items and freed(refcounts) == []


@pytest.mark.parametrize("seed", range(5))
def test_random_traffic(seed):
    """Processes pass items on at random; messages to the table are delayed at random, in order per sender."""
    rng, refcounts, owned = random.Random(seed), RefCounts(), {}
    mail = {p: [] for p in range(5)}
    keys = [str(i).encode() for i in range(20)]
    for key in keys:
        owned[key] = {0: 1}
        mail[0].append(("register", key))

    def deliver(process):
        kind, key, *rest = mail[process].pop(0)
        if kind == "register":
            refcounts.register(key, BLOCK, process)
        else:
            refcounts.add(key, *rest)
        for gone in freed(refcounts):
            assert not any(owned[gone].values()), "freed while somebody held it"

    for _ in range(3000):
        process, key = rng.randrange(5), rng.choice(keys)
        if mail[process] and rng.random() < 0.5:
            deliver(process)
        elif owned[key].get(process, 0):
            if rng.random() < 0.5:
                other = rng.randrange(5)
                owned[key][other] = owned[key].get(other, 0) + 1
                mail[process].append(("add", key, other, 1))
            owned[key][process] -= 1
            mail[process].append(("add", key, process, -1))
    for process, held in mail.items():
        for key in keys:
            for _ in range(owned[key].pop(process, 0)):
                held.append(("add", key, process, -1))
        while held:
            deliver(process)
    assert not refcounts.items
