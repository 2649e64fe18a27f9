"""A game developer's way: a PettingZoo game, self-play, a league, a match, and the policy as a file for the game."""

import json
import re

import pytest
from story import files_of

QUICK = "num_rollout_workers=0 train_batch_size=400 sgd_minibatch_size=100 lr=3e-3"


def test_from_a_game_to_its_opponent(shell, tmp_path):
    pytest.importorskip("pettingzoo")
    for name, content in files_of("game_developer.md").items():
        (tmp_path / name).write_text(content)
    assert "0 errors" in shell("check-env nim:Nim --steps 200")
    shell(f"train PPO nim:Nim --policies shared --name selfplay {QUICK} num_sgd_iter=4 --stop steps=2500 --seed 1 -q")
    match = shell("play results/selfplay --load-user-code --episodes 20 --against random")
    wins, _, losses = re.search(r"^shared .* (\d+)/(\d+)/(\d+)$", match, re.MULTILINE).groups()
    assert int(wins) > int(losses)
    shell("train -f league.py --name league --stop steps=900 -q")
    (last,) = (tmp_path / "results/league/result.json").read_text().splitlines()[-1:]
    assert json.loads(last)["custom_metrics"]["league"]["elo"].keys() >= {"main", "random"}
    match = shell("play results/league --load-user-code --episodes 2 --policy first=main --against results/selfplay")
    assert re.search(r"^results/selfplay:shared +second", match, re.MULTILINE)
    shell("export results/league --policy main --format safetensors -o nim.safetensors --load-user-code")
    assert (tmp_path / "nim.safetensors").stat().st_size > 1000
