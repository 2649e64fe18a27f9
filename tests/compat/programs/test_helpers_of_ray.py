"""Helpers that programs for Ray import: values as Ray gives them."""

import argparse

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rllib
from rllib import PolicySpec, PPOConfig
from rllib.compat.programs import annotations, arrays, atari, example_scripts, layers
from rllib.compat.programs.comparison import check
from rllib.compat.programs.policy import Policy
from rllib.env.tasks.multi_agent_cartpole import MultiAgentCartPole
from rllib.models.observations import get_preprocessor


@annotations.PublicAPI(stability="beta")
class Marked:
    @annotations.override(object)
    @annotations.DeveloperAPI
    def method(self):
        return 3


def test_marks_change_nothing():
    assert Marked().method() == 3


def test_operations_on_dicts():
    merged = annotations.merge_dicts({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}})
    assert merged == {"a": {"b": 1, "c": 4}, "d": 3}
    assert annotations.flatten_dict(merged) == {"a/b": 1, "a/c": 4, "d": 3}
    assert annotations.force_list(None) == [] and annotations.force_list(3, to_tuple=True) == (3,)
    assert annotations.log_once("key of this test") and not annotations.log_once("key of this test")


def test_a_name_out_of_date_may_be_an_error():
    with pytest.raises(KeyError, match="f is out of date: use g"):
        annotations.deprecation_warning("f", "g", error=KeyError)


