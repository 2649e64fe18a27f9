"""The language of docstrings: the first line begins with a noun or a verb (\"Builds the workers.\")."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [path for package in ("runtime", "rllib") for path in sorted((ROOT / package).rglob("*.py"))]
# Words of a question, or of a sentence that needs the one before it.
REFUSED = re.compile(r"(What|How|Which|Whether and|Those|Of|Whose|Where|Who|Why)\b")


def _docstrings(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_docstring_begins_with_a_noun_or_a_verb(path):
    found = [f"line {line}: {text.splitlines()[0]}" for line, text in _docstrings(path) if REFUSED.match(text)]
    assert not found, found
