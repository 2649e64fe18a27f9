"""Environments of tests/envs.py that hand over torch tensors, and a count of what waits for a device."""

import collections
import contextlib

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorWrapper
from torch.utils._python_dispatch import TorchDispatchMode

from tests.envs import in_vector


class Tensors(VectorWrapper):
    """Results of a SyncVectorEnv as tensors; its final observations as one batch, where `finals` asks for them."""

    def __init__(self, env, finals: str | None = "final_obs"):
        super().__init__(env)
        self._finals = finals

    def reset(self, *, seed=None, options=None):
        if options:
            options = {"reset_mask": options["reset_mask"].numpy()}
        observations, _ = self.env.reset(seed=seed, options=options)
        return tensors(observations), {}

    def step(self, actions):
        assert isinstance(actions, torch.Tensor)
        observations, rewards, terminated, truncated, infos = self.env.step(actions.numpy())
        given = {}
        if self._finals and "final_obs" in infos:
            final = [now if own is None else own for now, own in zip(each(observations), infos["final_obs"])]
            given = {self._finals: stacked(final)}
        return tensors(observations), *tensors((rewards.astype(np.float32), terminated, truncated)), given


def tensors(values):
    if isinstance(values, dict):
        return {key: tensors(part) for key, part in values.items()}
    if isinstance(values, tuple):
        return tuple(map(tensors, values))
    return torch.tensor(values)


def each(batch) -> list:
    """The observations of a batch one by one."""
    if isinstance(batch, dict):
        return [dict(zip(batch, row)) for row in zip(*(each(part) for part in batch.values()))]
    return list(zip(*map(each, batch))) if isinstance(batch, tuple) else list(batch)


def stacked(rows: list):
    if isinstance(rows[0], dict):
        return {key: stacked([row[key] for row in rows]) for key in rows[0]}
    if isinstance(rows[0], tuple):
        return tuple(map(stacked, zip(*rows)))
    return torch.tensor(np.stack(rows))


def as_tensors(env, mode: AutoresetMode = AutoresetMode.SAME_STEP, finals: str | None = "final_obs"):
    """Creator of a vector of environments of a class that hands over tensors."""
    make = in_vector(env, mode)
    return lambda context: Tensors(make(context), finals)


# What needs a tensor's numbers, so that a GPU has to be waited for: methods that torch's dispatch does not see, and
# operations. (bool() and float() are _local_scalar_dense, torch.tensor() is lift_fresh.)
METHODS = ("cpu", "tolist", "numpy")
OPERATIONS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero", "lift_fresh")


class _Counting(TorchDispatchMode):
    """Counts all operations, and apart from them those that wait: OPERATIONS, and indices that are masks."""

    def __init__(self, counts: collections.Counter):
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._counts["operations"] += 1
        name = func.name().removeprefix("aten::").partition(".")[0]
        indices = args[1] if name.startswith("index") and len(args) > 1 and isinstance(args[1], list | tuple) else ()
        has_mask = any(isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in indices)
        if name in OPERATIONS or has_mask:
            self._counts[name] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def counted_waits():
    """Counts what waits for a device by name, and all tensor operations under "operations"."""
    counts = collections.Counter()
    before = {name: getattr(torch.Tensor, name) for name in METHODS}

    def counting(name, method):
        def call(*args, **kwargs):
            counts[name] += 1
            return method(*args, **kwargs)

        return call

    for name, method in before.items():
        setattr(torch.Tensor, name, counting(name, method))
    try:
        with _Counting(counts):
            yield counts
    finally:
        for name, method in before.items():
            setattr(torch.Tensor, name, method)
