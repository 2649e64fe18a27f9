"""A value that learns first: the policy, which begins with the weights of another run, stays as it is meanwhile."""

import numpy as np
import pytest

from rllib import A2CConfig, A3CConfig, APPOConfig, DistillationConfig, IMPALAConfig, PPOConfig
from rllib.config.conflicts import SettingsError
from tests.algorithms.algorithm_support import learner_stats

GRU = {"use_gru": True, "lstm_cell_size": 8, "max_seq_len": 8}
UPDATES = 2


def by_angle(observations):
    """A teacher: a torque against the angle."""
    return -2 * observations[:, 1:2]


def mean_value(rows, outputs, model):
    """An auxiliary loss."""
    return outputs.values.mean()


def config(kind, model=None, **training):
    made = kind().environment("Pendulum-v1").debugging(seed=0).reporting(min_time_s_per_iteration=0)
    made.rollouts(num_rollout_workers=0, num_envs_per_worker=4, rollout_fragment_length=16)
    separate = {"vf_share_layers": False, "fcnet_hiddens": [8], **(model or {})}
    if kind in (PPOConfig, DistillationConfig):
        made.training(sgd_minibatch_size=32, num_sgd_iter=2)
    return made.training(**{"train_batch_size": 64, "model": separate, "lr": 1e-3, **training})


@pytest.fixture(scope="module", params=[{}, GRU], ids=["plain", "gru"])
def student(request, tmp_path_factory):
    """A policy without a value: the path of its checkpoint, its network, and its parameters."""
    made = config(DistillationConfig, request.param, teacher=by_angle).rollouts(observation_filter="MeanStdFilter")
    with made.build() as algo:
        algo.train()
        path = algo.save(tmp_path_factory.mktemp("students") / "student")
        return path, request.param, algo.get_parameters()["policy"]


@pytest.mark.parametrize("learner", ["auto", "torch"])
@pytest.mark.parametrize("model", [{}, GRU], ids=["plain", "gru"])
@pytest.mark.parametrize("kind", [PPOConfig, A2CConfig, IMPALAConfig, APPOConfig])
def test_the_value_learns_first(kind, model, learner):
    """Whatever moves the policy: advantages, entropy, a teacher, a momentum."""
    made = config(kind, model, learner=learner, actor_warmup_updates=UPDATES, entropy_coeff=0.1, opt_type="rmsprop")
    made.training(teacher=by_angle, teacher_coeff=1.0, momentum=0.5)
    with made.build() as algo:
        before = algo.get_parameters()["policy"]
        for update in range(UPDATES + 1):
            assert learner_stats(algo.train())["vf_loss"] > 0
            now = algo.get_parameters()["policy"]
            changed = {name for name in now if not np.array_equal(now[name], before[name])}
            assert any(name.startswith("value.") for name in changed)
            assert any(name.startswith("policy.") for name in changed) == (update == UPDATES)


def test_the_penalty_does_not_adapt_to_a_policy_that_stays():
    with config(PPOConfig, actor_warmup_updates=UPDATES, lr=1e-6).build() as algo:
        coefficients = [learner_stats(algo.train())["cur_kl_coeff"] for _ in range(UPDATES + 2)]
    assert coefficients == [0.2, 0.2, 0.2, 0.1]


def test_a_restored_run_does_not_warm_up_again(tmp_path):
    made = config(PPOConfig, actor_warmup_updates=1)
    with made.build() as algo:
        algo.train()
        path = algo.save(tmp_path / "run")
    with made.build() as algo:
        algo.restore(path)
        before = algo.get_parameters()["policy"]["policy.head.weight"]
        algo.train()
        assert (algo.get_parameters()["policy"]["policy.head.weight"] != before).any()


def test_a_policy_begins_as_a_student(student):
    """PPO's policy acts as the student did, whose layers no value shares; its own value stays."""
    path, model, parameters = student
    made = config(PPOConfig, {**model, "free_log_std": True}, actor_warmup_updates=1)
    with made.rollouts(observation_filter="MeanStdFilter").build() as algo:
        value = algo.get_parameters()["policy"]["value.head.weight"]
        algo.set_parameters(path, exact_match=False)
        own = algo.get_parameters()["policy"]
        for name, given in parameters.items():
            np.testing.assert_array_equal(own[name.replace("shared.", "policy.")], given)
        np.testing.assert_array_equal(own["value.head.weight"], value)
        assert algo.policy.filter.get_state()["count"] > 0
        algo.train()
        np.testing.assert_array_equal(
            algo.get_parameters()["policy"]["policy.head.weight"], parameters["policy.head.weight"]
        )


def test_a_student_has_not_all_parameters(student):
    path, model, _ = student
    made = config(PPOConfig, {**model, "free_log_std": True}).rollouts(observation_filter="MeanStdFilter")
    with made.build() as algo, pytest.raises(ValueError, match="value") as caught:
        algo.set_parameters(path)
    assert "exact_match=False" in caught.value.__notes__[0]


def test_parameters_that_nothing_takes_are_named(student, caplog):
    path, model, _ = student
    made = config(PPOConfig, {**model, "fcnet_hiddens": [8, 8]}).rollouts(observation_filter="MeanStdFilter")
    with made.build() as algo, pytest.raises(ValueError, match=r"policy\.head"):  # its deviation is an output
        algo.set_parameters(path, exact_match=False)
    assert "leaves out policy.log_std" in caplog.text


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        (PPOConfig, {"model": {"vf_share_layers": True, "fcnet_hiddens": [8]}}, "model"),
        (PPOConfig, {"model": {**GRU, "vf_share_memory": True}}, "model"),
        (PPOConfig, {"model": {"fcnet_hiddens": []}}, "actor_warmup_updates"),
        (
            PPOConfig,
            {"auxiliary_losses": {"size": mean_value}},
            "auxiliary_losses",
        ),
        (PPOConfig, {"lr": {"type": "kl_adaptive", "initial": 1e-3, "desired_kl": 0.01}}, "lr"),
        (PPOConfig, {"use_critic": False, "use_gae": False}, "use_critic"),
        (PPOConfig, {"opt_type": "adamw"}, "opt_type"),
        (A2CConfig, {"weight_decay": 0.1}, "weight_decay"),
        (PPOConfig, {"cost_limit": 1.0}, "cost_limit"),
        (A3CConfig, {}, "actor_warmup_updates"),
    ],
)
def test_what_would_move_the_policy(kind, given, name):
    made = config(kind, **given, actor_warmup_updates=3)
    (mistake,) = mistakes_of(made)
    assert name in mistake.names
    for remedy in mistake.remedies:
        assert not mistakes_of(made.copy(copy_frozen=False).apply(remedy))


def mistakes_of(made):
    """What is wrong with the warm-up in these settings."""
    try:
        made.build().stop()
    except SettingsError as error:
        return [mistake for mistake in error.mistakes if "actor_warmup_updates" in mistake.names]
    return []
