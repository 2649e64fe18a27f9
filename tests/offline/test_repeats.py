"""Files that repeat the files before them are read once; equal steps of different episodes are all read."""

import itertools
import json

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib.offline.dataset import Dataset
from rllib.offline.larger_than_memory import dataset_on_disk

SPACES = {"observation_space": Box(-9, 9, (1,)), "action_space": Discrete(2)}


@pytest.fixture(params=["memory", "disk"], autouse=True)
def read(request, monkeypatch):
    """Reads paths whole, or in the smallest pieces."""
    if request.param == "memory":
        return lambda paths: Dataset.from_path(paths, **SPACES)
    monkeypatch.setattr("rllib.offline.formats.json_lines._AT_ONCE", 1)
    return lambda paths: dataset_on_disk(paths, piece_bytes=1, **SPACES)


def walk(rng, names, at_most=6):
    """Steps of a walk along 3 places, so short that many are equal: columns with a row a step."""
    rows = []
    for name in names:
        place, steps = 0, int(rng.integers(1, at_most))
        for t in range(steps):
            action = int(rng.random() < 0.8)
            following = min(place + action, 2)
            rows.append((name, t, [place], [following], action, float(following == 2), t + 1 == steps))
            place = following
    columns = "eps_id", "t", "obs", "new_obs", "actions", "rewards", "terminateds"
    return {column: list(values) for column, values in zip(columns, zip(*rows))}


def part(columns, first, stop):
    return {name: column[first:stop] for name, column in columns.items()}


def without(columns, *names):
    return {name: column for name, column in columns.items() if name not in names}


def write_npz(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.array(column) for name, column in columns.items()}
    np.savez(path.with_suffix(".npz"), **arrays | {"obs": arrays["obs"].astype(np.float32)})


def write_steps(path, columns):
    """A step a line, as Ray Data writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [dict(zip(columns, values)) for values in zip(*columns.values())]
    path.with_suffix(".json").write_text("".join(json.dumps(line) + "\n" for line in lines))


WRITERS = {"npz": write_npz, "json": write_steps}


def assert_read(dataset, columns):
    for name in ("obs", "new_obs", "actions", "rewards", "terminateds"):
        np.testing.assert_array_equal(dataset.columns[name], np.array(columns[name]), err_msg=name)


def joined(*parts):
    return {name: [*itertools.chain.from_iterable(each[name] for each in parts)] for name in parts[0]}


# ---------------------------------------------------------------------- different episodes


@pytest.mark.parametrize("writer", WRITERS)
def test_files_that_count_their_episodes_from_0_are_whole(tmp_path, read, writer):
    rng = np.random.default_rng(0)
    first = walk(rng, [0])
    files = [joined(first, walk(rng, range(1, 200))) for _ in range(3)]
    for number, each in enumerate(files):
        WRITERS[writer](tmp_path / str(number), each)
    dataset = read(tmp_path)
    assert_read(dataset, joined(*files))
    assert dataset.num_episodes == 600


def test_rewards_of_a_bandit_keep_their_mean(tmp_path, read):
    """Each step is an episode, and two thirds of those with the same number are the same."""
    rng, files = np.random.default_rng(0), []
    for number in range(2):
        actions = (rng.random(1000) < 0.2).astype(int).tolist()
        files.append({"eps_id": list(range(1000)), "t": [0] * 1000, "obs": [[0]] * 1000, "actions": actions})
        files[-1] |= {"rewards": list(map(float, actions)), "terminateds": [True] * 1000}
        write_npz(tmp_path / str(number), files[-1])
    dataset = read(tmp_path)
    assert dataset.columns["rewards"].mean() == pytest.approx(np.mean(joined(*files)["rewards"]))


def test_files_of_one_episode_each_are_whole(tmp_path, read):
    """The number 0 stands for different episodes here, so that equal ones next to each other are no copies."""
    chosen = [1, 1, 1, 0, 1, 1]
    for number, action in enumerate(chosen):
        columns = {"eps_id": [0], "t": [0], "obs": [[0]], "actions": [action], "rewards": [1.0], "terminateds": [True]}
        write_npz(tmp_path / str(number), columns)
    assert read(tmp_path).columns["actions"].tolist() == chosen


def test_agents_that_do_the_same_are_both_read(tmp_path, read):
    """Rows of a policy that two agents share have the same episode and step twice."""
    agent = {"eps_id": [5, 5], "t": [0, 1], "obs": [[0], [1]], "actions": [1, 1], "rewards": [0.0, 1.0]}
    columns = joined(agent, agent) | {"terminateds": [False, True] * 2}
    batch = {"type": "MultiAgentBatch", "policy_batches": {"shared": columns}}
    (tmp_path / "a.json").write_text(json.dumps(batch) + "\n")
    assert read(tmp_path).lengths.tolist() == [2, 2]


# ---------------------------------------------------------------------- cumulative files


@pytest.mark.parametrize("writer", WRITERS)
def test_files_that_begin_with_the_file_before_are_read_once(tmp_path, read, writer):
    columns = walk(np.random.default_rng(0), range(40))
    stops = [20, 55, 55, len(columns["t"])]
    for number, stop in enumerate(stops):
        WRITERS[writer](tmp_path / str(number), part(columns, 0, stop))
    dataset = read(tmp_path)
    assert_read(dataset, columns)
    assert "130 rows at the beginnings of 3 files" in " ".join(dataset.notices)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_that_changes_one_step_is_another(tmp_path, read, writer):
    columns = walk(np.random.default_rng(0), range(10))
    changed = {name: list(column) for name, column in columns.items()}
    changed["rewards"][-1] += 0.5
    WRITERS[writer](tmp_path / "0", columns)
    WRITERS[writer](tmp_path / "1", changed)
    assert_read(read(tmp_path), joined(columns, changed))


def test_directories_of_rays_writer_are_read_once(tmp_path, read):
    """Steps without numbers, in several files a write, which are cut elsewhere in each; at its end the last again."""
    rng, workers = np.random.default_rng(0), []
    for worker in range(2):
        columns = without(walk(rng, [f"{worker}{number:x}" for number in range(40)], at_most=9), "t")
        total = len(columns["obs"])
        ends = np.flatnonzero(columns["terminateds"]) + 1
        for write, stop in enumerate([int(ends[8]), int(ends[20]), total, total], 1):
            cuts = np.linspace(0, stop, 6).astype(int)
            for number, (first, after) in enumerate(itertools.pairwise(cuts)):
                name = f"run-{worker:06}-{write:05}/{number:06}_000000"
                write_steps(tmp_path / name, part(columns, first, after))
        workers.append(columns)
    dataset = read(tmp_path)
    assert_read(dataset, joined(*workers))
    assert dataset.num_episodes == 80


def test_the_number_of_a_step_may_have_a_point_in_one_file_alone(tmp_path, read):
    columns = walk(np.random.default_rng(0), range(4))
    whole_numbers = columns | {"rewards": [int(reward) for reward in columns["rewards"]]}
    further = {name: [value] for name, value in zip(columns, (9, 0, [0.5], [1.5], 0, 0.5, True))}
    write_steps(tmp_path / "0", whole_numbers)
    write_steps(tmp_path / "1", joined(columns, further))
    assert_read(read(tmp_path), joined(columns, further))
