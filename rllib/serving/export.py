"""Exports of policies: a torch program (.pt2), TorchScript (.pt) or an ONNX graph (.onnx), compared with the policy
before it is kept.
"""

import contextlib
import errno
import importlib.util
import io
import json
import logging
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rllib import __version__
from rllib.algorithms.base.algorithm import Algorithm
from rllib.algorithms.base.wiring import playable_environment
from rllib.env.factories.adapters import adapted, adapters_of
from rllib.env.factories.registry import EnvContext
from rllib.env.spaces.actions import action_mapper, of_each
from rllib.extras import install_hint
from rllib.models.observations.flat_spaces import values_of_leaves
from rllib.models.observations.masks import choice_problem, parts_of_mask
from rllib.policy import WEIGHTS, Policy
from rllib.runs.safe_files import naming, write_whole
from rllib.sample_batch import DEFAULT_POLICY
from rllib.serving.exported_policy import (
    DIST_INPUTS,
    STATE_IN,
    STATE_OUT,
    VALUE,
    WHERE_RLLIB_IS,
    ExportedPolicy,
    ExportError,
    Port,
)
from rllib.storage.local_path import local_path
from rllib.storage.tensor_file import TensorFile

Format = Literal["torch", "onnx", "torchscript"]
# Weights without a program.
WEIGHTS_FORMAT, WEIGHTS_SUFFIX = "safetensors", ".safetensors"
# Version of the operators in an ONNX graph.
OPSET = 18
BATCH_SIZES = (1, 2, 7, 64)
# Steps that a policy with a memory is compared over.
NUM_STEPS = 20
TOLERANCE = 1e-5

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Parity:
    """Result of the comparison of an export with the policy.

    Attributes:
        num_rows: number of observations compared.
        max_error: output -> largest |difference| / max(1, |policy's|); 0 for discrete actions.
        num_ties: number of discrete actions that differ where the policy's two best scores are equal up to rounding.
    """

    num_rows: int
    max_error: dict[str, float]
    num_ties: int


@dataclass(frozen=True)
class Export:
    """A policy that has been written as a file.

    Attributes:
        path: path of the file; its description has the same name with .json behind it.
        inputs, outputs: ports of the program, in the order of its arguments and results.
        parity: result of the comparison; None if nothing was compared.
    """

    path: Path
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    parity: Parity | None


def export_policy(
    algorithm: Algorithm,
    path: str | os.PathLike,
    format: Format | None = None,
    *,
    policy_id: str = DEFAULT_POLICY,
    verify: bool = True,
    only_actions: bool = False,
) -> Export:
    """Writes an algorithm's policy, acting without exploration, as one file that does not need rllib.

    Args:
        algorithm: has the policy.
        path: path of the file; the format's suffix, .pt2, .onnx or .pt, is added unless it ends so.
        format: "torch": `torch.export.load(path).module()` gives a function of tensors. "onnx": any runtime of ONNX
            runs it; the extra onnx is needed to write it. "torchscript": `torch.jit.load(path)` gives a module with
            forward(obs) -> actions and a reset() that does nothing, as programs of robots that were trained by rsl_rl
            call it. None: as the path ends, else "torch": "policy.v2" becomes the torch program policy.v2.pt2.
        policy_id: id of the policy.
        verify: compare it with the policy on batches of 1, 2, 7 and 64 observations, drawn from the space and, where an
            environment can be made, taken from its episodes; with a memory over 20 steps.
        only_actions: the only output is "actions", and an observation of one part is the input "obs"; always so with
            "torchscript".

    Returns:
        the export. A file with the same name and .json behind it describes inputs, outputs and the comparison.

    Raises:
        ExportError: (a ValueError) for a policy with parts that cannot be exported, or if the export does not do what
            the policy does. Nothing is written then.
        ImportError: if the extra onnx is missing.
        OSError: if the file cannot be written.
        TypeError: for anything else than an algorithm.
    """
    if not isinstance(algorithm, Algorithm):
        raise TypeError(
            f"export_policy takes an algorithm, but got a {type(algorithm).__name__}. Algorithm.from_checkpoint(PATH) "
            "makes one of a checkpoint; rllib export PATH exports a checkpoint from the shell."
        )
    if format == WEIGHTS_FORMAT or local_path(path).suffix.lower() == WEIGHTS_SUFFIX:
        raise ExportError(
            f"{os.fspath(path)}: {WEIGHTS_FORMAT} files have weights alone. export_weights(policy, path) writes them."
        )
    format = checked_format(path, format)
    form = FORMATS[format]
    path = _with_suffix(path, form.suffix)
    module = ExportedPolicy(algorithm, policy_id, only_actions or format == "torchscript").eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    described_in = path.with_name(f"{path.name}.json")
    for target in (path, described_in):
        if target.is_dir():  # found before the other file is written next to it
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as directory:
        written = Path(directory, path.name)
        with naming(path), torch.no_grad():  # not in the module: torch 2.6 writes no program that turns gradients off
            form.write(module, written)
        parity = _compared(form.load(written, module), module, algorithm, policy_id) if verify else None
        description = Path(directory, described_in.name)
        description.write_text(json.dumps(_described(module, algorithm, policy_id, format, parity), indent=2))
        os.replace(written, path)
        os.replace(description, described_in)
    return Export(path, tuple(module.inputs), tuple(module.outputs), parity)


