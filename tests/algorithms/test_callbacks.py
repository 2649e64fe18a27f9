"""The user's hooks: called in the driver and in the workers, heard in the results."""

import json
import os
import signal
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rllib import Algorithm, DefaultCallbacks, ESConfig, PPOConfig, make_multi_callbacks
from rllib.evaluation.callbacks import hears, restore_states, states_of
from tests.envs import CountingEnv

pytestmark = pytest.mark.usefixtures("workers_know_the_module")


class Recorder(DefaultCallbacks):
    def __init__(self):
        self.heard = []

    def on_algorithm_init(self, *, algorithm, **kwargs):
        self.heard.append("init")

    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
        train_batch["value_targets"] *= 0.5
        result["rows_seen"] = float(train_batch.count)

    def on_train_result(self, *, algorithm, result, **kwargs):
        result["mine"] = result["training_iteration"] * 10

    def on_evaluate_start(self, *, algorithm, **kwargs):
        self.heard.append("evaluate")

    def on_evaluate_end(self, *, algorithm, evaluation_metrics, **kwargs):
        self.heard.append(evaluation_metrics["evaluation"]["episodes_this_iter"])

    def on_workers_recreated(self, *, algorithm, worker_set, worker_ids, is_evaluation, **kwargs):
        self.heard.append((worker_ids, is_evaluation))

    def on_episode_end(self, *, worker, episode, env_index, **kwargs):
        episode.custom_metrics["twice_the_length"] = 2 * episode.length

    def on_sample_end(self, *, worker, samples, **kwargs):
        samples["rewards"][:] = 7.0


def config(num_workers: int = 0) -> PPOConfig:
    return (
        PPOConfig()
        .environment(CountingEnv, env_config={"lengths": [4, 6]})
        .rollouts(num_rollout_workers=num_workers, num_envs_per_worker=2)
        .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .callbacks(Recorder)
    )


def test_each_hook_is_heard():
    with config().build() as algo:
        result = algo.train()
        assert result["mine"] == 10
        assert result["info"]["learner"]["default_policy"]["learner_stats"]["rows_seen"] == 64.0
        metrics = result["custom_metrics"]
        assert (metrics["twice_the_length_min"], metrics["twice_the_length_max"]) == (8, 12)
        assert set(algo.sample(64)["rewards"]) == {7.0}
        algo.evaluate(num_episodes=3)
        assert algo.callbacks.heard == ["init", "evaluate", 3]


def test_dicts_that_hooks_add_to_results_list_what_they_have():
    class Adds(DefaultCallbacks):
        def on_train_result(self, *, result, **kwargs):
            result["added"] = {"inner": {"value": 3}}

    with config().callbacks(Adds).build() as algo:
        result = algo.train()
    with pytest.raises(KeyError, match=r"'nothing' is not in result.*There are value"):
        result["added"]["inner"]["nothing"]


def test_a_batch_of_shared_memory_may_be_changed():
    with config(num_workers=1).build() as algo:
        algo.train()


def test_replaced_workers_are_told():
    with config(num_workers=2).build() as algo:
        os.kill(algo.workers.foreach_worker(lambda worker: os.getpid())[1], signal.SIGKILL)
        result = algo.train()
        assert result["custom_metrics"]["twice_the_length_max"] == 12
        assert algo.callbacks.heard == ["init", ([2], False)]


