"""GAIL beside `imitation` 1.0.1: the same task, demonstrations and steps; CPU seconds, and the return reached.

Ours are the tuned examples gail/cartpole and gail/acrobot. `imitation` has the settings of its tutorial on GAIL, in an
environment with the gymnasium 0.29 that it needs. Returns are of the final policies, which draw their actions, in 100
episodes; the rewards of the tasks are read for them alone.
"""

import statistics

from learning_gates import train
from measure import ROOT, Row, arguments, machine, peer, table

# Name -> gate, and what its demonstrations are: file of the columns, episodes, return.
TASKS = {
    "CartPole-v1": ("M3", "cartpole_expert.npz", 4),
    "Acrobot-v1": ("M1", "acrobot_expert.npz", 10),
}


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--steps", type=int, help="to train for [default: the gate's]")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="[default: all]")
    parser.add_argument("--first-seed", type=int, default=3000, help="of the rounds, each with one of its own")
    options = parser.parse_args()
    print(machine())
    rows = []
    for task in options.tasks:
        gate, data, episodes = TASKS[task]
        mine, theirs = [], []
        for seed in range(options.first_seed, options.first_seed + options.rounds):
            mine.append(train(gate, seed, options.steps))
            print(f"# {task} seed {seed}: ours {mine[-1].cpu_s:.0f} s, return {mine[-1].final:.1f}", flush=True)
            if options.no_peers:
                continue
            path = ROOT / "tests" / "data" / "offline" / data
            given = "--env", task, "--data", path, "--episodes", episodes, "--steps", mine[-1].steps, "--seed", seed
            found = peer("imitation", "imitation_gail", *given, timeout_s=3000)
            if found:
                theirs.append(found)
                print(
                    f"# {task} seed {seed}: imitation {found['cpu_s']:.0f} s, return {found['return']:.1f}",
                    flush=True,
                )
        ours_s = statistics.median(one.cpu_s for one in mine)
        others_s = statistics.median(one["cpu_s"] for one in theirs) if theirs else None
        steps = f"{task}, {mine[-1].steps:,} steps"
        rows.append(Row(steps, "CPU s", ours_s, peer=others_s, peer_name="imitation", bar="<= 1 peer"))
        ours_mean = statistics.fmean(one.final for one in mine)
        line = f"{task}: return {ours_mean:.1f} (worst {min(one.final for one in mine):.1f})"
        if theirs:
            others = [one["return"] for one in theirs]
            line += f"; imitation {statistics.fmean(others):.1f} (worst {min(others):.1f})"
        print(line, flush=True)
    table(rows)


if __name__ == "__main__":
    main()
