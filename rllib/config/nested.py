"""Settings that are the keys of a dict, which is a setting itself: `model`, `replay_buffer_config`.

    class ModelSettings(NestedSettings, setting="model"):
        dim: Annotated[int, "height and width of pictures", at_least(1)] = 84
        use_lstm: Annotated[bool, "an LSTM behind the layers"] = False

Types and rules are those of sections. Users write dicts, `.training(model={"dim": 42})`. The setting's declaration
names the class, `Annotated[dict, "network", Keys(ModelSettings)]`: then `build()` checks the keys. Inside of the
library they are attributes: `ModelSettings(config.model).dim`.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, get_args, get_origin

from rllib.config.conflicts import Conflict, Mistake, Place, SettingsError
from rllib.config.sections import Setting, SettingRow, declared
from rllib.config.setting_types import type_in_code
from rllib.did_you_mean import nearest
from rllib.notices import shortened

_LEAVE_OUT = "Else leave it out."


class NestedSettings(Mapping[str, Any]):
    """Base of classes that declare the keys of a setting; see the module's docstring. Values are those given, and the
    defaults of all others, as attributes and as items.

    Args:
        given: keys and values, under names of any era.
        setting: name of the setting that has them; by default that of the class.

    Attributes:
        settings: key -> Setting, own and inherited.
        conflicts: rules about several keys; those of the bases hold as well.
        other_names: name of another era -> key.

    Raises:
        SettingsError: (a ValueError) with every mistake.
    """

    settings: ClassVar[Mapping[str, Setting]] = {}
    conflicts: ClassVar[tuple[Conflict, ...]] = ()
    other_names: ClassVar[Mapping[str, str]] = {}
    setting: ClassVar[str] = ""
    section: ClassVar[str] = "training"

    def __init_subclass__(cls, setting: str | None = None, section: str | None = None, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.setting, cls.section = setting or cls.setting, section or cls.section
        own = {
            name: annotation
            for name, annotation in inspect.get_annotations(cls, eval_str=True).items()
            if get_origin(annotation) is Annotated
        }
        # A base's key with another default needs no annotation.
        changed = [name for name in vars(cls) if name in cls.settings and name not in own]
        cls.settings = {
            **cls.settings,
            **{
                name: declared(name, cls.section, *get_args(kind), default=vars(cls)[name])
                for name, kind in own.items()
            },
            **{name: replace(cls.settings[name], default=vars(cls)[name]) for name in changed},
        }

    def __init__(self, given: Mapping[str, Any] = {}, setting: str | None = None):
        name = setting or self.setting
        if mistakes := [_within(name, mistake) for mistake in self._take(given)]:
            raise SettingsError(mistakes, type(self).__name__, {name: Place(self.section, {}, False)})

    @classmethod
    def mistake(cls, given: Mapping[str, Any], setting: str | None = None) -> Mistake | None:
        """The first mistake in these keys; None if they are right. Arguments are those of the constructor."""
        try:
            cls(given, setting)
        except SettingsError as error:
            return error.mistakes[0]
        return None

    @classmethod
    def defaults(cls, **changes: Any) -> dict[str, Any]:
        """Every key with its default, or with one of these values."""
        return {**{name: _copy(setting.default) for name, setting in cls.settings.items()}, **changes}

    @classmethod
    def describe(cls) -> list[SettingRow]:
        """Every key with its type, default and meaning."""
        return [
            SettingRow(cls.setting, name, type_in_code(setting.type), setting.default, setting.meaning)
            for name, setting in cls.settings.items()
        ]

    @classmethod
    def given_twice(cls, given: Mapping[str, Any]) -> str | None:
        """A sentence on a key that one dict has under two names, with two values; or None."""
        for name, key in cls.other_names.items():
            if name in given and key in given and given[name] != given[key]:
                values = f"{name!r}: {shortened(given[name])} and {key!r}: {shortened(given[key])}"
                return f"{cls.setting}: {values} are one key. Leave one of them out."
        return None

    @classmethod
    def today(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The given keys by their names here; those that ask for nothing are left out.

        Raises:
            ValueError: for a value of a key of another era that nothing here can carry out.
        """
        return {cls.other_names.get(key, key): value for key, value in given.items()}

    def _take(self, given: Mapping[str, Any]) -> Iterator[Mistake]:
        """Sets the attributes, and gives the mistakes in what was given."""
        try:
            own = self.today(given)
        except ValueError as error:
            yield Mistake(str(error), (), advice=_LEAVE_OUT)
            return
        if unknown := [name for name in own if name not in self.settings]:
            yield from map(self._unknown, unknown)
            return
        is_wrong = False
        self.__dict__.update(self.defaults())
        for name, value in own.items():
            setting = self.settings[name]
            self.__dict__[name] = _copy(setting.converted(value))
            if mistake := setting.mistake(value):
                is_wrong = True
                yield mistake
        rules = () if is_wrong else [rule for base in type(self).__mro__ for rule in vars(base).get("conflicts", ())]
        yield from filter(None, (rule.mistake(self) for rule in rules))

    def _unknown(self, name: Any) -> Mistake:
        near = self.nearest(name)
        if near:
            return Mistake(f"there is no {name!r}. Did you mean {' or '.join(map(repr, near))}?", (), advice=_LEAVE_OUT)
        return Mistake(f"there is no {name!r}, only {', '.join(self.settings)}.", (), advice=_LEAVE_OUT)

    @classmethod
    def nearest(cls, name: Any) -> list[str]:
        """Keys that an unknown one may mean."""
        return nearest(str(name), cls.settings)

    # ------------------------------------------------------------------ as a mapping

    def __getitem__(self, name: str):
        if name not in self.settings:
            raise KeyError(name)
        return self.__dict__[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    def __repr__(self):
        changed = (f"{name}={shortened(value)}" for name, value in self.changes().items())
        return f"{type(self).__name__}({', '.join(changed)})"

    def changes(self) -> dict[str, Any]:
        """The keys whose values differ from their defaults."""
        return {name: value for name, value in self.items() if value != self.settings[name].default}


def _within(setting: str, mistake: Mistake) -> Mistake:
    """A mistake in keys as one in the setting that has them."""
    remedies = tuple({setting: dict(remedy)} for remedy in mistake.remedies)
    return replace(mistake, problem=f"{setting}: {mistake.problem}", names=(setting,), remedies=remedies)


def _copy(value):
    """A copy of a plain container, which belongs to one object alone."""
    return value.copy() if type(value) in (list, dict) else value
