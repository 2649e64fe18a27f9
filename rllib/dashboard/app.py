"""Server of `rllib dashboard`: a listening socket, and uvicorn that answers on it.

All answers are read-only; an id is looked up among the known runs, never used as a path.

| address            | answer                                                                                        |
|--------------------|-----------------------------------------------------------------------------------------------|
| /                  | the page                                                                                      |
| /static/NAME       | its parts                                                                                     |
| /api/runs          | all rows and experiments                                                                      |
| /api/stream        | the same, and then what changes, as server-sent events; resumes behind Last-Event-ID          |
| /api/run?id=       | one run                                                                                       |
| /api/series?id=... | curves: `id` and `key` may repeat; `x` is the horizontal axis, `points` the most of each curve; |
|                    | with `group=seeds` the runs of a folder of seeds are one curve, with the interval over them   |
| /api/names?id=...  | names of runs, and of the folders of seeds among them, by what differs between them            |
| /api/log?id=&name= | the end of one of the run's logs                                                              |
| /api/tune?id=      | parallel coordinates of an experiment                                                         |
"""

import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio
import numpy as np
import uvicorn
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from rllib.dashboard import details
from rllib.dashboard.index import Index
from rllib.dashboard.run import RESULTS, Run
from rllib.dashboard.series import MOST_POINTS, SeriesReader
from rllib.runs.entries import encode, has_entry, is_number, lookup, settings_by_path
from rllib.runs.naming import names_apart, names_by_difference
from rllib.tune.experiment.directory import logarithmic
from rllib.tune.objectives import pareto_front
from rllib.tune.reporting import plots
from rllib.tune.reporting.runs import Run as Recorded
from rllib.web.guard import Guard, server_config
from rllib.web.sockets import is_loopback, listen, url_of

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_POLL_S, _HEARTBEAT_S, _YEAR_S = 1.0, 15.0, 365 * 24 * 3600
_MOST_RUNS, _MOST_KEYS = 50, 40
# Methods of Dashboard below /api/.
_ANSWERS = ("runs", "run", "names", "series", "log", "tune", "stream")


