"""A league (AlphaStar, Nature 2019, in its simplest form): one policy learns against a growing set of opponents.

    league = League(main="main", opponents=["random"], snapshot_when=WinRate(0.9), matchmaking=PFSP("variance"))
    config = (
        PPOConfig()
        .environment("rllib.env.tasks.connect_four:ConnectFour")
        .multi_agent(
            policies={"main": PolicySpec(), "random": PolicySpec(RandomPolicy)},
            policy_mapping_fn=league.mapping,
            policies_to_train=["main"],
        )
        .callbacks(league)
    )

After each iteration the league counts the games that were played in it. When its condition holds, it adds a copy of the
policy, which stays as it is, to the opponents, and changes the mapping.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rllib.algorithms.league.matchmaking import Matchmaking, Pairing, make_matchmaking
from rllib.algorithms.league.payoff import EloRatings, PayoffTable, games_of
from rllib.algorithms.league.snapshots import SnapshotCondition, WinRate
from rllib.env.episodes import Episode
from rllib.env.multi_agent.agent_spaces import AgentID, known_agents
from rllib.evaluation.callbacks import DefaultCallbacks
from rllib.storage.by_arguments import ByArguments


class League(DefaultCallbacks, ByArguments):
    """Callbacks that let one policy learn against given opponents and frozen copies of itself.

    Copies are named main_v1, main_v2, ..., without the names that are taken. A result has `custom_metrics/league`:
    `size`, the number of opponents; `win_rate_vs_latest`, the mean score in the newest games against the newest one,
    NaN before the first; and `elo/<policy>`. A draw counts half a win. In an episode of several agents of a policy,
    the mean of their returns counts.

    Args:
        main: id of the policy that learns.
        opponents: ids of policies that stay opponents for good; may be empty with a condition that needs no games.
        snapshot_when: condition under which a copy is added, by default WinRate(0.9).
        matchmaking: choice of the opponents: "uniform", "latest", a PFSP, or an object of your own.
        self_play: share of the episodes in which the policy plays against itself, from 0 to below 1. An opponent of
            equal strength punishes mistakes that older copies let pass, and both slots are learned from. AlphaStar's
            main agents have 0.35.
        max_size: largest number of copies; then one leaves when another is added.
        rating: "elo", or None for no ratings. A copy begins with the rating of the policy that it is a copy of.
        leaving: the copy that leaves: "oldest", or "weakest", the one with the lowest rating.
        agents: the environment's agents in the order of their slots; by default those that it says are possible.
        policies_to_train: ids of all policies that learn; by default `main` alone.

    Attributes:
        payoff: results of the games.
        ratings: the ratings; None without.
        opponents: ids of all opponents, the newest last.

    Raises:
        ValueError: for arguments that cannot be, or contradict each other.
    """

    def __init__(
        self,
        main: str = "main",
        opponents: Sequence[str] = (),
        *,
        snapshot_when: SnapshotCondition | None = None,
        matchmaking: str | Matchmaking = "uniform",
        self_play: float = 0.0,
        max_size: int = 50,
        rating: Literal["elo"] | None = "elo",
        leaving: Literal["oldest", "weakest"] = "oldest",
        agents: Iterable[AgentID] = (),
        policies_to_train: Iterable[str] | None = None,
    ):
        self._condition = WinRate() if snapshot_when is None else snapshot_when
        self._matchmaking = make_matchmaking(matchmaking)
        self._main, self._given, self._agents = main, _distinct(main, opponents), tuple(agents)
        self._max_size, self._leaving, self._self_play = max_size, leaving, self_play
        self._trained = [main] if policies_to_train is None else list(policies_to_train)
        self._rating = rating
        self._check(rating)
        self.payoff = PayoffTable()
        self.ratings = EloRatings([main, *self._given]) if rating else None
        self._copies: list[str] = []
        self._newest_number = 0  # in the names of the copies
        self._algorithm: Any = None
        self._mapping_in_use: Pairing | None = None

    def _check(self, rating) -> None:
        if not isinstance(self._condition, SnapshotCondition):
            raise ValueError(
                f"snapshot_when={self._condition!r} must be WinRate(0.9), Every(iterations=20), or an object of a "
                "class derived from SnapshotCondition"
            )
        if isinstance(self._condition, WinRate) and not self._given:
            raise ValueError(
                f"without opponents {self._main!r} plays against itself, and no win rate says when to add a copy. Use "
                'League(opponents=["random"]) with such a policy, or snapshot_when=Every(iterations=20).'
            )
        if self._max_size < 1:
            raise ValueError(f"max_size={self._max_size} must be at least 1")
        if not 0.0 <= self._self_play < 1.0:
            raise ValueError(
                f"self_play={self._self_play!r} must be a share of the episodes from 0 to below 1: the others are "
                "played against the opponents, whose results say when a copy is added"
            )
        if rating not in ("elo", None):
            raise ValueError(f'rating={rating!r} must be "elo" or None')
        if self._leaving not in ("oldest", "weakest"):
            raise ValueError(f'leaving={self._leaving!r} must be "oldest" or "weakest"')
        if self._leaving == "weakest" and rating is None:
            raise ValueError('leaving="weakest" needs ratings: use rating="elo"')
        if self._main not in self._trained:
            raise ValueError(f"policies_to_train={self._trained!r} must contain {self._main!r}, the policy that learns")
        if self._agents and len(set(self._agents)) < 2:
            raise ValueError(f"agents={list(self._agents)!r} must be two or more: opponents need a slot")

    def arguments(self) -> dict[str, Any]:
        """Arguments by which an equal league is made, which starts again."""
        return {
            "main": self._main,
            "opponents": self._given,
            "snapshot_when": self._condition,
            "matchmaking": self._matchmaking,
            "self_play": self._self_play,
            "max_size": self._max_size,
            "rating": self._rating,
            "leaving": self._leaving,
            "agents": self._agents,
            "policies_to_train": self._trained,
        }

    @property
    def opponents(self) -> list[str]:
        """Ids of all opponents: the given ones, then the copies from the oldest to the newest."""
        return [*self._given, *self._copies]

    @property
    def mapping(self) -> Pairing:
        """The policy mapping of the present opponents."""
        return self._pairing(self.opponents)

    def _pairing(self, opponents: list[str]) -> Pairing:
        probabilities = self._matchmaking.probabilities(opponents, self._win_rate) if opponents else ()
        seed = self._algorithm.seed if self._algorithm else 0
        shares = tuple(map(float, probabilities))
        return Pairing(self._main, tuple(opponents), shares, self._agents, seed, self._self_play)

    def _win_rate(self, opponent: str) -> float:
        return self.payoff.win_rate(self._main, opponent)

    # ------------------------------------------------------------------ hooks

    def on_algorithm_init(self, *, algorithm, **kwargs) -> None:
        """Finds the slots, and gives the algorithm the mapping before the first episode."""
        self._algorithm = algorithm
        algorithm.metrics.keeps_episodes = True
        if not self._agents:
            self._agents = _agents_of(algorithm)
        self._set_mapping()

    def on_train_result(self, *, algorithm, result, **kwargs) -> None:
        """Counts the games of the iteration, and adds a copy if one is due."""
        self._add_games(algorithm.metrics.episodes_this_iteration)
        iteration = result["training_iteration"]
        if self._condition.holds(iteration):
            self._add_copy()
            self._condition.start_over(iteration)
        elif self.mapping != self._mapping_in_use:
            self._set_mapping()
        result["custom_metrics"]["league"] = self._statistics()

    def _set_mapping(self) -> None:
        self._mapping_in_use = self.mapping
        self._algorithm.set_policy_mapping_fn(self._mapping_in_use)

    # ------------------------------------------------------------------ games and copies

    def _add_games(self, episodes: Iterable[Episode]) -> None:
        main, opponents = self._main, self.opponents
        members = {main, *opponents}
        for game in itertools.chain.from_iterable(map(games_of, episodes)):
            players = {game.policy, game.opponent}
            if not players <= members:
                continue  # of a copy that has left, or a policy outside of the league
            self.payoff.add(game)
            if self.ratings is not None:
                self.ratings.add_game(*game)
            if main in players:
                score = game.score if game.policy == main else 1.0 - game.score
                self._condition.add_game(score, is_latest=opponents[-1] in players)

    def _add_copy(self) -> None:
        algorithm, main = self._algorithm, self._main
        # A policy of the user's may have such a name: a copy of an earlier run.
        names = ((number, f"{main}_v{number}") for number in itertools.count(self._newest_number + 1))
        number, name = next(each for each in names if each[1] not in algorithm.agents.specs)
        left = self._chosen_to_leave() if len(self._copies) == self._max_size else None
        copies = [each for each in self._copies if each != left] + [name]
        mapping = self._pairing([*self._given, *copies])
        spec = algorithm.agents.specs[main]  # a copy needs its network, in whatever form that was given
        algorithm.add_policy(
            name,
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            config=spec.config,
            policy_state=algorithm.get_policy(main).get_state(),
            policy_mapping_fn=mapping,
            policies_to_train=self._trained,
        )
        self._copies, self._newest_number, self._mapping_in_use = copies, number, mapping
        if self.ratings is not None:
            self.ratings.add(name, self.ratings[main])
        if left is not None:
            algorithm.remove_policy(left)
            self.payoff.remove(left)
            if self.ratings is not None:
                self.ratings.remove(left)

    def _chosen_to_leave(self) -> str:
        if self._leaving == "oldest" or self.ratings is None:
            return self._copies[0]
        return min(self._copies, key=self.ratings.__getitem__)

    def _statistics(self) -> dict:
        opponents = self.opponents
        has_met = bool(opponents) and self.payoff.record(self._main, opponents[-1]).games > 0
        statistics = {
            "size": len(opponents),
            "win_rate_vs_latest": self._win_rate(opponents[-1]) if has_met else math.nan,
        }
        return statistics if self.ratings is None else {**statistics, "elo": self.ratings.as_dict()}

    # ------------------------------------------------------------------ checkpoints

    def get_state(self) -> dict:
        """The copies, results, ratings and the condition's state, JSON-able; the policies have files of their own."""
        return {
            "copies": list(self._copies),
            "num_copies_made": self._newest_number,
            "payoff": self.payoff.get_state(),
            "ratings": None if self.ratings is None else self.ratings.get_state(),
            "condition": self._condition.get_state(),
        }

    def set_state(self, state: dict) -> None:
        """Restores the state that `get_state` returned; the algorithm has to have the copies' policies again."""
        self._copies, self._newest_number = list(state["copies"]), state["num_copies_made"]
        self.payoff.set_state(state["payoff"])
        if self.ratings is not None:
            # Ratings of a checkpoint without any, or without a player that is new in the config, start again.
            self.ratings = EloRatings([self._main, *self.opponents])
            saved = state["ratings"] or {}
            for player in self.ratings.as_dict().keys() & saved.keys():
                self.ratings.add(player, saved[player])
        self._condition.set_state(state["condition"])
        if self._algorithm is not None:
            self._set_mapping()


def _distinct(main: str, opponents: Sequence[str]) -> tuple[str, ...]:
    """The opponents' ids, checked."""
    if isinstance(opponents, str) or not all(isinstance(each, str) for each in (main, *opponents)):
        raise ValueError(
            f"opponents={opponents!r} must be a list of policy ids, which are strings, as is main={main!r}"
        )
    if len({main, *opponents}) != len(opponents) + 1:
        raise ValueError(
            f"opponents={list(opponents)!r} must be different policies, and none of them {main!r}, whose copies become "
            "opponents by themselves"
        )
    return tuple(opponents)


def _agents_of(algorithm) -> tuple[AgentID, ...]:
    """Possible agents of the algorithm's environments.

    Raises:
        ValueError: if they are not known, or only one.
    """
    agents = next(iter(algorithm.workers.foreach_worker(_possible_agents)), ())
    if len(agents) < 2:
        listed = f"has only {agents[0]!r}" if agents else "does not say which agents there are"
        raise ValueError(
            f"a League needs an environment with two or more agents, and this one {listed}. Set possible_agents of the "
            'environment, or use League(agents=["player_0", "player_1"]).'
        )
    return tuple(agents)


def _possible_agents(worker) -> list[AgentID]:
    return known_agents(worker.env)
