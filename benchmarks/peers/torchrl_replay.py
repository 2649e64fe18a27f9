"""TorchRL's prioritised replay: rows inserted, sampled, and sampled and updated a second. Prints a JSON line."""

import argparse
import json
from functools import partial

import torch
from replay_common import rate, rows
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer


def new_rows(count: int) -> TensorDict:
    return TensorDict({name: torch.from_numpy(column) for name, column in rows(count).items()}, [count])


def filled(capacity: int) -> TensorDictPrioritizedReplayBuffer:
    replay = TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, eps=1e-6, storage=LazyTensorStorage(capacity))
    left = capacity
    while left:
        count = min(left, 4096)
        replay.extend(new_rows(count))
        left -= count
    return replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    replay = filled(options.capacity)
    one, many = new_rows(1)[0], new_rows(64)
    found = {
        "insert 1": rate(lambda: replay.add(one), 1, options.seconds),
        "insert 64": rate(lambda: replay.extend(many), 64, options.seconds),
    }
    # Priorities of all sizes, as they are after some training.
    for start in range(0, options.capacity, 4096):
        index = torch.arange(start, min(start + 4096, options.capacity))
        replay.update_priority(index, torch.rand(len(index)))
    for size in (64, 4096):
        errors = torch.rand(size)

        def learn(size=size, errors=errors):
            replay.update_priority(replay.sample(size)["index"], errors)

        found[f"sample {size}"] = rate(partial(replay.sample, size), size, options.seconds)
        found[f"sample and update {size}"] = rate(learn, size, options.seconds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
