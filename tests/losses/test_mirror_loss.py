"""The mirror loss: its value and gradient, what it teaches, and what is refused."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rllib import DQNConfig, PPOConfig
from rllib.learners.learner import make_learner
from rllib.losses.ppo import PPO_LOSS
from rllib.losses.user.auxiliary import WithAuxiliary, auxiliary_losses
from tests.algorithms.algorithm_support import learner_stats
from tests.learners.learner_support import SETTINGS, make_batch, make_policy

torch.set_num_threads(1)

OBSERVATION = {"permutation": [1, 0, 2, 3], "signs": [1, 1, -1, 1]}
NUMBERS = {"permutation": [1, 0], "signs": [-1, -1]}
CHOICES = {"permutation": [2, 1, 0], "signs": [1, 1, 1]}


def as_function(mirror):
    matrix = np.zeros((len(mirror["signs"]),) * 2, np.float32)
    for index, (source, sign) in enumerate(zip(mirror["permutation"], mirror["signs"])):
        matrix[source, index] = sign
    return lambda rows: rows @ torch.from_numpy(matrix)


def gradient(policy, setting, weight):
    parts = [part.of_policy(policy.spec) for part in auxiliary_losses(setting)]
    loss = WithAuxiliary(PPO_LOSS, parts, None, policy.spec.opened)
    given = {**SETTINGS, "mirror_weight": weight}
    return make_learner(policy, loss, kind="torch").compute_gradient(make_batch(policy, 32), **given)


@pytest.mark.parametrize("with_functions", [False, True])
@pytest.mark.parametrize("actions", ["numbers", "choices"])
def test_loss_and_gradient_are_the_papers(actions, with_functions):
    """Equation 4 in plain torch, float64, on the layers by their names."""
    space, mirror = (Box(-1, 1, (2,)), NUMBERS) if actions == "numbers" else (Discrete(3), CHOICES)
    policy = make_policy(space, fcnet_hiddens=[16])
    policy.weights[:] += 0.2 * np.random.default_rng(0).standard_normal(policy.weights.size).astype(np.float32)
    both = {"observation": OBSERVATION, "action": mirror}
    if with_functions:
        both = {name: as_function(each) for name, each in both.items()}
    setting = {"mirror": {"mirror": both, "weight": 4.0}}
    whole, stats = gradient(policy, setting, 4.0)
    without, _ = gradient(policy, setting, 0.0)

    flat = torch.from_numpy(policy.weights.astype(np.float64)).requires_grad_()
    named = policy.layout.named_parameters(flat)

    def action(rows):
        hidden = torch.tanh(rows @ named["policy.hidden_0.weight"].T + named["policy.hidden_0.bias"])
        outputs = hidden @ named["policy.head.weight"].T + named["policy.head.bias"]
        return outputs[:, :2] if actions == "numbers" else outputs.softmax(-1)

    def mirrored(rows, how):
        return rows[:, how["permutation"]] * torch.tensor(how["signs"], dtype=torch.float64)

    rows = torch.from_numpy(make_batch(policy, 32)["obs"].astype(np.float64))
    loss = (action(rows) - mirrored(action(mirrored(rows, OBSERVATION)), mirror)).square().sum(1).mean()
    (4.0 * loss).backward()
    assert stats["mirror_loss"] == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(whole - without, flat.grad.numpy(), atol=2e-5)


class OneSide(gymnasium.Env):
    """The best action is 0.4 where the observation is positive, and it always is: the other side is never seen."""

    observation_space, action_space = Box(-1, 1, (1,), np.float32), Box(-1, 1, (1,), np.float32)

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._seen = self.np_random.uniform(0.3, 1.0, 1).astype(np.float32)
        return self._seen, {}

    def step(self, action):
        reward = -float((action[0] - 0.4) ** 2)
        return self.reset()[0], reward, True, False, {}


TURNED = {"permutation": [0], "signs": [-1]}


def one_side(mirror=True, **training):
    config = PPOConfig().environment(OneSide).rollouts(num_rollout_workers=0, num_envs_per_worker=8)
    settings = {"train_batch_size": 256, "sgd_minibatch_size": 64, "num_sgd_iter": 8, "lr": 0.01}
    config.training(**settings, model={"fcnet_hiddens": [16], "free_log_std": True, "log_std_init": -1.0})
    symmetric = {"symmetry": {"mirror": {"observation": TURNED, "action": TURNED}, "weight": 4.0}}
    symmetric = training.pop("auxiliary_losses", symmetric)
    return config.training(auxiliary_losses=symmetric if mirror else {}, **training).debugging(seed=0)


def test_the_unseen_side_is_learned_by_symmetry():
    found = {}
    for mirror in (False, True):
        with one_side(mirror).build() as algo:
            for _ in range(8):
                stats = learner_stats(algo.train())
            observations = np.array([[0.5], [1.0], [-0.5], [-1.0]], np.float32)
            found[mirror] = algo.policy.dist_inputs(observations)[:, 0]
    assert stats["symmetry_loss"] < 0.01 and stats["symmetry_weight"] == 4.0
    np.testing.assert_allclose(found[True], [0.4, 0.4, -0.4, -0.4], atol=0.2)
    assert np.abs(found[False] - [0.4, 0.4, -0.4, -0.4]).max() > 0.4


@pytest.mark.parametrize(
    ("mirror", "message"),
    [
        ({"observation": TURNED}, "its mirror must be .*'permutation'"),
        ({"observation": TURNED, "action": {"permutation": [0, 0], "signs": [1, 1]}}, "each of 0 ... n - 1 once"),
        ({"observation": TURNED, "action": {"permutation": [0], "signs": [2]}}, "must be 1 or -1 for each number"),
        ({"observation": TURNED, "action": {"permutation": [0.0], "signs": [1]}}, "each of 0 ... n - 1 once"),
        ({"observation": TURNED, "action": {"permutation": [0, "1"], "signs": [1, 1]}}, "each of 0 ... n - 1 once"),
        ({"observation": TURNED, "action": {"permutation": [0], "signs": [[1]]}}, "must be 1 or -1 for each number"),
        ({"observation": TURNED, "action": {"permutation": [1, 2, 0], "signs": [1, 1, 1]}}, "does not give number 0"),
        ({"observation": OBSERVATION, "action": TURNED}, "has 4 numbers in the permutation of the observation, but"),
    ],
)
def test_wrong_mirrors_are_refused(mirror, message):
    with pytest.raises(ValueError, match=message):
        one_side(auxiliary_losses={"symmetry": {"mirror": mirror}}).build()


def test_what_cannot_be_mirrored_is_refused():
    with pytest.raises(ValueError, match="without a memory, masks or a custom model"):
        one_side(model={"use_lstm": True, "lstm_cell_size": 4}).build()
    both = {"symmetry": {"mirror": {"observation": TURNED, "action": TURNED}, "loss": lambda *_: 0}}
    with pytest.raises(ValueError, match="has both a loss and a mirror"):
        one_side(auxiliary_losses=both).build()
    values = {"symmetry": {"mirror": {"observation": OBSERVATION, "action": {"permutation": [1, 0], "signs": [1, 1]}}}}
    with pytest.raises(ValueError, match="not of QValues"):
        DQNConfig().environment("CartPole-v1").training(auxiliary_losses=values).build()


def test_a_mirror_of_data_restores_without_code(tmp_path):
    from rllib.algorithms.base.algorithm import Algorithm

    with one_side().build() as algo:
        algo.train()
        path = algo.save(str(tmp_path))
        weights = algo.policy.weights.copy()
    with Algorithm.from_checkpoint(path, load_user_code=True) as restored:
        np.testing.assert_array_equal(restored.policy.weights, weights)
        assert restored.config.auxiliary_losses["symmetry"]["mirror"]["action"] == TURNED
        restored.train()
