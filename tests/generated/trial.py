"""Runs a draw: builds it (with remedies, where it is refused), trains, saves, restores, acts, exports, stops.

All that is not right is noted as a fault: where, and what.
"""

import contextlib
import gc
import logging
import math
import operator
import os
import random
import shutil
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

import runtime
from rllib import Algorithm, load_policy
from rllib.algorithms.base.from_checkpoint import read_state
from rllib.algorithms.base.registry import get_algorithm_config, register_typed_algorithm
from rllib.algorithms.base.trainee import Trainee
from rllib.cli.checkpoints import acting_algorithm
from rllib.client import PolicyClient
from rllib.models.distributions.standard import DiagGaussian
from tests.generated import demonstrated, recorded, restores, teachers, worlds
from tests.generated.comparisons import different, equal, not_finite, place_of, weights_of
from tests.generated.draw import OF_BOTH, OF_NUMBERS, Draw
from tests.generated.refusals import (
    is_refusal,
    mistakes_of,
    names_in,
    plain,
    taken_slips,
    without_named,
    wrong_advice,
    wrong_owner,
)
from tests.generated.teachers import with_teacher
from tests.generated.values import count_of_notes, resolved

ITERATIONS = 2
# Id of a policy that comes later.
NEW = "new"
# More than a draw has mistakes. That a remedy ends none is noted apart, when the mistake comes again.
MOST_REMEDIES = 40


@dataclass
class Fault:
    """Something that is not right.

    Attributes:
        stage: what the run was doing.
        kind: class of the exception, or what was looked at.
        message: what is wrong.
        place: file and line of ours that raised it.
    """

    stage: str
    kind: str
    message: str
    place: str = ""

    @property
    def name(self) -> str:
        """The same for all faults of one cause, as far as that can be said."""
        return f"{self.stage}: {self.kind} {self.place}" if self.place else f"{self.stage}: {self.kind}"


@dataclass
class Outcome:
    """What became of a draw.

    Attributes:
        seed: of the draw.
        algorithm: its name.
        trained: whether it has trained, at last.
        refusals: (message, remedy that was applied) of each refusal at build(); the remedy is None where there is none.
        faults: all that is not right.
        exact: whether a restored run was compared with the one that goes on.
        changes: number of changes of policies after which it has trained.
        refused_changes: (change, message) of those that were refused.
        refused_restores: as `refusals`, of restores with other settings.
        restored_with: whether it was restored with other settings.
        kept_out: whether a checkpoint of another run was refused where its own had been.
        read_faulty: whether its recorded data had a fault.
        details: traceback of the first exception.
    """

    seed: int
    algorithm: str
    trained: bool = False
    refusals: list = field(default_factory=list)
    faults: list = field(default_factory=list)
    exact: bool = False
    changes: int = 0
    refused_changes: list = field(default_factory=list)
    refused_restores: list = field(default_factory=list)
    restored_with: bool = False
    kept_out: bool = False
    read_faulty: bool = False
    seconds: float = 0.0
    details: str = ""

    @property
    def lacks_remedy(self) -> bool:
        """Whether a refusal had no remedy that a program can apply."""
        return any(remedy is None for _, remedy in self.refusals)

    def to_json(self) -> dict:
        return asdict(self)


# ------------------------------------------------------------------ the config of a draw


def configured(draw: Draw, place: Path):
    """The config of a draw, with its remedies; `place` is a directory for its files."""
    world = draw["world"]
    word = draw.get("typed", draw["algorithm"])
    register_typed_algorithm(word)
    config = get_algorithm_config(word)
    if isinstance(config, type):
        config = config()
    door = worlds.DOORS[world["kind"]]
    if door is None:
        made = worlds.World(world)
        config.environment(None, observation_space=made.observation_space, action_space=made.action_space)
        config.external(listen=world.get("listen", "127.0.0.1:0"))
    else:
        config.environment(door, env_config=world)
    if world.get("mask") in ("info", "method"):
        config.environment(action_mask_from=world["mask"])
    if "data" in world:
        source = recorded.recorded(world, place)
        share = world["data"].get("share")
        if "demonstrations" in config.settings:
            config.offline_data(demonstrations=source)
        else:
            config.offline_data(input_={"sampler": share, source: 1 - share} if share else source)
    settings = _in_place(resolved(with_teacher(draw["settings"], world, place)), place)
    with_teacher(draw.get("of the new", {}), world, place)  # whose teacher is made before steps are counted
    config.update_from_dict(settings)
    for remedy in draw.get("remedies", ()):
        config.apply(remedy)
    return config


def _in_place(value, place: Path):
    """A value with directories below `place` where it has {"directory": NAME}."""
    if isinstance(value, Mapping):
        if value.keys() == {"directory"}:
            return str(place / value["directory"])
        return {key: _in_place(item, place) for key, item in value.items()}
    return value


# ------------------------------------------------------------------ one run


