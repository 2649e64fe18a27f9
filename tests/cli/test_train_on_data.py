"""`rllib train ALGO --input FILE` without an environment, and the commands on what it leaves."""

import json

import pytest

LOG = "episode,position,speed,action,reward,end\n" + "".join(
    f"{n // 5},{n % 5 / 5},{-n},{n % 2},{n % 3},{int(n % 5 == 4)}\n" for n in range(40)
)
QUICK = (
    "train_batch_size=8",
    "dataset_num_iters_per_learner=2",
    "model.fcnet_hiddens=[8]",
    "--stop",
    "iterations=1",
    "-q",
)
COLUMNS = ("--columns", "obs=position,speed")


@pytest.fixture
def log(rllib_command, tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    return "log.csv"


@pytest.mark.parametrize("algorithm", ["BC", "MARWIL", "IQL"])
def test_spaces_come_from_the_data(rllib_command, tmp_path, log, algorithm):
    result = rllib_command("train", algorithm, "--input", log, *COLUMNS, "--name", "run", *QUICK)
    assert result.exit_code == 0, result.output
    spec = json.loads((tmp_path / "results/run/run.json").read_text())
    assert spec["env"] is None and spec["config"]["input_read_schema"] == {"obs": ["position", "speed"]}
    resumed = rllib_command("train", "--resume", "results/run", "--stop", "iterations=2", "-q")
    assert resumed.exit_code == 0 and (tmp_path / "results/run/checkpoint_000002").exists(), resumed.output


@pytest.mark.parametrize("algorithm", ["CQL", "TD3BC"])
def test_spaces_may_be_given(rllib_command, log, algorithm):
    given = ("--observation-space", "Box(-inf, inf, (2,))", "--action-space", "Box(-2, 2, (1,))")
    result = rllib_command("train", algorithm, "--input", log, *COLUMNS, "--columns", "action=action,", *given, *QUICK)
    assert result.exit_code == 0, result.output
    named = rllib_command("train", algorithm, f"input_={log}", "input_read_schema.obs=[position,speed]",
                          "action_space=Box(-2, 2, (1,))", *QUICK)  # fmt: skip
    assert named.exit_code == 0, named.output


def test_a_run_without_a_name_is_of_data(rllib_command, tmp_path, log):
    assert rllib_command("train", "BC", "--input", log, *COLUMNS, *QUICK).exit_code == 0
    (run,) = (tmp_path / "results").iterdir()
    assert run.name.startswith("BC_data_")


def test_a_file_may_say_it_as_well(rllib_command, tmp_path, log):
    (tmp_path / "run.yaml").write_text(
        "algorithm: BC\nconfig: {input_: log.csv, input_read_schema: {obs: [position, speed]}, train_batch_size: 8,\n"
        "  dataset_num_iters_per_learner: 2, action_space: Discrete(3)}\nstop: {iterations: 1}\n"
    )
    result = rllib_command("train", "-f", "run.yaml", "-q")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--input", "log.csv"), "Nothing says what position, speed are. Say which column it is, or of which it "
         "consists, as in --columns obs=position,speed;"),
        (("--input", "log.csv", "--columns", "obs"), "--columns obs must be NAME=COLUMN,..."),
        (("--input", "log.csv", "--columns", "seen=position"), "a column is one of obs, new_obs, actions"),
        (("--input", "log.csv", *COLUMNS, *COLUMNS), "--columns says twice what obs is"),
        (("--input", "log.csv", *COLUMNS, "--action-space", "Discret(2)"), "action_space: 'Discret(2)' is no space"),
        (("--input", "log.csv", *COLUMNS, "--action-space", "Discrete(1)"), "not in Discrete(1)"),
        (("--input", "log.csv", *COLUMNS, "--action-space", "Discrete(2)", "action_space=null"), "both as a setting"),
        (("--input", "logs.csv",), "there is no 'logs.csv'"),
        (("--input", "log.csv", *COLUMNS, "rewards=reward"), "write --columns rewards=reward"),
        (("--input", "log.csv", "--columns", "obs=position,sped"), "--columns names the columns 'sped', but there are"),
        (("--input", "log.csv", "--columns", "obs=position,sped"), "Did you mean speed?"),
        (COLUMNS, "--columns says what the columns of recorded steps are; give their files by --input"),
        ((), "rllib train ALGO --input FILE on recorded steps"),
    ],
)  # fmt: skip
def test_mistakes_are_one_message(rllib_command, log, words, message):
    result = rllib_command("train", "BC", *words, *QUICK)
    assert result.exit_code == 2 and message in result.output, result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("TD3BC", "of the recorded data is not bounded on all sides. Say the bounds as the action_space (rllib train "
         "--action-space), such as Box(-1.0, 1.0, ())."),
        ("DQN", "needs a Discrete action space, but the recorded data has Box("),
    ],
)  # fmt: skip
def test_a_mistake_in_spaces_of_the_data_names_the_data(rllib_command, tmp_path, algorithm, message):
    lines = "".join(f"{n},1.5,1.0,{int(n % 5 == 4)}\n" for n in range(40))
    (tmp_path / "torques.csv").write_text("obs_0,action,reward,end\n" + lines)
    result = rllib_command("train", algorithm, "--input", "torques.csv", *QUICK)
    assert result.exit_code == 2 and message in result.output, result.output


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPole-v1", "the observation_space Box(-inf, inf, (3,), float32), but 'CartPole-v1' has Box("),
        ("Pendulum-v1", "the action_space Box(-inf, inf, (), float32), but 'Pendulum-v1' has Box(-2.0, 2.0, (1,)"),
    ],
)
def test_an_environment_with_other_spaces_than_the_data_is_refused(rllib_command, tmp_path, env, message):
    lines = "".join(f"{n},0,{n},1.5,{int(n % 5 == 4)}\n" for n in range(40))
    (tmp_path / "three.csv").write_text("obs_0,obs_1,obs_2,action,end\n" + lines)
    assert rllib_command("train", "BC", "--input", "three.csv", "--name", "run", *QUICK).exit_code == 0
    result = rllib_command("evaluate", "results/run", "--env", env, "--episodes", "1")
    assert result.exit_code == 2 and message in result.output, result.output


