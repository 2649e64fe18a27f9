"""The least time of work on a device, by its rates of products and copies."""

import time

import torch
from measure import Rounds, Row

# Of a trained weight: read forwards and backwards, its gradient written; Adam reads four numbers and writes three.
BYTES_PER_WEIGHT = 10 * 4


class Roofline:
    """The least time of work on a device, by rates that are measured when this is made.

    Attributes:
        flop_per_s: of a product of large float32 matrices.
        bytes_per_s: of a large copy, which reads and writes each byte.
    """

    def __init__(self, device: str):
        self.flop_per_s, self.bytes_per_s = product_rate(device), copy_rate(device)

    def ms(self, flop: float, size_bytes: float) -> float:
        """Milliseconds."""
        return max(flop / self.flop_per_s, size_bytes / self.bytes_per_s) * 1e3

    def row(self, found: Rounds, flop: float, size_bytes: float, **row) -> Row:
        """The row of the sides "ours" and "plain", with the limit beside them."""
        limit = self.ms(flop, size_bytes)
        found.values["limit"] = [limit] * len(found.values["ours"])
        peer = {"peer_name": "eager"} if "plain" in found.values else {}
        return Row.of(found, "plain", unit="ms", **peer, **row)

    def __str__(self) -> str:
        return f"{self.flop_per_s / 1e12:.3g} TFLOP/s in float32 products, {self.bytes_per_s / 1e9:.3g} GB/s in copies"


def product_rate(device: str) -> float:
    """Floating-point operations a second of a product of large float32 matrices."""
    size = 4096 if device == "cuda" else 512
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    (a @ b).sum().item()
    started = time.perf_counter()
    for _ in range(10):
        c = a @ b
    c.sum().item()
    return 10 * 2 * size**3 / (time.perf_counter() - started)


def copy_rate(device: str) -> float:
    """Bytes a second that a large copy reads and writes."""
    size = 2**28 if device == "cuda" else 2**24
    a = torch.zeros(size, dtype=torch.float32, device=device)
    b = a.clone()
    b[:1].sum().item()
    started = time.perf_counter()
    for _ in range(10):
        b.copy_(a)
    b[:1].sum().item()
    return 10 * 2 * 4 * size / (time.perf_counter() - started)
