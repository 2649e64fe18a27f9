"""SAC, TQC, CrossQ, TD3 and DDPG on Pendulum-v1, sampling and training: environment steps a second.

Networks of 256x256, batches of 256, uniform replay of a million rows, one environment (with 2 workers one in each)
and one update per environment step. With workers there are two sides: their steps and the updates wait for each other,
or workers sample the next round meanwhile (`sample_async`). With `--train-freq 16` every side makes 16 steps in a row,
which workers share, then 16 updates. SBX and Stable-Baselines3 do the same as ours in one process, with the same
numbers. SBX and ours compute on all cores that a side may use, ours with the default of `num_cpus_per_learner`, and
Stable-Baselines3 on one. Every side of a round is a process of its own, so that the time from the start of learning to
the end of the first update has everything in it that is compiled.

`--critics` compares instead the critics of our own SAC, one row for each beside plain SAC: fully connected ones of
256x256, bins, residual blocks of SimBa and SimbaV2 of two sizes, the networks of XQC and FlashSAC, and CrossQ; one
environment, no workers. SimBa's smaller size has SBX's beside it. `--critics plain "simba 128"` compares these two.

`--environment HalfCheetah-v5` needs MuJoCo (the extra `mujoco`). `--shares` prints in addition which share of the time
the environment, choosing actions and updates took.
"""

import argparse
import functools
import json
import time

from measure import Rounds, Row, aligned, alternate, arguments, machine, ours, peer, peer_side, rows, table
from peers.continuous_common import BATCH, HIDDENS, LEARNING_STARTS, REPLAY, Watch, add_options, keep_to

OURS = ("SAC", "TQC", "CrossQ", "TD3", "DDPG")
# Critics of SAC: name -> algorithm, and settings over those of `build`.
_ACTOR = {"network": "simba", "fcnet_hiddens": [128]}, {"network": "simbav2", "fcnet_hiddens": [128]}
_DISTRIBUTION = {"num_atoms": 101, "scale_rewards": True}
CRITICS = {
    "plain": ("SAC", {}),
    "plain, in torch": ("SAC", {"learner": "torch"}),
    "101 bins": ("SAC", _DISTRIBUTION),
    "simba 128": ("SAC", {"model": _ACTOR[0], "q_model_config": {"fcnet_hiddens": [128]}}),
    "simba 512x2": ("SAC", {"model": _ACTOR[0], "q_model_config": {"fcnet_hiddens": [512, 512]}}),
    "simbav2 128": ("SAC", {"model": _ACTOR[1], "q_model_config": {"fcnet_hiddens": [128]}, **_DISTRIBUTION}),
    "simbav2 512x2": ("SAC", {"model": _ACTOR[1], "q_model_config": {"fcnet_hiddens": [512, 512]}, **_DISTRIBUTION}),
    "xqc 512x4": (
        "SAC",
        {
            "model": {"network": "xqc", "fcnet_hiddens": [256] * 4},
            "q_model_config": {"fcnet_hiddens": [512] * 4},
            "policy_delay": 3,
            **_DISTRIBUTION,
        },
    ),
    "flashsac 256x2": (
        "SAC",
        {
            "model": {"network": "flashsac", "fcnet_hiddens": [128, 128]},
            "q_model_config": {"fcnet_hiddens": [256, 256]},
            "policy_delay": 2,
            **_DISTRIBUTION,
        },
    ),
    "crossq 1024x2": ("CrossQ", {"q_model_config": {"fcnet_hiddens": [1024, 1024]}}),
}
SIMBA = "simba 128"
RATE, FIRST, TENTH = "env_steps_per_s", "first_update_s", "tenth_update_s"
LABELS = {"sbx": "SBX", "sb3": "SB3"}


# ---------------------------------------------------------------------------------------------- ours, in its process


