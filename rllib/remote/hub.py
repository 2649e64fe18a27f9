"""Repositories of the Hugging Face Hub, hf://ORG/NAME, through huggingface_hub, which also has the user's login."""

import importlib
import importlib.util
import io
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from rllib.errors import StorageError
from rllib.extras import install_hint
from rllib.notices import shown
from rllib.storage.checkpoint import MANIFEST
from rllib.storage.foreign_files import WRONG_FORM, json_object

# Names of files next to a checkpoint that the Hub knows: it plays the video on the page of the repository.
CARD, VIDEO, CURVE, RESULTS = "README.md", "replay.mp4", "curve.png", "results.json"
_URL = re.compile(r"hf://(?P<id>[\w.-]+/[\w.-]+)(@(?P<revision>[^/@\s]+))?(/(?P<folder>.+))?")
_NAMES_SHOWN = 5
# Of a checkpoint.
_FOLDERS = ("policies/", "user_code/")
_ID = re.compile(r"(?=.{3,96}$)\w[\w.-]*/\w[\w.-]*")


class HubRepository:
    """A repository of models, or a folder in it, as it was at one commit.

    Args:
        url: hf://ORG/NAME, hf://ORG/NAME@REVISION, or a folder below either; a revision is a branch, tag or commit.

    Attributes:
        url: the same.

    Raises:
        ImportError: if huggingface_hub is not installed.
        ValueError: for a URL of another form.
    """

    def __init__(self, url: str):
        if not (match := _URL.fullmatch(url)):
            raise ValueError(
                f"{shown(url)} must be hf://ORG/NAME, hf://ORG/NAME@REVISION, or a folder below one of them"
            )
        self.url, self._id, self._revision = url, match["id"], match["revision"]
        self._prefix = f"{match['folder']}/" if match["folder"] else ""
        self._library = library()

    def names(self) -> list[str]:
        """Names of all files; the later calls read the files of this commit."""
        with_answer = self._answered(self._library.HfApi().model_info, self._id, revision=self._revision)
        self._revision = with_answer.sha or self._revision
        names = [sibling.rfilename for sibling in with_answer.siblings or ()]
        return [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]

    def copy_to(self, name: str, file: BinaryIO) -> None:
        """Copies the content of a file into an open one."""
        path = self._answered(
            self._library.hf_hub_download, self._id, f"{self._prefix}{name}", revision=self._revision
        )  # a link of huggingface_hub's cache
        with open(path, "rb") as source:
            shutil.copyfileobj(source, file)

    def _answered(self, request, *arguments, **options):
        try:
            return request(*arguments, **options)
        except Exception as error:  # huggingface_hub's own, and those of the library below it
            raise StorageError(f"{self.url} cannot be read: {_first_line(error)}") from error


def library() -> Any:
    """The module huggingface_hub.

    Raises:
        ImportError: if it is not installed; says what to install.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ImportError(f"the Hugging Face Hub needs huggingface_hub: {install_hint('hub')}")
    return importlib.import_module("huggingface_hub")


def check_id(repository: str) -> None:
    """Raises a ValueError if this cannot be the id of a repository."""
    if not _ID.fullmatch(repository) or "--" in repository or ".." in repository:
        raise ValueError(f"{repository!r:.120} must be ORG/NAME: letters, digits, '-', '_' and '.'")


def check_target(repository: str) -> None:
    """Checks that a policy may be published, before anything that takes time.

    Raises:
        ImportError: if huggingface_hub is not installed.
        ValueError: if `repository` is no id, or holds another model.
        StorageError: if the Hub does not answer, for instance without a login.
    """
    check_id(repository)
    api = library().HfApi()
    with _naming_refusal(repository):
        api.whoami()
        exists = api.repo_exists(repository, repo_type="model")
        names = api.list_repo_files(repository, repo_type="model") if exists else []
    _refuse_other_model(repository, names)


def push(files: Mapping[str, Path | bytes], repository: str, *, message: str, private: bool = False) -> str:
    """Writes files to a repository of models in one commit; makes the repository if there is none.

    Files that an earlier push has written, and that are no longer there, are removed in the same commit; others stay.

    Args:
        files: name in the repository -> path or content.
        repository: ORG/NAME.
        message: message of the commit.
        private: whether a new repository is visible to its owners alone.

    Returns:
        the repository's address in a browser.

    Raises:
        ImportError, ValueError, StorageError: as `check_target`.
    """
    check_id(repository)
    hub = library()
    api = hub.HfApi()
    with _naming_refusal(repository):
        address = api.create_repo(repository, repo_type="model", private=private or None, exist_ok=True)
        there = api.list_repo_files(repository, repo_type="model")
    _refuse_other_model(repository, there)
    before = _names_of_earlier(repository) if MANIFEST in there else set()
    gone = [name for name in there if name in before and name not in files]
    operations = [hub.CommitOperationDelete(path_in_repo=name) for name in gone]
    for name, content in files.items():
        given = content if isinstance(content, bytes) else str(content)
        operations.append(hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=given))
    with _naming_refusal(repository):
        api.create_commit(repository, operations=operations, commit_message=message, repo_type="model")
    return str(address)


def _names_of_earlier(repository: str) -> set[str]:
    """Names of the files that an earlier push has written: those of its checkpoint, and what lies next to them."""
    there, manifest = HubRepository(f"hf://{repository}"), io.BytesIO()
    names = there.names()
    there.copy_to(MANIFEST, manifest)
    listed: set[str] = set()
    with suppress(*WRONG_FORM):  # a damaged one is replaced
        listed = {*json_object(manifest.getvalue())["files"]}
    return {CURVE, VIDEO, RESULTS, *listed, *(name for name in names if name.startswith(_FOLDERS))}


@contextmanager
def _naming_refusal(repository: str) -> Iterator[None]:
    """Turns an error of huggingface_hub into a StorageError."""
    try:
        yield
    except Exception as error:  # its own, and those of the library below it
        raise StorageError(
            f"{repository} cannot be written: {_first_line(error)}. `hf auth login`, or HF_TOKEN in the environment, "
            "logs in"
        ) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _refuse_other_model(repository: str, names: Sequence[str]) -> None:
    """Raises a ValueError if files of another library's model are there, which would be removed or replaced."""
    others = [name for name in names if _is_of_checkpoint(name)]
    if others and MANIFEST not in names:
        raise ValueError(
            f"{repository} holds another model: {', '.join(sorted(others)[:_NAMES_SHOWN])}. Choose another name."
        )


def _is_of_checkpoint(name: str) -> bool:
    return name.startswith(_FOLDERS) or (
        "/" not in name and name.endswith((".safetensors", ".json")) and not name.startswith(".")
    )
