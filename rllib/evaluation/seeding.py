"""Every random stream of a run, spawned from its one seed.

Streams are keyed by what they serve, never by adding numbers to the seed, so that no two environments share one and the
same environments are played whether four of them sit in one worker or one each in four.
"""

import contextlib
import random
import sys
from collections.abc import Iterator

import numpy as np

ENVIRONMENTS = 0
ACTIONS = 1
EVALUATION_ENVIRONMENTS = 2
EVALUATION_ACTIONS = 3
INITIAL_WEIGHTS = 4
LEARNER = 5
INFERENCE = 6
# Of the generators that a whole process shares, by the worker's index.
PROCESSES = 7
EVALUATION_PROCESSES = 8
WEIGHT_NOISE = 9
INTRINSIC_WEIGHTS = 10
# Of single episodes, by their number in the run.
EPISODES = 20
EPISODE_ACTIONS = 21
NOISE_TABLE = 22
REPLAY = 23


def seed_sequence(seed: int, stream: int, index: int = 0, incarnation: int = 0) -> np.random.SeedSequence:
    """The independent sequence of one stream.

    Args:
        seed: the run's seed.
        stream: one of the constants above.
        index: which environment, counted over all workers; for the streams of processes, which worker.
        incarnation: of the worker (see `incarnation`); a new one continues with fresh episodes, not the old ones again.
    """
    return np.random.SeedSequence(entropy=seed, spawn_key=(stream, index, incarnation))


def incarnation(restores: int, replacements: int = 0) -> int:
    """Which incarnation a worker is: a number for each pair of restores of the run and replacements of the worker."""
    return restores << 20 | replacements


def generator(seed: int, stream: int, index: int = 0, incarnation: int = 0) -> np.random.Generator:
    """A generator on that stream."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, stream, index, incarnation)))


def environment_seed(seed: int, stream: int, index: int, incarnation: int = 0) -> int:
    """A plain int, as `Env.reset(seed=...)` wants it (an np.int64 is refused there)."""
    return int(seed_sequence(seed, stream, index, incarnation).generate_state(1)[0])


def seed_process(seed: int, stream: int, index: int, incarnation: int = 0) -> None:
    """Seeds the global generators of `random`, `numpy.random` and, where it is imported, torch.

    They belong to environments that draw from them instead of from `self.np_random`; the library never does.

    Args:
        seed, stream, index, incarnation: as for `seed_sequence`.
    """
    words = seed_sequence(seed, stream, index, incarnation).generate_state(8)
    random.seed(words[:4].tobytes())
    np.random.seed(words[4:])
    seed_torch(seed, stream, index, incarnation)


def seed_torch(seed: int, stream: int, index: int, incarnation: int = 0) -> None:
    """The part of `seed_process` that concerns torch; does nothing while torch is not imported."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(environment_seed(seed, stream, index, incarnation))


@contextlib.contextmanager
def keeping_process_state() -> Iterator[None]:
    """Gives the global generators back their state at the end of the block."""
    python, numpy = random.getstate(), np.random.get_state()
    torch = sys.modules.get("torch")
    torch_state = torch and torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch:
            torch.set_rng_state(torch_state)


def fresh_seed() -> int:
    """A seed from the operating system's entropy, small enough to be typed in again."""
    return int(np.random.SeedSequence().generate_state(1)[0])
