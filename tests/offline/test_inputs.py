"""Forms of `input_`: readers and functions of the user's own, registered names, tables, and data kept on a disk."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import runtime
from rllib import DefaultCallbacks, tune
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.config.conflicts import SettingsError
from rllib.offline import Dataset, InputReader, IOContext, JsonReader, register_input
from rllib.offline.readers import _batches
from rllib.offline.records import Records
from rllib.offline.stream import RecordedStream
from rllib.sample_batch import SampleBatch

DATA = Path(__file__).parents[1] / "data" / "offline"
CARTPOLE = str(DATA / "cartpole_small.json")
STATS = ("info", "learner", "default_policy", "learner_stats")


def config(name, data, **more):
    made = get_algorithm_config(name).environment("CartPole-v1").offline_data(input_=data, **more)
    made = made.training(model={"fcnet_hiddens": [8]}, train_batch_size=32).debugging(seed=3)
    return made.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=64)


def trained(config):
    with config.build() as algorithm:
        return algorithm.train(), algorithm


def stats_of(result):
    for key in STATS:
        result = result[key]
    return result


class Counting(InputReader):
    """Gives episodes of 20 steps, each with the number of the batch as reward."""

    made: list = []  # noqa: RUF012

    def __init__(self, ioctx: IOContext, batches: int = 10**9):
        self.batches, self.given = batches, 0
        self.made.append(ioctx)

    def next(self):
        if self.given == self.batches:
            raise StopIteration
        self.given += 1
        obs = np.random.default_rng(self.given).normal(size=(20, 4)).astype(np.float32)
        columns = {"obs": obs, "actions": np.arange(20) % 2, "rewards": np.full(20, float(self.given))}
        return SampleBatch({**columns, "terminateds": np.arange(20) == 19})


@pytest.fixture(autouse=True)
def no_readers():
    Counting.made.clear()


@pytest.mark.parametrize("name", ["BC", "MARWIL", "DQN"])
def test_a_reader_without_end_is_learned_from_batch_by_batch(name):
    result, algorithm = trained(config(name, Counting))
    rows = result["info"]["dataset"]["rows"]
    assert rows >= 64 and rows % 20 == 0
    assert np.isfinite(list(v for v in stats_of(result).values() if isinstance(v, float))).all()
    if name == "DQN":
        assert len(algorithm.replay) == rows


def test_a_reader_that_has_ended_is_made_again():
    result, _ = trained(config("BC", lambda ioctx: Counting(ioctx, batches=2)))
    assert result["info"]["dataset"]["rows"] > 40 and len(Counting.made) >= 2


def test_a_reader_sees_the_settings_of_its_run():
    trained(config("BC", Counting, input_config={"dones": "terminated"}))
    ioctx = Counting.made[0]
    assert ioctx.worker_index == 0 and Path(ioctx.log_dir).is_absolute()
    assert ioctx.input_config == {"dones": "terminated"} and ioctx.config["train_batch_size"] == 32


@pytest.mark.parametrize("make", [Counting, lambda ioctx: Counting(ioctx) and CARTPOLE], ids=["reader", "paths"])
def test_a_function_is_called_once_in_a_run_without_an_environment(make):
    """It might also make a policy server; what it has made is kept."""
    made = config("BC", make, input_config={"dones": "terminated"})
    made.environment(env=None, observation_space=Box(-np.inf, np.inf, (4,)), action_space=Discrete(2))
    for count in (1, 2):  # the config can be built again
        trained(made)
        assert len(Counting.made) == count
    assert all(ioctx.input_config == {"dones": "terminated"} for ioctx in Counting.made)


@pytest.mark.parametrize("register", [tune.register_input, register_input])
def test_readers_have_names(register):
    register("counting", Counting)
    result, _ = trained(config("BC", "counting"))
    assert result["info"]["dataset"]["rows"] >= 64


def test_a_json_reader_is_the_data_of_its_paths():
    result, _ = trained(config("BC", lambda ioctx: JsonReader(CARTPOLE, ioctx)))
    assert result["info"]["dataset"]["episodes"] == 3


def test_a_json_reader_gives_each_line_again_and_again():
    reader = JsonReader(CARTPOLE)
    lines = list(reader.read_all_files())
    assert sum(map(len, lines)) == 102
    for batch in [*lines, lines[0]]:
        np.testing.assert_array_equal(reader.next()["obs"], batch["obs"])


@pytest.mark.parametrize("form", ["function", "table", "pyarrow"])
def test_data_in_memory(form):
    columns = Dataset.from_path(CARTPOLE).columns
    arrays = {name: columns[name] for name in ("obs", "actions", "rewards", "terminateds", "truncateds")}
    if form == "function":
        data = lambda ioctx: arrays  # noqa: E731
    else:
        module = pytest.importorskip("pandas" if form == "table" else "pyarrow")
        lists = {name: column.tolist() for name, column in arrays.items()}
        data = module.DataFrame(lists) if form == "table" else module.table(lists)
    result, _ = trained(config("BC", data))
    assert result["info"]["dataset"]["rows"] == 102


class Handing(InputReader):
    """Gives a Dataset again and again."""

    def __init__(self, dataset):
        self.dataset = dataset

    def next(self):
        return self.dataset


@pytest.mark.parametrize("form", ["alone", "function", "reader", "mixture", "demonstrations"])
def test_a_dataset_without_bounds_is_of_the_environment(form):
    """Arrays do not say the bounds of observations, and policies do not differ by them."""
    columns = Dataset.from_path(CARTPOLE).columns
    dataset = Dataset.from_columns({name: columns[name] for name in ("obs", "actions", "rewards", "terminateds")})
    given = {
        "alone": ("BC", {"input_": dataset}),
        "function": ("BC", {"input_": lambda ioctx: dataset}),
        "reader": ("BC", {"input_": lambda ioctx: Handing(dataset)}),
        "mixture": ("DQN", {"input_": {"sampler": 0.5, dataset: 0.5}}),
        "demonstrations": ("GAIL", {"demonstrations": dataset}),
    }
    name, data = given[form]
    made = config(name, "sampler").offline_data(**data)
    if form == "demonstrations":
        made.training(sgd_minibatch_size=32)
    result, algorithm = trained(made)
    assert result["training_iteration"] == 1
    assert algorithm.observation_space == gymnasium.make("CartPole-v1").observation_space != dataset.observation_space


@pytest.mark.parametrize("action_space", [Discrete(3), Box(-1, 1, (1,))])
def test_a_dataset_of_other_actions_is_refused_with_what_to_do(action_space):
    steps = {"obs": np.zeros((8, 4), np.float32), "actions": np.zeros((8, *action_space.shape), action_space.dtype)}
    with pytest.raises(SettingsError, match=r"has the action_space.*Dataset.from_path\(PATH, observation_space="):
        config("BC", Dataset.from_columns(steps, action_space=action_space)).build()


def test_what_a_function_may_return_is_said():
    with pytest.raises(TypeError, match=r"a reader with next\(\)"):
        config("BC", lambda ioctx: 3).build()


@pytest.mark.parametrize(
    "more",
    [{"normalize_observations": True}, {"input_fraction_of_best": 0.5}, {"offline_validation_fraction": 0.5}],
    ids=lambda more: next(iter(more)),
)
def test_what_needs_all_of_the_data_is_not_for_readers(more):
    with pytest.raises(ValueError, match="needs data with an end"):
        config("BC", Counting, **more).build()


def test_estimators_are_not_for_readers():
    made = config("BC", Counting).evaluation(off_policy_estimation_methods={"is": {"type": "is"}})
    with pytest.raises(ValueError, match="off_policy_estimation_methods needs data with an end"):
        made.build()


def test_a_reader_has_keys_of_its_own_in_input_config():
    register_input("with_keys", Counting)
    for reader in (Counting, "with_keys"):
        made = config("BC", reader, input_config={"shards": 3, "dones": "terminated"})
        made.validate()
        assert made.read_options() == {"dones": "terminated"}
    with pytest.raises(ValueError, match="'shards' is no option"):
        config("BC", CARTPOLE, input_config={"shards": 3}).validate()


class Flipped(JsonReader):
    def next(self):
        batch = super().next()
        batch["actions"] = 1 - batch["actions"]
        return batch


def test_a_reader_that_changes_what_it_reads_is_asked():
    with config("BC", lambda ioctx: Flipped(CARTPOLE, ioctx)).build() as algorithm:
        assert algorithm.recorded.stream is not None
    with config("BC", lambda ioctx: JsonReader(CARTPOLE, ioctx)).build() as algorithm:
        assert algorithm.recorded.stream is None


def test_the_rest_of_a_line_is_one_batch():
    rows = Records({"obs": np.arange(5)}, "a", [(-2, "line 1"), (3, "line 2")])
    assert [batch["obs"].tolist() for batch in _batches(rows)] == [[0, 1, 2], [3, 4]]


def test_batches_of_a_reader_are_in_the_units_of_the_first():
    """The first has numbers beyond 1, so that they cannot be normalized; the second, by itself, might be."""
    actions = iter([1.5, 0.5])

    class Boxed(InputReader):
        def next(self):
            columns = {"obs": np.zeros((4, 1)), "actions": np.full((4, 1), next(actions)), "unroll_id": np.zeros(4)}
            return {**columns, "terminateds": np.arange(4) == 3}

    spaces = Box(-9, 9, (1,)), Box(-2, 2, (1,))
    stream = RecordedStream(Boxed, {}, *spaces)
    assert [stream.next().columns["actions"].max() for _ in range(2)] == [1.5, 0.5]


def test_a_mixture_is_not_for_readers():
    register_input("endless", Counting)
    with pytest.raises(ValueError, match="needs data with an end"):
        config("DQN", {"endless": 0.5, "sampler": 0.5}).build()


# ---------------------------------------------------------------------- on a disk


def weights_after(config):
    with config.build() as algorithm:
        algorithm.train()
        return algorithm.get_weights()


@pytest.mark.parametrize("name", ["BC", "DQN"])
def test_data_on_a_disk_is_learned_from_to_the_bit(name, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("rllib.replay.disk._is_in_memory", lambda directory: False)
    of_memory = weights_after(config(name, CARTPOLE))
    of_disk = weights_after(config(name, CARTPOLE, offline_memory=1000))
    assert "kept in files of a temporary directory" in caplog.text
    for left, right in zip(_arrays(of_memory), _arrays(of_disk)):
        np.testing.assert_array_equal(left, right)
    assert not list(tmp_path.iterdir())


def test_a_replay_on_a_disk_is_filled_from_data_that_is_not_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.offline.dataset.Dataset.from_path", None)
    made = config("DQN", CARTPOLE).training(replay_buffer_config={"storage": str(tmp_path)})
    with made.build() as algorithm:
        assert isinstance(algorithm.recorded.only.columns["obs"].base, object)
        assert len(algorithm.replay) == int(algorithm.recorded.only.has_next.sum())


def _arrays(weights):
    if isinstance(weights, dict):
        return [array for key in sorted(weights) for array in _arrays(weights[key])]
    return [np.asarray(weights)]


@pytest.mark.parametrize("given", [0, -1, True, "much", 1.5])
def test_offline_memory_is_checked(given):
    with pytest.raises((ValueError, TypeError), match="offline_memory"):
        config("BC", CARTPOLE, offline_memory=given).build()


# ---------------------------------------------------------------------- names of other eras

OF_RLLIB = {
    "postprocess_inputs": True, "shuffle_buffer_size": 10, "offline_sampling": True, "input_read_method": "read_json",
    "input_read_method_kwargs": {}, "input_read_episodes": False, "input_read_sample_batches": True,
    "input_read_batch_size": 50, "input_compress_columns": ["obs"], "ignore_final_observation": True,
    "materialize_data": True, "materialize_mapped_data": True, "map_batches_kwargs": {"concurrency": 2},
    "iter_batches_kwargs": {}, "prelearner_buffer_kwargs": {},
}  # fmt: skip


@pytest.mark.parametrize("name", OF_RLLIB)
def test_names_of_rllib_that_change_nothing_are_taken(name):
    made = get_algorithm_config("BC").offline_data(**{name: OF_RLLIB[name]})
    assert made.to_dict() == get_algorithm_config("BC").to_dict()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("offline_data_class", int, "a function of an IOContext"),
        ("prelearner_class", int, "a function of an IOContext"),
        ("input_filesystem", "s3", "download the files first"),
    ],
)
def test_names_of_rllib_that_would_change_something_are_refused(name, value, says):
    with pytest.raises(TypeError, match=says):
        get_algorithm_config("BC").offline_data(**{name: value})


def test_columns_of_files_may_have_other_names(tmp_path):
    columns = Dataset.from_path(CARTPOLE).columns
    np.savez(tmp_path / "a.npz", o_t=columns["obs"], a_t=columns["actions"])
    result, _ = trained(config("BC", str(tmp_path / "a.npz"), input_read_schema={"obs": "o_t", "actions": "a_t"}))
    assert result["info"]["dataset"]["rows"] == 102


class Updates(DefaultCallbacks):
    count = 0

    def on_learn_on_batch(self, **kwargs):
        Updates.count += 1


@pytest.mark.parametrize(
    ("name", "training"),
    [
        ("BC", {}),
        ("BC", {"model": {"use_lstm": True, "lstm_cell_size": 4}}),
        ("MARWIL", {"model": {"use_gru": True}}),
        ("IQL", {}),
        ("IQL", {"training_intensity": 0.3}),
        ("AWAC", {"training_intensity": 3}),
    ],
)
def test_dataset_num_iters_per_learner_counts_updates(name, training):
    """Whatever the rows of a batch, as where sequences are longer than it, and however often a row is learned from."""
    made = get_algorithm_config(name).environment("CartPole-v1").callbacks(Updates)
    made.offline_data(input_=CARTPOLE, dataset_num_iters_per_learner=7)
    with made.training(train_batch_size=10, **training).build() as algorithm:
        for _ in range(2):
            Updates.count = 0
            algorithm.train()
            assert 7 <= Updates.count < 7 + training.get("training_intensity", 1)


UNKNOWN = {"obs": np.zeros((60, 4), np.float32), "actions": np.arange(60) % 2, "rewards": np.ones(60)} | {
    "eps_id": np.arange(60)
}


@pytest.mark.parametrize("name", ["IQL", "AWAC", "DQN"])
@pytest.mark.parametrize("shares", [None, {"sampler": 0.5}, {CARTPOLE: 0.5}])
def test_data_in_which_nothing_follows_is_refused(name, shares):
    """It would be learned from for ever without an update, or its share would be that of another source."""
    env = gymnasium.make("CartPole-v1")
    data = Dataset.from_columns(UNKNOWN, observation_space=env.observation_space, action_space=env.action_space)
    with pytest.raises(SettingsError, match="nothing to learn from"):
        config(name, data if shares is None else {data: 0.5, **shares}).build()


def test_a_reader_in_whose_batches_nothing_follows_is_refused():
    class Unknown(InputReader):
        def next(self):
            return UNKNOWN

    with config("AWAC", lambda ioctx: Unknown()).build() as algorithm:  # noqa: SIM117
        with pytest.raises(ValueError, match="nothing to learn from"):
            algorithm.train()


@pytest.mark.parametrize("form", ["file", "pattern", "list", "share"])
def test_a_trial_reads_paths_from_the_directory_of_its_script(tmp_path, monkeypatch, form):
    runtime.shutdown()  # workers begin in the directory in which their session did
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Dataset.from_path(CARTPOLE).save("data/steps.npz")
    data = {"file": "data/steps.npz", "pattern": "data/*.npz", "list": ["data/steps.npz"]}
    settings = {"input": data.get(form, {"data/steps.npz": 1.0}), "dataset_num_iters_per_learner": 1}
    settings |= {"env": "CartPole-v1", "train_batch_size": 16, "model": {"fcnet_hiddens": [4]}}
    name = "AWAC" if form == "share" else "BC"
    result = tune.run(name, config=settings, stop={"training_iteration": 1}, local_dir="results", verbose=0)
    assert result.trials[0].last_result["info"]["dataset"]["rows"] == 102


STEPS = {"obs": np.zeros((40, 4), np.float32), "actions": np.arange(40) % 2, "rewards": np.ones(40)}


@pytest.mark.parametrize(
    ("data", "more"),
    [
        pytest.param(None, {}, id="nothing"),
        pytest.param(3, {}, id="a number"),
        pytest.param([], {}, id="no path"),
        pytest.param([STEPS, STEPS], {}, id="arrays in a list"),
        pytest.param([Dataset.from_columns(STEPS)] * 2, {}, id="Datasets in a list"),
        pytest.param(STEPS["obs"], {}, id="an array"),
        pytest.param({}, {}, id="no column"),
        pytest.param({"sampler": 1.0}, {}, id="no data"),
        pytest.param(STEPS, {"input_fraction_of_best": 1.5}, id="more than all episodes"),
        pytest.param(STEPS, {"reward_scale": 1e39}, id="rewards beyond float32"),
    ],
)
@pytest.mark.parametrize("name", ["MARWIL", "AWAC"])
def test_what_is_no_data_is_a_mistake_in_the_settings(name, data, more):
    setting = next(iter(more), "input_")
    with pytest.raises(SettingsError, match=setting):
        config(name, data, **more).build()


@pytest.mark.parametrize(
    ("columns", "says"),
    [({**STEPS, "rewards": 1.0}, "rewards is one value"), ({**STEPS, 3: np.ones(40)}, None)],
)
def test_columns_have_rows_and_names(columns, says):
    if says is None:
        assert "3" in Dataset.from_columns(columns).columns
    else:
        with pytest.raises(ValueError, match=says):
            Dataset.from_columns(columns)


def test_a_table_has_a_name_once():
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    table = pandas.DataFrame({"obs": list(STEPS["obs"]), "actions": STEPS["actions"]})
    twice = pandas.concat([table, table[["actions"]]], axis=1)
    columns = [arrow.array(STEPS["actions"])] * 3
    for each in (twice, arrow.Table.from_arrays(columns, ["obs", "actions", "actions"])):
        with pytest.raises(ValueError, match="columns with"):
            Dataset.from_columns(each)


class Changing(InputReader):
    """Gives batches as `config` has them, and then this one."""

    def __init__(self, later):
        self.batches = [Dataset.from_columns(STEPS), later]

    def next(self):
        return self.batches.pop(0)


@pytest.mark.parametrize(
    ("later", "says"),
    [
        (None, "next.. of the reader returned None"),
        ([1], "next.. of the reader returned"),
        (Dataset.from_columns(STEPS | {"actions": np.arange(40) % 5}), "action_space Discrete.5."),
        (Dataset.from_columns(STEPS | {"obs": np.zeros((40, 7))}), "observation_space"),
    ],
)
@pytest.mark.parametrize("name", ["BC", "AWAC"])
def test_a_batch_of_a_reader_that_does_not_fit_is_named(name, later, says):
    made = get_algorithm_config(name).offline_data(input_=lambda ioctx: Changing(later))
    with made.training(train_batch_size=32).build() as algorithm:  # noqa: SIM117
        with pytest.raises((TypeError, ValueError), match=says):
            algorithm.train()
