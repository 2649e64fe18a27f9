"""Combinations of doors, settings and algorithms: which runs there are, and what is checked in each."""

import contextlib
import itertools
import os
import signal
from dataclasses import replace

import numpy as np

import rllib
from rllib import sample_batch as sb
from tests.witness.checks import EXPECTED_LOGP, Steps, check_on_policy, check_stored
from tests.witness.counters import check_counters, check_failures, check_owners
from tests.witness.doors import AGENTS, DOORS, KINDS
from tests.witness.doors.agents import actions_of_group, of_group
from tests.witness.forms import ACTIONS, FORMS, masked
from tests.witness.reader import reading
from tests.witness.script import BEFORE_CRASH, BOTH, CRASHED, DIED, HUNG, MIXED, TERMINATED, TRUNCATED, Family

GAMMA, LAMBDA = 0.5, 0.75
ON_POLICY = ("PPO", "A2C", "IMPALA")
# Those whose batches have all steps that were sampled.
SYNCHRONOUS = ("PPO", "A2C")
OFF_POLICY = ("DQN", "SAC", "R2D2", "QMix")
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
    "algorithm": (*ON_POLICY, *OFF_POLICY),
    "ends": tuple(ENDS),
    "batch_mode": ("truncate_episodes", "complete_episodes"),
    "fragment": (1, 3, 20),
    "envs": (1, 3, 9),
    "workers": (0, 2),
    "n_step": (1, 3, 5),
    "restore": (False, True),
    "killed": (False, True),
    "form": tuple(FORMS),
    "actions": tuple(ACTIONS),
    "mask": ("none", "observation", "info", "method"),
    "policies": ("shared", "own", "mapped", "frozen"),
}
_SEVERAL = tuple(AGENTS)
_VECTORS = tuple(door for door in DOORS if door.startswith(("vector", "tensors")))


def _but(axis, *values):
    return tuple(value for value in AXES[axis] if value not in values)


# (axis, its values) -> other axis: the values that go with these.
RULES = (
    ("door", _VECTORS, {"batch_mode": ("truncate_episodes",)}),  # all environments of a vector are stepped at once
    ("door", tuple(AGENTS), {"mask": ("none", "observation")}),
    ("door", tuple(door for door in DOORS if door not in AGENTS), {"policies": ("shared",)}),
    # Masks beside the observations of tensors are no tensors, and a legacy reset has no info.
    ("mask", ("info",), {"door": _but("door", "legacy", "tensors-same", "tensors-next", "tensors-disabled")}),
    (
        "mask",
        ("method",),
        {"door": _but("door", "legacy", "vector-same", "tensors-same", "tensors-next", "tensors-disabled")},
    ),
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
    ("mask", ("observation", "info", "method"), {"form": ("box",), "actions": _but("actions", "box")}),
)


# Values that cost most: cases have them less often than others.
COSTLY = {"workers": 2, "killed": True, "door": "processes", "algorithm": "R2D2", "ends": "hangs", "envs": 9}


class Combinations:
    """Cases of axes whose values go together by RULES, as bits: each value of an axis has one.

    Args:
        axes: name -> values.
    """

    def __init__(self, axes):
        self.axes = axes
        places = [(name, value) for name, values in axes.items() for value in values]
        self.bits = {place: 1 << i for i, place in enumerate(places)}
        self._against = dict.fromkeys(places, 0)
        for axis, values, others in RULES:
            for value, (other, allowed) in itertools.product(values, others.items()):
                for refused in set(axes[other]) - set(allowed):
                    self._against[axis, value] |= self.bits[other, refused]
                    self._against[other, refused] |= self.bits[axis, value]

    def fit(self, places):
        """Whether these (axis, value) go together."""
        bits = sum(self.bits[place] for place in places)
        return not any(self._against[place] & bits for place in places)

    def filled(self, places, rng):
        """A case with values of all axes that go with these; None if a draw of them ended where nothing fits."""
        case, bits = dict(places), sum(self.bits[place] for place in places)
        for name in rng.permutation([name for name in self.axes if name not in case]):
            fitting = [value for value in self.axes[name] if not self._against[name, value] & bits]
            if not fitting:
                return None
            if len(fitting) > 1 and rng.random() < 0.7:
                fitting = [value for value in fitting if value != COSTLY.get(name)]
            case[name] = fitting[rng.integers(len(fitting))]
            bits |= self.bits[name, case[name]]
        return {name: case[name] for name in self.axes}


def covering(axes, strength=2, seed=0):
    """Few cases, in which each `strength` values of different axes occur together that RULES admit."""
    rng, groups, all_of = np.random.default_rng(seed), list(itertools.combinations(axes, strength)), Combinations(axes)
    missing = dict.fromkeys(
        tuple(zip(names, values))
        for names in groups
        for values in itertools.product(*(axes[name] for name in names))
        if all_of.fit(tuple(zip(names, values)))
    )
    cases = []
    while missing:
        wanted = next(iter(missing))
        drawn = [case for _ in range(12) if (case := all_of.filled(wanted, rng))]
        missing.pop(wanted)  # where no case was drawn, these fit, but not with a value of another axis
        found = [[key for names in groups if (key := tuple((n, case[n]) for n in names)) in missing] for case in drawn]
        if found:
            best = max(range(len(drawn)), key=lambda i: len(found[i]))
            cases.append(drawn[best])
            for key in found[best]:
                del missing[key]
    return cases


def settings(case):
    """The config of a case, without its environment, and the family of its scripts."""
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
    rows = case["fragment"] * case["envs"] * max(1, case["workers"])
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
    config, family = settings(case)
    form, actions = spaces_of(case)
    squashed, may_cut = case["algorithm"] == "SAC", case["door"] in _VECTORS and case["ends"] in FAILING
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
                check_on_policy(columns, family, steps, _values(algorithm, policy_id, form), GAMMA, LAMBDA, may_cut)
            for policy_id, columns in read.stored:
                columns = in_plain_numbers(columns, form, actions, squashed)
                check_owners(columns, policy_id, case["policies"], owners)
                stored.append(columns)
        check_stored(stored, family, steps, GAMMA, case["n_step"])
        agents = (0,) if case["door"] in AGENTS and case["policies"] == "frozen" else range(family.num_agents)
        # A policy's rows wait until they are a train batch, in which there is an episode for each row at most.
        waits = case["algorithm"] == "IMPALA" and case["policies"] != "shared"
        assert steps.check_complete(family, config.train_batch_size if waits else 0, agents) > 5
        if case["algorithm"] in SYNCHRONOUS:
            check_counters(results[-1], family, steps, owners, agents)
            check_failures(results, family, steps, case)


def _values(algorithm, policy_id, form):
    policy = algorithm.get_policy(policy_id)
    return lambda rows: policy.values(np.stack([form.stored(row) for row in rows]))
