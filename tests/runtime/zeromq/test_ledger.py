"""Resources: exact fractions, GPUs packed, CPUs that are lent."""

from runtime.engines.zeromq.ledger import Ledger, quantities, units


def test_fractions_add_up():
    ledger, tenth = Ledger(units({"CPU": 1})), units({"CPU": 0.1})
    for _ in range(10):
        assert ledger.fits(tenth)
        ledger.take(tenth)
    assert not ledger.fits(tenth)
    for _ in range(10):
        ledger.give_back(tenth)
    assert quantities(ledger.free) == {"CPU": 1}


def test_all_or_nothing():
    ledger = Ledger(units({"CPU": 4, "a": 1}))
    assert not ledger.fits(units({"CPU": 1, "a": 2}))
    assert not ledger.fits(units({"b": 1}))
    assert ledger.fits(units({"CPU": 4, "a": 1})) and ledger.fits(())


def test_free_cpus_may_be_negative():
    ledger = Ledger(units({"CPU": 1}))
    ledger.take(units({"CPU": 3}))
    assert not ledger.fits(units({"CPU": 1})) and ledger.fits(())
    ledger.give_back(units({"CPU": 3}))
    assert ledger.fits(units({"CPU": 1}))


def test_gpus():
    ledger = Ledger(units({"GPU": 3}), ("0", "1", "2"))
    whole, half = units({"GPU": 1}), units({"GPU": 0.5})
    first = ledger.take(half)
    assert ledger.take(half) == first, "fractions share a device, so that others stay whole"
    assert ledger.take(units({"GPU": 2})) == tuple(gpu for gpu in ("0", "1", "2") if gpu not in first)
    assert not ledger.fits(half)
    ledger.give_back(half, first)
    assert not ledger.fits(whole) and ledger.fits(half)
    ledger.give_back(half, first)
    assert ledger.fits(whole)


def test_gpus_in_pieces_are_not_a_whole():
    ledger = Ledger(units({"GPU": 2}), ("0", "1"))
    most = units({"GPU": 0.7})
    ledger.take(most)
    ledger.take(most)
    assert not ledger.fits(units({"GPU": 0.5})), "0.6 is free, but on no single device"
