"""The page in a real browser, as a user has it: it reads, sorts, filters, compares, and follows what happens."""

import json
import math
import os
import re
import urllib.parse
from pathlib import Path

import pytest
from browser import Browser, find_browser
from dashboard_support import RunOnDisk

from rllib import tune
from rllib.serving.learning.results import LearnerResults
from rllib.tune.search import Searcher

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(240),
    pytest.mark.skipif(find_browser() is None, reason="there is no Chromium here (Debian's package: chromium)"),
]
SIZES = {"desk": (1280, 800), "phone": (390, 844)}
READY = "document.documentElement.dataset.ready === '1'"
NAMES = "[...document.querySelectorAll('tbody tr')].map((row) => row.dataset.id)"


@pytest.fixture(scope="module")
def _browser():
    with Browser(find_browser()) as browser:
        yield browser


@pytest.fixture
def browser(_browser):
    """An empty page; none of its errors may be left in the end."""
    _browser.open("about:blank")
    _browser.errors.clear()
    yield _browser
    assert _browser.errors == []


@pytest.fixture
def runs(results):
    """Three runs: one that trains, one that has reached its goal, one that has failed; of two algorithms."""
    made = {name: RunOnDisk(results, name, stop={"timesteps_total": 600}, **more) for name, more in (
        ("climbing", {"lr": 0.001}), ("done", {"lr": 0.002}), ("broken", {"algorithm": "DQN", "env": "Acrobot-v1"})
    )}  # fmt: skip
    made["climbing"].report(10.0, 20.0, 40.0)
    made["done"].report(*(5.0 * n for n in range(1, 9)))
    made["done"].save()
    made["done"].end()
    made["broken"].report(None, -100.0)
    made["broken"].end()
    (made["broken"].path / "error.txt").write_text("Traceback (most recent call last):\nValueError: it broke\n")
    return made


def _hash(route: str, *pairs: tuple[str, str]) -> str:
    return f"#/{route}?{urllib.parse.urlencode(pairs)}"


def _rows(table: str) -> str:
    return f"document.querySelectorAll('[data-testid={table}] tbody tr')"


def test_the_table_sorts_filters_and_compares(browser, results, runs, serve):
    browser.open(serve(results).server.url)
    browser.wait(f"{READY} && document.querySelectorAll('.spark').length === 3")
    states = "[...document.querySelectorAll('tbody .status')].map((e) => e.innerText.trim()).sort().join()"
    assert browser.evaluate(states) == "failed,finished,running"
    for name, order in (("best", ["climbing", "done", "broken"]), ("name", ["broken", "climbing", "done"])):
        browser.click(f"[data-testid=sort-{name}]")
        assert browser.evaluate(NAMES) == order
    assert browser.evaluate("[...document.querySelectorAll('th[aria-sort]')].filter((e) => e.ariaSort !== 'none')"
                            ".map((e) => e.ariaSort)") == ["ascending"]  # fmt: skip
    browser.press("/")
    browser.type("algo:PPO return>39")
    assert browser.evaluate(NAMES) == ["climbing", "done"]
    for name in ("climbing", "done"):
        browser.click(f"tr[data-id={name}] input")
    browser.click("[data-testid=compare]")
    browser.wait(f"{READY} && window.charts.get('episode_reward_mean')?.series.length === 2")
    series = browser.evaluate("window.charts.get('episode_reward_mean').series.map((each) => each.y)")
    assert series == [[10.0, 20.0, 40.0], [5.0 * n for n in range(1, 9)]]
    lines = "[...document.querySelectorAll('.chart path.line')].map((e) => e.getAttribute('stroke-dasharray'))"
    first, second, *_ = browser.evaluate(lines)
    assert first != second
    assert browser.evaluate(f"[...{_rows('differences')}].map((e) => e.firstChild.textContent)") == ["lr"]


