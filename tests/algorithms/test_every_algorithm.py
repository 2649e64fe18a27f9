"""What holds for every algorithm: Ray's result keys; it trains by its name and by its config."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.spaces import Box, Discrete

import rllib
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from rllib.cli import command
from rllib.config.nested import NestedSettings
from rllib.models.distributions.base import ActionUnit
from rllib.result import RESULT_KEYS
from tests.algorithms.taught_worlds import teacher_of
from tests.envs import BoundedAction, ConstantReward

# What makes an iteration short, where an algorithm has the setting.
SMALL = {
    "train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 2, "hiddens": [8], "v_min": 0.0, "v_max": 100.0,
    "num_steps_sampled_before_learning_starts": 50, "replay_buffer_config": {"capacity": 2000},
    "q_model_config": {"fcnet_hiddens": [8]},
    "num_replay_buffer_shards": 1, "noise_size": 50_000, "episodes_per_batch": 4, "num_rollouts": 2, "rollouts_used": 2,
    "discriminator_updates": 2, "discriminator_batch_size": 32,
}  # fmt: skip
NAMES = algorithm_names()
DATA = Path(__file__).parents[1] / "data" / "offline"
# What algorithms that need recorded data learn from; their environments are for evaluation.
RECORDED = {
    name: str(DATA / ("pendulum_small.json" if name in ("TD3BC", "ReBRAC", "CQL") else "cartpole_small.json"))
    for name in NAMES
    if get_algorithm_config(name).needs_data
}
# Those that need a teacher.
TAUGHT = [name for name in NAMES if get_algorithm_config(name).get("teacher_coeff")]
# What those learn a reward from that need demonstrations.
DEMONSTRATED = {
    name: str(DATA / "cartpole_small.json") for name in NAMES if "demonstrations" in get_algorithm_config(name).settings
}
# Those that learn from steps of their own as well.
HALF = ("SQIL", "SQILDQN")
GROUPS = ("QMix", "VDN")
# For those that need continuous actions, or groups.
ENVIRONMENT = {
    **dict.fromkeys(("TQC", "CrossQ", "TD3", "DDPG", "ApexDDPG", "APEX_DDPG", "TD3BC", "ReBRAC", "CQL"), "Pendulum-v1"),
    **dict.fromkeys(GROUPS, "tests.envs:Team"),
}
APEX = ("ApexDQN", "ApexDDPG")
# Model settings beside fcnet_hiddens.
MODEL = {"R2D2": {"use_gru": True, "lstm_cell_size": 8}}
# API.md 1.7; those that Tune adds to a trial's results (trial_id, experiment_id, ...) are not the algorithm's.
KEYS = """
episode_reward_mean episode_reward_max episode_reward_min episode_len_mean episodes_this_iter episodes_total
policy_reward_mean policy_reward_min policy_reward_max hist_stats custom_metrics episode_media num_faulty_episodes
sampler_results/episode_reward_mean timesteps_total timesteps_this_iter agent_timesteps_total num_env_steps_sampled
num_env_steps_trained num_agent_steps_sampled num_agent_steps_trained num_env_steps_sampled_this_iter
num_env_steps_trained_this_iter num_env_steps_sampled_throughput_per_sec num_env_steps_trained_throughput_per_sec
num_steps_trained_this_iter counters info info/num_env_steps_sampled num_healthy_workers num_in_flight_async_reqs
num_remote_worker_restarts timers/training_iteration_time_ms sampler_perf/mean_env_wait_ms
sampler_perf/mean_inference_ms perf training_iteration time_this_iter_s time_total_s time_since_restore
iterations_since_restore timesteps_since_restore done date timestamp pid hostname node_ip config/lr
evaluation/episode_reward_mean evaluation/num_healthy_workers evaluation/timesteps_this_iter
env_runners/episode_return_mean env_runners/episode_len_mean env_runners/num_episodes_lifetime
env_runners/num_env_steps_sampled_lifetime env_runners/num_agent_steps_sampled/default_agent
env_runners/num_module_steps_sampled/default_policy env_runners/agent_episode_returns_mean/default_agent
env_runners/module_episode_returns_mean/default_policy num_env_steps_sampled_lifetime
num_training_step_calls_per_iteration fault_tolerance/num_healthy_workers fault_tolerance/num_remote_worker_restarts
"""


def small_settings(config) -> dict:
    settings = {name: value for name, value in SMALL.items() if name in config.settings}
    if "rollouts_used" in settings:
        del settings["train_batch_size"]  # ARS counts pairs of episodes alone
    if "use_h_function" in config.settings:
        settings["training_intensity"] = 8  # R2D2's is 150
    return settings


def small(name: str):
    """The algorithm's config, by its class, for iterations of some hundred steps in this process."""
    config = getattr(rllib, f"{name}Config")().environment(ENVIRONMENT.get(name, "CartPole-v1"))
    config.rollouts(num_rollout_workers=0)
    if name in TAUGHT:
        config.training(teacher=teacher_of(config.env))
    if name in RECORDED:
        config.offline_data(input_=RECORDED[name])
    if name in DEMONSTRATED:
        config.offline_data(demonstrations=DEMONSTRATED[name])
    if name in GROUPS:
        config.rollouts(rollout_fragment_length=20)  # an update for each fragment, and by default for every 4 steps
    return (
        config.training(model={"fcnet_hiddens": [8], **MODEL.get(name, {})}, **small_settings(config))
        # Ape-X's replay is another process: an iteration lasts until something has been learned.
        .reporting(
            min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=200, min_train_timesteps_per_iteration=1
        )
        .evaluation(evaluation_interval=1, evaluation_duration=1)
        .debugging(seed=1)
    )


