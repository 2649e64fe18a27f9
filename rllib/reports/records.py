"""Parts of a report about its runs: their state, commands, machines and settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rllib.progress import counted, elapsed, mean_rate
from rllib.reports.charts import swatch
from rllib.reports.markup import Content, Html, facts, h, joined, table
from rllib.reports.recorded import Facts
from rllib.reports.report import Report
from rllib.reports.texts import moment, numeral, whole
from rllib.runs.entries import is_number
from rllib.runs.naming import short, text_of
from rllib.tune.reporting.comparison import written
from rllib.tune.reporting.runs import defaults_of, finite, with_defaults


def runs_part(report: Report) -> Html:
    """The runs: their state, steps, time, returns and checkpoints."""
    methods = {run.place: index for index, method in enumerate(report.methods) for run in method.all_runs}
    rows: list[list[Content]] = [["run", "status", "seed", "steps", "steps/s", "time", "last", "best", "checkpoints"]]
    for each in report.facts:
        index = methods.get(each.run.place)
        steps, time_s = each.number("timesteps_total"), each.number("time_total_s")
        values = [value for result in each.run.results if not math.isnan(value := finite(result, report.metric))]
        best = (max if report.mode == "max" else min)(values, default=None)
        rows.append([
            h("span", {"class": "keyed"}, None if index is None else swatch(index), each.run.name), _status(each),
            "-" if each.run.seed is None else str(each.run.seed), whole(steps), whole(mean_rate(each.last)),
            "-" if time_s is None else elapsed(time_s), numeral(values[-1] if values else None), numeral(best),
            _checkpoints(each),
        ])  # fmt: skip
    texts = [f"{each.run.name} has failed: {each.error}" for each in report.facts if each.error]
    texts += [f"{each.run.name}: {text}" for each in report.facts for text in each.problems]
    return joined([h("h2", None, "Runs"), table(rows, 2), [h("p", {"class": "problem"}, text) for text in texts]])


def _status(each: Facts) -> Html:
    word = h("span", {"class": "word"}, each.status)
    return h("span", {"class": f"status {each.status}", "title": each.reason}, word)


def _checkpoints(each: Facts) -> str:
    if not each.checkpoints:
        return "none"
    newest = each.checkpoints[0]["name"]
    best = each.best.get("checkpoint")
    more = f", {len(each.checkpoints) - 1} more" if len(each.checkpoints) > 1 else ""
    return f"{newest}{more}" + (f"; best {best}" if isinstance(best, str) and best != newest else "")


def machines_part(report: Report) -> Html:
    """The starts of the runs, those of the same command on the same machine once."""
    starts: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for each in report.facts:
        for start in each.starts:
            key = text_of({name: value for name, value in start.items() if name not in ("time", "pid")})
            starts.setdefault(key, (start, []))[1].append(each.run.name)
    parts = [h("h2", None, "Commands and machines")]
    for start, names in starts.values():
        parts.append(_start(start, list(dict.fromkeys(names)), len(report.facts)))
    without = [each for each in report.facts if not each.starts]
    if without:
        hosts = list(dict.fromkeys(host for each in without for host in each.hosts))
        versions = list(dict.fromkeys(_listed(each.versions) for each in without if each.versions))
        parts.append(
            h(
                "p",
                {"class": "muted"},
                f"Of {counted(len(without), 'run')} the command and the machine were not recorded.",
            )
        )
        parts.append(facts([("machines", ", ".join(hosts)), ("versions", "; ".join(versions))]))
    return joined(parts)


def _start(start: Mapping[str, Any], names: Sequence[str], count: int) -> Html:
    memory = start.get("memory_bytes")
    gpus = start.get("gpus")
    cores = start.get("cores")
    processor = ", ".join(
        filter(None, [str(start.get("cpu") or ""), counted(cores, "core") if isinstance(cores, int) else ""])
    )
    versions = start.get("versions")
    whose = f"all {count}" if len(names) == count > 1 else ", ".join([*names[:5], *(["..."] if len(names) > 5 else [])])
    pairs = [
        ("runs", whose),
        ("begun", moment(start.get("time"))), ("machine", _text(start.get("hostname"))), ("processor", processor),
        ("memory", f"{memory / 2**30:,.1f} GiB" if is_number(memory) else None),
        ("GPUs", ", ".join(map(str, gpus)) or "none" if isinstance(gpus, list) else None),
        ("system", _text(start.get("system"))),
        ("versions", _listed(versions) if isinstance(versions, dict) else None),
        ("git commit", _text(start.get("git_commit"))), ("in", _text(start.get("directory"))),
    ]  # fmt: skip
    command = _text(start.get("command"))
    return joined([h("pre", None, command) if command else None, facts(pairs)])


def settings_part(report: Report) -> Html:
    """The settings of each method: those that differ from a default, and all."""
    parts = [h("h2", None, "Settings")]
    for number, method in enumerate(report.methods):
        run = method.all_runs[0]
        defaults = defaults_of(run.algorithm)
        settings = with_defaults(run.algorithm, run.params)
        rows = [(key, value, (defaults or {}).get(key)) for key, value in sorted(settings.items()) if key != "seed"]
        chosen = [row for row in rows if defaults is None or text_of(row[1]) != text_of(row[2])]
        goals = " or ".join(f"{key} ≥ {written(value)}" for key, value in run.goals.items())
        seeds = [str(seed) for seed in dict.fromkeys(each.seed for each in method.all_runs) if seed is not None]
        several = len(report.methods) > 1
        none = "All settings have their default." if settings else "There is no params.json."
        parts += [
            h("h3", {"class": "keyed"}, swatch(number), method.name) if several else None,
            facts([("seeds", ", ".join(seeds)), ("ends at", goals)]),
            _table_of_settings(chosen, defaults is not None) if chosen
            else h("p", {"class": "muted"}, none),
            h("details", None, h("summary", None, f"all {len(rows)} settings"), _table_of_settings(rows, True))
            if defaults is not None else None,
        ]  # fmt: skip
    return joined(parts)


def _table_of_settings(rows: Sequence[tuple[str, Any, Any]], has_defaults: bool) -> Html:
    body: list[list[Content]] = [["setting", "value", "default"]]
    for key, value, default in rows:
        texts = h("span", {"class": "mono"}, _long(value)), h("span", {"class": "mono muted"}, _long(default))
        body.append([key, *texts])
    return table([row if has_defaults else row[:2] for row in body], wide=frozenset((1, 2)))


def _long(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 400 else f"{text[:399]}…"


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int, float)) else None


def _listed(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {short(version)}" for name, version in versions.items())
