"""A policy with a memory: its network is made here, and all else of the library is as for any other policy."""

import numpy as np
import pytest
import torch
from torch import nn

from rllib import DQN, ES, IMPALA, PPO, PQN, AlgorithmConfig, Policy
from rllib import sample_batch as sb
from rllib.errors import CheckpointError
from rllib.losses.loss import LossOverModules
from rllib.models.user.module import RecurrentSpec
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

    def make_policy_spec(self, observation_space, action_space, config):
        spec = super().make_policy_spec(observation_space, action_space, config)
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
            algo.policy.choose(observations)
        assert algo.policy.choose(observations, state=state).shape == (3,)
        assert state.all(1).all()


def test_an_algorithm_takes_and_returns_states():
    """As RLlib's: (action, state, fetches) where a state is given; the same for several observations at once."""
    with config(RecurrentPPO).build() as algo:
        observation, state = np.ones(1, np.float32), algo.get_policy().get_initial_state()
        for _ in range(2):
            before = state
            action, state, fetches = algo.compute_single_action(observation, state, explore=False)
            inputs = np.append(observation, 1)[None].astype(np.float32)
            expected = np.empty((1, SIZE), np.float32)
            dist_inputs = algo.policy.network.step(inputs, before[0][None], expected)
            np.testing.assert_array_equal(state, expected)
            np.testing.assert_array_equal(fetches["action_dist_inputs"], dist_inputs[0])
            assert action == dist_inputs.argmax()
            assert fetches["action_logp"] == algo.policy.log_prob(dist_inputs, np.array([action]))
            np.testing.assert_allclose(fetches["vf_preds"], algo.policy.values(observation[None], before[0][None])[0])
        actions, states, fetches = algo.compute_actions([observation] * 2, [before, before], explore=False)
        assert actions.tolist() == [action] * 2 and fetches["vf_preds"].shape == (2,)
        np.testing.assert_allclose(states[1], state, atol=1e-6)
        actions, states, _ = algo.compute_actions({"a": observation}, {"a": before}, explore=False)
        assert actions == {"a": action}
        np.testing.assert_array_equal(states["a"], state)


@pytest.mark.parametrize("state", [None, [], False, [np.zeros(3)], np.zeros((1, SIZE))])
def test_a_state_that_does_not_fit_is_refused(state):
    match = r"array of shape \[16\].*get_initial_state\(\)"
    with config(RecurrentPPO).build() as algo, pytest.raises(ValueError, match=match):
        algo.compute_single_action(np.ones(1, np.float32), state)


def test_a_policy_without_a_memory_has_an_empty_state():
    with config(PPO).build() as algo:
        observation = np.ones(1, np.float32)
        assert algo.get_policy().get_initial_state() == []
        assert algo.compute_single_action(observation, []) in (0, 1)
        _, state, fetches = algo.compute_single_action(observation, full_fetch=True)
        assert state == [] and fetches.keys() == {"action_dist_inputs", "action_logp", "vf_preds"}
        with pytest.raises(ValueError, match=r"has no memory, so its state is .*explore is a keyword"):
            algo.compute_single_action(observation, False)
        with pytest.raises(ValueError, match="there is no policy 'another'"):
            algo.compute_single_action(observation, policy_id="another")


def test_evaluation_workers_remember():
    with config(RecurrentPPO).evaluation(evaluation_num_workers=1).build() as algo:
        assert algo.evaluate(4)["episodes_this_iter"] == 4


def memory_of(algorithm):
    """The algorithm with a policy that remembers."""
    return type(f"Recurrent{algorithm.__name__}", (WithGRU, algorithm), {})


@pytest.mark.parametrize(
    ("algorithm", "training", "reason"),
    [
        (DQN, {}, "a replay keeps single rows"),
        (PQN, {}, "QLambda computes"),
        (ES, {"noise_size": 10_000}, "it perturbs fully connected networks"),
    ],
)
def test_what_cannot_use_a_memory_is_refused(algorithm, training, reason):
    settings = AlgorithmConfig(algo_class=memory_of(algorithm)).environment(Recall).training(**training)
    with pytest.raises(ValueError, match=f"cannot train a policy with a memory: {reason}"):
        settings.build()


def test_parameter_noise_cannot_perturb_a_memory():
    settings = AlgorithmConfig(algo_class=memory_of(PQN)).environment(Recall)
    with pytest.raises(ValueError, match="cannot train a policy with a memory"):
        settings.exploration(exploration_config={"type": "ParameterNoise"}).build()


def test_a_loss_over_modules_cannot_train_a_memory():
    class OverModules(RecurrentPPO):
        loss = LossOverModules((), ("total_loss",), torch=None)

    with pytest.raises(ValueError, match="it cannot train a policy with a memory"):
        AlgorithmConfig(algo_class=OverModules).environment(Recall).build()


def test_a_policy_that_remembers_is_made_from_a_checkpoint(tmp_path):
    """Its class and the function that makes its network are the user's code, which is loaded on request alone."""
    with config(RecurrentPPO).build() as algo:
        whole, alone = algo.save(tmp_path / "whole"), algo.export_policy_model(tmp_path / "alone")
        with pytest.raises(CheckpointError, match=r"code of yours \(class=.*make=.*load_user_code=True"):
            Policy.from_checkpoint(alone)
        made = (
            Policy.from_checkpoint(alone, load_user_code=True),
            *Policy.from_checkpoint(whole, load_user_code=True).values(),
        )
        for policy in made:
            assert policy.spec == algo.policy.spec
            np.testing.assert_array_equal(policy.weights, algo.policy.weights)
