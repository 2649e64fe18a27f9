"""The GPU benchmark's report, by CPU tensors."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
# By its path: tests/gpu.py has the same name.
_spec = importlib.util.spec_from_file_location("gpu_report", Path(__file__).parents[2] / "benchmarks" / "gpu.py")
gpu = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gpu)
roofline = sys.modules["roofline"]


def test_the_least_time_is_that_of_arithmetic_or_of_bytes(monkeypatch):
    monkeypatch.setattr(roofline, "product_rate", lambda device: 1e9)
    monkeypatch.setattr(roofline, "copy_rate", lambda device: 1e6)
    least = roofline.Roofline("cpu")
    assert least.ms(2e9, 10) == pytest.approx(2000)
    assert least.ms(1, 3e6) == pytest.approx(3000)
    row = least.row(roofline.Rounds({"ours": [4000.0, 8000.0, 6000.0]}), 2e9, 10, what="some")
    assert (row.ours, row.limit, row.limit_ratio, row.peer) == (6000, 2000, 3, None)


def test_the_eager_loop_of_continuous_actions_learns_the_same():
    control = gpu.gpu_control
    assert gpu.Work(16, 32, 2, control.OBSERVATION, control.ACTIONS).check() < 1e-5


@pytest.mark.parametrize("name", ["SAC", "TD3"])
def test_eager_critics_learn_their_targets(name):
    """Rewards alone are learned where nothing follows."""
    rows = gpu.gpu_control.made_up_rows(gpu.np.random.default_rng(0))
    rows["rewards"][:], rows["discounts"][:] = 3, 0
    side = gpu.gpu_control.EAGER[name](rows, "cpu")
    for _ in range(200):
        side.update()
    obs, actions, *_ = side.drawn()
    assert side.values(side.critics, obs, actions).mean().item() == pytest.approx(3, abs=0.5)


def test_a_section_ends_after_its_time_and_prints_what_there_is(capsys):
    now = [0.0]

    def make(seconds):
        def row():
            now[0] += seconds
            return gpu.Row(f"of {seconds} s", "ms", 1.0)

        return row

    gpu.Report("here", 60, clock=lambda: now[0]).section("Some", [make(40), make(41), make(42)])
    printed = capsys.readouterr().out
    assert "of 40 s" in printed and "of 41 s" in printed and "of 42 s" not in printed
    assert "1 of 3 rows left out: the section had taken 60 s" in printed


@pytest.mark.slow
def test_the_report_has_a_limit_for_every_update(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gpu.py", "--no-checks", "--rounds", "1", "--part-seconds", "1e6"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gpu.main()
    report = capsys.readouterr().out
    heads = re.findall(r"^## (.+)$", report, re.MULTILINE)
    assert heads == [
        f"{title} (CPU)"
        for title in (
            "PPO on images", "PPO with fully connected towers", "SAC and TD3", "CartPole on the device",
            "DQN on images",
        )
    ]  # fmt: skip
    shares = dict(re.findall(r"^- (.+): ([0-9.]+)% of the limit$", report, re.MULTILINE))
    assert len(shares) == 6 and all(0 < float(share) < 100 for share in shares.values()), shares
    assert "No GPU" in report and "https://puffer.ai/blog.html" in report
