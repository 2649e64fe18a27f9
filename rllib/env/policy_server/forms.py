"""Forms of the requests to a policy server, and limits of the data that clients can make it keep."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from gymnasium import Space

from rllib.env.spaces.notation import form_of, spaces_from_text
from rllib.web.bodies import BadRequest

PROTOCOL = 1
# Largest number of running episodes of all clients together.
MOST_EPISODES = 16384
# Largest number of agents that a request may name, if the spaces do not name them.
MOST_AGENTS = 1024
# Largest number of characters of names and ids.
LONGEST_NAME = 128
AgentSpaces = Space | Mapping[str, Space]
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
# 1.0 is 1: many languages have one kind of numbers.
Whole = int | float
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | Annotated[float, msgspec.Meta(ge=0, lt=2**63)]
Flags = Annotated[dict[Name, bool], msgspec.Meta(max_length=MOST_AGENTS)]


def whole(number: int | float) -> int:
    """Converts a number in a request to an integer.

    Raises:
        ValueError: if the number is not whole.
    """
    if isinstance(number, float) and not number.is_integer():
        raise ValueError(f"a number of {number!r} must be an integer")
    return int(number)


class Numbered(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fields that every request may have.

    Attributes:
        client: name that the client has chosen, by which it may repeat requests; "" without a name.
        seq: number of the request, counted from 1; a repeated request has the same number.
    """

    client: Name = ""
    seq: Number = 0

    def __post_init__(self):
        if type(self.seq) is float:
            self.seq = whole(self.seq)


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """A step of an episode.

    Attributes:
        episode_id: id of a running episode.
        observation: the newest observation; with several agents a dict by agent.
        reward, info: reward and info since the episode's last action; None: there are none.
        action: action that the policy has not chosen, for /v1/log.
        truncated: whether a limit outside of the task has ended the episode, for /v1/end.
        dones, truncateds: agent -> whether it has terminated, or was truncated.
    """

    episode_id: Name
    observation: Any
    reward: Any = None
    info: Any = None
    action: Any = msgspec.UNSET
    truncated: bool = False
    dones: Flags = {}
    truncateds: Flags = {}


class Request(Numbered, forbid_unknown_fields=True):
    """A request about steps.

    Attributes:
        items: items of different episodes.
    """

    items: Annotated[list[Item], msgspec.Meta(max_length=MOST_EPISODES)] = []


class Start(Numbered, forbid_unknown_fields=True):
    """A request for an episode.

    Attributes:
        episode_id: id of the episode; a new id by default.
        training_enabled: whether the episode's steps are learned from.
        protocol: protocol version of the client.
    """

    episode_id: Name | None = None
    training_enabled: bool = True
    protocol: Whole = PROTOCOL


class Spaces(Numbered, forbid_unknown_fields=True):
    """Body of a request with the spaces of a client, each a text, or texts by agent."""

    observation_space: str | dict[Name, str]
    action_space: str | dict[Name, str]

    def refuse_others(self, own: Mapping[str, AgentSpaces], whose: str) -> None:
        """Compares these spaces with the server's; bounds of observations may differ.

        Args:
            own: observation_space and action_space, each a space or a dict by agent.
            whose: owner of `own`, for error messages.

        Raises:
            BadRequest: if the spaces differ, or are no spaces.
        """
        for name, form in (("observation_space", form_of), ("action_space", lambda space: space)):
            try:
                given = spaces_from_text(getattr(self, name))
            except ValueError as error:
                raise BadRequest(422, str(error)) from None
            if form(given) != form(own[name]):
                raise BadRequest(
                    409, f"the {name} of the client is {given!s:.200}, but that of {whose} is {own[name]!s:.200}"
                )


class Have(msgspec.Struct, forbid_unknown_fields=True):
    """The query of a request for the policy; `have`: edition that the client has, None without one."""

    have: Whole | None = None


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A part of an episode, as its client sends it.

    Attributes:
        episode_id: id of the episode.
        version: version of the weights that have acted.
        observations: an array [N, ...], or a list if the space is neither Box nor Discrete; includes the final
            observation if the episode ends.
        rewards: one for each observation.
        actions: [N, ...], in the policy's units.
        action_dist_inputs: [N, size], if the policy has log-probabilities.
        is_first: whether the episode begins with this part.
        training_enabled: whether the episode is learned from.
        logged: indices of actions that the policy has not chosen.
        infos: (index of an observation, info) pairs.
        end: "terminated" or "truncated" if the episode ends with this part; None: it continues.
    """

    episode_id: Name
    version: Number
    observations: Any
    rewards: Any
    actions: Any = None
    action_dist_inputs: Any = None
    is_first: bool = False
    training_enabled: bool = True
    logged: list[Whole] = []
    infos: list[tuple[Whole, Any]] = []
    end: Literal["terminated", "truncated"] | None = None

    def __post_init__(self):
        self.version = whole(self.version)
        self.logged = [whole(each) for each in self.logged]
        self.infos = [(whole(index), info) for index, info in self.infos]


class Samples(Numbered, forbid_unknown_fields=True):
    """A request with parts of episodes. It needs client and seq: repeated steps would be accepted twice otherwise.

    Attributes:
        parts: parts of different episodes.
        have: edition of the policy that the client has, if it wants newer ones.
    """

    parts: list[Part] = []
    have: Whole | None = None
