"""A Stable-Baselines3 user's way: the script runs as it is, its zip becomes a run, a file of the Zoo is taken."""

import re
import subprocess
import sys

from story import PAGES, environment, files_of


def test_from_the_script_to_a_run_of_its_zip(shell, tmp_path):
    script = files_of("sb3_user.md")["train.py"].replace("20_000", "1_024").replace('"n_epochs": 20', '"n_epochs": 1')
    (tmp_path / "train.py").write_text(script)
    ran = subprocess.run(
        [sys.executable, "-m", "rllib.as_sb3", "train.py"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0 and "(array(" in ran.stdout, ran.stdout + ran.stderr
    shell("import-sb3 cartpole.zip --env CartPole-v1 -o results/imported")
    shell("evaluate results/imported --episodes 2")
    shell("train --resume results/imported --stop steps=1400 -q")
    zoo = re.search(r"cat > ppo.yml <<'EOF'\n(.*?)^EOF", (PAGES / "sb3_user.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "ppo.yml").write_text(zoo[1].replace("2e4", "300"))
    shell("train -f ppo.yml --algo PPO --env CartPole-v1 --name zoo -q")
    assert (tmp_path / "results/zoo/run.json").exists()
