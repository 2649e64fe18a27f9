"""Turns the setting `env` into a factory that every rollout worker can use.

`resolve` accepts a gymnasium id, "module:Id", "module:Class" or "module.Class", an id of a suite ("envpool:Id",
suites/table.py), "pettingzoo:name", "godot:port=11008", a name given to `register_env`, a class (gymnasium, old gym,
VectorEnv or with several agents), a module of PettingZoo, or a function of the EnvContext. All of them become an
`EnvFactory`, which is picklable and makes environments.

Strings may come from files and checkpoints of unknown origin, so a string never names a function to call: only
environment classes are taken from modules.
"""

import contextlib
import copy
import functools
import importlib
import inspect
import logging
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, parse_env_id
from gymnasium.vector import VectorEnv

from rllib.did_you_mean import did_you_mean, nearest
from rllib.env.factories.names_elsewhere import example_advice, example_here, id_today, module_advice, unwrapped_config
from rllib.env.suites.table import SUITES
from rllib.errors import EnvironmentPackageError
from rllib.extras import install_hint
from rllib.notices import log_once, shown
from rllib.registered import ENVIRONMENTS
from rllib.storage.checkpoint import UserCode
from rllib.storage.encoding import import_path

logger = logging.getLogger("rllib.env")

# Parameters of these names receive the whole EnvContext, even where they have a default.
CONFIG_PARAMETERS = {"config", "env_config", "env_context", "context", "ctx", "cfg", "conf", "_config", "_"}
# These keys of env_config are arguments of gymnasium.make itself, not of the environment's constructor.
MAKE_ARGUMENTS = {"max_episode_steps"}

# Serves the modules of Ray, once it has been imported.
_HOOK = "rllib.as_ray"

# Begins the names of games made with Godot, "godot:port=11008".
GODOT = "godot"

# What a name may begin with in place of a module.
_WORDS = (*SUITES, "pettingzoo", GODOT)

# Package of environments, among them gymnasium's own below gymnasium.envs -> the extra that brings it.
_EXTRAS = {
    "box2d": "box2d",
    "mujoco": "mujoco",
    "minigrid": "minigrid",
    "shimmy": "dm-control",
    "gymnasium_robotics": "robotics",
}


class EnvContext(dict):
    """The user's env_config, with the position in the run of the environment to be made.

    Args:
        env_config: the user's dict; the context is a dict with the same items.
        worker_index: 0 for the driver, 1.. for the rollout workers.
        vector_index: index of this environment in its worker; 0 for a VectorEnv.
        num_workers: number of rollout workers of the run.
        num_envs: environments per worker; a VectorEnv must have this many.
        remote: always False, since environments live in their worker's process.
        in_evaluation: whether the environment is for evaluation: whole games, unchanged rewards.
    """

    def __init__(
        self,
        env_config=None,
        worker_index=0,
        vector_index=0,
        num_workers=0,
        num_envs=1,
        remote=False,
        in_evaluation=False,
    ):
        super().__init__(env_config or {})
        self.worker_index = worker_index
        self.vector_index = vector_index
        self.num_workers = num_workers
        self.num_envs = num_envs
        self.remote = remote
        self.in_evaluation = in_evaluation

    @property
    def worker(self) -> str:
        """The worker of the environment, for messages: "rollout worker 2"."""
        return worker_name(self.worker_index, self.in_evaluation)


def worker_name(worker_index: int, in_evaluation: bool) -> str:
    """A worker, for messages: "rollout worker 2"."""
    return f"{'evaluation' if in_evaluation else 'rollout'} worker {worker_index}"


class EnvFactory(ABC):
    """Base class of factories of environments; they are pickled and sent to the workers.

    Attributes:
        name: for messages.
        clips_rewards: whether training clips rewards to their sign, unless the settings say otherwise.
        max_episode_steps: steps after which gymnasium's registry has episodes truncated; None if it says none.
    """

    name: str
    clips_rewards: bool = False
    max_episode_steps: int | None = None

    @abstractmethod
    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        """One new environment (or a vector of `context.num_envs` of them); errors of its constructor are not caught."""


