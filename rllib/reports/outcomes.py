"""Parts of a report about what runs have reached: comparison, curves, differences, evaluations, videos."""

import base64
from collections.abc import Sequence

import numpy as np

from rllib.errors import DamagedFileError
from rllib.reports.charts import chart, look, swatch
from rllib.reports.markup import Content, Html, h, joined, table
from rllib.reports.recorded import VIDEOS
from rllib.reports.report import Report
from rllib.reports.texts import numeral, whole
from rllib.runs.entries import flatten, is_number
from rllib.runs.measures import interval, iqm
from rllib.runs.naming import names_apart
from rllib.storage.foreign_files import open_inside
from rllib.tune.reporting.comparison import Comparison, written
from rllib.tune.reporting.plots import curve_of_group
from rllib.tune.reporting.runs import Run
from rllib.tune.reporting.tables import rows_of_contrasts, rows_of_methods, rows_of_settings

# Further charts: results and, by the end of their paths, statistics of learners.
_CHARTS = ("evaluation/episode_reward_mean", "episode_len_mean", "episode_cost_mean")
_STATISTICS = ("vf_explained_var", "entropy", "kl", "mean_q", "mean_td_error")
_POLICIES = "policy_reward_mean/"
_MOST_CHARTS, _MOST_POLICIES = 8, 6
_MOST_SETTINGS, _MOST_SENTENCES = 20, 8


def summary_part(report: Report) -> Html:
    """What the methods have reached, and what one may write of it."""
    comparison = report.comparison
    if comparison is None:
        return h("p", {"class": "problem"}, f"The runs are not compared: {report.problem.rstrip('.')}.")
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


def curves_part(report: Report) -> Html:
    """Charts of the metric and of further numbers, for each environment."""
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
    """Keys of the numbers that are drawn in addition to the metric, as far as runs have them."""
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


def _legend(names: Sequence[tuple[int, str]]) -> Html:
    entries = [
        h("li", {"class": look(number)[0]}, swatch(number), h("span", {"class": "name"}, name))
        for number, name in names
    ]
    return h("ul", {"class": "legend"}, entries)


def differences_part(report: Report) -> Html | None:
    """The settings that differ between the methods."""
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


def evaluations_part(report: Report) -> Html | None:
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
                name, "-" if run.seed is None else str(run.seed), *(numeral(value) for value in values), whole(count),
                whole(evaluation.steps),
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


def videos_part(report: Report) -> Html | None:
    """The videos, up to a size."""
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
