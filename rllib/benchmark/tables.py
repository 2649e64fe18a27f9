"""Tables of a benchmark: rows for the terminal, Markdown, CSV and JSON."""

import csv
import io
import math
from typing import Any

import msgspec

from rllib.benchmark.standings import Standing, Standings
from rllib.benchmark.suite import Published, label
from rllib.progress import counted
from rllib.runs.drawing import RETURN, title_of
from rllib.tune.reporting.comparison import Estimate, written

# Columns of the CSV file.
_COLUMNS = (
    "suite", "task", "method", "origin", "steps", "runs", "statistic", "value", "low", "high", "std", "protocol",
    "source",
)  # fmt: skip


def rows_of(standings: Standings) -> list[list[str]]:
    """The heading and a row for each task: what each algorithm has reached, and what is published; then aggregates."""
    published = standings.published
    heading = ["task", "steps", *(_with_seeds(standings, name) for name in standings.plan.algorithms)]
    rows = [[*heading, *(each.name for each in published)]]
    for task in standings.tasks:
        own = [_reached(of_tasks[task]) for of_tasks in standings.standings.values()]
        rows.append([label(task), f"{standings.plan.steps[task]:,}", *own, *(_of(each, task) for each in published)])
    blank = [""] * len(published)
    if standings.aggregates:
        own = [_aggregate(standings, name) for name in standings.plan.algorithms]
        rows.append(["all, normalised", "", *own, *blank])
    if standings.improvements:
        own = [_text(standings.improvements.get(name)) for name in standings.plan.algorithms]
        rows.append([f"P(better than {standings.plan.algorithms[0]})", "", *own, *blank])
    return rows


def _with_seeds(standings: Standings, algorithm: str) -> str:
    """The algorithm, and the number of its seeds: "PPO (3 seeds)", "PPO (1 to 3 seeds)" of an unfinished benchmark."""
    counts = [len(standing.scores) for standing in standings.standings[algorithm].values()]
    low, high = min(counts), max(counts)
    return f"{algorithm} ({counted(high, 'seed') if low == high else f'{low} to {high} seeds'})"


def _reached(standing: Standing) -> str:
    if standing.score is None:
        return "-"
    return str(standing.score) if len(standing.scores) > 1 else written(standing.score.value)


def _aggregate(standings: Standings, algorithm: str) -> str:
    """The normalised interquartile mean, with an interval where a task has several runs."""
    if algorithm not in standings.aggregates:
        return ""
    score = standings.aggregates[algorithm]["iqm"]
    is_drawn = any(len(standing.scores) > 1 for standing in standings.standings[algorithm].values())
    return str(score) if is_drawn else written(score.value)


def _text(value: Estimate | None) -> str:
    return "" if value is None else str(value)


def _of(published: Published, task: str) -> str:
    numbers = published.scores.get(task, ())
    return " ± ".join(map(written, numbers))


def legend(standings: Standings) -> list[str]:
    """Sentences that say what the numbers are, and where published ones come from."""
    plan = standings.plan
    what = "mean return of the latest episodes of training" if plan.metric == RETURN else title_of(plan.metric)
    lines = [
        f"Interquartile mean over the seeds of the {what} ({plan.metric}) at these steps, with its 95 % bootstrap "
        "interval (arXiv:2108.13264)."
    ]
    if standings.aggregates:
        lines.append(
            "Normalised: interquartile mean of all runs on all tasks, with runs drawn within tasks. "
            f"{standings.suite.scale}."
        )
    shorter = [task for task in standings.tasks if plan.steps[task] != standings.suite.tasks[task].steps]
    if shorter and standings.published:
        lines.append("These runs have other steps than the suite, and published scores are of the steps named here.")
    return [*lines, *(f"{each.name}: {each.protocol}. {each.source}" for each in standings.published)]


def as_markdown(standings: Standings) -> str:
    """The table, its legend and the notes."""
    heading, *rows = rows_of(standings)
    lines = [f"# Benchmark {standings.plan.suite}", "", _line(heading), _line(["---"] * len(heading))]
    lines += [_line(row) for row in rows]
    lines += ["", *(f"- {line}" for line in legend(standings)), *(f"- Note: {note}." for note in standings.notes)]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def as_csv(standings: Standings) -> str:
    """A line for each score: of an algorithm on a task, of an algorithm on all tasks, and each published one."""
    drawn = io.StringIO()
    writer = csv.DictWriter(drawn, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    suite = standings.plan.suite
    for task, steps in standings.plan.steps.items():
        of_task = {"suite": suite, "task": label(task)}
        for name, of_tasks in standings.standings.items():
            if (standing := of_tasks[task]).score is not None:
                own = {"method": name, "origin": "measured", "steps": steps, "runs": len(standing.scores)}
                writer.writerow({**of_task, **own, "statistic": "iqm", **_numbers(standing.score)})
        for each in standings.published:
            if numbers := each.scores.get(task):
                own = {"method": each.name, "origin": "published", "statistic": "mean", "protocol": each.protocol}
                writer.writerow({**of_task, **own, "source": each.source, **dict(zip(("value", "std"), numbers))})
    for name, aggregates in standings.aggregates.items():
        for statistic, value in aggregates.items():
            own = {"suite": suite, "task": "all, normalised", "method": name, "origin": "measured"}
            writer.writerow({**own, "statistic": statistic, **_numbers(value)})
    return drawn.getvalue()


def as_json(standings: Standings) -> bytes:
    """All scores of all seeds, the estimates, and what is published."""
    plan = standings.plan
    content: dict[str, Any] = {
        "suite": plan.suite,
        "metric": plan.metric,
        "scale": standings.suite.scale,
        "tasks": {
            label(task): {"env": task, "steps": steps, "low": known.low, "high": known.high}
            for task, steps in plan.steps.items()
            if (known := standings.suite.tasks[task])
        },
        "algorithms": {
            name: {
                "tasks": {
                    label(task): {
                        "scores": {str(seed): score for seed, score in standing.scores.items()},
                        "iqm": standing.score and _numbers(standing.score),
                    }
                    for task, standing in of_tasks.items()
                },
                "normalised": {key: _numbers(value) for key, value in standings.aggregates.get(name, {}).items()},
                "better_than_the_first": (found := standings.improvements.get(name)) and _numbers(found),
            }
            for name, of_tasks in standings.standings.items()
        },
        "published": [
            {
                "name": each.name,
                "algorithm": each.algorithm,
                "source": each.source,
                "protocol": each.protocol,
                "scores": {label(task): list(numbers) for task, numbers in each.scores.items()},
            }
            for each in standings.published
        ],
        "notes": standings.notes,
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _numbers(value: Estimate) -> dict[str, float | None]:
    return {key: number if math.isfinite(number := getattr(value, key)) else None for key in ("value", "low", "high")}
