"""What self-play reaches in tic-tac-toe: the final policy, greedy, against random and perfect players, in both seats.

    python benchmarks/board_games.py --seeds 3

Trains tuned_examples/ppo/tic_tac_toe.yaml for all its steps. A perfect player never loses; optimal play against a
random opponent wins about 99 % as the first player and 92 % as the second.
"""

import statistics
import time

from measure import arguments, machine


def trained(seed: int):
    """The algorithm after the example's steps."""
    from rllib.algorithms.base.registry import get_algorithm_config
    from rllib.cli.spec import find_file, load_spec, make_spec

    spec = make_spec(load_spec(find_file("ppo/tic_tac_toe")), {}, "ppo/tic_tac_toe")
    config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
    algo = config.debugging(seed=seed).build()
    while algo.timesteps < spec.stop["timesteps_total"]:
        algo.train()
    return algo


def played(algo, opponent, seat: int, games: int) -> tuple[int, int, int]:
    """Wins, draws and losses of the policy in this seat."""
    from rllib.env.tasks.tic_tac_toe import TicTacToe

    env, results = TicTacToe(), []
    own = env.possible_agents[seat]
    for _ in range(games):
        observations, _ = env.reset()
        over, total = False, 0.0
        while not over:
            agent, seen = next(iter(observations.items()))
            if agent == own:
                action = algo.compute_single_action(seen, policy_id="shared", explore=False)
            else:
                action = opponent.compute_actions([seen])[0]
            observations, rewards, terminateds, _, _ = env.step({agent: action})
            total, over = total + rewards[own], terminateds["__all__"]
        results.append(total)
    return results.count(1.0), results.count(0.0), results.count(-1.0)


def main() -> None:
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--games", type=int, default=500, help="in each seat against each opponent")
    options = parser.parse_args()
    from rllib.env.tasks.board_players import TicTacToeMinimax
    from rllib.env.tasks.tic_tac_toe import TicTacToe
    from rllib.hand_written import RandomPolicy

    print(machine())
    print("| seed | minutes | random, first | random, second | perfect, first | perfect, second |")
    print("|---|---|---|---|---|---|")
    losses = []
    for seed in range(3000, 3000 + options.seeds):
        started = time.perf_counter()
        with trained(seed) as algo:
            minutes = (time.perf_counter() - started) / 60
            spaces = TicTacToe.observation_space, TicTacToe.action_space, {"seed": seed}
            random, perfect = RandomPolicy(*spaces), TicTacToeMinimax(*spaces)
            cells = [played(algo, opponent, seat, options.games) for opponent in (random, perfect) for seat in (0, 1)]
        losses.append(sum(cell[2] for cell in cells[:2]) / (2 * options.games))
        print(f"| {seed} | {minutes:.2g} | {' | '.join('/'.join(map(str, cell)) for cell in cells)} |", flush=True)
    print(f"\nwins/draws/losses; lost to random: {statistics.fmean(losses):.2%} on average")


if __name__ == "__main__":
    main()
