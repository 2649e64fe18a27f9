"""Vector environments by Stable-Baselines3's names, and algorithms that sample from the objects themselves."""

import csv

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rllib.compat.programs.sb3.environments import make_vec_env
from rllib.compat.programs.sb3.models import PPO
from rllib.env.vec_env.base import DummyVecEnv, VecEnvWrapper
from rllib.env.vec_env.given_vector import GivenVector, InPlace
from rllib.env.vec_env.monitor import Monitor
from rllib.env.vec_env.subproc_vec_env import SubprocVecEnv
from rllib.env.vec_env.vec_normalize import RunningMeanStd, VecNormalize, sync_envs_normalization
from rllib.env.vec_env.wrappers import (
    VecCheckNan,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecTransposeImage,
)


class Counter(gym.Env):
    """The observation is the number of steps; an episode ends after `length`, by termination or truncation."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0, 99, (1,), np.float32)

    def __init__(self, length=3, truncates=False):
        self.length, self.truncates, self.level = length, truncates, 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observation(), {"seed": seed, "options": options}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.length
        return self._observation(), 1.0, over and not self.truncates, over and self.truncates, {"steps": self.steps}

    def _observation(self):
        return np.full(1, self.steps, np.float32)

    def action_masks(self):
        return np.array([True, False])

    def set_level(self, level):
        self.level = level
        return level


def numbers(observations):
    return np.asarray(observations).reshape(-1).tolist()


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_episodes_of_vectors(kind):
    venv = kind([lambda: Counter(2), lambda: Counter(3, truncates=True)])
    try:
        venv.seed(7)
        venv.set_options({"a": 1})
        assert numbers(venv.reset()) == [0, 0]
        assert [info["seed"] for info in venv.reset_infos] == [7, 8]
        assert venv.reset_infos[0]["options"] == {"a": 1}
        venv.step([0, 0])
        observations, rewards, dones, infos = venv.step([0, 0])
        assert numbers(observations) == [0, 2] and dones.tolist() == [True, False]
        assert numbers(infos[0]["terminal_observation"]) == [2] and not infos[0]["TimeLimit.truncated"]
        observations, rewards, dones, infos = venv.step([0, 0])
        assert numbers(observations) == [1, 0] and dones.tolist() == [False, True]
        assert infos[1]["TimeLimit.truncated"] and rewards.dtype == np.float32
        assert venv.env_method("set_level", 4) == [4, 4] and venv.get_attr("level", indices=1) == [4]
        venv.set_attr("level", 5, indices=[0])
        assert venv.get_attr("level") == [5, 4] and venv.has_attr("level") and not venv.has_attr("nothing")
        assert venv.env_is_wrapped(Monitor) == [False, False]
        with pytest.raises(ValueError, match="2 environments"):
            venv.step([0])
    finally:
        venv.close()


def test_an_error_in_a_process_reaches_the_program():
    def fails():
        raise KeyError("the constructor's own")

    with pytest.raises(KeyError, match="constructor's own"):
        SubprocVecEnv([fails])


def test_running_moments_are_those_of_all_values():
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 2.0, (40, 5))
    moments = RunningMeanStd(epsilon=1e-12, shape=(5,))
    for part in np.split(values, [1, 7, 30]):
        moments.update(part)
    np.testing.assert_allclose(moments.mean, values.mean(axis=0))
    np.testing.assert_allclose(moments.var, values.var(axis=0))


def test_normalised_observations_and_rewards(tmp_path):
    venv = VecNormalize(DummyVecEnv([lambda: Counter(3)] * 2), gamma=0.5, clip_obs=5.0)
    venv.reset()
    returns, seen = np.zeros(2), [0.0, 0.0]
    for _ in range(5):
        observations, rewards, dones, _ = venv.step([0, 0])
        seen += numbers(venv.get_original_obs())
        returns = returns * 0.5 + 1
        expected = 1 / np.sqrt(venv.ret_rms.var + venv.epsilon)
        np.testing.assert_allclose(rewards, np.clip(expected, -10, 10), rtol=1e-6)
        returns[dones] = 0
        np.testing.assert_allclose(venv.returns, returns)
    assert venv.obs_rms.mean == pytest.approx(np.mean(seen), rel=1e-3)
    np.testing.assert_allclose(venv.unnormalize_obs(observations), venv.get_original_obs(), atol=1e-5)
    venv.save(tmp_path / "statistics.pkl")
    again = VecNormalize.load(tmp_path / "statistics.pkl", DummyVecEnv([lambda: Counter(3)]))
    assert (again.obs_rms.mean, again.obs_rms.count) == (venv.obs_rms.mean, venv.obs_rms.count)
    assert (again.gamma, again.clip_obs, again.num_envs) == (0.5, 5.0, 1)
    again.training = False
    before = again.obs_rms.count
    again.reset()
    assert again.obs_rms.count == before
    other = VecNormalize(DummyVecEnv([lambda: Counter(3)]))
    sync_envs_normalization(venv, other)
    assert other.obs_rms.mean == venv.obs_rms.mean and other.obs_rms is not venv.obs_rms
    with pytest.raises(ValueError, match="Wrap it"):
        sync_envs_normalization(venv, DummyVecEnv([lambda: Counter(3)]))


def test_stacks_begin_with_zeros_and_keep_the_final_observation():
    venv = VecFrameStack(DummyVecEnv([lambda: Counter(3)]), n_stack=3)
    assert numbers(venv.reset()) == [0, 0, 0]
    assert numbers(venv.step([0])[0]) == [0, 0, 1]
    assert numbers(venv.step([0])[0]) == [0, 1, 2]
    observations, _, _, infos = venv.step([0])
    assert numbers(infos[0]["terminal_observation"]) == [1, 2, 3] and numbers(observations) == [0, 0, 0]


class Picture(gym.Env):
    observation_space = spaces.Dict({"picture": spaces.Box(0, 255, (4, 5, 3), np.uint8), "at": spaces.Box(0, 1, (2,))})
    action_space = spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return self._observation(), {}

    def step(self, action):
        return self._observation(), np.nan, True, False, {}

    def _observation(self):
        return {"picture": np.arange(60, dtype=np.uint8).reshape(4, 5, 3), "at": np.array([0, 0.5], np.float32)}


def test_wrappers_that_change_observations():
    venv = VecTransposeImage(DummyVecEnv([Picture]))
    assert venv.observation_space["picture"].shape == (3, 4, 5)
    observations = venv.reset()
    assert observations["picture"][0, 1].tolist() == np.arange(60).reshape(4, 5, 3)[..., 1].tolist()
    assert venv.step([0])[3][0]["terminal_observation"]["picture"].shape == (3, 4, 5)
    part = VecExtractDictObs(DummyVecEnv([Picture]), "at")
    assert part.reset().shape == (1, 2) and part.step([0])[3][0]["terminal_observation"].shape == (2,)
    with pytest.raises(ValueError, match="nan in rewards"):
        VecCheckNan(DummyVecEnv([Picture]), raise_exception=True).step([0])


def test_monitors_count_episodes_and_write_them(tmp_path):
    venv = make_vec_env(Counter, n_envs=2, monitor_dir=str(tmp_path), env_kwargs={"length": 2})
    venv = VecMonitor(venv, str(tmp_path / "all"))
    venv.reset()
    venv.step([0, 0])
    infos = venv.step([0, 0])[3]
    assert [(info["episode"]["r"], info["episode"]["l"]) for info in infos] == [(2.0, 2), (2.0, 2)]
    venv.close()
    for name, rows in (("0.monitor.csv", 1), ("1.monitor.csv", 1), ("all.monitor.csv", 2)):
        lines = (tmp_path / name).read_text().splitlines()
        assert lines[0].startswith('#{"t_start"') and lines[1] == "r,l,t"
        assert [row["l"] for row in csv.DictReader(lines[1:])] == ["2"] * rows
    Monitor(Counter(1), f"{tmp_path}/new/logs/").close()  # a directory that is not there yet
    assert [path.name for path in (tmp_path / "new/logs").iterdir()] == ["monitor.csv"]
    monitor = Monitor(Counter(1), allow_early_resets=False)
    monitor.reset()
    with pytest.raises(RuntimeError, match="allow_early_resets"):
        monitor.reset()
    monitor.step(0)
    with pytest.raises(RuntimeError, match="without a reset"):
        monitor.step(0)


def test_a_given_vector_tells_termination_from_truncation():
    place = InPlace(DummyVecEnv([lambda: Counter(2), lambda: Counter(2, truncates=True)]), takes_seeds=True, masks=True)
    place.steps = []
    vector = GivenVector(place)
    _, infos = vector.reset(seed=3)
    assert infos["action_mask"].tolist() == [[1, 0], [1, 0]]
    vector.step(np.array([0, 1]))
    observations, _, terminated, truncated, infos = vector.step(np.array([0, 1]))
    assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, True])
    assert [numbers(each) for each in infos["final_obs"]] == [[2], [2]] and numbers(observations) == [0, 0]
    assert [step["actions"].tolist() for step in place.steps] == [[0, 1], [0, 1]]
    assert numbers(place.steps[1]["obs"]) == [1, 1] and numbers(place.steps[1]["new_obs"]) == [0, 0]
    vector.close()
    assert numbers(place.venv.step([0, 0])[0]) == [1, 1]  # the program's environment is open


class Doubled(VecEnvWrapper):
    """A wrapper of a program: rewards are doubled."""

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, 2 * rewards, dones, infos


def test_an_algorithm_samples_from_the_object_itself():
    venv = Doubled(VecMonitor(DummyVecEnv([lambda: Counter(4)] * 2)))
    seen = []

    def look(variables, _):
        seen.append((variables["rewards"].tolist(), [info["steps"] for info in variables["infos"]]))

    with PPO("MlpPolicy", venv, n_steps=8, batch_size=16) as model:
        assert model.get_env() is venv and model.env is venv
        model.learn(32, callback=look)
        assert [rewards for rewards, _ in seen] == [[2.0, 2.0]] * 16
        assert [steps[0] for _, steps in seen] == [1, 2, 3, 4] * 4
        assert venv.unwrapped.envs[0].steps == 0 and len(model.ep_info_buffer) == 8
        assert {(each["r"], each["l"]) for each in model.ep_info_buffer} == {(4.0, 4)}
        other = DummyVecEnv([lambda: Counter(2)] * 2)
        model.set_env(other)
        model.learn(16, reset_num_timesteps=False)
        assert model.get_env() is other and model.num_timesteps == 48
        with pytest.raises(ValueError, match="2 environments"):
            model.set_env(Counter(2))
        with pytest.raises(ValueError, match="observation_space"):
            model.set_env(DummyVecEnv([lambda: gym.make("CartPole-v1")] * 2))
