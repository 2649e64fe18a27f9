"""Settings, declared once: each is a keyword parameter of the section method that sets it.

    class MyConfig(AlgorithmConfig):
        @section
        def training(
            self,
            *,
            lr=5e-5,  # another default for an inherited setting; its type, rules and meaning stay
            clip_param: Annotated[float, "how far the probability ratio may leave 1", above(0)] = 0.3,
        ):
            "Settings of my learner."

From such declarations come the table of settings, and methods that set what they are given and return the config. They
accept (and help() shows) the inherited settings of the section as well.

Types are those of setting_types.py: a bare `list` represents a schedule, so `float | list` is a number or a schedule.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_args, get_origin

from rllib.config.conflicts import Mistake
from rllib.config.setting_types import (
    allows,
    convert,
    is_schedule,
    numbers_in,
    text_hint,
    type_in_code,
    type_in_words,
)
from rllib.notices import shortened
from rllib.schedules import KL_ADAPTIVE, kl_adaptive_problem, schedule_problem, values_of

C = TypeVar("C")


@dataclass(frozen=True)
class Range:
    """Numbers must lie in it; of a schedule, every value."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    finite: bool = False

    def __contains__(self, value: float) -> bool:
        if self.finite and math.isinf(value):
            return False
        return (self.low < value if self.low_open else self.low <= value) and value <= self.high

    def __str__(self):
        low = f"{'>' if self.low_open else '>='} {self.low}" if self.low > -math.inf else ""
        high = f"<= {self.high}" if self.high < math.inf else ""
        return " and ".join(filter(None, (low, high, "finite" if self.finite else "")))


def at_least(low: float, finite: bool = False) -> Range:
    """value >= low; infinity is, unless it has to be finite"""
    return Range(low, finite=finite)


def above(low: float, finite: bool = False) -> Range:
    """value > low; infinity is, unless it has to be finite"""
    return Range(low, low_open=True, finite=finite)


def between(low: float, high: float) -> Range:
    """low <= value <= high"""
    return Range(low, high)


@dataclass(frozen=True)
class NotYet:
    """The setting is known, but what it asks for is not built: any value but the default is refused.

    Args:
        instead: what to do, a sentence.
    """

    instead: str = "Leave it out."


@dataclass(frozen=True)
class OnlyWith:
    """The setting acts only where one of other settings, or properties of the config, asks for something.

    Given without any of them it has no effect, which is logged once (`ConfigObject.without_effect`).

    Args:
        names: names of these settings or properties.
        otherwise: what is so without them, a clause; by default the values of the settings.
    """

    names: tuple[str, ...]
    otherwise: str | None = None


def only_with(*names: str, otherwise: str | None = None) -> OnlyWith:
    """The setting acts only where one of these, settings or properties, asks for something; see OnlyWith."""
    return OnlyWith(names, otherwise)


class OfPolicy:
    """The setting may differ from policy to policy, where several agents act; all others belong to the run.

    It is read for each policy from the policy's own settings (`Algorithm.config_of`).
    """


@dataclass(frozen=True)
class Keys:
    """The setting is a dict whose keys a class declares (NestedSettings of nested.py)."""

    of: Any


@dataclass(frozen=True)
class Checked:
    """Values have to pass a test.

    Args:
        test: function of a value of the setting's type: whether it is right; or it raises a ValueError or TypeError
            that says what is wrong.
        words: the rule, as the end of "it must be ...".
    """

    test: Callable[[Any], Any]
    words: str = ""


@dataclass(frozen=True)
class Translated:
    """Values of other libraries are accepted as well; the function makes them values of the setting's type."""

    today: Callable[[Any], Any]


class FollowsKL:
    """The setting takes {"type": "kl_adaptive", ...}, too (schedules.py)."""


class Merged:
    """A dict whose section method adds the given keys to those already there, instead of replacing them all."""


