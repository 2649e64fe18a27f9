"""SAC with networks of residual blocks, distributions on bins, scaled rewards and resets: runs, states, refusals."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rllib import (
    ApexDDPGConfig,
    CQLConfig,
    CrossQConfig,
    DDPGConfig,
    DQNConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
    TQCConfig,
    load_policy,
)  # fmt: skip
from rllib import sample_batch as sb
from rllib.env.multi_agent import make_multi_agent
from rllib.storage.checkpoint import write_checkpoint
from tests.algorithms.algorithm_support import learner_stats
from tests.envs import BoundedAction, MatchPicture

torch.set_num_threads(1)

SIMBA = {
    "model": {"network": "simba", "fcnet_hiddens": [16]},
    "q_model_config": {"fcnet_hiddens": [16, 16]},
}
SIMBA_V2 = {
    "model": {"network": "simbav2", "fcnet_hiddens": [16]},
    "q_model_config": {"fcnet_hiddens": [16, 16]},
    "num_atoms": 21,
    "scale_rewards": True,
}
XQC = {**SIMBA_V2, "model": {"network": "xqc", "fcnet_hiddens": [16, 16]}, "policy_delay": 3}
FLASH_SAC = {**SIMBA_V2, "model": {"network": "flashsac", "fcnet_hiddens": [16]}, "policy_delay": 2}


class Reach(gym.Env):
    """One step; observations are around 100, and the reward is -100 (a - (o - 100))^2."""

    observation_space, action_space = gym.spaces.Box(0, 200, (2,)), gym.spaces.Box(-1, 1, (1,))

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._goal = self.np_random.uniform(-0.8, 0.8, 2).astype(np.float32)
        return self._goal + 100, {}

    def step(self, action):
        return self._goal + 100, -100 * float((action[0] - self._goal[0]) ** 2), True, False, {}


def config(kind, env=Reach, workers=0, envs=1, seed=5, **training):
    settings = {
        "train_batch_size": 32, "num_steps_sampled_before_learning_starts": 64, "lr": 1e-3,
        "replay_buffer_config": {"type": "ReplayBuffer", "capacity": 2000}, **training,
    }  # fmt: skip
    return (
        kind()
        .environment(env)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs)
        .training(**settings)
        .reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=100)
        .debugging(seed=seed)
    )


def flats(algo):
    """Layout and weights of each network of the only policy, target copies included."""
    learner = algo.learner
    found = {name: (layout, learner.vector[name]) for name, layout in learner.vector.layouts.items()}
    targets = learner.targets.items()
    return found | {f"target_{name}": (learner.vector.layouts[name], each.weights) for name, each in targets}


# Running statistics of batches come to observations around 100 in some 700 updates.
_MANY_UPDATES = {"policy_delay": 1, "training_intensity": 128}


@pytest.mark.learning
@pytest.mark.parametrize("training", [SIMBA, SIMBA_V2, {**XQC, **_MANY_UPDATES}, {**FLASH_SAC, **_MANY_UPDATES}])
def test_it_solves_a_probe(training):
    """Observations far from 0 and rewards far from 1."""
    more = {"tau": 0.05, "lr": 3e-3, "initial_alpha": 0.1, "target_entropy": -2.0, "gamma": 0.9}
    with config(SACConfig, **training, **more).build() as algo:
        for _ in range(5):
            algo.train()
        goals = np.linspace(-0.7, 0.7, 9, dtype=np.float32)
        observations = [np.array([goal + 100, 100], np.float32) for goal in goals]
        actions = [algo.compute_single_action(each, explore=False)[0] for each in observations]
        assert np.abs(np.array(actions) - goals).mean() < 0.15


@pytest.mark.parametrize(
    ("kind", "training"),
    [(SACConfig, SIMBA), (TQCConfig, SIMBA), (TD3Config, SIMBA), (DDPGConfig, {**SIMBA, "l2_reg": 1e-4})],
)
def test_all_networks_normalise_by_what_was_sampled(kind, training):
    """By all observations so far, whatever optimizer, weight decay and target copies do to other parameters."""
    decay = {"opt_type": "adamw", "weight_decay": 0.1}
    with config(kind, **training, **decay, num_steps_sampled_before_learning_starts=10).build() as algo:
        seen, store = [], algo.store
        algo.store = lambda batch: (seen.append(batch[sb.OBS].copy()), store(batch))
        algo.train()
        rows = np.concatenate(seen).astype(np.float64)
        assert algo.num_updates > 50
        for name, (layout, flat) in flats(algo).items():
            _, mean, variance = layout.split(flat)
            np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-6, err_msg=name)
            np.testing.assert_allclose(variance, rows.var(0), rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("training", [SIMBA_V2, XQC, FLASH_SAC])
def test_weights_stay_on_the_sphere(training):
    with config(SACConfig, **training, lr=1e-2).build() as algo:
        before = algo.learner.weights.copy()
        algo.train()
        assert (algo.learner.weights != before).any()
        for name in ("policy", "critics"):
            layout, flat = flats(algo)[name]
            for parameter, matrix in layout.named_parameters(flat).items():
                if matrix.ndim == 2:
                    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1, rtol=1e-5, err_msg=parameter)


@pytest.mark.parametrize("training", [XQC, FLASH_SAC])
def test_actors_act_by_statistics_of_what_they_learned_from(training):
    """The actor's first layer follows the observations of its own updates, which are fewer than the critics'."""
    with config(SACConfig, **training).build() as algo:
        algo.train()
        algo.train()
        updates = algo.num_updates // training["policy_delay"]
        mean = algo.policy.parameters()["policy.embed_norm.running_mean"]
        assert updates > 20
        # All observations are around 100.
        np.testing.assert_allclose(mean, 100 * (1 - 0.99**updates), rtol=0.02)
        critics = flats(algo)["critics"]
        mean = critics[0].named_parameters(critics[1])["0.embed_norm.running_mean"]
        np.testing.assert_allclose(mean[:2], 100 * (1 - 0.99**algo.num_updates), rtol=0.02)


def test_rewards_are_divided_by_the_range_of_returns():
    """When they are learned from; the replay and the reported returns are of the environment's own."""
    with config(SACConfig, **SIMBA_V2, v_max=2.0).build() as algo:
        given = []
        learn = algo.trainee.learn_on_batch
        algo.trainee.learn_on_batch = lambda batch, **more: (given.append(batch), learn(batch, **more))[1]
        algo.train()
        rewards = algo.replay.get_state()["columns.rewards"].astype(np.float64)
        # Episodes of one step: returns are rewards.
        divisor = max(np.sqrt(rewards.var() + 1e-8), np.abs(rewards).max() / 2.0)
        newest, indices = given[-1][sb.REWARDS], given[-1][sb.INDICES]
        np.testing.assert_allclose(newest, rewards[indices] / divisor, rtol=1e-4)
        assert rewards.min() < -20 and newest.min() >= -2