class Journal(DefaultCallbacks):
    """Writes down the hooks of environments and episodes, in custom metrics and in `calls`."""

    calls: list = []  # noqa: RUF012

    def on_create_policy(self, *, policy_id, policy):
        self.calls.append(("policy", policy_id))

    def on_sub_environment_created(self, *, worker, sub_environment, env_context, **kwargs):
        self.calls.append(("env", type(sub_environment).__name__, env_context.vector_index, env_context["lengths"]))

    def on_episode_created(self, *, worker, base_env, policies, env_index, episode, **kwargs):
        assert episode.length == 0 and episode.last_observation_for() is None and episode.started is False
        episode.user_data["before"] = base_env.get_sub_environments()[env_index].t
        self.calls.append(("created", env_index))

    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert episode.last_observation_for()[0] == 0 and episode.length == 0 and episode.started is True
        episode.hist_data["seen"] = []
        self.calls.append(("start", env_index))

    def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert episode.length == base_env.get_sub_environments()[env_index].t == episode.last_observation_for()[0]
        assert episode.last_reward_for() == episode.length and episode.last_info_for() == {}
        assert episode.last_action_for() in (0, 1)
        episode.hist_data["seen"].append(episode.last_raw_obs_for()[0])

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert base_env.get_sub_environments()[env_index].t == episode.length, "not reset yet"
        assert episode.last_terminated_for() or episode.last_truncated_for()
        assert policies["default_policy"] is worker.get_policy()
        assert worker.config.batch_mode == worker.policy_config["batch_mode"]
        episode.custom_metrics["total"] = episode.total_reward
        episode.custom_metrics["before"] = episode.user_data["before"]
        self.calls.append(("end", env_index, episode.length))

    def on_postprocess_trajectory(
        self, *, worker, episode, agent_id, policy_id, policies, postprocessed_batch, original_batches, **kwargs
    ):
        _, _, original = original_batches[agent_id]
        assert "value_targets" not in original and original.count == postprocessed_batch.count
        episode.custom_metrics["parts"] = episode.custom_metrics.get("parts", 0) + 1
        postprocessed_batch["advantages"] = postprocessed_batch["obs"][:, 0] + 100 * (episode.episode_id & 0xFFFF)
        assert (np.diff(postprocessed_batch["obs"][:, 0]) == 1).all(), "one episode's rows, in order"


@pytest.fixture
def journal():
    Journal.calls = []
    return Journal.calls


def test_the_hooks_of_episodes_in_their_order(journal):
    with config().callbacks(Journal).build() as algo:
        result = algo.train()
        batch = algo.sample(64)
    assert journal[:2] == [("policy", "default_policy")] * 2, "the driver's, and that of its worker"
    assert journal[2:4] == [("env", "CountingEnv", index, [4, 6]) for index in (0, 1)]
    assert journal[4:8] == [("created", 0), ("start", 0), ("created", 1), ("start", 1)]
    of_first = [call for call in journal[4:] if call[1] == 0]
    assert of_first[:6] == [("created", 0), ("start", 0), ("end", 0, 4), ("created", 0), ("start", 0), ("end", 0, 6)]
    metrics, histograms = result["custom_metrics"], result["hist_stats"]
    assert (metrics["total_min"], metrics["total_max"]) == (1 + 2 + 3 + 4, 1 + 2 + 3 + 4 + 5 + 6)
    assert metrics["before_max"] == 6, "created before the reset, when the environment still stands at the last end"
    assert metrics["parts_max"] == 1
    assert histograms["seen"][:4] == [1, 2, 3, 4]
    assert len(histograms["seen"]) == sum(histograms["episode_lengths"])
    np.testing.assert_array_equal(batch["advantages"] % 100, batch["obs"][:, 0])


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_the_hooks_of_a_vector_environment(mode, journal):
    class Counts(DefaultCallbacks):
        def on_episode_start(self, *, episode, **kwargs):
            assert episode.last_observation_for()[0] == 0

        def on_episode_end(self, *, episode, **kwargs):
            assert episode.last_observation_for()[0] == episode.length
            episode.custom_metrics["length"] = episode.length

    def create(context):
        makers = [partial(CountingEnv, dict(context))] * context.num_envs
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode[mode])

    with config().environment(create).callbacks(Counts).build() as algo:
        result = algo.train()
        evaluation = algo.evaluate(num_episodes=6)
    assert (result["custom_metrics"]["length_min"], result["custom_metrics"]["length_max"]) == (4, 6)
    for each in (result, evaluation):
        assert each["episode_len_mean"] == each["custom_metrics"]["length_mean"]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_hooks_of_an_evaluation(num_workers, journal):
    settings = config().callbacks(Journal).evaluation(evaluation_num_workers=num_workers)
    with settings.build() as algo:
        journal.clear()
        evaluation = algo.evaluate(num_episodes=3)
        assert evaluation["custom_metrics"]["total_max"] == 21
        assert len(evaluation["hist_stats"]["seen"]) == 4 + 6 + 4
        if num_workers == 0:
            assert sum(call[0] == "end" for call in journal) == 3, "surplus episodes are not followed"


