"""rliable's measures of runs; scores are [runs, tasks]."""

import numpy as np
from rliable import library, metrics


def measures(settings, scores, others, thresholds):
    """Aggregates, the probability of improvement, and the performance profile."""
    profile, _ = library.create_performance_profile({"ours": scores}, thresholds, reps=2)
    return {
        "iqm": np.array(metrics.aggregate_iqm(scores)),
        "mean": np.array(metrics.aggregate_mean(scores)),
        "median": np.array(metrics.aggregate_median(scores)),
        "improvement": np.array(metrics.probability_of_improvement(scores, others)),
        "profile": profile["ours"],
    }


def interval(settings, scores):
    """Stratified bootstrap interval of the interquartile mean, [2, 1]."""
    _, found = library.get_interval_estimates(
        {"ours": scores}, lambda given: np.array([metrics.aggregate_iqm(given)]), reps=settings["resamples"],
        random_state=np.random.RandomState(0),
    )  # fmt: skip
    return {"interval": found["ours"]}