@pytest.mark.parametrize(("training", "workers"), [(SIMBA, 0), (SIMBA_V2, 2), (XQC, 0), (FLASH_SAC, 2)])
def test_a_restored_run_is_the_run_that_went_on(training, workers, tmp_path):
    """To the bit, through a reset after the checkpoint; statistics of observations and returns included."""
    more = {"store_buffer_in_checkpoints": True, "training_intensity": 4, "param_resets": [150, 480]}
    with config(SACConfig, BoundedAction, workers, 2, **training, **more).build() as algo:
        for _ in range(4):
            algo.train()
        with SACConfig.algo_class.from_checkpoint(algo.save(tmp_path / "saved")) as other:
            for each in (algo, other):
                each.train()
                each.train()
            states = algo.get_state(), other.get_state()
    for file, expected in states[0].items():
        if file.endswith(".safetensors"):
            for name, array in expected.items():
                np.testing.assert_array_equal(states[1][file][name], array, err_msg=f"{file}: {name}")
    assert states[0]["algorithm.json"]["state"]["resets_until"]["default_policy"] >= 480
    assert ("policies/default_policy/observed.safetensors" in states[0]) == (training in (SIMBA, SIMBA_V2))


@pytest.mark.parametrize(("first", "then"), [([], [50, 150]), ([50, 150], [160, 1000]), ([50, 90, 150], [120, 260])])
@pytest.mark.parametrize("is_of_now", [True, False])
def test_resets_that_are_changed_with_a_restore_count_from_the_checkpoint_on(first, then, is_of_now, tmp_path):
    """Steps that have passed are none, and later ones all count, however many there were before."""
    with config(SACConfig, Reach, model={"fcnet_hiddens": [8]}, param_resets=first).build() as algo:
        algo.train()
        algo.train()
        state = algo.get_state()
    if not is_of_now:  # a checkpoint of an earlier version
        del state["algorithm.json"]["state"]["resets_until"]
    path = write_checkpoint(tmp_path / "saved", state)
    changes = {"param_resets": then, "num_steps_sampled_before_learning_starts": 10_000}
    with SACConfig.algo_class.from_checkpoint(path, changes) as other:
        weights, steps = other.learner.weights.copy(), other.timesteps
        assert steps >= 200
        other.training_step()
        np.testing.assert_array_equal(other.learner.weights, weights)
        later = [step for step in then if step > steps]
        if later and later[0] < 300:
            while other.timesteps < later[0]:
                other.training_step()
            assert not np.array_equal(other.learner.weights, weights)


