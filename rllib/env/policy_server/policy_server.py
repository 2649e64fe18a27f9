"""A server of actions for loops in other processes.

Requests come over HTTP (http_transport.py) or ZeroMQ (zeromq_transport.py). They are checked here and handed to the
rollout worker (exchange.py), which chooses the actions (evaluation/external/worker.py):

| request            | body                                                              | answer           |
|--------------------|-------------------------------------------------------------------|------------------|
| GET /, /health     |                                                                   | status           |
| GET /v1/spec       |                                                                   | spaces, protocol |
| POST /v1/episodes  | episode_id?, training_enabled?, protocol?                         | episode_id       |
| POST /v1/act       | items: [{episode_id, observation, reward?, info?}]                | actions          |
| POST /v1/log       | items: [{episode_id, observation, action, reward?, info?}]        |                  |
| POST /v1/end       | items: [{episode_id, observation, reward?, info?, truncated?}]    |                  |
| POST /v1/spaces    | observation_space, action_space, as texts (spaces/notation.py)    |                  |
| GET /v1/weights    | ?have=EDITION; in MessagePack, 204 if nothing is newer            | the policy       |
| POST /v1/samples   | parts of episodes whose clients act themselves (forms.py: Part)   | policy_version   |

The reward of an item is that since the last action of its episode: one request a step is enough. Bodies may have
`client` and `seq`: a client that has lost an answer repeats its request with the same number, and nothing is counted
twice. A client may state its `protocol` and its spaces, and is refused where the server has others. With several agents
observations, actions, rewards and infos are dicts by agent, and `dones` and `truncateds` say which have ended.
"""

import logging
import ssl
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec

from rllib.env.external.checks import AGENT
from rllib.env.external.episodes import OpenEpisode
from rllib.env.external.exchange import EpisodeLost
from rllib.env.external.source import EpisodeSource
from rllib.env.policy_server.clients import Clients
from rllib.env.policy_server.forms import PROTOCOL, Have, Part, Request, Samples, Spaces, Start
from rllib.env.policy_server.items import ItemReader
from rllib.env.policy_server.pending_requests import (
    ENDS_EPISODE,
    Batch,
    ClientStepRequest,
    PendingRequests,
    Reply,
    refusal,
)
from rllib.env.policy_server.samples import Chains, Replay, checked
from rllib.env.policy_server.server_settings import ServerSettings
from rllib.env.policy_server.weights import ActionRows, PublishedPolicy
from rllib.env.spaces.actions import of_each
from rllib.env.traffic import Traffic, TrafficCounter
from rllib.storage.encoding import space_to_json
from rllib.web.bodies import JSON, MSGPACK, QUERY, BadRequest, plain, refuse_costly

logger = logging.getLogger(__name__)

# The end of the run waits so long for clients that have not been told of it, and were seen within this time (seconds).
LAST_WORDS_S = 2.0
# The transport ends within this time (seconds): its last answers are sent.
_CLOSED_S = 10.0
_REAP_INTERVAL_S = 1.0
# Share of episode_timeout_s for which whole episodes of other clients wait for the end of a silent one.
_SHARE_OF_PATIENCE = 0.1
# Paths that need no token.
OPEN_PATHS = "/", "/health"


class Route(NamedTuple):
    """The answering of the requests to one path.

    Attributes:
        method: of HTTP; GET changes nothing.
        handle: function of the request, decoded; gives the answer, or a batch that gives it; None: nothing is new.
        form: of the request's body, or of the query of GET; None: it has none.
        inference: where clients of this path act, "local" or "remote"; None: it is for both.
        kind: kind of the answer, where the request has no body.
    """

    method: str
    handle: Callable[[Any], "dict[str, Any] | Batch | None"]
    form: type | None = None
    inference: str | None = None
    kind: str = JSON


