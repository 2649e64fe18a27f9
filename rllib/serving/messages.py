"""Requests for actions and their answers, as JSON, MessagePack or raw arrays."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from gymnasium import spaces
from msgspec import UNSET

from rllib.env.factories.previous_steps import PreviousStep
from rllib.models.observations.flat_spaces import parts
from rllib.web.bodies import JSON, MSGPACK, NO_ARRAY, RAW, BadRequest, plain, refuse_costly, with_arrays


class ActRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request: one observation with its state, mask, previous step and agent, or several, in the plural.

    Attributes:
        explore: sample the actions; otherwise the most likely ones are taken.
        episode_id: id of the episode, where the server learns.
        request_id: the client's id of this request, which has the same one when it is repeated for want of an answer.
    """

    observation: Any = UNSET
    state: Any = UNSET
    action_mask: Any = None
    prev_action: Any = None
    prev_reward: float | None = None
    agent_id: str | int | None = None
    observations: Any = UNSET
    states: Any = UNSET
    action_masks: Any = None
    prev_actions: Any = None
    prev_rewards: list[float | None] | None = None
    agent_ids: list[str | int | None] | None = None
    explore: bool = False
    episode_id: str | None = None
    episode_ids: list[str | None] | None = None
    request_id: str | None = None


# Fields that may come with one observation, and their names with several.
_BESIDE = {
    "state": "states",
    "action_mask": "action_masks",
    "prev_action": "prev_actions",
    "prev_reward": "prev_rewards",
    "agent_id": "agent_ids",
    "episode_id": "episode_ids",
}


class Question:
    """Observations whose actions are requested, in the form of `LoadedPolicy.compute_actions`.

    Args:
        observations: N observations.
        explore: sample the actions.
        states, masks, prev_actions, prev_rewards, agent_ids: N each, or None.
        alone: whether the request had a single observation, whose answer is in the singular.
        episodes: N ids of episodes, or None.
        request_id: as ActRequest has it.
    """

    # Fields that may come with each observation, in the order of the arguments.
    LISTS = ("states", "masks", "prev_actions", "prev_rewards", "agent_ids")
    __slots__ = ("alone", "episodes", "explore", "observations", "request_id", *LISTS)

    def __init__(
        self,
        observations,
        explore=False,
        states=None,
        masks=None,
        prev_actions=None,
        prev_rewards=None,
        agent_ids=None,
    ):
        self.observations, self.explore, self.states, self.masks = observations, explore, states, masks
        self.prev_actions, self.prev_rewards, self.agent_ids = prev_actions, prev_rewards, agent_ids
        self.alone = False
        self.episodes: list[str | None] | None = None
        self.request_id: str | None = None

    def part(self, first: int, last: int) -> "Question":
        """A separate question of the observations [first, last)."""
        rest = (each and each[first:last] for each in self.lists)
        return Question(self.observations[first:last], self.explore, *rest)

    @property
    def lists(self) -> tuple:
        """The fields that come with the observations, by the names of LISTS."""
        return tuple(getattr(self, name) for name in self.LISTS)


