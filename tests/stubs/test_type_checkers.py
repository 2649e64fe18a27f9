"""mypy and basedpyright accept the Python of README and docs and a user's script, and infer what the script asserts."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_readme import PAGES, blocks

HERE = Path(__file__).parent
COMMANDS = {
    "mypy": [
        "--config-file", HERE / "mypy.ini", "--warn-unused-ignores", "--check-untyped-defs",
        "--cache-dir", HERE.parents[1] / "build" / "mypy", ".",
    ],
    "basedpyright": ["--pythonpath", sys.executable],
}  # fmt: skip

# Words of snippets that are left out: imports that are served while a program runs, and settings of Ray 2.6 that are
# taken without effect, which the stubs do not have.
LEFT_OUT = ("import rllib.as_ray", "create_env_on_local_worker")


@pytest.fixture(scope="module")
def checks(tmp_path_factory):
    """The checkers that are installed, all running at once."""
    directory = tmp_path_factory.mktemp("user")
    settings = {"typeCheckingMode": "standard", "reportUnnecessaryTypeIgnoreComment": "error"}
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    (directory / "script.py").write_text((HERE / "script.py").read_text())
    for page in PAGES:
        for number, snippet in enumerate(blocks(page, "python")):
            if not any(words in snippet for words in LEFT_OUT):
                (directory / f"{Path(page).stem}_{number}.py").write_text(snippet)
    return {
        name: subprocess.Popen(
            [sys.executable, "-m", name, *arguments],
            cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for name, arguments in COMMANDS.items() if importlib.util.find_spec(name)
    }  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_users_code_has_types(checks, name):
    if name not in checks:
        pytest.skip(f"{name} is not installed: make types installs and runs it")
    output, _ = checks[name].communicate()
    assert checks[name].returncode == 0, output
