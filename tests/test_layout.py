"""The rules of the house (docs/project/architecture.md): imports go downwards, nothing heavy comes early."""

import ast
import collections
import functools
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from rllib.moved import MOVED

ROOT = Path(__file__).parents[1]

# Lowest first. A module may import its own floor and those below.
FLOORS = [
    ["runtime"],
    [
        "rllib.did_you_mean",
        "rllib.extras",
        "rllib.lazy_names",
        "rllib.errors",
        "rllib.moved",
        "rllib.notices",
        "rllib.processes",
        "rllib.registered",
        "rllib.sample_batch",
        "rllib.schedules",
        "rllib.simulation_app",
        "rllib.spans",
    ],
    ["rllib.storage", "rllib.config", "rllib.compat.names", "rllib.web"],
    ["rllib.models", "rllib.losses"],
    ["rllib.hand_written", "rllib.policies", "rllib.policy", "rllib.replay", "rllib.env", "rllib.offline"],
    ["rllib.core"],
    [
        "rllib.acting",
        "rllib.callbacks",
        "rllib.evaluation",
        "rllib.exploration",
        "rllib.imitation",
        "rllib.learners",
        "rllib.metrics",
        "rllib.progress",
        "rllib.remote",
        "rllib.result",
        "rllib.runs",
        "rllib.starts",
    ],
    ["rllib.client", "rllib.algorithms", "rllib.compat.methods"],
    ["rllib.serving", "rllib.compat.files"],
    ["rllib.tune"],
    ["rllib.compat.programs"],
    ["rllib.benchmark"],
    [
        *("rllib.cli", "rllib.dashboard", "rllib.reports", "rllib.__main__", "rllib.as_ray", "rllib.as_sb3"),
        *("rllib.isaaclab", "rllib.labs", "rllib.mjlab"),
    ],
]
KNOW_THE_RUNTIME = [
    "runtime",
    "rllib.env.streams.process",
    "rllib.processes",
    "rllib.evaluation.worker_set",
    "rllib.evaluation.aggregation",
    "rllib.evaluation.replay_shards",
    "rllib.learners.group.learner_actor",
    "rllib.learners.group.learner_group",
    "rllib.tune",
    "rllib.compat.programs.completed",
    "rllib.compat.programs.example_scripts",
    "rllib.as_ray",
    "rllib.as_sb3",
]
# What may import inside functions, and why.
IMPORTS_LATE = {
    "runtime.engines.zeromq": "imports the driver, with numpy and zmq, while the node is starting",
    "rllib.env.streams.process": "the runtime; settings are checked, and other environments made, without it",
    "rllib.client": "local inference; clients that ask for actions need numpy alone",
}
# A run whose environment has one agent, and is stepped, and that estimates nothing from data, loads nothing of these.
NOT_IN_EVERY_RUN = (
    "rllib.env.multi_agent",
    "rllib.evaluation.multi_agent",
    "rllib.algorithms.base.agents",
    "rllib.env.external",
    "rllib.env.policy_server",
    "rllib.env.engines",
    "rllib.evaluation.external",
    "rllib.evaluation.estimators",
    "rllib.algorithms.base.policy_changes",
    "rllib.core",
)
LOADED_WHEN_USED = {
    "torch", "ray", "rich", "matplotlib", "tensorboardX", "ale_py", "optuna", "scipy", "pandas", "IPython",
    "imageio_ffmpeg", "mlflow", "wandb", "envpool", "jax", "vmas", "pettingzoo", "onnx", "onnxruntime", "onnxscript",
    "trackio", "comet_ml", "clearml", "fsspec", "huggingface_hub",
    "pyarrow", "h5py", "minari", "lz4", "starlette", "uvicorn", "anyio", "httptools", "uvloop",
    "asyncio", "concurrent",  # 1.5 MiB in each of the workers
}  # fmt: skip
HEAVY = LOADED_WHEN_USED | {"gymnasium", "numpy", "psutil", "yaml", "safetensors"}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {_name(path): path for package in ("runtime", "rllib") for path in sorted((ROOT / package).rglob("*.py"))}


def _is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _floor(module: str) -> int | None:
    found = [index for index, names in enumerate(FLOORS) if any(_is_below(module, name) for name in names)]
    return found[0] if found else None


