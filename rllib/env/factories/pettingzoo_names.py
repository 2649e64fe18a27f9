"""PettingZoo's environments by name: by its registry, or by the module that holds them.

    aec/classic/connect_four-v3, parallel/butterfly/pistonball-v6     its registry, by kind and id (PettingZoo 1.27)
    mpe2.simple_spread_v3                                             a module
    classic.connect_four_v3                                           a module below pettingzoo

A module's `parallel_env` is taken where it has one, else its `env`, which lets agents act in turn.
"""

import importlib
import inspect
from types import ModuleType
from typing import Any

import pettingzoo

from rllib.did_you_mean import did_you_mean
from rllib.errors import EnvironmentPackageError


def make_pettingzoo(name: str, config: dict[str, Any]):
    """Makes a ParallelEnv or an AECEnv of PettingZoo.

    Args:
        name: see above.
        config: arguments of its constructor.

    Raises:
        ValueError: if there is no such environment, or an argument is none of its constructor's.
        EnvironmentPackageError: if a package that it needs is not installed.
    """
    kind, slash, env_id = name.partition("/")
    if slash and kind in ("aec", "parallel"):
        return _of_registry(kind, env_id, config)
    module = _module(name)
    creator = getattr(module, "parallel_env", None) or getattr(module, "env", None)
    if not callable(creator) or not _is_of_pettingzoo(module):
        raise ValueError(
            f"the module {module.__name__!r} has no environment of PettingZoo: no class raw_env or parallel_env that "
            'is derived from its AECEnv or ParallelEnv. For others use "module:Class", or register_env(name, function).'
        )
    _check_arguments(name, config, getattr(module, "raw_env", creator), creator)
    return creator(**config)


def _of_registry(kind: str, env_id: str, config: dict[str, Any]):
    if not hasattr(pettingzoo, "make"):
        raise EnvironmentPackageError(
            f"environment 'pettingzoo:{kind}/{env_id}' needs the registry of PettingZoo 1.27, but "
            f"{pettingzoo.__version__} is installed. Use pip install -U pettingzoo, or name the module: "
            '"pettingzoo:classic.connect_four_v3".'
        )
    from pettingzoo.env_registry import exceptions

    try:
        return pettingzoo.make(kind, env_id, **config)
    except exceptions.FailedToImport as error:
        raise EnvironmentPackageError(f"environment 'pettingzoo:{kind}/{env_id}': {error}") from error
    except exceptions.PettingZooRegistryError as error:
        ids = pettingzoo.aec_registry if kind == "aec" else pettingzoo.parallel_registry
        hint = did_you_mean(env_id, ids, repr, otherwise=f"It has {', '.join(sorted(ids))}.")
        raise ValueError(f"PettingZoo's registry has no {kind} environment {env_id!r}.{hint}") from error


def _module(name: str) -> ModuleType:
    """The module of a name: itself, or below pettingzoo."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"'pettingzoo:{name}': {name!r} is no path of a module. {_FORMS}")
    tried = [name] if name.partition(".")[0] == "pettingzoo" else [name, f"pettingzoo.{name}"]
    for path in tried:
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            # A module on the way to this one is missing: another form of the name may be meant.
            if error.name is None or not f"{path}.".startswith(f"{error.name}."):
                raise EnvironmentPackageError(
                    f"environment 'pettingzoo:{name}' needs a package that is not installed ({error}). PettingZoo's "
                    f"extras bring the packages of its environments: pip install 'pettingzoo[all]'."
                ) from error
        except ImportError as error:  # pettingzoo.mpe says where it has gone
            raise EnvironmentPackageError(f"environment 'pettingzoo:{name}' cannot be imported: {error}") from error
    raise ValueError(
        f"'pettingzoo:{name}': there is no module {' or '.join(map(repr, tried))}. Is its package installed? {_FORMS}"
    )


_FORMS = (
    'Write "pettingzoo:mpe2.simple_spread_v3", "pettingzoo:classic.connect_four_v3" or '
    '"pettingzoo:aec/classic/connect_four-v3".'
)


def _is_of_pettingzoo(module: ModuleType) -> bool:
    """Whether a module holds environments. A name may come from a file: it calls nothing in any other module."""
    found = [getattr(module, name, None) for name in ("raw_env", "parallel_env")]
    bases = (pettingzoo.AECEnv, pettingzoo.ParallelEnv)
    return any(isinstance(each, type) and issubclass(each, bases) for each in found)


def _check_arguments(name: str, config: dict[str, Any], *creators) -> None:
    """Refuses arguments that neither the environment's class nor the function that makes it takes."""
    known: set[str] = set()
    for creator in creators:
        parameters = inspect.signature(creator).parameters.values()
        known |= {each.name for each in parameters}
        if isinstance(creator, type) and any(each.kind is each.VAR_KEYWORD for each in parameters):
            return  # its own constructor has the last word
    if unknown := [key for key in config if key not in known]:
        hint = did_you_mean(unknown[0], sorted(known), repr)
        raise ValueError(
            f"env_config has {unknown[0]!r}, but 'pettingzoo:{name}' takes no such argument.{hint} It takes "
            f"{', '.join(sorted(known - {'kwargs', 'args', 'self'}))}."
        )
