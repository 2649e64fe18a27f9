"""A student learns what its teacher would do: learning, refusals, checkpoints, and deployment without the teacher."""

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.spaces import Box, Discrete

from rllib import DAggerConfig, DistillationConfig, IMPALAConfig, PPOConfig, SACConfig, load_policy
from rllib import sample_batch as sb
from rllib.algorithms.base.algorithm import Algorithm
from rllib.cli import command
from rllib.storage.checkpoint import CheckpointError
from tests.algorithms.algorithm_support import learner_stats
from tests.algorithms.taught_worlds import Secretive, by_rule, made_teacher

GRU = {"use_gru": True, "lstm_cell_size": 16}
VELOCITIES = ["velocities"]


def config(teacher=by_rule, kind=DistillationConfig, env=Secretive, keys=("secret",), **training):
    made = kind().environment(env, teacher_observation_keys=list(keys)).debugging(seed=0)
    made.rollouts(num_rollout_workers=0, num_envs_per_worker=8)
    given = {"train_batch_size": 256, "sgd_minibatch_size": 64, "num_sgd_iter": 4, "lr": 3e-3}
    return made.training(teacher=teacher, **{**given, "model": {"fcnet_hiddens": [16]}, **training})


def upright(observations):
    """A rule that balances CartPole's pole; it reads all four numbers."""
    x, v, angle, turn = np.moveaxis(observations, -1, 0)
    return (angle + 0.5 * turn + 0.05 * v + 0.02 * x > 0).astype(np.int64)


@pytest.mark.parametrize("learner", ["numpy", "torch"])
def test_learning_a_rule(learner):
    made = config(upright, env="CartPole-v1", keys=(), learner=learner, train_batch_size=512)
    with made.build() as algo:
        first = learner_stats(algo.train())
        for _ in range(11):
            last = learner_stats(algo.train())
        assert last["distillation_loss"] < 0.5 * first["distillation_loss"]
        assert last["teacher_agreement"] > 0.9 > first["teacher_agreement"]
        assert last["beta"] == 0 and last["teacher_coeff"] == 1
        assert algo.evaluate()["episode_reward_mean"] > 400
        assert not algo.policy.spec.critic


def test_both_learners_make_the_same_steps():
    weights = []
    for learner in ("numpy", "torch"):
        with config(upright, env="CartPole-v1", keys=(), learner=learner).build() as algo:
            algo.train()
            weights.append(algo.policy.weights.copy())
    np.testing.assert_allclose(*weights, atol=1e-5)


def test_a_memory_learns_from_whole_sequences():
    """The loss is over sequences of at most max_seq_len, from the states in which the student has acted."""
    made = config(upright, env="CartPole-v1", keys=(), model={**GRU, "max_seq_len": 5})
    made.rollouts(num_envs_per_worker=2, rollout_fragment_length=32).training(train_batch_size=64)
    with made.build() as algo:
        batch = algo.sample(64)
        assert batch[sb.SEQ_LENS].max() == 5 and batch[sb.STATE_IN].any()
        assert len(batch[sb.TEACHER_ACTIONS]) == batch.count == batch[sb.SEQ_LENS].sum()
        assert np.isfinite(learner_stats(algo.train())["distillation_loss"])


def test_numbers_learn_the_mean():
    """The squared error of means falls to nothing, and the deviation stays what it was."""

    def teach(observations):
        return np.clip(observations["place"][:, 2:] / 5 - 1, -1, 1)

    made = config(teach, keys=(), lr=0.01).environment(env_config={"actions": Box(-1, 1, (1,), np.float32)})
    made.rollouts(observation_filter="MeanStdFilter")
    with made.build() as algo:
        for _ in range(25):
            stats = learner_stats(algo.train())
        assert stats["distillation_loss"] < 0.02 and stats["teacher_agreement"] < 0.15
        assert (algo.policy.parameters()["policy.log_std"] == -1).all()


def test_a_squashed_teacher(tmp_path):
    """SAC's actions are before tanh, and the student learns tanh of its mean."""
    sac = SACConfig().environment("Pendulum-v1").debugging(seed=0).rollouts(num_rollout_workers=0)
    with sac.training(model={"fcnet_hiddens": [8]}, num_steps_sampled_before_learning_starts=10**6).build() as algo:
        path = algo.save(tmp_path / "sac")
    made = config(str(path), env="Pendulum-v1", keys=())
    with made.build() as algo:
        batch = algo.sample(8)
        player = load_policy(path)
        actions = [player.compute_single_action(each, explore=False) for each in batch[sb.OBS][:16]]
        np.testing.assert_allclose(batch[sb.TEACHER_ACTIONS][:16], np.array(actions) / 2, atol=1e-5)


