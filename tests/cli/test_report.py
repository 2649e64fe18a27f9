"""`rllib report`: one file that loads nothing, with what the files of the runs say, escaped."""

import html
import html.parser
import json
import os
import re

import pytest

from rllib.reports.charts import chart, ticks
from rllib.reports.markup import Html, h
from rllib.reports.page import write_report
from rllib.runs.drawing import Curve
from tests.cli.written_search import write_search

BAD = '<script>alert("x")</script>'


class Page(html.parser.HTMLParser):
    """Tags, addresses and text of a page; every element that is opened must be closed."""

    VOID = frozenset(("meta", "img", "path", "line", "br"))

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.texts, self._open = [], [], [], []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "xlink:href", "data")]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)


def write(directory, rates, length=5, env="CartPole-v1", algorithm="PPO", **params):
    """Runs of `rllib train` whose return grows by their rate in each 100 steps."""
    for seed, rate in enumerate(rates):
        place = directory / f"seed_{seed}"
        place.mkdir(parents=True)
        results = [
            {"training_iteration": t, "timesteps_total": 100 * t, "episode_reward_mean": rate * t,
             "time_total_s": 2 * t, "hostname": "there",
             "info": {"learner": {"default_policy": {"learner_stats": {"kl": 0.1 * t}}}}}
            for t in range(1, length + 1)
        ]  # fmt: skip
        (place / "result.json").write_text("".join(f"{json.dumps(result)}\n" for result in results))
        (place / "params.json").write_text(json.dumps({"env": env, "seed": seed, **params}))
        (place / "run.json").write_text(
            json.dumps({"algorithm": algorithm, "env": env, "stop": {"timesteps_total": 500}})
        )


@pytest.fixture
def report(rllib_command, tmp_path):
    """Runs `rllib report ARGUMENTS`; returns the page."""

    def made(*arguments):
        done = rllib_command("report", *arguments)
        assert done.exit_code == 0, done.output
        return Page((tmp_path / "report.html").read_text())

    return made


def test_a_report_of_two_methods_is_one_file_with_what_compare_says(rllib_command, report, tmp_path):
    write(tmp_path / "one", [1, 2, 3, 4, 5], lr=0.1)
    write(tmp_path / "other", [11, 12, 13, 14, 15], lr=0.2)
    page = report("one", "other")
    assert "script" not in page.tags and all(each.startswith("data:") for each in page.addresses)
    text = (tmp_path / "report.html").read_text()
    assert "default-src 'none'" in html.unescape(text) and not re.search(
        r"https?://(?!www\.w3\.org)|@import|url\(", text
    )
    (sentence,) = json.loads(rllib_command("compare", "one", "other", "--json").output)["sentences"]
    assert sentence in page.texts and "lr=0.2 is better on average" in sentence
    assert {"lr=0.1", "lr=0.2", "Settings that differ", "Against lr=0.1", "episode return", "KL divergence"} <= set(
        page.texts
    )
    assert "one/seed_3" in page.texts and "finished" in page.texts and "timesteps_total ≥ 500" in page.texts
    assert "the command and the machine were not recorded" in page.text and "there" in page.texts


def test_all_that_comes_from_files_is_escaped(report, tmp_path):
    place = tmp_path / BAD.replace("/", "|")
    write(place, [1, 2], env=BAD, algorithm=BAD, **{BAD: BAD, "lr": {BAD: 1}})
    (place / "seed_0" / "error.txt").write_text(f"{BAD}\nValueError: {BAD}\n")
    start = dict.fromkeys(("command", "hostname", "cpu", "system", "git_commit", "directory"), BAD)
    start |= {"versions": {BAD: BAD}, "gpus": [BAD], "time": BAD, "cores": BAD, "memory_bytes": BAD}
    (place / "seed_0" / "starts.json").write_text(
        json.dumps(start) + "\n" + json.dumps({"versions": 3, "gpus": "x"}) + "\n"
    )
    (place / "seed_0" / "best.json").write_text(json.dumps({"checkpoint": BAD}))
    (place / "seed_0" / f"{BAD.replace('/', '|')}.gif").write_bytes(b"GIF89a")
    page = report(place, "--title", BAD)
    assert "script" not in page.tags and BAD in page.texts
    assert f"ValueError: {BAD}" in page.text


