"""Policies that are added, removed, frozen and mapped anew while a run goes on; and a league on a real algorithm."""

import contextlib
import copy
import operator
from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import DefaultCallbacks
from rllib.algorithms.a2c import A2CConfig
from rllib.algorithms.apex import ApexDQNConfig
from rllib.algorithms.appo import APPOConfig
from rllib.algorithms.crossq import CrossQConfig
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.impala import IMPALAConfig
from rllib.algorithms.league import Every, League
from rllib.algorithms.pg import PGConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.algorithms.pqn import PQNConfig
from rllib.algorithms.r2d2 import R2D2Config
from rllib.algorithms.sac import SACConfig
from rllib.algorithms.td3 import TD3Config
from rllib.algorithms.trpo import TRPOConfig
from rllib.env.external import ExternalMultiAgentEnv
from rllib.env.external.exchange import EpisodeLost, RunEnded
from rllib.env.multi_agent import MultiAgentEnv, make_multi_agent
from rllib.policies import HandWrittenPolicy, PolicySpec, RandomPolicy
from rllib.policy import Policy
from tests.config.probes import messages
from tests.generated.worlds import Worlds

pytestmark = pytest.mark.usefixtures("workers_know_the_module")


class Poles(make_multi_agent("CartPole-v1")):
    def __init__(self, config=None):
        super().__init__({"num_agents": 2})


def poles(workers=0, **multi_agent):
    return (
        PPOConfig()
        .environment(Poles)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=2)
        .multi_agent(**multi_agent)
        .training(train_batch_size=128, sgd_minibatch_size=64, num_sgd_iter=2, model={"fcnet_hiddens": [16]})
        .debugging(seed=1, log_sys_usage=False)
    )


def first_and(second):
    def policy_of(agent, episode, worker, **kwargs):
        return "main" if agent == 0 else second

    return policy_of


@pytest.mark.parametrize("workers", [0, 2])
def test_a_frozen_copy_is_added_and_removed(workers):
    config = poles(workers, policies=["main"], policies_to_train=["main"])
    with config.build() as algo:
        algo.train()
        state = algo.get_policy("main").get_state()
        copy = algo.add_policy("main_v1", policy_state=state, policy_mapping_fn=first_and("main_v1"))
        np.testing.assert_array_equal(copy.weights, state["weights"])
        for _ in range(3):
            result = algo.train()
        assert set(result["policy_reward_mean"]) == {"main", "main_v1"}
        assert list(algo.learners) == ["main"]
        np.testing.assert_array_equal(algo.get_policy("main_v1").weights, state["weights"])
        assert not np.array_equal(algo.get_policy("main").weights, state["weights"])
        assert set(algo.evaluate(2)["policy_reward_mean"]) == {"main", "main_v1"}
        with pytest.raises(ValueError, match="'main_v1', but there are main"):
            algo.remove_policy("main_v1")
        algo.remove_policy("main_v1", policy_mapping_fn="main")
        algo.train()
        assert set(algo.policies) == {"main"}
        with pytest.raises(KeyError, match="remove_policy names 'main_v1'"):
            algo.remove_policy("main_v1")


def test_a_copy_has_the_settings_of_the_policy_that_it_is_a_copy_of():
    """Its loss has to fit to its network."""
    policies = {"main": PolicySpec(config={"num_atoms": 5, "v_min": 0.0, "v_max": 9.0}), "other": PolicySpec()}
    config = DQNConfig().environment(Poles).rollouts(num_rollout_workers=0).reporting(min_time_s_per_iteration=0)
    config.training(num_steps_sampled_before_learning_starts=20, train_batch_size=16, model={"fcnet_hiddens": [8]})
    with config.multi_agent(policies=policies, policy_mapping_fn=first_and("other")).build() as algo:
        algo.add_policy("copy", policy=algo.get_policy("main"), policy_mapping_fn=first_and("copy"))
        assert algo.config_of("copy").num_atoms == 5
        while not algo.train()["info"]["learner"].get("copy"):
            pass
        lower = algo.add_policy(
            "lower", policy=algo.get_policy("main"), config={"lr": 1e-5}, policy_mapping_fn=first_and("lower")
        )
        assert lower.config.num_atoms == 5 and lower.config.lr == 1e-5
        with pytest.raises(ValueError, match=r"cannot learn, .*num_atoms is 5, settings ask for 1"):
            algo.add_policy("mine", policy=copy.deepcopy(lower), policies_to_train=["mine"])
        plain = {"num_atoms": 1}
        algo.add_policy("plain", config=plain, policy_mapping_fn=first_and("plain"))
        assert algo.config_of("plain").num_atoms == 1


def several_poles(config_class, **own):
    """A run in which the policy "main" differs from the run in these settings."""
    config = config_class().environment(Poles).rollouts(num_rollout_workers=0).reporting(min_time_s_per_iteration=0)
    if config_class is DQNConfig:
        config.training(num_steps_sampled_before_learning_starts=20, train_batch_size=16)
    else:
        config.training(train_batch_size=32, sgd_minibatch_size=16, num_sgd_iter=1)
    config.training(model={"fcnet_hiddens": [8]})
    policies = {"main": PolicySpec(config=own), "other": PolicySpec()}
    return config.multi_agent(policies=policies, policy_mapping_fn=first_and("other"))


C51 = {"num_atoms": 5, "v_min": 0.0, "v_max": 9.0}
OTHER_NETWORKS = {
    "ends of the support": (DQNConfig, C51, {"v_min": -9.0}),
    "atoms": (DQNConfig, C51, {"num_atoms": 1}),
    "quantiles instead of as many atoms": (DQNConfig, C51, {"num_atoms": 1, "num_quantiles": 5}),
    "levels": (DQNConfig, {"num_quantiles": 5}, {"implicit_quantiles": True}),
    "no levels": (DQNConfig, {"num_quantiles": 5, "implicit_quantiles": True}, {"implicit_quantiles": False}),
    "noise": (DQNConfig, {}, {"noisy": True}),
    "value": (DQNConfig, {}, {"dueling": False}),
    "layers": (DQNConfig, {}, {"model": {"fcnet_hiddens": [4]}}),
    "activation": (PPOConfig, {}, {"model": {"fcnet_activation": "relu"}}),
    "memory": (PPOConfig, {}, {"model": {"use_lstm": True, "lstm_cell_size": 4}}),
    "no memory": (PPOConfig, {"model": {"use_lstm": True, "lstm_cell_size": 4}}, {"model": {"use_lstm": False}}),
    "layers of a policy's own": (
        PPOConfig,
        {"model": {"fcnet_hiddens": [6], "fcnet_activation": "relu"}},
        {"model": {"fcnet_hiddens": [5]}},
    ),
    "filter": (PPOConfig, {}, {"observation_filter": "MeanStdFilter"}),
    "a section": (PPOConfig, {}, {"rollouts": {"observation_filter": "MeanStdFilter"}}),
}


