"""Chooses the description of a group's policy: one network for all members, on each member's part of an observation."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from gymnasium import spaces

from rllib.config.conflicts import Unfit
from rllib.models.arithmetic.activations import ACTIVATION_NAMES
from rllib.models.catalog.catalog import preprocessing
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.distributions.joint_q_values import JointQValues
from rllib.models.distributions.q_values import QValues
from rllib.models.groups.members import joined
from rllib.models.groups.spec import Group
from rllib.models.model_settings import ModelSettings
from rllib.models.observations.encoders import MaskedEncoder
from rllib.models.observations.flat_spaces import flat_leaves, parts
from rllib.models.observations.masks import has_key, masked_columns, refuse_nested

_GROUP_THEM = "Group agents that act together, env.with_agent_groups({'team': [...]}) (docs/guide/multi_agent.md)"


class MemberSpaces(NamedTuple):
    """The spaces of a group's members, who are alike.

    Attributes:
        count: number of members.
        observation: space of one member's part of an observation.
        num_actions: actions that a member chooses among.
    """

    count: int
    observation: spaces.Space
    num_actions: int


def member_spaces(observation_space: spaces.Space, action_space: spaces.Space) -> MemberSpaces:
    """Divides the spaces of a group.

    Args:
        observation_space: a Tuple or Dict with a part for each member.
        action_space: a Tuple or Dict of a Discrete space for each member, or MultiDiscrete.

    Raises:
        ValueError: if they are not those of a group, or the members differ.
    """
    sizes = _numbers_of_actions(action_space)
    if len(set(sizes)) > 1:
        raise Unfit(
            f"the members of a group share one network, so they need equal numbers of actions, but {action_space} has "
            f"{', '.join(map(str, sizes))}.",
            f"Give all members {max(sizes)} actions, and mask those that some do not "
            "have: a part 'action_mask' in their observations (docs/guide/action_spaces.md).",
        )
    found = parts(observation_space)
    if found is None or len(found) != len(sizes):
        raise Unfit(
            f"the observation of a group has a part for each member, a Tuple or Dict of {len(sizes)}, but it is "
            f"{observation_space}.",
            f"{_GROUP_THEM}.",
        )
    (_, first), *others = found
    for key, space in others:
        if space != first:
            raise Unfit(
                f"the members of a group share one network, so they need equal observation spaces, but {found[0][0]!r} "
                f"has {first}, and {key!r} has {space}.",
                "Bring them to one form: fill up what is shorter.",
            )
    return MemberSpaces(len(sizes), first, sizes[0])


def _numbers_of_actions(space: spaces.Space) -> list[int]:
    """Number of actions of each member."""
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return space.nvec.tolist()
    found = parts(space)
    if not found:
        raise Unfit(
            f"values are learned of groups, whose actions are a Tuple of Discrete spaces or a MultiDiscrete, but the "
            f"action space is {space}, of one agent.",
            f"{_GROUP_THEM}, or use DQN for an agent alone.",
        )
    for key, part in found:
        if not isinstance(part, spaces.Discrete):
            raise Unfit(
                f"the value of each action of a member is learned, so members need Discrete actions, but {key!r} has "
                f"{part}.",
                "Use PPO for it, or an environment with discrete actions.",
            )
    return [int(part.n) for _, part in found]


def read_by_member(space: spaces.Space, mask_key: str | None, state_key: str) -> spaces.Space:
    """Space of what a member's network reads of its part: all but the mask and the state."""
    if not isinstance(space, spaces.Dict):
        return space
    read = [(key, part) for key, part in space.spaces.items() if key not in (mask_key, state_key)]
    if not read:
        raise Unfit(
            f"the observation of a member is {space}, with nothing that its network reads: {mask_key!r} is the mask, "
            f"and {state_key!r} is for the mixer.",
            "Add a part 'obs'.",
        )
    return read[0][1] if len(read) == 1 else spaces.Dict(read)


def group_spec(
    member: NetworkSpec,
    of_members: MemberSpaces,
    model: Mapping,
    *,
    mask_key: str | None,
    state_key: str,
    ids: bool,
) -> NetworkSpec:
    """Describes the policy of a group.

    Args:
        member: describes a policy of one member, that reads what `read_by_member` gives and chooses its action.
        of_members: the members' spaces.
        model: settings of the network.
        mask_key: key of the mask of legal actions in a member's Dict observation; None: there is none.
        state_key: key of the state of the environment there, which all members are shown alike.
        ids: the network reads which member it computes for.

    Raises:
        ValueError: for images, or a mask that does not fit the actions.
    """
    count, part, num_actions = of_members
    refuse_nested(part, mask_key, QValues(num_actions))
    mask = masked_columns(part, mask_key, QValues(num_actions))
    if mask is not None:
        part = spaces.Dict([(key, space) for key, space in part.spaces.items() if key != mask_key])
    settings, filtered = ModelSettings(model), member.observation_filter != "NoFilter"
    encoder, torso = preprocessing(spaces.Tuple([part] * count), settings, ACTIVATION_NAMES["relu"], filtered)
    if torso is not None or member.torso is not None:
        raise Unfit(
            f"the network of a group reads vectors, but its members observe images: {part}.",
            "Use PPO, or let the environment return vectors.",
            {"model": {"conv_filters": []}},
        )
    if mask is not None:
        size = spaces.flatdim(of_members.observation)
        ranges = joined(tuple((mask.start + at, mask.stop + at) for at in range(0, count * size, size)))
        encoder = MaskedEncoder(encoder, ranges)
    leaves = flat_leaves(part)
    is_state = [has_key(part, state_key) and leaf.path.startswith(f"[{state_key!r}]") for leaf in leaves]
    own, state = (
        joined(tuple((leaf.start, leaf.stop) for leaf, of_state in zip(leaves, is_state) if of_state is wanted))
        for wanted in (False, True)
    )
    return dataclasses.replace(
        member,
        encoder=encoder,
        distribution=JointQValues(count, num_actions, mask is not None),
        architecture=Group(count, spaces.flatdim(part), own, state, ids),
        critic=False,
        vf_share_layers=True,
    )
