"""Evaluation on recorded steps: estimates and losses in results, settings that do not fit, and the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.spaces import Box, Discrete
from rllib.offline.estimators import DirectMethod, ImportanceSampling

from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli import command
from rllib.config.conflicts import SettingsError
from rllib.offline.dataset import Dataset

SMALL = str(Path(__file__).parents[1] / "data" / "offline" / "cartpole_small.json")
LARGE = str(Path(__file__).parents[1] / "data" / "offline" / "cartpole_large.json.gz")
SHORT = {"n_iters": 1, "minibatch_size": 1000}


def config(name="BC", data=LARGE, **evaluation):
    made = get_algorithm_config(name).offline_data(input_=data).evaluation(**evaluation).debugging(seed=0)
    made.training(model={"fcnet_hiddens": [8]}, train_batch_size=32)
    return made.reporting(min_sample_timesteps_per_iteration=32, min_time_s_per_iteration=0)


METHODS = {
    "is": {"type": ImportanceSampling},
    "weighted": {"type": "wis", "epsilon_greedy": 0.1},
    "direct": {"type": DirectMethod, "q_model_config": SHORT},
    "robust": {"type": "DoublyRobust", "q_model_config": SHORT},
}


def test_results_have_estimates_and_losses_on_held_out_episodes(tmp_path):
    settings = config(evaluation_interval=2, offline_evaluation_interval=1, off_policy_estimation_methods=METHODS)
    with settings.offline_data(offline_validation_fraction=0.3).build() as algorithm:
        assert algorithm.recorded.only.num_episodes == 15
        first, second = algorithm.train(), algorithm.train()
        assert first["evaluation"].keys() == {"offline"}
        found = second["evaluation"]["off_policy_estimator"]
        assert found.keys() == METHODS.keys()
        assert {each["num_episodes"] for each in found.values()} == {6}
        assert all(np.isfinite(each["v_target"]) and each["v_gain"] > 0 for each in found.values())
        losses = second["evaluation"]["offline"]
        assert losses["num_episodes"] == 6 and losses["num_steps"] == sum(algorithm.recorded.held_out[0].lengths)
        assert 0 < losses["accuracy"] < 1 and losses["loss"] > 0
        algorithm.save(tmp_path)
    # Classes of the library are names in files, and come back without the user's leave.
    with Algorithm.from_checkpoint(tmp_path) as again:
        assert again.config.off_policy_estimation_methods["is"] == {"type": "ImportanceSampling"}
        assert again.evaluate()["off_policy_estimator"]["is"]["num_episodes"] == 6


def test_estimates_do_not_depend_on_those_before(tmp_path):
    """A run that was restored, or that evaluates more often, has the numbers of the unbroken one."""
    settings = config(data=SMALL, evaluation_interval=1, off_policy_estimation_methods=METHODS)
    with settings.build() as algorithm:
        algorithm.train()
        algorithm.save(tmp_path)
        unbroken = algorithm.train()["evaluation"]["off_policy_estimator"]
        assert algorithm.evaluate()["off_policy_estimator"] == unbroken
    again = config(data=SMALL, evaluation_interval=1, off_policy_estimation_methods=METHODS)
    with again.build() as other:
        other.restore(tmp_path)
        assert other.train()["evaluation"]["off_policy_estimator"] == unbroken
    assert unbroken["direct"]["loss"] == unbroken["robust"]["loss"] > 0


def test_estimates_of_other_data_beside_played_episodes():
    evaluation = {"off_policy_estimation_methods": {"is": {"type": "is"}}, "evaluation_duration": 1}
    settings = get_algorithm_config("PPO").environment("CartPole-v1").debugging(seed=0)
    settings.evaluation(evaluation_config={"input": SMALL}, **evaluation)
    with settings.build() as algorithm:
        result = algorithm.evaluate()
        assert result["episodes_this_iter"] == 1
        assert result["off_policy_estimator"]["is"]["num_episodes"] == 3


def test_steps_may_be_estimated_one_by_one():
    methods = {"is": {"type": "is"}}
    settings = config(off_policy_estimation_methods=methods, ope_split_batch_by_episode=False)
    with settings.build() as algorithm:
        found = algorithm.evaluate()["off_policy_estimator"]["is"]
        assert found["num_episodes"] == 4137 and found["v_behavior"] == 1


def test_losses_of_continuous_actions_are_squared_errors():
    rng = np.random.default_rng(0)
    data = {"obs": rng.normal(size=(60, 2)), "actions": rng.uniform(-1, 1, (60, 1)), "rewards": np.zeros(60)}
    data["terminateds"] = np.arange(60) % 6 == 5
    for name in ("BC", "TD3BC"):
        settings = config(name, data, offline_evaluation_interval=1).offline_data(offline_validation_fraction=0.2)
        with settings.build() as algorithm:
            losses = algorithm.train()["evaluation"]["offline"]
        assert losses["num_episodes"] == 2 and 0 < losses["mse"] < 4
        assert (losses["loss"] == losses["mse"]) == (name == "TD3BC")


def test_held_out_episodes_are_not_chosen_by_their_returns():
    held_out = []
    for best in (None, 0.2):
        settings = config().offline_data(offline_validation_fraction=0.3, input_fraction_of_best=best)
        with settings.build() as algorithm:
            held_out.append(algorithm.recorded.for_evaluation.columns["obs"])
    assert algorithm.recorded.only.num_episodes == 3  # of the 15 that are not held out
    np.testing.assert_array_equal(*held_out)


def test_held_out_episodes_are_the_same_in_every_run():
    dataset = Dataset.from_path(LARGE)
    kept = []
    for seed in (1, 2):
        settings = config().offline_data(offline_validation_fraction=0.1).debugging(seed=seed)
        with settings.build() as algorithm:
            kept.append(algorithm.recorded.held_out[0].columns["obs"])
            assert len(algorithm.recorded.only) + len(kept[-1]) == len(dataset)
    np.testing.assert_array_equal(*kept)


ONE = {"is": {"type": "is"}}
REFUSED = {
    "no data": (
        lambda: get_algorithm_config("PPO").environment("CartPole-v1").evaluation(off_policy_estimation_methods=ONE),
        "input_='sampler': returns are estimated from recorded data",
    ),
    "estimator": (lambda: config(off_policy_estimation_methods={"a": {"type": "iss"}}), "there is no estimator 'iss'"),
    "argument": (lambda: config(off_policy_estimation_methods={"a": {"type": "is", "x": 1}}), "takes epsilon_greedy"),
    "model": (
        lambda: config(off_policy_estimation_methods={"a": {"type": "dm", "q_model_config": {"lr": -1}}}),
        "lr=-1 must be a number above 0",
    ),
    "nothing held out": (lambda: config(offline_evaluation_interval=1), "offline_validation_fraction=0.1"),
    "the best": (
        lambda: config(off_policy_estimation_methods=ONE).offline_data(input_fraction_of_best=0.5),
        "episodes that are chosen by their returns",
    ),
    "all held out": (lambda: config().offline_data(offline_validation_fraction=1), "nothing to learn from"),
}


@pytest.mark.parametrize(("made", "message"), REFUSED.values(), ids=REFUSED)
def test_settings_that_do_not_fit_are_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made().build()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    with config(data=SMALL).build() as algorithm:
        return Path(algorithm.save(directory))


def evaluate(*arguments):
    result = CliRunner().invoke(command, ["evaluate", *map(str, arguments)])
    return result.exit_code, result.output


def test_the_command_line_prints_a_table_of_estimates(checkpoint):
    code, output = evaluate(checkpoint, "--data", SMALL, "--estimators", "is,wis")
    assert code == 0
    lines = output.splitlines()
    assert f"{SMALL}: 3 episodes, 102 steps; returns are discounted by 0.99" in lines
    assert [line.split()[0] for line in lines if line.startswith(("recorded ", "is ", "wis "))] == [
        "recorded", "is", "wis",
    ]  # fmt: skip
    assert "effective sample size" in output and "Below 10, is, wis and their intervals say little" in output


def test_the_command_line_takes_a_run_that_evaluates_on_recorded_episodes(tmp_path):
    made = config(data=SMALL).offline_data(offline_validation_fraction=0.4).evaluation(offline_evaluation_interval=1)
    with made.build() as algorithm:
        algorithm.save(tmp_path / "run")
    code, output = evaluate(tmp_path / "run", "--data", SMALL, "--estimators", "is")
    assert code == 0, output


def test_the_command_line_prints_estimates_as_json(checkpoint):
    code, output = evaluate(checkpoint, "--data", SMALL, "--estimators", "is", "--json")
    found = json.loads(output.splitlines()[-1])
    assert code == 0 and found["steps"] == 102 and found["estimates"]["is"]["num_episodes"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere.json"], "there is no 'nowhere.json'"),
        (["--data", SMALL, "--estimators", "is,mc"], "there is no estimator 'mc'. There are is, wis, dm, dr."),
        (["--estimators", "is"], "name them by --data PATH"),
        (["--data", SMALL, "--episodes", "3"], "so that --episodes has no effect"),
    ],
)
def test_mistakes_on_the_command_line(checkpoint, arguments, message):
    code, output = evaluate(checkpoint, *arguments)
    assert code == 2 and message in output


def test_the_command_line_reads_its_data_by_the_time_limit_and_not_as_that_of_training(tmp_path):
    columns = {name: column for name, column in Dataset.from_path(SMALL).columns.items() if name != "truncateds"}
    renamed = {"seen" if name == "obs" else name: column for name, column in columns.items()}
    long = {"obs": np.zeros((500, 4)), "actions": np.zeros(500, int), "rewards": np.ones(500), "dones": np.zeros(500)}
    long["dones"][-1], long["action_logp"] = 1, np.full(500, np.log(0.5))
    np.savez(tmp_path / "long.npz", **long)
    settings = config(data=renamed).environment("CartPole-v1").offline_data(input_read_schema={"obs": "seen"})
    with settings.build() as algorithm:
        algorithm.save(tmp_path / "checkpoint")
    code, output = evaluate(tmp_path / "checkpoint", "--data", tmp_path / "long.npz", "--estimators", "is")
    assert code == 0, output
    assert "1 episode cut" in output


def test_other_data_to_evaluate_on_is_not_said_to_be_learned_from(caplog):
    settings = config(evaluation_config={"input": SMALL}, off_policy_estimation_methods=ONE)
    with settings.training(train_batch_size=200).build() as algorithm:
        caplog.clear()
        algorithm.evaluate()
    assert "it repeats them" not in caplog.text


@pytest.mark.parametrize("interval", [None, 1])
def test_a_run_on_recorded_steps_says_once_that_it_plays_no_episodes(caplog, interval):
    settings = config(data=SMALL).environment("CartPole-v1")
    settings.evaluation(evaluation_interval=interval, evaluation_duration=1)
    with caplog.at_level("INFO", "rllib"), settings.build() as algorithm:
        algorithm.train()
        algorithm.train()
    assert "no episode has finished" not in caplog.text
    assert caplog.text.count("plays no episodes, so the reward keys stay NaN") == (interval is None)


# ---------------------------------------------------------------------- what build() says of the first evaluation


def arrays(without=(), continuous=False, **more):
    rows = np.arange(40)
    columns = {
        "obs": np.zeros((40, 2), np.float32),
        "actions": np.linspace(-1, 1, 40, dtype=np.float32)[:, None] if continuous else rows % 2,
        "rewards": np.ones(40, np.float32),
        "terminateds": rows % 10 == 9,
        "action_logp": np.full(40, -0.7, np.float32),
    }
    return {name: column for name, column in columns.items() if name not in without}


@pytest.mark.parametrize("method", ["is", "wis", "dr", "dm"])
@pytest.mark.parametrize("interval, elsewhere", [(1, False), (None, False), (1, True)])
@pytest.mark.parametrize(
    ("name", "without", "message"),
    [
        ("BC", ["action_logp"], "neither action_logp nor action_prob"),
        ("BC", ["rewards"], "has no rewards"),
        ("TD3BC", [], "this policy is deterministic"),
    ],
)
def test_estimates_that_the_data_does_not_allow_are_refused_at_build(
    name, without, message, method, interval, elsewhere
):
    """Also where evaluate() alone asks for them, and where they are of other data than what is learned from.

    The first remedy leaves the others.
    """
    continuous = name == "TD3BC"
    made = get_algorithm_config(name).training(train_batch_size=16, model={"fcnet_hiddens": [8]})
    made.environment(observation_space=Box(-1, 1, (2,)), action_space=Box(-1, 1, (1,)) if continuous else Discrete(2))
    lacking, complete = arrays(without, continuous), arrays((), continuous)
    made.offline_data(input_=complete if elsewhere else lacking)
    methods = {"some": {"type": method}, "direct": {"type": "dm", "q_model_config": SHORT}}
    made.evaluation(evaluation_interval=interval, off_policy_estimation_methods=methods)
    made.evaluation(evaluation_config={"input_": lacking} if elsewhere else None)
    if method == "dm" and without != ["rewards"]:  # asks for no probabilities
        made.build().stop()
        return
    with pytest.raises(SettingsError, match=message) as raised:
        made.build()
    remedy = raised.value.mistakes[0].remedies[0]
    left = [] if without == ["rewards"] else ["direct"]
    assert list(remedy["off_policy_estimation_methods"]) == left
    made.apply(remedy)
    if left or interval is None:
        with made.build() as algorithm:
            assert left == [] or algorithm.evaluate()["off_policy_estimator"].keys() == {"direct"}


def test_evaluation_without_anything_to_evaluate_in_is_refused_at_build():
    made = get_algorithm_config("BC").training(train_batch_size=16, model={"fcnet_hiddens": [8]})
    made.environment(observation_space=Box(-1, 1, (2,)), action_space=Discrete(2)).offline_data(input_=arrays())
    made.build().stop()
    with pytest.raises(ValueError, match=r"evaluation_interval=5: .*no environment to evaluate in.*Leave"):
        made.evaluation(evaluation_interval=5).build()


@pytest.mark.parametrize("methods", [{}, METHODS], ids=["alone", "estimates"])
def test_a_setting_that_estimates_read_has_an_effect(methods):
    """BC has no returns to discount, but what a policy would earn is discounted; rewards count as recorded."""
    settings = config(off_policy_estimation_methods=methods).training(gamma=0.9).offline_data(reward_scale=2.0)
    told = "\n".join(settings.without_effect())
    assert ("gamma=0.9" in told) == (not methods) and "reward_scale=2.0" in told
