"""Hooks given as functions, dicts of Ray 0.8, and arguments of RLlib's new API stack."""

import numpy as np
import pytest

from rllib import DefaultCallbacks, PPOConfig
from rllib.compat.names import aliases
from rllib.evaluation.callbacks import HOOKS, make_callbacks
from tests.envs import CountingEnv
from tests.multi_agent import NameTheSignal


def config(num_workers: int = 0) -> PPOConfig:
    return (
        PPOConfig()
        .environment(CountingEnv, env_config={"lengths": [4, 6]})
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=2)
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
    )


def log_return(*, episode, metrics_logger, **kwargs):
    metrics_logger.log_value("returns", episode.get_return(), reduce="item_series")
    metrics_logger.log_value(("nested", "length"), len(episode), reduce="mean")


def log_sum(algorithm, metrics_logger, result, **kwargs):
    metrics_logger.log_value("doubled", 2 * result["env_runners"]["nested"]["length"], reduce="item")


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_values_that_hooks_log_reach_the_results(num_workers):
    given = config(num_workers).callbacks(on_episode_end=log_return, on_train_result=log_sum)
    with given.evaluation(evaluation_interval=1, evaluation_duration=4).build() as algo:
        result = algo.train()
    returns = result["env_runners"]["returns"]
    assert sorted(returns) == sorted(result["hist_stats"]["episode_reward"])
    assert result["env_runners/nested/length"] == pytest.approx(result["episode_len_mean"])
    assert result["doubled"] == pytest.approx(2 * result["episode_len_mean"])
    evaluation = result["evaluation"]
    assert sorted(evaluation["env_runners"]["returns"]) == sorted(evaluation["hist_stats"]["episode_reward"])


def test_logged_values_survive_a_checkpoint(tmp_path):
    def count(*, metrics_logger, **kwargs):
        metrics_logger.log_value("ended", 1, reduce="lifetime_sum")

    with config().callbacks(on_episode_end=count).build() as algo:
        before = algo.train()["env_runners/ended"]
        assert before == algo.metrics.episodes_total
        algo.save(str(tmp_path))
        loaded = []
        again = config().callbacks(on_episode_end=count, on_checkpoint_loaded=lambda **given: loaded.append(given))
        with again.build() as other:
            other.restore(str(tmp_path))
            assert [each["algorithm"] for each in loaded] == [other]
            result = other.train()
            assert result["env_runners/ended"] == before + result["episodes_this_iter"]


class NewStyle(DefaultCallbacks):
    def __init__(self):
        self.seen = []

    def on_environment_created(self, *, env_runner, metrics_logger, env, env_context, **kwargs):
        metrics_logger.log_value("environments", len(env.unwrapped.envs), reduce="sum")

    def on_episode_start(self, *, episode, env_runner, metrics_logger, env, env_index, rl_module, **kwargs):
        assert env.envs[env_index].t == 0
        assert env_runner.worker_index == 0
        assert rl_module.forward_inference({"obs": np.zeros((1, 1), np.float32)})["action_dist_inputs"].shape == (1, 2)
        episode.custom_data["start"] = episode.get_observations(0)[0]

    def on_episode_end(self, *, episode, prev_episode_chunks, env_runner, metrics_logger, env, env_index, rl_module):
        steps = len(episode)
        assert [seen[0] for seen in episode.get_observations()] == list(range(steps + 1))
        assert episode.get_rewards() == [float(t) for t in range(1, steps + 1)]
        assert episode.get_rewards(-1) == steps and episode.get_rewards(slice(-2, None)) == [steps - 1, steps]
        assert len(episode.get_actions()) == steps and len(episode.get_infos()) == steps + 1
        assert episode.is_done and (episode.is_terminated or episode.is_truncated)
        assert episode.get_return() == sum(range(1, steps + 1)) and episode.env_steps() == steps
        assert episode.id_ == str(episode.episode_id) and episode.custom_data["start"] == 0
        assert episode.module_for() == "default_policy"

    def on_sample_end(self, *, env_runner, metrics_logger, samples, **kwargs):
        metrics_logger.log_value("rows", samples.count, reduce="sum")


