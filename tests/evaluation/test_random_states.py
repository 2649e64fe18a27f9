"""States of random streams in checkpoints: what no run has written is refused, with its place in rng.json."""

import copy
import json

import pytest

from rllib import Algorithm, DQNConfig, PPOConfig
from rllib.env import register_env
from rllib.env.multi_agent import make_multi_agent
from rllib.errors import CheckpointError, DamagedFileError
from rllib.evaluation.random_states import refuse_damaged_streams
from rllib.policies import PolicySpec
from tests.damage import rewrite

STRANGE = [None, -1, 2**200, 0.5, float("nan"), float("inf"), "x", True, [], [1], {}]
POLICIES = ("default_policy", "p0", "p1")
SEVERAL = {"policies": {"p0": PolicySpec(), "p1": PolicySpec()}, "policy_mapping_fn": {"0": "p0", "*": "p1"}}


def config(form):
    register_env("two_poles", lambda config: make_multi_agent("CartPole-v1")(config))
    made = (DQNConfig if form == "noisy" else PPOConfig)().debugging(seed=1)
    made.environment("CartPole-v1").rollouts(num_rollout_workers=0, num_envs_per_worker=2)
    made.training(model={"fcnet_hiddens": [4]}, train_batch_size=40)
    if form != "noisy":
        return made.training(sgd_minibatch_size=40, num_sgd_iter=1).multi_agent(
            **({} if form == "one policy" else SEVERAL)
        ).environment("CartPole-v1" if form == "one policy" else "two_poles").multi_agent(
            policies_to_train=["p0"] if form == "one of two learns" else None
        )  # fmt: skip
    return made.exploration(exploration_config={"type": "ParameterNoise"})


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Form -> (checkpoint, content of its rng.json)."""
    found = {}
    for form in FORMS:
        with config(form).build() as algo:
            algo.train()
            path = algo.save(tmp_path_factory.mktemp("runs") / "run")
        found[form] = path, json.loads((path / "rng.json").read_text())
    return found


FORMS = ("one policy", "two policies", "one of two learns", "noisy")


def places(value, path=()):
    """Paths of all values, and of the dicts and lists that hold them."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def changed(state, path, value):
    """A copy with another value at a place; KeyError: without it."""
    state = copy.deepcopy(state)
    holder = state
    for key in path[:-1]:
        holder = holder[key]
    if value is KeyError:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return state


def is_possible(path, value):
    """Whether a run may have written this, or what equals it."""
    if "exploration" in path:  # of a class of the user, too
        return value == {} or path[-1] != "exploration"
    if value is True:
        return path[-1] in ("state", "inc", "has_uint32", "uinteger")
    if value == -1:  # before the first episode
        return path[-1] == "episode"
    return value == [] and path[0] == "workers" and len(path) < 3


@pytest.mark.parametrize("form", FORMS)
def test_no_value_may_be_strange(states, form):
    _, state = states[form]
    learned = list(state["learner"])
    refuse_damaged_streams(state, POLICIES, learned)
    for path in places(state):
        for value in STRANGE:
            if not is_possible(path, value):
                with pytest.raises(DamagedFileError, match=str(path[0])):
                    refuse_damaged_streams(changed(state, path, value), POLICIES, learned)
                    pytest.fail(f"accepted: {value!r} at {path}")


@pytest.mark.parametrize("form", ["two policies", "one of two learns"])
@pytest.mark.parametrize("slots", [-1, 0, 2, 10**9])
def test_every_environment_has_all_slots(states, form, slots):
    _, state = states[form]
    for index, each in enumerate(state["workers"][0]):
        if "slots" in each:
            with pytest.raises(DamagedFileError, match="slots"):
                refuse_damaged_streams(changed(state, ("workers", 0, index, "slots"), slots), POLICIES, [])
            with pytest.raises(DamagedFileError, match="slots"):
                refuse_damaged_streams(changed(state, ("workers", 0, index), KeyError), POLICIES, [])


def test_earlier_and_other_forms_are_known(states):
    _, several = states["two policies"]
    generator = several["inference"]
    for state in several["workers"][0]:  # without the number of slots
        state.pop("slots", None)
    refuse_damaged_streams(several, POLICIES, ["p0", "p1"])
    refuse_damaged_streams({**several, "learner": generator}, POLICIES, ["p0"])  # one generator for all policies
    of_tensors = {"incarnation": 1 << 20, "num_fragments": 4}
    for workers in ([], [[]], [[], []], [[{"episode": -1}]], [{"epoch": 3, "place": 17}], [[of_tensors]]):
        refuse_damaged_streams({**several, "workers": workers}, POLICIES, [])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("path", "value"),
    [(("inference",), {}), (("inference", "bit_generator"), "MT19937"), (("learner",), {}), (("workers",), 7),
     (("workers", 0, -1), {"episode": "x"}), (("workers", 0, 0, "rng", "state", "state"), -1)],
)  # fmt: skip
def test_files_are_refused_by_name(states, form, path, value, tmp_path):
    checkpoint, state = states[form]
    original = (checkpoint / "rng.json").read_bytes()
    rewrite(checkpoint, "rng.json", json.dumps(changed(state, path, value)).encode())
    try:
        with pytest.raises(CheckpointError, match=rf"{checkpoint} is damaged: .*{path[0]}.*rng\.json"):
            Algorithm.from_checkpoint(checkpoint)
        with config(form).build() as algo:
            with pytest.raises(CheckpointError, match=rf"{checkpoint} is damaged: .*{path[0]}.*rng\.json"):
                algo.restore(checkpoint)
            assert algo.iteration == 0
            rewrite(checkpoint, "rng.json", original)
            algo.restore(checkpoint)
            algo.train()
    finally:
        rewrite(checkpoint, "rng.json", original)
