"""State machine of trials, without processes, files and clocks: random events, and invariants after each."""

import json
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from rllib.tune.experiment.records import apply_record, shown_config
from rllib.tune.experiment.spec import CheckpointConfig, ExperimentSpec
from rllib.tune.experiment.stoppers import Stopper, TimeoutStopper, make_stopper
from rllib.tune.experiment.trial import Trial, TrialCheckpoint
from rllib.tune.running.resume import Replay
from rllib.tune.running.running_trial import CLOSE_S
from rllib.tune.running.trials import GRACE_S, Trials
from rllib.tune.schedulers import FIFOScheduler, TrialScheduler, create_scheduler
from rllib.tune.search import Searcher
from rllib.tune.states import ERROR, PAUSED, PENDING, RUNNING, TERMINATED
from rllib.tune.trainables.resources import Resources


class Counts(Searcher):
    """Suggests {"a": 0}, {"a": 1}, ..., and counts what it hears of."""

    needs_metric = False

    def __init__(self):
        super().__init__()
        self.ended = []

    def suggest(self, trial_id):
        return {"a": len(self.ended)}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.ended.append(trial_id)


class World:
    """The side of processes and files, in memory: carries instructions out, and answers when it is asked to.

    A process answers a "step" with the next iteration of its trial. Its trial's files are the results and checkpoints
    that were written.

    Attributes:
        calls: trial id -> calls of a process that have not been answered.
        files: trial id -> results that were written.
        saved: trial id -> {name of a checkpoint: iteration}.
        journal: records.
        hooks: hooks of callbacks, with the trial's id.
        asked: all calls so far, as (trial id, what).
    """

    def __init__(self, searcher=None, scheduler=None, cpus=2.0, is_function=False, stop=None, **settings):
        spec = ExperimentSpec(stop=make_stopper(stop), **{"num_samples": 5, **settings})
        self.searcher = searcher or Counts()
        self.trials = Trials(spec, self.searcher, scheduler or FIFOScheduler(), self.make_trial, {"CPU": cpus}, "x",
                             is_function)  # fmt: skip
        self.calls, self.iterations, self.files, self.saved = {}, {}, {}, {}
        self.journal, self.hooks, self.asked, self.removed, self.texts = [], [], [], [], {}
        self.elapsed_s = 0.0
        self.happened(self.trials.begin)

    @staticmethod
    def make_trial(trial_id, index, config):
        return Trial(trial_id, index, "f", config, resources=Resources({"CPU": 1}, {}))

    def happened(self, event, *arguments):
        event(*arguments)
        while taken := self.trials.take():
            for instruction in taken:
                getattr(self, f"on_{type(instruction).__name__}")(*instruction)

    def tick(self, unanswered_s=()):
        self.happened(self.trials.tick, self.elapsed_s, dict(unanswered_s))

    def on_Start(self, trial, restore):
        assert trial.trial_id not in self.calls, "a trial has one process"
        assert not self.trials.takeovers.is_to_come(trial), "it would run on with its own state"
        self.calls[trial.trial_id] = [("start", ())]
        name = restore.rsplit("/", 1)[-1] if restore else None
        self.iterations[trial.trial_id] = self.saved[trial.trial_id][name] if name else 0

    def on_Ask(self, trial, what, arguments):
        self.asked.append((trial.trial_id, what))
        self.calls[trial.trial_id].append((what, arguments))

    def on_Leave(self, trial, in_order):
        del self.calls[trial.trial_id]

    def on_Record(self, record):
        self.journal.append(record)

    def on_WriteResult(self, trial, result):
        self.files.setdefault(trial.trial_id, []).append(dict(result))

    def on_WriteConfig(self, trial):
        pass

    on_WriteError = on_WriteConfig

    def on_WriteText(self, name, text, append):
        self.texts[name] = self.texts.get(name, "") * append + text

    def on_RollBack(self, trial):
        results, found = self.files.get(trial.trial_id, []), list(trial.checkpoints)
        for name, iteration in self.saved.get(trial.trial_id, {}).items():
            is_known = name in {checkpoint.name for checkpoint in found} or (trial.trial_id, name) in self.removed
            if not is_known and results and iteration <= results[-1]["training_iteration"]:
                found.append(TrialCheckpoint(name, iteration))
        last = found[-1].iteration if found else 0
        self.files[trial.trial_id] = kept = [r for r in results if r["training_iteration"] <= last]
        self.trials.rolled_back(trial, kept, found)

    def on_Adopt(self, trial, source, config):
        checkpoint = source.checkpoint
        saved = self.saved.setdefault(trial.trial_id, {})
        name = f"checkpoint_of_{source.trial_id}_{checkpoint.iteration}_{len(saved)}"
        saved[name] = checkpoint.iteration
        copied = TrialCheckpoint(name, checkpoint.iteration, checkpoint.metrics)
        self.trials.adopted(trial, copied, config)

    def on_Remove(self, trial, checkpoint):
        self.removed.append((trial.trial_id, checkpoint.name))

    def on_CallHook(self, hook, trial, more):
        self.hooks.append((hook, trial.trial_id))

    # ---- what processes do

    def answer(self, trial, **metrics):
        """The process of a trial answers its oldest call; returns what that was."""
        what, arguments = self.calls[trial.trial_id].pop(0)
        answer = None
        if what == "start":
            answer = {"pid": 1, "hostname": "here"}
        elif what == "step":
            self.iterations[trial.trial_id] += 1
            iteration = self.iterations[trial.trial_id]
            answer = {"training_iteration": iteration, "score": iteration * (1 + trial.index), **metrics}, None
        elif what == "save":
            answer = f"{trial.logdir}/{self.write(trial, arguments)}"
        elif what == "export":
            answer = {}
        self.happened(self.trials.answered, trial, answer)
        return what

    def write(self, trial, arguments):
        """The process of a trial writes a checkpoint; returns its name."""
        name = arguments[0].rsplit("/", 1)[-1]
        saved = self.saved.setdefault(trial.trial_id, {})
        name = name if name not in saved else f"{name}_{len(saved)}"
        saved[name] = self.iterations[trial.trial_id]
        return name

    def fail(self, trial, has_written=False):
        """The process of a trial dies; `has_written`: in answering that it has written a checkpoint, if it was to."""
        for what, arguments in self.calls[trial.trial_id][:1]:
            if has_written and what == "save":
                self.write(trial, arguments)
        self.happened(self.trials.failed, trial, RuntimeError("died"), "RuntimeError: died")

    def run(self, steps=10_000, choose=lambda running: running[0]):
        """Answers one call after the other until all is over."""
        for _ in range(steps):
            self.tick()
            if self.trials.is_over:
                return self
            if busy := [trial for trial in self.trials.trials if self.calls.get(trial.trial_id)]:
                self.answer(choose(busy))
        raise AssertionError("the experiment does not end")

    def iterations_of(self, trial):
        return [result["training_iteration"] for result in self.files.get(trial.trial_id, [])]