class Trial:
    """A draw's run and what is noted of it."""

    def __init__(self, draw: Draw, place: Path):
        self.draw, self.world, self.place = draw, draw["world"], place
        self.outcome = Outcome(draw["seed"], draw["algorithm"])
        self.stage = "configure"
        self._rng = random.Random(draw["seed"])
        self._remedied_before = None
        self._iterations = 0
        self._evaluated: Counter[str] = Counter()
        self._left_to_world: set[str] = set()
        self._algorithm: Algorithm | None = None  # whose discriminator is looked at

    def note(self, kind: str, message: str, place: str = "") -> None:
        self.outcome.faults.append(Fault(self.stage, kind, message[:600], place))

    def note_exception(self, error: BaseException) -> None:
        place = place_of(error)
        if not self.outcome.details:
            self.outcome.details = "".join(traceback.format_exception(error))[-6000:]
        self.note(type(error).__name__, str(error), place)

    @contextlib.contextmanager
    def doing(self, stage: str) -> Iterator[None]:
        """Notes what is raised, and goes on."""
        self.stage = stage
        try:
            yield
        except Exception as error:
            self.note_exception(error)

    def run(self) -> Outcome:
        """All of it."""
        start = time.monotonic()
        with contextlib.ExitStack() as stack:
            messages = stack.enter_context(_messages(_expected(self.draw)))
            try:
                if taken := taken_slips(self.draw.get("typed", "rllib")):
                    self.note("typed", f"{taken} are no algorithms, and were taken for some")
                stack.enter_context(self._watched())
                algorithm = self._built(stack)
                if algorithm is not None and self._is_taught(algorithm):
                    self._live(algorithm, stack)
            except Exception as error:
                self.note_exception(error)
            self.stage = "stop"
            try:
                stack.close()
            except Exception as error:
                self.note_exception(error)
            for kind, message in messages:
                self.stage = "warnings"
                self.note(kind, message)
        self.outcome.seconds = time.monotonic() - start
        return self.outcome

    def _built(self, stack):
        """The algorithm, after as many remedies as it takes; None: there is none that helps."""
        draw = self.draw
        for _ in range(MOST_REMEDIES):
            self.stage = "configure"
            try:
                config = configured(draw, self.place)
                self.stage = "build"
                asked = config.to_dict()
                algorithm = config.build()
            except Exception as error:
                if not is_refusal(error, self.stage):
                    raise
                if self._names_the_fault(draw, error):
                    self.outcome.refusals.append((str(error), {}))
                    options = draw["settings"].get("input_config", {})
                    if options.get("on_error") != "raise":
                        return None  # nothing helps but other data
                    draw = {**draw, "settings": {**draw["settings"], "input_config": {**options, "on_error": "skip"}}}
                    continue
                self._check_names(draw, error)
                draw = self._remedied(draw, error, self.outcome.refusals)
                if draw is None:
                    return None
                continue
            stack.callback(algorithm.stop)
            worlds.forget()  # an environment was stepped to check it
            self.draw, self.world = draw, draw["world"]
            self._check_settings(asked, algorithm.config)
            self._left_to_world = left_to_world(algorithm.config, draw)
            self._check_faulty_data(algorithm.config.has_data or algorithm.config.get("demonstrations") is not None)
            self._check_networks(algorithm)
            self._algorithm = algorithm
            return algorithm
        if not self.outcome.lacks_remedy:
            self.note("remedies", f"{MOST_REMEDIES} remedies have not helped: {self.outcome.refusals}")
        return None

    def _check_names(self, draw: Draw, error: Exception) -> None:
        """Notes a refusal of an infinite number, without a mistake as data, that does not say whose number it is."""
        infinite = [name for name, value in draw["settings"].items() if isinstance(value, float) and math.isinf(value)]
        if infinite and not mistakes_of(error) and not any(name in str(error) for name in infinite):
            self.note("nameless", f"{error} does not name {infinite}")

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Checks what learners get of a teacher, and what discriminators read, while the run goes on."""
        from rllib.imitation.discriminator import Discriminator  # it needs torch

        make, learn, learn_on_batch = Discriminator.__init__, Discriminator.learn, Trainee.learn_on_batch
        sides: dict[int, tuple] = {}

        def making(discriminator, settings, reader, expert, *args, **kwargs):
            sides[id(discriminator)] = settings, expert
            make(discriminator, settings, reader, expert, *args, **kwargs)

        def learning(discriminator, steps, *args, **kwargs):
            self._check_steps(*sides[id(discriminator)], steps)
            return learn(discriminator, steps, *args, **kwargs)

        def learning_on_batch(trainee, batch, **settings):
            if trainee.teacher is not None and trainee.algorithm.rollout_device is None:
                found = teachers.wrong_labels(trainee.algorithm, self.world, trainee.policy_id, batch)
                self._noted("labels", found)
            return learn_on_batch(trainee, batch, **settings)

        with (
            patch.object(Discriminator, "__init__", making),
            patch.object(Discriminator, "learn", learning),
            patch.object(Trainee, "learn_on_batch", learning_on_batch),
        ):
            yield

    def _check_steps(self, settings, expert, own) -> None:
        if self._algorithm is None:
            return
        for steps, is_expert in ((expert, True), (own, False)):
            found = demonstrated.wrong_steps(self._algorithm, self.world, settings, steps, is_expert=is_expert)
            self._noted("discriminator", found)

    def _noted(self, kind: str, problems: Iterator[str]) -> None:
        """Notes problems of a kind that has none so far: they come with each batch."""
        if not any(fault.kind == kind for fault in self.outcome.faults):
            for problem in problems:
                self.note(kind, problem)

    def _is_taught(self, algorithm: Algorithm) -> bool:
        """Whether the run can train: a teacher that fails says so in the first iteration, by its name."""
        fault = teachers.fault_of(self.draw)
        if fault is None or fault.at_build or not algorithm.config.asks_teacher:
            return True
        self.stage = "faulty teacher"
        try:
            algorithm.train()
        except Exception as error:
            if "teacher" not in "".join([str(error), *getattr(error, "__notes__", ())]):
                self.note_exception(error)
        else:
            self.note("not refused", f"{self.draw['settings']['teacher']} was learned from")
        return False

    def _remedied(self, draw: Draw, error: Exception, refusals: list) -> Draw | None:
        """The draw with a remedy of the refusal; without one, without a setting that it names.

        Args:
            refusals: those so far, to which this one is added.
        """
        message, mistakes = str(error), mistakes_of(error)
        if problem := wrong_advice(error, self.draw["algorithm"]):
            self.note("advice", problem)
        if any(mistake.no_setting_ends_it for mistake in mistakes):
            refusals.append((message, {}))  # it is complete: it says that no setting helps
            return None
        with_remedies = [mistake for mistake in mistakes if mistake.remedies]
        if not with_remedies:
            refusals.append((message, None))
            return without_named(draw, message)
        mistake = with_remedies[0]
        if mistake == self._remedied_before:
            self.note("remedy", f"{mistake.problem} {refusals[-1][1]} has not ended it")
        self._remedied_before = mistake
        # A remedy that undoes another would go round in circles.
        changed = {name for remedy in draw.get("remedies", ()) for name in names_in(remedy)}
        new = [remedy for remedy in mistake.remedies if not changed & names_in(remedy)]
        remedy = self._rng.choice(new or mistake.remedies)
        refusals.append((message, plain(remedy)))
        return {**draw, "remedies": [*draw.get("remedies", []), remedy]}

    def _check_faulty_data(self, has_data: bool) -> None:
        """Notes what is not read as it has to be of recorded data with a fault."""
        data = self.world.get("data", {})
        if not data.get("fault") or not has_data:
            return
        self.stage, self.outcome.read_faulty = "faulty data", True
        options, kind = self.draw["settings"].get("input_config", {}), recorded.kind_of(data["fault"])
        if kind.raised == "refused" and options.get("on_error") != "skip":
            self.note("not refused", f"{data} was learned from")
        for problem in recorded.wrong_readings(self.world, self.place):
            self.note(data["fault"]["kind"], problem)

    def _names_the_fault(self, draw: Draw, error: Exception) -> bool:
        """Whether a refusal is of the fault in the recorded data."""
        data = draw["world"].get("data", {})
        if not data.get("fault"):
            return False
        is_of_arrays = recorded.form_of(data) == "arrays" and not mistakes_of(error)
        if is_of_arrays and recorded.kind_of(data["fault"]).said not in str(error):
            self.note("what is wrong", f"{error} is said of {data['fault']}")
        return is_of_arrays or str(self.place / "faulty") in str(error)

    def _check_settings(self, asked: Mapping[str, Any], config) -> None:
        for name, value in asked.items():
            now = config[name]
            if now is not value and not equal(now, value):
                self.note("silent change", f"{name}={value!r:.100} was asked for, and the algorithm has {now!r:.100}")

    def _live(self, algorithm: Algorithm, stack) -> None:
        if self.world["kind"] == "client":
            stack.enter_context(_clients(algorithm, self.world))
        self.stage = "train"
        for _ in range(ITERATIONS):
            result = self._trained(algorithm)
        self._check_counts(algorithm, result)
        if self.draw.get("changes") and algorithm.agents is not None:
            algorithm, result = self._changed(algorithm, result, stack)
            self._check_counts(algorithm, result)
        weights = weights_of(algorithm)
        self.stage = "save"
        ended = worlds.all_are_over()
        path = algorithm.save(self.place / "checkpoint")
        restored = self._restored(algorithm, path, weights, stack)
        with self.doing("play alone"):
            self._play_alone(algorithm, path)
        if "restored with" in self.draw and self.world["kind"] != "client":
            with self.doing("restored with other settings"):
                self._restored_with(algorithm, path)
        with self.doing("evaluate"):
            self._evaluate(algorithm)
        with self.doing("act"):
            self._act(algorithm, path)
        with self.doing("export"):
            for policy_id in list(algorithm.policies)[:1]:
                algorithm.export_policy_model(self.place / "export", policy_id=policy_id)
                load_policy(self.place / "export")
        if restored is not None and self.world["kind"] != "client":
            with self.doing("resume"):
                self._resume(algorithm, restored, ended, result)
                self._iterations += self.outcome.exact
        if "in its place" in self.draw:
            with self.doing("another checkpoint"):
                self._kept_out(algorithm, path)
        self.outcome.trained = True

    def _trained(self, algorithm: Algorithm) -> Mapping[str, Any]:
        """The result of a further iteration."""
        result = algorithm.train()
        self._iterations += 1
        self._evaluated.update({key: result["evaluation"][key] for key in _OF_EVALUATIONS if "evaluation" in result})
        self._check_result(result, self._iterations)
        if result.get("noted", 0) != (wanted := count_of_notes(algorithm.config.callbacks_class)):
            self.note("callbacks", f"{result.get('noted', 0)} of {wanted} were called")
        return result

    def _changed(self, algorithm: Algorithm, result, stack) -> tuple[Algorithm, Mapping[str, Any]]:
        """The run and its result after the draw's changes of its policies, with an iteration after each."""
        player = algorithm.make_player()
        agents = [f"agent_{i}" for i in range(self.world["agents"])]
        first_mapping = {agent: player.policy_for(agent) for agent in agents}
        for change in self.draw["changes"]:
            self.stage = change
            if change == "restored":
                algorithm = self._replaced(algorithm, stack)
            elif not self._change(algorithm, change, first_mapping):
                continue
            trained = algorithm.agents.settings.trained
            if set(algorithm.learners) != trained:
                self.note("learners", f"{sorted(algorithm.learners)} learn instead of {sorted(trained)}")
            before = weights_of(algorithm)
            result = self._trained(algorithm)
            changed = set(different(before, weights_of(algorithm)))
            if learned := changed - trained:
                self.note("frozen", f"{sorted(learned)} have learned, but only {sorted(trained)} are to")
            self.outcome.changes += 1
        return algorithm, result

    def _change(self, algorithm: Algorithm, change: str, first_mapping: Mapping[str, str]) -> bool:
        """Makes a change; False where it does not apply, or is refused, after which the run has to be as before."""
        trained, there = sorted(algorithm.agents.settings.trained), list(algorithm.policies)
        comes, frozen = change in ("added", "copied"), NEW if change == "new frozen" else next(iter(trained), None)
        if comes == (NEW in there) and change in ("added", "copied", "removed"):
            return False
        if change.endswith("frozen") and frozen not in trained:
            return False
        try:
            if comes:  # all agents but the first one act by it
                mapping = dict.fromkeys(first_mapping, NEW) | {"agent_0": first_mapping["agent_0"]}
                copied = algorithm.policies[there[0]] if change == "copied" else None
                own = None if copied else self._own_of_new()
                algorithm.add_policy(
                    NEW, policy=copied, config=own, policy_mapping_fn=mapping, policies_to_train=[*trained, NEW]
                )
            elif change == "removed":
                algorithm.remove_policy(NEW, policy_mapping_fn=first_mapping)
            elif change == "all learn":
                algorithm.set_policies_to_train(there)
            else:
                algorithm.set_policies_to_train([each for each in trained if each != frozen])
        except Exception as error:
            if not is_refusal(error, "build"):
                raise
            self.outcome.refused_changes.append((change, str(error)))
            if change == "added" and (problem := wrong_owner(error, NEW, self._own_of_new())):
                self.note("whose settings", problem)
            if list(algorithm.policies) != there or sorted(algorithm.agents.settings.trained) != trained:
                self.note("refused change", f"the policies are {list(algorithm.policies)} after it instead of {there}")
        return True

    def _own_of_new(self) -> dict[str, Any]:
        """Settings in which the policy that is added differs from the run."""
        return _in_place(resolved(with_teacher(self.draw.get("of the new", {}), self.world, self.place)), self.place)

    def _replaced(self, algorithm: Algorithm, stack) -> Algorithm:
        """The run as it goes on from a checkpoint, after it was stopped."""
        weights, path, given = weights_of(algorithm), algorithm.save(self.place / "before"), self._mapping(algorithm)
        algorithm.stop()
        with worlds.others():
            return self._from_checkpoint(path, weights, given, stack)

    def _restored(self, algorithm: Algorithm, path, weights, stack) -> Algorithm | None:
        with self.doing("restore"):
            return self._from_checkpoint(path, weights, self._mapping(algorithm), stack)
        return None

    def _check_networks(self, algorithm: Algorithm) -> None:
        """Notes keys of `model` about the deviation of actions that a network has with other values."""
        asked = {
            name: value for name, value in self.draw["settings"].get("model", {}).items() if name in _OF_DEVIATIONS
        }
        for policy_id, policy in algorithm.policies.items() if asked else ():
            model = algorithm.config_of(policy_id).model
            if not isinstance(policy.distribution, DiagGaussian) or model.get("use_sde") or model.get("network"):
                continue
            for key, value in asked.items():
                if model.get(key) == value != (has := getattr(policy.spec, key)):  # no remedy has changed it
                    self.note("network", f"model[{key!r}]={model[key]!r} was asked for, and {policy_id} has {has!r}")

    def _play_alone(self, algorithm: Algorithm, path: Path) -> None:
        """Plays the checkpoint of a run that learns from a teacher or an expert, without it, as `rllib evaluate`."""
        config = algorithm.config
        is_taught = any(algorithm.config_of(policy_id).asks_teacher for policy_id in algorithm.trainees)
        if not (is_taught or config.get("demonstrations") is not None) or self.world["kind"] in worlds.EXTERNAL:
            return
        away = [each for each in self.place.glob("teacher*") if each.is_dir()]
        for each in away:
            each.rename(each.with_name(f"away {each.name}"))
        try:
            with worlds.others(), acting_algorithm(path, load_user_code=True) as other:
                if names := different(weights_of(algorithm), weights_of(other)):
                    self.note("weights", f"{names} differ where it is played alone")
                other.evaluate(1)
        finally:
            for each in away:
                each.with_name(f"away {each.name}").rename(each)
        self._check_actions()

    def _mapping(self, algorithm: Algorithm) -> dict[str, Any]:
        """Arguments of from_checkpoint that say again who acts by what, and what learns, where the draw gives them."""
        if "mapped" not in self.draw or algorithm.agents is None:
            return {}
        player, agents = algorithm.make_player(), [f"agent_{i}" for i in range(self.world["agents"])]
        given = {
            "policy_mapping_fn": {agent: player.policy_for(agent) for agent in agents},
            "policies_to_train": sorted(algorithm.agents.settings.trained),
        }
        return given if self.draw["mapped"] == "both" else {self.draw["mapped"]: given[self.draw["mapped"]]}

    def _from_checkpoint(self, path, weights, given: Mapping[str, Any], stack) -> Algorithm:
        restored = Algorithm.from_checkpoint(path, load_user_code=True, **given)
        stack.callback(restored.stop)
        if names := different(weights, weights_of(restored)):
            self.note("weights", f"{names} differ after a restore")
        return restored

    def _restored_with(self, algorithm: Algorithm, path: Path) -> None:
        """Restores the run with the other settings that the draw says, and trains it."""
        before, rows, self._remedied_before = restores.state_of(algorithm), restores.rows_of(algorithm), None
        draw = {"settings": self.draw["restored with"]["settings"], "remedies": []}
        for _ in range(MOST_REMEDIES):
            config = algorithm.config.copy(copy_frozen=False)
            try:
                config.update_from_dict(
                    _in_place(resolved(with_teacher(draw["settings"], self.world, self.place)), self.place)
                )
                for remedy in draw["remedies"]:
                    config.apply(remedy)
                names = {*draw["settings"], *(name for remedy in draw["remedies"] for name in remedy)}
                with worlds.others():
                    other = self._with_settings(config, names, path)
            except Exception as error:
                if not is_refusal(error, "build"):
                    raise
                draw = self._remedied(draw, error, self.outcome.refused_restores)
                if self.outcome.refused_restores[-1][1] is None:
                    self.note("no remedy", str(error))
                if draw is None:
                    return
                continue
            try:
                self._check_restored_with(algorithm, other, config, before, rows)
            finally:
                other.stop()
            return
        self.note("remedies", f"{MOST_REMEDIES} remedies have not helped: {self.outcome.refused_restores}")

    def _with_settings(self, config, names: set[str], path: Path) -> Algorithm:
        """The run of a checkpoint with a changed config; `names`: of the settings that may differ from the saved."""
        if self.draw["restored with"]["by"] == "from_checkpoint":
            return Algorithm.from_checkpoint(path, {name: config[name] for name in names}, load_user_code=True)
        other = config.build()
        try:
            before = restores.state_of(other)
            try:
                other.restore(path)
            except Exception:
                # Policies that the checkpoint alone trains are compared when they are there.
                comes = self.draw.get("changes")
                if (changed := restores.changed_files(before, restores.state_of(other))) and not comes:
                    self.note("left as it was", f"a restore that was refused has changed {changed}")
                raise
        except BaseException:
            other.stop()
            raise
        return other

    def _check_restored_with(self, algorithm: Algorithm, other: Algorithm, config, before, rows) -> None:
        """Notes what is not as it has to be of a run that was restored with other settings, and trains it."""
        self._check_settings({**config.to_dict(), "seed": other.config.seed}, other.config)
        if names := different(weights_of(algorithm), weights_of(other)):
            self.note("weights", f"{names} differ after a restore with other settings")
        if names := restores.lost_files(before, other.get_state()):
            self.note("state", f"{names} differ after a restore with other settings")
        settings = {each: (algorithm.config_of(each), other.config_of(each)) for each in other.trainees}
        for policy_id, restored in restores.rows_of(other).items():
            # A run that learned from recorded rows alone had none of its own.
            for problem in restores.wrong_rows(*settings[policy_id], rows.get(policy_id, {}), restored):
                self.note("rows", problem)
        looked_at = {"_left_to_world": left_to_world(other.config, self.draw), "_algorithm": other}
        with patch.multiple(self, **looked_at):
            result = other.train()
            self._check_result(result, self._iterations + 1)
        for policy_id, (_, own) in settings.items():
            stats = result["info"]["learner"].get(policy_id, {}).get("learner_stats", {})
            lr = None if own.get("lr_schedule") else own.get("lr")  # a schedule is in lr's place
            has_learned = other.metrics.num_updates(policy_id) > algorithm.metrics.num_updates(policy_id)
            if has_learned and isinstance(lr, float) and not math.isclose(stats.get("cur_lr", lr), lr, rel_tol=1e-5):
                self.note("rate", f"{policy_id} learns with a rate of {stats['cur_lr']}, but has lr={lr}")
        for policy_id, restored in restores.rows_of(other).items():
            for problem in restores.wrong_discounts(*settings[policy_id], restored):
                self.note("rows", problem)
        self.outcome.restored_with = True

    def _kept_out(self, algorithm: Algorithm, path: Path) -> None:
        """Puts the checkpoint of another run where this one's was; the run refuses it and continues."""
        kind, before = self.draw["in its place"], restores.state_of(algorithm)
        if not restores.put_in_place(path, kind, self.draw, self._built_other, self._rng):
            return
        try:
            with worlds.others():
                algorithm.restore(path)
        except Exception as error:
            if not is_refusal(error, "build"):
                raise
            if changed := restores.changed_files(before, restores.state_of(algorithm)):
                self.note("left as it was", f"a checkpoint ({kind}) that was refused has changed {changed}: {error}")
            self._iterations = algorithm.iteration
            self._trained(algorithm)
            self.outcome.kept_out = True
        else:
            if kind == "mixture" or not restores.fits(read_state(path, load_user_code=True), before):
                self.note("not refused", f"a checkpoint of another run ({kind}) was restored")

    def _built_other(self, draw: Draw) -> Algorithm | None:
        """The algorithm of another draw; None if it is refused."""
        try:
            return configured(draw, self.place).build()
        except Exception as error:
            if not is_refusal(error, "build"):
                raise
            return None

    def _check_result(self, result: Mapping[str, Any], iteration: int) -> None:
        if result["training_iteration"] != iteration:
            self.note("iteration", f"{result['training_iteration']} instead of {iteration}")
        learner = result["info"].get("learner", {})
        if wrong := list(not_finite(learner)):
            self.note("not finite", ", ".join(wrong[:6]))
        if result["episodes_total"] and not math.isfinite(result["episode_reward_mean"]):
            self.note("not finite", f"episode_reward_mean {result['episode_reward_mean']}")
        self._check_actions()

    def _check_actions(self) -> None:
        """Notes actions that worlds could not take, unless the settings leave that to the environment."""
        for kind, sentences in worlds.wrong.items():
            if sentences and kind not in self._left_to_world:
                self.note("actions", sentences[0])
            sentences.clear()

    def _check_counts(self, algorithm: Algorithm, result: Mapping[str, Any]) -> None:
        """Steps and episodes, of evaluations too, where all worlds are in this process."""
        config = algorithm.config
        is_here = not config.num_rollout_workers and config.gym_env_vectorize_mode != "async"
        if config.evaluation_interval:  # steps of episodes that worlds fail in are in no evaluation's result
            is_here = is_here and not config.evaluation_num_workers and not self.world.get("fails")
        if not is_here or self.world["kind"] not in COUNTED:
            return
        if config.get("eval_prob") is not None or config.get("sample_async") or config.get("evaluate_teacher"):
            return
        has_limit = any("TimeLimit" in each for each in config.env_wrappers or ())  # which ends episodes of its own
        sampled = result["num_env_steps_sampled"] + self._evaluated["num_env_steps_sampled_this_iter"]
        ended = result["episodes_total"] + self._evaluated["episodes_this_iter"]
        # A step of an AECEnv is one agent's.
        if sampled != worlds.steps[0] and self.world["kind"] != "aec":
            self.note("counts", f"{sampled} steps were reported, but worlds have made {worlds.steps[0]}")
        if ended != worlds.episodes[0] and not (self.world.get("fails") or has_limit):
            self.note("counts", f"{ended} episodes were reported, {worlds.episodes[0]} have ended")

    def _evaluate(self, algorithm: Algorithm) -> None:
        if self.world["kind"] in worlds.EXTERNAL:
            return
        if algorithm.config.off_policy_estimation_methods:
            algorithm.evaluate()
            return
        result = algorithm.evaluate(2)
        if not math.isfinite(result["episode_reward_mean"]):
            self.note("not finite", f"episode_reward_mean {result['episode_reward_mean']} of an evaluation")
        self._check_actions()

    def _act(self, algorithm: Algorithm, path) -> None:
        """An episode's first steps by the algorithm and by its checkpoint, which take the same actions."""
        if self.world["kind"] == "group" or _shows_more(algorithm.config):
            return
        policy_id = next(iter(algorithm.policies))
        loaded = load_policy(path, policy_id, load_user_code=True)
        agent = None
        if self.world["kind"] in worlds.OF_AGENTS:
            world = worlds.Worlds({**self.world, "style": "all"})
            agent = _agent_of(algorithm, policy_id, world.possible_agents)
            if agent is None:
                return
            space, observations = world.action_spaces[agent], world.observation_spaces[agent]
        else:
            world = worlds.World(self.world)
            space, observations = world.action_space, None
        players = algorithm.make_player(policy_id=policy_id, agent_id=agent), loaded.make_player(agent_id=agent)
        reward = None
        for t in range(3):
            world.t = t
            is_beside = self.world.get("mask") in ("info", "method") and knows_masks(algorithm.config, self.world)
            mask = world.action_masks() if is_beside else None
            shown = world.seen() if observations is None else worlds.observed(observations, t)
            actions = [player.act(shown, reward, mask) for player in players]
            worlds.check_space(space, actions[0])
            if not equal(*actions, close=True):
                self.note("loaded policy", f"it takes {actions[1]!r}, and the algorithm {actions[0]!r}")
            if self.world.get("mask"):
                world.check(actions[0])
            reward = 0.5
        self._check_actions()
        world.t = 0

    def _resume(self, algorithm: Algorithm, restored: Algorithm, ended: bool, before: Mapping[str, Any]) -> None:
        after = restored.train()
        self._check_result(after, self._iterations + 1)
        if after["timesteps_total"] < before["timesteps_total"]:
            self.note("counts", f"timesteps_total {after['timesteps_total']} after {before['timesteps_total']}")
        if not ended or not continues_exactly(algorithm, self.world):
            return
        self.outcome.exact = True
        result = algorithm.train()
        if names := different(weights_of(algorithm), weights_of(restored)):
            self.note("not exact", f"weights of {names} differ in the iteration after a restore")
        elif not equal(result["info"]["learner"], after["info"]["learner"]):
            self.note("not exact", "statistics of the learner differ in the iteration after a restore")


