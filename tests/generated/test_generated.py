"""Draws of fixed seeds train or are refused with a remedy that helps; failing draws of other seeds are cases.

`python -m tests.generated` (make faults) runs new seeds, and writes those that fail to cases/.
"""

import functools
import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rllib.algorithms.base.registry import algorithm_names, get_algorithm_config
from tests.generated import recorded, restores, worlds
from tests.generated.__main__ import Tally
from tests.generated.draw import draw, drawable, needs_processes, value_in
from tests.generated.hunt import Runner, shrunk
from tests.generated.trial import left_to_world
from tests.generated.values import NESTED, NOT_DRAWN
from tests.runtime.runtime_support import shared_memory_files, wait_until

# Numbers of draws: most are of runs in one process, since others take ten times as long. QUICK of those are quick.
NUMBERS = {"alone": 90, "processes": 2, "quorum": 2}
QUICK = 24
CASES = sorted(Path(__file__).with_name("cases").glob("*.json"))


@pytest.fixture(scope="module")
def runner():
    with Runner() as running:
        yield running


def described(outcome) -> str:
    lines = [f"{fault['stage']}: {fault['kind']}: {fault['message']} {fault['place']}" for fault in outcome["faults"]]
    return "\n".join([*lines, outcome["details"]])


@functools.cache
def draws() -> list:
    """The first draws of each kind."""
    found = {kind: [] for kind in NUMBERS}
    for seed in itertools.count():
        run = draw(seed)
        found[_kind_of(run)].append(run)
        if all(len(found[kind]) >= number for kind, number in NUMBERS.items()):
            return [run for kind, number in NUMBERS.items() for run in found[kind][:number]]


def _kind_of(run) -> str:
    has_workers = run["settings"].get("num_rollout_workers", 0) > 1
    if has_workers and run["settings"].get("sample_quorum", 1) < 1:
        return "quorum"
    return "processes" if needs_processes(run) else "alone"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(n, marks=[pytest.mark.slow] if QUICK <= n < NUMBERS["alone"] else [])
        for n in range(sum(NUMBERS.values()))
    ],
)
def test_a_drawn_run_trains_or_is_refused_with_a_remedy(number, runner):
    drawn = draws()[number]
    outcome = runner.run(drawn)
    assert not outcome["faults"], f"{drawn}\n{described(outcome)}"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_draw_that_has_failed_does_so_no_more(path, runner):
    outcome = runner.run(json.loads(path.read_text()))
    assert not outcome["faults"], described(outcome)


# ------------------------------------------------------------------ the generator itself


def test_fixed_draws_are_restored_otherwise_read_faults_and_find_foreign_checkpoints():
    found = draws()
    assert {each["restored with"]["by"] for each in found if "restored with" in each} == set(restores.WAYS)
    assert sum(bool(each["world"].get("data", {}).get("fault")) for each in found) > 3
    assert len({each["in its place"] for each in found if "in its place" in each}) > 3


def test_fixed_draws_are_typed_have_nested_callbacks_and_give_restores_their_mapping():
    found = draws()
    assert sum("typed" in each for each in found) > 3
    assert sum(each["settings"].get("callbacks_class") in NESTED for each in found) > 3
    assert any("mapped" in each for each in found) and sum("of the new" in each for each in found) > 1


def test_draws_are_json_and_repeat():
    for seed in range(50):
        assert json.loads(json.dumps(draw(seed))) == draw(seed)


@pytest.mark.parametrize("name", algorithm_names())
def test_every_setting_has_values_or_it_is_said_why_not(name):
    """A new setting has those of its declaration; one of no plain type needs a table in values.py."""
    config, rng = get_algorithm_config(name), random.Random(0)
    world = draw(0)["world"] | {"kind": "agents"}
    names = drawable(config, world)
    for each in names:
        value_in(rng, each, config, world)
    others = {each for each, setting in config.settings.items() if setting.not_yet is None} - set(names)
    assert others <= NOT_DRAWN.keys()


