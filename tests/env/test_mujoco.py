"""Tasks of gymnasium's MuJoCo, of dm_control by shimmy and of gymnasium-robotics, by their names."""

import numpy as np
import pytest

from rllib import PPOConfig

# (task, numbers in an observation, steps of an episode)
TASKS = [
    pytest.param("Reacher-v5", 10, 50, marks=pytest.mark.extras("mujoco")),
    pytest.param("shimmy:dm_control/cartpole-swingup-v0", 5, 1000, marks=pytest.mark.extras("dm_control", "shimmy")),
    pytest.param("gymnasium_robotics:FetchReach-v4", 16, 50, marks=pytest.mark.extras("gymnasium_robotics")),
]


@pytest.mark.parametrize("task, size, length", TASKS)
def test_ppo_trains_and_episodes_are_cut_not_ended(task, size, length):
    config = PPOConfig().environment(task).rollouts(num_rollout_workers=0).debugging(seed=0)
    config.training(train_batch_size=100, sgd_minibatch_size=50, num_sgd_iter=1, model={"fcnet_hiddens": [16]})
    with config.build() as algo:
        result = algo.train()
        assert np.isfinite(result["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])
        batch = algo.sample(2 * length)
    assert batch["obs"].shape == (2 * length, size)
    assert np.isfinite(batch["rewards"]).all()
    assert batch["truncateds"].sum() == 2 and not batch["terminateds"].any()
