"""Runs and checkpoints of others write to their own folder alone, whatever links and settings in them name."""

import hashlib
import json
import shutil
from pathlib import Path

import gymnasium
import pytest
from multi_agent import BasicMultiAgent

import rllib
from rllib import DQNConfig, PPOConfig
from rllib.algorithms.base.algorithm import Algorithm
from rllib.compat.methods.ray_rllib.settings import OVERRIDES
from rllib.errors import CheckpointError, DamagedFileError
from rllib.policies import PolicySpec
from rllib.registered import ENVIRONMENTS
from rllib.storage import signatures
from rllib.storage.checkpoint import newest_checkpoint
from tests.envs import CountingEnv

TRAIN = ("train", "PPO", "CartPole-v1", "--defaults", "--name", "run", "num_rollout_workers=0",
         "train_batch_size=20", "sgd_minibatch_size=20", "num_sgd_iter=1", "model.fcnet_hiddens=[4]",
         "--stop", "iterations=1", "-q")  # fmt: skip


@pytest.fixture
def run(tmp_path, rllib_command):
    """The directory of a run."""
    result = rllib_command(*TRAIN, "--results-dir", str(tmp_path))
    assert result.exit_code == 0, result.output
    return tmp_path / "run"


def with_settings(checkpoint: Path, **settings) -> None:
    """Changes the settings in a checkpoint, as somebody does who wants to be believed."""
    file, manifest = checkpoint / "config.json", checkpoint / "manifest.json"
    content = json.dumps({**json.loads(file.read_text()), **settings}).encode()
    file.write_bytes(content)
    about = json.loads(manifest.read_text())
    about["files"]["config.json"] = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest.write_text(json.dumps(about))


LINKS = {
    "videos": lambda run, other: (run / "videos").symlink_to(other),
    "a video": lambda run, other: (run / "videos").mkdir() or (run / "videos" / "1.gif").symlink_to(other / "1.gif"),
    "a checkpoint": lambda run, other: (run / "checkpoint_000009").symlink_to(
        shutil.copytree(newest_checkpoint(run), other / "checkpoint_000009")
    ),
    "a file": lambda run, other: (run / "progress.csv").unlink() or (run / "progress.csv").symlink_to(other / "new"),
    "a chain": lambda run, other: (run / "one").symlink_to("two") or (run / "two").symlink_to(other),
    "by a checkpoint": lambda run, other: (
        (newest_checkpoint(run) / "more").mkdir()
        or (newest_checkpoint(run) / "more" / "1.gif").symlink_to(other / "1.gif")
        or (run / "videos").symlink_to(newest_checkpoint(run) / "more")
    ),
    "by logs of wandb": lambda run, other: (
        (run / "wandb" / "run-1" / "logs").mkdir(parents=True)
        or (run / "wandb" / "run-1" / "logs" / "1.gif").symlink_to(other / "1.gif")
        or (run / "videos").symlink_to("wandb/run-1/logs")
    ),
    "by a missing directory": lambda run, other: (run / "videos").symlink_to("missing/../../other/new"),
}
INSIDE = {
    "best": lambda run: (run / "best").symlink_to(newest_checkpoint(run).name),
    "latest-run": lambda run: (
        (run / "wandb" / "run-1").mkdir(parents=True) or (run / "wandb" / "latest-run").symlink_to("run-1")
    ),
    "debug-core.log": lambda run: (  # which wandb writes; a cache may be emptied
        (run / "wandb" / "run-1" / "logs").mkdir(parents=True)
        or (run / "wandb" / "run-1" / "logs" / "debug-core.log").symlink_to("/nowhere/wandb/logs/core-debug-1.log")
    ),
    "debug.log": lambda run: (
        (run / "wandb" / "logs").mkdir(parents=True)
        or (run / "wandb" / "logs" / "1.log").touch()
        or (run / "wandb" / "debug.log").symlink_to(run / "wandb" / "logs" / "1.log")
    ),
    "a removed checkpoint": lambda run: (run / "best").symlink_to("checkpoint_000000"),
    "a chain": lambda run: (run / "best").symlink_to("newest") or (run / "newest").symlink_to("checkpoint_000001"),
    "a circle": lambda run: (run / "videos").mkdir() or (run / "videos" / "up").symlink_to(".."),
}


