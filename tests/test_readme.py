"""Every snippet of README.md and of the pages for users in docs/ runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


USERS = (
    *("tune", "callbacks", "action_spaces", "memory", "networks", "losses", "masks", "policy_gradient_settings"),
    *("exploration", "continuous_control", "profiling", "runs", "accelerated_environments"),
    *("environments", "evaluation", "checkpoints", "schedules", "filters", "reproducibility"),
    *("from_rllib", "from_sb3", "from_cleanrl", "export", "deployment"),
    *("custom_loops", "add_algorithm", "add_network", "add_column"),
)
PAGES = ["README.md", *(f"docs/{name}.md" for name in USERS)]
SNIPPETS = [
    pytest.param(snippet, id=f"{page}-{number}")
    for page in PAGES
    for number, snippet in enumerate(blocks(page, "python"))
]


def run(command, directory):
    return subprocess.run(command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippet_runs(snippet, tmp_path):
    path = tmp_path / "snippet.py"
    path.write_text(snippet)
    found = run([sys.executable, path], tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_shell_commands_of_tune(tmp_path):
    (page,), (file,) = blocks("docs/tune.md", "sh"), blocks("docs/tune.md", "yaml")
    (tmp_path / "search.yaml").write_text(file)
    for line in page.splitlines():
        found = run([sys.executable, "-m", *shlex.split(line)], tmp_path)
        assert found.returncode == 0, line + "\n" + found.stdout + found.stderr
    assert "rllib evaluate results/" in found.stdout and (tmp_path / "plot.html").exists()


def test_there_are_snippets():
    assert len(SNIPPETS) >= 10
