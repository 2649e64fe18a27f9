"""What a search with Tune gains: the configuration that it found, trained on fresh seeds, beside the default.

    python benchmarks/tuning_gain.py         both searches, about fifteen minutes on two cores; needs the extra box2d
    python benchmarks/tuning_gain.py pbt     one of them

pbt: population based training of PPO on CartPole-v1, four trials. What was found is a schedule; fresh seeds replay it.
asha: successive halving over learning rate, clipping and lambda of PPO on LunarLander-v3.

The default is the same PPO with the three at their defaults. Every run in the table has the same number of steps and a
seed that the search did not use; what counts is its final policy, deterministic: the mean over 100 fresh episodes.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from measure import machine

from rllib import PPOConfig, tune
from rllib.tune.schedulers import ASHAScheduler, PopulationBasedTraining, PopulationBasedTrainingReplay

SPACE = {
    "lr": tune.loguniform(1e-5, 1e-2),
    "clip_param": tune.uniform(0.1, 0.4),
    "lambda_": tune.uniform(0.9, 1.0),
}
CARTPOLE = {
    "env": "CartPole-v1",
    "num_rollout_workers": 0,
    "num_envs_per_worker": 8,
    "train_batch_size": 1024,
    "sgd_minibatch_size": 128,
    "num_sgd_iter": 10,
    "model": {"fcnet_hiddens": [64, 64]},
}
LUNARLANDER = {
    "env": "LunarLander-v3",
    "num_rollout_workers": 0,
    "num_envs_per_worker": 16,
    "train_batch_size": 4096,
    "sgd_minibatch_size": 128,
    "num_sgd_iter": 10,
    "vf_clip_param": None,
    "model": {"fcnet_hiddens": [64, 64]},
}
METRIC = "episode_reward_mean"


FRESH_SEEDS = (3000, 3001, 3002)


def without_search(base: dict, iterations: int, changes: dict, policy_file: Path | None = None) -> list[float]:
    """Final returns of the fresh seeds, with the same settings throughout or with those of a policy file of PBT."""
    config = {**base, **changes, "evaluation_interval": iterations, "evaluation_duration": 100}
    finals = []
    for seed in FRESH_SEEDS:
        with tempfile.TemporaryDirectory() as directory:
            analysis = tune.run(
                "PPO",
                config={**config, "seed": seed},
                stop={"training_iteration": iterations},
                scheduler=policy_file and PopulationBasedTrainingReplay(policy_file),
                storage_path=directory,
                verbose=0,
            )
            finals.append(analysis.trials[0].last_result["evaluation"][METRIC])
    return finals


def search_with_pbt(directory: Path, iterations: int) -> dict:
    """What `without_search` needs to repeat the best of four trials."""
    analysis = tune.run(
        "PPO",
        config={**CARTPOLE, **SPACE, "seed": tune.randint(0, 1000)},
        num_samples=4,
        stop={"training_iteration": iterations},
        metric=METRIC,
        mode="max",
        scheduler=PopulationBasedTraining("training_iteration", perturbation_interval=5, hyperparam_mutations=SPACE),
        storage_path=directory,
    )
    best = analysis.get_best_trial(METRIC, "max", scope="last")
    policy_file = Path(analysis.experiment_path) / f"pbt_policy_{best.trial_id}.txt"
    return {"changes": found(best.config), "policy_file": policy_file if policy_file.exists() else None}


def search_with_asha(directory: Path, iterations: int) -> dict:
    """What `without_search` needs to repeat the best of 24 trials."""
    analysis = tune.run(
        "PPO",
        config={**LUNARLANDER, **SPACE, "seed": tune.randint(0, 1000)},
        num_samples=24,
        stop={"training_iteration": iterations},
        metric=METRIC,
        mode="max",
        scheduler=ASHAScheduler("training_iteration", max_t=iterations, grace_period=5, reduction_factor=3),
        storage_path=directory,
    )
    return {"changes": found(analysis.get_best_trial(METRIC, "max", scope="last").config)}


def found(config: dict) -> dict:
    return {name: config[name] for name in SPACE}


SEARCHES = {
    "pbt": ("PBT, 4 trials", search_with_pbt, CARTPOLE, 60),
    "asha": ("ASHA, 24 trials", search_with_asha, LUNARLANDER, 75),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="SEARCH", help=f"of {', '.join(SEARCHES)} [default: all]")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in SEARCHES]:
        parser.error(f"no search is called {', '.join(unknown)}; there are {', '.join(SEARCHES)}")
    print(machine())
    lines = []
    for name in options.names or SEARCHES:
        label, search, base, iterations = SEARCHES[name]
        with tempfile.TemporaryDirectory() as directory:
            started = time.perf_counter()
            best = search(Path(directory), iterations)
            minutes = (time.perf_counter() - started) / 60
            finals = {label: without_search(base, iterations, **best)}
        finals["default"] = without_search(base, iterations, defaults())
        steps = iterations * base["train_batch_size"]
        for which, returns in finals.items():
            settings = defaults() if which == "default" else best["changes"]
            lines.append(line(base["env"], which, steps, settings, returns, minutes if which == label else None))
    print(
        "| environment | configuration | lr, clip, lambda at the end | env steps | fresh seeds: mean (each) | search |"
    )
    print("|---|---|---|---|---|---|")
    print("\n".join(lines))


def defaults() -> dict:
    config = PPOConfig()
    return {name: config[name] for name in SPACE}


def line(env: str, label: str, steps: int, settings: dict, returns: list[float], minutes: float | None) -> str:
    values = ", ".join(f"{value:.3g}" for value in settings.values())
    each = ", ".join(f"{value:.1f}" for value in returns)
    search = "" if minutes is None else f"{minutes:.1f} min"
    return f"| {env} | {label} | {values} | {steps:,} | {statistics.fmean(returns):.1f} ({each}) | {search} |"


if __name__ == "__main__":
    main()
