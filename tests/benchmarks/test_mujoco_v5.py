"""The table and the picture of PPO's curves, of files that the test writes."""

import mujoco_v5
import pytest


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_v5, "RESULTS", tmp_path)
    for seed, last in enumerate((10, 20, 30, 400)):
        text = f"steps,return\n50176,1.0\n100352,{last}.00\n"
        mujoco_v5.file_of("Hopper-v5", 3000 + seed).write_text(text)


def test_the_table_is_of_the_last_evaluation(files, capsys):
    mujoco_v5.print_table()
    _, line = capsys.readouterr().out.splitlines()
    task, seeds, mean, iqm, low, _, high, worst, best = line.split()
    assert (task, seeds, mean, iqm, worst, best) == ("Hopper-v5", "4", "115", "25", "10", "400")
    assert 10 <= float(low) <= 25 <= float(high) <= 400


def test_only_missing_runs_are_made(files, monkeypatch):
    made = []

    class Pool:
        def __init__(self, jobs): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def submit(self, function, *run):
            made.append(run)

    monkeypatch.setattr(mujoco_v5, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(mujoco_v5, "as_completed", lambda started: [])
    mujoco_v5.run_missing(["Hopper-v5", "Ant-v5"], range(3003, 3005), jobs=2)
    assert made == [("Ant-v5", 3003), ("Hopper-v5", 3004), ("Ant-v5", 3004)]


def test_the_picture(files, tmp_path):
    pytest.importorskip("matplotlib")
    mujoco_v5.draw(tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").stat().st_size > 10_000
