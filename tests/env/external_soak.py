"""Clients of a run that are killed while the run is restarted and connections are cut: every episode counts once.

A server process trains PPO on the episodes of client processes, which reach it through a proxy. Connections are cut at
any byte, client processes are killed and replaced, and the server is killed and restored from its newest checkpoint:
once between two iterations, and once at any instant. Each episode has a reward of its own, so that the episodes that
the server has counted can be compared with those that the clients have noted:

- No episode is counted twice, and none that no client began.
- Each episode whose end was answered is counted, except those between the last checkpoint and a kill at any instant.
- All others are lost: their clients were told so, or were killed.
- All clients come to their end in time, and the server keeps no descriptor of theirs, and no more memory.

    python tests/env/external_soak.py --clients 100 --episodes 100 --seed 3

Prints what was counted; exits with 1 and the reasons if anything was lost, doubled or left.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

STEPS, PER_CLIENT = 10, 1000  # steps of an episode; ids of a client's episodes
EPISODE_TIMEOUT_S = 4.0
MOST_GROWTH_BYTES = 48 << 20


# ------------------------------------------------------------------ the server's process


def serve(port: int, directory: Path) -> None:
    """Trains, and ends by SIGKILL after the iteration in which SIGTERM has come."""
    import gymnasium

    from rllib import DefaultCallbacks, PPOConfig

    ended: list[int] = []

    class NotesReturns(DefaultCallbacks):
        def on_episode_end(self, *, episode, **_):
            ended.append(int(episode.total_reward))

    spaces = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(3)
    config = (
        PPOConfig()
        .environment(observation_space=spaces[0], action_space=spaces[1], clip_rewards=True)
        .external(listen=f"127.0.0.1:{port}", episode_timeout_s=EPISODE_TIMEOUT_S)
        .rollouts(num_rollout_workers=0, rollout_fragment_length=200)
        .training(train_batch_size=200, sgd_minibatch_size=100, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .callbacks(NotesReturns)
    )
    state_file, is_asked_to_end = directory / "state.json", threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_asked_to_end.set())
    state = {"checkpoint": 0, "counted": [], "faulty": 0}
    algorithm = config.build()
    if state_file.exists():
        state = json.loads(state_file.read_text())
        algorithm.restore(directory / f"checkpoint_{state['checkpoint']}")
    while True:
        result = algorithm.train()
        number = state["checkpoint"] + 1
        algorithm.save(directory / f"checkpoint_{number}")
        state["counted"] += [each for each in ended if each]  # an episode that was given up has no reward
        ended.clear()
        state["faulty"] += result["num_faulty_episodes"]
        state.update(checkpoint=number, saved_at=time.time())
        written = directory / "state.new"
        written.write_text(json.dumps(state))
        written.replace(state_file)
        shutil.rmtree(directory / f"checkpoint_{number - 1}", ignore_errors=True)
        if is_asked_to_end.is_set():
            os.kill(os.getpid(), signal.SIGKILL)


# ------------------------------------------------------------------ the clients' processes


def play(url: str, log: Path, episodes: int) -> None:
    """Plays a client's episodes that its log does not have yet, and notes what becomes of each."""
    from rllib.client import EpisodeLost, PolicyClient

    index, begun = int(log.stem), len(events(log).get("begin", ()))
    with open(log, "a", buffering=1) as notes, PolicyClient(url, retry_s=120.0) as client:
        for number in range(begun, episodes):
            name = 1 + index * PER_CLIENT + number
            print("begin", name, file=notes)
            try:
                episode = client.start_episode(str(name))
                for step in range(STEPS):
                    client.get_action(episode, [step / STEPS, 0.5])
                client.log_returns(episode, name)
                client.end_episode(episode, [1.0, 0.5])
                print("end", name, time.time(), file=notes)
            except EpisodeLost:
                print("lost", name, file=notes)


def events(log: Path) -> dict[str, dict[int, float]]:
    """Kind of event -> episode -> its time, where it has one."""
    found: dict[str, dict[int, float]] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        kind, name, *at = line.split()
        found.setdefault(kind, {})[int(name)] = float(at[0]) if at else 0.0
    return found


# ------------------------------------------------------------------ the connections between them


