"""Parts of episodes in which clients have acted themselves, and their replay as step requests.

A part has N observations and their actions; a part that ends an episode also has the final observation. The reward of
an observation is the one since the previous action, which belongs to an earlier part for the part's first observation.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rllib.env.external.checks import AGENT
from rllib.env.external.exchange import StepRequest
from rllib.env.multi_agent.agent_spaces import ALL
from rllib.env.multi_agent.stream import AgentStep
from rllib.env.policy_server.forms import Part
from rllib.env.policy_server.weights import ActionRows
from rllib.env.spaces.supported import LARGEST, all_fit, mismatch, too_large
from rllib.web.bodies import NO_ARRAY, BadRequest, with_arrays

_CONTINUES = {ALL: False}


class Acted(NamedTuple):
    """An action that a client has chosen by its copy of the policy.

    Attributes:
        action, dist_inputs: rows as the policy stores them; `dist_inputs` is None if it stores none.
        version: version of the weights.
        is_logged: whether the action was not chosen by the policy.
    """

    action: Any
    dist_inputs: np.ndarray | None
    version: int
    is_logged: bool


class Run(NamedTuple):
    """N consecutive step requests of a part, all with actions of the client's copy of the policy.

    Attributes:
        rewards: N numbers, the reward of the previous action for each request.
        observations: an array [N, ...] or a list; the episode continues with each of them.
        actions, dist_inputs: [N, ...] as the policy stores them; `dist_inputs` is None if it stores none.
        version: version of the weights.
    """

    rewards: list[float]
    observations: Any
    actions: np.ndarray
    dist_inputs: np.ndarray | None
    version: int


class Replay(StepRequest):
    """The step requests of a part, one after the other: `following` advances this object to the next one.

    Args:
        part: a part that `checked` returned.
        notify: called with this object once the first step request was accepted, or cannot be accepted.

    Attributes:
        error: reason why the first step request was not accepted; None: it was.
        batch: batch of the client's request.
    """

    __slots__ = (
        *("_at", "_count", "_infos", "_is_notified", "_lock", "_logged", "_next", "_notify", "_part"),
        *("acted", "error", "batch"),
    )

    def __init__(self, part: Part, notify: Callable[["Replay"], None]):
        self._part, self._notify, self._is_notified, self._at = part, notify, False, 0
        self.error: BaseException | None = None
        self.batch: Any = None
        self._lock, self._next = threading.Lock(), None
        self._count, self._infos, self._logged = len(part.observations), dict(part.infos), frozenset(part.logged)
        super().__init__(part.episode_id, self._step(), trains=part.training_enabled, is_first=part.is_first)
        self.acted = self._acted()

    def _step(self) -> AgentStep:
        at, part = self._at, self._part
        seen, rewards = {AGENT: part.observations[at]}, {AGENT: part.rewards[at]}
        infos = {AGENT: self._infos[at]} if at in self._infos else {}
        if part.end is None or at + 1 < self._count:
            return AgentStep(seen, rewards, _CONTINUES, _CONTINUES, infos, False, False)
        ends = {ALL: part.end == "terminated"}, {ALL: part.end == "truncated"}
        return AgentStep(seen, rewards, *ends, infos, True, True)

    def _acted(self) -> Acted | None:
        at, part = self._at, self._part
        if self.step.is_over:
            return None
        inputs = part.action_dist_inputs
        return Acted(part.actions[at], None if inputs is None else inputs[at], part.version, at in self._logged)

    @property
    def run_length(self) -> int:
        """Number of step requests that `run` can return: all before the part's last one; 0 at an episode's start."""
        return 0 if self.is_first or self._logged else self._count - 1 - self._at

    def run(self, count: int) -> Run:
        """Answers and returns the next `count` step requests, and advances to the one after them."""
        part, rows = self._part, slice(self._at, self._at + count)
        inputs = part.action_dist_inputs
        dist_inputs = None if inputs is None else inputs[rows]
        self._go_to(self._at + count)
        return Run(part.rewards[rows], part.observations[rows], part.actions[rows], dist_inputs, part.version)

    def _go_to(self, at: int) -> None:
        self._at, self.is_first = at, False
        self.step = self._step()
        self.acted = self._acted()

    def claim(self) -> bool:
        """Returns True: a part is never withdrawn."""
        return True

    def answer(self, actions: Mapping) -> None:
        """Records that the present step request was accepted."""
        self._has_begun(None)
        if self._at + 1 == self._count:
            with self._lock:
                self.is_answered = True

    @property
    def ends(self) -> bool:
        """Whether the episode ends with this part."""
        return self._part.end is not None

    def append(self, replay: "Replay") -> bool:
        """Appends the next part of an episode; False if the last step request was processed already."""
        with self._lock:
            if self.is_answered:
                return False
            self._next = replay
        return True

    def following(self) -> StepRequest | None:
        """The next step request of the part; after the last one, the first step request of the following part."""
        if self.is_answered:
            return self._next
        self._go_to(self._at + 1)
        return self

    def fail(self, error: BaseException) -> None:
        """Gives the part up."""
        self._has_begun(error)
        with self._lock:
            self.is_answered = True

    def _has_begun(self, error: BaseException | None) -> None:
        if not self._is_notified:
            self._is_notified, self.error = True, error
            self._notify(self)


class Chains:
    """The newest parts of each client, linked in the order of the client's steps.

    So rows do not depend on the timing of requests: the parts of an episode are processed in order, and an episode
    begins after the client's previous one has ended.

    Args:
        most: number of clients above which clients are forgotten if all of their parts are accepted.
    """

    def __init__(self, most: int):
        self._most = most
        self._newest: dict[str, list[Replay]] = {}

    def link(self, client: str, replays: list[Replay]) -> tuple[list[Replay], list[Replay]]:
        """Links a client's parts to its earlier ones.

        Args:
            client: name of the client.
            replays: parts of different episodes.

        Returns:
            the parts that follow no other of `replays`; and those of them that follow no earlier part either, which the
            caller must submit.
        """
        before = [each for each in self._newest.pop(client, ()) if not each.is_answered]
        now: list[Replay] = []
        first, alone = [], []
        for replay in replays:
            if not _follows_one_of(now, replay):
                first.append(replay)
                if not _follows_one_of(before, replay):
                    alone.append(replay)
            now.append(replay)
        self._newest[client] = before + now
        if len(self._newest) > self._most:
            running = {name: [each for each in them if not each.is_answered] for name, them in self._newest.items()}
            self._newest = {name: them for name, them in running.items() if them}
        return first, alone

    def forget(self, client: str) -> bool:
        """Forgets the parts of a client, if all are accepted; returns whether they are."""
        if not all(each.is_answered for each in self._newest.get(client, ())):
            return False
        self._newest.pop(client, None)
        return True


def _follows_one_of(replays: list[Replay], replay: Replay) -> bool:
    """Appends a part to the one of the list that it follows, which is removed; False if there is none or it is over."""
    for each in replays:
        if each.episode_id == replay.episode_id or (replay.is_first and each.ends):
            replays.remove(each)
            return each.append(replay)
    return False


def checked(part: Part, space, rows: ActionRows) -> Part:
    """Decodes and checks the arrays of a part; returns the part.

    Args:
        part: the part as received; changed in place.
        space: space of the observations.
        rows: form of the actions.

    Raises:
        BadRequest: for an invalid value; the message names it and the episode.
    """
    try:
        for name in ("observations", "rewards", "actions", "action_dist_inputs"):
            setattr(part, name, with_arrays(getattr(part, name)))
        part.infos = [(index, with_arrays(info)) for index, info in part.infos]
    except NO_ARRAY as error:
        raise BadRequest(422, f'an array of MessagePack is {{"$array": [dtype, shape, bytes]}}: {error}') from None
    try:
        problem = _problem(part, space, rows)
    except NO_ARRAY as error:  # ragged lists
        raise BadRequest(422, f"the part of episode {part.episode_id:.80} has no arrays: {error}") from None
    if problem is not None:
        raise BadRequest(400, f"{problem} (episode {part.episode_id:.80})")
    part.rewards = part.rewards.tolist()
    if part.action_dist_inputs is not None and not rows.num_dist_inputs:
        part.action_dist_inputs = None
    return part


def _problem(part: Part, space, rows: ActionRows) -> str | None:
    is_array = isinstance(part.observations, np.ndarray) and part.observations.ndim > 0
    if not (is_array or isinstance(part.observations, list)) or not len(part.observations):
        return "observations must be an array, or a list, of at least one observation"
    count = len(part.observations)
    num_actions = count - (part.end is not None)
    rewards = np.asarray(part.rewards) if isinstance(part.rewards, list) else part.rewards
    if not isinstance(rewards, np.ndarray) or rewards.shape != (count,) or rewards.dtype.kind not in "biuf":
        return f"rewards must be {count} numbers, one for each observation"
    part.rewards = rewards.astype(np.float64)
    if (wrong := np.flatnonzero(~(np.abs(part.rewards) <= LARGEST))).size:
        number = float(rewards[wrong[0]])
        return f"rewards[{wrong[0]}] must be a finite number, of at most {LARGEST:g} in size, but is {number!r}"
    if any(not 0 <= index < count for index, _ in part.infos) or any(not 0 <= at < num_actions for at in part.logged):
        return f"infos and logged have indices of {count} observations, counted from 0"
    if num_actions and (problem := rows.problem(part.actions, part.action_dist_inputs, num_actions, part.logged)):
        return problem
    return _unfit(space, part.observations)


def _unfit(space, observations: np.ndarray | list) -> str | None:
    """Describes the first observation that does not lie in the space; None: all do. Bounds are not checked."""
    is_array = isinstance(observations, np.ndarray)
    fits = is_array and space.shape is not None and all_fit(space, observations, bounded=False)
    # In float64 the smallest integer has an absolute value, and float16 can be compared with LARGEST.
    if fits and (space.dtype.kind != "f" or (np.abs(observations.astype(np.float64)) <= LARGEST).all()):
        return None
    for at, each in enumerate(observations):
        path = f"observations[{at}]"
        if problem := mismatch(space, each, path, bounded=False) or too_large(space, each, path):
            return problem
    return None
