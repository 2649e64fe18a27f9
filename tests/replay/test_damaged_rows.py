"""Saved rows that no replay writes: they are refused as damaged, before anything is loaded."""

import shutil
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from rllib import Algorithm, ApexDQNConfig, DQNConfig
from rllib.algorithms.base.from_checkpoint import rows_of_steps
from rllib.algorithms.families.fragment_queue import FragmentQueue, PolicyFragment
from rllib.config.conflicts import Unfit
from rllib.errors import CheckpointError, DamagedFileError
from rllib.replay.fragment_replay import FragmentReplay
from rllib.replay.mixed_replay import MixedReplay
from rllib.replay.replay_buffer import ReplayBuffer
from rllib.sample_batch import Column, SampleBatch
from tests.damage import rewrite
from tests.envs import ConstantReward

CAPACITY, STACK = 40, 3
PLAIN = (Column("number", (), "int64"), Column("obs", (2,), "float32"))
STACKED = (Column("obs", (STACK, 2), "uint8"), Column("new_obs", (STACK, 2), "uint8"), Column("number", (), "int64"))
FORMS = {
    "uniform": partial(ReplayBuffer, PLAIN, CAPACITY),
    "priorities": partial(ReplayBuffer, PLAIN, CAPACITY, alpha=0.6),
    "disk": partial(ReplayBuffer, PLAIN, CAPACITY, alpha=0.6, storage="disk"),
    "frames": partial(ReplayBuffer, STACKED, CAPACITY, frame_axis=0),
    "frames and priorities": partial(ReplayBuffer, STACKED, CAPACITY, frame_axis=0, alpha=0.6),
}


def filled(form, count):
    """A replay to which rows of short episodes were added, so that stacks fill the room for frames."""
    replay = FORMS[form]()
    for number in range(count):
        frames = np.full((STACK + 1, 2), 3 * number % 251, np.uint8) + np.arange(STACK + 1, dtype=np.uint8)[:, None]
        row = {"number": np.array([number]), "obs": np.ones((1, 2), np.float32)}
        if "frames" in form:
            row |= {"obs": frames[None, :-1], "new_obs": frames[None, 1:]}
        replay.add(row, np.array([float(number)]))
    return replay


def copied(replay):
    return {name: np.array(array) for name, array in replay.get_state().items()}


# Values of numbers of a state, and what is not refused: an exponent or a largest priority that may have been.
NUMBERS = (np.nan, np.inf, -1.0, 1e300, 2.0**62, -(2**62), 2**62)
POSSIBLE = [
    *((name, value) for name in ("alpha", "epsilon") for value in (1e300, 2.0**62)),
    ("largest_priority", 2.0**62),
]
COUNTS = ("added", "capacity", "oldest", "stacks.written")


def damages(state):
    """(description, changed state) for each array of a state."""
    for name, array in state.items():
        yield f"{name} as of 2 dimensions", {**state, name: array.reshape(*array.shape, 1, 1)}
        if array.ndim:
            yield f"{name} cut off", {**state, name: array[:-1]}
            yield f"{name} twice", {**state, name: np.append(array, array, axis=0)}
            continue
        yield f"{name} as a list", {**state, name: np.array([array, array])}
        for value in NUMBERS:
            if (name, value) not in POSSIBLE and not (name in COUNTS and isinstance(value, float)):
                yield f"{name}={value}", {**state, name: np.array(value)}
    # A full ring may be that of another number of rows.
    off_by_one = {"added", "stacks.written"} if len(state["columns.obs"]) < CAPACITY else set()
    for name in sorted(state.keys() & {"oldest", *off_by_one}):
        for step in (-1, 1) if name in off_by_one else (-1,):
            yield f"{name} {step:+}", {**state, name: state[name] + step}
    for name in sorted(state.keys() - {"alpha", "epsilon", "oldest"}):
        yield f"without {name}", {other: array for other, array in state.items() if other != name}
    if "priorities" in state:
        for value in (np.nan, np.inf, -1.0, 1e300, 2e290, 2 * state["largest_priority"]):
            yield f"a priority of {value}", {**state, "priorities": np.append(state["priorities"][:-1], value)}
        yield "no priority", {**state, "priorities": np.zeros_like(state["priorities"])}
        yield "priorities of integers", {**state, "priorities": np.ones(len(state["priorities"]), np.int64)}
        yield "largest 0", {**state, "largest_priority": np.array(0.0)}
    if "least" in state:
        for name in ("least", "columns.obs", "columns.new_obs"):
            for value in (-1, 2**62):
                yield f"{name} of {value}", {**state, name: np.full_like(state[name], value)}
        yield "frames of another dtype", {**state, "stacks.frames": state["stacks.frames"].astype(np.int16)}
    if "least" in state and "priorities" in state and state["oldest"] > max(state["added"] - CAPACITY, 0):
        yield "rows without frames that are drawn", {**state, "priorities": np.ones_like(state["priorities"])}


