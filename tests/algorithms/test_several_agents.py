"""What holds for every algorithm that trains the policies of several agents."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rllib import IMPALAConfig, PPOConfig
from rllib import sample_batch as sb
from rllib.algorithms.base.from_checkpoint import REPLAY_FILE
from rllib.algorithms.base.registry import algorithm_names, get_algorithm_class
from rllib.algorithms.dqn import DQNConfig
from rllib.algorithms.families.off_policy import OffPolicy
from rllib.env.multi_agent import MultiAgentEnv
from rllib.env.tasks.two_step_game import TwoStepGame
from tests.algorithms.test_every_algorithm import DEMONSTRATED, GROUPS, small
from tests.multi_agent import NameTheSignal, PairsNameTheSignal

NEED_DATA = {name for name in algorithm_names() if get_algorithm_class(name).config_class.needs_data}
REFUSING = {"A3C", "ES", "ARS", *NEED_DATA, *DEMONSTRATED}
TRAINING = sorted({*algorithm_names()} - REFUSING)
OFF_POLICY = [name for name in TRAINING if issubclass(get_algorithm_class(name), OffPolicy)]
# Their replays are in other processes.
SHARDED = ("ApexDQN", "ApexDDPG")
CONTINUOUS = ("TQC", "CrossQ", "TD3", "DDPG", "ApexDDPG")
# Items of the environment's config, and the policies.
SCENARIOS = {
    "shared": ({"sizes": (3, 3)}, "shared"),
    "own": ({"sizes": (3, 3)}, "own"),
    "in turn": ({"sizes": (3, 3), "in_turn": True}, "own"),
    "different spaces": ({"sizes": (2, 3)}, "own"),
}


def first_choices(observations):
    """A teacher."""
    return np.zeros(len(observations), int)


def of_agents(name: str, scenario: str = "different spaces", **multi_agent):
    """A small config of the algorithm, for an environment with two agents."""
    settings, policies = SCENARIOS[scenario]
    settings = {**settings, "is_continuous": name in CONTINUOUS}
    env = PairsNameTheSignal if name in GROUPS else NameTheSignal
    config = small(name).environment(env, env_config=settings).rollouts(num_envs_per_worker=2)
    if getattr(config, "needs_teacher", False):
        config.training(teacher=first_choices)
    return config.multi_agent(**{"policies": policies, **multi_agent}).evaluation(evaluation_interval=None)


def losses(result, policy_id: str) -> list[float]:
    stats = result["info"]["learner"][policy_id]["learner_stats"]
    return [value for key, value in stats.items() if key.endswith("loss")]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", TRAINING)
def test_every_policy_learns_from_its_own_rows(name, scenario):
    with of_agents(name, scenario).build() as algo:
        before = algo.get_weights()
        ids = set(algo.policies)
        result = algo.train()
        for _ in range(20):
            result = algo.train()
            # Where workers sample beside the learner, an iteration may end before a policy's first update.
            if all(losses(result, policy_id) for policy_id in ids & set(result["info"]["learner"])):
                break
        assert ids == ({"shared"} if scenario == "shared" else {"first", "second"})
        assert set(algo.learners) == set(result["info"]["learner"]) == set(result["policy_reward_mean"]) == ids
        counts = algo.metrics.policies
        for policy_id in ids:
            assert losses(result, policy_id) and np.isfinite(losses(result, policy_id)).all()
            assert not np.array_equal(algo.get_weights()[policy_id], before[policy_id])
            assert counts[policy_id]["num_updates"] == algo.metrics.num_updates(policy_id) > 0
            trained = result["info"]["learner"][policy_id]["num_agent_steps_trained"]
            assert 0 < trained <= counts[policy_id]["num_steps_trained"]
        steps = result["num_env_steps_sampled"]
        assert steps == algo.timesteps >= 128
        # In turns an agent acts in every second step; of both environments a row may be open.
        sampled = sum(counts[policy_id]["num_steps_sampled"] for policy_id in ids)
        assert 0 <= (steps if scenario == "in turn" else 2 * steps) - sampled <= 2
        # Steps of the environments are counted once, those of the agents by policy.
        trained = sum(counts[policy_id]["num_steps_trained"] for policy_id in ids)
        assert 0 < result["num_env_steps_trained"] <= trained + 2


@pytest.mark.parametrize("name", ["PPO", "IMPALA", "APPO"])
def test_two_agents_train_on_half_as_many_steps_of_environments_as_rows(name):
    with of_agents(name, "shared").build() as algo:
        for _ in range(3):
            result = algo.train()
        assert 0 < result["num_agent_steps_trained"] == 2 * result["num_env_steps_trained"]


@pytest.mark.parametrize("name", TRAINING)
def test_a_policy_that_is_not_trained_keeps_its_weights(name):
    with of_agents(name, policies_to_train=["second"]).build() as algo:
        before = algo.get_weights()
        for _ in range(2):
            result = algo.train()
        after = algo.get_weights()
        assert set(algo.learners) == set(result["info"]["learner"]) == {"second"}
        assert set(getattr(algo, "replays", algo.learners)) == {"second"}
        np.testing.assert_array_equal(after["first"], before["first"])
        assert not np.array_equal(after["second"], before["second"])
        assert algo.metrics.policies["first"]["num_steps_sampled"] > 0
        assert not algo.metrics.policies["first"]["num_steps_trained"]


@pytest.mark.parametrize("name", TRAINING)
def test_a_checkpoint_has_all_of_every_policy(name, tmp_path):
    config = of_agents(name)
    if name in OFF_POLICY:
        config.training(store_buffer_in_checkpoints=True)
    with config.build() as algo:
        algo.train()
        saved = algo.get_state()
        algo.save(tmp_path / "saved")
        with config.build() as other:
            other.restore(tmp_path / "saved")
            state = other.get_state()
            assert state.keys() == saved.keys()
            if name in OFF_POLICY:
                assert all(f"policies/{each}/{REPLAY_FILE}" in state for each in ("first", "second"))
            for file, arrays in state.items():
                for array in arrays if file.endswith(".safetensors") else ():
                    np.testing.assert_array_equal(arrays[array], saved[file][array], err_msg=f"{file} {array}")
            assert state["algorithm.json"]["state"] == saved["algorithm.json"]["state"]
            assert other.train()["training_iteration"] == 2


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", ["DQN", "TD3"])
def test_replays_hold_what_the_agents_of_the_policy_did(name, scenario):
    with of_agents(name, scenario).build() as algo:
        algo.train()
        env = NameTheSignal(algo.config.env_config)
        for policy_id, replay in algo.replays.items():
            agent = "first" if policy_id == "shared" else policy_id
            # The last rows of both environments may be open.
            sampled = algo.metrics.policies[policy_id]["num_steps_sampled"]
            assert sampled - 2 <= len(replay) <= sampled
            rows = replay.sample(200, np.random.default_rng(1), 0.4)
            for seen, action, reward in zip(rows[sb.OBS], rows[sb.ACTIONS], rows[sb.REWARDS]):
                assert reward == pytest.approx(env.reward(agent, int(seen.argmax()), action), abs=1e-6)


def test_each_policy_has_its_replay_and_its_target_by_its_own_settings():
    policies = {"first": {"replay_buffer_config": {"capacity": 100}, "tau": 0.0}, "second": {"tau": 1.0}}
    config = of_agents("DQN", policies=policies).training(target_network_update_freq=2)
    with config.build() as algo:
        start = {policy_id: algo.trainees[policy_id].target.weights.copy() for policy_id in algo.policies}
        algo.train()
        assert len(algo.replays["first"]) == 100 < len(algo.replays["second"])
        np.testing.assert_array_equal(algo.trainees["first"].target.weights, start["first"])
        np.testing.assert_array_equal(algo.trainees["second"].target.weights, algo.policies["second"].weights)


@pytest.mark.parametrize(("counted", "first_update"), [("env_steps", 50), ("agent_steps", 25)])
def test_learning_starts_by_the_steps_that_are_counted(counted, first_update):
    """Both agents act in each step, so agents' steps are twice as many."""
    config = of_agents("DQN", count_steps_by=counted).rollouts(num_envs_per_worker=1)
    with config.reporting(min_sample_timesteps_per_iteration=0, min_train_timesteps_per_iteration=0).build() as algo:
        while not algo.num_updates:
            algo.train()
        assert algo.metrics.counters["num_env_steps_sampled"] == first_update
        assert algo.timesteps == 50
        for policy_id in algo.policies:
            assert algo._explored_by(policy_id)["epsilon"] == pytest.approx(1.0 - 0.98 * 50 / 10_000)


