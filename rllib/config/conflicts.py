"""Settings that do not fit together, as data: which ones, why, and which other values end the conflict.

    class MyConfig(AlgorithmConfig):
        conflicts = (
            needs("recompute_advantages", "use_critic", why="its values change while an update goes through a batch"),
            needs(("evaluation_duration", "auto"), "evaluation_parallel_to_training", why="it lasts as long as that"),
            conflict(
                "recompute_advantages", "cost_limit",
                why="advantages of costs are not recomputed",
                remedies=[{"recompute_advantages": False}, {"cost_limit": None}],
            ),
        )
        refuses = {"num_learners": "the policy's step is computed in this process"}

`build()` raises all of them in one SettingsError, whose mistakes hold the remedies as settings: a command shows them in
its own words, a program can apply them (`ConfigObject.apply`).
"""

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from rllib.notices import shortened, shown


class _Default:
    """The type of DEFAULT."""

    def __repr__(self):
        return "DEFAULT"

    def __reduce__(self):
        return "DEFAULT"


# In a remedy of a rule: the setting's default.
DEFAULT = _Default()
# Setting -> value. Of a dict that its section method adds to (`Merged`), the keys to change; its default replaces it.
Remedy = Mapping[str, Any]
# What a rule is about: a setting, where it asks for something (`asks_for`), or (setting, the only value that counts).
Subject = str | tuple[str, Any]


@dataclass(frozen=True)
class Mistake:
    """Settings with which no run can be built.

    Attributes:
        problem: what was given and the rule: one or more sentences, without advice.
        names: the settings.
        remedies: each ends the mistake by itself. The first one changes least of what was asked for.
        examples: further ways, where values in capitals represent what only the user has, such as a PATH.
        advice: what to do, sentences, in place of remedies and examples, where these do not say it well. None: the
            problem says it.
        note: sentences that follow.

    Raises:
        TypeError: if nothing says what ends it, or names is a single string.
    """

    problem: str
    names: tuple[str, ...]
    remedies: tuple[Remedy, ...] = ()
    advice: str | None = ""
    note: str = ""
    examples: tuple[Remedy, ...] = ()

    def __post_init__(self):
        if isinstance(self.names, str):
            raise TypeError(f"names={self.names!r} must be a tuple of the settings' names")
        if not (self.remedies or self.examples or self.advice):
            raise TypeError(f"nothing says what ends this mistake; it needs remedies, or advice: {self.problem}")

    @property
    def no_setting_ends_it(self) -> bool:
        """Whether only another environment, or another algorithm, ends it: it is about `env` alone."""
        return self.names == ("env",) and not (self.remedies or self.examples)

    def text(self, in_words: Callable[[Remedy], str], defaults: Mapping[str, Any] = {}) -> str:
        """The problem, then what to do.

        Args:
            in_words: function that returns what one writes to give these settings.
            defaults: of the settings in remedies. One of several settings that returns to a default which asks for
                nothing is left out; so is one that returns to an empty dict or list, to which methods may only add.
        """
        advice = self.advice
        if advice == "":
            several = len(self.names) > 1
            left_out = {name: value for name, value in defaults.items() if several or isinstance(value, dict | list)}
            advice = _alternatives([_way(each, in_words, left_out) for each in (*self.remedies, *self.examples)])
        return " ".join(filter(None, (self.problem, advice, self.note)))


def _way(remedy: Remedy, in_words: Callable[[Remedy], str], defaults: Mapping[str, Any]) -> tuple[str, str]:
    """(what is used, what is left out) to apply a remedy, each in words and empty if there is nothing."""
    idle = [name for name, value in remedy.items() if name in defaults and _is_idle(value, defaults[name])]
    used = {name: value for name, value in remedy.items() if name not in idle}
    return (in_words(used) if used else ""), " and ".join(idle)


def _is_idle(value, default) -> bool:
    """Whether a value is the default, and asks for nothing."""
    return not asks(value) and not asks(default) and type(value) is type(default)


