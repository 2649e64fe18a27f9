"""Runs that have to be equal: one agent and a single one, workers and none, names and orders of agents."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.algorithms.ppo import PPOConfig
from rllib.env.multi_agent import MultiAgentEnv, make_multi_agent
from rllib.evaluation import seeding
from rllib.policies import HeuristicPolicy, PolicySpec, RandomPolicy
from tests.multi_agent import NameTheSignal

NETWORK = {"fcnet_hiddens": [16]}


def ppo(env, workers=0, envs=4, **multi_agent):
    return (
        PPOConfig()
        .environment(env)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs)
        .multi_agent(**multi_agent)
        .training(train_batch_size=256, sgd_minibatch_size=64, num_sgd_iter=2, model=NETWORK)
        .debugging(seed=7)
    )


def trained(config, iterations=3):
    with config.build() as algo:
        results = [algo.train() for _ in range(iterations)]
        return {policy_id: policy.weights.copy() for policy_id, policy in algo.policies.items()}, results[-1]


def test_one_agent_is_the_run_of_a_single_one_to_the_bit():
    alone, of_alone = trained(ppo("CartPole-v1"))
    one, of_one = trained(ppo(make_multi_agent("CartPole-v1")))
    np.testing.assert_array_equal(one["default_policy"], alone["default_policy"])
    assert of_one["episode_reward_mean"] == of_alone["episode_reward_mean"]
    assert of_one["episode_len_mean"] == of_alone["episode_len_mean"]


SMALL = {"train_batch_size": 40}
FALLING = [[0, 1e-2], [60, 1e-4]]
OF_ALGORITHMS = {
    "PPO": {"train_batch_size": 40, "sgd_minibatch_size": 20, "clip_param": FALLING},
    "A2C": SMALL,
    "PG": SMALL,
    "IMPALA": SMALL,
    "APPO": {**SMALL, "clip_param": FALLING},
    "DQN": {"train_batch_size": 8, "num_steps_sampled_before_learning_starts": 20},
    "R2D2": {"train_batch_size": 8, "num_steps_sampled_before_learning_starts": 20, "training_intensity": 1.0},
}


@pytest.mark.parametrize("name", OF_ALGORITHMS)
def test_schedules_are_read_at_the_same_steps_with_one_agent_and_a_single_one(name):
    """Also the first value, at step 0."""
    memory = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4} if name == "R2D2" else {}
    runs = []
    for env in ("CartPole-v1", make_multi_agent("CartPole-v1")):
        config = get_algorithm_config(name).environment(env).debugging(seed=7)
        config.rollouts(num_rollout_workers=0, rollout_fragment_length=20).training(lr=FALLING, **OF_ALGORITHMS[name])
        config.training(model={"fcnet_hiddens": [8], **memory})
        config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=40)
        runs.append(trained(config, 2)[0]["default_policy"])
    np.testing.assert_array_equal(*runs)


def two_poles():
    class TwoPoles(make_multi_agent("CartPole-v1")):
        def __init__(self, config=None):
            super().__init__({"num_agents": 2})

    return TwoPoles


@pytest.mark.parametrize("policies", ["own", "shared"])
def test_workers_change_no_bit(policies):
    splits = [(0, 4), (1, 4), (2, 2)]
    runs = [trained(ppo(two_poles(), workers, envs, policies=policies), 2) for workers, envs in splits]
    first, of_first = runs[0]
    for weights, result in runs[1:]:
        for policy_id, vector in weights.items():
            np.testing.assert_array_equal(vector, first[policy_id])
        assert result["policy_reward_mean"] == of_first["policy_reward_mean"]


@pytest.mark.parametrize("opponent", [RandomPolicy, HeuristicPolicy(lambda seen, rng: int(rng.integers(2)))])
def test_draws_of_hand_written_policies_do_not_depend_on_workers(opponent):
    policies = {"learns": PolicySpec(), "random": PolicySpec(opponent)}

    def returns(workers, envs):
        config = ppo(two_poles(), workers, envs, policies=policies)
        config.multi_agent(policy_mapping_fn=lambda agent, *_, **__: "random" if agent else "learns")
        _, result = trained(config, 2)
        return result["policy_reward_mean"]

    first = returns(0, 4)
    assert first == returns(1, 4) == returns(2, 2)


class Walk(MultiAgentEnv):
    """Agents step to the left or right; each is rewarded for its own place. Their names and their order may change."""

    observation_space, action_space = spaces.Box(-20, 20, (1,), np.float32), spaces.Discrete(2)
    names, reverses, has_watcher = ("a", "b"), False, False

    def __init__(self, config=None):
        self.possible_agents = [*self.names, *(["watcher"] if self.has_watcher else [])]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.places = 0, dict(zip(self.names, self.np_random.integers(-3, 4, 2).tolist()))
        return self._seen(), {}

    def _seen(self):
        items = list(self.places.items())
        return {name: np.array([place], np.float32) for name, place in (reversed(items) if self.reverses else items)}

    def step(self, action_dict):
        self.time += 1
        for name, action in action_dict.items():
            self.places[name] += 1 if action else -1
        rewards = {name: -abs(place) / 10 for name, place in self.places.items()}
        if self.has_watcher:
            rewards["watcher"] = 1.0
        over = {"__all__": self.time == 10}
        return self._seen(), rewards, over, {"__all__": False}, {}


def variant(**attributes):
    return type("Walk", (Walk,), attributes)


def test_orders_of_dicts_names_and_watchers_change_nothing():
    first, _ = trained(ppo(Walk, policies="shared"))
    for attributes in ({"reverses": True}, {"names": ("x", "y")}):
        other, _ = trained(ppo(variant(**attributes), policies="shared"))
        np.testing.assert_array_equal(other["shared"], first["shared"], err_msg=str(attributes))
    # An agent that is rewarded and never acts changes no row. It has a slot, so that products round otherwise.
    first, _ = trained(ppo(Walk, policies="shared"), 1)
    other, result = trained(ppo(variant(has_watcher=True), policies="shared"), 1)
    np.testing.assert_allclose(other["shared"], first["shared"], atol=1e-5)
    assert result["policy_reward_mean"].keys() == {"shared"}


def test_policies_that_do_not_learn_never_change():
    config = ppo(two_poles(), policies="own", policies_to_train=["0"])
    with config.build() as algo:
        before = algo.get_weights()
        algo.train()
        after = algo.get_weights()
        np.testing.assert_array_equal(after["1"], before["1"])
        assert not np.array_equal(after["0"], before["0"])
        assert list(algo.learners) == ["0"]


class UnequalLives(MultiAgentEnv):
    """X has a reward of 1 and ends after one step; Y has two steps, with the rewards 0 and 1."""

    possible_agents = ("X", "Y")
    observation_space, action_space = spaces.Box(0, 3, (3,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        eye = np.eye(3, dtype=np.float32)
        return {"X": eye[0], "Y": eye[1]}, {}

    def step(self, action_dict):
        self.time += 1
        if self.time == 1:
            last = np.eye(3, dtype=np.float32)[2]
            return {"Y": last}, {"X": 1.0, "Y": 0.0}, {"X": True, "__all__": False}, {"__all__": False}, {}
        return {}, {"Y": 1.0}, {"__all__": True}, {"__all__": False}, {}


def test_values_are_those_of_each_agents_own_time():
    config = (
        PPOConfig()
        .environment(UnequalLives)
        .rollouts(num_rollout_workers=0, num_envs_per_worker=4)
        .multi_agent(policies="own")
        .training(gamma=0.9, lr=0.02, train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=4, vf_clip_param=None)
        .training(model={"fcnet_hiddens": []})
        .debugging(seed=1, log_sys_usage=False)
    )
    eye = np.eye(3, dtype=np.float32)
    with config.build() as algo:
        for _ in range(60):
            algo.train()
        assert algo.get_policy("X").values(eye[:1])[0] == pytest.approx(1, abs=0.02)
        assert algo.get_policy("Y").values(eye[1:]).tolist() == pytest.approx([0.9, 1], abs=0.02)


class Drift(gymnasium.Env):
    """Episodes of 5 steps on a line, from a start that the environment's random numbers choose; 0 is best."""

    observation_space, action_space = spaces.Box(-20, 20, (1,), np.float32), spaces.Discrete(2)

    def __init__(self, config=None):
        self.place, self.time = 0.0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = float(self.np_random.normal()), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place += (1 if action else -1) + self.np_random.normal() / 10
        self.time += 1
        return np.array([self.place], np.float32), -abs(self.place), self.time == 5, False, {}


