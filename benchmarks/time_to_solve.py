"""From the shell prompt to a CartPole-v1 that is solved: mean return 475 over the last 100 episodes.

Ours is `rllib train -f tuned_examples/ppo/cartpole.yaml`, from the start of the program to its end, every file written.
Stable-Baselines3 trains with RL Zoo's settings; with its imports, and below the table without.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from measure import ROOT, Rounds, Row, arguments, command, machine, peer, table

EXAMPLE = ROOT / "tuned_examples" / "ppo" / "cartpole.yaml"
TARGET = 475


def ours(seed: int) -> tuple[float, dict]:
    """Seconds of `rllib train`, and the last line of its result.json."""
    with tempfile.TemporaryDirectory() as folder:
        where = ("--results-dir", folder, "--name", "run", "--quiet")
        seconds, _ = command([sys.executable, "-m", "rllib", "train", "-f", str(EXAMPLE), "--seed", str(seed), *where])
        lines = (Path(folder) / "run" / "result.json").read_text().splitlines()
    return seconds, json.loads(lines[-1])


def solved(seed: int) -> float:
    """The same seconds, told in a line.

    Raises:
        SystemExit: if the run ended below the target; the bar is missed then, however quick it was.
    """
    seconds, result = ours(seed)
    reached = result["episode_reward_mean"]
    print(f"# seed {seed}: ours {seconds:.2f} s, {result['timesteps_total']:,} steps, return {reached:.1f}", flush=True)
    if reached < TARGET:
        raise SystemExit(f"seed {seed} ended without reaching {TARGET}")
    return seconds


def sb3(seed: int) -> dict | None:
    """What Stable-Baselines3 printed, told in a line; None where it is not set up."""
    found = peer("sb3", "sb3_time_to_solve", "--seed", seed)
    if found:
        how = "" if found["solved"] else ", NOT solved"
        print(f"# seed {seed}: SB3 {found['total_s']:.1f} s, {found['env_steps']:,} steps{how}", flush=True)
    return found


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--first-seed", type=int, default=0, help="each round has a seed of its own, from this one on")
    options = parser.parse_args()
    print(machine())
    mine, theirs = [], []
    for seed in range(options.first_seed, options.first_seed + options.rounds):
        mine.append(solved(seed))
        theirs += [found for found in [None if options.no_peers else sb3(seed)] if found]
    found = Rounds({"ours": mine} | ({"sb3": [one["total_s"] for one in theirs]} if theirs else {}))
    table([Row.of(found, "sb3", "CartPole-v1 to 475, median", "s", bar="<= 2.0", peer_name="SB3")])
    without = f"; SB3 without imports {statistics.median(one['train_s'] for one in theirs):.1f} s" if theirs else ""
    print(found.spread("ours") + without)


if __name__ == "__main__":
    main()
