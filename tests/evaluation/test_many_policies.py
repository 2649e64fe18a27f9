"""Hundreds of frozen policies: idle ones cost neither steps nor much memory."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest

from rllib import PPOConfig
from rllib.env.tasks.rock_paper_scissors import RockPaperScissors
from rllib.evaluation.multi_agent.agent_lane import ChoosingLane
from rllib.models.model_settings import ModelSettings
from rllib.policy import Policy


def sampled(num_frozen: int) -> tuple[Counter, list]:
    """Calls of the lanes' methods, and the rows, where only the first two of the frozen policies play."""
    ids = [f"frozen_{number:03}" for number in range(num_frozen)]

    def mapping(agent, episode, **kwargs):
        return "main" if agent == "player_0" else ids[int(episode.rng.integers(2))]

    calls: Counter = Counter()
    config = PPOConfig().environment(RockPaperScissors).debugging(seed=1)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=40)
    config.training(train_batch_size=80, sgd_minibatch_size=40, model={"fcnet_hiddens": [4]})
    config.multi_agent(policies={"main": None, **dict.fromkeys(ids)}, policy_mapping_fn=mapping,
                       policies_to_train=["main"])  # fmt: skip
    with config.build() as algo, pytest.MonkeyPatch.context() as patch:
        for name in ("receive", "act"):
            method = getattr(ChoosingLane, name)

            def counted(self, *args, name=name, method=method):
                calls[name] += 1
                return method(self, *args)

            patch.setattr(ChoosingLane, name, counted)
        rows = [algo.workers.local_worker().sample()[0].policy_batches["main"] for _ in range(3)]
    return calls, rows


def test_policies_that_rest_are_not_asked_in_each_step():
    calls, rows = sampled(2)
    others, same_rows = sampled(60)
    assert calls == others and 100 < calls["act"] <= 2 * 120
    for batch, same in zip(rows, same_rows, strict=True):
        np.testing.assert_array_equal(batch["obs"], same["obs"])


def test_a_policy_that_only_acts_is_little_more_than_its_weights():
    """500 policies of 64x64, in the driver and in a worker each, then take less than 100 MB."""
    spec = PPOConfig().training(model={**ModelSettings.defaults(), "fcnet_hiddens": [64, 64]})
    with spec.environment("CartPole-v1").rollouts(num_rollout_workers=0).build() as algo:
        spec = algo.policy.spec
    first = Policy(spec)
    out = np.empty((1, first.num_dist_inputs), np.float32), np.empty((1, *first.action_shape), first.action_dtype)
    tracemalloc.start()
    policies = [Policy(spec) for _ in range(5)]
    for policy in policies:
        noise = policy.noise(np.random.default_rng(0), 1)
        policy.act(np.zeros((1, 4), np.float32), noise, *out, None, None, None)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(policies) < 1.5 * policies[0].weights.nbytes + 10_000
    assert 2 * 500 * size / len(policies) < 100e6