@pytest.mark.parametrize("resets", [[50], [50, 160]])
def test_resets_before_a_policy_begins_to_learn_are_not_its_own(resets):
    """A policy that takes over what another one has learned keeps it until the next reset."""
    made = config(SACConfig, make_multi_agent(Reach), model={"fcnet_hiddens": [8]}, param_resets=resets)
    made.environment(env_config={"num_agents": 2}).multi_agent(
        policies=["first", "second"],
        policies_to_train=["first"],
        policy_mapping_fn=lambda agent, *rest, **more: ["first", "second"][agent],
    )
    with made.training(num_steps_sampled_before_learning_starts=80).build() as algo:
        algo.train()
        algo.set_weights({"second": algo.get_weights(["first"])["first"]})
        algo.set_policies_to_train(["first", "second"])
        weights, is_reset = algo.policies["second"].weights.copy(), False
        for _ in range(75):
            algo.training_step()
            is_reset |= not np.array_equal(algo.policies["second"].weights, weights)
        assert algo.metrics.num_updates("second") == 0 and is_reset == (resets[-1] > 100)


@pytest.mark.parametrize(
    ("kind", "training"),
    [
        (SACConfig, {"model": {"fcnet_hiddens": [8]}}),
        (SACConfig, SIMBA_V2),
        (SACConfig, XQC),
        (TD3Config, {"model": {"fcnet_hiddens": [8]}}),
        (TD3Config, SIMBA_V2),
    ],
)
def test_resets_begin_networks_and_optimizers_anew(kind, training):
    if kind is TD3Config:
        training = {"model": training["model"]}
    with config(kind, Reach, **training, param_resets=[150]).build() as algo:
        algo.train()
        learner = algo.learner
        first, observed = learner.weights.copy(), algo.trainee.observed
        alpha = algo.trainee.temperature.get_state() if kind is SACConfig else {}
        algo.replay.capacity, rows = 2000, len(algo.replay)
        # As training_step does, without a step or an update in between.
        algo.metrics.counters["num_env_steps_sampled"] += 100
        assert algo.timesteps >= 150
        algo.trainee._reset_if_due()
        assert not np.array_equal(first, learner.weights)
        for name, target in learner.targets.items():
            np.testing.assert_array_equal(target.weights, learner.vector[name])
        for name, array in learner.get_state().items():
            if ".adam" in name:
                assert not array.any(), name
        if kind is SACConfig:
            for name, array in algo.trainee.temperature.get_state().items():
                np.testing.assert_array_equal(array, alpha[name])
        for each in (observed,) if observed else ():
            layout, flat = flats(algo)["policy"]
            np.testing.assert_allclose(layout.split(flat)[1], each.moments.mean, rtol=1e-6)
        # Once.
        again = learner.weights.copy()
        algo.trainee._reset_if_due()
        np.testing.assert_array_equal(again, learner.weights)
        assert len(algo.replay) == rows


@pytest.mark.parametrize("training", [SIMBA, SIMBA_V2, XQC, FLASH_SAC])
def test_a_checkpoint_acts_alone(training, tmp_path):
    """The policy's file has the network and its statistics."""
    with config(SACConfig, **training).build() as algo:
        algo.train()
        observation = np.array([100.3, 99.8], np.float32)
        expected = algo.compute_single_action(observation, explore=False)
        policy = load_policy(algo.save(tmp_path / "saved"))
    np.testing.assert_array_equal(policy.compute_single_action(observation, explore=False), expected)


def test_discrete_actions_and_fully_connected_actors():
    with config(SACConfig, "CartPole-v1", **SIMBA).build() as algo:
        assert np.isfinite(learner_stats(algo.train())["critic_loss"])
    mixed = {"model": {"fcnet_hiddens": [16]}, "q_model_config": {"network": "simba"}}
    with config(SACConfig, **mixed).build() as algo:
        assert np.isfinite(learner_stats(algo.train())["critic_loss"])
        assert set(flats(algo)["policy"][0].named_parameters(algo.policy.weights)) >= {"shared.hidden_0.weight"}


@pytest.mark.parametrize("kind", [SACConfig, TQCConfig, TD3Config, DDPGConfig])
def test_simba_learns_in_numpy_as_in_torch(kind):
    """Weight decay leaves the statistics of observations alone."""
    decay = {"opt_type": "adamw", "weight_decay": 0.1, "num_steps_sampled_before_learning_starts": 98}
    runs = {}
    for learner in ("auto", "torch"):
        with config(kind, **SIMBA, **decay, learner=learner).build() as algo:
            algo.train()
            runs[type(algo.learner.backend).__name__] = algo.num_updates, algo.learner.weights.copy()
    (updates, in_numpy), (others, in_torch) = runs["NumpyBackend"], runs["TorchBackend"]
    assert updates == others > 0
    np.testing.assert_allclose(in_numpy, in_torch, rtol=1e-3, atol=1e-4)


