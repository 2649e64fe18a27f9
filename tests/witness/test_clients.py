"""Worlds in other processes, behind policy clients: every row and count, from the scripts."""

import contextlib

import pytest

from tests.witness.arrays import covering, parameters
from tests.witness.checks import check_on_policy, check_stored
from tests.witness.doors.clients import Clients
from tests.witness.doors.loops import Manner
from tests.witness.doors.scripted import ACTION_SPACE, OBSERVATION_SPACE
from tests.witness.grid import GAMMA, LAMBDA, OFF_POLICY, ON_POLICY, SYNCHRONOUS, settings
from tests.witness.reader import reading
from tests.witness.told import DROP_LOGGED, Told

AXES = {
    "door": ("single", "several"),
    "inference": ("remote", "local"),
    "address": ("127.0.0.1:0", "tcp://127.0.0.1:0"),
    "algorithm": (*ON_POLICY, *OFF_POLICY),
    "ends": ("flags", "crashes"),
    "batch_mode": ("truncate_episodes", "complete_episodes"),
    "fragment": (1, 3, 20),
    "workers": (0, 2),
    "n_step": (1, 3),
    "restore": (False, True),
    "clients": (1, 2, 3),
    "places": (1, 2),
    "logs": (False, True),
    "has_untrained": (False, True),
    "kept": (1, 7),
    "errs": (False, True),
}
# There is no local inference for several agents.
RULES = (("door", ("several",), {"inference": ("remote",)}),)


def run(case, tmp_path, scripts=0):
    """Trains four iterations, the last two perhaps by a restored algorithm, and checks all that was read.

    Args:
        case: values of the axes.
        tmp_path: for the checkpoint.
        scripts: number of the set of scripts, below 60.
    """
    config, family = settings({**case, "envs": 1})
    how = {"raises": True, "errs": case["errs"]}
    manner = Manner(case["logs"], case["has_untrained"], case["clients"], case["places"], **how)
    config.environment(observation_space=OBSERVATION_SPACE, action_space=ACTION_SPACE)
    config.external(listen=case["address"], max_lag_updates=None)
    config.reporting(metrics_num_episodes_for_smoothing=100_000, min_sample_timesteps_per_iteration=40)
    if case["ends"] == "crashes":  # whole episodes of others wait a tenth of this for one whose client is gone
        config.external(episode_timeout_s=5)
    if case["algorithm"] in OFF_POLICY:
        config.training(training_intensity=0.5)  # updates are not looked at
    if family.num_agents > 1:
        config.multi_agent(policies={"p"}, policy_mapping_fn=lambda *_, **__: "p")
    client = {"inference_mode": case["inference"], "fragment_length": case["kept"], "seed": 1}
    told, stored = Told(family, manner, case["algorithm"] in DROP_LOGGED), []
    for part in range(2 if case["restore"] else 1):
        clients = Clients(family, manner, 2 * scripts + part, client)
        with contextlib.ExitStack() as stack:
            algorithm = config.copy().build()
            if part:
                algorithm.restore(tmp_path / "checkpoint")
            urls = algorithm.workers.foreach_worker(lambda worker: worker.env.url)
            stack.enter_context(clients.playing(urls[-max(case["workers"], 1) :]))
            stack.enter_context(algorithm)
            with reading(algorithm) as read:
                result = [algorithm.train() for _ in range(2 if case["restore"] else 4)][-1]
            algorithm.save(tmp_path / "checkpoint")
            if case["algorithm"] in ON_POLICY:
                for policy_id, columns in read.learned:
                    values = algorithm.get_policy(policy_id).values
                    check_on_policy(columns, family, told.steps, values, GAMMA, LAMBDA, may_cut=True)
            stored += [columns for _, columns in read.stored]
    check_stored(stored, family, told.steps, GAMMA, case["n_step"])
    assert told.check_rows() > 5
    if case["algorithm"] in SYNCHRONOUS:
        told.check_counts(result)


@pytest.mark.parametrize("case", parameters(covering(AXES, rules=RULES), "door"))
def test_policy_clients(case, tmp_path):
    run(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed, case",
    [(seed, case) for seed in range(1, 5) for case in covering(AXES, seed, rules=RULES)],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_policy_clients_with_other_scripts(seed, case, tmp_path):
    run(case, tmp_path, scripts=seed)
