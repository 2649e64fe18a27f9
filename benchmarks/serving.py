"""A policy behind HTTP: single requests a second, latencies at half of that rate, beside a bare handler and LitServe.

Ours and the bare handler are one server process of uvicorn each, with the same settings, asked by this process over
connections that are kept open. `rllib serve` answers with the action of a 64x64 policy for CartPole; the bare handler
reads the request and answers with constant JSON, so it is what HTTP alone costs. LitServe (`benchmarks/peers/setup
litserve`) has a network of the same size in numpy, in a worker process behind one of uvicorn; once it answers one
request at a time, its default, and once up to 32 with one call of the network.

The highest rate is that of clients that send the next request when the last is answered. Latencies are those of
requests that are due at fixed times: from when a request was due to its answer, so that a server which falls behind
cannot hide it; a server whose highest rate is below that is left out. Only the server that is asked runs: LitServe's
worker polls while it has nothing to do. Then newer checkpoints take the place of the present one at half of the bar,
and answers other than 200 are counted. At the end, 10,000 connections ask at once.

The client's own cost is printed as well: client and server share the machine.
"""

import contextlib
import json
import os
import re
import resource
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, deque
from pathlib import Path

from measure import PEERS, ROOT, alternate, arguments, machine

OBSERVATION = {"observation": [0.02, 0.31, -0.04, 0.27]}
CONNECTIONS = 32
# Requests a second that are asked for, on two cores; latencies are measured at half of it, and of what was reached.
BAR = 5000
# Newer checkpoints that are taken up under load.
SWAPS = 4
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
WIDTH = 23  # of a server's name in what is printed
TICKS = os.sysconf("SC_CLK_TCK")


def request() -> bytes:
    """One request for an action."""
    body = json.dumps(OBSERVATION).encode()
    head = f"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def checkpoints(directory: Path, count: int) -> list[Path]:
    """Of PPO on CartPole with two layers of 64, after one update more each."""
    from rllib import PPOConfig

    config = PPOConfig().environment("CartPole-v1").debugging(seed=1)
    config.training(model={"fcnet_hiddens": [64, 64]}, train_batch_size=128, sgd_minibatch_size=128, num_sgd_iter=1)
    saved = []
    with config.build() as algo:
        while len(saved) < count:
            saved.append(algo.save(directory / f"checkpoint_{len(saved):06}"))
            algo.train()
    return saved


