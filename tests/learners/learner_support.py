"""Policies and batches for the tests of the learners."""

import gymnasium as gym
import numpy as np

from rllib import sample_batch as sb
from rllib.models.catalog.catalog import policy_spec
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

SETTINGS = {"clip_param": 0.2, "kl_coeff": 0.2, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01, "vf_clip_param": 10.0}
BOX = gym.spaces.Box(-np.inf, np.inf, (4,))
ACTION_SPACES = [
    *(gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([2, 3]), gym.spaces.Box(-1, 1, (2,))),
    gym.spaces.Tuple([gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3)]),
]


def make_policy(action_space=ACTION_SPACES[0], observation_space=BOX, seed=0, **model):
    spec = policy_spec(observation_space, action_space, {"fcnet_hiddens": [16, 16], "vf_share_layers": False, **model})
    return Policy(spec, rng=np.random.default_rng(seed))


def make_batch(policy, rows, seed=0):
    """What a worker would send: actions of this very policy, made-up advantages and targets."""
    rng = np.random.default_rng(seed)
    if policy.spec.encoder.kind == "one_hot":
        encoder = policy.spec.encoder
        observations = rng.integers(encoder.start, encoder.start + encoder.num_values, size=rows)
    else:
        observations = rng.standard_normal((rows, *policy.spec.encoder.shape), dtype=np.float32)
    dist_inputs = np.empty((rows, policy.num_dist_inputs), np.float32)
    actions = np.empty((rows, *policy.action_shape), policy.action_dtype)
    policy.act(observations, policy.noise(rng, rows), dist_inputs, actions)
    values = policy.values(observations)
    advantages, noise = rng.standard_normal((2, rows), dtype=np.float32)
    return SampleBatch(
        {
            sb.OBS: observations,
            sb.ACTIONS: actions,
            sb.ACTION_DIST_INPUTS: dist_inputs,
            sb.ACTION_LOGP: policy.log_prob(dist_inputs, actions),
            sb.VF_PREDS: values,
            sb.ADVANTAGES: advantages,
            sb.VALUE_TARGETS: values + noise,
        }
    )