# Counts in the result of an evaluation.
_OF_EVALUATIONS = ("num_env_steps_sampled_this_iter", "episodes_this_iter")

COUNTED = ("single", "agents", "group", "parallel", "aec")


def knows_masks(config, world: Mapping[str, Any]) -> bool:
    """Whether policies are shown the masks of a world as masks: with `action_mask_key=None` they are numbers."""
    return config.action_mask_key is not None and config.action_mask_from == world.get("mask")


def left_to_world(config, draw: Draw) -> set[str]:
    """What may be wrong with actions (`worlds.wrong`) by the settings of a run.

    Without masks policies take illegal actions. Actions that are neither stretched nor clipped lie anywhere, but for
    those that tanh bounds.
    """
    left = set() if knows_masks(config, draw["world"]) else {"mask"}
    is_bounded = draw["algorithm"] in (*OF_NUMBERS, *OF_BOTH) or config.get("model", {}).get("squash_actions")
    is_raw = not config.normalize_actions and not config.clip_actions
    return left | {"bounds"} if is_raw and not is_bounded else left


def _shows_more(config) -> bool:
    """Whether policies see something else than their environment shows, which a program would have to make of it."""
    return bool(config.env_wrappers or config.env_to_module_connector)


def _agent_of(algorithm: Algorithm, policy_id: str, agents: list[str]) -> str | None:
    """An agent that acts by this policy."""
    player = algorithm.make_player()
    return next((agent for agent in agents if player.policy_for(agent) == policy_id), None)