def test_a_teacher_of_plain_observations_finds_them_under_its_key(tmp_path):
    """A policy of Pendulum-v1 teaches one that sees the angle, of an environment with a key for the whole."""
    ppo = PPOConfig().environment("Pendulum-v1").rollouts(num_rollout_workers=0, observation_filter="MeanStdFilter")
    with ppo.training(model={"fcnet_hiddens": [8]}, train_batch_size=64, sgd_minibatch_size=64).build() as algo:
        algo.train()
        path = str(algo.save(tmp_path / "ppo"))
    made = config(path, env="rllib.env.tasks.privileged:PendulumPositions", keys=["whole"], distillation_loss="kl")
    with made.build() as algo:
        batch, worker = algo.sample(8), algo.workers.local_worker()
        assert batch[sb.OBS].shape[1] == 2
        whole = {"whole": np.zeros(3, np.float32), "seen": np.zeros(2, np.float32)}
        assert algo.compute_single_action(whole).shape == (1,)
        assert worker.stream.observation_space["whole"].shape == (3,)
        assert np.isfinite(learner_stats(algo.train())["distillation_loss"])
    assert names_of(config(path, env="rllib.env.tasks.privileged:CartPole", keys=["velocities"])) == ("teacher",)


@pytest.mark.parametrize("kind", ["auto", "kl", "reverse_kl", "log_prob"])
def test_distances_from_a_network(teacher, kind):
    with config(teacher, distillation_loss=kind).build() as algo:
        losses = [learner_stats(algo.train())["distillation_loss"] for _ in range(4)]
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("model", [GRU, {"use_lstm": True, "lstm_cell_size": 8}, {"use_attention": True}])
@pytest.mark.parametrize("learner", ["auto", "torch"])
def test_students_with_a_memory(teacher, model, learner):
    with config(teacher, model={"fcnet_hiddens": [8], "max_seq_len": 4, **model}, learner=learner).build() as algo:
        assert np.isfinite(learner_stats(algo.train())["distillation_loss"])


# ---------------------------------------------------------------------- all labelled steps


@pytest.mark.parametrize("model", [{}, {**GRU, "max_seq_len": 5}], ids=["plain", "gru"])
def test_updates_draw_from_all_labelled_steps(teacher, model):
    made = config(teacher, DAggerConfig, train_batch_size=64, model={"fcnet_hiddens": [8], **model}, num_sgd_iter=3)
    seen = []
    made.callbacks(on_learn_on_batch=lambda *, train_batch, **kwargs: seen.append(train_batch.copy()))
    with made.build() as algo:
        for _ in range(3):
            result = algo.train()
            assert learner_stats(result)["policy_lag_updates"] == 0
        assert result["info/num_env_steps_trained"] == result["info/num_env_steps_sampled"] == 192
        assert len(algo.trainee.store) == 192 if not model else len(algo.trainee.store) > 3
    assert not set(map(tuple, seen[2][sb.OBS].tolist())) <= set(map(tuple, seen[1][sb.OBS].tolist()))
    assert set(map(tuple, seen[2][sb.OBS].tolist())) & set(map(tuple, seen[0][sb.OBS].tolist()))


def test_dagger_learns_a_rule():
    made = config(upright, DAggerConfig, env="CartPole-v1", keys=(), beta=[[0, 1.0], [1024, 0.0]], train_batch_size=512)
    with made.build() as algo:
        for _ in range(10):
            algo.train()
        assert algo.evaluate()["episode_reward_mean"] > 400


@pytest.mark.parametrize("model", [{}, GRU], ids=["plain", "gru"])
def test_a_checkpoint_has_the_store_if_that_is_asked_for(teacher, model, tmp_path):
    results = []
    for stores in (True, False):
        made = config(teacher, DAggerConfig, store_buffer_in_checkpoints=stores, train_batch_size=64, model=model)
        with made.build() as algo, made.build() as other:
            algo.train()
            other.restore(algo.save(tmp_path / f"run{stores}"))
            assert len(other.trainee.store) == (len(algo.trainee.store) if stores else 0)
            results.append(other.train()["training_iteration"])
    assert results == [2, 2]