class Transport(Protocol):
    """Carries the requests of clients to a server, and its answers back.

    Its thread calls `ask` of the server, `answer_requests` after one or several requests and after `wake`, and
    `reap_idle` every `reap_interval_s`.

    Attributes:
        url: where clients find it.
    """

    url: str

    def run(self, server: "PolicyServer") -> None:
        """Serves until `stop`, and frees the port."""

    def wake(self) -> None:
        """Has `answer_requests` called soon; from any thread."""

    def stop(self, last_answer: tuple[int, Any] | None = None) -> None:
        """Ends `run`; from any thread.

        Args:
            last_answer: status and answer for clients that are connected and wait for none: to their next request.
        """


class PolicyServer(EpisodeSource):
    """A source of episodes whose loops are clients in other processes.

    Args:
        action_space, observation_space: spaces of the policy.
        settings: settings of the server.
        index: index of the worker, 0 for the only one.

    Attributes:
        url: where it listens, once it was opened.
        open_paths: need no token.
    """

    open_paths = OPEN_PATHS
    url: str | None = None
    standstill_s = 1.0

    def __init__(self, action_space, observation_space, settings: ServerSettings, index: int = 0):
        super().__init__(action_space, observation_space)
        self._settings, self._index = settings, index
        self._token = settings.token()
        self._routes = {
            **dict.fromkeys(OPEN_PATHS, Route("GET", lambda _: {"status": "ok"})),
            "/v1/spec": Route("GET", lambda _: self._spec),
            "/v1/spaces": Route("POST", self._compare_spaces, Spaces),
            "/v1/episodes": Route("POST", self._begin_episode, Start, "remote"),
            "/v1/act": Route("POST", self._act_all, Request, "remote"),
            "/v1/log": Route("POST", self._log_all, Request, "remote"),
            "/v1/end": Route("POST", self._end_all, Request, "remote"),
            "/v1/weights": Route("GET", self._weights, Have | None, "local", MSGPACK),
            "/v1/samples": Route("POST", self._accept_samples, Samples, "local"),
        }
        self._transport: Transport | None = None
        self._thread: int | None = None  # of the transport
        self._has_ended = threading.Event()
        # Step requests that another thread has answered, and whether the transport knows of them.
        self._answered: deque[ClientStepRequest | Replay] = deque()
        self._is_woken = False
        self._chains = Chains(settings.max_clients)
        self._requests = PendingRequests(settings.max_clients, self._chains.forget)
        self._clients = Clients(settings.max_episodes_per_client)
        self._items = ItemReader(self, self._episode_table)
        self._newest: dict[str, Any] = {}  # newest observation of each running episode
        self._unanswered: set[str] = set()  # episodes with a step request that is not answered
        self._policy: PublishedPolicy | None = None  # for clients that act themselves
        self._counter = TrafficCounter()

    # ------------------------------------------------------------------ the life of the server

    def open(self) -> None:
        """Opens the port.

        Raises:
            OSError: if it cannot be; the message names what to do.
        """
        host, port = self._settings.host, self._settings.port and self._settings.port + max(self._index - 1, 0)
        encryption: tuple = ()
        if self._settings.transport == "http":
            from rllib.env.policy_server.http_transport import HTTPTransport as Kind

            encryption = self._settings.tls_certificate, self._settings.tls_key
        else:
            from rllib.env.policy_server.zeromq_transport import ZeroMQTransport as Kind
        try:
            self._transport = Kind(host, port, self._token, *encryption)
        except ssl.SSLError as error:
            raise ValueError(
                f"tls_certificate={encryption[0]!r} and tls_key={encryption[1]!r} cannot be used ({error}). They are "
                "PEM files of a certificate and of its private key, without a password."
            ) from None
        except OSError as error:
            raise OSError(
                error.errno,
                f"the policy server cannot listen on {host}:{port} ({error.strerror}); "
                '.external(listen="127.0.0.1:0") takes a free port',
            ) from None
        self.url = self._transport.url
        logger.info("the policy server of worker %d listens on %s", self._index, self.url)

    def run(self) -> None:
        """Serves until the run ends."""
        self._thread = threading.get_ident()
        try:
            self._transport.run(self)
        finally:
            self._has_ended.set()

    def close(self) -> None:
        """Ends the server; its port is free afterwards. Clients learn that the run has ended.

        Those that ask within LAST_WORDS_S are answered; the connections of all others get the answer to their next
        request in advance.
        """
        began, error = time.monotonic(), self.exchange.error
        while error is not None and time.monotonic() < began + LAST_WORDS_S:
            if not self._requests.expects_clients(began - LAST_WORDS_S):
                break
            time.sleep(0.01)
        if self._transport is not None:
            self._transport.stop(None if error is None else refusal(error))
            if self._thread is not None:
                self._has_ended.wait(_CLOSED_S)

    @property
    def patience_s(self) -> float:
        return self._settings.episode_timeout_s * _SHARE_OF_PATIENCE

    def _loop_of(self, episode_id: str) -> str | None:
        # A client with a name has one request at a time; "" may stand for several clients.
        return self._clients.client_of(episode_id) or None

    @property
    def num_requests(self) -> int:
        """Number of requests so far."""
        return self._counter.requests

    @property
    def num_clients(self) -> int:
        """Number of clients, of those whose requests have numbers, that have asked and are remembered."""
        return self._requests.num_clients

    def take_traffic(self) -> Traffic:
        return self._counter.take(self.num_clients, len(self._episode_table.running), self.exchange.num_waiting())

    def describe_silence(self) -> str:
        return f"{self.num_clients} clients have asked {self.url} so far. Does one run?"

    def reap_idle(self) -> None:
        """Answers requests that have waited for long, gives up episodes that are silent, and forgets such clients."""
        try:
            self._reap_idle(time.monotonic())
        except Exception:  # the next look follows
            logger.exception("the server could not check its clients for silence")

    def _reap_idle(self, now: float) -> None:
        self._requests.expire(now, self._withdraw)
        limit = now - self._settings.episode_timeout_s
        for episode_id in [each for each in self._episode_table.running if self._is_idle(each, limit)]:
            self._give_up(episode_id)
        self._requests.forget_idle_clients(limit)

    @property
    def reap_interval_s(self) -> float:
        """Interval between calls of `reap_idle` (seconds)."""
        return min(_REAP_INTERVAL_S, self._settings.episode_timeout_s / 4, self._requests.longest_reap_interval_s)

    def _is_idle(self, episode_id: str, limit: float) -> bool:
        """Whether the client of an episode was not seen since this time (s), and waits for no answer."""
        is_waiting = episode_id in self._unanswered or self._requests.is_waiting(self._clients.client_of(episode_id))
        return not is_waiting and self._clients.is_idle(episode_id, limit)

    def _give_up(self, episode_id: str) -> None:
        """Truncates an episode whose client is gone at its last observation."""
        episode, newest = self._episode_table.running.get(episode_id), self._newest.get(episode_id)
        story = f"was given up after {self._settings.episode_timeout_s:g} s of silence"
        self._drop(episode_id, f"Episode {episode_id} {story}; start a new one.")
        self._counter.lost += 1
        if episode is None or newest is None:  # no agent has acted in the episode
            self._clients.release(episode_id)
            return
        logger.warning("episode %s %s", episode_id, story)
        step_request = self._step_request(episode, newest, None, (False, True))
        step_request.is_void = True
        self.exchange.submit(step_request)

    def _drop(self, episode_id: str, reason: str | None = None) -> None:
        self._newest.pop(episode_id, None)
        self._items.forget(episode_id)
        self._episode_table.end(episode_id, reason)

    def _withdraw(self, batch: Batch) -> None:
        """Withdraws a batch whose request cannot be repeated; ends of episodes stand, and are accepted later."""
        self._unanswered -= {each.episode_id for each in batch.step_requests if each.step.is_over}
        withdrawn = [each for each in batch.step_requests if not each.step.is_over and each.claim()]
        for step_request in withdrawn:
            self._unanswered.discard(step_request.episode_id)
            self._clients.touch("", [step_request.episode_id])  # its client asks again
            if (episode := self._episode_table.running.get(step_request.episode_id)) is not None:
                episode.withdraw(step_request)  # a repeated request brings its rewards again
        batch.step_requests = [each for each in batch.step_requests if each not in withdrawn]
        batch.num_open -= len(withdrawn)

    # ------------------------------------------------------------------ requests

    def route(self, path: str, method: str | None = None) -> Route:
        """Finds what answers the requests to a path.

        Raises:
            BadRequest: if there is none, or it is for another method of HTTP.
        """
        if path not in self._routes:
            known = ", ".join(each for each in self._routes if each != "/")
            raise BadRequest(404, f"there is no {path:.80}; there are {known}")
        if method not in (None, self._routes[path].method):
            raise BadRequest(405, f"{path} is for {self._routes[path].method}")
        return self._routes[path]

    def ask(self, route: Route, body: bytes, kind: str, reply: Reply) -> None:
        """Accepts a request; called in the transport's thread, which then calls `answer_requests`.

        Args:
            route: of its path.
            body: body of the request.
            kind: kind of the body, JSON, MSGPACK or QUERY.
            reply: function of status and answer, called once, in the transport's thread.
        """
        self._counter.requests += 1
        try:
            self._check_inference(route)
            request = None if route.form is None else _decoded(body, kind, route.form)
            if route.method == "GET":
                answer = route.handle(request)
                reply(204 if answer is None else 200, answer)
            else:
                self._clients.touch(request.client)
                self._requests.deduplicate(request, hash((route, body)), route.handle, reply)
        except Exception as error:
            reply(*refusal(error))

    def answer_requests(self) -> None:
        """Has submitted step requests answered, and replies to requests whose step requests are answered."""
        self._is_woken = False
        while self._answered:
            self._accept_answer(self._answered.popleft())
        self.exchange.answer_waiting()

    @cached_property
    def _spec(self) -> dict[str, Any]:
        def encoded(space):
            by_agent = space if isinstance(space, dict) else {}
            return {str(agent): space_to_json(each) for agent, each in by_agent.items()} or space_to_json(space)

        return {
            "protocol": PROTOCOL,
            "observation_space": encoded(self.observation_space),
            "action_space": encoded(self.action_space),
            "several_agents": self.has_several_agents,
            "inference": self._settings.inference,
        }

    def _notify(self, step_request: "ClientStepRequest | Replay") -> None:
        """Notes an answer, in any thread."""
        if threading.get_ident() == self._thread:
            self._accept_answer(step_request)
            return
        self._answered.append(step_request)
        if not self._is_woken:
            self._is_woken = True
            self._transport.wake()

    def _accept_answer(self, step_request: "ClientStepRequest | Replay") -> None:
        if step_request.ends or isinstance(step_request.error, ENDS_EPISODE):
            self._clients.release(step_request.episode_id)
        if step_request.batch is not None:  # not of an episode that was given up
            self._requests.accept_answer(step_request.batch)

    def _batch_of(self, step_requests: list, client: str, answer: Callable[[list], dict[str, Any]]) -> Batch:
        """The step requests of a client's request; `answer`: function of them that gives its answer."""

        def concluded(answered: list) -> dict[str, Any]:
            episode_ids = [step_request.episode_id for step_request in answered]
            self._unanswered.difference_update(episode_ids)
            for step_request in answered:
                if isinstance(step_request.error, ENDS_EPISODE):
                    self._drop(step_request.episode_id)
            self._clients.touch(client, episode_ids)
            return answer(answered)

        return Batch(step_requests, concluded)

    # ------------------------------------------------------------------ clients that act themselves

    @property
    def publishes_policy(self) -> bool:
        """Whether clients may get the policy."""
        return self._settings.inference != "remote" and not self.has_several_agents

    def publish(self, policy: PublishedPolicy) -> None:
        """Gives clients this version of the policy from now on."""
        self._policy = policy

    def _check_inference(self, route: Route) -> None:
        """Raises BadRequest for a request of clients that this server does not serve."""
        if route.inference is None:
            return
        if route.inference == "local" and self.has_several_agents:
            raise BadRequest(409, "clients of episodes with several agents cannot act themselves: ask for actions")
        mode = self._settings.inference
        if mode not in ("both", route.inference):
            raise BadRequest(
                409, f"this server allows .external(inference={mode!r}) alone: use inference_mode={mode!r}"
            )

    def _published(self) -> PublishedPolicy:
        if self.exchange.error is not None:
            raise self.exchange.error
        if self._policy is None:
            self._requests.expect_retry()
            raise BadRequest(503, "the algorithm has not sampled yet; ask again")
        return self._policy

    def _weights(self, request: Have | None) -> dict[str, Any] | None:
        """The whole policy, or what has changed since the edition that the client has; None: nothing has."""
        policy, have = self._published(), request and request.have
        if have is None:
            return policy.whole()
        return None if have == policy.edition else policy.state()

    def _accept_samples(self, request: Samples) -> Batch:
        """Submits parts of episodes; the answer comes when the worker has begun with each of them."""
        if not request.client:
            raise BadRequest(422, "parts of episodes need client and seq, so that none is accepted twice")
        rows, ids = self._published().rows, {part.episode_id for part in request.parts}
        if len(ids) < len(request.parts):
            raise BadRequest(422, "an episode may have one part in a request")
        if waiting := ids & self._unanswered:
            raise BadRequest(409, f"episode {min(waiting):.80} waits for the answer to another request")
        # All parts are looked at before any is accepted.
        parts = [checked(part, self.observation_space, rows) for part in request.parts]
        for part in parts if self.mask_problem is not None else ():
            self._legal_part(part, rows)
        self._clients.check_room(request.client, sum(part.is_first and part.end is None for part in parts))
        self._unanswered |= ids
        lost: dict[str, str] = {}
        made = [self._replay(part, request.client, lost) for part in parts]
        replays = [replay for replay in made if replay is not None]
        first, alone = self._chains.link(request.client, replays)

        def answer(begun: list[Replay]) -> dict[str, Any]:
            self._unanswered -= ids
            for replay in begun:
                if isinstance(replay.error, EpisodeLost):
                    lost[replay.episode_id] = str(replay.error)
                elif replay.error is not None:
                    raise replay.error
            policy = self._published()
            is_wanted = request.have is not None and request.have != policy.edition
            return {**(policy.state() if is_wanted else policy.clock()), "lost": lost}

        step_requests = self._batch_of(first, request.client, answer)
        for replay in alone:
            self.exchange.submit_to_worker(replay)
        return step_requests

    def _replay(self, part: Part, client: str, lost: dict[str, str]) -> Replay | None:
        """The step requests of a part; None for an episode that is lost, with the reason by its id."""
        try:
            if part.is_first:
                self._open_episode(part.episode_id, part.training_enabled, client)
            self._episode_table.find(part.episode_id).num_requests += len(part.observations)
        except ValueError as error:
            lost[part.episode_id] = str(error)
            return None
        if part.end is not None:
            self._drop(part.episode_id)
        else:
            self._newest[part.episode_id] = {AGENT: part.observations[-1]}
        return Replay(part, self._notify)

    # ------------------------------------------------------------------ clients that ask for actions

    def _begin_episode(self, request: Start) -> dict[str, Any]:
        if self.exchange.error is not None:
            raise self.exchange.error
        if request.protocol != PROTOCOL:
            raise BadRequest(
                426,
                f"the client speaks version {request.protocol} of the protocol, and this server {PROTOCOL}: use the "
                "client of the server's rllib",
            )
        self._clients.check_room(request.client, 1)
        try:
            episode_id = self._open_episode(request.episode_id, request.training_enabled, request.client)
        except ValueError as error:
            raise BadRequest(409, str(error)) from None
        return {"episode_id": episode_id}

    def _open_episode(self, episode_id: str | None, trains: bool, client: str) -> str:
        """Starts an episode of a client; arguments and errors as for EpisodeTable.start."""
        episode_id = self._episode_table.start(episode_id, trains)
        self._clients.add(client, episode_id)
        return episode_id

    def _compare_spaces(self, request: Spaces) -> dict[str, Any]:
        own = {"observation_space": self.observation_space, "action_space": self.action_space}
        request.refuse_others(own, "the run")
        return {}

    def _act_all(self, request: Request) -> Batch:
        began = time.perf_counter()

        def answer(found: list[Mapping]) -> dict[str, Any]:
            self._counter.acted(time.perf_counter() - began)
            return {"actions": [plain(actions if self.has_several_agents else actions[AGENT]) for actions in found]}

        return self._submit_items(request, answer)

    def _log_all(self, request: Request) -> Batch:
        return self._submit_items(request, lambda _: {}, is_logged=True)

    def _end_all(self, request: Request) -> Batch:
        return self._submit_items(request, lambda _: {}, ends=True)

    def _submit_items(
        self,
        request: Request,
        answer: Callable[[list[Mapping]], dict[str, Any]],
        is_logged: bool = False,
        ends: bool = False,
    ) -> Batch:
        """Submits a step request for each item.

        Args:
            request: with the items.
            answer: function of the actions of all step requests, which gives the answer to the request.
            is_logged: whether each item has an action that the policy has not chosen.
            ends: whether the episodes end.
        """
        if not request.items:
            raise BadRequest(422, "items must hold at least one item")
        ids = {item.episode_id for item in request.items}
        if len(ids) < len(request.items):
            raise BadRequest(422, "an episode may stand in one item of a request")
        if waiting := ids & self._unanswered:
            raise BadRequest(409, f"episode {min(waiting):.80} waits for the answer to another request")
        step_requests = []
        for episode, item, seen, rewards, infos, action in self._items.read(request.items, is_logged, ends):
            episode.add(rewards, infos)
            episode.terminateds.update(item.dones)
            episode.truncateds.update(item.truncateds)
            end = (not item.truncated, item.truncated) if ends else None
            step_request = self._step_request(episode, seen, action, end)
            if ends:
                self._drop(episode.id)
            else:
                self._newest[episode.id] = seen
            step_requests.append(step_request)
        self._unanswered |= ids
        made = self._batch_of(step_requests, request.client, lambda answered: answer(_actions_of(answered)))
        for step_request in step_requests:
            self.exchange.submit(step_request)
        return made

    def _step_request(self, episode: OpenEpisode, seen, action, end) -> ClientStepRequest:
        step, is_first = episode.step(seen, end), episode.num_requests == 0
        episode.num_requests += 1
        return ClientStepRequest(self._notify, episode.id, step, action, episode.trains, is_first)

    def _legal_part(self, part: Part, rows: ActionRows) -> None:
        if len(part.observations) == (part.end is not None):  # the final observation has no action
            return
        for seen, action in zip(part.observations, of_each(rows.mapper.space, rows.mapper.to_env(part.actions))):
            self._items.check_legal({AGENT: seen}, {AGENT: action})


class PolicyServerOfAgents(PolicyServer):
    """A PolicyServer of environments with several agents."""

    has_several_agents = True


def _actions_of(step_requests: list[ClientStepRequest]) -> list[Mapping]:
    """The actions of step requests that are answered; raises the first error of one."""
    for step_request in step_requests:
        if step_request.error is not None:
            raise step_request.error
    return [step_request.actions for step_request in step_requests]


def _decoded(body: bytes, kind: str, form: type) -> Any:
    try:
        if kind == QUERY:
            return msgspec.convert(dict(urllib.parse.parse_qsl(body.decode("latin-1"))), form, strict=False)
        refuse_costly(body, kind)
        return msgspec.msgpack.decode(body, type=form) if kind == MSGPACK else msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as error:
        raise BadRequest(422, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        name = "MessagePack" if kind == MSGPACK else "JSON"
        raise BadRequest(400, f"the body is not {name}: {error}") from None
