"""Search with Optuna's samplers: TPE, Gaussian process, CMA-ES, quasi-Monte Carlo.

The space is walked anew for every trial ("define by run"), so that domains inside an option of a choice are asked for
only when the option is chosen. Domains without a distribution of Optuna's are mapped to another one: quantised
logarithmic domains to whole numbers, normal ones to their quantile.

Every suggestion has its own sampler, seeded by the search's seed and the suggestion's number. All state of a sampler
is in the trials, so a saved search continues exactly.
"""

import random
import statistics
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from rllib.tune.search.base import Searcher, with_point
from rllib.tune.search.domains import Choice, Domain, Float, Function, Integer, Normal
from rllib.tune.search.space import holds_domains, name, rebuilt, resolve, split

_NEEDS = {"tpe": (), "random": (), "gp": ("scipy", "torch"), "cmaes": ("cmaes",), "qmc": ("scipy",)}
# Bound of the quantile of a normal domain: five standard deviations.
_EDGE = 3e-7


class OptunaSearch(Searcher):
    """Optimises with Optuna.

    Args:
        space: the search space; None: tune.run's config.
        metric, mode: see Searcher.
        points_to_evaluate: configurations (or parts of them) to try first.
        sampler: "tpe", "gp", "cmaes", "qmc", "random", or a sampler of Optuna's, which has its own seed.
        seed: equal seeds make equal suggestions, given equal results in equal order.
        n_startup_trials: number of random trials at the start; None: the sampler's default.
        evaluated_rewards: the metric of each of points_to_evaluate, where it is known already: these points are learned
            from, and not run. Each has to name all that is drawn.
        study_name, storage: of an Optuna study that outlives this process: a URL, or a storage of Optuna's. Trials that
            it has are learned from. It maximises: with mode "min" it has the negative metric.

    Raises:
        ImportError: if Optuna, or a package that the sampler needs, is not installed.
        ValueError: if the sampler is unknown, or evaluated_rewards do not belong to the points.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping] | None = None,
        sampler="tpe",
        seed: int | None = None,
        n_startup_trials: int | None = None,
        evaluated_rewards: Sequence[float] | None = None,
        study_name: str | None = None,
        storage: Any = None,
    ):
        super().__init__(metric, mode)
        self._optuna = _import_optuna(sampler)
        self._rewards = list(evaluated_rewards or ())
        if self._rewards and len(self._rewards) != len(points_to_evaluate or ()):
            raise ValueError(
                "evaluated_rewards needs one number for each of points_to_evaluate, but "
                f"{len(self._rewards)} were given for {len(points_to_evaluate or ())} points"
            )
        self._kept = {"study_name": study_name, "storage": storage}
        self._sampler, self._startup = sampler, n_startup_trials
        self._seed = random.getrandbits(31) if seed is None else seed
        self._points = list(points_to_evaluate or ())
        self._space, self._study, self._numbers, self._encoded = space, None, {}, []
        if space is not None:
            self._begin(space)

    def set_search_properties(self, metric, mode, config, **spec) -> bool:
        super().set_search_properties(metric, mode, config)
        if self._space is not None and holds_domains(config):
            raise ValueError("OptunaSearch has its own space, so tune.run's config must have nothing to draw")
        # With a space given here, the config holds fixed settings.
        self._begin(config if self._space is None else {**config, **self._space})
        return True

    def suggest(self, trial_id):
        if self._space is None:
            raise ValueError("OptunaSearch has no search space yet: call set_search_properties first")
        if self._study is None:
            self._open()
        number = len(self._numbers)
        self._study.sampler = self._make_sampler(number)
        trial = self._study.ask()
        self._numbers[trial_id] = trial.number
        space = with_point(self._space, self._fixed[number]) if number < len(self._fixed) else self._space
        return resolve(_asked(trial, space, ()), random.Random(f"{self._seed}/{number}"))

    def on_trial_complete(self, trial_id, result=None, error=False) -> None:
        number = self._numbers.get(trial_id)
        if number is None or self._study.trials[number].state.is_finished():
            return
        score = None if error else self.score(result)
        if score is None:
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(number, score)

    def get_state(self):
        to_json = self._optuna.distributions.distribution_to_json
        trials = [
            {
                "state": trial.state.name,
                "score": trial.value,
                "params": trial.params,
                "distributions": {key: to_json(one) for key, one in trial.distributions.items()},
                "system_attrs": trial.system_attrs,
            }
            for trial in (self._study.get_trials(deepcopy=False) if self._study else ())
        ]
        return {"seed": self._seed, "numbers": self._numbers, "trials": trials}

    def set_state(self, state) -> None:
        self._seed, self._numbers = state["seed"], {}
        self._open(is_continued=True)
        for trial_id, number in sorted(state["numbers"].items(), key=lambda item: item[1]):
            self._take_back(trial_id, number, state["trials"][number])

    def _take_back(self, trial_id: str, number: int, saved: Mapping) -> None:
        if self._kept["storage"] is not None:  # which has the trial
            self._numbers[trial_id] = number
            return
        states = self._optuna.trial.TrialState
        if self._sampler == "qmc" or len(self._numbers) < len(self._fixed):
            # Only the study knows its place in the sequence, and in the queue of points.
            self.suggest(trial_id)
            if saved["state"] == "COMPLETE":
                self._study.tell(self._numbers[trial_id], saved["score"])
            elif saved["state"] == "FAIL":
                self._study.tell(self._numbers[trial_id], state=states.FAIL)
            return
        from_json = self._optuna.distributions.json_to_distribution
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=states[saved["state"]],
                value=saved["score"],
                params=saved["params"],
                distributions={key: from_json(one) for key, one in saved["distributions"].items()},
                system_attrs=saved["system_attrs"],
            )
        )
        self._numbers[trial_id] = len(self._study.get_trials(deepcopy=False)) - 1

    def _begin(self, space: Mapping) -> None:
        """Takes a search space, and checks the points; the study is opened when it is needed."""
        _, domains = split(space)
        if not domains:
            raise ValueError("OptunaSearch has nothing to search: the config has no domain such as tune.uniform(0, 1)")
        self._space, self._study, self._encoded = space, None, []
        drawn = [name(path) for path, one in domains.items() if not isinstance(one, Function)]
        for point in self._points:
            with_point(space, point)  # checks it
            queued, fixed = _encoded_point(space, point)
            if self._rewards and (missing := [each for each in drawn if each not in queued]):
                raise ValueError(f"a point of evaluated_rewards must name all that is drawn, but lacks {missing}")
            self._encoded.append((queued, fixed))

    def _open(self, is_continued: bool = False) -> None:
        """Makes the study, or loads a stored one, with the points to evaluate in its queue, or learned from.

        Args:
            is_continued: whether a stored study has been this search's before.
        """
        sampler, is_stored = self._make_sampler(0), self._kept["storage"] is not None
        self._study = self._optuna.create_study(
            direction="maximize", sampler=sampler, load_if_exists=is_stored, **self._kept
        )
        self._fixed = []
        for index, (queued, fixed) in enumerate(self._encoded):
            is_new = self._enqueue(queued)
            if not self._rewards:
                if is_new or is_continued:
                    self._fixed.append(fixed)
            elif is_new:
                trial = self._study.ask()
                _asked(trial, with_point(self._space, fixed), ())
                self._study.tell(trial, -self._rewards[index] if self.mode == "min" else self._rewards[index])

    def _enqueue(self, point: Mapping[str, Any]) -> bool:
        """Whether a point has been put into the study's queue, because a stored study did not have it yet."""
        before = len(self._study.get_trials(deepcopy=False))
        self._study.enqueue_trial(point, skip_if_exists=self._kept["storage"] is not None)
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
        raise ImportError("OptunaSearch needs optuna: pip install 'rllib[tune]'") from None
    for module in _NEEDS.get(sampler, ()) if isinstance(sampler, str) else ():
        try:
            __import__(module)
        except ImportError:
            raise ImportError(f"The sampler {sampler!r} needs {module}: pip install 'rllib[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _asked(trial, node, path):
    """The node with values of the sampler in place of its domains; functions are left to `resolve`."""
    if isinstance(node, Domain) and not isinstance(node, Function):
        value = _ask(trial, node, path)
        if not isinstance(node, Choice):
            return value
        index = next(i for i, option in enumerate(node.values) if option is value or option == value)
        return _asked(trial, value, (*path, f"option {index}"))
    return rebuilt(node, path, lambda child, inner: _asked(trial, child, inner))


def _ask(trial, domain: Domain, path):
    """Asks for one parameter; an option may hold further domains."""
    key = name(path)
    if isinstance(domain, Choice):
        if _is_plain(domain):
            return trial.suggest_categorical(key, domain.values)
        return domain.values[trial.suggest_categorical(key, list(range(len(domain.values))))]
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
                queued[path] = _encoded(domain, value)

    walk(point, "")
    return queued, fixed


def _encoded(domain: Domain, value):
    """The parameter that `_ask` turns into this value."""
    if isinstance(domain, Choice):
        return value if _is_plain(domain) else domain.values.index(value)
    if isinstance(domain, Normal):
        return min(max(statistics.NormalDist(domain.mean, domain.sd).cdf(value), _EDGE), 1 - _EDGE)
    return value if isinstance(domain, Float) and domain.q is None else round(value / domain.q)


def _is_plain(choice: Choice) -> bool:
    """Whether Optuna can store the options themselves."""
    return all(value is None or isinstance(value, (bool, int, float, str)) for value in choice.values)
