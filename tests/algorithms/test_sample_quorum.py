"""With `sample_quorum` a round goes on without its slowest workers, whose fragments join a later one."""

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rllib import (
    A2CConfig,
    A3CConfig,
    AIRLConfig,
    AMPConfig,
    APPOConfig,
    GAILConfig,
    IMPALAConfig,
    PGConfig,
    PPOConfig,
    TRPOConfig,
)
from rllib import sample_batch as sb
from tests.algorithms.algorithm_support import learner_stats, train, train_until, worker_pids

pytestmark = pytest.mark.usefixtures("workers_know_the_module")

F = 10  # steps of a fragment
STRAGGLER = 1
WAIT_S = 20.0


class Counting(gymnasium.Env):
    """Shows (worker, number of the step); worker 1 makes its step `stops_at` only when the file `goes_on` is there."""

    observation_space = gymnasium.spaces.Box(0, 1e6, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config):
        self._config, self._worker, self._steps = config, config.worker_index, 0

    def _observation(self):
        return np.array([self._worker, self._steps], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        if self._worker == STRAGGLER and self._steps == self._config["stops_at"]:
            ends = time.monotonic() + WAIT_S
            while not Path(self._config["goes_on"]).exists() and time.monotonic() < ends:
                time.sleep(0.005)
        self._steps += 1
        return self._observation(), 1.0, self._steps % 7 == 0, False, {"cost": 0.5}


def build(tmp_path, config=None, workers=2, quorum=0.5, stops_at=0, **more):
    config = (
        (config or PPOConfig())
        .copy()
        .environment(
            Counting, env_config={"stops_at": stops_at, "goes_on": str(tmp_path / "goes_on")}, disable_env_checking=True
        )
    )
    config.rollouts(num_rollout_workers=workers, rollout_fragment_length=F, sample_quorum=quorum, **more)
    config.training(train_batch_size=F * config.workers_per_round, model={"fcnet_hiddens": [8]}).debugging(seed=3)
    if "num_sgd_iter" in config.settings:
        config.training(num_sgd_iter=1, sgd_minibatch_size=F)
    return config.reporting(min_time_s_per_iteration=0).build()


def let_go(tmp_path):
    (tmp_path / "goes_on").touch()


def recorded(algo) -> list[list]:
    """The (batch, report) of each round from now on."""
    rounds, sample_round = [], algo._sample_round

    def record():
        rounds.append([(batch.copy(), report) for batch, report in sample_round()])
        return rounds[-1]

    algo._sample_round = record
    return rounds


def steps_of(rounds, worker: int) -> list[int]:
    """Numbers of a worker's steps in the order in which they arrived."""
    rows = np.concatenate([batch[sb.OBS] for fragments in rounds for batch, _ in fragments])
    return [int(step) for index, step in rows if index == worker]


CONFIGS = {"PPO": PPOConfig(), "A2C": A2CConfig(), "PG": PGConfig(), "TRPO": TRPOConfig()}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_round_goes_on_without_a_straggler_whose_rows_arrive_later_and_once(name, tmp_path):
    with build(tmp_path, CONFIGS[name]) as algo:
        rounds = recorded(algo)
        result = train(algo, 3)
        assert result["info"]["num_late_fragments"] == 0 and result["num_env_steps_sampled"] == 3 * F
        assert steps_of(rounds, STRAGGLER) == [] and result["num_in_flight_async_reqs"] == 1
        let_go(tmp_path)
        result = train_until(algo, lambda result: result["info"]["num_late_fragments"])
        assert learner_stats(result)["policy_lag_updates"] == algo.num_updates - 1
        result = train(algo, 5)
        for worker in (1, 2):
            steps = steps_of(rounds, worker)
            assert steps == list(range(len(steps))) and len(steps) >= F
        assert result["num_env_steps_sampled"] == sum(len(steps_of(rounds, worker)) for worker in (1, 2))
        late = [report.rounds_late > 0 for fragments in rounds for _, report in fragments]
        assert result["info"]["num_late_fragments"] == sum(late)


DEMONSTRATED = {
    "obs": np.tile(np.arange(7, dtype=np.float32)[:, None], (3, 2)), "actions": np.zeros(21, int),
    "terminateds": np.arange(21) % 7 == 6,
}  # fmt: skip
# Whatever else changes the loss, or makes it.
CHANGED = {
    **CONFIGS,
    "PPO with costs": PPOConfig().training(cost_limit=1.0),
    "PPO with a warm-up": PPOConfig().training(actor_warmup_updates=1),
    "PPO with a teacher": PPOConfig().training(teacher=lambda seen: np.zeros(len(seen), int), teacher_coeff=0.1),
    **{
        f"{config.algorithm_name} beside cloning": config.training(bc_coeff=0.1).offline_data(
            demonstrations=DEMONSTRATED
        )
        for config in (GAILConfig(), AIRLConfig(), AMPConfig())
    },
}


@pytest.mark.parametrize("name", CHANGED)
def test_late_rows_of_other_weights_are_learned_from(name, tmp_path):
    """The check that the newest weights have acted is off, however the loss is made."""
    config = CHANGED[name].copy().training(lr=0.03)
    with build(tmp_path, config) as algo:
        train(algo, 3)
        let_go(tmp_path)
        result = train_until(algo, lambda result: result["info"]["num_late_fragments"])
        assert learner_stats(result)["policy_lag_updates"] >= 3


def test_late_rows_have_the_probabilities_and_values_of_the_policy_that_acted(tmp_path):
    with build(tmp_path, PPOConfig().training(lr=0.05)) as algo:
        rounds, weights = recorded(algo), {}
        while not any(report.rounds_late for fragments in rounds for _, report in fragments):
            weights[algo.num_updates] = algo.get_weights()
            algo.train()
            if len(weights) == 3:
                let_go(tmp_path)
        late = next(batch for fragments in rounds for batch, report in fragments if report.rounds_late)
        assert late.policy_version == 0
        errors = {}
        for version in (0, 2):
            algo.set_weights(weights[version])
            now = algo.policy.distribution.at(algo.policy.dist_inputs(late[sb.OBS]))
            errors[version] = np.abs(now.log_prob(late[sb.ACTIONS]) - late[sb.ACTION_LOGP]).max()
            values = np.abs(algo.policy.values(late[sb.OBS]) - late[sb.VF_PREDS]).max()
            assert (values < 1e-5) == (version == 0)
        assert errors[0] < 1e-5 < errors[2]


def test_the_trust_region_is_around_the_present_policy(tmp_path):
    with build(tmp_path, TRPOConfig().training(lr=0.0)) as algo:
        steps, region = [], algo.trainee.region.step
        algo.trainee.region.step = lambda batch, **settings: steps.append(batch) or region(batch, **settings)
        train(algo, 3)
        let_go(tmp_path)
        is_late, before = False, None
        while not is_late:
            before = algo.get_weights()
            is_late = train(algo, 1)["info"]["num_late_fragments"] > 0
        algo.set_weights(before)
        expected = algo.policy.dist_inputs(steps[-1][sb.OBS])
        np.testing.assert_allclose(steps[-1][sb.ACTION_DIST_INPUTS], expected, atol=1e-5)


def test_what_late_workers_have_seen_counts_once_when_it_arrives(tmp_path):
    config = PPOConfig().environment(normalize_returns=True)
    with build(tmp_path, config, observation_filter="MeanStdFilter") as algo:
        train(algo, 2)
        let_go(tmp_path)
        train_until(algo, lambda result: result["info"]["num_late_fragments"])
        result = train(algo, 3)
        state = algo.policy.filter.get_state()
    num_steps, count = result["num_env_steps_sampled"], float(state["count"])
    of_second = round((state["mean"][0] - 1) * count)
    observations = {1: int(count) - of_second, 2: of_second}  # by worker: those of its steps, and the next one
    assert count == num_steps + 2 and all(number % F == 1 for number in observations.values())
    seen = np.array([(worker, step) for worker, number in observations.items() for step in range(number)], np.float64)
    np.testing.assert_allclose(state["mean"], seen.mean(0))
    np.testing.assert_allclose(state["m2"], np.square(seen - seen.mean(0)).sum(0))
    assert algo.trainee.return_scale.get_state()["count"] == num_steps
    assert result["episodes_total"] == sum((number - 1) // 7 for number in observations.values())


def test_a_worker_that_dies_is_replaced_and_the_round_goes_on(tmp_path):
    with build(tmp_path, stops_at=F) as algo:
        pids = worker_pids(algo)
        rounds = recorded(algo)
        train_until(algo, lambda result: len(steps_of(rounds, STRAGGLER)) == F)
        train(algo, 1)  # it has its next request, and stops
        os.kill(pids[0], signal.SIGKILL)
        result = train_until(algo, lambda result: result["num_remote_worker_restarts"] == 1)
        assert result["num_healthy_workers"] == 2
        assert steps_of(rounds, STRAGGLER) == list(range(F)), "what was under way is lost"
        train_until(algo, lambda result: len(steps_of(rounds, STRAGGLER)) == 2 * F)
        assert steps_of(rounds, STRAGGLER) == [*range(F)] * 2, "its successor begins with episodes of its own"


@pytest.mark.parametrize("forgets", ["restore", "set_weights"])
def test_fragments_of_other_weights_are_forgotten(forgets, tmp_path):
    with build(tmp_path, stops_at=F) as algo:
        rounds = recorded(algo)
        train_until(algo, lambda result: len(steps_of(rounds, STRAGGLER)) == F)
        train(algo, 1)
        let_go(tmp_path)
        if forgets == "restore":
            algo.restore(algo.save(tmp_path / "saved"))
        else:
            algo.set_weights(algo.get_weights())
        assert algo.workers.num_in_flight == 0
        seen = len(rounds)
        late = train(algo, 1)["info"]["num_late_fragments"]
        train_until(algo, lambda result: steps_of(rounds[seen:], STRAGGLER))
        first = next(r for fragments in rounds[seen:] for batch, r in fragments if batch[sb.OBS][0, 0] == STRAGGLER)
        assert late == 0 or first.rounds_late < len(rounds) - seen + 1


def test_the_fragments_of_a_quorum_fill_a_train_batch():
    def config(size, workers, quorum, **more):
        made = PPOConfig().environment("CartPole-v1").training(train_batch_size=size)
        return made.rollouts(num_rollout_workers=workers, sample_quorum=quorum, num_envs_per_worker=2, **more)

    automatic = config(1000, 8, 0.75)
    automatic.validate()
    assert [automatic.get_rollout_fragment_length(index) for index in range(9)] == [84] * 9  # 1000 / (6 x 2)
    assert (automatic.workers_per_round, automatic.min_train_batch) == (6, 1000)
    assert config(1000, 20, 0.55).workers_per_round == 11
    assert config(1000, 8, 1.0).get_rollout_fragment_length(8) == 62
    config(1200, 8, 0.75, rollout_fragment_length=100).validate()
    with pytest.raises(ValueError, match=r"6 workers \(of 8 by sample_quorum=0.75\) x 2 envs = 1200"):
        config(1600, 8, 0.75, rollout_fragment_length=100).validate()


def test_one_waits_for_all_as_without_the_setting(tmp_path):
    let_go(tmp_path)

    def weights(**quorum):
        with build(tmp_path, **quorum) as algo:
            result = train(algo, 4)
            assert "num_late_fragments" not in result["info"]
            assert algo.config.is_frozen and result["num_in_flight_async_reqs"] == 0
            return algo.policy.weights.copy()

    default = PPOConfig.settings["sample_quorum"].default
    assert default == 1.0
    np.testing.assert_array_equal(weights(quorum=1.0), weights(quorum=default))


@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan")])
def test_shares_are_above_0_and_at_most_1(share):
    with pytest.raises(ValueError, match="sample_quorum"):
        PPOConfig().environment("CartPole-v1").rollouts(sample_quorum=share).validate()


@pytest.mark.parametrize("config_class", [IMPALAConfig, APPOConfig, A3CConfig])
def test_algorithms_without_rounds_refuse_it(config_class):
    with pytest.raises(ValueError, match=r"sample_quorum=0.5: .* as they arrive, without rounds"):
        config_class().environment("CartPole-v1").rollouts(sample_quorum=0.5).validate()


def test_without_workers_it_has_no_effect_and_that_is_said():
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0, sample_quorum=0.5)
    assert config.why_without_effect("sample_quorum") == "num_rollout_workers=0"
    assert config.get_rollout_fragment_length() == config.train_batch_size and not config.leaves_stragglers