# ---------------------------------------------------------------------- one after the other


def test_every_trial_runs_to_its_end_within_the_resources():
    world = World(stop={"training_iteration": 3})
    world.run()
    assert [trial.status for trial in world.trials.trials] == [TERMINATED] * 5
    assert [world.iterations_of(trial) for trial in world.trials.trials] == [[1, 2, 3]] * 5
    assert world.searcher.ended == [trial.trial_id for trial in world.trials.trials]
    assert {trial.stopped_by for trial in world.trials.trials} == {"training_iteration 3 >= 3"}
    assert not world.calls and world.trials.used == {"CPU": 0}


def test_a_process_is_asked_for_its_next_step_when_it_has_answered():
    world = World(num_samples=1)
    world.tick()
    (trial,) = world.trials.trials
    assert world.calls == {trial.trial_id: [("start", ()), ("step", ())]} and trial.status == RUNNING
    assert world.answer(trial) == "start" and trial.pid == 1
    assert world.answer(trial) == "step" and trial.last_result["training_iteration"] == 1
    assert world.calls == {trial.trial_id: [("step", ())]}


def test_max_concurrent_trials_is_kept():
    world = World(cpus=4.0, max_concurrent_trials=1, stop={"training_iteration": 1})
    world.tick()
    assert len(world.calls) == 1


