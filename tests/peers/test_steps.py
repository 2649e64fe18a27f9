"""Whole runs beside Stable-Baselines3 and sb3-contrib, step by step: what acts, what is stored, and what is learned.

Both have equal episodes and equal random numbers: those of actions, of the rows of the replay and of the updates. The
peer gets our weights in each step, once it has acted by its own. So what is left is the rounding of one step; free runs
grow apart, as two of the peer do whose weights differ by rounding.
"""

from unittest.mock import patch

import equal_updates
import gymnasium
import numpy as np
import pytest

from rllib import sample_batch as sb
from rllib.algorithms.base.registry import get_algorithm_class
from rllib.exploration.action_noise import NoiseExplorer
from rllib.models.distributions.standard import DiagGaussian
from tests.peers.tasks import Watched

# Two episodes end at their time limit.
ENVIRONMENT, STEPS, RANDOM, ROWS = "Pendulum-v1", 500, 100, 128
WORDS = {
    "learning_rate": 1e-3, "learning_starts": RANDOM, "batch_size": ROWS, "buffer_size": 1000,
    "policy_kwargs": {"net_arch": [64, 64]},
}  # fmt: skip
NOISE = {"noise_type": "normal", "noise_std": 0.1}
# Words of both, and of ours alone: the peer's noise is given to it.
BOTH = {"CrossQ": {"policy_kwargs": {**WORDS["policy_kwargs"], **equal_updates.OPTIMIZERS["CrossQ"]}}}
OURS = {"TD3": NOISE, "DDPG": NOISE}
# Largest difference of a weight after an update, of which one moves it by 1e-3 and more. CrossQ's normalisation makes
# gradients of biases zero but for rounding, of which Adam makes steps even with the larger epsilon.
BOUNDS = {"SAC": 2e-5, "TQC": 2e-5, "CrossQ": 5e-4, "TD3": 2e-5, "DDPG": 2e-5}
# Their loss of deterministic actors' critics is the squared error, ours half of it; TQC's is the mean over two critics,
# ours the sum.
FACTORS = {"TD3": 2.0, "DDPG": 2.0, "TQC": 0.5}


def ours(name):
    """What our run was given and has made."""
    seen, batches, updates, actions, exploration = {}, [], [], [], []
    draw, added, algorithm = DiagGaussian.noise, NoiseExplorer.added, None

    def note():
        for each, array in equal_updates.weights(algorithm).items():
            seen.setdefault(each, []).append(array)

    def before_step(action):
        if algorithm is not None:  # not in checks of the environment
            note()
            actions.append(np.array(action))
        return action

    def noted_draw(self, rng, *shape, **more):
        exploration.append(drawn := draw(self, rng, *shape, **more))
        return drawn

    def noted_sum(self, noise):
        exploration.append(summand := added(self, noise).copy())
        return summand

    def update(batch, **more):
        batches.append({column: np.array(array) for column, array in batch.items()})
        updates.append(len(actions))
        return learn(batch, **more)

    words = {**WORDS, **BOTH.get(name, {}), **OURS.get(name, {}), "seed": 1}
    # Their first update follows the step after `learning_starts` ones, ours the last of these.
    words["num_steps_sampled_before_learning_starts"] = RANDOM + 1
    made = get_algorithm_class(name)("MlpPolicy", lambda: Watched(gymnasium.make(ENVIRONMENT), before_step), **words)
    noted = patch.object(DiagGaussian, "noise", noted_draw), patch.object(NoiseExplorer, "added", noted_sum)
    with made, noted[0], noted[1]:
        algorithm = made
        learn, algorithm.learner.update = algorithm.learner.update, update
        exploration.clear()
        algorithm.learn(STEPS)
        note()
        return {
            "weights": {each: np.stack(arrays) for each, arrays in seen.items()},
            "batches": {column: np.stack([batch[column] for batch in batches]) for column in batches[0]},
            "updates": updates,
            "actions": np.stack(actions),
            "exploration": np.concatenate(exploration),
            "rows": stored(algorithm),
            **memory(algorithm),
        }


