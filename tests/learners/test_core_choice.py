"""Choice of the number of cores for updates, with a clock that the test moves."""

import ctypes
import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest

from rllib import PPOConfig, SACConfig, processes
from rllib.learners.updates import core_choice
from rllib.learners.updates.core_choice import LONGEST_PAUSE_S, NUM_MEASURED, CoreChoice
from rllib.models.arithmetic import kernels
from rllib.models.arithmetic.shared_products import Library, SharedProducts


class Machine:
    """A machine on which an update takes `seconds[cores]`; `free` cores are not claimed."""

    def __init__(self, seconds, free=2):
        self.seconds, self.free, self.now = dict(seconds), free, 0.0
        self.choice = CoreChoice(8, lambda: self.free, lambda: self.now)
        self.used: list[int] = []

    def updates(self, count, rows=256, worth=8):
        """Makes this number of updates; returns the cores of each."""
        before = len(self.used)
        for _ in range(count):
            cores = self.choice.begin(worth)
            self.now += self.seconds[cores]
            self.used.append(cores)
            self.choice.end(rows)
        return self.used[before:]

    def until(self, now):
        while self.now < now:
            self.updates(1)


def changes(used: list[int]) -> int:
    """Number of changes between numbers that were used longer than they were measured."""
    runs = [[used[0], 0]]
    for cores in used:
        if cores != runs[-1][0]:
            runs.append([cores, 0])
        runs[-1][1] += 1
    lasting = [cores for cores, length in runs if length > NUM_MEASURED + 1]
    return sum(a != b for a, b in itertools.pairwise(lasting))


def test_two_cores_are_taken_where_they_are_faster():
    machine = Machine({1: 0.004, 2: 0.0024})
    assert machine.updates(NUM_MEASURED) == [1] * NUM_MEASURED
    assert set(machine.updates(NUM_MEASURED + 1)) == {2}
    assert machine.choice.cores == 2
    assert machine.choice.reason == "2 cores took 0.60 of the time of 1 core"
    assert machine.updates(100) == [2] * 100


@pytest.mark.parametrize("two", [0.0037, 0.004, 0.005])
def test_one_core_is_kept_where_two_are_not_clearly_faster(two):
    machine = Machine({1: 0.004, 2: two})
    machine.updates(100)
    assert machine.choice.cores == 1 and machine.used.count(2) == NUM_MEASURED + 1
    assert machine.choice.reason == f"2 cores took {two / 0.004:.2f} of the time of 1 core"


def test_a_second_training_brings_it_back_to_one_core():
    machine = Machine({1: 0.004, 2: 0.0025})
    machine.until(5.0)
    assert machine.choice.cores == 2
    machine.seconds = {1: 0.004, 2: 0.06}  # both trainings have threads that spin
    began = machine.now
    while machine.choice.cores == 2:
        machine.updates(1)
    assert machine.now - began < 2.0, "before the next measurement is due"
    assert machine.updates(200).count(1) == 200


def test_it_takes_two_again_when_the_other_training_has_ended():
    machine = Machine({1: 0.004, 2: 0.06})
    machine.until(30.0)
    assert machine.choice.cores == 1
    machine.seconds = {1: 0.004, 2: 0.0025}
    machine.until(30.0 + 2 * LONGEST_PAUSE_S)
    assert machine.choice.cores == 2


def test_hopeless_cores_are_measured_by_a_single_update_behind_the_first():
    machine = Machine({1: 0.004, 2: 0.06})
    machine.updates(100)
    assert machine.used.count(2) == 2


def test_measuring_costs_little():
    """The share of updates on the wrong number of cores falls as the run goes on."""
    machine = Machine({1: 0.04, 2: 0.039})
    machine.until(3600.0)
    assert 0 < machine.used.count(2) < 0.002 * len(machine.used)


def test_it_never_flaps():
    """Updates that take the same time but for noise, and a neighbour that comes and goes every two seconds."""
    noise = random.Random(0)
    machine = Machine({1: 0.0, 2: 0.0})
    while machine.now < 600.0:
        busy = int(machine.now / 2) % 2
        machine.seconds = {1: 0.02 * noise.uniform(0.9, 1.1), 2: (0.05 if busy else 0.018) * noise.uniform(0.9, 1.1)}
        machine.updates(1)
    assert changes(machine.used) <= 12