@pytest.mark.parametrize("max_failures, status, expected", [(0, ERROR, [1, 2, 3]), (1, TERMINATED, [1, 2, 3, 4])])
def test_a_trial_that_fails_goes_on_from_its_checkpoint_as_often_as_it_may(max_failures, status, expected):
    world = World(num_samples=1, stop={"training_iteration": 4}, checkpoint_freq=2, max_failures=max_failures)
    world.tick()
    (trial,) = world.trials.trials
    while trial.last_result.get("training_iteration") != 3:
        world.answer(trial)
    world.fail(trial)
    world.run()
    assert (trial.status, world.iterations_of(trial), trial.num_failures) == (status, expected, 1)
    starts = [hook for hook, _ in world.hooks if hook in ("on_trial_start", "on_trial_restore")]
    assert starts == ["on_trial_start", *["on_trial_start", "on_trial_restore"] * max_failures]
    assert world.hooks[-1][0] == ("on_trial_error" if status == ERROR else "on_trial_complete")


def test_fail_fast_ends_the_experiment():
    world = World(fail_fast=True)
    world.tick()
    first, second = world.trials.trials[:2]
    world.answer(second)
    world.fail(first)
    world.run()
    assert first.status == ERROR and world.trials.first_failed is first
    assert all("fail_fast is set" in trial.stopped_by for trial in world.trials.trials if trial is not first)


def test_checkpoints_that_are_too_many_are_removed_and_never_the_newest():
    world = World(num_samples=1, stop={"training_iteration": 6},
                  checkpoint_config=CheckpointConfig(2, "score", "min", checkpoint_frequency=1))  # fmt: skip
    (trial,) = world.run().trials.trials
    assert [checkpoint.iteration for checkpoint in trial.checkpoints] == [1, 2, 6]
    assert len(world.removed) == 3


@pytest.mark.parametrize("value", ["high", np.array([1.0]), [1.0], {"mean": 1.0}], ids=repr)
@pytest.mark.parametrize("asked", [{"stop": {"score": 5}}, {"metric": "score"}, {"stop": [{"score": 5}]}])
def test_what_is_no_number_fails_its_trial_alone_and_for_good(asked, value):
    world = World(num_samples=2, max_failures=-1, **{"stop": {"training_iteration": 2}, **asked})
    world.tick()
    wrong, right = world.trials.trials
    for trial in (wrong, right):
        world.answer(trial)
    world.answer(wrong, score=value)
    world.run()
    assert wrong.status == ERROR and "score" in wrong.error and "must be a number in the results" in wrong.error
    assert right.status == TERMINATED and sorted(world.searcher.ended) == [wrong.trial_id, right.trial_id]
    assert world.trials.verdicts.get_state()["verdicts"] == {}, "searcher and scheduler have not heard of it"


@pytest.mark.parametrize("number", [int, float, np.int64, np.float32, np.array, Fraction, Decimal])
def test_numbers_of_every_kind_are_compared(number, caplog):
    world = World(num_samples=1, stop={"score": number(2)}, metric="score")
    world.tick()
    (trial,) = world.trials.trials
    world.answer(trial)
    for value in (1, 2):
        world.answer(trial, score=number(value))
    world.answer(trial)
    assert trial.stopped_by == "score 2 >= 2" and not caplog.records
    assert trial.metric_analysis["score"]["max"] == 2


NAMES = [
    {"stop": {"scor": 5}},
    {"stop": [TimeoutStopper(1e9), {"scor": 5}]},
    {"metric": "scor"},
    {"checkpoint_score_attr": "min-scor"},
]


def first_result(names, **metrics):
    world = World(num_samples=1, **names)
    world.tick()
    (trial,) = world.trials.trials
    world.answer(trial)
    world.answer(trial, **metrics)
    return world


@pytest.mark.parametrize("names", NAMES)
def test_a_key_that_no_result_has_is_an_error_with_the_first(names, monkeypatch, caplog):
    with pytest.raises(ValueError, match=r"no scor\. Did you mean score\?.* as NaN from the beginning on, or set TUNE"):
        first_result(names)
    first_result(names, scor=float("nan"))
    first_result({key: "evaluation/scor" if isinstance(value, str) else {"evaluation/scor": 1, "info/x": 1}
                  for key, value in names.items()})  # fmt: skip
    assert not caplog.records
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    first_result(names)
    assert "Did you mean score?" in caplog.text and "Trials continue until a result has it" in caplog.text