@pytest.mark.parametrize("count", [10, CAPACITY, 3 * CAPACITY + 7])
@pytest.mark.parametrize("form", FORMS)
def test_damaged_states_are_refused_and_change_nothing(form, count):
    state, replay = copied(filled(form, count)), filled(form, 5)
    before, seen = copied(replay), 0
    for description, damaged in damages(state):
        # Of columns and capacities others may be meant.
        with pytest.raises((DamagedFileError, Unfit) if "columns" in description or "capacity" in description or
                           description == "without priorities" else DamagedFileError):  # fmt: skip
            replay.set_state(damaged)
            pytest.fail(f"accepted: {description}")
        np.testing.assert_equal(copied(replay), before, err_msg=description)
        seen += 1
    assert seen > 10
    replay.set_state(state)
    np.testing.assert_equal(copied(replay), state)
    replay.sample(8, np.random.default_rng(0), 0.4)


@pytest.mark.parametrize("form", ["priorities", "frames and priorities"])
def test_priorities_without_rows_are_refused_too(form):
    """Those of recorded rows, which are read again."""
    replay = filled(form, 3 * CAPACITY)
    priorities = {name: np.array(array) for name, array in replay.get_priorities().items()}
    for value in (np.nan, np.inf, -1.0, 1e300):
        damaged = {**priorities, "priorities": np.append(priorities["priorities"][:-1], value)}
        with pytest.raises(DamagedFileError, match="priorit"):
            replay.refuse_priorities(damaged)
    replay.refuse_priorities(priorities)
    replay.refuse_priorities({"priorities": np.ones(3)})  # of other data: all rows start again
    replay.refuse_priorities({})


@pytest.mark.parametrize("owed", [[np.nan, 0.0], [1e18, -1e18], [np.inf, 0.0], [3.0, 0.0]])
def test_parts_owe_no_more_than_their_batches_leave(owed):
    replay = MixedReplay([(filled("uniform", 5), 0.5), (filled("uniform", 5), 0.5)], takes_new_rows=True)
    with pytest.raises(DamagedFileError, match="owe"):
        replay.owed = owed
    replay.sample(3, np.random.default_rng(0))


@pytest.mark.parametrize("steps", [(0, 2**62), (-1, 3), (5, 2), (0, 7)])
def test_steps_of_an_earlier_format_allocate_no_more_than_there_are(steps):
    with pytest.raises(DamagedFileError, match="steps"):
        rows_of_steps({"steps": np.array(steps), "columns.obs": np.zeros((6, 1, 2))}, 0.9, 1, 6)


@pytest.mark.parametrize("numbers", [(0, -1, 5, -(10**9)), (0, -1, -5, 5), (0, -2, 5, 5), (0, 5), (0.0, -1.0, 5.0, 5)])
def test_waiting_fragments_fill_a_batch(numbers):
    queue = FragmentQueue(10, FragmentReplay(0, 1, np.random.default_rng(0)))
    queue.put(PolicyFragment(SampleBatch({"obs": np.zeros((5, 2))}), 5, 5))
    state = queue.get_state()
    queue.refuse_state(state)
    with pytest.raises(DamagedFileError, match="fragments"):
        queue.refuse_state({**state, "0": np.array(numbers)})


# ---------------------------------------------------------------------- in files

SETTINGS = {"hiddens": [], "train_batch_size": 16, "num_steps_sampled_before_learning_starts": 20,
            "store_buffer_in_checkpoints": True, "replay_buffer_config": {"capacity": 100}}  # fmt: skip


def build(cls):
    more = {"num_replay_buffer_shards": 1} if cls is ApexDQNConfig else {}
    config = cls().environment(ConstantReward).rollouts(num_rollout_workers=0).debugging(seed=1)
    config.training(model={"fcnet_hiddens": [4]}, **SETTINGS, **more)
    return config.reporting(min_sample_timesteps_per_iteration=60, min_time_s_per_iteration=0).build()


@pytest.mark.parametrize("cls", [DQNConfig, ApexDQNConfig])
def test_files_are_refused_by_name_before_anything_changes(cls, tmp_path):
    with build(cls) as saving:
        saving.train()
        checkpoint, alone = saving.save(tmp_path / "run"), saving.save_replay_buffer(tmp_path / "rows")
    with build(cls) as algo:
        weights = algo.get_weights()
        for directory, load in ((checkpoint, algo.restore), (alone, algo.load_replay_buffer)):
            file = next(directory.rglob("replay.safetensors"))
            arrays = load_file(file)
            for ending, value in (("added", -1), ("largest_priority", np.nan), ("made_by", 7), ("alpha", -1.0)):
                name = next(name for name in arrays if name.endswith(ending))
                damaged = {**arrays, name: np.full_like(arrays[name], value)}
                copy = shutil.copytree(directory, tmp_path / "copy", dirs_exist_ok=True)
                rewrite(copy, str(file.relative_to(directory)), save(damaged))
                loads = [load] if directory is alone else [load, Algorithm.from_checkpoint]
                if directory is checkpoint:
                    no_rows = {"store_buffer_in_checkpoints": False}
                    loads.append(lambda path, more=no_rows: Algorithm.from_checkpoint(path, more))
                for each in loads:
                    with pytest.raises(CheckpointError, match=f"{copy} is damaged"):
                        each(copy)
                shutil.rmtree(copy)
            assert algo.iteration == 0 and len(algo.replay) == 0
            np.testing.assert_equal(algo.get_weights(), weights)
        algo.load_replay_buffer(alone)
        algo.restore(checkpoint)
        algo.train()
