"""What the tuned examples reach: the final policy, deterministic, on fresh episodes; a row per gate.

    python benchmarks/learning_gates.py                    all of them, one after the other on each core
    python benchmarks/learning_gates.py A03 A20 --seeds 3  two of them, three seeds

An example that trains for less than two minutes is run on ten seeds, a longer one on five. Trained for all the steps
that the example allows, whatever is reached before; minutes are those of training, the median over the seeds, on a
machine that may do as many runs at once. The rows are those of docs/project/results.md.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

from measure import ROOT, machine
from strategies import Exploitability

from rllib.env.tasks.rock_paper_scissors import AlwaysSame, BeatLast


@dataclasses.dataclass(frozen=True)
class Gate:
    """What an example's final returns on several seeds have to reach.

    Attributes:
        example: name of a tuned example.
        least: their mean.
        anchor: what others have published for the task and this number of steps.
        episodes: of the evaluation.
        changes: settings over the example's.
        steps: to train for; None for the example's.
        seeds: how many.
        worst: what each seed has to reach.
        below: what their mean must stay below: of a control, which cannot learn all of the task, or a measure of
            what is left.
        needed: how many seeds have to reach `least`, where their mean does not count.
        by_policy: whether the return is that of the learning policy with the least, where several agents act.
        most_cost: mean cost of the evaluation's episodes beyond which the return does not count: it is -inf.
        exploited: whether the policies' exploitability (strategies.py) is measured, not their return.
        teacher: the tuned example, or the gate, whose final policy teaches: its checkpoint is given by --teacher.
        disturbed: `disturbances` of further evaluations: what counts is the least of their returns as a share of that
            of the example's own evaluation.
    """

    example: str
    least: float
    anchor: str
    episodes: int = 100
    changes: dict = dataclasses.field(default_factory=dict)
    steps: int | None = None
    seeds: int = 10
    worst: float = -math.inf
    below: float = math.inf
    needed: int | None = None
    by_policy: bool = False
    most_cost: float | None = None
    exploited: bool = False
    teacher: str | None = None
    disturbed: tuple[dict, ...] = ()

    def passes(self, finals: list[float]) -> bool:
        """Whether these final returns, one of each seed, suffice."""
        if self.needed is not None:
            return sum(final >= self.least for final in finals) >= self.needed
        return self.least <= statistics.fmean(finals) < self.below and min(finals) >= self.worst


_NO_ICE = {"env_config": {"is_slippery": False}}
_EMPTY_ROOM = {"env_config": {"id": "MiniGrid-Empty-Random-5x5-v0"}}
_KEY_CORRIDOR = {"env_config": {"id": "MiniGrid-KeyCorridorS3R1-v0"}}
# Layers as wide as the LSTM and the one behind it, but nothing that remembers where the cart and the pole were.
_NO_MEMORY = {"model": {"fcnet_hiddens": [64, 64], "fcnet_activation": "relu"}}
# The same of SAC's actor and critics: as wide as the cell and the layer behind it.
_SAC_WITHOUT = {
    "model": {"fcnet_hiddens": [64, 128], "fcnet_activation": "relu"},
    "zero_init_states": True,
    "replay_buffer_config": {"type": "ReplayBuffer", "capacity": 20_000},
}
# No model setting but use_lstm, and what fits 60,000 steps of it.
_DEFAULT_LSTM = {
    "model": {"use_lstm": True},
    "train_batch_size": 512,
    "num_sgd_iter": 6,
    "lr": [[0, 1e-3], [60_000, 1e-4]],
    "lambda_": 0.9,
    "clip_param": 0.2,
}
_LESS = "7 in QMIX's paper: values of single agents, added or not, do not show that 8 is better"
# An opponent that is written by hand, in the place of the second policy of tuned_examples/ppo/rock_paper_scissors.yaml.
_ALWAYS_SAME = {"policies": {"player_0": None, "player_1": AlwaysSame}}
_CHEETAH = "on v4, at 100k steps: 6156, SAC; 8112, CrossQ; 8597, XQC; 9815, FlashSAC"
_WALKER = "on v4, at 100k steps: 690, SAC; 3914, CrossQ; 3299, FlashSAC"
_BEAT_LAST = {
    "policies": {"player_0": None, "player_1": BeatLast},
    "model": {"use_lstm": True, "lstm_cell_size": 32, "lstm_use_prev_action": True, "fcnet_hiddens": []},
}
_ONE_PENDULUM = {"env_config": {"num_agents": 1}}
_ENORMOUS = "-143, the data"
_HALVES = "-350, the data: -524 and -175"
_WITHIN = "3.162 is the optimum within the limit of 1.5, 2.739 that of one speed for all stretches"
_MASSES = "model.body_mass"  # of MuJoCo's model
_PENDULUM = "-172, RL Baselines3 Zoo, one run; -199.9, Stable-Baselines3, three seeds, with state-dependent noise"

GATES = {
    "A01": Gate("ppo/cartpole", 475, "500, RL Baselines3 Zoo, one run", steps=100_000),
    "A01-TRPO": Gate("trpo/cartpole", 473, "473.7, sb3-contrib, the same ten seeds (245-500)", steps=100_000),
    "A02": Gate("ppo/cartpole_cleanrl", 470, "490 in training, CleanRL", seeds=5),
    "A03": Gate(
        "dqn/cartpole",
        475,
        "500, RL Baselines3 Zoo, one run; 373, Stable-Baselines3, five seeds (110-500)",
        worst=400,
    ),
    "A03-quantiles": Gate("dqn/cartpole_quantiles", 475, "500, RL Baselines3 Zoo's DQN, one run", seeds=5),
    "A03-IQN": Gate("dqn/cartpole_iqn", 475, "500, RL Baselines3 Zoo's DQN, one run", seeds=5),
    "A04": Gate("rainbow/cartpole", 450, "450 as stop criterion, RLlib"),
    "A05": Gate("c51/cartpole", 440, "481 in training, CleanRL", seeds=5),
    "A06": Gate("pqn/cartpole", 475, "495 in training, CleanRL"),
    "A07": Gate("a2c/cartpole", 460, "500, RL Baselines3 Zoo, one run; 424, Stable-Baselines3, three seeds (273-500)"),
    "A08": Gate("a3c/cartpole", 350, "150 at 200k steps as stop criterion, RLlib"),
    "A09": Gate("pg/cartpole", 350, "483 in training, SLM Lab; 150 at 100k steps, RLlib"),
    "A10": Gate("impala/cartpole", 450, "450 as stop criterion, RLlib", seeds=5),
    "A11": Gate("appo/cartpole", 470, "450 at 2M steps, RLlib; about 500, Sample Factory"),
    "A12": Gate("apex_dqn/cartpole", 400, "150 at 250k steps as stop criterion, RLlib", seeds=5),
    "A13": Gate("sac/cartpole", 350, "406 in training, SLM Lab; 150 at 100k steps, RLlib", seeds=5),
    "A14": Gate("es/cartpole", 300, "100 at 500k steps as stop criterion, RLlib"),
    "A15": Gate("ars/cartpole", 475, "500 at 50k steps, RL Baselines3 Zoo, one run"),
    "A16": Gate("ppo/acrobot", -90, "-80.3, Stable-Baselines3, three seeds; -81 in training, SLM Lab", seeds=5),
    "A17": Gate("dqn/acrobot", -95, "-76.6, RL Baselines3 Zoo, one run", seeds=5),
    "A18": Gate("ppo/mountaincar", -130, "-110.4, RL Baselines3 Zoo, one run", seeds=5),
    "A19": Gate(
        "ppo/lunarlander", 200, "242, RL Baselines3 Zoo, one run; 183 at 300k steps in training, SLM Lab", seeds=5
    ),
    "A20": Gate(
        "dqn/lunarlander", 110, "154, RL Baselines3 Zoo, one run; 195 at 300k steps in training, SLM Lab", seeds=5
    ),
    "A21": Gate("ppo/frozenlake", 0.70, "0.744 is the optimum", episodes=1000),
    "A22": Gate("dqn/frozenlake", 1.0, "1 is the optimum", episodes=1000),
    "A22-PPO": Gate("ppo/frozenlake", 1.0, "1 is the optimum", episodes=1000, changes=_NO_ICE, steps=50_000),
    "A23": Gate("dqn/taxi", 7.0, "7.93 is the optimum", episodes=1000),
    "A24": Gate("dqn/cliffwalking", -13, "-13 is the optimum"),
    "A25": Gate("ppo/doorkey", 0.90, "0.964, RL Baselines3 Zoo, one run", seeds=5),
    "A26": Gate("ppo/doorkey", 0.95, "0.968, RL Baselines3 Zoo, one run", changes=_EMPTY_ROOM, seeds=5),
    "A26-wrappers": Gate("ppo/minigrid_empty", 0.95, "0.968, RL Baselines3 Zoo, one run of A26's settings", seeds=5),
    "A27": Gate(
        "ppo/doorkey", 0.85, "0.949, RL Baselines3 Zoo, one run", changes=_KEY_CORRIDOR, steps=500_000, seeds=5
    ),
    "A28": Gate("ppo/masked_cartpole", 485, "500 is the optimum among legal actions", seeds=5),
    "A30": Gate(
        "sac/pendulum",
        -185,
        "-157, RL Baselines3 Zoo, one run; -144.8, Stable-Baselines3, two seeds; -151 at 300k steps, SLM Lab",
        seeds=5,
    ),
    "A30-TQC": Gate("tqc/pendulum", -185, "-157, RL Baselines3 Zoo's SAC, one run", seeds=5),
    "A30-hindsight": Gate("tqc/fetchreach", -2.5, "-1.66 on v1, RL Baselines3 Zoo, one run", seeds=5),
    "A31": Gate("td3/pendulum", -185, "-152, RL Baselines3 Zoo, one run", seeds=5),
    "A32": Gate("ddpg/pendulum", -195, "-152, RL Baselines3 Zoo, one run", seeds=5),
    "A32-ApexDDPG": Gate("apex_ddpg/pendulum", -195, "-152 at 20k steps, RL Baselines3 Zoo's DDPG, one run", seeds=5),
    "A33": Gate("ppo/pendulum_sde", -230, _PENDULUM, seeds=5),
    "A33-filter": Gate("ppo/pendulum", -230, _PENDULUM, seeds=5),
    "A34": Gate("a2c/pendulum", -300, "-163, RL Baselines3 Zoo, one run; -821 untuned, SLM Lab", seeds=5),
    "A35": Gate("crossq/pendulum", -180, "-146 at 300k steps, SLM Lab", seeds=5),
    "A36": Gate("ars/swimmer", 300, "355, RL Baselines3 Zoo, one run on v3", seeds=5),
    "A37": Gate(
        "sac/mountaincar_continuous",
        90,
        "94.7, RL Baselines3 Zoo, one run; 94.4, Stable-Baselines3, one seed",
        seeds=5,
    ),
    "A38": Gate(
        "ppo/halfcheetah",
        2000,
        "5784 in training on v3, Tianshou; 2307 in training on v5, RLfromScratch; 1443 in training on v4, CleanRL",
        seeds=5,
    ),
    "A39": Gate(
        "ppo/hopper",
        2000,
        "2609 in training on v3, Tianshou; 2736 in training on v5, RLfromScratch; 2383 in training on v4, CleanRL",
        seeds=5,
    ),
    "A40": Gate(
        "ppo/walker2d",
        2500,
        "3589 in training on v3, Tianshou; 3154 in training on v5, RLfromScratch; 2288 in training on v4, CleanRL",
        seeds=5,
    ),
    "A41": Gate("ppo/inverted_double_pendulum", 7500, "9231 in training on v2, Tianshou; 8000, RLlib", seeds=5),
    "A42": Gate("sac/inverted_pendulum", 950, "1000 is the most; 909 at 1M steps in training, CleanRL", seeds=5),
    "A42-TD3": Gate("td3/inverted_pendulum", 950, "1000 is the most; 969 at 1M steps in training, CleanRL", seeds=5),
    "A43": Gate("sac/halfcheetah", 3000, "4186 in training on v3, rl-experiments", steps=100_000, seeds=3),
    "A43-simba": Gate("sac/halfcheetah_simba", 6156, _CHEETAH, steps=100_000, seeds=3),
    "A43-simbav2": Gate("sac/halfcheetah_simbav2", 6156, _CHEETAH, steps=100_000, seeds=3),
    "A43-xqc": Gate("sac/halfcheetah_xqc", 6156, _CHEETAH, steps=100_000, seeds=3),
    "A43-flashsac": Gate("sac/halfcheetah_flashsac", 6156, _CHEETAH, steps=100_000, seeds=3),
    "A43-walker2d": Gate("sac/walker2d", 690, _WALKER, steps=100_000, seeds=3),
    "A43-walker2d-simba": Gate("sac/walker2d_simba", 690, _WALKER, steps=100_000, seeds=3),
    "A43-walker2d-simbav2": Gate("sac/walker2d_simbav2", 690, _WALKER, steps=100_000, seeds=3),
    "A44": Gate("ppo/dm_cartpole_balance", 950, "1000 is the most", seeds=5),
    "A45": Gate("ppo/tolled_road", 3.0, _WITHIN, episodes=1000, seeds=3, most_cost=1.6),
    "A45-SAC": Gate("sac/tolled_road", 3.0, _WITHIN, episodes=1000, seeds=3, most_cost=1.6),
    "A50": Gate("ppo/cartpole_novel", 430, "500, RL Baselines3 Zoo, one run; 350 at 2M steps, RLlib", seeds=5),
    "A50-control": Gate(
        "ppo/cartpole_novel",
        -math.inf,
        "a network without a memory cannot know velocities",
        changes=_NO_MEMORY,
        seeds=5,
        below=150,
    ),
    "A50-defaults": Gate(
        "ppo/cartpole_novel",
        150,
        "97 in training at 51k steps, sb3-contrib's RecurrentPPO, five seeds",
        changes=_DEFAULT_LSTM,
        steps=60_000,
        seeds=5,
        worst=150,
    ),
    "A50-R2D2": Gate("r2d2/cartpole_novel", 430, "150 in training at 1M steps as stop criterion, RLlib", seeds=5),
    "A51": Gate("ppo/repeat_after_me", 50, "50 as stop criterion, RLlib"),
    "A51-attention": Gate("ppo/repeat_after_me_attention", 80, "80 at 500k steps as stop criterion, RLlib", seeds=5),
    "A51-R2D2": Gate("r2d2/repeat_after_me", 50, "50 as stop criterion of PPO, RLlib"),
    "A52": Gate(
        "sac/pendulum_memory",
        -170.8,
        "-148.5, SAC that sees velocities (A30); within 15 % of it",
        seeds=3,
    ),
    "A52-control": Gate(
        "sac/pendulum_memory",
        -math.inf,
        "networks without a memory see no velocities",
        changes=_SAC_WITHOUT,
        seeds=3,
        below=-400,
    ),
    "T1": Gate("distillation/cartpole_privileged", 475, "500 is the optimum, and the teacher's return", seeds=3),
    "T1-control": Gate(
        "distillation/cartpole_privileged",
        -math.inf,
        "cloning in the teacher's own states",
        changes={"beta": 1.0},
        steps=32_000,
        seeds=3,
        below=200,
    ),
    "T2": Gate(
        "distillation/pendulum_positions",
        -200,
        "-148.5, SAC that sees velocities (A30)",
        seeds=3,
        teacher="sac/pendulum",
    ),
    "T3": Gate(
        "ppo/doorkey",
        0.85,
        "0.58, the mean of A27, which has no teacher",
        changes={**_KEY_CORRIDOR, "teacher_coeff": [[0, 1.0], [30_000, 0.0]]},
        steps=500_000,
        seeds=5,
        needed=5,
        teacher="A27",
    ),
    "MA1": Gate(
        "ppo/multi_agent_cartpole",
        475,
        "300 an agent in training at 100k steps, RLlib's script",
        by_policy=True,
        seeds=5,
    ),
    "MA1-shared": Gate(
        "ppo/multi_agent_cartpole",
        475,
        "300 an agent in training at 100k steps, RLlib's script",
        changes={"policies": "shared"},
        by_policy=True,
        seeds=5,
    ),
    "MA2-IMPALA": Gate(
        "impala/multi_agent_cartpole", 400, "150 an agent at 200k steps, RLlib's file", by_policy=True, seeds=3
    ),
    "MA2-APPO": Gate(
        "appo/multi_agent_cartpole", 400, "150 an agent at 200k steps, RLlib's file", by_policy=True, seeds=3
    ),
    "MA3": Gate(
        "dqn/multi_agent_cartpole",
        450,
        "90 % of the 500 that each reaches alone (A03)",
        by_policy=True,
        seeds=5,
    ),
    "MA3-SAC": Gate(
        "sac/multi_agent_cartpole",
        450,
        "90 % of the 500 that each reaches alone (A13)",
        by_policy=True,
        seeds=3,
    ),
    "MA4": Gate("ppo/multi_agent_pendulum", -300, "-400 in training, RLlib's file", by_policy=True, seeds=3),
    "MA4-one": Gate(
        "ppo/multi_agent_pendulum",
        -300,
        "-400 in training, RLlib's file",
        changes=_ONE_PENDULUM,
        by_policy=True,
        seeds=3,
    ),
    "MA5": Gate("qmix/two_step_game", 8, "8 is the optimum, and what QMIX reaches in its paper", worst=8, seeds=5),
    "MA5-VDN": Gate("qmix/two_step_game", 6.9, _LESS, changes={"mixer": "vdn"}, worst=6.9, below=7.1, seeds=5),
    "MA5-alone": Gate("qmix/two_step_game", 6.9, _LESS, changes={"mixer": None}, worst=6.9, below=7.1, seeds=5),
    "MA6": Gate("ppo/two_step_game", 7.99, "7.99 in training, RLlib's example; 8 is the optimum", seeds=5, needed=4),
    "MA6-control": Gate(
        "ppo/two_step_game",
        -math.inf,
        "7 is what the policies are sure of",
        changes={"centralized_critic": False},
        seeds=5,
        below=7.5,
    ),
    "MA7": Gate(
        "ppo/rock_paper_scissors",
        -math.inf,
        "0 is the equilibrium's, 1 that of a pure choice",
        exploited=True,
        seeds=5,
        below=0.1,
    ),
    "MA8": Gate(
        "ppo/rock_paper_scissors",
        8,
        "9 is the optimum against a player with one choice",
        changes=_ALWAYS_SAME,
        steps=100_000,
        by_policy=True,
        seeds=5,
    ),
    "MA8-LSTM": Gate(
        "ppo/rock_paper_scissors",
        6,
        "9 is the optimum; 6 in training at 200k steps against two such players, RLlib's script",
        changes=_BEAT_LAST,
        steps=100_000,
        by_policy=True,
        seeds=5,
    ),
    "MA11": Gate(
        "ppo/simple_spread",
        -63,
        "-64.8 at 200k steps, Stable-Baselines3 with SuperSuit, one seed; random -81, by hand -28.7",
        seeds=3,
    ),
    "MA12": Gate(
        "ppo/simple_speaker_listener",
        -35,
        "-33.4 at 136k steps, Stable-Baselines3 with SuperSuit; random -84.0, a listener that is told -16.5",
        seeds=3,
    ),
    "MA13": Gate(
        "ppo/pistonball",
        55,
        "half way from random actions, 22.8, to pistons that rise behind the ball and sink before it, 87.0",
        by_policy=True,
        seeds=3,
    ),
    "M1": Gate("gail/acrobot", -115, "-83, the expert; -392 to -473 with 1 to 10 episodes, imitation's table", seeds=3),
    "M1-airl": Gate(
        "gail/acrobot",
        -105,
        "-83, the expert",
        changes={"reward_form": "airl", "absorbing": False},
        seeds=3,
    ),
    "M1-control": Gate(
        "gail/acrobot",
        -500,
        "it learns to swing up, and waits below the line: a positive reward favours long episodes",
        changes={"absorbing": False},
        steps=100_000,
        seeds=3,
        below=-300,
    ),
    "M2": Gate("gail/cartpole_left", 0, "9.3, the expert, which always pushes left", seeds=3, below=15),
    "M2-control": Gate(
        "gail/cartpole_left",
        100,
        "without an absorbing state a positive reward favours long episodes",
        changes={"absorbing": False},
        seeds=3,
    ),
    "M4": Gate(
        "gail/halfcheetah",
        3155,
        "3944, the expert; the bar is 0.8 of it",
        seeds=1,
    ),
    "AMP": Gate("amp/halfcheetah", 3155, "3944, PPO by the task's reward alone; the bar is 0.8 of it", seeds=1),
    "SQIL": Gate("sqil/cartpole", 475, "500, the data: 4 episodes of it", seeds=3),
    "D1": Gate("sac/pendulum_delayed", -250, "-148.5 without a delay (A30)", seeds=3),
    "D1-control": Gate(
        "sac/pendulum_delayed",
        -math.inf,
        "without its past actions",
        changes={"env_wrappers": []},
        seeds=3,
        below=-250,
    ),
    "D2": Gate(
        "ppo/halfcheetah",
        0.8,
        "share of its return with the masses of the model",
        changes={"disturbances": {"parameters": {_MASSES: {"scale": [0.5, 2]}}}},
        disturbed=tuple({"parameters": {_MASSES: {"scale": scale}}} for scale in (0.5, 2)),
        seeds=3,
    ),
    "D2-control": Gate(
        "ppo/halfcheetah",
        -math.inf,
        "trained with the masses of the model alone",
        disturbed=tuple({"parameters": {_MASSES: {"scale": scale}}} for scale in (0.5, 2)),
        seeds=3,
        below=0.8,
    ),
    "J1": Gate(
        "ppo/cartpole",
        475,
        "500, RL Baselines3 Zoo, one run",
        changes={"env": "gymnax:CartPole-v1"},
        steps=100_000,
        seeds=3,
    ),
    "M3": Gate(
        "gail/cartpole", 475, "500 with 4 episodes, imitation's table; its reward favours long episodes", seeds=3
    ),
    "O1": Gate("offline/bc_cartpole", 475, "350 as stop criterion, RLlib; the data: 197, cut off at 200", seeds=3),
    "O2": Gate("offline/bc_pendulum", -200, f"{_ENORMOUS}; -161 to -168, a plain torch loop", seeds=3),
    "O3": Gate("offline/bc_cartpole_expert", 451, "500, the data's own policy, which draws its actions", seeds=3),
    "O4": Gate(
        "offline/marwil_cartpole",
        450,
        "250 at 500k rows as stop criterion, RLlib; 485-500, a plain torch loop",
        seeds=3,
    ),
    "O5": Gate("offline/marwil_cartpole_mixed", 451, "500, the data's better half; 22, the other half", seeds=3),
    "O5-control": Gate(
        "offline/marwil_cartpole_mixed",
        -math.inf,
        "cloning learns from both halves equally",
        changes={"beta": 0.0},
        seeds=3,
        below=376,
    ),
    "O6": Gate("offline/cql_pendulum", -700, f"-700 as stop criterion, RLlib; {_ENORMOUS}", seeds=3),
    "O7": Gate("offline/cql_pendulum_mixed", -350, _HALVES, seeds=3),
    "O8": Gate(
        "offline/iql_pendulum", -320, "-524, the data; -730, cloning it; -200 and -313, a plain torch loop", seeds=3
    ),
    "O9": Gate("offline/iql_pendulum_enormous", -200, f"-200 as stop criterion, RLlib; {_ENORMOUS}", seeds=3),
    "O10": Gate(
        "offline/td3bc_pendulum_mixed", -260, f"{_HALVES}; -316 and -199 at 6,000 updates, a plain torch loop", seeds=3
    ),
    "O11": Gate("offline/awac_pendulum_mixed", -300, _HALVES, seeds=3),
    "O12": Gate("offline/sac_pendulum_demonstrations", -200, "-524, the data", seeds=3),
    "O12-control": Gate(
        "offline/sac_pendulum_demonstrations",
        -math.inf,
        "without the data",
        changes={"input": "sampler"},
        seeds=3,
        below=-200,
    ),
    "O13": Gate("offline/dqn_cartpole_mixed", 313, "261, the mean over the halves' policies", seeds=3),
    "O14": Gate("offline/bc_cartpole_no_velocities", 450, "500, the data's own policy, which sees velocities", seeds=3),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One seed's: mean return of the final policy, steps of the run's clock, and minutes and CPU seconds of training.

    The seconds are those of this process, and of all where no others sample or learn.
    """

    seed: int
    final: float
    steps: int
    minutes: float
    cpu_s: float