def test_the_room_of_the_store_is_looked_at_before_a_run(teacher):
    error = refusal(config(teacher, DAggerConfig, replay_buffer_config={"capacity": 10**15}))
    assert any("replay_buffer_config" in remedy for remedy in error.mistakes[0].remedies)


@pytest.mark.parametrize("given", [{"storage": "gpu"}, {"storage": "not here"}, {"capacity": 0}, {"type": "some"}])
def test_settings_of_the_store(teacher, given):
    with pytest.raises((ValueError, TypeError), match="replay_buffer_config"):
        config(teacher, DAggerConfig, replay_buffer_config=given).validate()


# ---------------------------------------------------------------------- what is left of the teacher


def test_evaluation_and_deployment_know_the_student_alone(teacher, tmp_path):
    with config(teacher).build() as algo:
        algo.train()
        evaluated = algo.evaluate()
        assert evaluated["episodes_this_iter"] > 0
        path = algo.save(tmp_path / "run")
        exported = algo.export_policy_model(tmp_path / "policy")
        action = algo.compute_single_action({"place": np.array([1, 2, 3], np.float32)}, explore=False)
    for where in (path, exported):
        policy = load_policy(where)
        assert set(policy.observation_space.spaces) == {"place"}
        place = {"place": np.array([1, 2, 3], np.float32)}
        assert policy.compute_single_action(place, explore=False) == action
        # What the teacher alone reads may be there, and is not looked at.
        whole = {**place, "secret": np.array([np.nan, 1], np.float32)}
        assert policy.compute_single_action(whole, explore=False) == action


@pytest.mark.parametrize(
    ("kind", "training"), [(DAggerConfig, {}), (DAggerConfig, {"model": GRU}), (PPOConfig, {"teacher_coeff": 1.0})]
)
def test_commands_that_play_need_no_teacher(kind, training, tmp_path):
    """The robot has the checkpoint alone."""
    teacher = tmp_path / "teacher"
    made_teacher(teacher, "rllib.env.tasks.privileged:CartPole")
    made = config(str(teacher), kind, "rllib.env.tasks.privileged:CartPole", VELOCITIES, **training)
    with made.evaluation(evaluate_teacher=True).build() as algo:
        algo.train()
        path = algo.save(tmp_path / "run")
    shutil.rmtree(teacher)
    outcome = CliRunner().invoke(command, ["evaluate", str(path), "--episodes", "2"])
    assert outcome.exit_code == 0 and "return" in outcome.output
    outcome = CliRunner().invoke(command, ["record", str(path), "--to", str(tmp_path / "steps.csv"), "--episodes", "1"])
    assert outcome.exit_code == 0, outcome.output


def test_evaluation_workers(teacher):
    with config(teacher).evaluation(evaluation_interval=1, evaluation_num_workers=1).build() as algo:
        assert algo.train()["evaluation/episodes_this_iter"] > 0


def opposite(observations):
    """A teacher that is wrong in every step of Secretive."""
    return 1 - by_rule(observations)


@pytest.mark.parametrize(("given", "least", "most"), [(by_rule, 2, 8), (opposite, 0, 0)])
@pytest.mark.parametrize("kind", [DistillationConfig, PPOConfig])
def test_the_return_of_the_teacher(given, least, most, kind, tmp_path):
    """It is played once, by the teacher alone, and the run is the same with it and without."""
    weights = []
    for evaluates in (False, True):
        made = config(given, kind, teacher_coeff=1.0).evaluation(evaluate_teacher=evaluates)
        with made.build() as algo:
            results = [learner_stats(algo.train()) for _ in range(2)]
            weights.append(algo.policy.weights.copy())
            path = algo.save(tmp_path / f"run{evaluates}")
    np.testing.assert_array_equal(*weights)
    means = {stats["teacher_return_mean"] for stats in results}
    assert len(means) == 1 and least <= means.pop() <= most
    with Algorithm.from_checkpoint(path, load_user_code=True) as algo:  # it is known there
        algo._evaluations.play_teacher = None
        assert learner_stats(algo.train())["teacher_return_mean"] == results[0]["teacher_return_mean"]


