"""A league: arithmetic of results and ratings, matchmaking, the mapping, and runs whose results are known."""

import copy
import json
import math
import pickle
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from rllib import PPOConfig
from rllib.algorithms.league import PFSP, Every, Latest, League, Pairing, SnapshotCondition, Uniform, WinRate
from rllib.algorithms.league.payoff import EloRatings, Game, PayoffTable, Record, expected_score, games_of
from rllib.env.episodes import Episode
from rllib.env.multi_agent.stream import MultiAgentStream
from rllib.env.tasks.board_players import ConnectFourOneAhead
from rllib.env.tasks.connect_four import ConnectFour
from rllib.evaluation.callbacks import make_callbacks
from rllib.evaluation.multi_agent.settings import AgentSettings
from rllib.evaluation.multi_agent.worker import MultiAgentWorker
from rllib.evaluation.sampling_worker import SampleReport
from rllib.evaluation.settings import RolloutSettings
from rllib.hand_written import RandomPolicy
from rllib.metrics import Metrics
from rllib.policies import PolicySpec
from rllib.storage.checkpoint import read_checkpoint, write_checkpoint
from rllib.storage.encoding import UserCode, encode


class TestElo:
    def test_worked_example(self):
        ratings = EloRatings(["A", "B", "C"])
        ratings.add_game("A", "B", 1.0)
        assert ratings.as_dict() == {"A": 1016.0, "B": 984.0, "C": 1000.0}
        assert expected_score(ratings["A"], ratings["C"]) == pytest.approx(0.523010, abs=1e-6)
        ratings.add_game("A", "C", 0.0)
        assert ratings["A"] == pytest.approx(999.263693, abs=1e-6)
        assert ratings["C"] == pytest.approx(1016.736307, abs=1e-6)

    def test_ratings_find_the_win_rates(self):
        rng = np.random.default_rng(0)
        ratings = EloRatings(["strong", "weak"], k=4)
        for _ in range(5000):
            ratings.add_game("strong", "weak", float(rng.random() < 0.75))
        assert expected_score(ratings["strong"], ratings["weak"]) == pytest.approx(0.75, abs=0.05)
        assert ratings["strong"] + ratings["weak"] == pytest.approx(2000)

    def test_a_draw_takes_from_the_better_one(self):
        ratings = EloRatings()
        ratings.add("better", 1200)
        ratings.add("other")
        ratings.add_game("other", "better", 0.5)
        assert ratings["other"] > 1000
        ratings.remove("better")
        assert list(ratings.as_dict()) == ["other"]


class TestPayoff:
    def test_counts_from_both_sides(self):
        table = PayoffTable()
        for score in (1.0, 1.0, 0.5, 0.0):
            table.add(Game("b", "a", score))
        table.add(Game("a", "b", 0.0))
        assert table.record("b", "a") == Record(3, 1, 1)
        assert table.record("a", "b") == Record(1, 1, 3)
        assert table.record("b", "a").games == 5
        assert table.win_rate("b", "a") == pytest.approx(0.7)
        assert table.win_rate("a", "b") == pytest.approx(0.3)

    def test_never_met(self):
        assert PayoffTable().win_rate("a", "b") == 0.5
        assert PayoffTable().record("a", "b").games == 0

    def test_win_rate_is_of_the_newest_games(self):
        table = PayoffTable(window=10)
        for score in [0.0] * 50 + [1.0] * 10:
            table.add(Game("a", "b", score))
        assert table.win_rate("a", "b") == 1.0
        assert table.record("a", "b") == Record(10, 0, 50)

    def test_state_and_removal(self):
        table, other = PayoffTable(), PayoffTable()
        for opponent in ("b", "c"):
            table.add(Game("a", opponent, 1.0))
        other.set_state(json.loads(json.dumps(table.get_state())))
        assert other.get_state() == table.get_state()
        other.remove("b")
        assert other.record("a", "b").games == 0
        assert other.record("c", "a") == Record(0, 0, 1)

    @pytest.mark.parametrize(
        ("returns", "games"),
        [
            ({("x", "b"): 1.0, ("y", "a"): -1.0}, [("a", "b", 0.0)]),
            ({("x", "a"): 0.0, ("y", "b"): 0.0}, [("a", "b", 0.5)]),
            ({("x", "a"): 1.0, ("y", "a"): -1.0}, []),  # against itself
            ({("x", "a"): 3.0, ("y", "b"): 2.0, ("z", "b"): 2.0}, [("a", "b", 1.0)]),  # means, not sums
            ({("x", "a"): 3.0, ("y", "b"): 2.0, ("z", "c"): 3.0}, [("a", "b", 1.0), ("a", "c", 0.5), ("b", "c", 0.0)]),
            ({}, []),
        ],
    )
    def test_games_of_an_episode(self, returns, games):
        assert list(games_of(Episode(0.0, 5, agent_returns=returns))) == games