def test_recorded_machines_evaluations_and_checkpoints(report, tmp_path):
    write(tmp_path / "runs", [1, 2])
    start = {"command": "rllib train PPO CartPole-v1", "hostname": "box", "cpu": "Fast", "cores": 16, "gpus": ["H200"],
             "memory_bytes": 2**37, "versions": {"torch": "2.9"}, "git_commit": "a" * 40, "time": 1.7e9}  # fmt: skip
    for seed in range(2):
        place = tmp_path / "runs" / f"seed_{seed}"
        (place / "starts.json").write_text(json.dumps({**start, "pid": seed}) + "\n")
        with open(place / "result.json", "a") as file:
            evaluated = {"episode_reward_mean": 70.0 + seed, "episode_len_mean": 9.0, "episodes_this_iter": 10}
            result = {
                "training_iteration": 6,
                "timesteps_total": 600,
                "episode_reward_mean": 9,
                "evaluation": evaluated,
            }
            file.write(f'{json.dumps(result)}\n{{"half')
        (place / "checkpoint_000006").mkdir()
    resumed = {**start, "command": "rllib train --resume runs/seed_1", "hostname": "later"}
    with open(tmp_path / "runs" / "seed_1" / "starts.json", "a") as file:
        file.write(json.dumps(resumed) + "\n")
    page = report("runs")
    for text in ("rllib train PPO CartPole-v1", "all 2", "Fast, 16 cores", "128.0 GiB", "H200", "torch 2.9", "a" * 40,
                 "2023-11-14 22:13 UTC", "rllib train --resume runs/seed_1", "later", "checkpoint_000006",
                 "Newest evaluations", "70", "71", "episode return in evaluation"):  # fmt: skip
        assert text in page.texts, text
    assert page.texts.count("rllib train PPO CartPole-v1") == 1, "one command of both"
    assert any(text.startswith("70.5 [") for text in page.texts)


def test_videos_are_in_the_page_up_to_a_size(report, tmp_path):
    write(tmp_path / "run", [1])
    place = tmp_path / "run" / "seed_0"
    (place / "a.mp4").write_bytes(b"\0" * 1000)
    (place / "b.gif").write_bytes(b"GIF89a")
    (tmp_path / "secret").write_bytes(b"secret")
    os.symlink(tmp_path / "secret", place / "c.mp4")
    (place / "videos").mkdir()
    for iteration in (10, 20):  # the newest is shown
        (place / "videos" / f"iteration_{iteration:06}.webm").write_bytes(b"webm")
    page = report("run")
    kinds = ["video/mp4", "image/gif", "video/webm"]
    assert [address.partition(",")[0] for address in page.addresses] == [f"data:{kind};base64" for kind in kinds]
    assert "c.mp4" not in page.text and "secret" not in page.text
    small = report("run", "--video-mb", "0.0005")
    assert [address.partition(",")[0] for address in small.addresses] == [f"data:{kind};base64" for kind in kinds[1:]]
    assert "a.mp4 has 0.0 MB and is not in this page" in small.text


def test_runs_that_cannot_be_compared_are_shown(report, tmp_path):
    write(tmp_path / "one", [1, 2])
    write(tmp_path / "other", [3], env="Pendulum-v1")
    page = report("one", "other")
    assert "The runs are not compared: methods are compared on the same tasks" in page.text
    assert {"Curves on CartPole-v1", "Curves on Pendulum-v1"} <= set(page.texts)


def test_a_run_that_was_killed_or_has_one_result_or_none(report, tmp_path):
    write(tmp_path / "one", [1, 2, 3])
    write(tmp_path / "short", [5], length=1)
    (tmp_path / "one" / "seed_0" / "result.json").write_text('{"timesteps_total": 1, "episode_rew')
    page = report("one", "short")
    assert any("one/seed_0 has no result yet and is left out" in text for text in page.texts)
    assert any("short/seed_0 ends at timesteps_total=100, and the longest run at 500" in text for text in page.texts)
    assert "circle" in page.tags, "the curve of one result is a point"
    assert "one/seed_0" in page.texts, "the run without a result is in the table of runs"


