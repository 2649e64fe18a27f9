"""A hundred updates of SAC, TQC, CrossQ, TD3 and DDPG beside those of Stable-Baselines3 and sb3-contrib.

Those of discrete SAC stand beside CleanRL's update, which peers/discrete_sac_equal_updates.py writes out. Both sides
begin with equal weights and are given equal batches and random numbers; printed is for each module the largest
difference of a weight after the updates, beside how far a weight moved at most. Ends with an error if one is more than
1e-4, or if a peer was not there.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

import numpy as np
from measure import aligned, machine, peer

BOUND, MISS = 1e-4, "MISS"
LR, TAU, BATCH, HIDDENS = 3e-4, 0.005, 256, [64, 64]
DISCRETE = "discrete SAC"
# Settings of ours by which both sides are the same.
SETTINGS = {
    "SAC": {},
    DISCRETE: {"target_entropy": 0.3},
    "TQC": {},
    "CrossQ": {"q_model_config": {"fcnet_hiddens": HIDDENS}, "adam_epsilon": 1e-4},
    "TD3": {},
    "DDPG": {"l2_reg": 0.0},
}
# Normalisation takes away the bias of a unit that no row switches off: its gradient is zero but for rounding, of which
# Adam makes steps unless its epsilon is larger.
OPTIMIZERS = {"CrossQ": {"optimizer_kwargs": {"betas": (0.5, 0.999), "eps": 1e-4}}}
# What batch renormalisation has -> the peer's name of it.
RENORM = {"weight": "scale", "bias": "bias", "running_mean": "ra_mean", "running_var": "ra_var"}


def build(name: str, environment: str):
    """The algorithm, with a replay of 1000 steps."""
    from rllib.algorithms.base.registry import get_algorithm_config

    targets = {} if name == "CrossQ" else {"tau": TAU}
    algo = (
        get_algorithm_config("SAC" if name == DISCRETE else name)
        .environment(environment)
        .training(
            lr=LR, train_batch_size=BATCH, model={"fcnet_hiddens": HIDDENS, "fcnet_activation": "relu"},
            replay_buffer_config={"type": "ReplayBuffer"}, **targets, **SETTINGS[name],
        )
        .debugging(seed=0)
        .build()
    )  # fmt: skip
    algo.replay.add(algo.sample(1000))
    return algo


def weights(algo) -> dict[str, np.ndarray]:
    """Copies of all weights by the names that the peer uses: MODULE.COPY.LAYER.weight and .bias."""
    learner = algo.learner
    flat = {name: learner.vector[name] for name in ("policy", *learner.vector.modules)}
    found = named(algo, flat | {f"target_{name}": target.weights for name, target in learner.targets.items()})
    if hasattr(algo.trainee, "temperature"):
        found["log_alpha"] = np.log([algo.trainee.temperature.alpha]).astype(np.float32)
    return found


def named(algo, flat: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copies of the numbers of layers by the names that the peer uses.

    Args:
        flat: those of modules by name; of targets too, whose names begin with "target_".
    """
    found = {}
    for module, values in flat.items():
        of = module.removeprefix("target_")
        networks = {}
        for name, array in algo.learner.vector.named_parameters(of, values).items():
            if name != "passes":
                *owner, layer, kind = name.split(".")
                copy = owner[0] if of == "critics" else "0"
                networks.setdefault(copy, {}).setdefault(layer, {})[kind] = array
        for copy, layers in enumerate(networks.values()):
            for index, layer in enumerate(sorted(layers, key=place)):
                for kind, array in layers[layer].items():
                    kind = RENORM[kind] if layer.startswith("renorm") else kind
                    found[f"{module}.{copy}.{index}.{kind}"] = array.copy()
    return found


def place(layer: str) -> tuple[float, bool]:
    """Layers ordered by this stand as they are computed; what normalises a layer's input is computed before it."""
    kind, _, index = layer.partition("_")
    return int(index) if index else math.inf, kind != "renorm"


def updated(algo, count: int) -> dict[str, np.ndarray]:
    """Makes the updates; the columns of all their batches, [count, B, ...] each."""
    batches, update = [], algo.learner.update

    def recording(batch, **settings):
        batches.append({name: np.array(column) for name, column in batch.items()})
        return update(batch, **settings)

    algo.learner.update = recording
    for _ in range(count):
        algo.trainee.update(**algo.trainee.learning_rates())
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def compare(name: str, environment: str, count: int) -> list[tuple[str, ...]] | None:
    """Lines of the table; None if the peer is not set up."""
    with build(name, environment) as algo, tempfile.TemporaryDirectory() as directory:
        given = weights(algo)
        given |= updated(algo, count)
        given["actions"] = np.stack(list(map(algo.policy.distribution.for_critics, given["actions"])))
        settings = {"algorithm": name, "environment": environment, "learning_rate": LR, "gamma": algo.config.gamma}
        if name == DISCRETE:
            settings |= {"tau": TAU, **SETTINGS[name]}
        else:
            settings |= {"batch_size": BATCH, "policy_kwargs": {"net_arch": HIDDENS, **OPTIMIZERS.get(name, {})}}
        files = Path(directory, "given.npz"), Path(directory, "results.npz")
        np.savez(files[0], settings=json.dumps(settings), **given)
        printed = peer("sb3", f"{'discrete_sac' if name == DISCRETE else 'sb3'}_equal_updates", *files)
        if printed is None:
            return None
        with np.load(files[1]) as theirs:
            return list(differences(name, given, weights(algo), theirs))


def differences(name: str, before: dict, ours: dict, theirs: dict):
    """A line for each module: how far a weight moved at most, and the largest difference."""
    modules = {each.split(".")[0]: [] for each in ours}
    for each, array in ours.items():
        modules[each.split(".")[0]].append((np.abs(array - before[each]).max(), np.abs(array - theirs[each]).max()))
    for module, found in modules.items():
        moved, difference = np.max(found, axis=0)
        yield name, module, f"{moved:.1e}", f"{difference:.1e}", "pass" if difference <= BOUND else MISS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="to compare")
    parser.add_argument("--environment", default="Pendulum-v1", help="of continuous actions")
    parser.add_argument("--discrete-environment", default="CartPole-v1", help="of discrete SAC")
    parser.add_argument("--updates", type=int, default=100)
    options = parser.parse_args()
    print(machine())
    found, left_out = [("algorithm", "module", "largest move", "largest difference", "")], []
    for name in options.algorithms:
        environment = options.discrete_environment if name == DISCRETE else options.environment
        lines = compare(name, environment, options.updates)
        found += lines or []
        left_out += [] if lines else [name]
    aligned(found)
    if left_out:
        raise SystemExit(f"not compared: {', '.join(left_out)}")
    if any(verdict == MISS for *_, verdict in found):
        raise SystemExit(f"a difference is more than {BOUND:g}")


if __name__ == "__main__":
    main()
