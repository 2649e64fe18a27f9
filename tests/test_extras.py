"""The command that a message gives for an extra installs this library, and nothing else of its name."""

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path

import pytest

from rllib import extras

ROOT = Path(__file__).parents[1]
INSTALLED_FROM = {
    "an index": (None, f"pip install '{extras.DISTRIBUTION}[plot]'"),
    "a clone in place": ({"url": "file:///a%20b/c", "dir_info": {"editable": True}}, "pip install -e '/a b/c[plot]'"),
    "a clone": ({"url": "file:///clone", "dir_info": {}}, "pip install '/clone[plot]'"),
    "a wheel": ({"url": "file:///x/r.whl", "archive_info": {}}, "pip install '/x/r.whl[plot]'"),
    "an address": ({"url": "https://example.org/r.whl"}, f"pip install '{extras.DISTRIBUTION}[plot]'"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def asked_anew():
    extras._installed_from.cache_clear()
    yield
    extras._installed_from.cache_clear()


@pytest.mark.parametrize(("noted", "hint"), INSTALLED_FROM.values(), ids=INSTALLED_FROM)
def test_a_hint_names_where_the_library_was_installed_from(monkeypatch, noted, hint):
    class Installed:
        def read_text(self, name):
            assert name == "direct_url.json"
            return noted and json.dumps(noted)

    monkeypatch.setattr(importlib.metadata, "distribution", {extras.DISTRIBUTION: Installed()}.__getitem__)
    assert extras.install_hint("plot") == hint


def test_a_clone_that_nobody_has_installed_is_named_from_inside_and_outside(monkeypatch, tmp_path):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    monkeypatch.chdir(ROOT)
    assert extras.install_hint("plot,video") == "pip install -e '.[plot,video]'"
    monkeypatch.chdir(tmp_path)
    assert extras.install_hint("plot") == f"pip install -e '{ROOT}[plot]'"


def test_the_distribution_has_this_name():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == extras.DISTRIBUTION


# What pip would find under these names on an index is somebody else's.
FOREIGN = re.compile(r"""pip install\b[^\n`]*?[\s'"](rllib|runtime)(\[|['"\s`]|==|>|$)|\brllib\[[a-z]""", re.M)
TEXTS = [
    "README.md",
    "CONTRIBUTING.md",
    "docs",
    "examples",
    "tuned_examples",
    "deploy",
    "rllib",
    "runtime",
    "benchmarks",
]


def test_no_page_and_no_message_asks_for_a_name_that_is_somebody_elses():
    files = [file for name in TEXTS for file in ([ROOT / name] if "." in name else (ROOT / name).rglob("*"))]
    endings = {".md", ".py", ".ipynb", ".yaml", ".Dockerfile", ".toml"}
    wrong = [
        f"{file.relative_to(ROOT)}: {found[0]}"
        for file in files
        if file.suffix in endings and "peers" not in file.parts
        for found in FOREIGN.finditer(file.read_text())
    ]
    assert not wrong
    for text in (
        "pip install rllib",
        "pip install 'rllib[plot]'",
        'pip install -U "rllib==1"',
        "the extra rllib[tune]",
    ):
        assert FOREIGN.search(text)
    for text in ("pip install '.[plot]'", "pip install torch /home/x/rllib", "`pip install wheels`: rllib reads"):
        assert not FOREIGN.search(text)
