"""Clients that act by a copy of the server's policy: what `PolicyClient(inference_mode="local")` does.

A client keeps the steps of its episodes, and sends them in parts; the server answers with newer weights. While a
request is under way the client acts on, until it has kept as many steps as the next one may have.
"""

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from rllib.acting.mask_reader import MaskReader
from rllib.acting.sent_policy import SentPolicy
from rllib.env.spaces.actions import action_mapper, one_by_one
from rllib.env.spaces.batches import batch_of
from rllib.env.spaces.observations import ArrayColumn, observation_column
from rllib.env.spaces.supported import LARGEST, SQUARES, logged_action, mismatch, too_large
from rllib.policy import FILTER_PREFIX, Policy
from rllib.web.bodies import with_arrays

logger = logging.getLogger(__name__)

# An episode's end is sent at once, unless the last request is so new: it costs as much as dozens of steps (seconds).
_APART_S = 0.02
# Steps are kept so long, if the client acts (seconds).
_KEPT_S = 1.0
# Between two looks for the answer to the request that is under way (seconds).
_GLANCE_S = 0.001
# Lost episodes that are remembered until their next call; of more, the oldest are forgotten.
_MOST_LOST = 10_000


def _message(array: np.ndarray) -> dict[str, list]:
    return {"$array": [array.dtype.str, list(array.shape), array.tobytes()]}


def _num_rows(message: dict[str, list]) -> int:
    return message["$array"][1][0]


class LocalEpisode:
    """The running episode of a client, and after it another one: buffers of the part that was not sent, and the noise.

    Args:
        copy: the policy.
        rng: draws the noise.
        size: most steps of a part.

    Attributes:
        num_steps: of the present part.
    """

    def __init__(self, copy: "PolicyCopy", rng: np.random.Generator, size: int):
        policy, self._copy, self._size = copy.policy, copy, size
        self._explorer = copy.sent.explorer(policy, rng, copy.mapper.policy_bounds)
        column = copy.column
        self._observations = np.empty((size + 1, *column.shape), column.dtype)
        self._seen = np.empty((1, *column.shape), np.float32 if policy.filters_observations else column.dtype)
        self._dist_inputs = np.empty((size, policy.num_dist_inputs), np.float32)
        self._actions = np.empty((size, *policy.action_shape), policy.action_dtype)
        # Views of each row: taking them again at each step costs as much as a layer of a small network.
        self._rows = [
            (self._observations[at : at + 1], self._dist_inputs[at : at + 1], self._actions[at : at + 1])
            for at in range(size)
        ]
        states = np.zeros((2, 1, policy.state_size), np.float32)
        self._states = (states[0], states[1]) if policy.state_size else (None, None)
        self.num_steps, self._begun = 0, False

    def begin(self, episode_id: str, trains: bool) -> None:
        """Starts an episode."""
        self._id, self._trains, self._is_first = episode_id, trains, True
        self._forget()
        if self._states[0] is not None:
            self._states[0][:] = 0

    def _forget(self) -> None:
        self.num_steps, self._raw = 0, []
        self._rewards: list[float] = []
        self._infos: list[tuple[int, Any]] = []
        self._logged: list[int] = []

    def act(self, observation: Any, reward: float, info: Any) -> Any:
        """The action on an observation, in the environment's units; the reward is that since the last action."""
        actions = self._chosen(observation, reward, info)
        return self._copy.one_by_one(self._copy.mapper.to_env(actions))[0]

    def log(self, observation: Any, reward: float, info: Any, action: Any) -> None:
        """Writes down an action that the caller has chosen, in the environment's units."""
        batch = batch_of(self._copy.sent.action_space, [action])
        self._chosen(observation, reward, info)[:] = self._copy.mapper.to_policy(batch)
        self._logged.append(self.num_steps - 1)

    def _chosen(self, observation: Any, reward: float, info: Any) -> np.ndarray:
        """Chooses the next action: the row [1, ...] where it stands, in the policy's units."""
        at, policy = self.num_steps, self._copy.policy
        if not self._begun:
            self._draw()
        row, dist_inputs, actions = self._rows[at]
        self._note(row, observation, reward, info)
        if policy.filters_observations:
            row = policy.filter(row, out=self._seen, update=True)
        state, following = self._states
        self._explorer.act(row, self._noise[at], dist_inputs, actions, None, state, following)
        if state is not None:
            state[:] = following
        self.num_steps = at + 1
        return actions

    def _note(self, row: np.ndarray, observation: Any, reward: float, info: Any) -> None:
        """Writes an observation, and what came before it, into the part."""
        self._copy.column.write_rows([observation], row)
        if not self._copy.is_array:
            self._raw.append(_sendable(observation))
        self._rewards.append(reward)
        if info:
            self._infos.append((len(self._rewards) - 1, _sendable(info)))

    def _draw(self) -> None:
        """Draws the noise of the next part."""
        self._noise = self._explorer.begin(self._size, self._copy.timesteps)
        self._begun = True

    def end(self, observation: Any, reward: float, info: Any, truncated: bool) -> dict[str, Any]:
        """Ends the episode; returns its last part."""
        at = self.num_steps
        self._note(self._observations[at : at + 1], observation, reward, info)
        if not self._begun:
            self._draw()  # explorers learn of ends among the steps that they have prepared
        self._explorer.episodes_ended([0])
        return self.part(end="truncated" if truncated else "terminated")

    def part(self, end: str | None = None) -> dict[str, Any]:
        """The steps since the last call, as a message; the next part begins. There is at least one, or an end."""
        count, copy = self.num_steps, self._copy
        seen = count + (end is not None)
        part: dict[str, Any] = {
            "episode_id": self._id,
            "version": copy.version,
            "observations": _message(self._observations[:seen]) if copy.is_array else self._raw,
            "rewards": _message(np.array(self._rewards)),
            "actions": _message(self._actions[:count]),
        }
        if copy.policy.distribution.has_log_prob:
            part["action_dist_inputs"] = _message(self._dist_inputs[:count])
        if self._is_first:
            part.update(is_first=True, training_enabled=self._trains)
        part.update((name, values) for name, values in (("logged", self._logged), ("infos", self._infos)) if values)
        if end is not None:
            part["end"] = end
        copy.timesteps += count
        self._is_first = False
        self._forget()
        self.stop_drawing()
        return part

    def stop_drawing(self) -> None:
        """Ends the noise that was drawn: the weights may change."""
        if self._begun:
            self._explorer.end()
            self._begun = False


