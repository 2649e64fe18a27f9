"""Rows of a replay that another run has saved: they are loaded, or refused with settings that load them."""

import random
from pathlib import Path

import numpy as np
import pytest

from rllib import Algorithm, ApexDQNConfig, CrossQConfig, DQNConfig, R2D2Config, SACConfig, TD3Config
from rllib.config.conflicts import Unfit
from rllib.storage.checkpoint import CheckpointError
from tests.envs import BoundedAction, ConstantReward, CountingEnv
from tests.generated import draw
from tests.generated.values import resolved
from tests.multi_agent import NameTheSignal

pytestmark = pytest.mark.usefixtures("workers_know_the_module")


def build(cls=DQNConfig, env=ConstantReward, multi_agent=None, env_config=None, **training):
    config = cls().environment(env, env_config=env_config or {}).rollouts(num_rollout_workers=0).debugging(seed=1)
    memory = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5} if cls is R2D2Config else {}
    if cls is ApexDQNConfig:
        training = {"num_replay_buffer_shards": 2, "n_step": 1, **training}
    config.training(
        model={"fcnet_hiddens": [4], **memory}, hiddens=[], train_batch_size=16,
        num_steps_sampled_before_learning_starts=20, **training,
    ).reporting(min_sample_timesteps_per_iteration=60, min_time_s_per_iteration=0)  # fmt: skip
    return config.multi_agent(**multi_agent or {}).build()


def rows(capacity=200, **more):
    return {"replay_buffer_config": {"capacity": capacity, **more}}


UNIFORM, PRIORITIES = {"type": "ReplayBuffer"}, {"type": "PrioritizedReplayBuffer"}
ALGORITHMS = (DQNConfig, R2D2Config, ApexDQNConfig)


def num_rows(algo):
    """Rows of a replay; shards are asked."""
    return len(discounts(algo))


@pytest.mark.parametrize("cls", ALGORITHMS)
@pytest.mark.parametrize(
    ("saved", "own"),
    [(rows(100), rows(200)), (rows(200), rows(100)), (rows(**UNIFORM), rows()), (rows(90, **UNIFORM), rows(100))],
    ids=str,
)
def test_the_remedy_loads_them(cls, saved, own, tmp_path):
    """One remedy for each setting that differs; the rows of before stay until all fit."""
    with build(cls, **saved) as other:
        other.train()
        path, count = other.save_replay_buffer(tmp_path / "rows"), num_rows(other)
    settings = dict(own["replay_buffer_config"])
    for _ in range(3):
        with build(cls, replay_buffer_config=settings) as algo:
            algo.train()
            before = num_rows(algo)
            try:
                algo.load_replay_buffer(path)
            except Unfit as error:
                assert num_rows(algo) == before
                (remedy,) = error.mistake.remedies
                assert str(remedy["replay_buffer_config"]) in str(error).replace('"', "'")
                settings |= remedy["replay_buffer_config"]
                continue
            assert num_rows(algo) == count
            algo.train()
            return
    raise AssertionError("the remedies do not load the rows")


@pytest.mark.parametrize("cls", ALGORITHMS)
def test_priorities_that_are_too_large_are_refused_before_anything_changes(cls, tmp_path):
    stored = {"store_buffer_in_checkpoints": True}
    with build(cls, replay_buffer_config=PRIORITIES, **stored) as other:
        other.train()
        path, checkpoint = other.save_replay_buffer(tmp_path / "rows"), other.save(tmp_path / "checkpoint")
        count = num_rows(other)
    large = {**PRIORITIES, "prioritized_replay_alpha": 100.0, "prioritized_replay_eps": 1e5}
    with build(cls, replay_buffer_config=large, **stored) as algo:
        weights = algo.get_weights()
        for load in (lambda: algo.load_replay_buffer(path), lambda: algo.restore(checkpoint)):
            with pytest.raises(Unfit, match=r"priorities.* must be at most.*saved with") as refused:
                load()
            assert num_rows(algo) == 0 and algo.iteration == 0
        np.testing.assert_equal(algo.get_weights(), weights)
    (remedy, *_) = refused.value.mistake.remedies
    with build(cls, replay_buffer_config={**PRIORITIES, **remedy["replay_buffer_config"]}) as algo:
        algo.load_replay_buffer(path)
        assert num_rows(algo) == count


