"""Callbacks of `learn`: when their methods are called, how they end a run, and what they add to results and files."""

import json

import numpy as np
import pytest

from rllib import PPO, DefaultCallbacks, PPOConfig, load_policy
from rllib.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    EventCallback,
    EveryNTimesteps,
    LogEveryNTimesteps,
    ProgressBarCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from tests.envs import ConstantReward, CountingEnv


def config(env=CountingEnv, **rollouts):
    return (
        PPOConfig()
        .environment(env)
        .rollouts(num_rollout_workers=0, **rollouts)
        .training(train_batch_size=100, sgd_minibatch_size=100, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    )


class Noted(BaseCallback):
    """Notes every call, and ends the training at a call of `on_step`."""

    def __init__(self, ends_at=None):
        super().__init__()
        self.ends_at, self.calls, self.closed = ends_at, [], 0

    def _init_callback(self):
        self.calls.append("init")

    def _on_training_start(self):
        self.calls.append("training_start")

    def _on_rollout_start(self):
        self.calls.append("rollout_start")

    def _on_step(self):
        self.calls.append(("step", self.n_calls, self.num_timesteps, self.model.num_timesteps))
        return self.n_calls != self.ends_at

    def _on_rollout_end(self):
        self.calls.append("rollout_end")

    def _on_training_end(self):
        self.calls.append("training_end")

    def close(self):
        self.closed += 1


def test_an_object_is_told_every_step_of_the_environments_after_its_iteration():
    noted = Noted()
    with config(num_envs_per_worker=2).build() as algo:
        algo.learn(150, callback=noted)
        assert algo.num_timesteps == algo.timesteps == 200
    iterations = [
        ["rollout_start", *(("step", n, 2 * n, 2 * n) for n in range(first, first + 50)), "rollout_end"]
        for first in (1, 51)
    ]
    assert noted.calls == ["init", "training_start", *iterations[0], *iterations[1], "training_end"]
    assert noted.closed == 1


def test_a_callback_that_returns_false_ends_the_training():
    first, second = Noted(ends_at=30), Noted()
    with config().build() as algo:
        assert algo.learn(1000, callback=[first, second]) is algo
        assert algo.timesteps == 100
    # Each step is told to all, and what follows the end of a training is told as well.
    assert first.n_calls == second.n_calls == 30
    assert first.calls[-2:] == ["rollout_end", "training_end"]


@pytest.mark.parametrize(("answer", "iterations"), [(True, 3), (None, 3), (False, 1), (np.False_, 1), (0, 1)])
def test_a_function_is_called_with_locals_and_globals(answer, iterations):
    told = []

    def callback(locals_, globals_):
        told.append((locals_["self"], locals_["total_timesteps"], locals_["result"]["training_iteration"]))
        return answer

    with config().build() as algo:
        algo.learn(300, callback)
        assert algo.iteration == iterations
        assert told[0] == (algo, 300, 1) and told[-1][2] == iterations
        assert len(told) == (300 if iterations == 3 else 1)


def test_variables_of_single_steps_are_not_silently_missing():
    def callback(locals_, globals_):
        with pytest.raises(KeyError, match="there is no 'rewards' here: on_step is called after the iteration"):
            locals_["rewards"]
        with pytest.raises(KeyError, match=r"Returns of episodes are result\['hist_stats'\]\['episode_reward'\]"):
            locals_.get("infos", [])
        assert locals_.get("mine", 3) == 3 and locals_["result"]["hist_stats"]["episode_reward"]
        return False

    with config().build() as algo:
        algo.learn(100, callback)


def test_programs_that_count_calls_act_where_they_do_elsewhere():
    class EveryHundred(BaseCallback):
        def __init__(self):
            super().__init__()
            self.at = []

        def _on_step(self):
            if self.n_calls % 100 == 0:
                self.at.append(self.num_timesteps)
            return True

    every = EveryHundred()
    with config(num_envs_per_worker=4).build() as algo:
        algo.learn(1000, callback=every)
    assert every.at == [400, 800]


def test_the_number_of_steps_begins_anew_unless_it_is_to_go_on():
    with config().build() as algo:
        algo.learn(100)
        algo.learn(100, reset_num_timesteps=False)
        assert algo.num_timesteps == 200
        noted = Noted()
        algo.learn(100, callback=noted)
        assert algo.num_timesteps == 100 and algo.timesteps == 300
        assert noted.calls[3] == ("step", 1, 1, 1)


def test_what_is_not_known_of_a_single_step_says_where_it_is():
    def callback(locals_, globals_):
        return bool(locals_["infos"])

    with config().build() as algo, pytest.raises(KeyError, match=r"no 'infos' here.* on_episode_step"):
        algo.learn(100, callback)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Noted, r"callback=Noted is a class. Give an object of it: callback=Noted\(...\)"),
        (DefaultCallbacks(), r"has hooks of the run. Give it to the config, .callbacks\(DefaultCallbacks\)"),
        (True, r"must be a function of \(locals, globals\), or an object .*: it has no init_callback, on_training"),
        ([Noted(), "x"], r"callback='x' must be a function"),
    ],
)
def test_what_is_no_callback_is_refused(given, message):
    with config().build() as algo:
        with pytest.raises(TypeError, match=message):
            algo.learn(100, callback=given)
        assert algo.timesteps == 0