def test_a_key_that_results_have_at_times_may_be_absent_after_a_resume():
    world = World(num_samples=0, stop={"at_times": 5})
    trial = world.make_trial("x_0", 0, {"a": 1})
    results = [{"training_iteration": 1, "at_times": 1}, {"training_iteration": 2}]
    world.trials.take_up(trial, (results, [TrialCheckpoint("c", 2)]))
    world.saved["x_0"] = {"c": 2}
    world.tick()
    for _ in range(2):
        world.answer(trial)
    assert trial.last_result["training_iteration"] == 3


def test_a_trial_beyond_its_time_is_killed_and_one_that_ends_a_bit_late_is_not():
    world = World(num_samples=2, stop={"time_total_s": 10})
    world.tick()
    late, stuck = world.trials.trials
    for trial in (late, stuck):
        world.answer(trial)
        world.answer(trial, time_total_s=8.0, time_this_iter_s=8.0)
    world.tick({late.trial_id: 9.0, stuck.trial_id: 10.0})
    assert stuck.status == TERMINATED and late.status == RUNNING
    assert stuck.stopped_by == "time_total_s >= 10: it hung in a step and was killed"
    world.answer(late, time_total_s=17.0)
    assert late.stopped_by is None and world.calls[late.trial_id] == [("close", ())]


def test_a_process_that_does_not_close_is_killed():
    world = World(num_samples=1, stop={"training_iteration": 1})
    world.tick()
    (trial,) = world.trials.trials
    world.answer(trial), world.answer(trial)
    for world.elapsed_s, status in ((1.0, RUNNING), (1.0 + CLOSE_S, RUNNING), (30.0, TERMINATED)):
        world.tick()
        assert trial.status == status
    assert trial.stopped_by.endswith("it hung in its cleanup and was killed")


def test_the_time_budget_ends_what_runs_and_what_waits():
    world = World(time_budget_s=5)
    world.tick()
    running = world.trials.trials[0]
    world.answer(running)
    world.elapsed_s = 5.0
    world.tick()
    assert [trial.status for trial in world.trials.trials] == [RUNNING, RUNNING, TERMINATED]
    for world.elapsed_s in (5.1, 5.2 + GRACE_S):
        world.tick()
    assert {trial.status for trial in world.trials.trials} == {TERMINATED} and world.trials.is_over


def all_end_at(iteration):
    """A stopper that ends the experiment when a trial has reached this iteration."""

    class StopsAll(Stopper):
        reached_it = False

        def __call__(self, trial_id, result):
            self.reached_it = self.reached_it or result["training_iteration"] >= iteration
            return False

        def stop_all(self):
            return self.reached_it

    return StopsAll()


def stop_the_other(runner, trial, result):
    if trial.index == 1 and result["training_iteration"] == 2:
        runner.stop_trial(runner.trials[0])
        return "STOP"
    return "CONTINUE"


@pytest.mark.parametrize("ends", ["time", "stop_all", "fail_fast", "the scheduler"])
@pytest.mark.parametrize("at_end", [True, False])
def test_checkpoint_at_end_holds_for_trials_that_end_in_a_step(ends, at_end):
    """Each trial has two results, and is in a step: what it brings is saved, and the trainable ends in order."""
    how = {
        "time": {"time_budget_s": 5},
        "stop_all": {"stop": all_end_at(2)},
        "fail_fast": {"fail_fast": True, "num_samples": 3, "cpus": 3.0},
        "the scheduler": {"scheduler": Commands(stop_the_other)},
    }[ends]
    world, one, other = two_trials((3, 3), **{"num_samples": 2, **how}, checkpoint_at_end=at_end)
    if ends == "time":
        world.elapsed_s = 5.0
    elif ends == "fail_fast":
        world.fail(world.trials.trials[2])
    world.run()
    for trial in (one, other):
        assert trial.status == TERMINATED
        assert trial.is_saved == at_end and len(trial.checkpoints) == at_end
        assert (trial.trial_id, "close") in world.asked and ("on_trial_complete", trial.trial_id) in world.hooks
    assert one.last_result["training_iteration"] == 3
    assert [checkpoint.name for checkpoint in one.checkpoints] == ["checkpoint_000003"] * at_end


