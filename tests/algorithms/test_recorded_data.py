"""Learning from recorded steps: the rows, their order, mixtures, checkpoints, and settings that do not fit.

Where RLlib's tests of offline data are found here (gates O1 to O14: docs/project/results.md):

- bc, test_bc_compilation_and_learning_from_offline_file; cartpole-bc.yaml ->
  tests/algorithms/test_recorded_data.py; gate O1
- marwil, ..._learning_from_offline_file; cartpole-marwil.yaml -> gate O4
- marwil, test_marwil_cont_actions_from_offline_file -> test_offline_algorithms.py: imitation; gate O2
- marwil, test_marwil_loss_function -> tests/losses/test_recorded_actions.py, against vectors that were computed
  apart, in numpy and torch
- cql, test_cql_compilation; pendulum-cql.yaml -> test_continuous_actions_are_learned_from[CQL]; gate O6. Its
  min_size_for_sampling is left out: all rows are there
- iql, pendulum_iql.py -> gate O9
- offline, test_json_reader, test_dataset_reader -> tests/offline/
- offline, test_offline_data: one learner and several -> test_two_learners_make_the_update_of_one
- offline, test_offline_prelearner: ignore_final_observation ->
  test_a_step_is_left_out_if_nobody_knows_what_followed
- test_dqn_cartpole_v1_with_offline_input_and_softq ->
  test_the_replay_has_the_recorded_steps_and_learns_from_them[DQN], without SoftQ, which chooses no action here
- settings of cartpole-bc, cartpole-marwil and pendulum-cql, evaluation_config={"input": "sampler"} ->
  test_settings_of_rllibs_files_are_those_here
- examples, train_w_bc_finetune_w_ppo.py -> test_weights_of_a_clone_begin_a_run_of_ppo
- examples, custom_input_api.py -> tests/offline/test_inputs.py, functions of an IOContext
- d4rl.* inputs of halfcheetah-cql.yaml and others -> refused: give arrays or files
- crr, dt -> none: AWAC and IQL in their place
"""

import gzip
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.acting.inference import ActingSettings
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.env.factories.registry import EnvFactory
from rllib.evaluation.offline.rows import returns_to_go, transitions
from rllib.offline.dataset import Dataset
from rllib.policy import Policy
from tests.envs import CountingEnv

DATA = Path(__file__).parents[1] / "data" / "offline"
CARTPOLE = str(DATA / "cartpole_small.json")
SMALL = {"model": {"fcnet_hiddens": [8]}, "train_batch_size": 32}


def config(name, data=CARTPOLE, env="CartPole-v1", **training):
    made = get_algorithm_config(name).environment(env).offline_data(input_=data).training(**{**SMALL, **training})
    return made.debugging(seed=3).reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=64)


def learner_stats(result):
    return result["info"]["learner"]["default_policy"]["learner_stats"]


# ---------------------------------------------------------------------- rows


def steps(lengths, terminated):
    """A dataset of episodes with rewards 1, 2, ...; observations count the steps of all."""
    total, ends = sum(lengths), np.cumsum(lengths) - 1
    flags, following = np.zeros(total, bool), np.arange(1, total + 1, dtype=np.float32)[:, None]
    following[ends] += 0.5
    flags[ends] = terminated
    return Dataset.from_columns(
        {
            "obs": np.arange(total, dtype=np.float32)[:, None],
            "new_obs": following,
            "actions": np.arange(total) % 2,
            "rewards": np.concatenate([np.arange(1, length + 1) for length in lengths]),
            "terminateds": flags,
            "eps_id": np.repeat(np.arange(len(lengths)), lengths),
        }
    )


def test_returns_to_go_end_with_the_value_of_what_followed():
    dataset = steps([4, 4], [True, False])
    returns = returns_to_go(dataset, dataset.columns["rewards"], 0.9, np.array([0.0, 10.0]))
    np.testing.assert_allclose(returns[:4], [8.146, 7.94, 6.6, 4], rtol=1e-6)
    np.testing.assert_allclose(returns[4:], [14.707, 15.23, 14.7, 13], rtol=1e-6)


