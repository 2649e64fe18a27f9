"""Deep Q-learning (Mnih et al., Nature 2015) and what Rainbow (Hessel et al., arXiv:1710.02298) adds, each a setting.

- `double_q`: the online network chooses the next action, the target network judges it (arXiv:1509.06461);
- `dueling`: Q is a value plus advantages (arXiv:1511.06581);
- `n_step`: rewards of several steps before the bootstrap;
- prioritised replay (arXiv:1511.05952), `replay_buffer_config`: {"type": "PrioritizedReplayBuffer"};
- `num_atoms` > 1: a distribution of returns, C51 (arXiv:1707.06887);
- `num_quantiles` > 1: its quantiles instead, QR-DQN (arXiv:1710.10044), for returns of any size;
- `implicit_quantiles`: quantiles at levels that are drawn for each update, IQN (arXiv:1806.06923);
- `munchausen_alpha` > 0: soft targets with the policy's log-probability in the reward (arXiv:2007.14430);
- `noisy`: exploration by learned noise in the weights of `hiddens` and the head instead of epsilon (arXiv:1706.10295).

IQN, Munchausen's targets, noise, dueling, three steps, priorities and the convolutions "impala" together are BTR
(arXiv:2411.03820; tuned_examples/dqn/atari_btr.yaml).

Departures: both streams of the dueling network read the same hidden layers and are linear (the papers give each a
separate hidden layer); the priorities of C51 are KL(target || prediction), as in Rainbow; with `double_q` and `noisy`
the network that chooses the next action has the noise of the one that is fitted (arXiv:1706.10295 draws a third one).
IQN fits N, judges by N' and acts by K levels; here all three are `num_quantiles`, and the rows of an update share their
levels, one in each of as many strata, where IQN draws independent ones for each row. It acts by the strata's middles,
or with `noisy` by levels that are drawn with the noise.

families/q_learning.py has the network, its loss and its targets; families/off_policy.py replay and updates.
"""

from typing import ClassVar, Self

from rllib.algorithms.families.q_learning import QLearning, QLearningConfig
from rllib.config.sections import section
from rllib.replay.replay_settings import ReplaySettings


class DQNConfig(QLearningConfig):
    """Settings of DQN; the defaults are RLlib's, except those in default_differences.py."""

    default_exploration: ClassVar[dict] = {
        "type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10_000,
    }  # fmt: skip

    @section
    def exploration(self, *, exploration_config=default_exploration) -> Self: ...


class SimpleQConfig(DQNConfig):
    """Q-learning without the parts that came later: the DQN of 2015."""

    @section
    def rollouts(self, *, rollout_fragment_length=4) -> Self: ...

    @section
    def training(
        self,
        *,
        double_q=False,
        dueling=False,
        hiddens=[],  # noqa: B006
        replay_buffer_config=ReplaySettings.defaults(type="MultiAgentReplayBuffer"),
    ) -> Self: ...


class RainbowConfig(DQNConfig):
    """All six parts at once: the choices of the Rainbow paper (table 1), one update per 4 environment steps.

    Set v_min and v_max to the least and the largest return of the environment. The beta of the priorities reaches 1
    after 100,000 steps: set it to the length of your run.
    """

    @section
    def rollouts(self, *, rollout_fragment_length=4) -> Self: ...

    @section
    def training(
        self,
        *,
        double_q=True,
        dueling=True,
        n_step=3,
        num_atoms=51,
        noisy=True,
        replay_buffer_config=ReplaySettings.defaults(
            type="PrioritizedReplayBuffer",
            prioritized_replay_alpha=0.5,
            prioritized_replay_beta=[[0, 0.4], [100_000, 1.0]],
        ),
    ) -> Self: ...


class DQN(QLearning):
    """Deep Q-learning, with the parts of Rainbow as settings."""

    config_class = DQNConfig


class SimpleQ(DQN):
    """DQN with the defaults of SimpleQConfig."""

    config_class = SimpleQConfig


class Rainbow(DQN):
    """DQN with the defaults of RainbowConfig."""

    config_class = RainbowConfig
