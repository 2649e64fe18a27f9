"""A teacher beside the loss of an algorithm: its weight falls to 0, so that the student may become better."""

import numpy as np
import pytest

from rllib import A2CConfig, A3CConfig, APPOConfig, IMPALAConfig, PGConfig, PPOConfig, TRPOConfig
from rllib import sample_batch as sb
from tests.algorithms.algorithm_support import learner_stats
from tests.algorithms.taught_worlds import Secretive, by_rule

KINDS = [PPOConfig, A2CConfig, PGConfig, IMPALAConfig, APPOConfig]


def config(kind, teacher, model=None, **training):
    made = kind().environment(Secretive, teacher_observation_keys=["secret"]).debugging(seed=0)
    made.rollouts(num_rollout_workers=0, num_envs_per_worker=4, rollout_fragment_length=16)
    made.training(train_batch_size=64, lr=1e-3, model={"fcnet_hiddens": [8], **(model or {})})
    if kind is PPOConfig:
        made.training(sgd_minibatch_size=32, num_sgd_iter=2)
    return made.training(teacher=teacher, **training)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", [{}, {"use_gru": True, "lstm_cell_size": 8, "max_seq_len": 5}], ids=["plain", "gru"])
@pytest.mark.parametrize("learner", ["auto", "torch"])
def test_a_scheduled_term(kind, model, learner, teacher):
    made = config(kind, teacher, model, teacher_coeff=[[0, 1.0], [192, 0.0]], beta=0.25, learner=learner)
    with made.reporting(min_time_s_per_iteration=0).build() as algo:
        found = [learner_stats(algo.train()) for _ in range(3)]
        assert [stats["teacher_coeff"] for stats in found] == pytest.approx([2 / 3, 1 / 3, 0], abs=1e-6)
        assert all(0 < stats["distillation_loss"] < 2 and 0 <= stats["teacher_agreement"] <= 1 for stats in found)
        others = {"policy_loss", "total_loss"} <= found[0].keys()
        assert others and all(stats["beta"] == 0.25 for stats in found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_term_is_added_to_the_loss(kind, teacher):
    """Of the first gradient step, the total is the loss without a teacher and the weighted term."""
    totals = []
    for coeff in (0.0, 0.5):
        made = config(kind, teacher, teacher_coeff=coeff, beta=1.0)
        if kind is PPOConfig:
            made.training(num_sgd_iter=1, sgd_minibatch_size=64)
        with made.reporting(min_time_s_per_iteration=0).build() as algo:
            totals.append(learner_stats(algo.train()))
    plain, taught = totals
    assert taught["distillation_loss"] == pytest.approx(plain["distillation_loss"], rel=1e-5)
    expected = plain["total_loss"] + 0.5 * plain["distillation_loss"]
    assert taught["total_loss"] == pytest.approx(expected, abs=1e-4)


def test_ratios_begin_at_one_where_the_teacher_acts(teacher):
    """PPO checks that the log-probabilities are its own: they are, of the teacher's actions as well."""
    with config(PPOConfig, teacher, teacher_coeff=1.0, beta=0.5, num_sgd_iter=1, sgd_minibatch_size=64).build() as algo:
        stats = learner_stats(algo.train())
        assert stats["clip_fraction"] == 0 and abs(stats["kl"]) < 1e-6


def test_auxiliary_losses_join(teacher):
    made = config(PPOConfig, teacher, teacher_coeff=1.0)
    made.training(auxiliary_losses={"size": lambda rows, outputs, model: outputs.dist_inputs.square().mean()})
    with made.build() as algo:
        assert {"size_loss", "distillation_loss"} <= learner_stats(algo.train()).keys()


def test_a_student_becomes_better_than_a_bad_teacher():
    """The teacher is wrong in every second step; beside PPO's loss its weight falls to 0."""

    def half(observations):
        return np.where(observations["place"][:, 2] % 2 == 0, by_rule(observations), 0)

    made = PPOConfig().environment(Secretive).debugging(seed=0).rollouts(num_rollout_workers=0, num_envs_per_worker=8)
    made.training(train_batch_size=512, sgd_minibatch_size=128, num_sgd_iter=6, lr=5e-3, gamma=0.0)
    made.training(model={"fcnet_hiddens": [16]}, teacher=half, teacher_coeff=[[0, 1.0], [5000, 0.0]])
    made.rollouts(observation_filter="MeanStdFilter")
    with made.build() as algo:
        for _ in range(25):
            result = algo.train()
        per_step = result["episode_reward_mean"] / result["episode_len_mean"]
        assert per_step > 0.9


@pytest.mark.parametrize("kind", [A3CConfig, TRPOConfig])
def test_who_takes_no_teacher(kind):
    made = kind().environment("CartPole-v1").training(teacher=lambda o: o, teacher_coeff=1.0)
    with pytest.raises(ValueError) as caught:
        made.validate()
    assert any(mistake.names == ("teacher",) for mistake in caught.value.mistakes)


def test_a_teacher_needs_a_weight_or_acts(teacher):
    made = config(PPOConfig, teacher)
    with pytest.raises(ValueError) as caught:
        made.validate()
    (mistake,) = caught.value.mistakes
    made.apply(mistake.remedies[0])
    made.validate()
    config(PPOConfig, teacher, beta=0.5).validate()


def test_costs_and_a_teacher(teacher):
    made = config(PPOConfig, teacher, teacher_coeff=1.0, cost_limit=1.0)
    with pytest.raises(ValueError) as caught:
        made.validate()
    assert any({"cost_limit", "teacher"} <= {*mistake.names} for mistake in caught.value.mistakes)


def test_batches_without_a_teacher_have_no_labels():
    with config(PPOConfig, None).build() as algo:
        batch = algo.sample(64)
    assert sb.TEACHER_ACTIONS not in batch and batch[sb.OBS].shape[1] == 3
