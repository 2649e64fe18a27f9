"""`rllib tune`, in a process of its own."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rllib import tune
from rllib.cli import command as rllib_command
from rllib.cli.folders import Folders
from rllib.cli.run_directory import write_spec
from rllib.cli.spec import Resumed, RunSpec, is_search, load_spec
from rllib.cli.values import parse_assignments
from rllib.cli.verbs.tune import _settings, _spec, parse_range
from rllib.tune.experiment.directory import for_header
from rllib.tune.experiment.journal_values import code_in
from rllib.tune.experiment.spec import saved_settings
from rllib.tune.reporting.analysis import ExperimentAnalysis
from rllib.tune.schedulers import _SCHEDULERS, create_scheduler
from rllib.tune.search import _SEARCHERS
from rllib.tune.search.space import holds_domains
from rllib.tune.trainables.resolve import resolve_trainable

ROOT = Path(__file__).parents[2]
_OF_OPTUNA = {
    "optuna": [],
    "tpe": [],
    "nsga2": [],
    "gp": ["scipy"],
    "bayesopt": ["scipy"],
    "cmaes": ["cmaes"],
    "qmc": ["scipy"],
}
_NEEDED = {name: ["optuna", *modules] for name, modules in _OF_OPTUNA.items()}
QUICK = ["num_rollout_workers=0", "train_batch_size=200", "sgd_minibatch_size=100", "num_sgd_iter=1"]


def rllib_tune(tmp_path, *arguments):
    return run_rllib(tmp_path, "tune", *arguments)


def run_rllib(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "rllib", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.fixture
def tune_here(tmp_path, monkeypatch):
    """Runs `rllib tune ARGUMENTS` in this process, which takes a third of the time."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(rllib_command, ["tune", *arguments])


def test_a_grid_and_a_range_on_the_command_line(tmp_path):
    found = rllib_tune(tmp_path, "PPO", "CartPole-v1", *QUICK, "--search", "lr=log:1e-5:1e-2", "gamma=0.95,0.99",
                       "--trials", "1", "--stop", "iterations=2", "--seed", "1", "--name", "x")  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "Using FIFO scheduling algorithm." in found.stdout and "rllib evaluate" in found.stdout
    trials = ExperimentAnalysis(tmp_path / "results" / "x").trials
    assert [(trial.config["gamma"], trial.config["seed"]) for trial in trials] == [(0.95, 1), (0.99, 1)]
    assert all(1e-5 <= trial.config["lr"] <= 1e-2 and trial.config["num_sgd_iter"] == 1 for trial in trials)
    assert all(trial.last_result["training_iteration"] == 2 and trial.checkpoint for trial in trials)


def test_several_metrics_print_their_front(tune_here):
    found = tune_here("PPO", "CartPole-v1", *QUICK, "--search", "lr=1e-3,1e-4", "--stop", "iterations=1",
                      "--metric", "episode_reward_mean", "--metric", "time_total_s", "--mode", "max", "--mode", "min",
                      "--seed", "1", "--name", "x")  # fmt: skip
    assert found.exit_code == 0, found.output
    assert "of 2 trials, by episode_reward_mean (max) and time_total_s (min):" in found.output
    assert "Pareto front" in found.output and "rllib evaluate results/x/" in found.output


@pytest.mark.parametrize(
    ("words", "metric", "mode"),
    [
        ((), "episode_reward_mean", "max"),
        ({"metric": ("a",), "mode": ("min",)}, "a", "min"),
        ({"metric": ("a", "b"), "mode": ("max", "min")}, ["a", "b"], ["max", "min"]),
        ({"metric": ("a", "b")}, ["a", "b"], None),  # refused when the experiment is made
    ],
)
def test_metrics_of_the_command_line(tmp_path, words, metric, mode):
    settings = _settings(("PPO", "CartPole-v1"), None, False, dict(words))
    spec = _spec(settings, Folders(tmp_path), resume=False, quiet=True)
    assert (spec.metric, spec.mode) == (metric, mode)