@pytest.mark.parametrize(("config_class", "own", "given"), OTHER_NETWORKS.values(), ids=OTHER_NETWORKS)
def test_settings_that_a_copied_network_does_not_have_are_refused(config_class, own, given):
    """Else they would have no effect, or a loss could not read the network."""
    with several_poles(config_class, **own).build() as algo:
        main = algo.get_policy("main")
        asks = r"add_policy\('copy', policy=..., config=...\): the network of the given policy is kept, but config asks"
        for to_train in (None, ["main"]):
            with pytest.raises(ValueError, match=asks):
                algo.add_policy("copy", policy=main, config=given, policies_to_train=to_train)
        assert set(algo.policies) == {"main", "other"}
        parts = [{"model": {name: value}} for name, value in own.get("model", {}).items()]  # of the policy's own dict
        for number, part in enumerate(parts):
            copied = algo.add_policy(f"copy_{number}", policy=main, config=part, policies_to_train=["main"])
            assert copied.config.model == main.config.model
        lr = config_class().training(lr=0.3)
        learns = algo.add_policy("object", policy=main, config=lr, policies_to_train=["main"])
        assert learns.config.lr == 0.3
        assert all(learns.config[name] == main.config[name] for name in own)
        # Settings that say what the network is are none of another one.
        algo.add_policy("copy", policy=main, config={**own, "lr": 1e-5}, policy_mapping_fn=first_and("copy"))
        for _ in range(3):
            algo.train()


WAYS_TO_LEARN = {
    "added": lambda algo, ids: algo.add_policy("new", policies_to_train=ids),
    "set": lambda algo, ids: algo.set_policies_to_train(ids),
    "removed": lambda algo, ids: algo.remove_policy("spare", policies_to_train=ids),
    "all": lambda algo, ids: algo.set_policies_to_train(None),
    "asked": lambda algo, ids: algo.set_policies_to_train(lambda policy_id, batch=None: policy_id in ids),
    "asked with a batch": lambda algo, ids: algo.set_policies_to_train(lambda policy_id, batch: len(batch) > 0),
}


@pytest.mark.parametrize("learns", WAYS_TO_LEARN.values(), ids=WAYS_TO_LEARN)
@pytest.mark.parametrize(
    ("config_class", "own", "differs"),
    [(DQNConfig, C51, "num_atoms"), (PPOConfig, {"model": {"use_lstm": True, "lstm_cell_size": 4}}, "memory")],
)
def test_a_frozen_policy_learns_only_if_its_network_fits_its_settings(config_class, own, differs, learns):
    """A policy that is not the run's has no settings here: the run's are not those of its network."""
    with several_poles(config_class, **own).build() as algo:
        algo.set_policies_to_train(["main"])
        algo.add_policy("spare", policies_to_train=["main"])
        foreign = copy.deepcopy(algo.get_policy("main"))
        mapping = first_and("foreign")
        algo.add_policy("foreign", policy=foreign, policy_mapping_fn=mapping, policies_to_train=["main"])
        algo.train()
        with pytest.raises(ValueError, match=rf"policy 'foreign' cannot learn, since .*{differs} is"):
            learns(algo, ["main", "foreign"])
        assert set(algo.trainees) == {"main"}
        algo.set_policies_to_train(lambda policy_id, batch=None: policy_id == "main")  # which leaves it out
        algo.train()
        algo.add_policy("fits", policy=foreign, config=own, policy_mapping_fn=first_and("fits"))
        algo.set_policies_to_train(["main", "fits"])
        for _ in range(3):
            algo.train()
        assert set(algo.trainees) == {"main", "fits"}


def test_a_copy_is_added_by_the_class_of_the_policy_and_filled_later():
    """Programs of RLlib for self-play are written so."""
    with poles(policies=["main"], policies_to_train=["main"]).build() as algo:
        main = algo.get_policy("main")
        copy = algo.add_policy("copy", policy_cls=type(main), policy_mapping_fn=first_and("copy"))
        copy.set_state(main.get_state())
        algo.workers.sync_weights()
        weights = main.weights.copy()
        algo.train()
        for held in algo.workers.foreach_worker(lambda worker: worker.policies["copy"].weights):
            np.testing.assert_array_equal(held, weights)


def test_a_policy_of_its_own_settings_is_added_and_learns():
    with poles(policies=["main"]).build() as algo:
        algo.train()
        made = algo.add_policy("other", config={"lr": 0.01, "model": {"fcnet_hiddens": [8]}})
        algo.set_policy_mapping_fn(first_and("other"))
        before = made.weights.copy()
        for _ in range(4):
            result = algo.train()
        assert not np.array_equal(made.weights, before)
        assert result["info"]["learner"]["other"]["learner_stats"]["cur_lr"] == 0.01
        algo.set_policies_to_train(["main"])
        frozen = made.weights.copy()
        algo.train()
        np.testing.assert_array_equal(made.weights, frozen)
        assert list(algo.learners) == ["main"]


def test_a_hand_written_policy_is_added():
    with poles(policies=["main"]).build() as algo:
        assert algo.add_policy("random", RandomPolicy, policy_mapping_fn=first_and("random")) is None
        for _ in range(3):
            result = algo.train()
        assert set(result["policy_reward_mean"]) == {"main", "random"}


