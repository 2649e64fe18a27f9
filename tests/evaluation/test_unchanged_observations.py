"""Settings that change observations are refused where nothing can change them: in worlds that drive their own loop."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rllib.algorithms.ppo import PPOConfig
from rllib.config.conflicts import SettingsError
from rllib.env.external import ExternalEnv, ExternalMultiAgentEnv
from rllib.env.factories.adapters import ADAPTERS

SEEN, CHOICE = Dict({"x": Box(-1, 1, (2,)), "y": Box(-1, 1, (1,))}), Discrete(2)
SAMPLE = {"x": np.zeros(2, np.float32), "y": np.zeros(1, np.float32)}


class One(ExternalEnv):
    def __init__(self, config):
        super().__init__(CHOICE, SEEN)

    def run(self):
        while True:
            episode = self.start_episode()
            self.get_action(episode, SAMPLE)
            self.end_episode(episode, SAMPLE)


class Two(ExternalMultiAgentEnv):
    def __init__(self, config):
        super().__init__(CHOICE, SEEN)

    def run(self):
        while True:
            episode = self.start_episode()
            self.get_action(episode, {"a": SAMPLE, "b": SAMPLE})
            self.end_episode(episode, {"a": SAMPLE, "b": SAMPLE})


def config_of(door, several):
    config = PPOConfig().rollouts(num_rollout_workers=0)
    config.training(train_batch_size=8, sgd_minibatch_size=8, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    if several:
        config.multi_agent(policies={"p"}, policy_mapping_fn=lambda *_, **__: "p")
    if door == "loop":
        return config.environment(Two if several else One)
    spaces = SEEN, CHOICE
    if several:
        spaces = ({agent: space for agent in "ab"} for space in spaces)
    return config.environment(**dict(zip(("observation_space", "action_space"), spaces))).external(listen="127.0.0.1:0")


MEMORY = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4}
# Adapters, and what else changes observations, by settings that ask for it.
OF_ADAPTERS = {
    "PartialObservation": {"ignore_observation_keys": ["y"]},
    "PreviousStep": {"model": {**MEMORY, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}},
    "ActionMask": {"action_mask_from": "info"},
}
OF_AGENTS = {"ids": {"agent_id_in_observation": True}, "critic": {"centralized_critic": True}}


# Its teacher is refused there by a rule of its own (test_a_teacher_needs_environments_that_are_stepped).
OF_TEACHERS = {"TeacherKeys"}


def test_all_adapters_are_looked_at():
    assert {kind.__name__ for kind in ADAPTERS if kind.adds_to_steps} == OF_ADAPTERS.keys() | OF_TEACHERS


@pytest.mark.parametrize("door", ["loop", "client"])
@pytest.mark.parametrize(
    "several, settings",
    [(several, each) for several in (False, True) for each in OF_ADAPTERS.values()]
    + [(True, each) for each in OF_AGENTS.values()],
    ids=str,
)
def test_they_are_refused_and_the_remedy_trains(door, several, settings):
    config = config_of(door, several)
    config.update_from_dict(settings)
    with pytest.raises(SettingsError, match="is for environments that the library steps") as raised:
        config.build()
    (mistake,) = raised.value.mistakes
    config.apply(mistake.remedies[0])
    with config.build() as algorithm:
        assert algorithm.get_policy("p" if several else None).observation_space == SEEN
        if door == "loop":
            algorithm.train()


def test_a_function_that_makes_a_loop_is_refused_as_well():
    config = config_of("loop", False).environment(lambda config: One(config), ignore_observation_keys=["y"])
    with pytest.raises(ValueError, match="is for environments that the library steps"):
        config.build()


@pytest.mark.parametrize("door", ["loop", "client"])
def test_a_teacher_needs_environments_that_are_stepped(door):
    config = config_of(door, False).environment(teacher_observation_keys=["y"])
    config.training(teacher=lambda observations: np.zeros(len(observations), np.int64), teacher_coeff=1.0)
    with pytest.raises(SettingsError, match="the library steps"):
        config.build()


@pytest.mark.parametrize("name", ["env_wrappers", "env_to_module_connector", "module_to_env_connector"])
def test_what_wraps_environments_needs_one(name):
    config = config_of("client", False)
    config.update_from_dict({name: [gymnasium.Wrapper] if name == "env_wrappers" else lambda *_: None})
    with pytest.raises(SettingsError, match="the clients step the environment"):
        config.build()


@pytest.mark.parametrize("door", ["loop", "client"])
def test_the_value_alone_reads_keys_that_a_loop_hands_over(door):
    config = config_of(door, False).environment(critic_observation_keys=["y"])
    config.training(model={"vf_share_layers": False})
    with config.build() as algorithm:
        if door == "loop":
            algorithm.train()
        one, other = ({"x": SAMPLE["x"], "y": np.full(1, each, np.float32)} for each in (-1, 1))
        fetched = [algorithm.compute_single_action(each, full_fetch=True)[2] for each in (one, other)]
        np.testing.assert_array_equal(*(each["action_dist_inputs"] for each in fetched))
