"""BC: behaviour cloning (Pomerleau 1991), the likelihood of recorded actions made as large as possible.

It is MARWIL with beta=0: no rewards are read, and no value is learned.
"""

from typing import Self

from rllib.algorithms.offline.marwil import MARWIL, MARWILConfig
from rllib.config.config_object import relation
from rllib.config.sections import section


class BCConfig(MARWILConfig):
    """Settings of BC; the defaults are RLlib's, except those in departures.py."""

    @section
    def training(self, *, beta=0.0) -> Self: ...

    @relation("beta")
    def _check_beta(self):
        if self.beta:
            return f"beta={self.beta} weights actions by their advantages, which is MARWIL. Use MARWILConfig()."
        return None


class BC(MARWIL):
    """Behaviour cloning."""

    config_class = BCConfig
    reported_stats = ("total_loss", "policy_loss", "cur_lr")