class Counting(HandWrittenPolicy):
    """Takes actions 0, 1, 0, 1, ... of each agent."""

    def get_initial_state(self):
        return [np.zeros(1)]

    def compute_actions(self, observations, state_batches=None, **kwargs):
        return (state_batches[0][:, 0] % 2).astype(int).tolist(), [state_batches[0] + 1], {}


def test_hand_written_policies_have_rays_names():
    policies = {"main": None, "counts": PolicySpec(Counting)}
    config = poles(policies=policies, policy_mapping_fn={"0": "main", "*": "counts"})
    with config.build() as algo:
        worker, counts = algo.workers.local_worker(), algo.get_policy("counts")
        assert set(worker.policy_map) == {"main", "counts"} and worker.get_weights().keys() == {"main"}
        assert isinstance(counts, Counting) and isinstance(worker.get_policy("counts"), Counting)
        assert algo.get_policy("counts") is counts and algo.policies.keys() == {"main"}
        observation, state = np.zeros(4, np.float32), counts.get_initial_state()
        for expected in (0, 1, 0):
            action, state, _ = algo.compute_single_action(observation, state, agent_id=1, full_fetch=True)
            assert action == expected
        both = algo.compute_actions({0: observation, 1: observation})
        assert both.keys() == {0, 1} and both[1] == 0
        with pytest.raises(KeyError, match="no policy 'none'; this algorithm has main"):
            algo.get_policy("none")
        with pytest.raises(KeyError, match="no policy 'counts'"):
            algo.set_weights({"counts": np.zeros(3)})


def test_a_run_with_one_agent_has_one_policy():
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    with config.build() as algo, pytest.raises(ValueError, match="this run's environment has one agent"):
        algo.add_policy("other")


def test_an_id_is_taken_once():
    with poles(policies=["main"]).build() as algo:
        with pytest.raises(ValueError, match="there is a policy 'main' already"):
            algo.add_policy("main")
        with pytest.raises(ValueError, match="name of a directory"):
            algo.add_policy("a/b")


def test_added_policies_are_in_checkpoints(tmp_path):
    with poles(policies=["main"], policies_to_train=["main"]).build() as algo:
        own = {"model": {"fcnet_hiddens": [4]}}
        algo.add_policy("small", config=own, policy_mapping_fn={"0": "main", "1": "small"})
        algo.train()
        weights = algo.get_weights()
        algo.save(tmp_path)
    with PPOConfig.algo_class.from_checkpoint(tmp_path) as again:
        assert again.get_weights().keys() == weights.keys()
        for policy_id, vector in weights.items():
            np.testing.assert_array_equal(again.get_policy(policy_id).weights, vector)
        assert list(again.learners) == ["main"]
        again.train()


def second_acts_by_added(agent, episode, worker, **kwargs):
    return "main" if agent == 0 else "added"


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {"policy_mapping_fn": second_acts_by_added},
        {"policy_mapping_fn": {"0": "main", "1": "added"}},
        {"policies_to_train": ["added"]},
        {"policy_mapping_fn": first_and("added"), "policies_to_train": ["added"]},
    ],
    ids=["function", "table", "trained", "both"],
)
def test_settings_given_for_a_checkpoint_name_the_policies_that_it_has(tmp_path, given, is_removed):
    with poles(policies=["main", "other"], policy_mapping_fn={"0": "main", "1": "other"}).build() as algo:
        algo.add_policy("added", config={"lr": 0.1}, policy_mapping_fn={"0": "main", "1": "added"})
        algo.train()
        if is_removed:
            algo.remove_policy("other")
        weights = algo.get_weights()
        algo.save(tmp_path)
    with PPOConfig.algo_class.from_checkpoint(tmp_path, **given) as again:
        assert again.get_weights().keys() == weights.keys()
        for policy_id, vector in weights.items():
            np.testing.assert_array_equal(again.get_policy(policy_id).weights, vector)
        assert again.config_of("added").lr == 0.1
        learned = again.train()["info"]["learner"].keys()
        assert learned == ({"added"} if "policies_to_train" in given else {"main", "added"})


def league_config():
    league = League(main="main", opponents=["random"], snapshot_when=Every(iterations=2), max_size=2)
    return (
        PPOConfig()
        .environment("rllib.env.tasks.tic_tac_toe:TicTacToe")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=4)
        .multi_agent(
            policies={"main": PolicySpec(), "random": PolicySpec(RandomPolicy)},
            policy_mapping_fn=league.mapping,
            policies_to_train=["main"],
        )
        .callbacks(league)
        .training(train_batch_size=256, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [16]})
        .debugging(seed=1, log_sys_usage=False)
    )


def test_a_league_adds_copies_of_the_policy_that_learns():
    with league_config().build() as algo:
        sizes = [algo.train()["custom_metrics"]["league"]["size"] for _ in range(7)]
        assert sizes == [1, 2, 2, 3, 3, 3, 3]
        assert set(algo.policies) == {"main", "main_v2", "main_v3"}  # the oldest copy has left
        weights = [algo.get_policy(name).weights for name in ("main", "main_v2", "main_v3")]
        assert not np.array_equal(weights[1], weights[2])
        algo.train()
        result = algo.train()
        assert result["custom_metrics"]["league"]["elo"].keys() == {"main", "random", "main_v3", "main_v4"}
        assert result["custom_metrics"]["league"]["win_rate_vs_latest"] <= 1


def test_a_league_goes_on_from_a_checkpoint(tmp_path):
    with league_config().build() as algo:
        for _ in range(4):
            result = algo.train()
        algo.save(tmp_path)
    with PPOConfig.algo_class.from_checkpoint(tmp_path) as again:
        assert set(again.policies) == {"main", "main_v1", "main_v2"}
        found = again.train()["custom_metrics"]["league"]
        assert found["size"] == result["custom_metrics"]["league"]["size"] == 3
        assert found["elo"].keys() == {"main", "random", "main_v1", "main_v2"}