@pytest.mark.parametrize("words, seeds", [((), [3, 4]), (("seed=7",), [7, 7])])
def test_the_trials_of_a_seed_are_not_the_same(tmp_path, words, seeds):
    settings = _settings(("PPO", "CartPole-v1", *words), None, False, {"seed": 3, "trials": 2})
    spec = _spec(settings, Folders(tmp_path), resume=False, quiet=True)
    spec.search_alg.set_search_properties(None, None, spec.config, num_samples=2)
    assert [spec.search_alg.suggest(str(number))["seed"] for number in range(2)] == seeds


def _seeded(tmp_path, keys, seed=3):
    keys = {"algorithm": "PPO", "env": "CartPole-v1", "search": {"lr": "log:1e-5:1e-2"}, "trials": 3, **keys}
    if seed is not None:
        keys["seed"] = seed
    return _spec(keys, Folders(tmp_path), resume=False, quiet=True)


def _first_suggestions(tmp_path, search_alg, **kwargs):
    name = search_alg.get("name") if isinstance(search_alg, dict) else search_alg
    for module in _NEEDED.get(name, []):
        pytest.importorskip(module, reason="needs the extra `tune`")
    spec = _seeded(tmp_path, {"search_alg": search_alg} if search_alg else {}, **kwargs)
    spec.search_alg.set_search_properties("episode_reward_mean", "max", spec.config, num_samples=3)
    return [spec.search_alg.suggest(str(number))["lr"] for number in range(3)]


@pytest.mark.parametrize("name", [None, *_SEARCHERS])
def test_a_seed_repeats_what_a_searcher_by_name_suggests(tmp_path, name):
    for given in (name, {"name": name}) if name else (None,):
        first, second, other = (_first_suggestions(tmp_path, given, seed=seed) for seed in (3, 3, 4))
        assert first == second != other


@pytest.mark.parametrize("given", [{"name": "random", "random_state": 5}, {"name": "optuna", "seed": 5}])
def test_a_searcher_keeps_the_seed_of_its_file(tmp_path, given):
    first, second, other = (
        _first_suggestions(tmp_path, each, seed=seed)
        for each, seed in ((given, 3), (given, 4), ({"name": given["name"]}, 3))
    )
    assert first == second != other


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(
    "key, name",
    [
        *(("search_alg", name) for name in _SEARCHERS),
        *(("scheduler", name) for name in _SCHEDULERS if name != "pbt_replay"),
    ],
)
def test_what_a_command_can_ask_for_is_data_in_the_journal(tmp_path, key, name, seed):
    """So that --name NAME --resume can continue it without --load-user-code."""
    for module in _NEEDED.get(name, []):
        pytest.importorskip(module, reason="needs the extra `tune`")
    saved = saved_settings(_seeded(tmp_path, {key: name, "stop": {"steps": 10}}, seed=seed))
    assert key in saved and [code_in(for_header(value)) for value in saved.values()] == [[]] * len(saved)


def test_an_experiment_is_continued_by_its_name(tmp_path, tune_here):
    found = tune_here("PPO", "CartPole-v1", *QUICK, "--search", "lr=log:1e-5:1e-2",
                      "--stop", "iterations=1", "--seed", "1", "--name", "x", "-q")  # fmt: skip
    assert found.exit_code == 0, found.output
    found = tune_here("--resume", "results/x", "--trials", "2", "-q")  # as rllib train has it
    assert found.exit_code == 0, found.output
    found = tune_here("--name", "x", "--resume", "-q")
    assert found.exit_code == 0, found.output
    found = tune_here("PPO", "CartPole-v1", *QUICK, "--search", "lr=log:1e-5:1e-2", "--trials", "3",
                      "--name", "x", "--resume", "-q")  # fmt: skip
    assert found.exit_code == 0, found.output  # with the saved stop criterion and searcher
    trials = ExperimentAnalysis(tmp_path / "results" / "x").trials
    reached = [(trial.config["seed"], trial.last_result["training_iteration"]) for trial in trials]
    assert reached == [(1, 1), (2, 1), (3, 1)]
    for words, named in (
        (("--name", "x", "gamma=0.9"), "leave out gamma=0.9"),
        (("--name", "x", QUICK[0], "model.fcnet_hiddens=[3]"), "leave out 'model={fcnet_hiddens: [3]}'"),
        (("--name", "x", "--search", QUICK[0]), f"leave out --search {QUICK[0]}"),
        (("--name", "x", "--seed", "4", "--scheduler", "asha"), "leave out --seed 4 --scheduler asha"),
        (("--name", "nowhere"), "no experiment 'nowhere'"),
        (("results/nowhere",), "no experiment 'nowhere'"),
        (("results/nowhere", "--trials", "2"), "no experiment 'nowhere'"),
        ((), "--name NAME"),
    ):
        result = tune_here("--resume", *words)
        assert result.exit_code == 2 and named in result.output


def test_a_place_outside_is_written_to_again_once_it_is_typed_again(tmp_path, tune_here):
    """As the refusal says: give output again."""
    output = f"output={tmp_path / 'elsewhere'}"
    found = tune_here("PPO", "CartPole-v1", *QUICK, output, "--stop", "iterations=1", "--name", "x", "-q")
    assert found.exit_code == 0, found.output
    for words in ((), ("output=/nowhere",)):
        result = tune_here("--resume", "results/x", *words)
        assert result.exit_code == 2 and "give output again" in result.output
    found = tune_here("--resume", "results/x", output, QUICK[0], "--trials", "2", "-q")
    assert found.exit_code == 0, found.output
    assert len(ExperimentAnalysis(tmp_path / "results" / "x").trials) == 2


@pytest.mark.parametrize("number", [1, 2])
def test_an_experiment_without_a_metric_is_said_to_have_none(tmp_path, tune_here, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    config = parse_assignments(["env=CartPole-v1", *QUICK], "")
    tune.run("PPO", config=config, num_samples=number, name="x", stop={"training_iteration": 1}, verbose=0)
    found = tune_here("--name", "x", "--resume", "-q")
    assert found.exit_code == 0 and "best        none: the experiment has no metric" in found.output
    assert "--metric KEY" in found.output and "None" not in found.output and "rllib plot" in found.output
    found = tune_here("--name", "x", "--resume", "--metric", "training_iteration", "-q")
    assert found.exit_code == 0 and ": training_iteration 1" in found.output


def test_recorded_steps_are_tuned_on_without_an_environment(tmp_path):
    for name in ("a", "b"):
        rows = [f"{step / 10},{step % 2},1.0,{step == 9}" for step in range(10)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["obs,actions,rewards,terminateds", *rows]))
    found = rllib_tune(tmp_path, "BC", "dataset_num_iters_per_learner=1", "--search", "input=a.csv,b.csv", "--stop",
                       "iterations=1", "--name", "x", "-q")  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert [trial.status for trial in ExperimentAnalysis(tmp_path / "results" / "x").trials] == ["TERMINATED"] * 2


def test_an_experiment_of_a_function_is_not_continued_by_a_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tune.run(lambda config: {"loss": 1.0}, name="f", verbose=0)
    result = CliRunner().invoke(rllib_command, ["tune", "--resume", "--name", "f"])
    assert result.exit_code == 2 and "Repeat its command or its program" in result.output


def test_a_seed_repeats_what_a_scheduler_by_name_draws(tmp_path):
    pbt = {"name": "pbt", "hyperparam_mutations": {"lr": [1e-4, 1e-3]}}
    pb2 = {"name": "pb2", "hyperparam_bounds": {"lr": [1e-4, 1e-3]}}
    for given in (pbt, pb2):
        assert _seeded(tmp_path, {"scheduler": given}).scheduler.get_state()["seed"] == 3
        assert _seeded(tmp_path, {"scheduler": {**given, "seed": 5}}).scheduler.get_state()["seed"] == 5
    for name in ("fifo", "asha", "hyperband", "median_stopping"):  # which draw nothing
        assert type(_seeded(tmp_path, {"scheduler": name}).scheduler) is type(create_scheduler(name))


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_a_population_by_name_changes_what_is_searched(tmp_path, name, seed):
    search = {"lr": "log:1e-4:1e-2", "gamma": "0.9,0.99", "seed": "1,2", "model.fcnet_hiddens": "[8],[16]"}
    spec = _seeded(tmp_path, {"scheduler": name, "search": search}, seed=seed)
    scheduler = create_scheduler(spec.scheduler, space=spec.config)
    changed = scheduler._mutations  # what it would change shows in a whole experiment only
    assert str(changed["lr"]) == "loguniform(0.0001, 0.01)"
    assert changed.get("gamma") == ([0.9, 0.99] if name == "pbt" else None)
    assert not {"seed", "model", "env"} & set(changed)


