"""Pairs of doors, settings and algorithms: which runs there are, and what is checked in each."""

import contextlib
import itertools

import numpy as np

import rllib
from tests.witness.checks import Steps, check_counters, check_on_policy, check_stored, check_whole
from tests.witness.doors import AGENTS, DOORS
from tests.witness.reader import reading
from tests.witness.script import CRASHED, TERMINATED, TRUNCATED, Family

GAMMA, LAMBDA = 0.5, 0.75
ON_POLICY = ("PPO", "A2C", "IMPALA")
# Those whose batches have all steps that were sampled.
SYNCHRONOUS = ("PPO", "A2C")
OFF_POLICY = ("DQN", "SAC", "R2D2")
AXES = {
    "door": tuple(DOORS),
    "algorithm": (*ON_POLICY, *OFF_POLICY),
    "ends": ("flags", "crashes"),
    "batch_mode": ("truncate_episodes", "complete_episodes"),
    "fragment": (1, 3, 20),
    "envs": (1, 3, 9),
    "workers": (0, 2),
    "n_step": (1, 3, 5),
    "restore": (False, True),
}


def covering(axes, seed=0):
    """Few combinations, in which each pair of values of two axes occurs."""
    rng, names = np.random.default_rng(seed), list(axes)
    missing = {(a, x, b, y) for a, b in itertools.combinations(names, 2) for x in axes[a] for y in axes[b]}
    while missing:
        best, gain = None, -1
        for _ in range(30):
            a, x, b, y = sorted(missing, key=str)[rng.integers(len(missing))]
            case = {name: values[rng.integers(len(values))] for name, values in axes.items()} | {a: x, b: y}
            covered = sum((c, case[c], d, case[d]) in missing for c, d in itertools.combinations(names, 2))
            if covered > gain:
                best, gain = case, covered
        missing -= {(c, best[c], d, best[d]) for c, d in itertools.combinations(names, 2)}
        yield best


def settings(case):
    """The config of a case, without its environment, and the family of its scripts."""
    ends = (TERMINATED, TRUNCATED, CRASHED) if case["ends"] == "crashes" else (TERMINATED, TRUNCATED, "both")
    family = Family(ends=ends, num_agents=AGENTS[case["door"]])
    config = getattr(rllib, f"{case['algorithm']}Config")()
    config.rollouts(
        num_rollout_workers=case["workers"],
        num_envs_per_worker=case["envs"],
        rollout_fragment_length=case["fragment"],
        batch_mode=case["batch_mode"],
    )
    config.fault_tolerance(restart_failed_sub_environments=True).debugging(seed=1)
    rows = case["fragment"] * case["envs"] * max(1, case["workers"])
    model = {"fcnet_hiddens": [8]}
    config.training(gamma=GAMMA, lr=0.0, model=model)
    if case["algorithm"] in ON_POLICY:
        config.training(train_batch_size=rows)
    else:
        config.training(train_batch_size=16, num_steps_sampled_before_learning_starts=50)
        config.training(n_step=case["n_step"])
        kind = {} if case["algorithm"] == "R2D2" else {"type": "ReplayBuffer"}
        config.training(replay_buffer_config={"capacity": 5000, **kind})
    if case["algorithm"] == "PPO":
        config.training(lambda_=LAMBDA, sgd_minibatch_size=min(rows, 128), num_sgd_iter=1, standardize_advantages=False)
    if case["algorithm"] == "A2C":
        config.training(lambda_=LAMBDA)
    if case["algorithm"] == "R2D2":
        config.training(model={**model, "use_gru": True, "lstm_cell_size": 4, "max_seq_len": 5})
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=60)
    return config, family


def run(case, tmp_path):
    """Trains four iterations, the last two perhaps by a restored algorithm, and checks all that was read."""
    config, family = settings(case)
    steps, stored = Steps(), []
    with contextlib.ExitStack() as stack:
        stack.enter_context(DOORS[case["door"]](config, family, case))
        algorithm = stack.enter_context(config.build())
        for part in range(2):
            if part and case["restore"]:
                path = algorithm.save(tmp_path)
                algorithm = stack.enter_context(config.copy().build())
                algorithm.restore(path)
            with reading(algorithm) as read:
                result = [algorithm.train() for _ in range(2)][-1]
            if case["algorithm"] in ON_POLICY:
                for policy_id, columns in read.learned:
                    values = algorithm.get_policy(policy_id).values
                    check_on_policy(columns, family, steps, values, GAMMA, LAMBDA)
                    if case["batch_mode"] == "complete_episodes":
                        check_whole(columns, family)
            stored += [columns for _, columns in read.stored]
        check_stored(stored, family, steps, GAMMA, case["n_step"])
        assert steps.check_complete(family, num_open=1) > 5
        if case["algorithm"] in SYNCHRONOUS:
            check_counters(result, family, steps)
