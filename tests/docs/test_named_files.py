"""Pages for developers, docstrings and comments name files of the repository that exist and define what they say."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / "docs" / "project").rglob("*.md"), *(ROOT / "docs" / "scale").rglob("*.md")]
FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in ("rllib", "runtime", "tests", "tools", "benchmarks", "docs", "examples")
    for path in (ROOT / folder).rglob("*.py")
} | {path.name: path for path in ROOT.glob("*.py")}
# Of the standard library and of other projects, and a placeholder.
OTHERS = re.compile(r"csv\.py|(?:isaaclab\w*|mjlab)/.*\.py|benchmarks/NAME\.py")


def files_named(name: str) -> list[Path]:
    """The files whose paths end with this name."""
    return [path for file, path in FILES.items() if f"/{file}".endswith("/" + name.removeprefix("../"))]


def test_files_that_pages_docstrings_and_comments_name_exist():
    sources = [path for package in ("rllib", "runtime") for path in (ROOT / package).rglob("*.py")]
    found = 0
    for path in [*PAGES, *sources]:
        text = path.read_text()
        if path.suffix == ".py":
            text = "\n".join(re.findall(r'"""[\s\S]*?"""|#.*', text))
        for name in re.findall(r"(?<![\w{*<>%-])[\w./-]*\w\.py\b", text):
            found += 1
            assert OTHERS.fullmatch(name) or files_named(name), f"{path.relative_to(ROOT)} names {name}"
    assert found > 300


def test_files_in_brackets_define_the_name_before_them():
    found = 0
    for page in PAGES:
        for name, file in re.findall(r"`([\w.]+)(?:\(\))?`\s\(`([\w/.-]+\.py)`", page.read_text()):
            found += 1
            definition = re.compile(rf"(?:class|def) {name.rpartition('.')[2]}\b")
            defined = any(definition.search(path.read_text()) for path in files_named(file))
            assert defined, f"{page.name}: {name} is not defined in {file}"
    assert found > 10
