"""A client of a policy server, for simulators in other processes. One file, which needs numpy and nothing else.

The server is that of a run, `rllib train --external`, or `rllib serve`, which has a trained policy: a simulator's
program is the same for both.

Addresses "tcp://HOST:PORT", of ZeroMQ, need pyzmq and msgspec as well.

    with PolicyClient("http://127.0.0.1:9900") as client:
        while True:
            episode, observation, done = client.start_episode(), simulator.begin(), False
            while not done:
                action = client.get_action(episode, observation)
                observation, reward, done = simulator.step(action)
                client.log_returns(episode, reward)
            client.end_episode(episode, observation)

It may be copied into a simulator that has no rllib, and runs on Python 3.9 and later. With inference_mode="local" it
needs rllib: the client acts by a copy of the policy, and sends its steps in parts.
"""

import contextlib
import http.client
import itertools
import json
import logging
import math
import os
import select
import socket
import ssl
import struct
import time
import urllib.parse
import uuid
from collections.abc import Mapping

import numpy as np

_logger = logging.getLogger("rllib")

PROTOCOL = 1
_JSON, _MSGPACK = "application/json", "application/msgpack"
# A server that cannot be reached for this long is logged; a server that is restarted is back sooner.
_SILENT_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
# Between two requests that are answered with 503 (seconds).
_LEAST_PAUSE_S = 0.5
# The server holds a request for 15 s.
_LEAST_TIMEOUT_S = 20.0
# ZeroMQ: a connection is made within this time, and one that waits for an answer is looked at this often (seconds).
_CONNECT_S, _LOOK_S = 2.0, 0.5
_NEVER_MS = 2**30
_MOST_BYTES = 64 << 20
# What the server takes: characters of ids and names, and the size of a reward.
_LONGEST_NAME, _LARGEST_REWARD = 128, 1e9
# What the policy of `rllib serve` may read.
_SENT = ("observation", "state", "prev_action", "prev_reward")
# Names that stand for no agent.
_ALL, _COMMON = "__all__", "__common__"


class EpisodeLost(Exception):
    """An episode cannot continue, since the run was restored or has given it up: start a new one."""


class RunEnded(Exception):
    """The run that the server samples for has ended."""


class _NoPath(ValueError):
    """The server does not know the path of a request."""