class ShareKept:
    """The least return of the final policy under the gate's disturbances, as a share of its return without them."""

    def __init__(self, gate: Gate, config):
        self._gate, self._config = gate, config

    def on_iteration(self, algo) -> None:
        """Takes nothing: what counts is the end."""

    def final(self, algo) -> float:
        """Plays the episodes, each disturbance in another run, which has the policy's weights."""
        own, returns = algo.evaluate(self._gate.episodes)["episode_reward_mean"], []
        for disturbances in self._gate.disturbed:
            config = self._config.copy(copy_frozen=False).evaluation(evaluation_config={"disturbances": disturbances})
            with tempfile.TemporaryDirectory() as folder, config.build() as disturbed:
                disturbed.restore(algo.save(folder))
                returns.append(disturbed.evaluate(self._gate.episodes)["episode_reward_mean"])
        figures = ", ".join(f"{value:.1f}" for value in returns)
        print(f"#  {self._gate.example}: {own:.1f}; disturbed {figures}", file=sys.stderr, flush=True)
        return min(returns) / own if own > 0 else -math.inf


class FinalReturn:
    """The mean return of the final policy, deterministic, in the gate's episodes."""

    def __init__(self, gate: Gate):
        self._gate = gate

    def on_iteration(self, algo) -> None:
        """Takes nothing: what counts is the end."""

    def final(self, algo) -> float:
        """Plays the episodes."""
        played = algo.evaluate(self._gate.episodes)
        if self._gate.by_policy:
            return min(played["policy_reward_mean"][policy_id] for policy_id in algo.learners)
        if self._gate.most_cost is None:
            return played["episode_reward_mean"]
        print(f"#  {self._gate.example}: cost {played['episode_cost_mean']:.3f}", file=sys.stderr, flush=True)
        return played["episode_reward_mean"] if played["episode_cost_mean"] <= self._gate.most_cost else -math.inf


