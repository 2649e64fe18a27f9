"""What `learn(progress_bar=True)` shows on a terminal and in a notebook, and results as tables."""

import asyncio
import json
import math
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from rllib import PPOConfig
from rllib.progress import TerminalProgress, counted, mean_rate, result_table
from rllib.result import Result
from tests.envs import CountingEnv

ROOT = Path(__file__).parents[1]

IN_A_KERNEL = """
import asyncio

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


class ZMQInteractiveShell(InteractiveShell):
    pass


class ColabsShell(ZMQInteractiveShell):
    pass


CELL = '''
import asyncio
from rllib import PPOConfig
from tests.envs import CountingEnv

asyncio.get_running_loop()
settings = {"train_batch_size": 100, "sgd_minibatch_size": 100, "num_sgd_iter": 1}
algo = PPOConfig().environment(CountingEnv).rollouts(num_rollout_workers=1).training(**settings).build()
algo.learn(300, progress_bar=True)
algo.train = lambda: 1 / 0
try:
    algo.learn(300, progress_bar=True)
except ZeroDivisionError:
    algo.stop()
'''


async def main():
    shell = ColabsShell.instance()
    with capture_output() as captured:
        (await shell.run_cell_async(CELL, transformed_cell=shell.transform_cell(CELL))).raise_error()
    return captured


captured = asyncio.run(main())
assert not captured.stderr, captured.stderr
print([output.update for output in captured.outputs])
for output in captured.outputs:
    print(output.data["text/plain"])
print(captured.outputs[-3].data["text/html"])
"""


