"""The page of a report, from its title to its settings."""

import os
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from rllib import __version__
from rllib.progress import elapsed
from rllib.reports.markup import Html, facts, h, joined
from rllib.reports.outcomes import curves_part, differences_part, evaluations_part, summary_part, videos_part
from rllib.reports.records import machines_part, runs_part, settings_part
from rllib.reports.report import Report, report_of
from rllib.reports.texts import moment
from rllib.runs.drawing import STEPS
from rllib.runs.entries import is_number
from rllib.runs.naming import ENV
from rllib.runs.safe_files import write_whole
from rllib.storage.local_path import local_path

MOST_VIDEO_MB = 10.0
# Nothing is loaded and nothing runs, also if a file should contain markup that was not escaped.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
)


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
        directories: directories of runs, of several seeds, or of experiments.
        path: path of the file.
        metric: result key or "a/b" path; None: that of the experiments, or episode_reward_mean.
        mode: whether "max" or "min" of it is better; None: as the experiments have it, or "max".
        x: result key of the horizontal axis.
        title: title of the page; None: the names of the directories.
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


def page(report: Report) -> str:
    """The page as HTML."""
    parts = (
        *(summary_part, curves_part, differences_part, evaluations_part, videos_part),
        *(runs_part, machines_part, settings_part),
    )
    sections = [_head(report), *(part(report) for part in parts)]
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
        ("training time", elapsed(sum(times)) if times else None), ("begun", moment(min(began)) if began else None),
    ]  # fmt: skip
    return joined([h("h1", None, report.title), facts(pairs)])
