"""Environments with keys for a teacher alone, and the rules that teach in them."""

import gymnasium
import numpy as np
import pytest

from rllib.env.tasks import privileged

RULES = {privileged.CartPole: (privileged.balance, 500), privileged.Pendulum: (privileged.swing_up, -400)}


@pytest.mark.parametrize("kind", RULES)
def test_the_rule_does_the_task(kind):
    env, (rule, least) = kind(), RULES[kind]
    for seed in range(4):
        observation, _ = env.reset(seed=seed)
        total, is_over = 0.0, False
        while not is_over:
            assert env.observation_space.contains(observation)
            action = rule({key: part[None] for key, part in observation.items()})[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            total, is_over = total + reward, terminated or truncated
        assert total >= least


@pytest.mark.parametrize("kind", [privileged.CartPole, privileged.PendulumPositions])
def test_the_parts_are_those_of_gymnasiums_environment(kind):
    env = kind()
    plain = gymnasium.make(env.spec.id)
    observation, whole = env.reset(seed=3)[0], plain.reset(seed=3)[0]
    for _ in range(5):
        joined = {number for part in observation.values() for number in part.tolist()}
        assert joined == set(whole.tolist())
        action = plain.action_space.sample()
        observation, whole = env.step(action)[0], plain.step(action)[0]


def test_a_pendulums_body_lasts_for_an_episode():
    env, bodies = privileged.Pendulum(), []
    for seed in (0, None, None):
        first, _ = env.reset(seed=seed)
        later = env.step(np.zeros(1, np.float32))[0]
        np.testing.assert_array_equal(first["body"], later["body"])
        assert (env.unwrapped.m, env.unwrapped.l) == pytest.approx(first["body"].tolist())
        bodies.append(first["body"])
    assert len({tuple(body) for body in bodies}) == 3
    np.testing.assert_array_equal(env.reset(seed=0)[0]["body"], bodies[0])
