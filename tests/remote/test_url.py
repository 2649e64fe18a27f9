"""Places that users name: paths, and URLs of remote storage."""

from pathlib import Path

import pytest

from rllib import PPO, load_policy
from rllib.notices import shown
from rllib.remote.url import parent_and_name, place_of
from rllib.storage.local_path import expanded, local_path


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("results/first", Path("results/first")),
        (Path("results"), Path("results")),
        ("godot:port=11008", Path("godot:port=11008")),
        ("file:///srv/runs", Path("/srv/runs")),
        ("c:/runs", Path("c:/runs")),
        ("s3://bucket/runs/", "s3://bucket/runs"),
        ("S3://bucket/runs", "s3://bucket/runs"),
        ("memory://runs", "memory://runs"),
        ("hf://org/name@main", "hf://org/name@main"),
    ],
)
def test_a_path_is_a_path_and_a_url_is_a_text(given, place):
    assert place_of(given) == place


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Path("s3://bucket/runs"), "has lost a slash. Give it as a str"),
        ("s3://", "names no folder; write s3://BUCKET/PATH"),
        ("simplecache::s3://bucket/runs", "chains several protocols"),
        ("file://runs", "names no absolute path"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        place_of(given)


@pytest.mark.parametrize("read", [place_of, local_path, expanded, load_policy, PPO.from_checkpoint])
def test_what_is_no_path_is_refused_as_such(read):
    with pytest.raises(TypeError, match=r"a path must be a string or a pathlib.Path, .*, but got 3"):
        read(3)


def test_the_folder_above_is_what_runs_are_named_in():
    assert parent_and_name("s3://bucket/runs/first") == ("s3://bucket/runs", "first")
    with pytest.raises(ValueError, match="has no folder above it"):
        parent_and_name("s3://bucket")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sftp://me:secret@host/runs", "sftp://host/runs"),
        ("sftp://me:se@cret@host/runs", "sftp://host/runs"),
        ("https://secret@host/runs", "https://host/runs"),
        ("lost: ftp://me:secret@host/a and ftp://me:secret@host/b", "lost: ftp://host/a and ftp://host/b"),
        ("sftp://me@host/runs", "sftp://me@host/runs"),
        ("abfss://container@account.dfs.core.windows.net/runs", "abfss://container@account.dfs.core.windows.net/runs"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("hf://org/name@main", "hf://org/name@main"),
    ],
)
def test_a_password_is_not_shown(given, expected):
    assert shown(given) == expected
