"""The stories of docs/journeys as they are told, from the first command to the last."""

import json
import re
from pathlib import Path

import pytest
from story import PAGES, files_of, returns_in, script_of, told

pytestmark = [pytest.mark.timeout(1200)]


@pytest.mark.slow
def test_robot(tmp_path):
    output = told("robot.md", tmp_path)
    by_rule, _, served, learned = returns_in(output)
    assert served > 3 * by_rule and learned > 2 * by_rule
    stats = json.loads(re.search(r'^{"paused".*?}(?=\+|$)', output, re.MULTILINE)[0])
    assert stats["decisions"]["rewards"] > 500


@pytest.mark.slow
def test_student(tmp_path):
    output = told("student.md", tmp_path)
    first, lake = re.findall(r"^return +([-\d.]+) ±", output, re.MULTILINE)
    assert float(first) > 400 and float(lake) > -0.3
    assert {"cartpole.mp4", "lake.mp4", "first.html", "both.html"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_researcher(tmp_path):
    output = told("researcher.md", tmp_path)
    assert "With 3 seeds each, " in output and "P(custom_loss=calm:calm > custom_loss=None)" in output
    assert (tmp_path / "figure.pdf").exists()


@pytest.mark.slow
def test_game_developer(tmp_path):
    output = told("game_developer.md", tmp_path)
    assert float(re.search(r"^shared +first +(\S+)", output, re.MULTILINE)[1]) > 0.5
    assert float(re.search(r"^main +first, second +(\S+)", output, re.MULTILINE)[1]) > 0
    assert (tmp_path / "nim.onnx").exists()


@pytest.mark.slow
def test_sb3_user(tmp_path):
    output = told("sb3_user.md", tmp_path)
    imported, zoo = re.findall(r"^return +([-\d.]+) ±", output, re.MULTILINE)
    assert "(array(1), None)" in output and float(imported) > 300 and float(zoo) > 100


@pytest.mark.slow
def test_ray_user(tmp_path):
    """But for the cluster, which tests/cluster has."""
    output = told("ray_user.md", tmp_path)
    assert re.search(r"^best lr 0.001$", output, re.MULTILINE) and (tmp_path / "search.html").exists()
    assert (tmp_path / "results/yaml").exists() and (tmp_path / "results/tuned").exists()


@pytest.mark.slow
def test_operator(tmp_path):
    output = told("operator.md", tmp_path)
    released = re.findall(r'"changed":true,"policy_version":(\d+),"checkpoint":"\S*/releases/(v\d)"', output)
    assert [version for _, version in released] == ["v2", "v1"] and int(released[0][0]) > int(released[1][0])


def test_each_page_is_a_story():
    pages = sorted(path.name for path in PAGES.glob("*.md"))
    for page in pages:
        assert "rllib " in script_of(page), page
        for name, content in files_of(page).items():
            compile(content, name, "exec")
    told_here = re.findall(r'told\("(\S+)"', Path(__file__).read_text())
    assert pages == sorted(told_here)