def test_updates_keep_to_the_intensity_of_each_policy():
    config = of_agents("DQN", policies={"first": {}, "second": {"train_batch_size": 32}}).training(training_intensity=8)
    with config.build() as algo:
        while not algo.num_updates:
            algo.training_step()
        before, counts = algo.timesteps, {each: algo.metrics.num_updates(each) for each in algo.policies}
        for _ in range(40):
            algo.training_step()
        steps = algo.timesteps - before
        made = {each: algo.metrics.num_updates(each) - counts[each] for each in algo.policies}
        assert made == {"first": steps * 8 // 64, "second": steps * 8 // 32}


class SecondIsLate(NameTheSignal):
    """The second agent is never shown anything."""

    def _shown(self):
        self.turn = 0
        return super()._shown()

    def step(self, action_dict):
        self.left["second"] = 0
        return super().step(action_dict)


@pytest.mark.parametrize("name", ["DQN", "SAC", "PQN", "R2D2", "IMPALA", "APPO", "ApexDQN"])
def test_a_policy_whose_agents_never_act_is_no_error(name):
    config = of_agents(name, "in turn").environment(SecondIsLate, env_config={"in_turn": True})
    with config.build() as algo:
        before = algo.get_weights()["second"]
        for _ in range(2):
            result = algo.train()
        assert np.isfinite(losses(result, "first")).all()
        np.testing.assert_array_equal(algo.get_weights()["second"], before)
        assert not algo.metrics.num_updates("second")


@pytest.mark.parametrize("name", ["IMPALA", "APPO", "ApexDQN", "R2D2", "DQN"])
def test_workers_in_other_processes_sample_for_every_policy(name):
    config = of_agents(name).rollouts(num_rollout_workers=2)
    if name == "DQN":
        config.rollouts(sample_async=True)
    with config.build() as algo:
        while not all(algo.metrics.num_updates(policy_id) for policy_id in algo.policies):
            result = algo.train()
        for policy_id in algo.policies:
            assert np.isfinite(losses(result, policy_id)).all()
            stats = result["info"]["learner"][policy_id]["learner_stats"]
            assert stats["policy_lag_updates"] >= 0


@pytest.mark.parametrize("name", ["IMPALA", "APPO"])
def test_rows_are_collected_until_the_train_batch_of_their_policy_is_full(name):
    """A batch is made of whole fragments; those here bring 20 rows to each policy."""
    policies = {"first": {"train_batch_size": 20}, "second": {"train_batch_size": 60}}
    config = of_agents(name, policies=policies).rollouts(rollout_fragment_length=10)
    config.training(train_batch_size=20, num_sgd_iter=1)
    with config.build() as algo:
        for number in range(1, 7):
            algo.training_step()
            assert algo.metrics.num_updates("first") == number
            assert algo.metrics.num_updates("second") == number // 3
        assert algo.metrics.policies["second"]["num_steps_trained"] == 120 == algo.timesteps


@pytest.mark.parametrize("name", ["IMPALA", "APPO"])
def test_each_policy_goes_round_its_own_ring(name):
    config = (
        of_agents(name)
        .rollouts(rollout_fragment_length=16)
        .training(
            train_batch_size=32,
            num_sgd_iter=2,
            minibatch_buffer_size=2,
            replay_proportion=1.0,
            replay_buffer_num_slots=4,
        )
    )
    with config.build() as algo:
        for _ in range(9):
            algo.training_step()
        for policy_id in algo.policies:
            assert algo.metrics.num_updates(policy_id) == 9
            assert algo.metrics.policies[policy_id]["num_steps_trained"] == 9 * 32


def test_a_function_may_say_that_no_policy_learns():
    """Steps are then sampled, and nothing waits for a train batch."""
    for name in ("IMPALA", "DQN", "PQN"):
        with of_agents(name, policies_to_train=lambda policy_id, batch: False).build() as algo:
            algo.training_step()
            assert algo.timesteps > 0 and not algo.num_updates


@pytest.mark.parametrize("name", ["PPO", "PQN", "DQN", "R2D2", "SAC", "TD3", "QMix", "ApexDQN"])
def test_a_function_may_stop_a_policy_for_a_while(name):
    """It learns no longer from rows of a replay either, which the function had let in."""
    learn = {"first", "second"}
    with of_agents(name, policies_to_train=lambda policy_id, batch: policy_id in learn).build() as algo:
        updates = algo.metrics.num_updates
        while not (updates("first") and updates("second")):
            algo.train()
        learn.remove("second")
        algo.training_step()  # Ape-X has updates that are due from the steps before
        before, stopped = updates("first"), algo.get_weights()["second"]
        while updates("first") < before + 3:
            algo.train()
        np.testing.assert_array_equal(algo.get_weights()["second"], stopped)
        state = algo.trainees["second"].numbers()
        if name in OFF_POLICY:
            algo.trainees["second"].set_numbers(state)
            assert algo.trainees["second"].numbers() == state and algo.trainees["second"].is_refused
        learn.add("second")
        before = updates("second")
        while updates("second") == before:
            algo.train()
        assert not np.array_equal(algo.get_weights()["second"], stopped)


@pytest.mark.parametrize("name", ["PPO", "PQN", "DQN", "R2D2", "SAC", "TD3", "IMPALA", "APPO", "ApexDQN"])
def test_policies_are_frozen_added_and_removed_while_a_run_goes_on(name):
    with of_agents(name, "in turn").build() as algo:
        algo.train()
        algo.set_policies_to_train(["first"])
        frozen = algo.get_weights()["second"]
        for _ in range(2):
            result = algo.train()
        np.testing.assert_array_equal(algo.get_weights()["second"], frozen)
        assert set(algo.learners) == set(result["info"]["learner"]) == {"first"}
        mapping = {"first": "first", "second": "third"}
        algo.add_policy("third", policy_mapping_fn=mapping, policies_to_train=["first", "third"])
        while not algo.metrics.num_updates("third"):
            result = algo.train()
        assert np.isfinite(losses(result, "third")).all()
        assert set(algo.learners) == {"first", "third"}
        algo.remove_policy("third", policy_mapping_fn={"first": "first", "second": "second"})
        updates = algo.metrics.num_updates("first")
        while algo.metrics.num_updates("first") == updates:
            result = algo.train()
        assert set(algo.learners) == set(result["info"]["learner"]) == {"first"}


# ------------------------------------------------------------------ learning

# gamma is 0, as an action decides nothing but its own reward.
LEARNING = {
    "DQN": (3_000, {"lr": 5e-3}),
    "PQN": (8_000, {"lr": 5e-3, "train_batch_size": 256}),
    "R2D2": (3_000, {"lr": 5e-3}),
    "ApexDQN": (3_000, {"lr": 5e-3}),
    "SAC": (1_500, {"lr": 5e-3, "initial_alpha": 0.1, "target_entropy": 0.1}),
    "TD3": (1_500, {"lr": 5e-3}),
    "IMPALA": (16_000, {"lr": 1e-2, "entropy_coeff": 0.0}),
    "APPO": (16_000, {"lr": 1e-2, "entropy_coeff": 0.0}),
}
EXPLORATION = {
    "DQN": {"epsilon_timesteps": 1000},
    "R2D2": {"epsilon_timesteps": 1000},
    "PQN": {"epsilon_timesteps": 1000},
    "ApexDQN": {"type": "EpsilonGreedy", "epsilon_timesteps": 1000},
    "TD3": {"random_timesteps": 200},
}


@pytest.mark.parametrize("name", LEARNING)
def test_both_agents_learn_what_their_own_observations_ask_for(name):
    steps, training = LEARNING[name]
    config = of_agents(name).training(gamma=0.0, **training)
    if name in EXPLORATION:
        config.exploration(exploration_config=EXPLORATION[name])
    with config.build() as algo:
        while algo.timesteps < steps:
            algo.train()
        env = NameTheSignal(algo.config.env_config)
        for agent, policy in algo.policies.items():
            signals = np.eye(env.sizes[agent], dtype=np.float32)
            state = np.zeros((len(signals), policy.state_size), np.float32) if policy.state_size else None
            actions = policy.choose(signals, explore=False, state=state)
            rewards = [env.reward(agent, signal, action) for signal, action in enumerate(actions)]
            assert min(rewards) >= 0.8, (agent, rewards)


def test_independent_learners_take_what_is_certain():
    """Under uniform behaviour each agent sees the mean over what the other does: 7 is then more than 9 / 2."""
    config = (
        DQNConfig()
        .environment("rllib.env.tasks.two_step_game:TwoStepGame")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=8)
        .multi_agent(policies="own")
        .exploration(exploration_config={"initial_epsilon": 1.0, "final_epsilon": 1.0})
        .training(lr=[[0, 0.05], [4000, 1e-3]], train_batch_size=128, td_error_loss_fn="mse", grad_clip=None)
        .training(dueling=False, hiddens=[], model={"fcnet_hiddens": []}, replay_buffer_config={"type": "ReplayBuffer"})
        .debugging(seed=1)
    )
    with config.build() as algo:
        algo.learn(4000)
        game = TwoStepGame()
        for number, agent in enumerate(game.possible_agents):
            in_2a_and_2b = np.eye(5, dtype=np.float32)[[1, 2]]
            in_2a_and_2b[:, 3 + number] = 1
            values = algo.get_policy(agent).action_values(in_2a_and_2b).q_values()
            # Each gets half of the rewards [[7, 7], [7, 7]] and [[0, 1], [1, 8]].
            np.testing.assert_allclose(values, [[3.5, 3.5], [0.25, 2.25]], atol=0.5)
        assert algo.evaluate(10)["episode_reward_mean"] == 7