def test_the_hooks_of_workers_and_of_evolution_strategies(journal):
    with config(num_workers=1).callbacks(Journal).build() as algo:
        assert algo.train()["custom_metrics"]["total_max"] == 21
    strategies = ESConfig().environment(CountingEnv, env_config={"lengths": [4, 6]}).callbacks(Journal)
    strategies.training(episodes_per_batch=4, train_batch_size=1, noise_size=100_000, eval_prob=0)
    with strategies.rollouts(num_rollout_workers=0).build() as algo:
        algo.train()
        assert sum(call[0] == "end" for call in journal) == 4


def test_what_hooks_report_survives_a_checkpoint(tmp_path, journal):
    with config().callbacks([Journal, Recorder]).build() as algo:
        algo.train()
        path = algo.save(tmp_path)
    with type(algo).from_checkpoint(path, {"callbacks_class": None}) as algo:
        assert algo.metrics.episodes[0].hist_data["seen"]


def test_no_hook_costs_no_call_per_step():
    with config().callbacks(Print).build() as algo:
        algo.train()
        steps = algo.workers.local_worker().stream._steps
        assert all(step == env.step for step, env in zip(steps, algo.workers.local_worker().stream.environments))


class Print(DefaultCallbacks):
    def on_train_result(self, *, algorithm, result, **kwargs):
        result["printed"] = result.get("printed", 0) + 1


class PrintMore(Print):
    pass


class Logs(DefaultCallbacks):
    def on_episode_end(self, *, metrics_logger, **kwargs):
        metrics_logger.log_value("ended", 1, reduce="sum")


MANY = {
    "list": list,
    "tuple": tuple,
    "make_multi_callbacks": make_multi_callbacks,
    "list in a list": lambda parts: [parts[0], parts[1:]],
    "class in a list": lambda parts: [parts[0], make_multi_callbacks(parts[1:])],
    "object in a list": lambda parts: [parts[0], make_multi_callbacks(parts[1:])()],
    "made in a list": lambda parts: [parts[0], partial(make_multi_callbacks(parts[1:]))],
    "class in a class": lambda parts: make_multi_callbacks([make_multi_callbacks(parts[:2]), parts[2:]]),
}


@pytest.mark.parametrize("make", MANY.values(), ids=MANY)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_callbacks_as_a_list(make, num_workers):
    with config(num_workers).callbacks(make([Print, partial(Recorder), Logs, PrintMore])).build() as algo:
        result = algo.train()
        assert (result["printed"], result["mine"]) == (2, 10)
        assert result["custom_metrics"]["twice_the_length_min"] == 8
        assert result["env_runners"]["ended"] == result["episodes_this_iter"]


def test_parts_define_what_a_list_hears():
    assert not hears(make_multi_callbacks([Print, PrintMore])(), "on_episode_step")
    assert hears(make_multi_callbacks([Print, Journal])(), "on_episode_step")


class Greeting(DefaultCallbacks):
    """Callbacks with an argument and a state."""

    def __init__(self, words):
        self.words, self.results = words, 0

    def on_train_result(self, *, result, **kwargs):
        self.results += 1
        result[self.words] = self.results

    def get_state(self):
        return {"results": self.results}

    def set_state(self, state):
        self.results = state["results"]


