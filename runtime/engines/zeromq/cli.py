"""The command `runtime`: what happens in a running session, seen from another terminal."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ...errors import RuntimeFailure
from ...session import engine, init, shutdown
from .session.joining import RunningSession
from .system.interrupts import interruptible
from .system.stack_files import read_stacks
from .system.trace_files import read_events

if TYPE_CHECKING:
    from .client.client import Client

ADDRESS = click.option(
    "--address", default="session", show_default=True, help="Directory of the session; 'session': the newest one."
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")


class _Commands(click.Group):
    """Commands that end in words where what they print cannot be written, on a full disk for instance."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of the output has gone; click ends quietly
        except OSError as error:
            raise click.ClickException(f"{type(error).__name__}: {error}") from error


@click.group(cls=_Commands)
def main() -> None:
    """Looks into a running session of this user, from another terminal."""


@contextlib.contextmanager
def _observed(address) -> Iterator[Client]:
    """The engine of this process, while it is joined to the session."""
    try:
        init("zeromq", address=address)
    except (ConnectionError, RuntimeError, RuntimeFailure, ValueError) as error:
        raise click.ClickException(str(error)) from None
    try:
        yield engine()
    finally:
        shutdown()


def _directory(address) -> str:
    """The directory of a session that need not answer."""
    try:
        session = RunningSession(address)
    except (ConnectionError, RuntimeError) as error:
        raise click.ClickException(str(error)) from None
    session.close()
    return session.session


@main.command()
@ADDRESS
@AS_JSON
def status(address: str, as_json: bool) -> None:
    """Resources, processes with what they run, and what waits."""
    with _observed(address) as session:
        found = session.status()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo("resources")
    for name, total in found["resources"].items():
        free = found["available"].get(name, 0)
        click.echo(f"  {name}: {_amount(name, total - free)} of {_amount(name, total)} in use")
    memory = found["memory"]
    click.echo(f"  objects: {_megabytes(memory['used'])} of {_megabytes(memory['quota'])} in use\n")
    rows = [("PID", "KIND", "RUNS", "STATE", "HOLDS")]
    for process in found["processes"]:
        holds = ", ".join(f"{name}: {_amount(name, amount)}" for name, amount in process["holds"].items())
        rows.append((str(process["pid"]), process["kind"], process["runs"], process["state"], holds))
    _table(rows)
    for waiting in found["waiting"]:
        needs = ", ".join(f"{name}: {_amount(name, amount)}" for name, amount in waiting["needs"].items()) or "a worker"
        click.echo(f"waiting: {waiting['count']} x {waiting['what']}, each needs {needs}")
    for group in found["placement_groups"]:
        if group["state"] != "REMOVED":
            click.echo(f"placement group {group['name'] or group['placement_group_id']}: {group['state']}")


@main.command()
@ADDRESS
def stack(address: str) -> None:
    """Show the stacks of the threads of all processes, even if they hang."""
    for pid, (name, text) in read_stacks(_directory(address)).items():
        click.echo(f"== {name}, process {pid}\n{text}\n")


@main.command()
@ADDRESS
@AS_JSON
def memory(address: str, as_json: bool) -> None:
    """Shared objects and memory, and who holds them."""
    with _observed(address) as session:
        found = session.memory()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    names = {p["number"]: f"{p['runs'] or p['kind']} ({p['pid']})" for p in found["processes"]}
    rows = [("OBJECT", "KIND", "SIZE", "MADE BY", "HELD BY")]
    sizes = {segment["segment"]: segment["bytes"] for segment in found["segments"]}
    for item in found["objects"]:
        size = sizes.get(item["segment"], item["bytes"])
        holders = ", ".join(str(names.get(holder, holder)) for holder in item["holders"])
        made_by = names.get(item["creator"], "a process that has ended")
        rows.append((item["id"], item["kind"], "" if size is None else _megabytes(size), made_by, holders))
    _table(rows)
    click.echo("\nShared memory of each process, including blocks that only it knows and free blocks for reuse:")
    totals: dict[str, int] = {}
    for segment in found["segments"]:
        maker = names.get(segment["creator"], "processes that have ended")
        totals[maker] = totals.get(maker, 0) + segment["bytes"]
    _table([("PROCESS", "SIZE"), *((name, _megabytes(size)) for name, size in sorted(totals.items()))])


@main.command()
@ADDRESS
@click.option("-o", "--output", default="timeline.json", show_default=True, help="File to write; '-': stdout.")
def timeline(address: str, output: str) -> None:
    """Write the times of tasks and methods as a Chrome trace. The session must run with RUNTIME_TIMELINE=1."""
    events = read_events(_directory(address))
    if not events:
        raise click.ClickException("there are no events; start the first driver with RUNTIME_TIMELINE=1")
    if output == "-":
        click.echo(json.dumps(events))
        return
    try:
        with open(output, "w") as file:
            json.dump(events, file)
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}; name another file by -o") from None
    click.echo(f"{len(events)} events in {output}; open it in chrome://tracing or ui.perfetto.dev")


@main.command()
@ADDRESS
@click.option("-f", "--follow", is_flag=True, help="Show new lines as they come, until Ctrl-C or the session's end.")
def logs(address: str, follow: bool) -> None:
    """The last lines that each process has printed."""
    with contextlib.suppress(KeyboardInterrupt, RuntimeFailure), _observed(address) as session:
        for process in session.logs(follow):
            for line in process["lines"]:
                click.echo(f"({process['name']} pid={process['pid']}) {line}")
        while follow:
            sys.stdout.flush()
            _pause()
            session.context()  # raises when the session has ended


@interruptible
def _pause():
    time.sleep(0.2)


def _amount(name, quantity) -> str:
    return _megabytes(quantity) if name == "memory" else f"{quantity:g}"


def _megabytes(size) -> str:
    return f"{size / 2**20:,.1f} MB"


def _table(rows) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


if __name__ == "__main__":
    main()