def test_arrays():
    converted = arrays.convert_to_numpy({"a": (torch.ones(2, dtype=torch.float64), [1])})
    assert converted["a"][0].dtype == np.float32 and converted["a"][1][0].dtype == np.int32
    assert arrays.convert_numpy_to_python_primitives({"a": np.float32(2), "b": (np.arange(2),)}) == {
        "a": 2.0, "b": [[0, 1]],
    }  # fmt: skip
    np.testing.assert_allclose(arrays.softmax(np.log([[1.0, 3.0]])), [[0.25, 0.75]])
    np.testing.assert_array_equal(arrays.one_hot([1, 0], depth=3), [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_allclose(arrays.huber_loss(np.array([0.5, -3.0])), [0.125, 2.5])
    rows = [{"a": (np.ones(2), np.zeros(1))}, {"a": (np.zeros(2), np.ones(1))}]
    batched = arrays.batch(rows)
    assert batched["a"][0].shape == (2, 2)
    np.testing.assert_array_equal(arrays.unbatch(batched)[1]["a"][1], [1])


BOUNDED = spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
STRUCTURE = spaces.Dict({"a": BOUNDED, "b": spaces.Tuple((spaces.Discrete(3), spaces.Box(-np.inf, np.inf, (1,))))})


def test_actions_in_the_units_of_their_space():
    action = {"a": np.array([0.5, -1.0]), "b": (2, np.array([7.0]))}
    for space in (STRUCTURE, {"a": BOUNDED, "b": tuple(STRUCTURE["b"])}):
        there = arrays.unsquash_action(action, space)
        np.testing.assert_allclose(there["a"], [1.0, 0.0])
        assert there["b"][0] == 2 and there["b"][1] == 7.0
        np.testing.assert_allclose(arrays.normalize_action(there, space)["a"], action["a"])
    np.testing.assert_array_equal(arrays.clip_action(np.array([3.0, -1.0]), BOUNDED), [2.0, 0.0])
    np.testing.assert_array_equal(arrays.flatten_to_single_ndarray(action), [0.5, -1.0, 2, 7.0])


def test_a_space_has_a_preprocessor():
    prepared = get_preprocessor(spaces.Discrete(3))(spaces.Discrete(3))
    np.testing.assert_array_equal(prepared.transform(1), [0, 1, 0])


def test_layers():
    layer = layers.SlimFC(3, 2, initializer=layers.normc_initializer(0.5), activation_fn="relu", bias_init=1.0)
    weights = layer._model[0].weight
    np.testing.assert_allclose(weights.square().sum(1).detach(), 0.25, rtol=1e-5)
    assert layer(torch.zeros(4, 3)).tolist() == [[1.0, 1.0]] * 4
    assert layers.AppendBiasLayer(2)(torch.ones(1, 1)).tolist() == [[1, 0, 0]]
    with pytest.raises(ValueError, match="activation_fn='step' is unknown"):
        layers.SlimFC(1, 1, activation_fn="step")
    padding, size = layers.same_padding((5, 6), 3, (2, 1))
    padded = torch.nn.functional.pad(torch.zeros(1, 1, 5, 6), padding)
    assert torch.nn.Conv2d(1, 1, 3, (2, 1))(padded).shape[2:] == size == (3, 6)
    assert layers.valid_padding((5, 6), 3, 2) == torch.nn.Conv2d(1, 1, 3, 2)(torch.zeros(1, 1, 5, 6)).shape[2:]
    mixed = layers.one_hot(torch.tensor([[1, 2]]), spaces.MultiDiscrete([2, 3]))
    assert mixed.tolist() == [[0, 1, 0, 0, 1]]
    assert layers.sequence_mask(torch.tensor([1, 2])).tolist() == [[True, False], [True, True]]
    y = torch.tensor([1.0, 2.0, 3.0])
    assert layers.explained_variance(y, y) == 1
    assert layers.convert_to_torch_tensor({"a": np.zeros(2)})["a"].dtype == torch.float32


def test_values_are_compared_part_by_part():
    ours, theirs = {"a": [1.0, torch.ones(2)], "b": "x", "c": None}, {"a": (1.000001, np.ones(2)), "b": "x", "c": None}
    check(ours, theirs)
    check(2.0, 2.1, rtol=0.1)
    check([1, np.zeros(2)], [2, np.ones(2)], false=True)
    check(np.array([np.nan]), np.array([np.nan]))
    for x, y in (({"a": 1}, {"b": 1}), ([1], [1, 2]), (1.0, 1.1), (np.zeros(2), np.zeros(3)), ("x", "y"), (None, 0)):
        with pytest.raises(AssertionError, match=r"^[^\n]+$"):
            check(x, y)
    with pytest.raises(AssertionError, match="is the same as"):
        check([1, 2], [1, 3], false=True)


def arguments(*given: str) -> argparse.Namespace:
    return example_scripts.add_rllib_example_script_args(default_reward=450).parse_args(given)


def test_example_scripts_have_rays_options():
    options = arguments("--num-env-runners=2", "--evaluation-duration=auto", "--no-tune", "--stop-iters=3")
    assert (options.num_env_runners, options.evaluation_duration, options.no_tune) == (2, "auto", True)
    assert (options.stop_reward, options.stop_iters, options.stop_timesteps) == (450, 3, 100_000)
    assert (options.algo, options.num_agents, options.as_test) == ("PPO", 0, False)


def small() -> PPOConfig:
    return PPOConfig().training(train_batch_size=64, minibatch_size=64, num_epochs=1, model={"fcnet_hiddens": [8]})


def test_an_example_trains_without_tune(capsys):
    options = arguments("--no-tune", "--env=CartPole-v1", "--num-env-runners=0", "--stop-iters=2", "--num-cpus=2")
    result = example_scripts.run_rllib_example_script_experiment(small(), options)
    assert result["training_iteration"] == 2
    out = capsys.readouterr().out
    assert out.startswith("iter=0 R=") and "Stop criterion (training_iteration=2) fulfilled!" in out


def test_an_example_that_misses_its_goal_fails_as_a_test(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = arguments("--env=CartPole-v1", "--num-env-runners=0", "--stop-iters=1", "--as-test", "--num-cpus=2")
    with pytest.raises(ValueError, match="episode_return_mean` of 450 not reached: the best trial has"):
        example_scripts.run_rllib_example_script_experiment(small(), options)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--local-mode", "--local-mode is out of date"),
        ("--enable-new-api-stack", "is out of date"),
        ("--num-gpus=1", "goes with --old-api-stack"),
        ("--num-gpus-per-learner=1", "asks for 1 GPUs, but there are 0"),
    ],
)
def test_options_that_cannot_be_are_refused(option, message):
    with pytest.raises(ValueError, match=message):
        example_scripts.run_rllib_example_script_experiment(small(), arguments(option, "--num-cpus=2"))


class Game(gymnasium.Env):
    """Coloured pictures that are as bright as the step is late; two lives."""

    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._picture(), {"lives": 2}

    def step(self, action):
        self.t += 1
        return self._picture(), 1.0, self.t >= 20, False, {"lives": 1 if self.t > 10 else 2}

    def _picture(self):
        return np.full((8, 8, 3), 10 * self.t, np.uint8)

    def get_action_meanings(self):
        return ["NOOP", "UP"]


def test_atari_wrappers_give_stacked_grey_pictures():
    env = atari.wrap_atari_for_new_api_stack(Game(), dim=4, framestack=2)
    observation, _ = env.reset(seed=0)
    assert observation.shape == (4, 4, 2) and env.observation_space.contains(observation)
    observation, reward, *_ = env.step(0)
    assert reward == 4 and observation[0, 0, -1] == np.float32(10 * env.unwrapped.t / 128 - 1)
    assert atari.wrap_deepmind(Game(), dim=4).observation_space.shape == (4, 4, 4)
    with pytest.raises(ValueError, match="grayscale=False cannot be used"):
        atari.wrap_atari_for_new_api_stack(Game(), grayscale=False)
    assert atari.resize(np.full((8, 6, 3), 7, np.uint8), 4, 3).shape == (4, 3, 3)


class Heuristic(Policy):
    def __init__(self, observation_space, action_space, config):
        Policy.__init__(self, observation_space, action_space, config)

    def compute_actions(self, obs_batch, state_batches=None, **kwargs):
        return [self.action_space.sample() for _ in obs_batch], [], {}

    def learn_on_batch(self, samples):
        pass


def test_policy_is_a_base_of_heuristics_and_the_name_of_networks(tmp_path):
    config = small().environment(MultiAgentCartPole, env_config={"num_agents": 2}).rollouts(num_rollout_workers=0)
    config.debugging(seed=0)  # episodes end in the first iteration
    config.multi_agent(
        policies={"learned": PolicySpec(policy_class=Policy), "by_hand": PolicySpec(policy_class=Heuristic)},
        policy_mapping_fn=lambda agent, *args, **kwargs: ["learned", "by_hand"][agent],
    )
    with config.build() as algorithm:
        result = algorithm.train()
        learned, path = algorithm.get_policy("learned"), algorithm.save(tmp_path / "checkpoint")
    assert set(result["policy_reward_mean"]) == {"learned", "by_hand"} and list(result["info"]["learner"]) == [
        "learned"
    ]
    assert isinstance(learned, Policy) and isinstance(learned, rllib.Policy) and issubclass(rllib.Policy, Policy)
    assert (
        not isinstance(learned, Heuristic)
        and not isinstance(3, Policy)
        and isinstance(Heuristic(None, None, {}), Policy)
    )
    assert set(Policy.from_checkpoint(path, policy_ids=["learned"])) == set(Policy.from_checkpoint(path)) == {"learned"}
