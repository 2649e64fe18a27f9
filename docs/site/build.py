"""Builds the documentation site: `python docs/site/build.py [OUTPUT]`, or `make docs`.

The pages are docs/ as it is, with docs/index.md as the first one and as the table of all, README and its like, and the
reference that reference.py makes of the code. They are put together in a directory of their own, where names of pages
("replay.md") become links.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import reference  # noqa: E402

# Pages of the reference and next to docs/, after those of docs/index.md.
REFERENCE = {
    "Reference": (
        *("reference/settings", "reference/model_settings", "reference/algorithms"),
        *("reference/rllib_names", "reference/commands", "reference/api", "reference/callbacks"),
        *("reference/tune", "reference/runtime"),
    ),
    "Project": ("readme", "changelog", "contributing", "security"),
}
# Pages next to docs/
BESIDE = {
    "readme": "README.md",
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "security": "SECURITY.md",
}

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_MENTION = re.compile(r"(?<!\]\()(?<![\w/\[`])(`?)(?:docs/)?((?:\w+/)*[A-Za-z]\w*)\.md\1(?![\w\]])")


def assemble(target: Path) -> None:
    """Writes all pages, with pictures and navigation, into an empty directory."""
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).with_suffix("").as_posix(): path.read_text() for path in sorted(docs.rglob("*.md"))}
    pages["index"] = _below_docs(pages["index"])
    pages |= {name: _below_docs((ROOT / file).read_text()) for name, file in BESIDE.items()}
    pages |= reference.pages()
    pages["reference/algorithms"] = _contents_of("reference/algorithms/", pages)
    pages["index"] += "\n" + "\n".join(_navigation(pages))
    for name, text in pages.items():
        path = target / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_linked(text, pages, name))
    shutil.copytree(ROOT / "docs" / "pictures", target / "pictures")


def _below_docs(text: str) -> str:
    """A page of the repository's root, or the first page, read from docs/."""
    for page, file in BESIDE.items():
        text = text.replace(f"]({file})", f"]({page}.md)").replace(f"](../{file})", f"]({page}.md)")
    return text.replace("](docs/", "](")


def _linked(text: str, pages: dict[str, str], name: str) -> str:
    """The text, in which names of other pages are links; code and existing links stay as they are."""
    up = "../" * name.count("/")
    names = {Path(file).stem: page for page, file in BESIDE.items()} | {page: page for page in pages}
    names |= {page.split("/")[-1]: page for page in pages if not page.startswith("reference/")}

    def link(found: re.Match) -> str:
        page = names.get(found[2])
        return found[0] if page in (None, name) else f"[{page.split('/')[-1].replace('_', ' ')}]({up}{page}.md)"

    parts = _FENCED.split(text)
    parts[::2] = [_MENTION.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def _contents_of(directory: str, pages: dict[str, str]) -> str:
    below = [page.removeprefix("reference/") for page in pages if page.startswith(directory)]
    return "\n".join(["# Algorithms", "", "Paper, settings and departures of each.", "", *_toctree(below)])


def _navigation(pages: dict[str, str]) -> Iterator[str]:
    for title, group in {**navigation(pages["index"]), **REFERENCE}.items():
        yield from _toctree(group, f":hidden:\n:caption: {title}\n")


def navigation(index: str) -> dict[str, list[str]]:
    """Pages by group, as the tables below the headings of docs/index.md have them."""
    groups = re.split(r"^## (.*)$", index, flags=re.MULTILINE)[1:]
    rows = re.compile(r"^\| \[[^]]*\]\(([\w/]+)\.md\)", re.MULTILINE)
    return {title: rows.findall(table) for title, table in zip(groups[::2], groups[1::2])}


def _toctree(pages: list[str], options: str = "") -> Iterator[str]:
    yield f"```{{toctree}}\n{options}:maxdepth: 1\n"
    yield from pages
    yield "```\n"


def build(output: Path) -> int:
    """Builds the site, warnings being errors; returns the exit status."""
    from sphinx.cmd.build import build_main  # the reference needs no Sphinx

    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "pages"
        source.mkdir()
        assemble(source)
        options = ["-q", "-W", "--keep-going", "-E", "-c", str(Path(__file__).parent), "-d", f"{directory}/doctrees"]
        return build_main([*options, str(source), str(output)])


if __name__ == "__main__":
    site = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site")
    status = build(site)
    if not status:
        print(f"open {site / 'index.html'}")
    sys.exit(status)