@pytest.mark.parametrize(
    ("saved", "own"), [(rows(100), rows(200)), (rows(**UNIFORM), rows()), (rows(90, **UNIFORM), rows(100))], ids=str
)
@pytest.mark.parametrize("remedy", [0, 1])
@pytest.mark.parametrize("cls", ALGORITHMS)
def test_a_run_goes_on_with_them_or_without(cls, saved, own, remedy, tmp_path, caplog):
    """Each remedy for rows of other settings continues the run: the rows' settings, or an empty replay."""
    saved = {"replay_buffer_config": PRIORITIES | saved["replay_buffer_config"]}
    with build(cls, store_buffer_in_checkpoints=True, **saved) as other:
        other.train()
        path, count = other.save(tmp_path / "run"), num_rows(other)
    settings: dict = {"replay_buffer_config": PRIORITIES | own["replay_buffer_config"]}
    for _ in range(3):
        try:
            algo = Algorithm.from_checkpoint(path, settings)
        except Unfit as error:
            chosen = error.mistake.remedies[remedy]
            nested = settings["replay_buffer_config"] | chosen.get("replay_buffer_config", {})
            settings = {**settings, **chosen, "replay_buffer_config": nested}
            continue
        with algo:
            assert num_rows(algo) == (0 if remedy else count)
            assert ("continues with an empty one" in caplog.text) == bool(remedy)
            before = algo.num_updates
            for _ in range(5):  # shards answer when they do
                algo.train()
                if algo.num_updates > before:
                    break
            assert algo.num_updates > before
        return
    raise AssertionError("the remedies do not continue the run")


@pytest.mark.parametrize("own", ALGORITHMS)
@pytest.mark.parametrize("saved", ALGORITHMS)
def test_rows_of_another_algorithm(saved, own, tmp_path):
    """Where no setting helps there is no remedy, and the message speaks of the algorithm."""
    with build(saved, CountingEnv, **rows()) as saving:
        saving.train()
        path = saving.save_replay_buffer(tmp_path / "rows")
    with build(own, CountingEnv, **rows()) as algo:
        if saved is own:
            algo.load_replay_buffer(path)
            return
        with pytest.raises(Unfit, match="algorithm") as failure:
            algo.load_replay_buffer(path)
    assert failure.value.mistake.remedies == ()


@pytest.mark.parametrize("other", [{"env": CountingEnv}, {"env": "CartPole-v1"}], ids=str)
def test_rows_of_another_environment(other, tmp_path):
    with build(**other) as saving:
        saving.train()
        path = saving.save_replay_buffer(tmp_path / "rows")
    with (
        build(env="MountainCar-v0") as algo,
        pytest.raises(ValueError, match=r"other columns .*obs.*begin with an empty"),
    ):
        algo.load_replay_buffer(path)


def test_rows_of_more_steps_are_rows(tmp_path):
    """Each has its own discount, so that rows of another n_step are right."""
    with build(n_step=3, **rows()) as saving:
        saving.train()
        path = saving.save_replay_buffer(tmp_path / "rows")
    with build(n_step=1, **rows()) as algo:
        algo.load_replay_buffer(path)
        discounts = algo.replay.sample(64, np.random.default_rng(0))["discounts"]
        assert np.isin(discounts.round(5), np.array([0, 0.99**3], np.float32).round(5)).all()


SHARDS = {"num_replay_buffer_shards": 1, **rows()}


def discounts(algo, column="discounts"):
    """All saved discounts of a replay, of one shard or none."""
    state = algo.replay.get_state()
    return np.concatenate([state[name].ravel() for name in state if name.endswith(f"columns.{column}")])


