"""AIRL: adversarial inverse reinforcement learning (Fu et al., arXiv:1710.11248).

GAIL with a logit that has a reward as a part of it:

    l = f - log pi(a | s),   f = g(s[, a]) + gamma (1 - terminated) h(s') - h(s)

At the optimum g is the expert's reward up to a constant, without what shaping by h adds. The policy is trained by l,
with log pi of the newest policy on demonstrated steps and of the policy that acted on its own; `learned_reward(...)`
gives g, for another run. `discriminator_inputs=["obs"]` makes g a reward of states alone, which other dynamics keep
(the paper's section 5).
"""

from typing import Annotated, ClassVar, Literal, Self

from rllib.algorithms.gail import GAIL, GAILConfig
from rllib.config.conflicts import conflict
from rllib.config.sections import section
from rllib.imitation.settings import ACTION, OBSERVATION

_INPUTS = [OBSERVATION, ACTION]


class AIRLConfig(GAILConfig):
    """Settings of AIRL, in addition to those of GAIL."""

    @section
    def training(
        self,
        *,
        discriminator_inputs: Annotated[
            list[Literal[OBSERVATION, ACTION]], 'what the learned reward g reads: "obs" and "actions", or "obs" alone'
        ] = _INPUTS,
        reward_form="airl",
        absorbing=False,
    ) -> Self: ...

    refuses: ClassVar[dict[str, str]] = {
        "absorbing": "its logit reads the probability of an action, and no policy acts in an absorbing state",
        "reward_form": "the logit itself is the reward that its policy is trained by",
    }
    conflicts = (
        conflict(
            "discriminator_inputs",
            when=lambda config: OBSERVATION not in config.discriminator_inputs,
            why="the reward that is learned is one of observations",
            remedies=[{"discriminator_inputs": _INPUTS}],
        ),
    )

    @property
    def is_shaped(self) -> bool:
        return True

    @property
    def reads_next_observations(self) -> bool:
        return True


class AIRL(GAIL):
    """Inverse reinforcement learning by PPO and a discriminator."""

    config_class = AIRLConfig
