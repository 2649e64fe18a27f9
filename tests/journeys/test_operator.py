"""An operator's way: serve a release, read its metrics, bring in a new version, and roll back."""

import json
import re
import urllib.error
import urllib.request

from story import free_port


def test_a_release_and_the_way_back(shell, beside, tmp_path):
    quick = "train_batch_size=64 sgd_minibatch_size=32 num_sgd_iter=1 num_rollout_workers=0 --checkpoint-freq 1 -q"
    shell(f"train PPO CartPole-v1 --name run --stop iterations=2 {quick}")
    for version in (1, 2):
        (tmp_path / f"results/run/checkpoint_00000{version}").rename(tmp_path / f"v{version}")
    current, address = tmp_path / "current", f"http://127.0.0.1:{free_port()}"

    def release(name):
        current.unlink(missing_ok=True)
        current.symlink_to(tmp_path / name)
        return ask("/reload", {})

    def ask(path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    current.symlink_to(tmp_path / "v1")
    server = beside(f"serve current --port {address.rpartition(':')[2]}")
    assert "http://" in server.stdout.readline()

    def version():
        status, text = ask("/act", {"observation": [0, 0.1, 0, -0.1]})
        assert status == 200
        return json.loads(text)["policy_version"]

    first = version()
    status, text = release("v2")
    assert status == 200 and json.loads(text)["checkpoint"].endswith("/v2") and version() > first
    status, text = release("nothing")
    assert status == 409 and "there is no checkpoint" in text and version() > first
    (tmp_path / "cut_off").mkdir()
    assert release("cut_off")[0] == 409 and version() > first
    assert release("v1")[0] == 200 and version() == first
    metrics = ask("/metrics")[1]
    assert 'code="200"' in metrics and re.search(r"^rllib_serve_reloads_total 2$", metrics, re.MULTILINE)