@pytest.mark.parametrize(("width", "between"), [(16, 0), (8, 1)], ids=["alike, at once", "other, later"])
def test_an_id_that_is_used_again_is_another_policy(monkeypatch, width, between):
    """Also where the episodes of the first one go on: those of CartPole have more steps than a fragment of 4."""
    acted, act = [], Policy.act
    monkeypatch.setattr(Policy, "act", lambda self, *args: acted.append(self) or act(self, *args))
    mapping, without = {"0": "main", "1": "x"}, {"0": "main", "1": "y"}
    config = poles(policies=["main", "x", "y"], policy_mapping_fn=mapping, policies_to_train=["main"])
    config.rollouts(rollout_fragment_length=4).training(train_batch_size=8, sgd_minibatch_size=8)
    with config.build() as algo:
        algo.train()
        worker = algo.workers.local_worker()
        old = worker.get_policy("x")
        assert old in acted
        algo.remove_policy("x", policy_mapping_fn=without)
        for _ in range(between):
            algo.train()
        assert worker.get_policy("x") is old  # whose episode goes on
        new = algo.add_policy("x", config={"model": {"fcnet_hiddens": [width]}}, policy_mapping_fn=mapping)
        acted.clear()
        algo.train()
        assert worker.get_policy("x") in acted and old not in acted
        np.testing.assert_array_equal(worker.get_policy("x").weights, new.weights)
        algo.evaluate(1)
        algo.remove_policy("x", policy_mapping_fn=without)
        algo.add_policy("x", RandomPolicy, policy_mapping_fn=mapping)
        algo.train()
        algo.evaluate(1)
        assert isinstance(worker.get_policy("x"), RandomPolicy) and isinstance(algo.get_policy("x"), RandomPolicy)


def test_numbers_of_policies_are_given_once():
    with poles(policies=["main", "x"], policy_mapping_fn={"*": "main"}).build() as algo:
        before = dict(algo.agents.settings.numbers)
        algo.remove_policy("x")
        algo.add_policy("x")
        assert algo.agents.settings.numbers["x"] not in before.values()


def test_a_local_worker_beside_remote_ones_is_asked_after_policies_have_changed():
    with poles(1, policies=["main"]).build() as algo:
        workers, policies = algo.workers, operator.attrgetter("policies")
        workers.local_worker()
        algo.add_policy("copy", policy_mapping_fn=first_and("copy"))
        local, remote = workers.foreach_worker(lambda worker: sorted(policies(worker)))
        assert local == remote == ["copy", "main"]
        weights = workers.foreach_policy(lambda policy, policy_id: (policy_id, policy.weights.tolist()))
        assert dict(weights[:2]) == {each: policy.weights.tolist() for each, policy in algo.policies.items()}


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_asked_of_policies_that_learn_is_asked_of_no_others(workers):
    policies = {"main": None, "frozen": None, "random": PolicySpec(RandomPolicy)}
    mapping = {"0": "main", "1": "random"}
    config = poles(workers, policies=policies, policy_mapping_fn=mapping, policies_to_train=["main"])
    with config.build() as algo:
        name = operator.methodcaller("foreach_policy_to_train", lambda policy, policy_id: policy_id)
        for trained in (["main"], ["main", "frozen"], ["frozen"]):
            algo.set_policies_to_train(trained)
            assert sorted(set(name(algo.workers))) == sorted(trained)
            assert sorted(set(algo.workers.foreach_trainable_policy(lambda _, policy_id: policy_id))) == sorted(trained)
            assert sorted(name(algo.workers.local_worker())) == sorted(trained)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"0": "main"}, "the agent '0', but there are 0, 1"), ({2: "main"}, "2"), ({0: "mian"}, "Did you mean 'main'")],
)
def test_slots_of_a_player_that_there_are_not_are_refused(given, message):
    with poles(policies=["main", "x"], policy_mapping_fn={"0": "x", "1": "main"}).build() as algo:
        with pytest.raises(ValueError, match=message):
            algo.make_player(policies=given)
        assert algo.make_player(policies={0: "main"}).policy_for(0) == "main"


# ------------------------------------------------------------------ what is kept by the id of a policy


class Steps(MultiAgentEnv):
    """Observations are the number of steps; an episode has 10."""

    possible_agents, observation_space = ("a", "b"), Box(0, 10, (1,))

    def __init__(self, config):
        self.action_space = Box(-1, 1, (1,)) if config["continuous"] else Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return {agent: np.zeros(1, np.float32) for agent in "ab"}, {}

    def step(self, action_dict):
        self.time += 1
        seen = {agent: np.array([self.time], np.float32) for agent in "ab"}
        rewards = {agent: float(np.sum(action)) for agent, action in action_dict.items()}
        return seen, rewards, {"__all__": self.time == 10}, {"__all__": False}, {}


ON_POLICY = {"train_batch_size": 40}
EPOCHS = {**ON_POLICY, "sgd_minibatch_size": 20, "num_sgd_iter": 1}
REPLAY = {
    "train_batch_size": 16, "num_steps_sampled_before_learning_starts": 20, "store_buffer_in_checkpoints": True,
    "replay_buffer_config": {"capacity": 1000},
}  # fmt: skip
RND = {"type": "RND", "embed_dim": 4, "num_sgd_iter": 1, "sgd_minibatch_size": 20}
CURIOSITY = {"type": "Curiosity", "feature_dim": 4, "num_sgd_iter": 1, "sgd_minibatch_size": 20}
FOLLOWS_KL = {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}
KINDS = {
    "PG": (PGConfig, ON_POLICY, {}),
    "A2C with RND": (A2CConfig, ON_POLICY, {"exploration_config": RND}),
    "PPO": (PPOConfig, EPOCHS, {}),
    "PPO with RND": (PPOConfig, EPOCHS, {"exploration_config": RND}),
    "PPO with Curiosity": (PPOConfig, EPOCHS, {"exploration_config": CURIOSITY}),
    "PPO whose rate follows the KL": (PPOConfig, {**EPOCHS, "lr": FOLLOWS_KL}, {}),
    "PPO with scaled returns": (PPOConfig, EPOCHS, {"normalize_returns": True}),
    "TRPO with RND": (TRPOConfig, {**ON_POLICY, "sgd_minibatch_size": 20}, {"exploration_config": RND}),
    "IMPALA": (IMPALAConfig, ON_POLICY, {}),
    "APPO": (APPOConfig, ON_POLICY, {}),
    "PQN": (PQNConfig, EPOCHS, {}),
    "DQN": (DQNConfig, REPLAY, {}),
    "DQN with noise in its weights": (DQNConfig, {**REPLAY, "noisy": True}, {}),
    "DQN with perturbed weights": (DQNConfig, REPLAY, {"exploration_config": {"type": "ParameterNoise"}}),
    "R2D2": (R2D2Config, {**REPLAY, "training_intensity": 1, "model": {"use_lstm": True, "lstm_cell_size": 4}}, {}),
    "SAC with scaled rewards": (SACConfig, {**REPLAY, "scale_rewards": True}, {}),
    "TD3": (TD3Config, REPLAY, {}),
    "CrossQ": (CrossQConfig, REPLAY, {}),
}
CONTINUOUS = (SACConfig, TD3Config, CrossQConfig)


