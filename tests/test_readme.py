"""Every Python snippet of README.md runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SNIPPETS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: re.search(r"import (\w+)", snippet).group(1))
def test_snippet_runs(snippet, tmp_path):
    path = tmp_path / "snippet.py"
    path.write_text(snippet)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, path]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr


def test_there_are_snippets():
    assert len(SNIPPETS) >= 2
