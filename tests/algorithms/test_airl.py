"""AIRL: the reward that it learns, what its logit reads, and refusals."""

import numpy as np
import pytest

from rllib.algorithms.airl import AIRLConfig
from rllib.algorithms.gail import GAILConfig
from rllib.config.conflicts import SettingsError
from tests.algorithms.algorithm_support import learner_stats, train
from tests.algorithms.test_gail import make, turning
from tests.imitation.demonstrations import always_left, recorded

LEFT = always_left()


def test_the_experts_action_is_rewarded():
    config = make(config=AIRLConfig, discriminator_updates=16, discriminator_lr=3e-3, lr=3e-4)
    with config.build() as algo:
        train(algo, 30)
        seen, zeros = LEFT["obs"], np.zeros(len(LEFT["obs"]), np.int64)
        left, right = algo.learned_reward(seen, zeros), algo.learned_reward(seen, zeros + 1)
        stats = learner_stats(algo.train())
        chosen = algo.policy.dist_inputs(seen)
    assert left.shape == (len(seen),) and left.dtype == np.float32
    assert np.mean(left > right) > 0.9
    assert np.mean(chosen[:, 0] > chosen[:, 1]) > 0.9
    assert np.isfinite(list(stats.values())).all() and stats["absorbing_reward"] == 0


def test_a_reward_of_observations_alone_does_not_read_actions():
    with make(config=AIRLConfig, discriminator_inputs=["obs"]).build() as algo:
        train(algo, 2)
        rewards = [algo.learned_reward(LEFT["obs"], np.full(len(LEFT["obs"]), action)) for action in (0, 1)]
    np.testing.assert_array_equal(*rewards)
    assert np.std(rewards[0]) > 0


def test_actions_of_the_environment_are_given_in_its_units():
    data = recorded("Pendulum-v1", turning, 1)
    with make(data, "Pendulum-v1", config=AIRLConfig).build() as algo:
        train(algo, 1)
        given = [np.full((3, 1), torque, np.float32) for torque in (2.0, 1.0)]
        bound, half = (algo.learned_reward(data["obs"][:3], actions) for actions in given)
    assert (bound != half).all()


def test_next_observations_are_asked_for_where_they_are_read():
    with make(config=GAILConfig, discriminator_inputs=["obs", "next_obs"]).build() as algo:
        with pytest.raises(ValueError, match="next_observations"):
            algo.learned_reward(LEFT["obs"], LEFT["actions"])
        rewards = algo.learned_reward(LEFT["obs"], LEFT["actions"], LEFT["new_obs"])
    assert rewards == pytest.approx(np.log(2), abs=0.1)


@pytest.mark.parametrize(
    "settings", [{"absorbing": True}, {"reward_form": "gail"}, {"discriminator_inputs": ["actions"]}]
)
def test_what_its_logit_cannot_be_is_refused_with_a_remedy(settings):
    config = make(config=AIRLConfig, **settings)
    with pytest.raises(SettingsError, match=next(iter(settings))) as caught:
        config.build()
    for mistake in caught.value.mistakes:
        config.apply(mistake.remedies[0])
    config.validate()


def test_a_restored_run_continues_with_the_same_discriminator(tmp_path):
    config = make(config=AIRLConfig)
    with config.build() as algo, config.build() as other:
        train(algo, 2)
        other.restore(algo.save(tmp_path / "checkpoint"))
        saved, restored = (each.trainee.reward.discriminator.get_state() for each in (algo, other))
    for name, array in saved.items():
        np.testing.assert_array_equal(array, restored[name])
