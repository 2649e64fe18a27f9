"""AMP: adversarial motion priors (Peng et al., arXiv:2104.02180).

GAIL whose discriminator reads pairs of successive observations, so that demonstrations show a motion and not how to
act, in addition to a reward of the environment for the task:

    r = task_reward_coeff r_task + imitation_coeff max(0, 1 - (d - 1)^2 / 4)

with a least-squares loss and the gradient penalty R1. `discriminator_observation_keys` names the parts of an
observation that make up the motion. Departure from the paper: the policy's side is the newest train batches
(`generator_buffer`), not a replay of 100,000 steps.
"""

from typing import Self

from rllib.algorithms.gail import GAIL, GAILConfig
from rllib.config.sections import section
from rllib.imitation.settings import NEXT_OBSERVATION, OBSERVATION, R1
from rllib.losses.discriminator import LEAST_SQUARES

_PAIRS = [OBSERVATION, NEXT_OBSERVATION]
_PENALTY = {R1: 5.0}


class AMPConfig(GAILConfig):
    """Settings of AMP: other defaults of GAIL's. Falling early is bad in motions, so that no state is absorbing."""

    @section
    def training(
        self,
        *,
        discriminator_inputs=_PAIRS,
        reward_form=LEAST_SQUARES,
        gradient_penalty=_PENALTY,
        absorbing=False,
        # Rewards of both kinds are within 0 ... 1 then, and their factors compare them.
        reward_normalize=False,
        reward_clip=None,
        imitation_coeff=0.5,
        task_reward_coeff=0.5,
    ) -> Self: ...


class AMP(GAIL):
    """A task learned by PPO in the style of demonstrated motions."""

    config_class = AMPConfig
