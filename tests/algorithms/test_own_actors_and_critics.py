"""Networks of the user's as actor and critics of SAC, TQC, CrossQ, TD3 and DDPG."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rllib import Algorithm, Policy, register_model
from rllib import sample_batch as sb
from rllib.algorithms.apex import ApexDDPGConfig
from rllib.algorithms.crossq import CrossQConfig
from rllib.algorithms.offline.iql import IQLConfig
from rllib.algorithms.sac import SACConfig, TQCConfig
from rllib.algorithms.td3 import DDPGConfig, TD3Config
from rllib.env.multi_agent.copies import make_multi_agent
from rllib.errors import CheckpointError
from rllib.losses.deterministic import TARGET_NOISE
from rllib.losses.sac import NEXT_NOISE, NOISE
from rllib.models.user.model_v2 import TorchFC
from tests.algorithms.algorithm_support import learner_stats, train
from tests.algorithms.test_offline_algorithms import of_numbers
from tests.envs import BoundedAction, MaskedProbe, MatchParts, PointAtPixel
from tests.gpu import DEVICES

torch.set_num_threads(1)


def flat(observation) -> torch.Tensor:
    """[B, K] of an observation in the form of its space."""
    if isinstance(observation, torch.Tensor):
        return observation.reshape(len(observation), -1).float()
    parts = observation.values() if isinstance(observation, dict) else observation
    return torch.cat([flat(part) for part in parts], 1)


def size_of(space) -> int:
    """The width of `flat`, which has one column for a choice."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.values() if isinstance(space, spaces.Dict) else space
        return sum(map(size_of, parts))
    return int(np.prod(space.shape, dtype=int))


class Actor(nn.Module):
    def __init__(self, observation_space, action_space, num_outputs, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(size_of(observation_space), width), nn.ReLU(), nn.Linear(width, num_outputs)
        )

    def forward(self, observation):
        return self.layers(flat(observation))


class Critic(nn.Module):
    def __init__(self, observation_space, action_space, num_outputs, width=16):
        super().__init__()
        num_inputs = size_of(observation_space) + size_of(action_space) * isinstance(action_space, spaces.Box)
        self.layers = nn.Sequential(nn.Linear(num_inputs, width), nn.ReLU(), nn.Linear(width, num_outputs))

    def forward(self, observation, *action):
        return self.layers(torch.cat([flat(observation), *(each.flatten(1) for each in action)], 1))


BOTH = {"policy_model_config": {"custom_model": Actor}, "q_model_config": {"custom_model": Critic}}
SIDES = {
    "actor": {"policy_model_config": BOTH["policy_model_config"]},
    "critics": {"q_model_config": BOTH["q_model_config"]},
    "both": BOTH,
}
ALL = [SACConfig, TQCConfig, TD3Config, DDPGConfig]


def config(kind, env="Pendulum-v1", env_config=None, workers=0, **training):
    training = {
        "model": {"fcnet_hiddens": [16]},
        "replay_buffer_config": {"type": "ReplayBuffer", "capacity": 2000},
        "train_batch_size": 32,
        "num_steps_sampled_before_learning_starts": 32,
        **training,
    }
    return (
        kind()
        .environment(env, env_config=env_config or {})
        .exploration(exploration_config={"random_timesteps": 8})
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=2)
        .training(**training)
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=40)
        .debugging(seed=7)
    )


def parameters(algo, module):
    """Arrays of the vector, network after network, layer after layer."""
    named = algo.learner.vector.named_parameters(module)
    return [named[name] for name in sorted(named, key=lambda name: name.split(".")[0] if module == "critics" else "")]


