"""What self-play reaches in board games: the final policy, greedy, against players of a known strength, in both seats.

    python benchmarks/board_games.py --game tic_tac_toe --seeds 3
    python benchmarks/board_games.py --game connect_four --seeds 3

Trains the game's tuned example for all its steps: tic-tac-toe by one policy that plays both sides (MA9), connect-four
in a league of frozen copies (MA10). Perfect play never loses tic-tac-toe; against random moves the best there is wins
about 99 % as the first player and 92 % as the second.

A copy of the league should be stronger than those before it. All copies play each other, their actions sampled, as
often in either seat. In such a tournament the order by points is that of the ratings that explain the results best
(Bradley and Terry, Biometrika 1952; Elo's formula is theirs). The gate is its rank correlation with the order of age.
"""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from measure import arguments, machine

from rllib.algorithms.league import League
from rllib.env.multi_agent import MultiAgentEnv
from rllib.env.tasks.board_players import ConnectFourOneAhead, TicTacToeMinimax
from rllib.env.tasks.connect_four import ConnectFour
from rllib.env.tasks.tic_tac_toe import TicTacToe
from rllib.hand_written import HandWrittenPolicy, RandomPolicy

# Observations of several games in which the same player moves -> their actions.
Chooser = Callable[[Sequence], Sequence]


@dataclasses.dataclass(frozen=True)
class Game:
    """A game and how it is learned.

    Attributes:
        env: the environment.
        example: name of the tuned example.
        policy_id: of the policy that learns.
        opponents: players that it is measured against, by name.
        has_league: whether the policy learns against copies of itself; else it plays both sides.
    """

    env: type[MultiAgentEnv]
    example: str
    policy_id: str
    opponents: dict[str, type[HandWrittenPolicy]]
    has_league: bool = False


GAMES = {
    "tic_tac_toe": Game(TicTacToe, "ppo/tic_tac_toe", "shared", {"random": RandomPolicy, "perfect": TicTacToeMinimax}),
    "connect_four": Game(
        ConnectFour, "ppo/connect_four", "main", {"random": RandomPolicy, "one ahead": ConnectFourOneAhead}, True
    ),
}


def trained(game: Game, seed: int, steps: int | None = None):
    """The algorithm after these steps; None: the example's."""
    from rllib.algorithms.base.registry import get_algorithm_config
    from rllib.cli.spec import find_file, load_spec, make_spec

    spec = make_spec(load_spec(find_file(game.example)), {}, game.example)
    config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
    if game.has_league:
        in_league(config, game.policy_id)
    algo = config.debugging(seed=seed).build()
    while algo.timesteps < (steps or spec.stop["timesteps_total"]):
        algo.train()
    return algo


def in_league(config, main: str) -> None:
    """Lets the policy learn against itself, random moves, and copies, one for each time that it beats the newest."""
    league = League(main, opponents=["random"], self_play=0.5)
    config.multi_agent(
        policies={main: None, "random": RandomPolicy}, policy_mapping_fn=league.mapping, policies_to_train=[main]
    ).callbacks(league)


# ------------------------------------------------------------------------------------------------------------- games


def returns(env: type[MultiAgentEnv], choosers: Sequence[Chooser], games: int) -> np.ndarray:
    """Returns [games] of the first player; the games are played side by side.

    Args:
        env: a game of two players in turn.
        choosers: of the first and of the second player.
        games: number of games.
    """
    boards, found = [env() for _ in range(games)], np.zeros(games)
    seen = [board.reset()[0] for board in boards]
    running = list(range(games))
    for player in itertools.cycle((0, 1)):
        if not running:
            return found
        agent = env.possible_agents[player]
        actions = choosers[player]([seen[index][agent] for index in running])
        for index, action in zip(tuple(running), actions):
            seen[index], rewards, terminateds, _, _ = boards[index].step({agent: int(action)})
            found[index] += rewards[env.possible_agents[0]]
            if terminateds["__all__"]:
                running.remove(index)


