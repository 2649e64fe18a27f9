"""The algorithms for recorded data: what they ask of critics, several learners, masks, and going on by sampling."""

import re
from pathlib import Path

import numpy as np
import pandas
import pytest
from gymnasium import spaces

from rllib import sample_batch as sb
from rllib import tune
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from rllib.algorithms.sac import SACTrainee
from rllib.config.conflicts import SettingsError
from rllib.losses.offline.imitation import LARGEST_RECORDED
from rllib.offline.dataset import Dataset
from tests.algorithms.test_recorded_data import CARTPOLE, DATA, config, learner_stats

BOX = spaces.Box(-1, 1, (2,))


def numbers(rows=64, seed=0):
    """Steps with continuous actions, in episodes of eight."""
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.normal(size=(rows, 3)),
        "actions": rng.uniform(-0.9, 0.9, (rows, 2)),
        "rewards": rng.normal(size=rows),
        "terminateds": np.arange(rows) % 8 == 7,
    }


def of_numbers(name, data=None, **training):
    """The settings of an algorithm that learns from these steps."""
    made = config(name, numbers() if data is None else data, env=None, **training)
    return made.environment(env=None, action_space=BOX).offline_data(actions_in_input_normalized=False)


# ---------------------------------------------------------------------- actions outside of the data


@pytest.mark.parametrize("learner", ["numpy", "torch"])
def test_implicit_q_learning_asks_for_no_action_that_the_data_does_not_have(learner):
    """Neither the value's nor the critics' step depends on the policy, whatever it would do."""
    found = []
    for scale in (1.0, 100.0):
        with of_numbers("IQL", learner=learner).build() as algorithm:
            weights = algorithm.get_weights()["default_policy"]
            algorithm.set_weights({"default_policy": weights * scale})
            algorithm.train()
            modules = algorithm.learners["default_policy"].vector
            found.append([modules[name].copy() for name in ("value", "critics")])
    for one, other in zip(*found):
        np.testing.assert_array_equal(one, other)


def test_cloning_computes_no_value():
    with of_numbers("BC").build() as algorithm:
        algorithm.train()
        assert not algorithm.policy.spec.critic


# ---------------------------------------------------------------------- several learners


@pytest.mark.parametrize("name", ["BC", "MARWIL", "IQL"])
def test_two_learners_make_the_update_of_one(name):
    weights = []
    for count in (0, 2):
        settings = of_numbers(name, train_batch_size=32).learners(num_learners=count)
        if name == "MARWIL":
            settings.training(moving_average_sqd_adv_norm_update_rate=0.5)
        with settings.reporting(min_sample_timesteps_per_iteration=96).build() as algorithm:
            algorithm.train()
            weights.append(algorithm.get_weights()["default_policy"])
    np.testing.assert_allclose(*weights, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------- imitation


def test_the_mean_is_fitted_to_continuous_actions():
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(512, 3)).astype(np.float32)
    data = {"obs": obs, "actions": np.tanh(obs[:, :2]), "rewards": np.zeros(512)}
    settings = of_numbers("BC", data, bc_loss="mse", lr=1e-2, train_batch_size=128)
    with settings.reporting(min_sample_timesteps_per_iteration=40_000).build() as algorithm:
        before = algorithm.policy.compute_actions(obs, explore=False)[0]
        stats = learner_stats(algorithm.train())
        after = algorithm.policy.compute_actions(obs, explore=False)[0]
    assert stats["policy_loss"] < 0.01
    assert np.square(after - data["actions"]).mean() < 0.02 * np.square(before - data["actions"]).mean()


def test_choices_have_no_mean():
    with pytest.raises(ValueError, match="bc_loss='mse' is for continuous actions"):
        config("BC", bc_loss="mse").build()


