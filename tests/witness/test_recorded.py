"""Recorded data: what is read in every format, learned from, and written by a run, against the scripts."""

from unittest.mock import patch

import numpy as np
import pytest

import rllib
from rllib import sample_batch as sb
from rllib.offline import Dataset
from rllib.replay.replay_buffer import ReplayBuffer
from tests.witness.arrays import covering
from tests.witness.checks import Steps, check_stored, following, life_of
from tests.witness.doors.recorded import FORMS, WITHOUT_NEXT, Recording
from tests.witness.doors.scripted import ACTION_SPACE, OBSERVATION_SPACE, Single
from tests.witness.grid import GAMMA
from tests.witness.reader import reading
from tests.witness.script import ACTION_REWARD, CRASHED, TERMINATED, TRUNCATED, Family, decoded, observation

pytestmark = pytest.mark.usefixtures("workers_know_the_module")

FAMILY = Family(ends=(TERMINATED, TRUNCATED, "both"))
CLONING = ("BC", "MARWIL")
# Algorithms that need actions of a Box.
OF_BOX = ("CQL", "TD3BC", "ReBRAC")
READ = {
    "form": tuple(FORMS),
    "algorithm": (*CLONING, "DQN", "IQL", "CQL"),
    "n_step": (1, 3),
    "memory": ("auto", "disk"),
}
OTHERS = READ | {"algorithm": ("AWAC", "TD3BC", "ReBRAC")}


def recorded_config(case, input_, recording):
    config = getattr(rllib, f"{case['algorithm']}Config")()
    config.environment(observation_space=OBSERVATION_SPACE, action_space=recording.action_space)
    config.offline_data(input_=input_, normalize_observations=False)
    if case["form"] == "ray_agents":
        config.offline_data(input_config={"policy": "p"})
    config.training(gamma=GAMMA, lr=0.0, model={"fcnet_hiddens": [8]}).debugging(seed=1)
    if case["algorithm"] in CLONING:
        config.training(train_batch_size=len(recording.steps()))  # an epoch an update
    else:
        config.training(train_batch_size=16, n_step=case["n_step"])
        if case["memory"] == "disk":
            config.training(replay_buffer_config={"storage": "disk"})
    if case["algorithm"] == "DQN":
        config.training(conservative_weight=1.0)
    return config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=1)


def adding(stored):
    """Patches replays, so that all rows that they take in are noted."""
    add = ReplayBuffer.add

    def noted(self, batch, *arguments, **named):
        stored.append({name: np.array(column) for name, column in batch.items()})
        return add(self, batch, *arguments, **named)

    return patch.object(ReplayBuffer, "add", noted)


def check_replayed(stored, recording, n_step, left_out):
    """Rows of replays: each step once, with the recorded action, and sums, discounts and ends by the script."""
    actions, steps = recording.steps(), Steps()
    for columns in stored:
        named = np.array([actions[decoded(row)] for row in columns[sb.OBS]])
        given = columns[sb.ACTIONS].reshape(len(named)).astype(np.float64)
        if recording.is_box:  # SAC and CQL keep actions before tanh
            is_squashed = np.abs(np.tanh(given) - named) < 1e-4
            assert (is_squashed | (np.abs(given - named) < 1e-6)).all()
        else:
            assert (given == named).all()
        columns[sb.ACTIONS] = named
    check_stored(stored, recording.family, steps, GAMMA, n_step)
    assert steps.counts.keys() == actions.keys() - left_out


def check_cloned(batch, recording, values, left_out):
    """Rows of BC and MARWIL: each step once; MARWIL's returns to go."""
    actions, steps = recording.steps(), Steps()
    for row, seen in enumerate(batch[sb.OBS]):
        step = decoded(seen)
        steps.add(step, float(np.reshape(batch[sb.ACTIONS][row], ())))
        assert steps.actions[step] == actions[step]
    assert steps.counts.keys() == actions.keys()
    if sb.VALUE_TARGETS not in batch:
        return 0
    checked, returns = 0, {}
    for step in sorted(actions, reverse=True):
        life = life_of(recording.family, step)
        reward = life.rewards[step[3]] + ACTION_REWARD * actions[step]
        if step[3] < life.length - 1:
            after = returns[following(step)]
        else:
            after = 0.0 if life.terminated else float(values(observation(*following(step))[None])[0])
        returns[step] = reward + GAMMA * after
        if step in left_out:  # nothing says what followed: the value of its own observation, and an advantage of 0
            returns[step] = float(values(observation(*step)[None])[0])
    for row, seen in enumerate(batch[sb.OBS]):
        wanted, given = returns[decoded(seen)], float(batch[sb.VALUE_TARGETS][row])
        assert abs(given - wanted) < 1e-4 * (1 + abs(wanted)), f"{decoded(seen)}: return {given}, not {wanted}"
        checked += 1
    return checked


def run_read(case, tmp_path, monkeypatch, first_serial=0):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    is_box = case["algorithm"] in OF_BOX
    recording = Recording(FAMILY, range(first_serial, first_serial + 3), is_box=is_box)
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "minari").mkdir()
    config = recorded_config(case, FORMS[case["form"]](recording, folder), recording)
    left_out, stored = set(), []
    if case["form"] in WITHOUT_NEXT:
        last = {step for step in recording.steps() if step[3] == life_of(FAMILY, step).length - 1}
        left_out = {step for step in last if not life_of(FAMILY, step).terminated}
    with adding(stored), config.build() as algorithm, reading(algorithm) as read:
        result = algorithm.train()
        if case["algorithm"] in CLONING:
            checked = check_cloned(read.learned[0][1], recording, algorithm.policy.values, left_out)
            assert checked == (len(recording.steps()) if case["algorithm"] == "MARWIL" else 0)
        else:
            check_replayed(stored, recording, case["n_step"], left_out)
    info = result["info"]["dataset"]
    assert (info["rows"], info["episodes"]) == (len(recording.steps()), len(recording.scripts))


