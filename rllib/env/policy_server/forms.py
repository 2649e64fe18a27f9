"""Forms of the requests to a policy server, and what a client can make it remember at most."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from gymnasium import Space

from rllib.env.spaces.notation import form_of, spaces_from_text
from rllib.web.bodies import BadRequest

PROTOCOL = 1
# Most episodes under way, of all clients together.
MOST_EPISODES = 16384
# Most agents that a request may name, where the spaces do not say which there are.
MOST_AGENTS = 1024
# Most characters of names and ids.
LONGEST_NAME = 128
AgentSpaces = Space | Mapping[str, Space]
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
# 1.0 is 1: many languages have one kind of numbers.
Whole = int | float
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | Annotated[float, msgspec.Meta(ge=0, lt=2**63)]
Flags = Annotated[dict[Name, bool], msgspec.Meta(max_length=MOST_AGENTS)]


def whole(number: int | float) -> int:
    """The integer that a number of a request is.

    Raises:
        ValueError: if it is none.
    """
    if isinstance(number, float) and not number.is_integer():
        raise ValueError(f"a number of {number!r} must be an integer")
    return int(number)


class Numbered(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What each request may have.

    Attributes:
        client: name that a client gives itself, to repeat requests; "" without one.
        seq: number of the request, which counts from 1; a repeated one has the same.
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
        observation: the newest; by agent where there are several.
        reward, info: since the last action of the episode; None: there are none.
        action: that the policy has not chosen, for /v1/log.
        truncated: whether a limit outside of the task has ended the episode, for /v1/end.
        dones, truncateds: agents that have ended.
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
        episode_id: a new one by default.
        training_enabled: whether its steps are learned from.
        protocol: that the client speaks.
    """

    episode_id: Name | None = None
    training_enabled: bool = True
    protocol: Whole = PROTOCOL


class Spaces(Numbered, forbid_unknown_fields=True):
    """Body of a request with the spaces of a client, each a text, or texts by agent."""

    observation_space: str | dict[Name, str]
    action_space: str | dict[Name, str]

    def refuse_others(self, own: Mapping[str, AgentSpaces], whose: str) -> None:
        """Compares them with others; bounds of observations may differ.

        Args:
            own: observation_space and action_space, each a space or a dict by agent.
            whose: these are, for messages.

        Raises:
            BadRequest: if they are others, or no spaces.
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
    """The query of a request for the policy: the edition that the client has; None: it has none."""

    have: Whole | None = None


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A part of an episode, as its client sends it.

    Attributes:
        episode_id: id of the episode.
        version: version of the weights that have acted.
        observations: an array [N, ...], or a list of them where the space is no Box and not Discrete; with the final
            one where the episode ends.
        rewards: one for each observation.
        actions: [N, ...], in the policy's units.
        action_dist_inputs: [N, size], where the policy has log-probabilities.
        is_first: whether the episode begins with it.
        training_enabled: whether the episode is learned from.
        logged: indices of actions that the policy has not chosen.
        infos: (index of an observation, info) pairs.
        end: how the episode ends with this item; None: it continues.
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
        parts: of different episodes.
        have: edition of the policy that the client has, where it wants newer ones.
    """

    parts: list[Part] = []
    have: Whole | None = None