@dataclass(frozen=True)
class GymnasiumFactory(EnvFactory):
    """A factory for an id of gymnasium's registry. It holds the spec: a worker need not have registered the id."""

    spec: EnvSpec

    @property
    def name(self) -> str:
        return self.spec.id

    @property
    def max_episode_steps(self) -> int | None:
        return self.spec.max_episode_steps

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        try:
            return self._make(context)
        except gymnasium.error.DependencyNotInstalled as error:
            raise EnvironmentPackageError(
                f"environment {self.name!r} needs a package that is not installed. {self._remedy(error)}"
            ) from error

    def _make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        if self.spec.entry_point is None:
            return gymnasium.make_vec(self.spec, num_envs=context.num_envs, **context)
        arguments = {name: context[name] for name in MAKE_ARGUMENTS & context.keys()}
        keywords = {name: value for name, value in context.items() if name not in MAKE_ARGUMENTS}
        # Streams call in the right order and check the first results, so that gymnasium's two checking wrappers, which
        # cost a Python call per step each, are left out.
        spec = replace(self.spec, order_enforce=False)
        return gymnasium.make(spec, disable_env_checker=True, **arguments, **keywords)

    def _remedy(self, error: Exception) -> str:
        """The extra that brings the package, or what gymnasium says where there is none."""
        module = self.spec.entry_point if isinstance(self.spec.entry_point, str) else ""
        extras = [_EXTRAS[part] for part in re.split(r"[.:]", module) if part in _EXTRAS]
        return f"Use {install_hint(extras[0])}." if extras else str(error)


@dataclass(frozen=True)
class CreatorFactory(EnvFactory):
    """A factory for a class or a function; `registered_name` is set if it came from `register_env`."""

    creator: Callable
    registered_name: str | None = None

    @property
    def name(self) -> str:
        return self.registered_name or getattr(self.creator, "__qualname__", None) or type(self.creator).__name__

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        try:
            return call_creator(self.creator, context, self.name)
        except TypeError as error:
            frames = [error.__traceback__]
            while frames[-1].tb_next is not None:
                frames.append(frames[-1].tb_next)
            if frames[-1].tb_frame.f_code is call_creator.__code__ and "argument" in str(error):
                error.add_note(
                    f"an environment is made as {self.name}(env_config): one parameter without a default gets the "
                    "whole dict, and parameters that env_config names get its items. Give other values as its items"
                )
            raise


@dataclass(frozen=True)
class SuiteFactory(EnvFactory):
    """A factory for an environment of a suite; env_config has arguments of the suite's own.

    Attributes:
        word: the suite's, of suites/table.py.
        env_id: the suite's.
    """

    word: str
    env_id: str

    @property
    def name(self) -> str:
        return f"{self.word}:{self.env_id}"

    def make(self, context: EnvContext):
        suite = SUITES[self.word]
        if "num_envs" in context and not suite.has_agents:
            raise ValueError(
                f"env_config has 'num_envs', but the run says how many environments of {self.name!r} there are: use "
                ".rollouts(num_envs_per_worker=N)."
            )
        if "render_mode" in context and not suite.draws:
            raise ValueError(
                f"environments of {suite.package} are not drawn here, and {self.name!r} is one. Draw an environment "
                "with the same spaces, such as one of gymnasium: rllib record RUN --env ID."
            )
        module_name, _, function_name = suite.maker.partition(":")
        try:
            maker = getattr(importlib.import_module(module_name), function_name)
            return maker(self.env_id, **({} if suite.has_agents else {"num_envs": context.num_envs}), **context)
        except ImportError as error:
            remedy = suite.install or install_hint(suite.extra)
            raise EnvironmentPackageError(
                f"environment {self.name!r} needs {suite.package}: {remedy} ({error})"
            ) from error


