"""`rllib dashboard` as it is typed: what it says, how it ends, and what it does with bad input."""

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner
from dashboard_support import RunOnDisk

from rllib.cli import command


def _run(*arguments):
    return CliRunner().invoke(command, ["dashboard", *map(str, arguments)])


def test_it_shows_the_runs_until_ctrl_c(results):
    RunOnDisk(results, "first").report(5.0)
    arguments = [sys.executable, "-m", "rllib", "dashboard", str(results), "--port", "0", "--token", "abc"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/\?token=abc", said)[0]
        request = urllib.request.Request(url.partition("?")[0] + "api/runs", headers={"Authorization": "Bearer abc"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert b'"name":"first"' in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url.partition("?")[0], timeout=30)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (0, "ended\n", "")


def test_bad_input_is_one_line(tmp_path, results):
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, message in (
            ((tmp_path / "none",), "none does not exist; give the directory with your runs"),
            ((tmp_path / "file",), "file is a file; give"),
            ((results, "--port", port), f"port {port} is in use; give another with --port"),
            ((results, "--port", "0", "--host", "256.1.1.1"), "--host 256.1.1.1: "),
            ((results, "--port", "0", "--host", "192.0.2.1"), "cannot listen on 192.0.2.1:0: "),
            ((results, "--token", "with space"), "--token must be letters"),
            ((results, "--token", ""), "--token must be letters"),
        ):
            answer = _run(*arguments)
            assert answer.exit_code == 2, answer.output
            assert message in answer.output and len(answer.output.splitlines()) == 1


def test_without_the_extra_it_says_what_to_install(results, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("rllib.dashboard.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    answer = _run(results)
    assert answer.exit_code == 2 and "[dashboard]'" in answer.output
