"""Off-policy estimates: gold numbers, identities, small worlds with exact values, and data that cannot be used."""

import dataclasses
import importlib

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from rllib.offline.estimators import (
    DirectMethod,
    DoublyRobust,
    ImportanceSampling,
    OffPolicyEstimator,
    WeightedImportanceSampling,
)

from rllib import sample_batch as sb
from rllib.acting.inference import ActingSettings
from rllib.evaluation.estimators import formulas
from rllib.evaluation.estimators.choose import estimate_all, make_estimators, methods_problem
from rllib.evaluation.estimators.fqe_torch_model import FQETorchModel
from rllib.evaluation.estimators.imitation_error import imitation_error
from rllib.evaluation.estimators.q_model import QModel
from rllib.evaluation.estimators.target_policy import TargetPolicy, action_rows
from rllib.models.catalog.catalog import policy_spec
from rllib.models.distributions.bounded_mean import BoundedMeanGaussian
from rllib.models.distributions.q_values import QValues
from rllib.models.distributions.squashed import BoundedSquashedGaussian, SquashedGaussian
from rllib.models.distributions.standard import Deterministic, DiagGaussian, MultiCategorical
from rllib.offline.dataset import Dataset
from rllib.policy import Policy

# ---------------------------------------------------------------------- policies with given probabilities


def tabular_policy(probabilities, memory=None):
    """A policy of choices by the number of the state, [states, actions]."""
    probabilities = np.asarray(probabilities, np.float64)
    states, actions = probabilities.shape
    model = {"fcnet_hiddens": [], "vf_share_layers": False, **(memory or {})}
    policy = Policy(policy_spec(Discrete(states), Discrete(actions), model))
    if memory is None:
        (name,) = (each for each, array in policy.parameters().items() if array.shape == (actions, states))
        policy.parameters()[name][:] = np.log(probabilities).T
    return policy


def with_distribution(policy, distribution):
    return Policy(dataclasses.replace(policy.spec, distribution=distribution), rng=np.random.default_rng(0))


def episodes(*lengths, **columns):
    """A batch of whole episodes, each with terminated as its end."""
    ends = np.cumsum(lengths) - 1
    flags = np.zeros(sum(lengths), bool)
    flags[ends] = True
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    batch = {"obs": np.zeros(sum(lengths), int), "terminateds": flags, "eps_id": numbers, **columns}
    return {name: np.asarray(column) for name, column in batch.items()}


def test_paths_of_rllib_lead_to_the_estimators():
    for name in ("ImportanceSampling", "FQETorchModel", "DoublyRobust"):
        module = {"ImportanceSampling": ".importance_sampling", "FQETorchModel": ".fqe_torch_model"}.get(name, "")
        assert hasattr(importlib.import_module(f"rllib.offline.estimators{module}"), name)


# ---------------------------------------------------------------------- gold numbers, with gamma 0.9

STARTS = np.array([0, 3, 5])
REWARDS = np.array([1.0, 0, 2, 0, 3])
BEHAVIOR = np.array([0.5, 0.5, 0.25, 0.5, 0.8])
TARGET = np.array([0.8, 0.2, 0.5, 0.4, 0.9])
LOG_RATIOS = np.log(TARGET) - np.log(BEHAVIOR)
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def test_gold_numbers_of_importance_sampling():
    np.testing.assert_allclose(formulas.discounted_returns(REWARDS, STARTS, 0.9), [2.62, 2.7], **EXACT)
    rho = np.exp(formulas.log_cumulative(LOG_RATIOS, STARTS))
    np.testing.assert_allclose(rho, [1.6, 0.64, 1.28, 0.8, 0.9], **EXACT)
    values = formulas.importance_sampling(REWARDS, LOG_RATIOS, STARTS, 0.9)
    np.testing.assert_allclose(values, [3.6736, 2.43], **EXACT)