# ---------------------------------------------------------------------- the same as built-in networks


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", ALL)
def test_copies_of_the_built_in_networks_learn_like_them(kind, side):
    with config(kind).build() as built_in, config(kind, **SIDES[side]).build() as own:
        built_in.replay.add(built_in.sample(100))
        batches = [built_in.replay.sample(32, np.random.default_rng(n), 0.4) for n in range(10)]
        for module in ("policy", "critics"):
            for ours, theirs in zip(parameters(own, module), parameters(built_in, module), strict=True):
                ours[...] = theirs
        for algo in (built_in, own):
            for target in algo.learner.targets.values():
                target.weights[:] = algo.learner.vector[target.module]
            for batch in batches:
                rates = dict.fromkeys(algo.trainee.learning_rates(), 1e-3)
                algo.trainee.learn_from(sb.SampleBatch(dict(batch)), **rates)
        for module in ("policy", "critics"):
            for ours, theirs in zip(parameters(own, module), parameters(built_in, module), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_settings_of_their_own_for_actor_and_critics():
    """By RLlib's names of today, and of earlier versions."""
    for actor, critics in (
        ("policy_model_config", "q_model_config"),
        ("policy_model", "Q_model"),
        ("policy_model", "q_model"),
    ):
        own = {actor: {"fcnet_hiddens": [12]}, critics: {"fcnet_hiddens": [24, 20], "fcnet_activation": "tanh"}}
        with config(SACConfig, **own).build() as algo:
            assert algo.policy.spec.hiddens == (12,) and algo.policy.spec.activations == ("relu",)
            critics = algo.trainee.critic_module()
            assert critics.hiddens == (24, 20) and critics.activation == "tanh"


# ---------------------------------------------------------------------- closed forms


class Linear(nn.Module):
    """A linear network of an observation and, of a critic, an action."""

    def __init__(self, observation_space, action_space, num_outputs, reads_action=False):
        super().__init__()
        self.layer = nn.Linear(observation_space.shape[0] + reads_action * action_space.shape[0], num_outputs)

    def forward(self, observation, *action):
        return self.layer(torch.cat([observation, *action], 1))


LINEAR = {
    "policy_model_config": {"custom_model": Linear},
    "q_model_config": {"custom_model": Linear, "custom_model_config": {"reads_action": True}},
}


class Twoway(gym.Env):
    """Observations of three numbers, actions of two."""

    observation_space, action_space = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


def linear_update(kind, **training):
    """One step at a rate of 1, which takes away the gradients: weights before and after, and the batch, in float64."""
    rng, rows = np.random.default_rng(5), 32
    own = config(kind, Twoway, opt_type="sgd", grad_clip=None, policy_delay=1, gamma=0.9, **LINEAR, **training)
    with own.build() as algo:
        drawn = {
            sb.OBS: rng.uniform(-1, 1, (rows, 3)), sb.NEXT_OBS: rng.uniform(-1, 1, (rows, 3)),
            sb.ACTIONS: rng.uniform(-0.9, 0.9, (rows, 2)), sb.REWARDS: rng.normal(size=rows),
            sb.DISCOUNTS: 0.9 * rng.integers(2, size=rows), sb.WEIGHTS: rng.uniform(0.5, 1, rows),
        }  # fmt: skip
        batch = sb.SampleBatch({name: column.astype(np.float32) for name, column in drawn.items()})
        target = algo.learner.targets["critics"]
        target.weights[:] = rng.normal(size=len(target.weights))
        before = weights_of(algo), split(np.float64(target.weights), 5, 2)
        algo.trainee.learn_from(batch, **dict.fromkeys(algo.trainee.learning_rates(), 1.0))
        return *before, weights_of(algo), {name: np.float64(column) for name, column in batch.items()}


def weights_of(algo):
    """Weights [outputs, inputs + 1], the bias last, of the actor and of each critic."""
    actor = [np.float64(each) for each in parameters(algo, "policy")]
    return np.column_stack(actor), split(np.float64(algo.learner.vector["critics"]), 5, 2)


def split(weights, inputs: int, copies: int):
    return weights.reshape(copies, inputs + 1)


def joined(*parts):
    """Inputs of a linear network, with a one for its bias."""
    return np.column_stack([*parts, np.ones(len(parts[0]))])


def test_gradients_of_td3_with_linear_networks():
    """Q_i = w_i (s, a, 1) and pi = tanh(A (s, 1)), so d J / d w_i = mean w (Q_i - y) (s, a, 1)."""
    (actor, critics), targets, (actor_after, critics_after), batch = linear_update(TD3Config, tau=0.0)
    seen, following = joined(batch[sb.OBS]), joined(batch[sb.NEXT_OBS])
    chosen = np.clip(np.tanh(following @ actor.T) + batch[TARGET_NOISE], -1, 1)
    judged = joined(batch[sb.NEXT_OBS], chosen) @ targets.T
    y = batch[sb.REWARDS] + batch[sb.DISCOUNTS] * judged.min(1)
    read = joined(batch[sb.OBS], batch[sb.ACTIONS])
    errors = read @ critics.T - y[:, None]
    expected = (batch[sb.WEIGHTS][:, None] * errors).T @ read / len(y)
    np.testing.assert_allclose(critics - critics_after, expected, atol=2e-6)
    # The actor climbs the first critic, after its step.
    actions = np.tanh(seen @ actor.T)
    slopes = -critics_after[0, 3:5] * (1 - actions**2)
    np.testing.assert_allclose(actor - actor_after, slopes.T @ seen / len(y), atol=2e-6)


def test_gradients_of_sac_with_linear_networks():
    """Means and log standard deviations are linear, too: u = m + exp(l) e, and dlog p/dm = 2 tanh(u)."""
    alpha = 0.3
    (actor, critics), targets, (actor_after, critics_after), batch = linear_update(
        SACConfig, tau=0.0, initial_alpha=alpha, alpha_lr=0.0
    )
    seen, following = joined(batch[sb.OBS]), joined(batch[sb.NEXT_OBS])

    def draw(rows, noise):
        mean, log_std = np.split(rows @ actor.T, 2, axis=1)
        u = mean + np.exp(log_std) * noise
        log_prob = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(u) ** 2)
        return np.tanh(u), log_prob.sum(1), np.exp(log_std) * noise

    chosen, log_prob, _ = draw(following, batch[NEXT_NOISE])
    y = batch[sb.REWARDS] + batch[sb.DISCOUNTS] * (
        (joined(batch[sb.NEXT_OBS], chosen) @ targets.T).min(1) - alpha * log_prob
    )
    read = joined(batch[sb.OBS], np.tanh(batch[sb.ACTIONS]))
    expected = (batch[sb.WEIGHTS][:, None] * (read @ critics.T - y[:, None])).T @ read / len(y)
    np.testing.assert_allclose(critics - critics_after, expected, atol=2e-6)
    actions, _, spread = draw(seen, batch[NOISE])
    least = (joined(batch[sb.OBS], actions) @ critics_after.T).argmin(1)
    of_mean = 2 * alpha * actions - critics_after[least, 3:5] * (1 - actions**2)
    slopes = np.column_stack([of_mean, of_mean * spread - alpha])
    np.testing.assert_allclose(actor - actor_after, slopes.T @ seen / len(y), atol=2e-6)