def build(name: str, environment: str, workers: int, fragment: int = 1, sample_async: bool = False, **training):
    """The algorithm with one environment, in this process or in each worker."""
    from rllib.algorithms.base.registry import get_algorithm_config

    noise = {"type": "GaussianNoise", "random_timesteps": LEARNING_STARTS, "stddev": 0.1}
    explored = {"exploration_config": noise} if name in ("TD3", "DDPG") else {}
    of_ddpg = {"l2_reg": 0.0} if name == "DDPG" else {}  # RLlib's default is a penalty, which the peers do not compute
    return (
        get_algorithm_config(name)
        .environment(environment)
        .rollouts(num_rollout_workers=workers, rollout_fragment_length=fragment, sample_async=sample_async)
        .training(
            train_batch_size=BATCH,
            training_intensity=BATCH,
            num_steps_sampled_before_learning_starts=LEARNING_STARTS,
            replay_buffer_config={"type": "ReplayBuffer", "capacity": REPLAY},
            **{
                "model": {"fcnet_hiddens": HIDDENS, "fcnet_activation": "relu"},
                "q_model_config": {"fcnet_hiddens": HIDDENS},
                **of_ddpg,
                **training,
            },
        )
        .exploration(**explored)
        .reporting(min_sample_timesteps_per_iteration=20, min_time_s_per_iteration=None)
        .build()
    )