@dataclass(frozen=True)
class Setting:
    """Name, type, default, meaning and rules of one setting, and the section method that sets it."""

    name: str
    section: str
    type: Any
    default: Any
    meaning: str
    range: Range | None = None
    not_yet: NotYet | None = None
    only_with: OnlyWith | None = None
    merged: bool = False
    follows_kl: bool = False
    of_policy: bool = False
    keys: Keys | None = None
    checked: Checked | None = None
    translated: Translated | None = None

    @property
    def range_of_schedule(self) -> Range | None:
        """What a schedule's values have to be in: it may end at a bound that is no value for the whole run."""
        return self.range and replace(self.range, low_open=False)

    def converted(self, value):
        """`value` in the setting's own type where that loses nothing; else as it is, and `problem` tells."""
        if self.translated is not None:
            value = self.translated.today(value)
        try:
            return convert(value, self.type)
        except TypeError:
            return value

    def problem(self, value) -> str | None:
        """Message about a wrong value, with advice; None if it is right."""
        mistake = self.mistake(value)
        return mistake and mistake.text(lambda remedy: f".{self.section}({self.name}={remedy[self.name]!r})")

    def mistake(self, value) -> Mistake | None:
        """What is wrong with a value, with the default as remedy; None if it is right."""
        if self.translated is not None:
            value = self.translated.today(value)
        try:
            value = convert(value, self.type)
        except TypeError:
            return self._mistake(f"{self._given(value)} must be {self.rule}{text_hint(value)}.", self.default)
        numbers, allowed = numbers_in(value), self.range
        if is_schedule(value, self.type):
            broken = self._schedule_problem(value)
            if broken:
                return self._mistake(f"{self._given(value)} {broken}.", [[0, 0.1], [100000, 0.01]], self.default)
            numbers, allowed = values_of(value), self.range_of_schedule
        elif allows(self.type, list) and any(map(math.isinf, numbers)):
            return self._mistake(
                f"{self._given(value)} must be {self.rule}, and finite ({self.meaning}).", self.default
            )
        if allowed is not None and not all(number in allowed for number in numbers):
            return self._mistake(f"{self._given(value)} must be {self.rule} ({self.meaning}).", self.default)
        if self.not_yet is not None and value != self.default:
            problem = f"{self._given(value)} is not available yet ({self.meaning})."
            return self._mistake(problem, self.default, advice=self.not_yet.instead)
        if self.checked is not None and (problem := self._checked_problem(value)):
            return self._mistake(problem, self.default)
        mistake = self.keys and self.keys.of.mistake(value, self.name)
        return replace(mistake, remedies=mistake.remedies or ({self.name: self.default},)) if mistake else None

    def _checked_problem(self, value) -> str | None:
        try:
            passes = self.checked.test(value)
        except (TypeError, ValueError) as error:
            problem = str(error).rstrip(".")
            return f"{problem}." if self.name in problem else f"{self.name}: {problem}."
        return None if passes else f"{self._given(value)} must be {self.checked.words} ({self.meaning})."

    def _mistake(self, problem: str, *right: Any, advice: str = "") -> Mistake:
        remedies = tuple({self.name: value} for value in right)
        return Mistake(problem, (self.name,), remedies, advice)

    def _schedule_problem(self, value) -> str | None:
        if self.follows_kl and isinstance(value, Mapping) and value.get("type") == KL_ADAPTIVE:
            return kl_adaptive_problem(value)
        return schedule_problem(value)

    def _given(self, value) -> str:
        return f"{self.name}={shortened(value)}"

    @property
    def rule(self) -> str:
        """Type and range in words: "an integer >= 1"."""
        return type_in_words(self.type, str(self.range or ""))


def section(declaration: Callable[..., C]) -> Callable[..., C]:
    """Marks a method of a Settings class as the declaration of a section.

    For type checkers it takes any arguments and returns the config; the stubs (tools/stubs.py) are exact.
    """
    declaration.__declares_section__ = True
    return declaration


