"""Which settings are said to have no effect: those that act nowhere in a run, where they were given."""

from pathlib import Path

import pytest

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.ppo import PPOConfig
from rllib.cli.checkpoints import acting_algorithm
from rllib.env.multi_agent import make_multi_agent
from rllib.evaluation.rollout_worker import RolloutWorker
from rllib.policies import PolicySpec
from tests.config.probes import messages

OF_POLICIES = [
    (PPOConfig, {"decay": 0.9}, {"opt_type": "rmsprop"}),
    (PPOConfig, {"grad_clip_by": "value"}, {"grad_clip": 1.0}),
    (PPOConfig, {"observation_clip": 5.0}, {"observation_filter": "MeanStdFilter"}),
    (DQNConfig, {"sigma0": 0.1}, {"noisy": True}),
    (DQNConfig, {"v_max": 5.0}, {"num_atoms": 11}),
]


def told_by(make):
    with messages() as told:
        made = make()
    made.stop()
    return [line for line in told.lines if "has no effect" in line]


def _own(agent, *args, **kwargs):
    return f"p{agent}"


def of_two_policies(config_class, of_run, of_policy):
    config = config_class().environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
    config.rollouts(num_rollout_workers=0).update_from_dict(of_run)
    return config.multi_agent(policies={"p0": PolicySpec(config=of_policy), "p1": None}, policy_mapping_fn=_own)


@pytest.mark.parametrize("config_class, setting, needed", OF_POLICIES)
def test_a_setting_acts_where_it_acts_for_one_policy(config_class, setting, needed):
    assert told_by(of_two_policies(config_class, setting, needed).build) == []
    assert told_by(of_two_policies(config_class, {}, setting | needed).build) == []
    assert told_by(of_two_policies(config_class, needed, setting).build) == []


@pytest.mark.parametrize("config_class, setting, needed", OF_POLICIES)
def test_a_setting_that_a_policy_alone_has_is_told_with_the_policy(config_class, setting, needed):
    (line,) = told_by(of_two_policies(config_class, {}, setting).build)
    assert line.startswith(f"{next(iter(setting))}=") and "has no effect for policy 'p0'" in line


def test_a_policy_that_is_added_has_settings_of_its_own():
    def make():
        algo = of_two_policies(PPOConfig, {}, {}).build()
        algo.add_policy("acts", config={"opt_type": "rmsprop", "decay": 0.9})
        algo.add_policy("does not", config={"decay": 0.8})
        return algo

    assert told_by(make) == ["decay=0.8 has no effect for policy 'does not', in PPO: opt_type is not 'rmsprop'."]


# ------------------------------------------------------------------ where a program has changed settings around them


def with_workers():
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=2, rollout_fragment_length=10)
    config.fault_tolerance(recreate_failed_workers=True).resources(num_cpus_per_worker=0.5)
    return config.training(train_batch_size=20, sgd_minibatch_size=20, num_sgd_iter=1)


def test_a_worker_alone_is_not_told_what_workers_of_the_run_need():
    config = with_workers().rollouts(observation_clip=5.0)
    (line,) = told_by(lambda: RolloutWorker.from_config(config))
    assert line.startswith("observation_clip")


def test_a_restored_run_is_told_of_what_it_is_given_alone(tmp_path):
    with with_workers().build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    assert told_by(lambda: Algorithm.from_checkpoint(path, {"num_rollout_workers": 0})) == []
    given = {"num_rollout_workers": 0, "grad_clip_by": "value", "num_cpus_per_worker": 0.25}
    lines = told_by(lambda: Algorithm.from_checkpoint(path, given))
    assert [line.split("=")[0] for line in sorted(lines)] == ["grad_clip_by", "num_cpus_per_worker"]


def test_a_checkpoint_of_a_run_with_workers_is_evaluated_without_a_word(tmp_path):
    with with_workers().build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    assert told_by(lambda: acting_algorithm(Path(path), load_user_code=False)) == []
