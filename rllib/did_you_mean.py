"""Suggestions for misspelt names, for messages."""

import difflib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

# Names that differ from what was written by more than this many times what the nearest differs by are not meant.
_FURTHER = 2
# Similarity from which a method's name is taken for a slip.
_SAME_WORD = 0.86
# Share of a name's letters from which another form of the word, such as explore for exploration, is taken for it.
_SHORTER = 0.8


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names similar to `name`, the most similar first; none that is much less so than the first."""
    by_lower = {known_name.lower(): known_name for known_name in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    differences = [1 - difflib.SequenceMatcher(None, match, name.lower()).ratio() for match in matches]
    return [by_lower[match] for match, by in zip(matches, differences) if by <= _FURTHER * differences[0]]


def did_you_mean(name: Any, known: Iterable, form: Callable[[str], str] = str, otherwise: str = "") -> str:
    """A sentence that suggests similar known names, after a space.

    Args:
        name: what was given.
        known: names, or other values that are compared by their strings.
        form: how a name is shown, such as repr for one that stands in quotes in a program.
        otherwise: a sentence for the case that none is similar.
    """
    near = nearest(str(name), map(str, known))
    sentence = f"Did you mean {' or '.join(map(form, near))}?" if near else otherwise
    return sentence and f" {sentence}"


def similar_path(path: Path) -> str:
    """A sentence that suggests an existing path instead of one that does not exist, after a space."""
    missing = path
    while not missing.parent.is_dir() and missing != missing.parent:
        missing = missing.parent
    if not missing.parent.is_dir():
        return ""
    rest = path.relative_to(missing)
    known = sorted(each.name for each in missing.parent.iterdir() if (each / rest).exists())
    return did_you_mean(missing.name, known, lambda near: str(missing.parent / near / rest))


def refuse_slips(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises a TypeError for a keyword that is almost a known one; others, of other versions of a library, pass.

    Args:
        function: its name, for the message.
        given: keywords that it does not have.
        known: those that it has.
    """
    for name in given:
        if hint := did_you_mean(name, known):
            raise TypeError(f"{function} has no argument {name!r}.{hint}")


def misspelt_override(owner: type, base: type, overridable: Iterable[str]) -> str | None:
    """A sentence on a method that was meant to override one of a base class, and has almost its name; or None.

    A method whose name is similar is the user's own where the class overrides the base's method as well.

    Args:
        owner: class derived from `base`.
        base: class whose methods are called.
        overridable: names of those that are.
    """
    kinds = [kind for kind in owner.__mro__ if not issubclass(base, kind)]
    own = {name for kind in kinds for name, value in vars(kind).items() if callable(value) and not hasattr(base, name)}
    left = [name for name in overridable if not any(name in vars(kind) for kind in kinds)]
    for name in sorted(own):
        short = [each for each in left if each.startswith(name[:-1]) and len(name) >= _SHORTER * len(each)]
        if near := difflib.get_close_matches(name, left, n=1, cutoff=_SAME_WORD) or short:
            return (
                f"{owner.__name__} has {name}, which nothing calls. Did you mean {near[0]}? A method of your own needs "
                "a name that is less like it."
            )
    return None


def missing(package: str, name: str, known: Iterable[str], why: str | None = None) -> AttributeError | ImportError:
    """Builds the error for a name that a package with lazy attributes does not have; its `__getattr__` raises it.

    `from package import name` would replace the message of an AttributeError, so it gets an ImportError.

    Args:
        package, name: of the attribute.
        known: names that the package has, from which similar ones are suggested.
        why: advice for a name that is known to be absent; None: similar names are suggested.
    """
    near = "" if name.startswith("_") else did_you_mean(name, known)
    hint = f": {why}." if why else f".{near}" if near else ""
    # An import of one of the modules that a bare name does not import looks for the name first.
    importing = sys._getframe(2).f_code.co_name == "_handle_fromlist"
    if importing and hint and importlib.util.find_spec(f"{package}.{name}") is None:
        return ImportError(f"cannot import name {name!r} from {package!r}{hint}", name=name)
    return AttributeError(f"module {package!r} has no attribute {name!r}{hint}")


def explains(
    instead: Mapping[str, str],
    further: Callable[[Any, str], str | None] = lambda self, name: None,
    instead_of_setting: str | None = None,
    is_made: Callable[[Any], bool] = lambda self: True,
) -> Callable[[C], C]:
    """Class decorator that makes the AttributeError for one of these names say what to write.

    Attributes that exist cost nothing more: Python asks only for those that it has not found.

    Args:
        instead: name of an attribute that other libraries' classes have, and this one has not -> advice, as the end of
            a sentence without its dot.
        further: function of an object and such a name that is not in `instead`: advice, or None.
        instead_of_setting: a sentence for programs that set one of these attributes, which nothing would read: that
            raises an AttributeError, too, unless the class is derived outside of the library and may have its own
            attributes. None: they can be set.
        is_made: whether an object's own constructor has set its attributes, which are none of the program's.
    """

    def decorate(cls: C) -> C:
        def __getattr__(self, name: str):
            member = next((vars(base)[name] for base in type(self).__mro__ if name in vars(base)), None)
            if member is not None:
                return member.__get__(self, type(self))  # again, for the AttributeError that it raised itself
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if advice := instead.get(name) or further(self, name):
                raise AttributeError(f"{message}: {advice}.")
            raise AttributeError(message, name=name, obj=self)  # Python shows a similar name next to the traceback

        def __setattr__(self, name: str, value: Any):
            is_new = name not in self.__dict__ and not hasattr(type(self), name)
            is_ours = is_new and type(self).__module__.startswith("rllib.") and is_made(self)
            if is_ours and (advice := instead.get(name) or further(self, name)):
                raise AttributeError(
                    f"cannot set {name}: a {type(self).__name__!r} object has no such attribute, and nothing would "
                    f"read it: {advice}. {instead_of_setting}"
                )
            object.__setattr__(self, name, value)

        cls.__getattr__ = __getattr__
        if instead_of_setting is not None:
            cls.__setattr__ = __setattr__
        return cls

    return decorate
