"""Recorded steps as a dataset: episodes, ends, next observations, units, and data that cannot be right."""

from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from rllib.env.spaces.observations import observation_column
from rllib.offline.dataset import Dataset

DATA = Path(__file__).parents[1] / "data" / "offline"
PENDULUM = {
    "observation_space": Box(-np.array([1, 1, 8], np.float32), np.array([1, 1, 8], np.float32)),
    "action_space": Box(-2, 2, (1,), np.float32),
}


def chain(lengths, **ends):
    """Columns of episodes of numbers that count on: an observation is its own number, and new_obs the next."""
    total = sum(lengths)
    obs = np.arange(total, dtype=np.float32)[:, None] + np.repeat(np.arange(len(lengths)), lengths)[:, None]
    last = np.cumsum(lengths) - 1
    columns = {"obs": obs, "new_obs": obs + 1, "actions": np.zeros(total, int), "rewards": np.ones(total)}
    for name, values in ends.items():
        flags = np.zeros(total, bool)
        flags[last] = values
        columns[name] = flags
    columns["eps_id"] = np.repeat(np.arange(len(lengths)), lengths)
    return columns


# ---------------------------------------------------------------------- files of RLlib


@pytest.mark.parametrize(
    ("name", "rows", "episodes", "mean_return"),
    [
        ("cartpole_small.json", 102, 3, 34.0),
        ("cartpole-v1.jsonl", 102, 3, 34.0),
        ("cartpole_large.json.gz", 4137, 21, 197.0),
        ("pendulum_small.json", 40, 1, -306.0),
        ("pendulum_medium_sac_50eps.zip", 10_000, 50, -524.3),
        ("pendulum_expert_sac_50eps.zip", 10_000, 50, -174.7),
        ("enormous.zip", 16_231, 82, -143.0),
    ],
)
def test_files_have_the_steps_that_were_counted_in_them(name, rows, episodes, mean_return):
    if name.startswith(("pendulum", "enormous")):
        pytest.importorskip("lz4")
    dataset = Dataset.from_path(DATA / name)
    assert (len(dataset), dataset.num_episodes) == (rows, episodes)
    assert dataset.returns.mean() == pytest.approx(mean_return, abs=1)


def test_a_batch_a_line_and_a_step_a_line_are_the_same():
    batches, steps = (Dataset.from_path(DATA / name) for name in ("cartpole_small.json", "cartpole-v1.jsonl"))
    for name in ("obs", "new_obs", "actions", "rewards", "terminateds", "truncateds"):
        np.testing.assert_allclose(batches.columns[name], steps.columns[name], rtol=1e-6)
    assert batches.observation_space == steps.observation_space


def pendulum_after(obs, actions):
    """Observations after these actions, by the equations of Pendulum-v1."""
    angle, speed = np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2]
    speed = np.clip(speed + (15 * np.sin(angle) + 3 * actions[:, 0]) * 0.05, -8, 8)
    angle = angle + speed * 0.05
    return np.stack([np.cos(angle), np.sin(angle), speed], 1)


@pytest.mark.parametrize("units", ["auto", "normalized", "environment"])
def test_actions_are_in_the_units_in_which_the_pendulum_moved(units):
    pytest.importorskip("lz4")
    dataset = Dataset.from_path(DATA / "pendulum_expert_sac_50eps.zip", actions=units, **PENDULUM)
    after = pendulum_after(dataset.columns["obs"], dataset.columns["actions"])
    error = np.abs(after - dataset.columns["new_obs"]).max(1)[:-1]
    is_right = np.median(error) < 1e-3
    assert is_right == (units != "environment")


def test_flags_at_a_time_limit_are_truncations():
    dataset = Dataset.from_path(DATA / "cartpole_large.json.gz")
    last = dataset.starts[1:] - 1
    at_limit = dataset.lengths == 200
    np.testing.assert_array_equal(dataset.columns["truncateds"][last], at_limit)
    assert any("truncated" in notice for notice in dataset.notices)
    told = Dataset.from_path(DATA / "cartpole_large.json.gz", dones="terminated")
    assert told.columns["terminateds"].sum() == 21 - (~told.columns["terminateds"][last]).sum() and at_limit.sum() > 10


