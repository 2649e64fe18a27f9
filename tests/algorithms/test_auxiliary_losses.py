"""Losses of the user's: what they are called with, how they weigh, what is reported, and what is refused."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from rllib import A2C, A3C, DQN, ES, IMPALA, PPO, AlgorithmConfig
from rllib.errors import NotFiniteError
from rllib.learners.learner import make_learner
from rllib.losses.ppo import PPO_LOSS
from rllib.losses.user.auxiliary import WithAuxiliary, auxiliary_losses
from rllib.models.catalog.catalog import policy_spec
from rllib.policy import Policy
from tests.algorithms.test_custom_networks import PPO_SETTINGS, Cell, Net, config
from tests.algorithms.test_recall import Recall
from tests.learners.learner_support import SETTINGS, make_batch
from tests.models.test_user_models import policy_of

torch.set_num_threads(1)


class Predicts(Net):
    """Net with a second head that only an auxiliary loss reads."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.prediction = nn.Linear(16, 1)


def prediction_error(minibatch, outputs, model):
    """How far the head is from the first number of the observation."""
    observation = minibatch["obs"]
    predicted = model.prediction(torch.tanh(model.first(observation)))[:, 0]
    error = predicted - observation[:, 0]
    return error.square().mean(), {"error": error.abs().mean()}


def logit_size(minibatch, outputs, model):
    return outputs.dist_inputs.square().mean()


PREDICTION = {"prediction": {"loss": prediction_error, "weight": 0.5, "stats": ["error"]}}


def with_losses(policy, setting, custom=None):
    return WithAuxiliary(PPO_LOSS, auxiliary_losses(setting), custom, policy.spec.opened)


def gradient_of(policy, loss, **settings):
    flat, stats = make_learner(policy, loss).compute_gradient(make_batch(policy, 64), **SETTINGS, **settings)
    return flat, stats


def test_its_gradient_is_added_with_its_weight():
    policy = policy_of(Predicts)
    plain, _ = gradient_of(policy, PPO_LOSS)
    whole, stats = gradient_of(policy, with_losses(policy, PREDICTION), prediction_weight=2.0)
    module = policy.spec.torch(policy.layout, torch.from_numpy(policy.weights.copy()), None)
    observations = torch.from_numpy(make_batch(policy, 64)["obs"])
    loss, reported = prediction_error({"obs": observations}, None, module.module.module)
    gradients = torch.autograd.grad(loss, module.leaves, materialize_grads=True)
    alone = torch.cat([gradient.detach().reshape(-1) for gradient in gradients]).numpy()
    assert abs(alone).max() > 1e-3
    np.testing.assert_allclose(whole - plain, 2 * alone, atol=1e-6)
    assert stats["prediction_loss"] == pytest.approx(loss.item(), abs=1e-6)
    assert stats["prediction_error"] == pytest.approx(reported["error"].item(), abs=1e-6)


def test_the_total_loss_has_it_in():
    policy = policy_of(Predicts)
    _, plain = gradient_of(policy, PPO_LOSS)
    _, stats = gradient_of(policy, with_losses(policy, PREDICTION), prediction_weight=2.0)
    assert stats["total_loss"] == pytest.approx(plain["total_loss"] + 2 * stats["prediction_loss"], abs=1e-5)
    assert stats["vf_loss"] == pytest.approx(plain["vf_loss"], abs=1e-5)


def test_a_custom_loss_stands_in_the_place_of_the_algorithm_s():
    policy = policy_of(Predicts)
    custom = with_losses(policy, {}, lambda loss, minibatch, outputs, model: 3 * loss)
    np.testing.assert_allclose(gradient_of(policy, custom)[0], 3 * gradient_of(policy, PPO_LOSS)[0], atol=1e-5)


def stats_of(algo):
    return algo.train()["info"]["learner"]["default_policy"]["learner_stats"]