@dataclass(frozen=True)
class SectionAlias:
    """Another name for a section; see `section_alias`."""

    section: str
    new_names: Mapping[str, str]


def section_alias(section_name: str, new_names: Mapping[str, str]) -> Any:
    """Gives a section a second method, whose signature and help show these other names of the settings.

    Args:
        section_name: the section that has the settings.
        new_names: other name -> name of the setting.
    """
    return SectionAlias(section_name, new_names)


@dataclass(frozen=True)
class Section:
    """The settings of one method, own and inherited, in the order of their declaration."""

    name: str
    doc: str
    names: tuple[str, ...]
    positional: tuple[str, ...]


class SettingRow(NamedTuple):
    """A line of `describe()`."""

    section: str
    name: str
    type: str
    default: Any
    meaning: str


class Settings:
    """Base of classes that declare settings in sections; see the module's docstring.

    Subclasses implement `_assign(section_name, given)`, which the section methods call.

    Attributes:
        settings: name -> Setting, own and inherited.
        sections: name -> Section.
        section_aliases: other name -> which section it sets.
    """

    settings: ClassVar[Mapping[str, Setting]] = {}
    sections: ClassVar[Mapping[str, Section]] = {}
    section_aliases: ClassVar[Mapping[str, SectionAlias]] = {}
    # Those that the class itself declares.
    _declared: ClassVar[dict[str, Setting]] = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        declared = {name: member for name, member in vars(cls).items() if hasattr(member, "__declares_section__")}
        aliases = {name: member for name, member in vars(cls).items() if isinstance(member, SectionAlias)}
        cls.settings, cls.sections = _inherited(cls)
        cls._declared = {}
        cls.section_aliases = {**cls.section_aliases, **aliases}
        for name, declaration in declared.items():
            _declare(cls, name, declaration)
        for name in declared:
            setattr(cls, name, _method(cls, cls.sections[name]))
        for name, alias in cls.section_aliases.items():
            setattr(cls, name, _method(cls, replace(cls.sections[alias.section], name=name), alias.new_names))

    def _assign(self, section_name: str, given: Mapping[str, Any]):
        raise NotImplementedError

    @classmethod
    def describe(cls) -> list[SettingRow]:
        """Every setting with its section, type, default and meaning, section by section."""
        return [
            SettingRow(section.name, name, type_in_code(setting.type), setting.default, setting.meaning)
            for section in cls.sections.values()
            for name in section.names
            for setting in (cls.settings[name],)
        ]


def _inherited(cls) -> tuple[dict[str, Setting], dict[str, Section]]:
    """The tables of the bases; what several of them declare is that of the first in the order of Python's methods."""
    settings: dict[str, Setting] = {}
    sections: dict[str, Section] = {}
    for base in reversed(cls.__mro__[1:]):
        settings.update(vars(base).get("_declared", {}))
        for name, section_ in vars(base).get("sections", {}).items():
            before = sections.get(name, section_)
            names = tuple(dict.fromkeys((*before.names, *section_.names)))
            sections[name] = replace(section_, names=names, positional=section_.positional or before.positional)
    return settings, sections


def _declare(cls, name: str, declaration: Callable) -> None:
    """Adds one declaration's settings to the tables of the class."""
    parameters = list(inspect.signature(declaration, eval_str=True).parameters.values())[1:]
    for parameter in parameters:
        cls.settings[parameter.name] = cls._declared[parameter.name] = _setting(cls, name, parameter)
    inherited = cls.sections.get(name, Section(name, "", (), ()))
    names = tuple(dict.fromkeys((*inherited.names, *(parameter.name for parameter in parameters))))
    positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD) or inherited.positional
    cls.sections[name] = Section(name, inspect.getdoc(declaration) or inherited.doc, names, positional)


