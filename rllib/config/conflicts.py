"""Settings that do not fit together, as data: which ones, why, and which other values end the conflict.

    class MyConfig(AlgorithmConfig):
        conflicts = (
            needs("recompute_advantages", "use_critic", why="its values change while an update goes through a batch"),
            conflict(
                "recompute_advantages", "cost_limit",
                why="advantages of costs are not recomputed",
                remedies=[{"recompute_advantages": False}, {"cost_limit": None}],
            ),
        )
        refuses = {"num_learners": "the policy's step is computed in this process"}

`build()` raises all of them in one SettingsError, whose mistakes hold the remedies as settings: a command shows them in
its own words, a program can apply them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rllib.config.setting_types import shortened

# In a remedy: the setting's default.
DEFAULT = object()
Remedy = Mapping[str, Any]


@dataclass(frozen=True)
class Mistake:
    """Settings with which no run can be built.

    Attributes:
        problem: what was given and the rule: one or more sentences, without advice.
        names: the settings.
        remedies: each ends the mistake: setting -> value. The first one changes least of what was asked for.
        advice: what to do, sentences, where the remedies do not say it or not well.
        note: a sentence that follows the advice.
    """

    problem: str
    names: tuple[str, ...]
    remedies: tuple[Remedy, ...] = ()
    advice: str = ""
    note: str = ""

    def text(self, in_words: Callable[[Remedy], str]) -> str:
        """The problem with its advice.

        Args:
            in_words: function that returns what one writes to apply a remedy.
        """
        advice = self.advice
        if not advice and self.remedies:
            advice = f"Use {' or '.join(map(in_words, self.remedies))}."
        return " ".join(filter(None, (self.problem, advice, self.note)))


class SettingsError(ValueError):
    """Settings are wrong, or do not fit together or to the environment; the message says what to do.

    Args:
        mistakes: all of them.
        owner: name of the config's class.
        sections: setting -> section that sets it, of the settings in remedies.

    Attributes:
        mistakes: the same, with remedies as data.
    """

    def __init__(self, mistakes: Iterable[Mistake], owner: str, sections: Mapping[str, str]):
        self.mistakes, self._owner, self._sections = tuple(mistakes), owner, dict(sections)
        super().__init__(self.text(self._in_python))

    def __reduce__(self):
        return (
            SettingsError,
            (self.mistakes, self._owner, self._sections),
            {"__notes__": getattr(self, "__notes__", [])},
        )

    def text(self, in_words: Callable[[Remedy], str]) -> str:
        """The message, with remedies in the words of a program or a command (`Mistake.text`)."""
        lines = [mistake.text(in_words) for mistake in self.mistakes]
        if len(lines) == 1:
            return f"{self._owner}: {lines[0]}"
        return f"{self._owner} has {len(lines)} mistakes:" + "".join(f"\n- {line}" for line in lines)

    def _in_python(self, remedy: Remedy) -> str:
        by_section: dict[str, list[str]] = {}
        for name, value in remedy.items():
            by_section.setdefault(self._sections[name], []).append(f"{name}={value!r}")
        return "".join(f".{section}({', '.join(settings)})" for section, settings in by_section.items())


@dataclass(frozen=True, eq=False)
class Conflict:
    """A rule about several settings; see `conflict` and `needs`.

    Attributes:
        names: settings that it is about. It is checked where all of them exist and are right by themselves.
        when: function of a config: whether its settings break the rule.
        problem: function of a config: what is wrong with its settings.
        why: the reason, a clause, for the table in the documentation.
        remedies: as Mistake has them, or functions of a config that return them.
        advice: as Mistake has it.
    """

    names: tuple[str, ...]
    when: Callable[[Any], bool]
    problem: Callable[[Any], str]
    why: str
    remedies: tuple[Remedy | Callable[[Any], Remedy], ...]
    advice: str

    def mistake(self, config) -> Mistake | None:
        """What these settings do wrong; None if they keep the rule."""
        if not self.when(config):
            return None
        remedies = (remedy(config) if callable(remedy) else remedy for remedy in self.remedies)
        own = tuple({name: value_of(config, name, value) for name, value in remedy.items()} for remedy in remedies)
        return Mistake(self.problem(config), self.names, own, self.advice)


def conflict(
    *names: str,
    why: str | Callable[[Any], str],
    remedies: Iterable[Remedy | Callable[[Any], Remedy]] = (),
    when: str | Callable[[Any], bool] | None = None,
    advice: str = "",
) -> Conflict:
    """Settings that cannot be used at once.

    Args:
        names: the settings; the message says their values, where they ask for something.
        why: the reason, a clause; or a function of a config that returns one.
        remedies: each ends the conflict; none: `advice` says what to do.
        when: whether they conflict: a property of the config, or a function of it; by default, whether each asks for
            something (`asks`).
        advice: what to do where no setting says it, a sentence.
    """
    if isinstance(when, str):
        conflicts = _property(when)
    else:
        conflicts = when or (lambda config: all(asks(config.get(name)) for name in names))

    def problem(config) -> str:
        given = [name for name in names if asks(config[name])] or names
        return f"{_joined(given_as(config, name) for name in given)}: {why(config) if callable(why) else why}."

    text = (why.__doc__ or "") if callable(why) else why
    return Conflict(names, conflicts, problem, text, tuple(remedies), advice)


def needs(name: str, *others: str, why: str, remedies: Iterable[Remedy] | None = None) -> Conflict:
    """A setting that asks for something only another one gives.

    Args:
        name: the setting.
        others: settings or properties of the config, one of which has to ask for something.
        why: the reason, a clause.
        remedies: as of `conflict`; by default each of the others as True, and the setting's own default.
    """
    if remedies is None:
        remedies = (*({other: True} for other in others), {name: DEFAULT})

    def breaks(config) -> bool:
        return asks(config.get(name)) and not any(asks(getattr(config, other)) for other in others)

    def problem(config) -> str:
        lacking = _joined(f"{other}={getattr(config, other)!r}" for other in others)
        return f"{given_as(config, name)} needs {' or '.join(others)}, but {lacking}: {why}."

    return Conflict((name, *others), breaks, problem, why, tuple(remedies), "")


def refused(name: str, why: str) -> Conflict:
    """A setting that may only have its default, as an entry of `ConfigObject.refuses` says."""

    def differs(config) -> bool:
        return name in config.changes()

    return Conflict((name,), differs, lambda config: f"{given_as(config, name)}: {why}.", why, ({name: DEFAULT},), "")


def value_of(config, name: str, value) -> Any:
    """A remedy's value for a setting of this config."""
    return config.settings[name].default if value is DEFAULT else value


def given_as(config, name: str) -> str:
    """A setting with its value, for a message."""
    return f"{name}={shortened(config[name])}"


def asks(value) -> bool:
    """Whether a setting's value asks for something: it is not None, False, 0, or empty."""
    plain = (bool, int, float, str, dict, list, tuple)
    return bool(value) if isinstance(value, plain) else value is not None


def _property(name: str) -> Callable[[Any], bool]:
    return lambda config: bool(getattr(config, name))


def _joined(parts: Iterable[str]) -> str:
    return " and ".join(parts)
