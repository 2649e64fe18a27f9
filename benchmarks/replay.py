"""Replay buffers: rows inserted and sampled a second.

Full buffers of transitions of CartPole's size. "update" gives the sampled rows new priorities, as a learner does after
each update. Uniform replay stands beside Stable-Baselines3's, prioritised replay beside TorchRL's; each library hands
out what its learners take (numpy arrays here, torch tensors there). Beside both stands the same buffer on a disk.
"""

from functools import partial

from measure import Rounds, arguments, machine, peer, rows, table
from peers import replay_common

BAR = ">= 1 peer"
INSERTS, BATCHES = (1, 64), (64, 4096)


def filled(prioritized: bool, capacity: int, storage: str):
    """A full buffer."""
    import numpy as np

    from rllib import sample_batch as sb
    from rllib.replay.replay_buffer import ReplayBuffer
    from rllib.sample_batch import Column

    columns = (
        Column(sb.OBS, (4,), "float32"),
        Column(sb.NEXT_OBS, (4,), "float32"),
        Column(sb.ACTIONS, (), "int64"),
        Column(sb.REWARDS, (), "float32"),
        Column(sb.TERMINATEDS, (), "bool"),
    )
    replay = ReplayBuffer(columns, capacity, alpha=0.6 if prioritized else None, storage=storage)
    rng = np.random.default_rng(0)
    while len(replay) < capacity:
        # Priorities of all sizes, as they are after some training.
        replay.add(replay_common.rows(4096), rng.random(4096))
    return replay


def measured(prioritized: bool, capacity: int, seconds: float, storage: str = "memory") -> dict[str, float]:
    """Rows a second by what is done."""
    import numpy as np

    replay, rng, found = filled(prioritized, capacity, storage), np.random.default_rng(0), {}
    for size in INSERTS:
        batch = replay_common.rows(size)
        found[f"insert {size}"] = replay_common.rate(partial(replay.add, batch), size, seconds)
    for size in BATCHES:
        errors = rng.random(size)

        def learn(size=size, errors=errors):
            replay.update_priorities(replay.sample(size, rng, 0.4)["batch_indexes"], errors)

        found[f"sample {size}"] = replay_common.rate(partial(replay.sample, size, rng, 0.4), size, seconds)
        if prioritized:
            found[f"sample and update {size}"] = replay_common.rate(learn, size, seconds)
    return found


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--capacities", type=int, nargs="+", default=[100_000, 1_000_000], help="rows")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    options = parser.parse_args()
    print(machine())
    lines = []
    for capacity in options.capacities:
        for prioritized, name, label in ((False, "sb3", "SB3"), (True, "torchrl", "TorchRL")):
            lines += compare(prioritized, name, label, capacity, options)
    table(lines)


def compare(prioritized: bool, name: str, label: str, capacity: int, options) -> list:
    """A row for each thing that is measured; the sides take turns, after a round that is thrown away."""
    sides: dict[str, list[dict]] = {"ours": [], "disk": [], "peer": []}
    for index in range(options.rounds + 1):
        found = {"ours": measured(prioritized, capacity, options.seconds)}
        found["disk"] = measured(prioritized, capacity, options.seconds, "disk")
        if not options.no_peers:
            found["peer"] = peer(name, f"{name}_replay", "--capacity", capacity, "--seconds", options.seconds)
        for side, figures in found.items():
            if figures and index:
                sides[side].append(figures)
    kind = "prioritised" if prioritized else "uniform"
    beside = {"peer": (label, BAR), "disk": ("on disk", "")}
    lines = []
    for what in sides["ours"][0]:
        values = {side: [figures[what] for figures in rounds] for side, rounds in sides.items() if rounds}
        lines += rows(Rounds(values), f"{kind}, {capacity:,}: {what}", "rows/s", beside)
    return lines


if __name__ == "__main__":
    main()
