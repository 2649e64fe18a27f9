"""State of a trial's process at its start."""

import json
import subprocess
import sys

PROGRAM = """
import sys, json, runtime
from rllib import tune

def trial(config):
    tune.report(modules=" ".join(sys.modules), loss=1)

@runtime.remote
class Newborn:
    def modules(self):
        return list(sys.modules)

analysis = tune.run(trial, storage_path=sys.argv[1], verbose=0)  # starts the session
found = analysis.trials[0].last_result["modules"].split()
added = set(found) - set(runtime.get(Newborn.remote().modules.remote()))
print(json.dumps([name for name in added if name.split(".")[0] in ("rllib", "gymnasium")]))
"""


def test_a_trial_of_a_function_imports_nothing_of_the_library(tmp_path):
    """It would cost each trial 80 ms: its process is forked from one that has imported all that such trials use."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []
