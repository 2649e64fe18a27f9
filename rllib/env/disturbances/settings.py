"""The setting `disturbances`: its keys, and what they ask for.

    {"observation_noise": 0.01, "observation_delay": [0, 2], "action_delay": [0, 3], "action_noise": 0.05,
     "drop_observation": 0.01, "parameters": {"gravity": [8, 12], "model.body_mass": {"scale": [0.5, 2]}},
     "adapt": {"high": 8, "low": 4, "start": {"gravity": 10}}}

Wherever a number is asked for, [low, high] draws one for each episode.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Annotated, Any, NamedTuple, Self

from rllib.config.conflicts import Mistake
from rllib.config.nested import NestedSettings
from rllib.config.sections import Checked, Keys, Range, at_least
from rllib.did_you_mean import did_you_mean
from rllib.notices import shortened

_EMPTY: dict = {}


class Interval(NamedTuple):
    """Numbers from `low` to `high`, of which an episode draws one."""

    low: float
    high: float

    @classmethod
    def of(cls, given: Any, least: float = -math.inf, most: float = math.inf, whole: bool = False) -> Self:
        """The interval of a number, or of [low, high].

        Args:
            given: see above.
            least, most: bounds of its numbers.
            whole: whether they have to be integers.

        Raises:
            ValueError: for anything else.
        """
        ends = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        kind = "an integer" if whole else "a number"
        rule = f"{kind}{_within(least, most)}, or [low, high] of two such numbers"
        if len(ends) not in (1, 2) or not all(map(_is_number, ends)) or (given is not ends[0] and len(ends) == 1):
            raise ValueError(f"{shortened(given)} must be {rule}")
        if not all(least <= end <= most for end in ends) or (whole and any(end != int(end) for end in ends)):
            raise ValueError(f"{shortened(given)} must be {rule}")
        if ends[0] > ends[-1]:
            raise ValueError(f"{shortened(given)} must have its lower end first: [{ends[-1]}, {ends[0]}]")
        return cls(float(ends[0]), float(ends[-1]))

    @property
    def is_fixed(self) -> bool:
        """Whether all episodes have the same number."""
        return self.low == self.high

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high


def _is_number(given: Any) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool) and math.isfinite(given)


def _within(least: float, most: float) -> str:
    if math.isfinite(most):
        return f" from {least:g} to {most:g}"
    return f" >= {least:g}" if math.isfinite(least) else ""


class Parameter(NamedTuple):
    """What a parameter of the environment is set to.

    Attributes:
        range: the numbers, or factors.
        scales: whether they are factors of the environment's own value.
    """

    range: Interval
    scales: bool = False

    @classmethod
    def of(cls, name: Any, given: Any) -> Self:
        """The parameter of a number, of [low, high], or of {"scale": number or [low, high]}.

        Raises:
            ValueError: for anything else.
        """
        if not isinstance(name, str) or not all(name.split(".")) or any(part[0] == "_" for part in name.split(".")):
            raise ValueError(f"{name!r} must be the name of a parameter, or a path such as 'model.opt.gravity.2'")
        try:
            if isinstance(given, Mapping):
                if given.keys() != {"scale"}:
                    raise ValueError(f'{shortened(given)} must have the key "scale" alone{_path_hint(name, given)}')
                return cls(Interval.of(given["scale"], least=0), scales=True)
            return cls(Interval.of(given))
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}") from None


def _path_hint(name: str, given: Mapping) -> str:
    """The path that nested dicts spell, as keys with dots on a command line become."""
    path = [name]
    while isinstance(given, Mapping) and len(given) == 1 and "scale" not in given:
        ((part, given),) = given.items()
        path.append(str(part))
    if (isinstance(given, Mapping) and given.keys() != {"scale"}) or len(path) == 1:
        return ""
    shown = json.dumps({".".join(path): given}, default=repr)
    return f", or be a path in one key: parameters={shown}"


def as_sentence(text: str) -> str:
    """The text with a full stop, unless it ends in one or in a question."""
    return text if text.endswith((".", "?")) else f"{text}."


@dataclass(frozen=True)
class Adaptation:
    """Automatic domain randomisation (arXiv:1910.07113, appendix B, algorithm 1): ranges that grow with the return.

    Attributes:
        high: mean return t_H at a bound from which on the bound moves outwards.
        low: mean return t_L up to which it moves back.
        episodes: m, the number of returns in a mean.
        at_bounds: p_b, the share of episodes that have one parameter at one of its bounds.
        start: parameter -> its first range.
        limits: parameter -> the range that its bounds stay in.
        delta: parameter -> the step of its bounds.
    """

    high: float
    low: float
    episodes: int
    at_bounds: float
    start: Mapping[str, Interval]
    limits: Mapping[str, Interval]
    delta: Mapping[str, float]


class AdaptSettings(NestedSettings, setting="adapt", section="environment"):
    """Keys of "adapt"; high and low are needed."""

    high: Annotated[float | None, "mean return at a bound from which on it moves outwards"] = None
    low: Annotated[float | None, "mean return at a bound up to which it moves back"] = None
    delta: Annotated[
        float | dict | None, "step of a bound, or parameter -> step; None: a tenth of each parameter's range"
    ] = None
    start: Annotated[dict, "parameter -> its first number or [low, high]; of a factor 1 by default"] = _EMPTY
    episodes: Annotated[int, "returns of episodes at a bound in one mean", at_least(1)] = 20
    at_bounds: Annotated[float, "share of episodes that have one parameter at a bound", Range(0, 1, low_open=True)] = (
        0.5
    )


def _noise(given: Any) -> Interval | Mapping[str, Interval]:
    """Deviations of observations, or by the key of a Dict observation."""
    if not isinstance(given, Mapping):
        return Interval.of(given, least=0)
    try:
        return {key: Interval.of(each, least=0) for key, each in given.items()}
    except ValueError as error:
        raise ValueError(f"{error}, for each key of the observation") from None


_deviation = partial(Interval.of, least=0)
_share = partial(Interval.of, least=0, most=1)
# More would hold a whole episode back.
_delay = partial(Interval.of, least=0, most=1000, whole=True)


def _parameters(given: Mapping) -> dict[str, Parameter]:
    return {name: Parameter.of(name, each) for name, each in given.items()}


def _is_parsed(parse: Callable) -> Checked:
    """The check that a value can be parsed."""
    return Checked(lambda given: parse(given) is not None)


class DisturbanceSettings(NestedSettings, setting="disturbances", section="environment"):
    """Keys of `disturbances`. Numbers are in the environment's own units; [low, high] draws one for each episode."""

    observation_noise: Annotated[
        Any, "standard deviation of observations of float Boxes; of a Dict also key -> deviation", _is_parsed(_noise)
    ] = 0.0
    observation_delay: Annotated[Any, "steps by which the policy sees observations late", _is_parsed(_delay)] = 0
    drop_observation: Annotated[
        Any, "probability with which the policy sees the observation before again", _is_parsed(_share)
    ] = 0.0
    action_delay: Annotated[Any, "steps by which actions are played late", _is_parsed(_delay)] = 0
    action_noise: Annotated[Any, "standard deviation of actions of float Boxes", _is_parsed(_deviation)] = 0.0
    parameters: Annotated[
        dict, 'parameter of the environment -> number, [low, high] or {"scale": factor}', _is_parsed(_parameters)
    ] = _EMPTY
    adapt: Annotated[
        dict, "ranges of parameters that grow with the return; their ranges above are the limits", Keys(AdaptSettings)
    ] = _EMPTY

    def _take(self, given: Mapping[str, Any]) -> Iterator[Mistake]:
        is_wrong = False
        for mistake in super()._take(given):
            is_wrong = True
            yield mistake
        if not is_wrong and self.adapt:
            try:
                _adaptation(self.adapt, _parameters(self.parameters))
            except ValueError as error:
                yield Mistake(as_sentence(f"adapt: {error}"), (), ({"adapt": {}},))


