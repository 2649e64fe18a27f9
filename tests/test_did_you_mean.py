"""Suggestions for names and paths that do not exist."""

from pathlib import Path

import pytest

from rllib.did_you_mean import similar_path


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("release/v1", " Did you mean releases/v1?"),
        ("releases/v11", " Did you mean releases/v1?"),
        ("model", " Did you mean model.zip?"),
        ("release/v7", ""),  # which the similar directory does not have, either
        ("elsewhere/far/away", ""),
    ],
)
def test_a_similar_path_that_exists_is_suggested(tmp_path, monkeypatch, path, hint):
    monkeypatch.chdir(tmp_path)
    Path("releases/v1").mkdir(parents=True)
    Path("model.zip").write_bytes(b"")
    assert similar_path(Path(path)) == hint
    assert similar_path(tmp_path / path) == hint.replace("mean ", f"mean {tmp_path}/")
