"""A replay in actors: each shard is a process with a ring of rows.

A shard answers requests in the order in which they were made. The number of unanswered requests is bounded, and with it
the memory that they hold: rows can be added only while some shard has room. The rows of a shard that dies are lost. An
empty shard replaces it, and is asked for samples again when it holds `min_rows`, or all that it has room for.
"""

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

import runtime
from rllib import spans
from rllib.config.conflicts import Unfit
from rllib.evaluation import seeding
from rllib.processes import ensure_runtime
from rllib.replay.form import Form
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import TD_ERRORS, SampleBatch
from runtime.util.fleet import FaultTolerance, Fleet, Member

logger = logging.getLogger(__name__)

# Largest number of unanswered requests to add rows, per shard. (Those to update priorities are as many as its samples.)
MOST_UNANSWERED = 16


class Held(NamedTuple):
    """What a shard holds.

    Attributes:
        rows: number of rows.
        is_full: whether new ones replace old ones; stacks of frames may fill it before `capacity` rows do.
    """

    rows: int
    is_full: bool


class ReplayActor:
    """One shard, in its process.

    Args:
        make_replay: makes its ring.
        seed, index, incarnation: determine its random stream.
        spans_directory: directory of its recorded spans (spans.py); None: it records none.
    """

    def __init__(
        self,
        make_replay: Callable[[], ReplayBuffer],
        seed: int,
        index: int,
        incarnation: int,
        spans_directory: str | None = None,
    ):
        spans.start(spans_directory, f"replay shard {index}", serves=True)
        self._replay = make_replay()
        self._rng = seeding.generator(seed, seeding.REPLAY, index, incarnation)

    def add(self, rows: SampleBatch, td_errors: np.ndarray | None) -> Held:
        """Copies rows in; returns what it holds now."""
        with spans.call("add"):
            self._replay.add(rows, td_errors)
            return self._held

    def sample(self, batch_size: int, beta: float) -> SampleBatch:
        """Rows with their importance weights and their indices in the ring."""
        with spans.call("sample"):
            return self._replay.sample(batch_size, self._rng, beta)

    def update_priorities(self, indexes: np.ndarray, td_errors: np.ndarray) -> None:
        """Makes new TD errors the priorities of these rows."""
        with spans.call("update priorities"):
            self._replay.update_priorities(indexes, td_errors)

    def size_bytes(self) -> int:
        """Memory of the full ring."""
        return self._replay.size_bytes

    def form(self) -> Form:
        """Form of the ring."""
        return self._replay.form

    def pid(self) -> int:
        """Number of the process."""
        return os.getpid()

    def get_state(self) -> dict[str, np.ndarray]:
        """The ring's arrays."""
        return self._replay.get_state()

    def set_state(self, state: Mapping[str, np.ndarray]) -> Held:
        """Replaces the ring's arrays; returns what it holds now."""
        self._replay.set_state(state)
        return self._held

    @property
    def _held(self) -> Held:
        return Held(len(self._replay), self._replay.is_full)