@pytest.mark.parametrize("what", LINKS)
def test_resume_follows_no_links(run, tmp_path, rllib_command, what):
    other = tmp_path / "other"
    other.mkdir()
    LINKS[what](run, other)
    before = sorted(other.iterdir())
    result = rllib_command("train", "--resume", str(run), "--stop", "iterations=2", "-q")
    assert result.exit_code == 2 and "is a link that leads out of" in result.output, result.output
    assert sorted(other.iterdir()) == before
    if what == "a checkpoint":
        with pytest.raises(CheckpointError, match="symbolic link, which is not followed"):
            Algorithm.from_checkpoint(run)
        evaluated = rllib_command("evaluate", str(run), "--episodes", "1")
        assert evaluated.exit_code and "symbolic link" in evaluated.output and "Traceback" not in evaluated.output


@pytest.mark.parametrize("what", INSIDE)
def test_links_inside_of_a_run_are_its_own(run, tmp_path, rllib_command, what):
    INSIDE[what](run)
    with_settings(newest_checkpoint(run), log_dir=str(run))
    for overrides in ({}, {"log_dir": str(run)}):
        Algorithm.from_checkpoint(newest_checkpoint(run), overrides).stop()
    with_settings(newest_checkpoint(run), log_dir=None)
    result = rllib_command("train", "--resume", str(run), "--stop", "iterations=2", "-q")
    assert result.exit_code == 0, result.output


PLACES = {
    "output": lambda place: {"output": place},
    "output_config": lambda place: {"output": "dataset", "output_config": {"path": place}},
    "log_dir": lambda place: {"log_dir": place},
}


@pytest.mark.parametrize("name", PLACES)
def test_settings_of_a_checkpoint_name_no_place_outside(run, tmp_path, name, caplog):
    place, checkpoint = str(tmp_path / "elsewhere"), newest_checkpoint(run)
    settings = PLACES[name](place)
    with_settings(checkpoint, **settings)
    if name == "log_dir":  # a run without files goes on as well
        with Algorithm.from_checkpoint(checkpoint) as algorithm:
            algorithm.train()
            assert algorithm.config.log_dir is None and "give log_dir for its files" in caplog.text
    else:
        with pytest.raises(CheckpointError, match=rf"has {name}=.*give {name} again, or use load_user_code"):
            Algorithm.from_checkpoint(checkpoint)
    assert not Path(place).exists()
    section = {"reporting" if name == "log_dir" else "offline_data": settings}
    caplog.clear()
    for given in ({"load_user_code": True}, {"overrides": settings}, {"overrides": section}):
        with Algorithm.from_checkpoint(checkpoint, **given) as algorithm:
            assert algorithm.config[name] == settings[name] and "give log_dir" not in caplog.text


def test_a_replay_of_a_checkpoint_lies_on_no_disk_that_it_names(tmp_path):
    (tmp_path / "disk").mkdir()
    replay = {"storage": str(tmp_path / "disk")}
    config = DQNConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(replay_buffer_config=replay, model={"fcnet_hiddens": [4]}, hiddens=[])
    with config.build() as algorithm:
        checkpoint = algorithm.save(tmp_path / "run" / "checkpoint")
    for other in ({}, {"buffer_size": 100}, {"replay_buffer_config": {"capacity": 100}}):
        with pytest.raises(CheckpointError, match=r"has replay_buffer_config=.* again"):
            Algorithm.from_checkpoint(checkpoint, other)
    size, given = {"buffer_size": 100}, {"replay_buffer_config": replay}
    for both in ({**size, **given}, {**given, **size}, {**given, "training": size}, {"training": given, **size}, given):
        with Algorithm.from_checkpoint(checkpoint, both) as algorithm:
            settings = algorithm.config.replay_buffer_config
            assert settings["storage"] == replay["storage"] and (settings["capacity"] == 100) == (both is not given)


