"""The model card of a published policy: README.md with the metadata that the Hugging Face Hub reads."""

import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from rllib import __version__
from rllib.extras import DISTRIBUTION
from rllib.progress import counted
from rllib.remote.hub import CURVE, VIDEO
from rllib.storage.foreign_files import printable


@dataclass(frozen=True)
class Published:
    """Facts about a policy, for its card.

    Attributes:
        repository: ORG/NAME.
        algorithm, env: names.
        num_steps: environment steps that it was trained for.
        returns: seed -> mean return of the episodes that were played with it.
        episodes_per_seed: number of episodes of each seed.
        command: command that repeats the run; None if it is not known.
        extras: names of the picture and the video that lie next to the card.
        policies: ids of the policies, of which a program loads one.
        options: options of `rllib evaluate`, which the policy needs to be evaluated as here.
        has_code: whether pickled code is among the files.
    """

    repository: str
    algorithm: str
    env: str
    num_steps: int
    returns: Mapping[int, float]
    episodes_per_seed: int
    command: str | None = None
    extras: Sequence[str] = ()
    policies: Sequence[str] = ()
    options: Sequence[str] = ()
    has_code: bool = False

    @property
    def mean(self) -> float:
        """Mean return over the seeds."""
        return statistics.fmean(self.returns.values())

    @property
    def std(self) -> float:
        """Standard deviation of the return over the seeds; 0 for a single one."""
        return statistics.stdev(self.returns.values()) if len(self.returns) > 1 else 0.0

    @property
    def evaluate(self) -> str:
        """The command that evaluates it again."""
        return shlex.join(["rllib", "evaluate", f"hf://{self.repository}", *self.options])


def results_json(published: Published) -> bytes:
    """Content of results.json: the evaluation, in numbers."""
    content = {
        "env": published.env,
        "mean_reward": published.mean,
        "std_reward": published.std,
        "seeds": list(published.returns),
        "returns": list(published.returns.values()),
        "episodes_per_seed": published.episodes_per_seed,
        "rllib_version": __version__,
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def card(published: Published) -> str:
    """Content of README.md: metadata in YAML, then the page."""
    algorithm, env = _plain(published.algorithm), _plain(published.env)
    seeds, episodes = ", ".join(map(str, published.returns)), counted(published.episodes_per_seed, "episode")
    several = len(published.policies) > 1
    # `load_policy` takes the only policy of a checkpoint without its name.
    chosen = f", {_plain(published.policies[0])!r}" if several else ""
    lines = [
        "---",
        yaml.safe_dump(_metadata(published), sort_keys=False, allow_unicode=True).rstrip(),
        "---",
        "",
        f"# {algorithm} on {env}",
        "",
        f"A policy for `{env}`, trained by {algorithm} of rllib for {published.num_steps:,} environment steps.",
        "",
        f"Return: **{published.mean:.2f} ± {published.std:.2f}** (mean and standard deviation over the "
        f"seed{'s' if len(published.returns) > 1 else ''} {seeds}; {episodes} each).",
        "",
    ]
    if CURVE in published.extras:
        lines += [f"![return by environment steps]({CURVE})", ""]
    if VIDEO in published.extras:
        lines += [f"A video of an episode: [{VIDEO}]({VIDEO}).", ""]
    if several:
        lines += [f"Its policies: {', '.join(f'`{_plain(each)}`' for each in published.policies)}.", ""]
    lines += [
        "## Use",
        "",
        "```python",
        "import rllib",
        "",
        f'policy = rllib.load_policy("hf://{published.repository}"{chosen})',
        "action = policy.compute_single_action(observation, explore=False)",
        "```",
        "",
        "```sh",
        f"pip install '{DISTRIBUTION}[hub]'",
        _plain(published.evaluate),
        "```",
        "",
        "The files in user_code/ are pickled code of the author, which `--load-user-code` runs."
        if published.has_code
        else "The files are JSON and safetensors; reading them runs no code of theirs.",
    ]
    if published.command:
        lines += ["", "## Training", "", "```sh", _plain(published.command), "```"]
    return "\n".join(lines) + "\n"


def _metadata(published: Published) -> dict[str, Any]:
    env = _plain(published.env)
    return {
        "library_name": "rllib",
        "pipeline_tag": "reinforcement-learning",
        "tags": [env, "deep-reinforcement-learning", "reinforcement-learning", "rllib", _plain(published.algorithm)],
        "model-index": [
            {
                "name": _plain(published.algorithm),
                "results": [
                    {
                        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                        "dataset": {"name": env, "type": env},
                        "metrics": [
                            {
                                "type": "mean_reward",
                                "name": "mean_reward",
                                "value": f"{published.mean:.2f} +/- {published.std:.2f}",
                                "verified": False,
                            }
                        ],
                    }
                ],
            }
        ],
    }


def command_of(
    algorithm: str, env: str, settings: Mapping[str, Any], stop: Mapping[str, float], seed: int | None
) -> str | None:
    """The command that repeats a run; None if a setting cannot be written on a command line.

    Args:
        algorithm, env: names.
        settings: name -> value, of those that differ from the defaults.
        stop: result key -> value at which the run ends.
        seed: seed of the run.
    """
    try:
        words = [f"{key}={_written(value)}" for key, value in settings.items()]
    except (TypeError, ValueError):
        return None
    words += [f"--stop={key}={value:g}" for key, value in stop.items()]
    words += [] if seed is None else ["--seed", str(seed)]
    # Without --defaults the settings of a tuned example would be taken where these are RLlib's.
    return shlex.join(["rllib", "train", algorithm, env, "--defaults", *words])


def _written(value) -> str:
    """A value as `rllib train` reads it: JSON, or a word that needs no quotation marks."""
    if isinstance(value, str) and value.replace("_", "").isalnum() and not value[0].isdigit():
        return value if yaml.safe_load(value) == value else json.dumps(value)
    return json.dumps(value, allow_nan=False)


def _plain(text: str) -> str:
    """Text of a checkpoint on one line, without what would end a code block."""
    return printable(str(text)).replace("\n", " ").replace("`", "'")
