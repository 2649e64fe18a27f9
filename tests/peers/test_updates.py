"""Updates from equal weights on equal batches, beside Stable-Baselines3 and sb3-contrib: what networks compute then.

A model of theirs is imported with its settings (rllib import-sb3), so that coefficients, optimizers, clips and target
networks are compared as well.
"""

from unittest.mock import patch

import equal_updates
import numpy as np
import pytest

from rllib import Algorithm, import_sb3
from rllib import sample_batch as sb
from rllib.models.distributions.standard import Categorical
from rllib.sample_batch import SampleBatch

ROWS, UPDATES = 64, 12
SPACES = {"CartPole-v1": (4, 2), "Pendulum-v1": (3, None)}
# Left out: clip_range_vf, of which it takes the clipped error alone; ours is the larger of both, as in the authors'
# code, so that a value far beyond its clip is still drawn back. And normalize_advantage, whose variance is the unbiased
# one.
ON_POLICY = {
    "PPO": ("PPO", {"n_steps": ROWS, "batch_size": ROWS, "n_epochs": 1, "normalize_advantage": False}),
    "PPO_epochs": ("PPO", {"n_steps": ROWS, "batch_size": ROWS, "n_epochs": 6, "normalize_advantage": False}),
    "PPO_clips": (
        "PPO",
        {
            "n_steps": ROWS, "batch_size": ROWS, "n_epochs": 6, "normalize_advantage": False, "clip_range": 0.05,
            "ent_coef": 0.05, "vf_coef": 1.5, "max_grad_norm": 0.05,
        },
    ),
    "A2C": ("A2C", {"n_steps": ROWS}),
    "A2C_adam": ("A2C", {"n_steps": ROWS, "use_rms_prop": False, "ent_coef": 0.05, "gae_lambda": 0.8}),
}  # fmt: skip


def rollout(rng, algorithm, environment):
    """A batch that the algorithm's policy acted for, with advantages and targets at random."""
    size, _ = SPACES[environment]
    policy = algorithm.get_policy()
    obs = rng.normal(size=(ROWS, size)).astype(np.float32)
    inputs = policy.dist_inputs(obs)
    actions = policy.distribution.sample(inputs, policy.distribution.noise(rng, ROWS))
    advantages, errors = rng.normal(size=(2, ROWS)).astype(np.float32)
    values = policy.values(obs)
    return SampleBatch(
        {
            sb.OBS: obs, sb.ACTIONS: actions, sb.ACTION_DIST_INPUTS: inputs,
            sb.ACTION_LOGP: policy.distribution.at(inputs).log_prob(actions), sb.ADVANTAGES: advantages,
            sb.VALUE_TARGETS: values + errors, sb.VF_PREDS: values,
        }
    )  # fmt: skip


@pytest.mark.parametrize("environment", SPACES)
@pytest.mark.parametrize("name", ON_POLICY)
def test_on_policy(name, environment, sb3, tmp_path):
    rng = np.random.default_rng(0)
    algorithm_name, words = ON_POLICY[name]
    probe = rng.normal(size=(20, SPACES[environment][0])).astype(np.float32)
    settings = {
        "algorithm": algorithm_name, "environment": environment, "seed": 1, "path": str(tmp_path / "model.zip"),
        "words": words,
    }  # fmt: skip
    theirs = sb3.call("from_sb3.made", settings, probe=probe)
    imported = import_sb3(tmp_path / "model.zip", tmp_path / "ours", env=environment)
    with Algorithm.from_checkpoint(imported.path) as algorithm:
        before = outputs(algorithm, probe)
        np.testing.assert_allclose(before["values"], theirs["values"], atol=1e-5)
        np.testing.assert_allclose(before["inputs"], theirs["inputs"], atol=1e-5)
        for _ in range(UPDATES):
            batch = rollout(rng, algorithm, environment)
            given = {
                "obs": sb.OBS, "actions": sb.ACTIONS, "log_probs": sb.ACTION_LOGP, "advantages": sb.ADVANTAGES,
                "targets": sb.VALUE_TARGETS, "values": sb.VF_PREDS,
            }  # fmt: skip
            theirs = sb3.call(
                "from_sb3.learned", settings, probe=probe, **{word: batch[column] for word, column in given.items()}
            )
            with patch.object(type(algorithm), "train_batches", lambda self, b=batch: [(self.trainee, b)]):
                algorithm.training_step()
        after = outputs(algorithm, probe)
        assert min(abs(after[each] - before[each]).max() for each in after) > 1e-3
        np.testing.assert_allclose(after["values"], theirs["values"], atol=1e-4)
        np.testing.assert_allclose(after["inputs"], theirs["inputs"], atol=1e-4)


