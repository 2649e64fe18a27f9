"""RND and Curiosity as the driver uses them: rewards, advantages, what they learn, and their state."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rllib import sample_batch as sb
from rllib.exploration.intrinsic.networks import action_rows
from rllib.exploration.intrinsic.rewards import IntrinsicRewards
from rllib.exploration.intrinsic.settings import RND, Curiosity
from rllib.models.catalog.catalog import policy_spec
from rllib.sample_batch import SampleBatch

torch.set_num_threads(1)

MODEL = {"fcnet_hiddens": [16, 16], "fcnet_activation": "relu"}
BOX = gym.spaces.Box(-10, 10, (3,))
ACTIONS = [gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([2, 3]), gym.spaces.Box(-1, 1, (2,))]
SETTINGS = {
    "RND": RND(embed_dim=8, sgd_minibatch_size=32),
    "Curiosity": Curiosity(feature_dim=6, forward_net_hiddens=[12], inverse_net_hiddens=[12], sgd_minibatch_size=32),
}


def make(settings, observations=BOX, actions=ACTIONS[0], seed=0, model=MODEL) -> IntrinsicRewards:
    return IntrinsicRewards(settings, policy_spec(observations, actions, model), np.random.default_rng(seed))


def sequences(ends, seed=0, observations=BOX, actions=ACTIONS[0], fragment=8) -> SampleBatch:
    """Rows of one environment after the other, as Fragment.to_sequences makes them.

    Args:
        ends: of each environment, which of its `fragment` steps end an episode, and how: {step: "terminated"}.
    """
    observations.seed(seed), actions.seed(seed)
    columns = {name: [] for name in (sb.OBS, sb.ACTIONS, sb.TERMINATEDS, sb.TRUNCATEDS, sb.LOSS_MASK)}

    def add(is_step, how=None):
        row = observations.sample(), actions.sample(), how == "terminated", how == "truncated", is_step
        for column, value in zip(columns.values(), row):
            column.append(value)

    for its in ends:
        for t in range(fragment):
            add(True, its.get(t))
            if t in its:
                add(False)  # the episode's final observation
        add(False)
    return SampleBatch({name: np.array(column) for name, column in columns.items()})


ENDS = [{2: "terminated", 5: "truncated"}, {7: "terminated"}, {}]


def copied(rewards: IntrinsicRewards, name: str, activation=torch.relu):
    """A network in plain torch with the weights of one of them, for rows without the closing 1."""
    module = rewards._networks.modules[name]
    named = module.layout.named_parameters(module.flat.detach().clone().double())
    layers = [f"hidden_{index}" for index in range(len(module.layout.hiddens))]

    def network(x):
        for layer in layers:
            x = activation(x @ named[f"{layer}.weight"].T + named[f"{layer}.bias"])
        return x @ named["head.weight"].T + named["head.bias"]

    return network


@pytest.mark.parametrize("nonepisodic", [False, True])
def test_rnd_is_the_papers(nonepisodic):
    """Rewards by clipped, normalised next observations, scaled by their sums' deviation; GAE by its own value."""
    settings = RND(embed_dim=8, nonepisodic_returns=nonepisodic, intrinsic_reward_coeff=0.7, gamma=0.9, lambda_=0.8)
    rewards, batch = make(settings), sequences(ENDS)
    predictor, target, value = (copied(rewards, name) for name in ("predictor", "target", "value"))
    stats = rewards.add_to(batch, np.random.default_rng(0))

    steps = np.flatnonzero(batch[sb.LOSS_MASK])
    seen = batch[sb.OBS][steps + 1].astype(np.float64)
    inputs = torch.from_numpy(np.clip((batch[sb.OBS] - seen.mean(0)) / seen.std(0), -5, 5))
    raw = (predictor(inputs) - target(inputs)).square().mean(1).numpy()[steps + 1]
    values = value(inputs)[:, 0].numpy()
    terminated, ended = batch[sb.TERMINATEDS], batch[sb.TERMINATEDS] | batch[sb.TRUNCATEDS]
    # By environment: the step that follows in the same stream of intrinsic rewards, and what is bootstrapped from.
    sums, expected = {}, {}
    for k, row in enumerate(steps):
        before = steps[k - 1] if k else None
        is_first = k % 8 == 0 or (ended[before] and not nonepisodic)
        sums[row] = raw[k] + (0 if is_first else 0.9 * sums[before])
    scale = 0.7 / np.std(list(sums.values()))
    for k, row in reversed(list(enumerate(steps))):
        is_last = k % 8 == 7 or (ended[row] and not nonepisodic)
        bootstrap = values[row + 2] if ended[row] and nonepisodic else values[row + 1]
        bootstrap = 0 if terminated[row] and not nonepisodic else bootstrap
        delta = scale * raw[k] + 0.9 * bootstrap - values[row]
        expected[row] = delta + (0 if is_last else 0.9 * 0.8 * expected[steps[k + 1]])
    np.testing.assert_allclose(batch[sb.INTRINSIC_REWARDS][steps], scale * raw, rtol=1e-4)
    advantages = batch[sb.INTRINSIC_ADVANTAGES]
    np.testing.assert_allclose(advantages[steps], [expected[row] for row in steps], rtol=1e-3, atol=1e-4)
    assert not advantages[~batch[sb.LOSS_MASK]].any()
    assert stats["intrinsic_reward_mean"] == pytest.approx((scale * raw).mean(), rel=1e-4)


