"""Whatever is written or removed as a whole has a name meanwhile that other readers and copies of runs leave out."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rllib.remote.download import download
from rllib.remote.order import is_passing
from rllib.serving.learning.progress import prepare_directory
from rllib.storage.checkpoint import write_checkpoint
from rllib.storage.whole import is_draft, remove_whole
from rllib.tune.experiment.files import adopt
from rllib.tune.experiment.trial import TrialCheckpoint


class Folder:
    url = "s3://bucket/run"

    def names(self):
        return ["a.json"]

    def copy_to(self, name, file):
        file.write(b"{}")


def _adopt(path: Path, checkpoint: Path) -> None:
    source = SimpleNamespace(logdir=checkpoint.parent, checkpoint=TrialCheckpoint(checkpoint.name, 1))
    adopt(SimpleNamespace(logdir=path.parent), source)


WAYS = {
    "written": lambda path, checkpoint: write_checkpoint(path, {"a.json": {"i": 1}}),
    "downloaded": lambda path, checkpoint: download(Folder(), path),
    "adopted": _adopt,
    "first of a learner": lambda path, checkpoint: prepare_directory(path.parent, checkpoint),
    "removed": lambda path, checkpoint: remove_whole(checkpoint),
}


@pytest.mark.parametrize("way", WAYS)
def test_half_of_a_directory_has_the_name_of_a_draft(tmp_path, monkeypatch, way):
    checkpoint = write_checkpoint(tmp_path / "source" / "checkpoint_000001", {"a.json": {"i": 0}})
    (tmp_path / "run").mkdir()
    renamed, rename = [], os.rename

    def recorded(source, target):
        renamed.append((Path(source).name, Path(target).name))
        rename(source, target)

    monkeypatch.setattr(os, "rename", recorded)
    WAYS[way](tmp_path / "run" / "checkpoint_000001", checkpoint)
    (names,) = renamed
    (draft,) = filter(is_draft, names)
    assert is_passing(draft) and draft.startswith(".checkpoint_00000")
    left = [*(tmp_path / "source").iterdir(), *(tmp_path / "run").iterdir()]
    assert len(left) == (0 if way == "removed" else 2) and not any(is_draft(each.name) for each in left)
