"""Whatever a browser asks for and whatever files of runs hold, every run has its row, and no answer is a failure."""

import asyncio
import random
from urllib.parse import quote, urlencode

import pytest
from dashboard_support import RunOnDisk
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rllib import tune
from rllib.dashboard.app import make_app
from rllib.dashboard.details import describe
from rllib.dashboard.index import Index
from rllib.runs.entries import encode


@pytest.mark.parametrize("examples", [60, pytest.param(5_000, marks=pytest.mark.slow)])
def test_no_query_is_the_servers_failure(tmp_path, examples):
    run = RunOnDisk(tmp_path, "first")
    run.report(1.0, **{'a"b': 2.0, "c\\d": {"\x01": 3.0}})
    index = Index(tmp_path)
    app = make_app(index, is_stopping=lambda: True)
    names = st.sampled_from(["id", "key", "x", "points", "name", "token", "other"])
    known = ["first", ".", "..", "/", 'a"b', "c\\d", "c\\d/\x01", "info/learner", "2", "9" * 5000, "²", "nan"]
    pairs = st.tuples(names, st.one_of(st.sampled_from(known), st.text(max_size=5)))
    queries = st.one_of(st.lists(pairs, max_size=6).map(urlencode), st.binary(max_size=30).map(quote))
    series = st.builds(lambda rest: "id=first&key=a%22b&" + rest, queries)
    addresses = st.sampled_from(["/", *(f"/api/{name}" for name in ["runs", "run", "series", "log", "tune", "stream"])])
    last = st.one_of(st.none(), st.text("0123456789-²x", max_size=8), st.just("9" * 5000))

    async def status_of(path: str, query: str, last_event_id: str | None) -> int:
        sent, headers = [], [(b"host", b"localhost")]
        headers += [(b"last-event-id", last_event_id.encode())] if last_event_id is not None else []

        async def receive():
            return await asyncio.get_running_loop().create_future()

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": headers}
        await app(scope, receive, send)
        return sent[0]["status"]

    with asyncio.Runner() as runner:

        @settings(max_examples=examples, deadline=None)
        @example("/api/series", "id=first&key=a%22b&key=episode_reward_mean&x=c%5Cd%2F%01", None)
        @example("/api/series", "id=first&key=a&points=" + "9" * 5000, None)
        @example("/api/stream", "", f"{index.boot}-" + "9" * 5000)
        @given(addresses, st.one_of(queries, series), last)
        def check(path, query, last_event_id):
            assert runner.run(status_of(path, query, last_event_id)) in (200, 400, 404)

        check()


def _objective(config):
    for step in range(3):
        tune.report(loss=config["x"] + step)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 24))])
def test_no_damage_stops_the_page(results, seed):
    """Random bytes of random files are changed: every run has its row, and can be described."""
    tune.run(_objective, config={"x": tune.grid_search([1, 2])}, metric="loss", mode="min", name="search",
             storage_path=results, verbose=0)  # fmt: skip
    for name in "ab":
        run = RunOnDisk(results, name, stop={"timesteps_total": 150})
        run.report(1.0, 2.0, 3.0)
        run.save()
        run.end()
    rng = random.Random(seed)
    index = Index(results)
    for _ in range(25):
        path = rng.choice([each for each in results.rglob("*") if each.is_file()])
        content = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 20)):
            if content:
                content[rng.randrange(len(content))] = rng.choice(b'{}[]",:0 nax\n\xff\x00')
        path.write_bytes(content[: rng.randint(0, len(content))] if rng.random() < 0.2 else content)
        index.refresh()
        while index.is_behind:
            index.refresh()
        encode(index.changes())
        for run in index.runs.values():
            assert run.row["status"] in ("running", "waiting", "finished", "failed", "stopped", "unknown")
            encode(describe(run))
