"""Arguments of callbacks, `learn` and `evaluate_policy` are checked where they are given."""

import inspect

import pytest

import rllib.callbacks
from rllib import PPO, evaluate_policy
from rllib.callbacks import (
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    LogEveryNTimesteps,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from rllib.callbacks.shown import TableCallback

ENV = "CartPole-v1"
WRONG = ["3", float("nan"), None, True, ()]
# Call with a value, and the argument.
NUMBERS = [
    (lambda value: EvalCallback(ENV, eval_freq=value), "eval_freq"),
    (lambda value: EvalCallback(ENV, n_eval_episodes=value), "n_eval_episodes"),
    (lambda value: CheckpointCallback(value, "saved"), "save_freq"),
    (lambda value: EveryNTimesteps(value, StopTrainingOnMaxEpisodes(1)), "n_steps"),
    (lambda value: LogEveryNTimesteps(value), "n_steps"),
    (lambda value: StopTrainingOnMaxEpisodes(value), "max_episodes"),
    (lambda value: StopTrainingOnRewardThreshold(value), "reward_threshold"),
    (lambda value: StopTrainingOnNoModelImprovement(value), "max_no_improvement_evals"),
    (lambda value: StopTrainingOnNoModelImprovement(1, value), "min_evals"),
    (lambda value: evaluate_policy(None, ENV, value), "n_eval_episodes"),
    (lambda value: TableCallback(value), "log_interval"),
    (lambda value: evaluate_policy(None, ENV, reward_threshold=value if value is not None else ()), "reward_threshold"),
]
# Callbacks, and functions for them: every argument that is True or False by default is one of these alone.
REQUIRED = {"model": None, "eval_env": ENV, "env": ENV, "save_freq": 8, "save_path": "saved"}
WITH_FLAGS = [
    (kind, name)
    for kind in (*(kind for kind in vars(rllib.callbacks).values() if isinstance(kind, type)), evaluate_policy)
    for name, argument in inspect.signature(kind).parameters.items()
    if isinstance(argument.default, bool)
]


@pytest.fixture(scope="module")
def model():
    with PPO("MlpPolicy", ENV, n_steps=8, batch_size=8, verbose=1) as algo:
        yield algo


@pytest.mark.parametrize(("call", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
@pytest.mark.parametrize("value", WRONG, ids=str)
def test_what_is_no_number_is_refused(call, name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        call(value)


@pytest.mark.parametrize(("kind", "name"), WITH_FLAGS, ids=lambda each: getattr(each, "__name__", each))
def test_flags_of_callbacks(kind, name):
    given = {key: value for key, value in REQUIRED.items() if key in inspect.signature(kind).parameters}
    for value in ("False", 0, None):
        with pytest.raises(ValueError, match=f"{name}={value!r} must be True or False"):
            kind(**given, **{name: value})


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_learn_takes_a_number_of_steps(model, value):
    with pytest.raises(ValueError, match="total_timesteps="):
        model.learn(value)


@pytest.mark.parametrize("name", ["reset_num_timesteps", "progress_bar"])
@pytest.mark.parametrize("value", ["False", 0, None], ids=str)
def test_flags_of_learn(model, name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r} must be True or False"):
        model.learn(8, **{name: value})


@pytest.mark.parametrize("value", [0, -1, "1", 1.5], ids=str)
def test_log_interval(model, value):
    with pytest.raises(ValueError, match="log_interval="):
        model.learn(8, log_interval=value)
    assert model.learn(8, log_interval=None) is model


@pytest.mark.parametrize("make", [lambda given: EvalCallback(ENV, given), lambda given: EveryNTimesteps(5, given)])
def test_a_callback_in_a_callback_has_the_forms_that_learn_takes(model, make):
    with pytest.raises(TypeError, match="callback=3 must be a function"):
        make(3)
    with pytest.raises(TypeError, match=r"callback=StopTrainingOnMaxEpisodes is a class"):
        make(StopTrainingOnMaxEpisodes)
    calls = []
    model.learn(16, EveryNTimesteps(8, lambda locals_, globals_: calls.append(1)))
    assert calls