def test_an_interrupt_saves_what_runs_and_leaves_it_unfinished():
    world = World(num_samples=2)
    world.tick()
    for trial in world.trials.trials:
        world.answer(trial), world.answer(trial)
    world.happened(world.trials.interrupt)
    world.run()
    assert [trial.status for trial in world.trials.trials] == [PENDING, PENDING]
    assert [trial.checkpoint.iteration for trial in world.trials.trials] == [2, 2], "the step under way is saved, too"


# ---------------------------------------------------------------------- what schedulers command


class Commands(TrialScheduler):
    """Calls `on_result(runner, trial, result)` for its decisions."""

    needs_metric = False

    def __init__(self, on_result):
        super().__init__()
        self.on_trial_result = on_result


def test_a_paused_trial_is_saved_and_goes_on_from_there():
    world = World(scheduler=Commands(lambda runner, trial, result: "PAUSE"), num_samples=1, cpus=1.0,
                  stop={"training_iteration": 3})  # fmt: skip
    (trial,) = world.run().trials.trials
    assert world.iterations_of(trial) == [1, 2, 3]
    assert [what for _, what in world.asked] == ["step", "save", "close"] * 2 + ["step", "close"]


def test_a_paused_function_does_again_what_it_had_not_saved():
    judged = []
    scheduler = Commands(lambda runner, trial, result: judged.append(result["training_iteration"]) or "PAUSE")
    world = World(scheduler=scheduler, num_samples=1, is_function=True)
    world.tick()
    (trial,) = world.trials.trials
    world.answer(trial), world.answer(trial), world.answer(trial)
    assert trial.status == PAUSED and world.iterations_of(trial) == [1]
    world.tick()
    assert trial.status == RUNNING and world.iterations_of(trial) == [], "the result will come again"
    world.answer(trial), world.answer(trial)
    assert trial.last_result["training_iteration"] == 1 and world.calls[trial.trial_id] == [("step", ())]
    assert judged == [1], "the repeated result is not judged again"


def test_a_trial_that_fails_while_it_is_paused_stays_paused_and_repeats_what_was_not_saved():
    judged = []

    def pauses_at_two(runner, trial, result):
        judged.append(result["training_iteration"])
        return "PAUSE" if result["training_iteration"] == 2 else "CONTINUE"

    world = World(scheduler=Commands(pauses_at_two), num_samples=1, max_failures=1, stop={"training_iteration": 4})
    world.tick()
    (trial,) = world.trials.trials
    for _ in range(3):
        world.answer(trial)
    assert [what for what, _ in world.calls[trial.trial_id]] == ["save", "close"]
    world.fail(trial)
    assert (trial.status, trial.num_failures, world.iterations_of(trial)) == (PAUSED, 1, [])
    check(world)
    world.run()
    assert trial.status == TERMINATED and world.iterations_of(trial) == [1, 2, 3, 4]
    assert judged == [1, 2, 3], "repeated results are not judged again"


@pytest.mark.parametrize("max_failures, status", [(0, ERROR), (1, PENDING)])
def test_a_trial_that_fails_while_it_is_interrupted_is_unfinished_if_it_may_fail(max_failures, status):
    world = World(num_samples=1, max_failures=max_failures)
    world.tick()
    (trial,) = world.trials.trials
    world.happened(world.trials.interrupt)
    world.fail(trial)
    world.run()
    assert trial.status == status


def test_a_trial_that_fails_after_a_takeover_continues_from_it():
    world, one, other = two_trials((3, 3), scheduler=exploits(lambda trial, at: trial.index == 1 and at == 2),
                                   max_failures=1, stop={"training_iteration": 5})  # fmt: skip
    world.answer(one), world.answer(one)
    assert other.config == {"a": "new"} and world.calls[other.trial_id] == [("close", ())]
    world.fail(other)
    assert other.status == PENDING
    check(world)
    world.run()
    assert other.status == TERMINATED and other.last_result["training_iteration"] == 5


