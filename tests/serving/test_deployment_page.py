"""docs/deploy/deployment.md: its requests are answered as it says (a server that learns: test_learning_server.py)."""

import json
import re
import subprocess

from serving_support import CARTPOLE, ROOT, Server


def test_the_requests_are_answered():
    page = (ROOT / "docs" / "deploy" / "deployment.md").read_text()
    lines, _ = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    server = Server(CARTPOLE, "--watch")
    try:
        answers = []
        for line in lines.replace("127.0.0.1:8000", server.address).splitlines():
            if line.startswith("# "):  # the answer that the page shows
                assert json.loads(answers[-1]).keys() == json.loads(line[2:]).keys()
                continue
            line = line.replace("curl", "curl --silent --show-error --fail-with-body", 1)
            found = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
            assert found.returncode == 0, line + "\n" + found.stdout + found.stderr
            answers.append(found.stdout)
        assert len(answers) == 6
        assert json.loads(answers[0])["action"] in (0, 1) and len(json.loads(answers[1])["actions"]) == 2
        assert json.loads(answers[2])["observation_space"] and "rllib_" in answers[4]
    finally:
        server.kill()