def test_columns_of_runs_of_one_name_say_what_differs(browser, results, serve):
    for folder, lr in (("ppo", 0.1), ("dqn", 0.2)):
        run = RunOnDisk(results / folder, "seed_0", lr=lr)
        run.report(1.0)
        run.end()
    browser.open(serve(results).server.url + _hash("compare", ("id", "ppo/seed_0"), ("id", "dqn/seed_0")))
    heads = "[...document.querySelectorAll('[data-testid=differences] th')].map((e) => e.textContent.trim()).join()"
    browser.wait(f"{READY} && {heads} === 'Setting,lr=0.1,lr=0.2'")


def test_one_run(browser, results, runs, serve):
    url = serve(results).server.url
    browser.open(url + _hash("run", ("id", "done")))
    browser.wait(f"{READY} && document.querySelectorAll('.chart path.line').length >= 3")
    text = browser.evaluate("document.querySelector('main').innerText")
    assert "timesteps_total 800 >= 600" in text and "checkpoint_000008" in text and "rllib evaluate" in text
    shown = browser.evaluate(f"[...{_rows('settings')}].map((e) => e.innerText)")
    assert any(re.match(r"lr\s+0\.002\s+0\.00005", row) for row in shown) and not any("gamma" in row for row in shown)
    browser.click("[data-testid=all-settings]")
    assert browser.wait("document.querySelector('[data-testid=settings]').innerText.includes('gamma')")
    browser.evaluate("(() => { const axis = document.querySelector('[data-testid=axis]');"
                     "axis.value = 'training_iteration'; axis.dispatchEvent(new Event('change')) })()")  # fmt: skip
    browser.wait("window.charts.get('episode_reward_mean').series[0].x.join() === '1,2,3,4,5,6,7,8'")
    browser.click("[data-testid=log]")
    browser.wait("window.charts.get('episode_reward_mean').scale.log")
    x, y = browser.evaluate("(() => { const r = document.querySelector('.chart').getBoundingClientRect();"
                            "scrollTo(0, 0); return [r.x + r.width - 14, r.y + 60] })()")  # fmt: skip
    browser.move_to(x, y)
    assert "40" in browser.wait("!document.querySelector('.tip').hidden && document.querySelector('.tip').innerText")
    browser.open(url + _hash("run", ("id", "broken")))
    browser.wait("document.querySelector('pre[data-testid=log]')?.innerText.includes('ValueError: it broke')")


@pytest.mark.parametrize(
    ("end_s", "labels"),
    [
        (40, "10 s|20 s|30 s|40 s"),
        (400, "2 min|4 min|6 min"),
        (5000, "30 min|1 h"),
        (45000, "3 h|6 h|9 h|12 h"),
        (450000, "2 d|4 d"),
    ],
)
def test_an_axis_of_training_time_has_evenly_named_ticks(browser, results, serve, end_s, labels):
    run = RunOnDisk(results, "slow")
    for share in range(1, 11):
        run.report(1.0, time_total_s=end_s * share / 10)
    browser.open(serve(results).server.url + _hash("run", ("id", "slow")))
    browser.wait(f"{READY} && document.querySelector('.chart path.line')")
    browser.evaluate("(() => { const axis = document.querySelector('[data-testid=axis]');"
                     "axis.value = 'time_total_s'; axis.dispatchEvent(new Event('change')) })()")  # fmt: skip
    shown = "[...document.querySelector('.chart').querySelectorAll('text')].map((each) => each.textContent)"
    found = browser.wait(
        f"{shown}.some((text) => / (s|min|h|d)$/.test(text)) && {shown}.filter((text) => / [a-z]+$/.test(text))"
    )
    assert "|".join(found) == labels


def test_numbers_of_any_size_are_short(browser, results, serve):
    RunOnDisk(results, "huge").report(3e300)
    browser.open(serve(results).server.url + _hash("run", ("id", "huge")))
    browser.wait(f"{READY} && document.querySelector('.chart circle')")
    texts = browser.evaluate(
        "[...document.querySelectorAll('.chart text, .facts dd, td.num')].map((each) => each.textContent)"
    )
    assert "3e+300" in texts and max(map(len, texts)) < 30


