"""What stands between `init(engine="ray")` and a cluster."""

import importlib.metadata
import time

import pytest
from ray_cluster import free_port, needs_ray

import runtime


def test_ray_is_not_installed(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(ImportError, match=r"ray>=2\.40, which is not installed: pip install 'ray>=2\.40'"):
        runtime.init("ray")


def test_ray_is_too_old(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.9.3")
    monkeypatch.setenv("RUNTIME_ENGINE", "ray")
    with pytest.raises(ImportError, match=r"ray>=2\.40, and 2\.9\.3 is installed"):
        runtime.init()
    assert not runtime.is_initialized()


@pytest.mark.parametrize("scheme", [pytest.param("", marks=needs_ray), pytest.param("ray://", marks=needs_ray)])
def test_nobody_answers_at_the_address(scheme):
    began = time.monotonic()
    with pytest.raises(ConnectionError, match="no Ray cluster answers at"):
        runtime.init("ray", address=f"{scheme}127.0.0.1:{free_port()}")
    assert time.monotonic() - began < 20 and not runtime.is_initialized()


@pytest.mark.parametrize("name", [pytest.param("num_cpus", marks=needs_ray), pytest.param("num_gpus", marks=needs_ray)])
def test_a_cluster_has_its_resources_already(monkeypatch, name):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    with pytest.raises(ValueError, match=f"{name}=1 belongs to the start of a cluster"):
        runtime.init("ray", **{name: 1})