@pytest.mark.parametrize("place", ["elsewhere", "run"])
def test_resume_writes_where_it_was_told(run, tmp_path, rllib_command, place):
    """log_dir of a checkpoint has no part in it; an output needs to be typed."""
    with_settings(newest_checkpoint(run), log_dir=str(tmp_path / place))
    result = rllib_command("train", "--resume", str(run), "--stop", "iterations=2", "-q")
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "elsewhere").exists()
    with_settings(newest_checkpoint(run), output=str(tmp_path / "steps"))
    refused = rllib_command("train", "--resume", str(run), "--stop", "iterations=3", "-q")
    assert refused.exit_code == 2 and "give output again" in refused.output and not (tmp_path / "steps").exists()
    typed = rllib_command("train", "--resume", str(run), f"output={tmp_path / 'steps'}", "--stop", "iterations=3", "-q")
    assert typed.exit_code == 0 and any((tmp_path / "steps").iterdir()), typed.output


NOTED = {
    "output": ({}, lambda place: {"output": place}),
    "output in a section": ({}, lambda place: {"offline_data": {"output": place}}),
    "output_config": ({"output": "dataset"}, lambda place: {"output_config": {"path": place, "format": "json"}}),
    "output for its config": ({"output_config": {"path": "/theirs"}}, lambda place: {"output": "dataset"}),
    "wandb": ({}, lambda place: {"wandb": {"dir": place}}),
    "listen": ({}, lambda place: {"listen": "0.0.0.0:0"}),
    "teacher": ({}, lambda place: {"teacher": "s3://theirs/run"}),
}


@pytest.mark.parametrize("what", NOTED)
def test_settings_that_a_run_notes_name_no_place_outside(run, tmp_path, monkeypatch, rllib_command, what):
    """Those of the last time, in run.json, are in no checkpoint: a command takes them from there."""
    monkeypatch.setattr("rllib.algorithms.base.reporting.check_package", lambda name: None)
    of_checkpoint, of_place = NOTED[what]
    noted, checkpoint = of_place(str(tmp_path / "elsewhere")), newest_checkpoint(run)
    with_settings(checkpoint, **of_checkpoint)
    spec = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(spec | {"resumed": {"checkpoint": checkpoint.name, "config": noted}}))
    name = "output_config" if what == "output for its config" else what.split()[0]
    resume = ("train", "--resume", str(run), "--stop", "iterations=2", "-q")
    for typed in ((), ("lr=0.5",)):
        refused = rllib_command(*resume, *typed)
        assert refused.exit_code == 2 and f"has {name}=" in refused.output, refused.output
        assert f"give {name} again" in refused.output and not (tmp_path / "elsewhere").exists()
    if name == "output":
        again = rllib_command(*resume, f"output={tmp_path / 'elsewhere'}")
        assert again.exit_code == 0 and any((tmp_path / "elsewhere").iterdir()), again.output


def test_a_run_goes_on_in_its_own_directory(tmp_path):
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    config.training(train_batch_size=20, sgd_minibatch_size=20, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    config.reporting(log_dir=str(tmp_path / "run")).offline_data(output="logdir")
    with config.build() as algorithm:
        algorithm.train()
        checkpoint = algorithm.save()
    with Algorithm.from_checkpoint(checkpoint) as algorithm:
        algorithm.train()
    assert any((tmp_path / "run" / "output").iterdir())


@pytest.mark.parametrize("is_added", [False, True])
def test_policies_of_a_checkpoint_name_no_place_outside(tmp_path, is_added):
    """In their own settings, under any name."""
    (tmp_path / "disk").mkdir()
    own = {"training": {"replay_buffer_config": {"storage": str(tmp_path / "disk")}}}
    config = DQNConfig().environment(BasicMultiAgent).rollouts(num_rollout_workers=0)
    config.training(model={"fcnet_hiddens": [4]}, hiddens=[])
    policies = {"a": None if is_added else PolicySpec(config=own)}
    config.multi_agent(policies=policies, policy_mapping_fn="a")
    with config.build() as algorithm:
        if is_added:
            algorithm.add_policy("b", config=own, policies_to_train=["a", "b"])
        checkpoint = algorithm.save(tmp_path / "run" / "checkpoint")
    with pytest.raises(CheckpointError, match=r"has replay_buffer_config=.*disk.* again"):
        Algorithm.from_checkpoint(checkpoint)
    owner = "b" if is_added else "a"
    for given in (own, {"policies": {"a": None, owner: (None, None, None, own)}}, {OVERRIDES: {"a": own}}):
        with Algorithm.from_checkpoint(checkpoint, given) as algorithm:
            assert algorithm.config_of(owner).replay_buffer_config["storage"] == str(tmp_path / "disk")


def small() -> PPOConfig:
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0)
    return config.training(train_batch_size=20, sgd_minibatch_size=20, num_sgd_iter=1, model={"fcnet_hiddens": [4]})