# ---------------------------------------------------------------------- forms of observations


class OfParts(MatchParts):
    """MatchParts with an action of numbers."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def step(self, action):
        return super().step((action > 0).astype(int))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("env", "env_config"), [(OfParts, {}), (MaskedProbe, {"mask": "int8"}), (PointAtPixel, {"wrap": 2})]
)
def test_dicts_masks_and_images(env, env_config, side):
    model = {"fcnet_hiddens": [16]}
    if env is PointAtPixel:
        model |= {"conv_filters": [[4, 4, 2, "valid"]]}
    shift = {"image_shift": 1} if env is PointAtPixel and side == "critics" else {}
    run = config(SACConfig, env, env_config, model=model, **SIDES[side], **shift)
    run.exploration(exploration_config={"random_timesteps": 0})
    with run.build() as algo:
        vector = algo.learner.vector
        before = {module: vector[module].copy() for module in ("policy", "critics")}
        assert np.isfinite(learner_stats(train(algo, 2))["critic_loss"])
        for module, weights in before.items():
            assert (vector[module] != weights).any()


def test_a_filter():
    with config(SACConfig, **BOTH).rollouts(observation_filter="MeanStdFilter").build() as algo:
        assert np.isfinite(learner_stats(train(algo, 2))["critic_loss"])


@pytest.mark.parametrize("name", ["CQL", "TD3BC", "ReBRAC"])
def test_from_recorded_data(name):
    with of_numbers(name, **BOTH).build() as algo:
        before = algo.learner.vector["critics"].copy()
        algo.train()
        assert algo.learner.vector["critics"].shape == before.shape and (algo.learner.vector["critics"] != before).any()


def test_a_network_of_rllib_s_as_actor():
    own = {"custom_model": TorchFC, "fcnet_hiddens": [8]}
    with config(SACConfig, policy_model_config=own).build() as algo:
        assert algo.policy.parameters()["hidden.0.weight"].shape == (8, 3)
        assert np.isfinite(learner_stats(train(algo, 2))["actor_loss"])


def test_crossq_with_an_actor_of_the_user_s():
    own = {"batch_norm_actor": False, "q_model_config": {"fcnet_hiddens": [16]}, **SIDES["actor"]}
    with config(CrossQConfig, **own).build() as algo:
        assert np.isfinite(learner_stats(train(algo, 2))["actor_loss"])
        assert (algo.learner.vector.named_parameters("critics")["passes"] > 0).all()


# ---------------------------------------------------------------------- runs


LEARNS = {
    "lr": 1e-2, "gamma": 0.0, "train_batch_size": 64, "training_intensity": 64,
    "num_steps_sampled_before_learning_starts": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "own"),
    [(SACConfig, {"initial_alpha": 0.01, "alpha_lr": 0.0}), (TD3Config, {"policy_delay": 1})],
)
def test_the_best_action_is_found(kind, own):
    """7 of 0 ... 10, by networks of the user's alone, in workers."""
    run = config(kind, BoundedAction, **BOTH, **LEARNS, **own)
    run.exploration(exploration_config={"random_timesteps": 64}).reporting(min_sample_timesteps_per_iteration=500)
    with run.build() as algo:
        train(algo, 1)
        assert abs(algo.compute_single_action(np.zeros(1, np.float32), explore=False)[0] - 7) < 0.7