def policy_of(dataset):
    with config("DQN", dataset, env=None, hiddens=[]).build() as algorithm:
        return algorithm.policy


def test_rows_of_three_steps():
    dataset = steps([5], [False])
    rows = transitions(dataset, policy_of(dataset), ActingSettings(), dataset.columns["rewards"], 0.9, n_step=3)
    np.testing.assert_allclose(rows[sb.REWARDS], [5.23, 7.94, 10.65, 8.5, 5], rtol=1e-6)
    np.testing.assert_allclose(rows[sb.DISCOUNTS], [0.729, 0.729, 0.729, 0.81, 0.9], rtol=1e-6)
    assert rows[sb.NEXT_OBS][:, 0].tolist() == [3, 4, 5.5, 5.5, 5.5]


@pytest.mark.parametrize("n_step, following", [(1, [1, 0, 1, 1, 1, 0, 1, 1]), (2, [0, 1, 1, 1, 0, 1, 1, 1])])
def test_next_actions_are_those_of_the_same_episode(n_step, following):
    """Recorded actions are 0, 1, 0, 1 | 0, 1, 0, 1; after an end the last action stands there."""
    dataset = steps([4, 4], [True, False])
    settings = ActingSettings(), dataset.columns["rewards"], 0.9, n_step
    rows = transitions(dataset, policy_of(dataset), *settings, with_next_actions=True)
    assert rows[sb.NEXT_ACTIONS].tolist() == following
    assert sb.NEXT_ACTIONS not in transitions(dataset, policy_of(dataset), *settings)


def test_sampled_steps_have_no_next_actions():
    with pytest.raises(ValueError, match="ReBRAC learns from recorded steps alone"):
        config("ReBRAC", {"sampler": 0.5, CARTPOLE: 0.5}, env="Pendulum-v1").build()


@pytest.mark.parametrize("n_step", [1, 3])
def test_rows_are_those_that_a_worker_makes_of_the_same_steps(n_step):
    """Steps of whole episodes, recorded as a worker saw them, give the rows that its replay got."""
    settings = config("DQN", "sampler", n_step=n_step, hiddens=[]).rollouts(
        batch_mode="complete_episodes", rollout_fragment_length=60
    )
    with settings.build() as algorithm:
        rows = algorithm.sample(60)
        one = config("DQN", "sampler", hiddens=[]).rollouts(batch_mode="complete_episodes", rollout_fragment_length=60)
        with one.build() as recording:
            recorded = recording.sample(60)
        dataset = Dataset.from_columns(recorded)
        ours = transitions(dataset, algorithm.policy, algorithm.config, recorded[sb.REWARDS], 0.99, n_step)
    assert len(rows) == len(ours[sb.OBS]) == len(recorded)
    for name in (sb.OBS, sb.NEXT_OBS, sb.ACTIONS, sb.REWARDS, sb.DISCOUNTS):
        np.testing.assert_array_equal(rows[name], ours[name], err_msg=name)


def test_a_step_is_left_out_if_nobody_knows_what_followed():
    columns = {name: column for name, column in steps([3, 2], [False, True]).columns.items() if name != "new_obs"}
    dataset = Dataset.from_columns(columns)
    rows = transitions(dataset, policy_of(dataset), ActingSettings(), columns["rewards"], 0.9)
    assert rows[sb.OBS][:, 0].tolist() == [0, 1, 3, 4]


# ---------------------------------------------------------------------- order


def test_an_epoch_hands_over_every_row_once():
    with config("BC").build() as algorithm:
        count = len(algorithm.recorded.only)
        seen = [algorithm.workers.sample(algorithm.snapshots())[0][0] for _ in range(count)]  # 32 epochs
    observations = np.concatenate([batch[sb.OBS] for batch in seen])
    for epoch in range(32):
        rows = observations[epoch * count : (epoch + 1) * count]
        assert len(np.unique(rows, axis=0)) == len(np.unique(observations, axis=0))
    assert not np.array_equal(observations[:count], observations[count : 2 * count])