class Page:
    """Refuses requests that may not be answered, and adds the headers that confine the page.

    Args:
        app: application that answers.
        token: that a request must carry, as ?token=, cookie or "Authorization: Bearer"; None: none is needed.
        names: see Guard.
    """

    def __init__(self, app, token: str | None, names: Iterable[str] = ()):
        self._app, self._token, self._guard = app, token, Guard(token, names)

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._refusal(scope)
            if answer is None:
                answer = self._app
            else:
                await self._guard.slow_down(scope)

            async def send_with_headers(message):
                if message["type"] == "http.response.start":
                    own = [(key.lower().encode(), value.encode()) for key, value in _HEADERS.items()]
                    message = {**message, "headers": [*message["headers"], *own]}
                await send(message)

            await answer(scope, receive, send_with_headers)

    def _refusal(self, scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return _error(405, "This page only shows; use GET.")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return _error(413, "This page only shows; send no body.")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token", "")
        cookie = f"rllib_dashboard_{(scope.get('server') or ('', 0))[1]}"
        refusal = self._guard.refusal(scope, [given, cookie_parser(headers.get("cookie", "")).get(cookie, "")])
        if refusal and refusal[0] == 401:
            return _error(401, "Open the address with ?token=... that rllib dashboard has printed.")
        if refusal:
            return _error(*refusal)
        if self._token is None or given != self._token:
            return None
        rest = [(key, value) for key, value in query if key != "token"]
        answer = RedirectResponse(scope["path"] + ("?" + urlencode(rest) if rest else ""), status_code=303)
        answer.set_cookie(cookie, self._token, max_age=_YEAR_S, httponly=True, samesite="strict")
        return answer


class Dashboard:
    """Answers about the runs of one index.

    Args:
        index: index of the runs.
        is_stopping: whether the server is ending, and streams with it.
    """

    def __init__(self, index: Index, is_stopping: Callable[[], bool]):
        self._index, self._series, self._is_stopping = index, SeriesReader(), is_stopping
        self._static = _load_static()

    def page(self, request: Request) -> Response:
        return _asset("index.html", self._static["index.html"], request)

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            raise HTTPException(404, "There is no such part of the page.")
        return _asset(name, self._static[name], request)

    def runs(self, request: Request) -> Response:
        self._index.refresh(_POLL_S)
        return _json({**self._index.changes(), "behind": self._index.is_behind})

    def run(self, request: Request) -> Response:
        return _json(details.describe(self._run(request)))

    def log(self, request: Request) -> Response:
        name = request.query_params.get("name")
        found = [path for path in details.logs(self._run(request)) if path.name == name]
        if not found:
            raise HTTPException(404, "The run has no such log.")
        text, skipped = details.tail(found[0])
        return _json({"name": name, "text": text, "skipped": skipped})

    def names(self, request: Request) -> Response:
        ids = list(dict.fromkeys(request.query_params.getlist("id")))
        if not 0 < len(ids) <= _MOST_RUNS:
            raise HTTPException(400, f"Give 1 to {_MOST_RUNS} times id=.")
        runs = {id: self._known(id) for id in ids}
        groups = {run.folder or id: run for id, run in runs.items()}
        settings = {id: details.learned_with(run) for id, run in runs.items()}
        apart = names_apart([PurePosixPath(run.name) for run in runs.values()])
        of_groups = names_by_difference(
            [settings[run.id] for run in groups.values()], names_apart(list(map(PurePosixPath, groups)))
        )
        alone = names_by_difference(list(settings.values()), apart)
        return _json({"runs": dict(zip(runs, alone)), "groups": dict(zip(groups, of_groups))})

    def series(self, request: Request) -> Response:
        query = request.query_params
        ids, keys = query.getlist("id"), query.getlist("key")
        if not ids or not keys or len(ids) > _MOST_RUNS or len(keys) > _MOST_KEYS:
            raise HTTPException(400, f"Give 1 to {_MOST_RUNS} times id= and 1 to {_MOST_KEYS} times key=.")
        points, x = query.get("points", str(MOST_POINTS)), query.get("x", "timesteps_total")
        if not (0 < len(points) < 9 and points.isdecimal() and 2 <= int(points) <= MOST_POINTS):
            raise HTTPException(400, f"points must be a whole number from 2 to {MOST_POINTS}, but got {points!r:.40}.")
        curves = []
        for id in ids:
            path = self._known(id).path
            read = self._series.read(path / RESULTS, keys, x, int(points)) if path else []
            curves += [{"id": id, "key": key, **curve} for key, curve in zip(keys, read)]
        if (group := query.get("group")) not in (None, "seeds"):
            raise HTTPException(400, f"group must be seeds, or left out, but got {group!r:.40}.")
        return _json({"x": x, "series": curves if group is None else self._by_seeds(curves)})

    def _by_seeds(self, curves: list[dict]) -> list[dict]:
        """The curves, with those of the seeds in one folder as their interquartile mean and its interval."""
        groups: dict[tuple[str, str], list[dict]] = {}
        for each in curves:
            group = self._known(each["id"]).folder or each["id"]
            groups.setdefault((group, each["key"]), []).append(each)
        return [_as_one(group, members) for (group, _), members in groups.items()]

    def tune(self, request: Request) -> Response:
        """Parallel coordinates: settings in which the trials differ, and values that they reached; the Pareto front."""
        experiment = self._index.experiments.get(request.query_params.get("id", ""))
        if experiment is None:
            raise HTTPException(404, "There is no such experiment.")
        runs = [run for run in list(self._index.runs.values()) if run.experiment is experiment]
        runs = sorted((run for run in runs if is_number(run.row.get("best"))), key=lambda run: run.trial.index)
        if len(runs) < 2:
            return _json({"ids": [], "axes": [], "front": None})
        params = [Recorded(run.name, [], dict(settings_by_path(run.row["params"]))) for run in runs]
        first = runs[0].row
        axes, _ = plots.parallel(params, [run.row["best"] for run in runs], first["metric"], first["mode"],
                                 logarithmic(experiment.header))  # fmt: skip
        shown = [{"name": axis.name, "places": axis.places, "labels": axis.labels} for axis in axes]
        front = self._front(runs, experiment.objectives) if len(experiment.objectives) > 1 else None
        return _json({"ids": [run.id for run in runs], "axes": shown, "front": front})

    def _front(self, runs: list[Run], objectives: list[tuple[str, str]]) -> dict[str, Any]:
        """Last values of several metrics by trial, and the ids of the trials on the Pareto front."""
        metrics, modes = zip(*objectives)
        values = {run.id: self._last_values(run, metrics) for run in runs}
        values = {id: numbers for id, numbers in values.items() if all(map(is_number, numbers))}
        ids = list(values)
        front = [ids[index] for index in pareto_front([values[id] for id in ids], modes)]
        return {"metrics": metrics, "values": values, "front": sorted(front, key=lambda id: values[id][0])}

    def _last_values(self, run: Run, metrics: Sequence[str]) -> list[Any]:
        """The last value of each metric; not every result has all of them, as evaluations come with some only."""
        if run.path is None or all(has_entry(run.last_result, metric) for metric in metrics):
            return [lookup(run.last_result, metric) for metric in metrics]
        return self._series.last(run.path / RESULTS, metrics)

    async def stream(self, request: Request) -> Response:
        boot, _, version = request.headers.get("last-event-id", "").partition("-")
        since = int(version) if boot == self._index.boot and version.isdecimal() and len(version) < 20 else 0
        return StreamingResponse(self._events(since), media_type="text/event-stream")

    async def _events(self, since: int):
        sent_at = time.monotonic()
        yield b"retry: 1000\n\n"
        while not self._is_stopping():
            changes = await run_sync(self._poll, since)
            if changes:
                since, sent_at = changes["version"], time.monotonic()
                yield f"id: {self._index.boot}-{since}\ndata: ".encode() + encode(changes) + b"\n\n"
            elif time.monotonic() - sent_at > _HEARTBEAT_S:
                sent_at = time.monotonic()
                yield b": still here\n\n"
            again_at = time.monotonic() + (0.05 if self._index.is_behind else _POLL_S)
            while time.monotonic() < again_at and not self._is_stopping():
                await anyio.sleep(0.05)

    def _poll(self, since: int):
        self._index.refresh(_POLL_S / 2)
        return self._index.changes(since)

    def _run(self, request: Request) -> Run:
        return self._known(request.query_params.get("id", ""))

    def _known(self, id: str) -> Run:
        run = self._index.run(id)
        if run is None:
            self._index.refresh(_POLL_S)
            run = self._index.run(id)
        if run is None:
            raise HTTPException(404, f"There is no run {id:.200} below {self._index.root}.")
        return run


def _as_one(group: str, members: list[dict]) -> dict:
    """The interquartile mean of curves, with its interval, as `Dashboard.series` answers; a single curve as it is."""
    known = [each for each in members if each["x"]]
    if len(known) < 2:
        return (known or members)[0]
    drawn = plots.seeds_as_one(group, [(np.array(each["x"]), np.array(each["y"])) for each in known])
    lines = {name: getattr(drawn, name).tolist() for name in ("x", "y", "low", "high")}
    return {**known[0], **lines, "group": group, "count": len(drawn.x)}


def make_app(
    index: Index,
    token: str | None = None,
    names: Iterable[str] = (),
    is_stopping: Callable[[], bool] = lambda: False,
) -> Page:
    """Makes the application.

    Args:
        index: index of the runs.
        token: see Page.
        names: names of this machine, see Guard; its host name is known.
        is_stopping: see Dashboard.
    """
    answers = Dashboard(index, is_stopping)
    routes = [
        Route("/", answers.page),
        Route("/static/{name}", answers.static),
        *(Route(f"/api/{name}", getattr(answers, name)) for name in _ANSWERS),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _failed})
    return Page(app, token, [*names, socket.gethostname(), socket.getfqdn()])