def test_the_return_of_a_network_with_a_memory(tmp_path):
    """The teacher's own evaluation, with its memory and its filter, is what it returns here."""
    made = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0, observation_filter="MeanStdFilter")
    made.training(model={"fcnet_hiddens": [8], **GRU}, train_batch_size=256, sgd_minibatch_size=64, lr=3e-3)
    with made.debugging(seed=0).build() as algo:
        algo.train()
        path = str(algo.save(tmp_path / "teacher"))
        episodes = algo._evaluations
        own = [episode.episode_return for episode in episodes._local.play_episodes(episodes.duration(), 0)]
    made = config(path, env="CartPole-v1", keys=()).rollouts(num_envs_per_worker=1)
    with made.evaluation(evaluate_teacher=True).build() as algo:
        assert learner_stats(algo.train())["teacher_return_mean"] == pytest.approx(np.mean(own))


# ---------------------------------------------------------------------- checkpoints


def test_a_run_goes_on_as_it_was(teacher, tmp_path):
    made = config(teacher, beta=[[0, 1.0], [2000, 0.0]], model={"fcnet_hiddens": [8], **GRU})
    with made.build() as algo:
        algo.train()
        path = algo.save(tmp_path / "run")
        saved = algo.policy.weights.copy()
    description = json.loads((path / "config.json").read_text())
    assert description["teacher"] == teacher
    with Algorithm.from_checkpoint(path) as algo:
        np.testing.assert_array_equal(algo.policy.weights, saved)
        assert learner_stats(algo.train())["beta"] < 1


def test_another_teacher_is_refused(teacher, other_teacher, tmp_path):
    with config(teacher).build() as algo:
        path = algo.save(tmp_path / "run")
    with pytest.raises(ValueError, match=r"another teacher[\s\S]*teacher="):
        Algorithm.from_checkpoint(path, {"teacher": other_teacher})
    with config(other_teacher).build() as algo, pytest.raises(ValueError, match="another teacher"):
        algo.restore(path)


def test_a_function_is_code_of_the_user(tmp_path):
    with config(by_rule).build() as algo:
        algo.train()
        path = algo.save(tmp_path / "run")
    with pytest.raises(CheckpointError, match="load_user_code"):
        Algorithm.from_checkpoint(path)
    with Algorithm.from_checkpoint(path, load_user_code=True) as algo:
        algo.train()
    assert load_policy(path).compute_single_action({"place": np.zeros(3, np.float32)}) in (0, 1)


def test_a_loaded_policy_teaches_as_its_path_does(teacher):
    weights = []
    for given in (teacher, load_policy(teacher)):
        with config(given).build() as algo:
            algo.train()
            weights.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(*weights)


# ---------------------------------------------------------------------- refusals


def refusal(made):
    with pytest.raises(ValueError) as caught:
        made.build().stop()
    return caught.value


def names_of(made):
    (mistake,) = refusal(made).mistakes
    return mistake.names


def test_a_teacher_is_needed():
    assert names_of(DistillationConfig().environment("CartPole-v1")) == ("teacher",)


@pytest.mark.parametrize("given", [3, ["a"], {}, {"a": 3}, b"path", PPOConfig, {"a": PPOConfig}])
def test_what_is_no_teacher(given):
    assert "teacher" in names_of(config(given))


def test_several_without_a_mapping(teacher):
    assert names_of(config({"a": teacher})) == ("teacher", "teacher_mapping_fn")
    error = refusal(config(teacher, teacher_mapping_fn=lambda observation: "a"))
    assert "teacher_mapping_fn" in error.mistakes[0].names
    for given in (3, "a", ["a"]):
        assert "teacher_mapping_fn=" in str(refusal(config({"a": teacher}, teacher_mapping_fn=given)))


def test_a_path_without_a_checkpoint(tmp_path):
    error = refusal(config(str(tmp_path / "nothing")))
    assert isinstance(error, CheckpointError) and "teacher=" in str(error)


def test_other_actions_say_both_spaces(teacher):
    made = config(teacher).environment(env_config={"actions": Discrete(3)})
    error = refusal(made)
    assert error.mistakes[0].names == ("teacher",) and "Discrete(2)" in str(error) and "Discrete(3)" in str(error)


def test_observations_that_are_not_there(teacher):
    error = refusal(config(teacher, env="CartPole-v1", keys=()))
    assert error.mistakes[0].names == ("teacher",)


def test_keys_of_the_critic_reach_a_teacher():
    """They are named once, and the policy does not read them."""
    made = config(by_rule, PPOConfig, keys=["secret"], teacher_coeff=1.0).environment(
        critic_observation_keys=["secret"]
    )
    error = refusal(made)
    assert error.mistakes[0].names == ("teacher_observation_keys", "critic_observation_keys")
    with made.apply(error.mistakes[0].remedies[0]).build() as algo:
        assert np.isfinite(learner_stats(algo.train())["distillation_loss"])


