"""Observation filters: moments, deltas, and that nothing is counted twice."""

import numpy as np
import pytest

from rllib.models.observations.filters import CLIP, MeanStdFilter, NoFilter, RunningMoments


def test_printed_merge():
    first, second = RunningMoments(1), RunningMoments(1)
    first.add(np.array([[1.0], [2], [3]]))
    second.add(np.array([[4.0], [5], [6]]))
    first.merge(second)
    assert first.count == 6
    assert first.mean[0] == pytest.approx(3.5)
    assert first.variance[0] == pytest.approx(2.916667, abs=1e-6)


def test_a_million_values_far_from_zero():
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((1_000_000, 2)) * [1.0, 3.0] + 1e4).astype(np.float32)
    workers = [RunningMoments(2) for _ in range(4)]
    for index, part in enumerate(np.array_split(rows, 40)):
        workers[index % 4].add(part)
    merged = RunningMoments(2)
    for worker in workers:
        merged.merge(worker)
    exact = rows.astype(np.float64)
    assert merged.count == 1_000_000
    np.testing.assert_allclose(merged.mean, exact.mean(0), rtol=1e-9)
    np.testing.assert_allclose(merged.variance, exact.var(0), rtol=1e-5)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_statistics_are_not_changed_by_rows_that_are_not_finite(wrong):
    moments, bad = RunningMoments(2), np.array([[1.0, 2.0], [1.0, wrong]])
    for _ in range(2):  # the first rows, and later ones
        before = moments.get_state()
        with pytest.raises(ValueError, match="column 1"):
            moments.add(bad)
        assert all(np.array_equal(before[name], array) for name, array in moments.get_state().items())
        moments.add(np.ones((3, 2)))


@pytest.mark.parametrize("num_streams", [1, 2])
def test_a_filter_goes_on_after_rows_that_were_refused(num_streams):
    made = MeanStdFilter((1,))
    made.keep_apart(num_streams)
    with pytest.raises(ValueError, match="finite"):
        made(np.full((2, 1), np.nan), update=True)
    made.pop_delta()
    made(np.ones((2, 1)), update=True)
    assert made.pop_delta()["count"].sum() == 2


def test_order_and_grouping_do_not_matter():
    rows = np.random.default_rng(1).standard_normal((100, 3))
    at_once, one_by_one = RunningMoments(3), RunningMoments(3)
    at_once.add(rows)
    for row in rows[::-1]:
        one_by_one.add(row[None])
    np.testing.assert_allclose(at_once.variance, one_by_one.variance, rtol=1e-12)


def sync(driver, workers):
    for worker in workers:
        driver.merge(worker.pop_delta())
    for worker in workers:
        worker.set_state(driver.get_state())


def test_syncing_again_and_again_counts_each_observation_once():
    rng = np.random.default_rng(2)
    driver, workers = MeanStdFilter((3,)), [MeanStdFilter((3,)) for _ in range(3)]
    seen = []
    for _ in range(5):
        for worker in workers:
            rows = rng.standard_normal((7, 3)) + 5
            seen.append(rows)
            worker(rows, update=True)
        sync(driver, workers)
        sync(driver, workers)
    rows = np.concatenate(seen)
    assert driver.count == len(rows) == 105
    np.testing.assert_allclose(driver.mean, rows.mean(0), rtol=1e-10)
    np.testing.assert_allclose(driver.variance, rows.var(0), rtol=1e-10)
    assert all(np.array_equal(worker.mean, driver.mean) for worker in workers)