def test_a_comparison_says_what_it_leaves_out_and_keeps_its_charts(browser, results, serve):
    for number in range(22):
        RunOnDisk(results, f"run_{number}").report(1.0)
    ids = [("id", f"run_{number}") for number in range(22)]
    browser.open(serve(results).server.url + _hash("compare", *ids))
    assert "first 20 of 22 runs" in browser.wait(f"{READY} && document.querySelector('.problem')?.textContent")
    browser.evaluate("(() => { const more = document.querySelector('[data-testid=add-metric]');"
                     "more.value = more.options[1].value; more.dispatchEvent(new Event('change')) })()")  # fmt: skip
    address = "document.querySelector('main a[aria-label^=Take]').hash.split('?')[1]"
    keys = f"new URLSearchParams({address}).getAll('key').length"
    assert browser.evaluate(keys) == 3
    browser.evaluate("document.querySelector('main a[aria-label^=Take]').click()")
    assert (
        browser.wait("document.querySelector('.problem')?.textContent.includes('20 of 21') && window.charts.size") == 3
    )


def test_returns_of_all_policies_are_one_chart(browser, results, serve):
    run = RunOnDisk(results, "agents")
    for value in (1.0, 2.0):
        run.report(2 * value, policy_reward_mean={"main": value, "other": -value})
    url = serve(results).server.url
    browser.open(url + _hash("run", ("id", "agents")))
    browser.wait("window.charts.get('policy_reward_mean')?.lines.length === 2")
    lines = browser.evaluate("window.charts.get('policy_reward_mean').lines.map((each) => [each.name, each.y.at(-1)])")
    assert lines == [["main", 2], ["other", -2]]
    legend = "window.charts.get('policy_reward_mean').element.querySelector('.legend').innerText"
    assert browser.evaluate(legend).split() == ["main", "other"]


def test_seeds_of_a_folder_are_one_curve_until_the_box_is_cleared(browser, results, serve):
    for seed in range(2):
        RunOnDisk(results / "all", f"seed_{seed}").report(1.0 + seed, 3.0 + seed)
    (results / "all" / "seeds.json").write_text('{"seeds": [0, 1]}')
    url = serve(results).server.url
    browser.open(url + _hash("compare", ("id", "all/seed_0"), ("id", "all/seed_1")))
    lines = "window.charts.get('episode_reward_mean')?.lines.map((each) => each.name).join()"
    browser.wait(f"{lines} === 'all'")
    assert browser.evaluate("document.querySelector('[data-testid=curves] .legend').innerText") == "all"
    browser.click("[data-testid=seeds]")
    browser.wait(f"{lines} === 'seed_0,seed_1'")


def test_evaluations_of_some_iterations_are_lines(browser, results, serve):
    for seed in range(2):
        run = RunOnDisk(results / "all", f"seed_{seed}")
        for number in range(1, 61):
            run.report(1.0, **({} if number % 7 else {"evaluation": {"episode_reward_mean": number + seed}}))
    (results / "all" / "seeds.json").write_text('{"seeds": [0, 1]}')
    key = "evaluation/episode_reward_mean"
    browser.open(serve(results).server.url + _hash("compare", ("id", "all/seed_0"), ("id", "all/seed_1"), ("key", key)))
    line = f"document.querySelector(\"[data-testid='chart-{key}'] path.line\")?.getAttribute('d')"
    browser.wait(f"({line} || '').split('L').length === 100")
    browser.click("[data-testid=seeds]")
    browser.wait(f"{line}.split('L').length === 8")
    values = f"window.charts.get('{key}').series.map((each) => each.y)"
    assert browser.evaluate(values) == [[float(number + seed) for number in range(7, 61, 7)] for seed in range(2)]


def test_a_number_between_gaps_is_a_dot(browser, results, serve):
    values = [1.0, *(None if number % 3 else 2.0 for number in range(40)), 3.0, 4.0]
    RunOnDisk(results, "one").report(*values)
    browser.open(serve(results).server.url + _hash("run", ("id", "one")))
    dots = "document.querySelectorAll(\"[data-testid='chart-episode_reward_mean'] circle\").length"
    browser.wait(f"{dots} === 12")