def stored(algorithm):
    """Columns of the replay, with actions in [-1, 1]."""
    rows = {name.removeprefix("columns."): np.array(array) for name, array in algorithm.replay.get_state().items()}
    return rows | {sb.ACTIONS: algorithm.policy.distribution.for_critics(rows[sb.ACTIONS])}


def memory(algorithm):
    """Adam's means of gradients and of their squares."""
    learner, found = algorithm.learner, {}
    states = dict(zip(("critics", "policy"), learner.backend.states, strict=True))
    for kind, key in (("means", "adam.m"), ("squares", "adam.v")):
        found[kind] = equal_updates.named(algorithm, {module: state[key] for module, state in states.items()})
        if hasattr(algorithm.trainee, "temperature"):
            found[kind]["log_alpha"] = algorithm.trainee.temperature.get_state()[key]
    return found


def theirs(sb3, name, run):
    """What their run on our path has made."""
    noises = {each: array for each, array in run["batches"].items() if each.endswith("noise")}
    words = {**WORDS, **BOTH.get(name, {})}
    settings = {"algorithm": name, "environment": ENVIRONMENT, "num_random": RANDOM, "words": words}
    return sb3.call(
        "stepped.run", settings, actions=run["actions"], exploration=run["exploration"],
        rows=run["batches"][sb.INDICES], **noises, **run["weights"],
    )  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_every_step(name, sb3):
    run = ours(name)
    found, bound = theirs(sb3, name, run), BOUNDS[name]
    # One update after each step.
    np.testing.assert_array_equal(found["updates"], run["updates"])
    np.testing.assert_array_equal(run["updates"], range(RANDOM + 1, STEPS + 1))
    # From all rows so far, the newest one included.
    places, there = run["batches"][sb.INDICES], np.array(run["updates"])[:, None]
    assert places.min() >= 0
    assert (places < there).all()
    drawn, expected = (places == there - 1).any(1).sum(), (1 - (1 - 1 / there) ** ROWS).sum()
    assert abs(drawn - expected) < 4 * np.sqrt(expected)
    assert abs(((places + 0.5) / there).mean() - 0.5) < 4 * np.sqrt(1 / 12 / places.size)
    np.testing.assert_allclose(run["actions"], found["acted"], atol=bound)
    rows = run["rows"]
    for column in (sb.OBS, sb.REWARDS, sb.NEXT_OBS):
        np.testing.assert_array_equal(rows[column], found[column], err_msg=column)
    np.testing.assert_array_equal(rows[sb.DISCOUNTS], np.float32(0.99))  # also where a time limit ends an episode
    np.testing.assert_array_equal(found["discounts"], np.float32(0.99))
    np.testing.assert_allclose(rows[sb.ACTIONS], found["actions"], atol=bound)
    moved = {}
    for each, arrays in run["weights"].items():
        np.testing.assert_allclose(arrays, found[f"weights.{each}"], rtol=0, atol=bound, err_msg=each)
        module = each.split(".")[0]
        moved[module] = max(moved.get(module, 0.0), abs(np.diff(arrays, axis=0)).max())
    assert min(moved.values()) > 1e-4, moved
    for kind, power in (("means", 1), ("squares", 2)):
        kept = {each: array for each, array in run[kind].items() if f"{kind}.{each}" in found}
        assert {each.split(".")[0] for each in kept} >= {"policy", "critics"}
        for each, array in kept.items():
            factor = FACTORS.get(name, 1.0) ** power if each.startswith("critics") else 1.0
            expected = found[f"{kind}.{each}"] / factor
            np.testing.assert_allclose(array, expected, rtol=1e-3, atol=1e-3 * abs(expected).max(), err_msg=each)
