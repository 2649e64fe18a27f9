"""`evaluate_policy`: returns and lengths of whole episodes, for all that acts, in all that it acts in."""

import itertools

import numpy as np
import pytest

import rllib
from rllib import PPOConfig, evaluate_policy
from rllib.env.vec_env import DummyVecEnv, make_vec_env
from rllib.env.vec_env.monitor import Monitor
from rllib.env.vec_env.vec_normalize import VecNormalize
from rllib.env.vec_env.wrappers import VecFrameStack, VecMonitor
from tests.envs import CountingEnv, MaskedProbe


def built(env, model=None, env_config=None, **environment):
    return (
        PPOConfig()
        .environment(env, env_config=env_config or {}, **environment)
        .rollouts(num_rollout_workers=0)
        .training(model={"fcnet_hiddens": [4], **(model or {})})
        .debugging(seed=1)
        .build()
    )


@pytest.fixture(scope="module")
def algo():
    with built(CountingEnv) as made:
        yield made


# Episodes of 3, 5 and 4 steps in turn, in which step t earns t.
RETURNS, LENGTHS = [6.0, 15.0, 10.0], [3, 5, 4]


@pytest.mark.parametrize(
    "env", [CountingEnv, CountingEnv(), lambda config: CountingEnv(config), DummyVecEnv([CountingEnv])]
)
def test_returns_of_an_environment_in_any_form(algo, env):
    returns, lengths = evaluate_policy(algo, env, n_eval_episodes=3, return_episode_rewards=True)
    assert (returns, lengths) == (RETURNS, LENGTHS)
    assert evaluate_policy(algo, CountingEnv, 3) == pytest.approx((np.mean(RETURNS), np.std(RETURNS)))


def test_a_checkpoint_is_evaluated_as_well(algo, tmp_path):
    loaded = rllib.load_policy(algo.save(tmp_path / "saved"))
    assert evaluate_policy(loaded, CountingEnv, 3, return_episode_rewards=True) == (RETURNS, LENGTHS)


def test_episodes_are_divided_among_the_environments(algo):
    # One has episodes of one step: it would play most of them, if the first six counted.
    env = DummyVecEnv([lambda: CountingEnv({"lengths": [1]}), lambda: CountingEnv({"lengths": [8]})])
    returns, lengths = evaluate_policy(algo, env, 5, return_episode_rewards=True)
    assert sorted(lengths) == [1, 1, 8, 8, 8]
    assert sorted(returns) == [1, 1, 36, 36, 36]


def test_an_object_with_predict_will_do():
    class Counts:
        """Plays 1 in every second step of an episode."""

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            state = np.zeros(2, int) if state is None else state
            state = np.where(episode_start, 0, state)
            return state % 2, state + 1

    class Earns(CountingEnv):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, float(action), *rest

    env = DummyVecEnv([lambda: Earns({"lengths": [4]}), lambda: Earns({"lengths": [3]})])
    assert evaluate_policy(Counts(), env, 4, return_episode_rewards=True) == ([1.0, 2.0, 1.0, 2.0], [3, 4, 3, 4])


@pytest.mark.parametrize("kind", ["observation", "info", "method"])
def test_masks_are_found_where_the_environment_has_them(kind):
    with built(MaskedProbe, env_config={"mask": kind},
               action_mask_from="observation" if kind == "observation" else kind) as algo:  # fmt: skip
        env = make_vec_env(MaskedProbe, n_envs=2, env_kwargs={"config": {"mask": kind}})
        assert evaluate_policy(algo, env, 6, deterministic=False, return_episode_rewards=True)[1] == [2] * 6


def test_memories_and_previous_rewards_are_kept():
    model = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    with built(CountingEnv, model) as algo:
        assert evaluate_policy(algo, CountingEnv, 3, return_episode_rewards=True) == (RETURNS, LENGTHS)


def test_a_function_is_told_each_step(algo):
    told = []
    evaluate_policy(algo, CountingEnv, 2, callback=lambda locals_, _: told.append((locals_["reward"], locals_["done"])))
    assert told == [(1, False), (2, False), (3, True), (1, False), (2, False), (3, False), (4, False), (5, True)]