def test_gold_numbers_of_weighted_importance_sampling():
    values, changes = formulas.weighted_importance_sampling(REWARDS, LOG_RATIOS, STARTS, 0.9)
    np.testing.assert_allclose(values, [2.9533333333333, 3.1558441558441], **EXACT)
    np.testing.assert_allclose([values.mean(), values.std()], [3.0545887446, 0.1012554113], rtol=1e-9)
    np.testing.assert_allclose(changes.mean(), values.mean(), **EXACT)
    values, changes = formulas.weighted_importance_sampling(REWARDS, LOG_RATIOS, STARTS, 0.9, carried=True)
    np.testing.assert_allclose([values.mean(), changes.mean()], [3.1957814051, 3.1957814051], rtol=1e-9)


def test_gold_numbers_of_doubly_robust_estimates():
    q, v = np.array([2, 1.5, 1.8, 2.5, 2.8]), np.array([1.9, 1.6, 1.7, 2.2, 2.9])
    values = formulas.doubly_robust(REWARDS, LOG_RATIOS, STARTS, 0.9, v, q, np.zeros(2))
    np.testing.assert_allclose(values, [2.82864, 2.45], **EXACT)
    np.testing.assert_allclose([values.mean(), values.std(), v[STARTS[:-1]].mean()], [2.63932, 0.18932, 2.05], **EXACT)


def gold_batch(**changes):
    """The gold episodes, in which the policy of `gold_policy` has the probabilities TARGET."""
    batch = episodes(3, 2, obs=np.arange(5), actions=np.zeros(5, int), rewards=REWARDS, action_prob=BEHAVIOR)
    return batch | changes


def gold_policy():
    return tabular_policy(np.stack([TARGET, 1 - TARGET], 1))


@pytest.mark.parametrize("name", ["action_prob", "action_logp"])
def test_an_estimate_of_the_gold_episodes(name):
    batch = gold_batch()
    probabilities = batch.pop("action_prob")
    batch[name] = np.log(probabilities) if name == "action_logp" else probabilities
    found = ImportanceSampling(gold_policy(), gamma=0.9).estimate(sb.SampleBatch(batch))
    expected = {
        "v_behavior": 2.66, "v_behavior_std": 0.04, "v_target": 3.0518, "v_target_std": 0.6218,
        "v_gain": 3.0518 / 2.66, "v_delta": 3.0518 - 2.66, "num_episodes": 2, "num_truncated": 0,
        "effective_sample_size": (1.28 + 0.9) ** 2 / (1.28**2 + 0.9**2),
    }  # fmt: skip
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-6)
    half = 1.959964 * 0.6218  # the population's deviation of two is the standard error of their mean
    assert (found["v_target_low"], found["v_target_high"]) == pytest.approx((3.0518 - half, 3.0518 + half), rel=1e-6)


def test_single_steps_are_episodes_of_their_own():
    found = ImportanceSampling(gold_policy(), gamma=0.9).estimate(gold_batch(), split_batch_by_episode=False)
    assert found["v_target"] == pytest.approx((np.exp(LOG_RATIOS) * REWARDS).mean(), rel=1e-6)
    assert found["num_episodes"] == 5


# ---------------------------------------------------------------------- identities


@pytest.mark.parametrize("kind", [ImportanceSampling, WeightedImportanceSampling])
def test_the_recorded_policy_has_the_recorded_value(kind):
    policy = tabular_policy([[0.3, 0.7], [0.6, 0.4]])
    rng = np.random.default_rng(0)
    lengths = [4, 1, 7, 2]
    obs, actions = rng.integers(0, 2, 14), rng.integers(0, 2, 14)
    probabilities = np.array([[0.3, 0.7], [0.6, 0.4]])[obs, actions]
    batch = episodes(*lengths, obs=obs, actions=actions, rewards=rng.normal(size=14), action_prob=probabilities)
    found = kind(policy, gamma=0.9).estimate(batch)
    assert found["v_target"] == pytest.approx(found["v_behavior"], rel=1e-5)
    assert found["v_target_std"] == pytest.approx(found["v_behavior_std"], rel=1e-5)
    assert found["effective_sample_size"] == pytest.approx(4, rel=1e-5)


def test_weighted_importance_sampling_of_one_episode_is_its_return():
    batch = {name: column[:3] for name, column in gold_batch().items()}
    found = WeightedImportanceSampling(gold_policy(), gamma=0.9).estimate(batch)
    assert found["v_target"] == pytest.approx(2.62, rel=1e-6) and np.isnan(found["v_target_low"])


def test_weights_of_a_thousand_unlikely_steps_stay_finite():
    log_ratios = np.full(2000, -40.0)
    log_ratios[1000:] = -39.99
    starts = np.array([0, 1000, 2000])
    values, _ = formulas.weighted_importance_sampling(np.ones(2000), log_ratios, starts, 1.0)
    assert np.isfinite(values).all() and values.sum() == pytest.approx(2000)


def test_an_action_that_the_policy_never_takes_ends_an_episodes_weight():
    log_ratios = np.array([0.0, -np.inf, 5.0, 0, 0])
    assert np.exp(formulas.log_cumulative(log_ratios, STARTS)).tolist() == [1, 0, 0, 1, 1]
    values = formulas.importance_sampling(REWARDS, log_ratios, STARTS, 0.9)
    np.testing.assert_allclose(values, [1, 2.7])
    alone, changes = formulas.weighted_importance_sampling(REWARDS[:3], log_ratios[:3], STARTS[:2], 0.9)
    assert alone.tolist() == [1] and np.isfinite(changes).all()


class Exact(QModel):
    """The action values of a table, as a model."""

    table: np.ndarray

    def values(self, observations):
        probabilities = self.target.probabilities(self.target.dist_inputs(observations))
        return (probabilities * self.table[observations]).sum(1)

    def action_values(self, observations, actions):
        return self.table[observations, actions]


# ---------------------------------------------------------------------- the chain with known values

CHAIN_POLICY = np.array([[0.7, 0.3], [0.4, 0.6]])
CHAIN_Q = np.array([[4.5488877393, 1], [5.1357992757, 5]])
CHAIN_V = np.array([3.4842214175, 5.0543197103])
CHAIN_REWARDS = np.array([[0.0, 1], [2, 5]])


def chain_data(behavior, count, seed=0, at_most=100):
    """Episodes of the chain, from state 0, as columns: action 0 goes to the other state, action 1 ends."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(count):
        state = 0
        for step in range(at_most):
            action = int(rng.random() < behavior[state][1])
            is_cut = not action and step + 1 == at_most
            rows.append((state, action, CHAIN_REWARDS[state, action], 1 - state, bool(action), is_cut, number))
            rows[-1] += (behavior[state][action],)
            if action or is_cut:
                break
            state = 1 - state
    names = "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds", "eps_id", "action_prob"
    return sb.SampleBatch({name: np.array(column) for name, column in zip(names, zip(*rows))})


def chain_model(policy):
    model = Exact(policy, 0.9)
    model.table = CHAIN_Q
    return model


def test_doubly_robust_estimates_over_the_exact_model_are_exact():
    """Here each step's outcome is certain, so that the model explains every reward; and it continues cut episodes."""
    policy = tabular_policy(CHAIN_POLICY)
    for at_most in (100, 3):
        batch = chain_data([[0.5, 0.5], [0.5, 0.5]], 20, at_most=at_most)
        estimator = DoublyRobust(policy, gamma=0.9)
        estimator.model = chain_model(policy)
        found = estimator.estimate(batch)
        assert (found["v_target"], found["v_target_std"]) == pytest.approx((CHAIN_V[0], 0), abs=1e-5)
        assert (found["num_truncated"] > 0) == (at_most == 3)


