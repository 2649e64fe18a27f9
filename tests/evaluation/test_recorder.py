"""Steps that workers write to files while they sample: what happened, whatever the algorithm makes of it."""

import json
import os
import signal
from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode

from rllib import DAggerConfig, DistillationConfig, DQNConfig, IMPALAConfig, PPOConfig, SACConfig
from rllib.algorithms.base.registry import get_algorithm_config
from rllib.evaluation.estimators.recorded_steps import recorded_steps
from rllib.evaluation.estimators.target_policy import TargetPolicy
from rllib.offline.dataset import Dataset
from tests.envs import CountingEnv, MaskedProbe, RaisingEnv, SampledEnv, in_vector, nth_sample
from tests.multi_agent import BasicMultiAgent

SMALL = {"model": {"fcnet_hiddens": [8]}}


def config(directory, env=CountingEnv, kind=PPOConfig, workers=0, envs=2, format_="npz", **output):
    made = (
        kind()
        .environment(env)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length=10)
    )
    made.offline_data(output=str(directory), output_config={"format": format_}, **output)
    made.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0).debugging(seed=1)
    if kind is PPOConfig:
        made.training(train_batch_size=10 * envs * max(workers, 1), sgd_minibatch_size=10, num_sgd_iter=1)
    return made.training(**SMALL)


def recorded(made, rounds=3, **options) -> Dataset:
    with made.build() as algorithm:
        for _ in range(rounds):
            algorithm.train()
    return Dataset.from_path(made.output, **options)


def check_counting(dataset, steps):
    """Each step of CountingEnv is there once, with its own reward and what followed it."""
    columns = dataset.columns
    t = columns["t"]
    np.testing.assert_array_equal(columns["obs"][:, 0], t)
    np.testing.assert_array_equal(columns["new_obs"][:, 0], t + 1)
    np.testing.assert_array_equal(columns["rewards"], t + 1)
    assert len(dataset) == steps and dataset.has_next.all()
    assert set(t[dataset.starts[:-1]]) == {0}
    over = (columns["terminateds"] | columns["truncateds"])[dataset.starts[1:] - 1]
    assert over.all()
    for length, terminated in zip(dataset.lengths, columns["terminateds"][dataset.starts[1:] - 1]):
        assert length in (3, 4, 5) or not terminated  # the last ones are cut by the end of the run


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("format_", ["npz", "json"])
def test_steps_are_written_as_they_happened(tmp_path, format_, whole):
    dataset = recorded(config(tmp_path, format_=format_, output_write_episodes=whole))
    check_counting(dataset, 60)
    assert dataset.num_episodes == 16
    assert dataset.columns["terminateds"].sum() > 3 and dataset.columns["truncateds"].sum() > 3


def test_an_episode_is_a_line_of_json(tmp_path):
    recorded(config(tmp_path, format_="json", output_compress_columns=[]))
    (file,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [len(line["t"]) for line in lines] != [10] * 6
    for line in lines:
        assert (
            line["type"] == "SampleBatch" and line["t"] == list(range(len(line["t"]))) and len(set(line["eps_id"])) == 1
        )
        np.testing.assert_allclose(np.log(line["action_prob"]), line["action_logp"], rtol=1e-5)
        assert line["agent_index"] == [0] * len(line["t"]) and not any(line["actions_normalized"])


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_a_url_of_this_machine_is_its_path(tmp_path, scheme):
    made = config(tmp_path).offline_data(output=f"{scheme}://{tmp_path}/steps/")
    check_counting(recorded(made), 60)
    assert list((tmp_path / "steps").iterdir())


def test_workers_write_files_of_their_own(tmp_path):
    made = config(tmp_path, workers=2, envs=1)
    check_counting(recorded(made), 60)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name.partition("_worker-")[2] for name in names] == ["1_0.npz", "2_0.npz"]
    check_counting(recorded(made), 120)  # another run adds its files, and no episode is taken for one of the first


def test_rewards_are_those_of_the_environment(tmp_path):
    made = config(tmp_path).environment(clip_rewards=True, time_limit_ends_episode=True, normalize_returns=True)
    check_counting(recorded(made), 60)


def test_observations_are_those_before_the_filter(tmp_path):
    check_counting(recorded(config(tmp_path).rollouts(observation_filter="MeanStdFilter")), 60)