class PolicyClient:
    """Asks a policy server for actions, and reports rewards.

    `rllib serve` acts by its most probable actions, and does nothing with rewards and `log_action`. With --learn it
    samples actions, but for episodes with training_enabled=False, and learns from the rewards; steps are not learned
    from while its learner is replaced.

    A call waits while the algorithm learns, and keeps trying while the server cannot be reached; nothing is counted
    twice. Use a client in one thread; several clients may ask one server.

    Args:
        address: address of the server, "http://HOST:PORT" or "HOST:PORT"; "tcp://HOST:PORT" for ZeroMQ.
        inference_mode: "remote", the server computes the actions; "local", this process does, which needs rllib.
        update_interval: with local inference, most seconds until newer weights are asked for; 0: at each episode's
            start; None: `update_policy_weights` alone asks. Where the server drops rows by old weights, newer ones are
            taken as soon as there are any, unless it is None.
        session: accepted for programs written for RLlib; it has no effect, which a warning says.
        token: token of the server; by default that of the variable RLLIB_TOKEN.
        timeout_s: time limit of one request (seconds).
        retry_s: keeps trying for this long (seconds).
        fragment_length: with local inference, most steps that are kept before they are sent. The client acts on while
            they are under way, so that errors which concern them are raised by a later call.
        seed: with local inference, of the actions that are sampled.
        observation_space, action_space: spaces of the simulator, as spaces of gymnasium or texts, "Box(-inf, inf,
            (4,))" and "Discrete(2)"; with several agents dicts by agent, whose keys are strings. They are the run's if
            it was started without; else the first request is refused if they differ from the run's, or the served
            policy's.
        ca_file: PEM file of the certificates that are trusted, of an https:// address; None: those of the system.

    Raises:
        ValueError: for another inference_mode, an address of another form, spaces of agents that are no strings, or
            local inference where the server does not allow it, or episodes have several agents.
        ModuleNotFoundError: for local inference without rllib.
    """

    def __init__(
        self,
        address,
        inference_mode="remote",
        update_interval=10.0,
        session=None,
        *,
        token=None,
        timeout_s=30.0,
        retry_s=60.0,
        fragment_length=100,
        seed=None,
        observation_space=None,
        action_space=None,
        ca_file=None,
    ):
        if session is not None:
            _logger.warning("PolicyClient: session has no effect: each client makes its own number.")
        if inference_mode not in ("remote", "local"):
            raise ValueError(f"inference_mode must be 'remote' or 'local', but is {inference_mode!r}")
        if fragment_length < 1:
            raise ValueError(f"fragment_length must be at least 1, but is {fragment_length!r}")
        if timeout_s < _LEAST_TIMEOUT_S:
            raise ValueError(f"timeout_s must be at least {_LEAST_TIMEOUT_S:g}: the server holds a request for 15 s")
        parts = parts_of_address(address)
        self._given_address = address
        self._address, self._retry_s = f"{parts.hostname}:{parts.port}", retry_s
        is_local = inference_mode == "local"
        acting = _local_acting() if is_local else None
        if ca_file is not None and parts.scheme != "https":
            raise ValueError(f"ca_file checks the certificate of https://HOST:PORT, but the address is {address!r}")
        kind = _ZeroMQConnection if parts.scheme == "tcp" else _PackedHTTPConnection if is_local else _HTTPConnection
        self._connection = kind(parts, (token or os.environ.get("RLLIB_TOKEN", "")).strip(), timeout_s, ca_file)
        self._name, self._numbers = uuid.uuid4().hex, itertools.count(1)
        # By episode: the reward since the last action, the newest info, and agents that have ended.
        self._given = {}
        self._num_actions = {}
        self._spaces = None
        if (observation_space is None) != (action_space is None):
            raise ValueError("give both observation_space and action_space, or neither")
        if observation_space is not None:
            self._spaces = {
                "observation_space": _space_text(observation_space),
                "action_space": _space_text(action_space),
            }
        self._several = False
        self._agents = None  # that have spaces, where each has its own
        self._forms = None  # of actions, by agent; None: before they are known
        self._lost_any = False  # an episode, since the spec was read: the server may be that of another run
        self._local = None  # acts, with local inference
        self._served = None  # asks rllib serve, where that is the server
        self._is_closed = False
        if is_local:
            settings = {"update_interval": update_interval, "fragment_length": fragment_length, "seed": seed}
            self._local = self._acts_itself(acting, settings)

    def _acts_itself(self, acting, settings):
        spec = self._read_spec()
        if self._served is not None:
            raise ValueError(
                "inference_mode='local' is for the server of a run; rllib serve computes the actions itself. Use "
                "inference_mode='remote', or act by rllib.load_policy(CHECKPOINT)."
            )
        if self._several:
            raise ValueError(
                "inference_mode='local' is for episodes with one agent: the server's policy_mapping_fn chooses the "
                "policies of several. Use inference_mode='remote'."
            )
        if spec["inference"] == "remote":
            raise ValueError(
                "this server computes the actions itself, .external(inference='remote'). Use inference_mode='remote'."
            )

        return acting.LocalActing(_Requests(self), EpisodeLost, **settings)

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error is not None:
            self._local = None  # what is kept may not be sent
        self.close()

    # ------------------------------------------------------------------ an episode

    def start_episode(self, episode_id=None, training_enabled=True):
        """Begins an episode.

        Args:
            episode_id: its id; a new one by default.
            training_enabled: whether its steps are learned from.

        Returns:
            its id.

        Raises:
            ValueError: if the id is no string of at most 128 characters, or the server refuses the episode: too many
                are under way, the id was used before, or the server has another protocol or other spaces.
            RunEnded, ConnectionError: as for `get_action`.
        """
        self._refuse_closed()
        if episode_id is None or episode_id == "":
            episode_id = uuid.uuid4().hex
        _check_name(episode_id, "an episode's id")
        if self._local is not None:
            self._local.begin(episode_id, training_enabled)
        else:
            if self._forms is None or self._lost_any:
                self._read_spec()
                self._lost_any = False
            body = {"episode_id": episode_id, "training_enabled": training_enabled, "protocol": PROTOCOL}
            self._post("/v1/episodes", body)
        self._given[episode_id], self._num_actions[episode_id] = {}, 0
        return episode_id

    def get_action(self, episode_id, observation):
        """The policy's action on an observation.

        Args:
            episode_id: id of a running episode; or a list of them, with a dict of their observations, for one request.
            observation: in the observation space; with several agents a dict by agent, whose keys are strings.

        Returns:
            the action; for a list, a dict of actions by episode.

        Raises:
            ValueError: if the server refuses the request, and its message says why, or if an agent is no string.
            EpisodeLost, RunEnded: if the episode, or the run, cannot continue. If one episode of a list cannot, all of
                the list are over.
            ConnectionError: if the server cannot be reached for retry_s.
        """
        self._refuse_closed()
        ids = episode_id if isinstance(episode_id, list) else [episode_id]
        seen = observation if isinstance(episode_id, list) else {episode_id: observation}
        if isinstance(episode_id, list):
            _check_list(ids, seen)
        if self._local is not None:
            if not isinstance(episode_id, list):
                return self._locally(self._local.act, episode_id, observation)
            for each in ids:  # all of them, before one has acted
                self._local.check(each, seen[each], self._of(each))
            return {each: self._locally(self._local.act, each, seen[each]) for each in ids}
        answer = self._post("/v1/act", {"items": [self._item(each, seen[each]) for each in ids]})
        for each in ids:
            self._acted(each)
        actions = {each: self._action(action) for each, action in zip(ids, answer["actions"])}
        return actions if isinstance(episode_id, list) else actions[episode_id]

    def log_action(self, episode_id, observation, action):
        """Reports an action that the policy has not chosen; errors as for `get_action`."""
        self._refuse_closed()
        if self._local is not None:
            self._locally(self._local.log, episode_id, observation, action)
            return
        self._check_agents(action)
        self._post("/v1/log", {"items": [dict(self._item(episode_id, observation), action=action)]})
        self._acted(episode_id)

    def log_returns(self, episode_id, reward, info=None, multiagent_done_dict=None, *, truncated_dict=None):
        """Adds to the reward of the last action; it is sent with the next call.

        Args:
            episode_id: id of a running episode.
            reward: a number; with several agents a dict by agent.
            info: the simulator's info dict.
            multiagent_done_dict, truncated_dict: agents that have ended, and why; "__all__" is left out. For several
                agents alone.

        Raises:
            ValueError: if a reward is no finite number of at most 1e9, the info cannot be sent, an agent is unknown or
                no string, or ends of agents are given with a single agent; nothing is accepted then.
        """
        self._refuse_closed()
        given = self._of(episode_id)
        ended = {}
        for name, flags in (("dones", multiagent_done_dict), ("truncateds", truncated_dict)):
            if not isinstance(flags or {}, dict):
                raise ValueError(f"{name} are a dict by agent, but got {flags!r:.80}")
            if flags and not self._several:
                raise ValueError(
                    f"{name}={flags!r:.80}: the server's episodes have one agent, and end with "
                    "end_episode(episode_id, observation, truncated=...). Leave multiagent_done_dict and "
                    "truncated_dict out."
                )
            # Loops hand over what their environment returns; end_episode says that all have ended.
            ended[name] = {agent: bool(flag) for agent, flag in (flags or {}).items() if agent != _ALL}
        if self._several:
            for name, by_agent in (("rewards", reward), ("infos", info or {})):
                if not isinstance(by_agent, dict):
                    raise ValueError(f"with several agents, {name} are a dict by agent, but got {by_agent!r:.80}")
        self._check_agents(reward, info, *ended.values())
        if info:
            self._encoded(info)
        if self._several:
            before = given.get("reward", {})
            sums = {agent: self._sum(episode_id, before.get(agent, 0.0), each) for agent, each in reward.items()}
            given["reward"] = {**before, **sums}
        else:
            given["reward"] = self._sum(episode_id, given.get("reward", 0.0), reward)
        if info:
            given["info"] = info
        for name, flags in ended.items():
            if flags:
                given.setdefault(name, {}).update(flags)

    def end_episode(self, episode_id, observation, *, truncated=False):
        """Ends an episode.

        Args:
            episode_id: id of a running episode.
            observation: the final one.
            truncated: whether a limit outside of the task has ended the episode, so that its return is bootstrapped.
        """
        self._refuse_closed()
        if self._local is None:
            self._post("/v1/end", {"items": [dict(self._item(episode_id, observation), truncated=truncated)]})
            self._forget(episode_id)
            return
        try:
            self._locally(self._local.end, episode_id, observation, truncated)
        finally:
            if not self._local.has(episode_id):  # it is over, though its last steps may be lost
                self._forget(episode_id)

    def update_policy_weights(self):
        """Takes over the newest weights; does nothing with remote inference, where the server acts by them."""
        self._refuse_closed()
        if self._local is not None:
            self._local.refresh()

    def close(self):
        """Sends the steps that are kept with local inference, and closes the connection.

        The episodes that are under way are given up. Every later call but `close` raises a RuntimeError.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._local is not None:
                self._local.close()
        except RunEnded:  # the run no longer needs the steps
            pass
        finally:
            self._connection.close()

    # ------------------------------------------------------------------ requests

    def _refuse_closed(self):
        if self._is_closed:
            raise RuntimeError(
                "this client is closed, and its episodes are given up. Make another one: "
                f"PolicyClient({self._given_address!r})."
            )

    def _of(self, episode_id):
        if episode_id not in self._given:
            raise ValueError(f"Episode {episode_id} not found.")
        return self._given[episode_id]

    def _locally(self, take_in, episode_id, observation, *more):
        """Passes a step of an episode to the copy of the policy, and returns its answer."""
        try:
            answer = take_in(episode_id, observation, self._of(episode_id), *more)
        except EpisodeLost:
            self._forget(episode_id)
            raise
        self._acted(episode_id)
        return answer

    def _forget(self, episode_id):
        self._given.pop(episode_id, None)
        self._num_actions.pop(episode_id, None)

    def _acted(self, episode_id):
        self._given[episode_id] = {}
        self._num_actions[episode_id] += 1

    def _sum(self, episode_id, before, reward):
        try:
            total = before + float(reward)
        except (TypeError, ValueError, OverflowError):
            total = math.nan
        if not abs(total) <= _LARGEST_REWARD:  # the server would refuse each further request of the episode
            raise ValueError(
                f"a reward must be a finite number, of at most {_LARGEST_REWARD:g} in size, but after step "
                f"{self._num_actions[episode_id]} of episode {episode_id} it is {reward!r:.80}"
            )
        return total

    def _check_agents(self, *values):
        for value in values if self._several else ():
            if isinstance(value, dict):
                _check_agents(value, self._agents)

    def _item(self, episode_id, observation):
        self._check_agents(observation)
        return dict(self._of(episode_id), episode_id=episode_id, observation=observation)

    def _action(self, action):
        if self._several:
            return {agent: _formed(each, self._form_of(agent)) for agent, each in action.items()}
        return _formed(action, self._form_of(None))

    def _form_of(self, agent):
        return self._forms.get(agent) if agent in self._forms else self._forms.get(None)

    def _read_spec(self):
        try:
            if self._spaces is not None:
                self._post("/v1/spaces", self._spaces)
            spec = self._request("GET", "/v1/spec", None)
        except _NoPath:
            served = _ServedPolicy(self)
            self._forms, self._served = {None: _form(served.spec["action_space"])}, served
            return served.spec
        if spec["protocol"] != PROTOCOL:
            raise ValueError(
                f"the server speaks version {spec['protocol']} of the protocol, and this client {PROTOCOL}: use the "
                "client of the server's rllib"
            )
        self._several = spec["several_agents"]
        spaces = spec["action_space"]
        if "type" in spaces:
            spaces = {None: spaces}
        elif self._several:
            self._agents = list(spaces)
        self._forms = {agent: _form(space) for agent, space in spaces.items()}
        return spec

    def _numbered(self, body):
        return self._encoded(dict(body, client=self._name, seq=next(self._numbers)))

    def _encoded(self, body):
        try:
            return self._connection.encode(body)
        except (TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"an observation, action or info cannot be sent: {error}") from error

    def _post(self, path, body):
        if self._served is not None:
            return self._served.post(path, body)
        try:
            return self._request("POST", path, self._numbered(body))
        except EpisodeLost:
            self._lost_any = True
            for item in body.get("items", ()):
                self._forget(item["episode_id"])
            raise

    def _request(self, method, path, body, is_sent=False, waits=None):
        """The answer to a request, which is repeated while the server cannot be reached or asks to; None: no news.

        With `is_sent` it was sent already, or could not be. Where the server asks to repeat it, and `waits` says no,
        there is no answer.
        """
        began, pause, is_logged = time.monotonic(), _FIRST_PAUSE_S, False
        while True:
            asked = time.monotonic()
            try:
                if not is_sent:
                    self._connection.send(method, path, body)
                is_sent = False
                status, answer = self._connection.receive()
            except ssl.SSLCertVerificationError as error:  # another try would end alike
                self._connection.close()
                raise ConnectionError(
                    f"the certificate of {self._address} is not trusted: {error}. Give the file of those that are, "
                    "ca_file=..."
                ) from error
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if time.monotonic() - began > self._retry_s:
                    no_http = isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError)
                    why = "what listens there does not speak HTTP; is it tcp://HOST:PORT?" if no_http else error
                    raise ConnectionError(
                        f"the policy server at {self._address} could not be reached for {self._retry_s:.0f} s: {why}"
                    ) from error
                if not is_logged and time.monotonic() - began > _SILENT_S:
                    is_logged = True
                    _logger.warning(
                        "PolicyClient: the policy server at %s cannot be reached (%s); trying for %.0f s. "
                        "Does it run, and is the address right?",
                        self._address, error, self._retry_s,
                    )  # fmt: skip
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                continue
            if status == 200:
                return answer
            if status == 204:
                return None
            message = answer.get("error", f"status {status}")
            if answer.get("ended"):
                self._connection.close()  # so that the server knows that this client has heard of it
                raise RunEnded(message)
            if answer.get("lost") or status == 410:
                raise EpisodeLost(message)
            if status == 404:
                raise _NoPath(message)
            if status != 503:
                raise ValueError(message)
            if waits is not None and not waits():
                return None
            # The server lives, and has held the request as long as it may; a proxy may answer at once.
            time.sleep(max(0.0, asked + _LEAST_PAUSE_S - time.monotonic()))
            began, pause, is_logged = time.monotonic(), _FIRST_PAUSE_S, False


class _ServedPolicy:
    """Asks `rllib serve`: takes the requests that the policy server of a run gets, and gives its answers.

    Args:
        client: whose requests they are; errors are those of its methods.

    Attributes:
        spec: what the server says about its policy.
    """

    def __init__(self, client):
        self._client = client
        try:
            self.spec = client._request("GET", "/spec", None)
        except _NoPath as error:  # of several policies, whose mapping is the run's
            raise ValueError(
                "this server has several policies, and a client's episodes have one agent. Start another with one of "
                f"them, rllib serve CHECKPOINT --policy ID, or send POST /act/ID: {error}"
            ) from error
        if unsent := [name for name in self.spec["reads"] if name not in _SENT]:
            raise ValueError(
                f"this server's policy reads the observation and {' and '.join(unsent)}, which this client does not "
                "send. Ask it by POST /act (GET /spec has an example)."
            )
        if client._spaces is not None:
            with contextlib.suppress(_NoPath):  # an earlier version
                self._send("/spaces", client._spaces)
        try:
            client._request("GET", "/stats", None)
            self._learns = True
        except _NoPath:  # it was started without --learn
            self._learns = False
        self._episodes = {}
        self._num_answers = 0

    def post(self, path, body):
        """The answer to a request at a path of a run's server."""
        answers = {"/v1/episodes": self._begin, "/v1/act": self._act, "/v1/log": self._log, "/v1/end": self._end}
        return answers[path](body)

    def _begin(self, body):
        if body["episode_id"] in self._episodes:
            raise ValueError(f"episode {body['episode_id']} has begun already; give another id")
        trains = self._learns and body["training_enabled"]
        self._episodes[body["episode_id"]] = {"trains": trains, "action_id": None, "state": None, "prev_action": None}
        return {"episode_id": body["episode_id"]}

    def _act(self, body):
        chosen = {}
        for trains in (True, False):  # whose actions are sampled, and are not
            items = [each for each in body["items"] if self._episodes[each["episode_id"]]["trains"] == trains]
            if items:
                chosen.update(zip([each["episode_id"] for each in items], self._ask(items, trains)))
        # Only now: each action gets one reward, and that of a call that is refused may still grow.
        self._reward(body["items"])
        self._num_answers += 1
        for episode_id, of_step in chosen.items():
            self._episodes[episode_id].update(of_step)
        return {"actions": [chosen[each["episode_id"]]["prev_action"] for each in body["items"]]}

    def _ask(self, items, trains):
        """Action, its id and the next state for items whose actions are all sampled, or are all not."""
        episodes = [self._episodes[each["episode_id"]] for each in items]
        question = {"observations": [each["observation"] for each in items], "explore": trains}
        if trains:
            question["episode_ids"] = [each["episode_id"] for each in items]
            # The same one until the answer is there, so that the decision counts once.
            question["request_id"] = f"{self._client._name} {self._num_answers}"
        reads = self.spec["reads"]
        for name in ("state", "prev_action"):
            if name in reads:
                question[f"{name}s"] = [episode[name] for episode in episodes]
        if "prev_reward" in reads:
            question["prev_rewards"] = [each.get("reward") for each in items]
        answer = self._send("/act", question)
        return [
            {
                "prev_action": answer["actions"][index],
                "state": answer["states"][index] if "states" in answer else None,
                "action_id": answer["action_ids"][index] if trains else None,
            }
            for index in range(len(items))
        ]

    def _log(self, body):
        raise ValueError(
            "rllib serve learns from its own actions alone, so that log_action has no effect. Ask it by get_action, or "
            "learn from recorded steps: rllib train ALGO --input FILE."
        )

    def _end(self, body):
        self._reward(body["items"], is_end=True)
        for item in body["items"]:
            del self._episodes[item["episode_id"]]
        return {}

    def _reward(self, items, is_end=False):
        """Sends the rewards of the newest actions, where they are learned from."""
        rewards = []
        for item in items:
            action_id = self._episodes[item["episode_id"]]["action_id"]
            if action_id is None:
                continue
            reward = {"action_id": action_id, "reward": item.get("reward", 0.0)}
            if is_end and item["truncated"]:
                reward.update(truncated=True, next_observation=item["observation"])
            elif is_end:
                reward["terminated"] = True
            rewards.append(reward)
        if not rewards:
            return
        given = self._client._encoded({"rewards": rewards})
        answer = self._client._request("POST", "/reward", given, waits=self._has_learner)
        if answer is None:  # the server acts without a learner, and the next one does not know these actions
            return
        # Other refusals are harmless: rewards that came twice, since a request was repeated, and rewards for an earlier
        # learner, whose open decisions are lost.
        wrong = [each["error"] for each in answer["results"] if each.get("status") == 422]
        if wrong:
            raise ValueError(wrong[0])

    def _has_learner(self):
        return self._client._request("GET", "/stats", None)["learner"] is not None

    def _send(self, path, body):
        return self._client._request("POST", path, self._client._encoded(body))


