"""docs/site/pictures.py draws the pictures of README.md and of the gallery, here of short runs."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed, which is of the extra plot")
ROOT = Path(__file__).parents[2]
SHORT = """
import dataclasses, pathlib, sys, pictures
whole = pictures.load_spec
pictures.load_spec = lambda path: {**whole(path), "stop": {"timesteps_total": 4000}}
pictures.PICTURES = pathlib.Path(sys.argv[1])
pictures.PAGE = pictures.PICTURES.with_name("gallery.md")
pictures.GALLERY = [dataclasses.replace(pictures.GALLERY[0], settings="--stop steps=4000", goal=300)]
pictures.main()
"""


@pytest.mark.timeout(600)  # a busy machine trains, imports matplotlib and draws for minutes
def test_the_pictures_of_two_short_runs(tmp_path):
    page = tmp_path / "gallery.md"
    page.write_text("before\n<!-- written by docs/site/pictures.py -->\nof old\n<!-- end -->\nafter\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "docs" / "site")])}
    command = [sys.executable, "-c", SHORT, tmp_path / "pictures"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=590)
    assert found.returncode == 0, found.stdout + found.stderr
    panel, curve = (tmp_path / "pictures" / name for name in ("panel.svg", "gallery/ppo_cartpole.svg"))
    for path in (panel, curve):
        assert xml.etree.ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    words = panel.read_text().replace("&#160;", " ")
    assert "rllib train PPO CartPole-v1" in words and "PPO on CartPole-v1" in words and "4,096" in words
    assert "https://" not in words.replace("https://www.w3.org", "")  # fonts of the network
    texts = set(re.findall(r">([^<>]+)</text>", curve.read_text()))
    assert {"goal 300", "episode return", "environment steps"} <= texts
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("<!-- end -->\nafter\n") and "of old" not in text
    assert "\n    rllib train -f ppo/cartpole --stop steps=4000\n" in text and "after 4,096 steps" in text


def test_the_page_shows_each_example_of_the_gallery():
    pictures = subprocess.run(
        [sys.executable, "-c", "import pictures; print(*(each.name for each in pictures.GALLERY))"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "docs" / "site")])},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert pictures.returncode == 0, pictures.stderr
    page, folder = (ROOT / "docs" / "start" / "gallery.md").read_text(), ROOT / "docs" / "pictures" / "gallery"
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == pictures.stdout.split()
    shown = re.findall(r"\(\.\./pictures/gallery/(\w+\.svg)\)", page)
    assert sorted(shown) == sorted(path.name for path in folder.iterdir())
    assert all((folder / name).stat().st_size < 40_000 for name in shown)
