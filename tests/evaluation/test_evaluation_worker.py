"""Evaluation workers: whole episodes, in environments that exist for nothing else."""

import os
import time
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from rllib import DAggerConfig, PPOConfig
from rllib.env.factories.registry import resolve
from rllib.evaluation.evaluator import Duration, EvaluationWorker
from tests.envs import CountingEnv, ProbeEnv
from tests.evaluation.test_rollout_worker import settings


class TellingEnv(CountingEnv):
    """Appends a line to the file `told` each time that one is made: the worker's index, and what for."""

    def __init__(self, config=None):
        super().__init__({"lengths": [5]})
        if config:
            with open(config["told"], "a") as file:
                file.write(f"{config.worker_index} {'evaluation' if config.in_evaluation else 'training'}\n")


def worker(env, **kwargs) -> EvaluationWorker:
    return EvaluationWorker(settings(env, **kwargs))


def test_a_worker_makes_the_environments_of_its_evaluations_alone(tmp_path):
    told = tmp_path / "told"
    told.touch()
    player = EvaluationWorker(replace(settings(TellingEnv, num_envs=3), env_config={"told": str(told)}), 2)
    assert told.read_text() == ""
    player.play_episodes(Duration(6), round_index=1)
    assert told.read_text().splitlines() == ["2 evaluation"] * 3


def test_a_worker_acts_on_the_device_that_it_claims():
    there, here = (EvaluationWorker(settings(CountingEnv, acting_device="cpu"), index) for index in (1, 0))
    assert there.acts_elsewhere and not here.acts_elsewhere
    lengths = [sorted(each.length for each in player.play_episodes(Duration(6), 1)) for player in (there, here)]
    assert lengths[0] == lengths[1] and not there.policy.network.closed_form


def test_evaluation_actors_make_no_training_environments(tmp_path):
    told = tmp_path / "told"
    config = (
        PPOConfig()
        .environment(TellingEnv, env_config={"told": str(told)})
        .rollouts(num_rollout_workers=0, num_envs_per_worker=3)
        .training(model={"fcnet_hiddens": [8]})
        .evaluation(evaluation_num_workers=2, evaluation_duration=6)
    )
    with config.build() as algo:
        told.write_text("")
        for _ in range(2):
            assert algo.evaluate()["episodes_this_iter"] == 6
    assert sorted(told.read_text().splitlines()) == ["1 evaluation"] * 6 + ["2 evaluation"] * 6


class LoggedEnv(CountingEnv):
    """Episodes of different lengths; the file `log` has a line for each reset and step of each environment."""

    def __init__(self, config):
        super().__init__({"lengths": [2, 9, 4]})
        self._log = config["log"]

    def _tell(self, what):
        with open(self._log, "a") as file:
            file.write(f"{os.getpid()} {id(self)} {what}\n")

    def reset(self, **options):
        self._tell("reset")
        return super().reset(**options)

    def step(self, action):
        self._tell("step")
        return super().step(action)


def logged(tmp_path, num_workers, mode, **evaluation):
    return (
        PPOConfig()
        .environment(LoggedEnv, env_config={"log": str(tmp_path / "log")})
        .rollouts(num_rollout_workers=0, gym_env_vectorize_mode=mode)
        .training(model={"fcnet_hiddens": [8]})
        .evaluation(evaluation_num_workers=num_workers, **evaluation)
    )


@pytest.mark.parametrize(("num_workers", "mode"), [(0, "sync"), (2, "sync"), (0, "async")])
@pytest.mark.parametrize("evaluation_config", [{}, {"num_envs_per_worker": 1}, {"num_envs_per_worker": 2}], ids=str)
@pytest.mark.parametrize("unit", ["episodes", "timesteps"])
def test_environments_make_the_steps_that_an_evaluation_reports(tmp_path, num_workers, mode, evaluation_config, unit):
    given = {"evaluation_duration": 5 if unit == "episodes" else 20, "evaluation_duration_unit": unit}
    with logged(tmp_path, num_workers, mode, evaluation_config=evaluation_config, **given).build() as algo:
        (tmp_path / "log").write_text("")
        result = algo.evaluate()
        lines = (tmp_path / "log").read_text().splitlines()
    assert sum(line.endswith("step") for line in lines) == result["timesteps_this_iter"] > 0
    assert sum(line.endswith("reset") for line in lines) == result["episodes_this_iter"]
    at_once = evaluation_config.get("num_envs_per_worker") or (8 if unit == "episodes" else 1)
    count = len({line.rpartition(" ")[0] for line in lines})
    assert count == min(max(num_workers, 1) * at_once, result["episodes_this_iter"])


