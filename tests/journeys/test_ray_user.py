"""A Ray user's way: the script with Tune runs as it is, and what it leaves is there for the commands."""

import re
import subprocess
import sys

from story import PAGES, environment, files_of


def test_from_the_script_to_the_commands(shell, tmp_path):
    script = (
        files_of("ray_user.md")["train.py"]
        .replace("range(3)", "range(1)")
        .replace("num_env_runners=1", "num_env_runners=0")
    )
    script = script.replace("[1e-3, 1e-4]", "[1e-3]").replace('{"training_iteration": 2}', '{"training_iteration": 1}')
    (tmp_path / "train.py").write_text(script)
    ran = subprocess.run(
        [sys.executable, "-m", "rllib.as_ray", "train.py"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0 and "best lr 0.001" in ran.stdout, ran.stdout + ran.stderr
    shell("evaluate checkpoint --episodes 2")
    yaml = re.search(r"cat > \S+ <<'EOF'\n(.*?)^EOF", (PAGES / "ray_user.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "cartpole-ppo.yaml").write_text(yaml[1])
    shell("train -f cartpole-ppo.yaml --name yaml --stop steps=500 num_workers=0 train_batch_size=500 -q")
    assert (tmp_path / "results/yaml/run.json").exists()