def changing(name):
    config_class, training, others = KINDS[name] if isinstance(name, str) else name
    config = config_class().environment(Steps, env_config={"continuous": config_class in CONTINUOUS})
    config.environment(**{key: value for key, value in others.items() if key == "normalize_returns"})
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=1, rollout_fragment_length=20)
    config.multi_agent(policies=["p", "z"], policy_mapping_fn={"a": "p", "b": "z"})
    if "exploration_config" in others:
        config.exploration(exploration_config=others["exploration_config"])
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=40)
    model = {"fcnet_hiddens": [8], **training.get("model", {})}
    return config.training(**{**training, "model": model}).debugging(seed=1).build()


def all_weights(algo):
    return {policy_id: policy.weights.tolist() for policy_id, policy in algo.policies.items()}


@pytest.mark.parametrize("name", KINDS)
def test_policies_that_come_later_learn_and_their_run_goes_on_exactly(name, tmp_path):
    """One is added, one is removed, and another one with its id follows; "p" has another number of agents meanwhile."""
    with changing(name) as algo:
        algo.train()
        algo.add_policy("new", policy_mapping_fn={"a": "p", "b": "new"})
        before = all_weights(algo)
        algo.train()
        algo.train()
        assert all_weights(algo)["new"] != before["new"]
        algo.remove_policy("new", policy_mapping_fn="p")
        algo.remove_policy("z")
        algo.train()
        algo.add_policy("z", policy_mapping_fn={"a": "p", "b": "z"}, config={"lr": 0.002})
        algo.train()
        assert sorted(algo.train()["info"]["learner"]) == ["p", "z"]
        path = algo.save(tmp_path)
        with type(algo).from_checkpoint(path) as restored:
            assert restored.agents.settings.numbers == algo.agents.settings.numbers
            assert all_weights(restored) == all_weights(algo)
            for each in (algo, restored):
                each.train()
            if name not in ("IMPALA", "APPO"):  # rows that wait for a train batch are not in checkpoints
                assert all_weights(restored) == all_weights(algo)
            # Numbers of policies, which key their random streams, go on as well.
            made = [each.add_policy("later").weights.tolist() for each in (algo, restored)]
            assert made[0] == made[1]


@pytest.mark.parametrize("name", KINDS)
def test_a_frozen_policy_acts_and_learns_after_a_restore(name, tmp_path):
    """Its learner, its temperature and what its networks normalise by are in no checkpoint meanwhile."""
    with changing(name) as algo:
        algo.train()
        algo.set_policies_to_train(["p"])
        frozen = all_weights(algo)["z"]
        algo.train()
        assert all_weights(algo)["z"] == frozen
        path = algo.save(tmp_path)
    with type(algo).from_checkpoint(path, policies_to_train=["p", "z"]) as again:
        assert all_weights(again)["z"] == frozen
        again.train()
        again.train()
        assert all_weights(again)["z"] != frozen


@pytest.mark.parametrize("name", ["DQN", "R2D2", "TD3", "Ape-X"])
def test_ratios_are_of_the_steps_in_which_a_policy_learned(name, tmp_path):
    """Of policies that are added, frozen and thawed, and of a run that is restored with an empty replay."""
    config_class, training, others = {**KINDS, "Ape-X": ON_THE_WAY["Ape-X"]}[name]
    training = {**training, "training_intensity": 4, "store_buffer_in_checkpoints": False}
    if name == "Ape-X":
        training["num_replay_buffer_shards"] = 1

    lost = 0.0  # updates that the policy which was frozen still owed

    def check(algo, *policies):
        for _ in range(8):
            result = algo.train()
        for policy_id in policies:
            told = result["info/learner"][policy_id]["learner_stats"]["updates_per_step_sampled"]
            made, owed = algo.metrics.num_updates(policy_id), algo.trainees[policy_id].updates_owed
            owed += lost if policy_id == "p" else 0
            assert told * (1 + owed / made) == pytest.approx(4 / 16, rel=1e-6), policy_id

    with changing((config_class, training, others)) as algo:
        check(algo, "p", "z")
        algo.add_policy("new", policy_mapping_fn={"a": "p", "b": "new"}, policies_to_train=["p", "new"])
        check(algo, "p", "new")
        lost = algo.trainees["p"].updates_owed
        algo.set_policies_to_train(["new"])
        algo.train()
        algo.set_policies_to_train(["p", "new"])
        check(algo, "p", "new")
        path = algo.save(tmp_path)
    with type(algo).from_checkpoint(path) as again:
        check(again, "p", "new")


ON_THE_WAY = {
    "IMPALA": (IMPALAConfig, ON_POLICY, {}),
    "DQN that samples ahead": (DQNConfig, REPLAY, {"sample_async": True}),
    "Ape-X": (ApexDQNConfig, REPLAY, {}),
}


def test_what_a_policy_that_learns_again_has_lost_is_told():
    with changing("SAC with scaled rewards") as algo, messages() as logged:
        algo.train()
        algo.set_policies_to_train(["p"])
        algo.add_policy("new", policy_mapping_fn={"a": "p", "b": "new"}, policies_to_train=["p", "new"])
        algo.train()
        assert not any("learn again" in line for line in logged.lines)
        algo.set_policies_to_train(["p", "z"])
        assert [line for line in logged.lines if "were kept of policies that learn again (z): optimizer" in line]


