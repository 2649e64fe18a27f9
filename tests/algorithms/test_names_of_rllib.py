"""Names of RLlib's classes: those that are here do what RLlib's do, and the others say what to write instead."""

import copy
import importlib.util
import operator
import pickle
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import rllib
from rllib import PPO, Algorithm, Policy, PPOConfig, SampleBatch
from rllib.algorithms.base.registry import ALGORITHMS, get_algorithm_class
from rllib.algorithms.base.trainee import _OVERRIDDEN
from rllib.compat.names import absent
from rllib.compat.names.aliases import UNAVAILABLE
from rllib.compat.names.elsewhere import OF_ITS_MODELS, OF_STABLE_BASELINES
from rllib.compat.programs.names import MISSING
from rllib.did_you_mean import explains
from rllib.evaluation.worker import Worker
from rllib.evaluation.worker_set import WorkerSet
from rllib.models.catalog.model_catalog import ModelCatalog

ROOT = Path(__file__).parents[2]
TABLES = [
    (Algorithm, absent.ALGORITHM),
    (Policy, absent.POLICY),
    (Worker, absent.WORKER),
    (WorkerSet, absent.WORKER_SET),
    (PPOConfig, absent.CONFIG),
]


def small_config(num_workers: int = 0) -> PPOConfig:
    config = PPOConfig().environment("CartPole-v1").debugging(seed=0)
    config.rollouts(num_rollout_workers=num_workers, num_envs_per_worker=2, rollout_fragment_length=16)
    return config.training(train_batch_size=32, sgd_minibatch_size=32, num_sgd_iter=1)


