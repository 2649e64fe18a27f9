"""Runs with several agents from the command line and from YAML files."""

import json

import pytest

SPEAKER = "pettingzoo:mpe2.simple_speaker_listener_v4"
QUICK = ("train_batch_size=50", "sgd_minibatch_size=50", "num_sgd_iter=1", "num_rollout_workers=0",
         "model.fcnet_hiddens=[4]", "--name", "run", "--stop", "iterations=1")  # fmt: skip


def last_result(tmp_path) -> dict:
    return json.loads((tmp_path / "results" / "run" / "result.json").read_text().splitlines()[-1])


@pytest.mark.parametrize(
    ("flags", "rewarded"),
    [(("--policies", "own"), {"speaker_0", "listener_0"}),
     (("--policies", "p0,p1", "--map", "speaker_*=p0", "--map", "*=p1"), {"p0", "p1"})],
    ids=["own", "map"],
)  # fmt: skip
def test_flags_of_policies(rllib_command, tmp_path, flags, rewarded):
    result = rllib_command("train", "PPO", SPEAKER, "--defaults", *flags, *QUICK)
    assert result.exit_code == 0, result.output
    found = last_result(tmp_path)
    assert found["policy_reward_mean"].keys() == rewarded == found["info"]["learner"].keys()
    assert found["num_agent_steps_sampled"] == 2 * found["timesteps_total"] == 100
    assert "policy_reward_mean/" in (tmp_path / "results" / "run" / "progress.csv").read_text()


def test_settings_of_a_policy_are_merged_into_the_ids(rllib_command, tmp_path):
    flags = ("--policies", "p0,p1", "--map", "speaker_*=p0", "--map", "*=p1", "policies.p0.lr=0.001")
    result = rllib_command("train", "PPO", SPEAKER, "--defaults", *flags, *QUICK)
    assert result.exit_code == 0, result.output
    learners = last_result(tmp_path)["info"]["learner"]
    assert {key: each["learner_stats"]["cur_lr"] for key, each in learners.items()} == {"p0": 0.001, "p1": 5e-5}


@pytest.mark.parametrize("section", ["multi_agent", "multiagent"])
def test_a_section_of_a_file(rllib_command, tmp_path, section):
    (tmp_path / "run.yaml").write_text(
        f"algorithm: PPO\nenv: {SPEAKER}\nconfig:\n  {section}:\n    policies: {{talks: {{lr: 0.001}}, hears: null}}\n"
        '    policy_mapping_fn: {speaker_0: talks, "listener_*": hears}\n    policies_to_train: [talks]\n'
    )
    result = rllib_command("train", "-f", "run.yaml", *QUICK)
    assert result.exit_code == 0, result.output
    learners = last_result(tmp_path)["info"]["learner"]
    assert learners.keys() == {"talks"} and learners["talks"]["learner_stats"]["cur_lr"] == 0.001


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--map", "speaker_0"), "--map speaker_0 must be AGENTS=ID"),
     (("--policies", "own", "policies=shared"), "policies is given both as a setting and as a flag"),
     (("--policies", "p0,p1", "policies.p2.lr=0.1"), "policies is given both as a setting and as a flag"),
     (("--policies", "shared"), "mapped to agents with different observation spaces"),
     (("--policies", "p0", "--map", "*=p1"), "names the policy 'p1', but there are p0")],
)  # fmt: skip
def test_mistakes_are_one_message(rllib_command, arguments, message):
    result = rllib_command("train", "PPO", SPEAKER, *arguments, *QUICK)
    assert result.exit_code and message in result.output.replace("\n", " "), result.output
