"""Acting, values, weights and state of a policy."""

import gymnasium as gym
import numpy as np
import pytest

from rllib.models.catalog.catalog import policy_spec
from rllib.models.dense.network_spec import NetworkSpec
from rllib.models.dense.spec import Dense
from rllib.models.distributions.q_values import QValues
from rllib.models.observations.encoders import BoxEncoder
from rllib.policy import Policy
from rllib.sample_batch import SampleBatch

BOX = gym.spaces.Box(-np.inf, np.inf, (4,))
ACTION_SPACES = [
    gym.spaces.Discrete(3),
    gym.spaces.MultiDiscrete([2, 3]),
    gym.spaces.Box(-1, 1, (2,)),
    gym.spaces.Box(-1, 1, (2, 2)),
]


def make_policy(action_space=ACTION_SPACES[0], observation_space=BOX, seed=0, observation_filter="NoFilter", **model):
    spec = policy_spec(
        observation_space,
        action_space,
        {"fcnet_hiddens": [16, 16], "vf_share_layers": False, **model},
        observation_filter=observation_filter,
    )
    return Policy(spec, rng=np.random.default_rng(seed))


def act(policy, observations, noise):
    rows = len(observations)
    dist_inputs = np.full((rows, policy.num_dist_inputs), np.nan, np.float32)
    actions = np.empty((rows, *policy.action_shape), policy.action_dtype)
    policy.act(observations, noise, dist_inputs, actions)
    return dist_inputs, actions


@pytest.mark.parametrize("action_space", ACTION_SPACES, ids=str)
def test_acting_writes_in_place_into_a_fragment(action_space):
    policy = make_policy(action_space)
    rng = np.random.default_rng(0)
    noise = policy.noise(rng, 5, 8)
    dist_inputs = np.full((5, 8, policy.num_dist_inputs), np.nan, np.float32)
    actions = np.zeros((5, 8, *policy.action_shape), policy.action_dtype)
    observations = rng.standard_normal((5, 8, 4), dtype=np.float32)
    for t in range(5):
        policy.act(observations[t], noise[t], dist_inputs[t], actions[t])
    assert np.isfinite(dist_inputs).all()
    assert all(action_space.contains(action.astype(action_space.dtype)) or action_space.shape for action in actions[0])
    for t in range(5):
        np.testing.assert_array_equal(actions[t], act(policy, observations[t], noise[t])[1])


@pytest.mark.parametrize("action_space", ACTION_SPACES, ids=str)
def test_noise_of_zero_gives_the_most_probable_actions(action_space):
    policy = make_policy(action_space)
    observations = np.random.default_rng(1).standard_normal((8, 4), dtype=np.float32)
    zeros = np.zeros_like(policy.noise(np.random.default_rng(0), 8))
    np.testing.assert_array_equal(act(policy, observations, zeros)[1], policy.choose(observations, explore=False))


def test_the_number_of_rows_does_not_matter():
    policy = make_policy()
    observations = np.random.default_rng(2).standard_normal((1300, 4), dtype=np.float32)
    noise = policy.noise(np.random.default_rng(3), 1300)
    whole, actions = act(policy, observations, noise)
    values = policy.values(observations)
    assert values.shape == (1300,)
    for rows in (slice(0, 1), slice(7, 9), slice(500, 1012), slice(600, 1300)):
        some, some_actions = act(policy, observations[rows], noise[rows])
        np.testing.assert_allclose(some, whole[rows], atol=1e-6)
        np.testing.assert_array_equal(some_actions, actions[rows])
        np.testing.assert_allclose(policy.values(observations[rows]), values[rows], atol=1e-6)


def test_the_same_noise_gives_the_same_actions_in_any_grouping():
    """What an environment's own stream draws decides its actions, however many stand beside it."""
    policy = make_policy()
    observations = np.random.default_rng(4).standard_normal((6, 4), dtype=np.float32)
    noise = np.stack([policy.noise(np.random.default_rng(i), 3) for i in range(6)], axis=1)
    together = act(policy, observations, noise[0])[1]
    apart = [act(policy, observations[i : i + 1], noise[0, i : i + 1])[1][0] for i in range(6)]
    assert together.tolist() == apart