def test_seeds_of_a_folder_are_one_row_until_the_box_is_cleared(browser, results, serve):
    seeds = [RunOnDisk(results / "all", f"seed_{seed}", stop={"timesteps_total": 200}) for seed in range(4)]
    (results / "all" / "seeds.json").write_text('{"seeds": [0, 1, 2, 3]}')
    for run, value in zip(seeds, (0.0, 10.0, 20.0, 100.0)):
        run.report(2 * value, value)
        run.save()
    for run in seeds[:3]:
        run.end()
    RunOnDisk(results, "alone").report(1.0)
    browser.open(serve(results).server.url)
    browser.wait(f"{NAMES}.length === 2")
    row = "[...document.querySelectorAll('tr[data-id=\"seeds of all\"] td')].map((cell) => cell.textContent)"
    browser.wait(f"{row}.includes('running') && {row}.includes('4 seeds')")
    # The means of the middle half: of the best 20 and 40, of the last 10 and 20.
    browser.wait(f"{row}.includes('30') && {row}.includes('15')")
    seeds[3].end()
    browser.wait(f"{row}.includes('finished')")
    browser.click("tr[data-id='seeds of all'] input")
    browser.wait("document.querySelector('[data-testid=compare]').innerText === 'Compare 4'")
    browser.click("[data-testid=seeds-as-one]")
    browser.wait(f"{NAMES}.length === 5 && {NAMES}.includes('all/seed_3')")
    # What is compared is what is ticked, with one row or with several.
    ticked, count = "document.querySelectorAll('tbody input:checked').length", "[data-testid=compare]"
    box = "document.querySelector('tr[data-id=\"seeds of all\"] input')"
    assert browser.evaluate(ticked) == 4
    browser.click("tr[data-id='all/seed_3'] input")
    browser.click("[data-testid=seeds-as-one]")
    assert browser.evaluate(f"{box}.indeterminate && !{box}.checked")
    assert browser.evaluate(f"document.querySelector('{count}').innerText") == "Compare 3"
    browser.click("tr[data-id='seeds of all'] input")
    assert browser.evaluate(f"document.querySelector('{count}').innerText") == "Compare 4"
    browser.click("tr[data-id='seeds of all'] input")
    browser.click("[data-testid=seeds-as-one]")
    assert browser.evaluate(ticked) == 0 and browser.evaluate(f"document.querySelector('{count}').disabled")
    browser.click("[data-testid=seeds-as-one]")
    browser.click("tr[data-id='seeds of all'] a")
    browser.wait("location.hash.startsWith('#/compare')")
    browser.wait("window.charts.get('episode_reward_mean')?.lines.length === 1")


def test_it_follows_a_run_and_comes_back_when_the_server_does(browser, results, runs, serve):
    client = serve(results)
    browser.open(client.server.url + _hash("run", ("id", "climbing")))
    browser.wait("window.charts.get('episode_reward_mean')?.series[0]?.y.length === 3")
    runs["climbing"].report(80.0)
    browser.wait("window.charts.get('episode_reward_mean').series[0].y.at(-1) === 80")
    serve.stop()
    browser.wait("document.querySelector('.live.lost')")
    runs["climbing"].report(160.0)
    serve(results, port=client.server.port)
    browser.wait("!document.querySelector('.live.lost')")
    browser.wait("window.charts.get('episode_reward_mean').series[0].y.at(-1) === 160")
    runs["climbing"].report(320.0, 640.0, 1280.0)
    runs["climbing"].end()
    browser.wait("document.querySelector('main .status.finished')")
    browser.errors[:] = [error for error in browser.errors if "ERR_" not in error]  # while the server was away


def test_a_row_whose_link_has_the_focus_follows_its_run(browser, results, serve):
    run = RunOnDisk(results, "one", stop={"timesteps_total": 200})
    run.report(1.0)
    browser.open(serve(results).server.url)
    browser.wait(f"{NAMES}.length === 1")
    browser.evaluate("document.querySelector('tr[data-id=one] a').focus()")
    run.report(2.0)
    run.end()
    browser.wait("document.querySelector('tr[data-id=one] .status.finished')")
    assert browser.evaluate("document.activeElement === document.querySelector('tr[data-id=one] a')")


