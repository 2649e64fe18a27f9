"""The learner in numpy: what an update does to the weights, what it reports and what it refuses."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from learner_support import ACTION_SPACES, SETTINGS, make_batch, make_policy

from rllib import sample_batch as sb
from rllib.errors import LearnerError
from rllib.learners.learner import make_learner
from rllib.learners.updates.objective import Objective
from rllib.learners.updates.optimizers import Adam, OptimizerSettings
from rllib.losses.ppo import PPO_LOSS, STATS
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

SGD = OptimizerSettings("sgd")


def update(learner, batch, seed=0, **changed):
    arguments = {"num_epochs": 2, "minibatch_size": 32, "lr": 1e-3, **SETTINGS, **changed}
    return learner.update(batch, rng=np.random.default_rng(seed), **arguments)


@pytest.mark.parametrize("action_space", ACTION_SPACES, ids=str)
def test_an_update_lowers_the_loss(action_space):
    policy = make_policy(action_space)
    learner = make_learner(policy, PPO_LOSS)
    batch = make_batch(policy, 256)
    before = update(learner, batch, num_epochs=1, minibatch_size=None, lr=0.0)
    update(learner, batch, num_epochs=10)
    fresh = make_policy(action_space, seed=1)
    fresh.set_weights(policy.weights)
    outputs = fresh.network.forward(fresh.encode(batch[sb.OBS]))
    after = dict(zip(STATS, PPO_LOSS.numpy(fresh.distribution, outputs, batch, **SETTINGS)[0]))
    assert after["total_loss"] < before["total_loss"] - 0.01
    assert after["policy_loss"] < before["policy_loss"]


def test_statistics_are_plain_numbers():
    policy = make_policy()
    statistics = update(make_learner(policy, PPO_LOSS), make_batch(policy, 100))
    assert set(statistics) == {*STATS, "grad_gnorm", "num_minibatches"}
    assert all(type(value) in (float, int) for value in statistics.values())
    assert statistics["grad_gnorm"] > 0


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_an_update_ends_at_the_minibatch_that_exceeds_a_limit(kind):
    """The minibatch that does is among the statistics, and no step is taken on it."""
    stopped, expected = make_policy(), make_policy()
    batch = make_batch(stopped, 256)
    how = {"num_epochs": 1, "shuffle": False, "lr": 0.01}
    found = update(make_learner(stopped, PPO_LOSS, kind=kind), batch, **how, stop_above=("kl", 0.003))
    steps = found["num_minibatches"] - 1
    assert 0 < steps < 7
    update(make_learner(expected, PPO_LOSS, kind=kind), batch.rows(slice(0, 32 * steps)), **how)
    np.testing.assert_array_equal(stopped.weights, expected.weights)
    whole = update(make_learner(make_policy(), PPO_LOSS, kind=kind), batch, **how, stop_above=("kl", 100.0))
    assert whole["num_minibatches"] == 8


def test_the_limit_ends_all_further_epochs():
    policy = make_policy()
    how = {"lr": 0.1, "num_epochs": 20, "stop_above": ("kl", 0.01)}
    found = update(make_learner(policy, PPO_LOSS), make_batch(policy, 64), **how)
    assert found["num_minibatches"] < 10


def test_weights_are_shared_with_the_policy():
    policy = make_policy()
    learner = make_learner(policy, PPO_LOSS)
    assert learner.weights is policy.weights
    before = policy.weights.copy()
    update(learner, make_batch(policy, 64))
    assert not np.array_equal(policy.weights, before)


@pytest.mark.parametrize(("rows", "steps"), [(96, 3), (100, 4), (97, 4), (20, 1)])
def test_a_short_last_minibatch_is_used(rows, steps):
    policy = make_policy()
    statistics = update(make_learner(policy, PPO_LOSS), make_batch(policy, rows), num_epochs=1)
    assert statistics["num_minibatches"] == steps


def test_every_row_is_used_once_an_epoch():
    """With learning rate 0 the mean over equal minibatches is the mean over the batch."""
    policy = make_policy()
    batch = make_batch(policy, 96)
    learner = make_learner(policy, PPO_LOSS)
    whole = update(learner, batch, minibatch_size=None, num_epochs=1, lr=0.0)
    parts = update(learner, batch, minibatch_size=32, num_epochs=1, lr=0.0)
    for name in ("policy_loss", "vf_loss", "entropy"):
        assert parts[name] == pytest.approx(whole[name], abs=1e-6)


def test_one_step_by_hand():
    """One epoch, one minibatch: the weights move as Adam moves them along the gradient of the whole batch."""
    policy, twin = make_policy(), make_policy()
    batch = make_batch(policy, 50)
    update(make_learner(policy, PPO_LOSS), batch, num_epochs=1, minibatch_size=None, shuffle=False)
    outputs = twin.network.forward(twin.encode(batch[sb.OBS]))
    gradient = twin.network.backward(PPO_LOSS.numpy(twin.distribution, outputs, batch, **SETTINGS)[1])
    Adam(twin.weights.size).step(twin.weights, gradient, 1e-3)
    np.testing.assert_allclose(policy.weights, twin.weights, atol=2e-6)


@pytest.mark.parametrize("shuffle", [True, False])
def test_equal_seeds_give_equal_bits(shuffle):
    policies = [make_policy() for _ in range(2)]
    for policy in policies:
        learner = make_learner(policy, Objective(PPO_LOSS, grad_clip=0.5))
        for seed in range(3):
            update(learner, make_batch(policy, 100, seed), seed, shuffle=shuffle)
    assert policies[0].weights.tobytes() == policies[1].weights.tobytes()
    other = make_policy()
    update(make_learner(other, PPO_LOSS), make_batch(other, 100), seed=9)
    assert other.weights.tobytes() != policies[0].weights.tobytes()


def test_the_batch_is_not_changed():
    policy = make_policy()
    batch = make_batch(policy, 100)
    for column in batch.values():
        column.setflags(write=False)
    update(make_learner(policy, PPO_LOSS), batch)
    update(make_learner(make_policy(), PPO_LOSS), batch, shuffle=False)


def test_state_continues_to_the_bit():
    whole, first = make_policy(), make_policy()
    learner = make_learner(whole, PPO_LOSS)
    for seed in range(4):
        update(learner, make_batch(whole, 100, seed), seed)
    learner = make_learner(first, PPO_LOSS)
    for seed in range(2):
        update(learner, make_batch(first, 100, seed), seed)
    second = make_policy(seed=5)
    second.set_state(first.get_state())
    restored = make_learner(second, PPO_LOSS)
    restored.set_state(learner.get_state())
    for seed in range(2, 4):
        update(restored, make_batch(second, 100, seed), seed)
    assert second.weights.tobytes() == whole.weights.tobytes()


def test_state_is_a_copy():
    policy = make_policy()
    learner = make_learner(policy, PPO_LOSS)
    state = learner.get_state()
    update(learner, make_batch(policy, 50))
    assert not state["adam.m"].any()
    assert learner.get_state()["adam.step"] == 4


def test_state_of_another_network_is_refused():
    other = make_learner(make_policy(fcnet_hiddens=[8]), PPO_LOSS).get_state()
    with pytest.raises(ValueError, match="same optimizer and model"):
        make_learner(make_policy(), PPO_LOSS).set_state(other)
    with pytest.raises(ValueError, match="nothing"):
        make_learner(make_policy(), Objective(PPO_LOSS, optimizer=SGD)).set_state(other)


@pytest.mark.parametrize("rows", [slice(None), slice(0, 64)])
def test_tampered_log_probabilities_are_noticed(rows):
    policy = make_policy()
    batch = make_batch(policy, 128)
    batch[sb.ACTION_LOGP][rows] += 0.05
    before = policy.weights.copy()
    with pytest.raises(LearnerError, match="not sampled by these weights"):
        update(make_learner(policy, PPO_LOSS), batch)
    assert np.array_equal(policy.weights, before)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda policy, batch: policy.set_weights(policy.weights * np.float32(1.5)),
        lambda policy, batch: batch.update(obs=batch[sb.OBS][::-1]),
        lambda policy, batch: batch.update(actions=np.clip(batch[sb.ACTIONS], -0.5, 0.5)),
    ],
    ids=["other weights", "rows shifted", "clipped actions"],
)
def test_causes_of_a_broken_identity(tamper):
    policy = make_policy(gym.spaces.Box(-1, 1, (2,)))
    policy.weights[:] *= 3
    batch = make_batch(policy, 128)
    tamper(policy, batch)
    with pytest.raises(LearnerError, match="differ from the stored ones"):
        update(make_learner(policy, PPO_LOSS), batch)


def test_identity_holds_where_the_standard_deviation_is_small():
    policy = make_policy(gym.spaces.Box(-1, 1, (2,)), free_log_std=True)
    policy.weights[:] *= 5
    policy.parameters()["policy.log_std"][:] = -5
    update(make_learner(policy, PPO_LOSS), make_batch(policy, 512))


def test_nan_in_a_column_is_named():
    policy = make_policy()
    batch = make_batch(policy, 64)
    batch[sb.ADVANTAGES][3] = np.nan
    with pytest.raises(LearnerError, match="Columns with NaN or infinity: advantages") as error:
        update(make_learner(policy, PPO_LOSS), batch)
    assert "policy.hidden_0.weight" in str(error.value)
    assert np.isfinite(policy.weights).all()


def test_nan_weights_are_named():
    policy = make_policy()
    learner, batch = make_learner(policy, PPO_LOSS), make_batch(policy, 64)
    policy.parameters()["value.hidden_1.bias"][2] = np.nan
    with pytest.raises(LearnerError, match=r"Weights with NaN or infinity: value\.hidden_1\.bias\."):
        update(learner, batch)


def test_a_value_head_that_explodes_is_named():
    policy = make_policy()
    learner, batch = make_learner(policy, PPO_LOSS), make_batch(policy, 64)
    batch[sb.VALUE_TARGETS][:] = np.float32(1e30)
    with pytest.raises(LearnerError, match=r"too large for float32: the gradient of value\."):
        update(learner, batch)


def test_what_the_batch_lacks_is_named():
    policy = make_policy()
    batch = make_batch(policy, 10)
    learner = make_learner(policy, PPO_LOSS)
    without = SampleBatch({name: column for name, column in batch.items() if name != sb.VF_PREDS})
    with pytest.raises(ValueError, match="vf_preds"):
        update(learner, without)
    with pytest.raises(ValueError, match="without rows"):
        update(learner, batch.rows(slice(0, 0)))
    with pytest.raises(ValueError, match="at least 1"):
        update(learner, batch, num_epochs=0)
    with pytest.raises(ValueError, match="at least 1"):
        update(learner, batch, minibatch_size=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "jax"}, "kind must be one of"),
        ({"kind": "numpy", "device": "cuda"}, "Use learner='torch'"),
    ],
    ids=str,
)
def test_wrong_choices_say_what_to_do(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_learner(make_policy(), PPO_LOSS, **arguments)


def test_wrong_objectives_say_what_to_do():
    with pytest.raises(ValueError, match="grad_clip_by must be one of"):
        Objective(PPO_LOSS, grad_clip_by="max")
    with pytest.raises(ValueError, match="grad_clip must be positive"):
        Objective(PPO_LOSS, grad_clip=0.0)
    with pytest.raises(ValueError, match="optimizer must be one of"):
        OptimizerSettings("lion")


def test_clipping_bounds_the_step():
    """SGD with learning rate 1 moves the weights by the clipped gradient."""
    for by, length in (("global_norm", 0.01), ("value", None)):
        policy = make_policy()
        before = policy.weights.copy()
        learner = make_learner(policy, Objective(PPO_LOSS, optimizer=SGD, grad_clip=0.01, grad_clip_by=by))
        statistics = update(learner, make_batch(policy, 64), num_epochs=1, minibatch_size=None, lr=1.0)
        moved = policy.weights - before
        assert statistics["grad_gnorm"] > 0.01
        assert abs(moved).max() <= 0.01 + 1e-6
        if length:
            assert np.linalg.norm(moved) == pytest.approx(length, rel=1e-3)


@pytest.mark.parametrize("space", [gym.spaces.Discrete(6, start=2), gym.spaces.Box(-1, 1, (2, 3))], ids=str)
def test_other_observations(space):
    policy = make_policy(observation_space=space)
    statistics = update(make_learner(policy, PPO_LOSS), make_batch(policy, 50))
    assert np.isfinite(statistics["total_loss"])


def test_a_batch_of_changing_size():
    policy = make_policy()
    learner = make_learner(policy, PPO_LOSS)
    for rows in (40, 100, 64, 33, 100, 1):
        statistics = update(learner, make_batch(policy, rows), num_epochs=1)
        assert np.isfinite(list(statistics.values())).all()


def test_a_policy_in_given_memory():
    memory = np.empty(make_policy().weights.size, np.float32)
    memory[:] = make_policy().weights
    policy = Policy(make_policy().spec, memory)
    update(make_learner(policy, PPO_LOSS), make_batch(policy, 64))
    assert policy.weights is memory
    assert not np.array_equal(memory, make_policy().weights)


def test_training_in_numpy_never_imports_torch():
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from learner_support import SETTINGS, make_batch, make_policy
import numpy as np
from rllib.learners.learner import make_learner
from rllib.losses.ppo import PPO_LOSS
policy = make_policy()
make_learner(policy, PPO_LOSS).update(make_batch(policy, 64), rng=np.random.default_rng(0), lr=1e-3, **SETTINGS)
assert "torch" not in sys.modules
"""
    here = __file__.rsplit("/", 1)[0]
    subprocess.run([sys.executable, "-c", code, here], check=True, timeout=60)


@pytest.mark.parametrize("name", ["SAC", "TD3", "DDPG", "TQC", "CrossQ"])
def test_actor_critics_with_a_replay_never_import_torch(name):
    code = f"""
import sys
from rllib.algorithms.registry import get_algorithm_config
config = get_algorithm_config({name!r}).rollouts(num_rollout_workers=0)
config.training(num_steps_sampled_before_learning_starts=10, train_batch_size=16, model={{"fcnet_hiddens": [8]}})
config.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=20)
with config.build(env="Pendulum-v1") as algo:
    assert algo.train()["counters/num_updates"] > 0
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_nan_log_probabilities_are_named_and_not_taken_for_other_weights():
    policy = make_policy()
    batch = make_batch(policy, 128)
    batch.update(action_logp=np.full_like(batch[sb.ACTION_LOGP], np.nan))
    with pytest.raises(LearnerError, match="Columns with NaN or infinity: action_logp"):
        update(make_learner(policy, PPO_LOSS), batch)
