"""How good a configuration each search finds: Branin, Hartmann-6 and a noisy surrogate of tuning PPO.

    python benchmarks/search_quality.py --trials 50 --seeds 20

Prints the best true value after the trials (lower is better for the first two, higher for the surrogate): the median
over seeds and the quartiles, and in how many seeds a search beats random search of the same seed.

The surrogate is made up, with what makes tuning PPO hard: a narrow ridge in the logarithm of the learning rate that
clipping and epochs move, optima of lambda and gamma near the edge of their ranges, a categorical choice, and noise as
large as the differences near the optimum. A search sees the noisy value; the table shows the true one of the
configuration that looked best.
"""

import argparse
import math
import platform
import random
import statistics
import time

from rllib.tune.search import create_searcher
from rllib.tune.search.domains import choice, loguniform, randint, uniform

_HARTMANN_ALPHA = (1.0, 1.2, 3.0, 3.2)
_HARTMANN_A = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_HARTMANN_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def branin(config, rng):
    """Minimum 0.397887; (seen, true)."""
    x, y = config["x"], config["y"]
    bowl = (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2
    value = bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10
    return value, value


def hartmann(config, rng):
    """Minimum -3.32237; (seen, true)."""
    value = -sum(
        alpha * math.exp(-sum(a[j] * (config[f"x{j}"] - p[j]) ** 2 for j in range(6)))
        for alpha, a, p in zip(_HARTMANN_ALPHA, _HARTMANN_A, _HARTMANN_P)
    )
    return value, value


def ppo_surrogate(config, rng):
    """Return between 0 and 500, noise of 25; (seen, true)."""
    step = math.log10(config["lr"]) + 0.5 * math.log10(config["num_sgd_iter"] / 10) + (config["clip_param"] - 0.2)
    ridge = math.exp(-((step + 3.5) ** 2) / (2 * 0.45**2))
    horizon = math.exp(-((math.log10(1 - config["gamma"]) + 2.1) ** 2) / (2 * 0.6**2))
    averaging = math.exp(-((config["lambda"] - 0.95) ** 2) / (2 * 0.08**2))
    entropy = 1 / (1 + (config["entropy_coeff"] / 0.02) ** 2)
    network = {"tanh": 1.0, "relu": 0.9, "swish": 0.8}[config["activation"]]
    true = 500 * ridge * horizon * averaging**0.5 * entropy * network
    return true + rng.gauss(0, 25), true


PROBLEMS = {
    "Branin": (branin, "min", {"x": uniform(-5, 10), "y": uniform(0, 15)}),
    "Hartmann-6": (hartmann, "min", {f"x{j}": uniform(0, 1) for j in range(6)}),
    "PPO surrogate": (
        ppo_surrogate,
        "max",
        {
            "lr": loguniform(1e-6, 1e-1),
            "clip_param": uniform(0.05, 0.5),
            "lambda": uniform(0.7, 1.0),
            "gamma": uniform(0.9, 0.9999),
            "entropy_coeff": loguniform(1e-5, 1e-1),
            "num_sgd_iter": randint(1, 31),
            "activation": choice(["tanh", "relu", "swish"]),
        },
    ),
}


def best_found(name: str, search: str, trials: int, seed: int) -> float:
    """The true value of the configuration that looked best."""
    objective, mode, space = PROBLEMS[name]
    searcher = create_searcher(search, **({"random_state": seed} if search == "random" else {"seed": seed}))
    searcher.set_search_properties("value", mode, space, num_samples=trials)
    rng = random.Random(f"noise/{seed}")
    outcomes = []
    for trial in range(trials):
        seen, true = objective(searcher.suggest(str(trial)), rng)
        searcher.on_trial_complete(str(trial), {"value": seen})
        outcomes.append((seen, true))
    return (min if mode == "min" else max)(outcomes)[1]


def main() -> None:
    """Prints the table, a row at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--searches", nargs="+", default=["random", "tpe", "cmaes", "qmc", "gp"])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    arguments = parser.parse_args()
    print(f"{arguments.trials} trials, {arguments.seeds} seeds, Python {platform.python_version()}", flush=True)
    print(
        "| problem | search | median | quartiles | beats random | s a search |\n|---|---|---|---|---|---|", flush=True
    )
    for name in arguments.problems:
        references = None
        for search in arguments.searches:
            start = time.perf_counter()
            values = [best_found(name, search, arguments.trials, seed) for seed in range(arguments.seeds)]
            seconds = (time.perf_counter() - start) / arguments.seeds
            references = references or values
            sign = 1 if PROBLEMS[name][1] == "max" else -1
            wins = sum(sign * value > sign * other for value, other in zip(values, references))
            low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
            against = f"{wins}/{len(values)}" if search != arguments.searches[0] else "-"
            print(
                f"| {name} | {search} | {middle:.4g} | {low:.4g} .. {high:.4g} | {against} | {seconds:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
