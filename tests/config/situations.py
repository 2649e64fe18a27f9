"""Runs in which settings have a meaning that they do not have in an algorithm's shortest run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rllib.core import TorchLearner
from rllib.env import make_multi_agent
from tests.algorithms.test_every_algorithm import DATA

CARTPOLE, PENDULUM = (str(DATA / f"{name}_small.json") for name in ("cartpole", "pendulum"))


class Costly(gymnasium.Env):
    """Ten steps that cost one each."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t == 10, False, {"cost": 1.0}


def _listening(config):
    spaces = {"observation_space": Costly.observation_space, "action_space": Costly.action_space}
    config.environment(None, **spaces).evaluation(evaluation_interval=None)
    return config.external(listen="127.0.0.1:0")


def _two_agents(config):
    config.environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
    return config.multi_agent(policies={"default_policy"}, policy_mapping_fn="default_policy")


class _Learner(TorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        assert config.learner_config_dict == {"some": 1}
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


# Name -> (algorithm, function of its short config and of a directory, iterations). 0: it is only built; "learn": it is
# trained by a call of that.
Situation = tuple[str, Callable[[Any, Path], Any], int | str]
SITUATIONS: dict[str, Situation] = {
    "steps are written": ("PPO", lambda config, place: config.offline_data(output=str(place / "steps")), 1),
    "files of a run": ("PPO", lambda config, place: config.reporting(log_dir=str(place / "run")), "learn"),
    "a learner of one's own": (
        "DQN",
        lambda config, place: config.training(learner_class=_Learner, learner_config_dict={"some": 1}),
        1,
    ),
    "returns are normalised": ("PPO", lambda config, place: config.environment(normalize_returns=True), 1),
    "costs are limited": ("PPO", lambda config, place: config.environment(Costly).training(cost_limit=1.0), 2),
    "clients": ("PPO", lambda config, place: _listening(config), 0),
    "several agents": ("PPO", lambda config, place: _two_agents(config), 1),
    "estimates from data": (
        "PPO",
        lambda config, place: config.evaluation(
            off_policy_estimation_methods={"is": {"type": "is"}}, evaluation_config={"input_": CARTPOLE}
        ),
        1,
    ),
    "C51": ("DQN", lambda config, place: config.training(num_atoms=5), 1),
    "IQN": ("DQN", lambda config, place: config.training(num_quantiles=8, implicit_quantiles=True), 1),
    "Munchausen": ("DQN", lambda config, place: config.training(munchausen_alpha=0.9, double_q=False), 1),
    "learned noise": ("DQN", lambda config, place: config.training(noisy=True), 1),
    "demonstrations": (
        "DQN",
        lambda config, place: config.training(margin_weight=0.1).offline_data(input_={"sampler": 0.5, CARTPOLE: 0.5}),
        1,
    ),
    "Huber": ("TD3", lambda config, place: config.training(use_huber=True), 1),
    "bins": ("SAC", lambda config, place: config.environment("Pendulum-v1").training(num_atoms=5), 1),
    "an adapted penalty": ("CQL", lambda config, place: config.training(lagrangian=True), 1),
    "recorded sequences": (
        "BC",
        lambda config, place: config.training(model={"use_lstm": True, "lstm_cell_size": 4}),
        1,
    ),
    "Gaussian actions": (
        "BC",
        lambda config, place: config.environment("Pendulum-v1").offline_data(input_=PENDULUM),
        1,
    ),
}
# These start processes.
WITH_PROCESSES: dict[str, Situation] = {
    "environments in processes": (
        "PPO",
        lambda config, place: config.rollouts(gym_env_vectorize_mode="async", sub_environment_timeout_s=60.0),
        1,
    ),
    "learners": ("PPO", lambda config, place: config.learners(num_learners=2), 1),
    "IMPALA with workers": ("IMPALA", lambda config, place: config.rollouts(num_rollout_workers=1), 1),
    "A3C with workers": ("A3C", lambda config, place: config.rollouts(num_rollout_workers=1), 1),
    "Ape-X with workers": ("ApexDQN", lambda config, place: config.rollouts(num_rollout_workers=1), 1),
}