def test_several_agents_have_a_chart_for_each_policy(report, tmp_path):
    write(tmp_path / "run", [1])
    lines = [{"timesteps_total": t, "episode_reward_mean": 2.0, "policy_reward_mean": {"left": t, "right": -t}}
             for t in (1, 2)]  # fmt: skip
    (tmp_path / "run" / "seed_0" / "result.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    titles = report("run").texts
    assert {"return of left", "return of right"} <= set(titles)


def test_a_search_has_its_own_metric(report, tmp_path):
    write_search(tmp_path / "search", seeds=2)
    (tmp_path / "search" / "starts.json").write_text('{"command": "python climb.py"}\n')
    page = report("search")
    assert {"loss", "rate=1", "rate=2", "python climb.py"} <= set(page.texts)


def test_runs_of_different_environments_are_named_all_the_same(report, tmp_path):
    write(tmp_path / "all" / "plain", [1, 2], lr=0.1)
    write(tmp_path / "all" / "far", [1, 2], env="Pendulum-v1", lr=0.1)
    write(tmp_path / "all" / "other", [1, 2], lr=0.2)
    page = report("all")
    assert {"lr=0.1", "lr=0.2", "Curves on CartPole-v1", "Curves on Pendulum-v1"} <= set(page.texts)
    assert "The runs are not compared: " in page.text and ".." not in page.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "There is no directory nowhere"),
        (["pending"], "There is nothing to report: no run has a result yet"),
        (["one", "--metric", "episode_reward_maen"], "episode_reward_mean"),
        (["one", "-o", "report.pdf"], "A report is an .html file, but got 'report.pdf'"),
        (["one", "-o", "one"], "A report is an .html file"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_gets_its_error(rllib_command, tmp_path, arguments, message):
    write(tmp_path / "one", [1])
    write(tmp_path / "pending", [1], length=0)
    done = rllib_command("report", *arguments)
    assert done.exit_code == 2 and message in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_a_page_of_python(tmp_path):
    write(tmp_path / "one", [1])
    assert write_report(tmp_path / "one", path=tmp_path / "new" / "page.html").read_text().startswith("<!doctype html>")


def test_a_curve_without_extent_is_drawn():
    import numpy as np

    flat = Curve("flat", np.array([1.0, 2.0]), np.array([3.0, 3.0]))
    point = Curve("point", np.array([1.0]), np.array([np.nan]), np.array([np.nan]), np.array([np.nan]))
    drawn = chart([(0, flat), (9, point)], "m", "x")
    assert "nan" not in drawn and drawn.count("<path") == 3
    assert ticks(0, 1, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1] and ticks(-3, 7e6, 4)[-1] == 6e6


def test_text_is_escaped_and_markup_is_not():
    assert h("b", {"title": '"<'}, "<", h("i", None, "&"), None, [1, Html("<u>")]) == (
        '<b title="&quot;&lt;">&lt;<i>&amp;</i>1<u></b>'
    )


def test_a_failed_run_has_its_exception_with_the_notes(report, tmp_path):
    write(tmp_path / "run", [1])
    trace = 'Traceback (most recent call last):\n  File "boom.py", line 7, in step\n    raise RuntimeError(\n'
    said = f"RuntimeError: the motor burnt {'x' * 3000}\nenvironment 0 raised in step()\n"
    (tmp_path / "run" / "seed_0" / "error.txt").write_text(trace + said)
    (failed,) = [text for text in report("run").texts if "has failed" in text]
    assert "RuntimeError: the motor burnt" in failed and failed.endswith("; environment 0 raised in step()")
    assert len(failed) < 400


def test_damaged_settings_are_said_once_and_without_none(rllib_command, report, tmp_path, caplog):
    write(tmp_path / "one", [1])
    write(tmp_path / "other", [2])
    (tmp_path / "other" / "seed_0" / "params.json").write_text("{")
    text = report("one", "other").text
    assert "one/seed_0 has CartPole-v1" in text or "one has CartPole-v1" in text
    assert "other has no environment in its params.json" in text
    assert len([each for each in caplog.records if "params.json cannot be read" in each.getMessage()]) == 1


def test_runs_that_share_no_steps_are_compared_by_their_last_values(rllib_command, tmp_path):
    write(tmp_path / "short", [1], length=1, lr=1)
    write(tmp_path / "late", [1], lr=2)
    place = tmp_path / "late" / "seed_0" / "result.json"
    place.write_text("".join(place.read_text().splitlines(keepends=True)[2:]))
    failed = rllib_command("compare", "short", "late")
    assert failed.exit_code == 2 and "rllib compare --by last" in failed.output, failed.output
    assert rllib_command("compare", "short", "late", "--by", "last").exit_code == 0
