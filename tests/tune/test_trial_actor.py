"""The process of a trial, called as the driver calls it: ahead of the answers."""

from pathlib import Path

import pytest

from rllib.tune.running.actor import Definition, TrialActor
from rllib.tune.trainables.checkpoint import temporary_directory
from rllib.tune.trainables.session import TrialContext
from tests.tune.climber import Climber


class Fragile(Climber):
    """Raises where the configuration says."""

    def setup(self, config):
        super().setup(config)
        self.fails("setup")

    def step(self):
        self.fails("step")
        return super().step()

    def reset_config(self, new_config):
        self.config = new_config
        self.fails("reset")
        return True

    def fails(self, where):
        if self.config.get("fails_in") == where:
            raise ZeroDivisionError(where)


def started(tmp_path, config):
    context = TrialContext("x_0", "x", str(tmp_path))
    actor = TrialActor(driver_pid=0)
    definition = Definition(Fragile, (), chdir_to_trial_dir=False, run_key=b"")
    return actor, lambda: actor.start(definition, {"rate": 1.0, **config}, context, None, False), context


@pytest.mark.parametrize("fails_in", ["setup", "step", "reset"])
def test_calls_behind_one_that_raised_are_silent_and_write_nothing(tmp_path, fails_in):
    actor, start, context = started(tmp_path, {"fails_in": fails_in} if fails_in != "reset" else {})
    calls = {
        "setup": start,
        "step": actor.step,
        "reset": lambda: actor.reset({"rate": 1.0, "fails_in": "reset"}, context, None, False),
    }
    if fails_in != "setup":
        start()
    with pytest.raises(ZeroDivisionError, match=fails_in):
        calls[fails_in]()
    checkpoint = str(tmp_path / "checkpoint")
    assert actor.step() is actor.save(checkpoint) is actor.export(["model"]) is None
    assert actor.reset({}, context, None, False) is None
    assert not list(tmp_path.iterdir()) and actor.close() is None


def test_a_trial_that_goes_well_answers_every_call(tmp_path):
    actor, start, context = started(tmp_path, {})
    assert start()["pid"] and actor.step()[0]["height"] == 1.0
    assert actor.save(str(tmp_path / "checkpoint")) == str(tmp_path / "checkpoint")
    assert actor.reset({"rate": 2.0}, context, None, False) and actor.step()[0]["rate"] == 2.0


@pytest.mark.parametrize("begins", ["start", "reset"])
def test_a_process_that_begins_leaves_what_the_driver_writes(tmp_path, begins):
    """The driver copies another trial's checkpoint there while the process starts."""
    actor, start, context = started(tmp_path, {})
    calls = {"start": start, "reset": lambda: actor.reset({"rate": 2.0}, context, None, False)}
    if begins == "reset":
        start()
    draft = temporary_directory(tmp_path)
    assert calls[begins]()["pid"] and draft.exists()


class Notes(Climber):
    """Cannot be reset, and notes in its trial's directory that it has ended."""

    def cleanup(self):
        (Path(self.logdir) / "ended").touch()


def test_a_trainable_that_cannot_be_reset_ends_where_its_trial_was(tmp_path):
    contexts = [TrialContext(f"x_{index}", "x", str(tmp_path / str(index))) for index in range(2)]
    for context in contexts:
        Path(context.trial_dir).mkdir()
    actor = TrialActor(driver_pid=0)
    actor.start(Definition(Notes, (), chdir_to_trial_dir=False, run_key=b""), {"rate": 1.0}, contexts[0], None, False)
    assert actor.reset({"rate": 2.0}, contexts[1], None, False) is None
    assert [path.parent.name for path in tmp_path.glob("*/ended")] == ["0"]
    assert actor.step() is None, "the call was meant for the other trial"