@pytest.mark.timeout(600)
def test_a_death_and_a_hang_are_faults_of_one_draw():
    """The process is replaced, and the next draw runs."""
    world = {"kind": "single", "observation": "numbers", "action": "choice", "length": 5}
    settings = {"train_batch_size": 10, "num_rollout_workers": 0, "min_time_s_per_iteration": 0, "seed": 0}
    plain = {"algorithm": "PG", "world": world, "settings": settings}
    with Runner(preload=False) as running:
        (fault,) = running.run({**plain, "seed": 0, "world": {**world, "dies": 3}})["faults"]
        assert fault["kind"] == "death"
        outcome = running.run({**plain, "seed": 1})
        assert outcome["trained"] and not outcome["faults"], described(outcome)
        running.hangs_s = 1.0
        (fault,) = running.run({**plain, "seed": 2, "world": {**world, "hangs": 3}})["faults"]
        assert fault["kind"] == "hang" and fault["place"]


@pytest.mark.timeout(400)
def test_a_program_that_is_told_to_end_within_a_draw_says_what_it_has_counted(tmp_path):
    """The process of the draws, whose answer nobody reads any more, says nothing."""
    log = tmp_path / "outcomes"
    words = [sys.executable, "-m", "tests.generated", "--first", "0", "--no-shrinking", "--log", log]
    program = subprocess.Popen(words, cwd=Path(__file__).parents[2], stdout=-1, stderr=-1, text=True)
    wait_until(log.exists, 300)
    program.terminate()
    output, errors = program.communicate(timeout=60)
    assert output.splitlines()[-1].startswith("| ") and not errors


def test_its_directory_is_no_leftover_of_a_session_that_ends_meanwhile():
    """The tests of the runtime, in other processes, look for what sessions have left in the same place."""
    with Runner() as running:
        # Private: nobody else knows the directory
        assert Path(running._directory.name).name not in shared_memory_files()


def test_a_failing_draw_is_made_smaller():
    """What stays is what the fault needs."""

    class Fails:
        def run(self, drawn):
            fails = (
                "gamma" in drawn["settings"] and drawn["world"].get("mask") and "removed" in drawn.get("changes", ())
            )
            return {"faults": [{"stage": "train", "kind": "ValueError", "place": ""}] if fails else []}

    changes = ["added", "first frozen", "removed"]
    settings = {"gamma": 0.5, "lr": 0.1, "model": {"fcnet_hiddens": [8], "layer_norm": True}}
    drawn = {"seed": 0, "algorithm": "PG", "settings": settings, "changes": changes}
    drawn["world"] = {"observation": "bits", "mask": "info", "uneven": True, "length": 5, "end": "both"}
    small = shrunk(drawn, Fails().run(drawn), Fails())
    assert small["settings"].keys() == {"gamma", "model"} and len(small["settings"]["model"]) == 1
    assert small["world"] == {"observation": "numbers", "mask": "info", "length": 5, "end": "terminated"}
    assert small["changes"] == ["removed"]
    assert shrunk(drawn, Fails().run(drawn), Fails(), limit_s=0.0) == drawn


@pytest.mark.parametrize("mapped", [{}, {"mapped": "policy_mapping_fn"}, {"mapped": "both"}], ids=str)
def test_policies_change_in_a_drawn_run(mapped, runner):
    """One that is copied, frozen and removed; the run goes on from a checkpoint meanwhile."""
    world = {"kind": "agents", "observation": "numbers", "action": "choice", "length": 5, "agents": 2, "style": "all"}
    settings = {"train_batch_size": 20, "num_rollout_workers": 0, "min_time_s_per_iteration": 0, "seed": 0}
    drawn = {"seed": 0, "algorithm": "PG", "world": world, "settings": settings}
    changes = ["copied", "new frozen", "restored", "all learn", "first frozen", "removed", "added"]
    outcome = runner.run({**drawn, "changes": changes, **mapped})
    assert outcome["trained"] and not outcome["faults"], described(outcome)
    assert outcome["changes"] == len(changes) and not outcome["refused_changes"]


def test_settings_of_a_new_policy_that_are_refused_are_told_as_its_own(runner):
    world = {"kind": "agents", "observation": "numbers", "action": "choice", "length": 5, "agents": 2, "style": "all"}
    settings = {**SHORT, **STORED, "model": {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 4}}
    drawn = {"seed": 0, "algorithm": "R2D2", "world": world, "settings": settings, "changes": ["added"]}
    outcome = runner.run({**drawn, "of the new": {"noisy": True}})
    assert outcome["trained"] and not outcome["faults"], described(outcome)
    ((_, message),) = outcome["refused_changes"]
    assert "cannot train a policy with a memory" in message


SHORT = {
    "train_batch_size": 20, "num_rollout_workers": 0, "seed": 0,
    "min_time_s_per_iteration": 0, "min_sample_timesteps_per_iteration": 40,
}  # fmt: skip


