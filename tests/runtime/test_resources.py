"""Resources: exact fractions, GPUs packed, CPUs that are lent."""

from runtime.engines.resources import Resources, quantities, units


def test_fractions_add_up():
    resources, tenth = Resources(units({"CPU": 1})), units({"CPU": 0.1})
    for _ in range(10):
        assert resources.fits(tenth)
        resources.take(tenth)
    assert not resources.fits(tenth)
    for _ in range(10):
        resources.give_back(tenth)
    assert quantities(resources.free) == {"CPU": 1}


def test_all_or_nothing():
    resources = Resources(units({"CPU": 4, "a": 1}))
    assert not resources.fits(units({"CPU": 1, "a": 2}))
    assert not resources.fits(units({"b": 1}))
    assert resources.fits(units({"CPU": 4, "a": 1})) and resources.fits(())


def test_free_cpus_may_be_negative():
    resources = Resources(units({"CPU": 1}))
    resources.take(units({"CPU": 3}))
    assert not resources.fits(units({"CPU": 1})) and resources.fits(())
    resources.give_back(units({"CPU": 3}))
    assert resources.fits(units({"CPU": 1}))


def test_gpus():
    resources = Resources(units({"GPU": 3}), ("0", "1", "2"))
    whole, half = units({"GPU": 1}), units({"GPU": 0.5})
    first = resources.take(half)
    assert resources.take(half) == first, "fractions share a device, so that others stay whole"
    assert resources.take(units({"GPU": 2})) == tuple(gpu for gpu in ("0", "1", "2") if gpu not in first)
    assert not resources.fits(half)
    resources.give_back(half, first)
    assert not resources.fits(whole) and resources.fits(half)
    resources.give_back(half, first)
    assert resources.fits(whole)


def test_gpus_in_pieces_are_not_a_whole():
    resources = Resources(units({"GPU": 2}), ("0", "1"))
    most = units({"GPU": 0.7})
    resources.take(most)
    resources.take(most)
    assert not resources.fits(units({"GPU": 0.5})), "0.6 is free, but on no single device"


def test_bundles_are_booked_together_or_not_at_all():
    resources = Resources(units({"CPU": 3}))
    assert resources.split([units({"CPU": 2}), units({"CPU": 2})]) is None and resources.unused
    first, second = resources.split([units({"CPU": 2}), units({"CPU": 1})])
    assert quantities(resources.free) == {"CPU": 0} and first.fits(units({"CPU": 2}))
    second.take(units({"CPU": 1}))
    assert first.unused and not second.unused
    resources.join(first)
    assert quantities(resources.free) == {"CPU": 2}


def test_a_bundle_has_gpus_of_its_own():
    resources = Resources(units({"GPU": 3}), ("0", "1", "2"))
    whole, part = resources.split([units({"GPU": 2}), units({"GPU": 0.5})])
    assert whole.take(units({"GPU": 1})) == ("0",) and whole.take(units({"GPU": 1})) == ("1",)
    assert part.take(units({"GPU": 0.25})) == ("2",) and resources.take(units({"GPU": 0.5})) == ("2",)
    part.give_back(units({"GPU": 0.25}), ("2",))
    resources.join(part)
    assert resources.fits(units({"GPU": 0.5})) and not resources.fits(units({"GPU": 1}))