def _setting(cls, section_name: str, parameter: inspect.Parameter) -> Setting:
    where = f"{cls.__name__}.{section_name}({parameter.name})"
    inherited = cls.settings.get(parameter.name)
    if parameter.default is parameter.empty:
        raise TypeError(f"{where} is declared without a default; every setting needs one")
    if inherited is not None and inherited.section != section_name:
        raise TypeError(f"{where} is already declared in .{inherited.section}(); a setting has one section")
    if parameter.annotation is parameter.empty:
        if inherited is None:
            raise TypeError(f'{where} is new, so it needs an annotation: Annotated[type, "meaning (unit)"]')
        return replace(inherited, default=parameter.default)
    if get_origin(parameter.annotation) is not Annotated:
        raise TypeError(f'{where} must be annotated as Annotated[type, "meaning (unit)"], not {parameter.annotation!r}')
    type_, meaning, *rules = get_args(parameter.annotation)
    if inherited is not None and not rules:
        return replace(inherited, type=type_, default=parameter.default, meaning=meaning)
    setting = declared(parameter.name, section_name, type_, meaning, *rules, default=parameter.default)
    if inherited is not None:
        setting = replace(
            setting, of_policy=setting.of_policy or inherited.of_policy, keys=setting.keys or inherited.keys
        )
    return setting


def declared(name: str, section_name: str, type_: Any, meaning: str, *rules: Any, default: Any) -> Setting:
    """A setting by the parts of its annotation."""

    def rule(kind):
        return next((each for each in rules if isinstance(each, kind)), None)

    return Setting(
        name,
        section_name,
        type_,
        default,
        meaning,
        range=rule(Range),
        not_yet=rule(NotYet),
        only_with=rule(OnlyWith),
        merged=Merged in rules,
        follows_kl=FollowsKL in rules,
        of_policy=OfPolicy in rules,
        keys=rule(Keys),
        checked=rule(Checked),
        translated=rule(Translated),
    )


def _method(cls, section_: Section, new_names: Mapping[str, str] | None = None) -> Callable:
    """The method of a section: sets what it is given, returns the config.

    Args:
        new_names: other name -> setting; signature and help show the other name.
    """
    positional = section_.positional

    def method(self, *args, **given):
        if len(args) > len(positional):
            takes = f"takes {', '.join(positional)} by position" if positional else "takes its settings by name only"
            raise TypeError(f".{section_.name}() {takes}, but got {', '.join(map(shortened, args))}")
        for name, value in zip(positional, args):
            if name in given:
                raise TypeError(f".{section_.name}() got {name} twice: {shortened(value)} and {shortened(given[name])}")
            given[name] = value
        return self._assign(section_.name, given)

    other_names = {setting: other for other, setting in (new_names or {}).items()}
    shown = {name: other_names.get(name, name) for name in section_.names}
    method.__name__, method.__module__ = section_.name, cls.__module__
    method.__qualname__ = f"{cls.__qualname__}.{section_.name}"
    method.__signature__ = _signature(cls, section_, shown)
    method.__doc__ = _documentation(cls, section_, shown)
    return method


def _signature(cls, section_: Section, shown: Mapping[str, str]) -> inspect.Signature:
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name in sorted(section_.names, key=lambda name: name not in section_.positional):
        setting = cls.settings[name]
        by_position = name in section_.positional
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if by_position else inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(shown[name], kind, default=setting.default, annotation=setting.type))
    return inspect.Signature(parameters)


def _documentation(cls, section_: Section, shown: Mapping[str, str]) -> str:
    lines = [section_.doc or f"Settings of the section {section_.name}.", "", "Only what is given is set.", "", "Args:"]
    for name in section_.names:
        setting = cls.settings[name]
        kind = f"{type_in_code(setting.type)}, default {setting.default!r}"
        lines.append(f"    {shown[name]} ({kind}): {setting.meaning}")
    return "\n".join(lines)