def played(env: type[MultiAgentEnv], chooser: Chooser, opponent: Chooser, seat: int, games: int) -> np.ndarray:
    """Numbers of the games that the chooser has won, drawn and lost in this seat."""
    players = (chooser, opponent) if seat == 0 else (opponent, chooser)
    results = returns(env, players, games) * (1, -1)[seat]
    return np.array([np.count_nonzero(results == value) for value in (1, 0, -1)])


def policy(algo, policy_id: str, explore: bool) -> Chooser:
    """A policy as a player."""
    return lambda observations: algo.compute_actions(observations, policy_id=policy_id, explore=explore)


def tournament(algo, env: type[MultiAgentEnv], ids: Sequence[str], games: int) -> np.ndarray:
    """Points of each policy: all play each other, this number of games in either seat."""
    points = np.zeros(len(ids))
    players = [policy(algo, policy_id, explore=True) for policy_id in ids]
    for one, other in itertools.permutations(range(len(ids)), 2):
        won, drawn, lost = played(env, players[one], players[other], 0, games)
        points[one] += won + drawn / 2
        points[other] += lost + drawn / 2
    return points


def rank_correlation(values: np.ndarray) -> float:
    """Spearman's, of the values and their places; 1: they rise."""
    ranks = np.argsort(np.argsort(values, kind="stable"))
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


# ------------------------------------------------------------------------------------------------------------- table


def cells(game: Game, algo, seed: int, games: int) -> dict[str, np.ndarray]:
    """Wins, draws and losses of the final policy by opponent and seat."""
    spaces = game.env.observation_space, game.env.action_space, {"seed": seed}
    greedy = policy(algo, game.policy_id, explore=False)
    return {
        f"{name}, {place}": played(game.env, greedy, opponent(*spaces).compute_actions, seat, games)
        for name, opponent in game.opponents.items()
        for seat, place in enumerate(("first", "second"))
    }


def league_cells(game: Game, algo, games: int) -> list[str]:
    """Number of copies, and how their strength goes with their age, in a tournament and by the run's own ratings."""
    league = algo.callbacks
    copies = [policy_id for policy_id in league.opponents if policy_id not in game.opponents]
    if len(copies) < 3:
        return [f"{len(copies)}", "-", "-"]
    rating = rank_correlation(np.array([league.ratings[each] for each in copies]))
    return [f"{len(copies)}", f"{rank_correlation(tournament(algo, game.env, copies, games)):.2f}", f"{rating:.2f}"]


def main() -> None:
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--game", choices=tuple(GAMES), default="tic_tac_toe")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=3000)
    parser.add_argument("--steps", type=int, help="to train for [default: the tuned example's]")
    parser.add_argument("--games", type=int, default=500, help="in each seat against each opponent")
    parser.add_argument("--games-of-copies", type=int, default=10, help="of each pair of copies, in each seat")
    options = parser.parse_args()
    game = GAMES[options.game]
    places = [f"{name}, {seat}" for name in game.opponents for seat in ("first", "second")]
    of_league = ["copies", "rank correlation", "of the run's Elo"] if game.has_league else []
    head = ["seed", "minutes", *places, *of_league]
    print(f"{machine()}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    found = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        started = time.perf_counter()
        with trained(game, seed, options.steps) as algo:
            minutes = (time.perf_counter() - started) / 60
            results = cells(game, algo, seed, options.games)
            more = league_cells(game, algo, options.games_of_copies) if game.has_league else []
        found.append(results)
        counts = ["/".join(map(str, cell)) for cell in results.values()]
        print(f"| {seed} | {minutes:.2g} | {' | '.join([*counts, *more])} |", flush=True)
    print("\nwins/draws/losses; on average")
    for place in places:
        won, _, lost = (statistics.fmean(each[place][at] / options.games for each in found) for at in range(3))
        print(f"{place}: {won:.1%} won, {lost:.1%} lost")


if __name__ == "__main__":
    main()
