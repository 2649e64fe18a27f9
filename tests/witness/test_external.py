"""Worlds that drive their own loops in the workers' threads: every row and count, from the scripts."""

import contextlib

import pytest

from tests.witness.arrays import covering, parameters
from tests.witness.checks import check_on_policy, check_stored, check_whole
from tests.witness.doors.external import ExternalSeveral, ExternalSingle
from tests.witness.doors.loops import Manner
from tests.witness.grid import GAMMA, LAMBDA, OFF_POLICY, ON_POLICY, SYNCHRONOUS, settings
from tests.witness.reader import reading
from tests.witness.told import DROP_LOGGED, Told

pytestmark = pytest.mark.usefixtures("workers_know_the_module")

AXES = {
    "door": ("single", "several"),
    "algorithm": (*ON_POLICY, *OFF_POLICY),
    "ends": ("flags", "crashes"),
    "batch_mode": ("truncate_episodes", "complete_episodes"),
    "fragment": (1, 3, 20),
    "workers": (0, 2),
    "n_step": (1, 3, 5),
    "between": ("nothing", "restore", "restore in place", "freeze"),
    "loops": (1, 3),
    "places": (1, 2),
    "logs": (False, True),
    "has_untrained": (False, True),
    "asks_for_none": (False, True),
    "errs": (False, True),
}
# Only where several agents act can a policy end to learn.
RULES = (("door", ("single",), {"between": ("nothing", "restore", "restore in place")}),)


def run(case, tmp_path, scripts=0):
    """Trains four iterations, the last two perhaps by a restored algorithm or after a pause; checks all that was read.

    Args:
        case: values of the axes.
        tmp_path: for the checkpoint.
        scripts: number of the set of scripts, below 30.
    """
    config, family = settings({**case, "envs": 1})
    how = {"asks_for_none": case["asks_for_none"], "raises": True, "errs": case["errs"]}
    manner = Manner(case["logs"], case["has_untrained"], case["loops"], case["places"], **how)
    config.reporting(metrics_num_episodes_for_smoothing=100_000, min_sample_timesteps_per_iteration=40)
    if case["algorithm"] in OFF_POLICY:
        config.training(training_intensity=0.5)  # updates are not looked at
    several = family.num_agents > 1
    if several:
        config.multi_agent(policies={"p"}, policy_mapping_fn=lambda *_, **__: "p")

    def build(part):
        env_config = {"family": family, "manner": manner, "part": part}
        return config.copy().environment(ExternalSeveral if several else ExternalSingle, env_config=env_config).build()

    loses = case["between"] in ("freeze", "restore in place")
    if loses:  # a loop that loses an episode may leave another one that has begun since; whole episodes wait so long
        config.rollouts(sample_timeout_s=3)
    told, stored = Told(family, manner, case["algorithm"] in DROP_LOGGED, 3 if loses else 1), []
    with contextlib.ExitStack() as stack:
        algorithm = stack.enter_context(build(2 * scripts))
        for part in range(2):
            if part and case["between"] == "freeze":  # its agents act in other lanes, from new episodes on
                algorithm.set_policies_to_train([])
                algorithm.set_policies_to_train(["p"])
            if part and case["between"] == "restore":
                path = algorithm.save(tmp_path)
                algorithm = stack.enter_context(build(2 * scripts + 1))
                algorithm.restore(path)
            if part and case["between"] == "restore in place":  # its loops go on, and lose their episodes
                algorithm.restore(algorithm.save(tmp_path))
            with reading(algorithm) as read:
                result = [algorithm.train() for _ in range(2)][-1]
            if case["algorithm"] in ON_POLICY:
                for policy_id, columns in read.learned:
                    values = algorithm.get_policy(policy_id).values
                    check_on_policy(columns, family, told.steps, values, GAMMA, LAMBDA, may_cut=True)
                    if case["batch_mode"] == "complete_episodes" and not case["logs"] and case["ends"] != "crashes":
                        check_whole(columns, family)
            stored += [columns for _, columns in read.stored]
        check_stored(stored, family, told.steps, GAMMA, case["n_step"])
    # With a frozen policy go the rows that wait for its updates; how many do depends on the load of the machine.
    is_complete = case["between"] != "freeze" or case["algorithm"] not in ON_POLICY or case["algorithm"] in SYNCHRONOUS
    assert told.check_rows(is_complete) > 5
    if case["algorithm"] in SYNCHRONOUS:
        told.check_counts(result)


@pytest.mark.parametrize("case", parameters(covering(AXES, rules=RULES), "door"))
def test_loops_in_threads(case, tmp_path):
    run(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed, case",
    [(seed, case) for seed in range(1, 5) for case in covering(AXES, seed, rules=RULES)],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_loops_in_threads_with_other_scripts(seed, case, tmp_path):
    run(case, tmp_path, scripts=seed)