@pytest.mark.parametrize("actions", ACTIONS, ids=str)
def test_curiosity_is_the_papers(actions):
    """One gradient step on all rows: its losses, and so its rewards, are those of equations 2, 5 and 7."""
    settings = Curiosity(feature_dim=6, forward_net_hiddens=[12], inverse_net_hiddens=[12], normalize=False, eta=0.3)
    rewards = make(settings, actions=actions)
    batch = sequences(ENDS, actions=actions)
    features, forward, inverse = (copied(rewards, name) for name in ("features", "forward", "inverse"))
    rewards._settings = Curiosity(num_sgd_iter=1, sgd_minibatch_size=1000, normalize=False, eta=0.3)
    stats = rewards.add_to(batch, np.random.default_rng(0))

    steps = np.flatnonzero(batch[sb.LOSS_MASK])
    before, after = (features(torch.from_numpy(batch[sb.OBS][rows]).double()) for rows in (steps, steps + 1))
    taken = torch.from_numpy(batch[sb.ACTIONS][steps])
    if isinstance(actions, gym.spaces.Box):
        mean, log_std = inverse(torch.cat([before, after], 1)).chunk(2, 1)
        log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(taken).sum(1)
        rows = taken.double()
    else:
        sizes = [3] if isinstance(actions, gym.spaces.Discrete) else [2, 3]
        parts = inverse(torch.cat([before, after], 1)).split(sizes, 1)
        columns = taken.reshape(len(taken), -1).T
        log_prob = sum(torch.distributions.Categorical(logits=p).log_prob(c) for p, c in zip(parts, columns))
        one_hot = torch.nn.functional.one_hot
        rows = torch.cat([one_hot(c, n) for c, n in zip(columns, sizes)], 1).double()
    errors = 0.5 * (forward(torch.cat([before, rows], 1)) - after).square().sum(1)
    np.testing.assert_allclose(batch[sb.INTRINSIC_REWARDS][steps], 0.3 * errors.numpy(), rtol=1e-4)
    assert stats["forward_loss"] == pytest.approx(errors.mean().item(), rel=1e-4)
    assert stats["inverse_loss"] == pytest.approx(-log_prob.mean().item(), rel=1e-4)


def test_actions_are_one_hot_part_by_part():
    distribution = policy_spec(BOX, ACTIONS[1], MODEL).distribution
    assert action_rows(distribution, torch.tensor([[1, 0], [0, 2]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    both = gym.spaces.Tuple([ACTIONS[0], ACTIONS[2]])
    rows = action_rows(policy_spec(BOX, both, MODEL).distribution, torch.tensor([[2, 0.5, -1.0]]))
    assert rows.tolist() == [[0, 0, 1, 0.5, -1.0]]


@pytest.mark.parametrize("name", SETTINGS)
def test_what_was_seen_often_is_rewarded_less_than_what_is_new(name):
    rewards, rng = make(SETTINGS[name]), np.random.default_rng(0)
    for round_ in range(30):
        batch = sequences(ENDS, seed=round_ % 3)
        batch[sb.OBS] = np.abs(batch[sb.OBS])
        rewards.add_to(batch, rng)
    seen = batch[sb.INTRINSIC_REWARDS][batch[sb.LOSS_MASK]].mean()
    new = sequences(ENDS, seed=1)
    new[sb.OBS] = -np.abs(new[sb.OBS])
    rewards.add_to(new, rng)
    assert new[sb.INTRINSIC_REWARDS][new[sb.LOSS_MASK]].mean() > 3 * seen > 0


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    "observations",
    [gym.spaces.Discrete(5), gym.spaces.Box(0, 255, (10, 10, 3), np.uint8), gym.spaces.Box(-1, 1, (2, 2))],
    ids=str,
)
def test_each_kind_of_observation(name, observations):
    rewards = make(SETTINGS[name], observations, model={**MODEL, "post_fcnet_hiddens": [16]})
    batch = sequences(ENDS, observations=observations)
    for _ in range(2):
        stats = rewards.add_to(batch, np.random.default_rng(0))
    assert np.isfinite(list(stats.values())).all() and batch[sb.INTRINSIC_REWARDS].max() > 0


@pytest.mark.parametrize("name", SETTINGS)
def test_state_restores_all_that_is_learned(name):
    one, other = make(SETTINGS[name]), make(SETTINGS[name], seed=1)
    one.add_to(sequences(ENDS), np.random.default_rng(0))
    other.set_state(one.get_state())
    a, b = sequences(ENDS, seed=5), sequences(ENDS, seed=5)
    assert one.add_to(a, np.random.default_rng(1)) == other.add_to(b, np.random.default_rng(1))
    np.testing.assert_array_equal(a[sb.INTRINSIC_ADVANTAGES], b[sb.INTRINSIC_ADVANTAGES])
    for key, array in one.get_state().items():
        np.testing.assert_array_equal(array, other.get_state()[key])
    with pytest.raises(ValueError, match="the intrinsic reward's state has"):
        make(SETTINGS[name], model={"fcnet_hiddens": [4]}).set_state(one.get_state())