# ------------------------------------------------------------------ refused


@pytest.mark.parametrize("name", algorithm_names())
def test_the_list_of_those_that_refuse_is_right(name):
    assert get_algorithm_class(name).trains_several == (name not in REFUSING)


@pytest.mark.parametrize("name", sorted(REFUSING))
def test_several_agents_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"{name} does not train policies of several agents.*A3C, ES and ARS"):
        of_agents(name).build()


def test_recorded_steps_are_of_one_policy():
    steps = {"obs": np.zeros((4, 2)), "actions": np.zeros(4, int), "rewards": np.zeros(4)}
    with pytest.raises(ValueError, match="recorded steps are those of one policy"):
        of_agents("DQN").offline_data(input_=steps).build()


def test_hindsight_is_refused():
    config = of_agents("DQN").training(replay_buffer_config={"type": "HindsightReplayBuffer"})
    with pytest.raises(ValueError, match=r"HindsightReplayBuffer.*several agents.*ReplayBuffer"):
        config.build()


@pytest.mark.parametrize("name", ["IMPALA", "APPO"])
def test_aggregation_workers_are_refused(name):
    config = of_agents(name).rollouts(num_rollout_workers=1).training(num_aggregation_workers=1)
    with pytest.raises(ValueError, match=r"num_aggregation_workers=1.*several agents"):
        config.build()


