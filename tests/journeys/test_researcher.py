"""A researcher's way: a loss of one's own, several seeds, a comparison with intervals, and the figure."""

import re

from story import files_of


def test_from_a_loss_to_the_figure(shell, tmp_path):
    for name, content in files_of("researcher.md").items():
        (tmp_path / name).write_text(content)
    for name in ("plain", "calm"):  # as --seeds does, which has a process for each
        for seed in (0, 1):
            place = f"--results-dir results/{name} --name seed_{seed} --seed {seed}"
            shell(f"train -f {name}.py {place} --stop steps=800 -q")
    compared = shell("compare results/plain results/calm")
    rows = re.findall(r"^(\S+) +2 +[\d.]+ +[\d.]+ to [\d.]+ ", compared, re.MULTILINE)
    assert rows == ["custom_loss=None", "custom_loss=calm:calm"]
    shell("plot results/plain results/calm --kind curves --width 3.3 -o figure.pdf -o figure.svg")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    drawn = (tmp_path / "figure.svg").read_text()
    assert "plain" in drawn and "calm" in drawn
    assert "--load-user-code" in shell("evaluate results/calm/seed_0 --episodes 2", code=2)
    shell("evaluate results/calm/seed_0 --episodes 2 --load-user-code")


def test_code_that_cannot_be_typed_leads_to_a_file(shell):
    for setting in ("custom_loss", "callbacks_class", "model.custom_model"):
        assert "rllib train -f FILE.py" in shell(f"train A2C CartPole-v1 {setting}=calm:calm -q", code=2)
