"""GAIL: what it imitates, what stays the environment's, splits among workers, checkpoints, and refusals."""

import gymnasium
import numpy as np
import pytest

from rllib import AIRLConfig, AMPConfig, DefaultCallbacks
from rllib import sample_batch as sb
from rllib.algorithms.gail import GAILConfig
from rllib.config.conflicts import SettingsError
from rllib.env.external import ExternalEnv
from rllib.offline.dataset import Dataset
from tests.algorithms.algorithm_support import learner_stats, train
from tests.imitation.demonstrations import always_left, recorded

LEFT = always_left()
SMALL = {
    "train_batch_size": 128, "sgd_minibatch_size": 64, "num_sgd_iter": 2, "lr": 1e-3, "model": {"fcnet_hiddens": [16]},
    "discriminator_model": {"fcnet_hiddens": [16]}, "discriminator_updates": 3, "discriminator_batch_size": 32,
}  # fmt: skip


def make(data=LEFT, env="CartPole-v1", workers=0, envs=4, config=GAILConfig, **training):
    return (
        config()
        .environment(env)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=16)
        .offline_data(demonstrations=data)
        .training(**{**SMALL, **training})
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        .debugging(seed=3)
    )


class Batches(DefaultCallbacks):
    seen: list = []  # noqa: RUF012

    def on_learn_on_batch(self, *, train_batch, **kwargs):
        self.seen.append({name: column.copy() for name, column in train_batch.items()})


def first_batch(*args, **training):
    """The columns that are learned from in the first iteration, and the result."""
    Batches.seen.clear()
    with make(*args, **training).callbacks(Batches).build() as algo:
        result = algo.train()
    return Batches.seen[0], result


class Outside(ExternalEnv):
    """A loop that drives CartPole."""

    def __init__(self, config):
        self.env = gymnasium.make("CartPole-v1")
        super().__init__(self.env.action_space, self.env.observation_space)

    def run(self):
        while True:
            episode, (seen, _), over = self.start_episode(), self.env.reset(), False
            while not over:
                seen, reward, terminated, truncated, _ = self.env.step(self.get_action(episode, seen))
                self.log_returns(episode, reward)
                over = terminated or truncated
            self.end_episode(episode, seen)


# ---------------------------------------------------------------------- what it learns


def imitating(absorbing, steps=20_000):
    config = GAILConfig().environment("CartPole-v1").offline_data(demonstrations=LEFT).debugging(seed=0)
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=16).training(absorbing=absorbing, lr=1e-3)
    config.training(discriminator_lr=3e-4, gradient_penalty=10.0)
    config.reporting(min_sample_timesteps_per_iteration=steps, metrics_num_episodes_for_smoothing=50)
    with config.build() as algo:
        return algo.train()["episode_reward_mean"]


def test_an_expert_that_falls_at_once_is_imitated():
    assert imitating(absorbing=True) < 12  # 9.3 are the expert's, 22 those of random actions


def test_without_an_absorbing_state_a_reward_above_0_makes_episodes_long():
    assert imitating(absorbing=False) > 40


# ---------------------------------------------------------------------- rewards and results


def test_results_are_the_environments_and_learned_rewards_are_told_beside_them():
    batch, result = first_batch()
    assert result["episode_reward_mean"] == result["episode_len_mean"]
    assert batch[sb.ENV_REWARDS].tolist() == [1.0] * 128
    stats = learner_stats(result)
    assert {"imitation_reward_mean", "absorbing_reward", "discriminator_loss", "policy_loss"} <= stats.keys()
    assert 0.6 < stats["imitation_reward_mean"] < 0.8  # log 2: nothing is told apart yet


def test_rewards_of_the_environment_are_added_on_request():
    alone, _ = first_batch(imitation_coeff=0.0, task_reward_coeff=0.5)
    np.testing.assert_array_equal(alone[sb.REWARDS], 0.5)