@dataclass(frozen=True)
class PettingZooFactory(EnvFactory):
    """A factory for an environment of PettingZoo, with several agents; env_config has arguments of its constructor.

    Attributes:
        env_name: see pettingzoo_names.py.
    """

    env_name: str

    @property
    def name(self) -> str:
        return f"pettingzoo:{self.env_name}"

    def make(self, context: EnvContext):
        try:
            from rllib.env.factories.pettingzoo_names import make_pettingzoo
        except ImportError as error:
            raise EnvironmentPackageError(
                f"environment {self.name!r} needs PettingZoo: {install_hint('multiagent')} ({error})"
            ) from error
        return make_pettingzoo(self.env_name, dict(context))


@dataclass(frozen=True)
class GodotFactory(EnvFactory):
    """A factory for the game of Godot that connects to a port; env_config has further arguments of GodotEnv.

    Attributes:
        port: on this machine.
    """

    port: int

    @property
    def name(self) -> str:
        return f"{GODOT}:port={self.port}"

    @classmethod
    def of(cls, words: str) -> "GodotFactory":
        """Reads "port=11008".

        Raises:
            ValueError: for other words; a program is named by its user alone.
        """
        key, _, port = words.partition("=")
        if key == "port" and port.isdecimal() and 0 < int(port) < 65536:
            return cls(int(port))
        raise ValueError(
            f"environment '{GODOT}:{words}' is not {GODOT}:port=NUMBER, a game that connects to this port. A name may "
            "start no program, since it can come from a file. Give .environment(lambda config: GodotEnv(program=PATH)) "
            f"(rllib.env.engines.godot), or type it on the command line: rllib train PPO {GODOT}:PATH."
        )

    def make(self, context: EnvContext):
        if context.worker_index or context.vector_index:
            raise ValueError(
                f"the game on port {self.port} is one environment: use .rollouts(num_rollout_workers=0, "
                "num_envs_per_worker=1), or give its program, of which each environment starts one"
            )
        from rllib.env.engines.godot import GodotEnv

        return GodotEnv(port=self.port, **context)


@dataclass(frozen=True)
class WrappingFactory(EnvFactory):
    """Base of factories that make another factory's environments in a wrapper.

    Attributes:
        factory: makes the environments.
    """

    factory: EnvFactory

    @property
    def name(self) -> str:
        return self.factory.name

    @property
    def clips_rewards(self) -> bool:
        return self.factory.clips_rewards


@dataclass(frozen=True)
class RaysExampleFactory(WrappingFactory):
    """A factory for what replaces one of RLlib's examples; its config may lie one level deeper, as in Ray's files."""

    def make(self, context: EnvContext) -> gymnasium.Env | VectorEnv:
        changed = copy.copy(context)
        changed.clear()
        changed.update(unwrapped_config(dict(context)))
        return self.factory.make(changed)


def environment_class(factory: EnvFactory) -> type | None:
    """The class of a factory's environments; None where it is not known before one is made."""
    while isinstance(factory, WrappingFactory):
        factory = factory.factory
    creator = getattr(factory, "creator", None)
    return creator if isinstance(creator, type) else None


def register_env(
    name: str,
    creator: Callable[[EnvContext], Any] | None = None,
    *,
    env_creator: Callable[[EnvContext], Any] | None = None,
) -> None:
    """Registers an environment under a name for `.environment(name)`; a later call with the same name replaces it.

    Args:
        name: any string; it takes precedence over gymnasium's ids.
        creator: function of an EnvContext (or of nothing), or a class, that returns the environment.
        env_creator: the same, by Ray's name.

    Raises:
        TypeError: if name is no string, if creator cannot be called, or if both or none of them are given.
    """
    if (creator is None) == (env_creator is None):
        raise TypeError("register_env takes the name and one function or class, as register_env('mine', make_mine)")
    ENVIRONMENTS.register(name, env_creator if creator is None else creator)