def test_log_prob_is_that_of_the_distribution():
    policy = make_policy()
    dist_inputs, actions = act(policy, np.ones((5, 4), np.float32), policy.noise(np.random.default_rng(0), 5))
    exact = dist_inputs - np.log(np.exp(dist_inputs).sum(1, keepdims=True))
    np.testing.assert_allclose(policy.log_prob(dist_inputs, actions), exact[np.arange(5), actions], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8])
def test_observations_of_any_number_type(dtype):
    policy = make_policy(observation_space=gym.spaces.Box(0, 100, (4,), dtype))
    observations = np.arange(8).reshape(2, 4).astype(dtype)
    expected = policy.values(observations.astype(np.float32)).copy()
    np.testing.assert_allclose(policy.values(observations), expected)


def test_discrete_observations_are_one_hot():
    policy = make_policy(observation_space=gym.spaces.Discrete(5, start=1))
    values = policy.values(np.arange(1, 6))
    first = policy.parameters()["value.hidden_0.weight"]
    hidden = np.tanh(first.T)
    hidden = np.tanh(hidden @ policy.parameters()["value.hidden_1.weight"].T)
    np.testing.assert_allclose(values, (hidden @ policy.parameters()["value.head.weight"].T)[:, 0], atol=1e-6)


def test_compute_actions_is_reproducible_with_a_generator():
    policy = make_policy()
    observations = np.random.default_rng(5).standard_normal((50, 4), dtype=np.float32)
    first, second = (policy.choose(observations, rng=np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(first, second)
    assert len(set(policy.choose(observations).tolist())) > 1
    greedy = [policy.choose(observations, explore=False).tolist() for _ in range(2)]
    assert greedy[0] == greedy[1]


def test_results_survive_the_next_call():
    policy = make_policy(gym.spaces.Box(-1, 1, (2,)))
    first = policy.choose(np.ones((3, 4), np.float32), explore=False)
    copy = first.copy()
    policy.choose(np.zeros((3, 4), np.float32), explore=False)
    assert np.array_equal(first, copy)


@pytest.mark.parametrize("shape", [(4,), (3, 5), (3, 2, 2)])
def test_a_batch_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"batch of shape \[N, 4\]"):
        make_policy().choose(np.zeros(shape, np.float32))


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
@pytest.mark.parametrize("number", [np.nan, -np.inf, 1e300])
def test_observations_that_are_not_finite_are_refused(number, observation_filter):
    policy = make_policy(observation_filter=observation_filter)
    rows = np.zeros((3, *BOX.shape))
    rows[1, -1] = number
    calls = (
        lambda: policy.choose(rows),
        lambda: policy.compute_actions(rows),
        lambda: policy.compute_actions_from_input_dict({"obs": rows}),
        lambda: policy.compute_single_action(rows[1]),
    )
    for call, where in zip(calls, ("1 of 3", "1 of 3", "1 of 3", "0 of 1")):
        with pytest.raises(ValueError, match=f"no action can be computed: observation {where} is not finite"):
            call()


def test_weights_are_copied_in_and_shared_out():
    policy, other = make_policy(), make_policy(seed=1)
    memory = policy.weights
    policy.set_weights(other.weights)
    assert policy.weights is memory
    assert np.array_equal(memory, other.weights)
    assert memory is not other.weights
    with pytest.raises(ValueError, match="same spaces and model"):
        policy.set_weights(np.zeros(3, np.float32))


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
def test_a_snapshot_makes_another_policy_act_alike(observation_filter):
    policy, other = (make_policy(seed=seed, observation_filter=observation_filter) for seed in (0, 1))
    observations = np.random.default_rng(0).normal(3, 2, (50, 4)).astype(np.float32)
    policy.filter(observations, update=True)
    policy.filter.merge(policy.filter.pop_delta())
    snapshot = policy.snapshot(version=3, timesteps=50)
    assert (snapshot.version, snapshot.timesteps) == (3, 50)
    assert snapshot.weights is policy.weights, "no copy before it is sent"
    other.load_snapshot(snapshot)
    np.testing.assert_array_equal(other.weights, policy.weights)
    np.testing.assert_array_equal(other.filter(observations), policy.filter(observations))
    assert (snapshot.filter_state is None) == (observation_filter == "NoFilter")


def test_without_weights_and_generator_all_is_zero():
    assert not Policy(make_policy().spec).weights.any()


def test_read_only_weights_act():
    """Workers may map weights that they must not change."""
    policy = make_policy()
    frozen = policy.weights.copy()
    frozen.setflags(write=False)
    observations = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(Policy(policy.spec, frozen).values(observations), policy.values(observations))


@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
def test_state_restores_what_the_policy_does(observation_filter):
    policy = make_policy(observation_filter=observation_filter)
    observations = np.random.default_rng(6).standard_normal((20, 4)) * 5 + 100
    policy.filter(observations, update=True)
    delta = policy.filter.pop_delta()
    policy.filter.merge(delta)
    state = policy.get_state()
    assert all(isinstance(array, np.ndarray) for array in state.values())
    restored = make_policy(observation_filter=observation_filter, seed=1)
    restored.set_state(state)
    expected = policy.choose(observations, rng=np.random.default_rng(0))
    assert np.array_equal(restored.choose(observations, rng=np.random.default_rng(0)), expected)
    state["weights"][:] = 0
    assert policy.weights.any()


def test_a_state_with_or_without_filter_is_not_mixed_up():
    plain, filtering = make_policy(), make_policy(observation_filter="MeanStdFilter")
    with pytest.raises(ValueError, match="NoFilter"):
        plain.set_state(filtering.get_state())
    with pytest.raises(ValueError, match="MeanStdFilter"):
        filtering.set_state(plain.get_state())


def test_inference_filters_once():
    policy = make_policy(gym.spaces.Box(-1, 1, (2,)), observation_filter="MeanStdFilter")
    raw = np.random.default_rng(7).standard_normal((100, 4)) * 3 + 50
    policy.filter(raw, update=True)
    policy.filter.merge(policy.filter.pop_delta())
    filtered = policy.filter(raw)
    assert np.array_equal(policy.choose(raw, explore=False), policy.choose(filtered, explore=False, filtered=True))
    assert policy.filter.pop_delta()["count"] == 0


def test_compute_actions_returns_what_rllib_does():
    policy, observations = make_policy(), np.ones((3, 4), np.float32)
    actions, states, fetches = policy.compute_actions(observations, explore=False)
    np.testing.assert_array_equal(actions, policy.choose(observations, explore=False))
    assert states == [] and {*fetches} == {"action_dist_inputs", "action_logp", "vf_preds"}
    np.testing.assert_allclose(fetches["vf_preds"], policy.values(observations), atol=1e-6)
    action, state, single = policy.compute_single_action(observations[0], explore=False)
    assert action == actions[0] and state == [] and {*single} == {*fetches}
    np.testing.assert_allclose(single["vf_preds"], fetches["vf_preds"][0], atol=1e-6)


def test_compute_actions_of_a_memory_takes_and_gives_a_list_of_states():
    policy, rng = make_policy(use_lstm=True, lstm_cell_size=5), np.random.default_rng(0)
    flat = np.zeros((2, policy.state_size), np.float32)
    states = [np.zeros((2, *part.shape), np.float32) for part in policy.get_initial_state()]
    for _ in range(3):
        observations = rng.standard_normal((2, 4), dtype=np.float32)
        policy.choose(observations, explore=False, state=flat)
        before = [part.copy() for part in states]
        _, following, _ = policy.compute_actions(observations, states, explore=False)
        one = policy.compute_single_action(observations[1], [part[1] for part in states], explore=False)[1]
        np.testing.assert_allclose(one, [part[1] for part in following], atol=1e-6)
        np.testing.assert_array_equal(states, before)
        np.testing.assert_allclose(np.concatenate(following, axis=1), flat)
        states = following
    with pytest.raises(ValueError, match=r"list of 4 arrays \(\[N, 5\], \[N, 5\], \[N, 5\], \[N, 5\]\)"):
        policy.compute_actions(observations, states[:1])
    for none in (None, []):
        with pytest.raises(ValueError, match="this policy has a memory: give the state before each"):
            policy.compute_actions(observations, none)


@pytest.mark.parametrize("model", [{}, {"use_lstm": True}])
def test_weights_by_name_move_to_another_policy(model):
    policy, other = (make_policy(**model, seed=seed) for seed in (1, 2))
    assert not np.array_equal(policy.weights, other.weights)
    weights = policy.get_weights()
    other.set_weights(weights)
    np.testing.assert_array_equal(policy.weights, other.weights)
    weights[min(weights)][:] = 7
    np.testing.assert_array_equal(policy.weights, other.weights)
    with pytest.raises(ValueError, match=r"weights by name must match get_weights\(\), .*, but \{\} were given"):
        policy.set_weights({})


@pytest.mark.parametrize("model", [{}, {"use_lstm": True}])
def test_the_model_is_a_torch_module_on_the_policys_memory(model):
    import torch

    policy = make_policy(**model)
    assert policy.is_recurrent() == bool(model)
    module = policy.model
    assert sum(parameter.numel() for parameter in module.parameters()) == policy.weights.size
    if not model:
        observations = np.ones((2, 4), np.float32)
        dist_inputs, values = module(torch.from_numpy(policy.encode(observations)))
        np.testing.assert_allclose(dist_inputs.detach(), policy.dist_inputs(observations), atol=1e-6)
        np.testing.assert_allclose(values.detach(), policy.values(observations), atol=1e-6)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    assert (policy.weights == 0.5).all()


def test_action_values_and_dist_inputs_stay_as_they_are():
    """Two forward passes of one network, as the targets of an algorithm of one's own may need them."""
    spec = NetworkSpec(
        BoxEncoder((4,)), QValues(2), (8,), ("tanh",), critic=False, vf_share_layers=True, architecture=Dense()
    )
    policy = Policy(spec, rng=np.random.default_rng(0))
    ones, zeros = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    values = policy.action_values(ones).q_values()
    before = values.copy()
    policy.action_values(zeros)
    np.testing.assert_array_equal(values, before)
    policy = make_policy(use_lstm=True)
    state, lengths = np.zeros((1, policy.state_size), np.float32), np.array([3])
    inputs = policy.dist_inputs(ones, lengths, state)
    before = inputs.copy()
    policy.dist_inputs(zeros, lengths, state)
    np.testing.assert_array_equal(inputs, before)


def test_an_episode_may_begin_with_zeros_for_the_policys_cell_alone():
    """As programs for RLlib do, where the value has no other."""
    policy, observations = make_policy(use_lstm=True, lstm_cell_size=5), np.ones((2, 4), np.float32)
    short, whole = ([np.zeros((2, 5), np.float32)] * count for count in (2, 4))
    found, expected = (policy.compute_actions(observations, each, explore=False) for each in (short, whole))
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[2]["vf_preds"], expected[2]["vf_preds"])


