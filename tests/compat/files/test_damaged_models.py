"""Models of other libraries with changes at random: they are read, or refused with a ValueError, and run no code."""

import contextlib
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rllib import import_ray, import_sb3
from rllib.compat.files.ray_checkpoints.files import read_ray_checkpoint
from rllib.compat.files.ray_checkpoints.filters import filter_of
from rllib.compat.files.ray_checkpoints.networks import network_of as network_of_ray
from rllib.compat.files.sb3.archive import read_model
from rllib.compat.files.sb3.networks import network_of
from rllib.compat.files.sb3.settings import algorithm_of, settings_of
from rllib.compat.files.sb3.spaces import space_of
from rllib.compat.files.sb3.vec_normalize import Normalization
from rllib.storage.checkpoint import naming_damage
from rllib.storage.foreign_files import json_object
from tests.compat.files.sb3_models import DATA, box, changed, discrete, saved
from tests.test_damaged_files import changed_bytes, changed_json

SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None}
RAY = DATA.with_name("ray")


class Owned:
    """Leaves a file where it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("owned",)


def entries_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(path: Path, entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def read_all(path: Path) -> None:
    """All readers of a model of Stable-Baselines3, without building an algorithm."""
    found = read_model(path)
    algorithm = algorithm_of(found)
    network_of(algorithm, found, "Box")
    settings_of(algorithm, found)
    for name in ("observation_space", "action_space"):
        space_of(found.data[name] if isinstance(found.data.get(name), dict) else {}, name)


ENTRIES = {name: entries_of(DATA / f"{name}.zip") for name in ("ppo_cartpole", "sac_pendulum")}


@settings(max_examples=60, **SETTINGS)
@given(name=st.sampled_from(sorted(ENTRIES)), data=st.data())
def test_damaged_zips_are_read_or_refused(name, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "model.zip"
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(changed_bytes((DATA / f"{name}.zip").read_bytes())))
    else:
        entries = dict(ENTRIES[name])
        chosen = data.draw(st.sampled_from(sorted(entries)))
        if chosen == "data" and data.draw(st.integers(0, 3)):
            entries["data"] = json.dumps(data.draw(changed_json(json_object(entries["data"])))).encode()
        else:
            entries[chosen] = data.draw(changed_bytes(entries[chosen]))
        written(path, entries)
    try:
        with naming_damage(path):
            read_all(path)
    except ValueError as error:
        assert str(error)


@settings(max_examples=60, **SETTINGS)
@given(data=st.data())
def test_damaged_statistics_are_read_or_refused(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "vec.pkl"
    path.write_bytes(data.draw(changed_bytes((DATA / "vecnormalize.pkl").read_bytes())))
    try:
        found = Normalization(path)
        found.observation_state(Box(-1, 1, (3,)))
        found.return_state()
    except ValueError as error:
        assert str(error)


def with_entry(path: Path, **entries: bytes) -> Path:
    named = {name.replace("_pth", ".pth"): content for name, content in entries.items()}
    return written(path, {**ENTRIES["ppo_cartpole"], **named})


def bomb() -> bytes:
    """A file of torch whose one tensor is compressed."""
    file = io.BytesIO()
    source = zipfile.ZipFile(io.BytesIO(saved({"x": torch.zeros(400_000)})))
    with source, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return file.getvalue()


# Hashing the key would exhaust the stack in C, and end the process.
DEEP = b"\x80\x02})" + b"\x85" * 100_000 + b"K\x01s."


def with_pickle(content: bytes, name: str = "archive/data.pkl") -> bytes:
    """A file of torch with an entry of this content instead of its pickle, or beside it."""
    file = io.BytesIO()
    source = zipfile.ZipFile(io.BytesIO(saved({"x": torch.zeros(3)})))
    with source, zipfile.ZipFile(file, "w") as target:
        for each in source.namelist():
            if each != name:
                target.writestr(each, source.read(each))
        target.writestr(name, content)
    return file.getvalue()


def test_damaged_zips_that_are_hostile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "model.zip"
    cases = {
        "no model of Stable-Baselines3, or damaged: .*zip": lambda: model.write_bytes(b"PK\x03\x04 no zip"),
        "no entry 'policy.pth'": lambda: written(model, {"data": b"{}"}),
        "no entry 'data'": lambda: written(model, {"../data": b"{}", "policy.pth": b""}),
        "it is not JSON": lambda: with_entry(model, data=b"{"),
        "nested too deeply": lambda: with_entry(model, data=b"[" * 100_000),
        "holds no JSON object": lambda: with_entry(model, data=b"[]"),
        "holds other things than tensors": lambda: with_entry(model, policy_pth=saved({"x": Owned()})),
        "no file that torch.save writes": lambda: with_entry(model, policy_pth=pickle.dumps({"x": Owned()})),
        "compressed, and torch.save compresses nothing": lambda: with_entry(model, policy_pth=bomb()),
        "nests tuples more than 100 deep": lambda: with_entry(model, policy_pth=with_pickle(DEEP)),
        "nests tuples more than 100 deep ?": lambda: with_entry(model, policy_pth=b"front" + with_pickle(DEEP)),
        "two entries of one name": lambda: with_entry(model, policy_pth=with_pickle(DEEP, "archive/DATA.PKL")),
        "holds list instead of tensors": lambda: with_entry(model, policy_pth=saved([1])),
        "no plain tensor": lambda: with_entry(model, policy_pth=saved({"x": torch.eye(2).to_sparse()})),
        "larger than their file": lambda: with_entry(model, policy_pth=saved({"x": torch.zeros(1).expand(10**12)})),
        "'4' and the tensors before it are larger than their file": lambda: with_entry(
            model, policy_pth=saved(dict(zip(map(str, range(20)), [torch.zeros(100_000)] * 20)))
        ),
        "grows to more than": lambda: written(
            model, {**ENTRIES["ppo_cartpole"], "data": b" " * 20_000_000}, zipfile.ZIP_DEFLATED
        ),
    }
    for message, write in cases.items():
        write()
        with pytest.raises(ValueError, match=message):
            import_sb3(model, tmp_path / "made", env="CartPole-v1")
        assert {each.name for each in tmp_path.iterdir()} == {"model.zip"}, message


def test_damaged_zips_that_are_no_files(tmp_path):
    with pytest.raises(ValueError, match="is a directory"):
        import_sb3(tmp_path, tmp_path / "made", env="CartPole-v1")
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "none.zip")):
        import_sb3(tmp_path / "none.zip", tmp_path / "made", env="CartPole-v1")
    os.mkfifo(tmp_path / "waits.zip")
    with pytest.raises(ValueError, match="no regular file"):
        import_sb3(tmp_path / "waits.zip", tmp_path / "made", env="CartPole-v1")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (box((2**40,), 0, 1), "cannot be read without running code"),
        (box((-1,), 0, 1), "cannot be read without running code"),
        ({**box((2,), 0, 1), "dtype": "O"}, "cannot be read without running code"),
        ({**discrete(2), "n": "many"}, "cannot be read without running code"),
        ({":type:": "<class 'os.Owned'>"}, "cannot be read without running code"),
        (box((2**23,), 0, 1), "observation_space has 8,388,608 numbers, and its networks"),
        (discrete(10**15), "observation_space has 1,000,000,000,000,000 numbers, and its networks"),
    ],
)
def test_damaged_spaces_are_refused(space, message, tmp_path):
    model = changed(DATA / "ppo_cartpole.zip", tmp_path / "model.zip", observation_space=space)
    with pytest.raises(ValueError, match=message):
        import_sb3(model, tmp_path / "made")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Owned()), "asks for .*mkdir, which is no part of an array. Nothing of it was run"),
        (pickle.dumps({"obs_rms": np.ones(3)}), "not what VecNormalize.save writes"),
        (b"", "cannot be read"),
    ],
)
def test_damaged_statistics_that_are_hostile(content, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vec.pkl").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        import_sb3(DATA / "ppo_cartpole.zip", tmp_path / "made", env="CartPole-v1", vecnormalize=tmp_path / "vec.pkl")
    assert {each.name for each in tmp_path.iterdir()} == {"vec.pkl"}


# ---------------------------------------------------------------------- checkpoints of Ray


def copied(source: Path, target: Path) -> Path:
    for file in source.rglob("*"):
        if file.is_file():
            place = target / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    return target


@settings(max_examples=60, **SETTINGS)
@given(name=st.sampled_from(["ppo_old", "ppo_new"]), data=st.data())
def test_damaged_checkpoints_of_ray_are_read_or_refused(name, data, tmp_path_factory):
    path = copied(RAY / name, tmp_path_factory.mktemp("damaged") / "checkpoint")
    file = data.draw(st.sampled_from(sorted(file for file in path.rglob("*") if file.is_file())))
    file.write_bytes(data.draw(changed_bytes(file.read_bytes())))
    try:
        with naming_damage(path):
            found = read_ray_checkpoint(path)
            network_of_ray("PPO", found)
            if found.filter is not None and (filtered := filter_of(found.filter, "it")) is not None:
                filtered.state(4)
    except ValueError as error:
        assert str(error)


def test_damaged_checkpoints_of_ray_may_hold_themselves(tmp_path):
    path = copied(RAY / "ppo_old", tmp_path / "old")
    (path / "algorithm_state.pkl").unlink()  # which has the filter, too
    file = path / "policies/default_policy/policy_state.pkl"
    itself: list = []
    itself += [itself, itself]
    weights = {"_logits._model.0.bias": np.zeros(2)}
    file.write_bytes(pickle.dumps({"weights": weights, "connector_configs": itself}))
    assert read_ray_checkpoint(path).filter is None

    path = copied(RAY / "ppo_new", tmp_path / "new")
    deep: dict = {}
    for _ in range(60):
        deep = {"a": deep, "b": deep}
    deep["c"] = {"num_env_steps_sampled_lifetime": {"lifetime_sum": 7}}
    (path / "algorithm_state.pkl").write_bytes(pickle.dumps({"metrics_logger": deep}))
    assert read_ray_checkpoint(path).timesteps == 7


@pytest.mark.parametrize("file", ["policies/default_policy/policy_state.pkl", "algorithm_state.pkl"])
def test_damaged_checkpoints_of_ray_run_nothing(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = copied(RAY / "ppo_old", tmp_path / "checkpoint")
    (path / file).write_bytes(pickle.dumps({"weights": {"x": Owned()}}))
    with contextlib.suppress(ValueError):  # settings that are lost have defaults
        import_ray(path, tmp_path / "made", env="CartPole-v1")
    assert {each.name for each in tmp_path.iterdir()} <= {"checkpoint", "made"}


def test_damaged_modules_of_ray_may_hold_arrays_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = copied(RAY / "ppo_new", tmp_path / "checkpoint")
    file = path / "learner_group/learner/rl_module/default_policy/module_state.pkl"
    file.write_bytes(pickle.dumps({"pi.net.mlp.0.weight": Owned()}))
    with pytest.raises(ValueError, match=r"asks for .*mkdir, which is no part of an array"):
        import_ray(path, tmp_path / "made", env="CartPole-v1")
    assert {each.name for each in tmp_path.iterdir()} == {"checkpoint"}
