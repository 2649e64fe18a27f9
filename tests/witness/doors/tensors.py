"""Doors of vector environments that take and return torch tensors, by autoreset mode."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorWrapper

from tests.witness.doors.scripted import check, world
from tests.witness.doors.vector import vector


class Tensors(VectorWrapper):
    """A vector environment whose arrays are tensors."""

    def reset(self, *, seed=None, options=None):
        if options is not None:
            options = {"reset_mask": options["reset_mask"].numpy()}
        return _as_tensors(super().reset(seed=seed, options=options))

    def step(self, actions):
        check(isinstance(actions, torch.Tensor), f"actions are {type(actions)}, not a tensor")
        return _as_tensors(super().step(actions.numpy()))


def _as_tensors(value):
    if isinstance(value, dict):
        return {key: _as_tensors(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_as_tensors, value))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return torch.from_numpy(value.astype(np.float32) if value.dtype == np.float64 else value.copy())
    if isinstance(value, np.ndarray):  # final observations of the environments that have ended
        shown = next(each for each in value if each is not None)
        return _stacked([shown if each is None else each for each in value])
    return value


def _stacked(rows):
    if isinstance(rows[0], dict):
        return {key: _stacked([row[key] for row in rows]) for key in rows[0]}
    if isinstance(rows[0], tuple):
        return tuple(_stacked(list(parts)) for parts in zip(*rows))
    return _as_tensors(np.stack(rows))


def _tensors(family, mode, context):
    return Tensors(vector(family, mode, context))


@contextmanager
def _door(mode, config, family, case):
    """Rollouts are tensors where the algorithm and the case admit it, else they are copied into arrays."""
    config.environment(partial(_tensors, family, mode), env_config=world(family, case))
    needs_arrays = case["workers"] or config.restart_failed_sub_environments or family.limit_is_end
    config.rollouts(tensor_rollouts=case["algorithm"] in ("PPO", "A2C") and not needs_arrays)
    yield


next_step = partial(_door, AutoresetMode.NEXT_STEP)
same_step = partial(_door, AutoresetMode.SAME_STEP)
disabled = partial(_door, AutoresetMode.DISABLED)
