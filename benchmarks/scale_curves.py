"""Draws what scale.py, stragglers.py and tune_scale.py have measured: docs/pictures/scale.png, and a line a curve.

    python benchmarks/scale_curves.py --picture docs/pictures/scale.png

The figures are in results/scale: the rows of the tables of docs/scale/large.md and stragglers.md, each with the commit
at which it was measured. `stragglers.py rounds --out` writes rounds.csv itself.
"""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from measure import ROOT, aligned, arguments

RESULTS = ROOT / "benchmarks" / "results" / "scale"
COLORS = ("#4a90d9", "#d9774a", "#5aa469", "#8a6fc0", "#808080")
Curves = Mapping[str, list[tuple[float, float]]]


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a file."""
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def by(rows: Iterable[Mapping[str, str]], label: str, x: str, y: str, when: str = "") -> dict[str, list]:
    """Points (x, y) by the label, a format of columns; `when` leaves out the rows whose label does not have it."""
    curves: dict[str, list] = {}
    for row in rows:
        if when in (name := label.format_map(row)):
            curves.setdefault(name, []).append((float(row[x]), float(row[y])))
    return curves


def panels() -> list[tuple[str, str, Curves, float | None]]:
    """Title, axis, curves, and the target if there is one."""
    tune = rows_of("tune")
    seconds = {
        "loading it again": by(tune, "", "trials", "load_s")[""],
        "the dashboard's first answer": by(tune, "", "trials", "dashboard_s")[""],
        "all curves of the dashboard": by(tune, "", "trials", "curves_s")[""],
    }
    quorums = [row for row in rows_of("rounds") if row["law"] == "log-normal 1.5" and row["quorum"] != "no rounds"]
    return [
        (
            "Driver's processor time for an answer of 64 KiB (ms)",
            "workers",
            by(rows_of("driver"), "{algorithm}, {commit}", "workers", "ms_of_an_answer"),
            1.0,
        ),
        (
            "Speed of rounds, of the ideal, by sample_quorum (heavy tail)",
            "workers",
            by(quorums, "quorum {quorum}", "workers", "relative speed"),
            None,
        ),
        (
            "Return on CartPole after 150,000 steps",
            "lag of all fragments (updates)",
            by(rows_of("lag"), "{algorithm}, V-trace: {vtrace}", "lag", "return_at_150000"),
            None,
        ),
        ("Tune: seconds of a finished experiment", "trials", seconds, 2.0),
    ]


def draw(path: Path) -> None:
    """Draws one panel for each."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, 2, figsize=(10, 7))
    for (title, axis, curves, target), axes in zip(panels(), grid.flat):
        for (name, points), color in zip(curves.items(), COLORS):
            axes.plot(*zip(*sorted(points)), marker="o", markersize=3, label=name, color=color)
        if target is not None:
            axes.axhline(target, color="black", linestyle=":", linewidth=1, label=f"target: {target:g}")
        axes.set_xscale("log")
        if axis == "trials":  # both logarithmic: what grows in proportion has the slope 1
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(axis, fontsize=8)
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = arguments(__doc__, rounds=1)
    parser.add_argument("--picture", type=Path, help="draw the curves into this file")
    options = parser.parse_args()
    if options.picture:
        draw(options.picture)
    lines = [("curve", "points")]
    for title, axis, curves, _ in panels():
        lines += [(title, f"by {axis}:")]
        lines += [(f"  {name}", "  ".join(f"{x:,g}: {y:g}" for x, y in sorted(each))) for name, each in curves.items()]
    aligned(lines)


if __name__ == "__main__":
    main()
