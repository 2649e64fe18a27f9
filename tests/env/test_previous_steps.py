"""Observations that tell the action before and its reward: zero at an episode's start, the last ones at its end."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rllib import PPOConfig
from rllib.env.factories.adapter import ActionRow
from rllib.env.factories.make import make_stream
from rllib.env.factories.previous_steps import PreviousStep
from rllib.env.factories.registry import EnvContext, resolve
from rllib.models.observations.flat_spaces import flat_leaves
from tests.envs import ProbeEnv, in_vector
from tests.generated import worlds

BOTH = PreviousStep(action=True, reward=True)


class Steps(ProbeEnv):
    """Observation: the step count; episodes of three steps; reward: the step count plus ten times the action."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)

    def follow(self, action):
        return float(self.t), self.t + 10.0 * action, self.t == 3, False


def test_one_environment():
    env = BOTH.wrap(resolve(Steps)).make(EnvContext({}))
    first, _ = env.reset(seed=0)
    assert env.observation_space.contains(first)
    assert first["prev_actions"].tolist() == [0, 0] and first["prev_rewards"].tolist() == [0]
    second, *_ = env.step(1)
    assert second["observations"].tolist() == [1]
    assert second["prev_actions"].tolist() == [0, 1] and second["prev_rewards"].tolist() == [11]
    assert env.reset()[0]["prev_rewards"].tolist() == [0]


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_rows_of_any_stream(mode):
    """[step count, previous action one-hot, previous reward], also of final observations."""
    made = resolve(Steps if mode is None else in_vector(Steps, mode))
    stream = make_stream(BOTH.wrap(made), num_envs=2, seeds=[1, 2])
    at = {key: leaf.start for key, leaf in zip(stream.observation_space, flat_leaves(stream.observation_space))}
    order = [at["observations"], at["prev_actions"], at["prev_actions"] + 1, at["prev_rewards"]]
    buffers = stream.new_buffers()
    stream.reset(buffers)
    np.testing.assert_array_equal(buffers.observations[:, order], [[0, 0, 0, 0]] * 2)
    seen, finals = [], []
    for action in (1, 0, 1, 0, 1):
        ended = stream.step(np.array([action, 1 - action]), buffers)
        finals += [np.asarray(final)[order].tolist() for _, final in ended]
        seen.append(buffers.observations[0, order].tolist())
    stream.close()
    end = [3, 0, 1, 13]
    assert finals == [end, [3, 1, 0, 3]]
    assert seen[:2] == [[1, 0, 1, 11], [2, 1, 0, 2]]
    if mode is AutoresetMode.NEXT_STEP:
        assert seen[2:] == [end, [0, 0, 0, 0], [1, 0, 1, 11]]
    else:
        assert seen[2:] == [[0, 0, 0, 0], [1, 1, 0, 1], [2, 0, 1, 12]]


def test_actions_as_rows():
    row = ActionRow(
        spaces.Dict({"a": spaces.Box(-2, 6, (2,)), "b": spaces.MultiDiscrete([2, 3]), "c": spaces.MultiBinary(2)})
    )
    action = {"a": np.array([-2, 4], np.float32), "b": np.array([1, 2]), "c": np.array([1, 0], np.int8)}
    assert row.of(action).tolist() == [-1, 0.5, 0, 1, 0, 0, 1, 1, 0]
    unbounded = ActionRow(spaces.Box(-np.inf, np.inf, (1,)))
    assert unbounded.of(np.array([3.0], np.float32)).tolist() == [3]


def test_a_dict_gets_more_keys():
    inner = spaces.Dict({"a": spaces.Discrete(2), "action_mask": spaces.MultiBinary(2)})
    assert set(BOTH.space(inner, spaces.Discrete(2))) == {"a", "action_mask", "prev_actions", "prev_rewards"}
    assert set(BOTH.added_to({"a": 1}, np.zeros(2), 3.0)) == {"a", "prev_actions", "prev_rewards"}
    with pytest.raises(ValueError, match="cannot get"):
        BOTH.space(spaces.Dict({"prev_actions": spaces.Discrete(2)}), spaces.Discrete(2))


def test_tensors_are_arrays_before_something_is_added_to_them():
    world = {"observation": "dict", "action": "choice", "length": 3, "autoreset": "SAME_STEP"}
    model = {"fcnet_hiddens": [4], "use_lstm": True, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    sampled = []
    for door in (worlds.vector, worlds.tensors):
        config = PPOConfig().environment(door, env_config=world).training(model=model)
        config.rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=8, tensor_rollouts=False)
        with config.training(train_batch_size=16, sgd_minibatch_size=8).debugging(seed=0).build() as algorithm:
            sampled.append(algorithm.workers.local_worker().sample()[0])
    for name in ("obs", "actions", "rewards", "truncateds"):
        np.testing.assert_array_equal(sampled[0][name], sampled[1][name])
