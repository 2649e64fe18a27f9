"""`rllib serve --learn`: rows that the learner gets of served decisions and their rewards, against the scripts."""

import numpy as np
import pytest

import rllib
from rllib.serving.learning.decisions import Ledger
from rllib.serving.learning.packets import Decision, Gap
from rllib.serving.learning.trainer import Trainer
from rllib.serving.loaded_policy import load_policy
from tests.witness.arrays import covering
from tests.witness.checks import Steps, check_stored
from tests.witness.doors.scripted import ACTION_SPACE, OBSERVATION_SPACE
from tests.witness.doors.served import Served
from tests.witness.grid import GAMMA
from tests.witness.reader import reading
from tests.witness.script import TERMINATED, TRUNCATED, Family

FAMILY = Family(ends=(TERMINATED, TRUNCATED))
AXES = {
    "algorithm": ("DQN", "SAC"),
    "n_step": (1, 3),
    "fragment": (1, 4),
    "max_steps": (4, 100),
    "delay": (0, 12),
    "is_lossy": (False, True),
    "returns": (False, True),
}


def run(case, tmp_path, serials=range(3)):
    """Learns from served episodes, perhaps with returns to the first checkpoint, and checks all rows."""
    served = Served(FAMILY, serials, delay=case["delay"], is_lossy=case["is_lossy"])
    config = getattr(rllib, f"{case['algorithm']}Config")()
    config.environment(observation_space=OBSERVATION_SPACE, action_space=ACTION_SPACE).external(listen="127.0.0.1:0")
    config.rollouts(rollout_fragment_length=case["fragment"])
    config.training(gamma=GAMMA, n_step=case["n_step"], train_batch_size=16, training_intensity=0.5)
    config.training(replay_buffer_config={"type": "ReplayBuffer", "capacity": 5000}, model={"fcnet_hiddens": [8]})
    with config.build() as algorithm:
        saved = algorithm.save(tmp_path / "saved")
    ledger, steps, num_returns = Ledger(timeout_s=1e9, max_steps=case["max_steps"]), Steps(), 0
    trainer = Trainer(load_policy(saved), {})
    try:
        with reading(trainer.algorithm) as read:
            for number, message in enumerate(served.messages()):
                take(ledger, message)
                learn(ledger, trainer)
                if case["returns"] and number % 20 == 19:
                    trainer.go_back(saved)
                    num_returns += 1
            ledger.expire(2e9)
            learn(ledger, trainer)
    finally:
        trainer.stop()
    stored = [columns for _, columns in read.stored]
    cuts = {cut for script in served.scripts() for cut in served.cuts(script, case["max_steps"])}
    check_stored(stored, FAMILY, steps, GAMMA, case["n_step"], cuts)
    for step, action in steps.actions.items():
        assert action == served.action(step), f"{step}: action {action}"
    left_out = {step for script in served.scripts() for step in served.left_out(script.serial, script.number)}
    all_steps = {(s.serial, s.number, 0, i) for s in served.scripts() for i in range(len(s.events))}
    assert not left_out & steps.counts.keys()
    missing = all_steps - left_out - steps.counts.keys()
    # A fragment that is not full, and rows of it that wait for what follows.
    most = (case["fragment"] - 1 + case["n_step"] - 1 if case["fragment"] > 1 else 0) * (1 + num_returns)
    assert len(missing) <= most, f"{len(missing)} rows are missing: {sorted(missing)}"


def take(ledger, message):
    if isinstance(message, Decision):
        ledger.decide(message)
    elif isinstance(message, Gap):
        ledger.lose(message)
    else:
        assert ledger.reward(message, 0.0) == (200, "")


def learn(ledger, trainer):
    for episode in ledger.take():
        if episode.steps:
            trainer.learn(episode)


@pytest.mark.parametrize("case", covering(AXES), ids=lambda case: "-".join(map(str, case.values())))
def test_rows_of_served_episodes(case, tmp_path):
    run(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10, 100, 10))
@pytest.mark.parametrize("case", covering(AXES, 1), ids=lambda case: "-".join(map(str, case.values())))
def test_rows_of_other_served_episodes(case, first, tmp_path):
    run(case, tmp_path, range(first, first + 1 + int(np.sqrt(first))))