@pytest.mark.parametrize("rows", [1, 7, 255, 256, 257, 1000])
def test_steps_of_any_size_are_counted(rows):
    observation_filter = MeanStdFilter((2,))
    observation_filter.merge({"count": np.array(2.0), "mean": np.zeros(2), "m2": np.ones(2)})
    data = np.random.default_rng(rows).standard_normal((3 * rows, 2)) + 9
    for part in np.array_split(data, 3):
        observation_filter(part, update=True)
    delta = observation_filter.pop_delta()
    assert delta["count"] == 3 * rows
    np.testing.assert_allclose(delta["mean"][0], data.mean(0), rtol=1e-10)
    np.testing.assert_allclose(delta["m2"][0], ((data - data.mean(0)) ** 2).sum(0), rtol=1e-9)
    assert observation_filter.pop_delta()["count"] == 0


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("split", [(4,), (2, 2), (1, 1, 1, 1)])
def test_bits_do_not_depend_on_which_worker_has_an_environment(size, split):
    """From before the first merge on, with more steps than fit into the pending rows, and environments that wait."""
    data = np.random.default_rng(6).standard_normal((600, 4, size)) * 3 + 50
    plays = np.random.default_rng(7).random((600, 4)) < 0.9
    plays[:300] = True
    ends = np.cumsum(split)

    def run(spans):
        driver, workers = MeanStdFilter((size,)), [MeanStdFilter((size,)) for _ in spans]
        seen = np.zeros(data.shape, np.float32)
        for worker, span in zip(workers, spans):
            worker.keep_apart(span.stop - span.start)
        for fragment in np.array_split(np.arange(600), 2):
            for worker, span in zip(workers, spans):
                for t in fragment:
                    own = np.flatnonzero(plays[t, span])
                    place = span.start + own
                    if len(own):
                        worker(data[t, place], update=True, environments=own)
                        seen[t, place] = worker(data[t, place], environments=own)
            sync(driver, workers)
        return driver, seen

    alone, seen_alone = run([slice(0, 4)])
    driver, seen = run([slice(int(end) - count, int(end)) for end, count in zip(ends, split)])
    assert driver.count == plays.sum()
    np.testing.assert_array_equal(seen, seen_alone)
    np.testing.assert_array_equal(driver.mean, alone.mean)
    np.testing.assert_array_equal(driver.variance, alone.variance)
    np.testing.assert_allclose(driver.variance, data[plays].var(0), rtol=1e-9)


def test_a_delta_taken_between_two_syncs_is_not_lost_by_new_statistics():
    driver, worker = MeanStdFilter((1,)), MeanStdFilter((1,))
    worker(np.ones((4, 1)), update=True)
    worker.set_state(driver.get_state())
    driver.merge(worker.pop_delta())
    assert driver.count == 4


def test_normalises_and_clips():
    observation_filter = MeanStdFilter((2,))
    rows = np.random.default_rng(3).standard_normal((1000, 2)) * [2.0, 0.5] + [100.0, -3.0]
    observation_filter(rows, update=True)
    observation_filter.merge(observation_filter.pop_delta())
    normal = observation_filter(rows)
    assert normal.dtype == np.float32
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(normal.std(0), 1, atol=1e-5)
    assert np.array_equal(observation_filter(np.array([[1e9, -1e9]])), [[CLIP, -CLIP]])


def test_without_update_nothing_is_noted():
    observation_filter = MeanStdFilter((2,))
    observation_filter(np.ones((5, 2)), update=False)
    assert observation_filter.pop_delta()["count"] == 0


def test_statistics_do_not_move_while_a_fragment_is_collected():
    observation_filter = MeanStdFilter((1,))
    observation_filter.merge({"count": np.array(10.0), "mean": np.zeros(1), "m2": np.full(1, 10.0)})
    before = observation_filter(np.array([[2.0]]))
    observation_filter(np.full((100, 1), 50.0), update=True)
    assert np.array_equal(observation_filter(np.array([[2.0]])), before)


def test_the_first_fragment_is_normalised_with_what_it_has_seen():
    observation_filter = MeanStdFilter((1,))
    rows = np.random.default_rng(4).standard_normal((500, 1)) * 3 + 1000
    assert abs(observation_filter(rows, update=True)).max() < 6


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("merged", [False, True])
def test_rows_are_named_by_their_environment_whether_or_not_it_is_counted_apart(streams, merged):
    filter_, rows = MeanStdFilter((2,)), np.random.default_rng(0).normal(size=(3, 4, 2)) * 5 + 3
    filter_.keep_apart(streams)
    for step in rows:
        filter_(step, update=True)
    if merged:
        filter_.merge(filter_.pop_delta())
    for environment in range(4):
        counted = rows.reshape(-1, 2) if merged or streams == 1 else rows[:, environment]
        expected = (rows[0, environment] - counted.mean(0)) / counted.std(0)
        got = filter_(rows[0, environment][None], environments=np.array([environment]))[0]
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_number_that_never_varies_becomes_zero():
    observation_filter = MeanStdFilter((2,))
    rows = np.array([[7.0, 1.0], [7.0, 2.0], [7.0, 3.0]])
    observation_filter(rows, update=True)
    observation_filter.merge(observation_filter.pop_delta())
    normal = observation_filter(rows)
    assert np.array_equal(normal[:, 0], np.zeros(3))
    assert np.isfinite(normal).all()


