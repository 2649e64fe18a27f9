"""Cases of RLlib's own tests of external environments that no other file tests.

Where each of RLlib's tests is found here. The three marked as learning passed on b3bf7bbb
(`pytest -m learning` of this file, 67 s on two cores).

- test_external_env: complete and truncated episodes (2) -> test_external_worker: rows are the steps of the loop
- test_external_env: off policy -> test_external_worker: logged actions are learned from off-policy, are dropped
  on-policy
- test_external_env: bad actions -> test_external_worker: a loop that waits gets an error when sampling fails
- test_external_env: CartPole off policy (DQN, 80) -> test_rllib_external_cases: DQN beside actions that are not its
  own (learning)
- test_external_env: CartPole, and several at once (PG, 80; 2) -> test_rllib_external_cases: PG solves CartPole from
  outside (learning)
- test_external_env: horizon is refused -> horizon is no setting; .environment() names what to use
- test_external_multi_agent_env: complete, truncated, two policies (3) -> test_rllib_external_cases;
  rollout_fragment_length counts the steps of all agents
- set-up script: server answers curl, clients in other processes, remote and local inference ->
  test_external_command: a client of curl, the first client; test_policy_server: PPO and DQN, two clients;
  test_local_inference
- set-up script: 16 clients at once -> python benchmarks/external_learning.py PPO local (or DQN, remote, --agents
  for two agents): CartPole in other processes until it is solved
- set-up script: two episodes of one client -> test_policy_server: episodes of one request; test_engine_loops: a
  scene that waits
- set-up script: Unity's dummy client -> test_unity; a client of several agents in test_policy_server
"""

import gymnasium
import numpy as np
import pytest

from rllib import DQNConfig, ExternalEnv, ExternalMultiAgentEnv, PGConfig, PPOConfig

LENGTH = 25


class Serving(ExternalEnv):
    """Plays CartPole, or any world; a share of its actions is its own."""

    def __init__(self, config):
        self.worlds = [gymnasium.make("CartPole-v1") for _ in range(config.get("worlds", 1))]
        self.own, self.rng = config.get("own", 0.0), np.random.default_rng(config.get("seed", 0))
        super().__init__(self.worlds[0].action_space, self.worlds[0].observation_space)

    def run(self):
        episodes = {}
        while True:
            # Two of them, if there are several, are played for a step.
            for index in self.rng.choice(len(self.worlds), min(len(self.worlds), 2), replace=False):
                world = self.worlds[index]
                if index not in episodes:
                    seed = int(self.rng.integers(2**31))
                    episodes[index] = self.start_episode(), world.reset(seed=seed)[0]
                episode, seen = episodes[index]
                if self.rng.random() < self.own:
                    action = int(self.rng.integers(2))
                    self.log_action(episode, seen, action)
                else:
                    action = self.get_action(episode, seen)
                seen, reward, terminated, truncated, _ = world.step(action)
                self.log_returns(episode, reward)
                episodes[index] = episode, seen
                if terminated or truncated:
                    self.end_episode(episode, seen, truncated=not terminated)
                    del episodes[index]


class Crowd(ExternalMultiAgentEnv):
    """Agents that all play for 25 steps."""

    def __init__(self, config):
        super().__init__(gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2))
        self.agents = range(config["agents"])

    def run(self):
        while True:
            episode = self.start_episode()
            for _ in range(LENGTH):
                self.get_action(episode, dict.fromkeys(self.agents, 0))
                self.log_returns(episode, dict.fromkeys(self.agents, 1.0))
            self.end_episode(episode, dict.fromkeys(self.agents, 1))


def sampled(mode, fragment, agents, policies=("p",)):
    """Three rounds: policy -> number of its rows."""
    config = PPOConfig().environment(Crowd, env_config={"agents": agents})
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=fragment, batch_mode=mode)
    names = list(policies)
    config.multi_agent(policies=set(names), policy_mapping_fn=lambda agent, *_, **__: names[agent % len(names)])
    config.training(train_batch_size=fragment, sgd_minibatch_size=fragment)
    with config.build() as algorithm:
        rounds = [algorithm.sample(fragment) for _ in range(3)]
        return [{policy: rows.count for policy, rows in each.policy_batches.items()} for each in rounds]


def test_whole_episodes_of_four_agents():
    assert sampled("complete_episodes", 40, agents=4) == [{"p": 2 * 4 * LENGTH}] * 3
    assert sampled("complete_episodes", 101, agents=4) == [{"p": 5 * 4 * LENGTH}] * 3


def test_pieces_of_episodes_of_four_agents():
    assert sampled("truncate_episodes", 40, agents=4) == [{"p": 160}] * 3


@pytest.mark.parametrize(("unit", "steps"), [("env_steps", 40), ("agent_steps", 160)])
def test_steps_that_agents_make_together_are_one_of_the_environment(unit, steps):
    config = PPOConfig().environment(Crowd, env_config={"agents": 4})
    config.multi_agent(policies="shared", count_steps_by=unit)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=steps).training(train_batch_size=steps)
    with config.training(sgd_minibatch_size=steps).build() as algorithm:
        algorithm.sample(steps)
        assert algorithm.timesteps == steps
        assert algorithm.metrics.counters["num_env_steps_sampled"] == 40


def test_two_policies():
    assert sampled("truncate_episodes", 50, agents=2, policies=("p0", "p1")) == [{"p0": 50, "p1": 50}] * 3


@pytest.mark.learning
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("worlds", [1, 5])
def test_pg_solves_cartpole_from_outside(worlds):
    config = PGConfig().environment(Serving, env_config={"worlds": worlds}).rollouts(num_rollout_workers=0)
    _learns(config.debugging(seed=0), 80)


@pytest.mark.learning
@pytest.mark.timeout(1800)
def test_dqn_learns_beside_actions_that_are_not_its_own():
    config = DQNConfig().environment(Serving, env_config={"own": 0.2}).rollouts(num_rollout_workers=0)
    config.exploration(exploration_config={"epsilon_timesteps": 100})
    _learns(config.debugging(seed=0), 50)


def _learns(config, iterations):
    with config.build() as algorithm:
        returns = []
        for _ in range(iterations):
            returns.append(algorithm.train()["episode_reward_mean"])
            if returns[-1] >= 80:
                return
    raise AssertionError(returns)
