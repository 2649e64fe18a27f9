"""Ten billion steps: counters, schedules and running statistics go on counting where 32 bits or a float32 would not."""

import numpy as np
import pytest

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.storage.checkpoint import read_checkpoint, write_checkpoint

LONG = 10_000_000_007
OFF_POLICY = {"num_steps_sampled_before_learning_starts": 16, "train_batch_size": 16, "rollout_fragment_length": 16}
SETTINGS = {
    "PPO": {
        "train_batch_size": 32, "sgd_minibatch_size": 16, "num_sgd_iter": 1,
        "observation_filter": "MeanStdFilter", "normalize_returns": True,
    },
    "A2C": {"train_batch_size": 32},
    "DQN": {**OFF_POLICY, "exploration_config": {"epsilon_timesteps": 2 * LONG}, "target_network_update_freq": 32},
    "RAINBOW": OFF_POLICY,
    "SAC": OFF_POLICY,
    "TD3": OFF_POLICY,
    "PQN": {"train_batch_size": 32, "sgd_minibatch_size": 16, "lambda_": 0.5},
}  # fmt: skip


def later(counts):
    """The same with counts that a run has after so many steps more."""
    if not isinstance(counts, dict):
        return counts
    return {
        name: value + LONG if isinstance(value, int) and name.startswith(("num_", "last_")) else later(value)
        for name, value in counts.items()
    }


def statistics_of(tree):
    """Rows that the observation filter and the scale of returns have counted."""
    files = ("weights.safetensors", "filter.count"), ("returns.safetensors", "count")
    return [
        float(tree[f"policies/default_policy/{file}"][count])
        for file, count in files if count in tree.get(f"policies/default_policy/{file}", {})
    ]  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_goes_on_after_ten_billion_steps(name, tmp_path):
    config = get_algorithm_config(name).environment("Pendulum-v1" if name in ("SAC", "TD3") else "CartPole-v1")
    config.update_from_dict({
        **SETTINGS[name], "num_rollout_workers": 0, "min_time_s_per_iteration": 0, "model": {"fcnet_hiddens": [8]},
        "min_sample_timesteps_per_iteration": 32, "lr": [[0, 1e-3], [2 * LONG, 0.0]],
    })  # fmt: skip
    with config.build() as algo:
        algo.train()
        tree = read_checkpoint(algo.save(str(tmp_path / "now")), load_user_code=True)
        began = algo.timesteps
    tree["algorithm.json"]["metrics"] = later(tree["algorithm.json"]["metrics"])
    for file in tree.values():
        for count in {"filter.count", "count"} & {*file}:
            file[count] = np.array(file[count] + LONG)
    path = write_checkpoint(tmp_path / "later", tree)
    with config.copy(copy_frozen=False).build() as algo:
        algo.restore(str(path))
        results = [algo.train() for _ in range(2)]
        counted = statistics_of(read_checkpoint(algo.save(str(tmp_path / "end")), load_user_code=True))
    # The filter sees the first observation of the restored environment as well.
    more = [now - before for now, before in zip(counted, statistics_of(tree), strict=True)]
    assert more == ([65, 64] if name == "PPO" else [])
    assert [result["timesteps_total"] for result in results] == [LONG + began + 32, LONG + began + 64]
    learned = results[-1]["info"]["learner"]["default_policy"]["learner_stats"]
    rates = {key: value for key, value in learned.items() if key.startswith("cur_") and key.endswith("lr")}
    assert rates and list(rates.values()) == pytest.approx([0.5e-3] * len(rates))
    if name == "DQN":
        assert results[-1]["info"]["num_target_updates"] > LONG
        assert learned["cur_epsilon"] == pytest.approx(0.51)
    assert results[-1]["num_env_steps_trained"] > LONG and np.isfinite([*learned.values()]).all()