def measured(name: str, workers: int, given: argparse.Namespace) -> dict:
    """Rate, compile times and shares, by the names that the peers use."""
    fragment, training = max(given.train_freq // max(workers, 1), 1), {}
    if given.critic:
        name, training = CRITICS[given.critic]
    with build(name, given.environment, workers, fragment, given.sample_async, **training) as algo:
        watch = Watch()
        watch.method("update", algo.learner, "update")
        started = time.perf_counter()
        while watch.calls["update"] < given.warm_up:
            algo.train()
        before, begun, seconds = algo.timesteps, time.perf_counter(), {"physics": 0.0, "acting": 0.0}
        watch.seconds["update"] = 0.0
        while (elapsed := time.perf_counter() - begun) < given.seconds:
            result = algo.train()
            for part, of in (("physics", "env_wait"), ("acting", "inference")):
                steps = result["num_env_steps_sampled_this_iter"]
                seconds[part] += result["sampler_perf"][f"mean_{of}_ms"] * steps / 1e3
        seconds["update"] = watch.seconds["update"]
        shares = {part: total / elapsed for part, total in seconds.items()}
        return {RATE: (algo.timesteps - before) / elapsed, **watch.compile_times(started), "shares": shares}


# ------------------------------------------------------------------------------------------------------ the comparison


def same_for_all(options) -> tuple:
    """Arguments that every side gets."""
    same = ("--environment", options.environment, "--cores", options.cores)
    return (*same, "--warm-up", options.warm_up, "--seconds", options.seconds, "--train-freq", options.train_freq)


def compare_critics(options) -> list[Row]:
    """A row for each critic: its rate beside that of plain SAC, or of SBX, in rounds in which they take turns."""
    alone = ("--one", "--algorithms", "SAC", "--workers", 0, *same_for_all(options))

    def rate(critic: str) -> float:
        return ours("continuous_throughput", "--critic", critic, *alone)[RATE]

    chosen = options.critics or list(CRITICS)
    sides = {critic: functools.partial(rate, critic) for critic in chosen}
    beside = {critic: {"plain": ("plain", "")} for critic in chosen}
    if SIMBA in chosen and not options.no_peers:
        network = ("--policy", "SimbaPolicy", "--hiddens", *CRITICS[SIMBA][1]["model"]["fcnet_hiddens"])
        sides["sbx"] = peer_side(RATE, "sbx", "sbx_continuous_throughput", "SAC", *same_for_all(options), *network)
        beside[SIMBA] |= {"sbx": ("SBX's SimBa", ">= 1 peer")}
    found = alternate(options.rounds, warm_up=0, **sides)
    return [
        row for critic in chosen for row in rows(found, f"critic: {critic}", "updates/s", beside[critic], ours=critic)
    ]


def runs(options, name: str) -> dict:
    """Functions that run each side of an algorithm once."""
    same = same_for_all(options)

    def run_ours(workers: int, *how: str) -> dict:
        return ours("continuous_throughput", "--one", "--algorithms", name, "--workers", workers, *how, *same)

    def run_peer(side: str) -> dict | None:
        return peer(side, f"{side}_continuous_throughput", name, *same)

    found = {}
    for workers in options.workers:
        found[f"{workers} workers"] = functools.partial(run_ours, workers)
        if workers:
            found[f"{workers} workers, meanwhile"] = functools.partial(run_ours, workers, "--sample-async")
    return found | {side: functools.partial(run_peer, side) for side in LABELS if not options.no_peers}


def rounds(options, name: str) -> dict[str, list[dict]]:
    """What each side of an algorithm printed in each round; the sides take turns."""
    found, sides = {}, runs(options, name)
    for _ in range(options.rounds):
        for side, run in list(sides.items()):
            if (printed := run()) is None:
                del sides[side]
                found.pop(side, None)
            else:
                found.setdefault(side, []).append(printed)
    return found


def lines(name: str, found: dict[str, list[dict]]) -> list[Row]:
    """The rows of an algorithm: its rates beside each peer's, then the times to the first and the tenth update."""
    made = []
    values = {
        key: Rounds({side: [each[key] for each in printed] for side, printed in found.items()})
        for key in (RATE, FIRST, TENTH)
    }
    all_ours = [side for side in found if side not in LABELS]
    for side in all_ours:
        labels = {"sbx": (LABELS["sbx"], ">= 1 peer"), "sb3": (LABELS["sb3"], "")}
        made += rows(values[RATE], f"{name}, {side}", "env steps/s", labels, ours=side)
    for key, what, bar in ((FIRST, "first", "<= 1"), (TENTH, "tenth", "")):
        labels = {"sbx": (LABELS["sbx"], bar), "sb3": (LABELS["sb3"], "")}
        made += rows(values[key], f"{name}, until {what} update", "s", labels, ours=all_ours[0])
    return made


def print_shares(name: str, found: dict[str, list[dict]]) -> None:
    """Shares of the time by side, means over the rounds."""
    cells = [("", "", "physics", "acting", "update", "rest")]
    for side, printed in found.items():
        shares = [sum(each["shares"][part] for each in printed) / len(printed) for part in cells[0][2:5]]
        cells.append((name, side, *(f"{share:.1%}" for share in (*shares, 1 - sum(shares)))))
    aligned(cells)


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    add_options(parser)
    parser.add_argument("--algorithms", nargs="+", choices=OURS, default=OURS, help="to compare")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="numbers of rollout workers, of ours")
    parser.add_argument("--shares", action="store_true", help="print what the time is spent on")
    parser.add_argument("--sample-async", action="store_true", help="of --one: workers sample during updates")
    parser.add_argument(
        "--critics", nargs="*", choices=CRITICS, metavar="CRITIC", help="compare critics of our SAC; without names all"
    )
    parser.add_argument("--critic", choices=CRITICS, help="of --one: one of them")
    parser.add_argument("--one", action="store_true", help="run one algorithm of ours once and print its JSON line")
    options = parser.parse_args()
    if options.one:
        keep_to(options.cores)
        print(json.dumps(measured(*options.algorithms, *options.workers, options)))
        return
    print(machine())
    print(f"medians of {options.rounds} rounds of {options.seconds:g} s each; {options.cores} cores for each side")
    if options.critics is not None:
        table(compare_critics(options))
        return
    made = []
    for name in options.algorithms:
        found = rounds(options, name)
        made += lines(name, found)
        if options.shares:
            print_shares(name, found)
    table(made)


if __name__ == "__main__":
    main()