def test_a_head_learns_what_only_an_auxiliary_loss_reads():
    schedule = {"prediction": {**PREDICTION["prediction"], "weight": [[0, 1.0], [320, 0.25]]}}
    settings = config(PPO, {"custom_model": Predicts}, **PPO_SETTINGS).training(auxiliary_losses=schedule)
    with settings.build() as algo:
        found = [stats_of(algo) for _ in range(6)]
    assert found[-1]["prediction_loss"] < 0.2 * found[0]["prediction_loss"]
    assert [each["prediction_weight"] for each in found[:3]] == [0.625, 0.25, 0.25]
    assert found[0].keys() >= {"prediction_error", "total_loss", "kl"}


@pytest.mark.parametrize(
    ("algorithm", "training"),
    [
        (A2C, {"microbatch_size": 40}),
        (IMPALA, {}),
        (DQN, {"num_steps_sampled_before_learning_starts": 100}),
    ],
)
def test_built_in_networks_take_them_too(algorithm, training):
    settings = config(algorithm, {"fcnet_hiddens": [8]}, **training)
    with settings.training(auxiliary_losses={"size": {"loss": logit_size, "weight": 0.1}}).build() as algo:
        for _ in range(3):
            stats = stats_of(algo)
        assert stats["size_loss"] >= 0 and stats["size_weight"] == 0.1


def test_workers_that_compute_gradients_know_them():
    settings = config(A3C, {"custom_model": Predicts}).rollouts(num_rollout_workers=1)
    with settings.training(auxiliary_losses=PREDICTION).build() as algo:
        assert stats_of(algo)["prediction_loss"] > 0


def signs(minibatch, outputs, model):
    column = minibatch["obs"][:, 0]
    found = {"max_obs": column.max(), "min": column.min(), "obs": column.mean()}
    return outputs.dist_inputs.square().mean(), found


# Names of losses that say nothing about their statistics.
SEVERAL = {
    name: {"loss": signs, "weight": 0.1, "stats": ["obs", "max_obs", "min"]} for name in ("size", "max_b", "min")
}


@pytest.mark.parametrize(
    ("learners", "parts"),
    [
        ({}, {"minibatch_size": 11}),
        ({}, {"microbatch_size": 11}),
        ({"num_learners": 2}, {}),
        ({"num_learners": 2}, {"minibatch_size": 11, "microbatch_size": 5}),
    ],
)
def test_extremes_are_those_that_a_statistic_s_own_name_asks_for(learners, parts):
    found = []
    for its_learners, its_parts in (({}, {}), (learners, parts)):
        settings = config(PPO, {"fcnet_hiddens": [8]}).training(auxiliary_losses=SEVERAL).learners(**its_learners)
        with settings.build() as algo:
            batch = make_batch(algo.policy, 66)
            weights = algo.auxiliary_weights()
            arguments = {**SETTINGS, **weights, **its_parts, "lr": 0.0, "rng": np.random.default_rng(0)}
            found.append((batch["obs"][:, 0], algo.learner.update(batch, **arguments)))
    (column, whole), (_, of_parts) = found
    for loss in SEVERAL:
        assert of_parts[f"{loss}_max_obs"] == pytest.approx(column.max(), rel=1e-5)
        assert of_parts[f"{loss}_min"] == pytest.approx(column.min(), rel=1e-5)
        for mean in (f"{loss}_obs", f"{loss}_loss"):
            assert of_parts[mean] == pytest.approx(whole[mean], rel=1e-4, abs=1e-6)


def test_extremes_of_the_gradients_of_workers_are_reported():
    def drawn(minibatch, outputs, model):
        number = torch.rand(())
        return outputs.dist_inputs.square().mean(), {"mean": number, "min_n": number, "max_n": number}

    losses = {"max_b": {"loss": drawn, "stats": ["mean", "min_n", "max_n"]}}
    settings = config(A3C, {"fcnet_hiddens": [8]}).rollouts(num_rollout_workers=2).training(auxiliary_losses=losses)
    with settings.build() as algo:
        stats = stats_of(algo)
    assert stats["max_b_min_n"] < stats["max_b_mean"] < stats["max_b_max_n"]