def test_fitted_values_converge_to_those_of_the_chain():
    policy = tabular_policy(CHAIN_POLICY)
    batch = chain_data([[0.5, 0.5], [0.5, 0.5]], 200)
    model = FQETorchModel(policy, gamma=0.9, minibatch_size=32, n_iters=150)
    losses = model.train(batch)
    states = np.array([0, 0, 1, 1])
    found = model.estimate_q({"obs": states, "actions": np.array([0, 1, 0, 1])})
    np.testing.assert_allclose(found, CHAIN_Q.reshape(-1), rtol=0.02)
    np.testing.assert_allclose(model.estimate_v({"obs": np.array([0, 1])}), CHAIN_V, rtol=0.02)
    assert losses[-1] < losses[0]


def test_fitting_ends_when_the_loss_is_small():
    policy, batch = tabular_policy(CHAIN_POLICY), chain_data([[0.5, 0.5], [0.5, 0.5]], 50)
    losses = FQETorchModel(policy, gamma=0.9, min_loss_threshold=0.01).train(batch)
    assert losses[-1] < 0.01 and len(losses) < 44 and min(losses[:-1]) >= 0.01


def test_fitted_values_stay_within_what_rewards_can_sum_up_to():
    """No step here terminates: errors of actions that nobody took would feed themselves."""
    batch = episodes(40, obs=np.zeros(40, int), actions=np.zeros(40, int), rewards=np.ones(40))
    batch["terminateds"][:] = False
    model = FQETorchModel(tabular_policy([[0.5, 0.5]]), gamma=0.9, n_iters=30, lr=0.1)
    model.train(batch)
    assert -1 < model.estimate_q({"obs": np.zeros(1, int), "actions": np.zeros(1, int)})[0] < 11


POLICIES = {"random": [[0.5, 0.5], [0.5, 0.5]], "mixed": [[0.6, 0.4], [0.4, 0.6]], "target": CHAIN_POLICY.tolist()}


@pytest.mark.parametrize("behavior", POLICIES.values(), ids=POLICIES)
def test_all_estimators_find_the_value_of_the_chain(behavior):
    policy, batch = tabular_policy(CHAIN_POLICY), chain_data(behavior, 400)
    short = {"model_config": {"fcnet_hiddens": [32]}, "n_iters": 60}
    methods = {"is": {"type": "is"}, "wis": {"type": "wis", "carried": True}}
    methods |= {name: {"type": name, "q_model_config": short} for name in ("dm", "dr")}
    estimators = make_estimators(methods, policy, 0.9, ActingSettings())
    assert estimators["dm"].model is estimators["dr"].model
    found = estimate_all(estimators, estimators["is"].steps(batch))
    for name, each in found.items():
        error = (each["v_target_high"] - each["v_target_low"]) / 2
        assert abs(each["v_target"] - CHAIN_V[0]) <= max(2 * error, 0.05 * CHAIN_V[0]), name
    assert found["dr"]["v_target_std"] < found["is"]["v_target_std"]
    assert found["dm"]["loss"] == found["dr"]["loss"]


def test_intervals_hold_the_value_as_often_as_they_promise():
    policy, inside = tabular_policy(CHAIN_POLICY), {"is": 0, "wis": 0}
    methods = {"is": {"type": "is"}, "wis": {"type": "wis", "carried": True}}
    estimators = make_estimators(methods, policy, 0.9, ActingSettings())
    for seed in range(100):
        found = estimate_all(estimators, estimators["is"].steps(chain_data(POLICIES["random"], 100, seed)))
        for name, each in found.items():
            inside[name] += each["v_target_low"] <= CHAIN_V[0] <= each["v_target_high"]
    assert min(inside.values()) >= 85