FILTERED, SCALED = {"observation_filter": "MeanStdFilter"}, {"normalize_returns": True}


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("IMPALA", FILTERED),
        ("IMPALA", SCALED),
        ("DQN that samples ahead", FILTERED),
        ("DQN that samples ahead", {}),
        ("Ape-X", FILTERED),
    ],
)
def test_samples_on_the_way_are_of_the_policy_that_acted(name, seen):
    """A policy is removed while its last fragments arrive; then another one has its id, and another network."""
    config_class, training, rollouts = ON_THE_WAY[name]
    config = config_class().environment(Steps, env_config={"continuous": False})
    if "normalize_returns" in seen:
        config.environment(**seen)
    else:
        config.rollouts(**seen)
    config.rollouts(num_rollout_workers=1, rollout_fragment_length=20, **rollouts)
    config.multi_agent(policies=["p", "z"], policy_mapping_fn={"a": "p", "b": "z"})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=40)
    with config.training(**training, model={"fcnet_hiddens": [8]}).build() as algo:
        algo.train()
        algo.remove_policy("z", policy_mapping_fn="p")
        algo.train()
        algo.add_policy("z", policy_mapping_fn={"a": "p", "b": "z"})
        algo.train()
        algo.remove_policy("z", policy_mapping_fn="p")
        new = algo.add_policy("z", policy_mapping_fn={"b": "p", "a": "z"}, config={"model": {"fcnet_hiddens": [4]}})
        if name == "DQN that samples ahead":  # the next fragment was asked for before
            algo.training_step()
            assert len(algo.replays["z"]) == 0
            assert "observation_filter" not in seen or new.filter.get_state()["count"] == 0
        for _ in range(4):
            result = algo.train()
        assert result["info"]["learner"].keys() == {"p", "z"}


@pytest.mark.parametrize("name", ["TD3", "TD3 with Random", "SAC with scaled rewards", "DQN", "PPO"])
def test_a_policy_of_several_workers_is_frozen(name):
    """Workers that act in batches of one shape have buffers for its noise, which is another one from then on."""
    config_class, training, _ = KINDS[name.removesuffix(" with Random")]
    config = config_class().environment(Steps, env_config={"continuous": config_class in CONTINUOUS})
    config.rollouts(num_rollout_workers=2, rollout_fragment_length=20)
    config.multi_agent(policies=["p", "z"], policy_mapping_fn={"a": "p", "b": "z"})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=40).debugging(seed=1)
    if "Random" in name:
        config.exploration(exploration_config={"type": "Random"})
    with config.training(**training, model={"fcnet_hiddens": [8]}).build() as algo:
        for trained in (["p", "z"], ["p"], ["p", "z"]):
            algo.set_policies_to_train(trained)
            assert sorted(algo.train()["info"]["learner"]) == trained


class Hears(DefaultCallbacks):
    heard: ClassVar[set] = set()

    def on_postprocess_trajectory(self, *, policy_id, postprocessed_batch, original_batches, **kwargs):
        Hears.heard.add(policy_id)
        assert postprocessed_batch.count > 0 and all(batch.count > 0 for _, _, batch in original_batches.values())


@pytest.mark.parametrize("name", ["PPO", "DQN", "R2D2"])
def test_hooks_hear_of_rows_that_are_learned_from_after_a_removal(name):
    """The episode under way goes on with the policy that was removed."""
    config_class, training, _ = KINDS[name]
    in_turn = {"observation": "numbers", "action": "choice", "length": 8, "agents": 3, "style": "turns"}
    config = config_class().environment(Worlds, env_config=in_turn).callbacks(Hears)
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=2, num_envs_per_worker=3)
    config.multi_agent(policies=["p"], policy_mapping_fn="p")
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=2)
    model = {"fcnet_hiddens": [8], **training.get("model", {})}
    with config.training(**{**training, "model": model}).build() as algo:
        algo.train()
        algo.add_policy("z", policy_mapping_fn={"agent_0": "p", "*": "z"})
        for _ in range(5):
            algo.train()
        algo.remove_policy("z", policy_mapping_fn="p")
        Hears.heard.clear()
        for _ in range(4):
            algo.train()
        assert Hears.heard == {"p"}


@pytest.mark.parametrize("as_function", [True, False])
def test_hooks_get_rows_of_frozen_policies_or_a_warning_tells_how(as_function, caplog):
    trained = (lambda policy_id, batch: policy_id == "p") if as_function else ["p"]
    config = poles(policies=["p", "z"], policy_mapping_fn={"0": "p", "1": "z"}, policies_to_train=trained)
    Hears.heard.clear()
    with config.callbacks(Hears).build() as algo:
        weights = algo.get_policy("z").weights.copy()
        algo.train()
        np.testing.assert_array_equal(algo.get_policy("z").weights, weights)
    assert Hears.heard == ({"p", "z"} if as_function else {"p"})
    assert ("gets no rows of policies that do not learn (z)" in caplog.text) is not as_function


class Loop(ExternalMultiAgentEnv):
    """Two agents in a loop of its own; episodes that are lost are begun again."""

    def __init__(self, config):
        super().__init__(Discrete(2), Box(-1, 1, (2,), np.float32))
        self.lost = 0

    def run(self):
        seen = dict.fromkeys("ab", np.zeros(2, np.float32))
        with contextlib.suppress(RunEnded):
            while True:
                try:
                    episode = self.start_episode()
                    for _ in range(7):
                        self.get_action(episode, seen)
                        self.log_returns(episode, dict.fromkeys("ab", 1.0))
                    self.end_episode(episode, seen)
                except EpisodeLost:
                    self.lost += 1