class TestMatchmaking:
    @pytest.mark.parametrize(
        ("matchmaking", "expected"),
        [
            (PFSP("hard"), [0.571429, 0.357143, 0.071429]),
            (PFSP("hard", p=2), [0.711111, 0.277778, 0.011111]),
            (PFSP("variance"), [0.32, 0.5, 0.18]),
            (Uniform(), [1 / 3] * 3),
            (Latest(), [0, 0, 1]),
        ],
    )
    def test_worked_example(self, matchmaking, expected):
        rates = {"a": 0.2, "b": 0.5, "c": 0.9}
        np.testing.assert_allclose(matchmaking.probabilities(list(rates), rates.__getitem__), expected, atol=1e-6)

    @pytest.mark.parametrize(("weighting", "rate"), [("hard", 1.0), ("variance", 1.0), ("variance", 0.0)])
    def test_all_zero_is_uniform(self, weighting, rate):
        probabilities = PFSP(weighting).probabilities(["a", "b", "c", "d"], lambda opponent: rate)
        np.testing.assert_array_equal(probabilities, [0.25] * 4)

    def test_never_met_counts_as_even(self):
        table = PayoffTable()
        table.add(Game("main", "beaten", 1.0))
        table.add(Game("main", "unbeaten", 0.0))
        names = ["beaten", "unbeaten", "new"]
        probabilities = PFSP("hard").probabilities(names, lambda opponent: table.win_rate("main", opponent))
        np.testing.assert_allclose(probabilities, [0, 2 / 3, 1 / 3])

    @pytest.mark.parametrize(
        "arguments", [{"weighting": "easy"}, {"p": 0}, {"p": math.nan}, {"weighting": "variance", "p": 2}]
    )
    def test_refusals(self, arguments):
        with pytest.raises(ValueError, match="must be"):
            PFSP(**arguments)


AGENTS = ("player_0", "player_1")


def episode(environment, number):
    return SimpleNamespace(episode_id=environment << 32 | number)


