"""Runs go on from checkpoints to the bit, where docs/project/architecture.md says "exactly": all statistics, all state.

Episodes are ten steps long, as fragments are, and the same whatever their seed, so that those of the run which goes on
have ended at the checkpoint.
"""

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rllib import Algorithm
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.env.multi_agent import MultiAgentEnv
from rllib.policies import PolicySpec, RandomPolicy

LENGTH = 10
# Of results and states: what is not the same twice.
NOT_COMPARED = (
    *("time", "restore", "date", "pid", "host", "perf", "throughput", "config"),
    *("episodes_total", "hist_stats", "node"),
)


class Decaying(gym.Env):
    """A number that actions move."""

    def __init__(self, config=None):
        self.observation_space = spaces.Box(-9, 9, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if (config or {}).get("box") else spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self.t, self.x = 0, 1.0
        return self._seen(), {}

    def _seen(self):
        return np.array([self.x, self.t / LENGTH], np.float32)

    def step(self, action):
        self.t, self.x = self.t + 1, 0.8 * self.x + 0.3 * float(np.ravel(action)[0])
        return self._seen(), self.x, self.t == LENGTH, False, {"cost": float(self.x > 0.5)}


class Several(MultiAgentEnv):
    """One of these for each agent, whose rewards have a term of the others' numbers."""

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = self.agents = ["first", "second", "third"]
        self._each = {agent: Decaying(config) for agent in self.agents}
        self.observation_spaces = {agent: each.observation_space for agent, each in self._each.items()}
        self.action_spaces = {agent: each.action_space for agent, each in self._each.items()}

    def reset(self, *, seed=None, options=None):
        return {agent: each.reset()[0] for agent, each in self._each.items()}, {}

    def step(self, actions):
        seen, rewards, over = {}, {}, False
        for agent, action in actions.items():
            seen[agent], rewards[agent], over, _, _ = self._each[agent].step(action)
        shared = sum(rewards.values())
        return seen, {agent: own + shared for agent, own in rewards.items()}, {"__all__": over}, {"__all__": False}, {}


def recorded(box):
    """Columns of recorded steps."""
    env, rows = Decaying({"box": box}), []
    env.action_space.seed(0)
    for _ in range(6):
        obs, over = env.reset()[0], False
        while not over:
            action = env.action_space.sample()
            following, reward, over, _, _ = env.step(action)
            rows.append((obs, action, reward, over, following))
            obs = following
    return dict(zip(("obs", "actions", "rewards", "terminateds", "new_obs"), map(np.array, zip(*rows))))


def configured(name, box=False, env=Decaying, agents=None, data=None, rollouts=None, explore=None, **training):
    config = get_algorithm_config(name)
    config = config() if isinstance(config, type) else config
    config.environment(env, env_config={"box": box})
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=LENGTH, **(rollouts or {}))
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=4 * LENGTH).debugging(seed=3)
    small = {"train_batch_size": 16, "model": {"fcnet_hiddens": [4], **training.pop("model", {})}}
    if "store_buffer_in_checkpoints" in config:
        small |= {"num_steps_sampled_before_learning_starts": 20, "store_buffer_in_checkpoints": True}
    config.training(**{**small, **training})
    if agents:
        config.multi_agent(policy_mapping_fn={"first": "a", "*": "b"}, **agents)
    if data is not None:
        config.offline_data(input_=data)
    if explore:
        config.exploration(exploration_config=explore)
    return config


def several(name, other=None, box=False, **more):
    """Of two policies, of which the second learns."""
    agents = {"policies": {"a": PolicySpec(other), "b": PolicySpec()}, "policies_to_train": ["b"]}
    return functools.partial(configured, name, box, Several, agents, **more)


def mixed(tmp_path, name, share, box=False, **more):
    np.savez(tmp_path / "steps.npz", **recorded(box))
    path = str(tmp_path / "steps.npz")
    return configured(name, box, data={"sampler": share, path: 1 - share} if share else path, **more)


def waiting(name, **more):
    """Two policies that learn, whose fragments seldom fill their train batches at the end of an iteration."""
    policies = {"a": {"train_batch_size": 35}, "b": {"train_batch_size": 75}}
    agents = {"policies": policies, "policies_to_train": ["a", "b"]}
    return functools.partial(configured, name, False, Several, agents, **more)