@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_loops_of_their_own_go_on_after_changes(name, batch_mode):
    """Episodes under way are lost where they have to begin anew: the loop alone begins them."""
    config_class, training, _ = KINDS[name]
    config = config_class().environment(Loop).rollouts(num_rollout_workers=0, rollout_fragment_length=8)
    config.rollouts(batch_mode=batch_mode).multi_agent(policies=["p", "z"], policy_mapping_fn={"a": "p", "b": "z"})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=24).debugging(seed=1)
    with config.training(**training, model={"fcnet_hiddens": [8]}).build() as algo:
        (env,) = algo.workers.local_worker().stream.environments
        algo.train()
        for change in (
            lambda: algo.set_policies_to_train(["p"]),
            lambda: algo.add_policy("new", policy_mapping_fn={"a": "p", "b": "new"}, policies_to_train=["p", "new"]),
            lambda: algo.set_policies_to_train(["p", "new", "z"]),
            lambda: algo.remove_policy("new", policy_mapping_fn={"a": "p", "b": "z"}),
            lambda: algo.add_policy("new", policy_mapping_fn={"a": "new", "b": "z"}),
            lambda: algo.set_policies_to_train(["z"]),
        ):
            change()
            result = [algo.train() for _ in range(3)][-1]
            assert result["info"]["learner"].keys() <= set(algo.learners)
        assert result["episodes_this_iter"] and result["episode_len_mean"] == 7
        assert result["episode_reward_mean"] == 14
        assert (env.lost > 0) == (batch_mode == "truncate_episodes")  # else none is under way


def test_an_iteration_waits_for_no_training_where_unknown_agents_learn_nothing():
    """Who acts shows in the episodes alone: of these agents, none by the policy that learns."""
    config_class, training, _ = KINDS["DQN"]
    config = config_class().environment(Loop).rollouts(num_rollout_workers=0)
    config.multi_agent(policies=["p", "z"], policy_mapping_fn="p", policies_to_train=["z"])
    config.reporting(min_time_s_per_iteration=0, min_train_timesteps_per_iteration=1)
    with config.training(**training, model={"fcnet_hiddens": [8]}).build() as algo:
        result = algo.train()
        assert result["num_agent_steps_trained"] == 0 and result["episodes_this_iter"] >= 32
        algo.set_policies_to_train(["p"])
        assert algo.train()["num_agent_steps_trained"] > 0


def test_returns_of_a_policy_that_was_frozen_meanwhile_are_dropped():
    """Its fragment was asked for before."""
    config_class, training, _ = KINDS["SAC with scaled rewards"]
    config = config_class().environment(Steps, env_config={"continuous": True})
    config.rollouts(num_rollout_workers=1, rollout_fragment_length=20, sample_async=True)
    config.multi_agent(policies=["p", "z"], policy_mapping_fn={"a": "p", "b": "z"})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=40)
    with config.training(**training, model={"fcnet_hiddens": [8]}).build() as algo:
        algo.train()
        for trained in (["p"], ["p", "z"], ["z"]):
            algo.set_policies_to_train(trained)
            assert sorted(algo.train()["info"]["learner"]) == trained


@pytest.mark.parametrize("name", ["PPO", "SAC with scaled rewards"])
def test_a_run_from_which_a_policy_was_removed_goes_on_exactly(name, tmp_path):
    with changing(name) as algo:
        algo.train()
        algo.remove_policy("z", policy_mapping_fn="p")
        path = algo.save(tmp_path / "before its episodes are over")
        with type(algo).from_checkpoint(path) as restored:
            assert list(restored.policies) == ["p"]
        algo.train()
        with type(algo).from_checkpoint(algo.save(tmp_path / "then")) as restored:
            for each in (algo, restored):
                each.train()
            assert all_weights(restored) == all_weights(algo)


def test_a_policy_that_cannot_learn_is_refused_and_the_run_goes_on():
    with changing("PPO with RND") as algo:
        with pytest.raises(ValueError, match="memory"):
            algo.add_policy("new", config={"model": {"use_lstm": True}})
        with pytest.raises(ValueError, match="all policies of a run learn from intrinsic rewards or none"):
            algo.add_policy("new", config={"exploration_config": {"type": "StochasticSampling"}})
        assert sorted(algo.policies) == sorted(algo.learners) == ["p", "z"]
        algo.add_policy("new", policy_mapping_fn={"a": "p", "b": "new"})
        algo.train()


def test_intrinsic_rewards_of_one_policy_alone_are_refused():
    config = poles(policies={"main": PolicySpec(config={"exploration_config": RND}), "z": None})
    with pytest.raises(ValueError, match="'main' explores by RND and the run by StochasticSampling"):
        config.multi_agent(policy_mapping_fn=first_and("z")).build()


# ------------------------------------------------------------------ restores at any time, and wrong arguments


def ids_and_counts(algo):
    agents, counts = algo.agents, {each: dict(of) for each, of in algo.metrics.policies.items() if of.total()}
    mapping = [agents.mapping(agent, None) for agent in agents.environment.agents]
    return list(algo.policies), sorted(algo.trainees), mapping, dict(agents.settings.numbers), counts


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_goes_back_to_what_it_was(workers, tmp_path):
    """Whatever has been changed since, restore() and from_checkpoint() go on in the same way."""
    with poles(workers, policies=["p", "z"], policy_mapping_fn={"0": "p", "1": "z"}).build() as algo:
        algo.train()
        paths = {"first": algo.save(tmp_path / "first")}
        algo.set_policies_to_train(["p"])
        algo.train()
        paths["frozen"] = algo.save(tmp_path / "frozen")
        algo.add_policy("random", RandomPolicy, policy_mapping_fn={"0": "p", "1": "random"})
        algo.train()
        paths["by hand"] = algo.save(tmp_path / "by hand")
        for policy_id in ("p", "z"):  # all that the run began with are others now
            algo.remove_policy(policy_id, policy_mapping_fn="random" if policy_id == "p" else {"0": "p", "1": "random"})
            algo.add_policy(policy_id, policy_mapping_fn={"0": policy_id, "1": "random"}, policies_to_train=None)
        algo.set_policy_mapping_fn({"0": "p", "1": "z"})
        algo.remove_policy("random", policies_to_train=["p", "z"])
        algo.train()
        paths["others"] = algo.save(tmp_path / "others")
        for path in (paths[name] for name in ("others", "first", "by hand", "frozen", "others")):
            algo.restore(path)
            with type(algo).from_checkpoint(path) as other:
                assert ids_and_counts(algo) == ids_and_counts(other)
                for each in (algo, other):
                    each.train()
                assert all_weights(algo) == all_weights(other)


