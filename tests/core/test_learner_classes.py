"""Losses given as Learner classes: the gradient by hand, logged values, and what is refused."""

import numpy as np
import pytest
import torch

from rllib import A2CConfig, PPOConfig, SACConfig
from rllib.core import Columns, PPOTorchLearner, RLModuleSpec, TorchLearner, TorchRLModule, ValueFunctionAPI
from rllib.core.learner.learner_loss import LearnerLoss


class Regularized(PPOTorchLearner):
    def build(self):
        super().build()
        self.coefficient = self.config.learner_config_dict["coefficient"]

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        weights = torch.cat([each.flatten() for each in self.get_parameters(self.module[module_id])])
        self.metrics.log_value((module_id, "mean_weight"), weights.mean(), window=1)
        self.metrics.log_value("all_losses", loss, reduce="sum")
        return loss + self.coefficient * weights.square().sum()


class OfValuesAlone(TorchLearner):
    columns = ("rewards",)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        values = self.module[module_id].compute_values(batch)
        assert torch.equal(values, fwd_out[Columns.VF_PREDS])
        return (values - batch["rewards"]).square().mean()


class Linear(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        self.policy, self.value = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.policy(batch[Columns.OBS])}

    def compute_values(self, batch, embeddings=None):
        return self.value(batch[Columns.OBS]).squeeze(-1)


def config(learner_class, config_class=A2CConfig, **settings):
    given = config_class().environment("CartPole-v1").rollouts(num_rollout_workers=0).debugging(seed=0)
    given.training(train_batch_size=40, learner_class=learner_class, **settings)
    return given.reporting(min_time_s_per_iteration=0)


@pytest.mark.parametrize("num_learners", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_loss_changes_the_step_and_what_it_logs_is_reported(num_learners):
    """One step of plain gradient descent: each weight w moves by -lr 2 c w more than without the term."""
    moved = {}
    for coefficient in (0.0, 0.5):
        given = config(Regularized, lr=0.1, opt_type="sgd", grad_clip=None)
        given.training(learner_config_dict={"coefficient": coefficient})
        with given.training(model={"fcnet_hiddens": [8]}).learners(num_learners=num_learners).build() as algo:
            before = algo.get_policy().weights.copy()
            result = algo.train()
            moved[coefficient] = algo.get_policy().weights - before
            stats = result["info"]["learner"]["default_policy"]["learner_stats"]
            assert stats["mean_weight"] == pytest.approx(before.mean(), abs=1e-6)
            assert result["learners/default_policy/mean_weight"] == stats["mean_weight"]
            assert result["learners"]["all_losses"] == result["logged/learners/all_losses"]
    np.testing.assert_allclose(moved[0.5] - moved[0.0], -0.1 * 2 * 0.5 * before, atol=1e-5)


@pytest.mark.parametrize("module", [None, Linear])
def test_a_loss_in_the_place_of_the_algorithms(module):
    """The gradient of mean (v - r)^2 with respect to the value's bias is mean 2 (v - r); the policy stays."""
    given = config(OfValuesAlone, lr=0.1, opt_type="sgd", grad_clip=None)
    if module is not None:
        given.rl_module(rl_module_spec=RLModuleSpec(module))
    else:
        given.training(model={"fcnet_hiddens": [], "vf_share_layers": False})
    batches = []
    given.callbacks(on_learn_on_batch=lambda *, train_batch, **kwargs: batches.append(train_batch))
    with given.build() as algo:
        policy = algo.get_policy()
        before = policy.get_weights()
        algo.train()
        after = policy.get_weights()
    (batch,) = batches
    value = next(name for name in before if name.startswith("value") and name.endswith("bias"))
    expected = -0.1 * np.mean(2 * (batch["vf_preds"] - batch["rewards"]))
    assert float(after[value][0] - before[value][0]) == pytest.approx(expected, abs=1e-5)
    for name in before:
        if name.startswith("policy"):
            np.testing.assert_array_equal(before[name], after[name])


def test_a_learner_is_made_once_in_a_process_and_not_pickled():
    import pickle

    loss = LearnerLoss(OfValuesAlone, None, "default_policy")
    loss._learner = object()
    assert pickle.loads(pickle.dumps(loss))._learner is None


class Optimizers(TorchLearner):
    def configure_optimizers_for_module(self, module_id, config=None):
        pass


class Clips(TorchLearner):
    def postprocess_gradients_for_module(self, **kwargs):
        pass


class Missing(TorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        return batch["infos"].mean()


@pytest.mark.parametrize(
    ("learner_class", "says"),
    [
        (Optimizers, r"overrides configure_optimizers_for_module, which nothing calls here: use \.training\(lr="),
        (Clips, r"use \.training\(grad_clip="),
        (int, "must be a class derived from TorchLearner"),
    ],
)
def test_another_override_is_refused_with_the_line_to_write(learner_class, says):
    with pytest.raises(ValueError, match=says):
        config(learner_class).validate()


def test_a_column_that_is_not_there_is_named():
    with (
        config(Missing).build() as algo,
        pytest.raises(KeyError, match=r"no 'infos'. Name what the loss reads as well in the class, columns"),
    ):
        algo.train()


def test_a_loss_without_a_gradient_is_named():
    class Detached(PPOTorchLearner):
        def compute_loss_for_module(self, **given):
            return super().compute_loss_for_module(**given).detach()

    says = r"^compute_loss_for_module of learner_class must depend on "
    with config(Detached).build() as algo, pytest.raises(ValueError, match=says):
        algo.train()


def test_two_losses_are_refused():
    with pytest.raises(ValueError, match="both replace the loss"):
        config(Regularized, custom_loss=lambda loss, *rest: loss).validate()


def test_a_loss_over_several_modules_is_not_changed():
    given = SACConfig().environment("Pendulum-v1").training(learner_class=TorchLearner)
    with pytest.raises(ValueError, match="the losses are over actor and critics"):
        given.validate()


def test_ppo_trains_with_one():
    given = config(Regularized, PPOConfig, learner_config_dict={"coefficient": 1e-3}, sgd_minibatch_size=20)
    with given.training(num_sgd_iter=2, model={"fcnet_hiddens": [8]}).build() as algo:
        assert np.isfinite(algo.train()["learners/default_policy/total_loss"])
