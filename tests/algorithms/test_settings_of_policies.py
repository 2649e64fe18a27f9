"""Settings that a policy may have for itself: those that are declared so are those that its training reads."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib.algorithms.base.registry import algorithm_names, get_algorithm_class
from rllib.env import make_multi_agent
from tests.algorithms.test_every_algorithm import GROUPS, small
from tests.algorithms.test_qmix import PairsNameTheSignal
from tests.config.recorded_reads import recorded_reads

# Settings of the run that are read with those of a policy: whoever makes its parts has the policy's config alone.
OF_RUN = {
    **dict.fromkeys(
        ("action_mask_key", "centralized_critic", "critic_observation_keys", "input_"), "where observations come from"
    ),
    **dict.fromkeys(("num_gpus", "num_learners", "num_cpus_per_learner"), "processes and devices, claimed at once"),
    "torch_matmul_precision": "torch has one for the process",
    "learner_class": "the run logs what such learners log",
    "recompute_advantages": "batches have the rows for it, or have none",
    "cost_limit": "costs are of one agent",
    **dict.fromkeys(("normalize_returns", "normalized_reward_clip", "scale_rewards"), "rewards of all are, or of none"),
    "sample_async": "workers sample for all policies",
    **dict.fromkeys(
        (
            *("num_replay_buffer_shards", "max_requests_in_flight_per_replay_worker", "sample_timeout_s"),
            *("delay_between_worker_restarts_s", "ignore_worker_failures", "recreate_failed_workers"),
            *("max_num_worker_restarts", "num_consecutive_worker_failures_tolerance"),
        ),
        "the processes of replays",
    ),
}
# Settings of a policy that are read from the run's as well.
ALSO_OF_RUN = {
    "explore": "by what acts outside of training",
    "exploration_config": "its kind, which is intrinsic for all policies or for none",
    "model": "the size of Atari's pictures, and whether observations have the step before",
    "n_step": "the length of fragments, which are of all policies",
    "train_batch_size": "IMPALA's longest wait for a batch",
    "replay_buffer_config": "whether it relabels goals or lies on the disk, which the run says",
    "zero_init_states": "with replay_buffer_config",
    "teacher": "whether the run acts and does not learn",
}
# Needs recorded data, of which several agents have none.
NOT_WITH_SEVERAL_AGENTS = {"margin"}


def _zeros(observations):
    """A teacher."""
    return np.zeros(len(observations), int)


TRAIN_SEVERAL = [name for name in algorithm_names() if get_algorithm_class(name).trains_several]
# Algorithm, and settings by which it reads more of them.
SITUATIONS = {
    **{name: (name, {}) for name in TRAIN_SEVERAL},
    "C51": ("DQN", {"num_atoms": 5}),
    "IQN": ("DQN", {"num_quantiles": 8, "implicit_quantiles": True, "noisy": True}),
    "Munchausen": ("DQN", {"munchausen_alpha": 0.9, "double_q": False}),
    "bins": ("SAC", {"num_atoms": 5, "env": "Pendulum-v1"}),
    "Huber": ("TD3", {"use_huber": True}),
    "smoothed targets": ("DDPG", {"smooth_target_policy": True}),
    "returns that are divided before they are stored": ("PPO", {"normalize_returns": True}),
    "returns that are divided in updates": ("SAC", {"scale_rewards": True}),
    "teachers": ("DAgger", {"teacher": {"only": _zeros}, "teacher_mapping_fn": lambda observation: "only"}),
}


def _own(agent, *args, **kwargs):
    return f"p{agent}"


def of_two_policies(name, settings, own_of_first, own_of_second, env=None):
    config = small(name).debugging(seed=1).update_from_dict(settings)
    config.reporting(min_sample_timesteps_per_iteration=1).evaluation(evaluation_interval=None)
    if getattr(config, "needs_teacher", False) and config.teacher is None:
        config.training(teacher=_zeros)
    if name in GROUPS:
        config.environment(PairsNameTheSignal)
        policies = {"first": own_of_first, "second": own_of_second}
        return config.multi_agent(policies=policies, policy_mapping_fn={each: each for each in policies})
    config.environment(make_multi_agent(env or config.env), env_config={"num_agents": 2})
    return config.multi_agent(policies={"p0": own_of_first, "p1": own_of_second}, policy_mapping_fn=_own)


def of_policy(name):
    settings = get_algorithm_class(name).config_class.settings
    return {each for each, setting in settings.items() if setting.of_policy}


@pytest.fixture(scope="module")
def read():
    """Situation -> what two iterations read from a policy's settings, and from those of the run."""
    return {}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_training_reads_for_a_policy_is_declared_so(situation, read):
    name, settings = SITUATIONS[situation]
    config = of_two_policies(name, settings, {"gamma": 0.9}, {"gamma": 0.8})
    with recorded_reads() as reads, config.build() as algo:
        for _ in range(2):
            algo.train()
        first, *_ = algo.policies
        of_one, of_run = reads.of(algo.config_of(first)), reads.of(algo.config)
    read[situation] = of_one
    assert of_one - of_policy(name) <= OF_RUN.keys()
    assert of_run & of_policy(name) <= ALSO_OF_RUN.keys()


