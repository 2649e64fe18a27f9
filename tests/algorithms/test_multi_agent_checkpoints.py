"""Checkpoints of runs with several policies: round trips, parts of them, and code of the user's."""

import functools
import json

import numpy as np
import pytest

from rllib import Algorithm, Policy, PPOConfig, load_policy
from rllib.env import register_env
from rllib.env.multi_agent import make_multi_agent
from rllib.errors import CheckpointError
from rllib.hand_written import RandomPolicy
from rllib.policies import PolicySpec
from rllib.storage.checkpoint import read_checkpoint, write_checkpoint

TWO = {"policies": {"p0", "p1"}, "policy_mapping_fn": {"0": "p0", "*": "p1"}}


@pytest.fixture(autouse=True)
def _environment():
    register_env("two_poles", lambda config: make_multi_agent("CartPole-v1")(config))


def by_number(agent_id, *args, **kwargs):
    return f"p{agent_id}"


def configured(**multi_agent):
    config = (
        PPOConfig()
        .environment("two_poles", env_config={"num_agents": 2})
        .rollouts(num_rollout_workers=0)
        .training(train_batch_size=40, sgd_minibatch_size=40, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
        .debugging(seed=1)
    )
    return config.multi_agent(**multi_agent)


def build(**multi_agent):
    return configured(**multi_agent).build()


def saved(path, **multi_agent):
    with build(**multi_agent) as algo:
        algo.train()
        return algo.save(path), algo.get_weights(), algo.metrics.get_state()


SPECS = {"p0": PolicySpec(config={"lr": 1e-4}), "p1": None}


@pytest.mark.parametrize(
    "multi_agent",
    [{"policies": "own"}, {"policies": "shared"}, {}, TWO, {**TWO, "policies": SPECS, "policies_to_train": ["p0"]}],
    ids=["own", "shared", "default", "table", "specs"],
)
def test_a_run_comes_back_without_code(tmp_path, multi_agent):
    path, weights, metrics = saved(tmp_path / "checkpoint", **multi_agent)
    with Algorithm.from_checkpoint(path) as algo:
        for policy_id, vector in algo.get_weights().items():
            assert np.array_equal(vector, weights[policy_id])
        assert algo.metrics.get_state() == metrics
        assert set(algo.learners) == set(multi_agent.get("policies_to_train", weights))
        with_learner = {file.parent.name for file in path.glob("policies/*/learner.safetensors")}
        assert with_learner == set(algo.learners)
        assert algo.train()["num_agent_steps_sampled"] > 40


def test_a_restored_run_goes_on_as_the_saved_one(tmp_path):
    path, _, _ = saved(tmp_path / "checkpoint", **TWO)
    with build(**TWO) as algo, Algorithm.from_checkpoint(path) as other:
        algo.restore(path)
        algo.train()
        other.train()
        for policy_id, weights in algo.get_weights().items():
            assert np.array_equal(weights, other.get_weights()[policy_id])


def test_specs_are_specs_again(tmp_path):
    path, _, _ = saved(tmp_path / "checkpoint", **{**TWO, "policies": SPECS})
    with Algorithm.from_checkpoint(path) as algo:
        assert algo.config.policies == SPECS
        assert algo.config_of("p0").lr == 1e-4


class Still:
    """A policy of the user's that is written by hand."""

    def __init__(self, observation_space, action_space, config):
        pass

    def compute_actions(self, observations, state_batches=None, **kwargs):
        return [0] * len(observations)


@pytest.mark.parametrize("as_spec", [True, False])
def test_policies_that_are_written_by_hand(tmp_path, as_spec):
    def policies(acts):
        return {"p0": None, "p1": PolicySpec(acts) if as_spec else acts}

    path, weights, _ = saved(tmp_path / "library", **{**TWO, "policies": policies(RandomPolicy)})
    assert weights.keys() == {"p0"} == {each.name for each in (path / "policies").iterdir()}
    with Algorithm.from_checkpoint(path) as algo:
        assert algo.config.policies == policies(RandomPolicy)
        algo.train()
    path, _, _ = saved(tmp_path / "own", **{**TWO, "policies": policies(Still)})
    with pytest.raises(CheckpointError, match=r"holds code of yours.*policies\['p1'\].*overrides="):
        Algorithm.from_checkpoint(path)
    with Algorithm.from_checkpoint(path, load_user_code=True) as algo:
        algo.train()


@pytest.mark.parametrize(
    ("name", "value", "given"),
    [("policy_mapping_fn", lambda agent_id, *args, **kwargs: f"p{agent_id}", by_number),
     ("policies_to_train", lambda policy_id, batch: policy_id == "p0", ["p0"])],
)  # fmt: skip
def test_functions_are_code_of_the_users(tmp_path, name, value, given):
    path, weights, _ = saved(tmp_path / "checkpoint", **{**TWO, name: value})
    with pytest.raises(CheckpointError, match=rf"holds code of yours.*{name}.*from_checkpoint\(path, {name}=\.\.\.\)"):
        Algorithm.from_checkpoint(path)
    for how in ({"load_user_code": True}, {name: given}):
        with Algorithm.from_checkpoint(path, **how) as algo:
            assert np.array_equal(algo.get_weights()["p1"], weights["p1"])
            algo.train()


def test_some_policies_of_a_checkpoint_are_taken(tmp_path):
    path, weights, _ = saved(tmp_path / "checkpoint", **TWO, policies_to_train=["p0"])
    with Algorithm.from_checkpoint(path, policy_ids=["p0"], policy_mapping_fn="p0") as algo:
        assert algo.policies.keys() == {"p0"} == algo.learners.keys()
        assert np.array_equal(algo.get_weights()["p0"], weights["p0"])
        algo.train()
    with Algorithm.from_checkpoint(path, {"multi_agent": {"policy_mapping_fn": "p0"}}, policy_ids=["p0"]) as algo:
        assert algo.policies.keys() == {"p0"}
    with Algorithm.from_checkpoint(path, policies_to_train=["p1"]) as algo:  # which has no learner there
        algo.train()
        assert np.array_equal(algo.get_weights()["p0"], weights["p0"])
        assert not np.array_equal(algo.get_weights()["p1"], weights["p1"])
    with pytest.raises(CheckpointError, match=r"policy_ids names 'p2', but the checkpoint .* has p0, p1"):
        Algorithm.from_checkpoint(path, policy_ids=["p2"])
    with build(policies="own") as algo, pytest.raises(ValueError, match="has no policy '0'; it has p0, p1"):
        algo.restore(path)


def test_what_is_counted_by_policy_is_of_the_policies_of_the_run(tmp_path):
    """Those that are not taken from a checkpoint count as removed; one that gets their id begins at 0."""
    path, _, _ = saved(tmp_path / "checkpoint", **TWO)
    with Algorithm.from_checkpoint(path, policy_ids=["p0"], policy_mapping_fn="p0") as algo:
        before = algo.metrics.removed["num_steps_sampled"]
        result = algo.train()
        counted = result["policy_steps_sampled"]
        assert counted.keys() == {"p0"} and before > 0
        assert counted["p0"] + before == result["num_agent_steps_sampled"]
        algo.add_policy("p1", policy_mapping_fn={"0": "p0", "*": "p1"})
        result = algo.train()
        assert result["policy_steps_sampled"]["p1"] == result["policy_steps_sampled_this_iter"]["p1"] > 0


def test_some_policies_are_taken_as_they_were(tmp_path):
    """With the settings of those that were added, and frozen where they were; hand-written ones as well."""
    with build(**TWO) as algo:
        algo.add_policy("fast", config={"lr": 0.25, "model": {"fcnet_hiddens": [8]}})
        algo.add_policy("random", RandomPolicy, policies_to_train=["fast"])
        algo.remove_policy("p1", policy_mapping_fn={"0": "p0", "*": "random"})
        algo.add_policy("p1", config={"gamma": 0.5}, policy_mapping_fn={"0": "p1", "*": "fast"})
        path = algo.save(tmp_path)
    taken = functools.partial(Algorithm.from_checkpoint, path)
    with taken(policy_ids=["fast", "p1"]) as algo:
        assert (algo.config_of("fast").lr, algo.config_of("p1").gamma) == (0.25, 0.5)
        assert list(algo.learners) == ["fast"]
        algo.train()
    with taken(policy_ids=["p0", "random"], policy_mapping_fn={"0": "p0", "*": "random"}) as algo:
        assert algo.agents.specs.keys() == {"p0", "random"}
        algo.train()
    with pytest.raises(CheckpointError, match=r"leaves out 'p1', which the saved policy_mapping_fn names"):
        taken(policy_ids=["fast"])
    with pytest.raises(CheckpointError, match="policy_ids=3 must be ids of policies; there are fast, p0, p1, random"):
        taken(policy_ids=3)


def test_weights_of_some_policies_are_given_and_set():
    with build(**TWO) as algo:
        before = algo.get_weights()
        assert algo.get_weights(["p1"]).keys() == {"p1"}
        with pytest.raises(ValueError, match="there is no policy 'p2'; this algorithm has p0, p1"):
            algo.get_weights(["p2"])
        algo.set_weights({"p1": before["p1"] + 1})
        assert np.array_equal(algo.get_weights()["p0"], before["p0"])
        assert np.array_equal(algo.get_weights()["p1"], before["p1"] + 1)
        with pytest.raises(ValueError, match="there is no policy 'p2'; this algorithm has p0, p1"):
            algo.set_weights({"p0": before["p0"] + 1, "p2": before["p1"]})
        assert np.array_equal(algo.get_weights()["p0"], before["p0"])


def test_policies_are_loaded_alone(tmp_path):
    path, weights, _ = saved(tmp_path / "checkpoint", **TWO)
    policies = Policy.from_checkpoint(path)
    assert policies.keys() == {"p0", "p1"} and np.array_equal(policies["p1"].weights, weights["p1"])
    alone = Policy.from_checkpoint(path / "policies" / "p1")
    assert np.array_equal(alone.weights, weights["p1"])
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        Policy.from_checkpoint(path / "policies" / "p2")
    policy = load_policy(path, "p1")
    assert policy.policy_id == "p1" and policy.compute_single_action(np.zeros(4, np.float32)) in (0, 1)
    with pytest.raises(CheckpointError, match=r"has no policy 'default_policy'; it has p0, p1"):
        load_policy(path)
    path, weights, _ = saved(tmp_path / "shared", policies="shared")
    assert np.array_equal(load_policy(path).policy.weights, weights["shared"])


def swapped(agent_id, *args, **kwargs):
    return "p1" if str(agent_id) == "0" else "p0"


class TestChangesOfARun:
    """What was changed while the run went on is in its checkpoints."""

    def test_a_table(self, tmp_path):
        with build(**TWO) as algo:
            algo.set_policy_mapping_fn({"0": "p1", "*": "p0"})
            path = algo.save(tmp_path / "checkpoint")
            with build(**TWO) as other:
                other.restore(path)
                assert [other.agents.mapping(agent, None) for agent in (0, 1)] == ["p1", "p0"]
        with Algorithm.from_checkpoint(path) as algo:
            assert [algo.agents.mapping(agent, None) for agent in (0, 1)] == ["p1", "p0"]
            again = algo.save(tmp_path / "again")
        with Algorithm.from_checkpoint(again, policy_mapping_fn="p0") as algo:
            assert [algo.agents.mapping(agent, None) for agent in (0, 1)] == ["p0", "p0"]

    @pytest.mark.parametrize("function", [swapped, lambda agent_id, *args, **kwargs: swapped(agent_id)])
    def test_a_function_is_code(self, tmp_path, caplog, function):
        with build(**TWO) as algo:
            algo.set_policy_mapping_fn(function)
            path = algo.save(tmp_path / "checkpoint")
        with pytest.raises(CheckpointError, match=r"holds code of yours.*policy_mapping_fn \(.*fn=\.\.\."):
            Algorithm.from_checkpoint(path)
        with Algorithm.from_checkpoint(path, load_user_code=True) as algo:
            assert [algo.agents.mapping(agent, None) for agent in (0, 1)] == ["p1", "p0"]
        with Algorithm.from_checkpoint(path, policy_mapping_fn=swapped) as algo:
            assert algo.agents.mapping.function is swapped
        with build(**TWO) as algo:
            algo.restore(path)
            assert [algo.agents.mapping(agent, None) for agent in (0, 1)] == ["p0", "p1"]
        assert "has changed policy_mapping_fn to code of yours, which restore() does not load" in caplog.text

    def test_policies_that_learn_and_that_have_come_and_gone(self, tmp_path):
        with build(**TWO) as algo:
            algo.set_policies_to_train(["p1"])
            algo.add_policy("random", RandomPolicy)
            algo.add_policy("fast", config={"lr": 0.25, "model": {"fcnet_hiddens": [8]}})
            algo.remove_policy("p0", policy_mapping_fn={"0": "fast", "*": "random"}, policies_to_train=["fast"])
            algo.train()
            path, weights = algo.save(tmp_path / "checkpoint"), algo.get_weights()
        with Algorithm.from_checkpoint(path) as algo:
            assert algo.agents.specs.keys() == {"p1", "random", "fast"} and list(algo.learners) == ["fast"]
            assert algo.config_of("fast").lr == 0.25
            assert [algo.agents.mapping(agent, None) for agent in (0, 1)] == ["fast", "random"]
            np.testing.assert_array_equal(algo.get_weights()["fast"], weights["fast"])
            algo.train()
            assert not np.array_equal(algo.get_weights()["fast"], weights["fast"])

    def test_a_run_without_changes_has_none(self, tmp_path):
        path, _, _ = saved(tmp_path / "checkpoint", **TWO)
        assert json.loads((path / "algorithm.json").read_text())["agents"] == {}

    def test_earlier_checkpoints_have_the_ids_of_added_policies(self, tmp_path):
        with build(policies=["p0"], policies_to_train=["p0"]) as algo:
            algo.add_policy("p1", policies_to_train=["p0"])
            algo.train()
            path, weights = algo.save(tmp_path / "checkpoint"), algo.get_weights()
        tree = read_checkpoint(path, load_user_code=True)
        tree["algorithm.json"] |= {"added_policies": ["p1"]}
        del tree["algorithm.json"]["agents"]
        with Algorithm.from_checkpoint(write_checkpoint(tmp_path / "earlier", tree)) as algo:
            assert list(algo.learners) == ["p0"]
            np.testing.assert_array_equal(algo.get_weights()["p1"], weights["p1"])


@pytest.mark.parametrize("place", ["policies", "of_policies"])
def test_a_policy_is_taken_with_a_network_of_its_own(tmp_path, place):
    models = {"p0": {"fcnet_hiddens": [2]}, "p1": {"fcnet_hiddens": [3]}}
    own = {each: PolicySpec(config={"model": model}) for each, model in models.items()} if place == "policies" else TWO
    config = configured(policies=own.get("policies", own), policy_mapping_fn=TWO["policy_mapping_fn"])
    if place == "of_policies":
        config.training(model={"fcnet_hiddens": [4], "of_policies": models})
    with config.build() as algo:
        path, weights = algo.save(tmp_path), algo.get_weights()
    for policy_id in models:
        with Algorithm.from_checkpoint(path, policy_ids=[policy_id], policy_mapping_fn=policy_id) as algo:
            np.testing.assert_array_equal(algo.get_policy(policy_id).weights, weights[policy_id])
            algo.train()