def test_slow_phases_that_no_number_of_cores_avoids_are_measured_once():
    machine = Machine({1: 0.004, 2: 0.0025})
    machine.until(20.0)
    machine.seconds = {1: 0.04, 2: 0.025}
    began = len(machine.used)
    machine.until(25.0)
    used = machine.used[began:]
    assert machine.choice.cores == 2 and 0 < used.count(1) <= NUM_MEASURED + 1


def test_claimed_cores_are_not_taken_and_given_up():
    machine = Machine({1: 0.004, 2: 0.0025}, free=1)
    machine.updates(100)
    assert set(machine.used) == {1} and machine.choice.reason == "no other core is free"
    machine.free = 2
    machine.until(60.0)
    assert machine.choice.cores == 2
    machine.free = 1
    while machine.choice.cores == 2:
        machine.updates(1)
    assert machine.now < 60.0 + 2 * LONGEST_PAUSE_S and machine.choice.reason == "the others have been claimed"


def test_updates_that_are_worth_one_core_take_one():
    machine = Machine({1: 0.004, 2: 0.001})
    assert set(machine.updates(100, worth=1)) == {1}
    assert machine.choice.reason == "updates are too short for more"


def test_no_more_cores_are_taken_than_updates_are_worth():
    machine = Machine({1: 0.004, 2: 0.003, 8: 0.001}, free=8)
    assert set(machine.updates(100, worth=2)) == {1, 2}


def test_batches_of_other_sizes_are_compared_by_their_rows():
    machine = Machine({1: 0.004, 2: 0.002})
    machine.updates(50)
    assert machine.choice.cores == 2
    machine.seconds = {1: 0.04, 2: 0.02}
    machine.now += core_choice.FIRST_PAUSE_S / 5  # slower updates would be looked into
    assert set(machine.updates(50, rows=2560)) == {2}


def test_an_update_that_has_failed_is_not_measured():
    machine = Machine({1: 0.004, 2: 0.0025})
    machine.choice.begin(8)
    machine.now += 1000.0  # it raised: there is no end
    machine.updates(40)
    assert machine.choice.cores == 2


# ---------------------------------------------------------------------- bits


@pytest.fixture
def products():
    found = kernels.shared_products(most_cores=3)
    if found is None:
        pytest.skip("numpy's library has no batches of products, or OPENBLAS_NUM_THREADS is set")
    return found


