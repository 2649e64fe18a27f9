"""Facts about recorded steps that a file carries next to its columns, as JSON."""

from datetime import UTC, datetime
from typing import Any

from gymnasium import Space

from rllib.storage.encoding import space_to_json

VERSION = 1
# Units of the actions of a Box: the environment's, or [-1, 1] that spans its bounds.
ENVIRONMENT, NORMALIZED = "environment", "normalized"
# Column: whether actions are in [-1, 1], which spans the bounds of a Box; in files without metadata.
ACTIONS_NORMALIZED = "actions_normalized"
# Column: whether recorded densities are of such actions; in files without metadata.
DENSITIES_NORMALIZED = "densities_normalized"
# Column: whether the observation after a step is known; in files of data of which it is not always.
HAS_NEXT = "has_next"


def metadata_of(observation_space: Space, action_space: Space, actions: str = ENVIRONMENT, **more: Any) -> dict:
    """The metadata of a file.

    Args:
        observation_space, action_space: spaces of the steps.
        actions: units of the actions, ENVIRONMENT or NORMALIZED.
        more: further facts, JSON-able: env, max_episode_steps, gamma, seed. Those that are None are left out; `created`
            is now, unless it is given.

    Raises:
        ValueError: for a space that cannot be written.
    """
    return {
        "version": VERSION,
        "observation_space": space_to_json(observation_space),
        "action_space": space_to_json(action_space),
        "actions": actions,
        "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        **{name: value for name, value in more.items() if value is not None},
    }
