"""The answers of a policy that learns: actions with ids, the rewards for them, and statistics."""

import asyncio
import hashlib
import secrets
import time
from typing import Any

import msgspec

from rllib.env.spaces.supported import LARGEST, mismatch, too_large
from rllib.serving.batching import Batcher
from rllib.serving.candidate import Candidate
from rllib.serving.counts import Counts
from rllib.serving.endpoint import Endpoint, answer_of
from rllib.serving.learner_channel import LearnerChannel
from rllib.serving.learning.arms import is_canary
from rllib.serving.learning.packets import Answer, Decision, array_bytes
from rllib.serving.messages import Question
from rllib.serving.model import Served
from rllib.serving.tasks import ServingSettings
from rllib.web.bodies import (
    JSON,
    MSGPACK,
    NO_ARRAY,
    RAW,
    BadRequest,
    Receive,
    content_kind,
    header,
    read_body,
    refuse_costly,
    with_arrays,
)

MOST_REWARDS = 1024
MOST_ID = 200
_BODY_LIMIT = 8 << 20
_IN_JSON = [(b"content-type", JSON.encode())]


class RewardItem(msgspec.Struct, forbid_unknown_fields=True):
    """A reward in the body of a request; `terminated` and `truncated` end the episode."""

    action_id: str
    reward: Any
    terminated: bool | None = None
    truncated: bool = False
    next_observation: Any = None


class RewardBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several rewards in the body of a request."""

    rewards: list[RewardItem]


class LearningEndpoint(Endpoint):
    """Answers requests to a policy that learns.

    Args:
        served: the policy.
        candidate: the policy on trial.
        channel: to the learner.
        counts: counts of the server.
        settings: settings of the server.
    """

    def __init__(
        self, served: Served, candidate: Candidate, channel: LearnerChannel, counts: Counts, settings: ServingSettings
    ):
        super().__init__(served, counts, settings)
        self._candidate, self._channel, self._counts, self._settings = candidate, channel, counts, settings
        self._canary: Batcher | None = None
        self._learning = settings.learning
        policy = served.policy
        self._spaces = policy.observation_space, policy.action_space

    async def look(self) -> None:
        """Takes up the candidate."""
        await self._candidate.look(self._make_canary)

    def _make_canary(self, served: Served) -> None:
        settings = self._settings
        wait_s = settings.max_wait_us * 1e-6
        self._canary = Batcher(served, self._counts, settings.max_batch, wait_s, settings.max_queue)

    # ------------------------------------------------------------------ actions

    async def act(self, scope, receive: Receive) -> tuple[int, bytes, list]:
        if content_kind(header(scope, b"content-type") or b"") == RAW:
            raise BadRequest(415, f"an answer in {RAW} has no action_id, so no reward could follow: use {JSON}")
        return await super().act(scope, receive)

    async def _decided(self, question: Question, receive: Receive) -> tuple:
        number = len(question.observations)
        episodes = question.episodes or [None] * number
        for episode_id in episodes:
            if episode_id is not None and not 0 < len(episode_id) <= MOST_ID:
                raise BadRequest(422, f"an episode_id has 1 to {MOST_ID} characters")
        request_id = secrets.token_hex(12) if question.request_id is None else question.request_id
        if not 0 < len(request_id) <= MOST_ID:
            raise BadRequest(422, f"a request_id has 1 to {MOST_ID} characters")
        keys = [f"{request_id} {index}" for index in range(number)]
        chosen = [self._acts_by_candidate(each or key) for each, key in zip(episodes, keys)]
        actions, versions = await self._by_arm(question, chosen, receive)
        for index, observation in enumerate(question.observations):  # which are learned from
            if problem := too_large(self._spaces[0], observation, "observation"):
                raise BadRequest(422, problem if question.alone else f"observation {index} of {number}: {problem}")
        ids = [self._record(*each) for each in zip(keys, question.observations, actions, episodes, versions)]
        if question.alone:
            return actions, None, versions[0], {"action_id": ids[0]}
        return actions, None, versions[0], {"action_ids": ids, "policy_versions": versions}

    def _acts_by_candidate(self, episode_id: str) -> bool:
        candidate = self._candidate.served
        if candidate is None:
            return False
        version = candidate.policy.policy_version
        return is_canary(episode_id, version, self._learning.key, self._learning.canary_share)

    async def _by_arm(self, question: Question, chosen: list[bool], receive: Receive) -> tuple[list, list[int]]:
        """Actions and versions, in the order of the observations."""
        if not any(chosen):
            actions, _, version = await answer_of(self._batcher, question, receive)
            return list(actions), [version] * len(chosen)
        by_index: dict[int, tuple[Any, int]] = {}
        for batcher, arm in ((self._batcher, False), (self._canary, True)):
            indices = [index for index, each in enumerate(chosen) if each == arm]
            if not indices:
                continue
            part = Question([question.observations[index] for index in indices], question.explore)
            actions, _, version = await answer_of(batcher, part, receive)
            by_index |= {index: (action, version) for index, action in zip(indices, actions)}
        answers = [by_index[index] for index in range(len(chosen))]
        return [action for action, _ in answers], [version for _, version in answers]

    def _record(self, key: str, observation, action, episode_id: str | None, version: int) -> str | None:
        """Sends a decision to the learner; returns its id, which is the same for the same key, episode and observation.

        None if it was not sent.
        """
        observed, acted = self._spaces
        contents = array_bytes(observed, observation), array_bytes(acted, action)
        named = msgspec.msgpack.encode((key, episode_id, contents[0]))
        action_id = hashlib.blake2b(named, digest_size=12).hexdigest()
        is_sent = self._channel.record(Decision(action_id, episode_id, time.monotonic(), version, *contents))
        return action_id if is_sent else None

    # ------------------------------------------------------------------ rewards

    async def reward(self, scope, receive: Receive) -> tuple[int, bytes, list]:
        """Takes one reward, or several.

        Raises:
            BadRequest: if the reward is refused; of several, each has its own answer.
        """
        kind = content_kind(header(scope, b"content-type") or b"")
        body = await read_body(scope, receive, _BODY_LIMIT)
        items, is_alone = _rewards(body, kind)
        fields = [self._fields(item, "" if is_alone else f"rewards[{index}]: ") for index, item in enumerate(items)]
        answers = await asyncio.gather(*(self._channel.reward(**each) for each in fields))
        if is_alone:
            if answers[0].status != 200:
                raise BadRequest(answers[0].status, answers[0].content)
            return 200, msgspec.json.encode({"accepted": True}), _IN_JSON
        return 200, msgspec.json.encode({"results": [_result(each) for each in answers]}), _IN_JSON

    def _fields(self, item: RewardItem, where: str) -> dict[str, Any]:
        reward = item.reward
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not abs(reward) <= LARGEST:
            raise BadRequest(
                422, f"{where}a reward is a finite number, of at most {LARGEST:g} in size, but got {reward!r:.40}"
            )
        if len(item.action_id) > MOST_ID:
            raise BadRequest(422, f"{where}an action_id of this server has at most {MOST_ID} characters")
        following = item.next_observation
        if following is not None:
            following = self._observation(following, where)
        return {
            "action_id": item.action_id,
            "reward": float(reward),
            "terminated": item.terminated,
            "truncated": item.truncated,
            "next_observation": following,
        }

    def _observation(self, value, where: str) -> bytes:
        space = self._spaces[0]
        try:
            value = with_arrays(value)
        except NO_ARRAY as error:
            raise BadRequest(422, f'{where}an array is {{"$array": [dtype, shape, bytes]}}: {error}') from None
        problem = mismatch(space, value, "next_observation", bounded=False) or too_large(space, value, "it")
        if problem:
            raise BadRequest(422, where + problem)
        return array_bytes(space, value)

    # ------------------------------------------------------------------ statistics

    async def stats(self, scope, receive: Receive) -> tuple[int, bytes, list]:
        """Answers with the statistics of the learner."""
        if not self._channel.is_there:
            policy = self._served.policy
            served = {"version": policy.policy_version, "checkpoint": str(policy.checkpoint)}
            return 200, msgspec.json.encode({"learner": None, "served": served}), _IN_JSON
        return 200, msgspec.json.encode((await self._channel.stats()).content), _IN_JSON

    async def resume(self, scope, receive: Receive) -> tuple[int, bytes, list]:
        """Ends a pause: what the served policy gets now is taken as usual."""
        if (kind := header(scope, b"content-type")) is not None:
            content_kind(kind)
        return 200, msgspec.json.encode((await self._channel.stats(resume=True)).content), _IN_JSON


def _rewards(body: bytes, kind: str) -> tuple[list[RewardItem], bool]:
    """The rewards in a body, and whether there is one alone."""
    decode = {JSON: msgspec.json.decode, MSGPACK: msgspec.msgpack.decode}.get(kind)
    if decode is None:
        raise BadRequest(415, f"rewards come as {JSON} or {MSGPACK}")
    refuse_costly(body, kind)
    try:
        content = decode(body)
        is_alone = not (isinstance(content, dict) and "rewards" in content)
        if is_alone:
            return [msgspec.convert(content, RewardItem)], True
        items = msgspec.convert(content, RewardBatch).rewards
    except msgspec.ValidationError as error:
        raise BadRequest(422, f"{error}. Rewards are {_FORM}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(400, f"the body cannot be read: {error}. Rewards are {_FORM}") from None
    if len(items) > MOST_REWARDS:
        raise BadRequest(413, f"a request may have {MOST_REWARDS} rewards, but has {len(items)}")
    return items, False


_FORM = (
    '{"action_id": ..., "reward": 1.0, "terminated": false, "truncated": false, "next_observation": ...}, or '
    '{"rewards": [...]} of these'
)


def _result(answer: Answer) -> dict[str, Any]:
    if answer.status == 200:
        return {"accepted": True}
    return {"accepted": False, "status": answer.status, "error": answer.content}