def _alternatives(ways: Sequence[tuple[str, str]]) -> str:
    """ "Use A or B, or leave c out." """
    clauses = []
    for kind, group in itertools.groupby(ways, key=lambda way: (bool(way[0]), bool(way[1]))):
        uses_some, leaves_some = kind
        if uses_some and leaves_some:
            clauses += [f"use {used} and leave {left_out} out" for used, left_out in group]
        elif uses_some:
            clauses.append(f"use {' or '.join(used for used, _ in group)}")
        else:
            clauses.append(f"leave {' or '.join(left_out for _, left_out in group)} out")
    text = ", or ".join(filter(None, (", ".join(clauses[:-1]), *clauses[-1:])))
    return f"{text[0].upper()}{text[1:]}." if text else ""


class Unfit(ValueError):
    """Settings do not fit, as something finds that has no config: a network's description, a replay, a learner.

    An algorithm that is built raises the mistake as a SettingsError.

    Args:
        problem: as Mistake has it.
        advice: what to do, sentences.
        remedies: as Mistake has them. Settings of a network are under `model`, wherever the config has them.

    Attributes:
        mistake: the whole.
    """

    def __init__(self, problem: str, advice: str, *remedies: Remedy):
        names = tuple(dict.fromkeys(name for remedy in remedies for name in remedy))
        self.mistake = Mistake(problem, names or ("env",), remedies, advice)
        super().__init__(shown(self.mistake.text(str)))

    @classmethod
    def of(cls, mistake: Mistake) -> Self:
        """One that has this mistake, also with names that none of its remedies has."""
        unfit = cls(mistake.problem, mistake.advice, *mistake.remedies)
        unfit.mistake = mistake
        return unfit

    def __reduce__(self):
        return Unfit, (self.mistake.problem, self.mistake.advice, *self.mistake.remedies)


class Place(NamedTuple):
    """What a message has to know of a setting."""

    section: str
    default: Any
    by_position: bool


class SettingsError(ValueError):
    """Settings are wrong, or do not fit together or to the environment; the message says what to do.

    Args:
        mistakes: all of them.
        owner: name of the config's class.
        places: setting -> where it is set and its default, of the settings in remedies.
        before: text that the message begins with, such as where the settings are.
        after: a sentence that it ends with.

    Attributes:
        mistakes: the same, with remedies as data.
    """

    def __init__(
        self,
        mistakes: Iterable[Mistake],
        owner: str,
        places: Mapping[str, Place],
        before: str = "",
        after: str = "",
    ):
        self.mistakes = tuple(mistakes)
        self._owner, self._places, self._before, self._after = owner, dict(places), before, after
        super().__init__(self.text(self.in_python))

    def __reduce__(self):
        state = {"__notes__": self.__notes__} if hasattr(self, "__notes__") else {}
        return SettingsError, (self.mistakes, self._owner, self._places, self._before, self._after), state

    def text(self, in_words: Callable[[Remedy], str]) -> str:
        """The message, without logins, and with remedies in the words of a program or a command (`Mistake.text`)."""
        defaults = {name: place.default for name, place in self._places.items()}
        lines = [mistake.text(in_words, defaults) for mistake in self.mistakes]
        if len(lines) == 1:
            text = f"{self._owner}: {lines[0]}"
        else:
            text = f"{self._owner} has {len(lines)} mistakes:" + "".join(f"\n- {line}" for line in lines)
        return shown(f"{self._before}{text}" + (f" {self._after}" if self._after else ""))

    def surrounded(self, before: str, after: str) -> "SettingsError":
        """The same error with more text around its message."""
        after = f"{self._after} {after}".strip()
        return SettingsError(self.mistakes, self._owner, self._places, f"{before}{self._before}", after)

    def in_python(self, remedy: Remedy) -> str:
        """What a program writes to give these settings: ".training(lr=0.001)"."""
        by_section: dict[str, list[str]] = {}
        for name, value in sorted(remedy.items(), key=lambda item: not self._places[item[0]].by_position):
            place = self._places[name]
            by_section.setdefault(place.section, []).append(f"{value!r}" if place.by_position else f"{name}={value!r}")
        return "".join(f".{section}({', '.join(settings)})" for section, settings in by_section.items())


