"""The command line of `python -m rllib.isaaclab` and `python -m rllib.mjlab`.

Options have the names of Isaac Lab's own scripts (scripts/reinforcement_learning of isaac-sim/IsaacLab, 2.3). Isaac
Lab's application starts before torch and gymnasium are imported, so this module imports neither, and the verbs
(verbs.py) afterwards.
"""

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from rllib import simulation_app
from rllib.cli.failures import EXIT_MISTAKE, Mistake, reported, user_input
from rllib.cli.values import parse_assignments
from rllib.did_you_mean import did_you_mean

VERBS = ("train", "play", "export")
# Name of the keyword of a task's registration that holds this library's settings.
ENTRY_POINT = "rllib_cfg_entry_point"
_INSTALL = {
    "isaaclab": "Isaac Lab is not installed in this environment. Follow its installation guide, and install this "
    "library into the same environment",
    "mjlab": "mjlab is not installed in this environment: pip install mjlab",
}


def main(lab: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command, and ends the process with its exit code.

    Args:
        lab: "isaaclab" or "mjlab".
        arguments: as they are typed; by default those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    verb = given.pop(0) if given and given[0] in VERBS else "train"
    code = 1
    try:
        with click.Context(click.Command("labs")), reported("--verbose" in given):
            _run(lab, verb, given)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else EXIT_MISTAKE
    finally:
        simulation_app.close(code)
    sys.exit(code)


def _run(lab: str, verb: str, given: list[str]) -> None:
    parser = _parser(lab, verb)
    launcher = _add_launcher(parser) if lab == "isaaclab" and verb != "export" else None
    if not launcher:
        parser.add_argument("--verbose", action="store_true", help="show tracebacks of errors")
    if lab == "mjlab" and verb != "export":
        parser.add_argument("--device", help="cpu, cuda or cuda:N [default: cuda:0 where there is a GPU]")
    options, rest = parser.parse_known_args(given)
    options.typed = {word.partition("=")[0].lstrip("-") for word in given if word.startswith("--")}
    options.overrides = _overrides(parser, rest)
    _refuse(options, verb)
    if verb == "export":
        importlib.import_module("rllib.labs.verbs").export(lab, options)
        return
    package = "isaaclab.app" if lab == "isaaclab" else "mjlab"
    if not launcher and not _is_installed(package):
        raise Mistake(f"{_INSTALL[lab]}. (`export` needs no simulator.)")
    if launcher:
        options.enable_cameras = getattr(options, "enable_cameras", False) or options.video
        typed, sys.argv = sys.argv, sys.argv[:1]  # the application would read the rest
        simulation_app.start(options)
        sys.argv = typed
    verbs = importlib.import_module("rllib.labs.verbs")
    verbs.train(lab, options) if verb == "train" else verbs.play(lab, options)


def _parser(lab: str, verb: str) -> argparse.ArgumentParser:
    about = {
        "train": "Train on a task. Overrides: env.FIELD=VALUE of the task's configuration, agent.SETTING=VALUE of the "
        "settings. With --checkpoint a run continues.",
        "play": "Act by a trained policy, without exploration, and print what episodes return.",
        "export": "Write policy.pt (TorchScript) and policy.onnx, with the observation filter inside.",
    }
    parser = argparse.ArgumentParser(prog=f"python -m rllib.{lab} {verb}", description=about[verb], allow_abbrev=False)
    parser.add_argument("--task", metavar="TASK", help="name of the task; MODULE:TASK imports the module first")
    parser.add_argument("--checkpoint", metavar="PATH", help="run or checkpoint [default: the task's newest run]")
    parser.add_argument("--experiment_name", metavar="NAME", help="folder of the runs [default: the settings' own]")
    parser.add_argument("--log_root", metavar="DIR", default="logs/rllib", help="folder of the experiments")
    parser.add_argument(
        "--agent",
        metavar="KEY",
        default=ENTRY_POINT,
        help="keyword of the registration with settings, MODULE:FILE.yaml, MODULE:NAME or a file",
    )
    if verb == "export":
        parser.add_argument("--output", metavar="DIR", help="folder of the files [default: exported/ of the run]")
        return parser
    parser.add_argument("--num_envs", type=int, metavar="N", help="environments [default: the task's own]")
    parser.add_argument("--seed", type=int, metavar="N", help="seed; -1 draws one [default: the settings' own, or 42]")
    parser.add_argument("--video", action="store_true", help="record videos")
    parser.add_argument("--video_length", type=int, default=200, metavar="STEPS", help="of a video")
    if verb == "train":
        parser.add_argument("--max_iterations", type=int, metavar="N", help="iterations [default: the settings' own]")
        parser.add_argument("--run_name", metavar="NAME", help="end of the run's name")
        parser.add_argument("--video_interval", type=int, default=2000, metavar="STEPS", help="between videos")
        parser.add_argument("--distributed", action="store_true", help=argparse.SUPPRESS)
    else:
        parser.add_argument("--real-time", action="store_true", help="no faster than the robot")
        parser.add_argument("--num_steps", type=int, metavar="N", help="[default: until the window closes, or 1000]")
    return parser


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _add_launcher(parser: argparse.ArgumentParser) -> bool:
    """Adds the options of Isaac Lab's application; False where it is not installed."""
    if not _is_installed("isaaclab.app"):
        parser.add_argument("--headless", action="store_true", help="no window")
        parser.add_argument("--device", help="cpu, cuda or cuda:N")
        return False
    importlib.import_module("isaaclab.app").AppLauncher.add_app_launcher_args(parser)
    return True


def _overrides(parser: argparse.ArgumentParser, rest: Sequence[str]) -> dict[str, dict]:
    """The overrides "env" and "agent", each as nested mappings.

    Raises:
        Mistake: for anything else.
    """
    for each in rest:
        if each.startswith("-"):
            known = [option for action in parser._actions for option in action.option_strings]
            hint = did_you_mean(each.partition("=")[0], known, otherwise=f"--help lists the options of {parser.prog}.")
            raise Mistake(f"there is no option {each}.{hint}")
        if not each.startswith(("env.", "agent.")) or "=" not in each:
            raise Mistake(f"{each!r} is no override: they are env.FIELD=VALUE and agent.SETTING=VALUE.")
    with user_input():
        found = parse_assignments(rest, "env.episode_length_s=10 or agent.lr=1e-3")
    return {"env": found.get("env", {}), "agent": found.get("agent", {})}


def _refuse(options: argparse.Namespace, verb: str) -> None:
    if verb != "export" and options.task is None and not (verb == "train" and options.checkpoint):
        raise Mistake("say which task: --task NAME")
    if verb == "export" and not (options.task or options.checkpoint):
        raise Mistake("say what to export: --checkpoint PATH, or the --task whose newest run is meant")
    if getattr(options, "distributed", False):
        raise Mistake("--distributed is not available: rollouts of tensors are on one GPU. Leave it out.")
    for name in ("num_envs", "max_iterations", "video_length", "video_interval", "num_steps"):
        value = getattr(options, name, None)
        if value is not None and value < 1:
            raise Mistake(f"--{name} {value} must be at least 1")
    if getattr(options, "seed", None) is not None and options.seed < -1:
        raise Mistake(f"--seed {options.seed} must be 0 or more, or -1, which draws one")
