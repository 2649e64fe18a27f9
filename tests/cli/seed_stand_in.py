"""A stand-in for `rllib train` of one seed: writes a run's files without training.

It grows the return by seed + 1 in each iteration, up to the stop criterion. The seeds in FAILING fail in their second
iteration, and those in HANGING wait there for SIGTERM, upon which they save.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def option(name, default=None):
    arguments = sys.argv[1:]
    return arguments[arguments.index(name) + 1] if name in arguments else default


def seeds_in(variable):
    return {int(each) for each in os.environ.get(variable, "").split(",") if each}


def main():
    resumed = option("--resume")
    run = Path(resumed or Path(option("--results-dir")) / option("--name"))
    if resumed:
        spec = json.loads((run / "run.json").read_text())
        done = len((run / "result.json").read_text().splitlines())
    else:
        run.mkdir()
        spec = {"algorithm": "PPO", "env": "CartPole-v1", "seed": int(option("--seed")), "stop": {}}
        done = 0
    spec["stop"] = {"training_iteration": float(option("--stop", "iterations=3").partition("=")[2])}
    (run / "run.json").write_text(json.dumps(spec))
    (run / "params.json").write_text(json.dumps({"env": spec["env"], "seed": spec["seed"]}))
    (run / "arguments.json").write_text(json.dumps(sys.argv[1:]))
    seed, asked = spec["seed"], []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    for t in range(done + 1, int(spec["stop"]["training_iteration"]) + 1):
        if t == 2 and seed in seeds_in("FAILING"):
            print("Error: RuntimeError: the environment is gone")
            sys.exit(1)
        while t == 2 and seed in seeds_in("HANGING") and not asked:
            time.sleep(0.01)
        if asked:
            sys.exit(128 + signal.SIGTERM)
        result = {"training_iteration": t, "timesteps_total": 100 * t, "time_total_s": 0.1 * t,
                  "episode_reward_mean": (seed + 1) * t}  # fmt: skip
        with (run / "result.json").open("a") as file:
            file.write(json.dumps(result) + "\n")
        (run / f"checkpoint_{t:06}").mkdir()
    if "--profile" in sys.argv:
        (run / "profile.json").write_text("{}")


main()