def of_drifts(agents, envs=1, **multi_agent):
    """A run whose agents, in all environments together, have 240 rows an iteration."""
    env = make_multi_agent(Drift) if agents else Drift
    config = ppo(env, envs=envs, **multi_agent).environment(env_config={"num_agents": agents} if agents else {})
    config.training(train_batch_size=240 // (agents or 1), sgd_minibatch_size=60)
    return config.exploration(explore=False).reporting(metrics_num_episodes_for_smoothing=1000)


def test_copies_that_share_a_policy_are_the_run_of_as_many_environments(monkeypatch):
    # The agents of one environment have successive seeds.
    monkeypatch.setattr(seeding, "environment_seed", lambda seed, stream, index, incarnation=0: 100 + index)
    alone, of_alone = trained(of_drifts(0, envs=3))
    copies, of_copies = trained(of_drifts(3))
    # The probabilities of the actions come from products of other sizes, and so are rounded otherwise.
    np.testing.assert_allclose(copies["default_policy"], alone["default_policy"], atol=1e-4)
    assert of_copies["policy_reward_mean"]["default_policy"] == pytest.approx(of_alone["episode_reward_mean"])
    assert of_copies["num_agent_steps_sampled"] == of_alone["num_env_steps_sampled"] == 720


def test_a_policy_does_not_notice_whether_another_one_learns():
    both, _ = trained(of_drifts(2, policies="own"))
    for agent in "01":
        one, _ = trained(of_drifts(2, policies="own", policies_to_train=[agent]))
        np.testing.assert_array_equal(one[agent], both[agent])


def test_equal_policies_with_equal_rows_stay_equal():
    class Twins(make_multi_agent(Drift)):
        def reset(self, *, seed=None, options=None):
            result = super().reset(seed=seed, options=options)
            if seed is not None:
                result = {agent: env.reset(seed=seed)[0] for agent, env in enumerate(self.envs)}, result[1]
            return result

    config = of_drifts(2, policies="own").environment(Twins).training(sgd_minibatch_size=120)
    with config.build() as algo:
        algo.set_weights({"1": algo.get_weights()["0"]})
        for _ in range(3):
            result = algo.train()
        weights, returns = algo.get_weights(), result["policy_reward_mean"]
    # Each learner shuffles the rows of its policy in an order of its own, so that sums round differently.
    np.testing.assert_allclose(weights["1"], weights["0"], atol=1e-5)
    assert returns["1"] == pytest.approx(returns["0"])


def test_a_run_that_is_saved_within_an_episode_goes_on_alike(tmp_path, monkeypatch):
    def config():
        return (
            ppo(NameTheSignal, envs=2, policies="own")
            .environment(env_config={"in_turn": True})
            .training(train_batch_size=42, sgd_minibatch_size=20)
        )

    with config().build() as algo, config().build() as restored:
        result = algo.train()
        assert result["num_env_steps_sampled"] % 32  # both environments are within an episode, with a row open
        restored.restore(algo.save(tmp_path / "saved"))
        assert restored.get_state()["algorithm.json"]["state"] == algo.get_state()["algorithm.json"]["state"]
        batches = algo.train_batches()
        for each in (algo, restored):
            copies = [(each.trainees[trainee.policy_id], rows.copy()) for trainee, rows in batches]
            monkeypatch.setattr(each, "train_batches", lambda copies=copies: copies)
            each.training_step()
        for policy_id, weights in restored.get_weights().items():
            np.testing.assert_array_equal(weights, algo.get_weights()[policy_id])
        monkeypatch.undo()
        result = restored.train()
        assert result["num_env_steps_sampled"] == 84
        # The environments have begun new episodes: no row is made of steps before and after.
        assert result["num_agent_steps_sampled"] == 42 - 2 + 42 - 2
