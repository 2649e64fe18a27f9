"""Choice of the number of cores for updates, with a clock that the test moves."""

import itertools
import random
from types import SimpleNamespace

import pytest

from rllib import PPOConfig, SACConfig, processes
from rllib.learners.updates import core_choice
from rllib.learners.updates.core_choice import FIRST_PAUSE_S, LONGEST_PAUSE_S, NUM_MEASURED, CoreChoice, FreeCores


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


def test_free_cores_are_taken_without_measuring_and_given_up_when_they_are_claimed():
    now, free = 0.0, 3
    cores = FreeCores(4, lambda: free, lambda: now)
    assert [cores.begin(worth) for worth in (1, 2, 4)] == [1, 2, 3] and cores.reason == "these are free"
    free = 1
    assert cores.begin(4) == 3, "nobody is asked before each update"
    now += FIRST_PAUSE_S
    assert cores.begin(4) == 1 and cores.reason == "no other core is free"
    assert cores.begin(1) == 1 and not cores.reason, "nothing to tell of updates that are too short"


# ---------------------------------------------------------------------- bits


class InTurn(FreeCores):
    """Uses one core and two in turn."""

    def begin(self, worth):
        self.begun = getattr(self, "begun", 0) + 1
        self.cores = 3 - self.cores
        return self.cores


KINDS = {
    "SAC": lambda: (
        SACConfig()
        .environment("Pendulum-v1")
        .rollouts(rollout_fragment_length=128)
        .training(train_batch_size=256, num_steps_sampled_before_learning_starts=200)
        .reporting(min_sample_timesteps_per_iteration=128, min_time_s_per_iteration=None)
    ),
    "PPO": lambda: (
        PPOConfig().environment("CartPole-v1").training(train_batch_size=512, sgd_minibatch_size=512, num_sgd_iter=1)
    ),
    "LSTM": lambda: (
        PPOConfig()
        .environment("CartPole-v1")
        .training(train_batch_size=256, sgd_minibatch_size=256, num_sgd_iter=1)
        .training(model={"use_lstm": True, "lstm_cell_size": 128})
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_keeps_its_bits_when_the_number_of_cores_changes(kind, monkeypatch):
    found = []
    monkeypatch.setattr("rllib.algorithms.base.wiring.num_cores", lambda: 1)
    for choice in (FreeCores, InTurn):
        monkeypatch.setattr("rllib.algorithms.base.wiring.FreeCores", choice)
        config = KINDS[kind]().rollouts(num_rollout_workers=0).debugging(seed=3)
        with config.build() as algo:
            for _ in range(4 if kind == "SAC" else 2):
                algo.train()
            found.append(algo.policy.weights.tobytes())
            cores = algo.learners["default_policy"].core_choice
    assert found[0] == found[1] and cores.begun >= 2


def test_results_say_which_number_was_chosen_and_why():
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


def test_the_log_says_once_when_workers_leave_updates_one_core(monkeypatch, caplog):
    monkeypatch.setattr("rllib.algorithms.base.wiring.num_cores", lambda: 2)
    monkeypatch.setattr("rllib.algorithms.base.wiring.num_free_cores", lambda: 1)
    config = KINDS["SAC"]().rollouts(num_rollout_workers=1, sample_async=True)
    with caplog.at_level("INFO", "rllib"), config.build() as algo:
        results = [algo.train() for _ in range(4)]
    assert results[-1]["info"]["learner_cores"]["default_policy"] == {"cores": 1, "reason": "no other core is free"}
    told = [record.getMessage() for record in caplog.records if "updates take one core" in record.getMessage()]
    assert len(told) == 1 and "num_rollout_workers=0" in told[0]


def test_workers_that_wait_leave_all_cores_to_updates(monkeypatch):
    monkeypatch.setattr("rllib.algorithms.base.wiring.num_cores", lambda: 2)
    monkeypatch.setattr("rllib.algorithms.base.wiring.num_free_cores", lambda: 1)
    with KINDS["SAC"]().rollouts(num_rollout_workers=1).build() as algo:
        results = [algo.train() for _ in range(4)]
    assert results[-1]["info"]["learner_cores"]["default_policy"] == {"cores": 2, "reason": "these are free"}
