"""Simulations of Isaac Lab and mjlab as environments: each stays open, since starting one takes a minute or more."""

import importlib
import importlib.util
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import torch

from rllib import simulation_app
from rllib.env.suites.labs.task_config import change
from rllib.env.suites.refusals import refuse_unknown_keys, unknown_id
from rllib.env.tensors.adapters import AsVectorEnv

# Keys of env_config: arguments of AsVectorEnv, and what a simulation is made with.
_OF_ADAPTER = ("group", "critic_group", "clip_actions", "random_ages")
_OF_TASK = ("cfg", "device", "play", "seed", "tasks", "video")


class _Open:
    """A simulation of this process.

    Attributes:
        made_with: everything that decides what it is.
        env: the simulator's own environment.
        is_used: whether a `Simulation` uses it.
    """

    def __init__(self, made_with: tuple, env: Any):
        self.made_with, self.env, self.is_used = made_with, env, False


_open: list[_Open] = []


class Simulation(AsVectorEnv):
    """A running simulation. Its close() leaves the simulator open for the next one who asks for the same (`close_all`).

    Attributes:
        place: of the simulator, for another one with other options.
        groups: of the observations that the simulator gives.
        device: device of its tensors.
    """

    def __init__(self, place: _Open, **options: Any):
        super().__init__(place.env, **options)
        self.place, place.is_used = place, True
        self.groups = list(getattr(self.simulator.single_observation_space, "spaces", ()))
        self.device = str(self.simulator.device)

    def close_extras(self, **kwargs) -> None:
        self.place.is_used = False


def close_all() -> None:
    """Ends all simulations of this process."""
    while _open:
        _open.pop().env.close()


def isaaclab(env_id: str, num_envs: int | None, **env_config: Any) -> Simulation:
    """A task of Isaac Lab. Starts its application without a window, unless it runs; a process has one simulation.

    Args:
        env_id: id in gymnasium's registry.
        num_envs: number of environments; None: the task's own.
        env_config: "device" ("cuda:0" where there is a GPU); "seed"; "cfg", changes of the task's configuration by
            field; "tasks", a module that registers tasks; "video", {"folder", "length", "interval"}; and arguments of
            AsVectorEnv. "play" has no effect: tasks for watching have names of their own.

    Raises:
        ImportError: if Isaac Lab is not installed.
        ValueError: for an unknown task, key or field, or if the process has another simulation.
    """
    check_task("isaaclab", env_id, env_config)

    def make(device: str, video: Mapping[str, Any] | None) -> Any:
        if video is not None and importlib.util.find_spec("moviepy") is None:
            raise ValueError("videos of Isaac Lab's tasks need MoviePy: pip install moviepy")
        config = importlib.import_module("isaaclab_tasks.utils").parse_env_cfg(env_id, device=device, num_envs=num_envs)
        _change(config, env_config)
        env = gymnasium.make(env_id, cfg=config, render_mode="rgb_array" if video else None)
        return env if video is None else gymnasium.wrappers.RecordVideo(env, **_recording(video))

    return _shared("isaaclab", env_id, num_envs, env_config, make, alone=True)


def mjlab(env_id: str, num_envs: int | None, **env_config: Any) -> Simulation:
    """A task of mjlab; arguments and errors as for `isaaclab`. "play": the task as it is for watching a policy."""
    check_task("mjlab", env_id, env_config)

    def make(device: str, video: Mapping[str, Any] | None) -> Any:
        registry = importlib.import_module("mjlab.tasks.registry")
        config = registry.load_env_cfg(env_id, play=bool(env_config.get("play")))
        if num_envs is not None:
            config.scene.num_envs = num_envs
        _change(config, env_config)
        if getattr(getattr(config, "commands", {}).get("motion"), "motion_file", None) == "":
            raise ValueError(
                f"mjlab:{env_id} tracks a motion. Name its file: env.commands.motion.motion_file=PATH, or in "
                'env_config "cfg": {"commands": {"motion": {"motion_file": PATH}}}.'
            )
        kind = importlib.import_module("mjlab.envs").ManagerBasedRlEnv
        env = kind(cfg=config, device=device, render_mode="rgb_array" if video else None)
        if video is None:
            return env
        return importlib.import_module("mjlab.utils.wrappers").VideoRecorder(env, **_recording(video))

    return _shared("mjlab", env_id, num_envs, env_config, make, alone=False)