def test_there_is_no_environment_to_play_in_but_one_that_is_named(rllib_command, tmp_path, log):
    four = LOG.replace("position,speed", "obs_0,obs_1").replace("obs_1,action", "obs_1,action")
    four = "".join(line.replace(",", ",0,0,", 1) + "\n" for line in four.splitlines()[1:])
    (tmp_path / "four.csv").write_text("episode,obs_2,obs_3,obs_0,obs_1,action,reward,end\n" + four)
    assert rllib_command("train", "BC", "--input", "four.csv", "--name", "run", *QUICK).exit_code == 0
    for words in (("evaluate",), ("play",), ("record",), ("record", "--to", "steps.json")):
        result = rllib_command(*words[:1], "results/run", *words[1:])
        assert (
            result.exit_code == 2 and "since it has learned from recorded steps. Name one: --env ENV." in result.output
        )
    there = ("--env", "CartPole-v1", "--episodes", "1")
    assert rllib_command("evaluate", "results/run", *there).exit_code == 0
    assert rllib_command("record", "results/run", "--to", "steps.json", *there).exit_code == 0
    estimated = rllib_command("evaluate", "results/run", "--data", "four.csv", "--estimators", "dm")
    assert estimated.exit_code == 0, estimated.output


def test_a_dataset_command_takes_the_columns(rllib_command, tmp_path, log):
    assert "(2,)" in rllib_command("dataset", "info", log, *COLUMNS).output
    assert "no fault" in rllib_command("dataset", "validate", log, *COLUMNS).output
    result = rllib_command("dataset", "convert", log, "steps.npz", *COLUMNS)
    assert result.exit_code == 0 and "40 rows in 8 episodes" in result.output
    assert "--columns obs=position,speed" in rllib_command("dataset", "info", log).output
    for command in ("info", "validate"):
        result = rllib_command("dataset", command, log, *COLUMNS, "rewards=reward")
        assert result.exit_code == 2 and "write --columns rewards=reward" in result.output, result.output
        result = rllib_command("dataset", command, log, "--columns", "obs=position,sped")
        assert "--columns names the columns 'sped'" in result.output and "Did you mean speed?" in result.output


@pytest.mark.parametrize("algorithm", ["CQL", "TD3BC", "ReBRAC"])
def test_choices_are_for_algorithms_that_learn_from_data(rllib_command, log, algorithm):
    result = rllib_command("train", algorithm, "--input", log, *COLUMNS, *QUICK)
    assert result.exit_code == 2 and "Use IQL, AWAC, MARWIL, BC, or DQN with" in result.output, result.output