# Keys of `model` about the deviation of continuous actions, which networks have as they are given.
_OF_DEVIATIONS = {"free_log_std", "log_std_init"}

# Algorithms that go on exactly after a restore (docs/project/architecture.md), and what they need for it.
_ASYNCHRONOUS = ("A3C", "IMPALA", "APPO")
_NEVER_EXACT = ("ApexDQN", "ApexDDPG")


def continues_exactly(algorithm: Algorithm, world: Mapping[str, Any]) -> bool:
    """Whether architecture.md says that the next result of a restored run is that of the run which goes on."""
    config, name = algorithm.config, type(algorithm).__name__
    if name in _NEVER_EXACT or config.get("sample_async") or world["kind"] in worlds.EXTERNAL or world.get("fails"):
        return False
    if config.iteration_minima()[0]:
        return False  # an iteration lasts by the clock
    if world.get("uneven") or world.get("end") == "mixed":
        return False  # an episode depends on its number, which begins anew
    filters = {algorithm.config_of(policy_id).observation_filter for policy_id in algorithm.policies}
    if filters != {"NoFilter"} and name not in ("ES", "ARS"):
        return False
    if config.disturbances and name not in ("ES", "ARS"):
        return False  # environments of a restored run have other seeds, which draw others
    if config.num_rollout_workers or config.evaluation_interval or config.gym_env_vectorize_mode == "async":
        return False  # whether episodes are over there is not known here
    if name in _ASYNCHRONOUS and (config.get("replay_proportion") or config.get("minibatch_buffer_size", 1) > 1):
        return False
    samples = algorithm.recorded is not None and algorithm.recorded.sampled  # SQIL does so without being told
    if config.has_data and not (samples and not config.get("store_buffer_in_checkpoints", True)):
        return "replay_buffer_config" not in config or "Prioritized" not in config.replay_settings()["type"]
    return "store_buffer_in_checkpoints" not in config or config.store_buffer_in_checkpoints


