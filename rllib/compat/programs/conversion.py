"""Rewriting a program's imports of Ray into imports of this library.

    from ray.rllib.algorithms.ppo import PPOConfig      from rllib.algorithms.ppo import PPOConfig
    from ray import tune                                from rllib import tune
    import ray                                          import runtime
    ray.init(); ray.tune.run(...)                       runtime.init(); tune.run(...)

Names that are not here keep their import, and are listed with their reasons.
"""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rllib.compat.programs.lookup import Ours, counterpart, find, modules, present_path, reason_for, row


class Missing(NamedTuple):
    """A name of Ray in a program that is not here.

    Attributes:
        line: counted from 1.
        name: with its module.
        reason: why it is not here, or what to use instead; None if nothing is known.
    """

    line: int
    name: str
    reason: str | None


class Converted(NamedTuple):
    """A program with our imports.

    Attributes:
        source: its text.
        missing: names that are not here, by line.
    """

    source: str
    missing: list[Missing]


def convert(source: str) -> Converted:
    """Rewrites the imports of Ray in a program, and the dotted names that begin with what they bind.

    Raises:
        SyntaxError: it is no Python.
    """
    tree = ast.parse(source)
    program = _Program(source, _first_statement(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            program.rewrite_import(node)
        elif isinstance(node, ast.ImportFrom) and not node.level and _is_rays(node.module):
            program.rewrite_from(node)
    for node in sorted(_outermost_names(tree), key=lambda node: (node.lineno, node.col_offset)):
        program.rewrite_name(node)
    return Converted(program.text(), sorted(set(program.missing)))


def difference(source: str, converted: str, name: str) -> str:
    """The unified diff of a program before and after; "" where nothing changes."""
    lines = (text.splitlines(keepends=True) for text in (source, converted))
    return "".join(difflib.unified_diff(*lines, name, name))


def _first_statement(tree: ast.Module) -> int:
    """The line of the first statement behind the docstring and the imports from __future__."""
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            return node.lineno
    return 1


def _is_rays(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "ray"


def _outermost_names(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Dotted names, a.b.c once and not a.b within it."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Attribute) and _dotted(node):
            yield node
        else:
            pending += ast.iter_child_nodes(node)


def _dotted(node: ast.AST) -> list[str]:
    """The parts of a dotted name; none of another expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


class _Place(NamedTuple):
    """Part of a dotted name that is replaced: number of its first words, and the object that they represent."""

    num_parts: int
    ours: Ours


@dataclass
class _Program:
    """The edits of one program."""

    source: str
    first_statement: int  # line on which imports may stand
    missing: list[Missing] = field(default_factory=list)
    # Name in the program -> the module of Ray that it represents.
    _bound: dict[str, str] = field(default_factory=dict)
    # (first byte, end, text) in the source
    _edits: list[tuple[int, int, str]] = field(default_factory=list)
    # Import lines for names that stood behind dots, to go next to the first import.
    _further: dict[str, None] = field(default_factory=dict)
    _first_import: int | None = None

    def __post_init__(self):
        self._data = self.source.encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    # ------------------------------------------------------------------ imports

    def rewrite_import(self, node: ast.Import) -> None:
        kept = [alias for alias in node.names if not _is_rays(alias.name)]
        if len(kept) == len(node.names):
            return
        statements = [f"import {_with_alias(alias.name, alias.asname)}" for alias in kept]
        for alias in node.names:
            if _is_rays(alias.name):
                statements += self._import_of(alias, node.lineno)
        self._replace_statement(node, statements)

    def _import_of(self, alias: ast.alias, line: int) -> list[str]:
        """Statements for one module of Ray in an import statement."""
        if alias.asname is None:  # binds `ray`, whose dotted names follow
            self._bound["ray"] = "ray"
            if alias.name == "ray":
                return ["import runtime"]
            return []
        ours = counterpart(alias.name)
        if ours is None:
            self._miss(line, alias.name)
            return [f"import {_with_alias(alias.name, alias.asname)}"]
        self._bound[alias.asname] = alias.name
        return [_import_module(ours, alias.asname)]

    def rewrite_from(self, node: ast.ImportFrom) -> None:
        groups: dict[str, list[str]] = {}
        modules_bound: list[str] = []
        for alias in node.names:
            path = f"{node.module}.{alias.name}"
            ours = find(node.module, alias.name)
            if alias.name == "*":
                for theirs, place in row(present_path(node.module)).items():
                    groups.setdefault(place.module, []).append(_with_alias(place.name, theirs))
            elif ours is not None:
                groups.setdefault(ours.module, []).append(_with_alias(ours.name, alias.asname or alias.name))
            elif present_path(path) in modules() and (module := counterpart(path)) is not None:
                self._bound[alias.asname or alias.name] = path
                modules_bound.append(_import_module(module, alias.asname or alias.name))
            else:
                self._miss(node.lineno, path)
                groups.setdefault(node.module, []).append(_with_alias(alias.name, alias.asname))
        found = [f"from {module} import {', '.join(names)}" for module, names in groups.items()]
        self._replace_statement(node, modules_bound + found)

    def _miss(self, line: int, path: str) -> None:
        self.missing.append(Missing(line, path, reason_for(present_path(path))))

    def _replace_statement(self, node: ast.stmt, statements: list[str]) -> None:
        if self._first_import is None and node.col_offset == 0:
            self._first_import = self._starts[node.lineno - 1]
        start, end = self._span(node)
        if not statements and node.col_offset == 0 and self._data[end : end + 1] == b"\n":
            self._edits.append((start, end + 1, ""))
            return
        indent = "\n" + " " * node.col_offset
        self._edits.append((start, end, indent.join(dict.fromkeys(statements)) or "pass"))

    # ------------------------------------------------------------------ dotted names

    def rewrite_name(self, node: ast.Attribute) -> None:
        parts = _dotted(node)
        module = self._bound.get(parts[0])
        if module is None:
            return
        place = self._resolved(module, parts, node.lineno)
        if place is None:
            return
        # The node of the part that is replaced lies within `node`, as many attributes further in as parts follow it.
        inner: ast.expr = node
        for _ in range(len(parts) - place.num_parts):
            inner = inner.value
        start, end = self._span(inner)
        self._edits.append((start, end, self._expression(place.ours, parts[0], parts[place.num_parts - 1])))

    def _resolved(self, module: str, parts: list[str], line: int) -> _Place | None:
        """The object that the first parts of a dotted name represent."""
        for count, part in enumerate(parts[1:], start=2):
            ours = find(module, part)
            if ours is not None:
                return _Place(count, ours)
            path = f"{module}.{part}"
            if present_path(path) not in modules():
                self._miss(line, path)
                return None
            module = path
        return None

    def _expression(self, ours: Ours, bound: str, theirs: str) -> str:
        """Our expression for an object, with an import for it where the program has none.

        Args:
            bound: name in the program that the dotted name begins with.
            theirs: name of the object in Ray.
        """
        if bound != "ray" and counterpart(self._bound[bound]) == ours.module:
            return f"{bound}.{ours.name}"
        for binding, its_module in (("tune", "rllib.tune"), ("runtime", "runtime")):
            if ours.module == its_module:
                self._further.setdefault(_import_module(its_module, binding))
                return f"{binding}.{ours.name}"
        # A helper for programs of Ray alone keeps the name that it has there.
        name = theirs if ours.module.startswith("rllib.compat.programs.") else ours.name
        self._further.setdefault(f"from {ours.module} import {_with_alias(ours.name, name)}")
        return name

    # ------------------------------------------------------------------ text

    def _span(self, node) -> tuple[int, int]:
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self) -> str:
        """The source with all edits."""
        data = self._data
        edits = list(self._edits)
        written = {line for _, _, text in edits for line in text.splitlines()}
        further = [line for line in self._further if line not in written]
        if further:
            at = self._starts[self.first_statement - 1] if self._first_import is None else self._first_import
            edits.append((at, at, "".join(f"{line}\n" for line in further)))
        for start, end, text in sorted(edits, reverse=True):
            data = data[:start] + text.encode() + data[end:]
        return data.decode()


def _with_alias(name: str, alias: str | None) -> str:
    return name if alias in (None, name) else f"{name} as {alias}"


def _import_module(module: str, alias: str) -> str:
    package, _, name = module.rpartition(".")
    return f"from {package} import {_with_alias(name, alias)}" if package else f"import {_with_alias(module, alias)}"
