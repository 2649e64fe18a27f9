"""Writes into defaults.json what the installed Ray's params.json has for the defaults of each algorithm.

Run with the interpreter of an environment that has Ray with RLlib:  python defaults.py

Versions that are in the file stay there. The form: version -> name -> [[value, algorithms], ...].
"""

import json
import re
from pathlib import Path

import ray
from ray.rllib.algorithms.registry import ALGORITHMS
from ray.tune.utils.util import SafeFallbackEncoder

FILE = Path(__file__).with_name("defaults.json")
NAMES = (
    "A2C", "A3C", "APEX", "APPO", "ARS", "BC", "CQL", "DDPG", "DQN", "ES", "IMPALA", "MARWIL", "PG", "PPO", "R2D2",
    "SAC", "SimpleQ", "TD3",
)  # fmt: skip


def main() -> None:
    found: dict[str, list] = {}
    for algorithm in sorted(set(NAMES).intersection(ALGORITHMS)):
        _, config = ALGORITHMS[algorithm]()
        for name, value in config.to_dict().items():
            text = re.sub(" at 0x[0-9a-f]+", " at 0x7f0000000000", json.dumps(value, cls=SafeFallbackEncoder))
            same = next((entry for entry in found.setdefault(name, []) if entry[0] == text), None)
            found[name].append([text, [algorithm]]) if same is None else same[1].append(algorithm)
    versions = json.loads(FILE.read_text()) if FILE.exists() else {}
    versions[ray.__version__] = {
        name: [[json.loads(text), " ".join(algorithms)] for text, algorithms in entries]
        for name, entries in sorted(found.items())
    }
    lines = (
        f"{json.dumps(version)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(entries)}" for name, entries in names.items())
        + "\n}"
        for version, names in sorted(versions.items())
    )
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
