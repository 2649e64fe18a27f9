"""A league: a policy that learns against frozen copies of itself and other opponents."""

from rllib.algorithms.league.league import League
from rllib.algorithms.league.matchmaking import PFSP, Latest, Matchmaking, Pairing, Uniform
from rllib.algorithms.league.snapshots import Every, SnapshotCondition, WinRate

__all__ = ["PFSP", "Every", "Latest", "League", "Matchmaking", "Pairing", "SnapshotCondition", "Uniform", "WinRate"]
