"""Builds the documentation site: `python docs/site/build.py [OUTPUT]`, or `make docs`.

The pages are docs/ as it is, README.md as the first page, and the reference that reference.py makes of the
code. They are put together in a directory of their own, where names of pages ("memory.md") become links.
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

# What a reader wants -> pages, where they exist. A page of docs/ that is not named here appears under FURTHER.
NAVIGATION = {
    "Use": (
        *("environments", "check_env", "runs", "dashboard", "evaluation", "checkpoints", "callbacks", "schedules"),
        *("filters", "exploration", "reproducibility", "tune", "custom_loops"),
    ),
    "Several agents": ("multi_agent",),
    "Worlds outside": ("external", "external_faults"),
    "Spaces and networks": ("action_spaces", "masks", "networks", "memory", "losses"),
    "Algorithms": ("continuous_control", "policy_gradient_settings", "replay", "offline", "results"),
    "Coming from": ("from_rllib", "ray_programs", "from_sb3", "from_cleanrl"),
    "Faster and larger": ("speed", "profiling", "learners", "accelerated_environments", "gpu", "scale", "cluster"),
    "Deploy": ("deployment", "export"),
    "Understand": ("architecture", "decisions", "runtime", "faults", "security"),
    "Extend": ("add_algorithm", "add_network", "add_column", "contributing", "releasing"),
    "Reference": (
        *("reference/settings", "reference/model_settings", "reference/algorithms"),
        *("reference/rllib_names", "reference/commands", "reference/api", "reference/callbacks"),
        *("reference/tune", "reference/runtime"),
        "changelog",
    ),
}
FURTHER = "Further pages"
# Pages beside docs/
BESIDE = {
    "index": "README.md",
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "security": "SECURITY.md",
}

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_MENTION = re.compile(r"(?<!\]\()(?<![\w/\[`])(`?)(?:docs/)?((?:reference/)?[A-Za-z]\w*)\.md\1(?![\w\]])")


def assemble(target: Path) -> None:
    """Writes all pages, with pictures and navigation, into an empty directory."""
    pages = {path.stem: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
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
    """A page of the repository's root, read from docs/."""
    for page, file in BESIDE.items():
        text = text.replace(f"]({file})", f"]({page}.md)")
    return text.replace("](docs/", "](")


def _linked(text: str, pages: dict[str, str], name: str) -> str:
    """The text, in which names of other pages are links; code and existing links stay as they are."""
    up = "../" * name.count("/")
    names = {Path(file).stem: page for page, file in BESIDE.items()} | {page: page for page in pages}

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
    placed = {page for group in NAVIGATION.values() for page in group}
    further = [page for page in pages if page not in placed and "/" not in page and page != "index"]
    for title, group in {**NAVIGATION, FURTHER: further}.items():
        existing = [page for page in group if page in pages]
        if existing:
            yield from _toctree(existing, f":hidden:\n:caption: {title}\n")


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
