"""An experiment that commands read, written here."""

import json
from pathlib import Path


def write_search(directory: Path, seeds: int) -> None:
    """Trials of two rates, each with as many seeds, that minimise "loss"."""
    for rate in (1, 2):
        for seed in range(seeds):
            place = directory / f"climb_{rate}_{seed}"
            place.mkdir(parents=True)
            results = [{"training_iteration": t, "loss": t * rate + seed} for t in (1, 2)]
            (place / "result.json").write_text("".join(f"{json.dumps(result)}\n" for result in results))
            (place / "params.json").write_text(json.dumps({"rate": rate, "seed": seed}))
    header = {"type": "experiment", "format": 1, "trainable": "climb", "metric": "loss", "mode": "min"}
    (directory / "experiment_state-2030.json").write_text(json.dumps(header) + "\n")