def test_an_object_of_the_shape_alone_will_do():
    class Alike:
        def __init__(self):
            self.calls = 0

        def init_callback(self, model): ...
        def on_training_start(self, locals_, globals_): ...
        def on_rollout_start(self): ...
        def update_locals(self, locals_): ...
        def on_rollout_end(self): ...
        def on_training_end(self): ...

        def on_step(self):
            self.calls += 1
            return self.calls < 5

    alike = Alike()
    with config().build() as algo:
        algo.learn(100, callback=alike)
    assert alike.calls == 5


# ---------------------------------------------------------------------- values


def test_recorded_values_are_in_the_result_and_the_files(tmp_path):
    class Records(BaseCallback):
        def _on_step(self):
            self.logger.record_mean("mine/mean_call", self.n_calls)
            self.logger.record("mine/last", np.float32(self.n_calls), exclude="tensorboard")
            self.logger.dump(self.num_timesteps)
            return True

    seen = []

    class Reads(DefaultCallbacks):
        def on_train_result(self, *, algorithm, result, **kwargs):
            seen.append(result)

    with config().callbacks(Reads).reporting(log_dir=tmp_path / "run").build() as algo:
        algo.learn(200, callback=Records())
    assert [result["mine/last"] for result in seen] == [100.0, 200.0]
    assert [result["mine/mean_call"] for result in seen] == pytest.approx([50.5, 150.5])
    rows = [json.loads(line) for line in (tmp_path / "run/result.json").read_text().splitlines()]
    assert [row["mine"]["last"] for row in rows] == [100.0, 200.0]


def test_values_that_no_file_can_hold_are_refused():
    with config().build() as algo:
        with pytest.raises(TypeError, match=r"mine/it = \[1, 2\] \(list\) cannot be recorded: a value is a number"):
            algo.logger.record("mine/it", [1, 2])
        algo.logger.record("timesteps_total/x", 1)
        with pytest.raises(ValueError, match="the result has a value timesteps_total"):
            algo.learn(100)


# ---------------------------------------------------------------------- ready ones


def test_checkpoints_have_the_names_of_their_steps(tmp_path):
    with config(num_envs_per_worker=2).build() as algo:
        algo.learn(200, callback=CheckpointCallback(25, tmp_path / "saved", name_prefix="agent"))
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {f"agent_{n}_steps" for n in (50, 100, 150, 200)}
    with PPO.load(tmp_path / "saved/agent_200_steps.zip") as again:
        assert again.num_timesteps == 200
    with pytest.raises(ValueError, match="save_freq=0 must be an integer >= 1"):
        CheckpointCallback(0, tmp_path)


def test_an_evaluation_saves_the_best_and_ends_at_a_threshold(tmp_path, capsys):
    on_best = StopTrainingOnRewardThreshold(reward_threshold=0.5, verbose=1)
    evaluated = EvalCallback(
        ConstantReward, callback_on_new_best=on_best, eval_freq=50, n_eval_episodes=3,
        best_model_save_path=tmp_path / "best", log_path=tmp_path / "log",
    )  # fmt: skip
    with config().build() as algo:
        algo.learn(1000, callback=evaluated)
        assert algo.timesteps == 100
        assert load_policy(tmp_path / "best/best_model").policy_version == algo.num_updates
    assert evaluated.best_mean_reward == evaluated.last_mean_reward == 1.0
    assert evaluated.evaluations_timesteps == [50]
    with np.load(tmp_path / "log/evaluations.npz") as written:
        assert written["timesteps"].tolist() == [50]
        assert written["results"].tolist() == [[1.0] * 3] and written["ep_lengths"].tolist() == [[1] * 3]
    shown = capsys.readouterr().out
    assert "New best mean reward!" in shown and "is above the threshold 0.5" in shown


