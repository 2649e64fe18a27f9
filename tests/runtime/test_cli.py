"""The command `runtime`, on a session that runs in another process: this one."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from runtime_support import wait_until

import runtime
from runtime.engines.zeromq.system import stack_files


@runtime.remote
class Named:
    def __init__(self, array=None):
        self.array = array

    def sleep_deeply(self):
        time.sleep(100)

    def speak(self, text):
        print(text)

    def hold(self, values):
        self.array = values
        return True

    def nap(self, seconds):
        time.sleep(seconds)


@runtime.remote
class AtATime:
    async def nap(self, seconds):
        await asyncio.sleep(seconds)


RUN = """
import json, sys
from click.testing import CliRunner
from runtime.engines.zeromq.cli import main
results = [CliRunner().invoke(main, arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([(result.exit_code, result.output) for result in results]))
"""


def commands(address, *lines):
    """Exit code and output of each command, all run by one process: it is the start that takes time."""
    arguments = json.dumps([[*line.split(), "--address", str(address)] for line in lines])
    done = subprocess.run([sys.executable, "-c", RUN, arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_status_memory_and_stack(fresh):
    session = fresh(num_cpus=2)
    actor = Named.options(num_cpus=1, name="keeper").remote()
    shared = runtime.put(np.zeros(1_000_000))
    assert runtime.get(actor.hold.remote([shared]))
    actor.sleep_deeply.remote()
    waiting = [runtime.remote(num_cpus=2)(time.sleep).remote(0) for _ in range(3)]
    results = commands(session.session_dir, "status --json", "status", "memory --json", "memory", "stack")
    assert [code for code, _ in results] == [0] * 5, results
    status, status_text, memory, memory_text, stack = (text for _, text in results)

    status = json.loads(status)
    assert status["resources"]["CPU"] == 2 and status["available"]["CPU"] == 1
    kinds = {(p["kind"], p["runs"], p["state"]) for p in status["processes"]}
    assert ("actor", "actor keeper", "alive") in kinds
    assert sum(p["kind"] == "driver" for p in status["processes"]) == 2, "the command itself has joined"
    assert status["waiting"] == [{"what": "task sleep()", "count": 3, "needs": {"CPU": 2}}]
    assert "CPU: 1 of 2 in use" in status_text and "waiting: 3 x task sleep(), each needs CPU: 2" in status_text

    memory = json.loads(memory)
    numbers = {p["pid"]: p["number"] for p in memory["processes"]}
    [keeper] = [p["number"] for p in memory["processes"] if p["runs"] == "actor keeper"]
    [held] = [o for o in memory["objects"] if o["kind"] == "object" and keeper in o["holders"]]
    [block] = [o for o in memory["objects"] if f"value of {held['id']}" in o["holders"]]
    assert block["kind"] == "block" and block["creator"] == numbers[os.getpid()]
    assert sum(s["bytes"] for s in memory["segments"]) >= 8_000_000
    assert f"actor keeper ({next(p for p, n in numbers.items() if n == keeper)})" in memory_text

    assert "in sleep_deeply" in stack and "== keeper, process" in stack and "== node agent" in stack
    assert f"== driver, process {os.getpid()}" in stack and "test_status_memory_and_stack" in stack
    runtime.kill(actor)
    runtime.get(waiting)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_what_cannot_be_printed_is_said(fresh):
    session = fresh()
    run = "from runtime.engines.zeromq.cli import main; main()"
    for command in ("status", "memory", "stack"):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-c", run, command, "--address", str(session.session_dir)],
                stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
            )  # fmt: skip
        assert done.returncode == 1 and done.stderr == "Error: OSError: [Errno 28] No space left on device\n"


def test_a_stack_shows_processes_that_hang_even_the_node(fresh):
    session = fresh()
    fresh.settles = False
    spin = runtime.remote(lambda: [0 for _ in iter(int, 1)])
    spin.remote()
    wait_until(lambda: "lambda" in "".join(text for _, text in stack_files.read_stacks(session.session_dir).values()))
    node = runtime.context.current_engine().node_pid
    os.kill(node, 19)
    try:
        name, text = stack_files.read_stacks(session.session_dir)[node]
        assert name == "node agent" and "no answer" in text
    finally:
        os.kill(node, 18)


def following(session, **options) -> subprocess.Popen:
    """`runtime logs -f`, which has shown the first line; options as for Popen."""
    follower = subprocess.Popen(
        [sys.executable, "-u", "-m", "runtime.engines.zeromq.cli", "logs", "-f", "--address", session.session_dir],
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    assert follower.stdout.readline().endswith(") a first line\n")
    return follower


def test_logs(fresh):
    session = fresh()
    actor = Named.remote()
    runtime.get(actor.speak.remote("a first line"))
    follower = following(session)
    runtime.get(actor.speak.remote("a second line"))
    assert follower.stdout.readline().endswith(") a second line\n")
    runtime.shutdown()
    assert follower.wait(10) == 0
    follower.stdout.close()


def test_ctrl_c_ends_a_command_that_waits(fresh):
    session = fresh()
    actor = Named.remote()
    runtime.get(actor.speak.remote("a first line"))
    with following(session, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)) as follower:
        follower.send_signal(signal.SIGINT)
        assert follower.wait(10) == 0


def test_timeline(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("RUNTIME_TIMELINE", "1")
    session = fresh()
    actor = Named.remote()
    runtime.get([actor.speak.remote("x"), runtime.remote(time.sleep).remote(0.05)])

    def names():
        return {event["name"] for event in runtime.timeline() if event["ph"] == "X"}

    wait_until(lambda: names() == {"Named.__init__()", "Named.speak()", "sleep()"}, message=lambda: str(names()))
    [(code, text)] = commands(session.session_dir, f"timeline -o {tmp_path / 't.json'}")
    assert code == 0 and "5 events in" in text  # two of them name the processes
    [(code, text)] = commands(session.session_dir, f"timeline -o {tmp_path / 'none' / 't.json'}")
    assert code == 1 and text.startswith("Error: ") and text.count("\n") == 1 and "No such file or directory" in text
    [sleep] = [event for event in json.loads((tmp_path / "t.json").read_text()) if event["name"] == "sleep()"]
    assert sleep["dur"] >= 50_000 and sleep["cat"] == "task"
    assert runtime.timeline(str(tmp_path / "u.json")) is None and (tmp_path / "u.json").exists()
    at_a_time = [Named.options(max_concurrency=2).remote(), AtATime.remote()]
    runtime.get([at_a_time[0].nap.remote(0.2) for _ in range(2)] + [at_a_time[1].nap.remote(0.2) for _ in range(2)])

    def naps(name):
        return sorted(event["tid"] for event in runtime.timeline() if event["name"] == name and event["dur"] >= 200_000)

    for name in ("Named.nap()", "AtATime.nap()"):
        wait_until(lambda name=name: naps(name) == [0, 1], message=lambda: str(runtime.timeline()))


def test_where_there_is_nothing_to_show(fresh, tmp_path):
    session = fresh()
    assert runtime.timeline() == []
    [(code, text)] = commands(session.session_dir, "timeline -o -")
    assert code == 1 and "start the first driver with RUNTIME_TIMELINE=1" in text
    for code, text in commands(tmp_path / "none", "status", "stack", "memory", "timeline", "logs"):
        assert code == 1 and f"there is no session at {tmp_path / 'none'}" in text
