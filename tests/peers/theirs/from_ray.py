"""Ray RLlib's and Ray Tune's numbers."""

import importlib
import itertools
import json

import numpy as np


def written_dicts(settings):
    """JSON of some of an algorithm's default settings, as Ray writes them into params.json."""
    module = importlib.import_module(f"ray.rllib.algorithms.{settings['algorithm'].lower()}")
    config = vars(getattr(module, f"{settings['algorithm']}Config")())
    chosen = {name: value for name, value in config.items() if name in settings["names"]}
    return {"json": np.array(json.dumps(chosen))}


def vtrace(settings, log_rhos, discounts, rewards, values, bootstrap):
    """Targets and advantages of [T, B]."""
    import torch
    from ray.rllib.algorithms.impala.vtrace_torch import from_importance_weights

    given = (torch.as_tensor(array) for array in (log_rhos, discounts, rewards, values, bootstrap))
    found = from_importance_weights(
        *given, clip_rho_threshold=settings["rho_bar"], clip_pg_rho_threshold=settings["pg_rho_bar"]
    )
    return {"targets": found.vs.numpy(), "advantages": found.pg_advantages.numpy()}


def advantages(settings, rewards, values, last_value):
    """GAE of one fragment [T]."""
    from ray.rllib.evaluation.postprocessing import compute_advantages
    from ray.rllib.policy.sample_batch import SampleBatch

    rollout = SampleBatch({"rewards": rewards, "vf_preds": values})
    found = compute_advantages(rollout, float(last_value), settings["gamma"], settings["lambda"], True, True)
    return {"advantages": found["advantages"], "targets": found["value_targets"]}


def filtered(settings, batches):
    """MeanStdFilter's outputs of rows [N, K], one after the other, and its statistics."""
    from ray.rllib.utils.filter import MeanStdFilter

    running = MeanStdFilter(batches.shape[1:], clip=None)
    outputs = np.stack([running(row) for row in batches])
    return {"outputs": outputs, "mean": running.running_stats.mean, "std": running.running_stats.std}


def importance_estimates(settings, rewards, ratios, starts):
    """Values of episodes by ImportanceSampling and by WeightedImportanceSampling; `starts` [episodes + 1]."""
    from ray.rllib.offline.estimators import ImportanceSampling, WeightedImportanceSampling
    from ray.rllib.policy.sample_batch import SampleBatch

    class Policy:
        """Its probabilities are the ratios, those of the recorded actions are 1."""

        def __init__(self):
            self.config = {}

    found = {}
    for name, method in (("plain", ImportanceSampling), ("weighted", WeightedImportanceSampling)):
        estimator = method.__new__(method)
        estimator.policy, estimator.gamma = Policy(), settings["gamma"]
        estimator.compute_action_probs = lambda batch: batch["ratios"]
        episodes = [
            SampleBatch(
                {
                    "rewards": rewards[a:b], "ratios": ratios[a:b], "action_prob": np.ones(b - a),
                    "eps_id": np.full(b - a, number),
                }
            )
            for number, (a, b) in enumerate(itertools.pairwise(starts))
        ]  # fmt: skip
        estimator.on_before_split_batch_by_episode(None)
        for episode in episodes:
            estimator.peek_on_single_episode(episode)
        found[name] = np.array([estimator.estimate_on_single_episode(each)["v_target"] for each in episodes])
    return found


def stopped_by_median(settings, curves):
    """Step after which each trial of `curves` [trials, steps] was stopped, or the last one; trials report in turns."""
    from ray.tune.schedulers import MedianStoppingRule

    class Trial:
        def __init__(self, number):
            self.trial_id = str(number)

    class Runner:
        """All trials run, none waits."""

        def get_live_trials(self):
            return set()

    rule = MedianStoppingRule(
        time_attr="time", metric="score", mode="max", grace_period=0, min_samples_required=settings["samples"]
    )
    trials = [Trial(number) for number in range(len(curves))]
    ends = np.full(len(curves), curves.shape[1])
    for time in range(1, curves.shape[1] + 1):
        for number, trial in enumerate(trials):
            if ends[number] < time:
                continue
            result = {"time": time, "score": float(curves[number, time - 1])}
            if rule.on_trial_result(Runner(), trial, result) == "STOP":
                ends[number] = time
    return {"ends": ends}
