"""`rllib push`, and policies that are loaded from the Hugging Face Hub."""

import inspect
import json
import shlex

import gymnasium
import numpy as np
import pandas
import pytest
import yaml

import rllib
from rllib import Algorithm, BCConfig, DQNConfig, ExternalEnv, GAILConfig, PPOConfig, SQILDQNConfig
from rllib.errors import CheckpointError, DamagedFileError, StorageError
from rllib.offline import Dataset
from rllib.remote.hub import push
from tests.hub_fake import installed
from tests.multi_agent import BasicMultiAgent

TRAIN = ("train", "PPO", "CartPole-v1", "num_rollout_workers=0", "train_batch_size=64", "sgd_minibatch_size=32",
         "num_sgd_iter=1", "model.fcnet_hiddens=[8]", "lr=0.01", "--seed", "1", "--name", "run", "--stop",
         "iterations=2", "-q")  # fmt: skip
PUSH = ("push", "results/run", "me/poles", "--seeds", "3", "--episodes", "2")


@pytest.fixture
def hub(monkeypatch, tmp_path_factory):
    return installed(monkeypatch, tmp_path_factory.mktemp("cache"))


@pytest.fixture
def run(rllib_command, tmp_path):
    done = rllib_command(*TRAIN)
    assert done.exit_code == 0, done.output
    return tmp_path / "results" / "run"


def test_a_pushed_policy_is_loaded_and_evaluated(hub, rllib_command, run):
    done = rllib_command(*PUSH, "--no-video", "--private")
    assert done.exit_code == 0, done.output
    assert "https://huggingface.co/me/poles" in done.output and "rllib evaluate hf://me/poles" in done.output
    assert hub.private == {"me/poles"} and len(hub.commits["me/poles"]) == 2  # one commit, behind the empty one

    here, there = rllib.load_policy(run), rllib.load_policy("hf://me/poles")
    assert there.metadata == here.metadata
    done = rllib_command("evaluate", "hf://me/poles", "--episodes", "2")
    assert done.exit_code == 0 and done.output.startswith("return"), done.output


def test_the_card_has_metadata_return_and_the_command_of_the_run(hub, rllib_command, run):
    assert rllib_command(*PUSH, "--no-video").exit_code == 0
    _, head, text = hub.files("me/poles")["README.md"].decode().split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata["library_name"] == "rllib" and {"CartPole-v1", "reinforcement-learning"} <= set(metadata["tags"])
    (result,) = metadata["model-index"][0]["results"]
    results = json.loads(hub.files("me/poles")["results.json"])
    assert results["seeds"] == [0, 1, 2] and len(results["returns"]) == 3 and results["episodes_per_seed"] == 2
    value = f"{results['mean_reward']:.2f} +/- {results['std_reward']:.2f}"
    assert result["metrics"][0]["value"] == value and result["dataset"]["name"] == "CartPole-v1"
    assert f"**{value.replace('+/-', '±')}**" in text and 'rllib.load_policy("hf://me/poles")' in text
    (command,) = [line for line in text.splitlines() if line.startswith("rllib train")]
    assert "rllib train PPO CartPole-v1" in command and "lr=0.01" in command and command.endswith("--seed 1")
    assert "--stop=training_iteration=2" in command
    again = rllib_command(*shlex.split(command)[1:], "--name", "again", "-q")
    assert again.exit_code == 0, again.output
    returns = [json.loads((run.parent / name / "result.json").read_text().splitlines()[-1])["episode_reward_mean"]
               for name in ("run", "again")]  # fmt: skip
    assert returns[0] == returns[1]


def test_a_curve_and_a_video_lie_beside_the_card(hub, rllib_command, run):
    pytest.importorskip("matplotlib")
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    done = rllib_command("push", "results/run", "me/poles", "--seeds", "1", "--episodes", "1")
    assert done.exit_code == 0, done.output
    files = hub.files("me/poles")
    assert files["curve.png"].startswith(b"\x89PNG") and b"ftyp" in files["replay.mp4"][:16]
    assert b"](curve.png)" in files["README.md"] and b"](replay.mp4)" in files["README.md"]


