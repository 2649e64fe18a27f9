"""Datasets of Minari on this machine; nothing is downloaded."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rllib import sample_batch as sb
from rllib.offline.formats.packages import package
from rllib.offline.nested import leaves
from rllib.offline.records import Records, T, joined
from rllib.storage.encoding import space_to_json


def records_of_minari(name: str, piece_bytes: int | None = None) -> Iterator[Records]:
    """Reads a dataset of Minari.

    Args:
        name: "D4RL/door/human-v2".
        piece_bytes: of the rows of a piece, at most but for one episode; None: all are one piece.

    Raises:
        FileNotFoundError: if it is not on this machine.
        ValueError: if it has no steps, or is damaged.
        ImportError: without minari.
    """
    minari = package("minari", f"minari:{name}")
    try:
        dataset = minari.load_dataset(name)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no dataset {name!r} of Minari on this machine: minari download {name} fetches it. ({error})"
        ) from None
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"the dataset {name!r} of Minari cannot be read ({error})") from None
    metadata, source = _metadata(dataset), f"minari:{name}"
    episodes: list[Records] = []
    size = 0
    for episode in dataset.iterate_episodes():
        records = _records(episode, source, metadata)
        size += sum(column.nbytes for column in records.columns.values())
        episodes.append(records)
        if piece_bytes is not None and size > piece_bytes:
            yield joined(episodes, source)
            episodes, size = [], 0
    if episodes:
        yield joined(episodes, source)


def _records(episode, source: str, metadata: Mapping[str, Any]) -> Records:
    columns, steps = {}, len(episode.rewards)
    for name, column in leaves(sb.OBS, episode.observations).items():
        columns[name] = column[:-1]
        columns[sb.NEXT_OBS + name.removeprefix(sb.OBS)] = column[1:]
    columns |= leaves(sb.ACTIONS, episode.actions)
    columns |= {
        sb.REWARDS: np.asarray(episode.rewards),
        sb.TERMINATEDS: np.asarray(episode.terminations, bool),
        sb.TRUNCATEDS: np.asarray(episode.truncations, bool),
        sb.EPS_ID: np.full(steps, episode.id),
        T: np.arange(steps),
    }
    return Records(columns, f"{source} episode {episode.id}", [], dict(metadata))


def _metadata(dataset) -> dict[str, Any]:
    metadata: dict[str, Any] = {"actions": "environment"}
    for name in ("observation_space", "action_space"):
        try:
            metadata[name] = space_to_json(getattr(dataset, name))
        except ValueError:  # a space of texts, for one: the columns tell, or the user
            continue
    spec = dataset.env_spec
    if spec is not None:
        metadata |= {"env": spec.id, "max_episode_steps": spec.max_episode_steps}
    stored = dataset.storage.metadata
    metadata |= {
        name: float(stored[name]) for name in ("ref_min_score", "ref_max_score") if stored.get(name) is not None
    }
    return metadata