@pytest.mark.parametrize(("cls", "more"), [(DQNConfig, rows()), (R2D2Config, rows()), (ApexDQNConfig, SHARDS)])
@pytest.mark.parametrize("by_checkpoint", [True, False])
def test_rows_of_another_gamma(cls, more, by_checkpoint, tmp_path):
    """Single steps are discounted anew: what is learned has one discount, whenever its rows were sampled."""
    more = {"n_step": 1, "store_buffer_in_checkpoints": True, **more}
    with build(cls, CountingEnv, gamma=0.9, **more) as saving:
        saving.train()
        path = saving.save(tmp_path / "run") if by_checkpoint else saving.save_replay_buffer(tmp_path / "rows")
        before = discounts(saving)
    assert set(before) == {np.float32(0), np.float32(0.9)}
    with (
        Algorithm.from_checkpoint(path, {"gamma": 0.5})
        if by_checkpoint
        else build(cls, CountingEnv, gamma=0.5, **more) as algo
    ):
        if not by_checkpoint:
            algo.load_replay_buffer(path)
        np.testing.assert_array_equal(discounts(algo), np.where(before > 0, np.float32(0.5), 0))
        algo.train()
        assert set(discounts(algo)) == {np.float32(0), np.float32(0.5)}


@pytest.mark.parametrize("cls", [DQNConfig, R2D2Config])
@pytest.mark.parametrize(
    ("saved", "own"),
    [({"gamma": 0.9, "n_step": 3}, {"gamma": 0.5, "n_step": 3}), ({"gamma": 0.9, "n_step": 3}, {"gamma": 0.5}),
     ({"gamma": 0.0}, {"gamma": 0.5})],
)  # fmt: skip
def test_returns_of_another_gamma_are_refused(cls, saved, own, tmp_path):
    """Their rewards are summed up already, or nothing says where the task ended."""
    with build(cls, CountingEnv, store_buffer_in_checkpoints=True, **saved) as saving:
        saving.train()
        path, run = saving.save_replay_buffer(tmp_path / "rows"), saving.save(tmp_path / "run")
        before = discounts(saving)
    with build(cls, CountingEnv, **own) as algo:
        with pytest.raises(Unfit, match=r"the saved replay has returns of gamma=") as failure:
            algo.load_replay_buffer(path)
        assert not len(algo.replay)
    assert failure.value.mistake.remedies == ({"gamma": saved["gamma"]},)
    with build(cls, CountingEnv, **own | {"gamma": saved["gamma"]}) as algo:
        algo.load_replay_buffer(path)
        np.testing.assert_array_equal(discounts(algo), before)
    with pytest.raises(Unfit) as failure:
        Algorithm.from_checkpoint(run, own)
    for remedy, count in zip(failure.value.mistake.remedies, (len(before), 0), strict=True):
        with Algorithm.from_checkpoint(run, own | remedy) as algo:
            assert len(discounts(algo)) == count
            algo.train()


# Rows of another n_step are right, each with its own discount; the others make another environment, or another replay.
OTHER_ROWS = ("n_step", "replay_buffer_config", "env_wrappers", "env_to_module_connector", "disturbances")
# Single values of settings that change rows, beside those that are drawn by their declarations.
BY_HAND = [
    ("clip_rewards", True),
    ("clip_rewards", 1.0),
    ("clip_rewards", 5.0),
    ("observation_filter", "MeanStdFilter"),
]
WORLD = {"kind": "single", "observation": "numbers", "action": "discrete"}


def numbered(columns):
    """The different rows, of numbers that are rounded."""
    parts = [columns[name].reshape(len(columns["rewards"]), -1) for name in sorted(columns)]
    return set(map(tuple, np.concatenate(parts, 1).astype(float).round(3).tolist()))


def stored_rows(algo):
    names = ("obs", "new_obs", "rewards", "discounts")
    return numbered({name: algo.replay.get_state()[f"columns.{name}"] for name in names})