def test_workers_and_evaluation():
    run = config(SACConfig, BoundedAction, workers=1, **BOTH)
    run.evaluation(evaluation_interval=1, evaluation_duration=2)
    with run.build() as algo:
        assert np.isfinite(train(algo, 2)["evaluation"]["episode_reward_mean"])


def test_policies_of_several_agents():
    run = config(SACConfig, make_multi_agent(BoundedAction), {"num_agents": 2}).multi_agent(
        policies={"left": (None, None, None, BOTH), "right": (None, None, None, SIDES["critics"])},
        policy_mapping_fn=lambda agent, *_, **__: ("left", "right")[int(agent)],
    )
    with run.build() as algo:
        train(algo, 2)
        assert "layers.0.weight" in algo.policies["left"].parameters()
        assert "layers.0.weight" not in algo.policies["right"].parameters()
        assert "1.layers.0.weight" in algo.learners["right"].vector.named_parameters("critics")


@pytest.mark.parametrize("kind", [SACConfig, TD3Config])
def test_a_run_continues_from_its_checkpoint_bit_by_bit(kind, tmp_path):
    """Episodes of one step: at the checkpoint all have ended."""
    found = []
    with config(kind, BoundedAction, store_buffer_in_checkpoints=True, **BOTH).build() as algo:
        train(algo, 2)
        saved = algo.save(tmp_path / "whole")
        state = algo.learner.get_state()
    with pytest.raises(CheckpointError, match=r"q_model_config\['custom_model'\].*Critic.*load_user_code=True"):
        Algorithm.from_checkpoint(saved)
    for _ in range(2):
        with Algorithm.from_checkpoint(saved, load_user_code=True) as again:
            for name, array in again.learner.get_state().items():
                np.testing.assert_array_equal(array, state[name], err_msg=name)
            train(again, 1)
            found.append(again.learner.vector.flat.copy())
    np.testing.assert_array_equal(*found)