def surrounded(error: Exception, before: str = "", after: str = "") -> Exception:
    """An error of the same type with more text around its message; the mistakes of a SettingsError stay data.

    Args:
        error: made of its message alone, or a SettingsError.
        before: text that the message then begins with.
        after: a sentence that it ends with.
    """
    if isinstance(error, SettingsError):
        return error.surrounded(before, after)
    return type(error)(f"{before}{error}" + (f" {after}" if after else ""))


@dataclass(frozen=True, eq=False)
class Conflict:
    """A rule about several settings; see `conflict` and `needs`.

    Attributes:
        subjects: what it is about: settings, or properties of the config. It is checked where all of them exist and
            are right by themselves.
        when: function of a config: whether its settings break the rule.
        problem: function of a config: what is wrong with its settings.
        rule: which settings exclude or need which, in words, for the table in the documentation.
        why: the reason, a clause, for the same.
        remedies: as Mistake has them, where a value may be DEFAULT or a function of a config; or functions of a config
            that return one.
        advice, note, examples: as Mistake has them.
        reads: further settings that `when` reads.
    """

    subjects: tuple[Subject, ...]
    when: Callable[[Any], bool]
    problem: Callable[[Any], str]
    rule: str
    why: str
    remedies: tuple[Remedy | Callable[[Any], Remedy], ...]
    advice: str | None = ""
    note: str = ""
    examples: tuple[Remedy, ...] = ()
    reads: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the settings, or properties, that it is about."""
        return (*map(_name, self.subjects), *self.reads)

    def mistake(self, config) -> Mistake | None:
        """What these settings do wrong; None if they keep the rule."""
        if not self.when(config):
            return None
        remedies = (remedy(config) if callable(remedy) else remedy for remedy in self.remedies)
        own = tuple({name: value_of(config, name, value) for name, value in remedy.items()} for remedy in remedies)
        names = tuple(name for name in self.names if name in config.settings)
        return Mistake(self.problem(config), names, own, self.advice, self.note, self.examples)


def conflict(
    *subjects: Subject,
    why: str | Callable[[Any], str],
    remedies: Iterable[Remedy | Callable[[Any], Remedy]] = (),
    when: str | Callable[[Any], bool] | None = None,
    advice: str | None = "",
    note: str = "",
    examples: Iterable[Remedy] = (),
    reads: Iterable[str] = (),
) -> Conflict:
    """Settings that cannot be used at once.

    Args:
        subjects: the settings, or (setting, value) where only this value counts. The message says their values, but
            for defaults that ask for nothing.
        why: the reason, a clause; or a function of a config that returns one.
        remedies: each ends the conflict; see Conflict. By default, each of the settings at its default.
        when: whether they conflict: a property of the config, or a function of it; by default, whether each asks for
            something (`asks_for`), or has the value.
        advice, note, examples: as Mistake has them.
        reads: further settings that `when` reads, which the message does not say.
    """
    if isinstance(when, str):
        conflicts = _property(when)
    else:
        conflicts = when or (lambda config: all(_applies(config, each) for each in subjects))
    names = tuple(map(_name, subjects))

    def problem(config) -> str:
        given = [name for name in names if not _is_idle(config[name], config.settings[name].default)] or names
        return f"{_joined(given_as(config, name) for name in given)}: {why(config) if callable(why) else why}."

    text = (why.__doc__ or "") if callable(why) else why
    ends = tuple(remedies) or (() if advice or examples else tuple({name: DEFAULT} for name in names))
    rule = _joined(map(_in_table, subjects))
    return Conflict(subjects, conflicts, problem, rule, text, ends, advice, note, tuple(examples), tuple(reads))


def needs(
    subject: Subject,
    *others: Subject,
    why: str,
    remedies: Iterable[Remedy | Callable[[Any], Remedy]] | None = None,
    advice: str | None = "",
    note: str = "",
    examples: Iterable[Remedy] = (),
) -> Conflict:
    """A setting that asks for something only another one gives.

    Args:
        subject: the setting, or (setting, value) where only this value needs it.
        others: settings or properties of the config, one of which has to ask for something, or to have a value.
        why: the reason, a clause.
        remedies: as of `conflict`; by default each of the others as True, or with its value, and the setting's own
            default.
        advice, note, examples: as Mistake has them.
    """
    name = _name(subject)
    if remedies is None:
        given = (dict([other]) if isinstance(other, tuple) else {other: True} for other in others)
        remedies = (*given, {name: DEFAULT})

    def breaks(config) -> bool:
        return _applies(config, subject) and not any(_applies(config, other) for other in others)

    def problem(config) -> str:
        lacking = _joined(f"{other}={shortened(getattr(config, other))}" for other in map(_name, others))
        return f"{given_as(config, name)} needs {' or '.join(map(_in_words, others))}, but {lacking}: {why}."

    rule = f"{_in_table(subject)} needs {' or '.join(map(_in_table, others))}"
    return Conflict((subject, *others), breaks, problem, rule, why, tuple(remedies), advice, note, tuple(examples))


class RuleRow(NamedTuple):
    """A line of `ConfigObject.describe_rules()`; settings are in backquotes.

    Attributes:
        rule: which settings exclude or need which, or what holds for them.
        why: the reason, a clause; empty where the rule says it.
        ends: what ends a mistake; empty where only the message can say it.
        names: names of the settings, and of properties of the config.
    """

    rule: str
    why: str
    ends: str
    names: tuple[str, ...]


def row_of(conflict: Conflict) -> RuleRow:
    """A declared rule as a line of a table."""
    ways = [_way_in_table(remedy) for remedy in (*conflict.remedies, *conflict.examples)]
    return RuleRow(conflict.rule, conflict.why, ", or ".join(filter(None, ways)), conflict.names)


def rule_of(method: Callable) -> str:
    """The rule that a method checks: the first line of its docstring."""
    return (inspect.getdoc(method) or f"see {method.__name__}").partition("\n")[0].removesuffix(".")


def _way_in_table(remedy: Remedy | Callable[[Any], Remedy]) -> str:
    return "" if callable(remedy) else " and ".join(_value_in_table(name, value) for name, value in remedy.items())


def _value_in_table(name: str, value) -> str:
    if value is DEFAULT:
        return f"`{name}` left out"
    return f"another `{name}`" if callable(value) else f"`{name}={value!r}`"


def refused(name: str, why: str) -> Conflict:
    """A setting that may only have its default, as an entry of `ConfigObject.refuses` says."""

    def differs(config) -> bool:
        return name in config.changes()

    def problem(config) -> str:
        return f"{given_as(config, name)}: {why}."

    return Conflict((name,), differs, problem, f"`{name}` keeps its default", why, ({name: DEFAULT},))


def value_of(config, name: str, value) -> Any:
    """A remedy's value for a setting of this config."""
    if value is DEFAULT:
        return config.settings[name].default
    return value(config) if callable(value) else value