def test_a_mean_below_the_threshold_is_an_error(algo):
    assert evaluate_policy(algo, CountingEnv, 1, reward_threshold=5)[0] == 6
    with pytest.raises(ValueError, match=r"the mean return 6\.00 is not above reward_threshold=6"):
        evaluate_policy(algo, CountingEnv, 1, reward_threshold=6)
    with pytest.raises(ValueError, match="n_eval_episodes=0 must be an integer >= 1"):
        evaluate_policy(algo, CountingEnv, 0)


def test_what_it_makes_it_closes(algo):
    closed = []

    class Closes(CountingEnv):
        def close(self):
            closed.append(self)

    evaluate_policy(algo, Closes, 1)
    assert len(closed) == 1
    evaluate_policy(algo, Closes(), 1)
    evaluate_policy(algo, DummyVecEnv([Closes]), 1)
    assert len(closed) == 1


@pytest.mark.parametrize("value", ["no", "False", 2, ()], ids=str)
def test_a_choice_is_no_text(algo, value):
    observation = np.ones(1, np.float32)
    for call, name in [
        (lambda: algo.predict(observation, deterministic=value), "deterministic"),
        (lambda: algo.predict([observation] * 2, deterministic=value), "deterministic"),
        (lambda: algo.compute_single_action(observation, explore=value), "explore"),
        (lambda: algo.compute_actions([observation], explore=value), "explore"),
        (lambda: evaluate_policy(algo, CountingEnv, 1, deterministic=value), "deterministic"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"{name}="):
            call()


def test_arguments_that_say_nothing_are_refused(algo):
    for given in (None, 3, {}, {"policy": 3}):
        with pytest.raises(ValueError, match="load_path_or_dict="):
            algo.set_parameters(given)
    for given in ("3", 1.5, True):
        with pytest.raises(ValueError, match="num_episodes="):
            algo.evaluate(given)
    for given in ("3", 0, -1, 1.5):
        with pytest.raises(ValueError, match="num_steps="):
            algo.sample(given)
    for given in (-1, 2, "0"):
        with pytest.raises(ValueError, match=f"index={given!r} must be one of the 2 episodes, 0 to 1, or None for all"):
            algo.make_player(2).reset(given)
    with pytest.raises(ValueError, match="1 actions and 2 observations"):
        algo.get_policy().compute_log_likelihoods(np.zeros(1, int), np.ones((2, 1), np.float32))


class Constant:
    """Plays 0."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.zeros(len(observation), int), state


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda env: VecNormalize(VecMonitor(env)),
        lambda env: VecFrameStack(VecNormalize(VecMonitor(env)), 2),
        lambda env: VecMonitor(VecFrameStack(env, 2)),
        lambda env: VecNormalize(DummyVecEnv([lambda: Monitor(CountingEnv())])),
    ],
)
def test_returns_are_those_of_the_monitor_below_other_wrappers(wrapped):
    env = wrapped(DummyVecEnv([CountingEnv]))
    assert evaluate_policy(Constant(), env, 3, return_episode_rewards=True) == (RETURNS, LENGTHS)


def test_a_function_gets_the_variables_of_stable_baselines3():
    env = DummyVecEnv([lambda: CountingEnv({"lengths": [2]}), lambda: CountingEnv({"lengths": [3]})])
    arrays = (
        "i", "observations", "new_observations", "actions", "rewards", "dones", "episode_starts", "episode_counts",
        "episode_count_targets", "current_rewards", "current_lengths", "episode_rewards", "episode_lengths",
    )  # fmt: skip
    told = []
    evaluate_policy(
        Constant(), env, 3, callback=lambda values, _: told.append({key: np.array(values[key]) for key in arrays})
    )
    assert [int(values["i"]) for values in told] == [0, 1, 0, 1, 1, 1, 1, 1]
    assert [int(values["current_lengths"][int(values["i"])]) for values in told] == [1, 1, 2, 2, 3, 1, 2, 3]
    assert [values["episode_counts"].tolist() for values in told] == [[0, 0]] * 3 + [[1, 0]] * 2 + [[1, 1]] * 3
    last = told[-1]
    assert last["episode_count_targets"].tolist() == [1, 2] and last["current_rewards"][1] == 6
    assert last["episode_rewards"].tolist() == [3, 6] and last["episode_lengths"].tolist() == [2, 3]
    for before, after in itertools.pairwise(told):
        if after["i"] == 0:
            assert (before["new_observations"] == after["observations"]).all()