def test_every_setting_of_a_policy_is_read_for_it(read):
    if read.keys() != SITUATIONS.keys():
        pytest.skip("the other tests of this file have not all run")
    declared = set().union(*map(of_policy, TRAIN_SEVERAL))
    assert declared - set().union(*read.values()) == NOT_WITH_SEVERAL_AGENTS
    # The tables above have no rows that nothing needs.
    assert OF_RUN.keys() <= set().union(*read.values()) - declared
    assert ALSO_OF_RUN.keys() <= declared


# ------------------------------------------------------------------ acts on its policy alone


class Drawn(gymnasium.Env):
    """Ten steps with observations drawn at random, whatever is done; the reward is the action."""

    observation_space = Box(-1, 1, (2,), np.float32)

    def __init__(self, config=None):
        self.action_space = Box(-1, 1, (1,), np.float32) if (config or {}).get("continuous") else Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._drawn(), {}

    def step(self, action):
        self.t += 1
        return self._drawn(), float(np.sum(action)), False, self.t == 10, {}

    def _drawn(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


# (algorithm, settings of both policies, settings of the first alone).
OF_ONE = [
    ("PPO", {"kl_coeff": 1.0}, {"use_kl_loss": False}),
    ("PPO", {"lr": 0.01}, {"target_kl": 1e-6}),
    ("PPO", {"learner": "torch"}, {"torch_autocast": "bfloat16"}),
    ("APPO", {"num_sgd_iter": 2}, {"use_kl_loss": True}),
    ("APPO", {"num_sgd_iter": 4, "lr": 0.01}, {"target_kl": 1e-6}),
    ("APPO", {"use_kl_loss": True, "num_sgd_iter": 2}, {"target_update_frequency": 2}),
    ("IMPALA", {"num_sgd_iter": 2}, {"minibatch_buffer_size": 2}),
    ("A2C", {}, {"microbatch_size": 8}),
    ("TRPO", {}, {"target_kl": 0.1}),
    ("TRPO", {}, {"cg_iterations": 1}),
    ("TRPO", {}, {"cg_damping": 10.0}),
    ("TRPO", {}, {"kl_subsampling": 5}),
    ("DQN", {}, {"conservative_weight": 1.0}),
    ("DQN", {"training_intensity": 4.0}, {"training_intensity": 8.0}),
    ("DQN", {}, {"num_steps_sampled_before_learning_starts": 200}),
    ("R2D2", {}, {"use_h_function": False}),
    ("R2D2", {"model": {"max_seq_len": 4}}, {"zero_init_states": False}),
    ("SAC", {"continuous": True}, {"alpha_lr": 0.1}),
    ("SAC", {"continuous": True}, {"n_critics": 3}),
    ("SAC", {"continuous": True, "n_critics": 3}, {"target_critics_sampled": 1}),
    ("TQC", {"continuous": True}, {"n_quantiles": 5}),
    ("TQC", {"continuous": True}, {"top_quantiles_to_drop_per_net": 0}),
    ("CrossQ", {"continuous": True}, {"adam_beta1": 0.9}),
    ("CrossQ", {"continuous": True}, {"batch_norm_actor": False}),
    ("TD3", {"continuous": True}, {"l2_reg": 1.0}),
    ("TD3", {"continuous": True}, {"use_huber": True, "huber_threshold": 0.01}),
]


def weights_of(name, settings, own):
    """Policy id -> weights of its whole learner after a few updates."""
    settings = dict(settings)
    env_config = {"num_agents": 2, "continuous": settings.pop("continuous", False)}
    config = of_two_policies(name, settings, own, {"gamma": 0.99}, Drawn).environment(env_config=env_config)
    config.rollouts(rollout_fragment_length="auto" if config.on_policy else 20, batch_mode="truncate_episodes")
    with config.build() as algo:
        for _ in range(4):
            algo.train()
        return {policy_id: algo.policies[policy_id].weights.copy() for policy_id in algo.policies}


@pytest.mark.parametrize("name, both, own", OF_ONE, ids=lambda given: str(given))
def test_a_setting_of_one_policy_acts_on_it_alone(name, both, own):
    without, with_own = weights_of(name, both, {}), weights_of(name, both, own)
    assert not np.array_equal(without["p0"], with_own["p0"])
    np.testing.assert_array_equal(without["p1"], with_own["p1"])


@pytest.mark.parametrize("name, setting", [("PPO", "train_batch_size"), ("SAC", "param_resets"), ("DQN", "seed")])
def test_a_setting_that_is_read_for_the_run_alone_is_refused(name, setting):
    config = of_two_policies(name, {}, {setting: [5] if setting == "param_resets" else 5}, None)
    with pytest.raises(ValueError, match=rf"sets {setting}, which belongs to the run"):
        config.build()
