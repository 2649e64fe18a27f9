"""The folders in which runs get their own: one on this machine and, on request, one in remote storage."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource

from rllib.cli.checkpoints import PLACE
from rllib.cli.failures import Mistake, storage_input
from rllib.remote.download import refuse_hub
from rllib.remote.filesystem import RemoteFolder
from rllib.remote.url import is_url


class Folders(NamedTuple):
    """Places of the directories of runs.

    Attributes:
        results: on this machine, where runs write.
        storage: URL below which each run has a copy; None: there are no copies.
    """

    results: Path
    storage: str | None = None


def storage_option(of_what: str) -> Callable:
    """Option --storage-path of a command; --upload-dir is Ray's earlier name."""
    return click.option(
        "--storage-path", "--upload-dir", type=PLACE, metavar="URL", help=f"Keep a copy of {of_what} below this URL of "
        "remote storage, like s3://BUCKET/PATH; a path is the same as --results-dir.")  # fmt: skip


def folders_of(results_dir: Path, storage_path: Path | str | None) -> Folders:
    """The folders that --results-dir and --storage-path name.

    Raises:
        Mistake: if both are paths, or the URL cannot be opened.
    """
    if storage_path is None:
        return Folders(results_dir)
    if is_url(storage_path):
        with storage_input():
            refuse_hub(storage_path)
            RemoteFolder(storage_path)  # names what is not installed
        return Folders(results_dir, storage_path)
    if click.get_current_context().get_parameter_source("results_dir") is ParameterSource.COMMANDLINE:
        raise Mistake("--storage-path and --results-dir both name a directory of this machine; leave out one of them")
    return Folders(storage_path)
