"""The page of a report, from its title to its settings."""

import base64
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rllib import __version__
from rllib.errors import DamagedFileError
from rllib.progress import counted, elapsed, mean_rate
from rllib.reports.charts import chart, look, swatch
from rllib.reports.markup import Content, Html, facts, h, joined, table
from rllib.reports.recorded import VIDEOS, Facts, facts_of, videos_of
from rllib.runs.drawing import STEPS
from rllib.runs.entries import flatten, is_number
from rllib.runs.measures import interval, iqm
from rllib.runs.naming import ENV, names_apart, short, text_of
from rllib.runs.safe_files import write_whole
from rllib.storage.foreign_files import open_inside
from rllib.storage.local_path import local_path
from rllib.tune.reporting.comparison import Comparison, compare, objective_of, written
from rllib.tune.reporting.plots import curve_of_group
from rllib.tune.reporting.runs import Run, axis_of, defaults_of, finite, read_runs, with_defaults
from rllib.tune.reporting.scores import Method, methods_of
from rllib.tune.reporting.tables import rows_of_contrasts, rows_of_methods, rows_of_settings

MOST_VIDEO_MB = 10.0
# Further charts: results and, by the end of their paths, statistics of learners.
_CHARTS = ("evaluation/episode_reward_mean", "episode_len_mean", "episode_cost_mean")
_STATISTICS = ("vf_explained_var", "entropy", "kl", "mean_q", "mean_td_error")
_POLICIES = "policy_reward_mean/"
_MOST_CHARTS, _MOST_POLICIES = 8, 6
_MOST_SETTINGS, _MOST_SENTENCES = 20, 8
# Nothing is loaded and nothing runs, also if a file should contain markup that was not escaped.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass
class Report:
    """Content of a report.

    Attributes:
        title: of the page.
        methods: the runs, by what they differ in.
        facts: what is recorded of each run, in the order of the methods.
        comparison: of the methods; None if they cannot be compared.
        problem: why they cannot.
        metric, mode, x: of the curves.
        videos: paths of videos, and the largest size together that the page may have.
    """

    title: str
    methods: list[Method]
    facts: list[Facts]
    comparison: Comparison | None
    problem: str
    metric: str
    mode: str
    x: str
    videos: list[Path]
    most_video_mb: float


def write_report(
    *directories: str | os.PathLike,
    path: str | os.PathLike = "report.html",
    metric: str | None = None,
    mode: str | None = None,
    x: str = STEPS,
    title: str = "",
    most_video_mb: float = MOST_VIDEO_MB,
) -> Path:
    """Writes a report of runs into one HTML file, which opens without a network.

    Args:
        directories: of runs, of several seeds, or of experiments.
        path: of the file.
        metric: result key or "a/b" path; None: that of the experiments, or episode_reward_mean.
        mode: whether "max" or "min" of it is better; None: as the experiments have it, or "max".
        x: result key of the horizontal axis.
        title: of the page; None: the names of the directories.
        most_video_mb: largest size of all videos in the page, in MB; larger ones are named.

    Raises:
        ValueError: if there is no run in a directory, no run has a result, or none has the metric that is given.
        OSError: if the file cannot be written.
    """
    path = local_path(path)
    if path.suffix not in (".html", ".htm"):
        raise ValueError(f"A report is an .html file, but got {path.name!r}")
    content = page(report_of(directories, metric, mode, x, title, most_video_mb))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content.encode(errors="replace"))
    return path


def report_of(
    directories: Sequence[str | os.PathLike],
    metric: str | None,
    mode: str | None,
    x: str,
    title: str,
    most_video_mb: float,
) -> Report:
    """Reads what a report shows; see `write_report`."""
    runs = read_runs(*directories)
    if not any(run.results for run in runs):
        raise ValueError("There is nothing to report: no run has a result yet")
    is_given, x = metric is not None, axis_of(runs, x)
    metric, mode = objective_of(directories, metric, mode)
    comparison, problem = None, ""
    try:
        comparison = compare(*directories, metric=metric, mode=mode, x=x)
    except ValueError as error:
        if is_given and not any(_has(run, metric) for run in runs):
            raise
        problem = str(error)
    methods = methods_of(runs)
    if not title:
        places = names_apart([local_path(each).resolve() for each in directories])
        title = ", ".join(places[:4]) + (f" and {len(places) - 4} more" if len(places) > 4 else "")
    ordered = [run for method in methods for run in method.all_runs]
    return Report(
        title, methods, facts_of(ordered), comparison, problem, metric, mode, x, videos_of(runs), most_video_mb
    )


