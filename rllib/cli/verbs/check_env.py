"""`rllib check-env`."""

import json
import sys

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rllib.cli.failures import reported, user_input
from rllib.cli.user_code import typed
from rllib.cli.values import parse_assignments, parse_value
from rllib.env.checkup.check_env import check_env
from rllib.env.checkup.report import EnvReport
from rllib.runs.video import draw_without_display

EXIT_CHECK_FAILED = 3
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
_WIDEST = 140
# Units of measured values, by the end of their names.
_UNITS = {"ms": "ms", "us": "us"}


@click.command("check-env", short_help="Check an environment.")
@click.argument("env", metavar="ENV")
@click.argument("config", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--vector", type=click.IntRange(min=1), help="Also run this many, in a loop and in processes.")
@click.option("--steps", type=click.IntRange(min=1), default=2000, show_default=True, help="How many random steps.")
@click.option("--wrapper", "wrappers", multiple=True, help="As in env_wrappers: a name or {name: {...}}; may repeat.")
@click.option("--strict", is_flag=True, help="Warnings fail the check, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of errors.")
def command(env, config, vector, steps, wrappers, strict, as_json, verbose) -> None:
    """Check the environment ENV, an id, module:Class or module:function, made with KEY=VALUE of its env_config: spaces,
    results of reset and step, seeds, independence, workers, memory, rendering, speed. Each finding says what was seen,
    the rule, and what to do. The exit code is 3 if there are errors.

    \b
    rllib check-env CartPole-v1 --vector 8
    rllib check-env my_module:MyEnv size=5 --strict
    """
    with reported(verbose):
        with user_input():
            draw_without_display()
            typed({"env": env})
            report = check_env(
                env,
                parse_assignments(config, "size=5"),
                env_wrappers=[parse_value(wrapper) for wrapper in wrappers],
                num_envs=vector or 0,
                steps=steps,
                raise_errors=False,
            )
        if as_json:
            click.echo(json.dumps({**report.to_dict(), "passes": report.passes(strict)}, indent=2))
        else:
            _show(report, strict)
    if not report.passes(strict):
        sys.exit(EXIT_CHECK_FAILED)


def _show(report: EnvReport, strict: bool) -> None:
    console = Console(highlight=False)
    console.width = min(console.width, _WIDEST)
    console.print(Text(report.name, style="bold"))
    console.print(_facts(report))
    if report.findings:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=True)
        table.add_column("")
        table.add_column("check")
        table.add_column("finding", ratio=1)
        for finding in report.findings:
            text = Text.assemble(
                finding.seen, ("\nrule  ", "dim"), (finding.rule, "dim"), ("\ndo    ", "bold"), finding.remedy
            )
            table.add_row(Text(finding.severity, style=_STYLES[finding.severity]), finding.check, text)
        console.print(table)
    console.print(_verdict(report, strict))


def _facts(report: EnvReport) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in report.measured.items():
        *words, last = name.split("_")
        unit = _UNITS.get(last)
        label = " ".join(words if unit else [*words, last])
        table.add_row(Text(label, style="dim"), f"{_shown(value)} {unit or ''}".rstrip())
    return table


def _shown(value) -> str:
    if not isinstance(value, int | float):
        return "none" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _verdict(report: EnvReport, strict: bool) -> Text:
    counts = [f"{(n := len(report.of(severity)))} {severity}{'s' * (n != 1)}" for severity in _STYLES]
    passes = report.passes(strict)
    word, style = ("passes", "bold green") if passes else ("fails", "bold red")
    checks = "1 check was" if len(report.checks) == 1 else f"{len(report.checks)} checks were"
    return Text.assemble((word, style), f"  {', '.join(counts)}; {checks} made")