def test_an_environment_that_cannot_be_made_twice_has_a_remedy(tmp_path):
    class Single(CountingEnv):
        there = 0

        def __init__(self, config):
            super().__init__({"lengths": [3]})
            self._counts = config.in_evaluation
            Single.there += self._counts
            if Single.there > 1:
                raise OSError("the simulator's port is in use")

        def close(self):
            Single.there -= self._counts

    config = PPOConfig().environment(Single).rollouts(num_rollout_workers=0).training(model={"fcnet_hiddens": [8]})
    with config.build() as algo, pytest.raises(OSError, match="port is in use") as raised:
        algo.evaluate(4)
    Single.there = 0
    assert any('evaluation_config={"num_envs_per_worker": 1}' in note for note in raised.value.__notes__)
    with config.copy().evaluation(evaluation_config={"num_envs_per_worker": 1}).build() as algo:
        assert algo.evaluate(4)["episodes_this_iter"] == 4


class LastHasNoAction(CountingEnv):
    """Episodes end with an observation in which no action is legal."""

    def __init__(self, config=None):
        super().__init__({"lengths": [2, 9, 4]})
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Dict(
            {"observation": self.observation_space, "action_mask": gymnasium.spaces.MultiBinary(2)}
        )

    def _with_mask(self, observation, legal):
        return {"observation": observation, "action_mask": np.full(2, legal, np.int8)}

    def reset(self, **options):
        observation, info = super().reset(**options)
        return self._with_mask(observation, True), info

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return self._with_mask(observation, not (terminated or truncated)), reward, terminated, truncated, info


@pytest.mark.parametrize("explore", [False, True])
def test_environments_whose_share_is_over_take_no_action(explore):
    config = PPOConfig().environment(LastHasNoAction).rollouts(num_rollout_workers=0)
    with config.training(model={"fcnet_hiddens": [8]}).build() as algo:
        assert algo.evaluate(5, explore=explore)["episodes_this_iter"] == 5


def test_a_teacher_is_not_asked_about_episodes_that_are_over():
    def teach(observations):
        assert observations["action_mask"].any(axis=-1).all()
        return np.zeros(len(observations["action_mask"]), np.int64)

    config = DAggerConfig().environment(LastHasNoAction).rollouts(num_rollout_workers=0)
    config.training(teacher=teach, train_batch_size=40, sgd_minibatch_size=20, model={"fcnet_hiddens": [8]})
    with config.evaluation(evaluate_teacher=True, evaluation_duration=5).build() as algo:
        algo.train()


class EndsWithNaN(CountingEnv):
    """Observations that are not finite end episodes; the first steps, which are checked, have none."""

    steps = 0

    def __init__(self, config=None):
        super().__init__({"lengths": [11, 13, 12]})

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return np.full_like(observation, np.nan) if terminated else observation, reward, terminated, truncated, info


def test_what_an_environment_at_rest_shows_is_not_checked():
    config = PPOConfig().environment(EndsWithNaN, disable_env_checking=True).rollouts(num_rollout_workers=0)
    config.environment(observation_space=EndsWithNaN().observation_space, action_space=EndsWithNaN().action_space)
    with config.training(model={"fcnet_hiddens": [8]}).build() as algo:
        assert algo.evaluate(5)["episodes_this_iter"] == 5


class TellsItsSeed(CountingEnv):
    """The return of an episode is a number that its seed has drawn."""

    def __init__(self, config=None):
        super().__init__({"lengths": [1]})

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        self._drawn = self.np_random.random()
        return observation, info

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self._drawn, *rest


@pytest.mark.parametrize(("num_workers", "episodes"), [(0, 9), (2, 5), (2, 9), (3, 10)])
@pytest.mark.parametrize("evaluation_config", [{}, {"num_envs_per_worker": 2}], ids=str)
def test_no_episode_of_an_evaluation_is_played_twice(num_workers, episodes, evaluation_config):
    config = PPOConfig().environment(TellsItsSeed).rollouts(num_rollout_workers=0)
    config.training(model={"fcnet_hiddens": [8]})
    config.evaluation(evaluation_num_workers=num_workers, evaluation_config=evaluation_config)
    with config.build() as algo:
        returns = algo.evaluate(episodes)["hist_stats"]["episode_reward"]
    assert len(set(returns)) == episodes


def test_evaluation_plays_every_episode_to_its_end():
    player = worker(CountingEnv)
    episodes = player.play_episodes(Duration(20), round_index=1)
    assert len(episodes) == 20
    assert {episode.length for episode in episodes} <= {3, 5, 4}
    again = player.play_episodes(Duration(20), round_index=1)
    assert [e.episode_return for e in episodes] == [e.episode_return for e in again]
    with pytest.raises(ValueError, match="an evaluation lasts at least one of its episodes, but 0 were given"):
        player.play_episodes(Duration(0), round_index=1)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("amount", [1, 50, 75, 300])