class PolicyCopy:
    """A copy of the server's policy.

    Args:
        message: the answer to /v1/weights.

    Attributes:
        sent: its description.
        policy: the policy.
        version, edition: of its weights, and of weights and filter together.
        timesteps: environment steps of the run so far, as far as is known here.
        max_lag_updates: rows that are older are dropped by the server; None: none are.
        mapper: from its actions to the environment's.
        column: how observations are stored.
        is_array: whether observations are sent as one array.

    Raises:
        ValueError: if this version of the library cannot read it.
    """

    def __init__(self, message: Mapping[str, Any]):
        self.sent = SentPolicy.from_json(message["description"])
        self.policy = Policy(self.sent.spec)
        self._description_id: str | None = message.get("description_id")
        self.max_lag_updates: int | None = message["max_lag_updates"]
        settings, space = self.sent.settings, self.sent.action_space
        how = settings.normalize_actions, settings.clip_actions
        self.mapper = action_mapper(space, self.policy.distribution, *how)
        self.column = observation_column(self.sent.observation_space)
        self.is_array = isinstance(self.column, ArrayColumn)
        self.one_by_one = one_by_one(space)
        self._masks = MaskReader(self.policy, self.sent.observation_space, space) if self.policy.is_masked else None
        self.load(message)

    def is_of(self, message: Mapping[str, Any]) -> bool:
        """Whether a message is about this policy, and not about that of another run, whose server has its address."""
        return message.get("description_id", self._description_id) == self._description_id

    def load(self, message: Mapping[str, Any]) -> None:
        """Takes over the weights of a message; without weights, the number of steps that the run has sampled."""
        self.timesteps: int = message["timesteps"]
        if "weights" in message:
            filters = {FILTER_PREFIX + name: with_arrays(each) for name, each in message["filters"].items()}
            self.policy.set_state({"weights": with_arrays(message["weights"]), **filters})
            self.version: int = message["policy_version"]
            self.edition: int = message["edition"]

    def check(self, observation: Any) -> None:
        """Raises ValueError for an observation that does not lie in the space; bounds are not minded."""
        column, space = self.column, self.sent.observation_space
        if isinstance(observation, np.ndarray) and isinstance(space, spaces.Box):
            fits = observation.dtype == column.dtype and observation.shape == column.shape
            # The quickest sum; larger ones are looked at below.
            if fits and (column.dtype.kind != "f" or np.vdot(observation, observation) < SQUARES):
                return
        problem = mismatch(space, observation, bounded=False) or too_large(space, observation, "observation")
        if problem:
            raise ValueError(problem)

    def check_legal(self, observation: Any, *logged: Any) -> None:
        """Raises ValueError for an observation without a legal action, and for a logged action that is not legal."""
        if self._masks is not None and (problem := self._masks.problem(observation, *logged)):
            raise ValueError(problem)


