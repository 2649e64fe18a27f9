"""Replays of a run that do not fit into memory together, and capacities that do."""

import pytest

from rllib import ApexDQNConfig, DQNConfig, R2D2Config, SACConfig
from rllib.config.conflicts import SettingsError
from rllib.env.multi_agent import make_multi_agent
from rllib.replay import memory

CAPACITY = 100_000
LSTM = {"use_lstm": True, "max_seq_len": 10, "lstm_cell_size": 4, "fcnet_hiddens": [4]}
RUNS = {
    "rows": (DQNConfig, "CartPole-v1", {}),
    "sequences": (R2D2Config, "CartPole-v1", {"model": LSTM}),
    "steps in sequences": (SACConfig, "Pendulum-v1", {"model": LSTM}),
    "shards": (ApexDQNConfig, "CartPole-v1", {"num_replay_buffer_shards": 2}),
}


def config(base, env, capacity=CAPACITY, **training):
    made = base().environment(env).rollouts(num_rollout_workers=0)
    training = {"num_steps_sampled_before_learning_starts": 0, "model": {"fcnet_hiddens": [4]}, **training}
    return made.training(replay_buffer_config={"capacity": capacity}, **training)


def of_policies(number):
    policies = {f"p{i}" for i in range(number)}
    made = config(DQNConfig, make_multi_agent("CartPole-v1")).environment(env_config={"num_agents": number})
    return made.multi_agent(policies=policies, policy_mapping_fn=lambda agent, *args, **kwargs: f"p{agent}")


def size_of_one():
    with of_policies(1).build() as algo:
        (replay,) = algo.replays.values()
        return replay.size_bytes


def remedied(made):
    """The config with the remedy of its refusal."""
    with pytest.raises(SettingsError, match=r"GiB are free") as error:
        made.build()
    (mistake,) = error.value.mistakes
    return made.update_from_dict(mistake.remedies[0])


@pytest.mark.parametrize("run", RUNS)
def test_the_capacity_that_is_named_fills_half_of_the_memory(run, monkeypatch):
    base, env, training = RUNS[run]
    with config(base, env, **training).build() as algo:
        free = algo.replay.size_bytes // 10
    monkeypatch.setattr(memory, "free_bytes", lambda: free)
    with remedied(config(base, env, **training)).build() as algo:
        assert 0.3 * free < algo.replay.size_bytes < 0.9 * free


@pytest.mark.parametrize("number", [2, 4])
def test_replays_of_several_policies_have_to_fit_together(number, monkeypatch):
    """Memory is taken when rows are first written: each of them alone would fit for a while."""
    free = int(1.5 * size_of_one())
    monkeypatch.setattr(memory, "free_bytes", lambda: free)
    of_policies(1).build().stop()
    with remedied(of_policies(number)).build() as algo:
        assert sum(replay.size_bytes for replay in algo.replays.values()) < free


def test_a_policy_that_is_added_has_no_room_where_others_will_need_it(monkeypatch):
    free = int(2.5 * size_of_one())
    monkeypatch.setattr(memory, "free_bytes", lambda: free)
    with of_policies(2).build() as algo:
        with pytest.raises(ValueError, match="replays of other policies take"):
            algo.add_policy("new")
        assert set(algo.replays) == {"p0", "p1"}