class Deserted(MultiAgentEnv):
    """Episodes of five steps, in which nobody acts after the first `with_agents` of them."""

    possible_agents = ("one",)
    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)

    def __init__(self, config):
        super().__init__()
        self.left = config["with_agents"] + 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.left = 0, self.left - 1
        return self._seen(), {}

    def step(self, action_dict):
        self.t += 1
        return self._seen(), {}, {"__all__": self.t >= 5}, {"__all__": False}, {}

    def _seen(self):
        return {"one": np.zeros(2, np.float32)} if self.left > 0 else {}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("base", [PPOConfig, DQNConfig, IMPALAConfig])
def test_steps_of_agents_are_not_waited_for_without_an_end(base, batch_mode):
    config = base().environment(Deserted, env_config={"with_agents": 8}).multi_agent(count_steps_by="agent_steps")
    config.rollouts(num_rollout_workers=0, rollout_fragment_length=10, batch_mode=batch_mode)
    config.training(train_batch_size=20, model={"fcnet_hiddens": [4]})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=20)
    if base is PPOConfig:
        config.training(sgd_minibatch_size=20)
    with config.build() as algo:
        assert algo.train()["timesteps_total"] >= 20
        with pytest.raises(ValueError, match="count_steps_by"):
            for _ in range(3):
                algo.train()