def test_the_arguments_of_the_new_api_stack():
    given = config().environment(env_config={"lengths": [4]}).rollouts(num_envs_per_worker=3)
    with given.callbacks(NewStyle).build() as algo:
        result = algo.train()
    assert result["env_runners/rows"] == result["num_env_steps_sampled"]
    assert result["env_runners/environments"] == 3


def test_a_hook_of_ray_2_6_pays_nothing_for_later_arguments():
    class Old(DefaultCallbacks):
        def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs):
            assert not kwargs

        def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
            assert episode.get_rewards(-1) == episode.last_reward_for()
            with pytest.raises(RuntimeError, match="Name an argument of the later ones"):
                episode.get_rewards()

    assert "on_episode_step" not in vars(make_callbacks(Old))
    with config().callbacks(Old).build() as algo:
        algo.train()


def test_a_class_and_functions_are_all_called_in_their_order():
    heard = []

    class Mine(DefaultCallbacks):
        def on_train_result(self, *, algorithm, result, **kwargs):
            heard.append("class")

    several = [lambda result, **kwargs: heard.append("first"), lambda *, algorithm: heard.append("second")]
    with config().callbacks(Mine, on_train_result=several).callbacks(on_episode_end=print).build() as algo:
        assert set(algo.config.callback_functions) == {"on_train_result", "on_episode_end"}
    given = config().callbacks(Mine, on_train_result=several)
    with given.build() as algo:
        algo.train()
    assert heard == ["class", "first", "second"]


def test_a_dict_of_ray_0_8():
    heard = {}

    def start(info):
        assert {"env", "policy", "episode"} <= info.keys()
        info["episode"].user_data["lengths"] = []

    def end(info):
        info["episode"].custom_metrics["length"] = info["episode"].length

    def trained(info):
        heard["iteration"] = info["trainer"].iteration
        info["result"]["mine"] = 7

    def postprocessed(info):
        policy, batch = info["pre_batch"]
        heard["columns"] = set(info["post_batch"]) - set(batch)
        assert policy is not None

    given = PPOConfig().update_from_dict(
        {
            "env": CountingEnv,
            "timesteps_per_batch": 64,
            "num_workers": 0,
            "sgd_minibatch_size": 64,
            "num_sgd_iter": 1,
            "callbacks": {
                "on_episode_start": start,
                "on_episode_end": end,
                "on_train_result": trained,
                "on_postprocess_traj": postprocessed,
                "on_sample_end": lambda info: heard.update(rows=info["samples"].count),
            },
        }
    )
    with given.build() as algo:
        result = algo.train()
    assert result["mine"] == 7
    assert result["custom_metrics"]["length_mean"] == pytest.approx(result["episode_len_mean"])
    assert heard["iteration"] == 1 and heard["rows"] == 64 and "advantages" in heard["columns"]


def test_functions_of_several_agents():
    def end(*, episode, metrics_logger, rl_module, **kwargs):
        metrics_logger.log_value("policies", len(rl_module), reduce="item")
        metrics_logger.log_value("return", episode.get_return(), reduce="item_series")
        assert episode.module_for("first") == "default_policy" and len(episode) == 8

    given = config().environment(NameTheSignal, env_config={"sizes": (3, 3)}).callbacks(on_episode_end=end)
    with given.multi_agent(policies={"default_policy", "other"}, policy_mapping_fn="default_policy").build() as algo:
        result = algo.train()
    assert sorted(result["env_runners/return"]) == sorted(result["hist_stats"]["episode_reward"])
    assert result["env_runners/policies"] == 2


@pytest.mark.parametrize(
    ("functions", "says"),
    [
        ({"on_episode_end": 5}, "on_episode_end=5 must be a function"),
        ({"on_episode_end": lambda *, trainer, **kwargs: None}, "there is no argument trainer"),
        ({"on_train_result": lambda *, env_runner, **kwargs: None}, "there is no argument env_runner"),
    ],
)
def test_what_is_refused(functions, says):
    with pytest.raises(ValueError, match=says):
        config().callbacks(**functions).validate()


def test_every_hook_can_be_given_by_name():
    assert {*aliases.HOOKS} == {*HOOKS, "on_postprocess_traj"}


