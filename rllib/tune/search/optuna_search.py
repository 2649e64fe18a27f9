"""Search with Optuna's samplers: TPE, Gaussian process, NSGA-II, CMA-ES, quasi-Monte Carlo.

The space is walked again for every trial ("define by run"), so that domains inside an option of a choice are asked for
only when the option is chosen. Domains without a distribution of Optuna's are mapped to another one: quantised
logarithmic domains to whole numbers, normal ones to their quantile.

Every suggestion has its own sampler, seeded by the search's seed and the suggestion's number. All state of a sampler
is in the trials, so a saved search continues exactly. Trials of a stored study carry the trial's id: a driver that
continues an experiment finds there what an earlier one asked for after it last saved its own state.
"""

import json
import os
import random
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rllib.extras import install_hint
from rllib.storage.local_path import local_path
from rllib.tune.checks import check_count
from rllib.tune.objectives import Metric, Mode, is_several, pairs
from rllib.tune.search.base import Searcher, metric_value, with_point
from rllib.tune.search.domains import Choice, Domain, Float, Function, Integer, Normal
from rllib.tune.search.space import holds_domains, name, rebuilt, resolve, split

_NEEDS = {"tpe": (), "random": (), "nsga2": (), "gp": ("scipy", "torch"), "cmaes": ("cmaes",), "qmc": ("scipy",)}
# Bound of the quantile of a normal domain: five standard deviations.
_EDGE = 3e-7
# Optuna's 50 are more than most searches over reinforcement learning have trials: all would be random.
_POPULATION = 16
# Attribute of a stored study's trials.
_TRIAL_ID = "trial_id"
# Bytes of a journal's first line, which makes the study.
_LONGEST_RECORD = 1 << 16


