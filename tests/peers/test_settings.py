"""Settings as Ray's configs write them: each key is taken here, or has no effect and asks for nothing."""

import json

import pytest

from rllib.algorithms.base.registry import get_algorithm_config

NAMES = (
    *("model", "replay_buffer_config", "q_model_config", "policy_model_config", "exploration_config"),
    *("lr", "actor_lr", "critic_lr", "alpha_lr", "grad_clip", "train_batch_size", "burnin_len"),
)
TASKS = {"CQL": "Pendulum-v1", "IQL": "Pendulum-v1"}


@pytest.mark.parametrize("algorithm", ["PPO", "APPO", "IMPALA", "DQN", "SAC", "CQL", "BC", "MARWIL", "IQL"])
def test_defaults_of_ray_are_taken(ray, tmp_path, algorithm):
    theirs = json.loads(str(ray.call("from_ray.written_dicts", {"algorithm": algorithm, "names": NAMES})["json"]))
    assert "model" in theirs and "lr" in theirs
    for name, value in theirs.items():
        for part in [value, *({key: item} for key, item in value.items())] if isinstance(value, dict) else [value]:
            config = get_algorithm_config(algorithm).environment(TASKS.get(algorithm, "CartPole-v1"))
            if config.needs_data:
                config.offline_data(input_=str(tmp_path))
            config.update_from_dict({name: part}).validate()
