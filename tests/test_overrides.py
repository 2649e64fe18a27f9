"""Private methods that replace those of a base class do so on purpose.

Twice one did so by accident, since two classes far apart had found the same name: a check of settings was gone in the
actor-critics, and rows of lost episodes stayed at a restore.
"""

import ast
import importlib
import inspect
import textwrap
from pathlib import Path

import rllib
import runtime

# What is replaced whole, and is meant to be.
ON_PURPOSE = {
    "AlgorithmTrainable._count",
    "ExternalMultiAgentEnv._seen",
    "ExternalWorker._first_indices",
    "ExternalWorker._open",
    "ExternalWorker._step_through",
    "Guest._begin",
    "Guest._on_goodbye",
    "LearningEndpoint._decided",
    "MultiAgentEvaluationWorker._play",
    "RecordingLane._filter",
    "TensorRolloutWorker._pop_deltas",
    "TorchProductBatch._of_part",
    "_SpacesServer._compare_spaces",
}
# Importing these changes the process, or needs packages that the tests do not have.
APART = ("as_ray", "as_sb3", "isaaclab", "mjlab", "__main__", "program_hook")


def modules():
    for package in (rllib, runtime):
        top = Path(package.__file__).parent
        for path in sorted(top.rglob("*.py")):
            name = ".".join(path.relative_to(top.parent).with_suffix("").parts).removesuffix(".__init__")
            if not any(part in name for part in APART):
                try:
                    yield importlib.import_module(name)
                except ImportError:  # of an extra
                    continue


def says_little(method) -> bool:
    """Whether a method only returns something, raises, or does nothing: it is there to be replaced."""
    body = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0].body
    kinds = (ast.Pass, ast.Raise, ast.Return)
    return all(isinstance(line, kinds) or isinstance(getattr(line, "value", None), ast.Constant) for line in body)


def replaced_by(kind: type):
    """The private methods of a class that replace one of a base, and do not call it."""
    for name, method in vars(kind).items():
        if name.startswith("_") and not name.startswith("__") and inspect.isfunction(method):
            bases = [vars(base)[name] for base in kind.__mro__[1:] if name in vars(base)]
            replaces = bases and inspect.isfunction(bases[0]) and not getattr(bases[0], "__isabstractmethod__", False)
            if replaces and "super()" not in inspect.getsource(method):
                yield name, bases[0]


def test_no_private_method_is_replaced_by_accident():
    ours = {each for module in modules() for each in vars(module).values() if inspect.isclass(each)}
    found = set()
    for kind in ours:
        if kind.__module__.partition(".")[0] in ("rllib", "runtime"):
            for name, base in replaced_by(kind):
                own = base.__module__.partition(".")[0] in ("rllib", "runtime")
                if own and (hasattr(base, "__relates__") or not says_little(base)):
                    found.add(f"{kind.__name__}.{name}")
    assert found == ON_PURPOSE