# ------------------------------------------------------------------ clients, messages, and what is left


@contextlib.contextmanager
def _clients(algorithm: Algorithm, world: Mapping[str, Any]) -> Iterator[None]:
    """A client of each worker's server, which plays episodes of a world until the algorithm stops, or this ends."""
    stopping, threads = threading.Event(), []
    made = [worlds.World(world) for _ in range(max(algorithm.config.num_rollout_workers, 1))]

    def play(client, its_world):
        with contextlib.suppress(Exception), client:  # whatever the end of a run makes of a call
            while not stopping.is_set():
                worlds.play(client, its_world)

    for its_world, (url,) in zip(made, algorithm.workers.foreach_env(operator.attrgetter("url")), strict=True):
        client = PolicyClient(url, retry_s=0.0)
        threads.append(threading.Thread(target=play, args=(client, its_world), daemon=True))
        threads[-1].start()
    try:
        yield
    finally:
        stopping.set()
        for its_world in made:
            its_world.config["length"] = 0  # the present episode ends with its next step
        algorithm.stop()
        for thread in threads:
            thread.join(30)


# What a run may say, by a part of the message: settings without effect, of which draws are full; advice; and what
# follows from a small machine, or from the worlds.
_EXPECTED = (
    *("no effect", "has no part in a network", "runs synchronously", "overestimates actions", "take turns"),
    *("both terminated and truncated", "end without a flag", "is replaced", "the world fails"),
    *("it repeats them", "what is sampled first is lost", "nothing is trained", "continues with an empty one"),
    *("of policies that learn again", "gets no rows of policies that do not learn"),
)


