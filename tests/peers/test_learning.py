"""Returns after equal numbers of steps with equal settings, beside Stable-Baselines3 and sb3-contrib: three seeds."""

import numpy as np
import pytest

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.config.stable_baselines3 import settings_from_sb3
from tests.peers.tasks import TASKS, environment, reached

SEEDS = 1, 2, 3
MEMORY = {"use_lstm": True, "lstm_cell_size": 256, "max_seq_len": 64}


def trained(task, seed):
    """Our return."""
    name, _, _, steps, words = TASKS[task]
    space = environment(task).action_space
    config = get_algorithm_config(name).environment(lambda _: environment(task))
    words = {**words, "n_timesteps": steps, "action_space": space}
    config.update_from_dict(settings_from_sb3(name, words, defaults=True))
    if task == "recurrent PPO":
        config.training(model=MEMORY)
    with config.debugging(seed=seed).build() as algorithm:

        def run():
            while algorithm.timesteps < steps:
                algorithm.train()

        return reached(run)


@pytest.mark.learning
@pytest.mark.parametrize("task", TASKS)
def test_returns(task, sb3):
    theirs = [float(sb3.call("from_sb3.trained", {"task": task, "seed": seed})["reached"]) for seed in SEEDS]
    ours = [trained(task, seed) for seed in SEEDS]
    print(f"\n{task}: ours {np.round(ours, 1)}, theirs {np.round(theirs, 1)}")
    # Three seeds each differ by chance: by two standard errors of the difference of their means, 19 times in 20.
    error = np.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / len(SEEDS))
    assert np.mean(ours) >= np.mean(theirs) - 2 * error