def test_what_a_population_of_a_file_changes_is_said_as_ranges(tmp_path):
    given = {"lr": "log:1e-4:1e-2", "gamma": [0.9, 0.99], "entropy_coeff": "0,0.01", "model": {"x": "int:1:9"}}
    pbt = _seeded(tmp_path, {"scheduler": {"name": "pbt", "hyperparam_mutations": given}}).scheduler
    changed = pbt._mutations
    assert (str(changed["lr"]), str(changed["model"]["x"])) == ("loguniform(0.0001, 0.01)", "randint(1, 9)")
    assert (changed["gamma"], changed["entropy_coeff"]) == ([0.9, 0.99], [0, 0.01])
    bounds = {"lr": "log:1e-4:1e-2", "gamma": [0.9, 0.99]}
    assert _seeded(tmp_path, {"scheduler": {"name": "pb2", "hyperparam_bounds": bounds}}).scheduler
    with pytest.raises(ValueError, match="nothing to change"):
        _seeded(tmp_path, {"scheduler": "pbt", "search": {"env": "A,B"}})


def test_a_searcher_without_a_seed_differs_each_time(tmp_path):
    first, second = (_first_suggestions(tmp_path, {"name": "optuna"}, seed=None) for _ in range(2))
    assert first != second


def test_trials_of_several_seeds_have_the_same_ones(tmp_path):
    settings = _settings(("PPO", "CartPole-v1"), None, False, {"seed": 3, "trials": 2, "num_seeds": 2})
    spec = _spec(settings, Folders(tmp_path), resume=False, quiet=True)
    assert (spec.num_seeds, spec.config["seed"]) == (2, 3)
    (tmp_path / "search.yaml").write_text("algorithm: PPO\nenv: CartPole-v1\nnum_seeds: 3\n")
    assert is_search(keys := load_spec(tmp_path / "search.yaml"))
    assert _spec(keys, Folders(tmp_path), resume=False, quiet=True).num_seeds == 3


def test_a_failure_is_told_in_a_line(tmp_path):
    wrong = "env_config.nonsense=1"
    found = rllib_tune(tmp_path, "PPO", "CartPole-v1", wrong, *QUICK, "--stop", "iterations=1", "--name", "x", "-q")
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("Error: TuneError: 1 of 1 trial failed")]
    assert found.returncode == 1 and "x/PPO_CartPole-v1_0/error.txt: " in line and "nonsense" in line
    assert "Traceback" not in found.stderr and "Unhandled" not in found.stderr
    assert "Traceback" in (tmp_path / "results/x/PPO_CartPole-v1_0/error.txt").read_text()


