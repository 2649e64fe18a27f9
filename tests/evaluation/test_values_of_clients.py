"""Values that loops outside of a run may hand over: what is taken is learned from, and what is not is answered so."""

import threading

import numpy as np
import pytest
from gymnasium import spaces
from test_external_worker import BOX

from rllib import A2CConfig, DQNConfig, ExternalEnv, IMPALAConfig, PPOConfig, SACConfig
from rllib import sample_batch as sb
from rllib.client import PolicyClient
from rllib.env.external.checks import check_observation
from rllib.env.multi_agent import MultiAgentEnv
from rllib.env.policy_server import policy_server
from rllib.env.spaces.supported import LARGEST, LARGEST_ACTION, logged_action
from tests.env.test_local_inference import array, post_to

CHOICE, UNBOUNDED = spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (2,))
# Space -> the same action as programs write it that know one kind of number, or that have arrays.
WRITTEN = [
    (spaces.Discrete(2, start=1), [2, 2.0, np.float32(2), np.array(2.0)]),
    (spaces.MultiDiscrete([2, 3]), [[1, 2], [1.0, 2.0], np.array([1.0, 2.0])]),
    (spaces.MultiBinary(2), [[1, 0], [1.0, 0.0], [True, False]]),
    (spaces.Box(0, 5, (2,), np.int32), [[1, 2], [1.0, 2.0]]),
    (spaces.Box(-1, 1, (2,)), [[0, 1], [0.0, 1.0], np.array([0.0, 1.0])]),
    (spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (1,))), [{"a": 1, "b": [0]}, {"a": 1.0, "b": [0.0]}]),
    (spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 2])]), [(1, [1, 0]), [1.0, [1.0, 0.0]]]),
]
FORMS = [(space, written, forms[0]) for space, forms in WRITTEN for written in forms]


@pytest.fixture
def no_last_words(monkeypatch):
    """The end of a run waits for nobody."""
    monkeypatch.setattr(policy_server, "LAST_WORDS_S", 0.0)


@pytest.mark.parametrize("space, written, usual", FORMS, ids=str)
def test_a_logged_action_is_taken_as_its_space_has_it(space, written, usual):
    taken = logged_action(space, written)
    assert space.contains(taken) and repr(taken) == repr(logged_action(space, usual))


def small(config, fragment=8):
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=fragment, sample_timeout_s=10).debugging(seed=1)
    config.training(train_batch_size=fragment, model={"fcnet_hiddens": [8]})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
    if isinstance(config, PPOConfig):
        config.training(sgd_minibatch_size=fragment)
    if isinstance(config, DQNConfig | SACConfig):
        config.training(num_steps_sampled_before_learning_starts=8)
    return config


class Logging(ExternalEnv):
    """Logs the same action in each step."""

    def __init__(self, config):
        super().__init__(config["space"], BOX)
        self.action = config["action"]

    def run(self):
        while True:
            episode = self.start_episode()
            for _ in range(5):
                self.log_action(episode, [0, 0], self.action)
                self.log_returns(episode, 1)
            self.end_episode(episode, [0, 0])


@pytest.mark.parametrize("space, forms", WRITTEN, ids=str)
def test_rows_of_logged_actions_do_not_depend_on_how_they_are_written(space, forms):
    rows = []
    for written in forms[:2]:
        config = small(IMPALAConfig().environment(Logging, env_config={"space": space, "action": written}))
        with config.build() as algorithm:
            rows.append(algorithm.sample(8)[sb.ACTIONS])
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize("inference_mode, listen", [
    ("remote", "127.0.0.1:0"), ("remote", "tcp://127.0.0.1:0"), ("local", "127.0.0.1:0"),
])  # fmt: skip
def test_a_client_may_write_a_choice_as_a_float(inference_mode, listen, no_last_words):
    config = DQNConfig().environment(observation_space=BOX, action_space=CHOICE).external(listen=listen)
    with small(config).build() as algorithm:
        algorithm.workers.local_worker().load_snapshots(algorithm.snapshots())
        client = PolicyClient(algorithm.workers.local_worker().env.url, inference_mode=inference_mode)
        refused = []

        def play():
            episode = client.start_episode()
            for _ in range(8):
                for wrong in (1.5, 2.0, "1", None, [1.0]):
                    with pytest.raises(ValueError):
                        client.log_action(episode, np.zeros(2, np.float32), wrong)
                    refused.append(wrong)
                client.log_action(episode, np.zeros(2, np.float32), 1.0)
                client.log_returns(episode, 1.0)
            client.end_episode(episode, np.zeros(2, np.float32))
            client.close()

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        rows = algorithm.sample(8)
        thread.join(30)
    assert set(rows[sb.ACTIONS].tolist()) == {1} and len(refused) == 40


# ------------------------------------------------------------------ numbers that are too large