# ---------------------------------------------------------------------- episodes


def test_ends_of_numbered_episodes_without_flags_are_truncations():
    dataset = Dataset.from_columns(chain([3, 2]))
    assert dataset.starts.tolist() == [0, 3, 5]
    assert np.flatnonzero(dataset.columns["truncateds"]).tolist() == [2, 4]
    assert dataset.has_next.all()


def test_interleaved_episodes_are_put_together():
    columns = chain([3, 3], terminateds=True)
    order = np.array([0, 3, 1, 4, 2, 5])
    mixed = Dataset.from_columns({name: column[order] for name, column in columns.items()})
    plain = Dataset.from_columns(columns)
    assert mixed.starts.tolist() == plain.starts.tolist()
    np.testing.assert_array_equal(mixed.columns["obs"], plain.columns["obs"])
    assert "interleaved" in " ".join(mixed.notices)


@pytest.mark.parametrize("numbers", ["once", "again"])
@pytest.mark.parametrize("flags", ["dones", "both"])
def test_flags_of_all_ends_tell_that_episodes_are_interleaved(flags, numbers):
    """Without new_obs and t: an episode goes on where its number comes again before its end."""
    lengths = [3, 5, 4, 2]
    columns = chain(lengths, terminateds=[True, False, True, False], truncateds=[False, True, False, True])
    del columns["new_obs"]
    if flags == "dones":
        columns["dones"] = columns.pop("terminateds") | columns.pop("truncateds")
    if numbers == "again":
        columns["eps_id"] = np.repeat([0, 1, 0, 1], lengths)
    in_turns = np.array([0, 3, 1, 4, 2, 5, 6, 7, 8, 12, 9, 13, 10, 11])
    mixed = Dataset.from_columns({name: column[in_turns] for name, column in columns.items()})
    assert sorted(mixed.lengths.tolist()) == sorted(lengths) and "interleaved" in " ".join(mixed.notices)
    for start, stop in zip(mixed.starts, mixed.starts[1:]):
        steps = mixed.columns["obs"][start:stop, 0]
        np.testing.assert_array_equal(steps, np.arange(steps[0], steps[0] + len(steps)))
    assert Dataset.from_columns(columns).lengths.tolist() == lengths


@pytest.mark.parametrize("ends", [{"terminateds": True}, {"terminateds": [True, False, True, False]}, {}])
@pytest.mark.parametrize("counted", ["t", "unroll"])
def test_interleaved_episodes_whose_numbers_come_again(counted, ends):
    """Two environments in turns, as one after the other in each of two files that count their episodes from 0."""
    lengths = [3, 5, 4, 2]
    columns = chain(lengths, **ends)
    columns["eps_id"] = np.repeat([0, 1, 0, 1], lengths)
    if counted == "t":
        columns["t"] = np.concatenate([np.arange(length) for length in lengths])
    in_turns = np.array([0, 3, 1, 4, 2, 5, 6, 7, 8, 12, 9, 13, 10, 11])
    dataset = Dataset.from_columns({name: column[in_turns] for name, column in columns.items()})
    assert sorted(dataset.lengths.tolist()) == sorted(lengths)
    for start, stop in zip(dataset.starts, dataset.starts[1:]):
        steps = dataset.columns["obs"][start:stop, 0]
        np.testing.assert_array_equal(steps, np.arange(steps[0], steps[0] + len(steps)))
    assert "interleaved" in " ".join(dataset.notices)


def test_a_number_that_comes_again_with_other_steps_is_another_episode():
    columns = chain([2, 2, 2], terminateds=True)
    columns["eps_id"] = np.array([7, 7, 8, 8, 7, 7])
    columns["t"] = np.array([0, 1, 0, 1, 0, 1])
    dataset = Dataset.from_columns(columns)
    assert dataset.starts.tolist() == [0, 2, 4, 6]
    np.testing.assert_array_equal(dataset.columns["obs"], columns["obs"])


