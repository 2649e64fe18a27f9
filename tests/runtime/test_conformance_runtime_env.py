"""`runtime_env`, on every engine: variables and directories reach tasks and actors, and nothing else does."""

import os

import pytest
from runtime_support import AT_START, effect_at_start, read_at_start, skip_where_nothing_starts

import runtime


@runtime.remote
def variable(name):
    return os.environ.get(name)


@runtime.remote
def directory():
    return os.getcwd()


@runtime.remote
def nested(name, runtime_env):
    return runtime.get(variable.options(num_cpus=0, runtime_env=runtime_env).remote(name))


@runtime.remote
def local_module():
    import module_of_the_working_dir

    return module_of_the_working_dir.VALUE


@runtime.remote
class Actor:
    def variable(self, name):
        return os.environ.get(name)

    def directory(self):
        return os.getcwd()

    def nested(self, name):
        return runtime.get(variable.options(num_cpus=0).remote(name))


@runtime.remote
class Reader:
    def read(self):
        return read_at_start()


@pytest.fixture(autouse=True)
def nothing_changes_here(monkeypatch):
    monkeypatch.setenv("RUNTIME_TEST_OUTER", "outer")
    cwd = os.getcwd()
    yield
    assert "RUNTIME_TEST_Y" not in os.environ and os.getcwd() == cwd


def env(**variables):
    return {"env_vars": {f"RUNTIME_TEST_{name}": value for name, value in variables.items()}}


def test_variables_of_a_task(engine):
    assert runtime.get(variable.options(runtime_env=env(Y="é 1")).remote("RUNTIME_TEST_Y")) == "é 1"
    assert runtime.get(variable.remote("RUNTIME_TEST_Y")) is None
    changed = variable.options(runtime_env=env(Y="2"))
    assert runtime.get([changed.remote("RUNTIME_TEST_Y") for _ in range(5)]) == ["2"] * 5


def test_variables_of_an_actor(engine):
    actor = Actor.options(runtime_env=env(Y="1"), env_vars={"RUNTIME_TEST_Z": "2"}).remote()
    assert runtime.get(actor.variable.remote("RUNTIME_TEST_Y")) == "1"
    assert runtime.get(actor.variable.remote("RUNTIME_TEST_Z")) == "2"
    assert runtime.get(actor.nested.remote("RUNTIME_TEST_Y")) == "1"


def test_variables_that_are_read_at_start_have_effect(engine):
    skip_where_nothing_starts(engine)
    expected = effect_at_start()
    task = runtime.remote(read_at_start)
    actor = Reader.options(env_vars=AT_START).remote()
    assert runtime.get(task.options(runtime_env={"env_vars": AT_START}).remote()) == expected
    assert runtime.get(actor.read.remote()) == expected
    assert runtime.get(task.remote()) != expected


def test_what_is_called_inherits_and_adds(engine):
    outer = nested.options(runtime_env=env(Y="1"))
    assert runtime.get(outer.remote("RUNTIME_TEST_Y", {})) == "1"
    assert runtime.get(outer.remote("RUNTIME_TEST_Y", env(Z="2"))) == "1"
    assert runtime.get(outer.remote("RUNTIME_TEST_Y", env(Y="3"))) == "3"


def test_a_working_directory_that_has_been_removed(engine, tmp_path):
    # The variables must not stay behind on the engine local.
    options = {"working_dir": str(tmp_path / "removed"), "env_vars": {"OF_THE_REMOVED": "1"}}
    (tmp_path / "removed").mkdir()
    function, cls = directory.options(runtime_env=options, max_retries=0), Actor.options(runtime_env=options)
    (tmp_path / "removed").rmdir()
    for call in (lambda: function.remote(), lambda: cls.remote().directory.remote()):
        with pytest.raises(Exception, match="removed") as caught:
            runtime.get(call())
        assert "Traceback" not in str(caught.value)
    assert "OF_THE_REMOVED" not in os.environ


def test_the_working_directory(engine, tmp_path):
    (tmp_path / "module_of_the_working_dir.py").write_text("VALUE = 7")
    options = {"runtime_env": {"working_dir": str(tmp_path)}}
    assert runtime.get(directory.options(**options).remote()) == str(tmp_path)
    assert runtime.get(local_module.options(**options).remote()) == 7
    assert runtime.get(Actor.options(runtime_env={"working_dir": tmp_path}).remote().directory.remote()) == str(
        tmp_path
    )
    assert runtime.get(directory.remote()) == os.getcwd()


@pytest.mark.parametrize(
    "runtime_env, error, message",
    [
        ({"pip": ["x"]}, ValueError, "'pip'.* is not available; there are 'env_vars' and 'working_dir'.*before init"),
        ({"conda": "x", "env_vars": {}}, ValueError, "'conda'"),
        ({"env_vars": {"A": 1}}, TypeError, r"runtime_env\['env_vars'\] must be a dict of str -> str"),
        ({"env_vars": ["A"]}, TypeError, "dict of str"),
        ({"env_vars": {"": "x"}}, ValueError, "must not be empty"),
        ({"env_vars": {"a=b": "x"}}, ValueError, "'a=b'"),
        ({"env_vars": {"A": "x\0"}}, ValueError, "NUL"),
        ({"env_vars": {"A": "\ud800"}}, ValueError, "UTF-8"),
        ({"working_dir": "/no/such/directory"}, ValueError, "directory of this machine"),
        ({"working_dir": "s3://bucket/code.zip"}, ValueError, "not copied"),
        ({"working_dir": 3}, TypeError, "path of a directory"),
        ("env", TypeError, "must be a dict"),
    ],
)
def test_a_wrong_runtime_env_is_refused(engine, runtime_env, error, message):
    for remote in (variable, Actor):
        with pytest.raises(error, match=message):
            remote.options(runtime_env=runtime_env)


def test_an_empty_runtime_env_is_none(engine):
    for empty in (None, {}, {"env_vars": {}}, {"working_dir": None}):
        assert runtime.get(variable.options(runtime_env=empty).remote("RUNTIME_TEST_Y")) is None