@pytest.mark.parametrize("algorithm", ["PG", "DQN"])
@pytest.mark.parametrize("mask", ["observation", "info", "method"])
@pytest.mark.parametrize("settings", [{}, {"action_mask_key": None}], ids=["known", "numbers"])
def test_only_policies_that_know_of_masks_have_to_heed_them(algorithm, mask, settings, runner):
    world = {"kind": "single", "observation": "numbers", "action": "choice from 2", "length": 5, "mask": mask}
    for seed in range(2):  # of the remedy, where masks beside the observation are given no name
        drawn = {"seed": seed, "algorithm": algorithm, "world": world, "settings": {**SHORT, **settings}}
        outcome = runner.run(drawn)
        assert outcome["trained"] and not outcome["faults"], described(outcome)


# Of one run each: what it has, and what it is restored with.
# Of runs with a replay, which is saved.
STORED = {"num_steps_sampled_before_learning_starts": 10, "store_buffer_in_checkpoints": True}
_PRIORITISED = {"type": "PrioritizedReplayBuffer", "capacity": 100, "prioritized_replay_alpha": 0.6}


def replay(**settings) -> dict:
    return {"replay_buffer_config": settings}


RESTORES = {
    "gamma": ("DQN", {"gamma": 0.9, "n_step": 1}, {"gamma": 0.5}, None),
    "gamma of several steps": ("DQN", {"gamma": 0.9, "n_step": 3}, {"gamma": 0.5}, "gamma"),
    "gamma of sequences": ("R2D2", {"gamma": 0.9, "n_step": 1}, {"gamma": 0.5}, None),
    "n_step": ("DQN", {"gamma": 0.9, "n_step": 3}, {"n_step": 1}, None),
    "exponent": ("DQN", replay(**_PRIORITISED), replay(prioritized_replay_alpha=0.2), None),
    "capacity": ("SAC", replay(capacity=100), replay(capacity=50), "replay_buffer_config"),
    "optimizer": ("PPO", {"opt_type": "adam"}, {"opt_type": "sgd"}, "opt_type"),
    "rates and sizes": ("PPO", {}, {"lr": 1e-4, "lambda_": 0.5, "num_envs_per_worker": 3}, None),
}  # fmt: skip


@pytest.mark.parametrize("by", restores.WAYS)
@pytest.mark.parametrize("name", RESTORES)
def test_a_run_is_restored_with_other_settings(name, by, runner):
    """What is stored is converted, or refused with the setting that it was stored by."""
    algorithm, settings, others, refused = RESTORES[name]
    world = {"kind": "single", "observation": "numbers", "action": "number" if algorithm == "SAC" else "choice"}
    own = {"sgd_minibatch_size": 10, "num_sgd_iter": 1} if algorithm == "PPO" else STORED
    own = {**SHORT, **own, "model": {"fcnet_hiddens": [8], "lstm_cell_size": 6, "max_seq_len": 4}, **settings}
    drawn = {"seed": 0, "algorithm": algorithm, "world": {**world, "length": 5}, "settings": own}
    outcome = runner.run({**drawn, "restored with": {"by": by, "settings": others}})
    assert outcome["restored_with"] and not outcome["faults"], described(outcome)
    assert [refused in message for message, _ in outcome["refused_restores"]] == ([True] if refused else [])


@pytest.mark.parametrize("kind", restores.OTHERS)
def test_a_checkpoint_of_another_run_is_refused_and_the_run_goes_on(kind, runner):
    drawn = {"seed": 0, "algorithm": "DQN", "settings": {**SHORT, **STORED}, "in its place": kind}
    drawn["world"] = {"kind": "agents", "agents": 2, "style": "all"}
    drawn["world"] |= {"observation": "numbers", "action": "choice", "length": 5}
    outcome = runner.run(drawn)
    assert outcome["kept_out"] and not outcome["faults"], described(outcome)