def test_a_teacher_that_reads_its_previous_step(tmp_path):
    """The policy has to read it as well."""
    previous = {**GRU, "lstm_use_prev_action": True}
    path = made_teacher(tmp_path / "teacher", model=previous)
    error = refusal(config(path))
    assert error.mistakes[0].names == ("teacher",) and "lstm_use_prev_action" in str(error)
    with config(path, model={"fcnet_hiddens": [8], **previous}).build() as algo:
        assert np.isfinite(learner_stats(algo.train())["distillation_loss"])


@pytest.mark.parametrize(
    ("env", "keys"), [(Secretive, ["mass"]), ("CartPole-v1", ["mass"]), (Secretive, ["place", "secret"])]
)
def test_keys_that_are_not_there(env, keys):
    assert names_of(config(by_rule, env=env, keys=keys)) == ("teacher_observation_keys",)


@pytest.mark.parametrize("kind", ["kl", "reverse_kl"])
def test_a_function_has_no_distribution(kind):
    error = refusal(config(by_rule, distillation_loss=kind))
    assert error.mistakes[0].names == ("teacher", "distillation_loss")
    assert {"distillation_loss": "auto"} in error.mistakes[0].remedies


def test_choices_have_no_huber_distance(teacher):
    assert "distillation_loss" in names_of(config(teacher, distillation_loss="huber"))


@pytest.mark.parametrize(
    ("model", "is_parameter", "expected"),
    [
        ({}, True, -1),
        ({"log_std_init": 0.0}, True, 0),
        ({"log_std_init": -2.0}, True, -2),
        ({"free_log_std": True}, True, -1),
        ({"free_log_std": False}, False, -1),
        ({"free_log_std": False, "log_std_init": 0.5}, False, 0.5),
    ],
)
def test_the_deviation_is_what_the_model_says(model, is_parameter, expected):
    """What is left out alone has a default of its own: nothing trains the deviation."""
    made = config(lambda o: np.zeros((8, 1)), model={"fcnet_hiddens": [16], **model})
    with made.environment(env_config={"actions": Box(-1, 1, (1,), np.float32)}).build() as algo:
        assert algo.policy.spec.free_log_std is is_parameter
        worker = algo.workers.local_worker()
        worker.load_snapshots(algo.snapshots())
        batch, _ = worker.sample()
    np.testing.assert_allclose(batch[sb.ACTION_DIST_INPUTS][:, 1], expected, atol=0.1)


def test_recorded_steps_are_of_others(teacher):
    made = PPOConfig().environment(Secretive).training(teacher=teacher)
    assert "teacher_coeff" in names_of(made)
    assert "output" in names_of(config(teacher).offline_data(output="/tmp/nowhere"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PPOConfig, DistillationConfig, IMPALAConfig])
@pytest.mark.parametrize("model", [{}, {**GRU, "max_seq_len": 5}], ids=["plain", "gru"])
def test_several_learners_learn_from_a_teacher_as_one(teacher, kind, model):
    """They share each minibatch, its labels, and the schedule of their weight."""
    found = []
    for learners in (0, 2):
        given = {"teacher_coeff": [[0, 1.0], [500, 0.2]], "train_batch_size": 128, "num_sgd_iter": 2}
        given |= {"sgd_minibatch_size": 64} if "sgd_minibatch_size" in kind.settings else {}
        made = kind().environment(Secretive, teacher_observation_keys=["secret"]).debugging(seed=0)
        made.rollouts(num_rollout_workers=0, num_envs_per_worker=4, rollout_fragment_length=32)
        made.training(teacher=teacher, lr=0.01, model={"fcnet_hiddens": [8], **model}, **given)
        made.learners(num_learners=learners).reporting(min_time_s_per_iteration=0)
        with made.build() as algo:
            results = [learner_stats(algo.train()) for _ in range(2)]
            found.append((results, algo.get_policy().get_weights()))
    (one, weights), (several, others) = found
    for name, array in weights.items():
        np.testing.assert_allclose(others[name], array, atol=1e-5, err_msg=name)
    for name in ("distillation_loss", "teacher_agreement", "teacher_coeff", "total_loss"):
        np.testing.assert_allclose([each[name] for each in several], [each[name] for each in one], atol=1e-5)
