"""The suites of `rllib benchmark`: a YAML file each in suites/, with tasks, steps, scale and published scores."""

import importlib.util
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from rllib.did_you_mean import did_you_mean
from rllib.extras import install_hint

_FOLDER = Path(__file__).parent / "suites"


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task of a suite.

    Attributes:
        steps: environment steps of a run.
        low, high: returns that count as 0 and 1; None: not known.
    """

    steps: Annotated[int, msgspec.Meta(gt=0)]
    low: float | None = None
    high: float | None = None


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scores that others have published.

    Attributes:
        name: name of the column, such as "CleanRL ppo.py".
        algorithm: this library's name of the algorithm next to whose scores it is shown.
        source: URL where the numbers stand.
        protocol: what they are, in words: runs, steps, episodes.
        scores: task -> mean return, and its standard deviation where that is published.
    """

    name: str
    algorithm: str
    source: str
    protocol: str
    scores: dict[str, Annotated[tuple[float, ...], msgspec.Meta(min_length=1, max_length=2)]]


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks on which algorithms are compared.

    Attributes:
        about: what they are.
        actions: kind of their actions, "discrete" or "continuous".
        scale: origin of the returns that count as 0 and 1.
        tasks: name of the environment -> task.
        modules: those that the tasks need.
        extra: extra of this library, which installs them.
        config: settings of all algorithms, where they have no others.
        examples: algorithm -> tuned example for the tasks that have none of their own.
        published: scores of others.
        name: name of the suite.
    """

    about: str
    actions: str
    scale: str
    tasks: dict[str, Task]
    modules: tuple[str, ...] = ()
    extra: str = ""
    config: dict[str, Any] = {}
    examples: dict[str, str] = {}
    published: tuple[Published, ...] = ()
    name: str = ""

    def task_called(self, name: str) -> str:
        """The environment of a task, which may be named without the module that makes it.

        Raises:
            ValueError: if the suite has no such task.
        """
        known = {label(task): task for task in self.tasks}
        found = known.get(label(name))
        if found is None:
            raise ValueError(
                f"the suite {self.name} has no task {name!r}.{did_you_mean(label(name), known, repr)} "
                f"Tasks: {', '.join(known)}."
            )
        return found

    def refuse_missing_packages(self) -> None:
        """Raises an ImportError if a package is missing without which no task can be made."""
        missing = [module for module in self.modules if importlib.util.find_spec(module) is None]
        if missing:
            raise ImportError(f"the suite {self.name} needs {' and '.join(missing)}: {install_hint(self.extra)}")


def label(task: str) -> str:
    """Name of a task without the module that makes it: "minigrid:MiniGrid-Unlock-v0" is MiniGrid-Unlock-v0."""
    return task.rpartition(":")[2]


def suite_names() -> list[str]:
    """Names of the suites."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def read_suite(name: str) -> Suite:
    """The suite of a name.

    Raises:
        ValueError: if there is none.
    """
    names = suite_names()
    if name not in names:
        raise ValueError(f"there is no suite {name!r}.{did_you_mean(name, names)} Suites: {', '.join(names)}.")
    content = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text())
    return msgspec.convert({**content, "name": name}, Suite)
