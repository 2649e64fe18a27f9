"""`rllib client-example`."""

import shlex

import click

from rllib.client import parts_of_address
from rllib.env.policy_server.server_settings import ZEROMQ
from rllib.notices import shown
from rllib.web.sockets import url_of

_PYTHON = '''\
"""Plays CartPole by the actions of a policy server, which learns from it: python client.py

The server, in another terminal: rllib train PPO --external {place}
Put your own world instead of `world`. rllib/client.py can be copied: it needs {needs}.
"""

import gymnasium

from rllib.client import EpisodeLost, PolicyClient, RunEnded

ADDRESS = {address!r}  # the server's token, if it has one, is read from the variable RLLIB_TOKEN


def play(client, world):
    episode = client.start_episode()
    observation, _ = world.reset()
    over = False
    while not over:
        action = client.get_action(episode, observation)
        observation, reward, terminated, truncated, _ = world.step(action)
        client.log_returns(episode, reward)
        over = terminated or truncated
    client.end_episode(episode, observation, truncated=not terminated)


def main():
    world = gymnasium.make("CartPole-v1")
    spaces = {{"observation_space": world.observation_space, "action_space": world.action_space}}
    with PolicyClient(ADDRESS, **spaces) as client:
        while True:
            try:
                play(client, world)
            except EpisodeLost:
                continue  # the server was restored, or has given the episode up: start another
            except RunEnded as end:
                print(end)
                return


if __name__ == "__main__":
    main()
'''

_CURL = """\
#!/bin/sh
# Plays one episode of three steps by the actions of a policy server: sh client.sh
# The server, in another terminal: rllib train PPO --external {place}
# A program does the same with any HTTP client that keeps its connection.
set -eu
SERVER={address}
ask() {{
    curl --silent --show-error --retry 60 --retry-delay 1 --retry-connrefused \\
        --header "Authorization: Bearer ${{RLLIB_TOKEN:-}}" --header "Content-Type: application/json" \\
        --data "$2" "$SERVER$1"
    echo
}}

# The spaces of the simulator: the run's, if it was started without.
ask /v1/spaces '{{"observation_space": "Box(-inf, inf, (4,))", "action_space": "Discrete(2)"}}'
EPISODE=episode-$(date +%s)-$$
ask /v1/episodes "{{\\"episode_id\\": \\"$EPISODE\\"}}"
# An observation, and the reward since the last action; the answer is {{"actions":[...]}}.
item() {{
    printf '{{"items": [{{"episode_id": "%s", "observation": %s, "reward": %s}}]}}' "$EPISODE" "$1" "$2"
}}
ask /v1/act "$(item '[0.0, 0.1, 0.0, 0.1]' 0)"
ask /v1/act "$(item '[0.1, 0.0, 0.1, 0.0]' 1)"
ask /v1/act "$(item '[0.1, 0.1, 0.1, 0.1]' 1)"
# The end: the final observation. An end by a time limit also has "truncated": true.
ask /v1/end "$(item '[0.1, 0.2, 0.1, 0.2]' 1)"
"""


@click.command("client-example", short_help="Show a client of rllib train --external.")
@click.option("--curl", is_flag=True, help="A shell script with curl, in place of Python.")
@click.option("--address", default=url_of("127.0.0.1", 9900), show_default=True, metavar="URL", help="Of the server.")
def command(curl, address) -> None:
    """Show a program that steps a world by the actions of `rllib train ALGO --external HOST:PORT`; it runs as it is.

    \b
    rllib client-example > client.py
    rllib client-example --curl --address http://10.0.0.7:9900 > client.sh
    """
    address = address if "//" in address else f"http://{address}"
    is_http = not address.startswith(ZEROMQ)
    if curl and not is_http:
        raise click.UsageError(f"curl speaks HTTP, not ZeroMQ: give http://HOST:PORT, but got {shown(address)}")
    place = address.partition("//")[2] if is_http else address
    try:
        parts_of_address(address)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if any(not letter.isprintable() or letter.isspace() for letter in address):
        raise click.UsageError(f"an address is http://HOST:PORT or tcp://HOST:PORT, but got {address!r}")
    if curl:
        click.echo(_CURL.format(address=shlex.quote(address), place=place), nl=False)
    else:
        needs = "numpy and nothing else" if is_http else "numpy, pyzmq and msgspec"
        click.echo(_PYTHON.format(address=address, place=place, needs=needs), nl=False)
