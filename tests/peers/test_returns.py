"""Advantages, V-trace, lambda-returns and sums of n rewards, beside Stable-Baselines3, rlax and Ray."""

import numpy as np
import pytest

from rllib.losses.returns import gae, q_lambda_targets
from rllib.losses.vtrace import vtrace

GAMMA, LAMBDA = 0.97, 0.9
STEPS, ENVS = 40, 5


@pytest.fixture
def fragment():
    """Rewards, values and ends [T, B]; after an end `next_values` is the final observation's, not the next row's."""
    rng = np.random.default_rng(3)
    rewards, values = rng.normal(size=(2, STEPS, ENVS)).astype(np.float32)
    terminated = rng.random((STEPS, ENVS)) < 0.1
    truncated = (rng.random((STEPS, ENVS)) < 0.1) & ~terminated
    last = rng.normal(size=ENVS).astype(np.float32)
    next_values = np.concatenate([values[1:], last[None]])
    final = rng.normal(size=(STEPS, ENVS)).astype(np.float32)
    next_values = np.where(terminated | truncated, final, next_values)
    next_values[-1] = last
    return rewards, values, next_values, terminated, truncated


def test_advantages_beside_sb3(fragment, sb3):
    rewards, values, next_values, terminated, truncated = fragment
    ours = gae(*fragment, GAMMA, LAMBDA)
    done = terminated | truncated
    # It adds the discounted value of a truncated episode's last observation to the reward, and ends the episode.
    given = rewards + np.where(truncated, np.float32(GAMMA) * next_values, 0).astype(np.float32)
    starts = np.concatenate([np.ones((1, ENVS), bool), done[:-1]])
    theirs = sb3.call(
        "from_sb3.advantages",
        {"gamma": GAMMA, "lambda": LAMBDA},
        rewards=given, values=values, last_values=next_values[-1], starts=starts, last_dones=done[-1],
    )  # fmt: skip
    np.testing.assert_allclose(ours[0], theirs["advantages"], atol=2e-5)
    np.testing.assert_allclose(ours[1], theirs["targets"], atol=2e-5)


def test_advantages_beside_rlax(fragment, rlax):
    rewards, values, _, terminated, _ = fragment
    # It has one array of values, so no truncations but at the fragment's end.
    truncated = np.zeros_like(terminated)
    all_values = np.concatenate([values, values[:1]])
    ours, _ = gae(rewards, values, all_values[1:], terminated, truncated, GAMMA, LAMBDA)
    discounts = np.where(terminated, 0, GAMMA).astype(np.float32)
    theirs = rlax.call(
        "from_rlax.advantages", {"lambda": LAMBDA},
        rewards=rewards, discounts=discounts, values=all_values, cut=np.ones_like(discounts),
    )  # fmt: skip
    np.testing.assert_allclose(ours, theirs["advantages"], atol=2e-5)


@pytest.mark.parametrize("end", ["terminated", "cut"])
def test_advantages_beside_ray(end, ray):
    rng = np.random.default_rng(5)
    rewards, values = rng.normal(size=(2, STEPS)).astype(np.float32)
    last = np.float32(0 if end == "terminated" else 1.7)
    terminated = np.zeros((STEPS, 1), bool)
    terminated[-1] = end == "terminated"
    next_values = np.append(values[1:], np.float32(1.7))[:, None]
    ours = gae(rewards[:, None], values[:, None], next_values, terminated, np.zeros_like(terminated), GAMMA, LAMBDA)
    theirs = ray.call(
        "from_ray.advantages", {"gamma": GAMMA, "lambda": LAMBDA}, rewards=rewards, values=values, last_value=last
    )
    np.testing.assert_allclose(ours[0][:, 0], theirs["advantages"], atol=2e-5)
    np.testing.assert_allclose(ours[1][:, 0], theirs["targets"], atol=2e-5)


@pytest.mark.parametrize(("rho_bar", "pg_rho_bar"), [(1.0, 1.0), (2.0, 1.5), (0.8, 1.0)])
def test_vtrace_beside_rlax(rho_bar, pg_rho_bar, fragment, rlax):
    rewards, values, next_values, terminated, truncated = fragment
    log_rho = np.random.default_rng(1).normal(size=rewards.shape).astype(np.float32)
    discounts = np.where(terminated, 0, GAMMA).astype(np.float32)
    cut = terminated | truncated
    targets, _ = vtrace(
        log_rho, discounts, rewards, values, next_values, cut, rho_bar=rho_bar, pg_rho_bar=pg_rho_bar, lambda_=LAMBDA
    )
    # Its trace ends where lambda is 0.
    given = {"rewards": rewards, "values": values, "discounts": discounts, "rhos": np.exp(log_rho)}
    settings = {"rho_bar": rho_bar, "pg_rho_bar": pg_rho_bar}
    lambdas = np.where(cut, 0, LAMBDA).astype(np.float32)
    theirs = rlax.call("from_rlax.vtrace", settings, **given, next_values=next_values, lambdas=lambdas)
    np.testing.assert_allclose(targets - values, theirs["errors"], atol=1e-4)
    # Its advantages bootstrap from the value of the next row, which after a truncation is another episode's, and below
    # lambda = 1 from a mix of it and the target. Ours is the paper's: the target that follows in the same episode.
    next_values = np.concatenate([values[1:], next_values[-1:]])
    whole = vtrace(log_rho, discounts, rewards, values, next_values, terminated, **settings)
    theirs = rlax.call("from_rlax.vtrace", settings, **given, next_values=next_values, lambdas=np.ones_like(rewards))
    np.testing.assert_allclose(whole[1], theirs["advantages"], atol=1e-4)


@pytest.mark.parametrize(("rho_bar", "pg_rho_bar"), [(1.0, 1.0), (2.0, 1.5)])
def test_vtrace_beside_ray(rho_bar, pg_rho_bar, fragment, ray):
    rewards, values, _, terminated, _ = fragment
    log_rho = np.random.default_rng(1).normal(size=rewards.shape).astype(np.float32)
    discounts = np.where(terminated, 0, GAMMA).astype(np.float32)
    next_values = np.concatenate([values[1:], values[:1]])
    targets, advantages = vtrace(
        log_rho, discounts, rewards, values, next_values, terminated, rho_bar=rho_bar, pg_rho_bar=pg_rho_bar
    )
    theirs = ray.call(
        "from_ray.vtrace", {"rho_bar": rho_bar, "pg_rho_bar": pg_rho_bar},
        log_rhos=log_rho, discounts=discounts, rewards=rewards, values=values, bootstrap=values[0],
    )  # fmt: skip
    np.testing.assert_allclose(targets, theirs["targets"], atol=1e-4)
    np.testing.assert_allclose(advantages, theirs["advantages"], atol=1e-4)


def test_q_lambda_beside_rlax(fragment, rlax):
    rewards, _, next_values, terminated, truncated = fragment
    ours = q_lambda_targets(rewards, next_values, terminated, truncated, GAMMA, LAMBDA)
    discounts = np.where(terminated, 0, GAMMA).astype(np.float32)
    lambdas = np.where(truncated, 0, LAMBDA).astype(np.float32)
    lambdas[-1] = 0
    theirs = rlax.call(
        "from_rlax.lambda_returns", rewards=rewards, discounts=discounts, values=next_values, lambdas=lambdas
    )
    np.testing.assert_allclose(ours, theirs["returns"], atol=2e-5)