def test_a_trial_that_fails_at_its_end_has_failed():
    world = World(num_samples=1, max_failures=-1, checkpoint_at_end=True, stop={"training_iteration": 1})
    world.tick()
    (trial,) = world.trials.trials
    world.answer(trial), world.answer(trial)
    world.fail(trial)
    assert trial.status == ERROR


def exploits(when):
    """One trial of two takes over the other's state when `when(trial, result)` says so, once."""
    done = []

    def on_result(runner, trial, result):
        if not done and when(trial, result["training_iteration"]):
            done.append(trial)
            runner.exploit(runner.trials[1], runner.trials[0], {"a": "new"})
            return "NOOP"
        return "CONTINUE"

    return Commands(on_result)


def two_trials(answers, **settings):
    """A world of two trials after `answers` answers of their processes, and the trials."""
    world = World(**{"num_samples": 2, **settings})
    world.tick()
    one, other = world.trials.trials[:2]
    for trial, count in zip((one, other), answers):
        for _ in range(count):
            world.answer(trial)
    return world, one, other


def test_a_takeover_waits_until_the_other_one_is_saved():
    world, one, other = two_trials((3, 3), scheduler=exploits(lambda trial, at: trial.index == 1 and at == 2))
    assert [what for what, _ in world.calls[one.trial_id]] == ["step", "save"] and not world.calls[other.trial_id]
    assert other.config != {"a": "new"}
    world.answer(one), world.answer(one)
    assert other.config == {"a": "new"} and world.calls[other.trial_id] == [("close", ())]
    world.answer(other), world.tick()
    assert world.iterations[other.trial_id] == one.checkpoint.iteration == 3


def test_a_takeover_waits_until_the_trial_itself_is_saved():
    world, one, other = two_trials((2, 3), scheduler=exploits(lambda trial, at: trial.index == 0 and at == 2),
                                   checkpoint_freq=2)  # fmt: skip
    assert [what for what, _ in world.calls[other.trial_id]] == ["save", "step"]
    for _ in range(2):
        world.answer(one)  # the second result, which leads to the takeover, and the save that it needs
    assert one.checkpoint.iteration == 2 and other.config != {"a": "new"}
    world.answer(other)
    assert [c.name[:13] for c in other.checkpoints] == ["checkpoint_00", "checkpoint_of"], "the newest is the other's"


def test_a_waiting_trial_starts_when_its_takeover_is_done():
    def on_result(runner, trial, result):
        if trial.index == 0:
            return "PAUSE"
        runner.exploit(runner.trials[0], trial, {"a": "new"})
        return "CONTINUE"

    world, waiting, source = two_trials((3, 0), scheduler=Commands(on_result))
    while waiting.status != PAUSED:
        world.answer(waiting)
    world.answer(source), world.answer(source)
    world.tick()
    assert waiting.status == PAUSED and world.trials.waiting_trials() == [], "its source is still being saved"
    replay = Replay(world.trials.verdicts, Path(), world.journal, False, shown_config)
    replay.run(len(world.journal))
    assert replay.exploits.keys() == {waiting.trial_id} and replay.waiting_trials() == [], "nor while it is replayed"
    while waiting.config != {"a": "new"}:
        world.answer(source)
    world.tick()
    assert waiting.status == RUNNING and world.iterations[waiting.trial_id] == source.checkpoint.iteration


def test_a_trial_that_cannot_take_over_goes_on():
    scheduler = exploits(lambda trial, at: trial.index == 1 and at == 2)
    world, _, other = two_trials((3, 3), scheduler=scheduler, is_function=True)
    assert world.calls[other.trial_id] == [("step", ())] and other.config != {"a": "new"}


@pytest.mark.parametrize("at_end", [False, True])
def test_a_trial_that_ends_before_it_is_saved_is_not_taken_over(at_end):
    """Its state is that of its end by then: who continued from it would run past `stop`."""
    scheduler = exploits(lambda trial, at: trial.index == 1 and at == 2)
    world, one, other = two_trials((3, 3), scheduler=scheduler, stop={"training_iteration": 3},
                                   checkpoint_at_end=at_end)  # fmt: skip
    world.answer(one), world.answer(one)
    assert world.calls[other.trial_id] == [("step", ())] and other.config != {"a": "new"}
    world.run()
    assert [world.iterations_of(trial) for trial in (one, other)] == [[1, 2, 3]] * 2


