"""Programs for Ray, which run in processes of their own."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run_program(tmp_path, monkeypatch):
    """Writes files, runs the one called program.py under as_ray, and returns (exit code, stdout, stderr)."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(program: str, *arguments: str, command=("-m", "rllib.as_ray", "program.py"), files=None):
        for name, text in {"program.py": program, **(files or {})}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, *command, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=100
        )
        return done.returncode, done.stdout, done.stderr

    return run
