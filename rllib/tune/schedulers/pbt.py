"""Population based training (arXiv:1711.09846), and the replay of a schedule that it has found.

Every perturbation_interval of its training, a trial of the worst quantile takes over weights and hyperparameters of one
of the best quantile, picked uniformly ("truncation selection"), and its hyperparameters are changed (`explore`). With
fewer places than trials, trials take turns: after each interval the trials that have trained least come next.

Departures, as in Ray: a quantile of 25 %, and hyperparameters may be drawn again. Ours: multiplied values stay within
their domain's bounds; a trial takes over only a state that has been trained for longer than the last one that it took
over. Where the metric falls in training, the trial that is ahead is always among the worst, and without this rule
trials would send one another back for ever. NaN is no number yet, and not a bad one: a trial is ranked by its last
number, and not at all before it has had one, and it is copied only while its latest result has a number.
"""

import contextlib
import json
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from rllib.runs.entries import encode, is_number, read_number, written_number
from rllib.storage.local_path import local_path
from rllib.tune.checks import check, check_number
from rllib.tune.schedulers.base import TrialScheduler, whole_again
from rllib.tune.search.domains import Choice, Domain, Float, Function, Integer, Normal, position_in
from rllib.tune.search.space import holds_domains


@dataclass
class _Member:
    """A trial in the population; times in units of time_attr.

    Attributes:
        score: the last number of its metric, or that of the state that it has taken over since; None before the first.
        is_known: whether its latest result has that number.
        train_time: of its latest result, or of that state.
        perturbed_at: time at which it was last considered for a change.
        began_at: train_time of the last state that it took over; None without a takeover.
        is_over: whether it has ended.
        history: lines of its policy file.
        coming: the same with a line about the takeover that is under way; None without one.
    """

    score: float | None = None
    is_known: bool = False
    train_time: float = 0.0
    perturbed_at: float = 0.0
    began_at: float | None = None
    is_over: bool = False
    history: list[str] = field(default_factory=list)
    coming: list[str] | None = None


class _State(NamedTuple):
    """State that can be taken over from a trial: training time, score and iteration."""

    train_time: float
    score: float
    iteration: int