def test_without_runs_it_says_what_to_type(browser, results, serve):
    browser.open(serve(results).server.url)
    browser.wait(f"{READY} && !document.querySelector('[data-testid=empty]').hidden")
    assert "rllib train PPO CartPole-v1" in browser.evaluate("document.querySelector('[data-testid=empty]').innerText")
    RunOnDisk(results, "first").report(1.0)
    browser.wait(f"{NAMES}.join() === 'first'")
    assert browser.evaluate("document.querySelector('[data-testid=empty]').hidden")


def test_the_token_is_needed_once(browser, results, runs, serve):
    server = serve(results, token="abc-123").server
    browser.open(server.url)
    browser.wait(f"{NAMES}.length === 3")
    assert "token" not in browser.evaluate("location.href") and browser.evaluate("document.cookie") == ""
    browser.open(server.url.partition("?")[0] + _hash("run", ("id", "done")))
    browser.wait(f"{READY} && document.querySelectorAll('.chart path.line').length")


def test_an_address_of_nothing_says_so(browser, results, serve):
    url = serve(results).server.url
    for route in ("run", "compare", "tune"):
        browser.open(url + _hash(route, ("id", "no such run")))
        text = browser.wait("document.querySelector('[data-testid=error]')?.innerText")
        assert "no such run" in text
    browser.errors[:] = [error for error in browser.errors if "404" not in error]


def test_an_open_page_follows_what_appears_and_goes(browser, results, serve):
    url, text = serve(results).server.url, "document.querySelector('main').innerText"
    browser.open(url + _hash("run", ("id", "late")))
    browser.wait("document.querySelector('[data-testid=error]')?.innerText")
    late = RunOnDisk(results, "late", lr=0.1)
    settings = (late.path / "params.json").rename(results / "params.json")
    browser.wait(f"{text}.includes('There is no params.json yet.')")
    settings.rename(late.path / "params.json")
    late.report(1.0)
    browser.wait("document.querySelector('[data-testid=settings]')?.innerText.includes('lr')")
    RunOnDisk(results, "other").report(2.0)
    browser.open(url + _hash("compare", ("id", "late"), ("id", "other")))
    browser.wait(f"{text}.includes('Compare 2 runs')")
    for name, title in (("elsewhere", "Compare 1 run"), ("late", "Compare 2 runs")):  # moved away, and back
        late.path = late.path.rename(results / name)
        browser.wait(f"document.querySelector('h1')?.innerText === '{title}'")
        assert browser.evaluate(f"{text}.includes('There is no run late')") == (name == "elsewhere")
    browser.errors[:] = [error for error in browser.errors if "404" not in error]


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_pages_opened_before_the_first_result_get_charts(browser, results, serve, names):
    """And offer results that come later; charts that were all removed stay away."""
    runs = [RunOnDisk(results, name) for name in names]
    route = "compare" if len(names) > 1 else "run"
    browser.open(serve(results).server.url + _hash(route, *(("id", name) for name in names)))
    browser.wait(READY)
    for run in runs:
        run.report(1.0)
        run.end()
    browser.wait(f"window.charts.get('episode_reward_mean')?.series.length === {len(names)}")
    offered = "[...document.querySelector('[data-testid=add-metric]').options].map((each) => each.value)"
    assert "evaluation/episode_reward_mean" not in browser.evaluate(offered)
    browser.evaluate("document.querySelectorAll('figcaption button').forEach((each) => each.click())")
    with open(runs[0].path / "result.json", "a") as file:
        file.write(json.dumps({"episode_reward_mean": 2.0, "evaluation": {"episode_reward_mean": 5.0}}) + "\n")
    browser.wait(f"{offered}.includes('evaluation/episode_reward_mean')")
    assert browser.evaluate("window.charts.size") == 0


