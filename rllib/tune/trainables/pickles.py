"""Pickled parts of checkpoints: signed by the run that writes them, and read without its signature on request only."""

from pathlib import Path
from typing import Any

import cloudpickle

from rllib.storage.foreign_files import printable, read_inside
from rllib.storage.signatures import signature, wrote
from rllib.storage.unpickling import unpickled

_SIGNATURE = ".mac"


def write_pickle(directory: Path, name: str, value) -> None:
    """Writes DIRECTORY/NAME, and its signature next to it."""
    content = cloudpickle.dumps(value)
    (directory / name).write_bytes(content)
    (directory / (name + _SIGNATURE)).write_bytes(signature(content))


def read_pickle(directory: str | Path, name: str, load_user_code: bool = False) -> Any:
    """Unpickles DIRECTORY/NAME.

    Args:
        directory, name: place of the file.
        load_user_code: whether a file that this run has not written is read too.

    Raises:
        ValueError: if it was not written by this run, and is not to be loaded.
    """
    content = read_inside(directory, name)
    if not (load_user_code or _is_ours(directory, name, content)):
        raise not_loaded(Path(directory) / name)
    return unpickled(content)


def is_foreign(directory: str | Path, name: str) -> bool:
    """Whether DIRECTORY/NAME exists, and was not written by this run."""
    try:
        return not _is_ours(directory, name, read_inside(directory, name))
    except FileNotFoundError:
        return False


def is_signed(directory: str | Path, name: str) -> bool:
    """Whether `write_pickle` of any run has written DIRECTORY/NAME."""
    return (Path(directory) / (name + _SIGNATURE)).is_file()


def not_loaded(path: Path) -> ValueError:
    """The error for a pickle of another run."""
    return ValueError(
        f"{printable(str(path))} is a pickle that this run has not written, and reading it runs code. If you trust "
        "where it comes from, use load_user_code=True (in tune.run, Tuner.restore, Trainable.restore or "
        "Checkpoint.to_dict), or rllib tune --load-user-code."
    )


def _is_ours(directory: str | Path, name: str, content: bytes) -> bool:
    try:
        signed = read_inside(directory, name + _SIGNATURE, len(signature(b"")))
    except FileNotFoundError:
        return False
    return wrote(content, signed)