@pytest.mark.parametrize("more", [{}, {"recompute_advantages": True}, {"use_gae": False}])
def test_advantages_are_those_of_learned_rewards(more):
    batch, _ = first_batch(gamma=0.9, lambda_=0.8, **more)
    lambda_ = 1.0 if more.get("use_gae") is False else 0.8
    values, rewards = batch[sb.VF_PREDS].astype(np.float64), batch[sb.REWARDS].astype(np.float64)
    found, expected = batch[sb.VALUE_TARGETS] - values, np.full(128, np.nan)
    for t in reversed(range(128)):
        if batch[sb.TERMINATEDS][t]:
            expected[t] = rewards[t] - values[t]
        elif t % 16 != 15 and not batch[sb.TRUNCATEDS][t]:  # the last row of a fragment bootstraps
            following = found[t + 1] if np.isnan(expected[t + 1]) else expected[t + 1]
            expected[t] = rewards[t] + 0.9 * values[t + 1] - values[t] + 0.9 * lambda_ * following
    known = ~np.isnan(expected)
    assert batch[sb.TERMINATEDS].any() and known.sum() > 100
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-3, atol=1e-3)


def test_with_rnd_both_rewards_count():
    with make().exploration(exploration_config={"type": "RND", "embed_dim": 4}).build() as algo:
        stats = learner_stats(algo.train())
    assert stats["intrinsic_reward_mean"] > 0 and stats["imitation_reward_mean"] > 0


def turning(seen):
    return np.array([-2.0], np.float32)


@pytest.mark.parametrize("inputs", [["obs"], ["obs", "next_obs"], ["obs", "actions", "next_obs", "terminated"]])
@pytest.mark.parametrize("env, policy", [("CartPole-v1", lambda seen: 0), ("Pendulum-v1", turning)])
def test_it_reads_any_parts_of_a_step(env, policy, inputs):
    with make(recorded(env, policy, 2), env, discriminator_inputs=inputs).build() as algo:
        assert np.isfinite(list(learner_stats(train(algo, 2)).values())).all()


@pytest.mark.parametrize("form", ["airl", "log_d", "fairl", "lsgan"])
def test_it_learns_from_each_form_of_reward(form):
    more = {"gradient_penalty": {"r1": 5.0}} if form == "lsgan" else {"label_smoothing": 0.1}
    with make(reward_form=form, generator_buffer=2, **more).build() as algo:
        assert np.isfinite(list(learner_stats(train(algo, 3)).values())).all()


# ---------------------------------------------------------------------- the same bits


@pytest.mark.parametrize(
    "more", [{"generator_buffer": 2}, pytest.param({"bc_coeff": 0.5, "bc_pretrain_updates": 3}, marks=pytest.mark.slow)]
)
def test_weights_do_not_depend_on_how_environments_are_shared_out(more):
    runs = []
    for workers, envs in ((0, 8), (2, 4), (4, 2)):
        with make(workers=workers, envs=envs, **more).build() as algo:
            train(algo, 3)
            runs.append((algo.policy.weights.copy(), algo.trainee.reward.discriminator.get_state()))
    for weights, state in runs[1:]:
        np.testing.assert_array_equal(weights, runs[0][0])
        for name, array in state.items():
            np.testing.assert_array_equal(array, runs[0][1][name])


@pytest.mark.parametrize("more", [{}, {"generator_buffer": 3, "discriminator_inputs": ["obs", "next_obs"]}])
def test_a_restored_run_continues_with_the_same_discriminator(more, tmp_path):
    config = make(**more)
    with config.build() as algo, config.copy(copy_frozen=False).debugging(seed=8).build() as other:
        train(algo, 3)
        path = algo.save(tmp_path / "checkpoint")
        assert (tmp_path / "checkpoint/policies/default_policy/discriminator.safetensors").exists()
        other.restore(path)
        saved, restored = (each.trainee.reward.discriminator.get_state() for each in (algo, other))
        assert saved.keys() == restored.keys()
        for name, array in saved.items():
            np.testing.assert_array_equal(array, restored[name])


def test_a_checkpoint_of_another_discriminator_is_refused(tmp_path):
    with make().build() as algo:
        path = algo.save(tmp_path / "checkpoint")
    with make(discriminator_model={"fcnet_hiddens": [4]}).build() as other, pytest.raises(ValueError) as caught:
        other.restore(path)
    assert "discriminator_model" in str(caught.value)


# ---------------------------------------------------------------------- cloning, a teacher, a filter


def lefts(algo):
    """Share of demonstrated observations in which the policy most probably pushes left, as the expert does."""
    chosen = algo.policy.dist_inputs(LEFT["obs"])
    return np.mean(chosen[:, 0] > chosen[:, 1])