@pytest.mark.parametrize("have_success", [True, False])
def test_successes_of_evaluations_are_written(tmp_path, have_success):
    class Succeeds(ConstantReward):
        """Succeeds in every second episode."""

        episodes = 0

        def step(self, action):
            *others, info = super().step(action)
            self.episodes += 1
            return *others, {**info, "is_success": self.episodes % 2 == 1} if have_success else info

    evaluated = EvalCallback(Succeeds(), eval_freq=100, n_eval_episodes=3, log_path=tmp_path, verbose=0)
    results = []
    with config().build() as algo:
        algo.learn(200, callback=[evaluated, lambda locals_, _: results.append(locals_["result"]) or True])
    expected = [[True, False, True], [False, True, False]] if have_success else []
    assert evaluated.evaluations_successes == expected
    with np.load(tmp_path / "evaluations.npz") as written:
        assert (written["successes"].tolist() == expected) if have_success else ("successes" not in written)


def test_weights_are_evaluated_once(capsys):
    after = Noted()
    evaluated = EvalCallback(ConstantReward(), callback_after_eval=after, eval_freq=10, n_eval_episodes=1, verbose=0)
    results = []
    with config().build() as algo:
        algo.learn(300, callback=[evaluated, lambda locals_, _: results.append(locals_["result"]) or True])
    assert evaluated.evaluations_timesteps == [10, 110, 210]
    assert after.n_calls == 3 and after.closed == 1
    assert results[-1]["eval/mean_reward"] == 1.0 and results[-1]["eval/mean_ep_length"] == 1.0
    assert capsys.readouterr().out == ""


def test_training_ends_when_nothing_improves():
    patience = StopTrainingOnNoModelImprovement(max_no_improvement_evals=2, min_evals=2)
    evaluated = EvalCallback(ConstantReward, callback_after_eval=patience, eval_freq=100, n_eval_episodes=1, verbose=0)
    with config().build() as algo:
        algo.learn(10_000, callback=evaluated)
        # The first is the best; of the others, those after two evaluations count, and more than two have to.
        assert algo.iteration == 5 and patience.no_improvement_evals == 3


@pytest.mark.parametrize("kind", [StopTrainingOnRewardThreshold, StopTrainingOnNoModelImprovement])
def test_what_judges_by_evaluations_needs_them(kind):
    with config().build() as algo, pytest.raises(ValueError, match=rf"Use EvalCallback\(eval_env, \w+={kind.__name__}"):
        algo.learn(100, callback=kind(1))


def test_every_n_steps_another_is_called():
    inner = Noted(ends_at=3)
    with config(num_envs_per_worker=4).build() as algo:
        algo.learn(1000, callback=EveryNTimesteps(n_steps=30, callback=inner))
        assert algo.timesteps == 100
    # Steps come four at a time: 32, 64, 96.
    assert inner.n_calls == 3 and inner.num_timesteps == 96


def test_training_ends_after_a_number_of_episodes(capsys):
    with config(num_envs_per_worker=2).build() as algo:
        callback = StopTrainingOnMaxEpisodes(max_episodes=30, verbose=1)
        algo.learn(10_000, callback=callback)
        # Episodes have 3, 5 and 4 steps in turn: 100 steps of two environments hold 24 whole ones, 300 hold 74.
        assert algo.timesteps == 300 and callback.n_episodes >= 60
    assert "Stopping training after" in capsys.readouterr().out


@pytest.mark.parametrize("is_first", [True, False])
def test_others_are_called_for_all_steps_of_the_iteration_that_reaches_the_number(is_first):
    noted, enough = Noted(), StopTrainingOnMaxEpisodes(max_episodes=30)
    with config(num_envs_per_worker=2).build() as algo:
        algo.learn(10_000, callback=[enough, noted] if is_first else CallbackList([noted, enough]))
        assert noted.n_calls == 150 and noted.num_timesteps == algo.timesteps == 300


def test_a_list_may_hold_lists():
    noted = Noted(), Noted(), Noted()
    with config().build() as algo:
        algo.learn(100, callback=CallbackList([noted[0], CallbackList([noted[1]]), EventCallback(noted[2])]))
    assert noted[0].calls == noted[1].calls
    assert noted[2].calls == ["init", "training_start"]  # no event
    assert [each.closed for each in noted] == [1, 1, 1]


def test_a_progress_bar_closes_though_an_exception_ends_the_training(capsys):
    def fails(locals_, globals_):
        raise OSError("gone")

    with config().build() as algo, pytest.raises(OSError, match="gone"):
        algo.learn(200, callback=[ProgressBarCallback(), fails])
    assert "/200 steps" in capsys.readouterr().out
    with config().build() as algo:
        algo.learn(200, callback=ProgressBarCallback())
    assert "200/200 steps" in capsys.readouterr().out


def test_tables_are_printed_every_n_steps(capsys):
    with config().build() as algo:
        algo.learn(400, callback=LogEveryNTimesteps(200))
    shown = capsys.readouterr().out
    assert shown.count("rollout/") == shown.count("time/") == shown.count("train/") == 2
    assert [line.split()[3] for line in shown.splitlines() if "total_timesteps" in line] == ["200", "400"]
