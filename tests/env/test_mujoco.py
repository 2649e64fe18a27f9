"""Tasks of gymnasium's MuJoCo, of dm_control by shimmy and of gymnasium-robotics, by their names."""

import numpy as np
import pytest

from rllib import PPOConfig, SACConfig, TQCConfig

# (task, numbers in an observation, steps of an episode)
REACHER = "Reacher-v5", 10, 50
SWINGUP = "shimmy:dm_control/cartpole-swingup-v0", 5, 1000
FETCH = "gymnasium_robotics:FetchReach-v4", 16, 50
NEED_MUJOCO = pytest.mark.extras("mujoco")
NEED_SHIMMY = pytest.mark.extras("dm_control", "shimmy")
NEED_ROBOTICS = pytest.mark.extras("gymnasium_robotics")
HINDSIGHT = {"type": "HindsightReplayBuffer", "capacity": 2000}


@pytest.mark.parametrize(
    "task, size, length",
    [
        pytest.param(*REACHER, marks=NEED_MUJOCO),
        pytest.param(*SWINGUP, marks=NEED_SHIMMY),
        pytest.param(*FETCH, marks=NEED_ROBOTICS),
    ],
)
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


@pytest.mark.parametrize(
    "kind, task, replay",
    [
        pytest.param(SACConfig, REACHER, {}, marks=NEED_MUJOCO),
        pytest.param(SACConfig, SWINGUP, {}, marks=NEED_SHIMMY),
        pytest.param(SACConfig, FETCH, HINDSIGHT, marks=NEED_ROBOTICS),
        pytest.param(TQCConfig, FETCH, HINDSIGHT, marks=NEED_ROBOTICS),
    ],
)
def test_critics_learn_from_a_replay(kind, task, replay):
    """With hindsight the replay has five rows for each step, of whole episodes."""
    name, size, _ = task
    config = kind().environment(name).rollouts(num_rollout_workers=0).debugging(seed=0)
    config.training(
        train_batch_size=32, training_intensity=32, num_steps_sampled_before_learning_starts=100,
        replay_buffer_config={"type": "ReplayBuffer", "capacity": 2000, **replay}, model={"fcnet_hiddens": [16]},
    ).reporting(min_sample_timesteps_per_iteration=100, min_time_s_per_iteration=None)  # fmt: skip
    with config.build() as algo:
        for _ in range(2):
            result = algo.train()
        stats = result["info"]["learner"]["default_policy"]["learner_stats"]
        assert all(np.isfinite(stats[key]) for key in ("critic_loss", "actor_loss", "mean_q", "entropy", "alpha_loss"))
        assert algo.num_updates >= 100 and np.isfinite(algo.learner.weights).all()
        assert len(algo.replay) == 200 * (5 if replay else 1)
        batch = algo.replay.sample(64, np.random.default_rng(0))
        assert batch["obs"].shape == batch["new_obs"].shape == (64, size)
        # Time limits cut episodes: every row is bootstrapped.
        np.testing.assert_allclose(batch["discounts"], algo.config.gamma)
