"""Ray RLlib's and Ray Tune's numbers."""

import numpy as np


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
