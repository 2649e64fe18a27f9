"""The names of the algorithms, apart from all else: `import rllib` reads them and must stay quick."""

# name -> module, whose classes NAME and NAMEConfig are the algorithm and its settings
ALGORITHMS = {
    "ARS": "rllib.algorithms.ars",
    "ES": "rllib.algorithms.es",
    "PPO": "rllib.algorithms.ppo",
    "IMPALA": "rllib.algorithms.impala",
    "APPO": "rllib.algorithms.appo",
    "A2C": "rllib.algorithms.a2c",
    "A3C": "rllib.algorithms.a3c",
    "PG": "rllib.algorithms.pg",
    "DQN": "rllib.algorithms.dqn",
    "SimpleQ": "rllib.algorithms.dqn",
}
