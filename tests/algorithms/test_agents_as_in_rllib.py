"""What RLlib's own tests ask of several agents, where no other test here says it (docs/multi_agent.md has the list)."""

import os
import signal
import sys

import numpy as np
import pytest
from gymnasium import spaces

from rllib import sample_batch as sb
from rllib.algorithms.pg import PGConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.env.multi_agent import MultiAgentEnv, make_multi_agent
from rllib.policies import PolicySpec
from tests.multi_agent import BasicMultiAgent, FlexAgentsMultiAgent

SMALL = {"fcnet_hiddens": [8]}


def poles(config):
    return make_multi_agent("CartPole-v1")({"num_agents": 10})


def five_agents(config):
    return BasicMultiAgent(5)


@pytest.mark.parametrize("mapping", [lambda agent: f"p{agent % 2}", lambda agent, **rest: f"p{agent % 2}"])
@pytest.mark.parametrize("num_envs", [1, 4])
def test_policies_of_agents_that_all_act_share_out_the_rows(num_envs, mapping):
    config = PGConfig().environment(five_agents).training(train_batch_size=50 * num_envs, model=SMALL)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=num_envs, rollout_fragment_length=50)
    with config.multi_agent(policies={"p0", "p1"}, policy_mapping_fn=mapping).build() as algo:
        batch, report = algo.workers.local_worker().sample()
    assert batch.count == batch.env_steps() == 50 * num_envs and batch.agent_steps() == 250 * num_envs
    # Agents 0, 2 and 4, and agents 1 and 3, each with two episodes of 25 steps in each environment.
    assert {policy_id: rows.count // num_envs for policy_id, rows in batch.policy_batches.items()} == {
        "p0": 150,
        "p1": 100,
    }
    for rows, agents in zip((batch.policy_batches[policy_id] for policy_id in ("p0", "p1")), (3, 2)):
        assert rows[sb.TERMINATEDS].sum() == 2 * agents * num_envs
    assert [episode.length for episode in report.episodes] == [25] * 2 * num_envs


def test_agents_that_come_and_go_are_learned_from():
    config = PGConfig().environment(FlexAgentsMultiAgent).rollouts(num_rollout_workers=0)
    with config.training(train_batch_size=300, model=SMALL).debugging(seed=3).build() as algo:
        results = [algo.train() for _ in range(4)]
    assert results[-1]["timesteps_total"] == 1200
    # Episodes have agents with new ids, so rows are no fixed multiple of steps.
    assert results[-1]["num_agent_steps_trained"] > 1200
    assert np.isfinite([result["episode_reward_mean"] for result in results]).all()


def test_ten_poles_act_by_one_of_two_policies():
    config = PGConfig().environment(poles).rollouts(num_rollout_workers=0).training(train_batch_size=100, model=SMALL)
    policies = {"policy_1": PolicySpec(config={"gamma": 0.5}), "policy_2": PolicySpec(config={"gamma": 0.99})}
    config.multi_agent(policies=policies, policy_mapping_fn=lambda agent, **rest: "policy_1")
    with config.build() as algo:
        result = algo.train()
        assert result["info"]["learner"].keys() == {"policy_1"}
        for policy_id in policies:
            assert algo.compute_single_action(np.zeros(4, np.float32), policy_id=policy_id) in (0, 1)
        with pytest.raises(KeyError, match="there is no policy 'policy_3'"):
            algo.compute_single_action(np.zeros(4, np.float32), policy_id="policy_3")


class Nested(MultiAgentEnv):
    """Two agents that see the same number in differently nested spaces, and are to name whether it is positive."""

    possible_agents = ("dict", "tuple")
    observation_spaces = {  # noqa: RUF012
        "dict": spaces.Dict(sensors=spaces.Dict(number=spaces.Box(-1, 1, (1,), np.float32)), of=spaces.Discrete(3)),
        "tuple": spaces.Tuple([spaces.Tuple([spaces.Box(-1, 1, (1,), np.float32)]), spaces.Discrete(2)]),
    }
    action_spaces = dict.fromkeys(possible_agents, spaces.Discrete(2))

    def __init__(self, config=None):
        super().__init__()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def _seen(self):
        self.number = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return {"dict": {"sensors": {"number": self.number}, "of": 1}, "tuple": ((self.number,), 0)}

    def step(self, action_dict):
        self.t += 1
        rewards = {agent: float(action == (self.number[0] > 0)) for agent, action in action_dict.items()}
        return self._seen(), rewards, {"__all__": self.t == 5}, {"__all__": False}, {}


def test_agents_with_nested_spaces_learn_by_policies_of_their_own():
    config = PPOConfig().environment(Nested).multi_agent(policies="own").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=400, sgd_minibatch_size=100, num_sgd_iter=5, lr=0.01, model=SMALL)
    with config.debugging(seed=2).build() as algo:
        for _ in range(10):
            result = algo.train()
    assert all(mean > 4 for mean in result["policy_reward_mean"].values())  # of 5; at random 2.5


class Crashes(make_multi_agent("CartPole-v1")):
    """Two poles; the step with a number of the config raises, or kills the process, once in all."""

    def __init__(self, config=None):
        super().__init__({"num_agents": 2})
        self.marker, self.how, self.left = config["marker"], config["how"], 30

    def step(self, action_dict):
        self.left -= 1
        if not self.left and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            if self.how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("asked to fail")
        return super().step(action_dict)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("how", ["raises", "dies"])
def test_a_worker_that_fails_is_replaced_and_all_policies_go_on(how, tmp_path):
    config = PPOConfig().environment(Crashes, env_config={"marker": str(tmp_path / "crashed"), "how": how})
    config.rollouts(num_rollout_workers=1).fault_tolerance(recreate_failed_workers=True)
    config.training(train_batch_size=50, sgd_minibatch_size=50, num_sgd_iter=1, model=SMALL)
    with config.multi_agent(policies="own").build() as algo:
        for _ in range(3):
            result = algo.train()
        assert (tmp_path / "crashed").exists()
        assert result["num_remote_worker_restarts"] == 1
    assert result["info"]["learner"].keys() == {"0", "1"} and result["timesteps_total"] == 150
