"""Wrappers of environments by name: the setting env_wrappers.

Names may come from files and checkpoints of unknown origin, so a name never represents code of any other module: it is
one of gymnasium's wrappers, one of minigrid's or of the library, or was given to `register_wrapper`.
"""

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from rllib.config.conflicts import Unfit
from rllib.did_you_mean import did_you_mean
from rllib.env.agents import STANDARD_WRAPPERS, agent_interface, is_multi_agent
from rllib.env.factories.registry import EnvContext, WrappingFactory
from rllib.env.streams.first_results import env_name
from rllib.env.streams.legacy import as_gymnasium
from rllib.registered import WRAPPERS

logger = logging.getLogger("rllib.env")

# The library's own wrappers.
_OWN = "rllib.env.factories.past_actions"
_NAMES_OF_OWN = ("PastActions",)
# Modules whose wrappers may be named, and what else they are called: gym's in older files.
MODULES = {"gymnasium.wrappers": ("gym.wrappers",), "minigrid.wrappers": ("gym_minigrid.wrappers",), _OWN: ()}
# Wrappers of gymnasium's that do not belong around an environment here, and what does their work.
REFUSED = {
    "Autoreset": "workers reset environments themselves",
    "HumanRendering": "use rllib play CHECKPOINT, or evaluate with a renderer of your own",
    "RecordVideo": "use rllib record CHECKPOINT",
    "JaxToNumpy": "observations are numpy's here",
    "JaxToTorch": "observations are numpy's here",
    "NumpyToTorch": "observations are numpy's here",
    "ArrayConversion": "observations are numpy's here",
}
# Their statistics are of one environment alone, and in no checkpoint.
KEEP_STATISTICS = {
    "NormalizeObservation": '.rollouts(observation_filter="MeanStdFilter")',
    "NormalizeReward": ".environment(normalize_returns=True)",
}

_warned: set[str] = set()


@dataclass(frozen=True)
class EnvWrapper:
    """One wrapper.

    Attributes:
        name: for messages.
        wrap: class or function of (environment, **keywords) that returns the wrapped environment.
        keywords: see above.
    """

    name: str
    wrap: Callable
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, env):
        """The wrapped environment.

        Raises:
            TypeError: if the result is no environment.
            Exception: whatever the wrapper raises, with a note.
        """
        try:
            wrapped = self.wrap(env, **self.keywords)
        except Exception as error:
            error.add_note(f"the wrapper {self} could not be put around {env_name(env)}, which has {_spaces(env)}")
            raise
        needs = ("reset", "step", "observation_space", "action_space")
        missing = [name for name in needs if not hasattr(wrapped, name)]
        if missing:
            raise TypeError(
                f"the wrapper {self} must return an environment, but returned {wrapped!r:.80}, which lacks "
                f"{', '.join(missing)}"
            )
        return wrapped

    @property
    def is_of_gymnasium(self) -> bool:
        """Whether it is a class that takes gymnasium's environments alone."""
        return isinstance(self.wrap, type) and issubclass(self.wrap, gymnasium.Wrapper)

    def __str__(self):
        return f"{self.name}({', '.join(f'{name}={value!r:.40}' for name, value in self.keywords.items())})"


