"""A student's way: check an environment of one's own, train on it, and see it as a curve and as a video."""

import json

from story import files_of

SMALL = "lr=1e-3 train_batch_size=1000 sgd_minibatch_size=250 num_sgd_iter=8 num_rollout_workers=0"


def test_from_an_environment_of_ones_own_to_its_curve_and_video(shell, tmp_path):
    for name, content in files_of("student.md").items():
        (tmp_path / name).write_text(content)
    assert "0 errors" in shell("check-env lake:Lake length=8 --steps 300")
    shell(f"train PPO lake:Lake env_config.length=8 --name lake {SMALL} --stop steps=4000 --seed 1 -q")
    shell("train --resume results/lake --stop steps=7000 -q --load-user-code")
    returns = [json.loads(line)["episode_reward_mean"] for line in (tmp_path / "results/lake/result.json").open()]
    assert len(returns) == 7 and returns[-1] > returns[0]
    shell("evaluate results/lake --load-user-code --episodes 5")
    shell("plot results/lake -o lake.html")
    assert "lake" in (tmp_path / "lake.html").read_text()
    shell("record results/lake -o lake.mp4 --load-user-code")
    assert (tmp_path / "lake.mp4").stat().st_size > 500