def outputs(algorithm, probe):
    """What the networks compute for observations; logits are normalised."""
    policy = algorithm.get_policy()
    inputs = policy.dist_inputs(probe)
    if isinstance(policy.distribution, Categorical):
        inputs = inputs - np.log(np.exp(inputs).sum(1, keepdims=True))
    return {"inputs": inputs, "values": policy.values(probe)}


VALUES = {
    "DQN": ("DQN", {"batch_size": ROWS, "buffer_size": 1000, "target_update_interval": 10_000}),
    "DQN_clip": ("DQN", {"batch_size": ROWS, "buffer_size": 1000, "max_grad_norm": 0.05, "gamma": 0.8}),
}


@pytest.mark.parametrize("name", VALUES)
def test_action_values(name, sb3, tmp_path):
    rng = np.random.default_rng(0)
    algorithm_name, words = VALUES[name]
    probe = rng.normal(size=(20, 4)).astype(np.float32)
    settings = {
        "algorithm": algorithm_name, "environment": "CartPole-v1", "seed": 1, "path": str(tmp_path / "model.zip"),
        "words": words,
    }  # fmt: skip
    theirs = sb3.call("from_sb3.made", settings, probe=probe)
    imported = import_sb3(tmp_path / "model.zip", tmp_path / "ours", env="CartPole-v1")
    obs, next_obs = rng.normal(size=(2, UPDATES, ROWS, 4)).astype(np.float32)
    actions = rng.integers(2, size=(UPDATES, ROWS))
    rewards = rng.normal(size=(UPDATES, ROWS)).astype(np.float32)
    dones = (rng.random((UPDATES, ROWS)) < 0.2).astype(np.float32)
    with Algorithm.from_checkpoint(imported.path) as algorithm:
        policy, config = algorithm.get_policy(), algorithm.config
        before = policy.action_values(probe).q_values()
        np.testing.assert_allclose(before, theirs["q"], atol=1e-5)
        for each in range(UPDATES):
            discounts = (config.gamma * (1 - dones[each])).astype(np.float32)
            batch = SampleBatch(
                {
                    sb.OBS: obs[each], sb.ACTIONS: actions[each], sb.REWARDS: rewards[each], sb.DISCOUNTS: discounts,
                    sb.NEXT_OBS: next_obs[each], sb.WEIGHTS: np.ones(ROWS, np.float32),
                }
            )  # fmt: skip
            algorithm.trainee.learn_from(batch, lr=config.lr)
        theirs = sb3.call(
            "from_sb3.updated", settings, probe=probe,
            obs=obs, actions=actions, rewards=rewards, next_obs=next_obs, dones=dones,
        )  # fmt: skip
        after = policy.action_values(probe).q_values()
        assert abs(after - before).max() > 1e-3
        np.testing.assert_allclose(after, theirs["q"], atol=1e-4)


@pytest.mark.parametrize("name", equal_updates.SETTINGS)
def test_actors_and_critics(name, sb3):
    environment = "CartPole-v1" if name == equal_updates.DISCRETE else "Pendulum-v1"
    lines = equal_updates.compare(name, environment, 20)
    assert lines, "the peer has failed"
    assert all(line[-1] == "pass" for line in lines), lines
