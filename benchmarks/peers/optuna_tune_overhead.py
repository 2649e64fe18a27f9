"""Optuna's own `study.optimize`: milliseconds a trial, two at a time, drawn at random (benchmarks/peers/setup optuna).

With one process two threads (`n_jobs=2`) share a study in memory; with two processes, each with one thread, it is in a
journal on disk, which is how Optuna's documentation spreads a study over processes. The processes and a first study are
there before the clock starts.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from functools import partial
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

JOBS = 2


def objective(trial: optuna.Trial, loops: int) -> float:
    for _ in range(loops):
        pass
    return trial.suggest_float("x", 0, 1)


def in_threads(trials: int, loops: int, path: Path) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
    study.optimize(partial(objective, loops=loops), n_trials=trials, n_jobs=JOBS)
    assert len(study.trials) == trials


def journal(path: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(path)))


def part(trials: int, loops: int, path: Path) -> None:
    """What one of the processes does."""
    study = optuna.load_study(study_name="one", storage=journal(path), sampler=optuna.samplers.RandomSampler())
    study.optimize(partial(objective, loops=loops), n_trials=trials)


def in_processes(trials: int, loops: int, path: Path, pool) -> None:
    study = optuna.create_study(study_name="one", storage=journal(path))
    counts = [trials // JOBS + (index < trials % JOBS) for index in range(JOBS)]
    pool.starmap(part, [(count, loops, path) for count in counts], chunksize=1)
    assert len(study.trials) == trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trials", type=int)
    parser.add_argument("--loops", type=int, default=0, help="passes of an empty Python loop in each trial")
    parser.add_argument("--processes", type=int, choices=(1, JOBS), default=1)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as directory, multiprocessing.Pool(JOBS) as pool:
        run = partial(in_processes, pool=pool) if given.processes > 1 else in_threads
        run(JOBS, 0, Path(directory, "first"))
        started = time.perf_counter()
        run(given.trials, given.loops, Path(directory, "second"))
        taken_s = time.perf_counter() - started
    result = {"per_trial_ms": 1e3 * taken_s / given.trials, "trials_per_s": given.trials / taken_s}
    print(json.dumps(result | {"optuna": optuna.__version__}))


if __name__ == "__main__":
    main()
