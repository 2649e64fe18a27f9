"""`rllib compare` over runs that are written here."""

import json

import pytest


def write(directory, rates, env="CartPole-v1", length=5, **params):
    """Runs whose return grows by their rate in each 100 steps."""
    for seed, rate in enumerate(rates):
        place = directory / f"{env}_{seed}"
        place.mkdir(parents=True)
        results = [{"timesteps_total": 100 * t, "episode_reward_mean": rate * t} for t in range(1, length + 1)]
        (place / "result.json").write_text("".join(f"{json.dumps(result)}\n" for result in results))
        (place / "params.json").write_text(json.dumps({"env": env, "seed": seed, **params}))


@pytest.fixture
def two(tmp_path):
    write(tmp_path / "one", [1, 2, 3, 4])
    write(tmp_path / "other", [3, 3, 3, 3], length=4)
    return tmp_path / "one", tmp_path / "other"


def test_methods_are_compared_at_the_last_steps_that_all_have_reached(rllib_command, two):
    result = rllib_command("compare", *two)
    assert result.exit_code == 0, result.output
    first = rllib_command("compare", *reversed(two)).output.splitlines()[0]
    assert first == result.output.splitlines()[0], "whichever comes first"
    head, one, other = result.output.splitlines()
    assert head == "episode return at 400 environment steps, on 1 environment; [95 % interval]"
    assert one.startswith("one    iqm 10 [") and one.endswith("of 4 runs")  # between 8 and 12
    assert other == "other  iqm 12 [12, 12]  of 4 runs"


def test_directories_of_one_name_are_named_by_what_differs(rllib_command, tmp_path):
    for place in ("ppo", "dqn"):
        write(tmp_path / place / "all", [1, 2])
    result = rllib_command("compare", tmp_path / "ppo" / "all", tmp_path / "dqn" / "all")
    assert [line.split()[0] for line in result.output.splitlines()[1:]] == ["ppo/all", "dqn/all"]


def test_the_score_lies_on_the_line_between_results(rllib_command, two):
    found = json.loads(rllib_command("compare", *two, "--at", 250, "--measure", "mean", "--json").output)
    assert found["timesteps_total"] == 250
    assert found["methods"]["one"]["value"] == pytest.approx(2.5 * 2.5)


def test_improvement_is_said_of_each_pair(rllib_command, two):
    found = json.loads(rllib_command("compare", *two, "--measure", "improvement", "--json").output)["pairs"]
    assert [(pair["better"], pair["than"], pair["value"]) for pair in found] == [
        ("one", "other", (1 + 0.5) / 4),
        ("other", "one", (2 + 0.5) / 4),
    ]
    assert "P(one > other)  0.375 [" in rllib_command("compare", *two, "--measure", "improvement").output


def test_a_profile_has_the_share_above_each_score(rllib_command, two):
    found = json.loads(rllib_command("compare", *two, "--measure", "profile", "--json").output)
    assert (found["thresholds"][0], found["thresholds"][-1]) == (4, 16)
    assert found["methods"]["one"]["value"][0] == 0.75 and found["methods"]["other"]["value"][0] == 1
    assert "one, share of 4 runs above\n" in rllib_command("compare", *two, "--measure", "profile").output


def test_less_is_better_of_a_cost(rllib_command, two):
    of_cost = (*two, "--mode", "min", "--measure")
    found = json.loads(rllib_command("compare", *of_cost, "improvement", "--json").output)
    assert found["mode"] == "min"
    assert [(pair["better"], pair["value"]) for pair in found["pairs"]] == [("one", 2.5 / 4), ("other", 1.5 / 4)]
    head, first, _ = rllib_command("compare", *of_cost, "improvement").output.splitlines()
    assert head.startswith("episode return (less is better) at 400") and first.startswith("P(one < other)  0.625 [")
    # Of the scores 4, 8, 12 and 16 none is below 4, and three are below 16.
    found = json.loads(rllib_command("compare", *of_cost, "profile", "--json").output)
    assert found["methods"]["one"]["value"][0] == 0 and found["methods"]["one"]["value"][-1] == 0.75
    assert found["thresholds"][0] == 4
    assert "one, share of 4 runs below\n" in rllib_command("compare", *of_cost, "profile").output
    assert "one    iqm 10 [" in rllib_command("compare", *of_cost, "iqm").output


def test_several_environments_are_put_on_one_scale(rllib_command, two):
    for directory in two:
        write(directory, [-900, -800], env="Pendulum-v1")
    refused = rllib_command("compare", *two)
    assert refused.exit_code == 2
    assert "returns of CartPole-v1 and Pendulum-v1 are on different scales" in refused.stderr
    partly = rllib_command("compare", *two, "--scale", "CartPole-v1=0:20")
    assert partly.exit_code == 2 and "--scale is missing for Pendulum-v1" in partly.stderr
    scales = ("--scale", "CartPole-v1=0:20", "--scale", "Pendulum-v1=-4000:0")
    found = json.loads(rllib_command("compare", *two, *scales, "--measure", "mean", "--json").output)
    assert found["methods"]["other"]["value"] == pytest.approx((0.6 + (1 - 3400 / 4000)) / 2)
    assert rllib_command("compare", *two, "--measure", "improvement").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one", "--measure", "improvement"], "--measure improvement compares two DIR or more"),
        (["one", "elsewhere/../one"], "one is given twice"),
        (["one/CartPole-v1_0", "one"], "one/CartPole-v1_0 lies in one, whose runs would count for both"),
        (["one", "nowhere"], "There is no directory nowhere"),
        (["one", "empty"], "There is no result.json in empty or below it"),
        (["one", "searched"], "searched holds runs on CartPole-v1 that differ in lr"),
        (["one", "nameless"], "nameless holds runs that differ in lr"),
        (["one", "elsewhere"], "one has CartPole-v1 and elsewhere has Pendulum-v1"),
        (["one", "--at", "501"], "ends at timesteps_total=500, before 501"),
        (["one", "--at", "99"], "has its first episode_reward_mean at timesteps_total=100, after 99"),
        (["one", "--metric", "episode_reward_maen"], "episode_reward_mean"),
        (["one", "--scale", "CartPole-v1=0"], "--scale CartPole-v1=0 must be ENV=LOW:HIGH"),
        (["one", "--scale", "CartPole-v1=5:5"], "must rise from score 0 to 1, but got 5 and 5"),
        (["one", "--scale", "CartPole-v0=0:5"], "there is a scale of CartPole-v0, but the runs are on CartPole-v1"),
    ],
)
def test_bad_input_gets_its_error(rllib_command, tmp_path, arguments, message):
    write(tmp_path / "one", [1, 2])
    write(tmp_path / "elsewhere", [1, 2], env="Pendulum-v1")
    (tmp_path / "empty").mkdir()
    for lr in (0.1, 0.2):
        write(tmp_path / "searched" / f"{lr}", [1], lr=lr)
        write(tmp_path / "nameless" / f"{lr}", [1], env="", lr=lr)
    result = rllib_command("compare", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