def test_a_memory_s_rows_reach_them_in_sequences():
    def counts(minibatch, outputs, model):
        assert minibatch["seq_lens"].sum() == len(minibatch["obs"]) == len(outputs.values)
        return outputs.values.square().mean()

    settings = config(PPO, {"custom_model": Cell}, Recall, **PPO_SETTINGS)
    with settings.training(auxiliary_losses={"size": counts}).build() as algo:
        assert stats_of(algo)["size_weight"] == 1.0


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"a b": logit_size}, "must be one like 'prediction'"),
        ({"size": 5}, r"auxiliary_losses\['size'\] must be a function"),
        ({"size": {"weight": 1.0}}, "must be a function"),
        ({"size": {"loss": logit_size, "wieght": 1.0}}, "wieght"),
        ({"size": {"loss": logit_size, "weight": "much"}}, "its weight='much' must be a number"),
        ({"size": {"loss": logit_size, "stats": "error"}}, "its stats must be a list of names"),
    ],
)
def test_settings_that_are_refused(setting, match):
    with pytest.raises(ValueError, match=match):
        config(PPO, {}).training(auxiliary_losses=setting).build()


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        (lambda minibatch, outputs, model: outputs.values, "must return a scalar tensor, but returned tensor"),
        (lambda minibatch, outputs, model: (outputs.values.mean(), {"odd": outputs.values.mean()}), "name its stat"),
    ],
)
def test_results_that_are_refused(returned, match):
    settings = config(PPO, {}).training(auxiliary_losses={"size": returned})
    with settings.build() as algo, pytest.raises(ValueError, match=match):
        algo.train()


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        (lambda loss: loss.detach(), r"^custom_loss must depend on .* without a gradient"),
        (lambda loss: torch.zeros(()), r"^custom_loss must depend on "),
        (lambda loss: loss.detach().numpy(), r"^custom_loss must return a scalar tensor, but returned array\("),
        (lambda loss: loss * torch.ones(3), r"^custom_loss must .* a tensor of shape \[3\]"),
        (lambda loss: None, r"^custom_loss must .* returned None"),
    ],
)
@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_results_of_a_custom_loss_that_are_refused(algorithm, returned, match):
    settings = small(algorithm, custom_loss=lambda loss, minibatch, outputs, model: returned(loss))
    with settings.build() as algo, pytest.raises(ValueError, match=match):
        algo.train()


def test_a_custom_loss_may_leave_the_gradient_to_auxiliary_losses():
    with small(PPO, custom_loss=lambda *given: torch.zeros(()), auxiliary_losses={"size": logit_size}).build() as algo:
        stats = stats_of(algo)
    assert stats["total_loss"] == pytest.approx(stats["size_loss"])


def test_where_there_is_no_gradient_there_is_no_loss_to_add_to():
    settings = AlgorithmConfig(algo_class=ES).environment(Recall).training(auxiliary_losses={"size": logit_size})
    with pytest.raises(ValueError, match=r"auxiliary_losses=.*there is no gradient"):
        settings.build()


def test_columns_are_asked_of_the_batch():
    setting = {"size": {"loss": logit_size, "columns": ["cost_targets"]}}
    settings = config(PPO, {}).training(auxiliary_losses=setting)
    with settings.build() as algo, pytest.raises(ValueError, match=r"lacks the columns \['cost_targets'\]"):
        algo.train()


@pytest.mark.parametrize("model", [{"vf_share_layers": True}, {"vf_share_layers": False, "layer_norm": True}])
def test_gradients_flow_to_the_parameters_of_a_built_in_network(model):
    """The gradient of half the sum of their squares is the weights themselves."""

    def decay(minibatch, outputs, model):
        return sum(parameter.square().sum() for parameter in model.parameters()) / 2

    policy = Policy(policy_spec(Box(-1, 1, (4,)), Discrete(3), {"fcnet_hiddens": [8, 5], **model}),
                    rng=np.random.default_rng(0))  # fmt: skip
    plain, _ = gradient_of(policy, PPO_LOSS)
    whole, _ = gradient_of(policy, with_losses(policy, {"decay": decay}), decay_weight=1.0)
    np.testing.assert_allclose(whole - plain, policy.weights, atol=1e-5)


