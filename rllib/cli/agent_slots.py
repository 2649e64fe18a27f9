"""The slots of agents in `rllib play` and `rllib record`: policies, other checkpoints, and people."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from gymnasium import Space

from rllib.acting.agent_player import SlotPlayers
from rllib.algorithms.base.algorithm import Algorithm
from rllib.cli.checkpoints import acting_algorithm, latest
from rllib.cli.failures import Mistake, user_input
from rllib.hand_written import RandomPolicy
from rllib.storage.local_path import local_path

# In place of a checkpoint: random actions.
RANDOM = "random"


@dataclass(frozen=True)
class SlotOptions:
    """Options of a command that say who plays which agents.

    Attributes:
        policies: AGENT=ID, a policy of the checkpoint for an agent.
        against: [AGENT=]CHECKPOINT[:ID], another checkpoint, or RANDOM, for an agent, or for all that are left but the
            first.
        humans: agents that are played by people.
    """

    policies: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    humans: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.policies or self.against or self.humans)


def slot_options(command: Callable) -> Callable:
    """Adds the options for agents that policies and checkpoints play."""
    for option in (
        click.option("--against", multiple=True, metavar="[AGENT=]CHECKPOINT[:ID]", help="With several agents: another "
                     "checkpoint, or one of its policies, or random actions (random), plays AGENT; without AGENT, all "
                     "agents but the first, or the first if --policy names all others."),
        click.option("--policy", "policies", multiple=True, metavar="AGENT=ID",
                     help="With several agents: the policy by which AGENT acts."),
    ):  # fmt: skip
        command = option(command)
    return command


class SlotAlgorithms:
    """The algorithms of the slots, and the player that they make together.

    Args:
        algorithm: of the checkpoint; plays the agents without another player.
        agents: that may appear; empty where the environment does not say.
        explore: sample the actions.
        load_user_code: as for Algorithm.from_checkpoint, for the other checkpoints too.
        stack: closes them.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        agents: Iterable[Any],
        explore: bool,
        load_user_code: bool,
        stack: contextlib.ExitStack,
    ):
        self._algorithm, self._explore, self._load_user_code, self._stack = algorithm, explore, load_user_code, stack
        self._agents = {str(agent): agent for agent in agents}
        self._opened: dict[Path, Algorithm] = {}

    def player(self, options: SlotOptions, human: Any) -> SlotPlayers:
        """Makes the player of all agents.

        Args:
            options: who plays which agents.
            human: the player of people's agents.

        Raises:
            Mistake: for an agent, a checkpoint or a policy that there is not, and an agent with two players.
        """
        slots: dict[str, Any] = {}
        for name in options.humans:
            self._take(slots, name, human, f"--human {name}")
        given = {}
        for text in options.policies:
            name, is_pair, policy_id = text.rpartition("=")
            if not is_pair:
                raise Mistake(f"--policy {text} must be AGENT=ID")
            self._check_policy(self._algorithm, policy_id, f"--policy {text}")
            self._take(slots, name, None, f"--policy {text}")
            given[self._agents.get(name, name)] = policy_id
        for text in sorted(options.against, key=lambda text: self._named(text)[0] is None):
            name, rest = self._named(text)
            names = [name] if name is not None else self._left(slots, text)
            player = self._opponent(rest, names, f"--against {text}")
            for each in names:
                self._take(slots, each, player, f"--against {text}")
        own = self._algorithm.make_player(explore=self._explore, policies=given)
        return SlotPlayers({name: player or own for name, player in slots.items()}, own)

    def _take(self, slots: dict[str, Any], name: str, player: Any, option: str) -> None:
        if self._agents and name not in self._agents:
            raise Mistake(f"{option} names the agent {name!r}, but there are {', '.join(self._agents)}")
        if name in slots:
            raise Mistake(f"{option} gives agent {name!r} a second player")
        slots[name] = player

    def _named(self, text: str) -> tuple[str | None, str]:
        """The agent that --against names, or None, and the checkpoint with its policy."""
        name, is_pair, rest = text.partition("=")
        is_agent = is_pair and (name in self._agents if self._agents else not local_path(text).exists())
        return (name, rest) if is_agent else (None, text)

    def _left(self, slots: dict[str, Any], text: str) -> list[str]:
        free = [name for name in self._agents if name not in slots]
        left = [name for name in free if name not in list(self._agents)[:1]] or (free if self._has_own(slots) else [])
        if not left:
            missing = "no agent is left for it" if self._agents else "the environment does not say which agents it has"
            raise Mistake(f"--against {text}: {missing}. Name one, --against AGENT={text}.")
        return left

    def _has_own(self, slots: Mapping[str, Any]) -> bool:
        """Whether --policy has given an agent to the checkpoint's own policies."""
        return None in slots.values()

    def _opponent(self, text: str, names: list[str], option: str) -> "_Opponent | _AtRandom":
        if text == RANDOM and not local_path(text).exists() and self._algorithm.agents is not None:
            mask_key = self._algorithm.config.action_mask_key
            return _AtRandom(self._algorithm.agents.environment.spaces, mask_key)
        name, policy_id = text, None
        if not local_path(text).exists() and ":" in text:
            name, _, policy_id = text.rpartition(":")
        path = latest(local_path(name))
        if path not in self._opened:
            with user_input():
                self._opened[path] = self._stack.enter_context(acting_algorithm(path, self._load_user_code))
        algorithm = self._opened[path]
        if policy_id is not None:
            self._check_policy(algorithm, policy_id, option)
        agents = [self._agents.get(name, name) for name in names]
        self._check_spaces(algorithm, agents, option)
        policies = None if policy_id is None else dict.fromkeys(agents, policy_id)
        return _Opponent(algorithm.make_player(explore=self._explore, policies=policies), name)

    def _check_policy(self, algorithm: Algorithm, policy_id: str, option: str) -> None:
        known = algorithm.agents.specs if algorithm.agents is not None else algorithm.policies
        if policy_id not in known:
            hint = ". --against AGENT=random is for random actions" if policy_id == RANDOM else ""
            raise Mistake(f"{option} names the policy {policy_id!r}, but there are {', '.join(known)}{hint}")

    def _check_spaces(self, algorithm: Algorithm, agents: list[Any], option: str) -> None:
        if algorithm.agents is None:
            raise Mistake(f"{option}: this checkpoint is of a run with one agent, and cannot play one of several")
        ours, theirs = (each.agents.environment.spaces for each in (self._algorithm, algorithm))
        for agent in agents:
            if agent in ours and agent not in theirs:
                raise Mistake(f"{option}: the checkpoint's environment has no agent {agent!r}")
            if agent in ours and ours[agent] != theirs[agent]:
                raise Mistake(
                    f"{option}: agent {agent!r} has the spaces {ours[agent]}, but in the run of that checkpoint "
                    f"{theirs[agent]}"
                )