@pytest.mark.parametrize("wrap", [lambda made: made, lambda made: [Print, made]], ids=["object", "list"])
def test_an_object_is_a_pattern_that_each_run_copies(wrap):
    given = Greeting("hello")
    pattern = config().callbacks(wrap(given))
    for _ in range(2):
        with pattern.copy(copy_frozen=False).build() as algo:
            assert algo.train()["hello"] == 1
            assert algo.train()["hello"] == 2
    assert given.results == 0


def test_an_object_is_heard_where_its_class_is():
    assert not hears(make_multi_callbacks([Print, Greeting("hello")])(), "on_episode_step")
    assert hears(make_multi_callbacks([Greeting("hello")])(), "on_train_result")


def test_the_state_of_several_callbacks_is_that_of_each():
    make = make_multi_callbacks([Print, Greeting("a"), partial(Greeting, "b")])
    first, second = make(), make()
    first.on_train_result(algorithm=None, result={})
    state = json.loads(json.dumps(first.get_state()))
    second.set_state(state)
    result = {}
    second.on_train_result(algorithm=None, result=result)
    assert (result["a"], result["b"]) == (2, 2)
    assert Print().get_state() == make_multi_callbacks([Print])().get_state() == {}


class Counter(Greeting):
    """Another class with a state, of one entry."""


def test_states_of_callbacks_that_one_run_leaves_out_are_there_in_the_next(tmp_path):
    """States belong to classes, whatever the positions of these in the list are."""
    both, alone = [partial(Greeting, "greeting"), partial(Counter, "counter")], partial(Counter, "counter")
    with config().callbacks(both).build() as algo:
        algo.train()
        path = algo.save(tmp_path / "0")
    given = [(alone, {"counter": 2}), ([], {}), (both[::-1], {"greeting": 2, "counter": 3})]
    for number, (callbacks, expected) in enumerate(given, 1):
        with Algorithm.from_checkpoint(path, {"callbacks_class": callbacks}) as algo:
            result = algo.train()
            assert {name: result[name] for name in ("greeting", "counter") if name in result} == expected
            path = algo.save(tmp_path / str(number))


def test_states_of_earlier_checkpoints_are_restored_by_position():
    callbacks = make_multi_callbacks([Print, Greeting("hello")])()
    restore_states(callbacks, {"1": {"results": 5}})
    assert callbacks._parts[1].results == 5 and states_of(callbacks) == [["Greeting", {"results": 5}]]


class TestRefusals:
    @pytest.mark.parametrize(
        "wrap", [lambda c: c, lambda c: [Print, c], lambda c: partial(c)], ids=["", "list", "made"]
    )
    def test_a_misspelt_hook_is_refused_with_the_nearest_name(self, wrap):
        class Misspelt(DefaultCallbacks):
            def on_trane_result(self, **kwargs):
                raise AssertionError("never called")

        with pytest.raises(ValueError, match=r"Misspelt has on_trane_result, which .*mean on_train_result"):
            config().callbacks(wrap(Misspelt)).build()

    def test_an_object_is_checked_as_its_class(self):
        class Misspelt(DefaultCallbacks):
            def on_trane_result(self, **kwargs):
                raise AssertionError("never called")

        with pytest.raises(ValueError, match=r"Misspelt has on_trane_result"):
            config().callbacks([Misspelt()]).validate()

    def test_a_hook_that_cannot_take_its_arguments_is_refused(self):
        class Old(DefaultCallbacks):
            def on_train_result(self, *, trainer, result):
                raise AssertionError("never called")

        with pytest.raises(ValueError, match=r"on_train_result.*cannot be called with algorithm, result"):
            config().callbacks(Old).build()

    def test_a_method_of_ones_own_is_none_of_these(self):
        class Own(DefaultCallbacks):
            def on_zebra(self):
                raise AssertionError("never called")

        config().callbacks(Own).validate()

    def test_what_is_no_class_of_callbacks(self):
        with pytest.raises(ValueError, match="derived from DefaultCallbacks"):
            config().callbacks({"on_episode_end": print}).build()
        with pytest.raises(ValueError, match="derived from DefaultCallbacks"):
            config().callbacks([Print, int]).build()