@pytest.fixture(scope="module")
def algo():
    with small_config().build() as built:
        yield built


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("rllib_names", ROOT / "tools" / "rllib_names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------ names that are explained


@pytest.mark.parametrize(("cls", "table"), TABLES, ids=lambda each: getattr(each, "__name__", ""))
def test_no_row_of_a_table_is_an_attribute_of_its_class(cls, table):
    assert [name for name in table if hasattr(cls, name)] == []


@pytest.mark.parametrize(("cls", "table"), TABLES, ids=lambda each: getattr(each, "__name__", ""))
def test_advice_is_the_end_of_a_sentence(cls, table):
    for advice in table.values():
        assert advice[0].islower() and advice[-1] not in ".:", advice


def test_an_absent_name_says_what_to_write(algo):
    cases = (
        (algo, "optimizer", r"'PPO' object has no attribute 'optimizer': use algo\.learners, "),
        (algo.get_policy(), "learn_on_batch", r"'Policy' .* 'learn_on_batch': use algo\.learn_on_batch\(batch, lr="),
        (algo.workers, "reset", r"'WorkerSet' .* 'reset': use \.rollouts"),
        (algo.workers.local_worker(), "get_metrics", r"'RolloutWorker' .*: sample\(\) returns a report"),
    )
    for thing, name, message in cases:
        with pytest.raises(AttributeError, match=message):
            getattr(thing, name)


def _attributes(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.fixture(scope="module")
def known(algo):
    """Names of attributes that some algorithm has, and that some policy in training has."""
    classes = [get_algorithm_class(name) for name in ALGORITHMS]
    of_algorithms = _attributes(algo).union(*map(_attributes, classes))
    return {
        "algorithm": of_algorithms,
        "trainee": _attributes(algo.trainee).union(*(_attributes(each.trainee_class) for each in classes)),
        "learner": _attributes(algo.learner),
    }


ADVICE = [
    *(advice for _, table in TABLES for advice in table.values()),
    *OF_ITS_MODELS.values(),
    *OF_STABLE_BASELINES.values(),
    *(each.sentence for each in UNAVAILABLE.values()),
    *MISSING.values(),
]
# Where advice names an attribute: of what, and by which words.
_NAMED = (
    ("algorithm", r"\b(?:algo|other)\.([a-z]\w*)"),
    ("learner", r"\balgo\.learner\.(\w+)"),
    ("trainee", r"\balgo\.trainee\.(\w+)"),
    ("algorithm", r"override (\w+) of the algorithm"),
    ("trainee", r"override (\w+) of the trainee"),
    ("trainee", r"(\w+) of each trainee"),
    ("algorithm", r"\bself\.([a-z]\w*)\("),
    ("algorithm", r"\bAlgorithm\.([a-z]\w*)"),
)


def test_advice_names_attributes_that_are_there(known):
    found = 0
    for advice in ADVICE:
        for of, pattern in _NAMED:
            for name in re.findall(pattern, advice):
                found += 1
                assert name in known[of], f"no {of} has {name!r}: {advice}"
    assert found > 50


@pytest.mark.parametrize("method", _OVERRIDDEN)
def test_methods_of_trainees_are_refused_in_an_algorithm(method):
    """A program whose algorithm overrides them would train by what it wanted to replace."""
    refused = 0
    for name in ALGORITHMS:
        cls = get_algorithm_class(name)
        if hasattr(cls.trainee_class, method):
            refused += 1
            whose = cls.trainee_class.__name__
            with pytest.raises(TypeError, match=rf"Own\.{method} would never be called: .*{whose}, and"):
                type("Own", (cls,), {method: lambda self, *given: None})
    assert refused, f"no policy in training has {method}"

    class Own(PPO):  # a method of its own, which only has that name
        def training_step(self):
            return getattr(self, "unused", self.add_targets)()

        def add_targets(self):
            return {}


def test_an_attribute_that_nothing_reads_cannot_be_set(algo):
    """Settings of any library that a program changes by an attribute would keep their values, without a word."""
    for thing, table in ((algo, {**OF_ITS_MODELS, **absent.ALGORITHM}), (algo.policy, absent.POLICY)):
        for name in table:
            if hasattr(thing, name):  # `seed`, which is the library's as well
                continue
            with pytest.raises(AttributeError, match=rf"cannot set {name}: a '{type(thing).__name__}' object has no"):
                setattr(thing, name, 1)
            assert not hasattr(thing, name)
    for name in algo.config.settings:
        if not hasattr(algo, name):
            with pytest.raises(AttributeError, match=rf"cannot set {name}: .* Settings change by"):
                setattr(algo, name, 1)
    algo.mine = 1
    del algo.mine


def test_classes_of_users_may_have_attributes_with_these_names():
    class Own(PPO):
        def setup(self):
            self.optimizer, self.lr = "mine", 3

    with Own(small_config()) as own:
        own.replay_buffer = []
        assert (own.optimizer, own.lr, own.replay_buffer) == ("mine", 3, [])


def test_an_unknown_name_is_an_ordinary_error(algo):
    with pytest.raises(AttributeError, match=r"^'PPO' object has no attribute 'polcy'$") as raised:
        algo.polcy  # noqa: B018
    assert raised.value.name == "polcy" and raised.value.obj is algo  # Python adds "Did you mean: 'policy'?"
    assert not hasattr(algo, "polcy")


def test_an_attribute_that_fails_raises_its_own_error():
    @explains({"other": "use this"})
    class Own:
        @property
        def failing(self):
            return [].missing

    with pytest.raises(AttributeError, match="'list' object has no attribute 'missing'"):
        Own().failing  # noqa: B018


def test_objects_with_a_table_are_copied_and_pickled(algo):
    spec = algo.get_policy().spec
    assert copy.deepcopy(spec) == pickle.loads(pickle.dumps(spec))
    policy = copy.copy(algo.get_policy())
    assert policy.weights is algo.get_policy().weights


def test_the_table_in_the_documentation_is_the_one_that_is_executed(tool):
    found = tool.answers()
    assert tool.PAGE.read_text() == tool.page_with(tool.table(found)), "run python tools/rllib_names.py --write"
    missing = {kind: [name for name, told in names.items() if told == "missing"] for kind, names in found.items()}
    assert {kind: names for kind, names in missing.items() if names} == {}


# ------------------------------------------------------------------ Algorithm


def test_the_names_of_a_trainable(algo, tmp_path):
    result = algo.step()
    assert algo.iteration == algo.training_iteration == result["training_iteration"]
    assert (algo.trial_id, algo.trial_name) == ("default", "default")
    path = algo.save_checkpoint(str(tmp_path / "one"))
    assert path == str(tmp_path / "one")
    weights = algo.get_weights()["default_policy"]
    algo.policy.set_weights(np.zeros_like(weights))
    algo.load_checkpoint(path)
    np.testing.assert_array_equal(algo.get_weights()["default_policy"], weights)


def test_save_gives_the_path_in_both_forms(algo, tmp_path):
    saved = algo.save(tmp_path / "both")
    assert saved.checkpoint.path == str(saved) == str(tmp_path / "both")
    assert (saved / "manifest.json").exists() and saved.parent == tmp_path
    algo.restore(saved.checkpoint)
    algo.restore(saved.checkpoint.path)


def test_workers_by_the_names_of_later_versions(algo):
    assert algo.env_runner_group is algo.workers
    assert algo.env_runner == algo.workers.local_worker()
    assert algo.eval_env_runner_group is algo.evaluation_workers is None


def test_episodes_are_played_in_the_environments_of_the_env_runner(algo):
    """As RLlib's custom_experiment.py evaluates: its env is that of a vector, its module acts."""
    runner = algo.env_runner
    env, total = runner.env.unwrapped.envs[0], 0.0
    assert runner.env.envs[0].unwrapped is env.unwrapped is algo.workers.local_worker().env.unwrapped
    observation, _ = env.reset(seed=3)
    is_over = False
    while not is_over:
        outputs = runner.module.forward_inference({"obs": np.expand_dims(observation, 0)})
        action = int(outputs["action_dist_inputs"][0].argmax())
        observation, reward, terminated, truncated, _ = env.step(action)
        total, is_over = total + reward, terminated or truncated
    assert total > 0
    # A policy that never fails ends by the limit of the environment's id, which the worker counts itself.
    assert isinstance(env, gymnasium.wrappers.TimeLimit) and env.spec.max_episode_steps == 500
    # The worker has the weights of its last fragment, the module the present ones.
    algo.set_weights({"default_policy": 0.5 * algo.get_weights()["default_policy"]})
    inputs = {"obs": np.ones((1, *observation.shape), np.float32)}
    present = algo.get_module().forward_inference(inputs)["action_dist_inputs"]
    np.testing.assert_array_equal(runner.module.forward_inference(inputs)["action_dist_inputs"], present)
    runner.mine = 3  # attributes are those of the worker
    assert algo.env_runner.mine == algo.workers.local_worker().mine == 3
    assert runner.worker_index == 0 and runner != algo.workers


def test_a_subclass_logs_results_and_cleans_up():
    logged = []

    class Logging(PPO):
        def log_result(self, result):
            logged.append(result["training_iteration"])

        def cleanup(self):
            super().cleanup()
            logged.append("cleaned")

    with Logging(small_config()) as algo:
        algo.train()
    assert logged == [1, "cleaned"]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("step", "override training_step"),
        ("save_checkpoint", "override algorithm_state"),
        ("load_checkpoint", "override set_algorithm_state"),
        ("execution_plan", "override training_step"),
    ],
)
def test_a_method_that_nothing_would_call_is_refused(name, instead):
    with pytest.raises(TypeError, match=rf"Own\.{name} would never be called: {instead}"):
        type("Own", (PPO,), {name: lambda self, *given: None})


