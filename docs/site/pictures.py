"""Draws the README's pictures into docs/pictures: `python docs/site/pictures.py` (ten seconds on two cores).

panel.svg is the display of `rllib train -f ppo/cartpole` near its end, curve.svg the returns of that run on five seeds.
Both can be read on a light and on a dark page. pong.png is by `rllib plot`, of runs of an hour
(docs/project/results.md).
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from rllib.algorithms.base.registry import get_algorithm_config
from rllib.cli.display import PanelDisplay
from rllib.cli.spec import find_file, load_spec, make_spec
from rllib.tune.experiment.stoppers import ThresholdStopper

matplotlib.use("svg")
import matplotlib.pyplot as plt

PICTURES = Path(__file__).parents[1] / "pictures"
EXAMPLE = "ppo/cartpole"
SEEDS = range(5)
WIDTH = 90
DRAWN_AT = 0.9  # progress of the run that the panel shows
SOLVED = 475
GREY, BLUE, GREEN = "#808080", "#4a90d9", "#3fa45b"
# Without fonts from the network; a browser's own monospaced one takes their place.
FRAME = re.sub(r"@font-face \{\{.*?\n    \}\}\n|<!--.*?-->", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def train(seed: int) -> tuple[list[tuple[float, float]], str]:
    """Trains the example once.

    Returns:
        (seconds, mean return) of each iteration, and the panel near the end as SVG.
    """
    spec = make_spec(load_spec(find_file(EXAMPLE)), {"seed": seed}, EXAMPLE)
    config = get_algorithm_config(spec.algorithm).environment(spec.env).update_from_dict(spec.config)
    stop, display = ThresholdStopper(spec.stop), PanelDisplay(_console())
    display.start(f"{spec.algorithm} on {spec.env}", str(stop), "results/first")
    curve, panel, result = [], "", {}
    with config.debugging(seed=seed).build() as algorithm:
        while not stop.reached("", result):
            result = algorithm.train()
            curve.append((result["time_total_s"], result["episode_reward_mean"]))
            display.on_result(result, stop.progress(result))
            if not panel and stop.progress(result) >= DRAWN_AT:
                panel = as_svg(display)
    display.close()
    return curve, panel


def _console() -> Console:
    return Console(record=True, width=WIDTH, force_terminal=True, file=io.StringIO())


def as_svg(display: PanelDisplay) -> str:
    """What the display shows now."""
    console = _console()
    console.print(display.render())
    return console.export_svg(title=f"rllib train -f {EXAMPLE}", code_format=FRAME, unique_id="panel")


def draw_curves(curves: Sequence[Sequence[tuple[float, float]]], path: Path) -> None:
    """The returns by time, on a transparent ground."""
    plt.rcParams.update({"text.color": GREY, "axes.labelcolor": GREY, "axes.edgecolor": GREY, "font.size": 11,
                         "xtick.color": GREY, "ytick.color": GREY, "svg.fonttype": "none"})  # fmt: skip
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    for curve in curves:
        axes.plot(*zip(*curve), color=BLUE, linewidth=1.6)
        axes.plot(*curve[-1], "o", color=GREEN)
    axes.axhline(SOLVED, color=GREEN, linewidth=1, linestyle="--")
    axes.annotate(f"solved: {SOLVED}", (0.04, SOLVED - 12), color=GREEN, va="top")
    axes.set(xlabel="seconds of training", ylabel="mean return of the last 100 episodes", ylim=(0, 500), xlim=0)
    axes.set_title(f"rllib train -f {EXAMPLE}: seeds {SEEDS[0]} to {SEEDS[-1]}, two cores", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, transparent=True, metadata={"Date": None})


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    runs = [train(seed) for seed in SEEDS]
    (PICTURES / "panel.svg").write_text(runs[0][1])
    draw_curves([curve for curve, _ in runs], PICTURES / "curve.svg")
    for path in sorted(PICTURES.iterdir()):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
