"""A replay that lives in processes of its own: each shard is an actor with a ring of rows.

Requests to a shard are answered in the order in which they were made, and few of them may be under way, so nothing
piles up anywhere: whoever finds no room has to wait for answers. A shard that dies takes its rows with it; an empty one
takes its place, and is asked for samples again when it holds as much as when learning began.
"""

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import runtime
from rllib.evaluation import seeding
from rllib.evaluation.fault_tolerance import DEATHS, FaultTolerance, Restarts, SilentActorError
from rllib.evaluation.worker_set import ensure_runtime
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import TD_ERRORS, SampleBatch

logger = logging.getLogger(__name__)

# Requests to add rows that a shard may have left to answer. (Those to update priorities are as many as its samples.)
MOST_UNANSWERED = 16


class ReplayActor:
    """One shard, in its process.

    Args:
        make_replay: makes its ring.
        seed, index, incarnation: what it draws by.
    """

    def __init__(self, make_replay: Callable[[], ReplayBuffer], seed: int, index: int, incarnation: int):
        self._replay = make_replay()
        self._rng = seeding.generator(seed, seeding.REPLAY, index, incarnation)

    def add(self, rows: SampleBatch, td_errors: np.ndarray | None) -> int:
        """Copies rows in; how many there are now."""
        self._replay.add(rows, td_errors)
        return len(self._replay)

    def sample(self, batch_size: int, beta: float) -> SampleBatch:
        """Rows with their weights and numbers."""
        return self._replay.sample(batch_size, self._rng, beta)

    def update_priorities(self, indexes: np.ndarray, td_errors: np.ndarray) -> None:
        """Takes new TD errors."""
        self._replay.update_priorities(indexes, td_errors)

    def size_bytes(self) -> int:
        """Memory of the full ring."""
        return self._replay.size_bytes

    def pid(self) -> int:
        """Number of the process."""
        return os.getpid()

    def get_state(self) -> dict[str, np.ndarray]:
        """The ring's arrays."""
        return self._replay.get_state()

    def set_state(self, state: Mapping[str, np.ndarray]) -> int:
        """Takes them over; how many rows there are now."""
        self._replay.set_state(state)
        return len(self._replay)


@dataclass
class _Shard:
    """What is known of an actor here.

    Attributes:
        actor: its handle.
        incarnation: how often it was replaced.
        rows: that it holds, as far as it has said.
        pending: what it was asked, the oldest first: (verb, reference).
        since: when the oldest of these became the one it works at.
    """

    actor: Any
    incarnation: int = 0
    rows: int = 0
    pending: deque = field(default_factory=deque)
    since: float = 0.0

    def asked(self, verb: str) -> int:
        """Requests of this kind that are not answered."""
        return sum(kind == verb for kind, _ in self.pending)


