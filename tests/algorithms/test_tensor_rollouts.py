"""Training whose rollouts stay on the device of environments that hand over tensors, through the public door."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode

from rllib import Algorithm, DefaultCallbacks, SampleBatch
from rllib.algorithms.base import wiring
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.env.tasks.torch_cartpole import TorchCartPole
from rllib.env.tasks.torch_pendulum import TorchPendulum
from tests.algorithms.algorithm_support import train, values
from tests.envs import ActionReward, ConstantReward, DelayedReward, InfiniteHorizon, ObservedReward
from tests.gpu import needs_gpu
from tests.tensor_envs import as_tensors

torch.set_num_threads(1)
PPO = {
    "num_rollout_workers": 0, "num_envs_per_worker": 8, "train_batch_size": 256, "sgd_minibatch_size": 64,
    "num_sgd_iter": 8, "lr": 3e-3, "gamma": 0.9, "lambda_": 0.95, "clip_param": 0.2, "kl_coeff": 0.0, "seed": 5,
    "model": {"fcnet_hiddens": [32, 32]}, "learner": "torch",
}  # fmt: skip
SHORT = {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 2, "model": {"fcnet_hiddens": [8]}}


def configured(env=TorchCartPole, algorithm="PPO", **settings):
    config = get_algorithm_config(algorithm).environment(env)
    given = PPO if algorithm == "PPO" else {key: PPO[key] for key in ("num_rollout_workers", "gamma", "seed", "model")}
    return config.update_from_dict({**given, "num_envs_per_worker": 8, **settings})


def trained(env, iterations, **settings):
    algo = configured(env, **settings).build()
    assert algo.rollout_device == "cpu"
    train(algo, iterations)
    return algo


# ---------------------------------------------------------------------- what is learned


def test_values_and_actions_of_probes():
    """As test_actor_critic_probes.py: values in closed form, and the better of two actions."""
    with trained(as_tensors(ConstantReward), 5) as algo:
        np.testing.assert_allclose(values(algo, 0.0), 1.0, atol=0.02)
    with trained(as_tensors(ObservedReward), 10) as algo:
        np.testing.assert_allclose(values(algo, -1.0, 1.0), [-1.0, 1.0], atol=0.08)
    with trained(as_tensors(ActionReward), 10) as algo:
        assert algo.evaluate(4)["episode_reward_mean"] == 1.0


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_discounting_in_every_autoreset_mode(mode):
    with trained(as_tensors(DelayedReward, mode), 20) as algo:
        np.testing.assert_allclose(values(algo, 0.0, 1.0), [0.9, 1.0], atol=0.08)


def test_truncated_episodes_are_worth_what_follows():
    """Without end, a reward of 1 is worth 1 / (1 - 0.9)."""
    with trained(as_tensors(InfiniteHorizon), 40, lr=1e-2) as algo:
        np.testing.assert_allclose(values(algo, 0.0), 10.0, rtol=0.1)


@pytest.mark.parametrize("algorithm", ["A2C", "PG"])
def test_other_policy_gradients(algorithm):
    settings = {"train_batch_size": 128, "lr": 1e-2, "min_time_s_per_iteration": None, "rollout_fragment_length": 16}
    with configured(as_tensors(ActionReward), algorithm, **settings).build() as algo:
        train(algo, 60)
        assert algo.rollout_device == "cpu" and algo.evaluate(8)["episode_reward_mean"] == 1.0


@pytest.mark.slow
def test_cartpole_is_solved_and_the_policy_plays_gymnasiums():
    settings = {
        "num_envs_per_worker": 64, "train_batch_size": 2048, "sgd_minibatch_size": 256, "num_sgd_iter": 8,
        "lr": 1e-3, "gamma": 0.98, "vf_clip_param": None, "entropy_coeff": 0.01, "vf_loss_coeff": 0.5,
        "model": {"fcnet_hiddens": [64, 64]}, "evaluation_config": {"env": "CartPole-v1", "num_envs_per_worker": 8},
    }  # fmt: skip
    with configured(**settings).build() as algo:
        for _ in range(100):
            algo.train()
            if algo.metrics.iteration % 10 == 0 and algo.evaluate(20)["episode_reward_mean"] >= 475:
                return
        pytest.fail(f"not solved after {algo.timesteps} steps")


# ---------------------------------------------------------------------- what goes on as always


def weights_after(algo, iterations):
    for _ in range(iterations):
        result = algo.train()
    return algo.get_weights()["default_policy"], result["episode_reward_mean"], result["episode_len_mean"]


@pytest.mark.parametrize("learner", ["torch", "numpy"])
@pytest.mark.parametrize("env", [TorchCartPole, TorchPendulum])
def test_two_runs_give_the_same_bits_and_a_checkpoint_goes_on(env, learner, tmp_path):
    settings = {**SHORT, "learner": learner, "num_envs_per_worker": 4, "env_config": {"max_episode_steps": 10}}
    with configured(env, **settings).build() as one, configured(env, **settings).build() as other:
        found, again = weights_after(one, 3), weights_after(other, 3)
        assert all(np.array_equal(a, b) for a, b in zip(found, again))
        path = one.save(tmp_path / "checkpoint")
        with Algorithm.from_checkpoint(path) as restored:
            assert restored.timesteps == one.timesteps and restored.rollout_device == "cpu"
            assert np.array_equal(restored.policy.weights, one.policy.weights)
            one.restore(path)  # so that both begin new episodes, on the same seeds
            found, again = weights_after(one, 2), weights_after(restored, 2)
            assert all(np.array_equal(a, b) for a, b in zip(found, again))


def test_a_checkpoint_goes_on_by_arrays(tmp_path):
    settings = {**SHORT, "num_envs_per_worker": 1, "train_batch_size": 32}
    with configured(**settings).build() as one:
        one.train()
        path = one.save(tmp_path / "checkpoint")
    for changed in ({"tensor_rollouts": False}, {"env": "CartPole-v1", "env_config": {}}):
        with Algorithm.from_checkpoint(path, changed) as other:
            assert other.rollout_device is None and other.train()["num_env_steps_sampled"] == 64


def test_results_counts_and_actions():
    with configured(**SHORT, env_config={"max_episode_steps": 7}).build() as algo:
        result = [algo.train() for _ in range(4)][-1]
        assert result["num_env_steps_sampled"] == result["num_env_steps_trained"] == 4 * 64
        assert result["episodes_total"] == 8 * (32 // 7) and result["episode_len_mean"] == 7
        assert result["episode_reward_mean"] == 7 and algo.compute_single_action(np.zeros(4, np.float32)) in (0, 1)
        assert algo.evaluate(5)["hist_stats"]["episode_lengths"] == [7] * 5
        assert algo.get_weights()["default_policy"] is not algo.policy.weights
        changed = {"default_policy": np.zeros_like(algo.policy.weights)}
        algo.set_weights(changed)
        batch = algo.sample(64)
        assert not batch["action_dist_inputs"].any()  # the worker acts by the same weights, without a copy


def test_on_a_cpu_plain_networks_are_trained_in_numpy():
    with configured(as_tensors(ActionReward), learner="auto").build() as algo:
        train(algo, 10)
        assert algo.learner.backend.policy_module is None and algo.evaluate(4)["episode_reward_mean"] == 1.0
        algo.set_weights({"default_policy": np.zeros_like(algo.policy.weights)})
        assert not algo.sample(256)["action_dist_inputs"].any()


class OwnModel(torch.nn.Module):
    def __init__(self, observation_space, action_space, num_outputs):
        super().__init__()
        self.layers = torch.nn.Linear(observation_space.shape[0], num_outputs + 1)

    def forward(self, observations):
        outputs = self.layers(observations)
        return outputs[:, :-1], outputs[:, -1]


def test_a_network_of_the_users_acts_and_learns():
    with configured(**{**SHORT, "model": {"custom_model": OwnModel}}).build() as algo:
        before = algo.policy.weights.copy()
        algo.train()
        assert (algo.policy.weights != before).any() and algo.compute_single_action(np.zeros(4, np.float32)) in (0, 1)


def test_without_exploration_the_most_likely_actions_are_taken():
    with configured(**{**SHORT, "explore": False}).build() as algo:
        batch = algo.sample(64)
        assert torch.equal(batch["actions"], batch["action_dist_inputs"].argmax(1))


def test_fragments_are_joined_to_a_train_batch():
    with configured(**{**SHORT, "rollout_fragment_length": 4}).build() as algo:
        algo.train()
        batch = algo.sample(64)
        assert isinstance(batch, SampleBatch) and batch.count == 64 and isinstance(batch["obs"], torch.Tensor)
        assert batch.copy()["obs"] is not batch["obs"] and batch[3:5].count == 2


class Hears(DefaultCallbacks):
    heard: dict = {}  # noqa: RUF012

    def on_sample_end(self, *, worker, samples, **kwargs):
        self.heard["samples"] = worker.get_policy(), samples

    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
        self.heard["learn"] = train_batch

    def on_sub_environment_created(self, *, worker, sub_environment, env_context, **kwargs):
        self.heard["env"] = sub_environment


def test_callbacks_of_whole_fragments_are_called():
    with configured(**SHORT).callbacks(Hears).build() as algo:
        algo.train()
        policy, samples = Hears.heard["samples"]
        assert policy is algo.policy and isinstance(samples["obs"], torch.Tensor)
        assert isinstance(Hears.heard["learn"]["advantages"], torch.Tensor)
        assert isinstance(Hears.heard["env"], TorchCartPole) and algo.workers.local_worker().env is Hears.heard["env"]


def test_images_and_several_choices_in_an_action():
    with configured(as_tensors(Images), **SHORT).build() as algo:
        algo.train()
        assert algo.sample(64)["obs"].dtype == torch.uint8


class Images(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (42, 42, 1), np.uint8)
    action_space = MultiDiscrete([2, 3])

    def __init__(self, config=None): ...

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), float(action[0]), self.t == 3, False, {}


def test_an_unchecked_environment_by_setting():
    env = TorchCartPole()
    config = configured(**SHORT).environment(
        disable_env_checking=True, observation_space=env.single_observation_space, action_space=Discrete(2)
    )
    with config.copy().build() as algo:
        assert algo.rollout_device is None and isinstance(algo.sample(64)["obs"], np.ndarray)
    with config.rollouts(tensor_rollouts=True).build() as algo:
        assert algo.rollout_device == "cpu" and isinstance(algo.sample(64)["obs"], torch.Tensor)


# ---------------------------------------------------------------------- what is refused


class HearsSteps(DefaultCallbacks):
    def on_episode_step(self, **kwargs): ...


REFUSED = [
    ({"num_rollout_workers": 2}, r"Use \.rollouts\(num_rollout_workers=0\)"),
    ({"num_learners": 2}, r"Use \.learners\(num_learners=0\)"),
    ({"batch_mode": "complete_episodes"}, "truncate_episodes"),
    ({"model": {"use_lstm": True}}, "without use_lstm"),
    ({"normalize_returns": True}, "scale its rewards"),
    ({"recompute_advantages": True}, "recompute_advantages"),
    ({"exploration_config": {"type": "RND"}}, "intrinsic rewards"),
    ({"restart_failed_sub_environments": True}, "one object"),
    ({"callbacks_class": HearsSteps}, "on_episode_step"),
]


@pytest.mark.parametrize(("settings", "remedy"), REFUSED, ids=lambda x: str(x)[:30])
def test_what_cannot_stay_on_the_device_is_refused(settings, remedy):
    with pytest.raises(ValueError, match=rf"(?s)hands over torch tensors on cpu.*{remedy}.*tensor_rollouts=False"):
        configured(**{**SHORT, **settings}).build()


@pytest.mark.parametrize(
    ("found", "num_gpus", "message"),
    [
        ("cpu", 1, r'tensors on cpu.*num_gpus=1: the learner has to be on the same .*env_config={"device": "cuda"}'),
        ("cuda:0", 0, r"tensors on cuda:0.*num_gpus=0: the learner has to be on the same device. Use .*num_gpus=1\)"),
    ],
)
def test_environments_and_learner_on_two_devices_are_refused(found, num_gpus, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(wiring, "device_for", lambda *_, **__: found)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        configured(**SHORT, num_gpus=num_gpus).build()


def test_everything_is_refused_at_once():
    with pytest.raises(ValueError) as caught:
        configured(**SHORT, num_rollout_workers=2, normalize_returns=True, batch_mode="complete_episodes").build()
    assert str(caught.value).count("\n- ") == 3


@pytest.mark.parametrize("algorithm", ["DQN", "IMPALA", "A3C", "PQN", "TRPO", "ApexDQN", "ES"])
def test_algorithms_without_a_form_for_tensors(algorithm):
    with pytest.raises(ValueError, match=rf"{algorithm} has no form of its rollouts for tensors\. Use PPO, A2C or PG"):
        get_algorithm_config(algorithm).environment(TorchCartPole).rollouts(num_envs_per_worker=2).build()


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_any_algorithm_gets_arrays_when_asked_to(algorithm):
    with configured(algorithm=algorithm, tensor_rollouts=False, num_rollout_workers=1).build() as algo:
        assert algo.rollout_device is None and algo.train()["num_env_steps_sampled"] > 0


def test_tensors_from_an_environment_of_arrays():
    with pytest.raises(ValueError, match=r"its reset\(\) gives arrays.*NumpyToTorch"):
        configured("CartPole-v1", tensor_rollouts=True).build()


class Watched(TorchCartPole):
    """Makes every wait for the device an error, from each fragment's first step to its last but one."""

    num_calls = 0

    def step(self, actions):
        at = self.num_calls % 8
        self.num_calls += 1
        if at in (0, 7):
            torch.cuda.set_sync_debug_mode("default" if at else "error")
        return super().step(actions)