def test_a_trained_policy_is_exported_in_rllibs_words(algo, tmp_path):
    for export in (algo.export_policy_checkpoint, algo.get_policy().export_checkpoint):
        policy = Policy.from_checkpoint(export(tmp_path / export.__name__))
        np.testing.assert_array_equal(policy.weights, algo.policy.weights)
        assert policy.observation_space == algo.observation_space


def test_a_policy_is_exported_to_onnx_in_rllibs_words(algo, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    directory = algo.export_policy_model(tmp_path / "model", onnx=17)
    session = onnxruntime.InferenceSession(directory / "model.onnx")
    observations = np.zeros((2, 4), np.float32)
    (action, *_) = session.run(None, {session.get_inputs()[0].name: observations})
    assert len(action) == 2


def test_a_number_of_operators_asks_for_a_graph(algo, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("rllib.serving.export.export_policy", lambda *given, **how: asked.append((given, how)))
    assert algo.export_policy_model(tmp_path, onnx=17) == tmp_path
    assert asked == [((algo, tmp_path / "model.onnx", "onnx"), {"policy_id": "default_policy"})]


# ------------------------------------------------------------------ Policy, workers, catalog


def test_a_policy_computes_from_a_batch(algo):
    policy, batch = algo.get_policy(), {"obs": np.zeros((3, 4), np.float32)}
    actions, states, fetches = policy.compute_actions_from_input_dict(batch, explore=False)
    expected, _, _ = policy.compute_actions(batch["obs"], explore=False)
    np.testing.assert_array_equal(actions, expected)
    assert states == [] and len(fetches["vf_preds"]) == 3
    log_probs = policy.compute_log_likelihoods(actions, batch["obs"])
    np.testing.assert_allclose(log_probs, fetches["action_logp"], atol=1e-6)


def test_what_a_policy_is(algo):
    policy = algo.get_policy()
    assert policy.num_state_tensors() == 0 and not policy.is_recurrent()
    assert policy.dist_class.__name__ == "Categorical"
    assert policy.apply(lambda own, factor: factor * own.weights.size, 2) == 2 * policy.weights.size


def test_log_likelihoods_of_a_memory_are_refused():
    config = small_config().training(model={"use_lstm": True, "lstm_cell_size": 4})
    with config.build() as algo:
        policy = algo.get_policy()
        assert policy.num_state_tensors() > 0
        with pytest.raises(ValueError, match="has a memory, on whose states they depend"):
            policy.compute_log_likelihoods(np.zeros(1, np.int64), np.zeros((1, 4), np.float32))


def test_workers_are_asked_in_rllibs_words(algo):
    workers = algo.workers
    assert workers.foreach_env(lambda env: type(env.unwrapped).__name__) == [["CartPoleEnv"] * 2]
    assert workers.foreach_env_with_context(lambda env, context: context.vector_index) == [[0, 1]]
    assert workers.foreach_policy(lambda policy, policy_id: policy_id) == ["default_policy"]
    assert workers.foreach_worker_with_id(lambda index, worker: index) == [0]
    assert workers.foreach_env_runner(lambda worker: worker.worker_index) == [0]
    assert workers.foreach_env_runner("foreach_env", kwargs={"function": str}) == workers.foreach_env(str)
    assert workers.foreach_env_runner(lambda worker, more: worker.worker_index + more, kwargs={"more": 3}) == [3]
    assert workers.num_remote_workers() == workers.num_healthy_remote_workers() == 0
    worker = workers.local_worker()
    assert worker.for_policy(lambda policy: policy.is_recurrent()) is False
    assert worker.apply(lambda own, number: own.worker_index + number, 5) == 5


def test_a_local_worker_stands_beside_remote_ones():
    with small_config(num_workers=1).build() as algo:
        worker = algo.workers.local_worker()
        assert worker.worker_index == 0 and algo.workers.local_worker() is worker
        algo.train()
        np.testing.assert_array_equal(
            algo.workers.local_worker().get_weights()["default_policy"], algo.get_weights()["default_policy"]
        )
        assert len(worker.foreach_env(lambda env: env.unwrapped)) == 2
        assert algo.workers.num_remote_workers() == 1


def test_a_local_worker_is_asked_first_as_in_ray():
    with small_config(num_workers=2).training(train_batch_size=64).build() as algo:
        workers, index = algo.workers, operator.attrgetter("worker_index")
        assert workers.foreach_worker(index) == [1, 2]
        workers.local_worker().mark = "local"
        assert workers.foreach_worker(index) == [0, 1, 2] == workers.foreach_env_runner(index)
        assert workers.foreach_worker(index, local_worker=False) == [1, 2]
        assert workers.foreach_worker_with_id(lambda number, each: number) == [0, 1, 2]
        assert workers.foreach_worker(lambda each: getattr(each, "mark", None)) == ["local", None, None]
        assert workers.foreach_env(lambda env: type(env.unwrapped).__name__) == [["CartPoleEnv"] * 2] * 3
        assert workers.foreach_env_with_context(lambda env, context: context.worker_index) == [
            [0] * 2,
            [1] * 2,
            [2] * 2,
        ]
        weights = workers.foreach_policy(lambda policy, policy_id: policy.weights.copy())
        assert len(weights) == 3 and np.array_equal(weights[0], algo.get_weights()["default_policy"])
        assert workers.foreach_env_runner(index, remote_worker_ids=[2]) == [0, 2]
        assert workers.foreach_worker(index, local_worker=False, remote_worker_ids=[]) == []
        with pytest.raises(ValueError, match=r"remote_worker_ids=.* no rollout worker 3"):
            workers.foreach_worker(index, remote_worker_ids=[3])
        for unavailable in ({"timeout_seconds": 5.0}, {"return_obj_refs": True}):
            with pytest.raises(TypeError, match="all answers are waited for"):
                workers.foreach_env_runner(index, **unavailable)
        state = algo.workers.get_state()
        assert len(state) == 2, "the local worker beside remote ones takes no part in sampling"


def test_preprocessors_of_the_catalog():
    space = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(3), b=gymnasium.spaces.Box(0, 1, (2,)))
    preprocessor = ModelCatalog.get_preprocessor_for_space(space)
    row = preprocessor.transform({"a": np.int64(1), "b": np.array([0.5, 1.0], np.float32)})
    np.testing.assert_array_equal(row, np.array([0, 1, 0, 0.5, 1], np.float32))
    assert (preprocessor.shape, preprocessor.size, row.dtype) == ((5,), 5, np.float32)
    image = ModelCatalog.get_preprocessor_for_space(gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8))
    assert image.transform(np.ones((4, 4, 3), np.uint8)).dtype == np.uint8
    with pytest.raises(NotImplementedError, match="have no fixed size"):
        ModelCatalog.get_preprocessor_for_space(gymnasium.spaces.Sequence(space))


