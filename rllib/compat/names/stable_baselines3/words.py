"""Words that were given, and the forms that their values have."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Feed-forward classes by the names of policies; classes of policies have names of their own.
_POLICIES = {
    **dict.fromkeys(
        ("MlpPolicy", "ActorCriticPolicy", "DQNPolicy", "SACPolicy", "TQCPolicy", "TD3Policy", "CrossQPolicy"),
        "MlpPolicy",
    ),
    "ARSPolicy": "MlpPolicy",
    **dict.fromkeys(("LinearPolicy", "ARSLinearPolicy"), "LinearPolicy"),
    **dict.fromkeys(("CnnPolicy", "ActorCriticCnnPolicy"), "CnnPolicy"),
    **dict.fromkeys(("MultiInputPolicy", "MultiInputActorCriticPolicy"), "MultiInputPolicy"),
}


@dataclass(frozen=True)
class Words:
    """Words that were given, and the library's defaults for others.

    Attributes:
        values: every word that has a value.
        asked: those whose values become settings; others are only read together with them.
        first: environment steps before the run whose length `n_timesteps` is; None: a new algorithm's, from 0 on.
    """

    values: Mapping[str, Any]
    asked: frozenset[str]
    first: int | None = None

    def __getitem__(self, word: str) -> Any:
        return self.values.get(word)

    def ask(self, *words: str) -> bool:
        """Whether one of these words becomes a setting."""
        return not self.asked.isdisjoint(words)

    def length(self, word: str) -> int:
        """Length of the run (environment steps), which a word's value is a share of.

        Raises:
            ValueError: if it is not known.
        """
        if self["n_timesteps"] is None:
            raise ValueError(
                f"{word} changes with the share of the run that remains, but the length of the run is not known. Give "
                f"n_timesteps, or a schedule over environment steps (docs/guide/exploration.md)."
            )
        return int(self["n_timesteps"])

    def line(self, word: str, initial: float, final: float) -> Any:
        """A schedule from one value to another over the run, which a word's value is a share of; data for files.

        Raises:
            ValueError: as `length`.
        """
        timesteps = self.length(word)
        if self.first:
            return [[0, initial], [self.first, initial], [self.first + timesteps, final]]
        return {"type": "linear", "initial": initial, "final": final, "timesteps": timesteps}

    @property
    def has_box(self) -> bool | None:
        """Whether actions are continuous; None: not known."""
        space = self["action_space"]
        return None if space is None else type(space).__name__ == "Box"

    @property
    def network(self) -> Mapping[str, Any]:
        """The keywords of the network."""
        return self["policy_kwargs"] or {}

    @property
    def policy(self) -> str:
        """Name of the kind of policy.

        Raises:
            ValueError: for a class of the user's.
        """
        name = name_of(self["policy"] or "MlpPolicy")
        if name not in _POLICIES:
            raise ValueError(
                f"policy={name!r} is none of {', '.join(dict.fromkeys(_POLICIES.values()))}. An environment is given "
                f"by its name, PPO(env={name!r}), and a network of your own as "
                ".training(model={'custom_model': Module}) (docs/guide/networks.md)."
            )
        return _POLICIES[name]


Part = Callable[[Words], dict[str, Any]]


def refuse_unless(word: str, value, harmless: tuple, why: str) -> None:
    if not any(value is each or value == each for each in harmless):
        raise ValueError(f"{word}={value!r:.60} cannot be used: {why}.")


def name_of(given) -> str:
    """Name of a class, an object's class, or a dotted text's last part."""
    if isinstance(given, str):
        return given.rpartition(".")[2]
    return given.__name__ if isinstance(given, type) else type(given).__name__


def over_time(word: str, value, words: Words):
    """A setting of a word whose value may depend on the remaining share of the run, from 1 to 0.

    Args:
        word: for messages.
        value: a number, "lin_3e-4" (a line from there to 0), or a function of the remaining share.
        words: with `n_timesteps`, the length of the run (environment steps).

    Raises:
        ValueError: for a text of another form, and for a share of a run of unknown length.
    """
    if isinstance(value, str):
        kind, _, number = value.rpartition("_")
        try:
            initial = float(number)
        except ValueError:
            kind = "?"
        if kind not in ("", "lin"):
            raise ValueError(f"{word}={value!r} must be a number, or lin_NUMBER for a line from there to 0.")
        if not kind:
            return initial
        return words.line(word, initial, 0.0)
    if callable(value):
        return _of_remaining_share(word, value, words)
    if word == "clip_range_vf" and isinstance(value, int | float) and value < 0:
        return None  # as in Stable-Baselines 2: no clipping
    return value


def _of_remaining_share(word: str, function: Callable[[float], float], words: Words):
    """A function of the remaining share as one of the environment step; a line as data, which files can hold."""
    try:
        start, middle, end = (float(function(share)) for share in (1.0, 0.5, 0.0))
    except Exception as error:
        raise ValueError(f"{word}={function!r} must be a function of the remaining share: {error}") from error
    if start == middle == end:
        # Of a run of any length. A clip range of 0, which models that only act are loaded with, is no number here.
        return [[0, 0.0]] if word == "clip_range" and start == 0 else start
    first, timesteps = words.first or 0, words.length(word)
    if math.isclose(2 * middle, start + end, rel_tol=1e-6):
        return words.line(word, start, end)
    return lambda timestep: float(function(min(max(1.0 - (timestep - first) / timesteps, 0.0), 1.0)))


def scaled(value, factor: float):
    """A number or a schedule, multiplied by a number."""
    if isinstance(value, dict):
        return {**value, "initial": factor * value["initial"], "final": factor * value["final"]}
    if isinstance(value, list | tuple):  # points of a schedule
        return [[timestep, factor * number] for timestep, number in value]
    return (lambda timestep: factor * value(timestep)) if callable(value) else factor * value
