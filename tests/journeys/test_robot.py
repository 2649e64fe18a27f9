"""A robot's way: its program writes a log, a policy learns from it without an environment, and acts in the program."""

import re
import runpy
import sys

from story import files_of, free_port


def play(tmp_path, monkeypatch, capsys, *arguments) -> float:
    """Runs the page's robot.py; returns the mean return that it prints."""
    (tmp_path / "robot.py").write_text(files_of("robot.md")["robot.py"])
    monkeypatch.setattr(sys, "argv", ["robot.py", *map(str, arguments)])
    capsys.readouterr()
    runpy.run_path(str(tmp_path / "robot.py"), run_name="__main__")
    return float(re.search(r"mean return ([\d.]+)", capsys.readouterr().out)[1])


def test_from_the_log_back_into_the_simulator(shell, beside, tmp_path, monkeypatch, capsys):
    by_rule = play(tmp_path, monkeypatch, capsys)
    columns = "--columns obs=position,velocity,angle,turning"
    assert "100 episodes" in shell(f"dataset info log.csv {columns}")
    learning = "lr=1e-3 train_batch_size=128 dataset_num_iters_per_learner=300 --stop iterations=1 --seed 1 -q"
    shell(f"train MARWIL --input log.csv {columns} --name weighed {learning}")
    port = free_port()
    beside(f"serve results/weighed --port {port}")
    served = play(tmp_path, monkeypatch, capsys, f"127.0.0.1:{port}", 20, "served.csv")
    assert served > 1.2 * by_rule
    assert "20 episodes" in shell(f"dataset info served.csv {columns}")


def test_what_drove_the_robot_continues_as_a_server_that_learns(shell, beside, tmp_path, monkeypatch, capsys):
    """Simulator -> policy server -> logs, and its checkpoint at `serve --learn`."""
    port = free_port()
    spaces = "--observation-space Box(-inf,inf,(4,)) --action-space Discrete(2)"
    run = beside(f"train DQN --external 127.0.0.1:{port} {spaces} --name drive output=logs model.fcnet_hiddens=[8] "
                 "timesteps_per_iteration=300 --stop steps=300")  # fmt: skip
    play(tmp_path, monkeypatch, capsys, f"127.0.0.1:{port}", 1000, "driven.csv")
    assert run.wait(60) == 0
    columns = "--columns obs=position,velocity,angle,turning"
    steps = [
        re.search(r"rows\s+([\d,]+)", shell(f"dataset info {each}"))[1] for each in ("logs", f"driven.csv {columns}")
    ]
    assert steps[0] == "300" and int(steps[1]) in (299, 300, 301)  # of the last one only one of both may know
    port = free_port()
    beside(f"serve results/drive --learn --port {port}")
    assert play(tmp_path, monkeypatch, capsys, f"127.0.0.1:{port}", 3, "learned.csv") > 5
