"""RLlib's own tuned files: their settings are accepted. What they reach is measured by the benchmark, not here."""

import pytest
import ray_tuned_files

from rllib.algorithms.base.registry import get_algorithm_config


@pytest.mark.parametrize("name", sorted(ray_tuned_files.FILES))
def test_settings_are_accepted(name):
    file = ray_tuned_files.FILES[name]
    get_algorithm_config(file.run).environment(file.env).update_from_dict(file.config).validate()


@pytest.mark.parametrize(("reward", "verdict"), [(150.0, "pass"), (149.9, "**miss**"), (float("nan"), "**miss**: why")])
def test_the_verdict_is_by_the_bar_of_the_file(reward, verdict):
    error = "why" if reward != reward else None
    row = ray_tuned_files.row("pg/cartpole-pg", 3, ray_tuned_files.Outcome(reward, 30_661, 0.31, error))
    assert row.startswith("| `pg/cartpole-pg` | 3 | 150 | 100,000 | ")
    assert row.endswith(f"| 30,661 | 0.3 | {verdict} |")


def test_files_are_chosen_by_name_or_directory():
    assert ray_tuned_files.chosen(["pg", "appo/pendulum-appo"]) == ["pg/cartpole-pg", "appo/pendulum-appo"]
    assert ray_tuned_files.chosen([]) == list(ray_tuned_files.FILES)
    assert ray_tuned_files.chosen(["sac"]) == ["sac/cartpole-sac", "sac/pendulum-sac"]
    with pytest.raises(SystemExit, match="no such file: maddpg"):
        ray_tuned_files.chosen(["maddpg"])