MIXED = {"n_step": 3, "training_intensity": 1.7}
CASES = {
    "a policy that does not learn": several("PG", train_batch_size=40),
    "one that does not learn, squashed": several("SAC", box=True),
    "one that does not learn, in two environments": several("SAC", box=True, rollouts={"num_envs_per_worker": 2}),
    "one that does not learn, noisy": several("DQN", noisy=True),
    "one that does not learn, gSDE": several("SAC", box=True, model={"use_sde": True}),
    "one that is written by hand": several("DQN", RandomPolicy),
    "recorded steps with priorities": functools.partial(mixed, name="DQN", share=0, conservative_weight=1.0),
    "a mixture with priorities": functools.partial(mixed, name="DQN", share=0.4, margin_weight=1.0, **MIXED),
    "a mixture with priorities, Box": functools.partial(mixed, name="SAC", share=0.4, box=True, **MIXED),
    "a limit on costs": functools.partial(configured, "SAC", True, cost_limit=1.0, lagrangian_kp=0.1),
    **{f"fragments that wait, {name}": waiting(name) for name in ("IMPALA", "APPO")},
    "fragments that wait, of a memory": waiting("IMPALA", model={"use_gru": True, "lstm_cell_size": 4}),
    "resets": functools.partial(configured, "TD3", True, param_resets=[130, 170], training_intensity=20),
}


def flat(value, name=""):
    """(name, leaf) of nested dicts and lists."""
    if isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(item, f"{name}/{key}")
    else:
        yield name, value


def differing(one, other):
    one, other = ({k: v for k, v in flat(x) if not any(n in k for n in NOT_COMPARED)} for x in (one, other))
    names = [k for k in one.keys() & other.keys() if not np.array_equal(one[k], other[k], equal_nan=_numbers(one[k]))]
    return sorted([*names, *(one.keys() ^ other.keys())])


def _numbers(value):
    return np.asarray(value).dtype.kind in "fiub"


@pytest.fixture
def made(request, tmp_path):
    make = CASES[request.param]
    return make(tmp_path) if make.func is mixed else make()


@pytest.mark.parametrize("made", CASES, indirect=True)
def test_a_restored_run_is_the_run_that_goes_on(made, tmp_path):
    with made.build() as algo:
        for _ in range(3):
            algo.train()
        with Algorithm.from_checkpoint(algo.save(tmp_path / "checkpoint"), load_user_code=True) as other:
            assert not differing(algo.get_state(), other.get_state())
            for _ in range(2):
                assert not differing(algo.train(), other.train())
            assert not differing(algo.get_state(), other.get_state())


FOUR = {"num_envs_per_worker": 4}
DIVIDED = {
    "PPO": functools.partial(configured, "PPO", rollouts=FOUR, train_batch_size=40, sgd_minibatch_size=20),
    "a memory": functools.partial(
        configured, "PG", rollouts=FOUR, train_batch_size=40, model={"use_gru": True, "lstm_cell_size": 4}
    ),
    "a replay": functools.partial(configured, "DQN", rollouts=FOUR, noisy=True),
    "noise of exploration": functools.partial(
        configured, "DDPG", True, rollouts=FOUR, explore={"type": "OrnsteinUhlenbeckNoise"}
    ),
    "agents": several("PPO", rollouts=FOUR, train_batch_size=80, sgd_minibatch_size=20),
    "agents with a replay": several("SAC", box=True, rollouts=FOUR),
}


@pytest.mark.parametrize("divisions", [((0, 4), (2, 2)), ((2, 2), (0, 4)), ((2, 2), (4, 1))], ids=str)
@pytest.mark.parametrize("name", DIVIDED)
def test_environments_are_divided_differently_after_a_restore(name, divisions, tmp_path):
    before, after = ({"num_rollout_workers": w, "num_envs_per_worker": envs} for w, envs in divisions)
    with DIVIDED[name]().rollouts(**before).build() as algo:
        for _ in range(2):
            algo.train()
        path = algo.save(tmp_path / "checkpoint")
        algo.train()
        with Algorithm.from_checkpoint(path, after, load_user_code=True) as other:
            other.train()
            for policy_id, weights in algo.get_weights().items():
                np.testing.assert_array_equal(other.get_weights()[policy_id], weights)


class Groups(MultiAgentEnv):
    """Two or nine agents, by the environment's index in the run; they are not known before."""

    def __init__(self, config):
        super().__init__()
        index = max(config.worker_index - 1, 0) * config.num_envs + config.vector_index
        self._agents = [f"agent_{i}" for i in range((2, 9, 2, 9)[index])]
        self.observation_space, self.action_space = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(3)

    def _all(self, value):
        return dict.fromkeys(self._agents, value)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._all(np.zeros(2, np.float32)), {}

    def step(self, actions):
        self.t += 1
        rewards = {agent: float(action) for agent, action in actions.items()}
        seen = self._all(np.full(2, self.t / LENGTH, np.float32))
        return seen, rewards, {"__all__": self.t == LENGTH}, {"__all__": False}, {}