class ReplayShards:
    """A fleet of shards: rows go to them in turn, samples come from all of them.

    Args:
        make_replay: makes the ring of one shard; it has to be pickled.
        num_shards: number of shards.
        seed: seed of the run.
        min_rows: a shard is asked for samples once it holds this many, or is full.
        max_in_flight: number of samples requested of each shard in advance.
        fault_tolerance: what happens to shards that fail. What they are asked takes no time to speak of, so a shard
            that was silent for `silence_s` once counts as dead.
        spans_directory: where they record what they do when (spans.py); None: they do not.
        first_stream: index of the first shard's random stream, so that several replays of a run share none.

    Attributes:
        fleet: the shards.
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
        spans_directory: str | None = None,
        first_stream: int = 0,
    ):
        self._min_rows, self._max_in_flight = min_rows, max_in_flight
        self._turn = 0
        self._held: dict[int, Held] = {}  # of each shard that has rows, by its last answer
        self._arrived: deque[tuple[tuple[int, int], SampleBatch]] = deque()
        ensure_runtime()
        actor_class = runtime.remote(ReplayActor).options(num_cpus=0, oversubscribe=True)
        self.fleet = Fleet(
            lambda index, incarnation: actor_class.options(label=f"replay shard {index}").remote(
                make_replay, seed, first_stream + index, incarnation, spans_directory
            ),
            range(num_shards),
            kind="replay shard",
            tolerance=replace(fault_tolerance or FaultTolerance(), patience=1),
            ready=lambda actor: actor.size_bytes.remote(),
            on_lost=self._lose_rows,
            logger=logger,
        )
        self.size_bytes = sum(self.fleet.ask_all(lambda actor, _: actor.size_bytes.remote()).values())
        self._form = next(iter(self.fleet.ask_all(lambda actor, _: actor.form.remote()).values()))

    def _lose_rows(self, index: int, member: Member) -> None:
        logger.warning("the %d rows of replay shard %d are lost", self._held.pop(index, Held(0, False)).rows, index)

    def __len__(self) -> int:
        """Number of rows in all shards, by their last answers."""
        return sum(held.rows for held in self._held.values())

    @property
    def is_ready(self) -> bool:
        """Whether some shard holds enough to be asked for samples."""
        return any(map(self._has_enough, self._held))

    def _has_enough(self, index: int) -> bool:
        held = self._held.get(index)
        return held is not None and (held.is_full or held.rows >= self._min_rows)

    # ------------------------------------------------------------------ requests

    @property
    def has_room(self) -> bool:
        """Whether some shard can be given rows; if not, `wait_for_room` helps."""
        return any(_asked(member, "add") < MOST_UNANSWERED for member in self.fleet.members.values())

    def add(self, batch: SampleBatch) -> None:
        """Gives rows to the next shard that has room; their column td_errors, if there is one, becomes priorities.

        Raises:
            RuntimeError: if none has room.
        """
        rows = SampleBatch({name: column for name, column in batch.items() if name != TD_ERRORS})
        members = list(self.fleet.members.values())
        for turn in range(self._turn, self._turn + len(members)):
            member = members[turn % len(members)]
            if _asked(member, "add") < MOST_UNANSWERED:
                self._turn = turn + 1
                member.send(member.handle.add.remote(rows, batch.get(TD_ERRORS)), "add")
                return
        raise RuntimeError("no replay shard has room; wait_for_room() waits until one has")

    def request_samples(self, batch_size: int, beta: float) -> None:
        """Requests samples of every shard that holds enough rows, up to `max_in_flight` each."""
        arrived = Counter(index for (index, _), _ in self._arrived)
        for index, member in self.fleet.members.items():
            if self._has_enough(index):
                for _ in range(self._max_in_flight - _asked(member, "sample") - arrived[index]):
                    member.send(member.handle.sample.remote(batch_size, beta), "sample")

    def update_priorities(self, source: tuple[int, int], indexes: np.ndarray, td_errors: np.ndarray) -> None:
        """Gives a sample's TD errors to the shard that it came from, unless that was replaced meanwhile.

        Args:
            source: what `next_sample` gave with the sample.
        """
        index, incarnation = source
        member = self.fleet.members.get(index)
        if member is not None and member.incarnation == incarnation:
            member.send(member.handle.update_priorities.remote(indexes, td_errors), "update")

    # ------------------------------------------------------------------ answers

    def next_sample(self, timeout_s: float) -> tuple[tuple[int, int], SampleBatch] | None:
        """A sample and its source, whichever came first; None if none was there in time, or none was asked for.

        Args:
            timeout_s: longest wait (seconds); the death of a shard ends it as well.

        Raises:
            what a request raised in a shard, or ActorDiedError if a shard has died, where it is not tolerated.
        """
        self._work_off(lambda: bool(self._arrived), timeout_s)
        return self._arrived.popleft() if self._arrived else None

    def wait_for_room(self, timeout_s: float) -> None:
        """Waits until rows can be added, or a shard has died; raises as `next_sample`."""
        self._work_off(lambda: self.has_room, timeout_s)

    def _work_off(self, is_enough: Callable[[], bool], timeout_s: float) -> None:
        """Processes all answers that have arrived, and waits for more until `is_enough`."""
        deadline = time.monotonic() + timeout_s
        while answers := self.fleet.take(0.0 if is_enough() else max(0.0, deadline - time.monotonic())):
            for index, value, verb, incarnation in answers:
                if verb == "add":
                    self._held[index] = value
                elif verb == "sample":
                    self._arrived.append(((index, incarnation), value))

    # ------------------------------------------------------------------ checkpoints and the end

    def get_state(self) -> dict[str, np.ndarray]:
        """Named arrays of all shards."""
        states = self.fleet.ask_all(lambda actor, _: actor.get_state.remote(), is_work=False)
        return {f"{index}.{name}": array for index, state in states.items() for name, array in state.items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores what `get_state` returned; requests in flight are dropped.

        Raises:
            Unfit, DamagedFileError: (ValueErrors) as `refuse_state`.
        """
        self.refuse_state(state)
        parts = self._by_shard(state)
        self.fleet.forget()
        self._arrived.clear()
        self._held = self.fleet.ask_all(lambda actor, index: actor.set_state.remote(parts[index]), is_work=False)

    def refuse_state(self, state: Mapping[str, np.ndarray], setting_of: Callable[[int], int] | None = None) -> None:
        """Refuses a state of another number of shards, or of rings of another form; arguments as for `Form.refuse`.

        Raises:
            Unfit: (a ValueError) see above.
            DamagedFileError: (a ValueError) as `Form.refuse`.
        """
        parts = self._by_shard(state)
        saved, own = set(parts), set(self.fleet.members)
        if saved == {-1}:
            raise Unfit(
                "the saved replay was that of an algorithm with a replay in its own process.",
                "Load it into that algorithm, or begin with an empty replay.",
            )
        if saved != own:
            raise Unfit(
                f"the saved replay has {len(saved)} shards, but this one {len(own)}.",
                f"Use .training(num_replay_buffer_shards={len(saved)}), or begin with an empty replay.",
                {"num_replay_buffer_shards": len(saved)},
            )
        for part in parts.values():
            self._form.refuse(part, setting_of, len(own))

    @staticmethod
    def _by_shard(state: Mapping[str, np.ndarray]) -> dict[int, dict[str, np.ndarray]]:
        parts: dict[int, dict[str, np.ndarray]] = {}
        for name, array in state.items():
            index, is_of_shard, rest = name.partition(".")
            # -1: of a replay without shards.
            number, rest = (int(index), rest) if is_of_shard and index.isdecimal() else (-1, name)
            parts.setdefault(number, {})[rest] = array
        return parts

    def stop(self) -> None:
        """Ends the shards' processes."""
        self.fleet.stop()
        self._held.clear()


def _asked(member: Member, verb: str) -> int:
    """Number of requests of this kind that a shard has not answered."""
    return sum(tag == verb for tag, _ in member.pending)
