"""Ids of agents in observations, and values that read what all agents observe."""

import numpy as np
import pytest
from gymnasium import spaces

from rllib import load_policy
from rllib.algorithms.base import wiring
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.env import EnvContext
from rllib.env.multi_agent import MultiAgentEnv, make_multi_agent
from rllib.env.multi_agent.adapt import own_observation
from rllib.env.multi_agent.augmented import AugmentedEnv
from rllib.env.spaces.observations import observation_column
from rllib.errors import NoActionError
from rllib.serving.messages import Messages
from rllib.serving.model import act, example_of
from rllib.web.bodies import BadRequest


class Roles(MultiAgentEnv):
    """Agent i is rewarded for action i; both observe the same, for one step."""

    possible_agents = ("a", "b")
    observation_space, action_space = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return dict.fromkeys("ab", np.ones(1, np.float32)), {}

    def step(self, action_dict):
        rewards = {agent: float(action == "ab".index(agent)) for agent, action in action_dict.items()}
        return {}, rewards, {"__all__": True}, {"__all__": False}, {}


def roles(**multi_agent):
    return (
        PPOConfig()
        .environment(Roles)
        .rollouts(num_rollout_workers=0, num_envs_per_worker=8)
        .multi_agent(policies="shared", **multi_agent)
        .training(train_batch_size=128, sgd_minibatch_size=64, num_sgd_iter=5, lr=0.01, model={"fcnet_hiddens": [16]})
        .debugging(seed=1)
    )


@pytest.mark.parametrize("knows", [True, False])
def test_a_shared_policy_takes_roles_by_the_id(knows):
    with roles(agent_id_in_observation=knows).build() as algo:
        for _ in range(25):
            result = algo.train()
        # Without the id both agents do the same, and one of them is right.
        assert result["episode_reward_mean"] == pytest.approx(2.0 if knows else 1.0, abs=0.1)
        if knows:
            seen = np.ones(1, np.float32)
            assert algo.compute_actions({"a": seen, "b": seen}, explore=False) == {"a": 0, "b": 1}
            assert algo.compute_single_action(seen, agent_id="b", explore=False) == 1
            assert algo.make_player().act({"a": seen, "b": seen}) == {"a": 0, "b": 1}
            with pytest.raises(ValueError, match="reads the agent's id"):
                algo.compute_single_action(seen)
            with pytest.raises(ValueError, match="there is no agent 'c'"):
                algo.compute_single_action(seen, agent_id="c")


class Late(MultiAgentEnv):
    """The third agent has no observation at first."""

    possible_agents = ("x", "y", "z")
    observation_space, action_space = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"x": np.array([1, 2], np.float32), "y": np.array([3, 4], np.float32)}, {}


def test_the_joint_observation_is_the_own_one_first_and_zeros_for_those_without():
    env = AugmentedEnv(Late(), agent_ids=True, critic="joint")
    observations, _ = env.reset()
    assert observations["y"]["state"].tolist() == [3, 4, 1, 1, 2, 1, 0, 0, 0]
    assert observations["y"]["agent_id"].tolist() == [0, 1, 0]
    assert observations["x"]["observation"].tolist() == [1, 2]
    assert all(env.get_observation_space(agent).contains(seen) for agent, seen in observations.items())


@pytest.mark.parametrize("learner", ["numpy", "torch"])
def test_the_value_reads_all_and_the_policy_its_own(learner):
    config = roles(centralized_critic=True).training(learner=learner)
    with config.build() as algo:
        algo.train()
        policy = algo.get_policy("shared")
        shapes = {name: weights.shape for name, weights in policy.get_weights().items()}
        assert shapes["policy.hidden_0.weight"] == (16, 1)
        assert shapes["value.hidden_0.weight"] == (16, 1 + 2 * 2)
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(6, 5)).astype(np.float32)
        others = rows.copy()
        others[:, 1:] = rng.normal(size=(6, 4))
        np.testing.assert_array_equal(policy.dist_inputs(rows), policy.dist_inputs(others))
        assert abs(policy.values(rows) - policy.values(others)).min() > 0
        # The numpy network and the torch module are the same function.
        import torch

        dist_inputs, values = policy.model(torch.from_numpy(policy.encode(rows).copy()))
        np.testing.assert_allclose(dist_inputs.detach(), policy.dist_inputs(rows), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(values.detach(), policy.values(rows), rtol=1e-4, atol=1e-6)


class Nameless(Roles):
    possible_agents = ()

    def get_agent_ids(self):
        return {"a", "b"}


class Pictures(Roles):
    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (roles(centralized_critic=True).environment(Nameless), "centralized_critic needs to know all agents"),
        (roles(agent_id_in_observation=True).environment(Nameless), "agent_id_in_observation needs to know all agents"),
        (roles(agent_id_in_observation=True).environment(Pictures), "can only extend flat observations"),
        (roles(centralized_critic=True).environment(Pictures), "can only extend flat observations"),
        (roles(centralized_critic="state"), "has no state_space"),
        (roles(centralized_critic=True).training(model={"use_lstm": True}), "does not go with centralized_critic"),
        (
            DQNConfig().environment(Roles).multi_agent(centralized_critic=True),
            "is for algorithms with a value function|does not train policies of several agents",
        ),
    ],
)
def test_mistakes(config, message):
    with pytest.raises(ValueError, match=message):
        config.build()


def test_the_state_of_the_environment_is_read():
    class WithState(Roles):
        state_space = spaces.Box(0, 9, (3,), np.float32)

        def state(self):
            return np.arange(3, dtype=np.float32)

    env = AugmentedEnv(WithState(), critic="state")
    assert env.reset()[0]["a"]["state"].tolist() == [0, 1, 2]
    with roles(centralized_critic="state").environment(WithState).build() as algo:
        algo.train()
        assert algo.get_policy("shared").get_weights()["value.hidden_0.weight"].shape == (16, 1 + 3)


