"""Checkpoints: directories of JSON and safetensors files, written whole or not at all.

    manifest.json                                  format, versions, size and SHA-256 of every other file
    algorithm.json, config.json, rng.json          values of any kind, as encoding.py writes them
    policies/ID/policy.json                        what to build, and the spaces
    policies/ID/weights.safetensors, learner.safetensors
                                                   named arrays; in format 1 the learner's was at the top
    user_code/0.pkl                                objects that cannot be imported by name: lambdas, classes of a script

In memory a checkpoint is a tree: file name -> dict of values (.json) or of arrays (.safetensors). Only the user's own
code is pickled; the manifest lists it, and it is loaded on request only, or if the manifest's signature shows that this
run has written the checkpoint (signatures.py).
"""

import contextlib
import hashlib
import json
import mmap
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from rllib import __version__
from rllib.did_you_mean import similar_path
from rllib.errors import CheckpointError, DamagedFileError
from rllib.notices import shown
from rllib.storage.encoding import UserCode, decode, encode, import_path
from rllib.storage.file_locks import sync_directory
from rllib.storage.foreign_files import WRONG_FORM, json_object, open_inside, read_inside
from rllib.storage.local_path import local_path
from rllib.storage.signatures import signature, wrote
from rllib.storage.tensor_file import TensorFile, tensors_of
from rllib.storage.unpickling import unpickled
from rllib.storage.whole import draft_beside, put_in_place, remove_abandoned

__all__ = [
    "FORMAT_VERSION",
    "CheckpointError",
    "CheckpointPath",
    "UserCode",
    "checkpoint_at",
    "import_command",
    "naming_damage",
    "newest_checkpoint",
    "read_checkpoint",
    "read_manifest",
    "write_checkpoint",
]

FORMAT = "rllib checkpoint"
FORMAT_VERSION = 2
MANIFEST = "manifest.json"
# Key of the manifest: of all its other entries, and by their digests of all files.
_SIGNATURE = "signature"
_RECORDED_LIBRARIES = ("numpy", "gymnasium", "torch", "cloudpickle")

# The name of an iteration's checkpoint in the directory of its run.
OF_ITERATION = re.compile(r"checkpoint_(\d{6,})")

Tree = Mapping[str, Mapping[str, Any]]
Content = bytes | TensorFile
# First bytes of a zip.
_ZIP = b"PK\x03\x04"
# Size in bytes from which on a file of arrays is mapped instead of read.
MAPPED = 2**26


class CheckpointPath(type(Path())):
    """The path of a checkpoint, in which programs of Ray 2.7 and later find `checkpoint.path` as well."""

    @property
    def checkpoint(self) -> "CheckpointPath":
        """Itself: `save` gives the path of the checkpoint alone."""
        return self

    @property
    def path(self) -> str:
        """The path as a string."""
        return str(self)


# ---------------------------------------------------------------------- writing