@pytest.mark.parametrize("case", covering(READ), ids=lambda case: "-".join(map(str, case.values())))
def test_recorded_data_is_learned_from(case, tmp_path, monkeypatch):
    run_read(case, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("case", covering(OTHERS), ids=lambda case: "-".join(map(str, case.values())))
def test_other_algorithms_learn_from_recorded_data(case, tmp_path, monkeypatch):
    run_read(case, tmp_path, monkeypatch, first_serial=10)


@pytest.mark.parametrize("n_step", [1, 3])
def test_recorded_data_is_mixed_with_sampled_steps(n_step):
    """Both are in the replay once, and each batch has its share of them."""
    recording, stored = Recording(FAMILY), []
    config = rllib.DQNConfig().environment(Single, env_config={"family": FAMILY})
    config.offline_data(input_={recording.dataset(): 0.5, "sampler": 0.5})
    config.rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=5).debugging(seed=1)
    config.training(gamma=GAMMA, n_step=n_step, train_batch_size=16, model={"fcnet_hiddens": [8]})
    config.training(num_steps_sampled_before_learning_starts=50, training_intensity=1)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=100)
    with adding(stored), config.build() as algorithm, reading(algorithm) as read:
        for _ in range(2):
            algorithm.train()
    parts = {True: [], False: []}
    for columns in stored:
        is_recorded = np.array([decoded(row)[0] in recording.serials for row in columns[sb.OBS]])
        for which, rows in parts.items():
            rows.append({name: column[is_recorded == which] for name, column in columns.items()})
    check_replayed(parts[True], recording, n_step, set())
    steps = Steps()
    check_stored(parts[False], FAMILY, steps, GAMMA, n_step)
    assert steps.check_complete(FAMILY) > 5
    assert len(read.learned) > 3
    for _, columns in read.learned:
        assert sum(decoded(row)[0] in recording.serials for row in columns[sb.OBS]) == 8


# ---------------------------------------------------------------------- what a run writes

WRITTEN = {
    "algorithm": ("PPO", "DQN"),
    "format": ("json", "parquet", "npz"),
    "whole": (False, True),
    "ends": ("flags", "crashes"),
    "fragment": (1, 3, 20),
    "envs": (1, 3),
    "workers": (0, 2),
    "batch_mode": ("truncate_episodes", "complete_episodes"),
}


def run_written(case, tmp_path):
    """Records a run, and checks that the files have each step of the scripts once."""
    ends = (TERMINATED, TRUNCATED, CRASHED) if case["ends"] == "crashes" else (TERMINATED, TRUNCATED, "both")
    family = Family(ends=ends)
    config = getattr(rllib, f"{case['algorithm']}Config")().environment(Single, env_config={"family": family})
    config.rollouts(
        num_rollout_workers=case["workers"],
        num_envs_per_worker=case["envs"],
        rollout_fragment_length=case["fragment"],
        batch_mode=case["batch_mode"],
    )
    config.fault_tolerance(restart_failed_sub_environments=True).debugging(seed=1)
    rows = case["fragment"] * case["envs"] * max(1, case["workers"])
    config.training(train_batch_size=rows, model={"fcnet_hiddens": [8]})
    if case["algorithm"] == "PPO":
        config.training(sgd_minibatch_size=min(rows, 128), num_sgd_iter=1)
    else:
        config.training(train_batch_size=16, training_intensity=0.5)
    config.offline_data(output=str(tmp_path / "out"), output_config={"format": case["format"]})
    config.offline_data(output_write_episodes=case["whole"], output_max_rows_per_file=50)
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=60)
    with config.build() as algorithm:
        result = [algorithm.train() for _ in range(3)][-1]
    dataset = Dataset.from_path(tmp_path / "out", observation_space=OBSERVATION_SPACE, action_space=ACTION_SPACE)
    steps, columns = Steps(), dataset.columns
    for first, stop in zip(dataset.starts[:-1], dataset.starts[1:]):
        for row in range(first, stop):
            step, action = decoded(columns[sb.OBS][row]), float(columns[sb.ACTIONS][row])
            steps.add(step, action)
            assert row == first or step == following(decoded(columns[sb.OBS][row - 1]))
            life = life_of(family, step)
            assert columns[sb.REWARDS][row] == life.rewards[step[3]] + ACTION_REWARD * action
            is_last = step[3] == life.length - 1
            assert columns[sb.TERMINATEDS][row] == (is_last and life.terminated)
            assert columns[sb.TRUNCATEDS][row] == (row == stop - 1 and not columns[sb.TERMINATEDS][row])
            if dataset.has_next[row]:
                assert decoded(columns[sb.NEXT_OBS][row]) == following(step)
            assert columns["t"][row] == step[3]
    assert steps.check_complete(family) > 5
    assert len(steps.counts) == result["num_env_steps_sampled"]


@pytest.mark.parametrize("case", covering(WRITTEN), ids=lambda case: "-".join(map(str, case.values())))
def test_a_run_writes_each_step_once(case, tmp_path):
    run_written(case, tmp_path)
