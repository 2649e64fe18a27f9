"""Rules about the spaces and the network of a policy, which are checked before any policy is made.

    class MyConfig(AlgorithmConfig):
        @of_spaces("num_atoms")
        def _check_actions(self, policy: NewPolicy) -> Mistake | None:
            if self.num_atoms > 1 and isinstance(policy.action_space, Discrete):
                return Mistake("num_atoms is for continuous actions.", ("num_atoms",), ({"num_atoms": 1},))

`described` (policies.py) checks all of these rules: it describes the networks of all policies, and raises one
SettingsError for all of them. The description of a network, a replay or a learner may refuse settings itself by raising
Unfit, which becomes a mistake there, or in `naming_settings`.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gymnasium import Space

from rllib.config.config_object import ConfigObject
from rllib.config.conflicts import Mistake, RuleRow, Unfit, rule_of
from rllib.models.dense.network_spec import NetworkSpec

F = TypeVar("F", bound=Callable)


@dataclass(frozen=True)
class NewPolicy:
    """A policy that will be made.

    Attributes:
        policy_id: id of the policy.
        observation_space, action_space: spaces of the policy's observations and actions.
        run: settings of the run.
        own: the settings in which the policy differs from the run.
        num_agents: number of agents of the environment; None: the environment has one, without a name.
        spec: the network; None for rules about spaces alone, which are checked before there is a network.
    """

    policy_id: str
    observation_space: Space
    action_space: Space
    run: ConfigObject
    own: Mapping[str, Any]
    num_agents: int | None = None
    spec: NetworkSpec | None = None

    @property
    def place(self) -> str:
        """Description of the owner of the spaces, for error messages."""
        if self.run.env is not None:
            return repr(self.run.env)
        return "the recorded data" if self.run.has_data else "the environment"


def of_spaces(*names: str) -> Callable[[F], F]:
    """Marks a method of a config class that checks its settings with a policy's spaces: it returns a Mistake, or None.

    The method is called if the config has the settings in `names`.
    """
    return _marked(names, needs_network=False)


def of_network(*names: str) -> Callable[[F], F]:
    """As `of_spaces`, for a method that also reads the policy's network, `NewPolicy.spec`."""
    return _marked(names, needs_network=True)


def _marked(names: tuple[str, ...], needs_network: bool) -> Callable[[F], F]:
    def mark(method: F) -> F:
        method.__of_policies__ = names, needs_network
        return method

    return mark


def broken_rules(config: ConfigObject, policy: NewPolicy, needs_network: bool) -> Iterator[Mistake]:
    """Mistakes of a policy by the rules of its config's class.

    Args:
        config: settings of the policy.
        policy: the policy that the settings must fit.
        needs_network: whether to check the rules that read the network, or the rules that do not.
    """
    for check, names, looks_at_network in _rules(type(config)).values():
        is_due = looks_at_network is needs_network and all(each in config.settings for each in names)
        if is_due and (mistake := check(config, policy)):
            yield mistake


def _rules(cls: type) -> dict[str, tuple[Callable, tuple[str, ...], bool]]:
    """Name of a marked method -> the method, the settings that it reads, and whether it reads the network.

    A method replaces a base class's method of the same name, whose mark it inherits if it has none.
    """
    found: dict[str, tuple] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            if hasattr(member, "__of_policies__"):
                found[name] = member, *member.__of_policies__
            elif name in found:
                found[name] = member, *found[name][1:]
    return found


def rows_of_policies(cls: type) -> list[RuleRow]:
    """The rules about spaces and networks as lines of a table: the first sentence of each method's docstring."""
    return [
        RuleRow(rule_of(check), "", "", names)
        for check, names, _ in _rules(cls).values()
        if all(each in cls.settings for each in names)
    ]


@contextlib.contextmanager
def naming_settings(config: ConfigObject) -> Iterator[None]:
    """Context that raises an Unfit of a replay, a learner or another part as a SettingsError of this config."""
    try:
        yield
    except Unfit as error:
        raise config.error(config.placed(error.mistake)) from error