def write_checkpoint(path: str | Path, tree: Tree) -> Path:
    """Writes a checkpoint in one step: a reader sees the old one, or nothing, or the whole new one.

    Args:
        path: the directory; an existing checkpoint is replaced, also in one step.
        tree: file name, with / for directories, -> dict of values (x.json) or of arrays (x.safetensors).

    Returns:
        the path, absolute.

    Raises:
        ValueError: if `path` exists and is not a checkpoint, or a file name has another ending.
        TypeError: for a value that can be written neither as JSON nor by cloudpickle.
        OSError: naming the path and the cause, such as a full disk; an existing checkpoint is unchanged.
    """
    path = local_path(path)
    _refuse_to_replace(path)
    files = _serialised(tree)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent)
        with draft_beside(path) as temporary:
            entries = {name: _write_file(temporary / name, content) for name, content in files.items()}
            _write_file(temporary / MANIFEST, _manifest(entries))
            for directory in {temporary, *((temporary / name).parent for name in files)}:
                sync_directory(directory)
            put_in_place(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        message = f"the checkpoint could not be written ({error.strerror}); one that was there before is unchanged"
        raise OSError(error.errno, message, str(path)) from error
    return path


def _refuse_to_replace(path: Path) -> None:
    if not path.exists() or (path / MANIFEST).is_file():
        return
    if not path.is_dir():
        raise ValueError(f"a checkpoint is a directory, but {path} is a file. Choose another path.")
    if any(path.iterdir()):
        raise ValueError(
            f"{path} holds other files than a checkpoint, which would be lost. Choose a new or an empty directory, "
            f"such as {path / 'checkpoint'}."
        )


def _serialised(tree: Tree) -> dict[str, Content]:
    files: dict[str, Content] = {}
    pickled: dict[str, Any] = {}
    for name, content in tree.items():
        parts = Path(name).parts
        if Path(name).is_absolute() or ".." in parts or name == MANIFEST or parts[:1] == ("user_code",):
            raise ValueError(f"{name!r} cannot be the name of a file in a checkpoint")
        if name.endswith(".json"):
            code: dict[str, Any] = {}
            files[name] = _json(encode(dict(content), "", code))
            pickled.update({f"{name}#{place}": value for place, value in code.items()})
        elif name.endswith(".safetensors"):
            files[name] = _tensors(name, content)
        else:
            raise ValueError(f"files of a checkpoint end in .json or .safetensors, but {name!r} was given")
    return {**files, **_pickles(pickled)}


def _json(data) -> bytes:
    return (json.dumps(data, indent=1, allow_nan=False) + "\n").encode()


def _tensors(name: str, arrays: Mapping[str, Any]) -> TensorFile:
    try:
        return TensorFile(arrays)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def _pickles(objects: Mapping[str, Any]) -> dict[str, bytes]:
    """Files with the pickled objects, one each; user_code/index.json maps places in the tree to them."""
    if not objects:
        return {}
    files, index = {}, {}
    for number, (place, value) in enumerate(objects.items()):
        name = f"user_code/{number}.pkl"
        try:
            files[name] = cloudpickle.dumps(value)
        except Exception as error:
            raise TypeError(
                f"{place.replace('#', ': ')} cannot be written into a checkpoint: {value!r:.80} is no plain value and "
                f"cannot be pickled ({error}). Give a class or function that can be imported by its name."
            ) from error
        index[place] = {"file": name, "value": f"{value!r:.200}"}
    return {**files, "user_code/index.json": _json(index)}


def _manifest(entries: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Content of the manifest, from the entry of each file."""
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": {"rllib": __version__, "python": platform.python_version(), **_library_versions()},
        "user_code": sorted(name for name in entries if name.endswith(".pkl")),
        "files": dict(sorted(entries.items())),
    }
    return _json({**manifest, _SIGNATURE: signature(_json(manifest)).hex()})


def _is_signed_here(manifest: Mapping[str, Any]) -> bool:
    """Whether this run has written the checkpoint with this manifest."""
    try:
        signed = bytes.fromhex(manifest[_SIGNATURE])
        return wrote(_json({name: entry for name, entry in manifest.items() if name != _SIGNATURE}), signed)
    except (KeyError, TypeError, ValueError):
        return False


def written_by_this_run(path: str | os.PathLike) -> bool:
    """Whether the signature of a checkpoint shows that this program, or one of its trials, has written it."""
    return _is_signed_here(read_manifest(local_path(path)))


def _library_versions() -> dict[str, str]:
    """Versions of the libraries that are loaded already: torch is not loaded for its version alone."""
    return {name: str(sys.modules[name].__version__) for name in _RECORDED_LIBRARIES if name in sys.modules}


def _write_file(path: Path, content: Content) -> dict[str, Any]:
    """Writes a file to the disk; returns its entry in the manifest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for part in content.parts() if isinstance(content, TensorFile) else (content,):
            digest.update(part)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
        return {"size_bytes": file.tell(), "sha256": digest.hexdigest()}


# ---------------------------------------------------------------------- reading


def read_checkpoint(
    path: str | Path, *, load_user_code: bool = False, only: str | tuple[str, ...] = ""
) -> dict[str, dict[str, Any]]:
    """Reads the tree that `write_checkpoint` wrote, and checks every file.

    Args:
        path: the checkpoint's directory.
        load_user_code: import the classes and functions it names, and unpickle those it holds, which runs code:
            only for checkpoints whose origin you trust. If False, they are read as UserCode, unless this run has
            written the checkpoint itself.
        only: read only files whose names begin with this, such as "policies/default_policy/", or with one of these.

    Raises:
        CheckpointError: (a ValueError) if it is missing, truncated, modified, no checkpoint, or of a newer format.
    """
    path = local_path(path)
    manifest = read_manifest(path)
    wanted = (*([only] if isinstance(only, str) else only), "user_code/")
    files = {
        name: _checked_content(path, name, entry)
        for name, entry in manifest["files"].items()
        if name.startswith(wanted)
    }
    tree, loads = {}, load_user_code or _is_signed_here(manifest)
    for name, content in files.items():
        if name.startswith("user_code/"):
            continue
        try:
            if name.endswith(".safetensors"):
                tree[name] = tensors_of(content)
            else:
                loader = _UserCodeLoader(name, files) if loads else None
                tree[name] = decode(json_object(content), loader)
                if not isinstance(tree[name], dict):
                    raise DamagedFileError(f"it holds {tree[name]!r:.40} instead of values by name")
        except CheckpointError:
            raise
        except (*WRONG_FORM, MemoryError) as error:
            raise CheckpointError(_damaged(path, name, _described(error))) from error
    return tree


@contextlib.contextmanager
def naming_damage(path: str | os.PathLike) -> Iterator[None]:
    """Context manager: turns errors from content of a wrong form into a CheckpointError with the path."""
    try:
        yield
    except (*WRONG_FORM, MemoryError) as error:
        if isinstance(error, ValueError) and not isinstance(error, DamagedFileError):  # it has a message already
            raise
        raise CheckpointError(_damaged(Path(path), "its content", _described(error))) from error


class _UserCodeLoader:
    """Loads the classes, functions and pickled objects that one JSON file of a checkpoint refers to."""

    def __init__(self, name: str, files: Mapping[str, Any]):
        self._name = name
        self._files = files
        self._index = json.loads(files.get("user_code/index.json", b"{}"))

    def __call__(self, kind: str, reference: str):
        if kind == "import":
            try:
                return import_path(reference)
            except ValueError as error:
                raise CheckpointError(f"the checkpoint's {self._name} names code: {error}") from error
        entry = self._index[f"{self._name}#{reference}"]
        try:
            return unpickled(self._files[entry["file"]])
        except Exception as error:
            raise CheckpointError(
                f"{reference} of the checkpoint's {self._name} ({entry['value']}) cannot be loaded here: {error!r}. It "
                "was pickled since it has no name to import; load it where the modules that it uses are installed."
            ) from error


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Reads and checks the manifest of a checkpoint.

    Raises:
        CheckpointError: if there is none, or it is of a newer format.
    """
    path = local_path(path)
    if not path.is_dir():
        raise CheckpointError(_missing(path))
    try:
        manifest = json_object(read_inside(path, MANIFEST))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is no checkpoint of this library: it has no {MANIFEST}. {_checkpoints_within(path)}"
        ) from None
    except DamagedFileError as error:
        raise CheckpointError(_damaged(path, MANIFEST, str(error))) from error
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no checkpoint of this library: its {MANIFEST} belongs to something else.")
    if not isinstance(manifest.get("files"), dict):
        raise CheckpointError(_damaged(path, MANIFEST, "it lists no files"))
    version = manifest.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise CheckpointError(
            f"the checkpoint {path} has format_version {version}, but this rllib reads up to {FORMAT_VERSION}. It was "
            f"written with {manifest.get('versions')}; install that version of rllib, or a newer one."
        )
    return manifest


def checkpoints_in(directory: str | Path) -> dict[int, Path]:
    """Iteration -> checkpoint in the directory of a run or a trial."""
    paths = Path(directory).iterdir()
    return {int(match[1]): path for path in paths if (match := OF_ITERATION.fullmatch(path.name))}


def newest_checkpoint(directory: str | Path) -> Path | None:
    """The checkpoint of the latest iteration in the directory of a run or a trial; None if there is none.

    Raises:
        CheckpointError: if it is a symbolic link, which may lead out of the directory.
    """
    found = checkpoints_in(directory)
    if not found:
        return None
    newest = found[max(found)]
    if newest.is_symlink():
        raise CheckpointError(
            f"{newest} is a symbolic link, which is not followed. Name its target, or copy it: cp -rL"
        )
    return newest


def checkpoint_at(path: str | os.PathLike) -> Path:
    """The checkpoint at that path, or the newest one of the run there.

    Raises:
        CheckpointError: if the path is neither.
    """
    path = local_path(path)
    if path.is_dir() and not (path / MANIFEST).exists() and (newest := newest_checkpoint(path)):
        return newest
    read_manifest(path)
    return path


def _checked_content(path: Path, name: str, entry: Mapping) -> bytes | mmap.mmap:
    """Reads and checks the content of a file. A large file of arrays is mapped: it takes memory as arrays are used.

    The mapping is private: changes of the arrays do not reach the file.
    """
    try:
        size_bytes, digest = entry["size_bytes"], entry["sha256"]
    except (KeyError, TypeError):
        raise CheckpointError(_damaged(path, MANIFEST, f"its entry of {name!r} is {entry!r:.60}")) from None
    try:
        with open_inside(path, name) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size_bytes:
                raise DamagedFileError(f"it has {found} bytes instead of {size_bytes!r:.20}, as if cut off")
            if name.endswith(".safetensors") and found >= MAPPED:
                content: bytes | mmap.mmap = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            else:
                content = file.read(found)
    except DamagedFileError as error:
        raise CheckpointError(_damaged(path, name, str(error))) from None
    except OSError as error:
        raise CheckpointError(_damaged(path, name, f"it cannot be read ({error.strerror})")) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise CheckpointError(_damaged(path, name, "its content has changed since it was written"))
    return content


def _described(error: BaseException) -> str:
    """Description of an error in the content of a file."""
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"its content has another form than it should ({type(error).__name__}: {error})"


def _damaged(path: Path, name: str, what: str) -> str:
    shown = name if name.isprintable() else repr(name)
    return f"the checkpoint {path} is damaged: {shown}: {what}. Use another checkpoint, or copy this one again."


def import_command(path: Path) -> str | None:
    """The command that takes over what another library has written there; None for anything else."""
    if path.is_file():
        with path.open("rb") as file:
            is_zip = file.read(len(_ZIP)) == _ZIP
        return f"rllib import-sb3 {path} --env ENV -o DIRECTORY" if is_zip else None
    if (path / "rllib_checkpoint.json").is_file():
        return f"rllib import-ray {path} -o DIRECTORY"
    return None


def _missing(path: Path) -> str:
    if command := import_command(path):
        return f"a checkpoint is a directory, but {path} is a zip. If it is of Stable-Baselines3, use {command}"
    if path.is_file():
        return f"a checkpoint is a directory, but {path} is a file. Give the directory it lies in."
    set_aside = sorted(path.parent.glob(f".{path.name}.old-*")) if path.parent.is_dir() else []
    if set_aside:
        return f"there is no checkpoint {path}, but one that was being replaced: rename {set_aside[-1]} to {path}."
    hint = similar_path(path) or " Give the directory of a checkpoint, such as algo.save() returns."
    return f"there is no checkpoint {shown(str(path))}.{hint}"


def _checkpoints_within(path: Path) -> str:
    if command := import_command(path):
        return f"It is one of Ray's; use {command}"
    if within := sorted(found.parent.name for found in path.glob(f"*/{MANIFEST}")):
        return f"Give one of those within: {', '.join(within[-3:])}."
    manifests = sorted(path.glob(f"*/*/{MANIFEST}"), key=lambda found: found.stat().st_mtime)
    if runs := list(dict.fromkeys(found.parents[1].name for found in reversed(manifests))):
        others = f" and {len(runs) - 3} more" if len(runs) > 3 else ""
        return f"It holds runs, the newest first: {', '.join(runs[:3])}{others}. Give one of them."
    if (path / "params.json").exists():
        return "It is the directory of a run that has saved no checkpoint yet."
    return "Give the directory algo.save() returned."