def episode_part(rows: int, terminated: bool) -> SampleBatch:
    rng = np.random.default_rng(rows)
    observations = rng.standard_normal((rows + 1, 4), dtype=np.float32)
    ended = np.zeros(rows, bool)
    ended[-1] = terminated
    columns = {"obs": observations[:-1], "new_obs": observations[1:], "rewards": np.arange(rows, dtype=np.float32)}
    return SampleBatch({**columns, "terminateds": ended, "truncateds": np.zeros(rows, bool)})


@pytest.mark.parametrize("terminated", [True, False])
def test_postprocessing_a_trajectory_is_generalized_advantage_estimation(terminated):
    policy = make_policy()
    batch = policy.postprocess_trajectory(episode_part(6, terminated), gamma=0.9, lambda_=0.7)
    values = policy.values(batch["obs"]).astype(np.float64)
    following = np.append(values[1:], 0 if terminated else policy.values(batch["new_obs"])[-1])
    expected = [
        sum(0.63**k * (batch["rewards"][t + k] + 0.9 * following[t + k] - values[t + k]) for k in range(6 - t))
        for t in range(6)
    ]
    np.testing.assert_allclose(batch["advantages"], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batch["value_targets"], batch["advantages"] + batch["vf_preds"], rtol=1e-6)


def test_a_trajectory_that_cannot_be_postprocessed_is_refused():
    policy = make_policy()
    two = SampleBatch.concat([episode_part(2, True), episode_part(3, False)])
    with pytest.raises(ValueError, match=r"one ends in row 1 of 5.*split_by_episode"):
        policy.postprocess_trajectory(two, gamma=0.9)
    cut = SampleBatch({name: column for name, column in episode_part(3, False).items() if name != "new_obs"})
    with pytest.raises(ValueError, match="last row is not terminated, so its 'new_obs' is needed"):
        policy.postprocess_trajectory(cut, gamma=0.9)
    with pytest.raises(ValueError, match="this policy has a memory"):
        make_policy(use_lstm=True).postprocess_trajectory(episode_part(3, True), gamma=0.9)