# ------------------------------------------------------------------ SampleBatch


def test_columns_of_rllib_are_constants():
    assert (SampleBatch.OBS, SampleBatch.CUR_OBS, SampleBatch.NEXT_OBS) == ("obs", "obs", "new_obs")
    assert (SampleBatch.INFOS, SampleBatch.T, SampleBatch.PREV_ACTIONS) == ("infos", "t", "prev_actions")
    assert (rllib.Postprocessing.ADVANTAGES, rllib.Postprocessing.VALUE_TARGETS) == ("advantages", "value_targets")


def test_a_column_that_is_not_there_is_said():
    batch = SampleBatch({"obs": np.zeros(3), "terminateds": np.array([False, False, True])})
    with pytest.raises(KeyError, match="no column 'infos': name the keys that are needed in"):
        batch[SampleBatch.INFOS]
    with pytest.raises(KeyError, match="no column 'rewards'; it has obs, terminateds"):
        batch["rewards"]
    assert batch.get("rewards") is None


def test_rows_and_episodes_of_a_batch():
    ended = np.array([False, True, False])
    batch = SampleBatch({"obs": np.arange(3), "terminateds": ended, "game": np.array([0, 0, 1])})
    assert [int(row["obs"]) for row in batch.rows()] == [0, 1, 2]
    assert [part.count for part in batch.split_by_episode(key="game")] == [2, 1]
    assert not batch.is_single_trajectory() and not batch.is_terminated_or_truncated()
    assert batch[:2].is_single_trajectory() and batch[:2].is_terminated_or_truncated()
    assert batch.copy(shallow=True)["obs"] is batch["obs"] and batch.copy()["obs"] is not batch["obs"]
    assert batch.compress().decompress_if_needed() is batch


