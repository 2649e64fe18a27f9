"""A policy with a memory: its network is made here, and all else of the library is as for any other policy."""

import numpy as np
import pytest
import torch
from torch import nn

from rllib import IMPALA, PPO, AlgorithmConfig
from rllib import sample_batch as sb
from rllib.models.recurrent import RecurrentSpec
from tests.envs import ProbeEnv

SIZE = 16


class Recall(ProbeEnv):
    """P8: the first observation is -1 or 1, the others are 0; reward 1 if the last action, the fifth, is 1 for 1."""

    def first(self):
        self.cue = float(self.np_random.choice([-1.0, 1.0]))
        return self.cue

    def follow(self, action):
        return 0.0, float(self.t == 5 and (action == 1) == (self.cue > 0)), self.t == 5, False


class GRU(nn.Module):
    def __init__(self, num_inputs: int, num_outputs: int):
        super().__init__()
        self.cell = nn.GRUCell(num_inputs, SIZE)
        self.policy, self.value = nn.Linear(SIZE, num_outputs), nn.Linear(SIZE, 1)

    def forward(self, inputs, state):
        state = self.cell(inputs, state)
        return self.policy(state), self.value(state)[:, 0], state


class WithGRU:
    """An algorithm whose policy remembers."""

    def make_policy_spec(self, observation_space, action_space):
        spec = super().make_policy_spec(observation_space, action_space)
        return RecurrentSpec.of(spec, GRU, state_size=SIZE, max_seq_len=self.config.model.get("max_seq_len", 20))


class RecurrentPPO(WithGRU, PPO): ...


class RecurrentIMPALA(WithGRU, IMPALA): ...


def config(algorithm, **rollouts) -> AlgorithmConfig:
    config = AlgorithmConfig(algo_class=algorithm).environment(Recall).debugging(seed=4)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=16, rollout_fragment_length=20, **rollouts)
    config.training(train_batch_size=640, lr=0.01, gamma=0.9, model={"fcnet_hiddens": [SIZE]})
    if issubclass(algorithm, PPO):
        config.training(sgd_minibatch_size=160, num_sgd_iter=6, entropy_coeff=0.01)
    return config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=640)


def learned(algorithm, num_iterations: int) -> float:
    """The share of right answers after `num_iterations` of training."""
    with config(algorithm).build() as algo:
        for _ in range(num_iterations):
            algo.train()
        return algo.evaluate(200)["episode_reward_mean"]


@pytest.fixture(autouse=True)
def one_thread():
    """Operations this small are slower on several threads, by ten times where other processes use the processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("algorithm", "num_iterations"), [(RecurrentPPO, 12), (RecurrentIMPALA, 25)])
def test_who_remembers_answers_right(algorithm, num_iterations):
    assert learned(algorithm, num_iterations) > 0.95


def test_who_does_not_remember_guesses():
    assert learned(PPO, 12) < 0.7


def test_workers_send_sequences():
    """Remote workers' batches are joined, and checked by the learner: these weights give what is stored."""
    with config(RecurrentPPO).rollouts(num_rollout_workers=2, num_envs_per_worker=4).build() as algo:
        batch = algo.sample(640)
        assert batch[sb.SEQ_LENS].sum() == batch.count >= 640
        assert len(batch[sb.STATE_IN]) == len(batch[sb.SEQ_LENS]) and batch[sb.SEQ_LENS].max() <= 5
        algo.train()


def test_checkpoints_are_restored(tmp_path):
    with config(RecurrentPPO).build() as algo, config(RecurrentPPO).debugging(seed=5).build() as other:
        algo.train()
        other.restore(algo.save(tmp_path))
        np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)
        other.train()


def test_actions_outside_of_training_need_a_state():
    with config(RecurrentPPO).build() as algo:
        observations, state = np.ones((3, 1), np.float32), np.zeros((3, SIZE), np.float32)
        with pytest.raises(ValueError, match="this policy has a memory"):
            algo.policy.compute_actions(observations)
        assert algo.policy.compute_actions(observations, state=state).shape == (3,)
        assert state.all(1).all()