def settings_of_runs():
    """(name, value) of settings of DQN, each drawn once by its declaration."""
    config, rng = DQNConfig(), random.Random(3)
    for name in draw.drawable(config, WORLD):
        is_of_rows = config.settings[name].section in ("environment", "rollouts", "training")
        if is_of_rows and name not in (*OTHER_ROWS, *draw._PROCESSES, *config.unused, "env", "sample_async", "model"):
            yield name, draw.value_in(rng, name, config, WORLD)
    yield from BY_HAND


def test_rows_are_what_a_run_with_other_settings_stores(tmp_path):
    """Whatever the setting: rows that are loaded are like the run's own, or are refused with a remedy that helps."""

    def made(**settings):
        config = DQNConfig().environment(CountingEnv).rollouts(num_rollout_workers=0).debugging(seed=1)
        config.training(model={"fcnet_hiddens": [4]}, hiddens=[], num_steps_sampled_before_learning_starts=1000)
        config.reporting(min_sample_timesteps_per_iteration=60, min_time_s_per_iteration=0)
        config.update_from_dict({name: resolved({name: value})[name] for name, value in settings.items()})
        return config.build()

    with made() as saving:
        saving.train()
        path = saving.save_replay_buffer(tmp_path / "rows")
    refused, loaded, left_out, strange = set(), set(), set(), []
    for name, value in settings_of_runs():
        try:
            algo = made(**{name: value})
        except (ValueError, TypeError):
            left_out.add(name)
            continue
        with algo:
            algo.train()
            own = stored_rows(algo)
            try:
                algo.load_replay_buffer(path)
            except Unfit as failure:
                refused.add(name)
                (remedy,) = failure.mistake.remedies
                with made(**{name: value} | remedy) as mended:
                    mended.load_replay_buffer(path)
                continue
            loaded.add(name)
            if others := stored_rows(algo) - own:
                strange.append(f"{name}={value!r}: {sorted(others)[:2]} beside {sorted(own)[:2]}")
    assert not strange
    assert {"clip_rewards", "normalize_returns", "observation_filter", "time_limit_ends_episode"} <= refused
    assert "gamma" in loaded and len(loaded) > 30, f"left out: {left_out}"


@pytest.mark.parametrize(("saved", "own"), [(TD3Config, SACConfig), (SACConfig, TD3Config), (SACConfig, CrossQConfig)])
def test_actions_keep_their_meaning_in_another_algorithm(saved, own, tmp_path):
    """SAC stores them before tanh, TD3 as the critics read them."""

    def made(cls):
        config = cls().environment(BoundedAction).rollouts(num_rollout_workers=0).debugging(seed=1)
        config.training(model={"fcnet_hiddens": [4]}, replay_buffer_config={**UNIFORM, "capacity": 200})
        return config.reporting(min_sample_timesteps_per_iteration=60, min_time_s_per_iteration=0).build()

    def read(algo):
        return algo.get_policy().distribution.for_critics(algo.replay.get_state()["columns.actions"])

    with made(saved) as saving, made(own) as algo:
        saving.train()
        algo.load_replay_buffer(saving.save_replay_buffer(tmp_path / "rows"))
        np.testing.assert_allclose(read(algo), read(saving), atol=1e-6)


@pytest.mark.parametrize("before", [0.9, None])
def test_costs_of_another_gamma(before, tmp_path):
    """Rewards and costs have discounts of their own, or the same one."""
    made = SACConfig().environment("rllib.env.tasks.with_costs.tolled_road:TolledRoad").rollouts(num_rollout_workers=0)
    made.training(cost_limit=5.0, num_steps_sampled_before_learning_starts=200, model={"fcnet_hiddens": [4]})
    made.reporting(min_sample_timesteps_per_iteration=60, min_time_s_per_iteration=0)
    with made.copy(copy_frozen=False).training(gamma=0.8, cost_gamma=before).build() as saving:
        saving.train()
        path = saving.save_replay_buffer(tmp_path / "rows")
    with made.training(gamma=0.7, cost_gamma=0.6).build() as algo:
        algo.load_replay_buffer(path)
        assert set(discounts(algo)) <= {np.float32(0), np.float32(0.7)}
        assert set(discounts(algo, "cost_discounts")) <= {np.float32(0), np.float32(0.6)}