def checked_format(path: str | os.PathLike, format: str | None) -> str:
    """The format of an export to this path, by its suffix where none is given; "safetensors" for weights alone.

    Raises:
        ExportError: (a ValueError) for an unknown format, or a path with the suffix of another one.
    """
    suffixes = {**{name: form.suffix for name, form in FORMATS.items()}, WEIGHTS_FORMAT: WEIGHTS_SUFFIX}
    if format is not None and format not in suffixes:
        raise ExportError(f"format must be one of {', '.join(FORMATS)}, but got {format!r}")
    path = local_path(path)
    by_suffix = next((name for name, suffix in suffixes.items() if suffix == path.suffix.lower()), None)
    if format is not None and by_suffix not in (None, format):
        raise ExportError(
            f"format={format!r} writes {suffixes[format]} files, but {path} ends as those of {by_suffix!r}. Use the "
            f"name {path.with_suffix(suffixes[format]).name}, or the format {by_suffix!r}."
        )
    return format or by_suffix or "torch"


def export_weights(policy: Policy, path: str | os.PathLike) -> Path:
    """Writes a policy's parameters by name, and its observation filter's statistics, as a safetensors file.

    Args:
        policy: has them; `Policy.parameters` and, with "filter." before their names, its filter's state are written.
        path: path of the file; .safetensors is added unless it ends so.

    Returns:
        the path.

    Raises:
        ExportError: (a ValueError) for a path with the suffix of a format of `export_policy`.
        OSError: if the file cannot be written.
        TypeError: for anything else than a policy.
    """
    if not isinstance(policy, Policy):
        raise TypeError(
            f"export_weights takes a policy, but got a {type(policy).__name__}. algorithm.get_policy() has it, and "
            "Algorithm.from_checkpoint(PATH) makes an algorithm of a checkpoint."
        )
    if any(form.suffix == local_path(path).suffix.lower() for form in FORMATS.values()):
        raise ExportError(f"{path} ends as exports with a program, but this writes weights alone: use {WEIGHTS_SUFFIX}")
    path = _with_suffix(path, WEIGHTS_SUFFIX)
    arrays = {**policy.parameters(), **policy.get_state()}
    del arrays[WEIGHTS]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, b"".join(TensorFile(arrays).parts()))
    return path


def _with_suffix(path: str | os.PathLike, suffix: str) -> Path:
    path = local_path(path)
    if path.is_dir():
        why = f"{os.strerror(errno.EISDIR)}. Name a file in it, such as {path / 'policy'}{suffix}"
        raise IsADirectoryError(errno.EISDIR, why, str(path))
    return path if path.suffix.lower() == suffix else path.with_name(path.name + suffix)