def test_settings_of_trials_become_columns_of_an_open_page(browser, results, serve):
    heads = "[...document.querySelectorAll('thead th')].map((each) => each.textContent).join()"
    url = serve(results).server.url

    class Watched(Searcher):
        """Its first trial is asked for while the page of the experiment is open."""

        def suggest(self, trial_id):
            browser.open(url + _hash("tune", ("id", "search")))
            browser.wait(f"{heads}.includes('Trial')")
            browser.press("/")
            browser.type("x>")
            return {"x": 1}

    tune.run(lambda config: {"score": config["x"]}, search_alg=Watched(), metric="score", mode="max", name="search",
             storage_path=results, verbose=0)  # fmt: skip
    browser.wait(f"{heads} === ',Trial,x,Status,Steps,Best ↓,Last,Curve,Updated'")
    browser.type("0")  # the filter still has the focus
    browser.wait(f"document.activeElement.value === 'x>0' && {NAMES}.length === 1")


def test_settings_of_one_last_name_are_told_apart(browser, results, serve):
    space = {"actor": {"lr": tune.grid_search([1, 2])}, "critic": {"lr": tune.grid_search([3, 4])}, "n": {"k": 5}}
    tune.run(lambda config: {"score": config["actor"]["lr"]}, config=space, metric="score", mode="max", name="search",
             storage_path=results, verbose=0)  # fmt: skip
    browser.open(serve(results).server.url + _hash("tune", ("id", "search")))
    heads = "[...document.querySelectorAll('thead th')].map((each) => each.textContent).join()"
    browser.wait(f"{READY} && {heads}.startsWith(',Trial,actor/lr,critic/lr,Status')")
    axes = "[...document.querySelectorAll('[data-testid=parallel] text')].map((each) => each.textContent)"
    browser.wait(f"{axes}.includes('actor/lr') && {axes}.includes('critic/lr')")


def test_text_of_files_is_never_markup(browser, results, serve):
    evil = "<img src=x onerror=document.title='owned'>"
    RunOnDisk(results, "evil", env=evil, note=evil).path.rename(results / evil)
    (results / evil / "error.txt").write_text(evil)
    line = {"episode_reward_mean": 1, "<b>key</b>": 2, "text": evil}
    (results / evil / "result.json").write_text(json.dumps(line) + "\n")
    url = serve(results).server.url
    browser.open(url)
    browser.wait(f"{NAMES}.length === 1")
    browser.open(url + _hash("run", ("id", evil)))
    browser.wait(f"{READY} && document.body.innerText.includes('<b>key</b>')")
    assert browser.evaluate("document.querySelectorAll('main img, main b').length") == 0
    assert "owned" not in browser.evaluate("document.title").replace(evil, "")


def test_the_keyboard_reaches_everything_and_shows_where_it_is(browser, results, runs, serve):
    browser.open(serve(results).server.url)
    browser.wait(f"{NAMES}.length === 3")
    reached = set()
    for _ in range(30):
        browser.press("Tab")
        reached.add(browser.evaluate("document.activeElement.dataset.testid || document.activeElement.tagName"))
        if browser.evaluate("document.activeElement.dataset.testid") == "sort-name":
            assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            browser.press("Enter")
            assert browser.evaluate("document.activeElement.closest('th').ariaSort") in ("ascending", "descending")
    assert reached >= {"filter", "sort-name", "sort-last", "INPUT", "A"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_view_fits_and_can_be_read(browser, results, runs, serve, size, dark):
    """With SCREENSHOTS=DIRECTORY the views are kept as pictures."""
    tune.run(lambda config: {"episode_reward_mean": -config["x"]}, config={"x": tune.grid_search([1, 2, 3])},
             metric="episode_reward_mean", mode="max", name="search", storage_path=results, verbose=0)  # fmt: skip
    tune.run(lambda config: {"gain": config["x"], "cost": config["x"] ** 2}, config={"x": tune.grid_search([1, 2, 3])},
             metric=["gain", "cost"], mode=["max", "min"], name="front", storage_path=results, verbose=0)  # fmt: skip
    tune.run(lambda config: {"score": math.nan}, metric="score", mode="max", num_samples=2, name="nothing",
             storage_path=results, verbose=0)  # fmt: skip
    url = serve(results).server.url
    both = [("id", "done"), ("id", "climbing")]
    for route, pairs in (("runs", []), ("run", both[:1]), ("compare", both),
                         *(("tune", [("id", name)]) for name in ("search", "front", "nothing"))):  # fmt: skip
        browser.open("about:blank")
        browser.open(url + _hash(route, *pairs), *SIZES[size], dark=dark)
        browser.wait(f"{READY} && document.querySelectorAll('tbody tr').length > 1")
        if route in ("run", "compare") or ("id", "search") in pairs:
            browser.wait("document.querySelectorAll('.chart path.line').length")
        assert browser.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], route
        assert browser.evaluate(_LOW_CONTRAST) == [], route
        assert browser.evaluate(_LEFT_OUT) == [], (route, pairs)
        if ("id", "search") in pairs:
            assert browser.evaluate(_NAMES_OF_AXES) == ["x", "episode_reward_mean"]
        if directory := os.environ.get("SCREENSHOTS"):
            browser.screenshot(Path(directory) / f"{route}-{size}-{'dark' if dark else 'light'}.png")