def page(report: Report) -> str:
    """The page as HTML."""
    sections = [
        _head(report), _summary(report), _curves(report), _differences(report), _evaluations(report), _videos(report),
        _runs(report), _machines(report), _settings(report),
    ]  # fmt: skip
    files = resources.files("rllib.dashboard") / "static" / "style.css", resources.files("rllib.reports") / "report.css"
    style = "".join(file.read_text() for file in files)
    now = datetime.now(UTC)
    footer = h(
        "footer",
        None,
        f"Made by rllib {__version__} on {now:%Y-%m-%d %H:%M} UTC. This page loads nothing from elsewhere.",
    )
    head = h(
        "head", None,
        h("meta", {"charset": "utf-8"}), h("meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY}),
        h("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        h("title", None, report.title), Html(f"<style>{style}</style>"),
    )  # fmt: skip
    return f'<!doctype html>\n<html lang="en">{head}<body>{h("main", None, sections, footer)}</body></html>\n'


# ---------------------------------------------------------------------- title and comparison


def _head(report: Report) -> Html:
    algorithms = dict.fromkeys(each.run.algorithm for each in report.facts if each.run.algorithm)
    tasks = dict.fromkeys(str(each.run.settings[ENV]) for each in report.facts if each.run.settings.get(ENV))
    times = [value for each in report.facts if (value := each.number("time_total_s")) is not None]
    steps = [value for each in report.facts if (value := each.number("timesteps_total")) is not None]
    began = [start["time"] for each in report.facts for start in each.starts[:1] if is_number(start.get("time"))]
    pairs = [
        ("algorithm", ", ".join(algorithms)), ("environment", ", ".join(tasks)), ("runs", len(report.facts)),
        ("methods", len(report.methods) if len(report.methods) > 1 else None),
        ("environment steps", f"{sum(steps):,.0f}" if steps else None),
        ("training time", elapsed(sum(times)) if times else None), ("begun", _date(min(began)) if began else None),
    ]  # fmt: skip
    return joined([h("h1", None, report.title), facts(pairs)])


def _summary(report: Report) -> Html:
    comparison = report.comparison
    if comparison is None:
        return h("p", {"class": "problem"}, f"The runs are not compared: {report.problem}.")
    rows = rows_of_methods(comparison)
    numbered = [
        [[h("span", {"class": "keyed"}, swatch(index), row[0])], *row[1:]] for index, row in enumerate(rows[1:])
    ]
    parts = [
        h("h2", None, f"What was reached, {comparison.where}"),
        [h("p", {"class": "sentence"}, sentence) for sentence in comparison.sentences[:_MOST_SENTENCES]],
        table([rows[0], *numbered], 1),
    ]  # fmt: skip
    if comparison.contrasts:
        parts += [
            h("h2", None, f"Against {comparison.scored.methods[0].name}"),
            table(rows_of_contrasts(comparison), 1),
        ]
    parts.append(h("p", {"class": "muted note"}, _explained(comparison)))
    parts.append([h("p", {"class": "problem"}, f"{note}.") for note in comparison.scored.notes])
    return joined(parts)


def _explained(comparison: Comparison) -> str:
    several = max(max(each.runs) for each in comparison.standings.values()) > 1
    text = "iqm: interquartile mean over runs, with its 95 % bootstrap interval (arXiv:2108.13264). " if several else ""
    if comparison.contrasts:
        text += (
            "P: probability that a run is better than one of the first method. Effect: Hedges' g. p: permutation test "
            "with Welch's statistic, corrected for the number of comparisons by Holm's method. Intervals over fewer "
            "than ten seeds are too narrow; see arXiv:1904.06979."
        )
    return text


# ---------------------------------------------------------------------- curves


def _curves(report: Report) -> Html:
    tasks = list(dict.fromkeys(task for method in report.methods for task in method.runs))
    parts = []
    for task in tasks:
        of_task = [(number, method.name, method.runs[task]) for number, method in enumerate(report.methods)
                   if task in method.runs]  # fmt: skip
        goal = _goal([run for *_, runs in of_task for run in runs], report.metric)
        main = _chart(report, of_task, report.metric, goal, 1060, 340)
        small = [
            each for key in _further_keys(of_task, report.metric) if (each := _chart(report, of_task, key)) is not None
        ]
        if main is None and not small:
            continue
        heading = f"Curves on {task}" if len(tasks) > 1 else "Curves"
        legend = _legend([(number, name) for number, name, _ in of_task]) if len(report.methods) > 1 else None
        large = h("div", {"class": "charts large"}, main)
        parts += [h("h2", None, heading), legend, large, h("div", {"class": "charts"}, small[:_MOST_CHARTS])]
    return joined(parts)


def _chart(
    report: Report, of_task, key: str, goal: float | None = None, width: int = 520, height: int = 250
) -> Html | None:
    """The chart of a result key; None where no run has a number under it."""
    curves = [(number, curve) for number, name, runs in of_task
              if (curve := curve_of_group(name, runs, key, report.x)) is not None]  # fmt: skip
    title = f"return of {key.removeprefix(_POLICIES)}" if key.startswith(_POLICIES) else ""
    return chart(curves, key, report.x, goal, title, width, height) if curves else None


def _further_keys(of_task, metric: str) -> list[str]:
    """Keys of the numbers that are drawn beside the metric, as far as runs have them."""
    there = dict.fromkeys(key for *_, runs in of_task for run in runs if run.results for key in _numbers_of(run))
    statistics = [key for name in _STATISTICS for key in there if key.endswith(f"/learner_stats/{name}")]
    policies = [key for key in there if key.startswith(_POLICIES)]
    policies = policies[:_MOST_POLICIES] if len(policies) > 1 else []
    known = [key for key in _CHARTS if key in there]
    return [key for key in [*known, *policies, *statistics] if key != metric]


def _numbers_of(run: Run) -> list[str]:
    """Keys of the numbers in the last result and in the newest evaluation."""
    evaluated = next((result for result in reversed(run.results) if "evaluation" in result), {})
    return [key for result in (run.results[-1], evaluated) for key, value in flatten(result) if is_number(value)]


def _goal(runs: Sequence[Run], metric: str) -> float | None:
    goals = {run.goals[metric] for run in runs if metric in run.goals}
    return goals.pop() if len(goals) == 1 else None


def _has(run: Run, metric: str) -> bool:
    return curve_of_group("", [run], metric, STEPS) is not None


def _legend(names: Sequence[tuple[int, str]]) -> Html:
    entries = [
        h("li", {"class": look(number)[0]}, swatch(number), h("span", {"class": "name"}, name))
        for number, name in names
    ]
    return h("ul", {"class": "legend"}, entries)


# ---------------------------------------------------------------------- what differs, evaluations, videos


def _differences(report: Report) -> Html | None:
    if report.comparison is None or len(report.methods) < 2:
        return None
    heading = h("h2", None, "Settings that differ")
    if not report.comparison.differing:
        return joined(
            [heading, h("p", {"class": "muted"}, "None: the runs were named as different ones by their directories.")]
        )
    (head, *rows), _ = rows_of_settings(report.comparison)
    titles = [head[0], *([swatch(index), " ", name] for index, name in enumerate(head[1:]))]
    few = table([titles, *rows[:_MOST_SETTINGS]])
    if len(rows) <= _MOST_SETTINGS:
        return joined([heading, few])
    rest = h(
        "details",
        None,
        h("summary", None, f"{len(rows) - _MOST_SETTINGS} more"),
        table([titles, *rows[_MOST_SETTINGS:]]),
    )
    return joined([heading, few, rest])


def _evaluations(report: Report) -> Html | None:
    """The newest evaluation of each run, and their interquartile mean for each method."""
    by_place = {each.run.place: each.evaluation for each in report.facts}
    rows: list[list[Content]] = [["method", "seed", "return", "least", "greatest", "length", "episodes", "after steps"]]
    for number, method in enumerate(report.methods):
        evaluated = [(run, by_place[run.place]) for run in method.all_runs if by_place[run.place] is not None]
        name = h("span", {"class": "keyed"}, swatch(number), method.name)
        for run, evaluation in evaluated:
            values = [
                evaluation.numbers.get(f"episode_{key}")
                for key in ("reward_mean", "reward_min", "reward_max", "len_mean")
            ]
            count = evaluation.numbers.get("episodes_this_iter")
            rows.append([
                name, "-" if run.seed is None else str(run.seed), *(_number(value) for value in values), _count(count),
                _count(evaluation.steps),
            ])  # fmt: skip
        if len(evaluated) > 1 and len(method.runs) == 1:
            returns = [[evaluation.numbers["episode_reward_mean"]] for _, evaluation in evaluated]
            rows.append([name, "all", _over_seeds(returns), *[""] * 5])
    if len(rows) == 1:
        return None
    return joined([h("h2", None, "Newest evaluations"), table(rows, 1)])


def _over_seeds(returns: Sequence[Sequence[float]]) -> Html:
    values = np.array(returns)
    (low,), (high,) = interval(values)
    return h("b", None, f"{written(float(iqm(values)[0]))} [{written(low)}, {written(high)}]")


def _videos(report: Report) -> Html | None:
    left = report.most_video_mb * 1e6
    parts, names = [], names_apart(report.videos)
    for video, name in zip(report.videos, names):
        try:
            size = video.stat().st_size
            if size > left:
                most = f"videos of a report have {report.most_video_mb:g} MB together at most"
                text = f"{name} has {size / 1e6:,.1f} MB and is not in this page: {most}."
                parts.append(h("p", {"class": "muted"}, text))
                continue
            with open_inside(video.parent, video.name) as file:
                content = file.read(int(left) + 1)
        except (OSError, DamagedFileError) as error:
            parts.append(h("p", {"class": "problem"}, f"{name} cannot be read: {error}"))
            continue
        left -= len(content)
        kind = VIDEOS[video.suffix.lower()]
        source = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        shown = (
            h("img", {"class": "video", "src": source, "alt": name}) if kind.startswith("image")
            else h("video", {"controls": "", "loop": "", "muted": "", "src": source})
        )  # fmt: skip
        parts.append(h("figure", {"class": "panel"}, h("figcaption", None, h("h3", None, name)), shown))
    return joined([h("h2", None, "Videos"), h("div", {"class": "charts"}, parts)]) if parts else None


# ---------------------------------------------------------------------- runs, machines, settings


def _runs(report: Report) -> Html:
    names = {
        run.place: (number, method.name) for number, method in enumerate(report.methods) for run in method.all_runs
    }
    rows: list[list[Content]] = [["run", "status", "seed", "steps", "steps/s", "time", "last", "best", "checkpoints"]]
    for each in report.facts:
        number, method = names[each.run.place]
        steps, time_s = each.number("timesteps_total"), each.number("time_total_s")
        finite = [value for result in each.run.results if (value := _value(result, report.metric)) is not None]
        best = (max if report.mode == "max" else min)(finite, default=None)
        status = h(
            "span", {"class": f"status {each.status}", "title": each.reason}, h("span", {"class": "word"}, each.status)
        )
        title = h("span", {"class": "keyed", "title": method}, swatch(number), each.run.name)
        rows.append([
            title, status, "-" if each.run.seed is None else str(each.run.seed), _count(steps),
            _count(mean_rate(steps, time_s)), "-" if time_s is None else elapsed(time_s),
            _number(finite[-1] if finite else None), _number(best), _checkpoints(each),
        ])  # fmt: skip
    failed = [
        h("p", {"class": "problem"}, f"{each.run.name} has failed: {each.error}") for each in report.facts if each.error
    ]
    damaged = [
        h("p", {"class": "problem"}, f"{each.run.name}: {text}") for each in report.facts for text in each.problems
    ]
    return joined([h("h2", None, "Runs"), table(rows, 2), failed, damaged])


def _value(result: Mapping[str, Any], metric: str) -> float | None:
    value = finite(result, metric)
    return None if math.isnan(value) else value


def _checkpoints(each: Facts) -> str:
    if not each.checkpoints:
        return "none"
    newest = each.checkpoints[0]["name"]
    best = each.best.get("checkpoint")
    more = f", {len(each.checkpoints) - 1} more" if len(each.checkpoints) > 1 else ""
    return f"{newest}{more}" + (f"; best {best}" if isinstance(best, str) and best != newest else "")


def _machines(report: Report) -> Html:
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
        ("begun", _date(start.get("time"))), ("machine", _text(start.get("hostname"))), ("processor", processor),
        ("memory", f"{memory / 2**30:,.1f} GiB" if is_number(memory) else None),
        ("GPUs", ", ".join(map(str, gpus)) or "none" if isinstance(gpus, list) else None),
        ("system", _text(start.get("system"))),
        ("versions", _listed(versions) if isinstance(versions, dict) else None),
        ("git commit", _text(start.get("git_commit"))), ("in", _text(start.get("directory"))),
    ]  # fmt: skip
    command = _text(start.get("command"))
    return joined([h("pre", None, command) if command else None, facts(pairs)])


def _settings(report: Report) -> Html:
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


def _number(value: float | None) -> str:
    return "-" if value is None else written(value)


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _date(time_s: Any) -> str | None:
    try:
        return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M} UTC"
    except (TypeError, ValueError, OSError, OverflowError):
        return None