def test_a_worker_by_rllibs_arguments_says_how_it_is_made():
    with pytest.raises(TypeError, match=r"not env_creator, config as in RLlib\. Use RolloutWorker\.from_config"):
        rllib.RolloutWorker(env_creator=lambda config: gymnasium.make("CartPole-v1"), config=small_config())
    worker = rllib.RolloutWorker.from_config(small_config(), env=lambda config: gymnasium.make("CartPole-v1"))
    batch, report = worker.sample()
    assert batch.count == report.env_steps == 32
    worker.stop()


def test_actions_are_asked_for_with_rllibs_arguments(algo):
    observation = np.zeros(4, np.float32)
    without = {"info": {}, "timestep": 3, "episode": None, "unsquash_action": True, "clip_action": None}
    expected = algo.compute_single_action(observation, explore=False)
    assert algo.compute_single_action(observation, explore=False, **without) == expected
    with pytest.raises(TypeError, match=r"unsquash_action=False: actions are converted as the config says"):
        algo.compute_single_action(observation, unsquash_action=False)
    with pytest.raises(TypeError, match=r"^compute_single_action\(\) got an unexpected keyword argument 'explor'"):
        algo.compute_single_action(observation, explor=False)
    policy = algo.get_policy()
    action, _, _ = policy.compute_single_action(obs=observation, prev_action=None, info=None, explore=False)
    assert action == expected
    actions, _, _ = policy.compute_actions(obs_batch=observation[None], prev_reward_batch=None, explore=False)
    assert actions == [expected]
    with pytest.raises(TypeError, match="unexpected keyword argument 'explor'"):
        policy.compute_actions(observation[None], explor=False)
    for call in (policy.compute_actions, policy.compute_single_action):
        with pytest.raises(TypeError, match="needs "):
            call()


def test_a_config_with_a_setting_of_its_own_is_told_how():
    class OwnConfig(PPOConfig):
        pass

    with pytest.raises(AttributeError, match=r"has no setting 'my_number'\. A setting of your own is a parameter of a"):
        OwnConfig().my_number = 3


def test_a_method_of_rllibs_configs_says_what_to_use():
    with pytest.raises(AttributeError, match="PPOConfig has no 'build_learner_group': override make_learner"):
        PPOConfig().build_learner_group  # noqa: B018