@dataclass(frozen=True)
class WrappedFactory(WrappingFactory):
    """A factory that puts wrappers around another factory's environments, the first of them innermost.

    Attributes:
        wrappers: innermost first.
        check: function (environment, the same in the wrappers) that raises where these do not fit; None: all do.
    """

    wrappers: tuple[EnvWrapper, ...]
    check: Callable[[Any, Any], None] | None = None

    def make(self, context: EnvContext) -> gymnasium.Env:
        """One new environment.

        Raises:
            Unfit: if it is a vector, or none of gymnasium's and a wrapper is, or has several agents and a wrapper of
                gymnasium's is for one; or by the check.
            as EnvWrapper.
        """
        env = self.factory.make(context)
        if isinstance(env, VectorEnv):
            env.close()
            raise Unfit(
                f"env_wrappers go around single environments, but {self.name} makes a vector of {env.num_envs}.",
                "Wrap it where it is made.",
                {"env_wrappers": None},
            )
        env = bare = as_gymnasium(env)
        for wrapper in self.wrappers:
            env = _wrappable(env, wrapper)
            if wrapper.is_of_gymnasium and not isinstance(env, gymnasium.Env):
                env.close()
                raise Unfit(
                    f"env_wrappers has {wrapper}, which goes around environments of gymnasium, but {self.name} makes "
                    f"{env_name(env)}, which is none.",
                    "Wrap it where it is made, or leave the wrapper out.",
                    {"env_wrappers": None},
                )
            if wrapper.is_of_gymnasium and wrapper.wrap not in STANDARD_WRAPPERS and is_multi_agent(env):
                env.close()
                raise Unfit(
                    f"env_wrappers has {wrapper}, which goes around environments with one agent, but {self.name} has "
                    "several, whose dicts and spaces it does not read.",
                    "Wrap it where it is made, or leave the wrapper out.",
                    {"env_wrappers": None},
                )
            try:
                env = wrapper(env)
            except Exception:
                env.close()
                raise
        try:
            if self.check is not None:
                self.check(bare, env)
        except Exception:
            env.close()
            raise
        return env


class PettingZooInGymnasium(gymnasium.Env):
    """PettingZoo's environment with all of its attributes, in the class that gymnasium's TimeLimit asks for.

    Args:
        env: a ParallelEnv or AECEnv.
    """

    def __init__(self, env):
        self.env = env
        self.metadata, self.render_mode = getattr(env, "metadata", {}), getattr(env, "render_mode", None)

    def __getattr__(self, name: str):
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, **arguments):
        return self.env.reset(**arguments)

    def step(self, action):
        return self.env.step(action)

    def render(self):
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def _wrappable(env, wrapper: EnvWrapper):
    """What a wrapper is put around.

    Streams read a TimeLimit around PettingZoo's environments off; gymnasium's other wrappers would hide the agents.
    """
    is_limit = wrapper.is_of_gymnasium and issubclass(wrapper.wrap, gymnasium.wrappers.TimeLimit)
    needs_class = is_limit and agent_interface(env) in ("parallel", "turns")
    return env if not needs_class or isinstance(env, gymnasium.Env) else PettingZooInGymnasium(env)


def register_wrapper(name: str, wrapper: Callable) -> None:
    """Registers a wrapper under a name for `.environment(env_wrappers=[name])`; a later call replaces it.

    Args:
        name: any string; it takes precedence over gymnasium's wrappers.
        wrapper: class or function of an environment (and keywords) that returns the wrapped environment.

    Raises:
        TypeError: if name is no string, or wrapper cannot be called.
    """
    WRAPPERS.register(name, wrapper)


def resolve_wrappers(given) -> tuple[EnvWrapper, ...]:
    """The wrappers that the setting env_wrappers asks for.

    Args:
        given: None, one entry, or a list of entries: a name, a class or function, {name: keywords}, or a pair
            (name, class or function; keywords).

    Raises:
        ValueError: for a name that is not known, with the nearest ones, or that has another place here.
        ModuleNotFoundError: for one of a module that is not installed.
        TypeError: for anything else.
    """
    if given is None:
        return ()
    is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping)
    entries = given if isinstance(given, Sequence) and not isinstance(given, str) and not is_pair else [given]
    return tuple(wrapper for entry in entries for wrapper in _of_entry(entry))


def named_class(reference: str) -> type | None:
    """The class that a checkpoint's "module:qualname" names, if it is a wrapper that may be named."""
    module_name, _, name = reference.partition(":")
    for module in MODULES if name not in REFUSED else ():  # one of them writes to a folder of its choice
        if module_name == module or module_name.startswith(f"{module}."):
            return _class(module, name)
    return None