@pytest.mark.parametrize("divisions", [((4, 1), (0, 4)), ((4, 1), (2, 2))], ids=str)
def test_workers_with_different_numbers_of_agents_are_joined(divisions, tmp_path):
    before, after = ({"num_rollout_workers": w, "num_envs_per_worker": envs} for w, envs in divisions)
    config = configured("PPO", env=Groups, rollouts=FOUR, train_batch_size=40, sgd_minibatch_size=20)
    policies = {"p": PolicySpec(None, spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(3))}
    config.multi_agent(policies=policies, policy_mapping_fn="p").rollouts(**before)
    with config.build() as algo:
        algo.train()
        path = algo.save(tmp_path / "checkpoint")
        algo.train()
        with Algorithm.from_checkpoint(path, after, load_user_code=True) as other:
            other.train()
            np.testing.assert_array_equal(other.get_policy("p").weights, algo.get_policy("p").weights)


@pytest.mark.parametrize("made", CASES, indirect=True)
def test_a_run_that_goes_back_is_a_new_one_from_there(made, tmp_path):
    with made.build() as algo:
        for _ in range(3):
            algo.train()
        path = algo.save(tmp_path / "checkpoint")
        algo.train()
        algo.restore(path)
        with Algorithm.from_checkpoint(path, load_user_code=True) as other:
            assert not differing(algo.get_state(), other.get_state())
            assert not differing(algo.train(), other.train())
            assert not differing(algo.get_state(), other.get_state())


def test_priorities_of_recorded_rows_begin_anew_where_none_are_saved(tmp_path):
    with mixed(tmp_path, "DQN", 0, store_buffer_in_checkpoints=False).build() as algo:
        path = algo.save(tmp_path / "checkpoint")
        algo.train()
        assert len(np.unique(algo.replay.get_priorities()["priorities"])) > 1
        algo.restore(path)
        assert (algo.replay.get_priorities()["priorities"] == 1).all()


def test_a_policy_draws_on_when_it_learns_again(tmp_path):
    with several("DQN")().build() as algo:
        algo.set_policies_to_train(["a", "b"])
        algo.train()
        algo.set_policies_to_train(["b"])
        algo.train()
        with Algorithm.from_checkpoint(algo.save(tmp_path / "checkpoint")) as other:
            for each in (algo, other):
                each.train()
                each.set_policies_to_train(["a", "b"])
            assert not differing(algo.train(), other.train())
            assert not differing(algo.get_state(), other.get_state())


BOTH = {"policies": {"a", "b"}, "policies_to_train": ["a", "b"]}


def removed_and_added(algo):
    algo.remove_policy("a", policy_mapping_fn={"*": "b"})
    algo.train()
    algo.add_policy("a", policy_mapping_fn={"first": "a", "*": "b"}, policies_to_train=["a", "b"])


CHANGES = {
    "frozen": lambda algo: algo.set_policies_to_train(["b"]),
    "mapped": lambda algo: algo.set_policy_mapping_fn({"*": "b"}),
    "added": lambda algo: algo.add_policy("c", policy_mapping_fn={"first": "c", "*": "b"}, policies_to_train=["c"]),
    "removed": lambda algo: algo.remove_policy("a", policy_mapping_fn={"*": "b"}),
    "removed and added": removed_and_added,
}


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        *(("DQN", before, after) for before in (None, *CHANGES) for after in CHANGES if before != "removed"),
        *(("DQN", "removed", after) for after in CHANGES if "removed" not in after),
        *(("PG", "added", after) for after in CHANGES),
    ],
    ids=str,
)
def test_a_run_goes_back_to_the_policies_of_the_checkpoint(name, before, after, tmp_path):
    """Whatever was changed before it was saved, and since."""
    with configured(name, env=Several, agents=BOTH, train_batch_size=20).build() as algo:
        algo.train()
        if before:
            CHANGES[before](algo)
            algo.train()
        path = algo.save(tmp_path / "checkpoint")
        if before == after == "added":
            algo.remove_policy("c", policy_mapping_fn={"first": "a", "*": "b"}, policies_to_train=["a", "b"])
        CHANGES[after](algo)
        algo.train()
        algo.restore(path)
        with Algorithm.from_checkpoint(path) as other:
            assert set(algo.policies) == set(other.policies) and set(algo.trainees) == set(other.trainees)
            states = algo.get_state(), other.get_state()
            for each in states:
                each["rng.json"]["workers"] = None  # the slots of a policy do not become fewer again
                each["algorithm.json"]["agents"].pop("policies", None)  # a spec that was read names its spaces
            assert not differing(*states)
            assert not differing(algo.train(), other.train())
