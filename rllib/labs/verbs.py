"""What the commands do: train, play and export. They are imported when the simulator's application runs."""

import argparse
import json
import random
import re
import shlex
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import torch

from rllib import simulation_app
from rllib.acting.inference import Acting
from rllib.algorithms.a2c import A2C
from rllib.algorithms.base.registry import get_algorithm_class
from rllib.algorithms.pg import PG
from rllib.algorithms.ppo import PPO
from rllib.cli.checkpoints import acting_algorithm, latest, without_simulator
from rllib.cli.failures import Mistake, user_input, writing
from rllib.cli.folders import Folders
from rllib.cli.run_directory import SPEC, read_spec
from rllib.cli.spec import RunSpec
from rllib.cli.verbs.train import Flags, run_spec
from rllib.cli.verbs.train import command as train_command
from rllib.env.suites.labs import simulation as simulations
from rllib.env.suites.labs.simulation import Simulation
from rllib.evaluation.tensors.worker import TensorEpisodes
from rllib.labs.entry_points import KEYS, settings_of
from rllib.runs.naming import file_name
from rllib.serving.export import export_policy
from rllib.serving.loaded_policy import load_policy
from rllib.storage.checkpoint import read_checkpoint
from rllib.storage.local_path import local_path

# rsl_rl's, where neither the settings nor the user name one.
_SEED = 42
_STEPS_OF_PLAY = 1000
# Options that a run is started with, and keeps.
_OF_NEW_RUNS = (
    "task", "num_envs", "seed", "device", "video", "video_length", "video_interval", "run_name", "experiment_name",
    "log_root", "agent",
)  # fmt: skip


def train(lab: str, options: argparse.Namespace) -> None:
    """Trains a policy for a task, or continues a run."""
    if options.checkpoint:
        _resume(lab, options)
        return
    tasks, task = _task_of(options)
    with user_input():
        simulations.check_task(lab, task, tasks)
        found = settings_of(lab, task, options.agent, options.overrides["agent"])
    _note(f"settings: {found.source}")
    keys = found.keys
    seed = options.seed if options.seed is not None else keys.get("seed", _SEED)
    seed = random.randrange(10_000) if seed == -1 else seed
    results = Path(options.log_root) / (options.experiment_name or keys.get("experiment_name") or task)
    run_name = options.run_name or keys.get("run_name")
    name = file_name(f"{datetime.now():%Y-%m-%d_%H-%M-%S}{f'_{run_name}' if run_name else ''}")
    of_task = {**tasks, **_of_task(options, results / "videos" / name, getattr(options, "video_interval", 0))}
    of_task["seed"] = seed
    try:
        with user_input():
            simulation = getattr(simulations, lab)(task, options.num_envs, **of_task)
            config = _config(simulation, keys, of_task)
            simulation.close()
            spec = RunSpec(
                algorithm=keys["algorithm"],
                env=f"{lab}:{task}",
                config=config,
                stop={"training_iteration": options.max_iterations or keys["max_iterations"]},
                seed=seed,
                name=name,
                checkpoint_freq=keys["save_interval"],
            )
        run_spec(spec, Folders(results), Flags(False, False, False, False, False))
    finally:
        simulations.close_all()
    _show_next(lab, options.task, results / name, of_task)


def play(lab: str, options: argparse.Namespace) -> None:
    """Acts by a trained policy, and prints returns and lengths of the episodes that have ended."""
    tasks, task = _task_of(options)
    with user_input():
        simulations.check_task(lab, task, tasks)
        checkpoint = _checkpoint(lab, task, options)
        policy = load_policy(checkpoint)
        trained_in = read_checkpoint(checkpoint, only="config.json")["config.json"].get("env_config", {})
    of_task = {**tasks, **_of_task(options, checkpoint.parent / "videos" / "play", 10**9), "play": True}
    of_task |= {name: trained_in[name] for name in ("group", "clip_actions") if name in trained_in}
    if options.seed is not None:
        of_task["seed"] = random.randrange(10_000) if options.seed == -1 else options.seed
    _note(f"policy of {checkpoint}")
    try:
        with user_input():
            simulation = getattr(simulations, lab)(task, options.num_envs, **of_task)
            # With a group that the value alone reads, observations are a Dict, of which the policy needs the other.
            of_value = trained_in.get("critic_group")
            key = next(each for each in policy.observation_space.spaces if each != of_value) if of_value else None
            _refuse_other_spaces(policy, key, simulation, task)
        _play(policy, key, simulation, options)
    finally:
        simulations.close_all()
    _show_videos(of_task)


