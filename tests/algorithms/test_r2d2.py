"""R2D2: its update against a loop over steps, what it learns that DQN cannot, that runs repeat and go on, refusals."""

import numpy as np
import pytest
import torch

from rllib import ApexDQNConfig, DQNConfig, Policy, PolicySpec, PPOConfig, R2D2Config
from rllib import sample_batch as sb
from rllib.algorithms.r2d2 import R2D2, sequence_errors
from rllib.config.conflicts import SettingsError
from rllib.env.multi_agent import make_multi_agent
from rllib.evaluation.postprocess.sequences import BOOTSTRAP_AT, BURN_IN
from tests.algorithms.algorithm_support import learner_stats, train
from tests.algorithms.test_recall import Recall, WithGRU
from tests.envs import CountingEnv, MaskedProbe

SIZE = 16
LSTM = {"use_lstm": True, "lstm_cell_size": SIZE, "fcnet_hiddens": [], "max_seq_len": 5}
GRU = {"use_gru": True, "lstm_cell_size": SIZE, "fcnet_hiddens": [], "max_seq_len": 5}
ATTENTION = {"use_attention": True, "attention_dim": SIZE, "fcnet_hiddens": [SIZE], "max_seq_len": 5}
PRIORITIZED = {"type": "MultiAgentPrioritizedReplayBuffer"}


def config(model=LSTM, env=Recall, cls=R2D2Config, replay=None, **training):
    settings = {
        "lr": 3e-3, "gamma": 0.9, "adam_epsilon": 1e-8, "hiddens": [], "train_batch_size": 320,
        "training_intensity": 8, "target_network_update_freq": 200, "num_steps_sampled_before_learning_starts": 200,
        "replay_buffer_config": {"capacity": 2000, **(replay or {})}, "model": model,
    }  # fmt: skip
    return (
        cls()
        .environment(env)
        .rollouts(num_rollout_workers=0, num_envs_per_worker=8, rollout_fragment_length=5)
        .training(**{**settings, **training})
        .exploration(exploration_config={"final_epsilon": 0.1, "epsilon_timesteps": 2000})
        .reporting(min_sample_timesteps_per_iteration=1000)
        .debugging(seed=4)
    )