class CuttingProxy:
    """Passes connections on to a port, and cuts them when told to.

    Args:
        port: of the server on this machine; it may go away and come back.

    Attributes:
        port: where the proxy listens.
        num_cut: connections cut so far.
    """

    def __init__(self, port: int):
        self._target, self.num_cut, self._open = port, 0, set()
        started = threading.Event()

        async def listen():
            server = await asyncio.start_server(self._passed_on, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self._loop, self._ends = asyncio.get_running_loop(), asyncio.Event()
            started.set()
            await self._ends.wait()
            server.close()
            self._abort(list(self._open))

        self._thread = threading.Thread(target=lambda: asyncio.run(listen()), daemon=True)
        self._thread.start()
        started.wait()

    async def _passed_on(self, reader, writer) -> None:
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = writer, to_writer
        self._open.add(pair)
        with contextlib.suppress(asyncio.CancelledError):  # the proxy is being closed
            await asyncio.gather(self._copied(reader, to_writer), self._copied(to_reader, writer))
        self._open.discard(pair)
        self._abort([pair])

    @staticmethod
    async def _copied(reader, writer) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    @staticmethod
    def _abort(pairs) -> None:
        for pair in pairs:
            for writer in pair:
                writer.transport.abort()

    def cut(self, rng: random.Random) -> None:
        """Cuts one connection, wherever it is in a request or an answer."""

        def cut_one():
            if self._open:
                self._abort([rng.choice(sorted(self._open, key=id))])
                self.num_cut += 1

        self._loop.call_soon_threadsafe(cut_one)

    def close(self) -> None:
        """Ends all connections, and listens no longer."""
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join(10)


# ------------------------------------------------------------------ the soak


class Soak:
    """One soak; arguments as on the command line.

    Args:
        clients, episodes: number of clients, and of episodes of each.
        processes: of clients; each has an equal share of them, in threads.
        restarts: of the server.
        directory: for logs and checkpoints.
        seed: of what is cut and killed, and when.
        limit_s: a soak that takes longer hangs (seconds).
    """

    def __init__(self, clients, episodes, processes, restarts, directory, seed=0, limit_s=540.0):
        self.clients, self.episodes, self.directory = clients, episodes, directory
        self.rng, self.limit_s, self.restarts = random.Random(seed), limit_s, restarts
        self.logs = [directory / f"{index}.log" for index in range(clients)]
        self.shares = [self.logs[first::processes] for first in range(processes)]
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.num_killed, self.most_killed = 0, max(processes // 2, 1)
        self.windows: list[tuple[float, float]] = []  # between the last checkpoint and a kill at any instant
        self.problems: list[str] = []
        self.grown_bytes = 0

    def run(self) -> tuple[dict[str, int], list[str]]:
        """Returns what was counted, and what was wrong."""
        began, self.proxy = time.monotonic(), CuttingProxy(self.port)
        self._start_server()
        players = [self._started(share) for share in self.shares]
        try:
            while any(player.poll() is None for player in players):
                if time.monotonic() - began > self.limit_s:
                    self.problems.append(f"clients have not come to their end in {self.limit_s:g} s")
                    break
                self._harm(players)
                time.sleep(self.rng.uniform(0.02, 0.2))
            self.problems += [f"a client ended with status {p.returncode}" for p in players if p.returncode]
            self.proxy.close()
            self._look_for_leftovers()
            self._end_server()
        finally:
            for process in (*players, self.server):
                process.kill()
                process.wait()
        return self._compared(time.monotonic() - began)

    def _harm(self, players: list[subprocess.Popen]) -> None:
        self.proxy.cut(self.rng)
        begun = sum(log.read_bytes().count(b"begin") for log in self.logs if log.exists())
        done, stage = begun / (self.clients * self.episodes), len(self.windows)
        self.sizes_bytes.append(self.watched.memory_info().rss)
        if stage < self.restarts and done > (stage + 1) / (self.restarts + 1):
            self._restart_server(at_any_instant=bool(stage % 2))
        elif self.num_killed < self.most_killed and done > (self.num_killed + 0.5) / self.most_killed:
            index = self.rng.randrange(len(players))
            players[index].kill()
            players[index].wait()
            self.num_killed += 1
            players[index] = self._started(self.shares[index])

    def _started(self, share: list[Path]) -> subprocess.Popen:
        command = [sys.executable, __file__, "--play", f"127.0.0.1:{self.proxy.port}", "--episodes", str(self.episodes)]
        return subprocess.Popen([*command, *map(str, share)])

    # -------------------------------------------------------------- the server

    def _start_server(self) -> None:
        import psutil

        with open(self.directory / "server.log", "a") as log:
            command = [sys.executable, __file__, "--serve", str(self.port), "--directory", str(self.directory)]
            self.server = subprocess.Popen(command, stderr=log)
        end = time.monotonic() + 60
        while not self._is_healthy():
            if self.server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server has not come up: {(self.directory / 'server.log').read_text()[-2000:]}")
            time.sleep(0.05)
        self.watched = psutil.Process(self.server.pid)
        self.descriptors, self.sizes_bytes = self.watched.num_fds(), []

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _state(self) -> dict:
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.directory / "state.json").read_text())
        return {"counted": [], "faulty": 0, "saved_at": 0.0}

    def _restart_server(self, at_any_instant: bool) -> None:
        self.server.send_signal(signal.SIGKILL if at_any_instant else signal.SIGTERM)
        self.server.wait(60)
        killed_at = time.time()
        self.windows.append((self._state()["saved_at"] if at_any_instant else killed_at, killed_at))
        self._start_server()

    def _look_for_leftovers(self) -> None:
        """The server has as many descriptors as before its first client, and has not grown since it has warmed up."""
        end = time.monotonic() + 10
        while self.watched.num_fds() > self.descriptors and time.monotonic() < end:
            time.sleep(0.05)
        if (left := self.watched.num_fds() - self.descriptors) > 0:
            self.problems.append(f"{left} descriptors of clients are left in the server")
        sizes = self.sizes_bytes or [self.watched.memory_info().rss]
        self.grown_bytes = sizes[-1] - sizes[len(sizes) // 3]
        if self.grown_bytes > MOST_GROWTH_BYTES:
            self.problems.append(f"the server has grown by {self.grown_bytes >> 20} MiB")

    def _end_server(self) -> None:
        """Plays on until silent episodes are given up, and the iteration is over that counts the last ones."""
        end = time.monotonic() + EPISODE_TIMEOUT_S + 1.5
        filler = threading.Thread(target=self._fill, daemon=True)
        filler.start()
        while time.monotonic() < end:
            time.sleep(0.05)
        self.server.send_signal(signal.SIGTERM)
        try:
            self.server.wait(60)
        except subprocess.TimeoutExpired:
            self.problems.append("the server has not come to the end of an iteration")
        filler.join(60)

    def _fill(self) -> None:
        """Episodes without a reward, until the server has gone."""
        from rllib.client import PolicyClient

        with contextlib.suppress(ConnectionError), PolicyClient(f"127.0.0.1:{self.port}", retry_s=1.0) as client:
            while True:
                episode = client.start_episode()
                for _ in range(STEPS):
                    client.get_action(episode, [0.0, 0.0])
                client.end_episode(episode, [0.0, 0.0])

    # -------------------------------------------------------------- the comparison

    def _compared(self, took_s: float) -> tuple[dict[str, int], list[str]]:
        noted: dict[str, dict[int, float]] = {"begin": {}, "end": {}, "lost": {}}
        for log in self.logs:
            for kind, found in events(log).items():
                noted[kind].update(found)
        state = self._state()
        counted, once = state["counted"], set(state["counted"])
        begun, finished, lost = (set(noted[kind]) for kind in ("begin", "end", "lost"))
        forgotten = {
            each for each in finished - once if any(low <= noted["end"][each] <= high for low, high in self.windows)
        }
        wrong = {
            "are counted twice": [each for each in once if counted.count(each) > 1] if len(counted) > len(once) else [],
            "are counted that nobody began": once - begun,
            "were finished and are not counted": finished - once - forgotten,
            "are both finished and lost": finished & lost,
        }
        self.problems += [f"{len(each)} episodes {what}: {sorted(each)[:5]}" for what, each in wrong.items() if each]
        if len(begun) != self.clients * self.episodes:
            self.problems.append(f"{len(begun)} episodes were begun instead of {self.clients * self.episodes}")
        counts = {
            "begun": len(begun), "finished": len(finished), "counted": len(counted), "lost": len(lost),
            "of killed clients": len(begun - finished - lost), "faulty at the server": state["faulty"],
            "forgotten with the checkpoint": len(forgotten), "counted, but the answer was lost": len(once - finished),
            "connections cut": self.proxy.num_cut, "client processes killed": self.num_killed,
            "restarts": len(self.windows), "KiB that the server has grown": self.grown_bytes >> 10,
            "seconds": round(took_s),
        }  # fmt: skip
        return counts, self.problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--play", help=argparse.SUPPRESS)
    parser.add_argument("logs", nargs="*", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.directory)
    if given.play:
        threads = [threading.Thread(target=play, args=(given.play, log, given.episodes)) for log in given.logs]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return 0
    with tempfile.TemporaryDirectory() as made:
        shape = given.clients, given.episodes, given.processes, given.restarts
        counts, problems = Soak(*shape, given.directory or Path(made), given.seed).run()
    print("\n".join(f"{count:8,} {what}" for what, count in counts.items()))
    print("\n".join(problems), file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