class PopulationBasedTraining(TrialScheduler):
    """PBT.

    Args:
        time_attr, metric, mode: see TrialScheduler.
        perturbation_interval: time between two decisions about a trial, in units of time_attr.
        burn_in_period: time before which no trial is changed.
        hyperparam_mutations: hyperparameter -> list of values, domain, function without arguments, or a nested dict.
        quantile_fraction: share of the trials that counts as worst, and as best; at most 0.5.
        resample_probability: probability that a hyperparameter is drawn again.
        perturbation_factors: a number that is not drawn again is multiplied by one of them.
        custom_explore_fn: (config) -> config, called after the mutations, or without any.
        log_config: whether pbt_global.txt and pbt_policy_*.txt are written.
        require_attrs: False: results without metric or time_attr are ignored.
        synch: whether all trials wait for one another at every interval.
        seed: seed of all random choices.
    """

    changing_argument = "hyperparam_mutations"

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict], dict] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        seed: int | None = None,
    ):
        super().__init__(metric, mode, time_attr)
        if not hyperparam_mutations and custom_explore_fn is None:
            raise ValueError(
                "PBT has nothing to change: give it hyperparam_mutations, or custom_explore_fn. By its name it changes "
                "the settings that are searched."
            )
        _check_mutations(hyperparam_mutations or {})
        check_number("quantile_fraction", quantile_fraction, "in [0, 0.5]", least=0, most=0.5)
        check_number("resample_probability", resample_probability, "in [0, 1]", least=0, most=1)
        check_number("perturbation_interval", perturbation_interval, "> 0", above=0)
        check_number("burn_in_period", burn_in_period, "")
        _check_factors(perturbation_factors)
        self._interval, self._burn_in, self._quantile = perturbation_interval, burn_in_period, quantile_fraction
        self._mutations, self._resample = dict(hyperparam_mutations or {}), resample_probability
        self._factors, self._custom = tuple(perturbation_factors), custom_explore_fn
        self._log, self._require, self._synch = log_config, require_attrs, synch
        self._seed = random.getrandbits(32) if seed is None else seed
        self._num_draws = self._num_perturbations = 0
        self._next_sync = max(perturbation_interval, burn_in_period)
        self._members: dict[str, _Member] = {}
        self._bounds: dict[str, Any] = {}

    def __setstate__(self, state):  # of a pickle or a journal
        vars(self).update(state)
        _check_mutations(self._mutations)
        _check_factors(self._factors)

    def changes(self, space: Mapping[str, Any]) -> dict[str, Any]:
        return _as_space(self._mutations)

    def keep_within(self, bounds: Mapping[str, Any]) -> None:
        self._bounds = dict(bounds)

    def on_trial_add(self, runner, trial) -> None:
        """Draws first values of hyperparameters that the search space has left out."""
        if trial.trial_id not in self._members:
            self._members[trial.trial_id] = _Member()
            trial.config = _filled(trial.config, self._mutations, self._rng())

    def on_trial_result(self, runner, trial, result: Mapping) -> str:
        member = self._member(trial)
        try:
            time, score = self.progress(result), self.score(result)
        except ValueError:
            if self._require:
                raise
            return self.CONTINUE
        member.train_time, member.is_known = time, score is not None
        member.is_over, member.coming = False, None  # of a trial that is resumed; of a source that has ended meanwhile
        if member.is_known:
            member.score = score
        is_due = self._is_due(trial)
        self._note_progress(trial, is_due)
        if not is_due:
            return self.CONTINUE
        if self._synch:
            return self._meet(runner, trial)
        member.perturbed_at = time
        worst, best = self._quantiles(runner)
        if trial in worst and self._exploit(runner, trial, best):
            return self.NOOP
        return self.PAUSE if runner.waiting_trials() else self.CONTINUE

    def on_trial_complete(self, runner, trial, result=None) -> None:
        self._member(trial).is_over = True
        if self._synch and self._all_there():  # the others may have waited for this trial
            self._change_worst(runner)

    on_trial_error = on_trial_remove = on_trial_complete

    def choose_trial_to_run(self, runner):
        """The trial that has trained least; in synchronous mode, none that waits for the others."""
        fitting = [
            trial
            for trial in runner.waiting_trials()
            if runner.has_resources_for(trial) and not (self._synch and self._is_there(trial))
        ]
        return min(fitting, key=lambda trial: self._member(trial).train_time, default=None)

    def _is_due(self, trial) -> bool:
        """Whether a decision about the trial is due."""
        if self._synch:
            return self._is_there(trial)
        member = self._member(trial)
        return member.train_time >= max(self._burn_in, member.perturbed_at + self._interval)

    # ------------------------------------------------------------------ parts that PB2 replaces (pb2.py)

    def _note_progress(self, trial, is_due: bool) -> None:
        """A trial has reported; `is_due`: a decision about it follows."""

    def _note_takeover(self, trial, config: Mapping) -> None:
        """A trial is to continue with this configuration from a state whose time and score its member has."""

    def _explored(self, trial, source, runner, rng: random.Random) -> tuple[dict[str, Any], dict[str, str]]:
        """The source's configuration, changed; and path -> change, in words."""
        return _explore(source.config, self._mutations, self._resample, self._factors, rng, self._bounds)

    # ------------------------------------------------------------------ selection

    def _quantiles(self, runner) -> tuple[list, list]:
        """The worst and the best of the trials that have reported and not ended."""
        ranked = [
            trial
            for trial in runner.trials
            if (member := self._members.get(trial.trial_id)) and member.score is not None and not member.is_over
        ]
        ranked.sort(key=lambda trial: self._member(trial).score)
        count = min(math.ceil(whole_again(len(ranked) * self._quantile)), len(ranked) // 2)
        worst = ranked[:count]
        known = [trial for trial in ranked[count:] if self._member(trial).is_known]
        best = [trial for trial in known[max(len(known) - count, 0) :] if self._member(trial).score > -math.inf]
        return (worst, best) if best else ([], [])

    def _state(self, runner, source) -> _State | None:
        saved = runner.saved_state(source)
        if saved is None:
            member = self._member(source)
            return _State(member.train_time, member.score, source.last_result.get("training_iteration", 0))
        if not saved or (score := self.score(saved)) is None:
            return None
        return _State(self.progress(saved), score, int(saved["training_iteration"]))

    def _exploit(self, runner, trial, best: list) -> bool:
        """Copies one of the best to the trial, and changes its hyperparameters; returns whether one could be copied."""
        member = self._member(trial)
        states = [(source, self._state(runner, source)) for source in best]
        further = [
            (source, state)
            for source, state in states
            if state and (member.began_at is None or state.train_time > member.began_at)
        ]
        if not further:
            return False
        rng = self._rng()
        source, state = rng.choice(further)
        config, how = self._explored(trial, source, runner, rng)
        if self._custom is not None:
            config = self._custom(config)
            if not isinstance(config, Mapping):
                raise ValueError(f"custom_explore_fn must return the configuration, but returned {config!r:.60}")
        # [tag of the trial, of its source, iterations of both, configuration of the source, the new one, the changes]
        tags = [getattr(one, "experiment_tag", one.trial_id) for one in (trial, source)]
        iterations = [trial.last_result.get("training_iteration", 0), state.iteration]
        line = encode([*tags, *iterations, source.config, config, how]).decode()
        member.coming = [*self._member(source).history, line]
        member.score, member.train_time = state.score, state.train_time
        member.perturbed_at = state.train_time
        self._note_takeover(trial, config)
        runner.exploit(trial, source, config)
        return True

    def on_trial_takeover(self, runner, trial, result: Mapping) -> None:
        """Notes the state that was copied: a source that was at a step is saved, and copied, one result later.

        A policy file has the whole descent of its trial's weights.
        """
        member = self._member(trial)
        if member.coming is None:
            return
        *descent, line = member.coming
        member.coming = None
        iteration = result.get("training_iteration")
        if iteration is not None:
            parts = json.loads(line)
            line = encode([*parts[:3], int(iteration), *parts[4:]]).decode()
        member.history = [*descent, line]
        with contextlib.suppress(ValueError):  # the numbers of a state need not have the metric
            member.train_time, score = self.progress(result), self.score(result)
            member.is_known = score is not None
            member.score = score if member.is_known else member.score
        member.perturbed_at = member.began_at = member.train_time
        self._num_perturbations += 1
        self._note_takeover(trial, trial.config)
        if self._log:
            runner.write_file("pbt_global.txt", f"{line}\n", append=True)
            runner.write_file(f"pbt_policy_{trial.trial_id}.txt", "".join(f"{each}\n" for each in member.history))
        if self._synch and self._all_there():  # the others may have reported meanwhile, and wait for this trial
            self._change_worst(runner)

    # ------------------------------------------------------------------ synchronous mode

    def _meet(self, runner, trial) -> str:
        if not self._all_there():
            return self.PAUSE
        return self.NOOP if trial in self._change_worst(runner) else self.CONTINUE

    def _is_there(self, trial) -> bool:
        return self._member(trial).train_time >= self._next_sync

    def _all_there(self) -> bool:
        live = [member for member in self._members.values() if not member.is_over]
        return bool(live) and all(member.train_time >= self._next_sync for member in live)

    def _change_worst(self, runner) -> list:
        """Lets the worst trials copy the best; returns the trials that did."""
        worst, best = self._quantiles(runner)
        furthest = max(member.train_time for member in self._members.values() if not member.is_over)
        while self._next_sync <= furthest:
            self._next_sync += self._interval
        return [trial for trial in worst if self._exploit(runner, trial, best)]

    # ------------------------------------------------------------------ state

    def _member(self, trial) -> _Member:
        return self._members.setdefault(trial.trial_id, _Member())

    def _rng(self) -> random.Random:
        """A new generator for every event, so that a count is the whole state."""
        self._num_draws += 1
        return random.Random(f"{self._seed}/{self._num_draws}")

    def debug_string(self) -> str:
        return f"PBT: {self._num_perturbations} perturbations"

    def get_state(self):
        members = {key: asdict(member) for key, member in self._members.items()}
        for member in members.values():
            score = member["score"]
            member["score"], member["is_nan"] = score and written_number(score), score == -math.inf
        return {
            "members": members,
            "seed": self._seed,
            "num_draws": self._num_draws,
            "num_perturbations": self._num_perturbations,
            "next_sync": self._next_sync,
        }

    def set_state(self, state) -> None:
        self._members = {}
        for key, saved in state["members"].items():
            saved = dict(saved)
            if saved.pop("is_nan") or saved["score"] is not None:
                saved["score"] = read_number(saved["score"])
            self._members[key] = _Member(**saved)
        self._seed, self._num_draws = state["seed"], state["num_draws"]
        self._num_perturbations, self._next_sync = state["num_perturbations"], state["next_sync"]


# ---------------------------------------------------------------------- explore (section 3 of the paper)


def _check_mutations(mutations: Mapping, path: str = "") -> None:
    """Refuses hyperparam_mutations that say nothing.

    Raises:
        ValueError: with the path of the wrong entry.
    """
    for key, how in mutations.items():
        name = f"{path}{key}"
        if isinstance(how, Mapping):
            _check_mutations(how, f"{name}/")
        elif not isinstance(how, (list, tuple, Domain)) and not callable(how):
            raise ValueError(
                f"hyperparam_mutations: {name} needs a list of values, a search space domain, a function without "
                f"arguments or a dict of these, but got {how!r}"
            )
        elif isinstance(how, (list, tuple)) and not how:
            raise ValueError(f"hyperparam_mutations: {name} has no values")
        elif any(map(holds_domains, getattr(how, "values", how if isinstance(how, list | tuple) else ()))):
            raise ValueError(
                f"hyperparam_mutations: {name} has a search space among its values, {how!r}, and they are taken as "
                "they are. List values alone, or use a function without arguments that draws one."
            )


def _check_factors(factors: Any) -> None:
    """Raises ValueError unless these are numbers by which hyperparameters can be multiplied."""
    are_factors = isinstance(factors, list | tuple) and all(map(is_number, factors))
    check("perturbation_factors", factors, are_factors and factors, "a list of numbers")


def _as_space(mutations: Mapping) -> dict[str, Any]:
    """Mutations as a search space, which draws what functions return."""
    return {
        key: _as_space(how) if isinstance(how, Mapping)
        else Choice(how) if isinstance(how, list | tuple)
        else how if isinstance(how, Domain)
        else Function(how)
        for key, how in mutations.items()
    }  # fmt: skip


def _filled(config: Mapping, mutations: Mapping, rng: random.Random) -> dict[str, Any]:
    """The configuration with first values for the hyperparameters that it leaves out."""
    config = dict(config)
    for key, how in mutations.items():
        if isinstance(how, Mapping):
            config[key] = _filled(config.get(key) or {}, how, rng)
        elif key not in config:
            config[key] = _resampled(how, rng)
    return config


def _explore(
    config: Mapping,
    mutations: Mapping,
    resample: float,
    factors: Sequence[float],
    rng: random.Random,
    bounds: Mapping[str, Any] = {},
) -> tuple[dict[str, Any], dict[str, str]]:
    """A changed copy of the configuration.

    Each hyperparameter is drawn again with probability `resample`. Otherwise numbers are multiplied by one of the
    factors (within the bounds of their domain; whole numbers stay whole), and of lists the value next to it is taken.

    Args:
        bounds: setting -> the least and the largest number that a factor may make of it; nested as `keep_within` says.

    Returns:
        the configuration, and path -> change, in words.
    """
    new, how_changed = dict(config), {}
    for key, how in mutations.items():
        if isinstance(how, Mapping):
            new[key], inner = _explore(config[key], how, resample, factors, rng, bounds.get(key, {}))
            how_changed.update({f"{key}/{path}": words for path, words in inner.items()})
            continue
        values = how.values if isinstance(how, Choice) else how
        if isinstance(values, (list, tuple)):
            new[key], how_changed[key] = _next_to(config[key], list(values), resample, rng)
        elif rng.random() < resample or not is_number(config[key]):
            new[key], how_changed[key] = _resampled(how, rng), "resampled"
        else:
            factor = rng.choice(list(factors))
            low, high = bounds.get(key, (None, None))
            changed = _times(config[key], factor, how)
            changed = changed if low is None else max(changed, low)
            new[key] = changed if high is None else min(changed, high)
            how_changed[key] = f"* {factor:g}"
    return new, how_changed


def _next_to(value, values: list, resample: float, rng) -> tuple[Any, str]:
    at = None if rng.random() < resample else position_in(values, value)
    if at is None:
        return rng.choice(values), "resampled"
    step = rng.choice([-1, 1])
    index = min(max(at + step, 0), len(values) - 1)
    return values[index], "shifted left" if step < 0 else "shifted right"


def _resampled(how: Domain | Sequence | Callable, rng) -> Any:
    if isinstance(how, Domain):
        return how.draw(rng)
    return how() if callable(how) else rng.choice(list(how))


def _times(value, factor: float, how):
    new = value * factor
    is_whole = isinstance(value, int) and not isinstance(how, (Float, Normal))
    if is_whole and not isinstance(how, Domain):  # a function, which says by what it draws
        is_whole = isinstance(how(), int)
    if is_whole:
        new = round(new)
        if new == value:  # 2 * 1.2 is 2 again: small numbers would never change
            new += (factor > 1) - (factor < 1)
    q = getattr(how, "q", None)
    if q is not None:
        new = round(round(new / q) * q, 12)
    if isinstance(how, (Float, Integer)):
        new = min(max(new, how.low), how.high)
    return new


class PopulationBasedTrainingReplay(TrialScheduler):
    """Changes a trial's configuration at the iterations at which PBT changed it.

    Args:
        policy_file: pbt_policy_TRIAL.txt of a PBT experiment.

    Raises:
        ValueError: if the file does not exist, or is no policy file of PBT.
    """

    needs_metric = False
    changing_argument = "policy_file"

    def __init__(self, policy_file: str | os.PathLike):
        super().__init__()
        path = local_path(policy_file)
        if not path.is_file():
            raise ValueError(
                f"There is no policy file {path}. PBT writes pbt_policy_TRIAL.txt for every changed trial."
            )
        try:
            lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
            # The source's iteration and the configuration from there on.
            self._changes = [(int(line[3]), line[5]) for line in lines]
            self.config = lines[0][4]
        except (ValueError, IndexError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is no policy file of PBT: {type(error).__name__}: {error}") from None
        self._trial_id: str | None = None
        self._num_done = 0

    def changes(self, space: Mapping[str, Any]) -> dict[str, Any]:
        configs = [self.config, *(config for _, config in self._changes)]
        names = dict.fromkeys(name for config in configs for name in config)
        return {name: Choice([config[name] for config in configs if name in config]) for name in names}

    def on_trial_add(self, runner, trial) -> None:
        """Starts with the first configuration.

        Raises:
            ValueError: if there is more than one trial.
        """
        if self._trial_id not in (None, trial.trial_id):
            raise ValueError("PopulationBasedTrainingReplay replays one trial: use num_samples=1 and no grid_search")
        if self._trial_id is None:
            self._trial_id = trial.trial_id
            trial.config = {**trial.config, **self.config}

    def on_trial_result(self, runner, trial, result: Mapping) -> str:
        due = [config for iteration, config in self._changes if iteration <= self.progress(result)]
        if len(due) <= self._num_done:
            return self.CONTINUE
        self._num_done = len(due)
        runner.exploit(trial, trial, {**trial.config, **due[-1]})
        return self.NOOP

    def debug_string(self) -> str:
        return f"PBT replay: {self._num_done} of {len(self._changes)} changes made"

    def get_state(self):
        return {"trial_id": self._trial_id, "num_done": self._num_done}

    def set_state(self, state) -> None:
        self._trial_id, self._num_done = state["trial_id"], state["num_done"]