class _Requests:
    """Requests of a client that acts itself, which continues during a request; the next one waits for its answer.

    Args:
        client: whose requests they are; errors are those of its methods.
    """

    def __init__(self, client):
        self._client, self._path, self._data = client, None, None

    def get(self, path):
        """The answer to a request for what is there; None: there is no news."""
        return self._client._request("GET", path, None)

    def send(self, path, body):
        """Sends a request, whose answer `answer` gives."""
        self._path, self._data = path, self._client._numbered(body)
        connection = self._client._connection
        try:
            connection.send("POST", path, self._data)
        except (OSError, http.client.HTTPException):  # `answer` sends it again
            connection.close()

    def has_answer(self):
        """Whether the answer is there, or there will be none."""
        return self._client._connection.has_answer()

    def answer(self):
        """Waits for the answer to the request that was sent."""
        return self._client._request("POST", self._path, self._data, is_sent=True)


def _local_acting():
    """The module of clients that act themselves."""
    try:
        from rllib.acting import local_acting
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"inference_mode='local' computes actions as rllib does, but there is no module {error.name!r} here. "
            "Install rllib, or use inference_mode='remote'."
        ) from error
    return local_acting


class _OnePacket:
    """Sends head and body of a request together: the server would else be woken twice for it."""

    _parts = None

    def request(self, *args, **kwargs):
        self._parts = []
        super().request(*args, **kwargs)
        parts, self._parts = self._parts, None
        super().send(b"".join(parts))

    def send(self, data):
        if self._parts is None:
            super().send(data)
        else:
            self._parts.append(data)


