"""Combinations of doors, settings and algorithms: which runs there are, and what is checked in each."""

import contextlib
import os
import signal
from dataclasses import replace

import numpy as np

import rllib
from rllib import sample_batch as sb
from tests.witness.checks import Steps, check_counters, check_on_policy, check_stored, check_whole
from tests.witness.checks.counters import check_failures, check_owners
from tests.witness.checks.rows import EXPECTED_LOGP
from tests.witness.doors import AGENTS, DOORS, KINDS
from tests.witness.doors.agents import actions_of_group, of_group
from tests.witness.forms import ACTIONS, FORMS, masked
from tests.witness.reader import reading
from tests.witness.script import BEFORE_CRASH, BOTH, CRASHED, DIED, HUNG, MIXED, TERMINATED, TRUNCATED, Family
from tests.witness.taught import Teacher

GAMMA, LAMBDA = 0.5, 0.75
ON_POLICY = ("PPO", "A2C", "IMPALA")
# Those whose batches have all steps that were sampled.
SYNCHRONOUS = ("PPO", "A2C")
OFF_POLICY = ("DQN", "SAC", "R2D2")
LIMIT = 5
ENDS = {
    "flags": Family((TERMINATED, TRUNCATED, BOTH)),
    "limit": Family((TERMINATED, TRUNCATED, BOTH), limit=LIMIT),
    "limit ends": Family((TERMINATED, TRUNCATED, BOTH), limit=LIMIT, limit_is_end=True),
    "crashes": Family((TERMINATED, TRUNCATED, CRASHED)),
    "resets": Family((TERMINATED, TRUNCATED, BEFORE_CRASH)),
    "deaths": Family((TERMINATED, TRUNCATED, DIED)),
    "hangs": Family((TERMINATED, TRUNCATED, HUNG), end_chance=0.06),
}
FAILING = ("crashes", "resets", "deaths", "hangs")
AXES = {
    "door": tuple(DOORS),
    "algorithm": (*ON_POLICY, *OFF_POLICY, "QMix"),
    "ends": tuple(ENDS),
    "batch_mode": ("truncate_episodes", "complete_episodes"),
    "fragment": (1, 3, 20),
    "envs": (1, 3, 9),
    "workers": (0, 2),
    "quorum": (1.0, 0.5),
    "n_step": (1, 3, 5),
    "restore": (False, True),
    "killed": (False, True),
    "form": tuple(FORMS),
    "actions": tuple(ACTIONS),
    "mask": ("none", "observation", "info", "method"),
    "policies": ("shared", "own", "mapped", "frozen"),
}
# Values of the axes that a case leaves out.
USUAL = {
    "door": "single",
    "algorithm": "PPO",
    "ends": "flags",
    "batch_mode": "truncate_episodes",
    "fragment": 3,
    "envs": 3,
    "workers": 0,
    "quorum": 1.0,
    "n_step": 1,
    "restore": False,
    "killed": False,
    "form": "box",
    "actions": "discrete",
    "mask": "none",
    "policies": "shared",
}
_VECTORS = tuple(door for door in DOORS if door.startswith(("vector", "tensors")))


def _but(axis, *values):
    return tuple(value for value in AXES[axis] if value not in values)