@needs_gpu
def test_the_loop_over_the_steps_does_not_wait_for_the_gpu():
    spaces = {"observation_space": TorchCartPole().single_observation_space, "action_space": Discrete(2)}
    unchecked = {"env_config": {"device": "cuda"}, "disable_env_checking": True, "tensor_rollouts": True, **spaces}
    sizes = {**SHORT, "num_envs_per_worker": 256, "train_batch_size": 2048, "num_gpus": 1}
    try:
        with configured(Watched, **sizes, **unchecked).build() as algo:
            for _ in range(3):
                algo.train()
            assert algo.sample(2048)["obs"].is_cuda
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
def test_rollouts_stay_on_the_gpu():
    settings = {**SHORT, "train_batch_size": 1024, "num_envs_per_worker": 64}
    settings |= {"num_gpus": 1, "env_config": {"device": "cuda"}}
    with configured(**settings).build() as algo:
        assert algo.rollout_device.startswith("cuda")
        algo.train()
        algo.set_weights({"default_policy": np.zeros_like(algo.policy.weights)})
        batch = algo.sample(1024)
        assert batch["obs"].is_cuda and not batch["action_dist_inputs"].any()  # new weights have reached the device
    with pytest.raises(ValueError, match=r"num_gpus=0.*Use \.resources\(num_gpus=1\)"):
        configured(**{**settings, "num_gpus": 0}).build()