class TestPairing:
    pairing = Pairing("main", ("a", "b", "c"), (0.7, 0.0, 0.3), AGENTS, seed=3)

    def players(self, environment, number):
        return [self.pairing(agent, episode(environment, number)) for agent in AGENTS]

    def test_main_changes_its_slot_with_each_episode(self):
        for environment in range(3):
            slots = [self.players(environment, number).index("main") for number in range(6)]
            assert slots == [(environment + number) % 2 for number in range(6)]

    def test_opponents_are_drawn_with_their_probabilities(self):
        drawn = Counter(player for number in range(1000) for env in range(4) for player in self.players(env, number))
        assert drawn["main"] == 4000
        assert drawn["b"] == 0
        assert drawn["a"] / 4000 == pytest.approx(0.7, abs=0.03)  # four standard errors

    def test_a_share_of_the_episodes_is_played_against_itself(self):
        pairing = Pairing("main", ("a", "b", "c"), (0.7, 0.0, 0.3), AGENTS, seed=3, self_play=0.5)
        drawn = Counter(pairing.opponent(env << 32 | number) for number in range(1000) for env in range(4))
        assert drawn["main"] / 4000 == pytest.approx(0.5, abs=0.032)  # four standard errors
        assert drawn["b"] == 0
        assert drawn["a"] / (4000 - drawn["main"]) == pytest.approx(0.7, abs=0.041)

    def test_choice_is_a_function_of_the_episode_wherever_it_is_played(self):
        copied = pickle.loads(pickle.dumps(self.pairing))
        assert copied == self.pairing
        for number in range(20):
            assert copied("player_0", episode(2, number), None, more=1) == self.players(2, number)[0]

    def test_runs_draw_others(self):
        other = Pairing("main", ("a", "b", "c"), (0.7, 0.0, 0.3), AGENTS, seed=4)
        assert [self.pairing.opponent(i) for i in range(50)] != [other.opponent(i) for i in range(50)]

    def test_more_than_two_slots(self):
        pairing = Pairing("main", ("a", "b"), (0.5, 0.5), ("x", "y", "z"))
        for number in range(9):
            players = [pairing(agent, episode(0, number)) for agent in "xyz"]
            assert players.index("main") == number % 3
            assert players.count("main") == 1
            assert len(set(players)) == 2

    def test_without_opponents_it_plays_itself(self):
        assert Pairing("main", agents=AGENTS)("player_1", episode(0, 0)) == "main"

    def test_all_policies_have_agents_before_the_agents_are_known(self):
        pairing = Pairing("main", ("a", "b"), (0.5, 0.5))
        assert {pairing("whoever", episode(0, number)) for number in range(32)} == {"main", "a", "b"}

    def test_an_agent_without_a_slot(self):
        with pytest.raises(ValueError, match=r"agent 'player_2' has no slot.*'player_0', 'player_1'"):
            self.pairing("player_2", episode(0, 0))


class StubAlgorithm:
    """An algorithm whose policies are numbers, their levels: the higher level wins, equal ones draw.

    The policy `main` is one level higher after each `pace` iterations. With `noise` a game is won by the higher level
    with a probability that two levels of difference make certain.

    Args:
        league: the callbacks.
        levels: policy id -> its level.
        pace: iterations of each level of `main`.
        games: episodes of each of two environments in an iteration.
    """

    def __init__(self, league, levels, pace=3, games=20, noise=False, seed=0):
        self.seed, self.policies = seed, dict(levels)
        self.pace, self.games, self.noise = pace, games, noise
        self.metrics, self.trained, self.removed, self.number = Metrics(smoothing_episodes=5), None, [], 0
        self.workers = SimpleNamespace(foreach_worker=lambda function: [function(SimpleNamespace(env=ConnectFour()))])
        self.own_settings = {"main": {"lr": 0.1}}
        self.callbacks = make_callbacks(league)
        self.callbacks.on_algorithm_init(algorithm=self)

    @property
    def agents(self):
        own = self.own_settings
        return SimpleNamespace(specs={each: PolicySpec(config=own.get(each)) for each in self.policies})

    def get_policy(self, policy_id):
        return SimpleNamespace(get_state=lambda: self.policies[policy_id])

    def add_policy(self, policy_id, *, config, policy_state, policy_mapping_fn, policies_to_train, **spaces):
        assert policy_id not in self.policies
        self.policies[policy_id], self.own_settings[policy_id] = policy_state, config
        self.mapping, self.trained = policy_mapping_fn, policies_to_train

    def remove_policy(self, policy_id):
        assert policy_id not in self.mapping.opponents
        del self.policies[policy_id]
        self.removed.append(policy_id)

    def set_policy_mapping_fn(self, mapping):
        assert set(mapping.opponents) <= self.policies.keys()
        self.mapping = mapping

    def train(self):
        self.metrics.start_iteration()
        self.policies["main"] = self.metrics.iteration // self.pace
        for environment in range(2):
            episodes = [self._play(environment, self.number + game) for game in range(self.games)]
            self.metrics.add_sample(SampleReport(episodes))
        self.number += self.games
        result = self.metrics.result({})
        self.callbacks.on_train_result(algorithm=self, result=result)
        return result

    def _play(self, environment, number):
        one, other = (self.mapping(agent, episode(environment, number)) for agent in AGENTS)
        difference = float(self.policies[one] - self.policies[other])
        if self.noise:
            rng = np.random.default_rng([environment, number])
            difference = 1.0 if rng.random() < 0.5 + difference / 4 else -1.0
        score = float(np.sign(difference))
        return Episode(0.0, 7, agent_returns={(AGENTS[0], one): score, (AGENTS[1], other): -score})

    def run(self, iterations):
        return [self.train()["custom_metrics"]["league"] for _ in range(iterations)]