def test_a_run_goes_on_from_a_checkpoint_to_the_bit(tmp_path):
    with config("MARWIL", moving_average_sqd_adv_norm_update_rate=0.1).build() as algorithm:
        algorithm.train()
        algorithm.save(tmp_path)
        algorithm.train()
        weights, norm = algorithm.get_weights(), algorithm.trainee.norm
    with config("MARWIL", moving_average_sqd_adv_norm_update_rate=0.1).build() as other:
        other.restore(tmp_path)
        other.train()
        assert other.trainee.norm == norm
        np.testing.assert_array_equal(other.get_weights()["default_policy"], weights["default_policy"])


def test_marwil_without_advantages_is_behaviour_cloning():
    weights = []
    for name, changes in (("BC", {}), ("MARWIL", {"beta": 0.0})):
        with config(name, **changes).build() as algorithm:
            algorithm.train()
            weights.append(algorithm.get_weights()["default_policy"])
    np.testing.assert_array_equal(*weights)


# ---------------------------------------------------------------------- algorithms


def test_behaviour_cloning_takes_over_the_policy_of_the_data():
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(500, 2)).astype(np.float32)
    data = {"obs": obs, "actions": (obs[:, 0] > 0).astype(int)}
    settings = config("BC", data, env=None, lr=1e-2, train_batch_size=100)
    with settings.reporting(min_sample_timesteps_per_iteration=20_000).build() as algorithm:
        algorithm.train()
        right = algorithm.policy.compute_actions(obs, explore=False)[0] == data["actions"]
    assert right.mean() > 0.97


OFF_POLICY = ["DQN", "SAC", "IQL", "AWAC"]


@pytest.mark.parametrize("name", OFF_POLICY)
def test_the_replay_has_the_recorded_steps_and_learns_from_them(name):
    with config(name).build() as algorithm:
        result = algorithm.train()
        assert len(algorithm.replay) == len(algorithm.recorded.only)
        assert algorithm.num_updates == 2 == result["timesteps_total"] / 32
        assert result["info"]["dataset"] == {
            "rows": 102,
            "episodes": 3,
            "mean_return": 34,
            "max_return": pytest.approx(50, abs=20),
            "epochs": pytest.approx(64 / 102),
        }
        assert not algorithm.workers.foreach_worker(lambda worker: worker)