class _Plain(_OnePacket, http.client.HTTPConnection):
    """A connection over HTTP."""


class _Encrypted(_OnePacket, http.client.HTTPSConnection):
    """A connection over HTTPS."""


class _HTTPConnection:
    """Carries requests over HTTP, with bodies in JSON.

    Args:
        parts: of the URL of the server.
        token: token of the server; None without one.
        timeout_s: time limit of one request (seconds).
        ca_file: file of the certificates that are trusted; None: those of the system.
    """

    kind = _JSON

    def __init__(self, parts, token, timeout_s, ca_file):
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca_file)
            self._connection = _Encrypted(parts.hostname, parts.port, timeout=timeout_s, context=context)
        else:
            self._connection = _Plain(parts.hostname, parts.port, timeout=timeout_s)
        self._headers = {"Content-Type": self.kind}
        if token:
            self._headers["Authorization"] = b"Bearer " + token.encode()  # http.client knows Latin-1 alone

    def encode(self, body):
        """A body as it is sent.

        Raises:
            ValueError: for a number that is not finite, and for a text that is no unicode.
        """
        try:
            text = json.dumps(body, default=_plain, allow_nan=False, ensure_ascii=False)
        except ValueError:
            raise ValueError("observations, rewards and infos must be finite numbers, but one is not") from None
        return text.encode()

    def send(self, method, path, data):
        """Sends a request; `receive` gives its answer.

        Raises:
            OSError, http.client.HTTPException: if the server cannot be reached.
        """
        if self._connection.sock is None:
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # it was closed, maybe with a last answer
            self._connection.request(method, path, data, self._headers)

    def has_answer(self):
        """Whether something of the answer is there, or the connection is not."""
        sock = self._connection.sock
        if sock is None or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            return True
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([sock], [], [], 0)[0])
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))

    def receive(self):
        """Status and answer of the request that was sent; errors as for `send`."""
        response = self._connection.getresponse()
        data = response.read()
        if response.status == 204:
            return 204, None
        try:
            return response.status, self.decode(data, response.getheader("Content-Type"))
        except ValueError:
            return response.status, {"error": data.decode("utf-8", "replace").strip()}

    def decode(self, data, kind):
        """An answer of this content type; raises ValueError for one that is not readable."""
        return json.loads(data)

    def close(self):
        """Closes the connection; the next request opens another."""
        self._connection.close()