@pytest.mark.parametrize("model", [{}, {"squash_actions": True}])
def test_an_action_that_is_always_the_same_is_learned_with_a_finite_likelihood(model):
    """Without bounds the deviation would fall to 0, and actions at their bounds are infinite before tanh."""
    data = {**numbers(), "obs": np.zeros((64, 3)), "actions": np.ones((64, 2))}
    settings = of_numbers("BC", data, lr=0.02, model={"fcnet_hiddens": [8], **model})
    with settings.reporting(min_sample_timesteps_per_iteration=10_000).build() as algorithm:
        assert -25 < learner_stats(algorithm.train())["policy_loss"] < 1
        mean = algorithm.policy.compute_actions(np.zeros((1, 3), np.float32), explore=False)[0]
    np.testing.assert_allclose(mean, LARGEST_RECORDED if model else 1.0, atol=0.2)


SMALL_DQN = {"hiddens": []}


def masked(masks, start=0):
    """Steps whose observations hold these masks of three choices, which are numbered from `start` on."""
    space = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": spaces.Box(-1, 1, (1,))})
    rows = np.concatenate([np.asarray(masks, np.float32), np.zeros((len(masks), 1), np.float32)], 1)
    data = {"obs": rows, "actions": start + np.array([0, 2, 1])[: len(masks)], "rewards": np.ones(len(masks))}
    return {"data": data, "spaces": {"observation_space": space, "action_space": spaces.Discrete(3, start=start)}}


@pytest.mark.parametrize("name", ["BC", "MARWIL", "DQN", "IQL"])
def test_a_recorded_action_that_its_mask_forbids_is_an_error_with_its_row(name):
    legal, forbidden = masked([[1, 1, 0], [0, 0, 1], [1, 1, 1]], 4), masked([[1, 1, 0], [0, 1, 0], [1, 1, 1]], 4)
    settings = SMALL_DQN if name == "DQN" else {}
    config(name, legal["data"], env=None, **settings).environment(**legal["spaces"]).build().stop()
    with pytest.raises(ValueError, match=r"row 1: the action is 6, which its mask \[0, 1, 0\] forbids; 1 rows"):
        config(name, forbidden["data"], env=None, **settings).environment(**forbidden["spaces"]).build()


# ---------------------------------------------------------------------- going on by sampling


@pytest.mark.parametrize("filter_", ["NoFilter", "MeanStdFilter"])
def test_a_clone_begins_a_run_of_ppo(filter_):
    model, normalize = {"fcnet_hiddens": [8]}, filter_ == "MeanStdFilter"
    with config("MARWIL", model=model).offline_data(normalize_observations=normalize).build() as clone:
        clone.train()
        settings = get_algorithm_config("PPO").environment("CartPole-v1")
        settings.rollouts(num_rollout_workers=0, observation_filter=filter_)
        with settings.training(model=model, train_batch_size=200, sgd_minibatch_size=100).build() as ppo:
            ppo.get_policy().set_state(clone.get_policy().get_state())
            obs = clone.recorded.only.columns[sb.OBS]
            how = {"explore": False, "full_fetch": True}
            (_, _, ours), (_, _, its) = (each.compute_actions(obs[:50], **how) for each in (clone, ppo))
            np.testing.assert_array_equal(ours["action_dist_inputs"], its["action_dist_inputs"])
            ppo.train()


def test_a_state_with_a_filter_fits_no_policy_without():
    settings = get_algorithm_config("PPO").environment("CartPole-v1").rollouts(num_rollout_workers=0)
    clones = config("MARWIL").offline_data(normalize_observations=True)
    refused = pytest.raises(ValueError, match="observation_filter='NoFilter' cannot take over")
    with clones.build() as clone, settings.build() as ppo, refused:
        ppo.get_policy().set_state(clone.get_policy().get_state())


def test_a_run_from_data_goes_on_with_a_mixture(tmp_path):
    with config("IQL").build() as offline:
        offline.train()
        offline.save(tmp_path)
        weights = offline.get_weights()["default_policy"]
    settings = config("IQL", {"sampler": 0.5, CARTPOLE: 0.5})
    with settings.build() as online:
        online.restore(tmp_path)
        np.testing.assert_array_equal(online.get_weights()["default_policy"], weights)
        before = online.timesteps
        online.train()
        assert online.timesteps > before and len(online.replay.newest) > 0


