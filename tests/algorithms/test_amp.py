"""AMP: a task's reward and a motion's, in their shares."""

import numpy as np

from rllib import sample_batch as sb
from rllib.algorithms.amp import AMPConfig
from tests.algorithms.test_gail import LEFT, first_batch


def test_both_rewards_are_within_their_shares():
    batch, _ = first_batch(LEFT, config=AMPConfig)
    motion = (batch[sb.REWARDS] - 0.5 * batch[sb.ENV_REWARDS]) / 0.5
    assert (motion >= 0).all() and (motion <= 1).all() and np.std(motion) > 0
    assert abs(motion.mean() - 0.75) < 0.2  # 1 - 1 / 4: nothing is told apart yet