class RecurrentR2D2(WithGRU, R2D2):
    """With a memory that is a torch module of the user's."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ------------------------------------------------------------------ what is learned


def share_of_right_answers(algo) -> float:
    """After at most ten iterations."""
    for _ in range(10):
        algo.train()
        share = algo.evaluate(200)["episode_reward_mean"]
        if share > 0.95:
            break
    return share


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model": GRU, "zero_init_states": False, "n_step": 3, "replay": PRIORITIZED},
        {"num_atoms": 11, "v_min": 0.0, "v_max": 1.0, "use_h_function": False},
        {"num_quantiles": 11, "use_h_function": False},
        {"model": ATTENTION, "hiddens": [SIZE]},
    ],
    ids=["lstm", "gru, stored states, prioritised", "c51", "quantiles", "attention"],
)
def test_p8_who_remembers_answers_right(settings):
    with config(**settings).build() as algo:
        assert share_of_right_answers(algo) > 0.95


def test_p8_who_does_not_remember_guesses():
    with config({"fcnet_hiddens": [SIZE]}, cls=DQNConfig).build() as algo:
        assert share_of_right_answers(algo) < 0.7


def test_a_memory_of_the_users_learns_through_torch():
    settings = config(model={"fcnet_hiddens": [], "max_seq_len": 5}, lr=0.01, training_intensity=4).copy()
    settings.algo_class = RecurrentR2D2
    with settings.build() as algo:
        assert share_of_right_answers(algo) > 0.95


def test_p10_masked_actions_with_a_memory():
    """The environment raises on an illegal action."""
    made = config(LSTM, MaskedProbe, gamma=0.5)
    with made.build() as algo:
        train(algo, 5)
        assert algo.evaluate(100)["episode_reward_mean"] > 1.35


def test_the_step_before_is_told():
    with config({**LSTM, "lstm_use_prev_action_reward": True}).build() as algo:
        train(algo, 1)
        assert algo.replay.sample(1, np.random.default_rng(0))[sb.OBS].shape == (1, 6, 4)
        assert algo.num_updates


# ------------------------------------------------------------------ the update


def slow_update(algo, batch) -> tuple[np.ndarray, np.ndarray]:
    """Targets and |TD errors| of the learned steps, sequence by sequence and step by step, in float64."""
    config, epsilon = algo.config, algo.config.h_function_epsilon

    def q_of(policy, observations, state):
        found = []
        for observation in observations:
            following = np.empty_like(state)
            inputs = policy.network.step(policy.encode(observation[None]), state, following)
            found.append(policy.distribution.at(inputs).q_values()[0].astype(np.float64))
            state = following
        return np.array(found)

    def h(x):
        return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + epsilon * x

    def inverse(x):
        root = np.sqrt(1 + 4 * epsilon * (abs(x) + 1 + epsilon))
        return np.sign(x) * (((root - 1) / (2 * epsilon)) ** 2 - 1)

    targets, errors = [], []
    for row in range(len(batch[sb.SEQ_LENS])):
        first, count = int(batch[BURN_IN][row]), int(batch[BURN_IN][row] + batch[sb.SEQ_LENS][row])
        state = np.zeros((1, algo.policy.state_size), np.float32)
        if not config.zero_init_states:
            state[0] = batch[sb.STATE_IN][row]
        observations = batch[sb.OBS][row][: count + 1]
        online, target = (q_of(policy, observations, state) for policy in (algo.policy, algo.trainee.target))
        for t in range(first, count):
            later = int(batch[BOOTSTRAP_AT][row, t])
            value = target[later, (online if config.double_q else target)[later].argmax()]
            discount = float(batch[sb.DISCOUNTS][row, t])
            if config.use_h_function:
                targets.append(h(batch[sb.REWARDS][row, t] + discount * inverse(value)))
            else:
                targets.append(batch[sb.REWARDS][row, t] + discount * value)
            errors.append(abs(online[t, batch[sb.ACTIONS][row, t]] - targets[-1]))
    return np.array(targets), np.array(errors)


COUNTING = {"env": CountingEnv, "gamma": 0.9, "training_intensity": 1e-9}  # no update in `train`


@pytest.mark.parametrize(
    "settings",
    [
        {"n_step": 3, "zero_init_states": False, "replay": {"replay_burn_in": 2}},
        {"model": GRU, "double_q": False, "use_h_function": False, "replay": {"replay_burn_in": 9}},
        {"model": {**LSTM, "max_seq_len": 2}, "learner": "torch", "hiddens": [4], "dueling": False},
    ],
    ids=["lstm", "gru", "torch"],
)
def test_an_update_is_that_of_a_loop_over_steps(settings):
    model = {**settings.get("model", LSTM), "max_seq_len": settings.get("model", {}).get("max_seq_len", 3)}
    with config(**{**COUNTING, **settings, "model": model}).build() as algo:
        train(algo, 1)
        rng = np.random.default_rng(0)
        algo.trainee.target.weights[:] += rng.normal(0, 0.1, algo.trainee.target.weights.shape)
        batch = algo.replay.sample(30, rng)
        targets, errors = slow_update(algo, batch)
        steps = algo.trainee.learned_steps(batch)
        assert steps.count == len(targets) == batch[sb.SEQ_LENS].sum()
        np.testing.assert_allclose(steps[sb.TD_TARGETS], targets, atol=2e-5)
        before = algo.policy.weights.copy()
        found = algo.trainee.learn_from(batch, lr=1e-3)["td_error"]
        ends = np.cumsum(batch[sb.SEQ_LENS])
        expected = [0.9 * own.max() + 0.1 * own.mean() for own in np.split(errors, ends[:-1])]
        np.testing.assert_allclose(found, expected, atol=2e-5)
        assert not np.array_equal(before, algo.policy.weights)


def test_numpy_and_torch_learn_alike():
    weights = {}
    for learner in ("numpy", "torch"):
        with config(learner=learner, replay={"replay_burn_in": 2}).build() as algo:
            train(algo, 1)
            assert algo.num_updates > 10
            weights[learner] = algo.policy.weights.copy()
    np.testing.assert_allclose(weights["numpy"], weights["torch"], atol=1e-3)


def test_what_fills_rows_up_changes_nothing():
    """Numbers of 1e6 beyond the steps of a sequence."""
    model = {**LSTM, "max_seq_len": 4}
    with config(model, CountingEnv, n_step=2, training_intensity=1e-9, replay={"replay_burn_in": 2}).build() as algo:
        train(algo, 1)
        batch = algo.replay.sample(30, np.random.default_rng(0))
        filled = sb.SampleBatch({name: column.copy() for name, column in batch.items()})
        counts = batch[BURN_IN] + batch[sb.SEQ_LENS]
        assert counts.min() < counts.max()
        for row, count in enumerate(counts):
            filled[sb.OBS][row, count + 1 :] = 1e6
            for name in (sb.REWARDS, sb.DISCOUNTS, sb.ACTIONS, BOOTSTRAP_AT):
                filled[name][row, count:] = 10**6
        for name, column in algo.trainee.learned_steps(batch).items():
            np.testing.assert_array_equal(algo.trainee.learned_steps(filled)[name], column, err_msg=name)


def test_a_burn_in_from_the_beginning_of_the_episode_is_the_state_of_the_present_weights():
    """From zeros: sequences of three steps after three others of burn-in, in episodes of at most five steps."""
    with config({**LSTM, "max_seq_len": 3}, CountingEnv, replay={"replay_burn_in": 3}).build() as algo:
        train(algo, 1)
        batch = algo.replay.sample(40, np.random.default_rng(0))
        states = algo.trainee.learned_steps(batch)[sb.STATE_IN]
        state = np.zeros((1, algo.policy.state_size), np.float32)
        for count in range(3):
            following = np.empty_like(state)
            algo.policy.network.step(algo.policy.encode(np.full((1, 1), count, np.float32)), state, following)
            state = following
        for burn_in, own in zip(batch[BURN_IN], states):
            np.testing.assert_allclose(own, state[0] if burn_in else np.zeros_like(own), atol=1e-6)
        assert set(batch[BURN_IN]) == {0, 3}


def test_sequences_count_by_their_largest_error_and_their_mean():
    errors, seq_lens = np.array([1.0, 3.0, 2.0, 5.0]), np.array([3, 1])
    np.testing.assert_allclose(sequence_errors(errors, seq_lens), [0.9 * 3 + 0.1 * 2, 5.0])


def test_an_update_has_as_many_sequences_as_have_the_batch_size():
    with config(train_batch_size=42).build() as algo:
        train(algo, 1)
        sampled, learn_from = [], algo.trainee.learn_from
        algo.trainee.learn_from = lambda batch, *, lr: (
            sampled.append(len(batch[sb.SEQ_LENS])) or learn_from(batch, lr=lr)
        )
        train(algo, 1)
        assert set(sampled) == {9}


# ------------------------------------------------------------------ runs


@pytest.mark.parametrize("with_buffer", [True, False])
def test_a_restored_run_goes_on(tmp_path, with_buffer):
    """To the bit, with the buffer; whole episodes, so that nothing is lost in between."""
    settings = {"store_buffer_in_checkpoints": with_buffer, "replay": {**PRIORITIZED, "replay_burn_in": 2}}
    with config(**settings).build() as algo, config(**settings).debugging(seed=5).build() as other:
        train(algo, 1)
        path = algo.save(tmp_path)
        other.restore(path)
        algo.restore(path)
        assert len(other.replay) == (len(algo.replay) if with_buffer else 0)
        if with_buffer:
            np.testing.assert_array_equal(other.policy.weights, algo.policy.weights)
            other.set_state(algo.get_state())
        train(algo, 1)
        train(other, 1)
        if with_buffer:
            assert algo.num_updates == other.num_updates
        (policy,) = Policy.from_checkpoint(path).values()
        assert policy.spec == algo.policy.spec


def test_equal_seeds_give_equal_bits_in_fragments_that_cut_episodes():
    runs = []
    for _ in range(2):
        made = config(zero_init_states=False).rollouts(batch_mode="truncate_episodes", rollout_fragment_length=3)
        with made.build() as algo:
            train(algo, 1)
            runs.append(algo.policy.weights.copy())
            assert algo.num_updates > 10
    np.testing.assert_array_equal(*runs)


def test_states_outside_of_training():
    with config().build() as algo:
        stats = learner_stats(train(algo, 1))
        assert {"mean_q", "mean_td_error", "cur_epsilon"} <= stats.keys()
        state = algo.get_policy().get_initial_state()
        player = algo.make_player()
        for cue in (1.0, 0.0):
            observation = np.array([cue], np.float32)
            action, state, _ = algo.compute_single_action(observation, state, explore=False)
            assert player.act(observation) == action


def test_earlier_names_of_settings():
    given = {"burn_in": 4, "epsilon": 0.1, "replay_buffer_config": {"capacity": 300}}
    settings = R2D2Config().update_from_dict(given).replay_settings()
    assert (settings["replay_burn_in"], settings["capacity"]) == (4, 300)


# ------------------------------------------------------------------ refusals


SINGLE_ROWS, NOISE = r"a replay keeps single rows.*R2D2's has sequences", "layers with noise in their weights"


@pytest.mark.parametrize(
    ("cls", "settings", "reason"),
    [
        (DQNConfig, {}, SINGLE_ROWS),
        (ApexDQNConfig, {}, SINGLE_ROWS),
        (R2D2Config, {"noisy": True}, NOISE),
        (R2D2Config, {"noisy": True, "num_learners": 2}, NOISE),
    ],
)
def test_what_cannot_use_a_memory_is_refused(cls, settings, reason):
    made = cls().environment("CartPole-v1").rollouts(num_rollout_workers=0).training(model=LSTM)
    made.update_from_dict(settings)
    with pytest.raises(ValueError, match=f"cannot train a policy with a memory: {reason}"):
        made.build()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"model": {"fcnet_hiddens": [8]}},
            r"R2D2 learns from sequences, so its policy needs a memory. Use .*use_lstm",
        ),
        ({"num_atoms": 11}, r"num_atoms=11: .* learns distributions.*use_h_function=False"),
        ({"munchausen_alpha": 0.9, "double_q": False}, "is for single rows"),
        ({"num_quantiles": 11}, r"num_quantiles=11: .* learns quantiles.*use_h_function=False"),
        ({"replay": {"replay_burn_in": -1}}, "replay_burn_in=-1 must be an integer >= 0"),
        ({"replay": {"replay_burn_in": 2.5}}, "replay_burn_in=2.5 must be an integer >= 0"),
        ({"replay": {"replay_sequence_length": 20}}, "replay_sequence_length=20 must be -1"),
        ({"replay": {"storage_unit": "timesteps"}}, "storage_unit='timesteps' must be 'sequences'"),
        ({"replay": {"frame_stack_axis": -1}}, "frame_stack_axis is for single rows"),
        ({"replay": {"worker_side_prioritization": True}}, "must be False"),
        ({"h_function_epsilon": 0}, "h_function_epsilon"),
        ({"model": {**LSTM, "max_seq_len": 0}}, "max_seq_len"),
        (
            {"model": {**LSTM, "post_lstm_hiddens": [4], "post_lstm_activation": "tanh"}, "hiddens": [4]},
            r"hiddens=\[4\] are rectified layers behind",
        ),
    ],
    ids=str,
)
def test_bad_settings(settings, match):
    with pytest.raises(ValueError, match=match):
        config(**settings).build()


def test_zero_init_states_may_be_given_with_the_replay_as_in_rllibs_files():
    for name in ("zero_init_states", "replay_zero_init_states"):
        made = config(replay={name: False})
        assert made.zero_init_states is False and name not in made.replay_buffer_config


def test_a_replay_too_small_for_what_is_sampled_before_learning_is_told_in_sequences():
    config = R2D2Config().training(model={**LSTM, "max_seq_len": 5}, num_steps_sampled_before_learning_starts=200)
    assert config.training(replay_buffer_config={"capacity": 40}).lost_before_learning() is None
    message = config.training(replay_buffer_config={"capacity": 39}).lost_before_learning().text(str)
    assert "Use {'capacity': 40} or more, or num_steps_sampled_before_learning_starts=195 or less" in message


# PPO's policies all explore by RND, or none does.
WITHOUT_MEMORY = [
    (PPOConfig, {"exploration_config": {"type": "RND"}}, "run's"),
    *(
        (R2D2Config, settings, whose)
        for settings in ({"exploration_config": {"type": "ParameterNoise"}}, {"noisy": True})
        for whose in ("run's", "policy's", "added policy's")
    ),
]


@pytest.mark.parametrize(("config", "settings", "whose"), WITHOUT_MEMORY)
def test_each_remedy_of_an_exploration_without_memory_leads_to_a_run(config, settings, whose):
    """That R2D2 leave out its memory is none."""
    made = config().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    made.training(model={"use_lstm": True, "lstm_cell_size": 4})
    if whose == "run's":
        made.update_from_dict(settings)
    else:
        policies = {"p": (None, None, None, settings)} if whose == "policy's" else {}
        made.environment(make_multi_agent("CartPole-v1")).multi_agent(
            policies={**policies, "q": PolicySpec()}, policy_mapping_fn="q"
        )
    with pytest.raises(SettingsError, match="cannot train a policy with a memory") as refused, made.build() as algo:
        algo.add_policy("p", config=settings)
    (mistake,) = refused.value.mistakes
    assert "model" in mistake.names and (mistake.remedies or whose == "added policy's")
    assert f"such as {made.algorithm_name}" not in str(refused.value)
    assert ("These are settings of the policy 'p'." in str(refused.value)) is (whose != "run's")
    for remedy in mistake.remedies:
        made.copy().apply(remedy).build().stop()
