"""A train batch of whole episodes ends with the episode that fills it, however short the fragments are."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib.algorithms.pg import PGConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.env.external import ExternalEnv, ExternalMultiAgentEnv
from rllib.env.multi_agent import MultiAgentEnv
from tests.envs import CountingEnv

SPACES = Box(-1e9, 1e9, (1,), np.float32), Discrete(2)
LENGTH = 10


def observations(time):
    """Of two agents, of which the second one lives for half of the episode."""
    return {agent: np.array([time], np.float32) for agent in "ab" if agent == "a" or time < LENGTH // 2}


class Agents(MultiAgentEnv):
    possible_agents = ("a", "b")
    observation_space, action_space = SPACES

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return observations(0), {}

    def step(self, action_dict):
        self.time += 1
        ended = {"__all__": self.time == LENGTH} | ({"b": True} if self.time == LENGTH // 2 else {})
        return observations(self.time), dict.fromkeys(action_dict, 1.0), ended, {"__all__": False}, {}


class Lone(ExternalEnv):
    def __init__(self, config):
        super().__init__(*reversed(SPACES))

    def run(self):
        while True:
            episode = self.start_episode()
            for _ in range(LENGTH):
                self.get_action(episode, np.zeros(1, np.float32))
                self.log_returns(episode, 1.0)
            self.end_episode(episode, np.zeros(1, np.float32))


class Together(ExternalMultiAgentEnv):
    def __init__(self, config):
        super().__init__(*reversed(SPACES))

    def run(self):
        while True:
            episode = self.start_episode()
            for time in range(LENGTH):
                self.get_action(episode, observations(time))
                ended = {"b": True} if time + 1 == LENGTH // 2 else None
                self.log_returns(episode, {"a": 1.0}, None, ended)
            self.end_episode(episode, observations(LENGTH))


def rounds(environments):
    """Steps of the batch of 40 steps that whole rounds of these environments make."""
    return -(-4 // environments) * environments * LENGTH


@pytest.mark.parametrize("fragment", [1, 3, "auto"])
@pytest.mark.parametrize(
    "env, options, steps",
    [
        (CountingEnv, {}, 40),
        (CountingEnv, {"num_envs_per_worker": 3}, rounds(3)),
        (Agents, {}, 40),
        (Agents, {"num_envs_per_worker": 3}, rounds(3)),
        (Agents, {"count_steps_by": "agent_steps"}, 30),  # 45 rows
        (Lone, {}, 40),
        (Together, {}, 40),
        (Together, {"count_steps_by": "agent_steps"}, 30),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_batch_ends_when_it_is_full(env, options, steps, fragment):
    with built(env, fragment, **options) as algorithm:
        for number in (1, 2, 3):
            batches = [batch for _, batch in algorithm.train_batches()]
            counters = algorithm.metrics.counters
            assert counters["num_env_steps_sampled"] == number * steps
            assert sum(len(batch["obs"]) for batch in batches) == (steps if env in (CountingEnv, Lone) else 1.5 * steps)


def built(env, fragment, **options):
    config = PGConfig().environment(env, env_config={"lengths": [LENGTH]} if env is CountingEnv else {})
    if "count_steps_by" in options:
        config.multi_agent(count_steps_by=options.pop("count_steps_by"))
    config.rollouts(num_rollout_workers=0, batch_mode="complete_episodes", rollout_fragment_length=fragment, **options)
    return config.training(train_batch_size=40, model={"fcnet_hiddens": [4]}).build()


def test_a_batch_of_several_workers_ends_when_it_is_full():
    config = PPOConfig().environment(CountingEnv, env_config={"lengths": [LENGTH]})
    config.rollouts(num_rollout_workers=2, batch_mode="complete_episodes", rollout_fragment_length=1)
    config.training(train_batch_size=40, sgd_minibatch_size=40, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    with config.build() as algorithm:
        assert algorithm.train()["num_env_steps_sampled"] == 40
