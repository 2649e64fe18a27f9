"""TRPO as an algorithm: the policy moves within the limit and the value apart from it; checkpoints; what is refused."""

import numpy as np
import pytest

from rllib.algorithms.trpo import TRPOConfig


def config(**training):
    settings = {"train_batch_size": 256, "sgd_minibatch_size": 64, "num_sgd_iter": 2, "model": {"fcnet_hiddens": [16]}}
    made = TRPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0, num_envs_per_worker=4)
    return made.training(**{**settings, **training}).debugging(seed=1)


def learner_stats(result):
    return result["info"]["learner"]["default_policy"]["learner_stats"]


def test_each_step_stays_within_its_limit():
    with config(target_kl=[[0, 0.02], [256, 1e-4]]).build() as algo:
        kls = [learner_stats(algo.train())["kl"] for _ in range(2)]
    assert 1e-3 < kls[0] <= 0.02
    assert 0 < kls[1] <= 1e-4


def test_fitting_the_value_leaves_the_policy_alone():
    with config(line_search_steps=1, target_kl=1e-12).build() as algo:
        before = algo.policy.get_weights()
        algo.train()
        after = algo.policy.get_weights()
    moved = {name.partition(".")[0] for name in after if not np.allclose(after[name], before[name], atol=1e-6)}
    assert moved == {"value"}


def test_a_checkpoint_has_all_that_the_next_step_needs(tmp_path):
    with config().build() as algo:
        algo.train()
        path, batch = algo.save(str(tmp_path)), algo.sample(256)
        steps = []
        for each in (algo, config().build()):
            each.restore(path)
            each.learn_on_batch(batch, num_epochs=1, lr=1e-3)
            each.trainee.region.step(batch, 0.01)
            steps.append(each.policy.weights.copy())
        each.stop()
    np.testing.assert_array_equal(*steps)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_discrete_and_continuous_actions(env):
    with config().environment(env).build() as algo:
        assert np.isfinite(list(learner_stats(algo.train()).values())).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: made.learners(num_learners=2), r"num_learners=2: the policy's step.*num_learners=0"),
        (lambda made: made.training(use_gae=False, use_critic=False), "TRPO fits a value"),
        (lambda made: made.training(model={"vf_share_layers": True}), "share layers"),
        (lambda made: made.training(model={"use_lstm": True}), "TRPO cannot train a policy with a memory"),
        (lambda made: made.training(target_kl=0.0), "target_kl"),
        (lambda made: made.training(weight_decay=0.1), "outside of its trust region"),
        (lambda made: made.training(opt_type="adamw"), "outside of its trust region"),
    ],
)
def test_settings_that_do_not_fit(change, message):
    with pytest.raises(ValueError, match=message):
        change(config()).build().stop()