def layouts(rows, width):
    """Factors as in the networks: transposed, with a column for the bias, views into larger arrays, stacks."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, width + 1), np.float32)
    w = rng.standard_normal((2, width + 1, 256), np.float32)
    d = rng.standard_normal((2, 256, rows), np.float32)
    yield w.swapaxes(1, 2)[0], x.T
    yield d[0], x
    yield w[0, :-1], d[0]
    yield w[:, :-1], d
    yield d, np.stack([x, x])
    yield d, x[None]


@pytest.mark.parametrize("rows", [1, 40, 1000])
@pytest.mark.parametrize("width", [17, 256])
def test_products_have_the_same_bits_on_any_number_of_cores(products, rows, width):
    for a, b in layouts(rows, width):
        results = []
        for cores in (1, 2, 3):
            larger = np.full((*a.shape[:-2], a.shape[-2] + 1, b.shape[-1]), np.nan, np.float32)
            with kernels.in_blocks(products, cores):
                kernels.matmul(a, b, out=larger[..., :-1, :])
            results.append(larger.tobytes())
        assert len(set(results)) == 1
        assert np.isnan(larger[..., -1, :]).all(), "nothing is written behind the result"
        np.testing.assert_allclose(larger[..., :-1, :], np.matmul(a, b), rtol=1e-4, atol=1e-4)


def test_large_products_are_computed_in_blocks(products):
    for a, b in layouts(512, 256):
        stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        assert products.multiply(a, b, np.empty((*stack, a.shape[-2], b.shape[-1]), np.float32))
    a = np.ones((64, 64), np.float32)
    assert not products.multiply(a, a, np.empty_like(a)), "too small"
    a = np.ones((512, 512), np.float32)
    fixed = np.empty_like(a)
    fixed.flags.writeable = False
    assert not products.multiply(a, a, fixed) and not products.multiply(a, a, np.empty_like(a).T)


def test_factors_that_do_not_fit_are_refused(products):
    a = np.ones((512, 512), np.float32)
    for b, out in ((a[:400], a.copy()), (a, a[:400].copy())):
        with kernels.in_blocks(products, 2), pytest.raises(ValueError, match=r"align|shape|dimension"):
            kernels.matmul(a, b, out=out)


def test_batches_that_round_differently_are_not_used():
    threads = [1]

    def of_the_number_of_threads(*arguments):
        out = ctypes.cast(arguments[12][0], ctypes.POINTER(ctypes.c_float))
        out[0] = threads[-1]

    products = SharedProducts(Library(of_the_number_of_threads, threads.append), most_cores=2)
    a = np.ones((512, 512), np.float32)
    assert not products.multiply(a, a, np.empty_like(a)) and threads == [1, 2, 1]


class InTurn(CoreChoice):
    """Uses one core and two in turn."""

    def begin(self, worth):
        self.begun = getattr(self, "begun", 0) + 1
        self.cores = 3 - self.cores
        return self.cores


KINDS = {
    "SAC": lambda: SACConfig()
    .environment("Pendulum-v1")
    .rollouts(rollout_fragment_length=128)
    .training(train_batch_size=256, num_steps_sampled_before_learning_starts=200)
    .reporting(min_sample_timesteps_per_iteration=128, min_time_s_per_iteration=None),
    "PPO": lambda: PPOConfig()
    .environment("CartPole-v1")
    .training(train_batch_size=512, sgd_minibatch_size=512, num_sgd_iter=1),
    "LSTM": lambda: PPOConfig()
    .environment("CartPole-v1")
    .training(train_batch_size=256, sgd_minibatch_size=256, num_sgd_iter=1)
    .training(model={"use_lstm": True, "lstm_cell_size": 128}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_keeps_its_bits_when_the_number_of_cores_changes(kind, products, monkeypatch):
    found = []
    for choice in (CoreChoice, InTurn):
        monkeypatch.setattr("rllib.algorithms.base.wiring.CoreChoice", choice)
        monkeypatch.setattr("rllib.algorithms.base.wiring.num_free_cores", lambda: 1)
        config = KINDS[kind]().rollouts(num_rollout_workers=0).debugging(seed=3)
        config.learners(num_cpus_per_learner="measured")
        with config.build() as algo:
            for _ in range(4 if kind == "SAC" else 2):
                algo.train()
            found.append(algo.policy.weights.tobytes())
            cores = algo.learners["default_policy"].core_choice
    assert found[0] == found[1] and cores.begun >= 2


def test_results_say_which_number_was_chosen_and_why(products):
    config = KINDS["PPO"]().rollouts(num_rollout_workers=0).learners(num_cpus_per_learner="measured")
    with config.build() as algo:
        chosen = algo.train()["info"]["learner_cores"]
    assert chosen == {"default_policy": {"cores": 1, "reason": "nothing has been measured yet"}}


@pytest.mark.parametrize(
    ("available", "held", "expected"),
    [
        (None, {}, 4),  # no session: nobody has claimed any
        ({"CPU": 3.0}, {}, 3),
        ({"CPU": 0.5}, {}, 1),
        ({}, {}, 1),  # all are claimed
        ({"CPU": 40.0}, {}, 4),  # of other machines
        ({"CPU": 1.0}, {"CPU": 2.0}, 2),  # a trial has what it holds
    ],
)
def test_free_cores_are_those_that_nobody_has_claimed(monkeypatch, available, held, expected):
    monkeypatch.setattr(processes, "cpu_count", lambda: 4)
    monkeypatch.setattr(processes.runtime, "is_initialized", lambda: available is not None)
    monkeypatch.setattr(processes.runtime, "available_resources", lambda: available)
    context = SimpleNamespace(get_assigned_resources=lambda: held)
    monkeypatch.setattr(processes.runtime, "get_runtime_context", lambda: context)
    assert processes.num_free_cores() == expected
