"""Figures of scale: the files are what the pages say, and they are drawn."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import scale_curves

PAGES = Path(__file__).parents[2] / "docs" / "scale"


def cells(page: str) -> list[list[str]]:
    """The rows of a page's tables."""
    lines = (PAGES / page).read_text().splitlines()
    return [re.split(r" *\| *", line.strip("| ")) for line in lines if line.startswith("|")]


def test_the_pages_have_the_figures_of_the_files():
    large, stragglers = cells("large.md"), cells("stragglers.md")
    for row in scale_curves.rows_of("driver"):
        name = f"{row['algorithm']}, {int(row['workers']):,}"
        if (row["algorithm"], row["commit"]) != ("Ape-X", "84d04ad1"):  # what it was before
            assert [name, f"{float(row['ms_of_an_answer']):.2f} ms"] in [line[:2] for line in large]
    for row in scale_curves.rows_of("tune"):
        assert [f"{int(row['trials']):,}", f"{row['driver_ms_of_a_trial']} ms"] in [line[:2] for line in large]
    lags = {(line[0], line[1]): line[2:] for line in stragglers if line[0] in ("IMPALA", "APPO")}
    for row in scale_curves.rows_of("lag"):
        said = lags[row["algorithm"], row["vtrace"]][("1", "4", "16", "64").index(row["lag"])]
        assert said == "{return_at_75000}, {return_at_150000} ({lowest} to {highest})".format_map(row)
    laws = {"moderate": "log-normal 0.5", "heavy": "log-normal 1.5", "Pareto": "Pareto 2"}
    speeds = {(laws[line[0]], line[1].replace(",", "")): line[2:] for line in stragglers if line[0] in laws}
    for row in scale_curves.rows_of("rounds"):
        if row["quorum"] != "no rounds":
            said = speeds[row["law"], row["workers"]][("1.0", "0.95", "0.9", "0.75").index(row["quorum"])]
            assert float(said.split(" ")[0]) == pytest.approx(float(row["relative speed"]), rel=0.03)


def test_a_picture_has_every_curve(tmp_path):
    scale_curves.draw(tmp_path / "curves.svg")
    drawn = (tmp_path / "curves.svg").read_text()
    ET.fromstring(drawn)
    for title, axis, curves, _ in scale_curves.panels():
        assert all(text in drawn for text in (title, axis, *curves))