class _PackedHTTPConnection(_HTTPConnection):
    """Carries requests over HTTP, with bodies in MessagePack, which has arrays."""

    kind = _MSGPACK

    def __init__(self, parts, token, timeout_s, ca_file):
        import msgspec

        super().__init__(parts, token, timeout_s, ca_file)
        self.encode, self._unpack = msgspec.msgpack.Encoder(enc_hook=_packed).encode, msgspec.msgpack.decode

    def decode(self, data, kind):
        return self._unpack(data) if kind == _MSGPACK else super().decode(data, kind)


class _ZeroMQConnection:
    """Carries requests over ZeroMQ, with bodies in MessagePack. Arguments and methods as for _HTTPConnection."""

    def __init__(self, parts, token, timeout_s, _):
        try:
            import msgspec
            import zmq
        except ImportError as error:
            raise ImportError(f"an address tcp://HOST:PORT needs pyzmq and msgspec: {error}") from None
        self._zmq, self._timeout_s, self._socket = zmq, timeout_s, None
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self._address, self._token = f"tcp://{host}:{parts.port}", token or ""
        self._encoder, self._raw = msgspec.msgpack.Encoder(enc_hook=_packed), msgspec.Raw
        self._decode = msgspec.msgpack.Decoder(tuple).decode

    def encode(self, body):
        data = self._encoder.encode(body)
        if len(data) > _MOST_BYTES:  # the server would close the connection without a word
            raise ValueError(f"a request may have {_MOST_BYTES} bytes, but this one has {len(data)}")
        return self._raw(data)

    def send(self, method, path, data):
        if self._socket is None:
            self._connect()
        self._socket.send(self._encoder.encode((self._token, path, data)))

    def has_answer(self):
        return self._socket is None or bool(self._socket.poll(0) or self._events.poll(0))

    def receive(self):
        if self._socket is None:
            raise ConnectionError("the connection was lost")
        again, until = self._zmq.Again, time.monotonic() + self._timeout_s
        while True:
            try:
                return self._decode(self._socket.recv())
            except again:
                if self._is_lost():
                    return self._last_answer()
                if time.monotonic() > until:
                    raise TimeoutError(f"no answer for {self._timeout_s:g} s") from None

    def _last_answer(self):
        """The answer that came before the connection was lost."""
        try:
            return self._decode(self._socket.recv(self._zmq.DONTWAIT))
        except self._zmq.Again:
            raise ConnectionError("the connection was lost") from None

    def _connect(self):
        zmq = self._zmq
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.IPV6, "[" in self._address),
            # The client makes a new socket, and repeats its request. With -1, never, or with IMMEDIATE, a connection
            # that is lost takes the answers with it that have come, but were not read.
            (zmq.RECONNECT_IVL, _NEVER_MS),
            (zmq.RCVTIMEO, int(1000 * _LOOK_S)),
            (zmq.HEARTBEAT_IVL, 5_000),
            (zmq.HEARTBEAT_TIMEOUT, 20_000),
        ):
            self._socket.set(option, value)
        self._events = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | self._lost_events)
        self._socket.connect(self._address)
        if not self._events.poll(int(1000 * _CONNECT_S)) or self._is_lost():
            raise ConnectionError("no server listens there")

    @property
    def _lost_events(self):
        zmq = self._zmq
        failed = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        return failed | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED

    def _is_lost(self):
        """Whether the connection was lost, or could not be made."""
        while self._events.poll(0):
            (event,) = struct.unpack_from("=H", self._events.recv_multipart()[0])
            if event & self._lost_events:
                return True
        return False

    def close(self):
        if self._socket is not None:
            self._socket.disable_monitor()
            self._events.close()
            self._socket.close()
            self._socket = None


