"""Paths by which programs for Ray name the networks within a checkpoint: CHECKPOINT/learner_group/learner/rl_module."""

import os
from pathlib import Path
from typing import NamedTuple

from rllib.storage.local_path import local_path

# Folders of Ray's checkpoints, of 2.40 and later, that hold the networks, one below each by policy.
FOLDERS = ("learner_group/learner/rl_module", "env_runner/rl_module")


class Networks(NamedTuple):
    """Networks of a checkpoint.

    Attributes:
        checkpoint: path of the whole.
        policy_id: id of the only one that is meant; None: all.
    """

    checkpoint: Path
    policy_id: str | None


def networks_of(path: str | os.PathLike) -> Networks | None:
    """The networks that a path names as part of a checkpoint; None if it ends otherwise."""
    whole = local_path(path)
    for folder in FOLDERS:
        end = Path(folder).parts
        if whole.parts[-len(end) :] == end:
            return Networks(Path(*whole.parts[: -len(end)]), None)
        if whole.parts[-len(end) - 1 : -1] == end:
            return Networks(Path(*whole.parts[: -len(end) - 1]), whole.name)
    return None