def test_one_agent_needs_neither():
    config = PPOConfig().environment("CartPole-v1").multi_agent(centralized_critic=True)
    with pytest.raises(ValueError, match="has one agent"):
        config.build()
    assert make_multi_agent("CartPole-v1")({}).possible_agents == [0]


class Varied(MultiAgentEnv):
    """Two agents for three steps; observations are drawn, with the state of the environment beside."""

    possible_agents = ("a", 1)
    state_space = spaces.Box(-9, 9, (3,), np.float32)

    def __init__(self, config=None):
        box = spaces.Box(-9, 9, (2,), np.float32)
        self.observation_space = {
            "box": box, "dict": spaces.Dict(far=box, near=box), "discrete": spaces.Discrete(4),
            "masked": spaces.Dict(action_mask=spaces.MultiBinary(2), observations=box),
            "ignored": spaces.Dict(far=box, near=box), "behind": spaces.Dict(near=box, wind=box),
        }[config["observes"]]  # fmt: skip
        self.action_space = spaces.Discrete(2)
        self.observation_space.seed(0)

    def state(self):
        return np.full(3, self.t, np.float32)

    def seen(self):
        drawn = {agent: self.observation_space.sample() for agent in self.possible_agents}
        for each in drawn.values():
            if isinstance(each, dict) and "action_mask" in each:
                each["action_mask"][0] = 1
        return drawn

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.seen(), {}

    def step(self, action_dict):
        self.t += 1
        rewards = {agent: float(action) for agent, action in action_dict.items()}
        return self.seen(), rewards, {"__all__": self.t == 3}, {"__all__": False}, {}


@pytest.mark.parametrize("policies", ["shared", "own"])
@pytest.mark.parametrize("observes", ["box", "dict", "discrete", "masked", "ignored", "previous", "behind"])
@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("critic", [False, True, "state"])
def test_a_loaded_policy_acts_on_an_agents_own_observation(policies, observes, ids, critic, tmp_path):
    """Each way gives the distribution that the policy has for what training gives it, whatever the critic reads."""
    has_memory = observes == "previous"
    if has_memory and critic:
        pytest.skip("a memory does not go with a centralised critic")
    config = roles(agent_id_in_observation=ids, centralized_critic=critic)
    config.environment(Varied, env_config={"observes": "box" if has_memory else observes})
    if observes == "ignored":
        config.environment(ignore_observation_keys=["far"])
    if has_memory:
        config.training(model={"use_lstm": True, "lstm_use_prev_action": True, "lstm_cell_size": 4})
    config.multi_agent(policies=policies)
    if observes == "behind" and critic:
        with pytest.raises(ValueError, match="observes the key 'wind', which stands behind 'state'"):
            config.build()
        return
    with config.build() as algo:
        algo.train()
        path = algo.save(tmp_path / "checkpoint")
        env = wiring.learned_environment(algo.config).make(EnvContext(algo.config.env_config))
        observations, _ = env.reset(seed=1)
        player = algo.make_player()
        for agent, extended in observations.items():
            policy_id = "shared" if policies == "shared" else str(agent)
            loaded, own = load_policy(path, policy_id), own_observation(extended)
            policy, how = algo.get_policy(policy_id), {"explore": False, "full_fetch": True}
            state = policy.get_initial_state() or None
            row = observation_column(policy.observation_space).row(extended)[None]
            fetches = {}
            memory = policy.get_initial_state()
            memory = np.concatenate(memory, axis=None)[None].astype(np.float32) if memory else None
            (right,) = policy.choose(row, False, np.random.default_rng(0), state=memory, fetches=fetches)
            for actor in (algo, loaded):
                given = {"agent_id": agent, "policy_id": policy_id} if ids or actor is algo else {}
                action, _, found = actor.compute_single_action(own, state, **how, **given)
                assert action == right
                np.testing.assert_array_equal(found["action_dist_inputs"], fetches["action_dist_inputs"][0])
                assert ("vf_preds" in found) == (not critic)  # what the critic reads is not there
                states = None if state is None else {agent: state}
                actions = actor.compute_actions({agent: own}, states, **how, policy_id=policy_id)[0]
                assert actions == {agent: right}
            assert loaded.make_player(agent_id=agent).act(own) == right
            assert player.act({agent: own}) == {agent: right}
            if ids:
                with pytest.raises(NoActionError, match="reads the agent's id in addition to its observation"):
                    loaded.compute_single_action(own, state)


def test_a_server_gets_the_agents_id(tmp_path):
    with roles(agent_id_in_observation=True, centralized_critic=True).build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    policy = load_policy(path)
    example = example_of(policy)
    assert example.agent_ids == ["a"]
    assert policy.observation_space == Roles.observation_space
    messages = Messages([], policy.observation_space, policy.action_space, None, True)
    question = messages.question(b'{"observations": [[1], [1]], "agent_ids": ["a", "b"]}', "application/json")
    right = policy.compute_actions([[1.0], [1.0]], explore=False, agent_ids=["a", "b"])
    assert act(policy, question)[0].tolist() == right.tolist()
    with pytest.raises(BadRequest, match="does not read which agent acts"):
        Messages([], policy.observation_space, policy.action_space).question(
            b'{"observation": [1], "agent_id": "a"}', "application/json"
        )


def test_an_observation_with_an_id_of_its_own_is_refused():
    class Named(Roles):
        observation_space = spaces.Dict(agent_id=spaces.Discrete(2), seen=spaces.Box(0, 1, (1,), np.float32))

    with pytest.raises(ValueError, match="Rename it"):
        roles(agent_id_in_observation=True).environment(Named).build()
