"""A server of actions for loops in other processes: HTTP with JSON or MessagePack, for any client.

| request            | body                                                              | answer           |
|--------------------|-------------------------------------------------------------------|------------------|
| GET /, /health     |                                                                   | status           |
| GET /v1/spec       |                                                                   | spaces, protocol |
| POST /v1/episodes  | episode_id?, training_enabled?                                    | episode_id       |
| POST /v1/act       | items: [{episode_id, observation, reward?, info?}]                | actions          |
| POST /v1/log       | items: [{episode_id, observation, action, reward?, info?}]        |                  |
| POST /v1/end       | items: [{episode_id, observation, reward?, info?, truncated?}]    |                  |
| POST /v1/spaces    | observation_space, action_space, as texts (spaces/notation.py)    |                  |

The reward of an item is that since the last action of its episode: one request a step is enough. Bodies may have
`client` and `seq`: a client that has lost an answer repeats its request with the same number, and nothing is counted
twice. With several agents observations, actions, rewards and infos are dicts by agent, and `dones` and `truncateds` say
which have ended.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import uvicorn

from rllib.env.external.exchange import EpisodeLost, RunEnded, Turn
from rllib.env.external.external_env import ACTION_TIMEOUT_S, AGENT, ExternalEnv, ExternalMultiAgentEnv
from rllib.env.spaces.notation import form_of, spaces_from_text
from rllib.env.traffic import Traffic, TrafficCounter
from rllib.storage.encoding import space_to_json
from rllib.web.bodies import (
    JSON,
    MSGPACK,
    NO_ARRAY,
    BadRequest,
    ClientHasGone,
    Receive,
    content_kind,
    plain,
    read_body,
    with_arrays,
)
from rllib.web.guard import Guard, server_config
from rllib.web.sockets import is_loopback, listen, url_of

logger = logging.getLogger(__name__)

PROTOCOL = 1
TOKEN_VARIABLE = "RLLIB_TOKEN"
BODY_LIMIT = 64 << 20
# Seconds after which a request that waits is answered with 503, so that its client knows that the server lives.
HOLD_S = 15.0
# The end of the run waits so long for clients that have not heard of it (seconds).
LAST_WORDS_S = 2.0
_LOOKED_AFTER_S = 1.0


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a policy server.

    Attributes:
        host, port: where it listens; port 0 takes a free one. Worker i listens on port + i - 1.
        token_file: file with the token that requests must carry; None: that of the variable RLLIB_TOKEN, if it is set.
        episode_timeout_s: an episode that is silent for so long is given up (seconds).
        max_clients: most clients whose requests have numbers.
    """

    host: str
    port: int
    token_file: str | None = None
    episode_timeout_s: float = 300.0
    max_clients: int = 1024

    @classmethod
    def of_address(cls, address: str, **more) -> "ServerSettings":
        """Reads "HOST:PORT".

        Raises:
            ValueError: for another form.
        """
        host, separator, port = address.rpartition(":")
        if not separator or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f'an address is "HOST:PORT", such as "127.0.0.1:9900", but got {address!r:.80}')
        return cls(host.strip("[]"), int(port), **more)

    def token(self) -> str | None:
        """The token that requests must carry; None: they need none.

        Raises:
            ValueError: if there is none, and other machines reach the address.
        """
        if self.token_file is not None:
            with open(self.token_file) as file:
                return file.read().strip()
        token = os.environ.get(TOKEN_VARIABLE) or None
        if token is None and not is_loopback(self.host):
            raise ValueError(
                f"a server that listens on {self.host} without a token lets anyone on the network steer this run. "
                f"Put a token into the variable {TOKEN_VARIABLE} or into token_file, or listen on 127.0.0.1."
            )
        return token


class _Item(msgspec.Struct, forbid_unknown_fields=True):
    episode_id: str
    observation: Any
    reward: Any = None
    info: Any = None
    action: Any = msgspec.UNSET
    truncated: bool = False
    dones: dict[str, bool] = {}
    truncateds: dict[str, bool] = {}


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    items: list[_Item] = []
    client: str = ""
    seq: int = 0


class _Start(msgspec.Struct, forbid_unknown_fields=True):
    episode_id: str | None = None
    training_enabled: bool = True
    client: str = ""
    seq: int = 0