def test_a_warm_start_clones_before_the_first_steps_are_sampled(tmp_path):
    with make(bc_pretrain_updates=100, lr=1e-3).build() as algo:
        result = algo.train()
        assert lefts(algo) == 1 and result["episode_len_mean"] < 14  # 22 are those of random actions
        path, saved = algo.save(tmp_path / "checkpoint"), algo.policy.weights.copy()
    with make(bc_pretrain_updates=100, lr=1e-3).build() as other:
        other.restore(path)
        other.trainee.begin()
        np.testing.assert_array_equal(other.policy.weights, saved)  # once, and not after a restore


def test_a_clone_of_numbers_keeps_its_deviation():
    data = recorded("Pendulum-v1", turning, 2)
    with make(data, "Pendulum-v1", bc_pretrain_updates=300, lr=3e-3).build() as algo:
        before = algo.policy.dist_inputs(data["obs"])[:, 1]
        algo.trainee.begin()
        mean, log_std = algo.policy.dist_inputs(data["obs"]).T
    assert abs(mean.mean() + 1) < 0.1  # -2 of -2 ... 2
    np.testing.assert_allclose(log_std.mean(), before.mean(), atol=0.5)


def test_cloning_beside_the_loss_leads_where_no_reward_does():
    with make(bc_coeff=1.0, imitation_coeff=0.0, lr=3e-3).build() as algo:
        first = learner_stats(train(algo, 1))["bc_loss"]
        last = learner_stats(train(algo, 8))["bc_loss"]
        assert last < first / 2 and lefts(algo) > 0.9


@pytest.mark.parametrize("workers, quorum", [(0, 1.0), (2, 0.5)])
def test_cloning_beside_the_loss_of_steps_that_waited_outside_or_came_late(workers, quorum):
    config = make(bc_coeff=0.5, workers=workers).environment(Outside).rollouts(num_envs_per_worker=1)
    with config.rollouts(rollout_fragment_length="auto", sample_quorum=quorum).build() as algo:
        assert np.isfinite(list(learner_stats(train(algo, 3)).values())).all()


def test_a_schedule_ends_the_cloning():
    with make(bc_coeff=[[0, 1.0], [128, 0.0]], imitation_coeff=0.0).build() as algo:
        train(algo, 1)
        weights = [train(algo, 1) and algo.policy.weights.copy() for _ in range(2)]
    with make(imitation_coeff=0.0).build() as other:
        assert "bc_loss" not in learner_stats(train(other, 1))
    assert np.isfinite(weights).all()


def test_a_teacher_and_demonstrations_go_together():
    def teacher(observations):
        return np.zeros(len(observations), np.int64)

    def small(minibatch, outputs, model):
        return outputs.dist_inputs.square().mean()

    more = {"bc_coeff": 0.1, "auxiliary_losses": {"small": {"loss": small, "weight": 1e-3}}}
    with make(teacher=teacher, teacher_coeff=1.0, lr=3e-3, **more).build() as algo:
        stats = learner_stats(train(algo, 8))
        assert stats["distillation_loss"] < 0.5 and stats["bc_loss"] < 0.5
        assert stats["imitation_reward_mean"] > 0 and lefts(algo) > 0.9


def test_demonstrations_may_lack_actions_that_nothing_reads():
    without = {name: column for name, column in LEFT.items() if name != "actions"}
    with make(without, discriminator_inputs=["obs", "next_obs"]).build() as algo:
        train(algo, 1)
        assert len(algo.learned_reward(LEFT["obs"][:3], next_observations=LEFT["new_obs"][:3])) == 3
    other_body = {**LEFT, "actions": np.zeros((len(LEFT["obs"]), 5), np.float32)}
    make(other_body, discriminator_inputs=["obs", "next_obs"]).build().stop()
    for more in ({}, {"discriminator_inputs": ["obs"], "bc_coeff": 1.0}):
        with pytest.raises(ValueError, match="has no actions") as caught:
            make(without, **more).build()
        assert "next_obs" in caught.value.__notes__[0]
        assert ("bc_coeff" in caught.value.__notes__[0]) == ("bc_coeff" in more)


