"""What discriminators of generated runs read: steps of the world, whoever has made them, and nothing else.

A world's observations follow from the step of its episode alone, so that all its steps can be listed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rllib.env.spaces.actions import action_mapper
from rllib.imitation.settings import NEXT_OBSERVATION, TERMINATED
from tests.generated.teachers import seen_in_steps

# Of observations that were filtered, and are no more.
_CLOSE = 2e-3


def wrong_steps(algorithm, world: Mapping[str, Any], settings, steps, *, is_expert: bool) -> Iterator[str]:
    """What is wrong with the steps that a discriminator reads of one side.

    Args:
        algorithm, world: of the run.
        settings: of the discriminator.
        steps: of the expert, or of the policy.
        is_expert: whose they are.
    """
    whose = "the expert" if is_expert else "the policy"
    low, high = _bounds_of(algorithm)
    if low is not None and not ((steps.actions >= low - 1e-5) & (steps.actions <= high + 1e-5)).all():
        yield f"an action of {whose} is beyond the bounds, and could not be played"
    seen = seen_in_steps(algorithm.policy.observation_space, algorithm.config, world)
    if seen is None:
        return
    ends = range(world["length"] - bool(world.get("uneven")), world["length"] + 1)
    # (before, after) of all steps; of the last ones, with which episodes end, too.
    pairs = np.concatenate([seen[:-1].reshape(len(seen) - 1, -1), seen[1:].reshape(len(seen) - 1, -1)], 1)
    reads_next = NEXT_OBSERVATION in settings.parts
    given = [steps.observations.reshape(len(steps), -1), steps.next_observations.reshape(len(steps), -1)]
    table = pairs if reads_next else pairs[:, : given[0].shape[1]]
    rows = np.concatenate(given, 1) if reads_next else given[0]
    # AIRL's shaping takes nothing of what followed a termination.
    unread = (
        steps.terminated
        if settings.is_shaped and NEXT_OBSERVATION not in settings.inputs
        else np.zeros(len(steps), bool)
    )
    unread = unread & reads_next
    distances = np.abs(rows[:, None].astype(float) - table[None].astype(float))
    distances[unread, :, given[0].shape[1] :] = 0
    is_step = distances.max(-1) <= _CLOSE * np.maximum(1, np.abs(rows).max(-1))[:, None]
    strange = int((~is_step.any(1)).sum())
    # The filter of the first rows of a batch is that of the batch before.
    config = algorithm.config
    environments = config.num_envs_per_worker * max(config.num_rollout_workers, 1)
    allowed = 0 if is_expert or not algorithm.policy.filters_observations else 2 * environments
    if strange > allowed:
        row = rows[np.flatnonzero(~is_step.any(1))[0]]
        yield f"{strange} of {len(steps)} steps of {whose} are none of the world, such as {row}"
    reads_ends = settings.absorbing or settings.is_shaped or TERMINATED in settings.inputs
    limited = any("TimeLimit" in each for each in config.env_wrappers or ())
    if reads_ends and not limited and world["end"] == "truncated" and steps.terminated.any():
        yield f"episodes of {whose} terminate, but those of the world are truncated"
    last = np.array([t + 1 in ends for t in range(len(pairs))])
    if (steps.terminated & is_step.any(1) & ~is_step[:, last].any(1)).any() and not limited:
        yield f"an episode of {whose} terminates before the last step"
    if not is_expert or config.num_demonstrations or world.get("data", {}).get("fault"):
        return
    over = int(steps.terminated.sum()) + steps.left_out_ends
    if over != (wanted := _terminated_episodes(world)):
        yield f"{over} episodes of {whose} terminate, and not {wanted}"


def _bounds_of(algorithm) -> tuple:
    policy, config = algorithm.policy, algorithm.config
    mapper = action_mapper(policy.action_space, policy.distribution, config.normalize_actions, config.clip_actions)
    clips = config.normalize_actions or config.clip_actions  # else the environment gets what the policy draws
    return (clips and mapper.policy_bounds) or (None, None)


def _terminated_episodes(world: Mapping[str, Any]) -> int:
    """Number of recorded episodes that terminate; those that do both are terminated."""
    count, end = world["data"]["episodes"], world["end"]
    return {"truncated": 0, "mixed": (count + 1) // 2}.get(end, count)