# The others have no learning rate, and Ape-X's iterations are of several updates.
@pytest.mark.parametrize("name", sorted({*NAMES} - {"ES", "ARS", *APEX}))
def test_a_learning_rate_that_falls_to_zero_is_not_zero_in_the_last_update(name):
    """A batch is learned from by the schedule's value before it was sampled."""
    total, rates = 400, []
    config = small(name).training(lr=[[0, 1e-3], [total, 0.0]]).evaluation(evaluation_interval=None)
    config.reporting(min_sample_timesteps_per_iteration=0, min_train_timesteps_per_iteration=0)
    with config.build() as algo:
        while algo.timesteps < total:
            before = algo.timesteps
            stats = algo.train()["info"]["learner"].get("default_policy", {}).get("learner_stats", {})
            rate = stats.get("cur_lr", stats.get("cur_actor_lr"))
            if rate is not None:
                rates.append((rate, pytest.approx(1e-3 * (1 - before / total))))
    assert rates and rates[-1][0] > 0
    assert all(rate == expected for rate, expected in rates), rates


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_read_once_and_not_in_every_step(name, monkeypatch):
    """Ape-X took half of its driver's time for each answer to read replay_buffer_config again."""
    with small(name).evaluation(evaluation_interval=None).build() as algo:
        algo.train()
        monkeypatch.setattr(NestedSettings, "_take", lambda keys, given: pytest.fail(f"{type(keys)} is read again"))
        for _ in range(3):
            algo.training_step()


DETERMINISTIC = ("TD3", "DDPG", "ApexDDPG", "TD3BC", "ReBRAC")
# Why there are no log-likelihoods; of the others there are.
WITHOUT = {
    **dict.fromkeys(DETERMINISTIC, "gives one action for each observation"),
    **dict.fromkeys(("PQN", "DQN", "SimpleQ", "Rainbow", "ApexDQN", "SQILDQN"), "chooses by values"),
    "R2D2": "has a memory",
}
IN_OTHER_SPACES = ("PPO", "IMPALA", "APPO", "A2C", "A3C", "PG", "TRPO", "ES", "ARS", "SAC")


@pytest.mark.parametrize(
    ("name", "env"),
    [(name, ENVIRONMENT.get(name, "CartPole-v1")) for name in NAMES if name not in GROUPS]
    + [(name, "Pendulum-v1") for name in IN_OTHER_SPACES],
)
def test_likelihoods_of_all_actions_add_up_to_one(name, env):
    """In the units of stored actions; those of squashed ones are densities of what they are squashed to."""
    with small(name).environment(env).evaluation(evaluation_interval=None).build() as algo:
        policy = algo.get_policy()
        width, stored = 1.0, np.arange(2)
        if policy.action_dtype.kind == "f":
            squashed = policy.distribution.unit is ActionUnit.BEFORE_TANH
            read = np.linspace(-1, 1, 20_001)[1:-1] * (1 if squashed else 40)
            width, stored = read[1] - read[0], (np.arctanh(read) if squashed else read)[:, None]
        seen = np.zeros((len(stored), *algo.observation_space.shape), np.float32)
        if name in WITHOUT:
            with pytest.raises(ValueError, match=WITHOUT[name]):
                policy.compute_log_likelihoods(stored, seen)
        else:
            logs = policy.compute_log_likelihoods(stored, seen)
            assert np.exp(logs.astype(np.float64)).sum() * width == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_results_have_rays_keys(name):
    with small(name).build() as algo:
        algo.train()
        result = algo.train()
    assert [key for key in KEYS.split() if key not in result] == []
    assert set(result) == RESULT_KEYS
    assert result["num_env_steps_sampled_lifetime"] == result["timesteps_total"] > 0
    assert result["num_training_step_calls_per_iteration"] >= 1
    learner = result["info"]["learner"]["default_policy"]
    stats = learner["learner_stats"]
    assert set(algo.reported_stats) <= stats.keys() and algo.reported_stats
    assert {"num_agent_steps_trained", "num_grad_updates_lifetime"} <= learner.keys()
    for module in ("default_policy", "__all_modules__"):
        assert {"num_module_steps_trained", *algo.reported_stats} <= result["learners"][module].keys()
    if name not in ("ES", "ARS"):
        assert stats["policy_lag_updates"] == 0  # this process samples and learns in turn
        assert learner["diff_num_grad_updates_vs_sampler_policy"] == 0
        norms = {"gradients_default_optimizer_global_norm", "gradients_qf_global_norm"}
        assert norms & result["learners"]["default_policy"].keys()


