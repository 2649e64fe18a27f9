"""Rainbow (Hessel et al., arXiv:1710.02298): DQN with six extensions at once.

They are double Q-learning, dueling heads, prioritised replay, n-step returns, distributions of returns and noisy
networks. Each is a setting of DQN; see dqn.py, and there for departures.
"""

from typing import Self

from rllib.algorithms.dqn import DQN, DQNConfig
from rllib.algorithms.families.off_policy import REPLAY_DEFAULTS
from rllib.config.sections import section


class RainbowConfig(DQNConfig):
    """All six parts at once; the choices are those of the Rainbow paper (table 1), one update per 4 environment steps.

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
        replay_buffer_config={  # noqa: B006
            **REPLAY_DEFAULTS,
            "type": "PrioritizedReplayBuffer",
            "prioritized_replay_alpha": 0.5,
            "prioritized_replay_beta": [[0, 0.4], [100_000, 1.0]],
        },
    ) -> Self: ...


class Rainbow(DQN):
    """The same algorithm, by the defaults of RainbowConfig."""

    config_class = RainbowConfig