def sizes(results):
    return [each["size"] for each in results]


def stub(levels=(("main", 0), ("random", -1)), **arguments):
    of_game = {name: arguments.pop(name) for name in ("pace", "games", "noise", "seed") if name in arguments}
    arguments = {"opponents": ["random"], "snapshot_when": WinRate(0.9, games=10), **arguments}
    return StubAlgorithm(League(**arguments), dict(levels), **of_game)


class TestLeague:
    def test_a_copy_is_added_when_the_newest_opponent_is_beaten(self):
        # Level 0 beats the random player in iteration 1, level 1 its copy of level 0 in iteration 4, and so on.
        algo = stub(matchmaking="latest")
        results = algo.run(9)
        assert sizes(results) == [2, 2, 2, 3, 3, 3, 4, 4, 4]
        assert algo.callbacks.opponents == ["random", "main_v1", "main_v2", "main_v3"]
        assert [algo.policies[f"main_v{n}"] for n in (1, 2, 3)] == [0, 1, 2]
        assert algo.trained == ["main"]
        assert algo.own_settings["main_v1"] == {"lr": 0.1}
        assert math.isnan(results[0]["win_rate_vs_latest"])  # the copy is new
        assert results[1]["win_rate_vs_latest"] == 0.5  # games against itself
        elo = results[-1]["elo"]
        assert elo["main"] > elo["main_v3"] - 1e-9
        assert elo["random"] < elo["main_v1"] < elo["main_v2"] < elo["main_v3"]

    @pytest.mark.parametrize("opponents", [["random", "main_v2"], ["random"]])
    def test_a_name_that_is_taken_is_left_out(self, opponents):
        """A copy of an earlier run may be an opponent, or a policy outside of the league."""
        levels = {"main": 0, "random": -1, "main_v2": -2}
        algo = stub(levels.items(), opponents=opponents, snapshot_when=Every(iterations=1))
        algo.run(3)
        assert algo.callbacks.opponents == [*opponents, "main_v1", "main_v3", "main_v4"]
        assert algo.policies["main_v2"] == -2
        again = stub(algo.policies.items(), opponents=opponents, snapshot_when=Every(iterations=1))
        again.callbacks.set_state(json.loads(json.dumps(algo.callbacks.get_state())))
        again.run(4)
        assert again.callbacks.opponents == [*algo.callbacks.opponents, "main_v5"]

    def test_too_few_games_are_no_reason(self):
        assert sizes(stub(games=2).run(3)) == [1, 1, 2]  # 4, 8 and 12 of the 10 games

    def test_games_against_itself_say_nothing(self):
        algo = stub(self_play=0.9, games=200)
        (first,) = algo.run(1)
        payoff = algo.callbacks.payoff
        assert 0 < payoff.record("main", "random").games < 100  # of 400
        assert payoff.record("main", "main").games == 0
        assert first["size"] == 2

    def test_games_against_all_opponents(self):
        # Against random and a copy of itself main scores .75, and .95 once the copy is a level below.
        algo = stub(snapshot_when=WinRate(0.9, games=30, against="all"), pace=2)
        assert sizes(algo.run(4)) == [2, 2, 3, 3]

    def test_a_copy_at_fixed_intervals(self):
        algo = stub(opponents=[], snapshot_when=Every(iterations=5))
        results = algo.run(11)
        assert sizes(results) == [0] * 4 + [1] * 5 + [2] * 2
        assert all(math.isnan(each["win_rate_vs_latest"]) for each in results[:5])

    @pytest.mark.parametrize(
        ("leaving", "kept"),
        [("oldest", ["main_v3", "main_v4"]), ("weakest", ["main_v3", "main_v4"])],
    )
    def test_a_full_league_loses_a_copy(self, leaving, kept):
        algo = stub(max_size=2, leaving=leaving, snapshot_when=Every(iterations=3))
        results = algo.run(12)
        assert sizes(results) == [1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3]
        assert algo.removed == ["main_v1", "main_v2"]
        assert algo.callbacks.opponents == ["random", *kept]
        assert algo.policies.keys() == {"main", "random", *kept} == results[-1]["elo"].keys()

    def test_the_weakest_copy_leaves(self):
        algo = stub(max_size=2, leaving="weakest", snapshot_when=Every(iterations=1))
        algo.run(2)
        algo.callbacks.ratings.add("main_v2", 500.0)
        algo.run(1)
        assert algo.removed == ["main_v2"]
        assert algo.callbacks.opponents == ["random", "main_v1", "main_v3"]

    def test_games_with_policies_that_left_are_not_counted(self):
        algo = stub(max_size=1, snapshot_when=Every(iterations=1))
        algo.run(2)
        games = algo.callbacks.payoff.get_state()
        algo.metrics.start_iteration()
        left = {(AGENTS[0], "main"): 1.0, (AGENTS[1], "main_v1"): -1.0}
        algo.metrics.add_sample(SampleReport([Episode(0.0, 3, agent_returns=left)]))
        algo.callbacks._add_games(algo.metrics.episodes_this_iteration)
        assert algo.callbacks.payoff.get_state() == games

    def test_all_games_of_an_iteration_are_counted(self):
        algo = stub(opponents=["random"], snapshot_when=Every(100), games=200)
        algo.run(2)
        assert algo.callbacks.payoff.record("main", "random") == Record(800, 0, 0)

    def test_matchmaking_follows_the_win_rates(self):
        levels = (("main", 0), ("equal", 0), ("better", 5), ("worse", -5))
        algo = stub(
            levels,
            opponents=["equal", "better", "worse"],
            matchmaking=PFSP("hard"),
            snapshot_when=Every(100),
            pace=100,
        )
        algo.run(1)
        np.testing.assert_allclose(algo.mapping.probabilities, [1 / 3, 2 / 3, 0])

    def test_ratings_rise_with_the_copies_of_a_noisy_game(self):
        algo = stub(
            matchmaking="uniform", snapshot_when=Every(iterations=4), pace=4, games=60, noise=True,
            levels=(("main", 0), ("random", 0)),
        )  # fmt: skip
        elo = algo.run(17)[-1]["elo"]
        ratings = [elo[f"main_v{n}"] for n in range(1, 5)]
        assert ratings == sorted(ratings)

    def test_two_runs_are_equal_and_other_seeds_are_not(self):
        def run(seed):
            algo = stub(matchmaking=PFSP("variance"), noise=True, seed=seed)
            return json.dumps(algo.run(15)), algo.callbacks.get_state()

        assert run(1) == run(1)
        assert run(1) != run(2)

    @pytest.mark.parametrize("condition", [WinRate(0.6, games=30), Every(iterations=4)])
    def test_a_run_goes_on_from_a_checkpoint(self, condition):
        def fresh():
            return stub(matchmaking=PFSP("hard"), noise=True, snapshot_when=condition, max_size=3)

        whole, first, second = fresh(), fresh(), fresh()
        expected = whole.run(20)
        begun = first.run(11)
        second.policies, second.number = copy.deepcopy(first.policies), first.number
        second.metrics.set_state(json.loads(json.dumps(first.metrics.get_state())))
        second.callbacks.set_state(json.loads(json.dumps(first.callbacks.get_state())))
        assert second.mapping == first.mapping
        assert json.dumps(begun + second.run(9)) == json.dumps(expected)
        assert len(whole.removed) > 0

    def test_a_league_without_ratings(self):
        algo = stub(rating=None)
        assert set(algo.run(2)[-1]) == {"size", "win_rate_vs_latest"}
        other = stub(rating=None)
        other.policies = dict(algo.policies)
        other.callbacks.set_state(algo.callbacks.get_state())
        assert other.callbacks.opponents == algo.callbacks.opponents

    @pytest.mark.parametrize("condition", [WinRate(0.8, games=5, against="all"), Every(iterations=7)])
    @pytest.mark.parametrize("matchmaking", ["uniform", "latest", PFSP("hard", p=2), PFSP("variance")])
    def test_a_checkpoint_holds_it_as_data(self, condition, matchmaking, tmp_path):
        league = League(
            "me", ["a", "b"], snapshot_when=condition, matchmaking=matchmaking, self_play=0.25, max_size=4,
            leaving="weakest", agents=["x", 3], policies_to_train=["me", "other"],
        )  # fmt: skip
        write_checkpoint(tmp_path / "c", {"config.json": {"callbacks_class": [league], "mapping": league.mapping}})
        read = read_checkpoint(tmp_path / "c")["config.json"]
        (again,) = read["callbacks_class"]
        assert encode(again) == encode(league)
        assert again.arguments() | {"snapshot_when": 0, "matchmaking": 0} == {
            "main": "me", "opponents": ("a", "b"), "snapshot_when": 0, "matchmaking": 0, "self_play": 0.25,
            "max_size": 4, "rating": "elo", "leaving": "weakest",
            "agents": ("x", 3), "policies_to_train": ["me", "other"],
        }  # fmt: skip
        assert read["mapping"] == again.mapping == league.mapping

    def test_a_condition_of_ones_own_is_code(self, tmp_path):
        class Never(SnapshotCondition):
            def holds(self, iteration):
                return False

        write_checkpoint(tmp_path / "c", {"config.json": {"callbacks_class": League(snapshot_when=Never())}})
        assert isinstance(read_checkpoint(tmp_path / "c")["config.json"]["callbacks_class"], UserCode)
        loaded = read_checkpoint(tmp_path / "c", load_user_code=True)["config.json"]["callbacks_class"]
        assert type(loaded.arguments()["snapshot_when"]).__name__ == "Never"

    def test_it_is_a_valid_setting_that_travels(self):
        league = League(opponents=["random"], matchmaking=PFSP())
        config = PPOConfig().environment("CartPole-v1").callbacks(league)
        config.validate()
        assert pickle.loads(pickle.dumps(league)).mapping == league.mapping
        assert league.mapping.opponents == ("random",)


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"opponents": "random"}, "must be a list of policy ids"),
            ({"opponents": ["a", "a"]}, "must be different policies"),
            ({"opponents": ["main"]}, "must be different policies"),
            ({}, "plays against itself"),
            ({"opponents": ["a"], "snapshot_when": 0.9}, "snapshot_when=0.9 must be WinRate"),
            ({"opponents": ["a"], "matchmaking": "best"}, "matchmaking='best' must be"),
            ({"opponents": ["a"], "matchmaking": PFSP}, "must be"),
            ({"opponents": ["a"], "self_play": 1.0}, "self_play=1.0 must be a share"),
            ({"opponents": ["a"], "self_play": math.nan}, "self_play=nan must be a share"),
            ({"opponents": ["a"], "max_size": 0}, "max_size=0"),
            ({"opponents": ["a"], "rating": "trueskill"}, "rating='trueskill'"),
            ({"opponents": ["a"], "leaving": "newest"}, "leaving='newest'"),
            ({"opponents": ["a"], "leaving": "weakest", "rating": None}, "needs ratings"),
            ({"opponents": ["a"], "policies_to_train": ["a"]}, "must contain 'main'"),
            ({"opponents": ["a"], "agents": ["only"]}, "two or more"),
        ],
    )
    def test_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            League(**arguments)

    @pytest.mark.parametrize("arguments", [{"threshold": 0.5}, {"threshold": 1.1}, {"games": 0}, {"against": "some"}])
    def test_win_rate(self, arguments):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            WinRate(**arguments)

    def test_every(self):
        with pytest.raises(ValueError, match="iterations=0"):
            Every(0)

    @pytest.mark.parametrize(
        ("env", "message"),
        [
            (SimpleNamespace(), "does not say which agents there are"),
            (SimpleNamespace(possible_agents=["only"]), "has only 'only'"),
        ],
    )
    def test_an_environment_without_opponents_slots(self, env, message):
        algo = stub()
        algo.workers.foreach_worker = lambda function: [function(SimpleNamespace(env=env))]
        with pytest.raises(ValueError, match=message):
            make_callbacks(League(opponents=["random"])).on_algorithm_init(algorithm=algo)


