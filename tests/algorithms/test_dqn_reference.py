"""DQN's updates against a second implementation, written like the paper with torch's own layers, loss and optimizer.

Equal weights, equal transitions, equal rows: then the weights after one update and after 128 must be equal as well. The
same comparison was made with Stable-Baselines3 2.9.2 (its replay, its rows, 256x256 ReLU, lr 2.3e-3): the largest
difference was 1.5e-8 after one update and 2.1e-7 after 128.
"""

import copy

import numpy as np
import pytest
import torch

from rllib import sample_batch as sb
from rllib.algorithms.dqn import DQNConfig

GAMMA, LR, CLIP, BATCH = 0.97, 2.3e-3, 0.5, 32


def make_algo(**training):
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .rollouts(rollout_fragment_length=256)
        .training(
            gamma=GAMMA, lr=LR, grad_clip=CLIP, train_batch_size=BATCH, dueling=False, hiddens=[],
            model={"fcnet_hiddens": [24, 16], "fcnet_activation": "relu"},
            num_steps_sampled_before_learning_starts=10**4,
            replay_buffer_config={"type": "ReplayBuffer"}, **training,
        )
        .debugging(seed=2)
        .build()
    )  # fmt: skip


def reference_network(policy):
    layers = [torch.nn.Linear(4, 24), torch.nn.ReLU(), torch.nn.Linear(24, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)]
    network, named = torch.nn.Sequential(*layers).double(), policy.parameters()
    for layer, name in zip(layers[::2], ("shared.hidden_0", "shared.hidden_1", "policy.head")):
        layer.weight.data[:] = torch.tensor(named[f"{name}.weight"])
        layer.bias.data[:] = torch.tensor(named[f"{name}.bias"])
    return network


class Reference:
    """The update of Mnih et al. (2015), in float64; with double_q that of van Hasselt et al. (2015)."""

    def __init__(self, policy, double_q, kind):
        self.online = reference_network(policy)
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=LR)
        self.double_q = double_q
        self.loss = torch.nn.SmoothL1Loss() if kind == "huber" else lambda q, target: 0.5 * ((q - target) ** 2).mean()

    def update(self, obs, actions, rewards, following, ended):
        with torch.no_grad():
            chooser = self.online if self.double_q else self.target
            best = chooser(following).argmax(1, keepdim=True)
            target = rewards + GAMMA * ~ended * self.target(following).gather(1, best)[:, 0]
        loss = self.loss(self.online(obs).gather(1, actions[:, None])[:, 0], target)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.online.parameters(), CLIP)
        self.optimizer.step()
        return loss.item()


def transitions(replay, rows):
    """The rows of the stored columns, read without the replay's own sampling."""
    stored, names = replay.get_state(), (sb.OBS, sb.ACTIONS, sb.REWARDS, sb.NEXT_OBS, sb.DISCOUNTS)
    columns = (torch.tensor(stored[f"columns.{name}"][rows]) for name in names)
    obs, actions, rewards, following, discounts = columns
    return obs.double(), actions, rewards.double(), following.double(), discounts == 0


@pytest.mark.parametrize("learner", ["numpy", "torch"])
@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("kind", ["huber", "mse"])
def test_weights_after_1_and_128_updates(learner, double_q, kind):
    with make_algo(learner=learner, double_q=double_q, td_error_loss_fn=kind) as algo:
        algo.train()
        reference = Reference(algo.policy, double_q, kind)
        draws = copy.deepcopy(algo.trainee.rng)  # draws the same rows
        for update in range(1, 129):
            stats = algo.trainee.update(lr=algo.config.lr)
            rows = (draws.random(BATCH) * len(algo.replay)).astype(int)
            loss = reference.update(*transitions(algo.replay, rows))
            assert stats["total_loss"] == pytest.approx(loss, rel=1e-3, abs=1e-5)
            if update == 64:
                algo.trainee.target.set_weights(algo.policy.weights)
                reference.target.load_state_dict(reference.online.state_dict())
            if update in (1, 128):
                expected = torch.nn.utils.parameters_to_vector(reference.online.parameters()).detach().numpy()
                named = algo.policy.parameters()
                found = np.concatenate(
                    [named[f"{name}.{kind}"].ravel() for name in ("shared.hidden_0", "shared.hidden_1", "policy.head")
                     for kind in ("weight", "bias")]
                )  # fmt: skip
                np.testing.assert_allclose(found, expected, atol=1e-6 if update == 1 else 1e-4)
