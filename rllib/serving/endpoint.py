"""The answers of one policy of a server: its actions, and what a request for them may hold."""

import msgspec

from rllib.env.policy_server.forms import Spaces
from rllib.serving.batching import Batcher
from rllib.serving.counts import Counts
from rllib.serving.messages import Messages, Question
from rllib.serving.model import Served, example_of
from rllib.serving.tasks import ServingSettings
from rllib.storage.encoding import space_to_json
from rllib.web.bodies import (
    JSON,
    BadRequest,
    ClientHasGone,
    Receive,
    content_kind,
    header,
    plain,
    read_body,
    refuse_costly,
)

# Least limit of a body; larger observations raise it to the size of a full batch.
LEAST_BODY_LIMIT = 2**20
_BYTES_A_NUMBER = 32
_IN_JSON = [(b"content-type", JSON.encode())]


class Endpoint:
    """Answers requests to one policy.

    Args:
        served: the policy.
        counts: counts of the server.
        settings: settings of the server.
    """

    def __init__(self, served: Served, counts: Counts, settings: ServingSettings):
        self._served = served
        self._batcher = Batcher(served, counts, settings.max_batch, settings.max_wait_us * 1e-6, settings.max_queue)
        policy = served.policy
        spaces = policy.observation_space, policy.action_space
        self._messages = Messages(policy.get_initial_state(), *spaces, policy.previous_step, bool(policy.agent_ids))
        numbers = policy.policy.spec.encoder.size + policy.policy.state_size
        self._body_limit = max(LEAST_BODY_LIMIT, numbers * _BYTES_A_NUMBER * settings.max_batch)

    async def act(self, scope, receive: Receive) -> tuple[int, bytes, list]:
        """Answers with actions: status, body and headers.

        Raises:
            BadRequest: if the request cannot be answered.
            ClientHasGone: if its client has hung up.
        """
        kind = content_kind(header(scope, b"content-type") or b"")
        question = self._messages.question(await read_body(scope, receive, self._body_limit), kind)
        actions, states, version, more = await self._decided(question, receive)
        body = self._messages.answer(question, actions, states, version, kind, **more)
        if kind == JSON:
            return 200, body, _IN_JSON
        return 200, body, [(b"content-type", kind.encode()), (b"x-policy-version", str(version).encode())]

    async def _decided(self, question: Question, receive: Receive) -> tuple:
        """Actions, states, version, and further fields of the answer."""
        if question.episodes is not None:
            raise BadRequest(422, "this server does not learn (rllib serve --learn does): leave out episode_id")
        return *await answer_of(self._batcher, question, receive), {}

    async def spec(self, scope, receive: Receive) -> tuple[int, bytes, list]:
        """Answers with the spaces, the fields of a request, and an example."""
        policy = self._served.policy
        one = example_of(policy)
        example = {"observation": plain(one.observations[0])}
        if one.states is not None:
            example["state"] = None
        if one.masks is not None:
            example["action_mask"] = plain(one.masks[0])
        if one.agent_ids is not None:
            example["agent_id"] = one.agent_ids[0]
        previous = [f"prev_{name}" for name in ("action", "reward") if getattr(policy.previous_step, name, False)]
        spec = {
            "observation_space": space_to_json(policy.observation_space),
            "action_space": space_to_json(policy.action_space),
            "reads": [*example, *previous],
            "initial_state": plain(policy.get_initial_state()),
            "example": example,
            "metadata": policy.metadata,
            "policy_version": policy.policy_version,
            "checkpoint": str(policy.checkpoint),
        }
        return 200, msgspec.json.encode(spec), _IN_JSON

    async def spaces(self, scope, receive: Receive) -> tuple[int, bytes, list]:
        """Compares the spaces of a client with those of the policy.

        Raises:
            BadRequest: if they are others, or the body has another form.
            ClientHasGone: if its client has hung up.
        """
        if content_kind(header(scope, b"content-type") or b"") != JSON:
            raise BadRequest(415, f"spaces come as {JSON}")
        body = await read_body(scope, receive, LEAST_BODY_LIMIT)
        refuse_costly(body, JSON)
        try:
            given = msgspec.json.decode(body, type=Spaces)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(422, f'{error}. Spaces are {{"observation_space": ..., "action_space": ...}}') from None
        policy = self._served.policy
        own = {"observation_space": policy.observation_space, "action_space": policy.action_space}
        given.refuse_others(own, "the policy")
        return 200, b"{}", _IN_JSON


async def answer_of(batcher: Batcher, question: Question, receive: Receive) -> tuple:
    """Actions, states and version, by a batch.

    Raises:
        BadRequest: if the question cannot be answered.
        ClientHasGone: if its client has hung up.
    """
    answer = await batcher.ask(question, receive)
    if answer is None:
        raise ClientHasGone
    return answer