def test_a_file(tmp_path):
    (tmp_path / "search.yaml").write_text(
        "algorithm: PPO\nenv: CartPole-v1\nconfig: {num_rollout_workers: 0, train_batch_size: 200, num_sgd_iter: 1}\n"
        "search: {lr: [1e-3, 1e-4], model.fcnet_hiddens: '[8,8],[8,4]'}\nstop: {training_iteration: 1}\nname: y\n"
    )
    found = rllib_tune(tmp_path, "-f", "search.yaml", "-q")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("results")
    (typed,) = re.findall(r"^settings +(.*)$", found.stdout, re.MULTILINE)
    best = parse_assignments(shlex.split(typed), "")
    assert best["lr"] in (1e-3, 1e-4) and best["model"]["fcnet_hiddens"] in ([8, 8], [8, 4])
    trials = ExperimentAnalysis(tmp_path / "results" / "y").trials
    chosen = [(trial.config["lr"], trial.config["model"]["fcnet_hiddens"]) for trial in trials]
    assert sorted(chosen) == [(1e-4, [8, 4]), (1e-4, [8, 8]), (1e-3, [8, 4]), (1e-3, [8, 8])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["PPO", "CartPole-v1", "--search", "lrr=1,2"], "no setting 'lrr'"),
        (["PPO", "CartPole-v1", "--search", "lr=lag:1:2"], "ranges are uniform, log, int"),
        (["PPO", "CartPole-v1", "--search", "lr=log:1e-3"], "a range has two ends, as in log:LOW:HIGH"),
        (["PPO", "CartPole-v1", "--search", "lr=log:1:2:3"], "a range has two ends, as in log:LOW:HIGH"),
        (["PPO", "CartPole-v1", "seed=1,2,3"], "To search, write --search before seed=1,2,3"),
        (["PPO", "CartPole-v1", "lr=log:1e-5:1e-2"], "To search, write --search before lr=log:1e-5:1e-2"),
        (["PPO"], "rllib tune ALGO ENV"),
        (["BC", "--search", "lr=1,2"], "rllib tune ALGO input=FILE"),
        (["-f", "missing.yaml"], "there is no file missing.yaml"),
        (["PPO", "CartPole-v1", "--search", "lr=1,2", "--stop", "retrun=1"], "no result has 'retrun'. Did you mean re"),
        (["PPO", "CartPole-v1", "--scheduler", "asa", "--search", "lr=1,2"], "Did you mean asha"),
        (["PP0", "CartPole-v1", "--search", "lr=1,2"], "Did you mean 'PPO'"),
    ],
)
def test_mistakes_end_with_code_2(tune_here, arguments, message):
    found = tune_here(*arguments)
    assert found.exit_code == 2 and message in found.output


def test_a_search_of_one_trial_that_fails_says_why(tmp_path):
    (tmp_path / "broken.py").write_text("def make(config):\n    raise RuntimeError('no such maze')\n")
    found = rllib_tune(tmp_path, "PPO", "broken:make", *QUICK, "--stop", "iterations=1", "--name", "x", "-q")
    assert found.returncode == 1 and "KeyError" not in found.stderr
    assert "best        none: PPO_broken:make_0 has reported no episode_reward_mean" in found.stdout
    assert "no such maze" in found.stderr


def test_what_values_mean():
    assert parse_range("0.95,0.99") == {"grid_search": [0.95, 0.99]}
    assert parse_range("[64,64],[32]") == {"grid_search": [[64, 64], [32]]}
    assert parse_range(3) == 3
    assert parse_range("500") == 500, "a setting among those that are searched is no grid"
    assert parse_range("[64,64]") == [64, 64]
    assert 3 <= parse_range("int:3:5").sample() < 5