def test_games_of_a_worker_are_counted():
    """A worker whose policies are all written by hand plays connect four as the mapping says."""
    env = ConnectFour()
    spaces = env.observation_space, env.action_space
    ids = {"main": ConnectFourOneAhead, "random": RandomPolicy}
    league = League(opponents=["random"], agents=env.possible_agents)
    slots_of_main = []

    def policy_of(agent, episode, worker):
        policy_id = league.mapping(agent, episode, worker)
        if policy_id == "main":
            slots_of_main.append(agent)
        return policy_id

    agents = AgentSettings(
        policy_of,
        spaces=dict.fromkeys(ids, spaces),
        num_slots=dict.fromkeys(ids, 1),
        hand_written={policy_id: partial(kind, *spaces, {"seed": 1}) for policy_id, kind in ids.items()},
    )
    algorithm = PPOConfig().environment(observation_space=spaces[0], action_space=spaces[1]).build()

    class Settings(RolloutSettings):
        def open_agents(self, kind, indices, worker_index, incarnation):
            return MultiAgentStream([ConnectFour(), ConnectFour()], list(indices))

    known = {**vars(algorithm._rollout_settings), "policies": {}, "agents": agents}
    worker = MultiAgentWorker(Settings(**{**known, "num_envs": 2, "fragment_length": 600}))
    _, report = worker.sample()
    algorithm.stop()
    league._add_games(report.episodes)
    record = league.payoff.record("main", "random")
    assert record.games == len(report.episodes) > 40
    assert record.wins > 0.8 * record.games
    assert league.ratings["main"] > 1100 > 1000 > league.ratings["random"]
    assert abs(slots_of_main.count("player_0") - slots_of_main.count("player_1")) <= 2