def test_an_episode_that_stands_there_twice_counts_twice():
    columns = chain([3], terminateds=True) | {"t": np.arange(3)}
    twice = {name: np.concatenate([column, column]) for name, column in columns.items()}
    assert Dataset.from_columns(twice).lengths.tolist() == [3, 3]


def test_next_observations_follow_from_the_next_rows():
    columns = chain([3, 2], terminateds=[True, False])
    del columns["new_obs"]
    dataset = Dataset.from_columns(columns)
    assert dataset.has_next.tolist() == [True, True, False, True, False]
    assert dataset.is_transition.tolist() == [True, True, True, True, False]
    assert dataset.columns["new_obs"][[0, 1, 3], 0].tolist() == dataset.columns["obs"][[1, 2, 4], 0].tolist()


def test_the_first_observation_of_the_next_episode_is_no_final_one():
    columns = chain([3, 2, 2], truncateds=[True, True, True])
    columns["new_obs"][2] = columns["obs"][3]  # of an environment that has reset itself
    dataset = Dataset.from_columns(columns)
    assert dataset.has_next.tolist() == [True, True, False, True, True, True, True]


@pytest.mark.parametrize("flag", [True, False])
def test_after_truncations_the_last_one_is_none_where_all_others_are_so(flag):
    """Nothing is recorded behind the last row; a recording that stops within an episode shows what followed there."""
    columns = chain([3, 2, 2], truncateds=[True, True, flag])
    columns["new_obs"][[2, 4]] = columns["obs"][[3, 5]]
    dataset = Dataset.from_columns(columns)
    assert np.flatnonzero(~dataset.has_next).tolist() == ([2, 4, 6] if flag else [2, 4])


@pytest.mark.parametrize("resets", [[2], [2, 4]])
def test_after_terminations_it_is_none_where_all_are_so(resets):
    """One may be alike by chance; of an environment that has reset itself the last one is a beginning, too."""
    columns = chain([3, 2, 2], terminateds=[True, True, True])
    columns["new_obs"][resets] = columns["obs"][np.array(resets) + 1]
    dataset = Dataset.from_columns(columns)
    assert np.flatnonzero(~dataset.has_next).tolist() == ([] if resets == [2] else [2, 4, 6])
    assert dataset.is_transition.all()


def test_a_step_both_terminated_and_truncated_is_terminated():
    dataset = Dataset.from_columns(chain([2], terminateds=True, truncateds=True))
    assert dataset.columns["terminateds"][1] and not dataset.columns["truncateds"][1]


def test_names_of_other_libraries_are_known():
    columns = chain([3, 2], terminateds=[True, False], truncateds=[False, True])
    other = {
        "observations": columns["obs"],
        "actions": columns["actions"],
        "rewards": columns["rewards"],
        "terminals": columns["terminateds"],
        "timeouts": columns["truncateds"],
    }
    dataset = Dataset.from_columns(other)
    assert dataset.starts.tolist() == [0, 3, 5]
    assert not dataset.has_next[4]


@pytest.mark.parametrize("from_end", [False, True])
@pytest.mark.parametrize("other", ["mine", "observation", "reward", "rewards"])
@pytest.mark.parametrize("name", ["obs", "new_obs", "actions", "rewards", "terminateds", "eps_id"])
def test_the_column_that_the_user_names_is_read_in_place_of_ours(name, other, from_end):
    """Whichever comes first in the source; it may have a name of ours or of another library, too."""
    right = chain([3, 2], terminateds=True)
    wrong = np.zeros_like(right["rewards"] if name == other else right[name])
    columns = {**right, name: wrong, other: right[name]}
    if other == "rewards":
        columns |= {"gains": right["rewards"]}
    schema = {name: other} | ({"rewards": "gains"} if other == "rewards" and name != other else {})
    ordered = dict(sorted(columns.items(), key=lambda item: item[0] == other, reverse=from_end))
    dataset, expected = Dataset.from_columns(ordered, schema=schema), Dataset.from_columns(right)
    assert dataset.starts.tolist() == expected.starts.tolist()
    for each in right:
        np.testing.assert_array_equal(dataset.columns[each], expected.columns[each], each)


# ---------------------------------------------------------------------- parts of it


