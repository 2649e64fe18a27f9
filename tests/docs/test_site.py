"""The documentation site: the reference has every setting, the pages build without a warning, and no link is broken."""

import html.parser
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from rllib import cli
from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config

# The build takes half a minute of one core, and others may have most of it.
pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"
GENERATOR = ("sphinx", "myst_parser", "furo", "sphinx_copybutton")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(SITE), os.environ.get("PYTHONPATH", "")])}


def run(*arguments):
    found = subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=550)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("pages")
    run("-c", f"import build, pathlib; build.assemble(pathlib.Path({str(directory)!r}))")
    return directory


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    for name in GENERATOR:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed, which is of the extra docs")
    directory = tmp_path_factory.mktemp("site")
    run(SITE / "build.py", directory)
    return directory


def test_every_setting_of_every_algorithm_is_in_the_reference(pages):
    reference = pages / "reference"
    common = (reference / "settings.md").read_text()
    for row in AlgorithmConfig.describe():
        assert f"| `{row.name}` | " in common
    assert "Also: `num_env_runners`, `num_workers`" in common or "Also: `num_workers`, `num_env_runners`" in common
    for name in algorithm_names():
        own = (reference / "algorithms" / f"{name}.md").read_text()
        for row in get_algorithm_config(name).describe():
            default = f"`{row.default!r}`".replace("|", "\\|")
            assert re.search(rf"^\| `{row.name}` \| .* \| {re.escape(default)} \| ", own + common, re.MULTILINE), row


def test_every_rule_of_every_algorithm_is_in_the_reference(pages):
    reference = pages / "reference"
    common = (reference / "settings.md").read_text()
    for name in algorithm_names():
        own = (reference / "algorithms" / f"{name}.md").read_text()
        for row in type(get_algorithm_config(name)).describe_rules():
            line = re.escape(row.rule).replace("\\|", ".*").replace("\\[", ".*").replace("\\*", ".*")
            assert re.search(rf"^\| {line} \| ", own + common, re.MULTILINE), (name, row)


def test_every_command_is_in_the_reference(pages):
    commands = (pages / "reference" / "commands.md").read_text()
    for name in cli.command.list_commands(None):
        assert f"### rllib {name}\n" in commands and f"Usage: rllib {name} " in commands


def test_names_of_pages_are_links(pages):
    assert "([extend](../project/extend.md))" in (pages / "guide" / "networks.md").read_text()
    assert "](docs/" not in (pages / "contributing.md").read_text()
    assert "](../guide/networks.md)" in (pages / "reference" / "model_settings.md").read_text()


def test_every_page_is_in_the_table_of_pages():
    """The site's navigation is made of that table."""
    docs = ROOT / "docs"
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"index.md"}
    listed = re.findall(r"^\| \[[^]]*\]\(([\w/]+\.md)\)", (docs / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(there)
    names = [Path(page).name for page in listed]
    assert len(set(names)) == len(names), "pages are named without their folder"


def test_links_between_pages_lead_somewhere():
    """As a reader of the repository follows them: the site has a test of its own."""
    broken = []
    for page in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")):
        text, name = page.read_text(), page.relative_to(ROOT)
        linked = re.findall(r"\]\(([^)#:\s]+\.(?:md|svg|png))(?:#[^)]*)?\)", text)
        broken += [f"{name}: {target}" for target in linked if not (page.parent / target).exists()]
        mentioned = re.findall(r"(?<![\w/.-])(?:docs/)?((?:\w+/)*\w+\.md)(?![\w(])", text)
        broken += [f"{name}: {each}" for each in mentioned if not (each.startswith("reference/") or _is_page(each))]
    assert not broken


def _is_page(name: str) -> bool:
    return any((ROOT / folder / name).exists() for folder in ("", "docs")) or (
        "/" not in name and any((ROOT / "docs").rglob(name))
    )


class Links(html.parser.HTMLParser):
    """Targets of a page's links and pictures, and its anchors."""

    def __init__(self, page: Path):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        self.targets += [given[name] for name in ("href", "src") if given.get(name)]


def test_the_site_builds_without_a_warning_and_no_link_is_broken(site):
    pages = {path: Links(path) for path in site.rglob("*.html")}
    assert len(pages) > 60
    broken = []
    for path, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or target.startswith(("data:", "//")):
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[file].anchors if file in pages else None
            if not file.exists() or (parts.fragment and known is not None and unquote(parts.fragment) not in known):
                broken.append(f"{path.relative_to(site)}: {target}")
    assert not broken
