"""The answers to the browser, over a socket: who gets them, what they hold, and how they follow the files."""

import json
import re
from importlib import resources

import numpy as np
import pytest
from dashboard_support import RunOnDisk, served

from rllib import tune

MOST_BYTES = 120_000


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A server that shows one run, for the tests that change nothing."""
    results = tmp_path_factory.mktemp("shown") / "results"
    (results.parent / "secret.txt").write_text("secret")
    RunOnDisk(results, "first").report(1.0)
    with served(results) as client:
        yield client


@pytest.fixture
def run(results):
    run = RunOnDisk(results, "first", stop={"timesteps_total": 1e9})
    run.report(1.0, 2.0, 4.0)
    return run


def test_the_page_loads_nothing_from_elsewhere(results, serve):
    client = serve(results)
    page = client.request("/")
    policy = page.getheader("content-security-policy")
    assert page.status == 200 and "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    wanted = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
    assert wanted
    for address in wanted:
        assert client.request(address).status == 200
    files = [file for file in (resources.files("rllib.dashboard") / "static").iterdir() if file.is_file()]
    assert sum(len(file.read_bytes()) for file in files) < MOST_BYTES
    for file in files:
        text = file.read_text()
        assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}, file.name
        for module in re.findall(r'from "\./([^"]+)"', text):
            assert client.request(f"/static/{module}").getheader("content-type").startswith("text/javascript")


def test_rows_and_one_run(results, run, serve):
    client = serve(results)
    answer = client.json("/api/runs")
    assert [row["id"] for row in answer["runs"]] == ["first"] and answer["root"] == str(results)
    assert client.json("/api/run?id=first")["row"]["status"] == "running"


def test_curves(results, run, serve):
    client = serve(results)
    kl = "info/learner/default_policy/learner_stats/kl"
    answer = client.json(f"/api/series?id=first&key=episode_reward_mean&key={kl}")
    assert [(each["key"].split("/")[-1], each["x"]) for each in answer["series"]] == [
        ("episode_reward_mean", [100.0, 200.0, 300.0]),
        ("kl", [100.0, 200.0, 300.0]),
    ]
    assert answer["series"][0]["y"] == [1.0, 2.0, 4.0]
    run.report(8.0)
    assert client.json("/api/series?id=first&key=episode_reward_mean&x=time_total_s")["series"][0]["x"][-1] == 2.0


def test_seeds_of_one_folder_are_one_curve(results, run, serve):
    for seed in range(3):
        RunOnDisk(results / "all", f"seed_{seed}").report(1.0 + seed, 3.0 + seed)
    (results / "all" / "seeds.json").write_text('{"seeds": [0, 1, 2]}')
    client = serve(results)
    ids = "&".join(f"id={id}" for id in ("all/seed_0", "all/seed_1", "all/seed_2", "first"))
    alone = client.json(f"/api/series?{ids}&key=episode_reward_mean")["series"]
    assert [each["id"] for each in alone] == ["all/seed_0", "all/seed_1", "all/seed_2", "first"]
    together, other = client.json(f"/api/series?{ids}&key=episode_reward_mean&group=seeds")["series"]
    assert (together["group"], together["id"]) == ("all", "all/seed_0")
    assert (together["x"][0], together["x"][-1]) == (100, 200)
    assert [together[line][-1] for line in ("low", "y", "high")] == [3, 4, 5]
    assert other == alone[-1]
    assert {row["id"]: row["folder"] for row in client.json("/api/runs")["runs"]}["all/seed_1"] == "all"
    of_folder = serve(results / "all").json("/api/series?id=seed_0&id=seed_1&key=episode_reward_mean&group=seeds")
    assert [each["group"] for each in of_folder["series"]] == ["all"]


def test_runs_and_folders_are_named_by_what_differs(results, serve):
    for lr in (0.1, 0.2):
        for seed in range(2):
            RunOnDisk(results / f"lr{lr}", f"seed_{seed}", lr=lr, seed=seed).report(1.0)
        (results / f"lr{lr}" / "seeds.json").write_text('{"seeds": [0, 1]}')
    RunOnDisk(results, "alone", algorithm="DQN").report(1.0)
    client = serve(results)
    ids = [*(f"lr{lr}/seed_{seed}" for lr in (0.1, 0.2) for seed in range(2)), "alone"]
    found = client.json(f"/api/names?{'&'.join(f'id={id}' for id in ids)}")
    assert found["groups"] == {"lr0.1": "PPO, lr=0.1", "lr0.2": "PPO, lr=0.2", "alone": "DQN"}
    assert found["runs"]["lr0.1/seed_1"] == "PPO, lr=0.1, seed 1" and found["runs"]["alone"] == "DQN"
    assert client.request("/api/names").status == 400 and client.request("/api/names?id=nothing").status == 404


@pytest.mark.parametrize(
    "query",
    ["", "id=first", "key=a", "id=first&key=a&points=1e9", "id=first&key=a&points=1", "id=first&key=a&group=b"],
)
def test_curves_that_cannot_be_given(shown, query):
    answer = shown.request(f"/api/series?{query}")
    assert answer.status == 400 and json.loads(answer.text)["error"]


@pytest.mark.parametrize("address", [
    "/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/../../etc/passwd",
    "/api/run?id=../../../etc", "/api/run?id=/etc", "/api/run?id=", "/api/run", "/api/log?id=first&name=../run.json",
    "/api/log?id=first&name=run.json", "/api/log?id=first&name=/etc/passwd", "/api/log?id=first",
    "/api/log?id=..&name=secret.txt", "/api/series?id=../first&key=a", "/api/tune?id=..", "/api/nothing",
])  # fmt: skip
def test_nothing_beside_the_runs_is_given(shown, address):
    answer = shown.request(address)
    assert answer.status == 404 and "secret" not in answer.text and "root:" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_shows(shown, method):
    assert shown.request("/api/runs", method=method).status == 405


@pytest.mark.parametrize(("host", "status"), [
    ("localhost:1234", 200), ("127.0.0.1", 200), ("[::1]:8265", 200), ("10.1.2.3:8265", 200),
    ("evil.example", 421), ("evil.example:8265", 421), ("127.0.0.1.evil.example", 421), ("", 421), ("[evil]", 421),
])  # fmt: skip
def test_other_names_of_this_machine_are_refused(shown, host, status):
    assert shown.request("/api/runs", {"Host": host}).status == status


def test_pages_from_elsewhere_and_bodies_are_refused(shown):
    own = f"127.0.0.1:{shown.server.port}"
    for origin, status in ((f"http://{own}", 200), ("http://evil.example", 403), ("null", 403)):
        assert shown.request("/api/runs", {"Host": own, "Origin": origin}).status == status
    assert shown.request("/api/runs", {"Content-Length": "5"}).status == 413
    assert shown.request("/api/runs", {"Transfer-Encoding": "chunked"}).status == 413


def test_headers_have_a_limit_before_the_token_is_asked(results, serve):
    client = serve(results, token="abc")
    assert client.request("/", {"A": "x" * 200_000}).status == 431


def test_a_token(results, run, serve):
    client = serve(results, token="abc-123")
    assert client.server.url.endswith("/?token=abc-123")
    for address in ("/", "/api/runs", "/api/stream", "/static/app.js", "/?token=wrong", "/?token=", "/?token=%ff"):
        answer = client.request(address)
        assert answer.status == 401 and "first" not in answer.text, address
    first = client.request("/?token=abc-123&x=1")
    assert first.status == 303 and first.getheader("location") == "/?x=1"
    cookie = first.getheader("set-cookie")
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    assert client.request("/api/runs", {"Cookie": cookie.partition(";")[0]}).status == 200
    assert client.request("/api/runs", {"Cookie": cookie.partition("=")[0] + "=wrong"}).status == 401
    assert client.request("/api/runs", {"Authorization": "Bearer abc-123"}).status == 200
    assert client.request("/api/runs", {"Authorization": "Bearer abc-12"}).status == 401


def test_without_loopback_there_is_always_a_token(results, serve):
    client = serve(results, host="0.0.0.0")
    assert len(client.server.token) >= 24
    assert client.request("/api/runs").status == 401
    assert serve(results, host="localhost").server.token is None


def test_the_stream_says_all_and_then_what_changes(results, run, serve):
    client = serve(results)
    events = client.events()
    id, whole = next(events)
    assert whole["whole"] and whole["runs"][0]["last"] == 4.0
    run.report(9.0)
    while True:
        later, news = next(events)
        assert not news["whole"]
        if news["runs"][0]["last"] == news["runs"][0]["best"] == 9.0:
            break
    assert later != id
    events.close()
    # Who comes back gets what is new only; who knew an earlier server gets everything.
    RunOnDisk(results, "second")
    _, resumed = next(client.events(later))
    assert not resumed["whole"] and "second" in [row["id"] for row in resumed["runs"]]
    _, again = next(client.events("0badb007-5"))
    assert again["whole"] and len(again["runs"]) == 2


def test_a_failure_of_the_server_is_said(results, run, serve, monkeypatch):
    client = serve(results)
    monkeypatch.setattr("rllib.dashboard.details.describe", lambda run: 1 / 0)
    answer = client.request("/api/run?id=first")
    assert answer.status == 500 and json.loads(answer.text)["error"] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("later", [{}, {"other": 1}, {"gain": 5}, {"cost": 5}])
def test_pareto_front(results, serve, later):
    def objective(config):
        values = {"gain": config["x"], "cost": config["x"] + config["waste"]}
        tune.report(values)
        if later:  # a result that lacks a metric, which keeps its earlier value
            tune.report({**later, **{key: values[key] for key in later.keys() & values}})

    analysis = tune.run(
        objective,
        config={"x": tune.grid_search([1, 2]), "waste": tune.grid_search([0, 5])},
        metric=["gain", "cost"], mode=["max", "min"], name="front", storage_path=results, verbose=0,
    )  # fmt: skip
    client = serve(results)
    while (state := client.json("/api/runs"))["behind"]:
        pass
    [experiment] = state["experiments"]
    assert experiment["objectives"] == [{"metric": "gain", "mode": "max"}, {"metric": "cost", "mode": "min"}]
    found = client.json("/api/tune?id=front")["front"]
    expected = [f"front/{trial.dirname}" for trial in reversed(analysis.best_trials)]
    assert found["metrics"] == ["gain", "cost"] and found["front"] == expected and len(expected) == 2
    assert sorted(found["values"].values()) == [[1, 1], [1, 6], [2, 2], [2, 7]]
    assert sorted(row["last"] for row in state["runs"]) == [1, 1, 2, 2]


def test_parallel_coordinates(results, serve):
    space = {"x": tune.grid_search([1, 2, 3]), "y": tune.loguniform(1, 50)}
    analysis = tune.run(lambda config: {"loss": config["x"] ** 2}, config=space, metric="loss", mode="min",
                        name="search", storage_path=results, verbose=0)  # fmt: skip
    client = serve(results)
    while client.json("/api/runs")["behind"]:
        pass
    answer = client.json("/api/tune?id=search")
    assert [axis["name"] for axis in answer["axes"]] == ["x", "y", "loss"] and len(answer["ids"]) == 3
    logs = np.log([trial.config["y"] for trial in analysis.trials])
    assert answer["axes"][1]["places"] == pytest.approx(list((logs - min(logs)) / (max(logs) - min(logs))))
    assert answer["axes"][0]["places"] == [0.0, 0.5, 1.0]
