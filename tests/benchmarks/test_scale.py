"""The driver's time for a fragment, with workers that send one again and again."""

from scale import driver_us


def test_the_driver_takes_in_fragments_of_workers_that_only_send():
    us, per_s = driver_us(workers=1, fragments=20)
    assert us > 0 and per_s > 0