def test_a_result_keeps_its_own_entries(caplog):
    def log(*, algorithm, metrics_logger, **kwargs):
        metrics_logger.log_value("timesteps_total", -1.0)
        with algorithm.metrics.log_time(("timers", "mine")):
            algorithm.metrics.log_value("other", 2, reduce="item")
        assert algorithm.metrics.peek("other") == 2

    with config().callbacks(on_train_result=log).build() as algo:
        result = algo.train()
        assert result["timesteps_total"] > 0 and result["other"] == 2
        assert {"mine", "learn_time_ms"} <= result["timers"].keys()
    assert "results have 'timesteps_total' of their own" in caplog.text


class DrawnCounting(CountingEnv):
    """Its picture is its step."""

    def render(self):
        return np.full((2, 2, 3), self.t, np.uint8)


def test_a_hook_renders_the_first_environment():
    seen = []

    def on_episode_step(*, episode, env, env_index, **kwargs):
        if env_index == 0:
            seen.append((env.unwrapped.render()[0, 0, 0], episode.length))

    with config().environment(DrawnCounting).callbacks(on_episode_step=on_episode_step).build() as algo:
        algo.train()
    assert seen and all(picture == steps for picture, steps in seen)


def _wrapped(function):
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


class ByKeywords(DefaultCallbacks):
    """Hooks that read later arguments out of any keywords."""

    def on_episode_end(self, **kwargs):
        kwargs["metrics_logger"].log_value("steps", len(kwargs["episode"].get_rewards()), reduce="sum")

    @_wrapped
    def on_sample_end(self, *, env_runner, metrics_logger, **kwargs):
        metrics_logger.log_value("samples", 1, reduce="sum")

    def on_evaluate_end(self, *, evaluation_metrics, **kwargs):
        both = evaluation_metrics, evaluation_metrics["evaluation"]
        kwargs["metrics_logger"].log_value(
            "returns", [each["env_runners"]["episode_return_mean"] for each in both], reduce="item"
        )


@pytest.mark.parametrize("num_workers", [0, 1])
def test_later_arguments_are_read_out_of_any_keywords(num_workers):
    with config(num_workers).callbacks(ByKeywords).evaluation(evaluation_interval=1).build() as algo:
        result = algo.train()
        found = result["env_runners"]
        assert (found["steps"], found["samples"] > 0) == (sum(result["hist_stats"]["episode_lengths"]), True)
        assert len(set(result["returns"])) == 1

    def of_function(**kwargs):
        kwargs["metrics_logger"].log_value("ends", 1, reduce="sum")

    with config(num_workers).callbacks(on_episode_end=of_function).build() as algo:
        assert algo.train()["env_runners"]["ends"] > 0


@pytest.mark.parametrize(
    "write",
    [
        lambda metrics: metrics.__setitem__("score", 5),
        lambda metrics: metrics["evaluation"].__setitem__("score", 5),
        lambda metrics: metrics.update(score=5, custom_metrics={}),
        lambda metrics: metrics.setdefault("score", 5),
    ],
)
def test_what_is_written_at_the_end_of_an_evaluation_is_in_its_result(write):
    def at_the_end(*, evaluation_metrics, **kwargs):
        write(evaluation_metrics)

    with config(0).callbacks(on_evaluate_end=at_the_end).evaluation(evaluation_interval=1).build() as algo:
        evaluation = algo.train()["evaluation"]
    assert evaluation["score"] == 5 and "evaluation" not in evaluation
    assert evaluation["episodes_this_iter"] > 0 and evaluation["custom_metrics"] == {}


def test_what_is_written_into_a_section_of_an_evaluation_is_in_its_result():
    def at_the_end(*, evaluation_metrics, **kwargs):
        evaluation_metrics["env_runners"]["score"] = 5

    with config(0).callbacks(on_evaluate_end=at_the_end).evaluation(evaluation_interval=1).build() as algo:
        assert algo.train()["evaluation"]["env_runners"]["score"] == 5


def test_a_function_that_a_hook_calls_has_arguments_of_its_own():
    def made(score):
        def on_evaluate_end(*, evaluation_metrics, **kwargs):
            kwargs["metrics_logger"].log_value("score", score(evaluation_metrics["episode_len_mean"]), reduce="item")

        return on_evaluate_end

    def double(number):
        return 2 * number

    hooks = config(0).callbacks(on_evaluate_end=made(double)).evaluation(evaluation_interval=1)
    with hooks.build() as algo:
        result = algo.train()
    assert result["score"] == 2 * result["evaluation"]["episode_len_mean"]