def test_numbers_that_hardly_vary_stay_small():
    """By VecNormalize's (x - mean) / sqrt(variance + 1e-8); a gripper that only trembles must not fill the network."""
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((1000, 2)) * [1.0, 1e-6]).astype(np.float32)
    filter_ = MeanStdFilter((2,))
    filter_(rows, update=True)
    filter_.merge(filter_.pop_delta())
    expected = (rows - rows.mean(0)) / np.sqrt(rows.astype(np.float64).var(0) + 1e-8)
    np.testing.assert_allclose(filter_(rows), expected, atol=1e-5)
    assert np.abs(filter_(rows)[:, 1]).max() < 0.05


def test_an_observation_far_off_is_treated_alike_wherever_it_stands():
    observation_filter = MeanStdFilter((2,))
    observation_filter(np.random.default_rng(5).standard_normal((50, 2)), update=True)
    observation_filter.merge(observation_filter.pop_delta())
    final = np.full((1, 2), 1e3)
    among_others = np.concatenate([np.zeros((3, 2)), final])
    assert np.array_equal(observation_filter(final)[0], observation_filter(among_others)[3])


def test_writes_into_out_and_keeps_shapes():
    observation_filter = MeanStdFilter((2, 2))
    out = np.empty((3, 2, 2), np.float32)
    result = observation_filter(np.arange(12, dtype=np.uint8).reshape(3, 2, 2), out=out, update=True)
    assert result is out
    assert np.isfinite(out).all()


def test_state_of_another_size_is_refused():
    with pytest.raises(ValueError, match="2 numbers"):
        MeanStdFilter((3,)).set_state(MeanStdFilter((2,)).get_state())


def test_no_filter_passes_everything_on():
    observations, out = np.arange(4), np.empty(4, int)
    assert NoFilter()(observations, update=True) is observations
    assert np.array_equal(NoFilter()(observations, out), observations)
    assert NoFilter().pop_delta() is None
    assert NoFilter().get_state() == {}


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_a_single_observation_is_no_batch(shape):
    with pytest.raises(ValueError, match=r"takes batches \[B, .* single observation"):
        MeanStdFilter(shape)(np.zeros(shape))
    assert MeanStdFilter(shape)(np.zeros((2, *shape))).shape == (2, *shape)


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
@pytest.mark.parametrize("num_streams", [1, 3])
def test_lists_and_batches_without_rows_are_batches_too(shape, num_streams):
    given, listed, empty = (MeanStdFilter(shape) for _ in range(3))
    for each in (given, listed, empty):
        each.keep_apart(num_streams)
    rows = np.arange(3.0 * np.prod(shape)).reshape(3, *shape)
    for _ in range(3):
        np.testing.assert_array_equal(listed(rows.tolist(), update=True), given(rows, update=True))
        assert empty(np.zeros((0, *shape)), update=True).shape == (0, *shape)
    listed.merge(listed.pop_delta())
    assert listed.count == 9 and (empty.pop_delta()["count"] == 0).all()
    np.testing.assert_allclose(listed.undone(listed(rows).tolist()), rows, atol=1e-5)


@pytest.mark.parametrize("wrong", [np.zeros((2, 4, 4)), np.zeros((2, 4)), [[[1.0]]], 3.0])
def test_observations_of_another_shape_are_refused(wrong):
    filled = MeanStdFilter((2, 3))
    for call in (filled, filled.undone):
        with pytest.raises(ValueError, match=r"takes batches \[B, \*\(2, 3\)\], but got"):
            call(wrong)