class Requests(Protocol):
    """Requests to the server. One may be under way while the client acts; no other is sent until its answer."""

    def get(self, path: str) -> dict[str, Any] | None:
        """The answer to a request for what is there; None: there is no news."""

    def send(self, path: str, body: dict[str, Any]) -> None:
        """Sends a request, whose answer `answer` gives."""

    def has_answer(self) -> bool:
        """Whether the answer is there, or there will be none."""

    def answer(self) -> dict[str, Any]:
        """Waits for the answer to the request that was sent."""


class LocalActing:
    """Episodes of a client that acts by a copy of the server's policy.

    Args:
        requests: of the client, which raise what the client raises.
        lost: the client's exception for episodes that cannot continue.
        update_interval: most seconds between looks for newer weights; 0: one at each episode's start; None: none.
        fragment_length: most steps that are kept before they are sent.
        seed: seed of the noise.
    """

    def __init__(
        self,
        requests: Requests,
        lost: type[Exception],
        *,
        update_interval: float | None,
        fragment_length: int,
        seed: int | None,
    ):
        self._requests, self._lost_error, self._interval, self._size = requests, lost, update_interval, fragment_length
        self._seeds = np.random.SeedSequence(seed)
        self._copy: PolicyCopy | None = None
        self._running: dict[str, LocalEpisode] = {}
        self._free: list[LocalEpisode] = []
        self._outbox: list[dict[str, Any]] = []
        self._lost: dict[str, str] = {}
        self._num_kept = 0  # steps that were not sent
        # Episodes with steps in the request that is under way; None: there is none.
        self._under_way: list[str] | None = None
        self._asks_for_weights = False  # that request
        # Steps were refused, as those of a copy of another policy than the server's are.
        self._was_refused = False
        # Its answer, whose weights act once all steps by the old ones are sent.
        self._answer: dict[str, Any] | None = None
        self._sent = -math.inf
        self._looked = self._kept_since = self._glanced = 0.0

    @property
    def version(self) -> int | None:
        """Version of the weights that act; None before the first episode."""
        return self._copy and self._copy.version

    def begin(self, episode_id: str, trains: bool) -> None:
        """Starts an episode.

        Raises:
            ValueError: if an episode has this id.
        """
        if episode_id in self._running:
            raise ValueError(f"Episode {episode_id} is already started")
        if self._copy is not None and self._was_refused:
            self._compare()
        is_timed = self._copy is not None and self._interval is not None
        if is_timed and time.monotonic() - self._looked >= self._interval:
            self.refresh()
        if self._copy is None:
            self._copy = PolicyCopy(self._requests.get("/v1/weights"))
            self._looked = time.monotonic()
        episode = self._free.pop() if self._free else self._new_episode()
        episode.begin(episode_id, trains)
        self._running[episode_id] = episode
        self._lost.pop(episode_id, None)  # an earlier one with this id, which was never queried

    def _new_episode(self) -> LocalEpisode:
        (seed,) = self._seeds.spawn(1)
        return LocalEpisode(self._copy, np.random.default_rng(seed), self._size)

    def act(self, episode_id: str, observation: Any, given: dict[str, Any]) -> Any:
        """The action on an observation.

        Args:
            episode_id: id of a running episode.
            observation: of its environment.
            given: the reward and the info since the last action; emptied.
        """
        episode, reward = self._next_of(episode_id, observation, given)
        info = given.get("info")
        given.clear()
        return episode.act(observation, reward, info)

    def log(self, episode_id: str, observation: Any, given: dict[str, Any], action: Any) -> None:
        """Writes down an action that the caller has chosen; arguments as for `act`."""
        if self._copy is not None:
            action = logged_action(self._copy.sent.action_space, action)
        episode, reward = self._next_of(episode_id, observation, given, action)
        info = given.get("info")
        given.clear()
        episode.log(observation, reward, info, action)

    def check(self, episode_id: str, observation: Any, given: Mapping[str, Any]) -> None:
        """Raises what `act` raises for these arguments, and takes nothing in."""
        self._checked(episode_id, observation, given)
        self._copy.check_legal(observation)

    def has(self, episode_id: str) -> bool:
        """Whether an episode is under way."""
        return episode_id in self._running

    def end(self, episode_id: str, observation: Any, given: dict[str, Any], truncated: bool) -> None:
        """Ends an episode; its last part is sent now, or with the next one.

        Whatever is raised once the observation was found to be right, the episode is over.
        """
        episode, reward = self._checked(episode_id, observation, given)
        self._outbox.append(episode.end(observation, reward, given.get("info"), truncated))
        self._free.append(self._running.pop(episode_id))
        if time.monotonic() - self._sent > _APART_S:
            self._settle(episode_id)
            self._send()
            self._collect()

    def _checked(self, episode_id: str, observation: Any, given: Mapping[str, Any]) -> tuple[LocalEpisode, float]:
        """A running episode, and the reward since its last action."""
        if episode_id in self._lost:
            raise self._lost_error(self._lost.pop(episode_id))
        if episode_id not in self._running:
            raise ValueError(f"Episode {episode_id} not found.")
        self._copy.check(observation)
        reward = given.get("reward", 0.0)
        if not abs(reward) <= LARGEST:
            raise ValueError(
                f"the reward in episode {episode_id} must be a finite number, of at most {LARGEST:g} in size, "
                f"but is {reward!r:.80}"
            )
        return self._running[episode_id], reward

    def _next_of(
        self, episode_id: str, observation: Any, given: Mapping[str, Any], *logged: Any
    ) -> tuple[LocalEpisode, float]:
        """`_checked`, with room for a further step of the episode, in which this action is logged if there is one."""
        found = self._checked(episode_id, observation, given)
        self._copy.check_legal(observation, *logged)
        now = time.monotonic()
        if self._num_kept >= self._size:
            self._settle(episode_id)
            self._send()
        elif self._under_way is not None:
            self._glance(episode_id, now)
        elif self._num_kept and now - self._kept_since > _KEPT_S:
            self._send()
        if not self._num_kept:
            self._kept_since = now
        self._num_kept += 1
        return found

    def _settle(self, episode_id: str) -> None:
        """Waits for the answer to the request that is under way; raises if this episode is lost by it."""
        with contextlib.suppress(self._lost_error):  # each episode learns of it with its own next call
            self._collect()
        if episode_id in self._lost:
            raise self._lost_error(self._lost.pop(episode_id))

    def _glance(self, episode_id: str, now: float) -> None:
        """Looks for the answer to the request that is under way; newer weights act from now on."""
        if now - self._glanced < _GLANCE_S:
            return
        self._glanced = now
        if self._requests.has_answer():
            self._settle(episode_id)
            if self._answer is not None and "weights" in self._answer:
                self._send()

    def refresh(self) -> None:
        """Sends what is kept, and takes over the newest weights."""
        self._collect()
        if self._outbox or self._num_kept:
            self._send(have=True)
            self._collect()
        elif self._copy is not None:
            self._look()

    def _look(self) -> None:
        """Asks for newer weights. All that was acted has been sent."""
        answer = self._requests.get(f"/v1/weights?have={self._copy.edition}")
        self._looked = time.monotonic()
        if answer is not None and not self._copy.is_of(answer):
            self._drop_copy()
        elif answer is not None:
            self._copy.load(answer)

    def _compare(self) -> None:
        """Drops the copy if the server has another policy. The weights of the same one are left for later."""
        with contextlib.suppress(self._lost_error):  # each episode learns of it with its own next call
            self._collect()
        self._was_refused = False
        if self._copy is not None:
            answer = self._requests.get(f"/v1/weights?have={self._copy.edition}")
            if answer is not None and not self._copy.is_of(answer):
                self._drop_copy()

    def _drop_copy(self) -> None:
        """Gives up the copy, and all episodes in which it acts: the next one begins with the server's policy."""
        for episode_id in [*self._running, *(part["episode_id"] for part in self._outbox)]:
            self._lose(episode_id, "the server has another policy now. Start a new one.")
        self._copy, self._free = None, []

    def _send(self, have: bool = False) -> None:
        """Sends the steps that are kept, while no request is under way, and takes over the weights that have come.

        Args:
            have: whether the answer brings newer weights, whenever the last came.
        """
        copy, interval = self._copy, self._interval
        parts = self._outbox + [episode.part() for episode in self._running.values() if episode.num_steps]
        self._outbox, self._num_kept = [], 0
        for episode in itertools.chain(self._free, self._running.values()):
            episode.stop_drawing()
        if parts:
            body: dict[str, Any] = {"parts": parts}
            self._sent = time.monotonic()
            # Where old rows are dropped, newer weights are needed as soon as there are any.
            is_due = interval is not None and (
                copy.max_lag_updates is not None or self._sent - self._looked >= interval > 0
            )
            if have or is_due:
                has_newer = self._answer is not None and "weights" in self._answer  # loaded below
                body["have"] = self._answer["edition"] if has_newer else copy.edition
            self._asks_for_weights = "have" in body
            self._under_way = [part["episode_id"] for part in parts]
            try:
                self._requests.send("/v1/samples", body)
            except BaseException:  # too large: the answer to the request before would be taken for its own
                episodes, self._under_way = self._under_way, None
                self._lose_all(episodes, "its last steps could not be sent. Start a new one.")
                raise
        self._take_over()

    def _take_over(self) -> None:
        """Takes over what the newest answer has brought. No steps are kept."""
        if self._answer is not None:
            self._copy.load(self._answer)
            self._answer = None

    def _collect(self) -> None:
        """Waits for the answer to the request that is under way, if one is.

        Raises:
            EpisodeLost: if the server has refused it; all episodes that it had steps of are lost.
        """
        if self._under_way is None:
            return
        episodes, self._under_way = self._under_way, None
        try:
            answer = self._requests.answer()
        except ValueError as error:
            logger.warning("the steps of %d episodes are lost: the server has refused them: %s", len(episodes), error)
            self._lose_all(episodes, f"the server has refused its last steps: {error}. Start a new one.")
            self._was_refused = True
            raise self._lost_error(f"{len(episodes)} episodes are lost: {error}") from error
        except BaseException:  # what is kept will not be sent either
            kept = [part["episode_id"] for part in self._outbox]
            kept += [episode_id for episode_id, episode in self._running.items() if episode.num_steps]
            self._lose_all(episodes + kept, "its last steps could not be sent. Start a new one.")
            raise
        self._sent = time.monotonic()
        if self._asks_for_weights:
            self._looked = self._sent
        for episode_id, message in answer["lost"].items():
            self._lose(episode_id, message)
        if not self._copy.is_of(answer):
            self._drop_copy()
            return
        self._answer = answer
        if not (self._outbox or self._num_kept):
            self._take_over()

    def _lose_all(self, episodes: list[str], message: str) -> None:
        for episode_id in episodes:
            self._lose(episode_id, message)

    def _lose(self, episode_id: str, message: str) -> None:
        """Gives an episode up: its next call raises. One that has ended, and was sent, is never queried."""
        episode, num_parts = self._running.pop(episode_id, None), len(self._outbox)
        self._outbox = [part for part in self._outbox if part["episode_id"] != episode_id]
        if episode is not None:
            self._free.append(episode)
        elif len(self._outbox) == num_parts:
            return
        # What is kept of it would follow steps that the server does not have.
        self._num_kept = sum(_num_rows(part["actions"]) for part in self._outbox)
        self._num_kept += sum(each.num_steps for each in self._running.values())
        self._lost[episode_id] = f"episode {episode_id} is lost: {message}"
        if len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]

    def close(self) -> None:
        """Sends what is kept, and waits until it is accepted."""
        try:
            self._collect()
        except self._lost_error:
            self._send()
            self._collect()
            raise
        self._send()
        self._collect()


def _sendable(value: Any) -> Any:
    """A value of the environment as MessagePack has it."""
    if isinstance(value, str | int | float) and not isinstance(value, np.generic):
        return value
    if isinstance(value, Mapping):
        return {key: _sendable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_sendable(part) for part in value]
    array = np.asarray(value)  # tensors as well
    if array.dtype.kind not in "biuf":
        return value
    array = array.astype(np.float64 if array.dtype.itemsize > 8 else array.dtype.newbyteorder("<"), copy=False)
    return _message(array) if array.ndim else array.item()
