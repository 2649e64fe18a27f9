"""The policy that a server acts with, and the newer one that takes its place."""

import contextlib
import time
from pathlib import Path

from rllib.serving.counts import Counts
from rllib.serving.loaded_policy import LoadedPolicy, checkpoint_at, load_policy
from rllib.serving.messages import Question
from rllib.serving.tasks import ServingSettings
from rllib.storage.checkpoint import MANIFEST, CheckpointError

# A forward pass that takes longer than this would keep other requests from being read: it gets a thread.
QUICK_S = 0.003


class Model:
    """The policy in use. `take_up` replaces it between two batches; those that are being computed keep theirs.

    Args:
        settings: of the server.
        counts: where what it takes up is counted.
        before: checkpoint that was in use in an earlier process, which is taken if it is still there.

    Attributes:
        policy: the present one.
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
        """The policy to begin with, and its identity."""
        if before is not None:
            with contextlib.suppress(CheckpointError, OSError):  # it has been removed, or damaged, since
                return self._load(before), _identity(before)
        path = checkpoint_at(self._settings.path)
        identity = _identity(path)
        return self._load(path), identity

    def newer(self) -> Path | None:
        """A checkpoint at the source that is neither in use nor has been refused; None if there is none."""
        try:
            path = checkpoint_at(self._settings.path)
            identity = _identity(path)
        except (OSError, CheckpointError):  # it is being replaced, or removed
            return None
        return None if identity in (self._identity, self._refused) else path

    def prepare(self, path: Path) -> LoadedPolicy:
        """The policy of another checkpoint, ready to act; may run in another thread.

        Raises:
            CheckpointError: if it cannot take the place of the present one. It is not tried again.
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
        """Lets `newer` give a checkpoint again that has been refused."""
        self._refused = None

    def take_up(self, policy: LoadedPolicy) -> None:
        """Puts what `prepare` gave in the place of the present policy."""
        self.policy, self._identity = policy, self._prepared
        self._counts.add("reloads")
        self._counts.set("policy_version", policy.policy_version)

    def _load(self, path: Path) -> LoadedPolicy:
        settings = self._settings
        return load_policy(path, settings.policy_id, load_user_code=settings.load_user_code)

    def _warm_up(self, policy: LoadedPolicy) -> float:
        """Seconds of the quicker of two full batches."""
        batch, durations = self.example_batch(policy), []
        for _ in range(2):
            started = time.perf_counter()
            act(policy, batch)
            durations.append(time.perf_counter() - started)
        return min(durations)

    def example_batch(self, policy: LoadedPolicy) -> Question:
        """`max_batch` times the example."""
        one = example_of(policy)
        fields = (one.observations, one.states, one.masks, *one.previous)
        observations, *rest = (each and each * self._settings.max_batch for each in fields)
        return Question(observations, False, *rest)


def act(policy: LoadedPolicy, question: Question) -> tuple:
    """(actions, states) for a question; the states are None for a policy without a memory.

    Raises:
        ValueError: for an observation that is not in the space, or what does not belong to it.
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
    """One observation of the space, always the same, as at the beginning of an episode."""
    policy.observation_space.seed(0)
    state = policy.get_initial_state()
    masks = [policy.open_mask()] if policy.reads_mask else None
    return Question([policy.observation_space.sample()], False, [state] if state else None, masks)


def _identity(path: Path) -> tuple:
    """What differs between two checkpoints, also of the same path."""
    status = (path / MANIFEST).stat()
    return path, status.st_ino, status.st_mtime_ns
