"""Cases of RLlib's own tests of several agents that no other file tests.

Where each of RLlib 2.6's tests is found here; those without a file are below.

- test_multi_agent_env: basic_mock, round_robin_mock -> tests/env/test_multi_agent.py: rows of agents that all act,
  and in turn
- no_reset_until_poll, vectorize_basic, vectorize_round_robin -> no: workers step the environments themselves, there
  is no poll() and send_actions(); what several environments give is in the next row
- multi_agent_sample -> policies of agents that all act share out the rows (1 and 4 environments, mappings with and
  without kwargs); there is no column t
- sample_sync_remote, sample_async_remote -> environments in processes of their own give the same rows
- sample_with_horizon -> tests/env/test_adapted_agents.py: a time limit is that of all agents
- sample_from_early_done_env -> tests/env/test_multi_agent.py: rows of an agent that is done early
- with_flex_agents -> agents that come and go are learned from; tests/evaluation/test_agents_alike.py: slots are
  used again
- sample_round_robin -> tests/env/test_multi_agent.py: the 42 rows
- custom_rnn_state_values -> in part: states of hand-written policies are arrays
  (tests/evaluation/test_evaluation_of_agents.py), no dicts, and are no columns
- returning_model_based_rollouts_data -> no: a policy adds no rows of its own to a batch
- train_multi_agent_cartpole_single_policy, _multi_policy -> gate MA1; ten poles act by one of two policies, and an
  unknown one is a KeyError
- space_in_preferred_format, spaces_sample_contain_(not_)in_preferred_format -> tests/env/test_multi_agent.py: space
  of an agent; ids, samples and contents. The private methods are not there
- test_supported_multi_agent: impala, pg, ppo, apex, apex_ddpg, ddpg, dqn, sac ->
  tests/algorithms/test_several_agents.py: all algorithms in four scenarios; gamma by policy in
  tests/algorithms/test_policies.py
- a3c; impala_multi_gpu -> no: A3C trains one policy; there are no two GPUs to test with
- test_pettingzoo_env: pistonball_v6, pettingzoo_env -> pistons learn from pictures, without SuperSuit's wrappers;
  tests/env/test_pettingzoo.py, and the programs of docs/guide/multi_agent.md
- test_multi_agent_batch: timeslices (3) -> no: a MultiAgentBatch is not cut by t, which no row has; a policy's
  SampleBatch is (tests/test_sample_batch.py)
- test_policy_map: with and without swaps -> no: all policies stay in memory (decisions_agents.md); their size is in
  tests/evaluation/test_many_policies.py
- test_check_multi_agent: bad ids, invalid arguments and values -> tests/algorithms/test_multi_agent_config.py:
  mistakes
- setting_multiagent_should_fail -> no: config["multiagent"] = {...} does what .multi_agent(...) does
- test_multi_agent_replay_buffer, prioritized: independent mode, priorities, state ->
  tests/algorithms/test_several_agents.py: a replay of each policy, by its own settings, in checkpoints
- lockstep mode; storage_unit sequences and episodes -> no: replays of policies are independent; R2D2's hold
  sequences, for one agent and for several
- test_multi_agent_mixin_replay_buffer -> no: replays mix no new rows in; IMPALA's ring is by policy
  (tests/algorithms/test_several_agents.py)
- test_algorithm: add_delete_policy; checkpoints of several policies -> tests/algorithms/test_changing_policies.py,
  test_multi_agent_checkpoints.py
- test_callbacks, test_episode, test_episode_v2 -> tests/evaluation/test_hooks_of_agents.py; rows of several agents
  have no eps_id, which is for users' loops with one agent
- test_env_runner_v2: env_steps and agent_steps, inference by policy ->
  tests/algorithms/test_multi_agent_results.py, and policies of different spaces in test_several_agents.py
- test_nested_observation_spaces: by agent -> agents with nested spaces learn by policies of their own
- test_worker_failures: policies_are_restored_on_recovered_worker -> a worker that fails is replaced and has all
  policies, where its environment raises and where its process dies
- multi_agent_env_eval_workers_fault_but_restore_env -> an environment that fails in an evaluation is replaced; an
  evaluation has no num_faulty_episodes, as it plays on until it has its episodes
"""