def _load_static() -> dict[str, bytes]:
    files = resources.files("rllib.dashboard") / "static"
    return {file.name: file.read_bytes() for file in files.iterdir() if file.name.rpartition(".")[2] in _TYPES}


def _asset(name: str, content: bytes, request: Request) -> Response:
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(content, media_type=f"{kind}; charset=utf-8")


def _json(content) -> Response:
    return Response(encode(content), media_type="application/json")


def _error(status: int, message: str) -> Response:
    return PlainTextResponse(message + "\n", status_code=status)


async def _refused(request: Request, error: HTTPException) -> Response:
    return Response(encode({"error": error.detail}), error.status_code, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    text = f"{type(error).__name__}: {error}"
    return Response(encode({"error": text}), 500, media_type="application/json")


class Server:
    """Shows the runs below a directory until it is stopped. The constructor opens the port.

    Args:
        root: the directory.
        host: name or number of the interface.
        port: port of the page; 0 takes a free one.
        token: that the browser must give; None: one is made if other machines can connect.

    Attributes:
        port: port of the page.
        token: that the browser must give; None if it needs none.

    Raises:
        OSError: if the port cannot be taken.
    """

    def __init__(self, root: Path, host: str = "127.0.0.1", port: int = 0, token: str | None = None):
        self._socket = listen(host, port)
        address, self.port = self._socket.getsockname()[:2]
        self._host, self.token = host, token or (None if is_loopback(address) else secrets.token_urlsafe(24))
        app = make_app(Index(root), self.token, [host], lambda: self._server.should_exit)
        self._server = uvicorn.Server(server_config(app, timeout_graceful_shutdown=3))

    @property
    def url(self) -> str:
        """Address of the page, with the token."""
        host = socket.gethostname() if self._host in ("0.0.0.0", "::") else self._host
        return f"{url_of(host, self.port)}/" + (f"?token={self.token}" if self.token else "")

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Answers until `stop`, or an interrupt, which is raised again."""
        on_ready()  # the socket listens already: a browser that comes now waits
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ends `run`; from any thread."""
        self._server.should_exit = True