# (axis, its values) -> other axis: the values that go with these.
RULES = (
    ("door", _VECTORS, {"batch_mode": ("truncate_episodes",)}),  # all environments of a vector are stepped at once
    ("door", tuple(AGENTS), {"mask": ("none", "observation")}),
    ("door", tuple(door for door in DOORS if door not in AGENTS), {"policies": ("shared",)}),
    # A legacy reset has no info, and a method that is asked after a reset within the step has no final mask.
    ("mask", ("info",), {"door": _but("door", "legacy")}),
    ("mask", ("method",), {"door": _but("door", "legacy", "vector-same", "tensors-same")}),
    ("door", _but("door", "processes"), {"ends": _but("ends", "deaths", "hangs")}),
    ("door", _but("door", "groups"), {"algorithm": _but("algorithm", "QMix")}),
    ("door", ("groups",), {"algorithm": (*ON_POLICY, "QMix"), "mask": ("none",), "form": ("box", "dict", "tuple")}),
    (
        "door",
        ("dense",),
        {
            "form": ("box", "image", "multidiscrete"),
            "ends": ("flags",),
            "policies": _but("policies", "mapped"),
            "mask": ("none",),
        },
    ),
    ("algorithm", ("DQN", "R2D2"), {"actions": ("discrete", "start")}),
    ("algorithm", ("QMix",), {"actions": ("discrete",)}),
    ("algorithm", ("SAC",), {"actions": _but("actions", "multidiscrete")}),
    ("killed", (True,), {"workers": (2,)}),
    ("quorum", (0.5,), {"workers": (2,), "algorithm": SYNCHRONOUS}),
    ("mask", ("observation", "info", "method"), {"form": ("box",), "actions": _but("actions", "box")}),
)


# Values that cost most: cases have them less often than others.
COSTLY = {
    "workers": 2,
    "quorum": 0.5,
    "killed": True,
    "door": "processes",
    "algorithm": "R2D2",
    "ends": "hangs",
    "envs": 9,
}


def settings(case):
    """The config of a case, without its environment, and the family of its scripts."""
    case = USUAL | case
    door = case["door"]
    family = replace(ENDS[case["ends"]], num_agents=AGENTS.get(door, 1), kind=KINDS.get(door, MIXED))
    if door == "legacy":  # which cannot say both
        family = replace(family, ends=tuple(end for end in family.ends if end != BOTH))
    config = getattr(rllib, f"{case['algorithm']}Config")()
    config.rollouts(
        num_rollout_workers=case["workers"],
        num_envs_per_worker=case["envs"],
        rollout_fragment_length=case["fragment"],
        batch_mode=case["batch_mode"],
    )
    config.environment(time_limit_ends_episode=family.limit_is_end)
    if case["mask"] in ("info", "method"):
        config.environment(action_mask_from=case["mask"])
    config.fault_tolerance(
        restart_failed_sub_environments=case["ends"] in FAILING, delay_between_worker_restarts_s=0.0
    ).debugging(seed=case.get("seed", 1))
    if case["quorum"] < 1:
        config.rollouts(sample_quorum=case["quorum"])
    rows = case["fragment"] * case["envs"] * config.workers_per_round
    model = {"fcnet_hiddens": [8], **(FORMS[case["form"]].model or {})}
    config.training(gamma=GAMMA, lr=0.0, model=model)
    if case["algorithm"] in ON_POLICY:
        config.training(train_batch_size=rows)
    else:
        config.training(train_batch_size=32, num_steps_sampled_before_learning_starts=50, training_intensity=0.5)
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
    if door in AGENTS:
        config.multi_agent(**POLICIES[case["policies"]])
    return config, family


def _mapped(agent_id, episode, worker=None, **_):
    return f"p{int(episode.rng.random() < 0.5)}"


POLICIES = {
    "shared": {"policies": "shared"},
    "own": {"policies": "own"},
    "mapped": {"policies": {"p0", "p1"}, "policy_mapping_fn": _mapped},
    "frozen": {
        "policies": ["learner", "teacher"],
        "policy_mapping_fn": {"*0": "learner", "*": "teacher"},
        "policies_to_train": ["learner"],
    },
}


def spaces_of(case):
    """The form of the observations of a case, and its actions."""
    form, actions = FORMS[case["form"]], ACTIONS[case["actions"]]
    if case["mask"] != "none":
        form = masked(form, actions)
    if case["door"] == "groups":
        return of_group(form), actions_of_group(actions)
    return form, actions


def in_plain_numbers(columns, form, actions, squashed):
    """Columns of a batch with digits as observations and the numbers of actions, and log-probabilities by hand."""
    plain = dict(columns)
    for name in (sb.OBS, sb.NEXT_OBS):
        if name in columns:
            plain[name] = form.plain(columns[name])
    plain[sb.ACTIONS] = actions.plain(columns[sb.ACTIONS], squashed)
    if sb.ACTION_LOGP in columns:
        plain[EXPECTED_LOGP] = actions.log_prob(columns[sb.ACTION_DIST_INPUTS], columns[sb.ACTIONS])
    return plain