def _described(
    module: ExportedPolicy, algorithm: Algorithm, policy_id: str, format: str, parity: Parity | None
) -> dict[str, Any]:
    return {
        "format": format,
        "algorithm": type(algorithm).__name__,
        "env": algorithm.config.env if isinstance(algorithm.config.env, str) else str(algorithm.config.env),
        "policy_id": policy_id,
        "timesteps_total": algorithm.timesteps,
        "inputs": [asdict(port) for port in module.inputs],
        "outputs": [asdict(port) for port in module.outputs],
        "parity": None if parity is None else asdict(parity),
        "versions": {"rllib": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


# ---------------------------------------------------------------------- the formats


class Torch:
    """The format "torch": a program that `torch.export.load` reads."""

    suffix = ".pt2"

    @staticmethod
    def write(module: ExportedPolicy, path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that weights are views of one vector, which it copies
            content = io.BytesIO()  # on a full disk torch's own writer of files ends the process
            torch.export.save(_program(module), content)
        path.write_bytes(content.getbuffer())

    @staticmethod
    def load(path: Path, module: ExportedPolicy) -> Callable[[Arrays], Arrays]:
        """Reads the file as a function from inputs to outputs."""
        function = torch.export.load(io.BytesIO(path.read_bytes())).module()  # it wants .pt2 at the end of a path
        return lambda inputs: [output.numpy() for output in function(*map(torch.from_numpy, inputs))]


class Onnx:
    """The format "onnx": a graph that any runtime of ONNX runs."""

    suffix = ".onnx"

    @staticmethod
    def write(module: ExportedPolicy, path: Path) -> None:
        missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
        if missing:
            raise ImportError(
                f"format='onnx' needs the extra onnx, but there is no {', '.join(missing)}. Use {install_hint('onnx')}."
            )
        inputs, outputs = ([port.name for port in ports] for ports in (module.inputs, module.outputs))
        with warnings.catch_warnings(), _quiet("torch.onnx"):
            warnings.simplefilter("ignore")
            names = {"input_names": inputs, "output_names": outputs}
            traced = _program(module)
            with _naming_network():
                program = torch.onnx.export(traced, dynamo=True, opset_version=OPSET, verbose=False, **names)
            program.save(path)

    @staticmethod
    def load(path: Path, module: ExportedPolicy) -> Callable[[Arrays], Arrays]:
        """Reads the file as a function from inputs to outputs."""
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [port.name for port in module.inputs]
        return lambda inputs: session.run(None, dict(zip(names, inputs)))


class TorchScript:
    """The format "torchscript": a traced module that `torch.jit.load` reads."""

    suffix = ".pt"

    @staticmethod
    def write(module: ExportedPolicy, path: Path) -> None:
        example = _example(module)
        module(*example)  # the first call allocates
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that torch.export is newer
            with _naming_network():
                program = torch.jit.trace(_Deployed(module), example, check_trace=False)
            content = io.BytesIO()  # as for the format "torch"
            torch.jit.save(program, content)
        path.write_bytes(content.getbuffer())

    @staticmethod
    def load(path: Path, module: ExportedPolicy) -> Callable[[Arrays], Arrays]:
        """Reads the file as a function from inputs to outputs."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function = torch.jit.load(str(path))
        return lambda inputs: [function(*map(torch.from_numpy, inputs)).numpy()]


class _Deployed(torch.nn.Module):
    """A policy of one output, with the method `reset` that programs of robots call before an episode."""

    def __init__(self, policy: ExportedPolicy):
        super().__init__()
        self._policy = policy

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._policy(*inputs)[0]

    @torch.jit.export
    def reset(self) -> None:
        """Does nothing: there is no memory."""


FORMATS = {"torch": Torch, "onnx": Onnx, "torchscript": TorchScript}


def _example(module: ExportedPolicy) -> tuple[Tensor, ...]:
    """Inputs of two rows: a program traced with one row or none would be valid for that number only."""
    module.space.seed(0)
    arrays = _arrays(module, module.space, [module.space.sample() for _ in range(2)])
    tensors = tuple(map(torch.from_numpy, arrays))
    return tensors if len(tensors) == len(module.inputs) else (*tensors, torch.zeros(2, *module.inputs[-1].shape))


def _program(module: ExportedPolicy) -> torch.export.ExportedProgram:
    example = _example(module)
    module(*example)  # the first call allocates
    shapes = (tuple({0: torch.export.Dim.DYNAMIC} for _ in example),)
    with _naming_network():
        return torch.export.export(module, example, dynamic_shapes=shapes, strict=False)


@contextlib.contextmanager
def _naming_network() -> Iterator[None]:
    """Raises an ExportError for a network that cannot be a program for any number of rows."""
    try:
        yield
    except Exception as error:  # of many kinds, since a network of the user's may do anything
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = str(cause).strip().split("\n")[0]
        raise ExportError(
            f"this policy's network cannot be exported in this format: {reason} In forward(), use x.shape[0] instead "
            f"of len(x), and torch.where instead of a branch by numbers of a tensor. {WHERE_RLLIB_IS}"
        ) from error


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# ---------------------------------------------------------------------- the comparison


def _compared(
    exported: Callable[[Arrays], Arrays], module: ExportedPolicy, algorithm: Algorithm, policy_id: str
) -> Parity:
    policy, outputs = algorithm._network(policy_id), [port.name for port in module.outputs]
    rng, is_recurrent = np.random.default_rng(0), module.inputs[-1].name == STATE_IN
    largest, num_rows, num_ties = dict.fromkeys(outputs, 0.0), 0, 0
    for observations in _batches(algorithm, policy, module.space, rng, is_recurrent):
        states, own = [policy.get_initial_state() for _ in observations[0]], None
        if is_recurrent:
            own = np.zeros((len(states), policy.state_size), np.float32)
        for step in observations:
            inputs = _arrays(module, module.space, step) + ([own] if is_recurrent else [])
            with _naming_network():  # a traced program of a network that calls len() takes as many rows as its example
                results = exported(inputs)
            found = dict(zip(outputs, results, strict=True))
            how = {"explore": False, "full_fetch": True, "policy_id": policy_id}
            actions, states, fetches = algorithm.compute_actions(step, states if is_recurrent else None, **how)
            expected, scores = {module.action: np.asarray(actions)}, fetches["action_dist_inputs"]
            if DIST_INPUTS in found:
                expected[DIST_INPUTS] = scores
            if VALUE in found:
                expected[VALUE] = fetches["vf_preds"]
            if is_recurrent:
                own = found[STATE_OUT]
                expected[STATE_OUT] = np.array([np.concatenate(each, axis=None) for each in states])
            num_rows += len(step)
            for name, right in expected.items():
                if name == module.action and right.dtype.kind != "f":
                    num_ties += _check_choices(found[name], right, scores)
                    continue
                error = np.abs(found[name] - right) / np.maximum(1, np.abs(right))
                largest[name] = max(largest[name], float(error.max(initial=0.0)))
    wrong = {name: error for name, error in largest.items() if not error <= TOLERANCE}
    if wrong:
        listed = ", ".join(f"{name} by {error:.2g}" for name, error in wrong.items())
        raise _difference(f"{listed} (relative; up to {TOLERANCE:g} is rounding)")
    return Parity(num_rows, largest, num_ties)


def _difference(what: str) -> ExportError:
    error = ExportError(f"the export differs from the policy: {what}. It was not written.")
    error.is_difference = True
    return error


def _check_choices(found: np.ndarray, expected: np.ndarray, scores: np.ndarray) -> int:
    """Number of rows whose choices differ; raises unless the policy's scores are equal up to rounding."""
    rows = len(expected)
    differs = (found.reshape(rows, -1) != expected.reshape(rows, -1)).any(1)
    scores = np.sort(scores[differs], axis=1)
    gaps = np.diff(scores, axis=1).min(axis=1, initial=np.inf)
    if (gaps > 2 * TOLERANCE * np.maximum(1, np.abs(scores).max(axis=1, initial=0.0))).any():
        raise _difference(f"the actions of {int(differs.sum())} of {rows} rows")
    return int(differs.sum())


def _batches(
    algorithm: Algorithm, policy: Policy, space: spaces.Space, rng: np.random.Generator, is_recurrent: bool
) -> Iterator[list[list]]:
    """Batches of observations as lists of steps; one step for a policy without a memory."""
    mask_key, steps = algorithm.config.action_mask_key, range(NUM_STEPS if is_recurrent else 1)
    space.seed(0)
    for size in BATCH_SIZES:
        yield [[_sampled(space, policy, mask_key, rng) for _ in range(size)] for _ in steps]
    # Agents' observations depend on what the others do, so there is no episode of one policy alone.
    met = _met(algorithm, 64) if algorithm.agents is None else []
    if met:
        yield [[each] for each in met[:NUM_STEPS]] if is_recurrent else [met]


def _sampled(space: spaces.Space, policy: Policy, mask_key: str, rng: np.random.Generator):
    observation = space.sample()
    for part in _mask_parts(observation, policy, mask_key):  # each part of an action needs a legal choice
        part[rng.integers(len(part))] = 1
    return observation


def _mask_parts(observation, policy: Policy, mask_key: str) -> list[np.ndarray]:
    """Views of an observation's mask, one for each part of an action; [] for a policy without masks."""
    if not policy.is_masked:
        return []
    mask = observation[mask_key]
    return [np.ravel(mask)[columns] for columns, _ in parts_of_mask(policy.distribution)]


def _met(algorithm: Algorithm, count: int) -> list:
    """First observations of an environment under random legal actions; [] if it cannot be made."""
    config = algorithm.config
    if config.env is None:
        return []
    factory = adapted(playable_environment(config), adapters_of(config))
    env = factory.make(EnvContext(config.env_config, in_evaluation=True))
    if getattr(env, "num_envs", 1) != 1:
        env.close()
        return []
    with contextlib.closing(env):
        draw = _legal_actions(algorithm, env.action_space)
        found, (observation, _) = [], env.reset(seed=0)
        while len(found) < count:
            found.append(observation)
            observation, _, terminated, truncated, _ = env.step(draw(observation))
            if terminated or truncated:
                observation, _ = env.reset()
    return found


def _legal_actions(algorithm: Algorithm, space: spaces.Space) -> Callable[[Any], Any]:
    """Makes a function that draws an action of the space which is legal after an observation."""
    space.seed(0)
    policy, config, rng = algorithm.get_policy(), algorithm.config, np.random.default_rng(0)
    if not policy.is_masked:
        return lambda observation: space.sample()
    distribution = policy.distribution
    to_env = action_mapper(space, distribution, config.normalize_actions, config.clip_actions).to_env

    def draw(observation):
        parts = _mask_parts(observation, policy, config.action_mask_key)
        if problem := choice_problem(np.concatenate(parts)[None], distribution, lambda _: "no action is legal"):
            raise ExportError(f"the export is compared in episodes, and in one of them {problem}")
        legal = [np.flatnonzero(part) for part in parts]
        choices = np.array([rng.choice(each) for each in legal], distribution.action_dtype)
        return of_each(space, to_env(choices.reshape(1, *distribution.action_shape)))[0]

    return draw


def _arrays(module: ExportedPolicy, space: spaces.Space, observations: list) -> list[np.ndarray]:
    """The observations as the program's inputs."""
    given = (module.of_policy(values_of_leaves(space, each)) for each in observations)
    by_leaf: list[tuple[Any, ...]] = list(zip(*given))
    return [
        np.stack([np.asarray(value) for value in values]).astype(port.dtype)
        for values, port in zip(by_leaf, module.inputs)
    ]
