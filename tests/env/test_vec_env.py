"""Vector environments in Stable-Baselines3's form, and what algorithms make of them."""

import gymnasium
import numpy as np
import pytest

import rllib
from rllib import notices
from rllib.env.factories.registry import EnvContext, resolve
from rllib.env.spaces.batches import batch_of, rows_of
from rllib.env.vec_env import DummyVecEnv, make_vec_env
from rllib.env.vec_env.given import as_vec_env, settings_of
from tests.envs import ConstantReward, CountingEnv, GoalOnALine, Team, nth_sample


class Drawn(CountingEnv):
    """Draws a picture of one colour."""

    render_mode = "rgb_array"

    def __init__(self, colour=1):
        super().__init__()
        self.colour = colour

    def render(self):
        return np.full((2, 3, 3), self.colour, np.uint8)

    def double(self, number):
        return 2 * number


def test_episodes_begin_anew_by_themselves():
    env = DummyVecEnv([CountingEnv, lambda: CountingEnv({"lengths": [2]})])
    assert env.num_envs == 2 and env.observation_space.shape == (1,)
    np.testing.assert_array_equal(env.reset(), [[0], [0]])
    observations, rewards, dones, infos = env.step([0, 0])
    np.testing.assert_array_equal(observations, [[1], [1]])
    assert rewards.tolist() == [1, 1] and rewards.dtype == np.float32 and dones.tolist() == [False, False]
    observations, rewards, dones, infos = env.step([0, 0])
    np.testing.assert_array_equal(observations, [[2], [0]])
    assert dones.tolist() == [False, True]
    assert infos[1]["terminal_observation"].tolist() == [2] and not infos[1]["TimeLimit.truncated"]
    env.step([0, 0])
    *_, infos = env.step([0, 0])
    assert infos[1]["TimeLimit.truncated"]
    env.close()


def test_observations_are_copies_in_the_structure_of_the_space():
    env = DummyVecEnv([lambda: GoalOnALine({"start": (0.0, 0.5)})] * 1)
    first = env.reset()
    assert set(first) == {"observation", "achieved_goal", "desired_goal"} and first["observation"].shape == (1, 1)
    kept = first["observation"].copy()
    env.step(np.ones((1, 1), np.float32))
    np.testing.assert_array_equal(first["observation"], kept)
    team = DummyVecEnv([Team, Team, Team])
    assert [part.shape for part in team.reset()] == [(3, 1), (3, 1)]


def test_seeds_are_those_of_the_next_reset():
    def first(seed):
        env = make_vec_env("CartPole-v1", n_envs=2, seed=seed)
        return env.reset(), env.reset()

    (one, after), (again, after_again) = first(3), first(3)
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(after, after_again)
    assert not np.array_equal(one[0], one[1]) and not np.array_equal(one, after)
    np.testing.assert_array_equal(one[1], gymnasium.make("CartPole-v1").reset(seed=4)[0])


def test_environments_are_reached_through_their_wrappers():
    env = make_vec_env(Drawn, n_envs=2, wrapper_class=gymnasium.wrappers.TimeLimit,
                       wrapper_kwargs={"max_episode_steps": 2})  # fmt: skip
    assert env.get_attr("colour") == [1, 1] and env.has_attr("colour") and not env.has_attr("shade")
    env.set_attr("colour", 5, indices=1)
    assert env.get_attr("colour") == [1, 5] and env.get_attr("colour", indices=[1]) == [5]
    assert env.env_method("double", 4) == [8, 8]
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [True, True]
    assert env.env_is_wrapped(gymnasium.wrappers.ClipReward, indices=0) == [False]
    env.reset()
    env.step([0, 0])
    assert env.step([0, 0])[2].tolist() == [True, True]
    picture = env.render()
    assert picture.shape == (2, 6, 3) and picture[0, 0, 0] == 1 and picture[0, 5, 0] == 5
    assert env.render("human") is None


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: DummyVecEnv([]), ValueError, "at least one function"),
        (lambda: DummyVecEnv([CountingEnv()]), TypeError, r"takes functions .* Use DummyVecEnv\(\[lambda: env\]\)"),
        (lambda: make_vec_env("CartPole-v1", n_envs=0), ValueError, "n_envs=0 must be an integer >= 1"),
        (lambda: DummyVecEnv([CountingEnv]).step([0, 1]), ValueError, "1 environments take as many actions, but got 2"),
        (lambda: as_vec_env(gymnasium.make_vec("CartPole-v1")), TypeError, "is a vector environment of gymnasium"),
        (lambda: settings_of(gymnasium.make_vec("CartPole-v1")), TypeError, "Give the id or the class of one"),
    ],
)
def test_wrong_use_says_what_to_do(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_one_environment_is_not_two():
    env = CountingEnv()
    with pytest.raises(ValueError, match="two of the functions return one and the same environment"):
        DummyVecEnv([lambda: env, lambda: env]).reset()


# ---------------------------------------------------------------------- for algorithms


def made_by(settings, index=0):
    return resolve(settings["env"]).make(EnvContext(settings.get("env_config"), vector_index=index))


def test_what_gymnasium_makes_is_named_by_its_id():
    assert settings_of("CartPole-v1") == {"env": "CartPole-v1"}
    assert settings_of(CountingEnv) == {"env": CountingEnv}
    assert settings_of(None) == {}
    assert settings_of(gymnasium.make("CartPole-v1")) == {"env": "CartPole-v1", "env_config": {}}
    given = settings_of(gymnasium.make("Pendulum-v1", g=9.0, max_episode_steps=50))
    assert given == {"env": "Pendulum-v1", "env_config": {"g": 9.0, "max_episode_steps": 50}}
    assert made_by(given).unwrapped.g == 9.0
    counted = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    assert settings_of(counted) == {"env": "CartPole-v1", "env_config": {}}
    expected = {"env": "CartPole-v1", "env_config": {}, "num_envs_per_worker": 3}
    assert settings_of(make_vec_env("CartPole-v1", n_envs=3)) == expected
    assert settings_of(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 3)) == expected