def test_epsilon_mixes_the_policy_with_random_actions():
    policy = tabular_policy([[0.9, 0.1]])
    target = TargetPolicy(policy, 0.2)
    logs = target.log_prob(np.zeros(2, int), np.array([0, 1]), np.array([0, 2]))
    np.testing.assert_allclose(np.exp(logs), [0.82, 0.18], rtol=1e-6)


def test_a_policy_of_action_values_is_greedy():
    policy = with_distribution(tabular_policy([[0.2, 0.5, 0.3]]), QValues(3))
    policy.spec.initialize(policy.layout, policy.weights, np.random.default_rng(1))
    inputs = TargetPolicy(policy).dist_inputs(np.zeros(1, int))
    probabilities = TargetPolicy(policy, 0.3).probabilities(inputs)
    assert probabilities[0].argmax() == inputs[0].argmax()
    np.testing.assert_allclose(np.sort(probabilities[0]), [0.1, 0.1, 0.8])
    estimator = DirectMethod(policy, q_model_config={"type": "ActionValues"})
    assert estimator.train(gold_batch(obs=np.zeros(5, int))) == {}
    found = estimator.estimate(gold_batch(obs=np.zeros(5, int)))
    assert found["v_target"] == pytest.approx(inputs.max(), rel=1e-6) and np.isnan(found["effective_sample_size"])


# ---------------------------------------------------------------------- continuous actions

SPACE = Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))


def continuous_policy(distribution=None):
    policy = Policy(policy_spec(Box(-1, 1, (3,)), SPACE, {"fcnet_hiddens": [8]}), rng=np.random.default_rng(0))
    return policy if distribution is None else with_distribution(policy, distribution)


CONTINUOUS = [DiagGaussian((2,)), SquashedGaussian((2,)), BoundedSquashedGaussian((2,)), BoundedMeanGaussian((2,))]


@pytest.mark.parametrize("units", ["environment", "normalized"])
@pytest.mark.parametrize("distribution", CONTINUOUS, ids=lambda each: each.kind)
def test_densities_are_compared_in_the_same_units(distribution, units):
    """A policy that has recorded itself has weights of 1, in whatever units the densities were written."""
    policy = continuous_policy(distribution)
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (12, 3)).astype(np.float32)
    inputs = policy.dist_inputs(obs)
    normalized = rng.uniform(-0.9, 0.9, (12, 2)).astype(np.float32)
    own = distribution.unit.stored(normalized)
    logs = TargetPolicy(policy).log_prob(obs, own, np.array([0, 12]))
    if not isinstance(distribution, BoundedSquashedGaussian):
        np.testing.assert_allclose(logs, policy.log_prob(inputs, own), rtol=1e-4)
    # Bounds of 4 and 10 are spanned by 2.
    written = logs if units == "normalized" else logs - np.log(2 * 5)
    columns = {"obs": obs, "actions": normalized * [2, 5] + [0, 5], "rewards": np.ones(12), "action_logp": written}
    spaces = {"observation_space": Box(-1, 1, (3,)), "action_space": SPACE}
    dataset = Dataset.from_columns(columns, actions="environment", densities=units, **spaces)
    found = ImportanceSampling(policy, 0.9).estimate(dataset)
    assert found["v_target"] == pytest.approx(found["v_behavior"], rel=1e-4)


def test_densities_of_an_rllib_policy_are_normalized():
    columns = {"obs": np.zeros((3, 1)), "actions": np.zeros((3, 1)), "rewards": np.zeros(3), "action_logp": np.zeros(3)}
    space = {"action_space": Box(-2, 2, (1,))}
    assert Dataset.from_columns(columns, **space).metadata["densities"] == "environment"
    assert Dataset.from_columns(columns, actions="normalized", **space).metadata["densities"] == "normalized"
    of_policy = columns | {"action_dist_inputs": np.zeros((3, 2))}
    assert Dataset.from_columns(of_policy, **space).metadata["densities"] == "normalized"


