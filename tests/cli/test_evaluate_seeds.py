"""`rllib evaluate` of several seeds, with a stand-in for the algorithms."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.cli.verbs import evaluate
from rllib.tune.trainables.checkpoint import METADATA


@pytest.fixture
def played(monkeypatch):
    """Checkpoints that were restored, in order; the mean return of each is the last digit of its seed's directory."""
    seen = []

    def restored(checkpoint, load_user_code, **overrides):
        seen.append(checkpoint)
        return Player(float(next(part[5:] for part in reversed(checkpoint.parts) if part.startswith("seed_"))))

    monkeypatch.setattr(evaluate, "acting_algorithm", restored)
    return seen


class Player(contextlib.nullcontext):
    """An algorithm whose episodes all have the same return."""

    config = AlgorithmConfig().environment("CartPole-v1")
    _rollout_settings = SimpleNamespace(is_external=False)

    def __init__(self, mean):
        super().__init__()
        self.mean = mean

    def evaluate(self, episodes, explore):
        returns = [self.mean] * episodes
        summary = {"episode_reward_mean": self.mean, "episode_reward_min": self.mean, "episode_reward_max": self.mean}
        return {**summary, "episode_len_mean": 9.0, "hist_stats": {"episode_reward": returns}}


def test_each_seed_of_a_folder_is_played_and_summed_up(rllib_command, played, tmp_path):
    for seed in (1, 2, 9):
        for iteration in (1, 2):
            (tmp_path / "all" / f"seed_{seed}" / f"checkpoint_{iteration:06}").mkdir(parents=True)
    (tmp_path / "all" / "seeds.json").write_text('{"seeds": [1, 2, 9, 10]}')
    result = rllib_command("evaluate", "all", "--episodes", 5)
    assert result.exit_code == 0, result.output
    assert [str(path) for path in played] == [f"all/seed_{seed}/checkpoint_000002" for seed in (1, 2, 9)]
    *_, last = result.output.splitlines()
    assert last == "return    4.00 [1.00, 9.00] (IQM of 3 seeds, 95 % interval; 15 episodes)"
    found = json.loads(rllib_command("evaluate", "all", "--episodes", 5, "--json").output)
    assert found["iqm"] == 4 and found["seeds"]["9"]["episode_reward_mean"] == 9


def test_the_seeds_of_a_trial_lie_in_its_checkpoint(rllib_command, played, tmp_path):
    for seed in (0, 1):
        part = tmp_path / "trial" / "checkpoint_000003" / f"seed_{seed}"
        part.mkdir(parents=True)
        (part / METADATA).write_text("{}")
        (tmp_path / "trial" / f"seed_{seed}").mkdir()  # in which its process works
    for place in ("trial", "trial/checkpoint_000003"):
        result = rllib_command("evaluate", place, "--episodes", 1)
        assert result.exit_code == 0, result.output
        assert "(IQM of 2 seeds" in result.output
    assert len(played) == 4


def test_bad_input_gets_its_error(rllib_command, tmp_path):
    (tmp_path / "all" / "seed_0").mkdir(parents=True)
    (tmp_path / "all" / "seeds.json").write_text('{"seeds": [0]}')
    result = rllib_command("evaluate", "all")
    assert result.exit_code == 2 and "no seed in all has a checkpoint yet" in result.stderr
    (tmp_path / "all" / "seed_0" / "checkpoint_000001").mkdir()
    result = rllib_command("evaluate", "all", "--out", "steps.npz")
    assert result.exit_code == 2
    assert "all holds 1 seed; name one of them, as in all/seed_0/checkpoint_000001" in result.stderr
