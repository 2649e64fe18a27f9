"""d3rlpy: updates a second of an algorithm for recorded data. Runs in its own environment (peers/setup d3rlpy).

    d3rlpy_updates.py ALGORITHM SECONDS
"""

import json
import logging
import sys
import time

import d3rlpy
import numpy as np
import structlog
import torch

BATCH, ROWS, LENGTH = 256, 20_000, 200
CONFIGS = {
    "BC": d3rlpy.algos.BCConfig,
    "TD3BC": d3rlpy.algos.TD3PlusBCConfig,
    "IQL": d3rlpy.algos.IQLConfig,
    "AWAC": d3rlpy.algos.AWACConfig,
    "CQL": d3rlpy.algos.CQLConfig,
}


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    rng = np.random.default_rng(0)
    dataset = d3rlpy.dataset.MDPDataset(
        rng.normal(size=(ROWS, 11)).astype(np.float32),
        rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32),
        rng.normal(size=ROWS).astype(np.float32),
        np.zeros(ROWS, np.float32),
        (np.arange(ROWS) % LENGTH == LENGTH - 1).astype(np.float32),
    )
    algo = CONFIGS[name](batch_size=BATCH).create(device=False)
    algo.build_with_dataset(dataset)
    for _ in range(2):
        algo.update(dataset.sample_transition_batch(BATCH))
    updates, started, spent = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        algo.update(dataset.sample_transition_batch(BATCH))
        updates += 1
    print(json.dumps({"per_cpu_s": updates / (time.process_time() - spent), "d3rlpy": d3rlpy.__version__}))


if __name__ == "__main__":
    main()