POPULATIONS = {
    "pbt": {"hyperparam_mutations": {"a": [10, 20]}},
    "pb2": {"hyperparam_bounds": {"a": [10.0, 20.0]}},
}


def population(name):
    return create_scheduler(name, metric="score", mode="max", time_attr="training_iteration",
                            perturbation_interval=2, seed=0, **POPULATIONS[name])  # fmt: skip


@pytest.mark.parametrize("name", POPULATIONS)
def test_a_trial_that_has_met_stop_leaves_the_population_in_the_same_event(name):
    """Its older checkpoint has numbers, but what is being saved is its end."""
    world, worse, better = two_trials((2, 2), scheduler=population(name), stop={"training_iteration": 3},
                                      checkpoint_freq=2, checkpoint_at_end=True, metric="score")  # fmt: skip
    while better.last_result["training_iteration"] < 3:
        world.answer(better)
    assert better.checkpoint.iteration == 2 and world.calls[better.trial_id][0][0] == "save"
    world.answer(worse)
    assert worse.last_result["training_iteration"] == 2 and [what for what, _ in world.calls[worse.trial_id]] != []
    world.run()
    assert [world.iterations_of(trial) for trial in (worse, better)] == [[1, 2, 3]] * 2
    assert world.texts == {}


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_state_that_is_noted_is_the_one_that_is_copied(name):
    scheduler = population(name)
    world, worse, better = two_trials((2, 3), scheduler=scheduler, metric="score", stop={"training_iteration": 9})
    world.answer(worse)
    assert [what for what, _ in world.calls[better.trial_id]] == ["step", "save"]
    world.answer(better), world.answer(better)
    copied = worse.checkpoint
    assert copied.iteration == 3, "the better one was at its third step when it was chosen"
    line = json.loads(world.texts["pbt_global.txt"])
    assert line[2:4] == [2, 3]
    member = scheduler.get_state()["members"][worse.trial_id]
    assert (member["train_time"], member["score"]) == (3, copied.metrics["score"])


# ---------------------------------------------------------------------- whatever happens


class Erratic(TrialScheduler):
    """Decides, and commands other trials, at random."""

    needs_metric = False

    def __init__(self, rng):
        super().__init__()
        self.rng, self.ended = rng, []

    def on_trial_result(self, runner, trial, result):
        other = self.rng.choice(runner.trials)
        waiting = runner.waiting_trials()
        command = self.rng.random()
        if command < 0.05:
            runner.stop_trial(other)
        elif command < 0.1:
            runner.pause_trial(other)
        elif command < 0.35 and runner.saved_state(other) != {}:
            runner.exploit(trial, other, {"a": self.rng.random()})
            return self.NOOP
        elif command < 0.45 and waiting and other not in waiting:  # as PBT with synch=True
            runner.exploit(self.rng.choice(waiting), other, {"a": self.rng.random()})
        return self.rng.choices([self.CONTINUE, self.PAUSE, self.STOP], [0.8, 0.15, 0.05])[0]

    def on_trial_complete(self, runner, trial, result):
        self.ended.append(trial.trial_id)

    def on_trial_error(self, runner, trial):
        self.ended.append(trial.trial_id)

    on_trial_remove = on_trial_error


