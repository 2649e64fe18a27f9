"""DQN and its parts as properties: what must not change, and what must be the same by two ways."""

import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.algorithms.dqn import DQNConfig, RainbowConfig
from tests.envs import ProbeEnv


class SkewedBandit(ProbeEnv):
    """One step; action a is worth a draw from the exponential distribution with mean 1 + a."""

    def follow(self, action):
        return 0.0, float(self.np_random.exponential(1.0 + action)), True, False


class FiveStates(ProbeEnv):
    """Steps through the states 0, 0.2, ..., 0.8; action 1 is worth 1, action 0 ends the episode with nothing."""

    def follow(self, action):
        return self.t / 5, float(action), action == 0 or self.t == 5, False


def make_config(env, cls=DQNConfig, epsilon=0.3, **training):
    settings = {
        "lr": 3e-3, "gamma": 0.9, "hiddens": [], "model": {"fcnet_hiddens": [32]}, "target_network_update_freq": 50,
        "num_steps_sampled_before_learning_starts": 100, **training,
    }  # fmt: skip
    noisy = training.get("noisy", cls().noisy)
    return (
        cls()
        .environment(env)
        .rollouts(rollout_fragment_length=4)
        .training(**settings)
        .exploration(exploration_config={} if noisy else {"final_epsilon": epsilon, "epsilon_timesteps": 500})
        .reporting(min_sample_timesteps_per_iteration=200)
        .debugging(seed=5)
    )


@pytest.mark.parametrize(("beta", "is_unbiased"), [(1.0, True), (0.0, False)])
def test_p11_importance_weights_undo_the_bias_of_priorities(beta, is_unbiased):
    """Q must be the mean of the stored rewards, within three standard errors of it; without weights it is more."""
    replay = {"type": "PrioritizedReplayBuffer", "prioritized_replay_alpha": 0.6, "prioritized_replay_beta": beta}
    config = make_config(
        SkewedBandit, td_error_loss_fn="mse", replay_buffer_config=replay, train_batch_size=64,
        num_steps_sampled_before_learning_starts=2000, model={"fcnet_hiddens": [8]},
    ).exploration(exploration_config={"initial_epsilon": 1.0, "final_epsilon": 1.0})  # fmt: skip
    with config.build() as algo:
        while algo.timesteps < 1996:
            algo.training_step()
        stored = algo.replay.get_state()
        actions, rewards = (stored[f"columns.{name}"] for name in (sb.ACTIONS, sb.REWARDS))
        assert len(actions) == 1996
        for update in range(2000):
            algo.trainee.update(lr=4e-3 * (1 - update / 2000))
        q = algo.policy.action_values(np.zeros((1, 1), np.float32)).q_values()[0]
        stored = [rewards[actions == action] for action in (0, 1)]
        error = [(value - draws.mean()) / (draws.std() / np.sqrt(len(draws))) for value, draws in zip(q, stored)]
        assert (np.abs(error) < 3).all() if is_unbiased else min(error) > 3, error


def test_beta_reaches_one_at_the_end_of_its_schedule():
    replay = {"type": "PrioritizedReplayBuffer", "prioritized_replay_beta": [[0, 0.4], [1000, 1.0]]}
    seen = []
    with make_config(FiveStates, replay_buffer_config=replay).build() as algo:
        drawn = algo.replay.sample
        algo.replay.sample = lambda count, rng, beta: (seen.append((algo.timesteps, beta)), drawn(count, rng, beta))[1]
        for _ in range(6):
            algo.train()
    for timestep, beta in seen:
        assert beta == pytest.approx(0.4 + 0.6 * min(timestep / 1000, 1))
    assert seen[-1][1] == 1.0


def test_a_beta_that_exceeds_one_is_refused():
    replay = {"type": "PrioritizedReplayBuffer", "prioritized_replay_beta": lambda timestep: 0.4 + timestep / 500}
    with (
        make_config(FiveStates, replay_buffer_config=replay).build() as algo,
        pytest.raises(ValueError, match=r"^prioritized_replay_beta=.* must return a number >= 0 and <= 1, but gave "),
    ):
        for _ in range(6):
            algo.train()


def test_noise_is_the_same_for_choosing_and_learning_and_another_for_the_target():
    """One draw per update and network: the online one chooses next actions by the noise that it is trained with."""
    config = make_config(FiveStates, noisy=True, num_steps_sampled_before_learning_starts=10**4)
    with config.build() as algo:
        algo.train()
        seen = []
        add_targets = algo.trainee.add_targets
        algo.trainee.add_targets = lambda batch: (seen.append(algo.policy.network.noise.copy()), add_targets(batch))[1]
        for _ in range(3):
            algo.trainee.update(lr=algo.config.lr)
            assert np.array_equal(seen[-1], algo.policy.network.noise)
            assert not np.array_equal(algo.policy.network.noise, algo.trainee.target.network.noise)
    assert not np.array_equal(seen[0], seen[1]) and not np.array_equal(seen[1], seen[2])


def test_exchanged_actions_exchange_values():
    """Swapping the two actions in every stored row and in the head's weights gives the same run, swapped."""
    values = []
    for swapped in (False, True):
        config = make_config(FiveStates, dueling=False, num_steps_sampled_before_learning_starts=10**4)
        with config.build() as algo:
            algo.train()
            if swapped:
                stored = algo.replay.get_state()[f"columns.{sb.ACTIONS}"]
                stored[:] = 1 - stored
                for policy in (algo.policy, algo.trainee.target):
                    head = policy.parameters()
                    for name in ("policy.head.weight", "policy.head.bias"):
                        head[name][:] = head[name][::-1].copy()
            for _ in range(50):
                algo.trainee.update(lr=algo.config.lr)
            observations = np.linspace(0, 0.8, 5, dtype=np.float32)[:, None]
            values.append(algo.policy.action_values(observations).q_values().copy())
    np.testing.assert_allclose(values[1][:, ::-1], values[0], atol=1e-5)


RAINBOW = {"num_atoms": 41, "v_min": -1.0, "v_max": 6.0}


@pytest.mark.parametrize(
    ("cls", "parts"),
    [(DQNConfig, {}), (DQNConfig, {"n_step": 3}), (RainbowConfig, RAINBOW)],
    ids=["dqn", "3", "rainbow"],
)
def test_values_are_those_of_the_greedy_policy(cls, parts):
    """The exact values: action 1 in the state that is k steps from the end is worth 1 + 0.9 + ... + 0.9^(k - 1).

    Little is left to chance at the end, since returns of three steps are those of the policy that acted.
    """
    with make_config(FiveStates, cls, 0.02, **parts).build() as algo:
        for _ in range(15):
            algo.train()
        algo.policy.silence()
        q = algo.policy.action_values(np.linspace(0, 0.8, 5, dtype=np.float32)[:, None]).q_values()
        expected = np.array([(1 - 0.9**k) / 0.1 for k in (5, 4, 3, 2, 1)])
        error = np.sqrt(((q[:, 1] - expected) ** 2).mean())
        assert error < 0.05 * expected.max(), (q, expected)
        assert (q[:, 1] > q[:, 0]).all()
        assert algo.evaluate(5)["episode_reward_mean"] == 5.0