def resolve(env) -> EnvFactory:
    """The factory for the user's setting `env`.

    Raises:
        ValueError: for a name that nothing is registered under (with the nearest names), or for None.
        TypeError: for anything that is neither a name nor callable, such as an environment that is already made.
    """
    if isinstance(env, EnvFactory):
        return env
    if isinstance(env, EnvSpec):
        return GymnasiumFactory(env)
    if isinstance(env, str):
        return _resolve_name(env)
    if env is None:
        raise ValueError('no environment was given. Use .environment("CartPole-v1"), or a class, or a function.')
    if isinstance(env, ModuleType) and (hasattr(env, "parallel_env") or hasattr(env, "raw_env")):
        return PettingZooFactory(env.__name__)
    if isinstance(env, (gymnasium.Env, VectorEnv)) or (hasattr(env, "step") and not isinstance(env, type)):
        raise TypeError(
            f"an environment that is already made was given ({env}), but every rollout worker has to make its own. "
            "Give its class, its id, or a function: .environment(env=lambda config: MyEnv(config))."
        )
    if callable(env):
        return CreatorFactory(env)
    raise TypeError(f"an environment is an id, a class or a function that makes it, but got {env!r}")


def call_creator(creator: Callable, context: EnvContext, name: str):
    """Calls a class or function with the arguments it takes: the context, the config's items by name, or nothing.

    RLlib's convention comes first: a required first parameter, or one that is named like a config, gets the context.
    Environments written for `gymnasium.make` have named parameters instead; they get the items of the config.

    Raises:
        TypeError: if there is a config, but no parameter to take it.
    """
    try:
        parameters = list(inspect.signature(creator).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        return creator(context)
    kinds = {parameter.kind for parameter in parameters}
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    first = next((p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)), None)
    is_vector = isinstance(creator, type) and issubclass(creator, VectorEnv) and "num_envs" in named
    given = {"num_envs": context.num_envs, **context} if is_vector else dict(context)

    if first is not None and (
        first.name in CONFIG_PARAMETERS or (first.default is first.empty and first.name not in given)
    ):
        return creator(context)
    if inspect.Parameter.VAR_KEYWORD in kinds or given.keys() <= named:
        return creator(**given)
    if inspect.Parameter.VAR_POSITIONAL in kinds or (first is not None and isinstance(first.default, dict | None)):
        return creator(context)
    unknown = ", ".join(repr(key) for key in given if key not in named)
    raise TypeError(
        f"env_config has {unknown}, but {name}({', '.join(map(str, parameters))}) takes no such argument. "
        "Correct the key, or let the environment's __init__ take one argument `config`, which gets the whole dict."
    )


def _resolve_name(name: str) -> EnvFactory:
    if name in ENVIRONMENTS:
        return CreatorFactory(ENVIRONMENTS.get(name), name)
    if here := example_here(name):
        log_once(name, f"the environment {name} is {here} here")
        return RaysExampleFactory(_resolve_name(here))
    module_name, env_id = _module_and_id(name)
    if module_name in SUITES:
        return SuiteFactory(module_name, env_id)
    if module_name == "pettingzoo":
        return PettingZooFactory(env_id)
    if module_name == GODOT:
        return GodotFactory.of(env_id)
    if module_name:
        module = _import_module(module_name, name)
        found = getattr(module, env_id, None)
        if getattr(found, "starts_programs", ()):
            raise ValueError(
                f"environment {name!r} starts the program that its config names, so a name, which can come from a "
                "file, may not represent it. Give the class itself, or register it: register_env(name, function)."
            )
        if is_environment_class(found):
            return CreatorFactory(found)
        if callable(found) and env_id not in gymnasium.registry:
            raise ValueError(
                f"environment {name!r} names {found!r:.80}, which is no environment class, and a name may stand for "
                "nothing else: it could run any function of any module. Give the function itself, register it with "
                f"register_env(name, function), or type it on the command line: rllib train PPO {name}. For a "
                "checkpoint whose origin you trust, use load_user_code=True, or rllib evaluate --load-user-code."
            )
    if env_id not in gymnasium.registry and re.search(r"-v\d+$", env_id):
        _register_atari(env_id)
    spec = gymnasium.registry.get(env_id) or _newest_version(env_id)
    if spec is not None and _only_raises(spec):
        today = id_today(env_id, gymnasium.registry) or "Your own: pass the class itself."
        raise ValueError(f"gymnasium has no environment {env_id!r} any more. {today}")
    if spec is None:
        raise ValueError(_unknown_of_module(module, module_name, env_id) if module_name else _unknown_name(env_id))
    return GymnasiumFactory(spec)