import os
import signal

import numpy as np
import pytest
from gymnasium import spaces

from rllib import RolloutWorker
from rllib import sample_batch as sb
from rllib.algorithms.pg import PGConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.env.multi_agent import MultiAgentEnv, make_multi_agent
from rllib.env.tasks.pistonball import Pistonball
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


def test_environments_in_processes_of_their_own_give_the_same_rows():
    found = []
    for remote in (False, True):
        config = PGConfig().environment(five_agents).training(train_batch_size=200, model=SMALL).debugging(seed=4)
        config.rollouts(num_rollout_workers=0, num_envs_per_worker=4, remote_worker_envs=remote)
        with config.build() as algo:
            algo.train()
            found.append((algo.get_weights()["default_policy"], algo.metrics.counters["num_env_steps_sampled"]))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1] == 200


def test_workers_for_loops_of_users_are_for_one_agent():
    with pytest.raises(ValueError, match="for one agent, but this environment has several"):
        RolloutWorker.from_config(PGConfig().environment(five_agents))


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
    """Two poles; the 30th step of a process raises or kills the process, as the config says, once in all.

    Steps of all environments count, since an evaluation has an environment for each short episode.
    """

    steps = 0

    def __init__(self, config=None):
        super().__init__({"num_agents": 2})
        self.how, self.marker = config.get("how"), config.get("marker")

    def step(self, action_dict):
        Crashes.steps += bool(self.how)
        if Crashes.steps == 30 and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            if self.how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("asked to fail")
        return super().step(action_dict)


@pytest.fixture(autouse=True)
def no_steps_yet(monkeypatch):
    monkeypatch.setattr(Crashes, "steps", 0)


def crashing(**config):
    """PPO on poles that crash where the config says so."""
    settings = PPOConfig().environment(Crashes, env_config=config).multi_agent(policies="own")
    return settings.training(train_batch_size=50, sgd_minibatch_size=50, num_sgd_iter=1, model=SMALL)


@pytest.mark.parametrize("how", ["raises", "dies"])
def test_a_worker_that_fails_is_replaced_and_has_all_policies(how, tmp_path):
    config = crashing(how=how, marker=str(tmp_path / "crashed")).rollouts(num_rollout_workers=1)
    with config.fault_tolerance(recreate_failed_workers=True).build() as algo:
        algo.add_policy("added", observation_space=spaces.Box(-9, 9, (4,)), action_space=spaces.Discrete(2))
        for _ in range(3):
            result = algo.train()
        assert (tmp_path / "crashed").exists() and result["num_remote_worker_restarts"] == 1
        known = algo.workers.foreach_worker(lambda worker: set(worker.policy_map), local_worker=False)
    assert known == [{"0", "1", "added"}]
    assert {"0", "1"} <= result["info"]["learner"].keys() and result["timesteps_total"] == 150


def test_an_environment_that_fails_in_an_evaluation_is_replaced(tmp_path):
    config = crashing().rollouts(num_rollout_workers=0).fault_tolerance(restart_failed_sub_environments=True)
    in_evaluation = {"env_config": {"how": "raises", "marker": str(tmp_path / "crashed")}}
    config.evaluation(evaluation_interval=1, evaluation_duration=5, evaluation_config=in_evaluation)
    with config.build() as algo:
        results = [algo.train() for _ in range(2)]
    assert (tmp_path / "crashed").exists()
    assert [result["num_faulty_episodes"] for result in results] == [0, 0]
    assert [result["evaluation"]["episodes_this_iter"] for result in results] == [5, 5]


@pytest.mark.extras("pymunk")
def test_pistons_learn_from_pictures():
    config = PPOConfig().environment(Pistonball, env_config={"max_cycles": 10}).multi_agent(policies="shared")
    config.rollouts(num_rollout_workers=0).training(train_batch_size=20, sgd_minibatch_size=20, num_sgd_iter=1)
    with config.training(model={"conv_filters": [[4, 8, 8], [8, [4, 3], 1]]}).build() as algo:
        result = algo.train()
    assert result["num_agent_steps_trained"] == 100
    assert np.isfinite(result["info"]["learner"]["shared"]["learner_stats"]["total_loss"])