@pytest.mark.parametrize("filter_", ["NoFilter", "MeanStdFilter"])
def test_whole_episodes_are_written_once(tmp_path, filter_):
    made = config(tmp_path).rollouts(batch_mode="complete_episodes", observation_filter=filter_)
    dataset = recorded(made)
    check_counting(dataset, len(dataset))
    assert dataset.lengths.tolist() == [3, 5, 4] * (len(dataset) // 12)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_resets_of_vector_environments_are_no_steps(tmp_path, mode):
    dataset = recorded(config(tmp_path, in_vector(CountingEnv, mode)))
    check_counting(dataset, len(dataset))
    assert 40 < len(dataset) <= 60


class Still(CountingEnv):
    """Each observation is that of a reset; episodes are truncated."""

    def reset(self, **keywords):
        seen, info = super().reset(**keywords)
        return np.zeros_like(seen), info

    def step(self, action):
        seen, reward, terminated, truncated, info = super().step(action)
        return np.zeros_like(seen), reward, False, terminated or truncated, info


@pytest.mark.parametrize("format_", ["npz", "json", "parquet"])
def test_a_final_observation_like_that_of_a_reset_is_known(tmp_path, format_):
    dataset = recorded(config(tmp_path, Still, format_=format_), check=False)
    assert dataset.columns["truncateds"].sum() >= 10 and dataset.has_next.all()
    assert not any("next episode" in notice for notice in dataset.notices)


def test_an_episode_ends_where_its_environment_fails(tmp_path):
    made = config(tmp_path, RaisingEnv, envs=1).environment(env_config={"step": 15})
    made.fault_tolerance(restart_failed_sub_environments=True)
    dataset = recorded(made)
    assert dataset.lengths.tolist()[0] == 14
    assert len(dataset) < 30


def test_rows_of_several_steps_are_written_as_steps(tmp_path):
    made = config(tmp_path, kind=DQNConfig).training(n_step=3, num_steps_sampled_before_learning_starts=1000)
    check_counting(recorded(made), 60)


def test_asynchronous_algorithms_write_all_that_they_sample(tmp_path):
    made = config(tmp_path, kind=IMPALAConfig, workers=1).training(train_batch_size=20)
    dataset = recorded(made)
    check_counting(dataset, len(dataset))
    assert len(dataset) >= 60


SPACES = {
    "start": (Box(-1, 1, (2,)), Discrete(3, start=-4)),
    "images": (Box(0, 255, (8, 8, 1), np.uint8), MultiDiscrete([3, 2], start=[0, 5])),
    "dicts": (Dict({"near": Box(-1, 1, (2,)), "which": Discrete(3)}), Tuple([Discrete(2, start=1), Box(-3, 5, (2,))])),
    "bounded": (Discrete(4), Box(-0.25, 0.5, (2,))),
}


@pytest.mark.parametrize("kind", SPACES)
def test_files_say_the_spaces_and_have_actions_of_the_environment(tmp_path, kind):
    observations, actions = SPACES[kind]
    made = config(tmp_path, SampledEnv).environment(env_config={"space": observations, "action_space": actions})
    if kind == "images":
        made.training(model={"conv_filters": [[4, [3, 3], 2]], "fcnet_hiddens": [8]})
    dataset = recorded(made, rounds=1)
    assert (dataset.observation_space, dataset.action_space) == (observations, actions)
    assert dataset.metadata["gamma"] == 0.99 and dataset.metadata["seed"] == 1
    taken = dataset.columns["actions"]
    if kind == "dicts":
        assert set(taken[:, 0]) <= {1, 2} and (taken[:, 1:] >= -3).all() and (taken[:, 1:] <= 5).all()
    else:
        assert all(np.asarray(action, actions.dtype) in actions for action in taken)
    if kind == "images":
        expected = np.stack([nth_sample(observations, t) for t in dataset.columns["t"].tolist()])
        np.testing.assert_array_equal(dataset.columns["obs"], expected)


def test_masks_are_part_of_the_observations(tmp_path):
    dataset = recorded(config(tmp_path, MaskedProbe))
    mask, actions = dataset.columns["obs"][:, :3], dataset.columns["actions"]
    assert (mask[np.arange(len(mask)), actions] == 1).all()
    assert np.isfinite(dataset.columns["action_logp"]).all()


def test_policies_with_a_memory_are_recorded(tmp_path):
    made = config(tmp_path).training(model={"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5})
    check_counting(recorded(made), 60)


@pytest.mark.parametrize("format_", ["npz", "json"])
@pytest.mark.parametrize("random", [0, 30])
def test_log_probabilities_of_squashed_actions_are_those_of_their_policy(tmp_path, format_, random):
    """By the change of variables, in float64; uniform in the first random steps."""
    made = config(tmp_path, "Pendulum-v1", SACConfig, envs=1, format_=format_)
    made.training(num_steps_sampled_before_learning_starts=1000)
    made.exploration(exploration_config={"type": "StochasticSampling", "random_timesteps": random})
    with made.build() as algorithm:
        for _ in range(6):
            algorithm.train()
        policy = algorithm.policy
        space = algorithm.action_space
    dataset = Dataset.from_path(tmp_path, action_space=space)
    steps = len(dataset)
    order = np.argsort(dataset.columns["eps_id"] * 1000 + dataset.columns["t"])
    columns = {name: column[order] for name, column in dataset.columns.items()}
    assert steps == 60 and np.abs(columns["actions"]).max() > 1
    inputs = policy.dist_inputs(columns["obs"]).astype(np.float64)
    taken = np.clip(columns["actions"][:, 0] / 2, -1 + 1e-7, 1 - 1e-7)
    before, std = np.arctanh(taken.astype(np.float64)), np.exp(inputs[:, 1])
    normal = -0.5 * ((before - inputs[:, 0]) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
    expected = normal - np.log(1 - taken**2)
    expected[:random] = -np.log(2)
    np.testing.assert_allclose(columns["action_logp"], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("world", ["choices", "masked choices", "numbers"])
def test_first_random_actions_have_the_probability_of_random_ones(tmp_path, world, mode, envs):
    random, space = 30, {"choices": Discrete(4, start=1), "numbers": Box(-3, 5, (2,))}.get(world)
    made = config(tmp_path, MaskedProbe if space is None else SampledEnv, SACConfig, envs=envs)
    if space is not None:
        made.environment(env_config={"space": Box(-1, 1, (2,)), "action_space": space})
    made.rollouts(batch_mode=mode).training(lr=0.0, num_steps_sampled_before_learning_starts=1000)
    made.exploration(exploration_config={"type": "StochasticSampling", "random_timesteps": random})
    with made.build() as algorithm:
        for _ in range(5):
            algorithm.train()
        policy = algorithm.policy
    dataset = Dataset.from_path(tmp_path, action_space=space)
    steps = recorded_steps(dataset, policy, made)
    recorded_logs, own = (
        steps.behavior_log_prob(),
        TargetPolicy(policy).log_prob(steps.obs, steps.actions, steps.starts),
    )
    if world == "masked choices":
        at_random = -np.log(dataset.columns["obs"][:, :3].sum(1))
    else:
        at_random = np.full(len(dataset), -np.log(4))
    # Of which environment an episode is, files do not say: ids of one are apart by their number.
    which = dataset.columns["eps_id"] % (1 << 32) % envs
    number = np.zeros(len(dataset), int)
    for env in range(envs):
        number[which == env] = np.arange((which == env).sum())
    is_random = number * envs < random
    assert is_random.any() and not is_random.all()
    assert np.abs(own - at_random)[is_random].max() > 0.01
    np.testing.assert_allclose(recorded_logs, np.where(is_random, at_random, own), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("format_", ["npz", "json"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_policy_that_recorded_itself_has_ratios_of_one(tmp_path, format_, normalize):
    """Its actions are clipped at the bounds, and so are those that their densities are of."""
    space, made = Box(-0.25, 0.5, (2,)), config(tmp_path, SampledEnv, envs=1, format_=format_).training(lr=0.0)
    made.environment(env_config={"space": Box(-1, 1, (2,)), "action_space": space})
    made.environment(normalize_actions=normalize, clip_actions=True)
    with made.build() as algorithm:
        algorithm.train()
        policy = algorithm.policy
    dataset = Dataset.from_path(tmp_path, action_space=space)
    assert (dataset.columns["actions"] == 0.5).any()
    steps = recorded_steps(dataset, policy, made)
    own = policy.log_prob(policy.dist_inputs(steps.obs), steps.actions)
    np.testing.assert_allclose(steps.behavior_log_prob(), own, rtol=1e-4, atol=1e-4)


def test_densities_of_structured_actions_are_of_clipped_ones(tmp_path):
    space = Tuple([Discrete(2, start=1), Box(-3, 5, (2,))])
    made = config(tmp_path, SampledEnv, envs=1).training(lr=0.0)
    made.environment(env_config={"space": Box(-1, 1, (2,)), "action_space": space})
    with made.build() as algorithm:
        algorithm.train()
        policy = algorithm.policy
    steps = recorded_steps(Dataset.from_path(tmp_path), policy, made)
    assert (np.abs(steps.actions[:, 1:]) == 1).any()
    own = policy.log_prob(policy.dist_inputs(steps.obs), steps.actions)
    np.testing.assert_allclose(steps.behavior_log_prob(), own, rtol=1e-4, atol=1e-4)


def test_actions_that_are_not_drawn_from_the_policy_have_no_log_probability(tmp_path):
    assert "action_logp" not in recorded(config(tmp_path).exploration(explore=False)).columns


@pytest.mark.parametrize("kind", [PPOConfig, IMPALAConfig, DistillationConfig, DAggerConfig])
@pytest.mark.parametrize("beta", [0.0, 0.5, [[0, 1.0], [10, 0.0]], lambda timestep: 0.0])
def test_actions_that_a_teacher_may_have_chosen_have_no_log_probability(tmp_path, kind, beta):
    made = config(tmp_path, kind=kind).training(train_batch_size=20, teacher=ones, beta=beta, teacher_coeff=1.0)
    if kind is not IMPALAConfig:
        made.training(sgd_minibatch_size=10)
    columns = recorded(made).columns
    assert ("action_logp" in columns) == (beta == 0)
    if beta == 0.5:
        assert columns["actions"].mean() > 0.6


def ones(observations):
    return np.ones(len(observations), int)


def test_normalized_actions_in_json_are_read_in_units_of_the_environment(tmp_path):
    made = config(tmp_path / "json", "Pendulum-v1", envs=1, format_="json", output_compress_columns=[])
    dataset = recorded(made, action_space=Box(-2, 2, (1,)))
    twin = recorded(config(tmp_path / "npz", "Pendulum-v1", envs=1))
    np.testing.assert_array_equal(dataset.columns["actions"], twin.columns["actions"])
    written = np.concatenate(
        [json.loads(line)["actions"] for path in (tmp_path / "json").iterdir() for line in path.open()]
    )
    np.testing.assert_allclose(np.clip(2 * written, -2, 2), twin.columns["actions"], rtol=1e-6)


class Collects:
    """A writer of the user's own."""

    batches: ClassVar[list] = []
    closed: ClassVar[int] = 0

    def __init__(self, context):
        self.context = context

    def write(self, batch):
        self.batches.append((self.context, batch))

    def close(self):
        Collects.closed += 1


def test_a_function_makes_the_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(Collects, "batches", [])
    made = config(tmp_path).offline_data(output=lambda context: Collects(context), output_config={"table": "steps"})
    with made.reporting(log_dir=str(tmp_path / "run")).build() as algorithm:
        algorithm.train()
    context, batch = Collects.batches[0]
    assert context.output_config["table"] == "steps" and context.log_dir == str(tmp_path / "run")
    assert context.worker_index == 0 and context.config.gamma == 0.99
    assert batch["t"].tolist() == list(range(batch.count)) and Collects.closed
    assert sum(batch.count for _, batch in Collects.batches) == 20


def test_the_directory_of_the_run_may_hold_the_files(tmp_path):
    made = config("logdir").reporting(log_dir=str(tmp_path / "run"))
    with made.build() as algorithm:
        algorithm.train()
    assert len(Dataset.from_path(tmp_path / "run" / "output")) == 20


@pytest.mark.parametrize("episodes", [True, False])
@pytest.mark.parametrize("format_", ["npz", "json", "parquet"])
def test_steps_that_are_old_enough_do_not_wait_in_memory(tmp_path, format_, episodes):
    """Neither in a file that is open, nor in an episode that runs; a killed process loses the newest alone."""
    if format_ == "parquet":
        pytest.importorskip("pyarrow")
    made = config(tmp_path, format_=format_, output_max_file_seconds=1e-9, output_write_episodes=episodes)
    with made.build() as algorithm:
        for count in range(1, 8):
            algorithm.train()
            assert len(Dataset.from_path(tmp_path)) == 20 * count
    dataset = Dataset.from_path(tmp_path)
    check_counting(dataset, 140)
    assert len(list(tmp_path.iterdir())) > 10  # whose order is that of their numbers


def test_a_users_own_writer_gets_whole_episodes(tmp_path):
    class Kept:
        batches: ClassVar[list] = []

        def write(self, batch):
            self.batches.append(batch)

    made = config(tmp_path, output_max_file_seconds=1e-9)
    made.offline_data(output=lambda context: Kept(), output_config={})
    with made.build() as algorithm:
        algorithm.train()
        algorithm.train()
        assert all((batch["terminateds"] | batch["truncateds"])[-1] for batch in Kept.batches)


def test_a_killed_worker_loses_the_file_that_was_open(tmp_path):
    made = config(tmp_path, workers=2, envs=1, output_max_rows_per_file=25)
    with made.build() as algorithm:
        for _ in range(4):
            algorithm.train()
        victim, _ = algorithm.workers.foreach_worker(lambda worker: os.getpid())
        os.kill(victim, signal.SIGKILL)
        algorithm.train()
    dataset = Dataset.from_path(tmp_path)
    check_counting(dataset, len(dataset))
    names = sorted(path.name.partition("_worker-")[2] for path in tmp_path.iterdir())
    assert names == ["1_0.npz", "1_1.npz", "2_0.npz", "2_1.npz"]  # the successor goes on behind the first file
    assert 25 + 10 + 50 <= len(dataset) < 100


def test_a_restored_run_writes_on(tmp_path):
    made = config(tmp_path / "steps")
    with made.build() as algorithm:
        algorithm.train()
        algorithm.save(tmp_path / "checkpoint")
    with type(algorithm).from_checkpoint(tmp_path / "checkpoint", load_user_code=True) as restored:
        restored.train()
    check_counting(Dataset.from_path(tmp_path / "steps"), 40)


def test_steps_go_to_no_file_without_the_setting():
    with PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).training(**SMALL).build() as algorithm:
        assert algorithm.workers.local_worker().recorder is None


REFUSED = {
    "a format that there is not": ({"output_config": {"format": "csv"}}, "there is no format 'csv'"),
    "a format of whole files": ({"output_config": {"format": "hdf5"}}, "there is no format 'hdf5'"),
    "a key that there is not": ({"output_config": {"fromat": "json"}}, "its keys are format, path"),
    "no path": ({"output": "dataset"}, "needs a directory"),
    "another machine": ({"output": "s3://bucket/x"}, "is not on this machine"),
    "a number": ({"output": 3}, "must be a directory"),
    "a filesystem": ({"output_filesystem": "gcs"}, "files are written on this machine"),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_settings_that_cannot_be_are_refused(tmp_path, settings, message):
    made = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    with pytest.raises((ValueError, TypeError), match=message):
        made.offline_data(**{"output": str(tmp_path), **settings}).build()


def test_a_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        config(tmp_path / "file").build()


def test_where_steps_are_not_kept_they_are_not_written(tmp_path):
    made = PPOConfig().environment(BasicMultiAgent).multi_agent(policies="shared").rollouts(num_rollout_workers=0)
    with pytest.raises(ValueError, match="several agents, and its steps cannot be written"):
        made.offline_data(output=str(tmp_path)).build()
    with pytest.raises(ValueError, match="algorithms that play whole episodes, such as ES, keep no steps"):
        get_algorithm_config("ES").environment("CartPole-v1").offline_data(output=str(tmp_path)).rollouts(
            num_rollout_workers=0
        ).build()


def test_output_by_the_names_of_ray(tmp_path):
    made = (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=0)
        .update_from_dict(
            {"output": str(tmp_path), "output_config": {"format": "npz"}, "output_write_remaining_data": True}
        )
    )
    with made.training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, **SMALL).build() as algorithm:
        algorithm.train()
    assert len(Dataset.from_path(tmp_path, on_error="raise")) >= 64


@pytest.mark.parametrize("format_", ["npz", "json"])
def test_clipped_actions_have_the_density_that_their_policy_gives_them(tmp_path, format_):
    made = config(tmp_path, "Pendulum-v1", format_=format_).training(lr=0.0)
    with made.build() as algorithm:
        for _ in range(2):
            algorithm.train()
        policy, space = algorithm.policy, algorithm.action_space
    steps = recorded_steps(Dataset.from_path(tmp_path, action_space=space), policy)
    density = TargetPolicy(policy).log_prob(steps.obs, steps.actions, steps.starts)
    assert (np.abs(steps.actions) > 0.999).any()
    np.testing.assert_allclose(density, steps.behavior_log_prob(), rtol=1e-3, atol=1e-3)
