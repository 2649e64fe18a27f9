"""Runs of `rllib train ALGO --external`: their spaces, their clients' programs, and their end."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from unittest.mock import Mock

import pytest

import rllib.client

QUICK = ("train_batch_size=64", "sgd_minibatch_size=64", "num_sgd_iter=1", "model.fcnet_hiddens=[16]")
CARTPOLE = ("--observation-space", "Box(-inf, inf, (4,))", "--action-space", "Discrete(2)")


@pytest.fixture
def address():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def play(rllib, address):
    """Starts the program that `rllib client-example` prints."""
    started = []

    def start(*flags) -> subprocess.Popen:
        code, text = rllib("client-example", "--address", address, *flags)
        assert code == 0, text
        path = rllib.directory / ("client.sh" if flags else "client.py")
        path.write_text(text)
        process = subprocess.Popen(
            ["sh" if flags else sys.executable, str(path)], env=rllib.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def until(process, text) -> str:
    """The lines of a program, up to one that begins with a text."""
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith(text):
            return "".join(seen)
    raise AssertionError("".join(seen))


def test_the_first_client_gives_the_spaces_and_ctrl_c_ends_both(rllib, address, play):
    server = rllib.start("train", "PPO", "--external", address, "--name", "run", *QUICK)
    said = until(server, "  rllib client-example")
    assert f"policy server on http://{address}, and waits for a client that gives its spaces" in said
    client = play()
    until(server, "iter     2")
    os.killpg(server.pid, signal.SIGINT)
    output = server.communicate(timeout=120)[0]
    assert server.returncode == 130 and "Traceback" not in output, output
    assert client.communicate(timeout=60)[0].strip() == "the run that this environment samples for has ended"
    assert client.returncode == 0
    run = rllib.directory / "results" / "run"
    traffic = json.loads((run / "result.json").read_text().splitlines()[-1])["external"]
    assert traffic["clients"] == 1 and traffic["episodes_lost"] == 0 and traffic["weights_lag"] == 0
    assert traffic["requests_per_s"] > 0 and 0 < traffic["act_ms_p50"] <= traffic["act_ms_p99"]
    assert json.loads((run / "run.json").read_text())["external"] == {"listen": address}

    # The checkpoint knows the spaces, and the run goes on.
    last = int(max(run.glob("checkpoint_*")).name.rpartition("_")[2])
    again = rllib.start("train", "--resume", "results/run", "--stop", f"iterations={last + 1}")
    client = play()
    output = again.communicate(timeout=120)[0]
    assert again.returncode == 0 and f"iter {last + 1:>5}" in output, output
    assert client.wait(60) == 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_client_of_curl(rllib, address, play):
    server = rllib.start("train", "PPO", "--external", address, *CARTPOLE, "--name", "run", *QUICK)
    until(server, "  rllib client-example")
    client = play("--curl")
    output = client.communicate(timeout=120)[0]
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    spaces, started, *acted, ended = lines
    assert client.returncode == 0 and (spaces, ended) == ({}, {}), output
    assert started["episode_id"].startswith("episode-") and len(acted) == 3, output
    assert all(each["actions"][0] in (0, 1) for each in acted), output
    os.killpg(server.pid, signal.SIGINT)
    until(server, "Finishing")
    os.killpg(server.pid, signal.SIGINT)  # nobody plays any longer, and this one ends it at once
    assert server.wait(60) == 130


def test_a_client_over_zeromq_names_the_server_of_its_address(rllib_command):
    text = rllib_command("client-example", "--address", "tcp://127.0.0.1:9900").output
    _check_ends(text)
    assert "rllib train PPO --external tcp://127.0.0.1:9900\n" in text and "ADDRESS = 'tcp://127.0.0.1:9900'" in text
    assert "it needs numpy, pyzmq and msgspec." in text
    refused = rllib_command("client-example", "--curl", "--address", "tcp://127.0.0.1:9900")
    assert refused.exit_code == 2 and "curl speaks HTTP, not ZeroMQ: give http://HOST:PORT" in refused.stderr


def test_a_file_with_the_section(rllib, address, play):
    (rllib.directory / "run.yaml").write_text(
        f"algorithm: DQN\nexternal:\n  listen: {address}\n  observation_space: Box(-inf, inf, (4,))\n"
        "  action_space: Discrete(2)\n  episode_timeout_s: 20\nconfig:\n  model: {fcnet_hiddens: [16]}\n"
        "  min_sample_timesteps_per_iteration: 50\n  min_time_s_per_iteration: 0\nstop: {training_iteration: 2}\n"
    )
    server, client = rllib.start("train", "-f", "run.yaml", "--name", "run"), play()
    output = server.communicate(timeout=120)[0]
    assert "rllib evaluate" not in output  # nobody but its clients can play there
    assert server.returncode == 0 and "DQN on external" in output and "clients    1" in output, output
    assert client.wait(60) == 0
    params = json.loads((rllib.directory / "results" / "run" / "params.json").read_text())
    assert params["listen"] == address and params["episode_timeout_s"] == 20 and params["sample_timeout_s"] == 3600


@pytest.mark.parametrize(
    "words, message",
    [
        (("PPO", "--external", "9900"), 'an address is "HOST:PORT"'),
        (("PPO", "CartPole-v1", "--external", "127.0.0.1:0"), "leave out env: CartPole-v1"),
        (("PPO", "--external", "127.0.0.1:0", "--action-space", "Discrete(2)"), "give both --observation-space and"),
        (("PPO", "--external", "127.0.0.1:0", *CARTPOLE[:3], "Discreet(2)"), "Discreet is neither a space nor a dtype"),
        (("PPO", "--external", "0.0.0.0:0", *CARTPOLE), "without a token lets anyone on the network steer"),
        (("PPO", *CARTPOLE), "say what to train"),
        (("--external", "127.0.0.1:0", *CARTPOLE), "say what to train"),
        (("A3C", "--external", "127.0.0.1:0", *CARTPOLE), "does not learn from an environment that drives its own"),
        (("PPO", "--external", "127.0.0.1:0", *CARTPOLE, "lr={grid_search: [1, 2]}"), "play for a single run"),
    ],
)
def test_mistakes(rllib_command, monkeypatch, words, message):
    monkeypatch.delenv("RLLIB_TOKEN", raising=False)
    result = rllib_command("train", *words)
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr), result.stderr


@pytest.mark.parametrize("port, workers, spaces", [(65_535, 3, CARTPOLE), (65_534, 3, ()), (65_535, 2, CARTPOLE)])
def test_ports_beyond_the_largest_are_refused_before_clients_are_invited(
    rllib_command, monkeypatch, port, workers, spaces
):
    wait = Mock(side_effect=AssertionError("it waits for a client"))
    monkeypatch.setattr("rllib.cli.external.spaces_of_first_client", wait)
    place = f"127.0.0.1:{port}"
    result = rllib_command("train", "PPO", "--external", place, *spaces, f"num_rollout_workers={workers}")
    assert result.exit_code == 2 and "the largest port is 65,535" in result.stderr, result.output
    assert "policy server on" not in result.output


def test_a_port_in_use(rllib_command):
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        result = rllib_command("train", "PPO", "--external", place, *CARTPOLE)
    assert result.exit_code == 2 and "Address already in use" in result.stderr and place in result.stderr


def test_spaces_of_clients(address):
    """A client without spaces is told what to do, and one with others what the run's are."""
    from gymnasium.spaces import Box, Discrete

    from rllib.env.policy_server.first_client import spaces_of_first_client
    from rllib.env.policy_server.server_settings import ServerSettings

    code = (
        "import sys; from rllib.client import PolicyClient\n"
        "try:\n    PolicyClient(sys.argv[1], retry_s=20).start_episode()\n"
        "except ValueError as error:\n    print(error)\n"
        "PolicyClient(sys.argv[1], retry_s=0.1, observation_space='Box(0, 1, (3,))', "
        "action_space='Discrete(5)')._read_spec()"
    )
    client = subprocess.Popen([sys.executable, "-c", code, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    spaces = spaces_of_first_client(ServerSettings.of_address(address))
    assert spaces == (Box(0, 1, (3,)), Discrete(5))
    assert b"this run has no spaces yet. Give them to the client" in client.communicate(timeout=60)[0]


def test_a_client_needs_both_spaces():
    with pytest.raises(ValueError, match="give both"):
        rllib.client.PolicyClient("localhost:9900", action_space="Discrete(2)")


def _check_ends(program: str) -> None:
    """An episode that was terminated in the step in which a limit cuts it off has no value beyond its end."""
    for terminated, truncated in ((True, False), (False, True), (True, True)):
        world, client = Mock(), Mock()
        world.reset.return_value, world.step.return_value = (0, {}), (1, 0.0, terminated, truncated, {})
        names: dict = {}
        exec(program.partition("\ndef main")[0], names)
        names["play"](client, world)
        assert client.end_episode.call_args.kwargs == {"truncated": not terminated}