def kill_a_worker(algorithm):
    """Kills the process of the last rollout worker."""
    os.kill(algorithm.workers.foreach_worker(_pid)[-1], signal.SIGKILL)


def _pid(worker):
    return os.getpid()


def run(case, tmp_path):
    """Trains four iterations, the last two perhaps by a restored algorithm, and checks all that was read."""
    case = USUAL | case
    config, family = settings(case)
    form, actions = spaces_of(case)
    teachers = _teachers(config, case, form, actions) if "beta" in case else {}
    squashed = case["algorithm"] == "SAC"
    # All environments of a vector are replaced with one of them, and a hang is told from a slow call by time alone.
    may_cut = case["ends"] == "hangs" or (case["door"] in _VECTORS and case["ends"] in FAILING)
    # A policy's rows wait until they are a train batch, in which there is an episode for each row at most.
    waits = case["algorithm"] == "IMPALA" and case["policies"] != "shared"
    steps, stored, results, owners = Steps(), [], [], {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(DOORS[case["door"]](config, family, case))
        algorithm = stack.enter_context(config.build())
        for part in range(2):
            if part and case["restore"]:
                path = algorithm.save(tmp_path)
                algorithm = stack.enter_context(config.copy().build())
                algorithm.restore(path)
            if part and case["killed"]:
                kill_a_worker(algorithm)
            with reading(algorithm) as read:
                results += [algorithm.train() for _ in range(2)]
            for policy_id, columns in read.learned if case["algorithm"] in ON_POLICY else ():
                columns = in_plain_numbers(columns, form, actions, squashed)
                check_owners(columns, policy_id, case["policies"], owners)
                if teachers:
                    teachers.get(policy_id, teachers[None]).check(columns, case["beta"])
                check_on_policy(columns, family, steps, _values(algorithm, policy_id, form), GAMMA, LAMBDA, may_cut)
                if case["batch_mode"] == "complete_episodes" and not waits:
                    check_whole(columns, family)
            for policy_id, columns in read.stored:
                columns = in_plain_numbers(columns, form, actions, squashed)
                check_owners(columns, policy_id, case["policies"], owners)
                stored.append(columns)
        check_stored(stored, family, steps, GAMMA, case["n_step"])
        agents = (0,) if case["door"] in AGENTS and case["policies"] == "frozen" else range(family.num_agents)
        # Rows of n steps that end with a cut come with the policy's next fragment.
        cuts_wait = case["n_step"] > 1 and case["policies"] != "shared"
        num_open = config.train_batch_size if waits else 0
        assert steps.check_complete(family, num_open, agents=agents, cuts_wait=cuts_wait) > 5
        if case["algorithm"] in SYNCHRONOUS:
            num_environments = case["envs"] * max(case["workers"], 1) * (1 + case["restore"])
            check_counters(results[-1], family, steps, owners, agents, actions.bounds, num_environments)
            check_failures(results, family, steps, case)


def _teachers(config, case, form, actions):
    """Gives the config the teacher of the run, and policies whose ids are known their own; None -> that of the run."""
    made = [Teacher(form, actions, case["mask"] != "none", case["answer"], number) for number in range(3)]
    config.training(teacher=made[0], teacher_coeff=0.5, beta=case["beta"])
    if not isinstance(config.policies, list | set):
        return {None: made[0]}
    teachers = dict(zip(sorted(config.policies), made[1:]))
    config.multi_agent(policies={policy_id: {"teacher": teacher} for policy_id, teacher in teachers.items()})
    return {None: made[0], **teachers}


def _values(algorithm, policy_id, form):
    policy = algorithm.get_policy(policy_id)
    return lambda rows: policy.values(np.stack([form.stored(row) for row in rows]))