class ReplayShards:
    """Rows in turn over the shards, samples from all of them.

    Args:
        make_replay: makes the ring of one shard; it has to be pickled.
        num_shards: how many.
        seed: of the run.
        min_rows: a shard is asked for samples when it holds so many.
        max_in_flight: samples that a shard is asked for ahead.
        fault_tolerance: what happens to shards that die, as to workers; one that has not answered for sample_timeout_s
            counts as dead.

    Attributes:
        size_bytes: memory of all shards when they are full.

    Raises:
        ValueError: what making a ring raises.
    """

    def __init__(
        self,
        make_replay: Callable[[], ReplayBuffer],
        num_shards: int,
        seed: int,
        min_rows: int = 1,
        max_in_flight: int = 2,
        fault_tolerance: FaultTolerance | None = None,
    ):
        self._make_replay, self._seed = make_replay, seed
        self._min_rows, self._max_in_flight = min_rows, max_in_flight
        self._tolerance = fault_tolerance or FaultTolerance()
        self._restarts = Restarts(self._tolerance, "replay shard")
        self._turn = 0
        self._arrived: deque[tuple[tuple[int, int], SampleBatch]] = deque()
        ensure_runtime()
        self._class = runtime.remote(ReplayActor).options(num_cpus=0, oversubscribe=True)
        self._shards = {index: _Shard(self._start(index, 0)) for index in range(num_shards)}
        try:
            self.size_bytes = sum(runtime.get([shard.actor.size_bytes.remote() for shard in self._shards.values()]))
        except BaseException:
            self.stop()
            raise

    def _start(self, index: int, incarnation: int):
        return self._class.options(name=f"replay shard {index}").remote(
            self._make_replay, self._seed, index, incarnation
        )

    def __len__(self) -> int:
        """Rows that the shards have said to hold."""
        return sum(shard.rows for shard in self._shards.values())

    @property
    def num_shards(self) -> int:
        """Shards that are there."""
        return len(self._shards)

    @property
    def num_restarts(self) -> int:
        """Shards that were replaced so far."""
        return self._restarts.count

    @property
    def is_ready(self) -> bool:
        """Whether some shard holds enough to be asked for samples."""
        return any(shard.rows >= self._min_rows for shard in self._shards.values())

    # ------------------------------------------------------------------ requests

    @property
    def has_room(self) -> bool:
        """Whether some shard can be given rows; if not, `wait_for_room` helps."""
        return any(shard.asked("add") < MOST_UNANSWERED for shard in self._shards.values())

    def add(self, batch: SampleBatch) -> None:
        """Gives rows to the next shard that has room; their column td_errors, if there is one, becomes priorities.

        Raises:
            RuntimeError: if none has room.
        """
        rows = SampleBatch({name: column for name, column in batch.items() if name != TD_ERRORS})
        indices = list(self._shards)
        for turn in range(self._turn, self._turn + len(indices)):
            shard = self._shards[indices[turn % len(indices)]]
            if shard.asked("add") < MOST_UNANSWERED:
                self._turn = turn + 1
                self._ask(shard, "add", shard.actor.add.remote(rows, batch.get(TD_ERRORS)))
                return
        raise RuntimeError("no replay shard has room; wait_for_room() waits until one has")

    def request_samples(self, batch_size: int, beta: float) -> None:
        """Asks every shard that holds enough for as many samples as it may be asked for ahead."""
        arrived = Counter(index for (index, _), _ in self._arrived)
        for index, shard in self._shards.items():
            if shard.rows >= self._min_rows:
                for _ in range(self._max_in_flight - shard.asked("sample") - arrived[index]):
                    self._ask(shard, "sample", shard.actor.sample.remote(batch_size, beta))

    def update_priorities(self, source: tuple[int, int], indexes: np.ndarray, td_errors: np.ndarray) -> None:
        """Gives a sample's TD errors to the shard that it came from, unless that was replaced meanwhile.

        Args:
            source: what `next_sample` gave with the sample.
        """
        index, incarnation = source
        shard = self._shards.get(index)
        if shard is not None and shard.incarnation == incarnation:
            self._ask(shard, "update", shard.actor.update_priorities.remote(indexes, td_errors))

    def _ask(self, shard: _Shard, verb: str, ref) -> None:
        if not shard.pending:
            shard.since = time.monotonic()
        shard.pending.append((verb, ref))

    # ------------------------------------------------------------------ answers

    def next_sample(self, timeout_s: float) -> tuple[tuple[int, int], SampleBatch] | None:
        """A sample and its source, whichever came first; None if none was there in time, or none was asked for.

        Args:
            timeout_s: how long to wait at most; the death of a shard ends the wait as well.

        Raises:
            what a request raised in a shard.
            ActorDiedError: if a shard has died and is not to be replaced.
        """
        self._work_off(lambda: bool(self._arrived), timeout_s)
        return self._arrived.popleft() if self._arrived else None

    def wait_for_room(self, timeout_s: float) -> None:
        """Waits until rows can be added, or a shard has died; raises as `next_sample`."""
        self._work_off(lambda: self.has_room, timeout_s)

    def _work_off(self, is_enough: Callable[[], bool], timeout_s: float) -> None:
        """Takes in all answers that are there, and waits for more until it is enough."""
        deadline = time.monotonic() + timeout_s
        while heads := {shard.pending[0][1]: index for index, shard in self._shards.items() if shard.pending}:
            left = min(max(0.0, deadline - time.monotonic()), self._tolerance.sample_timeout_s)
            done, _ = runtime.wait(list(heads), timeout=0.0 if is_enough() else left)
            for ref in done:
                self._take_from(heads[ref])
            if self._bury_silent() or not done:
                return

    def _take_from(self, index: int) -> None:
        shard = self._shards[index]
        verb, ref = shard.pending[0]
        try:
            answer = runtime.get(ref)
        except DEATHS as death:
            self._bury(index, death)
            return
        shard.pending.popleft()
        shard.since = time.monotonic()
        self._restarts.succeeded(index)
        if verb == "add":
            shard.rows = answer
        elif verb == "sample":
            self._arrived.append(((index, shard.incarnation), answer))

    def _bury_silent(self) -> bool:
        now, silent = time.monotonic(), []
        for index, shard in self._shards.items():
            is_late = shard.pending and now - shard.since > self._tolerance.sample_timeout_s
            if is_late and not runtime.wait([shard.pending[0][1]], timeout=0)[0]:
                silent.append(index)
        for index in silent:
            waited_s = self._tolerance.sample_timeout_s
            self._bury(index, SilentActorError(f"replay shard {index} has not answered for {waited_s:g} s"))
        return bool(silent)

    def _bury(self, index: int, death: Exception) -> None:
        """Puts an empty shard in the place of a dead one; raises what the settings do not tolerate."""
        shard = self._shards[index]
        runtime.kill(shard.actor)
        is_replaced = self._restarts.failed(index, death, num_left=len(self._shards) - 1)
        logger.warning("the %d rows of replay shard %d are lost", shard.rows, index)
        if not is_replaced:
            del self._shards[index]
            return
        time.sleep(self._restarts.delay_s(index))
        incarnation = shard.incarnation + 1
        self._shards[index] = _Shard(self._start(index, incarnation), incarnation)

    # ------------------------------------------------------------------ checkpoints and the end

    def get_state(self) -> dict[str, np.ndarray]:
        """Named arrays of all shards."""
        states = runtime.get([shard.actor.get_state.remote() for shard in self._shards.values()])
        return {f"{index}.{name}": array for index, state in zip(self._shards, states) for name, array in state.items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_state` gave; what is under way is forgotten.

        Raises:
            ValueError: if it is of another number of shards, or of rings that are not like these.
        """
        parts: dict[int, dict[str, np.ndarray]] = {}
        for name, array in state.items():
            index, _, rest = name.partition(".")
            parts.setdefault(int(index), {})[rest] = array
        if set(parts) != set(self._shards):
            raise ValueError(f"the saved replay has {len(parts)} shards, but this one {len(self._shards)}")
        for index, shard in self._shards.items():
            shard.rows = runtime.get(shard.actor.set_state.remote(parts[index]))
            shard.pending.clear()
        self._arrived.clear()

    def stop(self) -> None:
        """Ends the shards' processes."""
        for shard in self._shards.values():
            runtime.kill(shard.actor)
        self._shards.clear()
