"""What spaces, networks and learners exclude: `build` refuses it by a rule, and each remedy lets the run build."""

import functools
from unittest import mock

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rllib import env as environments
from rllib.algorithms.base import policies
from rllib.algorithms.base.registry import ALGORITHMS, get_algorithm_class
from rllib.algorithms.base.space_rules import _rules, broken_rules
from rllib.algorithms.dqn import DQN, DQNConfig
from rllib.config.conflicts import SettingsError

VECTOR = spaces.Box(-1, 1, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (12, 12, 1), np.uint8)
LARGE = spaces.Box(0, 255, (42, 42, 1), np.uint8)  # has convolutions of choice
MASKED = spaces.Dict(obs=VECTOR, action_mask=spaces.MultiBinary(2))
CHOICES = spaces.Discrete(2)
BOUNDED = spaces.Box(-1, 1, (2,), np.float32)
UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,), np.float32)
PARTS = spaces.Tuple([CHOICES, CHOICES])
LSTM = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5}
CONV = {"conv_filters": [[4, [4, 4], 2]]}
NARROW = {"fcnet_hiddens": [8]}
OF_VALUE = {"vf_hiddens": [8], "vf_share_layers": False}


class Drawn(gym.Env):
    """Observations drawn from their space; episodes of five steps."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._step = 0
        return self._observation(), {}

    def step(self, action):
        self._step += 1
        return self._observation(), 0.0, self._step == 5, False, {}

    def _observation(self):
        drawn = self.observation_space.sample()
        if isinstance(drawn, dict) and "action_mask" in drawn:
            drawn["action_mask"][:] = 1
        return drawn


# (algorithm, observations, actions, settings, setting of the mistake)
CASES = [
    ("PPO", VECTOR, CHOICES, {"model": {"use_sde": True}}, "model"),
    ("PPO", VECTOR, CHOICES, {"model": {"squash_actions": True}}, "model"),
    ("PPO", VECTOR, UNBOUNDED, {"model": {"squash_actions": True}}, "model"),
    ("PPO", VECTOR, CHOICES, {"model": CONV}, "model"),
    ("PPO", IMAGE, CHOICES, {"model": {**CONV, "vf_hiddens": [8]}}, "model"),
    ("PPO", IMAGE, CHOICES, {"model": {"conv_filters": [[4, [16, 16], 2], [4, [16, 16], 1, "valid"]]}}, "model"),
    ("PPO", IMAGE, CHOICES, {"model": {"conv_filters": "impala", "impala_pool": 50}}, "model"),
    ("PPO", VECTOR, CHOICES, {"model": {"network": "simba", "fcnet_hiddens": [8]}}, "model"),
    ("PPO", VECTOR, CHOICES, {"model": {"orthogonal_gains": {"policy": 1.0}, "fcnet_weights_initializer": "normc"}}, 0),
    ("PPO", MASKED, BOUNDED, {}, None),
    ("PPO", spaces.Dict(obs=VECTOR, action_mask=spaces.MultiBinary(3)), CHOICES, {}, "action_mask_key"),
    ("PPO", spaces.Dict(action_mask=spaces.MultiBinary(2)), CHOICES, {}, "action_mask_key"),
    ("PPO", VECTOR, CHOICES, {"model": LSTM, "recompute_advantages": True}, "recompute_advantages"),
    ("PPO", VECTOR, CHOICES, {"model": {"vf_share_layers": True}, "actor_warmup_updates": 2}, "actor_warmup_updates"),
    ("PPO", VECTOR, CHOICES, {"model": LSTM, "cost_limit": 1.0}, "cost_limit"),
    ("PPO", IMAGE, CHOICES, {"model": CONV, "cost_limit": 1.0}, "cost_limit"),
    ("PPO", VECTOR, CHOICES, {"model": LSTM, "exploration_config": {"type": "RND"}}, "model"),
    ("PPO", IMAGE, CHOICES, {"model": CONV, "learner": "numpy"}, "learner"),
    ("PPO", VECTOR, CHOICES, {"learner": "numpy", "torch_autocast": "bfloat16"}, "torch_autocast"),
    ("TRPO", VECTOR, CHOICES, {"model": LSTM}, "model"),
    ("TRPO", VECTOR, CHOICES, {"model": {**LSTM, "lstm_use_prev_action": True}}, "model"),
    ("TRPO", VECTOR, CHOICES, {"model": {"vf_share_layers": True}}, "model"),
    ("DQN", VECTOR, BOUNDED, {}, "env"),
    ("PQN", VECTOR, BOUNDED, {}, "env"),
    ("PQN", VECTOR, CHOICES, {"model": {**LSTM, "layer_norm": False}}, "model"),
    ("DQN", VECTOR, CHOICES, {"model": LSTM}, "model"),
    ("DQN", VECTOR, CHOICES, {"model": OF_VALUE}, "model"),
    ("PQN", VECTOR, CHOICES, {"model": OF_VALUE}, "model"),
    ("SAC", VECTOR, BOUNDED, {"model": OF_VALUE}, "model"),
    ("DQN", VECTOR, CHOICES, {"replay_buffer_config": {"frame_stack_axis": 0}}, "replay_buffer_config"),
    ("DQN", VECTOR, CHOICES, {"replay_buffer_config": {"capacity": 10**13}}, "replay_buffer_config"),
    ("DQN", VECTOR, CHOICES, {"replay_buffer_config": {"type": "HindsightReplayBuffer"}}, "replay_buffer_config"),
    ("DQN", VECTOR, CHOICES, {"noisy": True, "model": LSTM}, "model"),
    ("R2D2", VECTOR, CHOICES, {}, "model"),
    ("SAC", VECTOR, UNBOUNDED, {}, "env"),
    ("SAC", VECTOR, PARTS, {}, "env"),
    ("TD3", VECTOR, CHOICES, {}, "env"),
    ("SAC", VECTOR, CHOICES, {"num_atoms": 11}, "num_atoms"),
    ("SAC", VECTOR, CHOICES, {"target_critics_sampled": 1}, "target_critics_sampled"),
    ("SAC", VECTOR, BOUNDED, {"image_shift": 2}, "image_shift"),
    ("SAC", IMAGE, BOUNDED, {"model": {**LSTM, **CONV}}, "model"),
    ("SAC", IMAGE, BOUNDED, {"model": CONV, "q_model_config": {"conv_filters": []}, "share_encoder": False}, "model"),
    ("SAC", spaces.Dict(obs=IMAGE, action_mask=spaces.MultiBinary(2)), CHOICES, {"model": CONV}, "action_mask_key"),
    ("SAC", LARGE, BOUNDED, {"model": {"network": "simba"}}, "model"),
    ("SAC", VECTOR, BOUNDED, {"model": {"network": "simba"}, "observation_filter": "MeanStdFilter"}, "model"),
    ("SAC", MASKED, CHOICES, {"model": {"network": "simba"}}, "action_mask_key"),
    ("SAC", VECTOR, BOUNDED, {"learner": "numpy", "model": {"network": "simbav2"}}, "learner"),
    ("CrossQ", IMAGE, BOUNDED, {"model": CONV}, "batch_norm_actor"),
    ("ApexDDPG", IMAGE, BOUNDED, {"model": CONV}, "model"),
    ("ES", VECTOR, PARTS, {}, "env"),
    ("ES", IMAGE, CHOICES, {"model": CONV}, "model"),
    ("ES", VECTOR, CHOICES, {"noise_size": 10}, "noise_size"),
    ("QMIX", VECTOR, CHOICES, {}, "env"),
    ("IMPALA", VECTOR, CHOICES, {"replay_proportion": 1.0, "replay_buffer_num_slots": 10**13}, 0),
]  # fmt: skip


def config_of(algorithm: str, observations, actions, settings: dict):
    config = get_algorithm_class(algorithm).get_default_config()
    config.environment(lambda context: Drawn(observations, actions), disable_env_checking=True)
    config.rollouts(num_rollout_workers=0).update_from_dict({"model": NARROW})
    small = {"noise_size": 10_000, "num_replay_buffer_shards": 1, "num_steps_sampled_before_learning_starts": 10}
    known = {name: value for name, value in small.items() if name in config.settings}
    replay = {"replay_buffer_config": {"capacity": 1000}} if "replay_buffer_config" in config.settings else {}
    return config.update_from_dict(known).update_from_dict(replay).update_from_dict(settings)


# Names of the rules that cases have broken.
BROKEN = set()


def noting_rules(config, policy, needs_network):
    """`broken_rules`, which notes the rules."""
    for name, (_, _, looks_at_network) in _rules(type(config)).items():
        if looks_at_network is needs_network and getattr(config, name)(policy):
            BROKEN.add(name)
    return broken_rules(config, policy, needs_network)


@functools.cache
def refusal(case: int) -> SettingsError:
    with mock.patch.object(policies, "broken_rules", noting_rules), pytest.raises(SettingsError) as caught:
        config_of(*CASES[case][:4]).build()
    return caught.value


def build(config, remedy) -> None:
    config.copy(copy_frozen=False).apply(remedy).build().stop()


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda case: f"{CASES[case][0]}-{case}")
def test_each_remedy_lets_the_run_build(case):
    config, name = config_of(*CASES[case][:4]), CASES[case][4]
    (mistake,) = refusal(case).mistakes
    assert not name or name in mistake.names
    assert mistake.remedies or mistake.advice
    for remedy in mistake.remedies:
        build(config, remedy)


def test_all_policies_are_looked_at():
    """What is in the settings of the run is said once, what a policy alone has with its id."""
    made = environments.make_multi_agent(lambda context: Drawn(VECTOR, CHOICES))
    own = {"model": {"use_sde": True}}
    config = get_algorithm_class("PPO").get_default_config().rollouts(num_rollout_workers=0)
    config.environment(made, env_config={"num_agents": 2}, disable_env_checking=True)
    config.multi_agent(policies={"p0": (None, None, None, own), "p1": (None, None, None, own), "p2": {}})
    config.multi_agent(policy_mapping_fn={"0": "p0", "1": "p1", "*": "p2"})
    with pytest.raises(SettingsError) as caught:
        config.build()
    assert [mistake.names[0] for mistake in caught.value.mistakes] == ["policies", "policies"]
    assert "'p0'" in str(caught.value) and "'p1'" in str(caught.value)
    config = config.copy(copy_frozen=False).apply(caught.value.mistakes[0].remedies[0])
    with pytest.raises(SettingsError, match="'p1'") as caught:
        config.build()
    build(config, caught.value.mistakes[0].remedies[0])
    config.multi_agent(policies={"p0", "p1"}, policy_mapping_fn={"0": "p0", "*": "p1"}).training(**own)
    with pytest.raises(SettingsError) as caught:
        config.build()
    (mistake,) = caught.value.mistakes
    assert mistake.names == ("model",)
    build(config, mistake.remedies[0])


# Rules that need several agents, a network of the user's, or recorded data; other tests break them.
ELSEWHERE = {
    "_check_goals", "_check_aggregation_of_agents", "_check_intrinsic_rewards", "_check_user_actor", "_check_means",
    "_check_estimates_of_agents",
}  # fmt: skip


def test_no_rule_is_left_out():
    """A new rule of spaces needs a case."""
    declared = {name for each in ALGORITHMS for name in _rules(get_algorithm_class(each).config_class)}
    for case in range(len(CASES)):
        refusal(case)
    assert declared - BROKEN == ELSEWHERE


def test_check_fit_refuses_what_build_refuses_and_starts_nothing(monkeypatch):
    monkeypatch.setattr(DQN, "_build", lambda self, factory: pytest.fail("something was started"))
    config = DQNConfig().environment("CartPole-v1")
    DQN.check_fit(config)
    assert not config.is_frozen
    for wrong in (DQNConfig().environment("Pendulum-v1"), DQNConfig().environment("CartPole-v1").training(lr=-1)):
        with pytest.raises(SettingsError) as checked:
            DQN.check_fit(wrong)
        with pytest.raises(SettingsError) as built:
            wrong.build()
        assert str(checked.value) == str(built.value)