def test_a_notebook_has_one_bar_that_is_updated_with_a_running_loop(tmp_path):
    """Without widgets, beside the event loop of the kernel."""
    pytest.importorskip("IPython")
    found = subprocess.run(
        [sys.executable, "-c", IN_A_KERNEL], capture_output=True, text=True, timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    updates, *lines, page = found.stdout.splitlines()
    updates = updates.strip("[]").split(", ")
    assert updates[0] == "False" and updates[-2:] == ["False", "True"] and set(updates[1:-2]) == {"True"}
    assert lines[0].startswith("0/300 steps, return -, ")
    assert lines[-3].startswith("300/300 steps, return 10.") and "left" not in lines[-3]
    assert lines[-1].endswith("ended by ZeroDivisionError")
    assert '<progress value="300" max="300"' in page
    assert "<table>" in page and ">300<" in page and ">return<" in page


@pytest.mark.parametrize(
    ("width", "total", "steps"), [(60, 1e8, "53%"), (80, 1e8, "53%"), (80, 1e5, "53,000/100,000 steps")]
)
def test_nothing_is_cut_off_on_a_narrow_terminal(width, total, steps, capsys, monkeypatch):
    monkeypatch.setattr("rich._console", Console(width=width))
    with TerminalProgress(total, lambda: int(0.53 * total)) as bar:
        bar.update({"episode_reward_mean": -1234.5, "num_env_steps_sampled_throughput_per_sec": 123456.7})
    (line,) = capsys.readouterr().out.splitlines()
    assert "…" not in line and "123,457 /s return -1,234.5" in line and "left" in line, line
    assert steps in line and "━" in line, line


def test_the_bar_moves_within_an_iteration(monkeypatch, capsys):
    monkeypatch.setattr("rllib.progress._TICK_S", 0.01)
    asked = []
    enough = threading.Event()

    def steps() -> int:
        asked.append(threading.current_thread())
        if len(asked) == 5:
            enough.set()
        return len(asked)

    with TerminalProgress(100, steps):
        assert enough.wait(60)  # no result comes
    assert threading.current_thread() in asked and len(set(asked)) == 2
    assert not any(thread.is_alive() for thread in set(asked) - {threading.current_thread()})
    assert re.search(r"\b([5-9]|\d\d)/100 steps", capsys.readouterr().out)


def test_the_rate_leaves_out_steps_that_another_library_took():
    steps, seconds = {"timesteps_total": 20_480, "timesteps_since_restore": 256}, {"time_since_restore": 0.5}
    assert mean_rate({**steps, **seconds}) == 512 and mean_rate({}) is None
    assert mean_rate({"timesteps_total": 200, "time_total_s": 1.0}) == 200


def test_one_is_no_plural():
    assert [counted(number, "step") for number in (0, 1, 2, 1234)] == ["0 steps", "1 step", "2 steps", "1,234 steps"]


def test_a_result_shows_itself_as_a_table():
    counts = {"training_iteration": 3, "timesteps_total": 12345}
    result = Result(**counts, episode_reward_mean=math.nan, time_total_s=61.0, info={})
    assert all(f">{cell}</td>" in result._repr_html_() for cell in ("3", "12,345", "-", "1:01"))
    assert "5 keys" in result._repr_html_()
    assert result_table({"loss": 1.0}) == ""


def test_an_algorithm_says_how_far_it_is():
    settings = {"train_batch_size": 100, "sgd_minibatch_size": 100, "num_sgd_iter": 1}
    with PPOConfig().environment(CountingEnv).rollouts(num_rollout_workers=0).training(**settings).build() as algo:
        algo.train()
        assert "PPO on" in repr(algo) and "CountingEnv: 1 iteration, 100 steps" in repr(algo)


# ---- a real kernel

WALK = """
import gymnasium, numpy, runtime
from rllib import PPOConfig, tune
from rllib import load_policy

class Walk(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0, 10, (1,), numpy.float32), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        self.t += 1
        return numpy.float32([self.t]), REWARD, self.t == 10, False, {}

settings = dict(train_batch_size=200, sgd_minibatch_size=200, num_sgd_iter=1)
config = PPOConfig().environment(Walk).rollouts(num_rollout_workers=2).training(**settings)
algo = config.build()
print("return", algo.train()["episode_reward_mean"])
"""
CELLS = [
    "import runtime; runtime.init('zeromq', num_cpus=2); None",
    WALK.replace("REWARD", "1.0"),
    "algo.stop()\n" + WALK.replace("REWARD", "2.0"),
    "algo.learn(400, progress_bar=True)",
    """
import pathlib
train = algo.train
def noticed():
    result = train()
    pathlib.Path("training").touch()
    return result
algo.train = noticed
algo.learn(1e12, progress_bar=True)
""",
    """
del algo.train
before = algo.metrics.iteration
print(algo.train()["training_iteration"] - before, algo.workers.num_healthy_workers)
import asyncio
await asyncio.sleep(0)
print(load_policy(algo.save("checkpoint")).compute_single_action([0.0], explore=False) in (0, 1))
algo.stop()
""",
    """
analysis = tune.run("PPO", config={"env": Walk, "num_workers": 0, **settings}, stop={"training_iteration": 2},
                    metric="episode_reward_mean", mode="max")
print(analysis.best_result["episode_reward_mean"])
""",
]


@pytest.mark.slow
@pytest.mark.extras("ipykernel", "nbclient", "nbformat")
def test_a_notebook_in_its_kernel(tmp_path, monkeypatch):
    """Classes of cells travel to workers, the newest definition counts, an interrupt leaves the algorithm usable."""
    import nbclient
    from nbformat import v4 as nbformat

    kernel = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python",
              "display_name": "of the tests"}  # fmt: skip
    (tmp_path / "kernels" / "tests").mkdir(parents=True)
    (tmp_path / "kernels" / "tests" / "kernel.json").write_text(json.dumps(kernel))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    notebook = nbformat.new_notebook(cells=[nbformat.new_code_cell(cell) for cell in CELLS])
    client = nbclient.NotebookClient(notebook, timeout=100, kernel_name="tests", allow_errors=True)
    asyncio.run(_executed(client, tmp_path))
    outputs = [cell.outputs for cell in notebook.cells]
    texts = ["".join(output.get("text", "") for output in of_cell) for of_cell in outputs]
    assert texts[1:3] == ["return 10.0\n", "return 20.0\n"], outputs
    shown, value = outputs[3]
    assert shown["output_type"] == "display_data" and "400/400 steps" in shown["data"]["text/html"], shown
    assert value["data"]["text/plain"].startswith("<PPO on "), value
    shown, error = outputs[4]
    assert error["ename"] == "KeyboardInterrupt" and "interrupted" in shown["data"]["text/plain"], outputs[4]
    assert texts[5] == "1 2\nTrue\n", outputs[5]
    holds_code, table, best = outputs[6]
    assert holds_code["text"].startswith("this experiment holds code"), outputs[6]
    assert "TERMINATED" in table["data"]["text/html"] and best["text"] == "20.0\n", outputs[6]


async def _executed(client, directory: Path) -> None:
    """Runs all cells, and interrupts the kernel once the file is there that the fifth makes."""

    async def interrupt():
        while not (directory / "training").exists():
            await asyncio.sleep(0.05)
        await client.km.interrupt_kernel()

    interrupting = asyncio.ensure_future(interrupt())
    try:
        await client.async_execute(cwd=str(directory))
    finally:
        interrupting.cancel()
