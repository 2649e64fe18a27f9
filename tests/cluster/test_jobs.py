"""A driver that comes by `ray job submit`, and the files of deploy/."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ray_cluster import free_port, needs_ray

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.timeout(300)
@pytest.mark.ray
@pytest.mark.skipif(importlib.util.find_spec("aiohttp_cors") is None, reason="needs pip install 'ray[default]'")
def test_a_driver_that_comes_as_a_job(cluster, tmp_path):
    port = free_port()
    cluster(2, dashboard=port)
    environment = {"env_vars": {"RUNTIME_ENGINE": "ray", "PYTHONPATH": str(DEPLOY.parent)}}
    training = [sys.executable, "-m", "rllib", "train", "PPO", "CartPole-v1", "num_rollout_workers=2"]
    done = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("ray")), "job", "submit", "--address", f"http://127.0.0.1:{port}"),
            *("--runtime-env-json", json.dumps(environment), "--", *training),
            *("train_batch_size=256", "--name", "job", "--stop", "iterations=3", "--results-dir", str(tmp_path)),
        ],
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "job" / "result.json").read_text().splitlines()]
    assert [row["timesteps_total"] for row in rows] == [256, 512, 768]


@pytest.mark.parametrize("mark", [pytest.param("", marks=needs_ray)])
def test_the_cluster_file_fits_its_schema(mark):
    import jsonschema  # comes with Ray
    import ray.autoscaler

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    jsonschema.validate(yaml.safe_load((DEPLOY / "ray_cluster.yaml").read_text()), schema)


def test_the_job_is_complete():
    job, claim = yaml.safe_load_all((DEPLOY / "ray_job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]["rayClusterSpec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        (volume,) = pod["volumes"]
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/results"}]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert container["image"] == spec["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    dockerfile = (DEPLOY / "ray.Dockerfile").read_text()
    assert f"rayproject/ray:{spec['rayVersion']}-" in dockerfile
    assert f"ray[default]=={spec['rayVersion']}" in (DEPLOY / "ray_cluster.yaml").read_text()
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"]) == {"env_vars": {"RUNTIME_ENGINE": "ray"}}