def test_a_hand_written_policy_is_restored_among_agents_of_other_spaces(tmp_path):
    with Mixed.config().build() as algo:
        algo.add_policy("random", RandomPolicy, policy_mapping_fn={"a": "random", "b": "b"})
        algo.add_policy("c", policy_mapping_fn={"a": "c", "b": "b"})  # and "random" acts no more
        with type(algo).from_checkpoint(algo.save(tmp_path)) as other:
            assert ids_and_counts(algo) == ids_and_counts(other)
            other.train()


class Mixed(Steps):
    """Observations of "b" have two numbers."""

    observation_space = None

    def __init__(self, config):
        self.action_space = None
        self.observation_spaces = {"a": Box(0, 10, (1,)), "b": Box(0, 10, (2,))}
        self.action_spaces = {"a": Discrete(2), "b": Discrete(2)}

    @staticmethod
    def seen(both):
        return {"a": both["a"], "b": np.repeat(both["b"], 2)}

    def reset(self, *, seed=None, options=None):
        seen, infos = super().reset(seed=seed)
        return self.seen(seen), infos

    def step(self, action_dict):
        seen, *others = super().step(action_dict)
        return self.seen(seen), *others

    @classmethod
    def config(cls):
        return poles(policies="own").environment(cls)


def test_a_policy_acts_for_agents_of_its_spaces_alone():
    with Mixed.config().build() as algo:
        unfit = r"policy '.' has the observation space Box.*\(2,\).*, but agent 'a'.*\(1,\)"
        with pytest.raises(ValueError, match=unfit):
            algo.set_policy_mapping_fn("b")
        with pytest.raises(ValueError, match=unfit):
            algo.add_policy("c", policy=algo.get_policy("b"), policy_mapping_fn={"a": "c", "b": "b"})
        algo.train()
    spec = PolicySpec(observation_space=Box(0, 1, (2,)), action_space=Discrete(2))
    with pytest.raises(ValueError, match=unfit):
        Mixed.config().multi_agent(policies={"a": spec, "b": None}).build()


def test_all_policies_are_thawed():
    with poles(policies=["p", "z"], policy_mapping_fn={"0": "p", "1": "z"}, policies_to_train=["p"]).build() as algo:
        algo.set_policies_to_train(None)
        assert sorted(algo.trainees) == ["p", "z"]


def test_a_change_that_fails_changes_nothing(monkeypatch):
    with poles(policies=["p", "z"], policy_mapping_fn={"0": "p", "1": "z"}, policies_to_train=["p"]).build() as algo:
        begin = type(algo).begin_training

        def fail(self, policy_id):
            begin(self, policy_id)
            raise MemoryError

        monkeypatch.setattr(type(algo), "begin_training", fail)
        before, learner = ids_and_counts(algo), algo.learner
        for change in (
            lambda: algo.set_policies_to_train(["z"]),
            lambda: algo.add_policy("new", policies_to_train=["new"]),
            lambda: algo.remove_policy("p", policy_mapping_fn="z", policies_to_train=["z"]),
        ):
            with pytest.raises(MemoryError):
                change()
            assert ids_and_counts(algo) == before and algo.agents.to_train == ["p"] and algo.learner is learner
        algo.train()


def test_counts_of_a_removed_policy_are_not_those_of_the_next_one(tmp_path):
    with poles(policies=["p", "z"], policy_mapping_fn={"0": "p", "1": "z"}).build() as algo:
        before = algo.train()
        algo.remove_policy("z", policy_mapping_fn="p")
        result = algo.train()
        assert result["policy_steps_sampled"].keys() == {"p"}
        algo.add_policy("z", policy_mapping_fn={"0": "p", "1": "z"})
        assert algo.metrics.num_updates("z") == 0
        after = algo.train()
        now = after["info"]["learner"]["z"]
        assert now["num_agent_steps_trained_lifetime"] == now["num_agent_steps_trained"]
        total = after["num_agent_steps_sampled"]
        assert total == sum(after["policy_steps_sampled"].values()) + before["policy_steps_sampled"]["z"]
        with type(algo).from_checkpoint(algo.save(tmp_path)) as other:
            assert other.train()["num_agent_steps_trained"] > total


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"policy": 3}, "policy=3.*must be a Policy"),
        ({"policy_cls": 3}, "policy_class=3 of policy 'new' must be a class or an object with compute_actions"),
        ({"policy_cls": int}, "must be a class or an object with compute_actions"),
        ({"policy_state": 3}, "policy_state=3.*must be what Policy.get_state"),
        ({"config": 3}, "config=3 of policy 'new' must be a dict"),
        ({"policies_to_train": 3}, "policies_to_train=3 must be ids of policies, a function"),
    ],
)
def test_wrong_arguments_of_a_new_policy_are_told(given, says):
    with poles(policies=["main"]).build() as algo:
        with pytest.raises(ValueError, match=says):
            algo.add_policy("new", **given)
        assert list(algo.policies) == list(algo.trainees) == ["main"]


class Crowd(MultiAgentEnv):
    """Agents that are not known before: two, and after four steps twelve more. Nothing ends before 40 steps."""

    observation_space, action_space = Box(0, 40, (1,)), Discrete(2)

    def seen(self):
        return {f"a{i}": np.array([self.time], np.float32) for i in range(2 if self.time < 4 else 14)}

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.seen(), {}

    def step(self, action_dict):
        self.time += 1
        return self.seen(), dict.fromkeys(action_dict, 1.0), {"__all__": self.time >= 40}, {"__all__": False}, {}


def test_lanes_grow_while_a_removed_policy_still_acts():
    config = poles(policies=["p", "y", "z"], policy_mapping_fn={"a0": "z", "*": "p"}).environment(Crowd)
    config.rollouts(num_envs_per_worker=1, rollout_fragment_length=3)
    with config.training(train_batch_size=3, sgd_minibatch_size=3).build() as algo:
        algo.train()
        algo.remove_policy("z", policy_mapping_fn={"a0": "y", "*": "p"})
        algo.train()
        assert set(algo.train()["info"]["learner"]) == {"p", "y"}