@pytest.mark.parametrize("form", ["json", "npz", "parquet"])
@pytest.mark.parametrize("kind", recorded.KINDS)
def test_recorded_rows_with_a_fault_are_refused_or_left_out(form, kind, tmp_path):
    """And no row gets a next observation that is not its own."""
    if form not in recorded.KINDS[kind].forms:
        pytest.skip(f"not of {form}")
    if form == "parquet":
        pytest.importorskip("pyarrow")
    world = {"kind": "data", "observation": "numbers", "action": "choice", "length": 5, "end": "mixed"}
    data = {"form": form, "episodes": 6, "fault": {"kind": kind, "at": 0.4}}
    assert not list(recorded.wrong_readings({**world, "data": data}, tmp_path))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_run_learns_from_the_rest_of_rows_with_a_fault(on_error, runner):
    world = {"kind": "data", "observation": "numbers", "action": "choice", "length": 5}
    world["data"] = {"form": "json", "episodes": 6, "fault": {"kind": "texts", "at": 0.4}}
    settings = {**SHORT, "input_config": {"on_error": on_error}, "dataset_num_iters_per_learner": 1}
    outcome = runner.run({"seed": 0, "algorithm": "BC", "world": world, "settings": settings})
    assert outcome["read_faulty"] and outcome["trained"] and not outcome["faults"], described(outcome)
    assert sum("line.json line 3:" in message for message, _ in outcome["refusals"]) == (on_error == "raise")


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("algorithm", ["PG", "DDPG", "SAC", "IQL"])
def test_bounds_are_left_by_policies_alone_that_are_neither_stretched_nor_clipped(algorithm, clip, runner):
    """No action of the space lies in [-1, 1]."""
    world = {"kind": "data" if algorithm == "IQL" else "single", "observation": "numbers", "action": "far"}
    world |= {"length": 5, "data": {"form": "arrays", "episodes": 6}} if algorithm == "IQL" else {"length": 5}
    settings = {**SHORT, "normalize_actions": False, "clip_actions": clip}
    outcome = runner.run({"seed": 0, "algorithm": algorithm, "world": world, "settings": settings})
    assert outcome["trained"] and not outcome["faults"], described(outcome)


def test_worlds_tell_what_is_wrong_with_an_action():
    worlds.forget()
    choice = worlds.World({"observation": "numbers", "action": "choice", "length": 5, "mask": "info"})
    parts = worlds.World({"observation": "numbers", "action": "dict", "length": 5})
    number = np.float32([1.5])
    for world, action in (
        (choice, 1), (choice, 0), (choice, 2), (parts, {"number": number, "choice": 1}),
        (parts, {"number": number, "choice": 2}), (parts, {"number": number[None], "choice": 1}),
    ):  # fmt: skip
        world.check(action)
    assert {kind: len(sentences) for kind, sentences in worlds.wrong.items()} == {"form": 3, "bounds": 1, "mask": 1}
    worlds.forget()
    assert not any(worlds.wrong.values())


@pytest.mark.parametrize(
    ("algorithm", "settings", "mask", "left"),
    [
        ("PPO", {}, "observation", set()), ("PPO", {"action_mask_key": None}, "observation", {"mask"}),
        ("PPO", {}, "info", {"mask"}), ("PPO", {"action_mask_from": "info"}, "info", set()),
        ("PPO", {"normalize_actions": False}, "observation", {"bounds"}),
        ("PPO", {"normalize_actions": False, "clip_actions": True}, "observation", set()),
        ("PPO", {"normalize_actions": False, "model": {"squash_actions": True}}, "observation", set()),
        ("TD3", {"normalize_actions": False}, "observation", set()),
    ],
)  # fmt: skip
def test_what_settings_leave_to_the_world(algorithm, settings, mask, left):
    config = get_algorithm_config(algorithm)
    config = config() if isinstance(config, type) else config
    config.update_from_dict(settings)
    assert left_to_world(config, {"algorithm": algorithm, "world": {"mask": mask}}) == left


def test_draws_are_counted_by_what_became_of_them():
    plain = {"seed": 3, "trained": True, "refusals": [], "faults": [], "exact": True}
    plain |= {"changes": 2, "refused_changes": [], "restored_with": True, "kept_out": False, "read_faulty": False}
    fault = {"stage": "train", "kind": "KeyError", "message": "lost", "place": "rllib/a.py:f"}
    with_remedy, without = [("a=1 must be 2", {"a": 2})], [("b=1 must be 2", None)]
    tally = Tally(strict=True)
    for changes in ({"refusals": without}, {"faults": [fault]}, {"refusals": with_remedy}, {}):
        tally.add({**plain, **changes})
    columns = [column.strip() for column in tally.row(first=5).split("|")[2:-2]]
    assert columns == ["5 to 8", "4", "2", "1 (25 %)", "1 (25 %)", "2 (50 %)"]
    assert "(seed 3: lost)" in list(tally.lines())[-1] and tally.refusals == {"b=# must be #": 1}