def check_task(lab: str, task: str, env_config: Mapping[str, Any]) -> None:
    """Imports what registers tasks, and checks a task's name and the keys of its env_config.

    Raises:
        ImportError: if the lab is not installed.
        ValueError: for an unknown one, with the nearest; if the module that env_config names cannot be imported.
    """
    refuse_unknown_keys(f"{lab}:{task}", env_config, (*_OF_ADAPTER, *_OF_TASK))
    if lab == "isaaclab":
        simulation_app.start()  # its tasks can be imported afterwards alone
    importlib.import_module("isaaclab_tasks" if lab == "isaaclab" else "mjlab.tasks")
    if users := env_config.get("tasks"):
        try:
            importlib.import_module(users)
        except ImportError as error:
            raise ValueError(
                f"the module {users!r}, which is to register tasks, cannot be imported: {error}"
            ) from error
    if lab == "isaaclab":
        known = [spec.id for spec in gymnasium.registry.values() if "env_cfg_entry_point" in spec.kwargs]
    else:
        known = importlib.import_module("mjlab.tasks.registry").list_tasks()
    if task not in known:
        raise unknown_id(lab, task, known)


def _shared(
    lab: str,
    task: str,
    num_envs: int | None,
    env_config: Mapping[str, Any],
    make: Callable[[str, Mapping[str, Any] | None], Any],
    alone: bool,
) -> Simulation:
    """The simulation that is open and free, or a new one.

    Args:
        lab, task, num_envs, env_config: as above.
        make: makes the environment on a device, and records videos of it.
        alone: whether a process has one simulation.

    Raises:
        ValueError: if the process has another one, or this one is in use.
    """
    options = {name: env_config[name] for name in _OF_ADAPTER if name in env_config}
    asked = lab, task, repr(sorted((name, env_config[name]) for name in _OF_TASK if name in env_config))
    for place in _open:
        if place.made_with == asked and num_envs in (None, _num_envs(place)) and not place.is_used:
            return Simulation(place, **options)
    if alone and _open:
        in_use = ", which is in use" if _open[0].is_used else ""
        raise ValueError(
            f"{lab}:{task} with {num_envs or 'its'} environments cannot be made: a process has one simulation, and "
            f"this one has {_open[0].made_with[1]} with {_num_envs(_open[0])} environments{in_use}. Leave out "
            "evaluation during training, and evaluate in a separate process: python -m rllib.isaaclab play."
        )
    device = env_config.get("device") or ("cuda:0" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f'device={device!r}, but torch sees no GPU here. Use device="cpu", or install torch for CUDA.')
    place = _Open(asked, make(device, env_config.get("video")))
    _open.append(place)
    return Simulation(place, **options)


def _num_envs(place: _Open) -> int:
    return getattr(place.env, "unwrapped", place.env).num_envs


def _change(config: Any, env_config: Mapping[str, Any]) -> None:
    """Sets the seed and the fields that env_config names in a task's configuration."""
    if env_config.get("seed") is not None:
        config.seed = env_config["seed"]
    change(config, env_config.get("cfg") or {}, "env")


def _recording(video: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a recorder: a video of `length` steps whenever `interval` steps have passed.

    Recorders count steps from 0 on, so in a folder with videos theirs get another prefix.
    """
    folder, interval = Path(video["folder"]), video["interval"]
    prefixes = itertools.chain(["rl-video"], (f"rl-video-{number}" for number in itertools.count(2)))
    return {
        "video_folder": str(folder),
        "name_prefix": next(each for each in prefixes if not any(folder.glob(f"{each}-step-*"))),
        "step_trigger": lambda step: step % interval == 0,
        "video_length": video["length"],
        "disable_logger": True,
    }
