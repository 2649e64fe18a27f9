"""Where an experiment lies: a new directory for a new one, the old one to go on with, and no other experiment's."""

import logging
import secrets
from datetime import datetime
from pathlib import Path

from rllib.tune import experiment as experiments
from rllib.tune.experiment import ExperimentDirectory
from rllib.tune.experiment_spec import ExperimentSpec
from rllib.tune.trainables import Resolved

logger = logging.getLogger(__name__)


def open_directory(spec: ExperimentSpec, resolved: Resolved, space: dict) -> ExperimentDirectory:
    """The experiment's directory, opened: a new one, or the one to go on with.

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
    return _created(results, spec, resolved, space)


def _created(results: Path, spec: ExperimentSpec, resolved: Resolved, space: dict) -> ExperimentDirectory:
    name = spec.name or f"{resolved.name}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    path = experiments.new_path(results, name)
    if spec.name and path.name != name:
        logger.warning("%s exists already, so this experiment goes to %s; resume=True would continue the old one",
                       results / name, path)  # fmt: skip
    header = {
        "id": secrets.token_hex(3)[:5],
        "name": path.name,
        "trainable": resolved.name,
        "space": experiments.as_text(space),
        "config_keys": sorted(map(str, space)),
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
    keys = sorted(map(str, space))
    differs = (
        f"it ran {header['trainable']}, not {resolved.name}" if header["trainable"] != resolved.name
        else f"its configuration has {', '.join(header['config_keys'])}, not {', '.join(keys)}"
        if header["config_keys"] != keys
        else None
    )  # fmt: skip
    if differs:
        directory.close()
        raise ValueError(f"{path} is the directory of another experiment: {differs}. Give this one another name")
    return directory