def _module_and_id(name: str) -> tuple[str, str]:
    """("module", "Id") for "module:Id" and "module.Class"; ("", name) for anything else, such as gymnasium's ids."""
    module_name, _, env_id = name.rpartition(":")
    if not module_name and name not in gymnasium.registry and all(part.isidentifier() for part in name.split(".")):
        module_name, _, env_id = name.rpartition(".")
    return module_name, env_id


def is_environment_class(found) -> bool:
    """Whether it is a class of environments: gymnasium's, a VectorEnv, or one with the methods of the old gym API."""
    if not isinstance(found, type):
        return False
    return issubclass(found, (gymnasium.Env, VectorEnv)) or all(
        callable(getattr(found, method, None)) for method in ("reset", "step")
    )


def named_environment(code: UserCode) -> type | UserCode:
    """The class that code of a checkpoint is a reference to, if it is one of environments; else the code, as it is."""
    if ":" not in code.reference:
        return code  # the place of something pickled
    found = import_path(code.reference)
    return found if is_environment_class(found) else code


def program_keys(env: Any) -> tuple[str, ...]:
    """Keys of env_config that name a program, or its arguments, which an environment of this class or name starts."""
    if isinstance(env, str):
        env = ENVIRONMENTS.get(env) if env in ENVIRONMENTS else None
    return getattr(getattr(env, "func", env), "starts_programs", ())


def module_of(name: str) -> str:
    """The module that the name of an environment begins with; "" if it has none."""
    return _module_and_id(example_here(name) or name)[0]


def is_registered(name: str) -> bool:
    """Whether `register_env` was given this name."""
    return name in ENVIRONMENTS


def register_typed_function(name: str) -> None:
    """Registers the function that "module:function" names, since the user has typed this name on a command line.

    "godot:PATH" is registered as well, as the game with this program. Does nothing for any other name; `resolve`
    reports its error.
    """
    kind, _, path = name.partition(":")
    if kind == GODOT and not path.startswith("port=") and name not in ENVIRONMENTS:
        from rllib.env.engines.godot import GodotEnv

        register_env(name, functools.partial(GodotEnv, program=path))
        return
    module_name, _, function_name = name.rpartition(":")
    if not function_name.isidentifier() or not module_name or name in ENVIRONMENTS:
        return
    with contextlib.suppress(ValueError):  # there is no such module
        found = getattr(_import_module(module_name, name), function_name, None)
        if callable(found) and not is_environment_class(found):
            register_env(name, found)


def _only_raises(spec: EnvSpec) -> bool:
    """Whether an id is registered for its error message alone, like the ids of MuJoCo's first bindings."""
    return getattr(spec.entry_point, "__module__", None) == "gymnasium.envs" and callable(spec.entry_point)


def _register_atari(env_id: str) -> None:
    """Imports ale_py, which registers its games.

    Raises:
        ValueError: if it is not installed, and the id can only be of a game.
    """
    try:
        importlib.import_module("ale_py")
    except ModuleNotFoundError:
        if env_id.startswith("ALE/") or re.search("(NoFrameskip|Deterministic)-v", env_id):
            raise ValueError(
                f"environment {env_id!r} is a game of the Arcade Learning Environment, which is not installed. "
                f"Use {install_hint('atari')}."
            ) from None