def _form(space):
    """Form of the actions of a space: the dtype of an array, forms of parts by key or place, or None for a number."""
    if space["type"] in ("Box", "MultiDiscrete", "MultiBinary"):
        return space.get("dtype", "int8")  # a MultiBinary has no other
    if space["type"] == "Dict":
        return {key: _form(part) for key, part in space["spaces"]}
    if space["type"] == "Tuple":
        return tuple(_form(part) for part in space["spaces"])
    return None


def _formed(action, form):
    """An action, as JSON or MessagePack has it, in the form that its space has in Python."""
    if form is None:
        return action
    if isinstance(form, dict):
        return {key: _formed(part, form.get(key)) for key, part in action.items()}
    if isinstance(form, tuple):
        return tuple(_formed(part, each) for part, each in zip(action, form))
    return np.asarray(action, form)


def numbers_of(value):
    """A value of numpy or another library as an array, in a dtype that each server reads; None if it is no numbers."""
    try:
        array = np.asarray(value)  # tensors as well
    except Exception:  # of the value's own kind
        return None
    if array.dtype.kind not in "biuf":
        return None
    return array.astype(np.float64 if array.dtype.itemsize > 8 else array.dtype.newbyteorder("<"), copy=False)


def _plain(value):
    """Such values as JSON has them."""
    numbers = numbers_of(value)
    if numbers is not None:
        return numbers.tolist()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.80} ({type(value).__name__})")