@pytest.mark.parametrize("share", [0.5, 0.3])
def test_a_mixture_goes_on_exactly(share, tmp_path):
    """Also where a share is no whole number of rows, and what is left over is carried to the next batch."""
    settings = config(
        "SAC", {"sampler": share, CARTPOLE: 1 - share}, store_buffer_in_checkpoints=True,
        replay_buffer_config={"type": "ReplayBuffer"}, num_steps_sampled_before_learning_starts=10,
    ).rollouts(num_rollout_workers=0)  # fmt: skip
    with settings.build() as algorithm, settings.build() as other:
        algorithm.train()
        other.restore(algorithm.save(tmp_path / "checkpoint"))
        assert other.replay.owed == algorithm.replay.owed
        batches = [each.replay.sample(7, np.random.default_rng(1)) for each in (algorithm, other)]
    for name in (sb.OBS, sb.ACTIONS, sb.REWARDS):
        np.testing.assert_array_equal(batches[0][name], batches[1][name])


def test_an_algorithm_is_made_from_a_checkpoint_of_a_run_from_data(tmp_path):
    with config("IQL").build() as algorithm:
        algorithm.train()
        algorithm.save(tmp_path)
        weights = algorithm.get_weights()["default_policy"]
    with Algorithm.from_checkpoint(tmp_path) as other:
        np.testing.assert_array_equal(other.get_weights()["default_policy"], weights)
        other.train()


# ---------------------------------------------------------------------- what is said, and what is refused


@pytest.mark.parametrize(("name", "says"), [("SAC", True), ("DQN", True), ("IQL", False), ("conservative", False)])
def test_critics_that_trust_other_actions_are_warned_of(name, says, caplog):
    settings = config("DQN", conservative_weight=1.0, hiddens=[]) if name == "conservative" else config(name)
    settings.build().stop()
    assert ("on recorded data alone overestimates" in caplog.text) is says


def test_settings_of_sampling_are_said_to_have_no_effect(caplog):
    config("DQN").exploration(exploration_config={"final_epsilon": 0.5}).rollouts(num_rollout_workers=2).build().stop()
    assert "exploration_config and num_rollout_workers has no effect" in caplog.text


REFUSED = {
    "shares": (lambda: config("BC", {CARTPOLE: 0.5, CARTPOLE + "x": 0.5}), "goes through all recorded rows in turn"),
    "sampler": (lambda: config("MARWIL", {CARTPOLE: 0.5, "sampler": 0.5}), "goes through all recorded rows in turn"),
    "sequences": (lambda: config("R2D2"), "R2D2 learns from sequences"),
    "shards": (lambda: config("ApexDQN"), "in processes that sampling workers fill"),
    "groups": (lambda: config("QMix"), "QMix learns from steps of groups"),
    "gpu": (
        lambda: config("SAC", {CARTPOLE: 0.5, "sampler": 0.5}, replay_buffer_config={"storage": "gpu"}).resources(
            num_gpus=1
        ),
        "input_ is a mixture of several",
    ),
    "goals": (
        lambda: config("DQN", replay_buffer_config={"type": "HindsightReplayBuffer"}),
        "relabels steps by asking the environment",
    ),
}


