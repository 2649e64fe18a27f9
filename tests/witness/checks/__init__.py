"""Checks that compute every number of a batch again, from the scripts alone, in float64.

| module        | what it checks                                                                                   |
|---------------|--------------------------------------------------------------------------------------------------|
| steps         | names of steps, and that each is there once                                                      |
| rows          | rows of fragments and of replays: rewards, ends, what followed, log-probabilities, advantages    |
| counters      | what results count: steps, episodes, returns, lengths, by agent and by policy                    |
| memory        | states before sequences, and sequences themselves, on policy and in replays                      |
| vtrace        | ratios, targets and advantages of V-trace                                                        |
| priorities    | which rows a replay draws, by which weights, and whose errors come back                          |
| filters       | statistics of observations, and filtered observations                                            |
| scaling       | rewards that were clipped or divided before they are learned from                                |
| costs         | advantages, targets and sums of costs                                                            |
"""

from tests.witness.checks.counters import check_counters
from tests.witness.checks.rows import check_on_policy, check_stored, check_whole
from tests.witness.checks.steps import Step, Steps, following, life_of

__all__ = ["Step", "Steps", "check_counters", "check_on_policy", "check_stored", "check_whole", "following", "life_of"]