EXAMPLES = sorted((ROOT / "tuned_examples" / "tune").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_say_a_whole_search(path, tmp_path):
    settings = _settings((), load_spec(path), False, {})
    spec = _spec(settings, Folders(tmp_path), resume=False, quiet=True)
    assert spec.num_samples > 1 and spec.stop and holds_domains(spec.config)
    if isinstance(spec.metric, str):  # several metrics have no scheduler
        assert callable(spec.scheduler.on_trial_result) or isinstance(spec.scheduler, str)
    resolve_trainable(spec.trainable)
    assert is_search(load_spec(path))


def test_the_settings_file_of_a_run_is_one_of_a_search(tmp_path):
    run = RunSpec(
        algorithm="PPO", env="CartPole-v1", config={"lr": 1e-3}, stop={"training_iteration": 1}, seed=3, name="x",
        experiment="y", checkpoint_freq=2, keep_checkpoints_num=1, measured={"return": 475},
        resumed=Resumed("checkpoint_000001", {"lr": 1e-3}),
    )  # fmt: skip
    write_spec(tmp_path, run)
    settings = _settings(("gamma=0.9",), load_spec(tmp_path / "run.json"), False, {})
    spec = _spec(settings, Folders(tmp_path), resume=False, quiet=True)
    assert spec.config == {"env": "CartPole-v1", "lr": 1e-3, "gamma": 0.9}
    assert (spec.name, spec.checkpoint_freq, spec.keep_checkpoints_num) == ("x", 2, 1)


def test_a_search_refuses_clients(tmp_path, tune_here):
    write_spec(tmp_path, RunSpec(algorithm="PPO", external={"listen": "127.0.0.1:0"}))
    found = tune_here("-f", "run.json")
    assert found.exit_code == 2 and "clients of external play for a single run" in found.output
    (tmp_path / "run").mkdir()
    (tmp_path / "run.json").rename(tmp_path / "run" / "run.json")
    assert "Did you mean run/run.json?" in tune_here("-f", "run").output


def test_a_scheduler_with_settings_needs_its_name(tmp_path):
    settings = {"algorithm": "PPO", "env": "CartPole-v1", "scheduler": {"max_t": 4}}
    with pytest.raises(ValueError, match=r"scheduler: .* does not say which, as in \{name: asha, max_t: 20\}"):
        _spec(settings, Folders(tmp_path), resume=False, quiet=True)


RAY_SEARCH = """
cartpole-ppo:
  run: PPO
  num_samples: 1
  stop: {training_iteration: 1}
  config:
    env: CartPole-v1
    num_workers: 0
    train_batch_size: 200
    sgd_minibatch_size: 100
    num_sgd_iter: 1
    lr: {grid_search: [0.001, 0.0001]}
    gamma: 0.9
"""


def test_a_search_in_rays_form_runs_under_train(tmp_path, monkeypatch):
    (tmp_path / "ray.yaml").write_text(RAY_SEARCH)
    monkeypatch.chdir(tmp_path)
    words = ["train", "-f", "ray.yaml", "gamma=0.8", "--stop", "iterations=2", "-q"]
    found = CliRunner().invoke(rllib_command, words)
    assert found.exit_code == 0, found.output
    assert "settings    lr=" in found.output
    (directory,) = (tmp_path / "results").glob("cartpole-ppo_*")
    trials = ExperimentAnalysis(directory).trials
    assert [(trial.config["lr"], trial.config["gamma"]) for trial in trials] == [(0.001, 0.8), (0.0001, 0.8)]
    assert [trial.last_result["training_iteration"] for trial in trials] == [2, 2]


@pytest.mark.parametrize(
    ("content", "searches"),
    [
        ("{run: PPO, env: E, num_samples: 1, checkpoint_at_end: true}", False),
        ("{run: PPO, env: E, num_samples: 2}", True),
        ("{run: PPO, env: E, config: {model: {fcnet_hiddens: {grid_search: [[8], [16]]}}}}", True),
        ("{run: PPO, env: {grid_search: [E, F]}}", True),
        ("{run: PPO, config: {env: {grid_search: [E, F]}}}", True),
        ("{run: PPO, env: E, scheduler: asha}", True),
        ("{algorithm: PPO, env: E, search: {lr: 'log:1e-5:1e-2'}}", True),
    ],
)
def test_which_files_are_searches(tmp_path, content, searches):
    (tmp_path / "x.yaml").write_text(content)
    assert is_search(load_spec(tmp_path / "x.yaml")) is searches


SEVERAL = """
first: {run: PPO, env: CartPole-v1, stop: &once {training_iteration: 1}, config: &small {num_workers: 0,
  train_batch_size: 200, sgd_minibatch_size: 100, num_sgd_iter: 1}, pass_criteria: {episode_reward_mean: 150}}
second: {run: PPO, env: CartPole-v1, stop: *once, config: {<<: *small, lr: {grid_search: [0.01, 0.001]}}}
third: {run: PPO, env: CartPole-v1, stop: *once, config: *small, local_dir: null}
"""


def test_the_experiments_of_a_file_run_one_after_the_other(tmp_path):
    (tmp_path / "x.yaml").write_text(SEVERAL.replace(", local_dir: null", ""))
    found = run_rllib(tmp_path, "train", "-f", "x.yaml", "-q", "gamma=0.9")
    assert found.returncode == 0, found.stderr
    directories = sorted((tmp_path / "results").iterdir())
    assert [path.name.partition("_")[0] for path in directories] == ["first", "second", "third"]
    assert [(path / "run.json").exists() for path in directories] == [True, False, True]
    assert [trial.config["gamma"] for trial in ExperimentAnalysis(directories[1]).trials] == [0.9, 0.9]


@pytest.mark.parametrize("content, arguments, message", [
    (SEVERAL, [], "x.yaml: third: unknown key 'local_dir'"),
    (SEVERAL.replace("local_dir", "stopp"), [], "Did you mean 'stop'"),
    (SEVERAL.replace(", local_dir: null", ""), ["--name", "mine"], "holds 3 experiments, which cannot have one --name"),
])  # fmt: skip
@pytest.mark.parametrize("command", ["train", "tune"])
def test_of_several_experiments_none_runs_if_one_is_wrong(tmp_path, command, content, arguments, message):
    (tmp_path / "x.yaml").write_text(content)
    found = CliRunner().invoke(rllib_command, [command, "-f", str(tmp_path / "x.yaml"), *arguments])
    assert found.exit_code == 2 and message in found.output.replace("\n", " ")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("value", ["5", "[1]", "lr"])
@pytest.mark.parametrize("key", ["config", "search", "stop"])
@pytest.mark.parametrize("command", ["train", "tune"])
def test_what_must_be_a_mapping_in_a_file_is_not_passed_over(tmp_path, command, key, value):
    (tmp_path / "x.yaml").write_text(f"algorithm: PPO\nenv: CartPole-v1\n{key}: {value}\n")
    found = CliRunner().invoke(rllib_command, [command, "-f", str(tmp_path / "x.yaml"), "lr=1e-3"])
    assert found.exit_code == 2 and f"{key} must be a mapping, as in {key}: {{" in found.output.replace("\n", " ")


@pytest.mark.parametrize("key, given, message", [
    ("scheduler", "{name: asha, maxt: 4}", "scheduler 'asha' has no argument 'maxt'. Did you mean max_t?"),
    ("search_alg", "{name: random, seeds: 4}", "searcher 'random' has no argument 'seeds'. It has: points_to_"),
])  # fmt: skip
def test_a_misspelt_argument_of_a_scheduler_or_searcher_is_refused_with_the_nearest(tmp_path, key, given, message):
    (tmp_path / "x.yaml").write_text(f"algorithm: PPO\nenv: CartPole-v1\n{key}: {given}\n")
    found = CliRunner().invoke(rllib_command, ["tune", "-f", str(tmp_path / "x.yaml")])
    assert found.exit_code == 2 and message in found.output.replace("\n", " ")


def test_known_keys_are_listed_once(tmp_path):
    (tmp_path / "x.yaml").write_text("{zzz: 1}")
    with pytest.raises(ValueError, match="Known are: ") as caught:
        load_spec(tmp_path / "x.yaml")
    known = str(caught.value).partition("Known are: ")[2].rstrip(".").split(", ")
    assert len(known) == len(set(known)) > 20


def test_where_one_experiment_is_needed_several_are_refused(tmp_path):
    (tmp_path / "x.yaml").write_text("a: {run: PPO, env: E}\nb: {run: DQN, env: E}\n")
    with pytest.raises(ValueError, match=r"x\.yaml holds 2 experiments, and here one is needed"):
        load_spec(tmp_path / "x.yaml")


def test_command_line_goes_over_the_file_under_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(
        "algorithm: PPO\nenv: CartPole-v1\nconfig: {num_workers: 2, sgd_stepsize: 0.5, gamma: 0.9}\n"
    )
    settings = _settings(("num_rollout_workers=0",), load_spec(Path("x.yaml")), False, {})
    settings["search"] = {"lr": "0.1,0.2"}
    config = _spec(settings, Folders(tmp_path), False, True).config
    assert {key: config[key] for key in ("num_rollout_workers", "gamma")} == {"num_rollout_workers": 0, "gamma": 0.9}
    assert holds_domains(config["lr"]) and "sgd_stepsize" not in config and "num_workers" not in config