def test_files_can_be_looked_at_first(rllib_command, run):
    done = rllib_command(*PUSH, "--no-video", "-o", "look")  # needs no huggingface_hub
    assert done.exit_code == 0, done.output
    look = run.parents[1] / "look"
    assert {"README.md", "results.json", "manifest.json", "config.json"} <= {path.name for path in look.iterdir()}
    assert rllib.load_policy(look).policy_version == rllib.load_policy(run).policy_version
    done = rllib_command(*PUSH, "-o", "look")
    assert done.exit_code == 2 and "look exists already" in done.stderr


def loop_of_poles(config):
    """CartPole-v1 that drives its own loop."""
    world = gymnasium.make("CartPole-v1")

    class Loop(ExternalEnv):
        def run(self):
            while True:
                episode, (observation, _), over = self.start_episode(), world.reset(), False
                while not over:
                    observation, reward, *ends, _ = world.step(self.get_action(episode, observation))
                    self.log_returns(episode, reward)
                    over = any(ends)
                self.end_episode(episode, observation)

    return Loop(world.action_space, world.observation_space)


def team_of_two(agent, *_, **__):
    return f"net_{agent}"


POLES = gymnasium.make("CartPole-v1")
SPACES = {"observation_space": POLES.observation_space, "action_space": POLES.action_space}
STEPS = {
    "obs": np.zeros((40, 4), np.float32), "actions": np.arange(40) % 2, "rewards": np.ones(40, np.float32),
    "terminateds": np.arange(40) % 10 == 9,
}  # fmt: skip
SMALL = {"train_batch_size": 32, "model": {"fcnet_hiddens": [4]}}
PPO = {**SMALL, "sgd_minibatch_size": 16, "num_sgd_iter": 1}
REPLAY = {"num_steps_sampled_before_learning_starts": 8, "store_buffer_in_checkpoints": True}
# Name -> (config, options of the command that publishes it).
RUNS = {
    "loop": (PPOConfig().environment(loop_of_poles).training(**PPO), ("--env", "CartPole-v1")),
    "clients": (
        PPOConfig().environment(**SPACES).external(listen="127.0.0.1:0").training(**PPO), ("--env", "CartPole-v1")
    ),
    "data": (
        BCConfig().environment(**SPACES).offline_data(input_="steps.npz").training(**SMALL), ("--env", "CartPole-v1")
    ),
    "evaluation": (
        BCConfig().environment(**SPACES).offline_data(input_="steps.npz").training(**SMALL)
        .evaluation(evaluation_config={"env": "CartPole-v1"}), (),
    ),
    "agents": (
        PPOConfig().environment(BasicMultiAgent).training(**PPO)
        .multi_agent(policies=["net_0", "net_1"], policy_mapping_fn=team_of_two), ("--load-user-code",),
    ),
    "replay": (DQNConfig().environment("CartPole-v1").training(**SMALL, **REPLAY), ()),
    "code": (PPOConfig().environment(lambda config: gymnasium.make("CartPole-v1")).training(**PPO),
             ("--load-user-code", "--with-code")),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_what_the_card_says_works(hub, rllib_command, tmp_path, name):
    config, options = RUNS[name]
    np.savez(tmp_path / "steps.npz", **STEPS)
    with config.rollouts(num_rollout_workers=0).build() as algo:
        if name != "clients":
            algo.train()
        algo.save("run")
    if "--env" in options:
        done = rllib_command("push", "run", "me/it", "--load-user-code", "--with-code")
        assert done.exit_code == 2 and "Name one: --env ENV" in done.stderr and not hub.commits
        options = *options, *(["--load-user-code", "--with-code"] if name == "loop" else [])
    done = rllib_command("push", "run", "me/it", "--seeds", 1, "--episodes", 1, "--no-video", *options)
    assert done.exit_code == 0, done.output
    card = hub.files("me/it")["README.md"].decode()
    (program,) = [line for line in card.splitlines() if line.startswith("policy = ")]
    exec(program, {"rllib": rllib})  # as a reader of the card does
    (command,) = [line for line in card.splitlines() if line.startswith("rllib evaluate")]
    assert command in done.output
    done = rllib_command(*shlex.split(command)[1:], "--episodes", 1)
    assert done.exit_code == 0 and done.output.startswith("return"), done.output
    assert ("runs no code of theirs" in card) == (not any(file.endswith(".pkl") for file in hub.files("me/it")))
    assert "the seed 0; 1 episode each" in card and ("Its policies: `net_0`" in card) == (name == "agents")


@pytest.mark.parametrize("path", ["run", "memory://runs/first"])
def test_recorded_steps_are_not_published(hub, rllib_command, tmp_path, path):
    with RUNS["replay"][0].rollouts(num_rollout_workers=0).build() as algo:
        algo.train()
        algo.save_to_path(path if "://" in path else tmp_path / path)
    done = rllib_command("push", path, "me/it", "--seeds", 1, "--episodes", 1, "--no-video")
    assert done.exit_code == 0 and "left out: policies/default_policy/replay.safetensors" in done.stderr, done.output
    assert not any("replay" in file for file in hub.files("me/it"))
    with Algorithm.from_checkpoint("hf://me/it") as algo:
        assert algo.train()["timesteps_total"] > 0


def _steps():
    obs = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    return {"obs": obs, "actions": (obs[:, 0] > 0).astype(int), "terminateds": np.arange(300) % 10 == 9}


@pytest.mark.parametrize("form", ["arrays", "few", "table", "dataset", "mixture", "evaluated", "demonstrations"])
def test_steps_among_the_settings_are_not_published(hub, rllib_command, tmp_path, form):
    steps = {name: column[:20] for name, column in _steps().items()} if form == "few" else _steps()
    steps["rewards"] = np.ones(len(steps["obs"]), np.float32)
    dataset = Dataset.from_columns(steps)
    learner = {"mixture": SQILDQNConfig, "demonstrations": GAILConfig}.get(form, BCConfig)()
    given = {
        "table": pandas.DataFrame({"obs": list(steps["obs"]), "actions": steps["actions"]}),
        "dataset": dataset,
        "mixture": {"sampler": 0.5, dataset: 0.5},
    }.get(form, steps)
    config = learner.environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.offline_data(**{"demonstrations" if form == "demonstrations" else "input_": given})
    if form == "evaluated":
        config.evaluation(evaluation_config={"input": dataset}, off_policy_estimation_methods={"dm": {"type": "dm"}})
    with config.training(model={"fcnet_hiddens": [4]}).build() as algo:
        algo.save(tmp_path / "run")
    done = rllib_command("push", "run", "me/it", "--seeds", 1, "--episodes", 1, "--no-video")
    assert done.exit_code == 0 and "left out: the recorded steps of" in done.stderr, done.output
    files = hub.files("me/it")
    assert not any(name.startswith("user_code/") for name in files)
    assert b"$array" not in files["config.json"] and b"$pickle" not in files["config.json"]
    with pytest.raises(FileNotFoundError, match="rllib push has left out"):
        Algorithm.from_checkpoint("hf://me/it")
    assert rllib_command("evaluate", "hf://me/it", "--episodes", 1).exit_code == 0


def test_a_second_push_leaves_nothing_of_the_first(hub, rllib_command, run):
    listed = b'{"files": {"mixer.safetensors": {}}}'
    mine = dict.fromkeys(
        ["notes.txt", ".gitattributes", "numbers.json", "other.safetensors", "videos/old.mp4"], b"mine"
    )
    earlier = dict.fromkeys(["policies/old/policy.json", "mixer.safetensors", "replay.mp4"], b"old")
    for manifest in (b"{}", b"damaged", listed):
        hub.commits["me/poles"] = [{"manifest.json": manifest, **earlier, **mine}]
        assert rllib_command(*PUSH, "--no-video").exit_code == 0
        files = hub.files("me/poles")
        left = {"mixer.safetensors"} if manifest != listed else set()  # nothing says whose it is
        assert files.keys() & earlier.keys() == left
        assert mine.items() <= files.items()


def test_a_model_of_another_library_is_left_alone(hub, rllib_command, tmp_path):
    files = {"config.json": b"{}", "model.safetensors": b"", "README.md": b"", ".gitattributes": b""}
    hub.commits["me/words"] = [files]
    (tmp_path / "run").mkdir()
    done = rllib_command("push", "run", "me/words")
    assert done.exit_code == 2 and "holds another model: config.json, model.safetensors" in done.stderr
    with pytest.raises(ValueError, match="holds another model"):
        push({"manifest.json": b"{}"}, "me/words", message="x")
    assert hub.commits["me/words"] == [files]


def test_a_revision_is_what_it_was(hub, rllib_command, run):
    assert rllib_command(*PUSH, "--no-video").exit_code == 0
    hub.commits["me/poles"].append({})
    assert rllib.load_policy("hf://me/poles@1").metadata["algorithm"] == "PPO"
    with pytest.raises(CheckpointError, match="there is nothing at hf://me/poles"):
        rllib.load_policy("hf://me/poles")


def test_what_a_repository_lists_cannot_leave_the_copy(hub):
    hub.commits["me/poles"] = [{"manifest.json": b"{}", "../../outside.json": b"{}"}]
    with pytest.raises(DamagedFileError, match="would lie outside of the folder"):
        rllib.load_policy("hf://me/poles")
    hub.commits["me/poles"] = [{"manifest.json": b'{"format": "of others"}'}]
    with pytest.raises(CheckpointError, match="belongs to something else"):
        rllib.load_policy("hf://me/poles")


def test_pickled_code_is_not_published_by_itself(hub, rllib_command, tmp_path):
    def make(config):
        import gymnasium

        return gymnasium.make("CartPole-v1")

    config = PPOConfig().environment(make).rollouts(num_rollout_workers=0).training(train_batch_size=64)
    with config.training(sgd_minibatch_size=32, num_sgd_iter=1).build() as algo:
        algo.save(tmp_path / "with_code")
    done = rllib_command("push", "with_code", "me/poles")
    assert done.exit_code == 2 and "holds pickled code" in done.stderr and "--with-code" in done.stderr
    assert hub.commits == {}


@pytest.mark.parametrize("repository", ["poles", "me/", "me/po les", "https://huggingface.co/me/poles", "a/b/c"])
def test_a_repository_has_an_owner_and_a_name(hub, rllib_command, repository):
    done = rllib_command("push", "results/run", repository)
    assert done.exit_code == 2 and "must be ORG/NAME" in done.stderr


def test_the_hub_that_refuses_is_named(hub, rllib_command, run):
    hub.is_logged_in = False
    done = rllib_command(*PUSH, "--no-video")
    assert "seed 0" not in done.output  # before the evaluation
    assert done.exit_code == 1 and "me/poles cannot be written: OSError: 401 Client Error" in done.stderr
    assert "hf auth login" in done.stderr and "more lines" not in done.stderr
    with pytest.raises(StorageError, match="hf://me/nothing cannot be read: LookupError: 404"):
        rllib.load_policy("hf://me/nothing")
    with pytest.raises(ValueError, match="must be hf://ORG/NAME"):
        rllib.load_policy("hf://nothing")


def test_a_package_that_is_missing_is_named_before_the_evaluation(rllib_command, tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.remote.hub.importlib.util.find_spec", lambda name: None)
    done = rllib_command("push", "results/run", "me/poles")
    assert done.exit_code == 2 and "[hub]'" in done.stderr


@pytest.mark.extras("huggingface_hub")
def test_the_stand_in_is_called_as_the_library_is():
    import huggingface_hub

    api = huggingface_hub.HfApi
    inspect.signature(api.whoami).bind(api)
    inspect.signature(api.repo_exists).bind(api, "me/x", repo_type="model")
    inspect.signature(api.create_repo).bind(api, "me/x", repo_type="model", private=None, exist_ok=True)
    inspect.signature(api.list_repo_files).bind(api, "me/x", repo_type="model")
    inspect.signature(api.model_info).bind(api, "me/x", revision=None)
    inspect.signature(api.create_commit).bind(api, "me/x", operations=[], commit_message="x", repo_type="model")
    inspect.signature(huggingface_hub.hf_hub_download).bind("me/x", "a.json", revision="main")
    assert huggingface_hub.CommitOperationAdd(path_in_repo="a.json", path_or_fileobj=b"{}")
    assert huggingface_hub.CommitOperationDelete(path_in_repo="a.json")
