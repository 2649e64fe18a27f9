"""The GPU benchmark's report, by CPU tensors."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
# By its path: tests/gpu.py has the same name.
_spec = importlib.util.spec_from_file_location("gpu_report", Path(__file__).parents[2] / "benchmarks" / "gpu.py")
gpu = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gpu)


def test_the_least_time_is_that_of_arithmetic_or_of_bytes(monkeypatch):
    monkeypatch.setattr(gpu, "product_rate", lambda device: 1e9)
    monkeypatch.setattr(gpu, "copy_rate", lambda device: 1e6)
    roofline = gpu.Roofline("cpu")
    assert roofline.ms(2e9, 10) == pytest.approx(2000)
    assert roofline.ms(1, 3e6) == pytest.approx(3000)
    row = roofline.row(gpu.Rounds({"ours": [4000.0, 8000.0, 6000.0]}), 2e9, 10, what="some")
    assert (row.ours, row.limit, row.limit_ratio, row.peer) == (6000, 2000, 3, None)


@pytest.mark.slow
def test_the_report_has_a_limit_for_every_update(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["gpu.py", "--no-checks", "--rounds", "1"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gpu.main()
    report = capsys.readouterr().out
    heads = re.findall(r"^## (.+)$", report, re.MULTILINE)
    assert heads == [
        f"{title} (CPU)"
        for title in (
            "PPO on images", "PPO with fully connected towers", "DQN on images", "SAC", "CartPole on the device",
        )
    ]  # fmt: skip
    shares = dict(re.findall(r"^- (.+): ([0-9.]+)% of the limit$", report, re.MULTILINE))
    assert len(shares) == 4 and all(0 < float(share) < 100 for share in shares.values()), shares
    assert "No GPU" in report and "https://puffer.ai/blog.html" in report
