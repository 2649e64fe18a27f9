"""Who holds what: an item is free exactly when nobody needs it, in whatever order the messages arrive."""

import itertools
import random

import pytest

from runtime.engines.zeromq.holds import ACTOR, BLOCK, OBJECT, Holds

A, B, C = 1, 2, 3


def freed(holds):
    return [key for key, _ in holds.take_freed()]


def test_creator_holds_what_it_registers():
    holds = Holds()
    holds.register(b"k", BLOCK, A)
    assert freed(holds) == []
    holds.add(b"k", A, -1)
    assert freed(holds) == [b"k"] and not holds.items


def test_registering_twice_counts_once():
    holds = Holds()
    holds.register(b"k", OBJECT, A)
    holds.register(b"k", OBJECT, A)
    holds.add(b"k", A, -1)
    assert freed(holds) == [b"k"]


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
        holds = Holds()
        for position, (what, *rest) in enumerate(order):
            if what == "register":
                holds.register(b"k", BLOCK, rest[0])
            else:
                holds.add(b"k", *rest)
            if position < len(order) - 1:
                assert freed(holds) == [], order[: position + 1]
        assert freed(holds) == [b"k"] and not holds.items, order


def test_a_dead_holder_holds_nothing():
    holds = Holds()
    holds.register(b"k", ACTOR, A)
    holds.add(b"k", B, 1)
    holds.add(b"k", B, 1)
    holds.add(b"k", A, -1)
    assert freed(holds) == []
    holds.drop_holder(B)
    assert freed(holds) == [b"k"]


def test_an_object_holds_what_its_value_needs():
    holds = Holds()
    holds.register(b"block", BLOCK, A)
    holds.register(b"object", OBJECT, A)
    holds.add(b"block", b"object", 1)
    holds.add(b"block", A, -1)
    assert freed(holds) == []
    holds.add(b"object", A, -1)
    assert freed(holds) == [b"object", b"block"]


def test_counts_of_the_unregistered_leave_nothing_behind():
    holds = Holds()
    holds.add(b"k", B, -1)
    holds.add(b"k", B, 1)
    assert not holds.items and freed(holds) == []


@pytest.mark.parametrize("seed", range(5))
def test_random_traffic(seed):
    """Processes pass items on at random; messages to the table are delayed at random, in order per sender."""
    rng, holds, owned = random.Random(seed), Holds(), {}
    mail = {p: [] for p in range(5)}
    keys = [str(i).encode() for i in range(20)]
    for key in keys:
        owned[key] = {0: 1}
        mail[0].append(("register", key))

    def deliver(process):
        kind, key, *rest = mail[process].pop(0)
        if kind == "register":
            holds.register(key, BLOCK, process)
        else:
            holds.add(key, *rest)
        for gone in freed(holds):
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
    assert not holds.items
