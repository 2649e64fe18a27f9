"""A client of a policy server, for simulators in other processes. One file, which needs numpy and nothing else:

    with PolicyClient("http://127.0.0.1:9900") as client:
        while True:
            episode, observation, done = client.start_episode(), simulator.begin(), False
            while not done:
                action = client.get_action(episode, observation)
                observation, reward, done = simulator.step(action)
                client.log_returns(episode, reward)
            client.end_episode(episode, observation)

It may be copied into a simulator that has no rllib, and runs on Python 3.9 and later.
"""

import http.client
import itertools
import json
import os
import socket
import time
import urllib.parse
import uuid

import numpy as np

PROTOCOL = 1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
# Between two requests that are answered with 503 (seconds).
_LEAST_PAUSE_S = 0.5
# The server holds a request for 15 s.
_LEAST_TIMEOUT_S = 20.0


class EpisodeLost(Exception):
    """An episode that cannot go on, since the run was restored or has given it up: start a new one."""


class RunEnded(Exception):
    """The run that the server samples for has ended."""


class PolicyClient:
    """Asks a policy server for actions, and reports rewards.

    A call waits while the algorithm learns, and goes on trying while the server cannot be reached; nothing is counted
    twice. Use a client in one thread; several clients may ask one server.

    Args:
        address: of the server, "http://HOST:PORT" or "HOST:PORT".
        inference_mode: "remote", the server computes the actions.
        update_interval, session: accepted for programs written for RLlib; they have no effect.
        token: of the server; by default that of the variable RLLIB_TOKEN.
        timeout_s: of one request (seconds).
        retry_s: goes on trying for so long (seconds).
        observation_space, action_space: of the simulator, as spaces of gymnasium or texts, "Box(-inf, inf, (4,))" and
            "Discrete(2)"; with several agents dicts by agent. They are the run's if it was started without; else the
            first request is refused if they differ from the run's.

    Raises:
        ValueError: for another inference_mode, or an address of another form.
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
        observation_space=None,
        action_space=None,
    ):
        if inference_mode != "remote":
            raise ValueError(
                f"inference_mode={inference_mode!r} is not available: the server computes the actions, "
                "inference_mode='remote'"
            )
        if timeout_s < _LEAST_TIMEOUT_S:
            raise ValueError(f"timeout_s must be at least {_LEAST_TIMEOUT_S:g}: the server holds a request for 15 s")
        parts = urllib.parse.urlsplit(address if "//" in address else "http://" + address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port is None:
            raise ValueError(f"an address is http://HOST:PORT, but got {address!r}")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._address, self._retry_s = f"{parts.hostname}:{parts.port}", retry_s
        self._connection = kind(parts.hostname, parts.port, timeout=timeout_s)
        self._headers = {"Content-Type": "application/json"}
        token = token or os.environ.get("RLLIB_TOKEN")
        if token:
            self._headers["Authorization"] = "Bearer " + token
        self._name, self._numbers = uuid.uuid4().hex, itertools.count(1)
        # By episode: the reward since the last action, the newest info, and agents that have ended.
        self._given = {}
        self._spaces = None
        if (observation_space is None) != (action_space is None):
            raise ValueError("give both observation_space and action_space, or neither")
        if observation_space is not None:
            self._spaces = {
                "observation_space": _space_text(observation_space),
                "action_space": _space_text(action_space),
            }
        self._several = False
        self._dtype = None  # of actions that are arrays

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ------------------------------------------------------------------ an episode

    def start_episode(self, episode_id=None, training_enabled=True):
        """Begins an episode.

        Args:
            episode_id: its id; a new one by default.
            training_enabled: whether its steps are learned from.

        Returns:
            its id.
        """
        if self._dtype is None:
            self._read_spec()
        episode_id = episode_id or uuid.uuid4().hex
        self._post("/v1/episodes", {"episode_id": episode_id, "training_enabled": training_enabled})
        self._given[episode_id] = {}
        return episode_id

    def get_action(self, episode_id, observation):
        """The policy's action on an observation.

        Args:
            episode_id: of a running episode; or a list of them, with a dict of their observations, for one request.
            observation: in the observation space; with several agents a dict by agent.

        Returns:
            the action; for a list, a dict of actions by episode.

        Raises:
            ValueError: if the server refuses the request; its message says why.
            EpisodeLost, RunEnded: if the episode, or the run, cannot go on.
            ConnectionError: if the server cannot be reached for retry_s.
        """
        ids = episode_id if isinstance(episode_id, list) else [episode_id]
        seen = observation if isinstance(episode_id, list) else {episode_id: observation}
        answer = self._post("/v1/act", {"items": [self._item(each, seen[each]) for each in ids]})
        self._given.update((each, {}) for each in ids)
        actions = {each: self._action(action) for each, action in zip(ids, answer["actions"])}
        return actions if isinstance(episode_id, list) else actions[episode_id]

    def log_action(self, episode_id, observation, action):
        """Reports an action that somebody else has chosen; errors as for `get_action`."""
        self._post("/v1/log", {"items": [dict(self._item(episode_id, observation), action=action)]})
        self._given[episode_id] = {}

    def log_returns(self, episode_id, reward, info=None, multiagent_done_dict=None, *, truncated_dict=None):
        """Adds to the reward of the last action; it is sent with the next call.

        Args:
            episode_id: of a running episode.
            reward: a number; with several agents a dict by agent.
            info: what the simulator says beside it.
            multiagent_done_dict, truncated_dict: agents that have ended, and why.
        """
        given = self._of(episode_id)
        if isinstance(reward, dict):
            rewards = given.setdefault("reward", {})
            for agent, each in reward.items():
                rewards[agent] = rewards.get(agent, 0.0) + float(each)
        else:
            given["reward"] = given.get("reward", 0.0) + float(reward)
        if info:
            given["info"] = info
        for name, flags in (("dones", multiagent_done_dict), ("truncateds", truncated_dict)):
            if flags:
                given.setdefault(name, {}).update((agent, bool(flag)) for agent, flag in flags.items())

    def end_episode(self, episode_id, observation, *, truncated=False):
        """Ends an episode.

        Args:
            episode_id: of a running episode.
            observation: the final one.
            truncated: whether a limit outside of the task has ended it, so that its value goes on.
        """
        self._post("/v1/end", {"items": [dict(self._item(episode_id, observation), truncated=truncated)]})
        del self._given[episode_id]

    def update_policy_weights(self):
        """Does nothing: the server always acts by its newest weights."""

    def close(self):
        """Closes the connection."""
        self._connection.close()

    # ------------------------------------------------------------------ requests

    def _of(self, episode_id):
        if episode_id not in self._given:
            raise ValueError(f"Episode {episode_id} not found.")
        return self._given[episode_id]

    def _item(self, episode_id, observation):
        return dict(self._of(episode_id), episode_id=episode_id, observation=observation)

    def _action(self, action):
        if self._several:
            return {agent: self._array(each, agent) for agent, each in action.items()}
        return self._array(action, None)

    def _array(self, action, agent):
        dtype = self._dtype.get(agent) if agent in self._dtype else self._dtype.get(None)
        return action if dtype is None else np.asarray(action, dtype)

    def _read_spec(self):
        if self._spaces is not None:
            self._post("/v1/spaces", self._spaces)
        spec = self._request("GET", "/v1/spec", None)
        if spec["protocol"] != PROTOCOL:
            raise ValueError(
                f"the server speaks version {spec['protocol']} of the protocol, and this client {PROTOCOL}: use the "
                "client of the server's rllib"
            )
        self._several = spec["several_agents"]
        spaces = spec["action_space"]
        spaces = {None: spaces} if "type" in spaces else spaces
        self._dtype = {
            agent: space.get("dtype", "int64") if space["type"] in ("Box", "MultiDiscrete", "MultiBinary") else None
            for agent, space in spaces.items()
        }

    def _post(self, path, body):
        body = dict(body, client=self._name, seq=next(self._numbers))
        try:
            data = json.dumps(body, default=_plain, allow_nan=False)
        except ValueError:
            raise ValueError("observations, rewards and infos must be finite numbers, but one is not") from None
        return self._request("POST", path, data.encode())

    def _request(self, method, path, body):
        """The answer to a request, which is repeated while the server cannot be reached or asks to."""
        began, pause = time.monotonic(), _FIRST_PAUSE_S
        while True:
            asked = time.monotonic()
            try:
                status, answer = self._once(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if time.monotonic() - began > self._retry_s:
                    raise ConnectionError(
                        f"the policy server at {self._address} could not be reached for {self._retry_s:.0f} s: {error}"
                    ) from error
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                continue
            if status == 200:
                return answer
            message = answer.get("error", f"status {status}")
            if answer.get("ended"):
                raise RunEnded(message)
            if answer.get("lost") or status == 410:
                raise EpisodeLost(message)
            if status != 503:
                raise ValueError(message)
            # The server lives, and has held the request as long as it may; a proxy may answer at once.
            time.sleep(max(0.0, asked + _LEAST_PAUSE_S - time.monotonic()))
            began, pause = time.monotonic(), _FIRST_PAUSE_S

    def _once(self, method, path, body):
        if self._connection.sock is None:
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.request(method, path, body, self._headers)
        response = self._connection.getresponse()
        data = response.read()
        try:
            return response.status, json.loads(data)
        except ValueError:
            return response.status, {"error": data.decode("utf-8", "replace").strip()}


def _plain(value):
    """Values of numpy as JSON has them."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{value!r} ({type(value).__name__}) cannot be sent")


def _space_text(space):
    """A space of gymnasium as the server reads it; a text is left as it is."""
    kind = type(space).__name__
    if isinstance(space, str):
        return space
    if isinstance(space, dict):
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