class OptunaSearch(Searcher):
    """Optimises with Optuna.

    Args:
        space: the search space; None: tune.run's config. Or a function ("define by run") that asks Optuna's trial for
            each parameter, as in trial.suggest_float("lr", 1e-5, 1e-2, log=True), and may return further settings as a
            dict; "model/size" is the name of a nested setting.
        metric, mode: see Searcher. Several metrics are optimised by all samplers but "cmaes".
        points_to_evaluate: configurations (or parts of them) to try first.
        sampler: "tpe", "gp", "nsga2", "cmaes", "qmc", "random", or a sampler of Optuna's, which has its own seed.
        seed: equal seeds make equal suggestions, given equal results in equal order.
        n_startup_trials: number of random trials at the start; None: the sampler's default.
        evaluated_rewards: the metric of each of points_to_evaluate, where it is known already: these points are learned
            from, and not run. Each has to name all that is drawn. Of several metrics, a list for each point.
        study_name, storage: of an Optuna study that outlives this process: the path of a journal file, which
            `optuna-dashboard PATH` shows, a URL, or a storage of Optuna's. Trials that it has are learned from. The
            default of study_name is a journal file's name.
        population_size: number of trials in a generation of "nsga2"; 16 by default.

    Raises:
        ImportError: if Optuna, or a package that the sampler needs, is not installed.
        ValueError: if the sampler is unknown, evaluated_rewards do not belong to the points, or the storage cannot be a
            journal file.
    """

    takes_several = True
    _shared = ("_storage",)  # which outlives a search on purpose

    def __init__(
        self,
        space: Mapping[str, Any] | Callable[[Any], Mapping[str, Any] | None] | None = None,
        metric: Metric | None = None,
        mode: Mode | None = None,
        points_to_evaluate: Sequence[Mapping] | None = None,
        sampler="tpe",
        seed: int | None = None,
        n_startup_trials: int | None = None,
        evaluated_rewards: Sequence[float | Sequence[float]] | None = None,
        study_name: str | None = None,
        storage: Any = None,
        population_size: int | None = None,
    ):
        super().__init__(metric, mode)
        _import_optuna(sampler)
        self._rewards = list(evaluated_rewards or ())
        if self._rewards and len(self._rewards) != len(points_to_evaluate or ()):
            raise ValueError(
                "evaluated_rewards needs one number for each of points_to_evaluate, but "
                f"{len(self._rewards)} were given for {len(points_to_evaluate or ())} points"
            )
        if population_size is not None:
            check_count("population_size", population_size)
            if sampler != "nsga2":
                raise ValueError(f'population_size is a setting of sampler="nsga2", but the sampler is {sampler!r}')
        if not (space is None or isinstance(space, Mapping) or callable(space)):
            raise TypeError(f"space must be a dict, or a function of Optuna's trial, but got {space!r:.80}")
        self._study_name, self._storage = study_name, _journal_path(storage)
        if isinstance(self._storage, Path):
            self._study_name = study_name or self._storage.stem
        self._sampler, self._startup, self._population = sampler, n_startup_trials, population_size or _POPULATION
        self._seed = random.getrandbits(31) if seed is None else seed
        self._points = list(points_to_evaluate or ())
        self._space, self._study, self._numbers, self._encoded = space, None, {}, []
        self._settings: Mapping[str, Any] = {}  # fixed ones, below what a function chooses
        if space is not None:
            self._begin(space)

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        super().set_search_properties(metric, mode, config)
        if is_several(self.metric) and self._sampler == "cmaes":
            raise ValueError(f'sampler="cmaes" optimises one metric, not {self.metric}. Use "nsga2", "tpe" or "gp".')
        if self._space is not None and holds_domains(config):
            raise ValueError("OptunaSearch has its own space, so tune.run's config must have nothing to draw")
        # With a space given here, the config holds fixed settings.
        if callable(self._space):
            self._settings = config
            self._begin(self._space)
        else:
            self._begin(config if self._space is None else {**config, **self._space})
        self._check_rewards()
        self._open_storage()
        self._check_stored_study()
        return True

    def further_spaces(self, space):
        if callable(self._space):
            return []
        own = {**space, **(self._space or {})}
        return [own, *(with_point(own, point) for point in self._points)]

    def suggest(self, trial_id):
        if self._space is None:
            raise ValueError("OptunaSearch has no search space yet: call set_search_properties first")
        if self._study is None:
            self._open()
        number = len(self._numbers)
        trial = self._asked_before.get(trial_id)
        is_new = trial is None
        if is_new:
            self._study.sampler = self._make_sampler(number)
            trial = self._study.ask()
        self._numbers[trial_id] = trial.number
        config = self._config(trial, self._fixed[number] if number < len(self._fixed) else {})
        if is_new and self._storage is not None:  # last, so that a trial with an id has all parameters
            trial.set_user_attr(_TRIAL_ID, trial_id)
        return resolve(config, random.Random(f"{self._seed}/{number}"))

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        number = self._numbers.get(trial_id)
        if number is None or self._study.get_trials(deepcopy=False)[number].state.is_finished():
            return
        values = None if error or not result else [metric_value(result, name) for name, _ in self._objectives]
        if not values or any(value != value for value in values):
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(number, self._signed(values))

    def get_state(self):
        to_json = self._optuna.distributions.distribution_to_json
        trials = [
            {
                "state": trial.state.name,
                "values": trial.values,
                "params": trial.params,
                "distributions": {key: to_json(one) for key, one in trial.distributions.items()},
                "system_attrs": trial.system_attrs,
            }
            for trial in (self._study.get_trials(deepcopy=False) if self._study else ())
        ]
        name = self._study.study_name if self._study else self._study_name
        return {"seed": self._seed, "numbers": self._numbers, "trials": trials, "study_name": name}

    def set_state(self, state) -> None:
        self._seed, self._numbers = state["seed"], {}
        self._study_name = self._study_name or state.get("study_name")
        self._open(is_continued=True)
        for trial_id, number in sorted(state["numbers"].items(), key=lambda item: item[1]):
            self._take_back(trial_id, number, state["trials"][number])

    def _take_back(self, trial_id: str, number: int, saved: Mapping) -> None:
        if self._storage is not None:  # which has the trial
            self._numbers[trial_id] = number
            return
        values, states = saved.get("values"), self._optuna.trial.TrialState
        if saved.get("score") is not None:  # of an earlier version, which maximised
            values = [saved["score"] if self.mode == "max" else -saved["score"]]
        if self._sampler == "qmc" or len(self._numbers) < len(self._fixed):
            # Only the study knows its place in the sequence, and in the queue of points.
            self.suggest(trial_id)
            if saved["state"] == "COMPLETE":
                self._study.tell(self._numbers[trial_id], values)
            elif saved["state"] == "FAIL":
                self._study.tell(self._numbers[trial_id], state=states.FAIL)
            return
        from_json = self._optuna.distributions.json_to_distribution
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=states[saved["state"]],
                values=values,
                params=saved["params"],
                distributions={key: from_json(one) for key, one in saved["distributions"].items()},
                system_attrs=saved["system_attrs"],
            )
        )
        self._numbers[trial_id] = len(self._study.get_trials(deepcopy=False)) - 1

    @property
    def _optuna(self):
        """The package; no attribute, so that searches can be written into journals."""
        return _import_optuna(self._sampler)

    @property
    def _objectives(self) -> list[tuple[str, str]]:
        return pairs(self.metric, self.mode)

    def _signed(self, values: Sequence[float]) -> list[float]:
        """Values of the metrics as the study has them: negative, where it maximises what is minimised."""
        return [sign * value for sign, value in zip(self._signs, values)]

    def _config(self, trial, fixed: Mapping[str, Any]):
        """The configuration that Optuna's trial chooses, with the fixed part of a point; functions are left to draw."""
        if not callable(self._space):
            return _asked(trial, with_point(self._space, fixed), ())
        return _with_settings(self._settings, {**_called(self._space, trial), **fixed})

    def _begin(self, space: Mapping | Callable) -> None:
        """Takes a search space, and checks the points; the study is opened when it is needed."""
        self._space, self._study, self._encoded = space, None, []
        if callable(space):
            trial = self._optuna.create_study(sampler=self._optuna.samplers.RandomSampler(seed=0)).ask()
            _called(space, trial)
            if not trial.params:
                raise ValueError(
                    "the function given to OptunaSearch as space asks for nothing. Call "
                    'trial.suggest_float("lr", 1e-5, 1e-2, log=True) or another suggest_... of its trial'
                )
            self._encoded = [(dict(point), {}) for point in map(_checked_point, self._points)]
            for point, _ in self._encoded if self._rewards else ():
                self._check_whole(space, point)
            return
        _, domains = split(space)
        if not domains:
            raise ValueError("OptunaSearch has nothing to search: the config has no domain such as tune.uniform(0, 1)")
        drawn = [name(path) for path, one in domains.items() if not isinstance(one, Function)]
        for point in self._points:
            with_point(space, point)  # checks it
            queued, fixed = _encoded_point(space, point)
            if self._rewards and (missing := [each for each in drawn if each not in queued]):
                raise ValueError(f"a point of evaluated_rewards must name all that is drawn, but lacks {missing}")
            self._encoded.append((queued, fixed))

    def _check_whole(self, space: Callable, point: Mapping[str, Any]) -> None:
        """Refuses a point of evaluated_rewards by which the function draws something: its reward is of one value."""
        study = self._optuna.create_study(sampler=self._optuna.samplers.RandomSampler(seed=0))
        study.enqueue_trial(point)
        trial = study.ask()
        _called(space, trial)
        if lacks := [name for name in trial.params if name not in point]:
            raise ValueError(f"a point of evaluated_rewards must name all that is drawn, but lacks {lacks}")

    def _open(self, is_continued: bool = False) -> None:
        """Makes the study, or loads a stored one, with the points to evaluate in its queue, or learned from.

        Args:
            is_continued: whether a stored study has been this search's before.
        """
        self._open_storage()
        self._study = self._optuna.create_study(
            directions=self._directions, sampler=self._make_sampler(0), load_if_exists=self._storage is not None,
            study_name=self._study_name, storage=self._storage,
        )  # fmt: skip
        self._signs = self._checked_signs(self._study)
        stored = self._study.get_trials(deepcopy=False) if self._storage is not None else ()
        self._asked_before = {trial.user_attrs[_TRIAL_ID]: trial for trial in stored if _TRIAL_ID in trial.user_attrs}
        self._fixed = []
        for index, (queued, fixed) in enumerate(self._encoded):
            is_new = self._enqueue(queued)
            if not self._rewards:
                if is_new or is_continued:
                    self._fixed.append(fixed)
            elif is_new:
                trial, reward = self._study.ask(), self._rewards[index]
                self._config(trial, fixed)
                self._study.tell(trial, self._signed(reward if is_several(reward) else [reward]))

    @property
    def _directions(self) -> list[str]:
        return ["maximize" if mode == "max" else "minimize" for _, mode in self._objectives] or ["maximize"]

    def _check_stored_study(self) -> None:
        """Refuses a stored study that optimises something else, before anything starts."""
        if self._storage is None or self._study_name is None:
            return
        try:
            study = self._optuna.load_study(study_name=self._study_name, storage=self._storage)
        except KeyError:  # it is to be made
            return
        self._checked_signs(study)

    def _checked_signs(self, study) -> list[float]:
        """The sign of each metric in a study: -1 in studies of earlier versions, which maximised always.

        Raises:
            ValueError: if the study optimises something else.
        """
        directions, stored = self._directions, [direction.name.lower() for direction in study.directions]
        if stored != directions and (stored, directions) != (["maximize"], ["minimize"]):
            raise ValueError(
                f"the stored study {study.study_name!r} has the directions {stored}, but this search has "
                f"{directions}. Give another study_name."
            )
        return [1.0 if before == now else -1.0 for before, now in zip(stored, directions)]

    def _check_rewards(self) -> None:
        """Refuses evaluated_rewards that have no number for each metric."""
        count = len(self._objectives)
        for reward in self._rewards:
            if (len(reward) if is_several(reward) else 1) != count:
                raise ValueError(f"evaluated_rewards needs {count} numbers for each point, but has {reward!r:.80}")

    def _open_storage(self) -> None:
        """Opens the journal file, if that is the storage.

        Raises:
            ValueError: if the file is there, and is no journal.
        """
        if not isinstance(self._storage, Path):
            return
        path, storages = self._storage, self._optuna.storages
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _refuse_other_files(path)
            self._storage = storages.JournalStorage(storages.journal.JournalFileBackend(str(path)))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"storage={str(path)!r} is no journal of an Optuna study: {error!s:.200}") from error

    def _enqueue(self, point: Mapping[str, Any]) -> bool:
        """Whether a point has been put into the study's queue, because a stored study did not have it yet."""
        before = len(self._study.get_trials(deepcopy=False))
        self._study.enqueue_trial(point, skip_if_exists=self._storage is not None)
        return len(self._study.get_trials(deepcopy=False)) > before

    def _make_sampler(self, number: int):
        if not isinstance(self._sampler, str):
            return self._sampler
        samplers = self._optuna.samplers
        seed = random.Random(f"{self._seed}/{number}").getrandbits(31)
        startup = {} if self._startup is None else {"n_startup_trials": self._startup}
        if self._sampler == "tpe":
            return samplers.TPESampler(seed=seed, constant_liar=True, **startup)
        if self._sampler == "gp":
            return samplers.GPSampler(seed=seed, warn_independent_sampling=False, **startup)
        if self._sampler == "nsga2":
            return samplers.NSGAIISampler(population_size=self._population, seed=seed)
        if self._sampler == "cmaes":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False, **startup)
        if self._sampler == "random":
            return samplers.RandomSampler(seed=seed)
        # One sequence for the whole search; other parameters are drawn at random.
        others = samplers.RandomSampler(seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            return samplers.QMCSampler(
                seed=self._seed % 2**31, scramble=True, independent_sampler=others, warn_independent_sampling=False
            )


class BayesOptSearch(OptunaSearch):
    """Bayesian optimisation with a Gaussian process: OptunaSearch(sampler="gp")."""

    def __init__(
        self, space=None, metric=None, mode=None, points_to_evaluate=None, seed=None, n_startup_trials=None, **more
    ):
        super().__init__(space, metric, mode, points_to_evaluate, "gp", seed, n_startup_trials, **more)


def _import_optuna(sampler):
    if isinstance(sampler, str) and sampler not in _NEEDS:
        raise ValueError(f"There is no sampler {sampler!r}. There are: {', '.join(_NEEDS)}.")
    try:
        import optuna
    except ImportError:
        raise ImportError(f"OptunaSearch needs optuna: {install_hint('tune')}") from None
    for module in _NEEDS.get(sampler, ()) if isinstance(sampler, str) else ():
        try:
            __import__(module)
        except ImportError:
            raise ImportError(f"The sampler {sampler!r} needs {module}: {install_hint('tune')}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _journal_path(storage):
    """The path of a journal file, absolute, since drivers change directories; other storages as they are.

    Raises:
        ValueError: if it is a directory.
    """
    is_path = isinstance(storage, os.PathLike) or (isinstance(storage, str) and "://" not in storage)
    if not is_path:
        return storage
    path = local_path(storage)
    if path.is_dir():
        raise ValueError(f"storage={str(storage)!r} is a directory; give the path of a journal file, as in study.log")
    return path


def _refuse_other_files(path: Path) -> None:
    """Refuses a file whose first line is no record of a journal: Optuna would pass over it, and write behind it."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        line = file.readline(_LONGEST_RECORD)
    record = json.loads(line) if line else {"op_code": None}
    if not (isinstance(record, dict) and "op_code" in record):
        raise ValueError(f"it begins with {line[:40]!r}")


def _called(function: Callable, trial) -> dict[str, Any]:
    """Settings by "a/b" path that a user's function of Optuna's trial chooses and returns.

    Raises:
        TypeError: if it returns anything but a dict or None.
        any error of the function.
    """
    returned = function(trial)
    if not (returned is None or isinstance(returned, Mapping)):
        raise TypeError(
            f"the function given to OptunaSearch as space must return a dict of settings, or nothing, but returned "
            f"{returned!r:.80}"
        )
    return {**trial.params, **(returned or {})}


def _checked_point(point) -> Mapping[str, Any]:
    if not isinstance(point, Mapping):
        raise ValueError(f"points_to_evaluate needs a list of dicts, but one of them is {point!r:.80}")
    return point


def _with_settings(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a configuration with settings by "a/b" path."""
    changed = dict(config)
    for path, value in settings.items():
        *way, last = path.split("/")
        place = changed
        for key in way:
            place[key] = place = dict(place.get(key) or {})
        place[last] = value
    return changed


def _asked(trial, node, path):
    """The node with values of the sampler in place of its domains; functions are left to `resolve`."""
    if isinstance(node, Choice) and not _is_plain(node):
        index = trial.suggest_categorical(name(path), list(range(len(node.values))))
        return _asked(trial, node.values[index], (*path, f"option {index}"))
    if isinstance(node, Domain) and not isinstance(node, Function):
        return _ask(trial, node, path)
    return rebuilt(node, path, lambda child, inner: _asked(trial, child, inner))


def _ask(trial, domain: Domain, path):
    """Asks for one parameter; the options of a choice are plain."""
    key = name(path)
    if isinstance(domain, Choice):
        return trial.suggest_categorical(key, domain.values)
    if isinstance(domain, Normal):
        value = statistics.NormalDist(domain.mean, domain.sd).inv_cdf(trial.suggest_float(key, _EDGE, 1 - _EDGE))
        return value if domain.q is None else round(round(value / domain.q) * domain.q, 12)
    if isinstance(domain, Float) and domain.q is None:
        return trial.suggest_float(key, domain.low, domain.high, log=domain.log)
    # Whole multiples of the quantum, so that steps and logarithms go together.
    first, last = round(domain.low / domain.q), round(domain.high / domain.q)
    value = trial.suggest_int(key, first, last, log=domain.log) * domain.q
    return value if isinstance(domain, Integer) else round(value, 12)


def _encoded_point(space, point: Mapping) -> tuple[dict[str, Any], dict[str, Any]]:
    """(entries to queue, by Optuna's parameter names; the rest of the point)."""
    queued: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    _, domains = split(space)
    names = {name(path): domain for path, domain in domains.items()}

    def walk(part, prefix):
        for key, value in part.items():
            path = f"{prefix}{key}"
            domain = names.get(path)
            if domain is None and isinstance(value, Mapping):
                walk(value, f"{path}/")
            elif domain is None or isinstance(domain, Function):
                fixed[path] = value
            else:
                queued.update(_parameters(domain, value, path))

    walk(point, "")
    return queued, fixed


def _parameters(node, value, path: str) -> dict[str, Any]:
    """Optuna's parameters, as `_asked` names them, by which a part of the space is drawn as this value."""
    if isinstance(node, Choice) and not _is_plain(node):
        index = node.option_of(value)
        return {path: index, **_parameters(node.values[index], value, f"{path}/option {index}")}
    if isinstance(node, Domain):
        return {} if isinstance(node, Function) else {path: _encoded(node, value)}
    inner = node.items() if isinstance(node, Mapping) else enumerate(node) if type(node) in (list, tuple) else ()
    found = (_parameters(child, value[key], f"{path}/{key}") for key, child in inner)
    return {name: each for of_child in found for name, each in of_child.items()}


def _encoded(domain: Domain, value):
    """The parameter that `_ask` turns into this value; the options of a choice are plain."""
    if isinstance(domain, Choice):
        return value
    if isinstance(domain, Normal):
        return min(max(statistics.NormalDist(domain.mean, domain.sd).cdf(value), _EDGE), 1 - _EDGE)
    return value if isinstance(domain, Float) and domain.q is None else round(value / domain.q)


def _is_plain(choice: Choice) -> bool:
    """Whether Optuna can store the options themselves."""
    return all(value is None or isinstance(value, (bool, int, float, str)) for value in choice.values)
