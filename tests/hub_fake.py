"""A stand-in for huggingface_hub: the calls that the library makes, with repositories in a dict."""

import importlib.machinery
import sys
import types
from dataclasses import dataclass
from pathlib import Path


@dataclass
class CommitOperationAdd:
    path_in_repo: str
    path_or_fileobj: str | bytes


@dataclass
class CommitOperationDelete:
    path_in_repo: str


class Hub:
    """The repositories, as a dict from id to a list of commits; each is a dict from name to content.

    Attributes:
        commits: id -> commits, the oldest first.
        private: ids that were made private.
        is_logged_in: whether changes are allowed.
    """

    def __init__(self, cache: Path):
        self.commits: dict[str, list[dict[str, bytes]]] = {}
        self.private: set[str] = set()
        self.is_logged_in = True
        self._cache = cache

    def files(self, repository: str) -> dict[str, bytes]:
        """The newest files."""
        return self.commits[repository][-1]

    def module(self) -> types.ModuleType:
        """The module huggingface_hub."""
        module, hub = types.ModuleType("huggingface_hub"), self
        module.__spec__ = importlib.machinery.ModuleSpec("huggingface_hub", None)

        class HfApi:
            def whoami(self):
                if not hub.is_logged_in:
                    raise OSError("401 Client Error: Unauthorized\nmore lines")

            def repo_exists(self, repo_id, *, repo_type):
                assert repo_type == "model"
                return repo_id in hub.commits

            def create_repo(self, repo_id, *, repo_type, private, exist_ok):
                if not hub.is_logged_in:
                    raise OSError("401 Client Error: Unauthorized\nmore lines")
                assert repo_type == "model" and exist_ok
                if repo_id not in hub.commits:
                    hub.commits[repo_id] = [{}]
                    hub.private |= {repo_id} if private else set()
                return f"https://huggingface.co/{repo_id}"

            def list_repo_files(self, repo_id, *, repo_type):
                return list(hub.files(repo_id))

            def create_commit(self, repo_id, *, operations, commit_message, repo_type):
                assert commit_message and repo_type == "model"
                files = dict(hub.files(repo_id))
                for operation in operations:
                    if isinstance(operation, CommitOperationDelete):
                        del files[operation.path_in_repo]
                        continue
                    given = operation.path_or_fileobj
                    files[operation.path_in_repo] = given if isinstance(given, bytes) else Path(given).read_bytes()
                hub.commits[repo_id].append(files)

            def model_info(self, repo_id, *, revision):
                if repo_id not in hub.commits:
                    raise LookupError(f"404: {repo_id} is no repository\nmore lines")
                number = len(hub.commits[repo_id]) - 1 if revision in (None, "main") else int(revision)
                siblings = [types.SimpleNamespace(rfilename=name) for name in hub.commits[repo_id][number]]
                return types.SimpleNamespace(sha=str(number), siblings=siblings)

        def hf_hub_download(repo_id, filename, *, revision):
            blob = hub._cache / f"blob-{abs(hash((repo_id, filename, revision)))}"
            blob.write_bytes(hub.commits[repo_id][int(revision)][filename])
            link = blob.with_name(f"link-{blob.name}")  # as in its cache
            if not link.exists():
                link.symlink_to(blob)
            return str(link)

        module.HfApi, module.hf_hub_download = HfApi, hf_hub_download
        module.CommitOperationAdd, module.CommitOperationDelete = CommitOperationAdd, CommitOperationDelete
        return module


def installed(monkeypatch, directory: Path) -> Hub:
    """Puts a hub without repositories instead of huggingface_hub."""
    directory.mkdir(parents=True, exist_ok=True)
    hub = Hub(directory)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub.module())
    return hub
