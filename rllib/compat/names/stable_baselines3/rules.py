"""What values of words may be, as far as no setting of the same meaning says it.

A word that becomes a setting by itself is checked by the setting's rule; the words here are read by the translation,
which would take "128" for 128, 128.9 for 128 and "False" for True.
"""

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from rllib.config.setting_types import text_hint


class Rule(NamedTuple):
    """What a value may be.

    Attributes:
        holds: whether a value is right.
        words: what it must be, for messages.
    """

    holds: Callable[[Any], bool]
    words: str

    def check(self, word: str, value) -> None:
        """Raises a ValueError for a value that is not right."""
        if not self.holds(value):
            raise ValueError(f"{word}={value!r:.80} must be {self.words}{text_hint(value)}.")


def _is_flag(value) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_number(value) -> bool:
    return isinstance(value, Real) and not _is_flag(value) and math.isfinite(value)


def count(least: int, *, none: str = "") -> Rule:
    """A whole number, also one that is written as 1e6; `none` says what None means, where it is a value."""

    def holds(value) -> bool:
        if value is None:
            return bool(none)
        return _is_number(value) and (isinstance(value, Integral) or float(value).is_integer()) and value >= least

    return Rule(holds, f"an integer >= {least}{none}")


def number(least: float = -math.inf) -> Rule:
    """A finite number."""
    bound = "" if least == -math.inf else f" >= {least:g}"
    return Rule(lambda value: _is_number(value) and value >= least, f"a number{bound}")


def _is_temperature(value) -> bool:
    if not isinstance(value, str):
        return _is_number(value) and value > 0
    kind, _, number = value.partition("_")
    try:
        return kind == "auto" and (value == "auto" or 0 < float(number) < math.inf)
    except ValueError:
        return False


def _is_frequency(value) -> bool:
    if isinstance(value, tuple | list):
        return len(value) == 2 and count(1).holds(value[0])
    return count(1).holds(value)


FLAG = Rule(_is_flag, "True or False")


def check_flags(**given) -> None:
    """Raises a ValueError for an argument that is neither True nor False."""
    for name, value in given.items():
        FLAG.check(name, value)


_DICT = Rule(lambda value: value is None or isinstance(value, Mapping), "a dict, as in {'key': value}, or None")
TEMPERATURE = Rule(
    _is_temperature,
    "above 0, since its logarithm is kept (1e-6, say; TD3 has none), or 'auto', or 'auto_NUMBER' for the first value "
    "of a learned one",
)

RULES: Mapping[str, Rule] = {
    "n_envs": count(1),
    "n_steps": count(1),
    "batch_size": count(1),
    "buffer_size": count(1),
    "gradient_steps": count(-1),
    "train_freq": Rule(_is_frequency, "a number of steps >= 1, or a pair like (1, 'episode')"),
    "learning_starts": count(0),
    "sde_sample_freq": count(-1),
    "n_timesteps": count(1),
    "n_delta": count(1),
    "n_top": count(1, none=", or None: all"),
    "alive_bonus_offset": number(),
    "exploration_fraction": number(0.0),
    "noise_std": Rule(lambda value: value is None or number(0.0).holds(value), "a number >= 0"),
    "noise_type": Rule(lambda value: value is None or isinstance(value, str), "a name, or None"),
    "action_noise": Rule(
        lambda value: value is None or hasattr(getattr(value, "base_noise", value), "_sigma"),
        "NormalActionNoise or OrnsteinUhlenbeckActionNoise; without Stable-Baselines3, give noise_type='normal' and "
        "noise_std",
    ),
    "device": Rule(
        lambda value: value is None or str(value).partition(":")[0] in ("auto", "cpu", "cuda"),
        "'auto', 'cpu' or 'cuda'",
    ),
    **dict.fromkeys(("policy_kwargs", "replay_buffer_kwargs"), _DICT),
    **dict.fromkeys(
        ("normalize_advantage", "use_sde", "use_sde_at_warmup", "use_rms_prop", "optimize_memory_usage", "zero_policy"),
        FLAG,
    ),
}
# Keys of policy_kwargs, and of normalize, that are True or False.
FLAGS_WITHIN: Mapping[str, Rule] = dict.fromkeys(
    ("ortho_init", "squash_output", "share_features_extractor", "with_bias", "norm_obs", "norm_reward"), FLAG
)