def _targets(node: ast.AST, module: str) -> set[str]:
    """Our own modules that an import statement names."""
    if isinstance(node, ast.Import):
        names = {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module.split(".") if MODULES[module].name == "__init__.py" else module.split(".")[:-1]
            base = ".".join(filter(None, [*package[: len(package) - node.level + 1], base]))
        names = {base} | {f"{base}.{alias.name}" for alias in node.names}
    else:
        return set()
    # `from package import submodule` needs the submodule; the package alone counts when nothing below it is meant.
    own = {name for name in names if name in MODULES}
    return {name for name in own if not any(other != name and _is_below(other, name) for other in own)}


@functools.cache
def _imports(module: str) -> list[tuple[str, bool]]:
    """(imported module of ours, is inside a function) for every import statement."""
    statements = _statements(ast.parse(MODULES[module].read_text()).body, skip=_is_for_typing)
    return [(target, hidden) for node, hidden in statements for target in _targets(node, module) - {module}]


def _is_for_typing(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _statements(body: Iterable, hidden: bool = False, skip: Callable = lambda node: False) -> Iterator[tuple]:
    """(statement, is inside a function) of all statements; expressions, which are most nodes, have none in them."""
    for node in body:
        if not skip(node):
            yield node, hidden
            inside = hidden or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from _statements(getattr(node, part, ()), inside, skip)


def test_modules_import_downwards_only():
    floors = {module: _floor(module) for module in MODULES}
    without = [module for module, floor in floors.items() if floor is None and module not in ("rllib", "rllib.compat")]
    assert not without, f"{without} belong to no floor of tests/test_layout.py"
    upwards = [
        f"{module} imports {target}, which is above it"
        for module, own in floors.items()
        for target, _ in _imports(module)
        if own is not None and floors[target] is not None and floors[target] > own
    ]
    assert not upwards, "\n".join(upwards)


def test_imports_hidden_in_functions_are_of_heavy_modules():
    hidden = [
        f"{module} imports {target} in a function: it loads nothing slow"
        for module in MODULES.keys() - IMPORTS_LATE.keys()
        for target, inside in _imports(module)
        if inside and not target.startswith(NOT_IN_EVERY_RUN) and not _imports_heavy_library(target)
    ]
    assert not hidden, "\n".join(sorted(hidden))


@functools.cache
def _imports_heavy_library(module: str) -> bool:
    """Whether a module imports, at its top, one that is loaded only when it is used."""
    tree = ast.parse(MODULES[module].read_text())
    names = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level}
    return any(_is_below(name, library) for name in names for library in LOADED_WHEN_USED)


def test_who_knows_the_runtime():
    known = [
        f"{module} imports {target}"
        for module in MODULES
        if not any(_is_below(module, name) for name in KNOW_THE_RUNTIME)
        for target, _ in _imports(module)
        if _is_below(target, "runtime")
    ]
    assert not known, f"only {KNOW_THE_RUNTIME} may import the runtime:\n" + "\n".join(known)


def test_there_are_no_import_circles():
    graph = {
        module: {target for target, inside in _imports(module) if not (inside and module in IMPORTS_LATE)}
        for module in MODULES
    }
    done: set[str] = set()

    def visit(module: str, path: list[str]):
        assert module not in path, "circle: " + " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for target in graph[module]:
                visit(target, [*path, module])
            done.add(module)

    for module in graph:
        visit(module, [])


def test_no_two_folders_import_each_other():
    """Packages' own faces (__init__.py) and the roots, which hold what all share, are left out."""
    arrows: dict[tuple[str, str], str] = {}
    for module in MODULES:
        for target, _ in _imports(module):
            if "__init__.py" not in (MODULES[module].name, MODULES[target].name):
                pair = module.rpartition(".")[0], target.rpartition(".")[0]
                arrows.setdefault(pair, f"{module} imports {target}")
    both = [
        f"{why}, and {arrows[there, here]}"
        for (here, there), why in arrows.items()
        if here < there and (there, here) in arrows and not {here, there} & {"rllib", "runtime"}
    ]
    assert not both, "\n".join(both)


def test_no_module_is_named_like_one_of_the_standard_library_or_a_dependency():
    """Such a name is read wrongly in a traceback and in an editor's list. Those of Ray's paths are kept."""
    taken = {*sys.stdlib_module_names, *HEAVY}
    kept = {
        *("runtime.util.queue", "runtime.util.multiprocessing", "runtime.util.joblib", "runtime.engines.ray"),
        "runtime.engines.zeromq.transport.mailbox",  # the field's word for what a process receives by
    }
    named = [name for name in MODULES if name.rpartition(".")[2].strip("_") in taken and name not in kept]
    assert not [name for name in named if not name.endswith("__main__")]


def test_the_root_holds_what_a_newcomer_knows():
    """Simulators and tools write files where they are started, and a commit of all that is new takes them along."""
    listed = subprocess.run(["git", "ls-files", "--", ":(glob)*"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    known = {
        *(".gitignore", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "Makefile"),
        *("README.md", "SECURITY.md", "constraints.txt", "hatch_build.py", "pyproject.toml"),
    }
    assert set(listed.stdout.split()) == known


def test_no_two_test_files_have_one_name():
    """The tests are no packages: pytest would import the first under the name of both, and refuse the second."""
    count = collections.Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, files in count.items() if files > 1]


def test_scripts_import_modules_that_exist():
    """A benchmark that names a module by its earlier path fails only when somebody runs it."""
    missing = []
    # Of lines, programs in strings among them: parsing all of the tests takes ten times as long.
    imports = re.compile(r"^[ \t]*(?:from|import)[ \t]+((?:rllib|runtime)(?:\.\w+)*)\b", re.MULTILINE)
    for folder in ("benchmarks", "examples", "tests", "tools"):
        paths = [path for path in (ROOT / folder).rglob("*.py") if "venvs" not in path.parts]  # benchmarks/peers/setup
        for path in paths:
            for name in imports.findall(path.read_text()):
                file = ROOT / Path(*name.split("."))
                if not (name in MOVED or file.is_dir() or file.with_suffix(".py").exists()):
                    missing.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not missing, "\n".join(missing)


def test_runtime_knows_no_reinforcement_learning():
    for module, path in MODULES.items():
        if _is_below(module, "runtime"):
            names = set()
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names.add(node.module.split(".")[0])
            assert not names & {"rllib", "torch", "gymnasium"}, f"{module} imports {names}"


def _imported_by(*arguments: str) -> set[str]:
    """The top-level packages that a fresh interpreter has imported when it is done."""
    code = (
        "import runpy, sys\n"
        "sys.argv[1:] = {arguments!r}\n"
        "try: {run}\n"
        "except SystemExit: pass\n"
        "print(*sorted(name for name in sys.modules if '.' not in name), file=sys.stderr)"
    )
    run = "import rllib" if not arguments else "runpy.run_module('rllib', run_name='__main__')"
    result = subprocess.run(
        [sys.executable, "-c", code.format(arguments=list(arguments), run=run)],
        capture_output=True, text=True, check=True, timeout=60, cwd=ROOT,
    )  # fmt: skip
    return set(result.stderr.split())


def test_importing_rllib_imports_nothing_heavy():
    assert not _imported_by() & HEAVY


def test_help_imports_nothing_heavy():
    modules = _imported_by("--help")
    assert "click" in modules
    assert not modules & HEAVY


def test_help_of_train_loads_nothing_that_it_does_not_use():
    assert not _imported_by("train", "--help") & (LOADED_WHEN_USED - {"rich"})


def test_a_worker_loads_nothing_that_it_does_not_use():
    code = "import sys, rllib.evaluation.worker_set, runtime.engines.zeromq.worker.worker_process; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], timeout=60, cwd=ROOT, text=True).split())
    if version("gymnasium").startswith(("1.1.", "1.2.")):  # loads these itself
        loaded -= {"email", "importlib.metadata"}
    assert not {name.partition(".")[0] for name in loaded} & LOADED_WHEN_USED
    assert not loaded & {"psutil", "email", "importlib.metadata"}, "of the driver"
    assert not {name for name in loaded if "multi_agent" in name}, "of environments with several agents"
    assert not loaded & {"runtime.engines.zeromq.node.state", "runtime.engines.zeromq.node.entities"}, "of the node"


PUBLIC = ["PPO", "PPOConfig", "Algorithm", "Policy", "SampleBatch", "load_policy", "register_env"]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_never_import_torch(module):
    code = f"import sys, rllib; rllib.{module}; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)
