"""Draws the pictures of README.md and of docs/start/gallery.md into docs/pictures.

    python docs/site/pictures.py readme     panel.svg, the display of `rllib train PPO CartPole-v1` at its end
    python docs/site/pictures.py gallery    trains each example of the gallery (three minutes of one core), draws its
                                            curve, and writes the part of the page between its markers

All can be read on a light and on a dark page. pong.png is by `rllib plot`, of runs of an hour
(docs/project/results.md).
"""

import argparse
import dataclasses
import io
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.display import PanelDisplay
from rllib.cli.spec import find_file, load_spec, make_spec
from rllib.runs.drawing import RETURN, STEPS
from rllib.runs.entries import lookup
from rllib.tune.experiment.stoppers import ThresholdStopper
from rllib.tune.reporting.plots import plot
from rllib.tune.reporting.runs import read_runs

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
# The README's first command, and the tuned example whose settings it takes.
COMMAND, EXAMPLE = "rllib train PPO CartPole-v1", "ppo/cartpole"
WIDTH = 90
GREY, BLUE = "#808080", "#4a90d9"
# Legible on white and on black; text is text, and the same run gives the same file.
COLOURS = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY),
    "axes.prop_cycle": matplotlib.cycler(color=[BLUE]),
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "pictures",
}
# Without fonts from the network; a browser's own monospaced one takes their place.
FRAME = re.sub(r"@font-face \{\{.*?\n    \}\}\n|<!--.*?-->", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def readme() -> None:
    """Trains as README's first command does, with a seed, and draws panel.svg."""
    spec = make_spec(load_spec(find_file(EXAMPLE)), {}, EXAMPLE)
    config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
    stop, display = ThresholdStopper(spec.stop), PanelDisplay(_console())
    display.start(f"{spec.algorithm} on {spec.env}", str(stop), "results/first")
    result = {}
    with config.debugging(seed=0).build() as algorithm:
        while not stop.reached("", result):
            result = algorithm.train()
            display.on_result(result, stop.progress(result))
        panel = as_svg(display)
    display.close()
    (PICTURES / "panel.svg").write_text(panel)


def _console() -> Console:
    return Console(record=True, width=WIDTH, force_terminal=True, file=io.StringIO())


def as_svg(display: PanelDisplay) -> str:
    """What the display shows now."""
    console = _console()
    console.print(display.render())
    return console.export_svg(title=COMMAND, code_format=FRAME, unique_id="panel")


# ---- the gallery


@dataclasses.dataclass(frozen=True)
class Example:
    """A tuned example of the gallery.

    Attributes:
        name: as `rllib train -f` takes it.
        says: what it solves, in Markdown.
        goal: value at which the curve has a line; None: the one at which the run stops.
        settings: further words of the command.
        metric, x: result keys of the curve.
    """

    name: str
    says: str
    goal: float | None = None
    settings: str = ""
    metric: str = RETURN
    x: str = STEPS

    @property
    def command(self) -> str:
        """The line that trains it."""
        return f"rllib train -f {self.name} {self.settings}".rstrip()

    @property
    def picture(self) -> str:
        """Name of the file of its curve."""
        return f"{self.name.replace('/', '_')}.svg"


GALLERY = (
    Example("ppo/cartpole", "Balance a pole for 500 steps. The run stops at a mean return of 475."),
    Example("dqn/cartpole", "The same task with a Q-network, a replay and a target network.", 475),
    Example("ars/cartpole", "The same task without gradients: a linear policy is changed along random directions."),
    Example(
        "ppo/masked_cartpole",
        "In every step half of the actions are illegal and masked ([masks](../guide/action_spaces.md)). The greedy "
        "policy reaches 500.",
        500,
    ),
    Example(
        "ppo/frozenlake",
        "A path over slippery ice, with a reward only at its end. Exploration is by an entropy bonus that falls to 0. "
        "The best policy reaches 0.744.",
        0.744,
    ),
    Example("ppo/acrobot", "Swing up a double pendulum in as few steps as possible.", -90),
    Example(
        "ppo/pendulum_sde",
        "Continuous actions with state-dependent noise, gSDE ([exploration](../guide/exploration.md)).",
        -200,
    ),
    Example(
        "apex_ddpg/pendulum",
        "The same task off policy: two workers with different noise fill a prioritised replay. Returns include the "
        "noise.",
        -200,
    ),
    Example(
        "ppo/corridor_rnd",
        "A reward at the end of a corridor of 20 cells. PPO alone stays at 0; a novelty bonus (RND) finds it.",
        0.99,
    ),
    Example(
        "ppo/repeat_after_me",
        "An LSTM repeats the observation of two steps ago, 100 times an episode ([memory](../guide/networks.md)).",
        100,
    ),
    Example(
        "ppo/tolled_road",
        "Maximise the return within a limit on costs. The return first exceeds what the limit allows, then falls to "
        "the best return within it, 3.162.",
        3.162,
    ),
    Example(
        "ppo/multi_agent_cartpole",
        "Two agents with one policy each; the return is the sum of both ([several agents](../guide/multi_agent.md)).",
    ),
    Example(
        "offline/bc_cartpole",
        "Clone a policy from recorded episodes, which end at 200 steps; every 20 updates the clone is evaluated in 20 "
        "episodes ([recorded data](../guide/offline.md)). The data are in tests/ of the repository.",
        475,
        "evaluation_interval=1 evaluation_duration=20 min_sample_timesteps_per_iteration=20480",
        "evaluation/episode_reward_mean",
        "info/num_updates",
    ),
)
PAGE = ROOT / "docs" / "start" / "gallery.md"
BEGIN, END = "<!-- written by docs/site/pictures.py -->\n", "<!-- end -->"
INCHES = 4.6


def gallery() -> None:
    """Trains and draws the examples one after the other, and writes their part of the page."""
    (PICTURES / "gallery").mkdir(exist_ok=True)
    sections = "\n".join(map(section_of, GALLERY))
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + sections + "\n" + END + rest.partition(END)[2])


def section_of(example: Example) -> str:
    """Trains an example, draws its curve, and gives its section of the page."""
    with tempfile.TemporaryDirectory() as place:
        where = ["--results-dir", place, "--name", "run", "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", *shlex.split(example.command), *where], cwd=ROOT, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        (run,) = read_runs(place)
        run.name = "mean"
        with matplotlib.rc_context({**COLOURS, "font.size": 9}):
            path = PICTURES / "gallery" / example.picture
            plot([run], path, example.metric, x=example.x, kinds="curves", goal=example.goal, width=INCHES)
        last = run.results[-1]
    reached, amount = lookup(last, example.metric), lookup(last, example.x)
    print(f"{example.name}: {reached:.5g} after {amount:,}, {seconds:.0f} s", flush=True)
    unit = "updates" if example.x.endswith("updates") else "steps"
    cost = f"{amount:,} {unit} and {max(1, round(seconds))} s of one core"
    says = f"{example.says} At the end {reached:.4g}, after {cost}."
    return f"""## {example.name}

{textwrap.fill(says, 140, break_long_words=False, break_on_hyphens=False)}

    {example.command}

![Learning curve of {example.name}](../pictures/gallery/{example.picture})
"""


def main(parts: Sequence[str] = ()) -> None:
    PICTURES.mkdir(exist_ok=True)
    for part in parts or PARTS:
        PARTS[part]()
    for path in sorted(PICTURES.rglob("*.*")):
        print(f"{path.relative_to(PICTURES)}: {path.stat().st_size / 1000:.0f} kB")


PARTS = {"readme": readme, "gallery": gallery}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="readme, gallery  [default: both]")
    main(parser.parse_args().parts)