def stacks_of_frames(length, overlap):
    """Episodes of these lengths; rewards are numbers of steps. Without overlap no two stacks share a frame."""
    rng, count = np.random.default_rng(0), 240
    frames = rng.random((count // length, length + 4, 5), np.float32)
    obs = np.stack([frames[:, t : t + 3] for t in range(length + 1)], 1)
    if not overlap:
        obs = rng.random(obs.shape, np.float32)
    return {
        "obs": obs[:, :-1].reshape(count, 3, 5),
        "new_obs": obs[:, 1:].reshape(count, 3, 5),
        "actions": rng.integers(2, size=count),
        "rewards": np.arange(count, dtype=np.float32),
        "terminateds": np.arange(count) % length == length - 1,
    }


@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("length", "overlap"), [(1, True), (3, True), (60, True), (60, False)])
def test_all_recorded_stacks_of_frames_are_in_the_replay(length, overlap, mixed, storage):
    """Each frame is stored once, and short episodes have more frames for each row than long ones."""
    data = stacks_of_frames(length, overlap)
    replay = {"frame_stack_axis": 0, "storage": storage}
    made = config("DQN", Dataset.from_columns(data), env=None, conservative_weight=1.0, replay_buffer_config=replay)
    if mixed:
        half = Dataset.from_columns(data)
        made.offline_data(input_={half: 0.5, Dataset.from_columns(data): 0.5})
    with made.build() as algorithm:
        for part in algorithm.trainee.recorded_parts():
            assert len(part) == 240
            rows = part.sample(2000, np.random.default_rng(0))
            numbers = rows[sb.REWARDS].astype(int)
            assert len(np.unique(numbers)) > 230
            for name in (sb.OBS, sb.NEXT_OBS):
                np.testing.assert_array_equal(rows[name], data[name][numbers])


def test_priorities_of_recorded_rows_that_are_too_large_are_refused_before_anything_changes(tmp_path):
    data = Dataset.from_columns(stacks_of_frames(3, True))
    of = {"env": None, "conservative_weight": 1.0, "store_buffer_in_checkpoints": True}
    with config("DQN", data, **of).build() as saving:
        saving.train()
        checkpoint = saving.save(tmp_path / "checkpoint")
    large = {"prioritized_replay_alpha": 100.0, "prioritized_replay_eps": 1e5}
    with config("DQN", data, **of, replay_buffer_config=large).build() as algorithm:
        weights = algorithm.get_weights()
        with pytest.raises(ValueError, match="must be at most"):
            algorithm.restore(checkpoint)
        np.testing.assert_equal(algorithm.get_weights(), weights)


@pytest.mark.parametrize("name", ["SAC", "TD3", "DDPG", "TQC", "CrossQ", "TD3BC", "ReBRAC", "IQL", "AWAC", "CQL"])
def test_continuous_actions_are_learned_from(name):
    rng = np.random.default_rng(0)
    action_space = gymnasium.spaces.Box(-2, 2, (2,))
    data = {
        "obs": rng.normal(size=(64, 3)),
        "actions": rng.uniform(-2, 2, (64, 2)),
        "rewards": rng.normal(size=64),
        "terminateds": np.arange(64) % 8 == 7,
    }
    settings = config(name, data, env=None).environment(env=None, action_space=action_space)
    settings.offline_data(actions_in_input_normalized=False)
    with settings.build() as algorithm:
        result = algorithm.train()
        assert np.isfinite(learner_stats(result)["critic_loss"])
        assert np.isfinite(algorithm.get_weights()["default_policy"]).all()


def test_no_environment_is_made_where_none_is_named(monkeypatch):
    monkeypatch.setattr(gymnasium, "make", None)
    with config("BC", env=None).build() as algorithm:
        result = algorithm.train()
        assert np.isnan(result["episode_reward_mean"])
        with pytest.raises(RuntimeError, match="no environment to evaluate in"):
            algorithm.evaluate()


def test_an_environment_is_for_evaluation_alone():
    with config("BC").build() as algorithm:
        algorithm.train()
        assert algorithm.evaluate(2)["episodes_this_iter"] == 2


def test_recorded_and_sampled_steps_are_mixed():
    settings = config("DQN", {"sampler": 0.5, CARTPOLE: 0.5}, num_steps_sampled_before_learning_starts=10)
    with settings.build() as algorithm:
        algorithm.train()
        assert algorithm.timesteps >= 64
        assert len(algorithm.replay.newest) >= 64
        batch = algorithm.replay.sample(20, np.random.default_rng(0))
        recorded = {row.tobytes() for row in algorithm.recorded.only.columns[sb.OBS]}
        assert [row.tobytes() in recorded for row in batch[sb.OBS]] == [True] * 10 + [False] * 10


@pytest.mark.parametrize("clips", [False, True])
def test_rewards_of_a_mixture_are_clipped_alike(clips, tmp_path, monkeypatch):
    """Files have the environment's own rewards, and Atari's are clipped to their sign unless a setting says else."""
    early = {"num_steps_sampled_before_learning_starts": 10, "n_step": 1}
    with config("DQN", "sampler", CountingEnv, **early).offline_data(output=str(tmp_path)).build() as algorithm:
        algorithm.train()
    monkeypatch.setattr(EnvFactory, "clips_rewards", clips)
    mixture = config("DQN", {"sampler": 0.5, str(tmp_path): 0.5}, CountingEnv, **early)
    with mixture.build() as algorithm:
        algorithm.train()
        for part in (algorithm.replay.newest, *algorithm.replay.recorded):
            rewards = part.sample(100, np.random.default_rng(0))[sb.REWARDS]
            assert set(rewards) == ({1} if clips else {1, 2, 3, 4, 5})


@pytest.mark.parametrize("data", [CARTPOLE, {"sampler": 0.5, CARTPOLE: 0.5}], ids=["alone", "mixed"])
def test_recorded_choices_are_worth_more_by_a_margin(data):
    more = {"num_steps_sampled_before_learning_starts": 10} if isinstance(data, dict) else {}
    with config("DQN", data, margin_weight=1.0, **more).build() as algorithm:
        result = algorithm.train()
        assert learner_stats(result)["margin_loss"] >= 0
        batch = algorithm.replay.sample(20, np.random.default_rng(0))
        if isinstance(data, dict):
            assert batch[sb.RECORDED].tolist() == [1] * 10 + [0] * 10
    with pytest.raises(ValueError, match=r"margin_weight=1.0 and input_=.*recorded actions"):
        config("DQN", "sampler", margin_weight=1.0).build()


def test_observations_are_normalised_by_the_data(tmp_path):
    settings = config("BC").offline_data(normalize_observations=True)
    with settings.build() as algorithm:
        obs = algorithm.recorded.only.columns[sb.OBS]
        stored = algorithm.workers.rows._columns[sb.OBS]
        np.testing.assert_allclose(stored.mean(0), 0, atol=1e-4)
        np.testing.assert_allclose(stored.std(0), 1, atol=1e-2)
        algorithm.save(tmp_path)
        actions = algorithm.policy.compute_actions(obs, explore=False)[0]
    policy = Policy.from_checkpoint(tmp_path)["default_policy"]
    np.testing.assert_array_equal(policy.compute_actions(obs, explore=False)[0], actions)


@pytest.mark.parametrize("name", ["BC", "DQN"])
def test_rows_of_other_data_are_normalised_by_the_numbers_of_the_restored_policy(name, tmp_path):
    with config(name).offline_data(normalize_observations=True).build() as algorithm:
        algorithm.save(tmp_path)
    other = dict(Dataset.from_path(CARTPOLE).columns)
    other[sb.OBS], other[sb.NEXT_OBS] = 3 * other[sb.OBS] + 1, 3 * other[sb.NEXT_OBS] + 1
    with config(name, other).offline_data(normalize_observations=True).build() as algorithm:
        algorithm.restore(tmp_path)
        filtered = algorithm.policy.filter(algorithm.recorded.only.columns[sb.OBS])
        if name == "BC":
            batch = algorithm.workers.rows.batch(np.arange(len(filtered)))
        else:
            batch = algorithm.replay.sample(50, np.random.default_rng(0))
        assert {row.tobytes() for row in batch[sb.OBS]} <= {row.tobytes() for row in filtered}
        algorithm.train()


def test_the_best_episodes_alone_are_learned_from():
    settings = config("BC").offline_data(input_fraction_of_best=0.34)
    with settings.build() as algorithm:
        assert algorithm.recorded.only.num_episodes == 1
        assert algorithm.recorded.progress(0)["mean_return"] == Dataset.from_path(CARTPOLE).returns.max()


def test_rewards_are_scaled_and_shifted():
    settings = config("DQN").offline_data(reward_scale=0.5, reward_shift=-1.0)
    with settings.build() as algorithm:
        assert set(algorithm.replay.sample(50, np.random.default_rng(0))[sb.REWARDS].tolist()) == {-0.5}


def test_a_policy_with_a_memory_imitates_sequences():
    settings = config("BC", model={"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "max_seq_len": 10})
    with settings.build() as algorithm:
        batch, _ = algorithm.workers.sample(algorithm.snapshots())[0]
        assert batch[sb.SEQ_LENS].max() == 10 and batch[sb.SEQ_LENS].sum() == len(batch[sb.ACTIONS])
        algorithm.train()


@pytest.mark.parametrize("burn_in", [0, 2, 100])
def test_a_burn_in_fills_the_memory_before_a_sequence(burn_in):
    """The states are those of the present weights after at most as many of the rows before it in its episode."""
    model = {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [4], "max_seq_len": 3}
    data = steps([7, 2, 4], [True] * 3)
    with config("BC", data, env=None, model=model, lr=0.1).training(burn_in=burn_in).build() as algorithm:
        algorithm.train()
        rows = algorithm.workers.rows
        batch, starts = rows.batch(np.arange(len(rows))), [0, 3, 6, 7, 9, 12]
        assert batch[sb.SEQ_LENS].tolist() == [3, 3, 1, 2, 3, 1]
        for state, start, episode in zip(batch[sb.STATE_IN], starts, [0, 0, 0, 7, 9, 9]):
            parts = [each[None] for each in algorithm.policy.get_initial_state()]
            for row in range(max(start - burn_in, episode), start):
                _, parts, _ = algorithm.policy.compute_actions(data.columns[sb.OBS][row][None], parts)
            for part, expected in zip(algorithm.policy.state_parts(state[None]), parts, strict=True):
                np.testing.assert_allclose(part, expected, atol=1e-6)


def test_batches_of_sequences_have_the_rows_that_were_asked_for():
    """Whatever the lengths of the sequences that were drawn: at most the last one is too long."""
    lengths = [1, 1, 1, 1, 10, 10, 10, 2]
    model = {"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "max_seq_len": 10}
    with config("BC", steps(lengths, [True] * 8), env=None, model=model, train_batch_size=12).build() as algorithm:
        sizes = [len(algorithm.train_batches()[0][1][sb.ACTIONS]) for _ in range(40)]
    assert min(sizes) >= 12 and max(sizes) < 12 + 10


# ---------------------------------------------------------------------- what does not fit

REFUSED = {
    "no data": (lambda: config("BC", "sampler"), "BC learns from recorded data, but input_='sampler'"),
    "of one's own policy": (lambda: config("PPO"), "PPO learns from its own policy's steps"),
    "shares": (lambda: config("DQN", {"sampler": 0.5, CARTPOLE: 0.4}), "they sum up to 0.9"),
    "option": (lambda: config("BC").offline_data(input_config={"done": "auto"}), "Did you mean dones"),
    "filter": (lambda: config("BC").rollouts(observation_filter="MeanStdFilter"), "normalize_observations=True"),
    "ends at time limits": (lambda: config("BC").environment(time_limit_ends_episode=True), "time_limit_ends_episode"),
    "ends at time limits of a mixture": (
        lambda: config("DQN", {"sampler": 0.5, CARTPOLE: 0.5}).environment(time_limit_ends_episode=True),
        "time_limit_ends_episode",
    ),
    "filter of a mixture": (
        lambda: config("DQN", {"sampler": 0.5, CARTPOLE: 0.5}).rollouts(observation_filter="MeanStdFilter"),
        "normalize_observations=True",
    ),
    "rewards of a mixture": (
        lambda: config("DQN", {"sampler": 0.5, CARTPOLE: 0.5}).offline_data(reward_scale=0.1),
        "not those of the sampler",
    ),
    "output": (lambda: config("BC").offline_data(output=lambda context: None), "all are recorded ones"),
    "deviation": (lambda: config("BC", bc_loss="mse", bc_logstd_coeff=0.1), "the first weights standard dev"),
    "beta": (lambda: config("BC", beta=0.5), "which is MARWIL"),
    "rewards": (
        lambda: config("MARWIL", {"obs": np.zeros((4, 4)), "actions": np.zeros(4, int)}, env=None),
        "has no rewards, and MARWIL learns from them",
    ),
    "spaces": (lambda: config("BC", env="Acrobot-v1"), r"obs has the shape \(4,\)"),
    "clipped rewards": (lambda: config("DQN").environment("CartPole-v1", clip_rewards=True), "reward_scale"),
}


@pytest.mark.parametrize(("made", "message"), REFUSED.values(), ids=REFUSED)
def test_settings_that_do_not_fit_are_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made().build()


def test_a_path_that_is_not_there_names_what_is_near(tmp_path):
    (tmp_path / "steps.json.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(FileNotFoundError, match=r"Did you mean .*steps\.json\.gz"):
        config("BC", str(tmp_path / "step.json.gz")).build()


# ---------------------------------------------------------------------- spaces of observations


def plain_steps(observations):
    rows = np.arange(len(observations))
    return {
        "obs": observations,
        "actions": rows % 2,
        "rewards": np.ones(len(rows), np.float32),
        "terminateds": rows % 10 == 9,
    }


CHOICES = [
    gymnasium.spaces.Discrete(5, start=1),
    gymnasium.spaces.MultiDiscrete([2, 3]),
    gymnasium.spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [-1, 0]]),
    gymnasium.spaces.MultiBinary(3),
]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("space", CHOICES, ids=str)
def test_choices_are_recorded_as_the_environment_gives_them(space, normalize):
    space.seed(1)
    observations = np.array([space.sample() for _ in range(60)])
    made = config("BC", plain_steps(observations), env=None).offline_data(normalize_observations=normalize)
    made.environment(observation_space=space, action_space=gymnasium.spaces.Discrete(2))
    with made.build() as algo:
        algo.train()
        dataset = algo.recorded.datasets[0][0]
        assert space.contains(observations[0]) and len(dataset) == 60
        if not isinstance(space, gymnasium.spaces.Discrete):
            flat = np.stack([gymnasium.spaces.flatten(space, each) for each in observations])
            np.testing.assert_array_equal(dataset.columns["obs"], flat)
        assert algo.compute_single_action(observations[0]) in (0, 1)


def test_choices_that_the_space_does_not_have_are_refused():
    made = config("BC", plain_steps(np.tile([1, 3], (40, 1))), env=None)
    made.environment(observation_space=CHOICES[1], action_space=gymnasium.spaces.Discrete(2))
    with pytest.raises(ValueError, match=r"row 0: the obs \[1 3\] is not in MultiDiscrete"):
        made.build()


@pytest.mark.parametrize("env", ["CartPole-v1", None])
@pytest.mark.parametrize("setting", ["lstm_use_prev_action", "lstm_use_prev_reward"])
def test_data_without_the_step_before_is_refused_where_the_policy_reads_it(setting, env):
    made = config("BC", plain_steps(np.zeros((40, 4), np.float32)), env=env)
    if env is None:
        made.environment(observation_space=gymnasium.spaces.Box(-1, 1, (4,)), action_space=gymnasium.spaces.Discrete(2))
    made.training(model={"use_lstm": True, "lstm_cell_size": 4, setting: True})
    with pytest.raises(ValueError, match=rf"{setting}.*Leave these settings out"):
        made.build()


OPTIONS_OF_READING = {
    "input_config": {"dones": "terminated"},
    "input_read_schema": {"rewards": "points"},
    "actions_in_input_normalized": True,
    "offline_memory": 1 << 30,
}


@pytest.mark.parametrize("name", ["BC", "SAC", "SQIL", "GAIL"])
@pytest.mark.parametrize("setting", OPTIONS_OF_READING)
def test_options_of_reading_have_no_effect_on_a_dataset_which_is_said(name, setting):
    """It was read before. They act as soon as something else is read."""
    dataset, path = Dataset.from_path(CARTPOLE), CARTPOLE
    for data, is_read in ((dataset, False), (path, True)):
        made = get_algorithm_config(name).offline_data(**{setting: OPTIONS_OF_READING[setting]})
        made.offline_data(**{"demonstrations" if name == "GAIL" else "input_": data})
        assert (setting not in " ".join(made.without_effect())) == is_read
    if name in ("SAC", "SQIL"):
        made.offline_data(input_={"sampler": 0.5, dataset: 0.5})
        assert setting in " ".join(made.without_effect())
        made.offline_data(input_={dataset: 0.5, path: 0.5})
        assert setting not in " ".join(made.without_effect())


@pytest.mark.parametrize("setting", [{"rollout_fragment_length": 7}, {"batch_mode": "complete_episodes"}])
def test_settings_of_sampling_have_no_effect_which_is_said(setting, caplog):
    with config("BC").rollouts(**setting).build():
        assert f"{next(iter(setting))} has no effect" in caplog.text