@pytest.mark.parametrize("distribution", [*CONTINUOUS, Deterministic((2,))], ids=lambda each: each.kind)
def test_values_of_continuous_actions_are_fitted(distribution):
    """Each episode is one step with reward 3 + the first action: the value of a policy is 3 + its mean."""
    policy = continuous_policy(distribution)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-0.9, 0.9, (300, 2)).astype(np.float32)
    own = distribution.unit.stored(actions)
    obs = np.repeat(rng.uniform(-1, 1, (1, 3)), 300, 0).astype(np.float32)
    batch = episodes(*[1] * 300, obs=obs, actions=own, rewards=3 + actions[:, 0])
    estimator = DirectMethod(policy, 0.9, q_model_config={"n_iters": 20, "n_action_samples": 50})
    estimator.train(batch)
    drawn = TargetPolicy(policy).draw(policy.dist_inputs(np.repeat(obs[:1], 4000, 0)), rng)
    expected = 3 + action_rows(distribution, drawn)[:, 0].clip(-3, 3).mean()
    assert estimator.estimate(batch)["v_target"] == pytest.approx(expected, abs=0.35)


def test_rows_of_several_choices_are_one_hot():
    rows = action_rows(MultiCategorical((2, 3)), np.array([[1, 0], [0, 2]]))
    assert rows.tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_a_memory_begins_empty_with_each_episode():
    policy = tabular_policy([[0.5, 0.5]] * 4, {"use_lstm": True, "lstm_cell_size": 4})
    policy.spec.initialize(policy.layout, policy.weights, np.random.default_rng(0))
    obs, starts = np.array([0, 1, 2, 3, 1]), np.array([0, 3, 5])
    together = TargetPolicy(policy).dist_inputs(obs, starts)
    alone = TargetPolicy(policy).dist_inputs(obs[3:], np.array([0, 2]))
    np.testing.assert_allclose(together[3:], alone, rtol=1e-5)
    with pytest.raises(ValueError, match="Use importance sampling"):
        DirectMethod(policy)


# ---------------------------------------------------------------------- held-out episodes


def test_the_distance_from_recorded_actions():
    policy = tabular_policy([[0.8, 0.2]])
    columns = {"obs": np.zeros(4, int), "actions": np.array([0, 0, 1, 0])}
    spaces = {"observation_space": Discrete(1), "action_space": Discrete(2)}
    found = imitation_error(Dataset.from_columns(columns, **spaces), policy, ActingSettings())
    loss = -(3 * np.log(0.8) + np.log(0.2)) / 4
    assert found == pytest.approx({"loss": loss, "accuracy": 0.75, "num_steps": 4, "num_episodes": 1}, rel=1e-6)
    policy = continuous_policy(Deterministic((2,)))
    policy.weights[:] = 0
    columns = {"obs": np.zeros((2, 3)), "actions": np.array([[1.0, 5.0], [-1.0, 5.0]])}
    spaces = {"observation_space": Box(-1, 1, (3,)), "action_space": SPACE}
    found = imitation_error(Dataset.from_columns(columns, **spaces), policy, ActingSettings())
    assert found["loss"] == found["mse"] == pytest.approx(0.125)


# ---------------------------------------------------------------------- what cannot be used


def without(name):
    return {key: column for key, column in gold_batch().items() if key != name}


def changed(name, row, value):
    batch = gold_batch()
    batch[name] = batch[name].astype(float)
    batch[name][row] = value
    return batch


REFUSED = {
    "no probabilities": (without("action_prob"), "neither action_logp nor action_prob.*are actions.*--estimators dm"),
    "impossible": (changed("action_prob", 2, 0.0), r"row 2: action_prob=0 must be above 0.*1 of 5 rows"),
    "above one": (changed("action_prob", 1, 1.5), "row 1: action_prob=1.5 is of a probability above 1"),
    "not a number": (changed("action_prob", 4, np.nan), "row 4: action_prob=nan"),
    "no rewards": (without("rewards"), "has no rewards, from which values are estimated"),
}


