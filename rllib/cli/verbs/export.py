"""`rllib export`: a trained policy as one file that does not need rllib."""

from pathlib import Path

import click

from rllib.algorithms.base.algorithm import Algorithm
from rllib.cli.checkpoints import PLACE, acting_algorithm, latest, next_to, without_simulator
from rllib.cli.failures import Mistake, reported, user_input, writing
from rllib.cli.user_code import load_user_code_option
from rllib.cli.values import LocalPath
from rllib.serving.export import (
    FORMATS,
    WEIGHTS_FORMAT,
    WEIGHTS_SUFFIX,
    ExportError,
    checked_format,
    export_policy,
    export_weights,
)
from rllib.serving.exported_policy import Port
from rllib.serving.loaded_policy import load_policy, policy_ids
from rllib.storage.local_path import local_path

EXIT_CHECK_FAILED = 3


class DiffersError(click.ClickException):
    """The outputs of the export differ from the policy's."""

    exit_code = EXIT_CHECK_FAILED


@click.command("export", short_help="Write a policy as a file for torch or ONNX.")
@click.argument("checkpoint", type=PLACE)
@click.option(
    "--format",
    "format_",
    type=click.Choice([*FORMATS, WEIGHTS_FORMAT]),
    help="safetensors: the weights by name, without the program [default: by the ending of --output, else torch].",
)
@click.option("-o", "--output", type=LocalPath(), help="The file; the ending of the format is added "
              "unless it has it [default: next to the checkpoint].")  # fmt: skip
@click.option("--policy", help="Which one, where CHECKPOINT holds several.")
@click.option("--no-verify", is_flag=True, help="Do not compare the file with the policy.")
@load_user_code_option("CHECKPOINT")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
def command(checkpoint, format_, output, policy, no_verify, load_user_code, verbose) -> None:
    """Write the policy of CHECKPOINT, or of the last checkpoint of a run's directory, as one file: a torch program
    (.pt2), an ONNX graph (.onnx), TorchScript (.pt), or its weights by name (.safetensors). The first three read
    observations and write actions in the environment's own units, with filter and mask inside, and need no rllib;
    the first two have the memory inside as well, and TorchScript is for policies without one.
    """
    with reported(verbose):
        checkpoint = local_path(latest(checkpoint))
        with user_input():
            format_ = checked_format(output or "", format_)
        if format_ == WEIGHTS_FORMAT:
            output = output or _beside(checkpoint, policy, WEIGHTS_SUFFIX)
            with user_input(), writing(output):
                path = export_weights(load_policy(checkpoint, policy, load_user_code=load_user_code).policy, output)
            click.echo(_size_of(path))
            return
        output = output or _beside(checkpoint, policy, FORMATS[format_].suffix)
        with user_input():
            algorithm = acting_algorithm(checkpoint, load_user_code, **without_simulator(checkpoint))
        with algorithm:
            policy = policy or _only_policy(algorithm)
            try:
                with user_input(), writing(output):
                    export = export_policy(algorithm, output, format_, policy_id=policy, verify=not no_verify)
            except ImportError as error:
                raise Mistake(str(error)) from error
            except Mistake as mistake:
                if isinstance(mistake.__cause__, ExportError) and mistake.__cause__.is_difference:
                    raise DiffersError(str(mistake)) from mistake
                raise
    click.echo(_size_of(export.path))
    click.echo(f"reads   {', '.join(map(_described, export.inputs))}")
    click.echo(f"writes  {', '.join(map(_described, export.outputs))}")
    if export.parity is not None:
        worst = max(export.parity.max_error.values())
        click.echo(f"equal   to the policy on {export.parity.num_rows} observations (largest difference {worst:.1g})")


def _beside(checkpoint: Path, policy_id: str | None, suffix: str) -> Path:
    """Default path of an export; it has the policy's id where the checkpoint holds several."""
    with user_input():
        is_alone = policy_id is None or len(policy_ids(checkpoint)) == 1
    return next_to(checkpoint, checkpoint.name + ("" if is_alone else f"_{policy_id}") + suffix)


def _only_policy(algorithm: Algorithm) -> str:
    ids = list(algorithm.policies)
    if len(ids) > 1:
        raise Mistake(f"the checkpoint has several policies; choose one with --policy: {', '.join(ids)}")
    return ids[0]


def _size_of(path: Path) -> str:
    return f"{path}  {path.stat().st_size / 2**20:.2f} MiB"


def _described(port: Port) -> str:
    return f"{port.name} {port.dtype}[{', '.join(['batch', *map(str, port.shape)])}]"