ADDRESSES = {
    "wandb": ({"wandb": {"project": "theirs", "tags": ["a"]}}, {"wandb": {"dir": "/theirs"}}),
    "mlflow": ({"mlflow": {"tracking_uri": "https://theirs.example"}},),
    "trackio": ({"trackio": {"space_id": "theirs/space"}}, {"trackio": {}}),
    "comet": ({"comet": {"workspace": "theirs"}},),
    "clearml": ({"clearml": {"project_name": "theirs"}},),
    "listen": ({"listen": "0.0.0.0:0"}, {"listen": "tcp://[::]:0"}, {"listen": "theirs.example:9900"}),
    "teacher": ({"teacher": "s3://theirs/run"}, {"teacher": {"a": "hf://theirs/run"}}),
}


@pytest.mark.parametrize("name, number", [(name, i) for name, forms in ADDRESSES.items() for i in range(len(forms))])
def test_settings_of_a_checkpoint_name_no_address(run, monkeypatch, name, number):
    monkeypatch.setattr("rllib.algorithms.base.reporting.check_package", lambda name: None)
    monkeypatch.setenv("RLLIB_TOKEN", "token")
    checkpoint, settings = newest_checkpoint(run), ADDRESSES[name][number]
    with_settings(checkpoint, **settings, **({"env": None} if name == "listen" else {}))
    for other in ({}, {"lr": 0.5}, {"log_dir": None}):
        with pytest.raises(CheckpointError, match=rf"has {name}=.*give {name} again, or use load_user_code"):
            Algorithm.from_checkpoint(checkpoint, other)
    if name == "teacher" or "theirs" in str(settings.get("listen")):  # there is nothing at these addresses
        return
    section = {"external" if name == "listen" else "reporting": settings}
    for given in (settings, section, {name: None}) if name != "listen" else ():
        with Algorithm.from_checkpoint(checkpoint, given) as algorithm:
            assert algorithm.config[name] == (None if given == {name: None} else settings[name])
    if settings == {"listen": "0.0.0.0:0"}:
        with_settings(checkpoint, env="CartPole-v1", listen=None)
        with Algorithm.from_checkpoint(checkpoint, settings) as algorithm:
            assert algorithm.config.listen == settings["listen"]


@pytest.mark.parametrize("options", [False, True, "theirs", [["project", "theirs"]]])
def test_a_tracker_has_a_dict_of_options(run, options):
    """Anything else is no tracker, but a wrong setting."""
    with_settings(newest_checkpoint(run), wandb=options)
    with pytest.raises(ValueError, match=r"wandb=.* must be a dict or None"):
        Algorithm.from_checkpoint(run)


@pytest.mark.parametrize("name", ["listen", "input_", "teacher"])
def test_ports_and_data_of_this_machine_are_no_addresses(run, name):
    """What is read from a path is data."""
    checkpoint = newest_checkpoint(run)
    policy = json.loads((checkpoint / "policies" / "default_policy" / "policy.json").read_text())
    spaces = {key: policy[key] for key in ("observation_space", "action_space")}
    forms = {
        "listen": {"env": None, "listen": "localhost:0", **spaces},
        "teacher": {"teacher": str(shutil.copytree(checkpoint, run.parent / "other")), "teacher_coeff": 1.0},
        "input_": {"evaluation_config": {"input_": str(run.parent)}},
    }
    with_settings(checkpoint, **forms[name])
    Algorithm.from_checkpoint(checkpoint).stop()


class Launcher(CountingEnv):
    """Replaces an environment that starts a program."""

    starts_programs = ("program", "arguments")

    def __init__(self, program=None, arguments=()):
        super().__init__()

    def close(self):
        pass


ENV_CONFIG = {"program": "/theirs"}
PROGRAMS = {
    "env_config": lambda: small().environment(Launcher, env_config=ENV_CONFIG),
    "its arguments": lambda: small().environment(Launcher, env_config={"arguments": ["/theirs"]}),
    "a registered name": lambda: small().environment("launcher", env_config=ENV_CONFIG),
    "evaluation_config": lambda: (
        small().environment(Launcher).evaluation(evaluation_interval=1, evaluation_config={"env_config": ENV_CONFIG})
    ),
}


