"""The observation filter that connectors ask for, known before any environment is made."""

from collections.abc import Callable
from typing import Any

from rllib.core.connectors.connected_env import MakePieces, made_pieces
from rllib.core.connectors.connector import ConnectorV2
from rllib.core.connectors.pieces import FlattenObservations, MeanStdFilter


def filter_settings(make: MakePieces, make_env: Callable[[], Any]) -> dict[str, Any]:
    """Settings of the observation filter that a user's connectors ask for; {} without one.

    Args:
        make: the setting env_to_module_connector.
        make_env: makes an environment for functions that read it.

    Raises:
        ValueError: if a MeanStdFilter is followed by what would read filtered observations.
    """
    pieces = _pieces(make, make_env)
    at = [index for index, piece in enumerate(pieces) if isinstance(piece, MeanStdFilter)]
    if not at:
        return {}
    behind = [piece for piece in pieces[at[0] + 1 :] if not isinstance(piece, FlattenObservations)]
    if behind:
        raise ValueError(
            f"env_to_module_connector: {type(behind[0]).__name__} comes after MeanStdFilter, but observations are "
            "filtered last here. Put MeanStdFilter at the end."
        )
    return {"observation_filter": "MeanStdFilter", "observation_clip": pieces[at[0]].clip_by_value}


def _pieces(make: MakePieces, make_env: Callable[[], Any]) -> list[ConnectorV2]:
    try:
        return made_pieces(make, None)
    except (AttributeError, KeyError, TypeError):  # it reads the environment, or its spaces
        env = make_env()
    try:
        return made_pieces(make, env)
    finally:
        env.close()
