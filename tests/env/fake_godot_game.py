"""A game with the plug-in Godot RL Agents, as a program: agents count to five, and reward an action of 1.

Arguments are those of an exported game. `--fault=NAME` makes it misbehave.
"""

import json
import os
import socket
import struct
import sys
import time


class FakeGame:
    def __init__(self, port, fault=None, num_agents=2):
        self.fault, self.num_agents = fault, num_agents
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.counts = [0] * num_agents

    def receive(self):
        (length,) = struct.unpack("<I", self.exactly(4))
        return json.loads(self.exactly(length))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.connection.recv(count - len(data))
            if not part:
                raise SystemExit(0)
            data += part
        return data

    def send(self, message):
        data = json.dumps(message, ensure_ascii=False).encode()
        self.connection.sendall(struct.pack("<I", len(data)) + data)

    def seen(self):
        return [{"obs": [float(count), 0.5], "camera_2d": "00ff" * 2} for count in self.counts]

    def play(self):
        assert self.receive() == {"type": "handshake", "major_version": "0", "minor_version": "7"}
        while True:
            message = self.receive()
            kind = message["type"]
            if kind == "env_info":
                self.send(self.info())
            elif kind == "reset":
                self.counts = [0] * self.num_agents
                self.send({"type": "reset", "obs": self.seen()})
            elif kind == "action":
                self.act(message["action"])
            elif kind == "close":
                return

    def info(self):
        image, place = {"space": "box", "size": [1, 2, 2]}, {"space": "box", "size": [2]}
        move, aim = {"action_type": "discrete", "size": 2}, {"action_type": "continuous", "size": 1}
        return {
            "type": "env_info",
            "n_agents": self.num_agents,
            "agent_policy_names": ["über"] * self.num_agents,
            "action_space": {"move": move, "aim": aim},
            "observation_space": {"obs": place, "camera_2d": image},
        }

    def act(self, actions):
        if self.fault == "silent":
            time.sleep(60)
        if self.fault == "quits":
            print("no scene is left", flush=True)
            sys.exit(7)
        if self.fault == "short":
            return self.send({"type": "step", "obs": [], "reward": [], "done": []})
        self.counts = [count + 1 for count in self.counts]
        rewards = [float(each["move"]) for each in actions]
        # The second agent is done a step before the first.
        dones = [count >= 5 - index for index, count in enumerate(self.counts)]
        self.send({"type": "step", "obs": self.seen(), "reward": rewards, "done": dones})


if __name__ == "__main__":
    options = dict(each[2:].split("=", 1) for each in sys.argv[1:] if each.startswith("--") and "=" in each)
    if options.get("fault") == "never":
        print(f"seed {options['env_seed']}: no display", flush=True)
        sys.exit(3)
    if "fault" in options and options["fault"] == "idle":
        time.sleep(60)
    FakeGame(int(options["port"]), options.get("fault"), int(os.environ.get("FAKE_AGENTS", "2"))).play()
