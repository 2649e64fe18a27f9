"""`rllib upload`: the copy of a run in remote storage, brought up to date."""

from pathlib import Path

import click

from rllib.cli.failures import Mistake, reported, storage_input
from rllib.cli.run_directory import SPEC
from rllib.cli.values import LocalPath
from rllib.notices import shown
from rllib.remote.download import refuse_hub
from rllib.remote.mirror import upload
from rllib.remote.url import is_url, place_of
from rllib.storage.local_path import local_path
from rllib.tune.experiment.directory import JOURNALS, lock_held


@click.command("upload", short_help="Bring a run's copy in remote storage up to date.")
@click.argument("run", type=LocalPath())
@click.argument("url", metavar="URL")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
def command(run: Path, url: str, verbose: bool) -> None:
    """Send what the copy at URL lacks of the directory of a run or an experiment, and remove there what is no longer
    in it. Runs with --storage-path do that by themselves; this is for what they could not send.

    \b
    rllib upload results/first s3://BUCKET/runs/first
    """
    with reported(verbose):
        journals = sorted(run.glob(JOURNALS))
        if not journals and not (run / SPEC).is_file():
            raise Mistake(f"{run} is no directory of a run or an experiment: it has neither {SPEC} nor {JOURNALS}")
        if any(map(lock_held, [run, *journals])):
            raise Mistake(f"{run} is being written; end that run first, or let it send its files: --storage-path")
        with storage_input():
            place = place_of(url)
            if not is_url(place):
                raise Mistake(f"{shown(url)} is no URL of remote storage, like s3://BUCKET/runs/{local_path(run).name}")
            refuse_hub(place)
            upload(run, place)
        click.echo(f"storage  {shown(place)}")