@pytest.mark.parametrize(("batch", "message"), REFUSED.values(), ids=REFUSED)
def test_data_that_cannot_be_used_is_refused(batch, message):
    with pytest.raises(ValueError, match=message):
        ImportanceSampling(gold_policy(), 0.9).estimate(batch)


def test_a_deterministic_policy_has_no_probabilities():
    batch = episodes(2, obs=np.zeros((2, 3)), actions=np.zeros((2, 2)), rewards=np.ones(2), action_prob=np.ones(2))
    with pytest.raises(ValueError, match=r"deterministic.*direct method"):
        ImportanceSampling(continuous_policy(Deterministic((2,)))).estimate(batch)


ARGUMENTS = {
    "gamma": (lambda: ImportanceSampling(gold_policy(), gamma=1.5), "gamma=1.5 must be from 0 to 1"),
    "epsilon": (lambda: ImportanceSampling(gold_policy(), epsilon_greedy=-1), "epsilon_greedy=-1 must be from 0 to 1"),
    "continuous epsilon": (lambda: DirectMethod(continuous_policy(), epsilon_greedy=0.1), "of a Discrete space"),
    "polyak": (lambda: FQETorchModel(gold_policy(), 0.9, polyak_coef=0), "polyak_coef=0 must be above 0"),
    "model": (lambda: FQETorchModel(gold_policy(), 0.9, model_config={"layers": []}), "model_config takes fcnet_"),
    "kind": (lambda: DirectMethod(gold_policy(), q_model_config={"type": "os.system"}), "no type 'os.system'"),
    "action values": (lambda: DirectMethod(gold_policy(), q_model_config={"type": "ActionValues"}), "such as DQN's"),
}


@pytest.mark.parametrize(("made", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments_are_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made()


NUMBERS_OF_A_MODEL = {
    **dict.fromkeys(("n_iters", "minibatch_size", "n_action_samples"), (0, -1, 2.5, "3", True, float("nan"))),
    **dict.fromkeys(("lr", "clip_grad_norm"), (0, -1.0, "a", None, True, float("nan"))),
    "polyak_coef": (0, 1.5, "a", None, float("nan")),
    "min_loss_threshold": ("a", None, float("nan")),
    "seed": (-1, 0.5, "a", None),
    "fcnet_hiddens": ([0], [-1], [2.5], [True], 16, "16"),
}


@pytest.mark.parametrize("name", NUMBERS_OF_A_MODEL)
def test_wrong_numbers_of_a_model_are_named(name):
    for value in NUMBERS_OF_A_MODEL[name]:
        given = {"model_config": {name: value}} if name == "fcnet_hiddens" else {name: value}
        with pytest.raises(ValueError, match=rf"{name}=.* must be "):
            DirectMethod(gold_policy(), q_model_config=given)


@pytest.mark.parametrize("kind", [FQETorchModel, "ActionValues"])
def test_an_unknown_argument_of_a_model_is_named(kind):
    with pytest.raises(ValueError, match=r"takes .*, not 'n_iter'"):
        DirectMethod(gold_policy(), q_model_config={"type": kind, "n_iter": 3})


class Own(OffPolicyEstimator):
    """An estimator of the user's."""

    def episode_values(self, steps):
        raise NotImplementedError


def test_settings_of_estimators_are_checked():
    assert methods_problem({"a": {"type": Own}, "b": {"type": "ImportanceSampling", "epsilon_greedy": 0.1}}) is None
    assert "Did you mean wis?" in methods_problem({"a": {"type": "wiss"}})
    assert "must be {'type': ESTIMATOR" in methods_problem({"a": "is"})
    assert "Did you mean epsilon_greedy?" in methods_problem({"a": {"type": "is", "epsilon_greed": 0}})
    assert "q_model_config" in methods_problem({"a": {"type": "is", "q_model_config": {}}})
