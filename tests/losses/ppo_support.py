"""Minibatches for the tests of the PPO loss."""

import numpy as np

from rllib import sample_batch as sb
from rllib.models.distributions.standard import Categorical, DiagGaussian, MultiCategorical

SETTINGS = {
    "clip_param": 0.2,
    "kl_coeff": 0.3,
    "vf_loss_coeff": 0.5,
    "entropy_coeff": 0.01,
    "vf_clip_param": 0.4,
}
DISTRIBUTIONS = [Categorical(2), Categorical(5), MultiCategorical((2, 3)), DiagGaussian((1,)), DiagGaussian((3,))]


def make_minibatch(distribution, rows=64, seed=0, moved=0.3):
    """Outputs of a policy that has moved a little, and the minibatch of the one before: float32.

    Some ratios and some values lie beyond their clips.
    """
    rng = np.random.default_rng(seed)
    old = rng.standard_normal((rows, distribution.num_inputs)).astype(np.float32)
    new = old + moved * rng.standard_normal(old.shape).astype(np.float32)
    values, old_values, targets, advantages = rng.standard_normal((4, rows)).astype(np.float32)
    actions = distribution.sample(old, distribution.noise(rng, rows))
    minibatch = {
        sb.ACTIONS: actions,
        sb.ACTION_LOGP: distribution.at(old).log_prob(actions),
        sb.ACTION_DIST_INPUTS: old,
        sb.ADVANTAGES: advantages,
        sb.VALUE_TARGETS: targets,
        sb.VF_PREDS: old_values,
    }
    return (new, values), minibatch
