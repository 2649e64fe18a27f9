"""What the settings of a file reach outside of it: paths that are written to, addresses and programs.

Those of a file that somebody else may have written are refused, unless the user gives them again.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.algorithms.base.recorded.settings import IN_CONFIG, LOG_DIR
from rllib.env.factories.registry import program_keys
from rllib.env.policy_server.server_settings import ZEROMQ
from rllib.env.suites.table import starts_simulator
from rllib.policies import own_settings_of
from rllib.remote.url import is_url, place_of
from rllib.replay.disk import DISK, MEMORY
from rllib.replay.gpu import GPU
from rllib.runs.trackers import TRACKERS
from rllib.storage.checkpoint import (
    CheckpointError,
)
from rllib.storage.foreign_files import refuse_links
from rllib.storage.local_path import expanded, local_path
from rllib.web.sockets import host_and_port, is_loopback


class SettingsOfFile(dict):
    """Settings that an earlier command has noted in a file: what they reach must be given again, as a checkpoint's."""


def is_equal(saved: Any, own: Any) -> bool:
    """Whether two settings are equal; saved ones have lists in place of tuples."""
    if isinstance(saved, Mapping) and isinstance(own, Mapping):
        return saved.keys() == own.keys() and all(is_equal(value, own[name]) for name, value in saved.items())
    if isinstance(saved, list | tuple) and isinstance(own, list | tuple):
        return len(saved) == len(own) and all(map(is_equal, saved, own))
    return saved == own


class _Reach(NamedTuple):
    """What the settings of a file reach outside of the file.

    Attributes:
        name: the setting.
        value: its value, or the part of it that counts.
        effect: what happens there, a clause.
        place: path that is written to, relative to where the run works; None: it is no path.
    """

    name: str
    value: Any
    effect: str
    place: str | os.PathLike | None = None

    def is_meant_by(self, given: "_Reach") -> bool:
        """Whether a setting that the user gave reaches the same."""
        if self.place is not None:
            return self.place == given.place
        return self.name == given.name and is_equal(self.value, given.value)


def refuse_places(
    settings: Sequence[Mapping[str, Any]],
    directory: Path,
    given: Iterable[Mapping[str, Any]],
    what: str,
    works_in: Path | None = None,
) -> None:
    """Refuses settings of a file that name a path to write to outside of the run's directory, an address, or a program.

    Addresses are those of trackers, of teachers, and those that other machines can connect to. Paths that are only
    read are not refused.

    Args:
        settings: configs to which the file may lead; dicts of settings by their names here, where there is no config.
        directory: directory of the run.
        given: the same of the settings that do not come from the file: what they name is not refused.
        what: description of the file, for error messages.
        works_in: directory from which relative paths lead, of the processes that write; None: the present one.

    Raises:
        CheckpointError: if there is such a setting.
        DamagedFileError: if links lead out of a directory of the run that is written to.
    """

    def resolved(reach: _Reach) -> _Reach:
        if reach.place is None:
            return reach
        return reach._replace(place=local_path(Path(works_in or "", expanded(reach.place))).resolve())

    named = [resolved(reach) for each in settings for reach in _reaches(each)]
    # Else nothing is written to the path of output_config.
    to_path_in_config = any(each.get("output", None) == IN_CONFIG for each in settings)
    meant = [resolved(reach) for each in given for reach in _reaches(each, is_given=True)] if named else []
    for reach in named:
        if reach.name == "output_config" and not to_path_in_config:
            continue
        if reach.place is not None and is_inside(reach.place, directory):
            if reach.place.is_dir():
                refuse_links(reach.place)
        elif not any(map(reach.is_meant_by, meant)):
            where = "" if reach.place is None else f", outside of {directory}"
            raise CheckpointError(
                f"{what} has {reach.name}={reach.value!r:.200}, and {reach.effect}{where}. If that is meant, give "
                f"{reach.name} again, or use load_user_code (--load-user-code) if you trust its origin."
            )


def is_inside(place: str | os.PathLike, directory: Path) -> bool:
    return local_path(place).resolve().is_relative_to(directory.resolve())


# Setting that names a path to write to -> the key of its dict that does (None: its value), and words that are no paths.
_PLACES: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "log_dir": (None, ()),
    "output": (None, (LOG_DIR, IN_CONFIG)),
    "output_config": ("path", ()),
    "replay_buffer_config": ("storage", (MEMORY, GPU, DISK)),
}
_WRITTEN = "files are written there"


def _reaches(settings: Mapping[str, Any], is_given: bool = False) -> Iterator[_Reach]:
    """What settings reach, those that policies have of their own too.

    Args:
        settings: a config, or a dict of settings by their names here.
        is_given: whether they are all that the user gave: its env_config may be of an environment in the file.
    """
    for name, (key, words) in _PLACES.items():
        value = settings.get(name, None)
        place = value if key is None else value.get(key) if isinstance(value, Mapping) else None
        if isinstance(place, str | os.PathLike) and place not in words:
            yield _Reach(name, value if key is None else {key: place}, _WRITTEN, place)
    for name in TRACKERS:
        if isinstance(options := settings.get(name, None), Mapping):
            yield _Reach(name, options, "results are sent there")
    if isinstance(address := settings.get("listen", None), str) and not _is_of_this_machine(address):
        yield _Reach("listen", address, "other machines can connect there")
    teacher = None if getattr(settings, "leaves_teachers_alone", False) else settings.get("teacher", None)
    for each in teacher.values() if isinstance(teacher, Mapping) else (teacher,):
        if isinstance(each, str) and _is_url(each):
            yield _Reach("teacher", each, "it is read from this address")
    yield from _reaches_of_environment("env_config", settings.get("env", None), settings, is_given)
    if isinstance(evaluation := settings.get("evaluation_config", None), Mapping):
        env = evaluation.get("env", settings.get("env", None))
        yield from _reaches_of_environment("evaluation_config", env, evaluation, is_given)
    policies = settings.get("policies", None)
    for spec in policies.values() if isinstance(policies, Mapping) else ():
        if own := own_settings_of(spec):
            own = settings.values_in(own) if isinstance(settings, AlgorithmConfig) else own
            asks_none = getattr(settings, "leaves_teachers_alone", False)
            yield from _reaches({name: value for name, value in own.items() if not (asks_none and name == "teacher")})


def _reaches_of_environment(name: str, env: Any, settings: Mapping[str, Any], is_given: bool) -> Iterator[_Reach]:
    """What the env_config of settings reaches by this environment.

    Args:
        name: name of the setting, for messages.
    """
    given = settings.get("env_config", None)
    if not isinstance(given, Mapping):
        return
    for key in given if is_given else program_keys(env):
        if given.get(key):
            yield _Reach(name, {key: given[key]}, "a program is started with it")
    folder = video.get("folder") if isinstance(video := given.get("video"), Mapping) else None
    if isinstance(folder, str | os.PathLike) and (is_given or starts_simulator(env)):
        yield _Reach(name, {"video": video}, _WRITTEN, folder)


def _is_of_this_machine(address: str) -> bool:
    """Whether only programs of this machine reach a value of `listen`; a value of another form is refused later."""
    try:
        return is_loopback(host_and_port(address.removeprefix(ZEROMQ))[0])
    except ValueError:
        return True


def _is_url(text: str) -> bool:
    try:
        return is_url(place_of(text))
    except ValueError:  # nothing is read from it
        return False