# Names of parallel coordinates that stand above their axes, inside the picture.
_NAMES_OF_AXES = """(() => {
  const picture = document.querySelector("[data-testid=parallel] svg");
  const [whole, axes] = [picture.getBoundingClientRect(), [...picture.querySelectorAll("line.grid")]];
  return axes.map((line) => {
    const [axis, name] = [line.getBoundingClientRect(), line.nextElementSibling];
    const { left, right } = name.getBoundingClientRect();
    const stands = left <= axis.x && axis.x <= right && whole.left <= left && right <= whole.right;
    return stands && name.textContent;
  });
})()"""

# Texts that a condition should have left out.
_LEFT_OUT = """(() => {
  const [found, walker] = [[], document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT)];
  while (walker.nextNode()) if (/^(null|false|undefined|NaN)$/.test(walker.currentNode.data.trim())) {
    if (!walker.currentNode.parentElement.closest("td")) found.push(walker.currentNode.parentElement.outerHTML);
  }
  return found;
})()"""

# Texts whose contrast with what is behind them is below 4.5 (WCAG 2, AA).
_LOW_CONTRAST = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0.99) return c; } return [255, 255, 255]; };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest('svg, :disabled, option, noscript')) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) low.push(`${e.tagName} ${e.textContent.slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return low;
})()"""


def test_the_page_of_a_server_that_learns(browser, results, serve):
    directory = results / "learned"
    directory.mkdir()
    files = LearnerResults(directory, {"algorithm": "DQN", "env": "CartPole-v1"})
    stats = learner_stats(candidate={"version": 40, "episodes": 12, "mean_return": 31.5, "served_episodes": 80,
                                     "served_mean_return": 30.5})  # fmt: skip
    files.add(stats, 0.1, has_event=True)
    browser.open(serve(results).server.url + _hash("run", ("id", "learned")))
    browser.wait(f"{READY} && document.querySelector('[data-testid=serving]')")
    rows = "[...document.querySelectorAll('[data-testid=serving] > div')]"
    facts = f"{rows}.map((row) => row.innerText.replace(/\\s+/g, ' '))"
    shown = browser.evaluate(facts)
    assert shown.pop(1).startswith("served since")
    assert shown == [
        "served version 20", "its mean return 29.5", "canary version 40", "canary share 10 %",
        "canary return 31.5 in 12 episodes", "served meanwhile 30.5 in 80 episodes", "steps waiting for the learner 7",
        "steps held by the vetting 300", "updates behind the learner 25", "promoted 1", "dropped 2", "learning running",
    ]  # fmt: skip
    assert browser.evaluate("window.charts.has('episode_reward_mean')")
    files.add(learner_stats(paused=True), 0.1, has_event=True)
    browser.wait("document.querySelector('[data-testid=serving]').innerText.includes('none on trial')")
    assert "learning paused" in browser.evaluate(facts)


def learner_stats(candidate=None, paused=False):
    """Statistics of a learner, as GET /stats has them."""
    return {
        "served": {"version": 20, "episodes": 400, "mean_return": 29.5}, "candidate": candidate, "paused": paused,
        "promoted": 1, "dropped": 2, "rows": {"waiting": 7, "held": 300}, "learner": {"version": 45, "steps": 5000},
    }  # fmt: skip