def export(lab: str, options: argparse.Namespace) -> None:
    """Writes policy.pt and policy.onnx; needs neither the simulator nor its environments."""
    with user_input():
        task = options.task.rpartition(":")[2] if options.task else ""
        checkpoint = _checkpoint(lab, task, options)
        algorithm = acting_algorithm(checkpoint, False, **without_simulator(checkpoint))
    folder = local_path(options.output) if options.output else checkpoint.parent / "exported"
    with algorithm:
        for name, format in (("policy.pt", "torchscript"), ("policy.onnx", "onnx")):
            try:
                with user_input(), writing(folder / name):
                    written = export_policy(algorithm, folder / name, format, only_actions=True)
            except ImportError as error:
                raise Mistake(str(error)) from error
            ports = ", ".join(f"{port.name} {list(port.shape)}" for port in (*written.inputs, *written.outputs))
            click.echo(f"{written.path}  {ports}, equal to the policy on {written.parity.num_rows} observations")


# ---------------------------------------------------------------------- settings


def _task_of(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The module that registers the task, as an item of env_config, and its name."""
    module, _, task = options.task.rpartition(":")
    return ({"tasks": module} if module else {}), task


def _of_task(options: argparse.Namespace, videos: Path, interval: int) -> dict[str, Any]:
    """Items of env_config that the command line names."""
    items: dict[str, Any] = {}
    if options.overrides["env"]:
        items["cfg"] = options.overrides["env"]
    if options.device:
        items["device"] = "cuda:0" if options.device == "cuda" else options.device
    if options.video:
        items["video"] = {"folder": str(videos), "length": options.video_length, "interval": interval}
    return items


def _config(simulation: Simulation, keys: Mapping[str, Any], of_task: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the algorithm for a simulation."""
    kind = get_algorithm_class(keys["algorithm"])
    stays_on_device = issubclass(kind, PPO | A2C | PG)
    adapter = {name: keys[name] for name in ("group", "critic_group", "clip_actions") if keys.get(name) is not None}
    if "critic_group" not in keys and "critic" in simulation.groups and issubclass(kind, PPO | A2C):
        adapter["critic_group"] = "critic"
    if hasattr(simulation.simulator, "episode_length_buf"):
        adapter["random_ages"] = True
    simulation.close()
    seen = Simulation(simulation.place, **adapter)
    num_envs, config = seen.num_envs, dict(keys["config"])
    if stays_on_device:
        steps = config.get("rollout_fragment_length")
        if isinstance(steps, int):
            config.setdefault("train_batch_size", num_envs * steps)
        if "train_batch_size" in config and issubclass(kind, PPO):
            config.setdefault("sgd_minibatch_size", -(-config["train_batch_size"] // keys["num_mini_batches"]))
    if "critic_group" in adapter:
        config["critic_observation_keys"] = [adapter["critic_group"]]
        config["model"] = {"vf_share_layers": False, **config.get("model", {})}
    own = {
        "env_config": {**of_task, **adapter},
        "num_rollout_workers": 0,
        "num_envs_per_worker": num_envs,
        "observation_space": seen.single_observation_space,
        "action_space": seen.single_action_space,
        "disable_env_checking": True,
        "tensor_rollouts": stays_on_device,
        "normalize_actions": False,
        "clip_actions": keys.get("clip_actions") is not None,
        "num_gpus": int(seen.device.startswith("cuda")),
    }
    seen.close()
    return {**own, **config}


def _resume(lab: str, options: argparse.Namespace) -> None:
    """Continues a run, in the task and with the settings that it has."""
    changes = {**options.overrides["agent"]}
    changes |= changes.pop("config", {})
    stop = options.max_iterations or changes.pop("max_iterations", None)
    every = changes.pop("save_interval", None)
    given = [f"--{name}" for name in _OF_NEW_RUNS if name in options.typed]
    given += [f"env.{name}" for name in options.overrides["env"]]
    given += [f"agent.{name}" for name in KEYS if name in changes]
    if given:
        raise Mistake(f"--checkpoint continues a run with what it was started with; leave out {', '.join(given)}")
    run = local_path(options.checkpoint)
    run = run.parent if not (run / SPEC).is_file() and (run.parent / SPEC).is_file() else run
    words = [f"{name}={json.dumps(value)}" for name, value in changes.items()]
    words += ["--stop", f"iterations={stop}"] if stop else []
    words += ["--checkpoint-freq", str(every)] if every is not None else []
    try:
        train_command.main(["--resume", str(run), *words], prog_name="rllib train", standalone_mode=False)
    finally:
        simulations.close_all()
    spec = read_spec(run)
    of_task = spec.config["env_config"]
    module = f"{of_task['tasks']}:" if "tasks" in of_task else ""
    _show_next(lab, f"{module}{str(spec.env).partition(':')[2]}", run, of_task)


def _show_next(lab: str, task: str, run: Path, of_task: Mapping[str, Any]) -> None:
    """Prints where videos are, and the commands for the run's policy."""
    _show_videos(of_task)
    for verb in ("play", "export"):
        click.echo(f"{verb:<11} python -m rllib.{lab} {verb} --task {task} --checkpoint {shlex.quote(str(run))}")


def _checkpoint(lab: str, task: str, options: argparse.Namespace) -> Path:
    """The checkpoint that is named, or that of the newest run of the task.

    Raises:
        Mistake: if there is none.
    """
    if options.checkpoint:
        return local_path(latest(local_path(options.checkpoint)))
    root, folder = Path(options.log_root), options.experiment_name or "*"
    # "X-Play-v0" of Isaac Lab is the task "X-v0" as it is for watching.
    trained_in = {f'"{lab}:{task}"', f'"{lab}:{task.replace("-Play", "")}"'}
    runs = [
        path.parent
        for path in root.glob(f"{folder}/*/{SPEC}")
        if not trained_in.isdisjoint(re.findall(r'"[^"]*"', path.read_text()))
    ]
    runs = [run for run in runs if any(re.fullmatch(r"checkpoint_\d+", each.name) for each in run.iterdir())]
    if not runs:
        raise Mistake(f"there is no run of {task} with a checkpoint below {root / folder}. Name one: --checkpoint PATH")
    return local_path(latest(max(runs, key=lambda run: run.name)))


def _show_videos(of_task: Mapping[str, Any]) -> None:
    if video := of_task.get("video"):
        click.echo(f"videos      {video['folder']}")


# ---------------------------------------------------------------------- acting


def _refuse_other_spaces(policy: Acting, key: str | None, simulation: Simulation, task: str) -> None:
    """Raises a ValueError where the policy was trained with other observations or actions."""
    observed = policy.observation_space if key is None else policy.observation_space[key]
    for kind, own, given in (
        ("observations", observed, simulation.single_observation_space),
        ("actions", policy.action_space, simulation.single_action_space),
    ):
        if own.shape != given.shape:
            raise ValueError(f"the policy has {kind} of the space {own}, but {task} has {given}")


def _rows(observations: Any, count: int) -> list:
    """The observations of the environments one by one; of groups that are dicts, dicts."""
    if isinstance(observations, Mapping):
        parts = {name: _rows(part, count) for name, part in observations.items()}
        return [{name: part[index] for name, part in parts.items()} for index in range(count)]
    return list(observations.cpu().numpy())


def _play(policy: Acting, key: str | None, simulation: Simulation, options: argparse.Namespace) -> None:
    count, device, steps = simulation.num_envs, torch.device(simulation.device), 0
    episodes, step_s = TensorEpisodes(count, device), _step_s(simulation)
    observations, _ = simulation.reset(seed=options.seed if options.seed not in (None, -1) else None)
    try:
        while _goes_on(options, steps):
            started = time.perf_counter()
            seen = observations if key is None else {key: observations}
            actions = torch.as_tensor(policy.compute_actions(_rows(seen, count), explore=False), device=device)
            observations, rewards, terminated, truncated, _ = simulation.step(actions)
            episodes.add_fragment(rewards[None], (terminated | truncated)[None])
            steps += 1
            if options.real_time:
                time.sleep(max(0.0, step_s - (time.perf_counter() - started)))
    except KeyboardInterrupt:
        _note("interrupted")
    ended = list(episodes.pop_finished())
    if not ended:
        click.echo(f"{steps} steps of {count} environments, in which no episode has ended")
        return
    returns, lengths = ([getattr(each, name) for each in ended] for name in ("episode_return", "length"))
    click.echo(f"episodes    {len(ended)} in {steps} steps of {count} environments")
    click.echo(f"return      {sum(returns) / len(ended):.2f} on average")
    click.echo(f"length      {sum(lengths) / len(ended):.1f} steps on average")


def _goes_on(options: argparse.Namespace, steps: int) -> bool:
    """Whether there is a further step: up to --num_steps or a video's length, or until the window closes."""
    bound = options.num_steps or (options.video_length if options.video else None)
    if bound is None and simulation_app.is_running() and not getattr(options, "headless", False):
        return simulation_app.start().is_running()
    return steps < (bound or _STEPS_OF_PLAY)


def _step_s(simulation: Simulation) -> float:
    """Seconds of the robot's time in a step; 0 where the simulator does not say."""
    return float(getattr(simulation.simulator, "step_dt", 0.0))


def _note(text: str) -> None:
    click.echo(f"[rllib] {text}")
