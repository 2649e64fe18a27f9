"""Sums over learners: through shared memory, and by torch.distributed."""

import threading
import time

import numpy as np
import pytest

from rllib.learners.updates.collective import SharedBlock, SharedSums, Unfinished

SIZES = [1, 2, 3, 5]


def in_threads(size: int, work) -> list:
    """What work(rank) returned or raised, each in a thread of its own."""
    found: list = [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = work(rank)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


def members(size: int, capacity: int = 64, timeout_s: float = 20.0) -> tuple[SharedBlock, list[SharedSums]]:
    block = SharedBlock(size, capacity)
    found = [SharedBlock.find(*block.place) for _ in range(size)]
    block.close()
    return block, [SharedSums(each, rank, timeout_s, patient=False) for rank, each in enumerate(found)]


def arrays_of(rank: int, round_: int) -> list[np.ndarray]:
    rng = np.random.default_rng([rank, round_])
    return [rng.standard_normal(shape, np.float32) for shape in (50, (3, 7), 1)]


@pytest.mark.parametrize("capacity", [7, 64, 1000])
@pytest.mark.parametrize("size", SIZES)
def test_all_get_the_same_sums(size, capacity):
    _, sums = members(size, capacity)

    def work(rank: int) -> list:
        rounds = [arrays_of(rank, round_) for round_ in range(20)]
        for arrays in rounds:
            sums[rank].sum(arrays)
        return rounds

    found = in_threads(size, work)
    for round_ in range(20):
        expected = [sum(parts) for parts in zip(*(arrays_of(rank, round_) for rank in range(size)))]
        for of_rank in found:
            for array, exact, of_first in zip(of_rank[round_], expected, found[0][round_]):
                np.testing.assert_allclose(array, exact, rtol=1e-5, atol=1e-6)
                np.testing.assert_array_equal(array, of_first)


def test_one_that_does_not_come_is_named_when_time_is_up():
    _, sums = members(3, timeout_s=0.2)
    found = in_threads(3, lambda rank: None if rank == 1 else sums[rank].sum(arrays_of(rank, 0)))
    assert [type(error) for error in found] == [Unfinished, type(None), Unfinished]
    assert "has waited for 0.2 s; missing were learners [1]" in str(found[0])


def test_those_who_wait_go_on_when_they_are_interrupted():
    block, sums = members(2)
    timer = threading.Timer(0.2, block.interrupt)
    timer.start()
    began = time.monotonic()
    with pytest.raises(Unfinished):
        sums[0].sum(arrays_of(0, 0))
    assert time.monotonic() - began < 10


def test_a_sum_that_all_have_come_to_is_finished_though_one_has_left_since():
    block, sums = members(2)
    leaver = threading.Thread(target=lambda: (sums[0].sum(arrays_of(0, 0)), sums[0].close()))
    leaver.start()
    arrays = arrays_of(1, 0)
    while block.counters[0] < 1:
        time.sleep(0.001)
    sums[1].sum(arrays)
    leaver.join(20)
    np.testing.assert_allclose(arrays[0], arrays_of(0, 0)[0] + arrays_of(1, 0)[0], rtol=1e-5)
    with pytest.raises(Unfinished):
        sums[1].sum(arrays)


def test_a_block_is_found_by_its_token_alone():
    block = SharedBlock(2, 64)
    pid, fd, size, capacity, token = block.place
    assert SharedBlock.find(pid, fd, size, capacity, token) is not None
    assert SharedBlock.find(pid, fd, size, capacity, bytes(16)) is None
    assert SharedBlock.find(pid, fd, size, 10 * capacity, token) is None
    assert SharedBlock.find(2**22 - 1, fd, size, capacity, token) is None
    block.close()
    assert SharedBlock.find(*block.place) is None


@pytest.mark.parametrize("size", [2, 3])
def test_gloo_sums_the_same(size):
    from rllib.learners.group.torch_collective import TorchSums, open_store

    store = open_store("127.0.0.1", 20.0)
    address = "127.0.0.1", store.port

    def work(rank: int) -> list:
        sums = TorchSums("gloo", address, rank, size, 20.0, store if rank == 0 else None)
        arrays = arrays_of(rank, 0)
        sums.sum(arrays)
        sums.sum(arrays[:1])
        return arrays

    found = in_threads(size, work)
    expected = [sum(parts) for parts in zip(*(arrays_of(rank, 0) for rank in range(size)))]
    for arrays in found:
        for array, exact in zip(arrays, [size * expected[0], *expected[1:]]):
            np.testing.assert_allclose(array, exact, rtol=1e-4, atol=1e-5)


def test_gloo_ends_the_wait_for_one_that_does_not_come():
    from rllib.learners.group.torch_collective import TorchSums, open_store

    store = open_store("127.0.0.1", 20.0)
    address = "127.0.0.1", store.port

    def work(rank: int) -> None:
        sums = TorchSums("gloo", address, rank, 2, 1.0, store if rank == 0 else None)
        if rank == 0:
            sums.sum(arrays_of(0, 0))

    assert isinstance(in_threads(2, work)[0], Unfinished)