def wrapper_chain(env) -> str:
    """The observation spaces of an environment from the inside out; "" where no wrapper changes them."""
    layers = []
    while env is not None:
        layers.append(env)
        env = getattr(env, "env", None)
    described, last = [], None
    for layer in reversed(layers):
        space = getattr(layer, "observation_space", None)
        if last is None or space != last:
            described.append(f"{type(layer).__name__}: {space}")
        last = space
    return "; then ".join(described) if len(described) > 1 else ""


def _of_entry(entry) -> Iterator[EnvWrapper]:
    if isinstance(entry, Mapping):
        for name, keywords in entry.items():
            yield _wrapper(name, keywords)
    elif isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[1], Mapping | None):
        yield _wrapper(*entry)
    else:
        yield _wrapper(entry, None)


def _wrapper(given, keywords: Mapping | None) -> EnvWrapper:
    if not isinstance(keywords, Mapping | None):
        raise TypeError(
            f"env_wrappers: the arguments of {given!r} must be a dict, but they are {keywords!r}. "
            f"Use [{{{given!r}: {{'name': value}}}}]."
        )
    keywords = {str(name): value for name, value in (keywords or {}).items()}
    if isinstance(given, str):
        return EnvWrapper(given, _resolve_name(given), keywords)
    if isinstance(given, gymnasium.Env):
        raise TypeError(
            f"env_wrappers needs the wrapper's class, but got {given}, which is around an environment already"
        )
    if callable(given):
        return EnvWrapper(getattr(given, "__name__", None) or repr(given), given, keywords)
    raise TypeError(
        f"env_wrappers is a list of names, classes or functions, each with or without a dict of arguments, but one "
        f"entry is {given!r}"
    )


def _resolve_name(name: str) -> Callable:
    if name in WRAPPERS:
        return WRAPPERS.get(name)
    module_name, _, short = name.replace(":", ".").rpartition(".")
    module = _module(module_name) if module_name else _OWN if short in _NAMES_OF_OWN else "gymnasium.wrappers"
    if module is None:
        raise ValueError(
            f"env_wrappers names {name!r}, but a name may stand for no code of other modules than "
            f"{' and '.join(MODULES)}: files and checkpoints come from others. Give the class itself, or register it: "
            f"rllib.register_wrapper({name!r}, {short})."
        )
    found = _class(module, short)
    if found is None:
        known = [*_names(module), *((*WRAPPERS, *_NAMES_OF_OWN) if module == "gymnasium.wrappers" else ())]
        hint = did_you_mean(short, known, repr, otherwise=f"Known are {', '.join(known)}.")
        raise ValueError(f"there is no wrapper {name!r}.{hint} Your own: rllib.register_wrapper(name, wrapper).")
    if module == "gymnasium.wrappers" and short in REFUSED:
        raise ValueError(f"env_wrappers: {short} has no place around an environment here: {REFUSED[short]}.")
    if short in KEEP_STATISTICS and short not in _warned:
        _warned.add(short)
        logger.warning(
            "the statistics of %s are of one environment alone, and in no checkpoint; the statistics of %s are saved",
            short,
            KEEP_STATISTICS[short],
        )
    return found


def _module(name: str) -> str | None:
    return next((module for module, others in MODULES.items() if name in (module, *others)), None)


def _class(module: str, name: str) -> type | None:
    """The wrapper of this name in one of MODULES; None if there is none.

    Raises:
        ModuleNotFoundError: if the module is not installed.
    """
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise ModuleNotFoundError(
            f"env_wrappers names {module}.{name}, but {error.name} is not installed. Use pip install {package}."
        ) from None
    found = vars(imported).get(name)
    return found if isinstance(found, type) and issubclass(found, gymnasium.Wrapper) else None


def _names(module: str) -> list[str]:
    names = vars(importlib.import_module(module))
    return sorted(name for name in names if name not in REFUSED and name != "Wrapper" and _class(module, name))


def _spaces(env) -> str:
    return f"observation_space={env.observation_space} and action_space={env.action_space}"