@pytest.mark.parametrize("name", [*NAMES, "APEX", "APEX_DDPG"])
def test_the_command_trains_it(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {**small_settings(get_algorithm_config(name)), "min_sample_timesteps_per_iteration": 100}
    words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    words += [f"model.{key}={json.dumps(value)}" for key, value in MODEL.get(name, {}).items()]
    words += ["min_time_s_per_iteration=0", "num_rollout_workers=1", "model.fcnet_hiddens=[8]", "--seed", "3"]
    words += [f"input={RECORDED[name]}"] if name in RECORDED else []
    words += [f"demonstrations={DEMONSTRATED[name]}"] if name in DEMONSTRATED else []
    env = ENVIRONMENT.get(name, "CartPole-v1")
    words += [f"teacher={teacher_of(env)}"] if name in TAUGHT else []
    outcome = CliRunner().invoke(command, ["train", name, env, "--defaults", *words, "--stop", "iterations=2", "-q"])
    assert outcome.exit_code == 0, outcome.output
    (run,) = (tmp_path / "results").iterdir()
    assert [json.loads(line)["training_iteration"] for line in (run / "result.json").open()] == [1, 2]
    assert (run / "checkpoint_000002").is_dir()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in APEX])
def test_a_restored_run_goes_on_exactly(name, tmp_path):
    """Where docs/project/architecture.md promises it: episodes of one step are all over at the checkpoint."""
    one_step = {None: ConstantReward, "Pendulum-v1": BoundedAction}
    config = small(name)
    if name not in RECORDED or name in HALF:
        config.environment(one_step.get(ENVIRONMENT.get(name), ENVIRONMENT.get(name)))
    if name in TAUGHT:
        config.training(teacher=teacher_of(config.env))
    steps = {"obs": np.zeros((20, 1), np.float32), "actions": np.arange(20) % 2, "terminateds": np.ones(20, bool)}
    if name in DEMONSTRATED:
        # The same observation after each end would be taken for that of the next episode.
        config.offline_data(demonstrations={**steps, "new_obs": steps["obs"] + np.float32(0.5)})
    if name in HALF:
        config.offline_data(input_=steps)
    if "store_buffer_in_checkpoints" in config:
        config.training(store_buffer_in_checkpoints=True)
    with config.build() as algo, config.build() as other:
        for _ in range(2):
            algo.train()
        other.restore(algo.save(tmp_path / "checkpoint"))
        results = [each.train() for each in (algo, other)]
        np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)
        assert results[0]["info"] == results[1]["info"]


@pytest.mark.parametrize("name", ["TD3", "DQN"])
def test_a_restored_run_reports_the_newest_update_of_each_network(name, tmp_path):
    """An iteration in which an actor is delayed, or in which no update is due, reports the one before."""
    config = small(name).environment({"TD3": BoundedAction, "DQN": ConstantReward}[name])
    late = {"TD3": {"policy_delay": 3}, "DQN": {"training_intensity": 0.5}}[name]
    config.training(**late, store_buffer_in_checkpoints=True, num_steps_sampled_before_learning_starts=0)
    config.rollouts(rollout_fragment_length=1).reporting(min_sample_timesteps_per_iteration=0)
    config.reporting(min_train_timesteps_per_iteration=0)
    with config.build() as algo, config.build() as other:
        stats = {}
        while not stats.get("actor_loss" if name == "TD3" else "mean_q"):
            stats = algo.train()["info"]["learner"].get("default_policy", {}).get("learner_stats", {})
        other.restore(algo.save(tmp_path / "checkpoint"))
        results = [each.train()["info"]["learner"] for each in (algo, other)]
        assert results[0] == results[1]
        assert results[0]["default_policy"]["learner_stats"].keys() == stats.keys()


