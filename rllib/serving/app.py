"""The ASGI application of a policy server: routes and answers.

It uses ASGI directly: starlette's requests and responses would take a quarter of the throughput.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from rllib.did_you_mean import did_you_mean
from rllib.serving.candidate import Candidate
from rllib.serving.counts import Counts
from rllib.serving.endpoint import Endpoint
from rllib.serving.learner_channel import LearnerChannel
from rllib.serving.learning_endpoint import LearningEndpoint
from rllib.serving.model import Model, Served
from rllib.serving.tasks import ServingSettings
from rllib.storage.checkpoint import CheckpointError
from rllib.web.bodies import JSON, BadRequest, ClientHasGone, Receive, content_kind, header
from rllib.web.guard import Guard

logger = logging.getLogger(__name__)
Send = Callable[[dict[str, Any]], Awaitable[None]]
# Ids that a message lists.
_MOST_LISTED = 20


def not_taken_up(error: CheckpointError) -> str:
    """The message about a newer checkpoint that cannot be used."""
    text = str(error)
    return f"{text if text.endswith(('.', '?')) else f'{text}.'} The policy in use stays."


class App:
    """Answers HTTP requests with actions of the policies that are served.

    Args:
        model: has the policies.
        counts: counts of the server.
        settings: settings of the server.
        on_change: called after a change of the checkpoint.
        channel: to the learner; None: the server does not learn.
    """

    def __init__(
        self,
        model: Model,
        counts: Counts,
        settings: ServingSettings,
        on_change: Callable[[], None] = lambda: None,
        channel: LearnerChannel | None = None,
    ):
        self._model, self._counts, self._settings, self._on_change = model, counts, settings, on_change
        self._guard = Guard(settings.token)
        self._open = ["/health"] if settings.token is not None else []
        self._reloading = asyncio.Lock()
        self._routes: dict[str, tuple[str, Callable]] = {
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._metrics),
            "/reload": ("POST", self._reload),
            "/policies": ("GET", self._policies),
        }
        self._learning: LearningEndpoint | None = None
        for policy_id, served in model.served.items():
            endpoint = (
                Endpoint(served, counts, settings) if channel is None else self._learning_endpoint(served, channel)
            )
            for place in (f"/{policy_id}", "") if served is model.default else (f"/{policy_id}",):
                self._routes["/act" + place] = "POST", endpoint.act
                self._routes["/spec" + place] = "GET", endpoint.spec
                self._routes["/spaces" + place] = "POST", endpoint.spaces

    def _learning_endpoint(self, served: Served, channel: LearnerChannel) -> LearningEndpoint:
        settings = self._settings
        candidate = Candidate(settings.learning.candidate, self._model, settings.load_user_code)
        endpoint = self._learning = LearningEndpoint(served, candidate, channel, self._counts, settings)
        self._routes |= {
            "/reward": ("POST", endpoint.reward),
            "/stats": ("GET", endpoint.stats),
            "/resume": ("POST", endpoint.resume),
        }
        return endpoint

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answers one request of ASGI."""
        began = time.perf_counter()
        try:
            status, body, headers = await self._answered(scope, receive)
        except BadRequest as error:
            status, body, headers = error.status, _json({"error": error.message}), _HEADERS.get(error.status, _IN_JSON)
        except ClientHasGone:
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
            await self._guard.slow_down(scope)
            raise BadRequest(*refusal)
        if path not in self._routes:
            raise BadRequest(404, self._missing(path))
        method, handle = self._routes[path]
        if scope["method"] != method:
            raise BadRequest(405, f"{path} is for {method}")
        return await handle(scope, receive)

    def _missing(self, path: str) -> str:
        """Message for a path that is not served; it names the paths, or the policies, that there are."""
        ids = list(self._model.served)
        listed = ", ".join(ids[:_MOST_LISTED]) + (f", ... ({len(ids)} in all)" if len(ids) > _MOST_LISTED else "")
        if path in ("/act", "/spec", "/spaces"):
            return f"several policies are served: ask {path}/ID, where ID is one of {listed}"
        for place in ("/act/", "/spec/", "/spaces/"):
            if path.startswith(place):
                given = path.removeprefix(place)
                return f"there is no policy {given!r}; there are {listed}.{did_you_mean(given, ids, repr)}"
        paths = "/act, /spec, /spaces" if self._model.default is not None else "/act/ID, /spec/ID, /spaces/ID"
        learning = "" if self._learning is None else ", /reward, /stats, /resume"
        return f"there is no {path}; there are {paths}, /policies, /health, /metrics, /reload{learning}"

    async def _health(self, scope, receive) -> tuple[int, bytes, list]:
        return 200, _json({"status": "ok", **self._version()}), _IN_JSON

    async def _metrics(self, scope, receive) -> tuple[int, bytes, list]:
        return 200, self._counts.text().encode(), [(b"content-type", b"text/plain; version=0.0.4")]

    async def _policies(self, scope, receive) -> tuple[int, bytes, list]:
        return 200, _json({"policies": list(self._model.served), **self._version()}), _IN_JSON

    def _version(self) -> dict[str, Any]:
        return {"policy_version": self._model.policy.policy_version, "checkpoint": str(self._model.policy.checkpoint)}

    async def _reload(self, scope, receive) -> tuple[int, bytes, list]:
        if (kind := header(scope, b"content-type")) is not None:
            content_kind(kind)
        try:
            changed = await self.take_up_newer(again=True)
        except CheckpointError as error:
            raise BadRequest(409, not_taken_up(error)) from None
        self._counts.add("reload_requests")
        return 200, _json({"changed": changed, **self._version()}), _IN_JSON

    async def take_up_candidate(self) -> None:
        """Takes up the policy on trial, or forgets it, where the server learns."""
        if self._learning is not None:
            await self._learning.look()

    async def take_up_newer(self, again: bool = False) -> bool:
        """Takes up a newer checkpoint while requests are answered. Returns whether there was one.

        Args:
            again: whether a client requests it: then a checkpoint that was refused is tried again, and it is an error
                if there is none.

        Raises:
            CheckpointError: if it cannot be taken up; the present one stays in use.
        """
        async with self._reloading:
            if again:
                self._model.forgive()
            path = self._model.newer(expects_one=again)
            if path is None:
                return False
            policies = await asyncio.get_running_loop().run_in_executor(None, self._model.prepare, path)
            self._model.take_up(policies)
            self._on_change()
            return True


_json = msgspec.json.encode
_IN_JSON = [(b"content-type", JSON.encode())]
# Headers of errors with this status; others have _IN_JSON.
_HEADERS = {
    401: [*_IN_JSON, (b"www-authenticate", b"Bearer")],
    503: [*_IN_JSON, (b"retry-after", b"1")],
}
