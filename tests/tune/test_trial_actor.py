"""The process of a trial, called as the driver calls it: ahead of the answers."""

import pytest

from rllib.tune.running.actor import Definition, TrialActor
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
        "reset": lambda: actor.reset({"rate": 1.0, "fails_in": "reset"}, context, None),
    }
    if fails_in != "setup":
        start()
    with pytest.raises(ZeroDivisionError, match=fails_in):
        calls[fails_in]()
    checkpoint = str(tmp_path / "checkpoint")
    assert actor.step() is actor.save(checkpoint) is actor.export(["model"]) is actor.reset({}, context, None) is None
    assert not list(tmp_path.iterdir()) and actor.close() is None


def test_a_trial_that_goes_well_answers_every_call(tmp_path):
    actor, start, context = started(tmp_path, {})
    assert start()["pid"] and actor.step()[0]["height"] == 1.0
    assert actor.save(str(tmp_path / "checkpoint")) == str(tmp_path / "checkpoint")
    assert actor.reset({"rate": 2.0}, context, None) and actor.step()[0]["rate"] == 2.0