@pytest.mark.parametrize("more", [{}, {"discriminator_inputs": ["obs", "next_obs"], "bc_coeff": 0.1}])
def test_the_discriminator_reads_observations_as_they_were_before_the_filter(more):
    data, read = recorded("Pendulum-v1", turning, 2), []
    config = make(data, "Pendulum-v1", **more).rollouts(
        observation_filter="MeanStdFilter", rollout_fragment_length="auto"
    )
    with config.build() as algo:
        learn = algo.trainee.reward.discriminator.learn
        algo.trainee.reward.discriminator.learn = lambda own, *rest: read.append(own) or learn(own, *rest)
        train(algo, 3)
    for own in read:  # cosine and sine
        circles = [np.square(seen[:, :2]).sum(1) for seen in (own.observations, own.next_observations)]
        assert np.mean(np.abs(circles[0] - 1) < 1e-5) >= 124 / 128  # but for the first row of each environment
        np.testing.assert_allclose(circles[1], 1, atol=1e-5)


# ---------------------------------------------------------------------- refusals


REFUSED = {
    "absorbing": ({"gamma": 1.0}, "absorbing"),
    "no critic": ({"use_critic": False, "use_gae": False}, "use_critic"),
    "a memory": ({"model": {"use_lstm": True}}, "model"),
    "actions alone": ({"discriminator_inputs": ["actions"]}, "discriminator_inputs"),
    "penalty": ({"gradient_penalty": {"r2": 1.0}}, "gradient_penalty"),
    "inputs": ({"discriminator_inputs": ["rewards"]}, "discriminator_inputs"),
    "model": ({"discriminator_model": {"hiddens": [3]}}, "discriminator_model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_do_not_fit_are_refused_with_a_remedy(name):
    settings, blamed = REFUSED[name]
    config = make()
    with pytest.raises((SettingsError, TypeError), match=blamed) as caught:
        config.training(**settings).build()
    for mistake in getattr(caught.value, "mistakes", ()):
        assert blamed in mistake.names
        for remedy in mistake.remedies:
            config.apply(remedy)
    if getattr(caught.value, "mistakes", None) and mistake.remedies:
        config.validate()


@pytest.mark.parametrize("config_class", [GAILConfig, AIRLConfig, AMPConfig])
def test_a_filter_that_is_undone_is_that_of_one_moment(config_class):
    """A late fragment was filtered by the statistics of an earlier one."""
    config = make(config=config_class, workers=2).rollouts(observation_filter="MeanStdFilter", sample_quorum=0.5)
    config.rollouts(rollout_fragment_length="auto")
    with pytest.raises(SettingsError, match="observation_filter") as caught:
        config.validate()
    (mistake,) = caught.value.mistakes
    assert mistake.names == ("observation_filter", "sample_quorum")
    for remedy in mistake.remedies:
        config.copy().apply(remedy).validate()
    config.rollouts(num_rollout_workers=0).validate()  # no fragment is late


@pytest.mark.parametrize(
    "section, settings",
    [
        ("rollouts", {"observation_filter": "MeanStdFilter", "rollout_fragment_length": 16}),
        ("environment", {"normalize_returns": True}),
        ("multi_agent", {"policies": ["a", "b"], "policy_mapping_fn": {"*": "a"}}),
    ],
)
def test_settings_of_sampling_that_do_not_fit_are_refused(section, settings):
    config = getattr(make(), section)(**settings)
    with pytest.raises(SettingsError, match=next(iter(settings))):
        config.build()


def test_demonstrations_are_required(tmp_path):
    with pytest.raises(SettingsError, match="rllib record"):
        make(None).build()
    with pytest.raises(SettingsError, match="demonstrations=3"):
        make(3).build()
    with pytest.raises(FileNotFoundError):
        make(str(tmp_path / "absent.parquet")).build()


def test_demonstrations_of_other_spaces_are_refused():
    pendulum = recorded("Pendulum-v1", turning, 1)
    with pytest.raises(ValueError, match=r"\(3,\)|3 numbers|shape"):
        make(pendulum).build()
    with pytest.raises(ValueError, match="observation_space"):
        make(Dataset.from_columns(pendulum)).build()


def test_some_of_the_demonstrations_are_taken():
    with make(LEFT).offline_data(num_demonstrations=2).build() as algo:
        few = len(algo.trainee.reward._expert)
    assert few == Dataset.from_columns(LEFT).lengths[:2].sum()
    with pytest.raises(ValueError, match=r"num_demonstrations=11, but .* 10 episodes"):
        make(LEFT).offline_data(num_demonstrations=11).build()