@pytest.mark.usefixtures("own_checkpoints")
@pytest.mark.parametrize("form", PROGRAMS)
def test_a_checkpoint_starts_no_program(tmp_path, monkeypatch, form):
    monkeypatch.setattr(ENVIRONMENTS, "_values", {})
    rllib.register_env("launcher", Launcher)
    with PROGRAMS[form]().build() as algorithm:
        checkpoint = algorithm.save(tmp_path / "run" / "checkpoint")
    Algorithm.from_checkpoint(checkpoint).stop()
    monkeypatch.setattr(signatures, "_key", bytes(32))
    name = form if form == "evaluation_config" else "env_config"
    again = {"env_config": ENV_CONFIG} if form != "its arguments" else {"env_config": {"arguments": ["/theirs"]}}
    again = {name: again} if name == "evaluation_config" else again
    for other in ({}, {"env": Launcher}):
        with pytest.raises(CheckpointError, match=rf"has {name}=.*/theirs.* a program is started .*give {name} again"):
            Algorithm.from_checkpoint(checkpoint, other)
    for given in (again, {"env": Launcher, **again}, {"env": CountingEnv, "env_config": {}, "evaluation_config": {}}):
        Algorithm.from_checkpoint(checkpoint, given).stop()


def test_a_checkpoint_records_no_video_where_it_says(tmp_path):
    """The class of a wrapper that files may not name is code."""
    with small().environment(env_wrappers=gymnasium.wrappers.NormalizeObservation).build() as algorithm:
        checkpoint = algorithm.save(tmp_path / "run" / "checkpoint")
    wrapper = json.loads((checkpoint / "config.json").read_text())["env_wrappers"]
    text = json.dumps(wrapper).replace("NormalizeObservation", "RecordVideo")
    with_settings(checkpoint, env_wrappers=json.loads(text.replace("stateful_observation", "rendering")))
    with pytest.raises(CheckpointError, match=r"holds code of yours.*env_wrappers \(gymnasium.wrappers.*RecordVideo\)"):
        Algorithm.from_checkpoint(checkpoint)


WRITTEN = {
    "output": lambda run, other: (run / "output").symlink_to(other),
    "videos": lambda run, other: (run / "videos").symlink_to(other),
    "result.json": lambda run, other: (run / "result.json").unlink() or (run / "result.json").symlink_to(other / "1"),
    "a directory": lambda run, other: (run / "steps").mkdir() or (run / "steps" / "1.json").symlink_to(other / "1"),
}


@pytest.mark.parametrize("log_dir", ["kept", "given"])
@pytest.mark.parametrize("what", WRITTEN)
def test_a_run_in_python_follows_no_links(run, tmp_path, what, log_dir):
    """Neither does `output="logdir"`."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "1").touch()
    WRITTEN[what](run, tmp_path / "other")
    own = {"log_dir": str(run)}
    with_settings(newest_checkpoint(run), output="logdir", **own)
    with pytest.raises(DamagedFileError, match="is a link that leads out of"):
        Algorithm.from_checkpoint(run, own if log_dir == "given" else {})
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["1"]
    assert not (tmp_path / "other" / "1").read_bytes()


@pytest.mark.parametrize("file", [None, "result.json", "params.json", "run.json"])
def test_a_checkpoint_that_lies_alone_writes_to_no_directory_around_it(tmp_path, run, file):
    """As one in a home directory: only the directory of a run is its own."""
    home = tmp_path / "home"
    checkpoint = Path(shutil.copytree(newest_checkpoint(run), home / "checkpoint_000001"))
    with_settings(checkpoint, output=str(home / ".profile"))
    if file is not None:
        (home / file).touch()
        Algorithm.from_checkpoint(checkpoint).stop()
        return
    for place in (home, checkpoint):
        with pytest.raises(CheckpointError, match=r"outside of .*checkpoint_000001.* give output again"):
            Algorithm.from_checkpoint(place)
    assert [path.name for path in home.iterdir()] == ["checkpoint_000001"]
    with_settings(checkpoint, output=None, log_dir=str(home))
    with Algorithm.from_checkpoint(checkpoint) as algorithm:
        assert algorithm.config.log_dir is None
