"""HTML elements. Text is escaped unless it is an element itself, so nothing in a file can become markup."""

import html
from collections.abc import Iterable


class Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


Content = str | int | float | None | Iterable["Content"]
_EMPTY = frozenset(("path", "line", "img", "meta", "col", "br", "source"))


def h(tag: str, attributes: dict[str, str | float | None] | None = None, *children: Content) -> Html:
    """An element: h("a", {"class": "x"}, "text", h("b", None, "more")). An attribute of None is left out."""
    given = "".join(
        f' {name}="{html.escape(str(value))}"' for name, value in (attributes or {}).items() if value is not None
    )
    if tag in _EMPTY and not children:
        return Html(f"<{tag}{given}/>")
    return Html(f"<{tag}{given}>{joined(children)}</{tag}>")


def joined(children: Content) -> Html:
    """Elements and texts after one another; None is left out."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    if isinstance(children, (str, int, float)):
        return Html(html.escape(str(children)))
    return Html("".join(map(joined, children)))


def table(rows: Iterable[Iterable[Content]], numbers: int | None = None, wide: frozenset[int] = frozenset()) -> Html:
    """A table, whose first row is its heading.

    Args:
        rows: its cells.
        numbers: index of the first column of numbers, which are at the right; None: there is none.
        wide: indices of columns whose text is wrapped.
    """

    def row(tag: str, cells: Iterable[Content]) -> Html:
        styles = (
            "num" if numbers is not None and index >= numbers else "wrap" if index in wide else None
            for index in range(10**6)
        )
        return h("tr", None, [h(tag, {"class": style}, cell) for cell, style in zip(cells, styles)])

    head, *body = rows
    return h(
        "div", {"class": "panel scroll"},
        h("table", None, h("thead", None, row("th", head)), h("tbody", None, [row("td", each) for each in body])),
    )  # fmt: skip


def facts(pairs: Iterable[tuple[str, Content]]) -> Html:
    """Names and values side by side; names without a value are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "")]
    return h("dl", {"class": "facts"}, [h("div", None, h("dt", None, name), h("dd", None, value))
                                        for name, value in shown])  # fmt: skip