class Actions(gymnasium.Env):
    """Takes actions of a given space alone, eight in an episode, and rewards each with 1."""

    observation_space = Box(-1, 1, (2,), np.float32)

    def __init__(self, config):
        self.action_space = config["space"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert isinstance(action, np.ndarray | int) and action in self.action_space
        self.t += 1
        return np.full(2, self.t / 8, np.float32), 1.0, False, self.t == 8, {}


OF_NUMBERS = ("PPO", "A2C", "IMPALA", "ARS", "SAC", "TQC", "CrossQ", "TD3", "DDPG")
SPACES = {"Box()": Box(-2, 1, (), np.float32), "Box(2, 2)": Box(-2, 1, (2, 2), np.float32), "Discrete(1)": Discrete(1)}


@pytest.mark.parametrize(
    ("name", "space"),
    [
        *((name, space) for name in OF_NUMBERS for space in ("Box()", "Box(2, 2)")),
        *((name, "Discrete(1)") for name in ("PPO", "IMPALA", "DQN", "PQN", "SAC")),
    ],
)
def test_actions_of_no_or_several_dimensions_and_of_one_choice(name, space, tmp_path):
    config = small(name).environment(Actions, env_config={"space": SPACES[space]}).evaluation(evaluation_interval=None)
    with config.build() as algo:
        for _ in range(2):
            result = algo.train()
        learned = result["info"]["learner"]["default_policy"]["learner_stats"]
        assert all(np.isfinite(value) for value in learned.values() if isinstance(value, float))
        assert algo.evaluate(1)["episode_reward_mean"] == 8
        action = algo.compute_single_action(np.zeros(2, np.float32), explore=False)
        assert type(action) is type(SPACES[space].sample()) or space == "Discrete(1)"
        assert action in SPACES[space]


@pytest.mark.parametrize("learner", ["numpy", "torch"])
@pytest.mark.parametrize(("name", "space"), [("CrossQ", "Box(2, 2)"), ("SAC", "Discrete(1)")])
def test_both_learners_take_them(name, space, learner):
    config = small(name).environment(Actions, env_config={"space": SPACES[space]}).evaluation(evaluation_interval=None)
    with config.training(learner=learner).build() as algo:
        assert np.isfinite(algo.train()["info"]["learner"]["default_policy"]["learner_stats"]["critic_loss"])


class Costly(Actions):
    """Its actions cost 0.5 each."""

    def step(self, action):
        *outcome, info = super().step(action)
        return *outcome, {**info, "cost": 0.5}


MEMORY, BLOCKS = (
    {"fcnet_hiddens": [8], **more} for more in ({"use_lstm": True, "lstm_cell_size": 4}, {"network": "simba"})
)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {"learner": learner}) for name in ("SAC", "TQC", "TD3") for learner in ("numpy", "torch")),
        *(("SAC", {"model": model}) for model in (MEMORY, BLOCKS)),
        ("SAC", {"model": {**BLOCKS, "network": "simbav2"}, "num_atoms": 5}),
        *(("TD3", {"model": model}) for model in (MEMORY, BLOCKS)),
        *(("SAC", {"cost_limit": 1.0, "learner": learner}) for learner in ("numpy", "torch")),
    ],
    ids=str,
)
def test_actions_without_axes_are_learned_as_those_of_one_number(name, settings):
    weights = []
    for shape in ((), (1,)):
        config = small(name).environment(Costly, env_config={"space": Box(-2, 1, shape, np.float32)})
        config.training(num_steps_sampled_before_learning_starts=16, train_batch_size=8, **settings).debugging(seed=3)
        with config.evaluation(evaluation_interval=None).build() as algo:
            while algo.num_updates < 3:
                algo.training_step()
            weights.append(algo.policy.weights.copy())
    np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize("name", sorted({*NAMES} - {*APEX}))
def test_the_class_of_all_algorithms_loads_its_checkpoint(name, tmp_path):
    with small(name).build() as algo, rllib.Algorithm.from_checkpoint(algo.save(tmp_path)) as loaded:
        assert type(loaded) is type(algo)


MINIMA = "min_time_s_per_iteration", "min_sample_timesteps_per_iteration", "min_train_timesteps_per_iteration"


@pytest.mark.parametrize("name", sorted({*RECORDED} - {*HALF}))
def test_an_iteration_from_recorded_data_has_the_updates_that_were_asked_for(name):
    config = small(name).offline_data(dataset_num_iters_per_learner=3).evaluation(evaluation_interval=None)
    with pytest.raises(ValueError, match=r"dataset_num_iters_per_learner=3 and min_.*: both say how long"):
        config.validate()
    config.reporting(**{each: config.settings[each].default for each in MINIMA})
    with config.build() as algo:
        results = [algo.train() for _ in range(2)]
    assert [result["num_training_step_calls_per_iteration"] for result in results] == [3, 3]
    updates = [result["info"]["learner"]["default_policy"]["num_grad_updates_lifetime"] for result in results]
    assert updates[1] == 2 * updates[0]


def test_updates_of_an_iteration_are_refused_where_there_are_samples():
    config = small("SAC").offline_data(dataset_num_iters_per_learner=3)
    with pytest.raises(ValueError, match=r"dataset_num_iters_per_learner=3.* updates from recorded data alone"):
        config.validate()