class Served:
    """A server process; `address` and the ids of the processes that answer.

    Args:
        arguments: after `python`.
        python: the interpreter, that of a peer if given.
    """

    def __init__(self, *arguments, python: Path | str = sys.executable):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [str(python), *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.said = self.process.stdout.readline()
        host, port = self.said.rstrip().rpartition("http://")[2].split(":")
        self.address = host, int(port)

    def cpu_s(self) -> float:
        """Processor time of the process and its children so far."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in (self.process.pid, *children)]
        return sum(sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats) / TICKS

    @contextlib.contextmanager
    def awake(self):
        """Lets the processes run in here alone, and holds them afterwards: some are busy without a request."""
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGSTOP)

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        with contextlib.suppress(ProcessLookupError):  # a peer may leave processes, or not end at all
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def bare(port: int) -> None:
    """The server of constant JSON."""
    import asyncio

    import uvicorn

    from rllib.serving.worker import http_config
    from rllib.web.sockets import listen

    body = b'{"action":1,"policy_version":3}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    listening, config = listen("127.0.0.1", port), http_config(app)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listening]))


def is_whole(answer: bytes) -> bool:
    """Whether all of an answer has arrived."""
    head, end, body = answer.partition(b"\r\n\r\n")
    if not answer:
        raise ConnectionError("the server has closed the connection")
    return bool(end) and len(body) == int(_LENGTH.search(head)[1])


class Clients:
    """Connections that are kept open, each with at most one request under way.

    Attributes:
        failed: number of answers with another status than 200.
    """

    def __init__(self, address, count: int = CONNECTIONS):
        self._selector, self._request = selectors.DefaultSelector(), request()
        self._idle: deque[socket.socket] = deque()
        self._parts: dict[int, bytes] = {}  # of answers, by descriptor
        self.failed = 0
        for _ in range(count):
            connection = socket.create_connection(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ)
            self._idle.append(connection)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()

    def rate(self, seconds: float) -> float:
        """Answers a second, where each connection asks again at once."""
        for connection in self._idle:
            connection.send(self._request)
        answers, began = 0, time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            for connection in self._answered(1.0):
                answers += 1
                connection.send(self._request)
        self._settle(len(self._idle))
        return answers / (now - began)

    def latencies(self, rate: float, seconds: float) -> list[float]:
        """Seconds from when each request was due to its answer, sorted; one is due every 1 / rate seconds."""
        due: dict[socket.socket, float] = {}
        found: list[float] = []
        began, sent, total = time.perf_counter(), 0, int(rate * seconds)
        while len(found) < total:
            now = time.perf_counter()
            while sent < total and began + sent / rate <= now and self._idle:
                connection = self._idle.popleft()
                due[connection] = began + sent / rate
                connection.send(self._request)
                sent += 1
            for connection in self._answered(0.0002):
                found.append(time.perf_counter() - due.pop(connection))
                self._idle.append(connection)
        return sorted(found)

    def _answered(self, wait_s: float):
        for key, _ in self._selector.select(wait_s):
            answer = self._parts.pop(key.fd, b"") + key.fileobj.recv(65536)
            if is_whole(answer):
                self.failed += not answer.startswith(b"HTTP/1.1 200")
                yield key.fileobj
            else:
                self._parts[key.fd] = answer

    def _settle(self, under_way: int) -> None:
        while under_way:
            under_way -= sum(1 for _ in self._answered(1.0))


def at_once(address, count: int) -> Counter:
    """Statuses of this number of requests that are sent over as many connections at the same time."""
    selector, found, text = selectors.DefaultSelector(), Counter(), request()
    connections = [socket.socket() for _ in range(count)]
    for connection in connections:
        connection.setblocking(False)
        connection.connect_ex(address)
        selector.register(connection, selectors.EVENT_WRITE)
    deadline = time.monotonic() + 60
    while selector.get_map() and time.monotonic() < deadline:
        for key, _ in selector.select(1.0):
            try:
                if key.events == selectors.EVENT_WRITE:
                    key.fileobj.send(text)
                    selector.modify(key.fileobj, selectors.EVENT_READ)
                    continue
                found[key.fileobj.recv(65536)[9:12].decode() or "closed"] += 1
            except OSError as error:
                found[type(error).__name__] += 1
            selector.unregister(key.fileobj)
    found["unanswered"] += len(selector.get_map())
    for connection in connections:
        connection.close()
    return +found


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--bare", action="store_true", help="be the bare handler")
    options = parser.parse_args()
    if options.bare:
        return bare(0)
    print(machine())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory, "run")
        run.mkdir()
        first, *later = checkpoints(Path(directory), 1 + SWAPS)
        first.rename(run / first.name)
        ours = Served("-m", "rllib", "serve", run, "--watch", "--port", 0)
        servers = {"rllib serve": ours, "bare handler": Served(__file__, "--bare")}
        try:
            servers |= {} if options.no_peers else peers()
            measure(servers, options)
            with ours.awake():
                swap(ours, run, later, options)
                print("10,000 connections at once:", dict(at_once(ours.address, min(10_000, hard - 100))))
        finally:
            for server in servers.values():
                server.stop()


def peers() -> dict[str, Served]:
    """LitServe's servers; none, and a line that says why, where it is not set up."""
    python = PEERS / "venvs" / "litserve" / "bin" / "python"
    if not python.exists():
        print("# without LitServe: not set up; benchmarks/peers/setup litserve", flush=True)
        return {}
    script = PEERS / "litserve_server.py"
    return {
        "LitServe": Served(script, python=python),
        f"LitServe, batches of {CONNECTIONS}": Served(script, "--batch", CONNECTIONS, python=python),
    }


def measure(servers: dict[str, Served], options) -> None:
    """Prints rates, their costs and latencies of each server."""
    costs = {}

    def rate(name: str) -> float:
        server = servers[name]
        with server.awake(), Clients(server.address, options.connections) as clients:
            used, own = server.cpu_s(), time.process_time()
            found = clients.rate(options.seconds)
            assert not clients.failed
            answers = found * options.seconds
            costs[name] = (server.cpu_s() - used) / answers * 1e6, (time.process_time() - own) / answers * 1e6
        return found

    for server in servers.values():
        with server.awake():
            pass
    ours, *others = servers
    found = alternate(options.rounds, warm_up=1, **{name: lambda n=name: rate(n) for name in servers})
    print(f"{options.connections} connections, medians of {options.rounds} rounds of {options.seconds:g} s")
    for name in servers:
        server_us, client_us = costs[name]
        cost = f"processor time of each: server {server_us:.0f} us, client {client_us:.0f} us"
        print(f"{name:<{WIDTH}} {found.median(name):7,.0f} requests/s, {cost}")
    for each in (BAR / 2, found.median(ours) / 2):
        latencies({name: server for name, server in servers.items() if found.median(name) > each}, each, options)
    for name in others:
        print(f"{ours} / {name}: {found.ratio(ours, name):.2f}")


def latencies(servers: dict[str, Served], each: float, options) -> None:
    """Prints the latencies of each server at this rate of requests a second."""
    rounds = {name: [] for name in servers}
    for _ in range(options.rounds):
        for name, server in servers.items():
            with server.awake(), Clients(server.address, options.connections) as clients:
                rounds[name].append(percentiles(clients.latencies(each, options.seconds)))
            assert not clients.failed
    for name, found_ms in rounds.items():
        p50, p99 = (statistics.median(part) for part in zip(*found_ms))
        spread = f"{min(p99 for _, p99 in found_ms):.2f} to {max(p99 for _, p99 in found_ms):.2f}"
        print(f"{name:<{WIDTH}} at {each:6,.0f}/s: p50 {p50:.2f} ms, p99 {p99:.2f} ms ({spread})")


def percentiles(latencies: list[float]) -> tuple[float, float]:
    """p50 and p99 in ms of sorted seconds."""
    p50, p99 = (latencies[int(len(latencies) * part)] * 1e3 for part in (0.5, 0.99))
    return p50, p99


def swap(server: Served, run: Path, later: list[Path], options) -> None:
    """Prints the latencies while newer checkpoints appear in the run that is served, and how many answers failed."""
    every = max(options.seconds / len(later), 1.0)  # the server looks twice a second
    timers = [threading.Timer(every * i, path.rename, (run / path.name,)) for i, path in enumerate(later)]
    for timer in timers:
        timer.start()
    with Clients(server.address, options.connections) as clients:
        latencies = clients.latencies(BAR / 2, every * len(later))
    with urllib.request.urlopen("http://{}:{}/metrics".format(*server.address)) as answer:
        taken_up = int(re.search(rb"^rllib_serve_reloads_total (\d+)", answer.read(), re.MULTILINE)[1])
    p50, p99 = percentiles(latencies)
    print(
        f"{taken_up} newer checkpoints taken up at {BAR / 2:,.0f}/s: p50 {p50:.2f} ms, p99 {p99:.2f} ms, "
        f"{clients.failed} of {len(latencies):,} answers failed"
    )


if __name__ == "__main__":
    main()