class Extreme(ExternalEnv):
    """Observations and rewards are the largest numbers that are taken."""

    def __init__(self, config):
        super().__init__(config["space"], UNBOUNDED)

    def run(self):
        rng = np.random.default_rng(0)
        while True:
            episode = self.start_episode()
            for _ in range(20):
                self.get_action(episode, rng.choice([-LARGEST, LARGEST, 1.0], 2))
                for too_large in (2 * LARGEST, -3e38, np.nan, np.inf):
                    with pytest.raises(ValueError, match="reward"):
                        self.log_returns(episode, too_large)
                    with pytest.raises(ValueError, match="observation"):
                        self.get_action(episode, [too_large, 0.0])
                self.log_returns(episode, float(rng.choice([-LARGEST, LARGEST, 1.0])))
            self.end_episode(episode, [0, 0])


@pytest.mark.parametrize(
    "config, space", [(PPOConfig, CHOICE), (PPOConfig, UNBOUNDED), (A2CConfig, CHOICE), (IMPALAConfig, CHOICE),
                      (DQNConfig, CHOICE), (SACConfig, spaces.Box(-1, 1, (1,)))],
)  # fmt: skip
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_largest_numbers_do_not_end_a_run(config, space, activation):
    if (space, activation) == (UNBOUNDED, "relu"):
        pytest.skip("the standard deviation is an output of the network, without a bound")
    config = small(config().environment(Extreme, env_config={"space": space}), 40)
    with config.training(model={"fcnet_hiddens": [16], "fcnet_activation": activation}).build() as algorithm:
        for _ in range(3):
            algorithm.train()
        assert np.isfinite(algorithm.get_weights()["default_policy"]).all()


def test_numbers_within_the_bounds_of_a_space_are_taken():
    wide, bounded = spaces.Box(0, 2e18, (1,)), spaces.Box(-1e7, 1e7, (1,))
    env = Logging({"space": bounded, "action": [0]})
    env.observation_space = wide
    check_observation(env.observation_space, [1.7e18])
    assert logged_action(bounded, [2 * LARGEST_ACTION]) == [2 * LARGEST_ACTION]
    with pytest.raises(ValueError, match="larger than"):
        logged_action(UNBOUNDED, [2 * LARGEST_ACTION, 0])


@pytest.mark.parametrize(
    "space, inputs, action",
    [
        (CHOICE, [-3.4e38, 3.4e38], 0),
        (CHOICE, [-1e3, 1e3], 0),
        (CHOICE, [0.0, np.nan], 0),
        (UNBOUNDED, [0, 0, -1e3, -1e3], [0, 0]),
        (UNBOUNDED, [0, 0, 500, 500], [0, 0]),
        (UNBOUNDED, [0, 0, 0, 0], [1e5, 0]),
        (UNBOUNDED, [0, 0, 0, 0], [3e38, 0]),
    ],
)
def test_a_step_that_no_policy_draws_is_answered_and_ends_nothing(space, inputs, action, no_last_words):
    with small(
        PPOConfig().environment(observation_space=BOX, action_space=space).external(listen="127.0.0.1:0")
    ).build() as algorithm:
        worker = algorithm.workers.local_worker()
        worker.load_snapshots(algorithm.snapshots())
        kind = algorithm.policy.action_dtype.str
        part = {
            "episode_id": "it", "version": 0, "is_first": True, "observations": array(np.zeros((2, 2))),
            "rewards": array([0, 0], "<f8"), "actions": array([action] * 2, kind),
            "action_dist_inputs": array([inputs] * 2),
        }  # fmt: skip
        status, answer = post_to(worker.env.url, {"parts": [part]})
    assert status == 400 and "action" in answer["error"]


# ------------------------------------------------------------------ rows that hold no observation


class Turns(MultiAgentEnv):
    """Two agents act in turn; choices of their observations are counted from 2."""

    observation_space, action_space = spaces.Discrete(3, start=2), spaces.Discrete(2)

    def __init__(self, config):
        super().__init__()
        self.possible_agents = self.agents = ["a", "b"]

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return {"a": 3}, {}

    def step(self, actions):
        self.steps += 1
        seen = {"ab"[self.steps % 2]: 4}
        return seen, dict.fromkeys(seen, 1.0), {"__all__": self.steps > 9}, {"__all__": False}, {}


class OneAtATime(ExternalEnv):
    def __init__(self, config):
        super().__init__(Turns.action_space, Turns.observation_space)

    def run(self):
        while True:
            episode = self.start_episode()
            for step in range(5):
                self.get_action(episode, 2 + step % 3)
                self.log_returns(episode, 1.0)
            self.end_episode(episode, 4)


@pytest.mark.parametrize("env", [Turns, OneAtATime])
@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
def test_choices_of_an_observation_may_be_counted_from_any_number(env, batch_mode):
    with small(PPOConfig().environment(env).rollouts(batch_mode=batch_mode), 7).build() as algorithm:
        for _ in range(3):
            algorithm.train()