@pytest.mark.parametrize(("saved", "own"), [("own", "shared"), ("shared", "own"), ("own", ["first"])])
def test_rows_of_other_policies(saved, own, tmp_path):
    agents = {"env": NameTheSignal, "env_config": {"sizes": (3, 3)}}
    with build(**agents, multi_agent={"policies": saved}, **rows()) as saving:
        saving.train()
        path = saving.save_replay_buffer(tmp_path / "rows")
    with build(**agents, multi_agent={"policies": own}, **rows()) as algo:
        algo.train()
        before = {policy_id: len(replay) for policy_id, replay in algo.replays.items()}
        with pytest.raises(CheckpointError, match=r"has no rows of|has rows of other policies"):
            algo.load_replay_buffer(path)
        assert before == {policy_id: len(replay) for policy_id, replay in algo.replays.items()}


@pytest.mark.parametrize("cls", [DQNConfig, R2D2Config])
@pytest.mark.parametrize("by_checkpoint", [False, True])
@pytest.mark.parametrize(
    ("setting", "value"), [("clip_rewards", 0.5), ("normalize_returns", True), ("time_limit_ends_episode", True)]
)
@pytest.mark.parametrize("is_saved_with", [False, True])
def test_rows_whose_rewards_or_ends_were_changed_otherwise_are_refused(
    cls, by_checkpoint, setting, value, is_saved_with, tmp_path
):
    """What they were before is lost; the run would learn from two kinds of them."""

    def made(is_set):
        algo = {"store_buffer_in_checkpoints": True}
        built = cls().environment(ConstantReward, **({setting: value} if is_set else {}))
        memory = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5} if cls is R2D2Config else {}
        built.training(model={"fcnet_hiddens": [4], **memory}, hiddens=[], train_batch_size=16, **algo)
        built.training(num_steps_sampled_before_learning_starts=20)
        return built.reporting(min_sample_timesteps_per_iteration=60, min_time_s_per_iteration=0).build()

    with made(is_saved_with) as saving:
        saving.train()
        path = saving.save(tmp_path / "run") if by_checkpoint else saving.save_replay_buffer(tmp_path / "rows")
        count, before = len(saving.replay), saving.config[setting] or False
    for is_set in (is_saved_with, not is_saved_with):
        with made(is_set) as algo:
            load = algo.restore if by_checkpoint else algo.load_replay_buffer
            if is_set == is_saved_with:
                load(path)
                assert len(algo.replay) == count
                continue
            with pytest.raises(Unfit, match=f"the saved replay has rows of {setting}=") as failure:
                load(path)
            assert failure.value.mistake.remedies[0] == {setting: before}


def test_a_run_from_recorded_steps_alone_has_no_rows(tmp_path):
    with build(env="CartPole-v1") as saving:
        saving.train()
        path = saving.save_replay_buffer(tmp_path / "rows")
    data = str(Path(__file__).parents[1] / "data" / "offline" / "cartpole_small.json")
    for source in (data, {"sampler": 0.5, data: 0.5}):
        config = DQNConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).offline_data(input_=source)
        with config.training(model={"fcnet_hiddens": [4]}).build() as algo:
            if source is data:
                with pytest.raises(CheckpointError, match="learns from recorded steps alone"):
                    algo.load_replay_buffer(path)
                with pytest.raises(CheckpointError, match="learns from recorded steps alone"):
                    algo.save_replay_buffer(tmp_path / "none")
            else:
                algo.load_replay_buffer(path)
                algo.save_replay_buffer(tmp_path / "mixed")