SMALL = {"model": {"fcnet_hiddens": [4]}}
GAME = ConnectFour()


@pytest.mark.parametrize(
    ("main", "model"),
    [
        (PolicySpec(config=SMALL), {}),
        (SMALL, {}),
        ((None, None, None, SMALL), {}),
        (PolicySpec(None, GAME.observation_space, GAME.action_space, SMALL), {}),
        (None, {"of_policies": {"main": SMALL["model"]}}),
        (PolicySpec(config={"lr": 0.1}), {"of_policies": {"main": SMALL["model"]}}),
    ],
    ids=["spec", "dict", "tuple", "spaces", "of_policies", "both"],
)
def test_a_copy_has_the_network_of_the_policy_in_all_forms_of_its_settings(main, model):
    league = League(opponents=["random"], snapshot_when=Every(iterations=1))
    config = PPOConfig().environment(ConnectFour).rollouts(num_rollout_workers=0).callbacks(league)
    config.training(train_batch_size=32, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [6], **model})
    policies = {"main": main, "random": PolicySpec(RandomPolicy)}
    config.multi_agent(policies=policies, policy_mapping_fn=league.mapping, policies_to_train=["main"])
    with config.build() as algo:
        algo.train()
        copied, weights = algo.get_policy("main_v1"), algo.get_policy("main").weights
        np.testing.assert_array_equal(copied.weights, weights)
        assert algo.config_of("main_v1").lr == algo.config_of("main").lr
        algo.train()
