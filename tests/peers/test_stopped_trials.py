"""Which trials schedulers stop, beside Optuna and Ray Tune, for the same curves."""

import numpy as np
import optuna
import pytest

from rllib.tune.schedulers import ASHAScheduler, MedianStoppingRule
from tests.tune.simulator import Simulator

TRIALS, STEPS = 40, 30


@pytest.fixture
def curves():
    """Scores [trials, steps]: different ends, with noise."""
    rng = np.random.default_rng(0)
    return np.cumsum(rng.normal(rng.normal(size=(TRIALS, 1)), 1.0, (TRIALS, STEPS)), axis=1)


def ends(scheduler, curves):
    """Step after which each trial ends; trials report in turns."""
    configs = [{"number": number} for number in range(len(curves))]
    curve = lambda config, iteration: float(curves[config["number"], iteration - 1])  # noqa: E731
    return Simulator(scheduler, configs, curve, max_iterations=curves.shape[1]).run().iterations()


@pytest.mark.parametrize(("grace", "eta"), [(1, 3), (2, 4), (1, 2)])
def test_successive_halving_beside_optuna(grace, eta, curves):
    scheduler = ASHAScheduler(
        "training_iteration", "score", "max", max_t=1000, grace_period=grace, reduction_factor=eta
    )
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=grace, reduction_factor=eta)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    trials = [study.ask() for _ in curves]
    theirs = np.full(len(curves), STEPS)
    for step in range(1, STEPS + 1):
        for number, trial in enumerate(trials):
            if theirs[number] == STEPS:
                trial.report(float(curves[number, step - 1]), step)
                # Its rungs hold the trials before this one and itself, as ours.
                if step < STEPS and trial.should_prune():
                    theirs[number] = step
                    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    assert ends(scheduler, curves) == theirs.tolist()
    assert len(set(theirs)) > 2


@pytest.mark.parametrize("samples", [1, 3, 10])
def test_median_stopping_beside_ray(samples, curves, ray):
    scheduler = MedianStoppingRule("training_iteration", "score", "max", grace_period=0, min_samples_required=samples)
    theirs = ray.call("from_ray.stopped_by_median", {"samples": samples}, curves=curves)["ends"]
    assert ends(scheduler, curves) == theirs.tolist()
    assert len(set(theirs)) > 2