def train(name: str, seed: int, steps: int | None = None, teacher: str | None = None) -> Outcome:
    """Train the gate's example to its end, or for these steps, and evaluate it; `teacher` is a checkpoint's path."""
    import runtime
    from rllib.algorithms.base.registry import get_algorithm_config
    from rllib.cli.spec import find_file, load_spec, make_spec

    gate = GATES[name]
    spec = make_spec(load_spec(find_file(gate.example)), {}, gate.example)
    config = get_algorithm_config(spec.algorithm).environment(spec.env)
    taught = {"teacher": teacher} if gate.teacher else {}
    config.update_from_dict({**spec.config, **gate.changes, **taught}).debugging(seed=seed)
    steps = steps or gate.steps or spec.stop["timesteps_total"]
    measured = _measure(gate, config, steps)
    started, computed = time.perf_counter(), time.process_time()
    with contextlib.chdir(ROOT), config.build() as algo:  # recorded data is named from there
        while algo.timesteps < steps:
            algo.train()
            measured.on_iteration(algo)
        minutes, cpu_s = (time.perf_counter() - started) / 60, time.process_time() - computed
        final, trained = measured.final(algo), algo.timesteps
    runtime.shutdown()
    return Outcome(seed, float(final), trained, minutes, cpu_s)


def _measure(gate: Gate, config, steps: int):
    if gate.exploited:
        return Exploitability(steps)
    return ShareKept(gate, config) if gate.disturbed else FinalReturn(gate)


