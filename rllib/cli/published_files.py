"""The files of a checkpoint that `rllib push` publishes: all without recorded steps."""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from rllib.algorithms.base.from_checkpoint import FILES_OF_STEPS
from rllib.cli.failures import Mistake
from rllib.storage.checkpoint import MANIFEST, read_manifest
from rllib.storage.foreign_files import inside, json_object, read_inside

_SETTINGS, _CODE, _INDEX = "config.json", "user_code/", "user_code/index.json"
# Places of recorded steps among the settings.
_OF_DATA = (("input_",), ("demonstrations",), ("evaluation_config", "input_"), ("evaluation_config", "input"))
# The settings have this path there instead: learning from a copy ends with an error that names it.
LEFT_OUT = "recorded steps, which rllib push has left out"


def published_files(checkpoint: Path, with_code: bool) -> dict[str, Path | bytes]:
    """Name -> path or content of the files of a checkpoint that are published.

    Steps that are its own, and those that were given as arrays, tables or a Dataset, are left out: they are as private
    as files of steps, of which it has the paths alone.

    Raises:
        Mistake: if it holds pickled code that is not to be published.
    """
    manifest = read_manifest(checkpoint)
    kept = {name: entry for name, entry in manifest["files"].items() if Path(name).name not in FILES_OF_STEPS}
    for name in manifest["files"].keys() - kept:
        click.echo(f"left out: {name}, steps that the run has recorded", err=True)
    changed = _without_data(checkpoint, manifest["files"])
    kept = {name: entry for name, entry in kept.items() if changed.get(name, b"") is not None}
    changed = {name: content for name, content in changed.items() if content is not None}
    code = sorted(name for name in kept if name.startswith(_CODE) and name.endswith(".pkl"))
    if code and not with_code:
        raise Mistake(
            f"the checkpoint holds pickled code ({len(code)} objects without a name to import), which others would "
            "have to run blindly. Publish it with --with-code, or train with callbacks and functions of a module."
        )
    kept |= {
        name: {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in changed.items()
    }
    content = json.dumps({**manifest, "user_code": code, "files": kept}, indent=1) + "\n"
    return {MANIFEST: content.encode(), **{name: inside(checkpoint, name, "a file") for name in kept}, **changed}


def _without_data(checkpoint: Path, files: Mapping[str, Any]) -> dict[str, bytes | None]:
    """Name -> content of the files that change as recorded steps are left out of the settings; None: they go."""
    if _SETTINGS not in files:
        return {}
    settings = json_object(read_inside(checkpoint, _SETTINGS))
    left, pickles = copy.deepcopy(settings), set()
    for place in _OF_DATA:
        *outer, name = place
        within = left.get(outer[0]) if outer else left
        if not isinstance(within, dict) or not (marks := list(_stored(within.get(name)))):
            continue
        pickles |= {f"{_SETTINGS}#{reference}" for kind, reference in marks if kind == "$pickle"}
        within[name] = LEFT_OUT
        click.echo(f"left out: the recorded steps of {'.'.join(place)}", err=True)
    if left == settings:
        return {}
    changed: dict[str, bytes | None] = {_SETTINGS: _json(left)}
    if pickles:
        index = json_object(read_inside(checkpoint, _INDEX))
        changed |= dict.fromkeys(index[reference]["file"] for reference in pickles)
        rest = {reference: entry for reference, entry in index.items() if reference not in pickles}
        changed[_INDEX] = _json(rest) if rest else None
    return changed


def _stored(value: Any) -> Iterator[tuple[str, Any]]:
    """(kind, content) of each array and each pickled object in the JSON of a setting."""
    if isinstance(value, Mapping):
        yield from ((kind, value[kind]) for kind in ("$array", "$pickle") if kind in value)
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _stored(each)


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=1) + "\n").encode()
