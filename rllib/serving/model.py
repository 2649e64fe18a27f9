"""The policies of a server, and their replacement by newer ones."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rllib.sample_batch import DEFAULT_POLICY
from rllib.serving.counts import Counts
from rllib.serving.loaded_policy import LoadedPolicy, load_policy, policy_ids
from rllib.serving.messages import Question
from rllib.serving.tasks import ServingSettings
from rllib.storage.checkpoint import MANIFEST, CheckpointError, checkpoint_at

# A longer forward pass runs in a thread, since in the event loop it would delay the reading of other requests.
QUICK_S = 0.003
# Looks without a checkpoint at the source after which it is not being replaced, but has gone.
_LASTING = 6


class Served:
    """A policy in use; a batch that is being computed keeps the one that it began with.

    Attributes:
        policy_id: its id.
        policy: the policy.
        is_quick: whether a forward pass may run in the event loop.
    """

    __slots__ = ("is_quick", "policy", "policy_id")

    def __init__(self, policy_id: str, policy: LoadedPolicy, is_quick: bool):
        self.policy_id, self.policy, self.is_quick = policy_id, policy, is_quick


class Model:
    """The policies in use, all of one checkpoint. `take_up` replaces them between two batches.

    Without a policy_id in the settings they are all that the first checkpoint holds. Ids stay those of the first
    checkpoint.

    Args:
        settings: settings of the server.
        counts: counters of the server.
        before: checkpoint that an earlier process used, which is preferred if it still exists.

    Attributes:
        served: policy id -> the policy.

    Raises:
        CheckpointError: if there is no policy at the source.
    """

    def __init__(self, settings: ServingSettings, counts: Counts, before: Path | None = None):
        self._settings, self._counts = settings, counts
        self._refused: tuple | None = None
        self._misses = 0  # looks since there was a checkpoint at the source
        policies, self._identity = self._first(before)
        self.served = {
            policy_id: Served(policy_id, policy, self.warm_up(policy) < QUICK_S)
            for policy_id, policy in policies.items()
        }
        counts.set("policy_version", self.policy.policy_version)

    @property
    def default(self) -> Served | None:
        """The policy of requests that name none; None where there are several, and none is the default policy."""
        if len(self.served) == 1:
            return next(iter(self.served.values()))
        return self.served.get(DEFAULT_POLICY)

    @property
    def policy(self) -> LoadedPolicy:
        """One of the policies, for what they have in common: checkpoint, version and environment."""
        return next(iter(self.served.values())).policy

    def _first(self, before: Path | None) -> tuple[dict[str, LoadedPolicy], tuple]:
        """Loads the first policies; returns them and the identity of their checkpoint."""
        if before is not None:
            with contextlib.suppress(CheckpointError, OSError):  # it has been removed, or damaged, since
                return self._load(before, self._ids(before)), identity_of(before)
        path = self._source()
        identity = identity_of(path)
        return self._load(path, self._ids(path)), identity

    def _ids(self, path: Path) -> list[str | None]:
        """Ids of the policies that are served; None is the only one."""
        if self._settings.policy_id is not None:
            return [self._settings.policy_id]
        ids = policy_ids(path)
        return [*ids] if len(ids) > 1 else [None]

    def _source(self) -> Path:
        """The checkpoint at the source: that to which a link leads, which may be changed while it is read."""
        return checkpoint_at(self._settings.path.resolve())

    def newer(self, expects_one: bool = False) -> Path | None:
        """Path of a checkpoint at the source that is neither in use nor refused; None if there is none.

        Args:
            expects_one: whether there is a checkpoint, as a person says who asks for it.

        Raises:
            CheckpointError: if there is none though one is expected, or for the first time after several looks.
        """
        try:
            path = self._source()
            identity = identity_of(path)
        except (OSError, CheckpointError) as error:  # it is being replaced, or removed
            self._misses += 1
            if expects_one or self._misses == _LASTING:
                self._counts.add("reload_errors")
                raise CheckpointError(str(error)) from error
            return None
        self._misses = 0
        return None if identity in (self._identity, self._refused) else path

    def prepare(self, path: Path) -> dict[str, LoadedPolicy]:
        """Loads the policies of another checkpoint; may run in another thread.

        Raises:
            CheckpointError: if they cannot replace the present ones. It is not tried again.
        """
        identity = None
        try:
            identity = identity_of(path)
            policies = self._load(path, [*self.served])
            for policy_id, policy in policies.items():
                check_promises(self.served[policy_id].policy, policy)
                self.warm_up(policy)
        except Exception as error:
            self._refused = identity
            self._counts.add("reload_errors")
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
        self._prepared = identity
        return policies

    def forgive(self) -> None:
        """Allows `newer` to return a refused checkpoint again."""
        self._refused = None

    def take_up(self, policies: Mapping[str, LoadedPolicy]) -> None:
        """Replaces the present policies by the result of `prepare`."""
        for policy_id, policy in policies.items():
            self.served[policy_id].policy = policy
        self._identity = self._prepared
        self._counts.add("reloads")
        self._counts.set("policy_version", self.policy.policy_version)

    def _load(self, path: Path, ids: Sequence[str | None]) -> dict[str, LoadedPolicy]:
        policies = [load_policy(path, each, load_user_code=self._settings.load_user_code) for each in ids]
        return {policy.policy_id: policy for policy in policies}

    def warm_up(self, policy: LoadedPolicy) -> float:
        """Computes two full batches; returns the duration of the quicker one in seconds."""
        batch, durations = self.example_batch(policy), []
        for _ in range(2):
            started = time.perf_counter()
            act(policy, batch)
            durations.append(time.perf_counter() - started)
        return min(durations)

    def example_batch(self, policy: LoadedPolicy) -> Question:
        """A question of `max_batch` copies of the example."""
        one = example_of(policy)
        fields = (one.observations, *one.lists)
        observations, *rest = (each and each * self._settings.max_batch for each in fields)
        return Question(observations, False, *rest)


def check_promises(served: LoadedPolicy, other: LoadedPolicy) -> None:
    """Checks that requests for one policy are right for another, which is to act in its place.

    Raises:
        CheckpointError: naming what differs in the form of a request or of its answer.
    """
    ours, theirs = _promises_of(served), _promises_of(other)
    for name, promised in ours.items():
        if theirs[name] != promised:
            raise CheckpointError(
                f"{other.checkpoint} has the {name} {theirs[name]}, but clients were promised {promised}. To serve it, "
                "start another server."
            )


def _promises_of(policy: LoadedPolicy) -> dict[str, Any]:
    """The form of requests and answers."""
    return {
        "observation_space": policy.observation_space,
        "action_space": policy.action_space,
        "memory state (shapes)": [array.shape for array in policy.get_initial_state()],
        "fields of a request": [
            "observation",
            *(["action_mask"] if policy.reads_mask else ()),
            *(["agent_id"] if policy.agent_ids else ()),
            *(f"prev_{name}" for name in ("action", "reward") if getattr(policy.previous_step, name, False)),
        ],
    }


def act(policy: LoadedPolicy, question: Question) -> tuple:
    """(actions, states) for a question; the states are None for a policy without a memory.

    Raises:
        ValueError: for an observation that is not in the space, or a state, mask or previous step that does not fit.
    """
    answer = policy.compute_actions(
        question.observations,
        question.states,
        explore=question.explore,
        prev_action=question.prev_actions,
        prev_reward=question.prev_rewards,
        action_masks=question.masks,
        agent_ids=question.agent_ids,
    )
    return (answer, None) if question.states is None else answer[:2]


def example_of(policy: LoadedPolicy) -> Question:
    """A question of one observation of the space, always the same, at the beginning of an episode."""
    policy.observation_space.seed(0)
    state = policy.get_initial_state()
    masks = [policy.open_mask()] if policy.reads_mask else None
    agents = list(policy.agent_ids[:1]) or None
    states = [state] if state else None
    return Question([policy.observation_space.sample()], False, states, masks, agent_ids=agents)


def identity_of(path: Path) -> tuple:
    """Identity of a checkpoint; it changes when another one is written to the same path."""
    status = (path / MANIFEST).stat()
    return path, status.st_ino, status.st_mtime_ns
