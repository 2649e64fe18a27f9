"""Words that the shell completes: algorithms, and the names of their settings."""

from collections.abc import Sequence

import click

from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes [ALGO ENV] [KEY=VALUE]...: first the algorithm, then the names of its settings."""
    words: Sequence[str] = ctx.params.get("words") or ()
    if not words:
        return algorithms_like(incomplete)
    return settings_like(words[0], incomplete) if len(words) > 1 else []


def complete_algorithm(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return algorithms_like(incomplete)


def algorithms_like(incomplete: str) -> list[str]:
    """Names of algorithms that begin with a word, in letters of either case."""
    return [name for name in algorithm_names() if name.lower().startswith(incomplete.lower())]


def settings_like(algorithm: str, incomplete: str) -> list[str]:
    """NAME= of the settings of an algorithm that begin with a word; none if no algorithm has that name."""
    try:
        rows = get_algorithm_config(algorithm).describe()
    except Exception:  # it is misspelt, or of a module of the user's; a prompt is no place for its error
        return []
    return [name for row in rows if (name := f"{row.name}=").startswith(incomplete)]
