"""LitServe: a 64x64 policy for CartPole behind HTTP (benchmarks/peers/setup litserve).

The network acts through numpy, on one worker process behind one process of its HTTP server, as LitServe has it by
default for one device. Prints its address when it answers, and serves until it is terminated.
"""

import argparse
import itertools
import socket
import threading
import time
import urllib.request

import litserve
import numpy as np

WIDTHS = (4, 64, 64, 2)


class Policy(litserve.LitAPI):
    """Answers with the more probable action; the weights are random."""

    def setup(self, device):
        rng = np.random.default_rng(0)
        self.layers = [
            (rng.normal(size=shape, scale=shape[0] ** -0.5).astype(np.float32), np.zeros(shape[1], np.float32))
            for shape in itertools.pairwise(WIDTHS)
        ]

    def decode_request(self, request):
        return np.asarray(request["observation"], np.float32)

    def predict(self, x):
        for weights, bias in self.layers[:-1]:
            x = np.tanh(x @ weights + bias)
        weights, bias = self.layers[-1]
        return (x @ weights + bias).argmax(-1)

    def encode_response(self, output):
        return {"action": int(output), "policy_version": 3}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def announce(address: str) -> None:
    """Prints the address when the server is ready."""
    while True:
        try:
            with urllib.request.urlopen(f"{address}/health"):
                print(address, flush=True)
                return
        except OSError:
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1, help="requests that one call of the network may answer")
    given = parser.parse_args()
    port = free_port()
    threading.Thread(target=announce, args=(f"http://127.0.0.1:{port}",), daemon=True).start()
    policy = Policy(api_path="/act", max_batch_size=given.batch)
    server = litserve.LitServer(policy, accelerator="cpu", devices=1, fast_queue=True)
    server.run("127.0.0.1", port, num_api_servers=1, log_level="error", generate_client_file=False)


if __name__ == "__main__":
    main()
