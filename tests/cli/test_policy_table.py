"""The table of policies that `rllib evaluate` prints."""

from rllib.cli.policy_table import policy_table
from rllib.env.episodes import Episode


def episode(**returns):
    by_agent = {tuple(name.split("__")): value for name, value in returns.items()}
    return Episode(sum(returns.values()), 1, agent_returns=by_agent)


def test_a_game_of_two_policies_has_a_score():
    won, lost = episode(a__main=1.0, b__other=-1.0), episode(a__main=-1.0, b__other=1.0)
    drawn = episode(b__main=0.0, a__other=0.0)
    assert policy_table([won, won, drawn, lost]) == [
        "policy  agents  mean return  min    max   win/draw/loss",
        "main    a, b    0.25         -1.00  1.00  2/1/1",
        "other   a, b    -0.25        -1.00  1.00  1/1/2",
    ]


def test_returns_that_are_not_opposite_have_none():
    lines = policy_table([episode(a__main=1.0, b__other=2.0), episode(a__main=3.0, b__other=-3.0)])
    assert lines[1].split() == ["main", "a", "2.00", "1.00", "3.00"]
    many = policy_table([episode(a__one=1.0, b__one=2.0, c__one=3.0, d__one=-6.0)])
    assert many[1].split() == ["one", "4", "agents", "0.00", "-6.00", "3.00"]


def test_episodes_of_one_agent_have_no_table():
    assert policy_table([Episode(1.0, 2)]) == []