def _adaptation(given: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> Adaptation:
    """What "adapt" asks for.

    Raises:
        ValueError: if it does not go with the parameters, or lacks a key.
    """
    settings = AdaptSettings(given)
    if settings.high is None or settings.low is None or not settings.low < settings.high:
        raise ValueError(f"needs returns low < high, but low={settings.low} and high={settings.high}")
    limits = {name: each.range for name, each in parameters.items() if not each.range.is_fixed}
    if not limits:
        raise ValueError('needs ranges in "parameters" to move within')
    by_name = settings.delta if isinstance(settings.delta, Mapping) else {}
    for name in (*settings.start, *by_name):
        if name not in limits:
            hint = did_you_mean(str(name), list(limits), repr, otherwise=f"Known are {', '.join(limits)}.")
            raise ValueError(f'{name!r} has no range in "parameters".{hint}')
    start, delta = {}, {}
    for name, limit in limits.items():
        if name not in settings.start and not parameters[name].scales:
            raise ValueError(f'"start" lacks {name!r}, from whose number on its range grows')
        try:
            start[name] = Interval.of(settings.start.get(name, 1))
        except ValueError as error:
            raise ValueError(f'"start" of {name!r}: {error}') from None
        if not (start[name].low in limit and start[name].high in limit):
            raise ValueError(f'"start" of {name!r} is {list(start[name])}, outside of {list(limit)} in "parameters"')
        step = by_name.get(name) if settings.delta is by_name else settings.delta
        delta[name] = (limit.high - limit.low) / 10 if step is None else step
        if not _is_number(delta[name]) or delta[name] <= 0:
            raise ValueError(f'"delta" of {name!r} is {delta[name]!r}, but must be a number > 0')
    return Adaptation(settings.high, settings.low, settings.episodes, settings.at_bounds, start, limits, delta)


@dataclass(frozen=True)
class Disturbances:
    """What the setting asks for; see DisturbanceSettings.

    Attributes:
        adapt: how ranges of parameters grow; None: each is drawn from as it is.
        given: the value of the setting.
    """

    observation_noise: Interval | Mapping[str, Interval]
    observation_delay: Interval
    drop_observation: Interval
    action_delay: Interval
    action_noise: Interval
    parameters: Mapping[str, Parameter]
    adapt: Adaptation | None
    given: Mapping[str, Any]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self | None:
        """What a value of the setting asks for; None if it asks for nothing.

        Raises:
            SettingsError: (a ValueError) with every mistake.
        """
        settings = DisturbanceSettings(given)
        if not settings.changes():
            return None
        parameters = _parameters(settings.parameters)
        return cls(
            _noise(settings.observation_noise),
            _delay(settings.observation_delay),
            _share(settings.drop_observation),
            _delay(settings.action_delay),
            _deviation(settings.action_noise),
            parameters,
            _adaptation(settings.adapt, parameters) if settings.adapt else None,
            dict(given),
        )

    @property
    def changes_steps(self) -> bool:
        """Whether observations or actions are disturbed, and not parameters alone."""
        noise = self.observation_noise
        noises = noise.values() if isinstance(noise, Mapping) else [noise]
        others = self.observation_delay, self.drop_observation, self.action_delay, self.action_noise
        return any(each.high > 0 for each in (*noises, *others))

    def without(self, *keys: str) -> dict[str, Any]:
        """Some keys at their defaults, as a remedy."""
        return without(self.given, keys)


def without(given: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Some keys of a value of the setting at their defaults, as a remedy."""
    defaults = DisturbanceSettings.defaults()
    return {"disturbances": {key: defaults[key] for key in keys if key in given}}


# Keys that change what the policy sees.
OF_OBSERVATIONS = ("observation_noise", "observation_delay", "drop_observation")
# Those that change what it sees or does.
OF_STEPS = (*OF_OBSERVATIONS, "action_delay", "action_noise")