@pytest.mark.parametrize(("made", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_learned_from_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made().validate()


@pytest.mark.parametrize("own", ["model", "policy_model_config"])
@pytest.mark.parametrize("name", ["IQL", "AWAC", "TD3", "SAC"])
def test_noise_of_the_state_is_refused_with_a_remedy_where_an_actor_has_none(name, own):
    """use_sde is for standard deviations that depend on the state: SAC's."""
    made = of_numbers(name, **{own: {"fcnet_hiddens": [8], "use_sde": True}})
    if name != "SAC":
        with pytest.raises(SettingsError, match="use_sde=True") as raised:
            made.validate()
        (mistake,) = raised.value.mistakes
        made.apply(mistake.remedies[0])
    made.build().stop()


# ---------------------------------------------------------------------- critics that are drawn


def noise_of_the_update(self, batch, rows, draw=SACTrainee.add_noise):
    """Noise that depends on the number of the update alone: to draw critics moves the stream."""
    number = self.num_updates
    self.rng = np.random.default_rng(number)
    draw(self, batch, rows)
    self.rng = np.random.default_rng(1000 + number)


@pytest.mark.parametrize("learner", ["numpy", "torch"])
def test_targets_take_the_least_of_the_critics_that_are_drawn(learner, monkeypatch):
    """All of them, drawn, are all; one of two is not."""
    weights = []
    for sampled in (None, 2, 1):
        settings = of_numbers("SAC", learner=learner, n_critics=2, target_critics_sampled=sampled)
        with settings.build() as algorithm:
            with monkeypatch.context() as patched:
                patched.setattr(SACTrainee, "add_noise", noise_of_the_update)
                algorithm.train()
            weights.append(algorithm.learners["default_policy"].vector["critics"].copy())
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("SAC", {"target_critics_sampled": 3}, "is more than there are critics: 2"),
        ("CQL", {"target_critics_sampled": 2}, "CQL has its own targets"),
    ],
)
def test_critics_that_cannot_be_drawn_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        of_numbers(name, **settings).validate()


def test_critics_of_choices_are_not_drawn():
    with pytest.raises(ValueError, match="target_critics_sampled=1 is for continuous actions"):
        config("SAC", target_critics_sampled=1).build()


def test_tune_runs_an_algorithm_on_data(tmp_path):
    settings = {"input": CARTPOLE, "model": {"fcnet_hiddens": [8]}, "train_batch_size": 32}
    settings |= {"min_sample_timesteps_per_iteration": 64, "lr": tune.grid_search([1e-3, 1e-2])}
    metric = "info/learner/default_policy/learner_stats/total_loss"
    stop = {"training_iteration": 2}
    analysis = tune.run(
        "BC", config=settings, stop=stop, metric=metric, mode="min", verbose=0, storage_path=str(tmp_path)
    )
    losses = {trial.config["lr"]: trial.last_result for trial in analysis.trials}
    assert sorted(losses) == [1e-3, 1e-2]
    assert all(result["training_iteration"] == 2 for result in losses.values())
    assert analysis.best_config["lr"] in losses


@pytest.mark.parametrize("kind", ["arrays", "table", "Dataset"])
def test_data_among_the_settings_is_written_once_and_not_as_text(kind, tmp_path):
    """Into files for people goes what it is; a checkpoint has the numbers, and a run continues from it."""
    data = numbers(20_000)
    size = sum(column.nbytes for column in data.values())
    if kind == "table":
        parts = {f"{name}_{i}": data[name][:, i] for name, count in (("obs", 3), ("actions", 2)) for i in range(count)}
        data = pandas.DataFrame({**parts, "rewards": data["rewards"], "terminateds": data["terminateds"]})
    elif kind == "Dataset":
        data = Dataset.from_columns(data, action_space=BOX)
        size = sum(column.nbytes for column in data.columns.values())
    made = of_numbers("BC", data, lr=tune.grid_search([1e-3, 1e-2]))
    run = {"stop": {"training_iteration": 1}, "verbose": 0, "storage_path": str(tmp_path), "name": "x"}
    analysis = tune.run("BC", config=made, checkpoint_at_end=True, load_user_code=True, **run)
    files = {path: path.stat().st_size for path in (tmp_path / "x").rglob("*") if path.is_file()}
    for path, written in files.items():
        copies = 3 if path.name.startswith("experiment_state") else 1  # for the space and each of the trials
        assert written < copies * 1.5 * size + 100_000, path
    for trial in analysis.trials:
        assert (Path(trial.logdir) / "params.json").stat().st_size < 5_000
        with Algorithm.from_checkpoint(trial.checkpoint_path(trial.checkpoint), load_user_code=True) as algorithm:
            assert algorithm.train()["info"]["dataset"]["rows"] == 20_000


