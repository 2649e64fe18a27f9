"""Where an experiment lies: a new directory for a new one, the old one to go on with, and no other experiment's."""

import logging
import math
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rllib.tune import experiment as experiments
from rllib.tune.domains import Choice, Domain
from rllib.tune.experiment import ExperimentDirectory, as_text
from rllib.tune.experiment_spec import ExperimentSpec
from rllib.tune.trainables import Resolved

logger = logging.getLogger(__name__)


def open_directory(
    spec: ExperimentSpec, resolved: Resolved, space: dict, settings: Mapping[str, str | None]
) -> ExperimentDirectory:
    """The experiment's directory, opened: a new one, or the one to go on with.

    Args:
        spec: what `tune.run` was given.
        resolved: what it runs.
        space: the search space.
        settings: name -> pickled value, for `Tuner.restore`; written into a new directory.

    Raises:
        ValueError: if there is nothing to resume, it is of another experiment, or the name leads out of the results.
    """
    results = Path(spec.results_dir).expanduser().absolute() if spec.results_dir else (
        experiments.default_results_directory())  # fmt: skip
    if spec.name:
        experiments.inside(results, spec.name, "the experiment's directory")
    if spec.resume:
        found = experiments.latest_path(results, spec.name) if spec.name else _only_path(results, resolved.name)
        if found:
            return _reopened(found, resolved, space)
        if "AUTO" not in str(spec.resume):
            raise ValueError(
                f"there is no experiment {spec.name or resolved.name!r} in {results} to resume. Give its name and "
                'storage_path, or resume="AUTO" to start it where there is none'
            )
    return _created(results, spec, resolved, space, settings)


def _created(results: Path, spec: ExperimentSpec, resolved: Resolved, space: dict, settings) -> ExperimentDirectory:
    name = spec.name or f"{resolved.name}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    path = experiments.new_path(results, name)
    if spec.name and path.name != name:
        logger.warning("%s exists already, so this experiment goes to %s; resume=True would continue the old one",
                       results / name, path)  # fmt: skip
    header = {
        "id": secrets.token_hex(3)[:5],
        "name": path.name,
        "trainable": resolved.name,
        "space": as_text(space),
        "described": described(space),
        "settings": settings,
        "metric": spec.metric,
        "mode": spec.mode,
        "num_samples": spec.num_samples,
    }
    return ExperimentDirectory.create(path, header)


def _only_path(results: Path, trainable: str) -> Path | None:
    """The newest experiment with this trainable's default name."""
    paths = [p for p in results.glob(f"{experiments.glob_escaped(trainable)}_*") if any(p.glob("experiment_state-*"))]
    return max(paths, key=lambda path: path.stat().st_mtime) if paths else None


def _reopened(path: Path, resolved: Resolved, space: dict) -> ExperimentDirectory:
    directory = ExperimentDirectory.reopen(path)
    header = directory.header
    differs = (
        f"it ran {header['trainable']}, not {resolved.name}" if header["trainable"] != resolved.name
        else difference(header.get("described", {}), described(space)) if "described" in header
        else None
    )  # fmt: skip
    if differs:
        directory.close()
        raise ValueError(
            f"{path} is the directory of another experiment: {differs}. Give this one another name, or go on with the "
            "same configuration; only num_samples may grow"
        )
    return directory


# ---------------------------------------------------------------------- whether two search spaces are the same


def described(node) -> Any:
    """A search space as JSON that is equal for equal spaces: domains as they are written, functions by their names."""
    if isinstance(node, Mapping):
        return {str(key): described(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [described(value) for value in node]
    if isinstance(node, Choice):
        return {"choice": described(node.values)}
    if isinstance(node, float):
        return float(node) if math.isfinite(node) else repr(float(node))
    if node is None or isinstance(node, (bool, int, str)):
        return node
    if isinstance(node, Domain) or type(node).__module__ == "numpy":
        return repr(node)
    return getattr(node, "__qualname__", type(node).__qualname__)


def difference(before, now, path: str = "") -> str | None:
    """The first difference between two described search spaces, as words; None if they are the same."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return None if before == now else f"its {path} was {before!r:.100}, and is {now!r:.100} now"
    if before.keys() != now.keys():
        where = path or "configuration"
        return f"its {where} has {', '.join(sorted(before)) or 'nothing'}, not {', '.join(sorted(now)) or 'nothing'}"
    inside = (difference(before[key], now[key], f"{path}/{key}" if path else key) for key in before)
    return next(filter(None, inside), None)
