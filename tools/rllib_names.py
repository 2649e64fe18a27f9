"""Tries every public name of RLlib's, Tune's and Ray's classes on this library's objects, for docs/start/from_rllib.md.

    python tools/rllib_names.py                      prints the table, and the names without an answer
    python tools/rllib_names.py --write              writes the table into docs/start/from_rllib.md
    python tools/rllib_names.py --read 2.6 DIR       reads names from a directory `ray` into the data file

A name is *there*, or it is *explained*: the AttributeError says what to write. The names are facts about Ray, kept in
tests/data/rllib_names.json; those of 0.8 were written by hand.
"""

import argparse
import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAMES = ROOT / "tests" / "data" / "rllib_names.json"
PAGE = ROOT / "docs" / "start" / "from_rllib.md"
BEGIN, END = "<!-- names: written by tools/rllib_names.py -->", "<!-- end of names -->"

# Kind of object here -> files and classes of Ray that have its names; the first file that is there counts.
CLASSES = {
    "Algorithm": (("rllib/algorithms/algorithm.py", "Algorithm"),),
    "AlgorithmConfig": (("rllib/algorithms/algorithm_config.py", "AlgorithmConfig"),),
    "Policy": (("rllib/policy/policy.py", "Policy"),),
    "SampleBatch": (("rllib/policy/sample_batch.py", "SampleBatch"),),
    "WorkerSet": (("rllib/env/env_runner_group.py", "EnvRunnerGroup"), ("rllib/evaluation/worker_set.py", "WorkerSet")),
    "RolloutWorker": (
        ("rllib/env/single_agent_env_runner.py", "SingleAgentEnvRunner"),
        ("rllib/evaluation/rollout_worker.py", "RolloutWorker"),
    ),
    "Trainable": (("tune/trainable/trainable.py", "Trainable"),),
    "ExperimentAnalysis": (("tune/analysis/experiment_analysis.py", "ExperimentAnalysis"),),
    "ResultGrid": (("tune/result_grid.py", "ResultGrid"),),
}
# Modules of Ray whose names are listed in `__all__`.
MODULES = {"tune": "tune/__init__.py", "core": "__init__.py", "util": "util/__init__.py"}


def names_in(directory: Path, kind: str) -> list[str]:
    """Public names of a class or module in Ray's sources: methods, properties and constants."""
    if kind in MODULES:
        path = directory / MODULES[kind]
        return sorted(_listed(path)) if path.exists() else []
    for file, class_ in CLASSES[kind]:
        if (directory / file).exists():
            tree = ast.parse((directory / file).read_text())
            found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_)
            return sorted(set(_members(found)))
    return []


def _listed(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                listed = (each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant))
                yield from (name for name in listed if not name.startswith("_"))


def _members(class_: ast.ClassDef) -> Iterator[str]:
    for node in class_.body:
        if isinstance(node, ast.FunctionDef) and node.name[0].islower():
            yield node.name
        elif isinstance(node, ast.Assign) and class_.name == "SampleBatch":  # the columns
            yield from (each.id for each in node.targets if isinstance(each, ast.Name) and each.id.isupper())


def objects() -> dict[str, Any]:
    """Kind -> an object or module of this library that has its names."""
    import runtime
    from rllib import PPOConfig, tune

    class Own(tune.Trainable):
        def step(self):
            return {"loss": 0.0, "done": True}

    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0, rollout_fragment_length=8)
    algorithm = config.training(train_batch_size=8, sgd_minibatch_size=8).build()
    worker = algorithm.workers.local_worker()
    batch, _ = worker.sample()
    algorithm.stop()
    analysis = tune.ExperimentAnalysis(trials=[])
    return {
        "Algorithm": algorithm,
        "AlgorithmConfig": PPOConfig(),
        "Policy": algorithm.get_policy(),
        "SampleBatch": batch,
        "WorkerSet": algorithm.workers,
        "RolloutWorker": worker,
        "Trainable": Own({}),
        "ExperimentAnalysis": analysis,
        "ResultGrid": tune.ResultGrid(analysis),
        "tune": tune,
        "core": runtime,
        "util": runtime.util,
    }


def answer(thing: Any, name: str) -> str:
    """What a program meets that asks for the name: "there", "explained", or "missing" without advice."""
    try:
        getattr(thing, name)
    except AttributeError as error:
        told = str(error).partition(repr(name))[2]
        return "explained" if ": " in told or "cannot be used" in str(error) else "missing"
    except Exception:  # a property that needs something, such as a result
        return "there"
    return "there"


def answers() -> dict[tuple[str, str], dict[str, str]]:
    """(kind, version) -> name -> answer."""
    known, things = json.loads(NAMES.read_text()), objects()
    return {
        (kind, version): {name: answer(things[kind], name) for name in names}
        for version, kinds in known.items()
        for kind, names in kinds.items()
    }


def table(found: dict[tuple[str, str], dict[str, str]]) -> str:
    """The table in Markdown: a row for each kind, a column for each version."""
    versions = sorted({version for _, version in found})
    rows = [["names of", *(f"Ray {version}" for version in versions)], ["---"] * (len(versions) + 1)]
    kinds = sorted({kind for kind, _ in found})
    rows += [[kind, *(_counts(found.get((kind, version), {})) for version in versions)] for kind in kinds]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _counts(names: dict[str, str]) -> str:
    given = list(names.values())
    return f"{given.count('there')} + {given.count('explained')} of {len(given)}" if given else ""


def page_with(rows: str) -> str:
    """The page with this table in its place."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n{rows}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--read", nargs=2, metavar=("VERSION", "DIR"))
    given = parser.parse_args()
    if given.read:
        version, directory = given.read
        known = json.loads(NAMES.read_text()) if NAMES.exists() else {}
        read = {kind: names_in(Path(directory), kind) for kind in (*CLASSES, *MODULES)}
        known[version] = {**known.get(version, {}), **{kind: names for kind, names in read.items() if names}}
        NAMES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        return
    found = answers()
    rows = table(found)
    if given.write:
        PAGE.write_text(page_with(rows))
    print(rows)
    for (kind, version), names in found.items():
        if missing := [name for name, told in names.items() if told == "missing"]:
            print(f"{kind} ({version}) without an answer: {', '.join(missing)}")


if __name__ == "__main__":
    main()