def check(world):
    """What holds after every event."""
    state = world.trials
    assert set(world.calls) == set(state.running), "processes are those of the running trials"
    for trial_id, running in state.running.items():
        assert [what for what, _ in world.calls[trial_id]] == list(running.calls), "both sides agree on the calls"
        assert running.calls or state.takeovers.is_to_come(running.trial), "nobody calls it: it would hang for ever"
    used = sum(running.trial.resources.total()["CPU"] for running in state.running.values())
    assert state.used["CPU"] == used <= state.total["CPU"]
    for trial in state.trials:
        where = [trial.trial_id in state.running, trial.trial_id in state.waiting, trial.is_finished]
        assert sum(where) == 1, f"{trial} is at one place"
        assert (trial.status == RUNNING) == where[0] and (trial.status in (PENDING, PAUSED)) == where[1]
        names = [checkpoint.name for checkpoint in trial.checkpoints]
        assert set(names) <= set(world.saved.get(trial.trial_id, {})) and len(names) == len(set(names))
        assert not {(trial.trial_id, name) for name in names} & set(world.removed), "what is kept is there"
    told = {}
    for record in world.journal:
        apply_record(record, told, Path())
    for trial in state.trials:
        read = told[trial.trial_id]
        assert (read.status, read.config, read.num_failures, read.checkpoints) == (
            trial.status, trial.config, trial.num_failures, trial.checkpoints,
        ), "the journal says how trials stand"  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_nothing_is_lost_and_all_ends(seed):
    rng = random.Random(seed)
    scheduler = Erratic(rng)
    world = World(
        scheduler=scheduler, cpus=float(rng.randint(1, 3)), is_function=rng.random() < 0.3, num_samples=6,
        stop={"training_iteration": rng.randint(3, 9)}, checkpoint_freq=rng.randint(0, 2),
        checkpoint_at_end=rng.random() < 0.5, keep_checkpoints_num=rng.choice([None, 1, 2]),
        max_failures=rng.choice([0, 2, -1]), reuse_actors=rng.random() < 0.5, export_formats=rng.choice([(), ["m"]]),
        time_budget_s=rng.choice([None, 400.0]),
    )  # fmt: skip
    ended = rng.choice([None, None, world.trials.interrupt])
    for step in range(3000):
        world.elapsed_s += rng.random()
        if step == 60 and ended:
            world.happened(ended)
            check(world)
        world.tick()
        check(world)
        if world.trials.is_over:
            break
        busy = [running.trial for running in world.trials.running.values() if world.calls[running.trial.trial_id]]
        if busy and rng.random() < 0.08:
            world.fail(rng.choice(busy), has_written=rng.random() < 0.5)
        elif busy and rng.random() < 0.9:
            world.answer(rng.choice(busy), **({"done": True} if rng.random() < 0.02 else {}))
        check(world)
    assert world.trials.is_over, f"seed {seed}: the experiment does not end"
    finished = [trial.trial_id for trial in world.trials.trials if trial.is_finished]
    assert sorted(scheduler.ended) == sorted(world.searcher.ended) == sorted(finished)
    ends = sorted(trial_id for hook, trial_id in world.hooks if hook in ("on_trial_complete", "on_trial_error"))
    assert ends == sorted(finished) and (ended or len(finished) == 6)


@pytest.mark.parametrize("name, settings", [
    ("asha", {"max_t": 9, "grace_period": 1, "reduction_factor": 2}),
    ("hyperband", {"max_t": 9, "reduction_factor": 3}),
    ("median_stopping", {"time_attr": "training_iteration", "grace_period": 1, "hard_stop": False}),
    ("pbt", {"time_attr": "training_iteration", "perturbation_interval": 2, "hyperparam_mutations": {"a": [1, 2, 3]}}),
    ("pbt", {"time_attr": "training_iteration", "perturbation_interval": 2, "hyperparam_mutations": {"a": [1, 2, 3]},
             "synch": True}),
])  # fmt: skip
@pytest.mark.parametrize("seed", range(5))
def test_the_schedulers_lead_trials_that_fail_to_an_end(name, settings, seed):
    rng = random.Random(seed)
    scheduler = create_scheduler(name, **settings)
    scheduler.set_search_properties("score", "max")
    world = World(scheduler=scheduler, cpus=float(rng.randint(1, 4)), num_samples=9, stop={"training_iteration": 9},
                  max_failures=rng.choice([0, -1]))  # fmt: skip
    for _ in range(3000):
        world.tick()
        check(world)
        if world.trials.is_over:
            break
        trial = rng.choice([running.trial for running in world.trials.running.values()])
        if rng.random() < 0.02:
            world.fail(trial)
        elif world.calls[trial.trial_id]:
            world.answer(trial)
        check(world)
    assert world.trials.is_over and {trial.status for trial in world.trials.trials} <= {TERMINATED, ERROR}
