"""docs/site/pictures.py draws the pictures of README.md, here of two short runs."""

import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'rllib[plot]'")
ROOT = Path(__file__).parents[2]
SHORT = """
import pathlib, sys, pictures
whole = pictures.load_spec
pictures.load_spec = lambda path: {**whole(path), "stop": {"timesteps_total": 4000}}
pictures.PICTURES, pictures.SEEDS = pathlib.Path(sys.argv[1]), range(2)
pictures.main()
"""


def test_the_pictures_of_the_readme(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "docs" / "site")])}
    command = [sys.executable, "-c", SHORT, tmp_path / "pictures"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert found.returncode == 0, found.stdout + found.stderr
    assert [line.partition(":")[0] for line in found.stdout.splitlines()] == ["curve.svg", "panel.svg"]
    panel, curve = (tmp_path / "pictures" / name for name in ("panel.svg", "curve.svg"))
    for path in (panel, curve):
        assert xml.etree.ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    words = panel.read_text().replace("&#160;", " ")
    assert "rllib train -f ppo/cartpole" in words and "PPO on CartPole-v1" in words
    assert "https://" not in words.replace("https://www.w3.org", "")  # fonts of the network
    lines = curve.read_text()
    assert "seeds 0 to 1" in lines and lines.count('stroke: #4a90d9; stroke-width: 1.6') == 2