def row(name: str, outcomes: list[Outcome]) -> str:
    """The gate's line of the table."""
    gate = GATES[name]
    finals = [outcome.final for outcome in outcomes]
    cells = (
        name,
        f"`{gate.example}`",
        f"{outcomes[0].seed}-{outcomes[-1].seed}",
        f"{statistics.median(outcome.steps for outcome in outcomes):,.0f}",
        f"{statistics.median(outcome.minutes for outcome in outcomes):.2g}",
        f"{_figure(statistics.fmean(finals))} ({_figure(min(finals))})",
        _bar(gate),
        "pass" if gate.passes(finals) else "**miss**",
        gate.anchor,
    )
    return f"| {' | '.join(cells)} |"


def _bar(gate: Gate) -> str:
    if gate.below < math.inf:
        return f"< {gate.below:g}" if gate.least == -math.inf else f"{gate.least:g} to {gate.below:g}"
    if gate.needed is not None:
        return f"{gate.least:g} in {gate.needed} of {gate.seeds}"
    return f"{gate.least:g}" + (f" ({gate.worst:g})" if gate.worst > -math.inf else "")


def _figure(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.1f}"


HEAD = (
    "| gate | tuned example | seeds | env steps | minutes | final policy: mean (worst seed) | least | | anchor |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="GATE", help=f"of {', '.join(GATES)} [default: all]")
    parser.add_argument("--seeds", type=int, help="how many [default: the gate's]")
    parser.add_argument("--steps", type=int, help="to train for, where a gate takes too long [default: the gate's]")
    parser.add_argument("--first-seed", type=int, default=3000, help="[default: 3000]")
    parser.add_argument("--teacher", help="checkpoint of the policy that teaches, for the gates that need one (T2, T3)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at once [default: one a core]")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in GATES]:
        parser.error(f"no gate is called {', '.join(unknown)}; there are {', '.join(GATES)}")
    names = options.names or [name for name, gate in GATES.items() if options.teacher or not gate.teacher]
    for name in names:
        if (of := GATES[name].teacher) and not options.teacher:
            parser.error(f"{name} needs --teacher PATH, a checkpoint of the final policy of {of}")
    print(f"{machine()}; seeds from {options.first_seed}, {options.jobs} runs at once\n\n{HEAD}", flush=True)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, context, max_tasks_per_child=1) as pool:
        runs = {
            name: [
                pool.submit(train, name, options.first_seed + i, options.steps, options.teacher)
                for i in range(options.seeds or GATES[name].seeds)
            ]
            for name in names
        }
        for name, futures in runs.items():
            outcomes = [future.result() for future in futures]
            print(row(name, outcomes), flush=True)
            finals = ", ".join(f"{outcome.seed}: {outcome.final:.2f}" for outcome in outcomes)
            print(f"#  {name}  {finals}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