def test_a_checkpoint_of_registered_networks_needs_their_names_alone(tmp_path):
    register_model("own actor", Actor)
    register_model("own critic", Critic)
    own = {"policy_model_config": {"custom_model": "own actor"}, "q_model_config": {"custom_model": "own critic"}}
    with config(SACConfig, BoundedAction, **own).build() as algo:
        saved, vector = algo.save(tmp_path), algo.learner.vector.flat.copy()
    with Algorithm.from_checkpoint(saved) as again:
        np.testing.assert_array_equal(again.learner.vector.flat, vector)


def test_exported_policies_act_alone(tmp_path):
    with config(SACConfig, BoundedAction, **BOTH).build() as algo:
        algo.export_policy_model(tmp_path / "policy")
        action = algo.compute_single_action(np.zeros(1, np.float32), explore=False)
    alone = Policy.from_checkpoint(tmp_path / "policy", load_user_code=True)
    chosen = alone.choose(np.zeros((1, 1), np.float32), explore=False)[0]
    np.testing.assert_allclose(5 + 5 * np.tanh(chosen), action, atol=1e-5)


@pytest.mark.slow
def test_several_learners_equal_one():
    """Processes of learners start, hence slow."""
    vectors = []
    for learners in (0, 2):
        with config(TD3Config, BoundedAction, lr=1e-3, **BOTH).learners(num_learners=learners).build() as algo:
            train(algo, 2)
            vectors.append(algo.policy.weights.copy())
    np.testing.assert_allclose(*vectors, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_learners_on_every_device(device):
    with config(SACConfig, **BOTH).resources(num_gpus=int(device == "cuda")).build() as algo:
        train(algo, 3)
        assert algo.learner.device.startswith(device)
        assert np.isfinite(algo.learner.vector.flat).all()


# ---------------------------------------------------------------------- refusals


class Remembers(Actor):
    def initial_state(self):
        return [torch.zeros(2)]

    def forward(self, observation, state):
        return super().forward(observation), state


@pytest.mark.parametrize(
    ("kind", "settings", "match"),
    [
        (SACConfig, {"model": {"custom_model": Actor}}, r"critics read an action as well\. Use .*q_model_config="),
        (SACConfig, {"policy_model_config": {"custom_model": "nowhere"}}, "policy_model_config: .*no registered name"),
        (SACConfig, {"q_model_config": {"custom_model": 5}}, "q_model_config: .*must be a class"),
        (SACConfig, {"q_model_config": {"custom_model": Critic, "use_lstm": True}}, "q_model_config=.* may have"),
        (TD3Config, {"policy_model_config": {"custom_model": Actor, "use_sde": True}}, "use_sde=True and custom_"),
        (SACConfig, {"policy_model_config": {"custom_model": Remembers}}, "the custom model Remembers has a memory"),
        (SACConfig, {"q_model_config": {"custom_model": Remembers}}, "the custom critic Remembers .* has a memory"),
        (SACConfig, {"learner": "numpy", **SIDES["critics"]}, "Use learner='torch'"),
        (SACConfig, {"learner": "numpy", **SIDES["actor"]}, "Use learner='torch'"),
        (CrossQConfig, {"q_model_config": {"custom_model": Critic}}, "not available here: CrossQ's critics have batch"),
        (CrossQConfig, SIDES["actor"], r"Use \.training\(batch_norm_actor=False\)"),
        (ApexDDPGConfig, SIDES["critics"], "not available here: workers compute the errors"),
        (SACConfig, {"q_model_config": {"network": "simba"}, **SIDES["actor"]}, "reads what an actor of the"),
        (IQLConfig, SIDES["actor"], "not available here: the actor's deviation is one number"),
        (SACConfig, {"image_shift": 2, **SIDES["actor"]}, "this actor has no convolutions of the library's"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(kind, settings, match):
    with pytest.raises(ValueError, match=f"(?s){match}"):
        config(kind, **settings).build()