def test_bins_go_with_fully_connected_critics_in_numpy():
    bins = {"num_atoms": 11, "n_critics": 3, "target_critics_sampled": 2}
    with config(SACConfig, **bins, model={"fcnet_hiddens": [8]}).build() as algo:
        stats = learner_stats(algo.train())
        assert np.isfinite(stats["critic_loss"]) and -5 <= stats["min_q"] <= stats["max_q"] <= 5
        assert type(algo.learner.backend).__name__ == "NumpyBackend"


SIMPLE = {"model": {"network": "simba", "fcnet_hiddens": [16]}}


@pytest.mark.parametrize(
    ("kind", "env", "training", "message"),
    [
        (SACConfig, Reach, {"model": {"network": "simba3"}}, "network='simba3' must be 'simba' or 'simbav2'"),
        (SACConfig, Reach, {"model": {"network": "simba", "fcnet_hiddens": [8, 16]}}, "all have one width"),
        (SACConfig, Reach, {"model": {**SIMPLE["model"], "layer_norm": True}}, "layer_norm=True and network="),
        (SACConfig, Reach, {"model": {**SIMPLE["model"], "use_sde": True}}, "use_sde=True and network="),
        (SACConfig, Reach, {"model": {**SIMPLE["model"], "use_lstm": True}}, "use_lstm=True and network="),
        (
            SACConfig,
            Reach,
            {"model": {**SIMPLE["model"], "fcnet_activation": "tanh"}},
            "have relu, not fcnet_activation='tanh'",
        ),
        (SACConfig, MatchPicture, SIMPLE, "reads vectors, but .* asks for convolutions"),
        (CrossQConfig, Reach, SIMPLE, "CrossQ normalises its layers by batches"),
        (TD3Config, Reach, {"model": XQC["model"]}, "TD3 has no losses for networks that batches normalise"),
        (TQCConfig, Reach, {"model": FLASH_SAC["model"]}, "TQC has no losses for networks that batches normalise"),
        (SACConfig, Reach, {"model": XQC["model"]}, "and num_atoms=1 gives expected"),
        (
            SACConfig,
            Reach,
            {**SIMPLE, "q_model_config": {"network": "xqc"}, "num_atoms": 11},
            "policy_model_config: network='simba' and q_model_config: network='xqc'",
        ),
        (ApexDDPGConfig, Reach, SIMPLE, "compute by critics in numpy"),
        (PPOConfig, Reach, SIMPLE, "is for the actor and the critics of SAC, TQC, TD3 and DDPG"),
        (DQNConfig, "CartPole-v1", SIMPLE, "is for the actor and the critics of SAC, TQC, TD3 and DDPG"),
        (TQCConfig, Reach, {"num_atoms": 51}, "num_atoms=51: TQC's critics give quantiles"),
        (CrossQConfig, Reach, {"num_atoms": 51}, "num_atoms=51: CrossQ's critics give expected"),
        (SACConfig, "CartPole-v1", {"num_atoms": 51}, "num_atoms=51 is for continuous actions"),
        (SACConfig, Reach, {"num_atoms": 51, "v_min": 5.0}, "v_min=5.0 must be below v_max=5.0"),
        (SACConfig, Reach, {"scale_rewards": True, "v_min": -2.0, "v_max": -1.0}, "returns are kept within"),
        (SACConfig, Reach, {"param_resets": [200, 100]}, "must be environment steps in increasing order"),
        (SACConfig, Reach, {"param_resets": [0]}, "must be environment steps in increasing order"),
        (ApexDDPGConfig, Reach, {"param_resets": [10]}, "workers with older networks"),
    ],
)
def test_settings_that_do_not_fit(kind, env, training, message):
    chosen = kind().environment(env).rollouts(num_rollout_workers=2).training(**training)
    with pytest.raises(ValueError, match=message):
        chosen.build()


def test_statistics_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="normalises observations itself"):
        config(SACConfig, **SIMPLE).rollouts(observation_filter="MeanStdFilter").build()
    with pytest.raises(ValueError, match="both divide rewards"):
        config(SACConfig, scale_rewards=True).environment(normalize_returns=True).build()
    for kind in (SACConfig, TQCConfig, CrossQConfig):
        with pytest.raises(ValueError, match="rewards of hindsight's further goals are no part of"):
            config(kind, scale_rewards=True, replay_buffer_config={"type": "HindsightReplayBuffer"}).validate()
    with pytest.raises(ValueError, match="num_learners=2"):
        config(SACConfig, **SIMPLE).learners(num_learners=2).build()
    for training, message in (
        (SIMPLE, "input_ has recorded ones"), ({"scale_rewards": True}, "input_ has recorded ones"),
        ({"num_atoms": 11}, "CQL's penalty"), ({"param_resets": [10]}, "recorded data alone"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            CQLConfig().environment(Reach).offline_data(input_="nowhere").training(**training).build()