class Spaces(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a request with the spaces of a client, each a text, or texts by agent."""

    observation_space: str | dict[str, str]
    action_space: str | dict[str, str]
    client: str = ""
    seq: int = 0


class _AwaitedTurn(Turn):
    """A turn whose answer is awaited in an event loop."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._loop, self._future = loop, loop.create_future()

    def answer(self, actions: Mapping) -> None:
        self.is_answered = True
        self._tell(self._future.set_result, actions)

    def fail(self, error: BaseException) -> None:
        self.is_answered = True
        self._tell(self._future.set_exception, error)

    def _tell(self, function: Callable, value) -> None:
        def set_unless_done():
            if not self._future.done():
                function(value)

        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            self._loop.call_soon_threadsafe(set_unless_done)

    @property
    def answered(self) -> asyncio.Future:
        """The actions, once they are there."""
        return self._future


class PolicyServer(ExternalEnv):
    """An external environment whose loops are clients in other processes.

    Args:
        action_space, observation_space: of the policy.
        settings: of the server.
        index: of the worker, 0 for the only one.

    Attributes:
        url: where it listens, once it was opened.
        num_requests: so far.
    """

    url: str | None = None
    num_requests = 0

    def __init__(self, action_space, observation_space, settings: ServerSettings, index: int = 0):
        super().__init__(action_space, observation_space)
        self._settings, self._index = settings, index
        self._has_several = isinstance(self, ExternalMultiAgentEnv)
        self._socket = self._server = None
        self._guard = Guard(settings.token())
        self._has_ended = threading.Event()
        self._clients: dict[str, tuple[int, asyncio.Task]] = {}
        self._heard: dict[str, float] = {}  # when each running episode was heard of last
        self._newest: dict[str, Any] = {}  # and its newest observation
        self._asked: set[str] = set()  # episodes with a turn that is not answered
        self._counter = TrafficCounter()

    # ------------------------------------------------------------------ the life of the server

    def open(self) -> None:
        """Opens the port.

        Raises:
            OSError: if it cannot be; the message names what to do.
        """
        port = self._settings.port and self._settings.port + max(self._index - 1, 0)
        try:
            self._socket = listen(self._settings.host, port)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the policy server cannot listen on {self._settings.host}:{port} ({error.strerror}); "
                '.external(listen="127.0.0.1:0") takes a free port',
            ) from None
        self.url = url_of(self._settings.host, self._socket.getsockname()[1])
        logger.info("the policy server of worker %d listens on %s", self._index, self.url)

    def run(self) -> None:
        """Serves until the run ends."""
        self._server = uvicorn.Server(server_config(self._app, interface="asgi3"))
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        watch = self._loop.create_task(self._give_up_silent_episodes())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            watch.cancel()
            self._socket.close()
            self._has_ended.set()

    def close(self) -> None:
        """Ends the server; its port is free afterwards. Clients that ask meanwhile learn that the run has ended."""
        deadline = time.monotonic() + LAST_WORDS_S
        while self._clients and self.exchange.error is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._server is not None:
            self._server.should_exit = True
            self._has_ended.wait(LAST_WORDS_S)
        elif self._socket is not None:
            self._socket.close()

    def take_traffic(self) -> Traffic:
        return self._counter.take(len(self._clients), len(self._running), self.exchange.num_waiting())

    def describe_silence(self) -> str:
        return f"{len(self._clients)} clients have asked {self.url} so far. Does one run?"

    async def _give_up_silent_episodes(self) -> None:
        """Truncates episodes whose clients are gone at their last observations."""
        while True:
            await asyncio.sleep(min(_LOOKED_AFTER_S, self._settings.episode_timeout_s / 4))
            limit = time.monotonic() - self._settings.episode_timeout_s
            silent = [each for each, heard in self._heard.items() if heard < limit and each not in self._asked]
            for episode_id in silent:
                episode, newest = self._running.get(episode_id), self._newest.get(episode_id)
                self._drop(episode_id)
                self._counter.lost += 1
                if episode is not None and newest is not None:
                    logger.warning(
                        "episode %s was given up after %g s of silence", episode_id, self._settings.episode_timeout_s
                    )
                    turn = self._awaited(episode, newest, None, (False, True))
                    turn.is_void = True
                    self.exchange.hand_over(turn)

    def _drop(self, episode_id: str) -> None:
        self._heard.pop(episode_id, None)
        self._newest.pop(episode_id, None)
        self._forget(episode_id)

    # ------------------------------------------------------------------ requests

    async def _app(self, scope: dict[str, Any], receive: Receive, send: Callable[[dict], Awaitable[None]]) -> None:
        """The application of ASGI."""
        self.num_requests += 1
        self._counter.requests += 1
        kind = JSON
        try:
            status, answer, kind = await self._answered(scope, receive)
        except BadRequest as error:
            status, answer = error.status, {"error": error.message}
        except ClientHasGone:
            return
        except EpisodeLost as error:
            status, answer = 409, {"error": str(error), "lost": True}
        except RunEnded as error:
            status, answer = 503, {"error": str(error), "ended": True}
        except Exception:
            logger.exception("a request to %s failed", scope["path"])
            status, answer = 500, {"error": "the server failed; its log says more"}
        body = (msgspec.msgpack if kind == MSGPACK else msgspec.json).encode(answer)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        if status == 503:
            headers.append((b"retry-after", b"1"))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope, receive: Receive) -> tuple[int, Any, str]:
        path, method = scope["path"], scope["method"]
        is_open = path in ("/", "/health")
        if not is_open and (refusal := self._guard.refusal(scope)):
            raise BadRequest(*refusal)
        if is_open or path == "/v1/spec":
            if method != "GET":
                raise BadRequest(405, f"{path} is for GET")
            return 200, {"status": "ok"} if is_open else self._spec(), JSON
        known = {
            "/v1/episodes": (_Start, self._begin_episode),
            "/v1/act": (_Request, self._act_all),
            "/v1/log": (_Request, self._log_all),
            "/v1/end": (_Request, self._end_all),
            "/v1/spaces": (Spaces, self._compare_spaces),
        }
        if path not in known:
            raise BadRequest(404, f"there is no {path}; there are /health, /v1/spec, {', '.join(known)}")
        if method != "POST":
            raise BadRequest(405, f"{path} is for POST")
        kind = content_kind(dict(scope["headers"]).get(b"content-type", b""))
        if kind not in (JSON, MSGPACK):
            raise BadRequest(415, f"a body is {JSON} or {MSGPACK}")
        request = decoded(await read_body(scope, receive, BODY_LIMIT), kind, known[path][0])
        return 200, await self._once(request, known[path][1]), kind

    def _spec(self) -> dict[str, Any]:
        def encoded(space):
            by_agent = space if isinstance(space, dict) else {}
            return {str(agent): space_to_json(each) for agent, each in by_agent.items()} or space_to_json(space)

        return {
            "protocol": PROTOCOL,
            "observation_space": encoded(self.observation_space),
            "action_space": encoded(self.action_space),
            "several_agents": self._has_several,
        }

    async def _once(self, request: _Request | _Start, answer: Callable[[Any], Awaitable[Any]]) -> Any:
        """The answer of a request; of one that is repeated, that of the first time.

        Raises:
            BadRequest: 503 after HOLD_S, when the algorithm does not sample; the client asks again.
        """
        if not request.client:
            task = self._loop.create_task(answer(request))
            await asyncio.wait({task}, timeout=ACTION_TIMEOUT_S)
            if not task.done():
                raise BadRequest(503, f"the algorithm has not sampled for {ACTION_TIMEOUT_S:g} s: is train() running?")
            return task.result()
        if request.seq < 1:
            raise BadRequest(422, "a request with a client needs seq, its number, which counts from 1")
        seq, task = self._clients.pop(request.client, (0, None))
        if task is not None:
            self._clients[request.client] = seq, task  # behind those that were heard of earlier
        if request.seq < seq:
            raise BadRequest(409, f"client {request.client:.40} has sent number {seq} already, and now {request.seq}")
        if task is None and len(self._clients) >= self._settings.max_clients:
            self._forget_a_client()
        if request.seq != seq:
            task = self._loop.create_task(answer(request))
            self._clients[request.client] = request.seq, task
        await asyncio.wait({task}, timeout=HOLD_S)
        if not task.done():
            raise BadRequest(503, "the algorithm does not sample at the moment; ask again")
        try:
            return task.result()
        except RunEnded:
            self._clients.pop(request.client, None)
            raise

    def _forget_a_client(self) -> None:
        """Forgets the client that was heard of first and waits for nothing.

        Raises:
            BadRequest: if all wait.
        """
        for name, (_, task) in self._clients.items():
            if task.done():
                del self._clients[name]
                return
        raise BadRequest(429, f"there are {len(self._clients)} clients, and max_clients={self._settings.max_clients}")

    async def _begin_episode(self, request: _Start) -> dict[str, Any]:
        if self.exchange.error is not None:
            raise self.exchange.error
        try:
            episode_id = self.start_episode(request.episode_id, request.training_enabled)
        except ValueError as error:
            raise BadRequest(409, str(error)) from None
        self._heard[episode_id] = time.monotonic()
        return {"episode_id": episode_id}

    async def _compare_spaces(self, request: Spaces) -> dict[str, Any]:
        for name, form in (("observation_space", form_of), ("action_space", lambda space: space)):
            own = getattr(self, name)
            try:
                given = spaces_from_text(getattr(request, name))
            except ValueError as error:
                raise BadRequest(422, str(error)) from None
            if form(given) != form(own):
                raise BadRequest(409, f"the {name} of the client is {given}, but that of the run is {own}")
        return {}

    async def _act_all(self, request: _Request) -> dict[str, Any]:
        began = time.perf_counter()
        found = await self._turns(request, lambda item: None, end=None)
        self._counter.acted(time.perf_counter() - began)
        return {"actions": [plain(actions if self._has_several else actions[AGENT]) for actions in found]}

    async def _log_all(self, request: _Request) -> dict[str, Any]:
        def logged(item: _Item) -> Mapping:
            if item.action is msgspec.UNSET:
                raise BadRequest(422, "an item of /v1/log needs the action")
            return self._by_agent("action", item.action)

        await self._turns(request, logged, end=None)
        return {}

    async def _end_all(self, request: _Request) -> dict[str, Any]:
        await self._turns(request, lambda item: None, end=True)
        return {}

    async def _turns(
        self, request: _Request, logged: Callable[[_Item], Mapping | None], end: bool | None
    ) -> list[Mapping]:
        """Hands over a turn for each item, and waits for all answers."""
        if not request.items:
            raise BadRequest(422, "items must hold at least one item")
        ids = {item.episode_id for item in request.items}
        if len(ids) < len(request.items):
            raise BadRequest(422, "an episode may stand in one item of a request")
        if waiting := sorted(ids & self._asked):
            raise BadRequest(409, f"episode {waiting[0]:.80} waits for the answer to another request")
        # All items are looked at before any is taken in.
        given = [(item, self._episode(item), self._by_agent("observation", item.observation)) for item in request.items]
        if self._has_several and any(not isinstance(item.info, dict | None) for item in request.items):
            raise BadRequest(422, "with several agents, infos are a dict by agent")
        rewards = [self._rewards(item, episode) for item, episode, _ in given]
        actions = [logged(item) for item, *_ in given]
        turns = []
        for (item, episode, seen), reward, action in zip(given, rewards, actions):
            infos = item.info or {} if self._has_several else {AGENT: item.info} if item.info else {}
            self._add_rewards(episode, reward, infos)
            episode.terminateds.update(item.dones)
            episode.truncateds.update(item.truncateds)
            turn = self._awaited(episode, seen, action, end and (not item.truncated, item.truncated))
            if end:
                self._drop(episode.id)
            else:
                self._heard[episode.id], self._newest[episode.id] = time.monotonic(), seen
            self.exchange.hand_over(turn)
            turns.append(turn)
        self._asked |= ids
        try:
            answers = await asyncio.gather(*(turn.answered for turn in turns), return_exceptions=True)
        finally:
            self._asked -= ids
        for (_, episode, _), answer in zip(given, answers):
            if isinstance(answer, EpisodeLost):
                self._drop(episode.id)
            elif not end:
                self._heard[episode.id] = time.monotonic()
        if errors := [answer for answer in answers if isinstance(answer, BaseException)]:
            raise errors[0]
        return answers

    def _awaited(self, episode, seen, action, end) -> _AwaitedTurn:
        step, is_first = episode.step(seen, end), episode.num_turns == 0
        episode.num_turns += 1
        return _AwaitedTurn(self._loop, episode.id, step, action, episode.trains, is_first)

    def _episode(self, item: _Item):
        try:
            return self._found(item.episode_id)
        except ValueError as error:  # it has ended, was given up, or is of a server before this one
            raise BadRequest(410, str(error)) from None

    def _rewards(self, item: _Item, episode) -> Mapping:
        rewards = item.reward if self._has_several else {AGENT: item.reward}
        if item.reward is None:
            return {}
        if not isinstance(rewards, Mapping):
            raise BadRequest(422, "with several agents, rewards are a dict by agent")
        try:
            return {agent: self._finite(episode, agent, reward) for agent, reward in rewards.items()}
        except ValueError as error:
            raise BadRequest(400, str(error)) from None

    def _by_agent(self, kind: str, value: Any) -> Mapping:
        """An observation or action of a body, as values of its space, by agent."""
        if self._has_several and not isinstance(value, Mapping):
            raise BadRequest(422, f"with several agents, {kind}s are a dict by agent")
        values = value if self._has_several else {AGENT: value}
        try:
            values = {agent: with_arrays(each) for agent, each in values.items()}
        except NO_ARRAY as error:
            raise BadRequest(422, f'an array of MessagePack is {{"$array": [dtype, shape, bytes]}}: {error}') from None
        for agent, each in values.items():
            try:
                self._check(kind, each, agent)
            except ValueError as error:
                raise BadRequest(400, str(error)) from None
        return values


class PolicyServerOfAgents(PolicyServer, ExternalMultiAgentEnv):
    """A PolicyServer of environments with several agents."""


def decoded(body: bytes, kind: str, form: type) -> Any:
    """Decodes a body as a structure.

    Raises:
        BadRequest: 400 if it is no JSON or MessagePack, 422 if it has another form.
    """
    try:
        return msgspec.msgpack.decode(body, type=form) if kind == MSGPACK else msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as error:
        raise BadRequest(422, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        name = "MessagePack" if kind == MSGPACK else "JSON"
        raise BadRequest(400, f"the body is not {name}: {error}") from None