def _packed(value):
    """Such values as MessagePack has them here."""
    numbers = numbers_of(value)
    if numbers is not None and numbers.ndim:
        return {"$array": [numbers.dtype.str, numbers.shape, numbers.tobytes()]}
    return _plain(value)


def _check_agents(agents, known):
    """Raises ValueError for agents that the server refuses, or that become strings as keys of JSON.

    Args:
        agents: their names.
        known: of them, those that there are; None: any may appear.
    """
    for agent in agents:
        if not isinstance(agent, str):
            raise ValueError(
                f"the agents of a client are strings, but one is {agent!r} ({type(agent).__name__}): name it "
                f"{str(agent)!r}"
            )
        if agent in (_ALL, _COMMON):
            raise ValueError(f"{agent!r} is a reserved key, not the id of an agent")
        if known is not None and agent not in known:
            raise ValueError(f"there is no agent {agent!r:.80}; there are {', '.join(map(repr, known))}")
        _check_name(agent, "the name of an agent")


def parts_of_address(address):
    """Scheme, host and port of a server; raises ValueError for an address that has others, or a path."""
    try:
        parts = urllib.parse.urlsplit(address if "//" in address else "http://" + address)
        is_right = parts.scheme in ("http", "https", "tcp") and parts.hostname and parts.port is not None
    except ValueError:  # a port beyond 65,535
        is_right = False
    if not is_right or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            "an address is http://HOST:PORT or tcp://HOST:PORT, without a path, a user or a query, but got "
            f"{address.rpartition('@')[2]!r}"
        )
    return parts


