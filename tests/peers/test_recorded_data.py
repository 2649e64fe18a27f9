"""Gradients of algorithms for recorded data, beside d3rlpy: a step of SGD from equal weights on equal rows."""

import equal_updates
import numpy as np
import pytest

from rllib.algorithms.base.registry import get_algorithm_config

ACTOR_LR, CRITIC_LR, HIDDENS, ROWS = 1e-2, 1e-3, [16, 16], 64
# Our modules -> theirs.
MODULES = {
    "policy": "policy",
    "target_policy": "targ_policy",
    "critics": "q_funcs",
    "target_critics": "targ_q_funcs",
    "value": "value_func",
}
CASES = {
    "IQL": (
        "IQLConfig",
        {"value_encoder_factory": HIDDENS, "expectile": 0.8, "weight_temp": 2.0},
        {"expectile": 0.8, "beta": 2.0},
    ),
    "TD3BC": ("TD3PlusBCConfig", {"alpha": 1.5, "update_actor_interval": 1}, {"alpha": 1.5, "policy_delay": 1}),
}

MODULES_OF = {
    "IQL": {"policy", "q_funcs", "targ_q_funcs", "value_func"},
    "TD3BC": {"policy", "targ_policy", "q_funcs", "targ_q_funcs"},
}


@pytest.fixture
def data(tmp_path):
    """A file of steps of Pendulum-v1's spaces."""
    rng = np.random.default_rng(0)
    path = tmp_path / "steps.npz"
    np.savez(
        path, observations=rng.uniform(-1, 1, (400, 3)).astype(np.float32),
        actions=rng.uniform(-2, 2, (400, 1)).astype(np.float32), rewards=rng.normal(size=400).astype(np.float32),
        terminals=rng.random(400) < 0.1, timeouts=np.arange(400) == 399,
    )  # fmt: skip
    return path


@pytest.mark.parametrize("name", CASES)
def test_gradients(name, data, d3rlpy):
    config, words, ours = CASES[name]
    algorithm = (
        get_algorithm_config(name)
        .environment("Pendulum-v1")
        .offline_data(input_=str(data))
        .training(
            model={"fcnet_hiddens": HIDDENS}, train_batch_size=ROWS, opt_type="sgd", tau=0.1, gamma=0.9,
            # Our loss of critics is half the squared error.
            lr=CRITIC_LR, critic_lr=2 * CRITIC_LR, actor_lr=ACTOR_LR,
            **({"target_noise": 0.0} if name == "TD3BC" else {}), **ours,
        )
        .debugging(seed=0)
        .build()
    )  # fmt: skip
    with algorithm:
        before = named(equal_updates.weights(algorithm))
        batch = {column: rows[0] for column, rows in equal_updates.updated(algorithm, 1).items()}
        after = named(equal_updates.weights(algorithm))
    theirs = d3rlpy.call(
        "from_d3rlpy.step",
        {
            "config": config, "actor_lr": ACTOR_LR, "critic_lr": CRITIC_LR, "hiddens": HIDDENS, "gamma": 0.9,
            "tau": 0.1, "log_std": 0.0, "words": words,
        },
        obs=batch["obs"], actions=batch["actions"].reshape(ROWS, 1), rewards=batch["rewards"],
        next_obs=batch["new_obs"], terminals=(batch["discounts"] == 0).astype(np.float32), **before,
    )  # fmt: skip
    assert {each.split("/")[0] for each in before} == MODULES_OF[name]
    for each, array in before.items():
        step, expected = after[each] - array, theirs[each] - array
        scale = abs(expected).max()
        assert scale > 0, each
        # Which module steps first differs, so that the actor's step sees critics of before or after their small one.
        np.testing.assert_allclose(step, expected, atol=0.02 * scale, err_msg=each)


def named(weights):
    """Weights under d3rlpy's names."""
    found = {}
    for name, array in weights.items():
        module, copy, place, kind = name.split(".")
        if kind != "log_std":
            found[f"{MODULES[module]}/{copy}/{kind}/{place}"] = array
    return found
