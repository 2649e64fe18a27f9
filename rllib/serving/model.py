"""The policy of a server, and its replacement by a newer one."""

import contextlib
import time
from pathlib import Path

from rllib.serving.counts import Counts
from rllib.serving.loaded_policy import LoadedPolicy, checkpoint_at, load_policy
from rllib.serving.messages import Question
from rllib.serving.tasks import ServingSettings
from rllib.storage.checkpoint import MANIFEST, CheckpointError

# A longer forward pass runs in a thread, since in the event loop it would delay the reading of other requests.
QUICK_S = 0.003


class Model:
    """The policy in use. `take_up` replaces it between two batches; a batch that is being computed keeps its policy.

    Args:
        settings: of the server.
        counts: counters of the server.
        before: checkpoint that an earlier process used, which is preferred if it still exists.

    Attributes:
        policy: the policy in use.
        is_quick: whether a forward pass may run in the event loop.

    Raises:
        CheckpointError: if there is no policy at the source.
    """

    def __init__(self, settings: ServingSettings, counts: Counts, before: Path | None = None):
        self._settings, self._counts = settings, counts
        self._refused: tuple | None = None
        self.policy, self._identity = self._first(before)
        self.is_quick = self._warm_up(self.policy) < QUICK_S
        counts.set("policy_version", self.policy.policy_version)

    def _first(self, before: Path | None) -> tuple[LoadedPolicy, tuple]:
        """Loads the first policy; returns it and its identity."""
        if before is not None:
            with contextlib.suppress(CheckpointError, OSError):  # it has been removed, or damaged, since
                return self._load(before), _identity(before)
        path = checkpoint_at(self._settings.path)
        identity = _identity(path)
        return self._load(path), identity

    def newer(self) -> Path | None:
        """Path of a checkpoint at the source that is neither in use nor refused; None if there is none."""
        try:
            path = checkpoint_at(self._settings.path)
            identity = _identity(path)
        except (OSError, CheckpointError):  # it is being replaced, or removed
            return None
        return None if identity in (self._identity, self._refused) else path

    def prepare(self, path: Path) -> LoadedPolicy:
        """Loads the policy of another checkpoint; may run in another thread.

        Raises:
            CheckpointError: if it cannot replace the present one. It is not tried again.
        """
        identity = None
        try:
            identity = _identity(path)
            policy = self._load(path)
            for name in ("observation_space", "action_space"):
                ours, theirs = getattr(self.policy, name), getattr(policy, name)
                if ours != theirs:
                    raise CheckpointError(f"{path} has the {name} {theirs}, but clients were promised {ours}")
            self._warm_up(policy)
        except Exception as error:
            self._refused = identity
            self._counts.add("reload_errors")
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
        self._prepared = identity
        return policy

    def forgive(self) -> None:
        """Allows `newer` to return a refused checkpoint again."""
        self._refused = None

    def take_up(self, policy: LoadedPolicy) -> None:
        """Replaces the present policy by the result of `prepare`."""
        self.policy, self._identity = policy, self._prepared
        self._counts.add("reloads")
        self._counts.set("policy_version", policy.policy_version)

    def _load(self, path: Path) -> LoadedPolicy:
        settings = self._settings
        return load_policy(path, settings.policy_id, load_user_code=settings.load_user_code)

    def _warm_up(self, policy: LoadedPolicy) -> float:
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
        fields = (one.observations, one.states, one.masks, *one.previous)
        observations, *rest = (each and each * self._settings.max_batch for each in fields)
        return Question(observations, False, *rest)


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
    )
    return (answer, None) if question.states is None else answer[:2]


def example_of(policy: LoadedPolicy) -> Question:
    """A question of one observation of the space, always the same, at the beginning of an episode."""
    policy.observation_space.seed(0)
    state = policy.get_initial_state()
    masks = [policy.open_mask()] if policy.reads_mask else None
    return Question([policy.observation_space.sample()], False, [state] if state else None, masks)


def _identity(path: Path) -> tuple:
    """Identity of a checkpoint; it changes when another one is written to the same path."""
    status = (path / MANIFEST).stat()
    return path, status.st_ino, status.st_mtime_ns