def test_the_best_episodes_and_the_others():
    columns = chain([1, 2, 3, 4])
    dataset = Dataset.from_columns(columns)
    assert dataset.filter_top(0.5).lengths.tolist() == [3, 4]
    first, second = dataset.split(0.5)
    assert sorted([*first.lengths, *second.lengths]) == [1, 2, 3, 4]
    whole = Dataset.concat([first, second])
    assert len(whole) == 10 and whole.returns.sum() == dataset.returns.sum()


@pytest.mark.parametrize(
    "chosen", [[2, 0], np.array([3]), [], [True, False, True, False], np.array([False] * 4)], ids=str
)
def test_episodes_are_chosen_as_those_of_an_array(chosen):
    dataset = Dataset.from_columns(chain([1, 2, 3, 4]))
    lengths = np.array([1, 2, 3, 4])[np.asarray(chosen, None if len(chosen) else int)]
    taken = dataset.taking(chosen)
    assert taken.lengths.tolist() == lengths.tolist() == [len(each["obs"]) for each in taken.episodes()]


@pytest.mark.parametrize("chosen", [[4], [-1], [0.5], [True, False], [[True] * 4], ["a"]], ids=str)
def test_episodes_that_there_are_not_are_refused(chosen):
    with pytest.raises(ValueError, match="has 4 episodes"):
        Dataset.from_columns(chain([1, 2, 3, 4])).taking(chosen)


def test_spaces_are_taken_from_the_data_where_nothing_says_them():
    columns = chain([3])
    assert Dataset.from_columns(columns).action_space == Discrete(1)
    assert Dataset.from_columns(columns | {"actions": np.zeros((3, 2))}).action_space == Box(-1, 1, (2,), np.float32)
    assert Dataset.from_columns(columns | {"actions": np.array([[0, 4], [1, 0], [2, 2]])}).action_space == (
        MultiDiscrete([3, 5])
    )
    images = np.zeros((3, 8, 8, 3), np.uint8)
    dataset = Dataset.from_columns({"obs": images, "actions": np.zeros(3, int)})
    assert dataset.observation_space == Box(0, 255, (8, 8, 3), np.uint8)


def test_rows_of_a_dict_space_are_those_that_workers_store():
    space = Dict({"near": Box(-1, 1, (2,)), "which": Discrete(3)})
    dataset = Dataset.from_columns(
        {"obs": np.zeros((4, 5)), "actions": np.zeros(4, int)}, observation_space=space, action_space=Discrete(2)
    )
    assert dataset.columns["obs"].shape == (4, 5)


@pytest.mark.parametrize("space", [Discrete(3, start=2), MultiDiscrete([3, 2], start=[2, 4])], ids=str)
@pytest.mark.parametrize("following", ["absent", "zeros", "any"])
def test_choices_that_nobody_reads_are_in_the_space(space, following):
    """What follows an end is not read, but a network encodes it with the others and refuses what is in no space."""
    columns = chain([3, 2, 2], terminateds=[1, 0, 1])
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(7)])
    columns |= {"obs": obs, "new_obs": np.concatenate([obs[1:], obs[:1]])}
    columns["new_obs"][[2, 6]] = 0  # after the terminations
    if following == "absent":
        del columns["new_obs"]
    elif following == "any":
        columns["new_obs"][4] = 99
        columns["has_next"] = np.array([1, 1, 1, 1, 0, 1, 1])
    dataset = Dataset.from_columns(columns, observation_space=space)
    column = observation_column(space)
    first = np.empty((2, *column.shape), column.dtype)
    column.write_batch(np.zeros_like(obs[:2]) + space.start, first)
    stored = dataset.columns["new_obs"]
    np.testing.assert_array_equal(stored[[0, 1, 3, 5]], dataset.columns["obs"][[1, 2, 4, 6]])
    np.testing.assert_array_equal(stored[[2, 6]], first)


# ---------------------------------------------------------------------- data that cannot be right