def _expected(draw: Draw) -> tuple[str, ...]:
    """Parts of what this run may say."""
    world, parts = draw["world"], _EXPECTED + recorded.expected_messages(draw["world"])
    if "data" in world and world["data"]["form"] == "arrays" and world["data"].get("says_next") is not True:
        parts += ("is not known", "is the first observation of the next episode")
    if "actions_in_input_normalized" in draw["settings"]:
        parts += ("were clipped",)  # recorded actions are in the units of the environment
    if world.get("form") == "old":
        parts += ("follows the old gym API",)  # once in a process
    if "offline_memory" in draw["settings"]:
        parts += ("are kept in files",)
    return parts


class _Handler(logging.Handler):
    def __init__(self, found: list, expected: tuple[str, ...]):
        super().__init__(logging.WARNING)
        self.found, self._expected = found, expected

    def emit(self, record) -> None:
        message = record.getMessage()
        if not any(part in message for part in self._expected):
            self.found.append((f"{record.levelname} of {record.name}", message))


@contextlib.contextmanager
def _messages(expected: tuple[str, ...]) -> Iterator[list[tuple[str, str]]]:
    """Collects warnings of Python and of the loggers of the library, but those with an expected part."""
    found: list[tuple[str, str]] = []
    handler = _Handler(found, expected)
    loggers = [logging.getLogger(name) for name in ("rllib", "runtime")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield found
            found += [
                (f"{each.category.__name__} {os.path.basename(each.filename)}:{each.lineno}", str(each.message))
                for each in caught
                if not issubclass(each.category, ResourceWarning)
            ]
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


@dataclass(frozen=True)
class Belongings:
    """What a process has: children, threads, descriptors, files of shared memory and of its directory."""

    children: frozenset
    threads: frozenset
    descriptors: frozenset
    shared_memory: frozenset
    files: frozenset

    @classmethod
    def now(cls, directory: Path) -> "Belongings":
        descriptors = []
        for each in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                descriptors.append((each, os.readlink(f"/proc/self/fd/{each}")))
        children = []
        for child in psutil.Process().children(recursive=True) if _has_children() else ():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended, or waits to be read
                children.append((child.pid, " ".join(child.cmdline()[:6])))
        return cls(
            frozenset(children),
            frozenset(thread.name for thread in threading.enumerate()),
            frozenset(target for _, target in descriptors),
            frozenset(name for name in os.listdir("/dev/shm") if str(os.getpid()) in name),
            frozenset(_files_in(directory)),
        )

    def more_than(self, before: "Belongings") -> Iterator[tuple[str, str]]:
        """(kind, names) of what has come since."""
        for name in ("children", "threads", "descriptors", "shared_memory", "files"):
            if left := getattr(self, name) - getattr(before, name):
                yield name, ", ".join(sorted(map(str, left))[:5])


def _has_children() -> bool:
    """Whether this process has any, which takes less time than to list all processes."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


# Of torch's compiler, and of `recorded`.
_KEPT_FILES = ("torchinductor", "recorded-")


def _files_in(directory: Path) -> Iterator[str]:
    return (name for name in os.listdir(directory) if not name.startswith(_KEPT_FILES))


def run(draw: Draw) -> Outcome:
    """Runs a draw in this process, and looks at what it leaves.

    What libraries keep once for the whole process is not left by a run: only what comes again in a second run is.
    """
    outcome, left = _run_once(draw)
    if left:
        _, left = _run_once(draw)
    outcome.faults += [Fault("stop", f"left {kind}", names) for kind, names in left]
    return outcome


def _run_once(draw: Draw) -> tuple[Outcome, list[tuple[str, str]]]:
    """The outcome of a draw, and (kind, names) of what it leaves."""
    temporary = Path(tempfile.gettempdir())
    before = Belongings.now(temporary)
    place = Path(tempfile.mkdtemp(prefix="draw-"))
    outcome = Trial(draw, place).run()
    shutil.rmtree(place, ignore_errors=True)
    runtime.shutdown()
    for attempt in range(50):  # a child that has just been told to end
        left = list(Belongings.now(temporary).more_than(before))
        if not left:
            break
        if attempt == 0:
            gc.collect()  # what is in a cycle is not left: here alone, since it takes long
        time.sleep(0.05)
    return outcome, left
