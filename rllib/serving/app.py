"""The ASGI application of a policy server: routes and answers.

It uses ASGI directly: starlette's requests and responses would take a quarter of the throughput.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from rllib.serving.batching import Batcher, Receive
from rllib.serving.counts import Counts
from rllib.serving.guard import Guard
from rllib.serving.messages import JSON, BadRequest, Messages, content_kind, plain
from rllib.serving.model import Model, example_of
from rllib.serving.tasks import ServingSettings
from rllib.storage.checkpoint import CheckpointError
from rllib.storage.encoding import space_to_json

logger = logging.getLogger(__name__)
Send = Callable[[dict[str, Any]], Awaitable[None]]
# Least limit of a body; larger observations raise it to the size of a full batch.
LEAST_BODY_LIMIT = 2**20
_BYTES_A_NUMBER = 32


class App:
    """Answers HTTP requests with actions of a policy.

    Args:
        model: has the policy.
        counts: of the server.
        settings: of the server.
        on_change: called after a change of the checkpoint.
    """

    def __init__(
        self, model: Model, counts: Counts, settings: ServingSettings, on_change: Callable[[], None] = lambda: None
    ):
        self._model, self._counts, self._on_change = model, counts, on_change
        self._guard = Guard(settings.token)
        self._open = ["/health"] if settings.token is not None else []
        self._batcher = Batcher(model, counts, settings.max_batch, settings.max_wait_us * 1e-6, settings.max_queue)
        policy = model.policy
        spaces = policy.observation_space, policy.action_space
        self._messages = Messages(policy.get_initial_state(), *spaces, policy.previous_step)
        numbers = policy.policy.spec.encoder.size + policy.policy.state_size
        self._body_limit = max(LEAST_BODY_LIMIT, numbers * _BYTES_A_NUMBER * settings.max_batch)
        self._reloading = asyncio.Lock()
        self._routes: dict[str, tuple[str, Callable]] = {
            "/act": ("POST", self._act),
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics),
            "/spec": ("GET", self._spec),
            "/reload": ("POST", self._reload),
        }

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answers one request of ASGI."""
        began = time.perf_counter()
        try:
            status, body, headers = await self._answered(scope, receive)
        except BadRequest as error:
            status, body, headers = error.status, _json({"error": error.message}), _HEADERS.get(error.status, _IN_JSON)
        except _ClientHasGone:
            return
        except Exception:
            logger.exception("a request to %s failed", scope["path"])
            status, body, headers = 500, _json({"error": "the server failed; its log says more"}), _IN_JSON
        self._counts.answered(status, time.perf_counter() - began)
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope, receive: Receive) -> tuple[int, bytes, list]:
        path = scope["path"]
        if path not in self._open and (refusal := self._guard.refusal(scope)):
            raise BadRequest(*refusal)
        if path not in self._routes:
            raise BadRequest(404, f"there is no {path}; there are {', '.join(self._routes)}")
        method, handle = self._routes[path]
        if scope["method"] != method:
            raise BadRequest(405, f"{path} is for {method}")
        return await handle(scope, receive)

    async def _act(self, scope, receive: Receive) -> tuple[int, bytes, list]:
        kind = content_kind(_header(scope, b"content-type") or b"")
        question = self._messages.question(await self._body(scope, receive), kind)
        answer = await self._batcher.ask(question, receive)
        if answer is None:
            raise _ClientHasGone
        actions, states, version = answer
        body = self._messages.answer(question, actions, states, version, kind)
        if kind == JSON:
            return 200, body, _IN_JSON
        return 200, body, [(b"content-type", kind.encode()), (b"x-policy-version", str(version).encode())]

    async def _body(self, scope, receive: Receive) -> bytes:
        length = _header(scope, b"content-length")
        if length is not None and int(length) > self._body_limit:
            raise BadRequest(413, f"a body may have {self._body_limit} bytes, but this one has {int(length)}")
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientHasGone
            body += message.get("body", b"")
            if len(body) > self._body_limit:
                raise BadRequest(413, f"a body may have {self._body_limit} bytes")
            if not message.get("more_body"):
                return body

    async def _health(self, scope, receive) -> tuple[int, bytes, list]:
        return 200, _json({"status": "ok", **self._version()}), _IN_JSON

    async def _metrics(self, scope, receive) -> tuple[int, bytes, list]:
        return 200, self._counts.text().encode(), [(b"content-type", b"text/plain; version=0.0.4")]

    async def _spec(self, scope, receive) -> tuple[int, bytes, list]:
        policy = self._model.policy
        one = example_of(policy)
        example = {"observation": plain(one.observations[0])}
        if one.states is not None:
            example["state"] = None
        if one.masks is not None:
            example["action_mask"] = plain(one.masks[0])
        previous = [f"prev_{name}" for name in ("action", "reward") if getattr(policy.previous_step, name, False)]
        spec = {
            "observation_space": space_to_json(policy.observation_space),
            "action_space": space_to_json(policy.action_space),
            "reads": [*example, *previous],
            "initial_state": plain(policy.get_initial_state()),
            "example": example,
            "metadata": policy.metadata,
            **self._version(),
        }
        return 200, _json(spec), _IN_JSON

    def _version(self) -> dict[str, Any]:
        return {"policy_version": self._model.policy.policy_version, "checkpoint": str(self._model.policy.checkpoint)}

    async def _reload(self, scope, receive) -> tuple[int, bytes, list]:
        if (kind := _header(scope, b"content-type")) is not None:
            content_kind(kind)
        try:
            changed = await self.take_up_newer(again=True)
        except CheckpointError as error:
            raise BadRequest(409, f"{error} The policy in use stays.") from None
        self._counts.add("reload_requests")
        return 200, _json({"changed": changed, **self._version()}), _IN_JSON

    async def take_up_newer(self, again: bool = False) -> bool:
        """Takes up a newer checkpoint while requests are answered. Returns whether there was one.

        Args:
            again: whether to try a checkpoint again that has been refused.

        Raises:
            CheckpointError: if it cannot be taken up; the present one stays in use.
        """
        async with self._reloading:
            if again:
                self._model.forgive()
            path = self._model.newer()
            if path is None:
                return False
            policy = await asyncio.get_running_loop().run_in_executor(None, self._model.prepare, path)
            self._model.take_up(policy)
            self._on_change()
            return True


class _ClientHasGone(Exception):
    """The client of a request has hung up."""


_json = msgspec.json.encode
_IN_JSON = [(b"content-type", JSON.encode())]
# Headers of errors with this status; others have _IN_JSON.
_HEADERS = {
    401: [*_IN_JSON, (b"www-authenticate", b"Bearer")],
    503: [*_IN_JSON, (b"retry-after", b"1")],
}


def _header(scope, name: bytes) -> bytes | None:
    for key, value in scope["headers"]:
        if key == name:
            return value
    return None