def small(algorithm, **training):
    settings = PPO_SETTINGS if algorithm is PPO else {"num_steps_sampled_before_learning_starts": 50}
    return config(algorithm, {"fcnet_hiddens": [8]}, **{**settings, **training})


@pytest.mark.parametrize(
    ("name", "stats", "taken"),
    [
        ("policy", [], "policy_loss"),
        ("total", [], "total_loss"),
        ("vf", ["explained_var"], "vf_"),
        ("grad", ["gnorm"], "grad_gnorm"),
        ("entropy", ["coeff"], "entropy_coeff"),
        ("size", ["size_loss", "loss"], "size_loss"),
    ],
)
def test_names_of_other_statistics_are_refused_at_build(name, stats, taken):
    losses = {name: {"loss": logit_size, "stats": stats}}
    with pytest.raises(ValueError, match=rf"auxiliary_losses\['{name}'\] would report '{taken}"):
        small(PPO, auxiliary_losses=losses).build()


def test_names_of_each_others_statistics_are_refused_at_build():
    losses = {"a": {"loss": logit_size, "stats": ["b_loss"]}, "a_b": logit_size}
    with pytest.raises(ValueError, match=r"\['a_b'\] would report 'a_b_loss', which is a statistic of aux.*\['a'\]"):
        small(PPO, auxiliary_losses=losses).build()


def asking(*columns):
    def loss(loss, minibatch, outputs, model):
        return loss

    loss.columns = columns
    return loss


@pytest.mark.parametrize("algorithm", [PPO, DQN])
@pytest.mark.parametrize(
    "losses",
    [{"auxiliary_losses": {"x": {"loss": logit_size, "columns": ["rewadrs"]}}}, {"custom_loss": asking("rewadrs")}],
    ids=["auxiliary", "custom"],
)
def test_columns_that_no_batch_has_are_refused_at_build(losses, algorithm):
    with pytest.raises(ValueError, match=r"reads the column 'rewadrs', but no batch has it.*rewards"):
        small(algorithm, **losses).build()


def test_columns_that_a_callback_adds_may_be_asked_for():
    def add(*, train_batch, **_):
        train_batch["own"] = np.zeros(train_batch.count, np.float32)

    def reads(loss, minibatch, outputs, model):
        return loss + minibatch["own"].mean()

    reads.columns = ("own",)
    with small(PPO, custom_loss=reads).callbacks(on_learn_on_batch=add).build() as algo:
        assert np.isfinite(stats_of(algo)["total_loss"])


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_a_column_that_was_not_asked_for_says_how(algorithm):
    settings = small(algorithm, custom_loss=lambda loss, minibatch, outputs, model: minibatch["terminateds"])
    with settings.build() as algo, pytest.raises(KeyError, match="Name what the loss reads as well"):
        algo.train()


def test_values_that_a_network_does_not_have_are_no_empty_tensor():
    settings = small(DQN, custom_loss=lambda loss, minibatch, outputs, model: loss + outputs.values.mean())
    with settings.build() as algo, pytest.raises(ValueError, match="has no value function"):
        algo.train()


@pytest.mark.parametrize("algorithm", [PPO, A2C, A3C, IMPALA, DQN])
def test_a_loss_that_is_nan_with_a_finite_gradient_ends_the_run(algorithm):
    def nan(loss, minibatch, outputs, model):
        return loss + minibatch["obs"][:0].mean()

    settings = small(algorithm) if algorithm in (PPO, DQN) else config(algorithm, {"fcnet_hiddens": [8]})
    with settings.training(custom_loss=nan).build() as algo, pytest.raises(NotFiniteError, match="total_loss"):
        for _ in range(3):
            algo.train()
