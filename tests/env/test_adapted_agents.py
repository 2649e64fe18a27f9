"""Adaptations of environments with several agents: previous steps, masks from infos, time limits, missing spaces."""

from typing import ClassVar

import numpy as np
import pytest
from agent_workers import Script
from gymnasium.spaces import Box, Discrete

from rllib import PPOConfig
from rllib.env.factories.previous_steps import PreviousStep
from rllib.env.multi_agent import MultiAgentEnv
from rllib.env.multi_agent.wrapped import AdaptedAgents
from rllib.env.tasks.rock_paper_scissors import RockPaperScissors
from rllib.policies import HandWrittenPolicy


def test_the_previous_step_is_the_agents_own():
    """Rewards that come while the other one acts are added to that of the own action."""
    steps = ({"B": 2.0}, {"A": 1, "B": 8}), ({"A": 3.0}, {"A": 2, "B": 4}), ({"A": 4.0, "B": 5.0}, {"A": 5, "B": 7})
    env = AdaptedAgents(Script({"A": 1.0}, *steps), PreviousStep(action=True, reward=True))

    def read(observations):
        assert all(env.get_observation_space(agent).contains(seen) for agent, seen in observations.items())
        return {a: [seen[key].tolist() for key in ("prev_actions", "prev_rewards")] for a, seen in observations.items()}

    begin = [[0, 0], [0]]
    for _ in range(2):
        assert read(env.reset()[0]) == {"A": begin}
        assert read(env.step({"A": 1})[0]) == {"B": begin}
        assert read(env.step({"B": 0})[0]) == {"A": [[0, 1], [3]]}
        assert read(env.step({"A": 0})[0]) == {"A": [[1, 0], [5]], "B": [[1, 0], [11]]}


class Numbers(MultiAgentEnv):
    """Agents that nobody announces; the one legal action of each is in its info."""

    observation_space, action_space = Box(0, 9, (1,), np.float32), Discrete(3)

    def _results(self):
        self.time += 1
        agents = [f"agent_{i}" for i in range(self.time)]
        masks = {agent: {"action_mask": np.eye(3, dtype=np.int8)[i % 3]} for i, agent in enumerate(agents)}
        return dict.fromkeys(agents, np.zeros(1, np.float32)), masks

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._results()

    def step(self, action_dict):
        assert all(action == int(agent[-1]) % 3 for agent, action in action_dict.items())
        observations, infos = self._results()
        return observations, {}, {"__all__": self.time == 5}, {"__all__": False}, infos


def small(env, model=None):
    config = PPOConfig().environment(env).rollouts(num_rollout_workers=0)
    return config.training(train_batch_size=40, sgd_minibatch_size=20, num_sgd_iter=1, model=model or {})


@pytest.mark.parametrize("more", [{}, {"agent_id_in_observation": True}])
def test_a_time_limit_is_that_of_all_agents(more):
    limit = [{"TimeLimit": {"max_episode_steps": 3}}]
    config = small(RockPaperScissors).environment(env_wrappers=limit).multi_agent(policies="own", **more)
    with config.build() as algo:
        assert algo.train()["episode_len_mean"] == 3
        batch = algo.workers.foreach_worker(lambda worker: worker.sample())[0][0]
        ends = batch.policy_batches["player_0"]
        assert ends["truncateds"].sum() >= 13 and not ends["terminateds"].any()


def test_masks_are_taken_from_infos_of_agents_that_nobody_announced():
    with small(Numbers).environment(action_mask_from="info").build() as algo:
        assert algo.agents.environment.agents == tuple(f"agent_{i}" for i in range(4))
        result = algo.train()
        assert result["num_agent_steps_sampled"] > 40
    with pytest.raises(ValueError, match=r"action_mask_from='method' is for environments with one agent"):
        small(Numbers).environment(action_mask_from="method").build()


def test_a_memory_reads_the_previous_action_of_its_agent():
    model = {"use_lstm": True, "lstm_use_prev_action": True, "lstm_cell_size": 4}
    with small(RockPaperScissors, model).multi_agent(policies="own").build() as algo:
        algo.train()
        spaces = [policy.observation_space for policy in algo.policies.values()]
        assert all(space["prev_actions"].shape == (3,) for space in spaces)
        player = algo.make_player()
        for seen in (3, 1):  # with the second observation there is an action before
            assert player.act({"player_0": seen, "player_1": seen}).keys() == {"player_0", "player_1"}


class Copies(HandWrittenPolicy):
    """Plays what the other one has played, and keeps what it sees."""

    seen: ClassVar[list] = []

    def compute_actions(self, observations, state_batches=None, **kwargs):
        self.seen.extend(observations)
        return [int(seen) % 3 for seen in observations]


@pytest.mark.parametrize(
    ("model", "more"),
    [({"use_lstm": True, "lstm_use_prev_action": True, "lstm_cell_size": 4}, {}), ({}, {"centralized_critic": True})],
)
def test_policies_that_are_written_by_hand_get_the_environments_observations(model, more):
    policies = {"player_0": None, "player_1": Copies}
    with small(RockPaperScissors, model).multi_agent(policies=policies, **more).build() as algo:
        algo.train()
        algo.evaluate(1)
    assert set(Copies.seen) == {0, 1, 2, 3}


class Levels(MultiAgentEnv):
    """A boss, and for each of its actions a new worker with other spaces; nobody lists the agents."""

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return {"boss": np.zeros(1, np.float32)}, {}

    def step(self, action_dict):
        self.time += 1
        if "boss" in action_dict:
            return {f"worker_{self.time}": np.zeros(2, np.float32)}, {}, {"__all__": False}, {"__all__": False}, {}
        (worker,) = action_dict
        ends = {worker: True, "__all__": self.time == 20}
        return {"boss": np.zeros(1, np.float32)}, {"boss": 1.0, worker: 0.0}, ends, {"__all__": False}, {}


class LevelsWithMethods(Levels):
    def get_observation_space(self, agent_id):
        return Box(-1, 1, (1 if agent_id == "boss" else 2,), np.float32)

    def get_action_space(self, agent_id):
        return Discrete(2 if agent_id == "boss" else 3)


@pytest.mark.parametrize("from_policies", [True, False])
def test_spaces_come_from_methods_or_from_the_policies(from_policies):
    env = LevelsWithMethods()
    spaces = {p: (env.get_observation_space(p), env.get_action_space(p)) for p in ("boss", "worker")}
    policies = {p: (None, *pair, {}) for p, pair in spaces.items()} if from_policies else list(spaces)
    config = small(Levels if from_policies else LevelsWithMethods)
    config.multi_agent(policies=policies, policy_mapping_fn={"boss": "boss", "*": "worker"})
    with config.build() as algo:
        assert {p: (each.observation_space, each.action_space) for p, each in algo.policies.items()} == spaces
        assert algo.train()["policy_reward_mean"] == {"boss": 10, "worker": 0}
    with pytest.raises(ValueError, match="gave agent 'boss' the policy 'chief', but there are boss, worker"):
        config.copy().multi_agent(policy_mapping_fn=lambda agent_id: "chief").build()
