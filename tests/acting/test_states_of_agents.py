"""States of memories outside of training: what the refusal of an action without one advises is what works."""

import re
from functools import partial

import numpy as np
import pytest
from gymnasium.spaces import Box

from rllib import PPOConfig, load_policy
from rllib.acting.agent_player import SlotPlayers
from rllib.env import MultiAgentEnv
from rllib.errors import NoActionError, UnknownPolicyError
from rllib.policies import HandWrittenPolicy
from tests.multi_agent import NameTheSignal

MODELS = {"lstm": {"use_lstm": True, "lstm_cell_size": 4}, "gru": {"use_gru": True, "lstm_cell_size": 4}}


class Zero(HandWrittenPolicy):
    def compute_actions(self, observations, state_batches=None, **kwargs):
        return np.zeros(len(observations), int)


def config(model="lstm", **multi_agent):
    return (
        PPOConfig()
        .environment(NameTheSignal, env_config={"sizes": (3, 3)})
        .rollouts(num_rollout_workers=0)
        .training(train_batch_size=64, sgd_minibatch_size=32, model=MODELS[model])
        .multi_agent(**multi_agent)
        .debugging(seed=1)
    )


def first_observations():
    return NameTheSignal({"sizes": (3, 3)}).reset(seed=3)[0]


def advised(call, **names):
    """The state that the refusal of a call advises, as Python computes it."""
    with pytest.raises(NoActionError, match="this policy has a memory") as caught:
        call()
    (expression,) = re.findall(r"Give state=(.*) with the first observation of an episode", str(caught.value))
    return eval(expression, names)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "multi_agent",
    [
        {},
        {"policies": "shared"},
        {"policies": "own"},
        {
            "policies": {"default_policy": None, "second": None},
            "policy_mapping_fn": {"second": "second", "*": "default_policy"},
        },
        {
            "policies": {"first": None, "rule": (Zero, None, None, {})},
            "policy_mapping_fn": {"first": "first", "*": "rule"},
        },
    ],
)
def test_the_advice_is_followed(model, multi_agent):
    observations = first_observations()
    with config(model, **multi_agent).build() as algo:
        names = {"algo": algo, "observations": observations}

        def follow(call):
            """Two steps; the second takes the state that the first gave."""
            answer = call(state=call(state=advised(call, **names))[1])
            assert len(answer) == 3
            return answer

        together = follow(partial(algo.compute_actions, observations, explore=False))[0]
        assert together.keys() == observations.keys()
        for agent, observation in observations.items():
            policy_id = algo.make_player().policy_for(agent)
            if policy_id == "rule":
                continue
            assert algo.get_policy(agent_id=agent) is algo.policies[policy_id]
            single = partial(algo.compute_single_action, observation, explore=False)
            several = partial(algo.compute_actions, explore=False, policy_id=policy_id)
            names["observations"] = [observation] * 2
            found = [follow(partial(single, **whose))[0] for whose in ({"agent_id": agent}, {"policy_id": policy_id})]
            found += list(follow(partial(several, [observation] * 2))[0])
            names["observations"] = {"x": observation}
            found.append(follow(partial(several, {"x": observation}))[0]["x"])
            assert {*found} == {together[agent]}
        assert algo.compute_actions({}, {}) == ({}, {}, {})


def test_a_missing_state_of_one_agent_is_named():
    observations = first_observations()
    with config(policies="own").build() as algo:
        states = {"first": algo.get_policy("first").get_initial_state()}
        with pytest.raises(NoActionError, match="agent 'second' needs a state"):
            algo.compute_actions(observations, states)


def test_which_policy_is_meant_has_to_be_said():
    with config(policies="own").build() as algo:
        observation = first_observations()["first"]
        for call in (
            algo.get_policy,
            lambda: algo.compute_single_action(observation),
            lambda: algo.predict(observation),
        ):
            with pytest.raises(UnknownPolicyError, match=r"there are first, second\. Give policy_id"):
                call()


def test_of_a_loaded_policy(tmp_path):
    with config(policies="own").build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    policy, observation = load_policy(path, "second"), first_observations()["second"]
    state = advised(lambda: policy.compute_single_action(observation), algo=policy)
    assert len(policy.compute_single_action(observation, state)) == 3


# ------------------------------------------------------------------ rewards of agents that wait


class InTurn(MultiAgentEnv):
    """Agents that act in this order; in step t agents are rewarded by t or 10 t, which some of the dicts leave out."""

    possible_agents = ("a", "b")
    observation_space, action_space = Box(-9, 9, (1,), np.float32), Box(-1, 1, (1,), np.float32)
    order = "aabbbabababb"

    def _seen(self):
        both = {agent: np.ones(1, np.float32) for agent in "ab"}
        return both if self.t == len(self.order) // 2 else {self.order[self.t]: both["a"]}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._seen(), {}

    def step(self, action_dict):
        self.t += 1
        rewards = {"a": self.t, "b": 10 * self.t}
        if self.t % 4 == 0:
            del rewards["a"]
        is_over = self.t == len(self.order) - 1
        return self._seen(), rewards, {"__all__": is_over}, {"__all__": False}, {}


@pytest.mark.parametrize("divided", [False, True])
def test_a_player_adds_up_the_rewards_of_agents_that_wait(divided):
    """As in training, where an agent reads the reward of its whole last row."""
    model = {"use_gru": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    sizes = {"train_batch_size": 22, "sgd_minibatch_size": 22, "num_sgd_iter": 1}
    config = PPOConfig().environment(InTurn).rollouts(num_rollout_workers=0).training(model=model, **sizes)
    with config.multi_agent(policies="shared").build() as algo:
        player = algo.make_player()
        if divided:
            player = SlotPlayers({"a": player}, player)
        for _ in range(2):
            env, rewards = InTurn(), None
            observations, _ = env.reset()
            states, previous, since_acted, is_over = {}, {}, {}, False
            while not is_over:
                by_hand = {}
                for agent, observation in observations.items():
                    by_hand[agent], states[agent], _ = algo.compute_single_action(
                        observation,
                        states.get(agent, algo.get_policy("shared").get_initial_state()),
                        prev_action=previous.get(agent),
                        prev_reward=since_acted.get(agent),
                        explore=False,
                    )
                    previous[agent], since_acted[agent] = by_hand[agent], 0.0
                assert player.act(observations, rewards) == by_hand
                observations, rewards, terminateds, _, _ = env.step(by_hand)
                for agent in since_acted:
                    since_acted[agent] += rewards.get(agent, 0.0)
                is_over = terminateds["__all__"]
            player.reset()
