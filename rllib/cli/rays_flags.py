"""Options of Ray's commands without a counterpart: accepted where nothing is lost, else refused with what to do."""

import os
from collections.abc import Callable
from functools import partial

import click

from rllib.cli.failures import Mistake

_CLUSTER = "RUNTIME_ENGINE=ray trains on a Ray cluster (docs/scale/runtime.md)"
# Option that changes nothing -> why.
_WITHOUT_EFFECT = {
    "--ray-num-cpus": "all cores of this machine are used; num_rollout_workers=4 sets the processes that sample",
    "--ray-num-gpus": "all GPUs of this machine are found; num_gpus=1 gives the learner one",
    "--ray-num-nodes": _CLUSTER,
    "--ray-object-store-memory": "shared memory grows with what is in it",
}
# Option that is refused -> what to do.
_INSTEAD = {
    "--ray-address": _CLUSTER,
    "--redis-address": _CLUSTER,
}
_REFUSED_SWITCHES = {"--eager": "there is no TensorFlow", "--trace": "there is no TensorFlow"}


def rays_options(command: Callable) -> Callable:
    """Adds these options to a command, which does not get their values."""
    for option, why in _WITHOUT_EFFECT.items():
        command = _hidden(option, partial(_print, f"{option} has no effect here: {why}."))(command)
    for option, why in _INSTEAD.items():
        command = _hidden(option, partial(_refuse, f"{option} cannot be used: {why}."))(command)
    for option, why in _REFUSED_SWITCHES.items():
        command = _hidden(option, partial(_refuse, f"{option} cannot be used: {why}."), is_flag=True)(command)
    return _hidden("--local-mode", _stay_in_this_process, is_flag=True)(command)


def _hidden(option: str, action: Callable[[], None], is_flag: bool = False) -> Callable:
    def used(context: click.Context, parameter: click.Parameter, value) -> None:
        if value:
            action()

    return click.option(option, is_flag=is_flag, expose_value=False, hidden=True, callback=used)


def _print(message: str) -> None:
    click.echo(message, err=True)


def _refuse(message: str) -> None:
    raise Mistake(message)


def _stay_in_this_process() -> None:
    os.environ["RUNTIME_ENGINE"] = "local"
