"""Options of the torch learner: autocast, precision of products, CUDA graphs."""

from dataclasses import dataclass
from typing import Literal

AUTOCAST = ("bfloat16",)
MATMUL_PRECISIONS = ("highest", "high", "medium")


@dataclass(frozen=True)
class TorchOptions:
    """Options of the torch learner.

    Attributes:
        autocast: type in which networks compute the operations that torch considers safe (torch.autocast); weights,
            losses and optimizers stay float32. None: float32.
        matmul_precision: precision of float32 products (torch.set_float32_matmul_precision, for the whole process):
            "high" lets a GPU use TF32, "medium" bfloat16.
        cuda_graphs: on a GPU, record the steps of updates and repeat the recording if that is measured to be faster.

    Raises:
        ValueError: for an unknown choice.
    """

    autocast: Literal["bfloat16"] | None = None
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    cuda_graphs: bool = True

    @property
    def rounds(self) -> bool:
        """Whether networks may compute with lower precision than float32, on any device."""
        return self.autocast is not None or self.matmul_precision != "highest"

    def __post_init__(self):
        if self.autocast not in (None, *AUTOCAST):
            raise ValueError(f"autocast must be one of {AUTOCAST} or None, but got {self.autocast!r}")
        if self.matmul_precision not in MATMUL_PRECISIONS:
            raise ValueError(f"matmul_precision must be one of {MATMUL_PRECISIONS}, but got {self.matmul_precision!r}")


DEFAULTS = TorchOptions()