class Messages:
    """Reads requests and writes answers.

    Args:
        initial_state: of the policy's memory; [] without one.
        observation_space, action_space: spaces of the environment.
        previous_step: parts of the previous step that the policy reads; None: it reads none.
        reads_agent: whether the policy reads the agent's id.
    """

    def __init__(
        self,
        initial_state: Sequence[np.ndarray],
        observation_space,
        action_space,
        previous_step: PreviousStep | None = None,
        reads_agent: bool = False,
    ):
        self._initial_state, self._space, self._action_space = list(initial_state), observation_space, action_space
        unread = [part for part in ("action", "reward") if not getattr(previous_step, part, False)]
        self._unread = [f"prev_{part}{plural}" for part in unread for plural in ("", "s")]
        self._reads_agent = reads_agent
        self._from_json, self._from_msgpack = msgspec.json.Decoder(ActRequest), msgspec.msgpack.Decoder(ActRequest)
        self._to = {JSON: msgspec.json.Encoder().encode, MSGPACK: msgspec.msgpack.Encoder().encode}

    def question(self, body: bytes, kind: str) -> Question:
        """Reads the body of a request of this content type.

        Raises:
            BadRequest: for a body that is no question; names the expected form.
        """
        if kind == RAW:
            return self._raw_question(body)
        refuse_costly(body, kind)
        try:
            request = self._from_msgpack.decode(body) if kind == MSGPACK else self._from_json.decode(body)
        except msgspec.ValidationError as error:
            raise BadRequest(422, f"{error}. A request is {_FORM}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            name = "MessagePack" if kind == MSGPACK else "JSON"
            raise BadRequest(400, f"the body is not {name}: {error}. A request is {_FORM}") from None
        question = self._question(request)
        question.request_id = request.request_id
        if kind == MSGPACK:
            _read_arrays(question)
        return question

    def _question(self, request: ActRequest) -> Question:
        if (request.observation is UNSET) == (request.observations is UNSET):
            raise BadRequest(422, f"either observation or observations is needed. A request is {_FORM}")
        self._check_number(request)
        self._check_previous(request)
        self._check_agents(request)
        if request.observation is not UNSET:
            return self._alone(request)
        rest = request.action_masks, request.prev_actions, request.prev_rewards, request.agent_ids
        states = request.states
        lists = {"observations": request.observations, "states": None if states is UNSET else states}
        lists |= dict(zip(("action_masks", "prev_actions", "prev_rewards", "agent_ids"), rest)) | {
            "episode_ids": request.episode_ids
        }
        if not isinstance(request.observations, list) or not request.observations:
            raise BadRequest(422, "observations must be a list of at least one observation")
        for name, given in lists.items():
            if given is not None and (not isinstance(given, list) or len(given) != len(request.observations)):
                raise BadRequest(422, f"{name} must be a list with one item for each of the observations")
        states = states if states is UNSET or states is None else list(map(self._state, states))
        question = Question(
            request.observations, request.explore, self._states(states, len(request.observations)), *rest
        )
        question.episodes = request.episode_ids
        return question

    @staticmethod
    def _check_number(request: ActRequest) -> None:
        """Refuses fields of one observation that come with several, and the reverse: it would be left out."""
        is_alone = request.observation is not UNSET
        for one, several in _BESIDE.items():
            name, right = (several, one) if is_alone else (one, several)
            if getattr(request, name) not in (UNSET, None):
                given = "observation" if is_alone else "observations"
                raise BadRequest(422, f"{name} does not go with {given}: give {right}")

    def _check_previous(self, request: ActRequest) -> None:
        for name in self._unread:
            given = getattr(request, name)
            if given is not None and (not isinstance(given, list) or any(each is not None for each in given)):
                part = "action" if "action" in name else "reward"
                raise BadRequest(
                    422, f"this policy does not read the {part} of the step before: leave out {name}, or give null"
                )

    def _check_agents(self, request: ActRequest) -> None:
        for name in () if self._reads_agent else ("agent_id", "agent_ids"):
            if getattr(request, name) is not None:
                raise BadRequest(422, f"this policy does not read which agent acts: leave out {name}")

    def _alone(self, request: ActRequest) -> Question:
        state = request.state if request.state is UNSET else [self._state(request.state)]
        rest = request.action_mask, request.prev_action, request.prev_reward, request.agent_id
        rest = (None if each is None else [each] for each in rest)
        question = Question([request.observation], request.explore, self._states(state, 1), *rest)
        question.alone = True
        question.episodes = None if request.episode_id is None else [request.episode_id]
        return question

    def _states(self, states, count: int):
        """A state for each observation, None for a policy without a memory."""
        if not self._initial_state:
            if states is not UNSET and states is not None and any(states):
                raise BadRequest(422, "this policy has no memory: leave out the state, or give []")
            return None
        if states is UNSET:
            raise BadRequest(
                422,
                "this policy has a memory: give the state of the last answer with each observation, and null with the "
                "first one of an episode",
            )
        return states if states is not None else [self._initial_state] * count

    def _state(self, state):
        """Reads one state as arrays; null is the state at the beginning of an episode."""
        if state is None or not self._initial_state:
            return self._initial_state if state is None else state
        shapes = [list(part.shape) for part in self._initial_state]
        try:
            with np.errstate(over="ignore"):  # infinite numbers are refused below
                arrays = [np.asarray(with_arrays(part), np.float32) for part in state]
        except NO_ARRAY:
            arrays = []
        if [list(array.shape) for array in arrays] != shapes or not all(np.isfinite(array).all() for array in arrays):
            raise BadRequest(422, f"a state must be a list of finite arrays of the shapes {shapes}, or null")
        return arrays

    def _raw_question(self, body: bytes) -> Question:
        space = self._space
        if self._initial_state or parts(space) is not None or parts(self._action_space) is not None:
            raise BadRequest(
                415, f"{RAW} is for observations and actions that are one array each, and policies without a memory"
            )
        size = space.dtype.itemsize * int(np.prod(space.shape))
        if not body or len(body) % size:
            raise BadRequest(
                422, f"a body of {len(body)} bytes does not consist of observations of {size} bytes each: {space}"
            )
        rows = np.frombuffer(body, space.dtype).reshape(-1, *space.shape)
        return Question(rows if isinstance(space, spaces.Box) else list(rows))

    def answer(
        self, question: Question, actions: Sequence, states: Sequence | None, version: int, kind: str, **more
    ) -> bytes:
        """Writes the body that answers with N actions, states, and further fields in this content type."""
        if kind == RAW:
            return np.ascontiguousarray(actions).tobytes()
        actions = plain(actions)
        answer: dict[str, Any] = {"action": actions[0]} if question.alone else {"actions": actions}
        if question.states is not None:
            answer |= {"state": plain(states[0])} if question.alone else {"states": plain(states)}
        answer["policy_version"] = version
        answer |= more
        return self._to[kind](answer)


_FORM = '{"observation": ..., "explore": false}; GET /spec gives an example, and says what else this policy reads'


def _read_arrays(question: Question) -> None:
    """Replaces arrays of MessagePack by arrays of numpy."""
    try:
        question.observations = list(map(with_arrays, question.observations))
        question.masks = question.masks and list(map(with_arrays, question.masks))
        question.prev_actions = question.prev_actions and list(map(with_arrays, question.prev_actions))
    except NO_ARRAY as error:
        raise BadRequest(422, f'an array of MessagePack is {{"$array": [dtype, shape, bytes]}}: {error}') from None
