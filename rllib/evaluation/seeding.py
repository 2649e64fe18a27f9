"""Random streams of a run, spawned from its one seed.

Streams are keyed by their purpose, never made by adding numbers to the seed. So no two environments share a stream, and
four environments are played alike in one rollout worker and in four. Environments of an evaluation are counted by
evaluation worker: which episodes it plays depends on its numbers of workers and environments.
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
# Streams of a process's global generators, by the worker's index.
PROCESSES = 7
EVALUATION_PROCESSES = 8
WEIGHT_NOISE = 9
INTRINSIC_WEIGHTS = 10
# Actions of agents, by environment, incarnation, policy and place in the environment.
AGENTS_ACTIONS = 11
AGENT_EPISODES = 12
DISCRIMINATOR_WEIGHTS = 13
# Streams of single episodes, by their number in the run.
EPISODES = 20
EPISODE_ACTIONS = 21
NOISE_TABLE = 22
REPLAY = 23
# Orders in which recorded rows are handed over, by epoch.
RECORDED_ROWS = 24


def seed_sequence(seed: int, stream: int, index: int = 0, incarnation: int = 0, *more: int) -> np.random.SeedSequence:
    """The independent sequence of one stream.

    Args:
        seed: the run's seed.
        stream: one of the constants above.
        index: number of what draws: an environment, counted over all workers; a worker for streams of processes; a
            policy for those of weights, learners and replays; a fragment where tensors are sampled.
        incarnation: the worker's (see `incarnation`); a new one begins fresh episodes and repeats none.
        more: further parts of the key, where these two do not tell the streams of one purpose apart.
    """
    return np.random.SeedSequence(entropy=seed, spawn_key=(stream, index, incarnation, *more))


def incarnation(restores: int, replacements: int = 0) -> int:
    """Number of a worker's incarnation, unique for each pair of restores of the run and replacements of the worker."""
    return restores << 20 | replacements


def generator(seed: int, stream: int, index: int = 0, incarnation: int = 0, *more: int) -> np.random.Generator:
    """A generator on a stream; arguments as for `seed_sequence`."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, stream, index, incarnation, *more)))


def environment_seed(seed: int, stream: int, index: int, incarnation: int = 0) -> int:
    """A plain int, as `Env.reset(seed=...)` wants it (an np.int64 is refused there)."""
    return int(seed_sequence(seed, stream, index, incarnation).generate_state(1)[0])


def seed_process(seed: int, stream: int, index: int, incarnation: int = 0) -> None:
    """Seeds the global generators of `random`, `numpy.random` and, where it is imported, torch.

    Environments may draw from them instead of from `self.np_random`; the library never does.

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
    """Restores the state of the global generators at the end of the block."""
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