def test_steps_are_exceeded_by_one_episode_an_environment_at_most(num_envs, amount):
    player = EvaluationWorker(replace(settings(CountingEnv, num_envs=num_envs), env_config={"lengths": [50]}))
    steps = sum(episode.length for episode in player.play_episodes(Duration(amount, "timesteps"), round_index=1))
    assert amount <= steps < amount + 50 * num_envs


@pytest.mark.parametrize("num_envs", [1, 3])
def test_seconds_are_exceeded_by_one_episode_an_environment_at_most(num_envs):
    """What evaluation_duration="auto" asks for: time that is over at once leaves the episodes that have begun."""
    player = EvaluationWorker(replace(settings(CountingEnv, num_envs=num_envs), env_config={"lengths": [50]}))
    episodes = player.play_episodes(Duration(1e-9, "seconds"), round_index=1)
    assert [episode.length for episode in episodes] == [50] * num_envs


def test_vector_environments_play_evaluations_with_their_own_number():
    def make(config):
        return gymnasium.vector.SyncVectorEnv([CountingEnv] * 4)

    player = EvaluationWorker(replace(settings(CountingEnv, num_envs=4), env=resolve(make)))
    assert len(player.play_episodes(Duration(10), round_index=1)) == 10
    assert len(player.play_episodes(Duration(3), round_index=1)) == 3


def test_waiting_for_an_episode_without_end_is_told(caplog):
    class Endless(CountingEnv):
        def step(self, action):
            observation, reward, _, _, info = super().step(action)
            ended = self.t > 3000
            return observation, reward, ended, False, info

    player = worker(Endless, sample_timeout_s=0.01)
    player.play_episodes(Duration(2), round_index=1)
    assert "the evaluation waits for the end of episodes in environments [0, 1]" in caplog.text
    assert "needs a time limit" in caplog.text


class Late(ProbeEnv):
    """Observations follow the space for ten steps; then comes `late`. An episode has 20 steps."""

    def __init__(self, config=None):
        super().__init__(config)
        self.observation_space = self.config["space"]

    def shown(self):
        return self.config["late"] if self.t >= 10 else self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown(), {}

    def step(self, action):
        self.t += 1
        return self.shown(), 1.0, self.t == 20, False, {}


BOX = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


def plays(space, late):
    return worker(Late, env_config={"space": space, "late": late}).play_episodes(Duration(2), round_index=1)


@pytest.mark.parametrize(
    ("space", "late", "problem"),
    [
        (BOX, np.array([0, np.nan], np.float32), r"observation\[1\] is nan"),
        (gymnasium.spaces.Box(-np.inf, np.inf, (1,)), np.array([np.inf], np.float32), r"\[inf\] is not finite"),
        (gymnasium.spaces.Discrete(5), 7, r"7 lies above the upper bound 4 of Discrete\(5\)"),
        (gymnasium.spaces.Dict({"a": BOX}), {"a": np.array([np.nan, 0], np.float32)}, r"observation\[0\] is nan"),
    ],
)
def test_an_observation_that_means_nothing_ends_the_evaluation(space, late, problem):
    with pytest.raises(ValueError, match=rf"environment 0 of evaluation worker 0: the .*{problem}.*, after 10 steps"):
        plays(space, late)


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.MultiBinary(3),
        gymnasium.spaces.MultiDiscrete([1, 1]),
        gymnasium.spaces.Box(0, 255, (2, 2), np.uint8),
        gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(3, start=-1), BOX)),
    ],
)
def test_observations_of_their_space_are_nothing_to_tell(space, caplog):
    assert len(plays(space, space.sample())) == 2
    assert not caplog.text


def test_an_observation_beyond_its_bounds_is_told_once(caplog):
    assert len(plays(BOX, np.array([0, 50], np.float32))) == 2
    assert caplog.text.count("observation[1] = 50.0 lies above the upper bound 1.0") == 1


class Hanging(CountingEnv):
    def step(self, action):
        if self.t == 2:
            time.sleep(1.0)
        return super().step(action)


def test_an_environment_that_hangs_in_evaluation_is_told_in_time(caplog):
    worker(Hanging, sample_timeout_s=0.1).play_episodes(Duration(1), round_index=1)
    told = [record for record in caplog.records if "for one step of its environments; does one hang?" in record.message]
    assert told
    assert "time.sleep(1.0)" in told[0].message
    assert told[0].args[1] < 1.0, "seconds that the step had taken"


def test_steps_that_go_on_are_no_hang(caplog):
    class Slow(CountingEnv):
        def step(self, action):
            time.sleep(0.02)
            return super().step(action)

    worker(Slow, env_config={"lengths": [60]}, sample_timeout_s=2.0).play_episodes(Duration(2), round_index=1)
    assert "does one hang" not in caplog.text