def given_as(config, name: str) -> str:
    """A setting with its value, for a message; of a dict whose keys are changed one by one, those that are changed."""
    value, setting = config[name], config.settings.get(name)
    if setting is not None and setting.merged:
        changed = {
            key: given for key, given in value.items() if key not in setting.default or setting.default[key] != given
        }
        value = changed or value
    return f"{name}={shortened(value)}"


def asks_for(config, name: str) -> bool:
    """Whether a setting, or property, of a config asks for something: see `asks`; 0 does where the default is None."""
    value, setting = getattr(config, name), config.settings.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return asks(value) or (is_number and setting is not None and setting.default is None)


def asks(value) -> bool:
    """Whether a value asks for something: it is not None, False, 0, or empty."""
    plain = (bool, int, float, str, dict, list, tuple)
    return bool(value) if isinstance(value, plain) else value is not None


def _applies(config, subject: Subject) -> bool:
    """Whether the setting asks for something, or has the value that counts."""
    if isinstance(subject, str):
        return asks_for(config, subject)
    name, value = subject
    given = getattr(config, name)
    return type(given) is type(value) and given == value


def _name(subject: Subject) -> str:
    return subject if isinstance(subject, str) else subject[0]


def _in_words(subject: Subject) -> str:
    return subject if isinstance(subject, str) else f"{subject[0]}={subject[1]!r}"


def _in_table(subject: Subject) -> str:
    return f"`{_in_words(subject)}`"


def _property(name: str) -> Callable[[Any], bool]:
    return lambda config: bool(getattr(config, name))


def _joined(parts: Iterable[str]) -> str:
    return " and ".join(parts)