# ---------------------------------------------------------------------- settings of RLlib's own files

OF_RLLIB = {
    "cartpole-bc": ("BC", "CartPole-v1", {"input": "dataset", "input_config": {"format": "json", "paths": CARTPOLE}}),
    "cartpole-marwil": ("MARWIL", "CartPole-v1", {"input": CARTPOLE, "beta": 1.0}),
    "pendulum-cql": (
        "CQL",
        "Pendulum-v1",
        {
            "input": [str(DATA / "pendulum_small.json")], "actions_in_input_normalized": True, "clip_actions": True,
            "twin_q": True, "replay_buffer_config": {"type": "MultiAgentReplayBuffer"},
            "bc_iters": 100, "metrics_smoothing_episodes": 5,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_RLLIB)
def test_settings_of_rllibs_files_are_those_here(name):
    """Beside them are smaller batches, and no process for evaluations."""
    algorithm, env, settings = OF_RLLIB[name]
    common = {"framework": "torch", "evaluation_interval": 1, "evaluation_config": {"input": "sampler"}}
    made = get_algorithm_config(algorithm).environment(env).update_from_dict({**common, **settings})
    made.training(train_batch_size=32, model={"fcnet_hiddens": [8]}).evaluation(evaluation_duration=1)
    with made.reporting(min_sample_timesteps_per_iteration=64).build() as algorithm:
        assert algorithm.train()["evaluation"]["episodes_this_iter"] == 1


@pytest.mark.parametrize("name", [name for name in algorithm_names() if get_algorithm_config(name).needs_data])
def test_no_remedy_takes_the_data_away(name):
    """Without it the next mistake would be that there is none."""
    settings = get_algorithm_config(name).offline_data(input_="somewhere")
    several = {"replay_buffer_config": {"type": "HerReplayBuffer"}, "cost_limit": 1.0, "model": {"use_lstm": True}}
    given = {setting: value for setting, value in several.items() if setting in settings.settings}
    mistakes = list(settings.update_from_dict(given).mistakes())
    assert len(mistakes) > 1 or name in ("BC", "MARWIL")
    assert not any(remedy.get("input_") == "sampler" for mistake in mistakes for remedy in mistake.remedies)


OF_CHOICES = {
    "Discrete": (0, spaces.Discrete(2)),
    "MultiDiscrete": ([0, 1], spaces.MultiDiscrete([2, 2])),
    "Box of integers": ([0, 1], spaces.Box(0, 2, (2,), np.int64)),
}


@pytest.mark.parametrize(("action", "space"), OF_CHOICES.values(), ids=OF_CHOICES)
@pytest.mark.parametrize("name", ["BC", "MARWIL", "IQL", "AWAC", "CQL", "TD3BC", "ReBRAC"])
def test_algorithms_that_are_advised_for_other_actions_accept_them(name, action, space):
    data = {"obs": np.zeros((64, 2)), "actions": np.array([action] * 64), "rewards": np.ones(64)}

    def build(each):
        config = get_algorithm_config(each).offline_data(input_={**data, "eps_id": np.arange(64) // 8})
        config.environment(action_space=space).training(train_batch_size=8, model={"fcnet_hiddens": [4]}).build().stop()

    try:
        build(name)
    except SettingsError as refused:
        advised = set(re.findall(r"\b(?:BC|MARWIL|IQL|AWAC|CQL|TD3BC|ReBRAC)\b", str(refused).partition(" Use ")[2]))
        assert advised - {name} == advised != set()
        for each in advised:
            build(each)