FAULTS = {
    "no actions": ({"actions": None}, {}, "has no actions"),
    "columns of unequal length": ({"rewards": np.ones(4)}, {}, "has 5 rows, rewards 4"),
    "a reward that is not finite": ({"rewards": np.array([1, np.nan, 1, 1, 1])}, {}, "row 1: rewards is not finite"),
    "an observation that is not finite": (
        {"obs": np.array([[0], [1], [2], [np.inf], [5]])},
        {},
        "row 3: obs is not finite",
    ),
    "another shape": ({}, {"observation_space": Box(-1, 1, (4,))}, r"obs has the shape \(1,\)"),
    "an action that is no whole number": (
        {"actions": np.array([0, 0.5, 0, 0, 0])},
        {"action_space": Discrete(2)},
        "row 1: the action 0.5 is no whole number",
    ),
    "an action that there is not": (
        {"actions": np.array([0, 1, 2, 0, 0])},
        {"action_space": Discrete(2)},
        "row 2: the action 2 is not in",
    ),
    "an observation that there is not": (
        {"obs": np.array([2, 3, 5, 2, 3]), "new_obs": None},
        {"observation_space": Discrete(3, start=2)},
        "row 2: the obs 5 is not in Discrete",
    ),
    "one-hot actions": ({"actions": np.eye(5)[:, :2]}, {"action_space": Discrete(2)}, "one-hot"),
    "shuffled rows": (
        {"new_obs": np.array([[9], [1], [2], [7], [3]], float)},
        {},
        r"new_obs is not the obs of the next row.*input_config=\{'check': False\} takes them",
    ),
    "next observations of another shape": (
        {"obs": np.zeros((5, 4))},
        {},
        r"rows of obs have the shape \(4,\), but those of new_obs \(1,\)",
    ),
    "an observation that is not finite, before and after": (
        {"obs": np.array([[0], [1], [np.nan], [3], [4]]), "new_obs": np.array([[1], [np.nan], [3], [4], [5]])},
        {},
        "row 2: obs is not finite",
    ),
    "an episode that goes on": ({"terminateds": np.array([0, 1, 0, 0, 1])}, {}, "row 1: the episode has ended"),
    "no rows": ({name: np.empty((0, 1)) for name in ("obs", "new_obs", "actions", "rewards", "eps_id")}, {}, "no rows"),
}


@pytest.mark.parametrize(("changed", "spaces", "message"), FAULTS.values(), ids=FAULTS)
def test_data_that_cannot_be_right_is_refused(changed, spaces, message):
    columns = {**chain([3, 2]), **changed}
    columns = {name: column for name, column in columns.items() if column is not None}
    with pytest.raises(ValueError, match=message):
        Dataset.from_columns(columns, **spaces)


def test_actions_outside_of_the_bounds_are_clipped_and_counted():
    columns = chain([3, 2]) | {"actions": np.array([[0.0], [5], [-9], [1], [2]])}
    dataset = Dataset.from_columns(columns, action_space=Box(-2, 2, (1,)))
    assert dataset.columns["actions"].tolist() == [[0], [2], [-2], [1], [2]]
    assert "2 of 5 actions lie outside" in " ".join(dataset.notices)


@pytest.mark.parametrize("actions", ["environment", "normalized"])
def test_densities_of_actions_that_are_clipped_are_left_out(actions):
    """They are of what the actions were before: as importance ratios they would be wrong at the bounds."""
    outside, inside = (np.array([[0.0], [high], [-0.5], [1], [0.25]]) for high in (5, 1))
    space = {"action_space": Box(-2, 2, (1,)), "actions": actions}
    columns = chain([3, 2]) | {"actions": outside, "action_logp": np.full(5, -1.0)}
    dataset = Dataset.from_columns(columns, **space)
    assert "action_logp" not in dataset.columns
    assert "1 of 5 actions lie outside" in " ".join(dataset.notices)
    assert "action_logp is left out: 1 actions were clipped" in " ".join(dataset.notices)
    assert "action_logp" in Dataset.from_columns(columns | {"actions": inside}, **space).columns


def test_options_that_there_are_not_are_refused():
    with pytest.raises(ValueError, match="must be one of"):
        Dataset.from_path(DATA / "cartpole_small.json", dones="sometimes")
    with pytest.raises(ValueError, match="Did you mean dones"):
        Dataset.from_path(DATA / "cartpole_small.json", done="auto")
