"""Docstrings of this repository (Google's form) and signatures as Markdown."""

import inspect
import re
import textwrap
from collections.abc import Iterator

_TITLES = ("Args", "Attributes", "Raises", "Returns", "Yields")
_SECTION = re.compile(rf"^({'|'.join(_TITLES)}):\n((?:(?: .*)?(?:\n|$))+)", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*)(?: \(([^)]*)\))?: (.*)$", re.DOTALL)
_LONGEST_DEFAULT = 60
_WIDTH = 100


def as_markdown(docstring: str | None) -> str:
    """A docstring: its text as it is, its arguments and errors as lists."""
    text = inspect.cleandoc(docstring or "")
    if not text.endswith("\n"):
        text += "\n"
    return prose(_SECTION.sub(lambda found: _section(*found.groups()), text)).strip()


def prose(text: str) -> str:
    """Text in which `<` begins no HTML; code between backticks, and indented code, stays as it is."""
    lines = []
    for line in text.splitlines():
        parts = line.split("`")
        parts[::2] = [re.sub(r"<(?=[a-z/!])", r"\<", part, flags=re.IGNORECASE) for part in parts[::2]]
        lines.append(line if line.startswith("    ") else "`".join(parts))
    return "\n".join(lines)


def _section(title: str, body: str) -> str:
    body = textwrap.dedent(body).strip("\n")
    if title in ("Returns", "Yields"):
        return f"\n**{title}** {body}\n\n"
    return f"\n**{title}**\n\n" + "\n".join(_entries(body)) + "\n\n"


def _entries(body: str) -> Iterator[str]:
    """List items; indented lines continue the item above."""
    items: list[str] = []
    for line in body.splitlines():
        if line.startswith(" ") and items:
            items[-1] += " " + line.strip()
        elif line.strip():
            items.append(line.strip())
    for item in items:
        found = _ENTRY.match(item)
        if found is None:
            yield f"- {item}"
        else:
            name, kind, meaning = found.groups()
            yield f"- `{name}`{f' ({kind})' if kind else ''}: {meaning}"


def signature(function, name: str) -> str:
    """`name(parameters)` in lines of 100 characters, without annotations, whose types the text says, and with defaults
    that are short.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of C
        return f"{name}(...)"
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    plain = [_plain(parameter) for parameter in parameters]
    whole = f"{name}{inspect.Signature(plain)}"
    return textwrap.fill(whole, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if default is not parameter.empty and (len(repr(default)) > _LONGEST_DEFAULT or " at 0x" in repr(default)):
        default = ...
    return parameter.replace(annotation=parameter.empty, default=default)
