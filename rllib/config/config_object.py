"""A config object: settings in sections that can be set, read, checked, copied and frozen, under names of any era."""

import functools
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

from rllib import notices
from rllib.compat.names import absent, aliases, foreign_program
from rllib.config.conflicts import (
    Conflict,
    Mistake,
    Place,
    Remedy,
    RuleRow,
    SettingsError,
    asks_for,
    refused,
    row_of,
    rule_of,
)
from rllib.config.sections import Setting, Settings
from rllib.did_you_mean import nearest
from rllib.notices import shortened

R = TypeVar("R", bound=Callable[[Any], Mistake | None])


def relation(*names: str) -> Callable[[R], R]:
    """Marks a method that checks how settings fit together: it returns a Mistake, or None.

    It is for what a conflict cannot say (`conflict`, `needs`, `refuses`: rllib/config/conflicts.py). It is called only
    when each of these settings exists and is right by itself.
    """

    def mark(method: R) -> R:
        method.__relates__ = names
        return method

    return mark


class ConfigObject(Settings):
    """Base of AlgorithmConfig: everything about settings that is independent of which settings there are."""

    # Names of other eras that mean something else for this class than aliases.py says: the setting, and what makes its
    # value of theirs. They can be set in any section, and not be read.
    own_aliases: ClassVar[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {}
    # Values that ask this class for nothing: of unavailable names, where these are others than aliases.py says, and of
    # settings, which keep what they have.
    harmless: ClassVar[Mapping[str, tuple]] = {}

    # Rules of this class about several settings; those of the bases hold as well.
    conflicts: ClassVar[tuple[Conflict, ...]] = ()
    # Settings of the bases that may only have their defaults here: name -> reason, a clause.
    refuses: ClassVar[Mapping[str, str]] = {}
    # Settings of the bases that have no effect in this class: name -> reason, a clause.
    unused: ClassVar[Mapping[str, str]] = {}

    # Settings without a warning if they have no effect (`note_as_warned`).
    _warned: frozenset[str] = frozenset()

    # Settings that were given a value, also where that is the default (`given`).
    _assigned: frozenset[str] = frozenset()

    # The subclass whose constructor runs, which declares settings by setting attributes (`_declare_own`).
    _declares: ClassVar[type["ConfigObject"] | None] = None

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _declaring(cls, cls.__init__)

    @classmethod
    def _declare_own(cls, name: str, value: Any) -> None:
        """Declares a setting that a constructor sets, as RLlib's config classes do; its value there is its default."""
        meaning = f"a setting of {cls.__name__}"
        cls.settings[name] = cls._declared[name] = Setting(name, "training", Any, copied(value), meaning)
        section = cls.sections["training"]
        cls.sections["training"] = replace(section, names=(*section.names, name))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a pickled config; in this process its class may not have been constructed, and so not declared."""
        self.__dict__.update(state)
        for name in state["_values"].keys() - self.settings.keys():
            type(self)._declare_own(name, state["_values"][name])

    def __init__(self):
        values = {name: copied(setting.default) for name, setting in self.settings.items()}
        # Names of other eras by which settings were given, for messages: setting -> name.
        self.__dict__.update(_values=values, _given_names={}, _frozen=False)

    # ------------------------------------------------------------------ checks

    def validate(self, undecided: Collection[str] = ()) -> None:
        """Raises ONE SettingsError with a line for every mistake; each says what to do.

        Args:
            undecided: settings whose values a search draws; neither they nor their relations are looked at, nor rules
                that read them by way of a property.
        """
        if mistakes := list(self.mistakes(undecided)):
            raise self.error(*mistakes)

    def error(self, *mistakes: Mistake) -> SettingsError:
        """The error for these mistakes in the settings, also for those that the environment's spaces reveal."""
        named = {name for mistake in mistakes for way in (*mistake.remedies, *mistake.examples) for name in way}
        places = {name: self._place_of(name) for name in named}
        return SettingsError(map(self._with_given_names, mistakes), type(self).__name__, places)

    def _place_of(self, name: str) -> Place:
        setting = self.settings[name]
        return Place(setting.section, setting.default, name in self.sections[setting.section].positional)

    @contextmanager
    def blamed(self, *names: str, remedies: Iterable[Remedy]) -> Iterator[None]:
        """Turns a ValueError raised inside into a mistake in these settings, where its message says what to do.

        Its subclasses are errors of their own, and are left alone.
        """
        try:
            yield
        except ValueError as error:
            if type(error) is not ValueError or getattr(error, "__notes__", None):
                raise
            raise self.error(Mistake(str(error), names, tuple(remedies), advice=None)) from error

    def apply(self, remedy: Remedy) -> Self:
        """Sets what ends a mistake (`Mistake.remedies`), and returns this config.

        The keys of a dict are added to those that are there, as by its section method, if that adds them; a dict that
        is the setting's default replaces it.
        """
        for name, value in remedy.items():
            setting = self.settings[name]
            self._assign(None, {name: value}, merge=not _is_same(value, setting.default))
        return self

    def mistakes(self, undecided: Collection[str] = ()) -> Iterator[Mistake]:
        """All mistakes in the settings: first of single settings, then of their relations."""
        wrong, any_key_is_wrong = set(undecided), False
        checked = self._without(undecided) if undecided else self
        for name, setting in self.settings.items():
            mistake = None if name in wrong else setting.mistake(self._values[name])
            if mistake and setting.keys and isinstance(self._values[name], Mapping):
                any_key_is_wrong = True  # rules may be about its other keys
            elif mistake:
                wrong.add(name)
            if mistake:
                yield mistake
        for names, check in rules_of(type(self)).values():
            if all(name not in wrong and self._has(name) for name in names):
                try:
                    mistake = check(checked)
                except Exception:
                    if not (wrong or any_key_is_wrong):
                        raise
                    continue  # it reads one of the wrong settings by way of another
                if mistake is None:
                    continue
                if not isinstance(mistake, Mistake):
                    source = f"{type(self).__name__}.{getattr(check, '__name__', check)}"
                    raise TypeError(f"{source} is a relation, which returns a Mistake or None, not {mistake!r:.80}")
                yield mistake

    def _without(self, undecided: Collection[str]) -> Self:
        """A copy in which these settings cannot be read: a rule that reads one is undecided, too."""
        decided = self.copy(copy_frozen=False)
        decided.__dict__["_values"] = _PartlyDecided(decided._values, undecided)
        return decided

    @classmethod
    def _has(cls, name: str) -> bool:
        """Whether there is such a setting, or property, for a rule to be about."""
        return name in cls.settings or isinstance(getattr(cls, name, None), property)

    def without_effect(self, parts: Mapping[str, Self] = {}) -> Iterator[str]:
        """A line for each setting that was given another value than the default and has no effect, with the reason.

        Args:
            parts: part of the run, such as "policy 'p0'" -> its settings, which equal these except for its own ones. A
                setting has an effect if it has one in any part; one that only a part has is reported with the part.
        """
        for name, value in self.changes().items():
            reason = None if name in self._warned else self.why_without_effect(name)
            acts_in_a_part = (
                _is_same(part[name], value) and not part.why_without_effect(name) for part in parts.values()
            )
            if reason and not any(acts_in_a_part):
                yield self._has_no_effect(name, value, "here", reason)
        for which, part in parts.items():
            for name, value in part.changes().items():
                own = name not in self._warned and not _is_same(value, self[name])
                if own and (reason := part.why_without_effect(name)):
                    yield self._has_no_effect(name, value, f"for {which}", reason)

    def why_without_effect(self, name: str) -> str | None:
        """The reason why a setting does nothing among these, a clause; None: it acts."""
        if name in self.unused:
            return self.unused[name]
        needed = self.settings[name].only_with
        if needed is None or any(asks_for(self, each) for each in needed.names):
            return None
        return needed.otherwise or " and ".join(f"{each}={getattr(self, each)!r}" for each in needed.names)

    @classmethod
    def _has_no_effect(cls, name: str, value: Any, where: str, reason: str) -> str:
        algorithm = cls.__name__.removesuffix("Config")
        return f"{name}={shortened(value)} has no effect {where}, in {algorithm}: {reason}."

    def note_as_warned(self, names: Iterable[str]) -> None:
        """Suppresses further warnings about these settings: they were given before others changed around them."""
        self.__dict__["_warned"] = self._warned.union(names)

    def log_without_effect(self, parts: Mapping[str, Self] = {}) -> None:
        """Logs the lines of `without_effect` as warnings, each once in a process."""
        for line in self.without_effect(parts):
            notices.log_once(line, line, logging.WARNING)

    def _given_name(self, name: str) -> str:
        """The name under which a setting was given last, in any era; its own without another."""
        return self._given_names.get(name, name)

    def _with_given_names(self, mistake: Mistake) -> Mistake:
        """The same mistake, with the other names under which its settings were given."""
        ways = itertools.chain(*mistake.remedies, *mistake.examples)
        shown = f"{mistake.problem} {mistake.advice} {' '.join(ways)}"
        others = {name: self._given_names[name] for name in mistake.names if name in self._given_names}
        notes = [f"{given} is called {name} here." for name, given in others.items() if name in shown]
        return replace(mistake, note=" ".join(filter(None, (mistake.note, *notes))))

    @classmethod
    def describe_rules(cls) -> list[RuleRow]:
        """What excludes what, why, and what ends it: the rules about the settings that this class has."""
        rows = []
        for names, check in rules_of(cls).values():
            if not all(map(cls._has, names)):
                continue
            rule = getattr(check, "__self__", None)
            if isinstance(rule, Conflict):
                rows.append(row_of(rule))
            else:
                rows.append(RuleRow(rule_of(check), "", "", names))
        return rows

    # ------------------------------------------------------------------ as a dict

    @classmethod
    def overrides(cls, **settings) -> dict[str, Any]:
        """Settings to change, as a dict: `.evaluation(evaluation_config=PPOConfig.overrides(explore=True))`.

        In a program for Ray names of sections are passed over with a warning, where their value is no dict: Ray takes
        all attributes of its config, and does nothing with its methods.

        Raises:
            TypeError: for unknown names, with the nearest known ones.
        """
        config, kept = cls(), dict(settings)
        for name, value in settings.items() if foreign_program.is_running() else ():
            if name in cls.sections and name not in cls.settings and not isinstance(value, Mapping):
                del kept[name]
                notices.log_once(
                    f"overrides {name}",
                    f"{cls.__name__}.overrides({name}={value!r:.80}) has no effect, as in Ray: {name} is a section",
                    logging.WARNING,
                )
        return config._resolved(kept)

    @classmethod
    def from_dict(cls, config_dict: Mapping[str, Any]) -> Self:
        """A config with these settings and defaults for the rest; see `update_from_dict`."""
        return cls().update_from_dict(config_dict)

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> Self:
        """Sets what the dict holds, under names of any era ("num_workers", "lambda", ...), and returns this config.

        A section's name may hold a dict of its settings: {"training": {"lr": 3e-4}}; None, as of an empty section in
        YAML, sets nothing. Settings that other configs have are passed over where their value is the default there, as
        `to_dict()` of another algorithm's config has them.

        Of a config object, only what was given to it counts, including values that equal the defaults (`given`).

        Raises:
            TypeError: for unknown names, with the nearest known ones, and for what is no dict; then nothing is set.
        """
        return self._assign(None, self._without_defaults_elsewhere(config_dict))

    def _without_defaults_elsewhere(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The dict without settings of other configs, under names of any era, that have their default there."""
        if not isinstance(given, Mapping | ConfigObject):
            raise TypeError(f"{type(self).__name__} takes a dict of settings by their names, but got {given!r:.80}")
        given = given.given() if isinstance(given, ConfigObject) else given
        passed_over = set()
        for name, value in given.items():
            if isinstance(name, str) and self._find(name) is None and name not in self.own_aliases:
                canonical, translated = aliases.translate(name, value)
                if any(_is_same(translated, default) for default in self.defaults_elsewhere(canonical)):
                    passed_over.add(name)
        if passed_over:
            names = ", ".join(name for name in given if name in passed_over)
            notices.log_once(f"{type(self).__name__} {names}", f"{names}: no settings of {type(self).__name__}")
        return {name: value for name, value in given.items() if name not in passed_over}

    @classmethod
    def defaults_elsewhere(cls, name: str) -> list:
        """Defaults of a setting in other configs that have one of this name; [] where there is none."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Every setting, under its canonical name; a copy."""
        return {name: copied(value) for name, value in self._values.items()}

    def changes(self) -> dict[str, Any]:
        """The settings that differ from their defaults; all would be too many to read in tables and files."""
        items = self.to_dict().items()
        return {name: value for name, value in items if not _is_same(value, self.settings[name].default)}

    def given(self) -> dict[str, Any]:
        """The settings that were given, also with their defaults, or that differ from these."""
        return self.changes() | {name: copied(self._values[name]) for name in self.settings if name in self._assigned}

    def __getitem__(self, name: str):
        setting = self._find(name)
        if setting is None and name in aliases.READABLE_DICTS:
            return {part: self[part] for part in aliases.READABLE_DICTS[name]}
        if setting is None:
            raise KeyError(self._unknown(name))
        return self._values[setting.name]

    def __setitem__(self, name: str, value) -> None:
        self._assign(None, {name: value}, merge=name in aliases.VALUE_CHANGES)

    def get(self, name: str, default=None):
        """The setting's value; `default` if there is no such setting."""
        if name not in self:
            return default
        return self[name]

    def keys(self):
        """Names of all settings."""
        return self._values.keys()

    def values(self):
        """Values of all settings."""
        return self._values.values()

    def items(self):
        """(name, value) of all settings."""
        return self._values.items()

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None or name in aliases.READABLE_DICTS

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    # ------------------------------------------------------------------ as an object

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask for these before there are values
            raise AttributeError(name)
        if isinstance(computed := getattr(type(self), name, None), property):
            return computed.fget(self)  # again, for the AttributeError that it raised itself
        setting = self._find(name)
        if setting is not None:
            return self._values[setting.name]
        if name in aliases.READABLE_DICTS:
            return self[name]
        if name in aliases.UNAVAILABLE_SECTIONS:
            raise AttributeError(f".{name}() cannot be used: {aliases.UNAVAILABLE_SECTIONS[name]}.")
        if reason := _why_absent(name):
            raise AttributeError(f"{type(self).__name__} has no {name!r}: {reason}.")
        raise AttributeError(self._unknown(name, with_sections=True))

    def __setattr__(self, name: str, value) -> None:
        if name == "algo_class" or name.startswith("_"):
            self._refuse_if_frozen(name)
            object.__setattr__(self, name, value)
            return
        if self._declares is not None and self._find(name) is None and not _is_known(name):
            self._declares._declare_own(name, value)
        try:
            self[name] = value
        except TypeError as error:
            raise AttributeError(str(error)) from None

    def __dir__(self):
        return [*super().__dir__(), *self._values]

    def __repr__(self):
        changed = (f"{name}={shortened(value)}" for name, value in self.changes().items())
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def is_frozen(self) -> bool:
        """Whether settings can no longer be changed."""
        return self._frozen

    def freeze(self) -> Self:
        """Makes this config read-only, and returns it."""
        # An algorithm reads dozens of settings in every step: from here on as attributes, without `__getattr__`.
        self.__dict__.update({name: value for name, value in self._values.items() if not hasattr(type(self), name)})
        self.__dict__["_frozen"] = True
        return self

    def copy(self, copy_frozen: bool | None = None) -> Self:
        """A config of the same class and settings. Dicts and lists are copied, what they hold is not.

        Args:
            copy_frozen: whether the copy is frozen; None: if this one is.
        """
        copied = type(self).__new__(type(self))
        own = {name: value for name, value in self.__dict__.items() if name not in self._values}
        copied.__dict__.update(own, _values=self.to_dict(), _given_names=dict(self._given_names), _frozen=False)
        return copied.freeze() if (self._frozen if copy_frozen is None else copy_frozen) else copied

    # ------------------------------------------------------------------ names

    def _not_in_constructor(self, given: Mapping[str, Any]) -> str:
        """The message for settings, under names of any era, that were given to the constructor."""
        by_section: dict[str, list[str]] = {}
        unknown = []
        for name, value in given.items():
            canonical = self._canonical(name)
            if setting := self.settings.get(canonical):
                by_section.setdefault(setting.section, []).append(f"{name}={shortened(value)}")
            else:
                unknown.append(self._without_setting(name, canonical, value) or f"{name} has no effect here.")
        if unknown:
            return "\n".join(unknown)
        calls = "".join(f".{section}({', '.join(settings)})" for section, settings in by_section.items())
        return f"{type(self).__name__}() takes no settings; its sections do. Use {type(self).__name__}(){calls}."

    def _assign(self, section_name: str | None, given: Mapping[str, Any], merge: bool = True) -> Self:
        """Sets what a section method (or, without a section, a dict) was given: all of it, or nothing."""
        if given:
            self._refuse_if_frozen(next(iter(given)))
        resolved = self._resolved(given, section_name)
        for name, value in resolved.items():
            setting = self.settings[name]
            resolved[name] = value = setting.converted(copied(value))
            if setting.merged and merge:  # what is no dict cannot be added to those that are there
                if not isinstance(value, Mapping) and (mistake := setting.mistake(value)):
                    raise self.error(mistake)
                # A dict that was saved may have both: the default of one name, and what was given under the other.
                keys = None if section_name is None or not isinstance(value, Mapping) else setting.keys
                if keys and (problem := keys.of.given_twice(value)):
                    raise TypeError(problem)
                # Of two names of one key the later one counts (NestedSettings.today), so given keys come last.
                others = {key: item for key, item in self._values[name].items() if key not in value}
                resolved[name] = {**others, **value}
        self._values.update(resolved)
        if self._declares is None:  # else a constructor sets what are the defaults of its class
            self.__dict__["_assigned"] = self._assigned.union(resolved)
        for _, name, _ in self._flattened(given, section_name):
            if name in self.settings:
                self._given_names.pop(name, None)
            elif (canonical := self._canonical(name)) in resolved and not self._is_part(name):
                self._given_names[canonical] = name
        return self

    def _resolved(self, given: Mapping[str, Any], section_name: str | None = None) -> dict[str, Any]:
        """Canonical name -> value of what has an effect here.

        Raises:
            TypeError: with a line for every name that is unknown, not available, or of another section.
        """
        resolved: dict[str, Any] = {}
        refused: list[str] = []
        ignored: dict[str, tuple[str, bool]] = {}
        weak: set[str] = set()  # whose values another name's replaces
        for section_, name, value in self._flattened(given, section_name):
            canonical, translated = self._translated(name, value)
            translated = aliases.value_today(canonical, translated)
            if translated is aliases.NOTHING or self._is_harmless(canonical, translated):
                continue
            setting = self.settings.get(canonical)
            if aliases.is_written_by_ray(name, value) and not self._can_have(name, setting, translated):
                notices.log_once(f"{name}={value!r:.80}", f"{name}={value!r:.80} of Ray has no effect here")
                continue
            if setting is None and section_ is None and self._is_section(name):
                # An empty section of a YAML file is None.
                wrong = f"{name}={shortened(value)} must be a dict: {name} is a section, which has settings."
                problem = None if value is None else wrong
            elif setting is None:
                problem = self._without_setting(name, canonical, value)
                if name in aliases.IGNORED:
                    ignored[name] = aliases.IGNORED[name], aliases.asks_for_something(name, value)
            elif canonical not in resolved:
                resolved[canonical] = translated
                if aliases.gives_way(name, value):
                    weak.add(canonical)
                problem = self._misplaced(setting, name, section_)
            elif isinstance(translated, Mapping) and (setting.merged or self._is_part(name)):
                resolved[canonical] = {**resolved[canonical], **translated}
                problem = None
            elif _is_same(translated, resolved[canonical]) or aliases.gives_way(name, value):
                problem = None
            elif canonical in weak:
                resolved[canonical] = translated
                weak.discard(canonical)
                problem = None
            elif canonical in aliases.LARGER_OF_TWO:
                resolved[canonical] = max(translated, resolved[canonical])
                problem = None
            else:
                problem = f"{canonical} is given twice, by two of its names. Use {canonical} alone."
            if problem:
                refused.append(problem)
        notices.log_without_effect(ignored)
        if refused:
            raise TypeError("\n".join(refused))
        if given.get("_fake_gpus"):
            resolved["num_gpus"] = 0
        return resolved

    def _translated(self, name: str, value) -> tuple[str, Any]:
        if name in self.settings:
            return name, value
        if name in self.own_aliases:
            canonical, changed = self.own_aliases[name]
            notices.log_once(name, f"the setting {name} is a part of {canonical} here")
            return canonical, changed(value)
        return aliases.translate(name, value)

    def places(self, given: Mapping[str, Any]) -> dict[str, tuple[str | None, str]]:
        """Setting -> where a dict sets it: in which section's dict, and under which name of any era."""
        return {self._canonical(name): (section_, name) for section_, name, _ in self._flattened(given, None)}

    def values_in(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Setting -> what `update_from_dict` would set, or add to a dict that is merged; nothing is set.

        Raises:
            TypeError: as `update_from_dict`.
        """
        resolved = self._resolved(self._without_defaults_elsewhere(given))
        return {name: self.settings[name].converted(copied(value)) for name, value in resolved.items()}

    def _canonical(self, name: str) -> str:
        """The setting's name here, for a name of any era; an unknown name comes back as it is."""
        if name in self.settings:
            return name
        return self.own_aliases[name][0] if name in self.own_aliases else aliases.ALIASES.get(name, name)

    def _flattened(self, given: Mapping[str, Any], section_name: str | None) -> Iterator[tuple[str | None, str, Any]]:
        """(section, name, value) of what was given; a section's dict is opened."""
        for name, value in given.items():
            if section_name is None and self._is_section(name) and isinstance(value, Mapping):
                yield from ((name, inner, inner_value) for inner, inner_value in value.items())
            elif name in aliases.DICTS_OF_SETTINGS and isinstance(value, Mapping):
                passed_over = aliases.DICTS_OF_SETTINGS[name]
                for inner in passed_over & value.keys():
                    notices.log_once(f"{name}.{inner}", f"{name}[{inner!r}] has no effect here", logging.WARNING)
                yield from ((None, inner, item) for inner, item in value.items() if inner not in passed_over)
            elif name in aliases.KEYS_WITHOUT_EFFECT and isinstance(value, Mapping):
                moved, today = aliases.MOVED_OUT.get(name, {}), self._keys_today(name, value)
                yield from ((None, moved[key], item) for key, item in today.items() if key in moved)
                if today or not value:  # else no key of it asks for anything
                    yield section_name, name, {key: item for key, item in today.items() if key not in moved}
            else:
                yield section_name, name, value

    def _keys_today(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A dict setting's keys by their names here, without those of Ray that ask for nothing."""
        default = (self.settings[name].default if name in self.settings else None) or {}
        idle, today = aliases.KEYS_WITHOUT_EFFECT.get(name, {}), aliases.KEYS_TODAY.get(name, {})
        kept: dict[str, Any] = {}
        for key, value in given.items():
            if key in default:
                kept[key] = value
            elif any(_is_same(value, each) for each in idle.get(key, ())):
                notices.log_once(f"{name}.{key}", f"{name}[{key!r}]={value!r} has no effect here")
            else:
                kept.update(today[key](value) if key in today else {key: value})
        return kept

    def _misplaced(self, setting: Setting, name: str, section_name: str | None) -> str | None:
        own = aliases.SECTION_ALIASES.get(section_name, section_name)
        guests = aliases.GUESTS.get(section_name, frozenset())
        if section_name is None or setting.section == own or setting.name in guests or self._is_part(name):
            return None
        right = f".{setting.section}({setting.name}=...)"
        return f"{name} is a setting of .{setting.section}(), not of .{section_name}(). Use {right}."

    def _is_harmless(self, name: str, value) -> bool:
        """Whether a setting's value, which it cannot have, asks for nothing."""
        is_idle = name in self.settings and any(_is_same(value, each) for each in self.harmless.get(name, ()))
        if is_idle:
            notices.log_once(f"{name}={value!r}", f"{name}={value!r} has no effect: {name} keeps its value")
        return is_idle

    def _can_have(self, name: str, setting: Setting | None, value) -> bool:
        """Whether the setting of this name can have the value, if that is a number."""
        if setting is None or self._is_part(name) or not isinstance(value, int | float):
            return False
        return setting.mistake(setting.converted(value)) is None

    def _is_section(self, name: str) -> bool:
        return name in self.sections or name in self.section_aliases

    def _is_part(self, name: str) -> bool:
        """Whether the name is another era's for a part of a setting, or for its value in another form."""
        return name in self.own_aliases or name in aliases.VALUE_CHANGES

    def _without_setting(self, name: str, canonical: str, value) -> str | None:
        """Deals with a name that has no setting: None if it may be passed over, else the refusal."""
        if name in aliases.IGNORED:
            return None
        unavailable = aliases.UNAVAILABLE.get(name) or aliases.UNAVAILABLE.get(canonical)
        if unavailable is None:
            return self._unknown(name)
        if any(_is_same(value, harmless) for harmless in self.harmless.get(name, unavailable.harmless)):
            return None
        return f"{name}={shortened(value)} cannot be used: {unavailable.sentence}."

    def _find(self, name: str) -> Setting | None:
        if name in self.settings or self._is_part(name):
            return self.settings.get(name)
        return self.settings.get(aliases.ALIASES.get(name))

    def _unknown(self, name: str, with_sections: bool = False) -> str:
        known = [*self.settings, *(old for old, new in aliases.ALIASES.items() if new in self.settings)]
        if name in aliases.ELSEWHERE:  # a word that is known means what it means, whatever it looks like
            hints = (hint.split("+") for hint in aliases.ELSEWHERE[name])
            near = next((hint for hint in hints if self.settings.keys() >= set(hint)), [])
        else:
            near = nearest(str(name), [*known, *self.sections] if with_sections else known)
        kind = "setting or section" if with_sections else "setting"
        places = list(map(self._place, near))
        if name in aliases.OF_MODEL and "model" in self.settings:
            places = [f".{self.settings['model'].section}(model={{{aliases.OF_MODEL[name]!r}: ...}})"]
        hint = f" Did you mean {' or '.join(places)}?" if places else ""
        if not places and not type(self).__module__.startswith("rllib."):
            hint = " A setting of your own is a parameter of a method that @section marks (docs/project/extend.md)."
        if not hint and name not in aliases.ELSEWHERE and "env_config" in self.settings:
            hint = (
                " Its describe() lists all settings; values of your own go into env_config, or into a config class of "
                "yours (docs/project/extend.md)."
            )
        return f"{type(self).__name__} has no {kind} {name!r}.{hint or ' Its describe() lists all settings.'}"

    def _place(self, name: str) -> str:
        setting = self.settings.get(name) or self.settings.get(aliases.ALIASES.get(name))
        return f".{name}()" if setting is None else f".{setting.section}({name}=...)"

    def _refuse_if_frozen(self, name: str) -> None:
        if self._frozen:
            raise AttributeError(
                f"cannot set {name}: this {type(self).__name__} is frozen, since an algorithm has been built from it. "
                "For another algorithm use .copy(copy_frozen=False) and change the copy. For this one give a schedule "
                "before it is built, or continue from a checkpoint: Algorithm.from_checkpoint(path, {name: value})."
            )


def _why_absent(name: str) -> str | None:
    """Advice in place of an attribute that RLlib's configs have; None for any other name."""
    if name in aliases.UNAVAILABLE:
        return aliases.UNAVAILABLE[name].sentence
    return absent.CONFIG.get(name) or aliases.IGNORED.get(name)


def _declaring(cls: type[ConfigObject], init: Callable) -> Callable:
    """A constructor that declares the attributes which it sets as settings of the class, where there are none yet."""

    @functools.wraps(init)
    def construct(self, *args, **kwargs):
        outer = self._declares
        self.__dict__["_declares"] = cls
        try:
            init(self, *args, **kwargs)
        finally:
            self.__dict__["_declares"] = outer

    return construct


def _is_known(name: str) -> bool:
    """Whether a name means something in some version of RLlib, so that it is no setting of the user's own."""
    tables = (aliases.IGNORED, aliases.UNAVAILABLE, aliases.ALIASES, aliases.ELSEWHERE, absent.CONFIG)
    return any(name in table for table in tables)


def rules_of(cls: type) -> dict[Any, tuple[tuple[str, ...], Callable[[Any], Mistake | None]]]:
    """(settings, check) of each rule of a class, inherited ones first: conflicts, refused settings, and relations.

    A relation goes by its name, and replaces an inherited one of this name; a Conflict by itself, a refused setting by
    "refuses" and its name.
    """
    checks: dict[Any, tuple] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            if hasattr(member, "__relates__"):
                checks[name] = member.__relates__, member
        for rule in vars(base).get("conflicts", ()):
            checks[rule] = rule.names, rule.mistake
        for name, why in vars(base).get("refuses", {}).items():
            checks[f"refuses {name}"] = (name,), refused(name, why).mistake
    return checks


def copied(value):
    """Copies of plain containers; everything else is shared, since what the user hands over may not be copyable."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    return value


def _is_same(value, other) -> bool:
    """Equality of plain values; of anything else (arrays, spaces, classes), identity."""
    plain = (bool, int, float, str, dict, list, type(None))
    return value is other or (isinstance(value, plain) and isinstance(other, plain) and value == other)


class _UndecidedError(Exception):
    """A rule has read a setting that a search draws."""


class _PartlyDecided(dict):
    """Values of settings, some of which cannot be read by name."""

    def __init__(self, values: Mapping[str, Any], undecided: Collection[str]):
        super().__init__(values)
        self._undecided = frozenset(undecided)

    def __getitem__(self, name: str) -> Any:
        if name in self._undecided:
            raise _UndecidedError(name)
        return super().__getitem__(name)