def _check_name(name, what):
    """Raises ValueError for a name that the server refuses."""
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        raise ValueError(f"{what} is a string of at most {_LONGEST_NAME} characters, but got {name!r:.200}")
    name.encode()  # halves of surrogate pairs raise a ValueError


def _check_list(ids, observations):
    """Raises ValueError for what is no list of different episodes with a dict of their observations."""
    if not ids or len(set(ids)) < len(ids):
        raise ValueError("a list of episodes has at least one, and each of them once")
    if not isinstance(observations, dict):
        raise ValueError(
            "with a list of episodes, observations are a dict by episode id, {id: observation}, but got a "
            f"{type(observations).__name__}"
        )
    if missing := [each for each in ids if each not in observations]:
        raise ValueError(f"there is no observation of episode {missing[0]:.80}")


def _space_text(space):
    """A space of gymnasium as the server reads it; a text is left as it is."""
    kind = type(space).__name__
    if isinstance(space, str):
        return space
    if isinstance(space, dict):
        _check_agents(space, None)
        return {agent: _space_text(each) for agent, each in space.items()}
    if kind == "Box":
        low, high = _bounds_text(space.low), _bounds_text(space.high)
        return f"Box({low}, {high}, {list(space.shape)}, {space.dtype.name})"
    if kind == "Discrete":
        return f"Discrete({space.n}, {space.start})"
    if kind == "MultiDiscrete":
        return f"MultiDiscrete({space.nvec.tolist()}, {space.start.tolist()}, {space.dtype.name})"
    if kind == "MultiBinary":
        return f"MultiBinary({np.asarray(space.n).tolist()})"
    if kind == "Dict":
        parts = ", ".join(f"{key!r}: {_space_text(each)}" for key, each in space.items())
        return f"Dict({{{parts}}})"
    if kind == "Tuple":
        return f"Tuple([{', '.join(map(_space_text, space))}])"
    raise ValueError(f"a space of the kind {kind} cannot be sent")


def _bounds_text(bounds):
    is_uniform = bounds.size > 0 and (bounds == bounds.flat[0]).all()
    return repr(bounds.flat[0].item() if is_uniform else bounds.tolist())