class _AtRandom:
    """A player whose actions are uniformly random among the legal ones.

    Args:
        spaces: spaces of observations and actions, by agent.
        mask_key: key of the mask of legal actions in Dict observations; None: there are no masks.
    """

    def __init__(self, spaces: Mapping[Any, tuple[Space, Space]], mask_key: str | None):
        self._spaces, self._mask_key = spaces, mask_key
        self._policies: dict[Any, RandomPolicy] = {}

    def reset(self) -> None:
        """Begins a new episode."""

    def policy_for(self, agent: Any) -> str:
        """Name of random actions in tables."""
        return RANDOM

    def act(
        self,
        observations: Mapping[Any, Any],
        rewards: Mapping[Any, float] | None = None,
        action_masks: Mapping[Any, Any] | None = None,
    ) -> dict[Any, Any]:
        """Actions of these agents."""
        masks, actions = action_masks or {}, {}
        for agent, observation in observations.items():
            if agent not in self._policies:
                settings = {"action_mask_key": self._mask_key}
                self._policies[agent] = RandomPolicy(None, self._spaces[agent][1], settings)
            seen = observation if masks.get(agent) is None else {self._mask_key: masks[agent]}
            (actions[agent],) = self._policies[agent].compute_actions([seen])
        return actions


class _Opponent:
    """A player of another checkpoint; its policies are named with the checkpoint."""

    def __init__(self, player: Any, name: str):
        self._player, self._name = player, name
        self.reset, self.act = player.reset, player.act

    def policy_for(self, agent: Any) -> str:
        return f"{self._name}:{self._player.policy_for(agent)}"