def test_an_environment_that_is_made_is_a_pattern():
    pattern = CountingEnv({"lengths": [7]})
    settings = settings_of(pattern)
    first, second = made_by(settings), made_by(settings)
    assert first is not second and first is not pattern and first.lengths == [7]
    first.reset()
    assert pattern.episode == -1
    assert resolve(settings["env"]).name == "CountingEnv"
    of_one = DummyVecEnv([lambda: pattern])
    assert made_by(settings_of(of_one)) is not pattern
    wrapped = gymnasium.wrappers.ClipReward(gymnasium.make("CartPole-v1"), -1, 1)
    assert isinstance(made_by(settings_of(wrapped)), gymnasium.wrappers.ClipReward)


def test_functions_make_an_environment_each():
    settings = settings_of(DummyVecEnv([lambda: CountingEnv({"lengths": [2]}), lambda: CountingEnv({"lengths": [9]})]))
    assert settings["num_envs_per_worker"] == 2
    assert [made_by(settings, index).lengths for index in (0, 1, 2)] == [[2], [9], [2]]


def test_an_environment_that_cannot_be_copied_says_so():
    class Connected(ConstantReward):
        def __deepcopy__(self, memo):
            raise TypeError("a socket")

    with pytest.raises(TypeError, match="a socket") as caught:
        made_by(settings_of(Connected()))
    assert "give its class, its id or a function that makes it" in caught.value.__notes__[0]


def test_vectors_of_the_other_library_are_read_by_what_they_hold():
    class TheirDummyVecEnv:
        num_envs = 2

        def __init__(self):
            self.envs = [gymnasium.make("CartPole-v1") for _ in range(2)]

        def step_async(self, actions): ...

    class VecNormalize(TheirDummyVecEnv):
        venv = None

    class SubprocVecEnv(TheirDummyVecEnv):
        def __init__(self): ...

    expected = {"env": "CartPole-v1", "env_config": {}, "num_envs_per_worker": 2}
    assert settings_of(TheirDummyVecEnv()) == expected
    with pytest.raises(TypeError, match=r"VecNormalize is a wrapper .*observation_filter='MeanStdFilter'"):
        settings_of(VecNormalize())
    with pytest.raises(TypeError, match=r"SubprocVecEnv does not say what it is made of.*num_rollout_workers=4"):
        settings_of(SubprocVecEnv())


@pytest.mark.parametrize("name", ["VecNormalize", "SubprocVecEnv", "VecFrameStack", "VecMonitor", "Monitor"])
@pytest.mark.parametrize("package", [rllib, rllib.env.vec_env])
def test_absent_names_are_answered_with_what_to_write(name, package):
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}': (use|it is not needed)"):
        getattr(package, name)


# ---------------------------------------------------------------------- batches


@pytest.mark.parametrize("env", [CountingEnv, GoalOnALine, Team])
def test_a_batch_is_taken_apart_into_what_it_was_made_of(env):
    space = env.observation_space
    singles = [nth_sample(space, n) for n in range(3)]
    rows = rows_of(space, batch_of(space, singles))
    assert len(rows) == 3
    for row, single in zip(rows, singles, strict=True):
        np.testing.assert_equal(row, single)
        assert rows_of(space, single) is None


def test_numbers_and_lists_are_batches_of_discrete_spaces():
    space = gymnasium.spaces.Discrete(5)
    assert rows_of(space, 3) is None and rows_of(space, np.int64(3)) is None
    assert list(rows_of(space, [1, 4])) == [1, 4]
    assert rows_of(space, "text") is None


def test_what_is_neither_is_none():
    space = CountingEnv.observation_space
    assert rows_of(space, (np.zeros(1, np.float32), {})) is None  # what reset() returns
    assert rows_of(space, np.zeros((2, 3, 1))) is None
    assert rows_of(GoalOnALine.observation_space, {"observation": np.zeros((2, 1))}) is None


@pytest.mark.parametrize("name", ["save", "load"])
def test_where_running_statistics_are_saved(name):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': .*MeanStdFilter.*model\.save"):
        getattr(DummyVecEnv([CountingEnv]), name)


@pytest.mark.parametrize("name", ["monitor_dir", "monitor_kwargs", "vec_env_cls", "vec_env_kwargs"])
def test_arguments_without_effect_are_told_once(name, caplog, monkeypatch):
    monkeypatch.setattr(notices, "_noticed", set())
    for _ in range(2):
        make_vec_env("CartPole-v1", **{name: "given"}).close()
    assert [line.startswith(f"make_vec_env: {name} has no effect") for line in caplog.messages] == [True]