def _import_module(module_name: str, name: str):
    if "://" in name:
        raise ValueError(f"environment {shown(name)!r} is a URL, where a module is needed. Write 'module:Class'.")
    if module_name.endswith(".py") or "/" in module_name or "\\" in module_name:
        file = PurePosixPath(module_name.replace("\\", "/"))
        raise ValueError(
            f"environment {name!r} names the file {module_name!r}, where a module is needed. Write "
            f"'{file.name.removesuffix('.py')}:{name.rpartition(':')[2]}', in the directory of the file."
        )
    if module_name.partition(".")[0] == "ray" and _HOOK not in sys.modules:
        # An installed Ray is not asked: its RLlib needs further packages, and its environments are of this kind alone.
        remedy = example_advice(name) or (
            "Import the class in your program and give it, or run the program by python -m rllib.as_ray, which serves "
            "Ray's modules (docs/start/from_rllib.md)."
        )
        raise ValueError(f"environment {name!r} names a module of Ray, which is not imported here. {remedy}")
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not module_name.startswith(error.name or "?"):
            raise  # the module is there, but something that it imports is not
        extra = _EXTRAS.get(module_name.partition(".")[0])
        remedy = (
            example_advice(name)
            or module_advice(module_name)
            or (f"Use {install_hint(extra)}." if extra else None)
            or did_you_mean(module_name, _WORDS, lambda word: f'"{word}:{name.rpartition(":")[2]}"').strip()
            or _where_it_lies(module_name)
        )
        raise ValueError(
            f"environment {name!r} names the module {module_name!r}, which cannot be found ({error}). {remedy}"
        ) from None


def _where_it_lies(module_name: str) -> str:
    """Advice for a module that is not found: it may lie in the current directory, which is not searched."""
    own = Path(module_name.partition(".")[0])
    if here := next((each for each in (own.with_suffix(".py"), own) if each.exists()), None):
        return (
            f"{here} is in the current directory, from which the command `rllib` imports only names that you type. To "
            "import a name that a run or a file has, use --load-user-code."
        )
    return (
        "Install it, or start the program in its directory; the command `rllib` imports modules of the current "
        "directory only for names that you type, and with --load-user-code."
    )


def _newest_version(env_id: str) -> EnvSpec | None:
    """The spec for an id without its version ("CartPole"), as gymnasium.make understands it."""
    try:
        namespace, name, version = parse_env_id(env_id)
    except gymnasium.error.Error:
        return None
    highest = find_highest_version(namespace, name) if version is None else None
    if highest is None:
        return None
    newest = get_env_id(namespace, name, highest)
    logger.info("environment %r has no version; the newest, %r, is used", env_id, newest)
    return gymnasium.registry[newest]


def _unknown_of_module(module, module_name: str, name: str) -> str:
    classes = [key for key, value in vars(module).items() if is_environment_class(value)]
    own = [key for key in classes if vars(module)[key].__module__ == module.__name__]
    advice = module_advice(module_name)
    hint = f" {advice}" if advice else did_you_mean(name, [*own, *gymnasium.registry], repr)
    listed = f" It has the classes {', '.join(own)}." if own else ""
    return (
        f"the module {module_name!r} has no environment class {name!r}, and registers no such id.{hint}{listed} "
        f'Write "{module_name}:Class" or "{module_name}:Id".'
    )


def _newest_ids() -> list[str]:
    """The newest version of each environment of gymnasium's registry, for suggestions."""
    newest: dict[tuple, EnvSpec] = {}
    for spec in gymnasium.registry.values():
        name = spec.namespace, spec.name
        if not _only_raises(spec) and (name not in newest or (spec.version or 0) >= (newest[name].version or 0)):
            newest[name] = spec
    return [spec.id for spec in newest.values()]


def _unknown_namespace(name: str) -> str | None:
    """A sentence for an id such as "bsuite/catch-v0", whose package has not been imported."""
    try:
        namespace = parse_env_id(name)[0]
    except gymnasium.error.Error:
        return None
    known = {known.rpartition("/")[0] for known in (*ENVIRONMENTS, *gymnasium.registry)}
    if namespace is None or nearest(namespace, known):
        return None
    return f'No imported package registers ids of {namespace}/: write "module:{name}", with the module that does.'


def _unknown_name(name: str) -> str:
    today = id_today(name, gymnasium.registry) or _unknown_namespace(name)
    hint = f" {today}" if today else did_you_mean(name, [*ENVIRONMENTS, *_newest_ids()], repr)
    if name.isidentifier() and Path(f"{name}.py").is_file():
        return f"there is no environment {name!r}. Name the class of {name}.py, too: {name}:CLASS."
    return (
        f"there is no environment {name!r}.{hint} Your own: pass the class itself, use register_env(name, creator), "
        'or "module:Id" where importing the module registers the id.'
    )
