"""`rllib compare` over runs that are written here."""

import json
import math
import re

import pytest

from tests.cli.written_search import write_search


def write(directory, rates, env="CartPole-v1", length=5, **params):
    """Runs whose return grows by their rate in each 100 steps."""
    for seed, rate in enumerate(rates):
        place = directory / f"{env}_{seed}"
        place.mkdir(parents=True)
        results = [
            {"timesteps_total": 100 * t, "episode_reward_mean": rate * t, "policy_reward_mean": {"shared": rate}}
            for t in range(1, length + 1)
        ]
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
    head, titles, one, other, _, against, difference, _, sentence, note = result.output.splitlines()
    assert head == "episode return at 400 environment steps, on CartPole-v1"
    assert titles.split() == ["method", "seeds", "iqm", "95", "%", "interval", "best", "steps", "time"]
    assert one.split()[:3] == ["one", "4", "10"] and one.split()[-3:] == ["20", "500", "-"]  # between 8 and 12
    assert other.split() == ["other", "4", "12", "12", "to", "12", "12", "400", "-"]
    assert against.startswith("against one  difference") and difference.startswith("other        +2 ")
    assert sentence.startswith("With 4 seeds each, one reached an interquartile mean episode return of 10 (95 % ")
    assert (
        sentence.endswith("This does not show a difference at the 5 % level.") and "the difference is 2 (" in sentence
    )
    assert note.startswith("Note: ") and "ends at timesteps_total=400, and the longest run at 500" in note


def test_directories_of_one_name_are_named_by_what_differs(rllib_command, tmp_path):
    for place in ("ppo", "dqn"):
        write(tmp_path / place / "all", [1, 2])
    result = rllib_command("compare", tmp_path / "ppo" / "all", tmp_path / "dqn" / "all")
    assert [line.split()[0] for line in result.output.splitlines()[2:4]] == ["ppo/all", "dqn/all"]


def methods(result):
    """Method -> number of seeds, of the JSON of a comparison."""
    assert result.exit_code == 0, result.output
    return {name: sum(each["runs"]) for name, each in json.loads(result.output)["methods"].items()}


def test_seeds_of_equal_settings_are_one_method(rllib_command, tmp_path):
    for lr in (0.1, 0.2):
        write(tmp_path / "search" / f"{lr}", [1, 2, 3], lr=lr)
    assert methods(rllib_command("compare", "search", "--json")) == {"lr=0.1": 3, "lr=0.2": 3}
    runs = sorted(tmp_path.glob("search/*/*"))
    assert methods(rllib_command("compare", *runs, "--json")) == {"lr=0.1": 3, "lr=0.2": 3}
    found = json.loads(rllib_command("compare", "search", "--json").output)
    assert [each["settings"] for each in found["methods"].values()] == [{"lr": 0.1}, {"lr": 0.2}]
    assert found["methods"]["lr=0.1"]["seeds"] == [0, 1, 2]


def test_experiments_of_equal_settings_are_compared_all_the_same(rllib_command, tmp_path):
    """Their code may differ; and two runs of one seed are no two samples."""
    for place in ("before", "after"):
        write(tmp_path / place, [1, 2], lr=0.1)
    assert methods(rllib_command("compare", "before", "after", "--json")) == {"before": 2, "after": 2}
    runs = sorted(tmp_path.glob("*/CartPole-v1_0"))
    assert set(methods(rllib_command("compare", *runs, "--json")).values()) == {1}


def test_a_sentence_says_what_many_seeds_show(rllib_command, tmp_path):
    write(tmp_path / "good", [11, 12, 13, 14, 15])
    write(tmp_path / "poor", [1, 2, 3, 4, 5])
    found = json.loads(rllib_command("compare", "good", "poor", "--json").output)
    (contrast,) = found["comparisons"]
    assert contrast["p"] == contrast["p_corrected"] == pytest.approx(2 / 252)  # of 5 + 5 runs in all divisions
    assert contrast["shows_a_difference"] and contrast["improvement"]["value"] == 0
    assert contrast["effect"] == pytest.approx(-10 / math.sqrt(2.5) * (1 - 3 / 31))  # rates, times 5 in both parts
    assert contrast["difference"]["value"] == -50
    assert found["sentences"] == [contrast["sentence"]]
    without_ends = re.sub(r"(?<=[( ])-?[\d.]+ to -?[\d.]+", "A to B", contrast["sentence"])
    assert without_ends == (
        "With 5 seeds each, good reached an interquartile mean episode return of 65 (95 % interval A to B) and poor 15 "
        "(95 % interval A to B) on CartPole-v1 at 500 environment steps; the difference is -50 (A to B; p = 0.0079 in "
        "a permutation test). good is better on average, at the 5 % level."
    )
    of_cost = json.loads(rllib_command("compare", "good", "poor", "--mode", "min", "--json").output)["comparisons"][0]
    assert of_cost["sentence"].endswith("poor is better on average, at the 5 % level.")
    assert of_cost["improvement"]["value"] == 1


def test_few_seeds_show_nothing_and_the_sentence_says_how_many_would(rllib_command, tmp_path):
    write(tmp_path / "good", [11, 12, 13])
    write(tmp_path / "poor", [1, 2, 3])
    write(tmp_path / "single", [100])
    few = rllib_command("compare", "good", "poor").output
    assert "p = 0.1 " in few and "So few seeds cannot show a difference at the 5 % level: train 4 or more" in few
    alone = rllib_command("compare", "good", "single").output
    assert "With 3 seeds of good and one seed of single, nothing may be concluded:" in alone
    (contrast,) = json.loads(rllib_command("compare", "good", "single", "--json").output)["comparisons"]
    assert contrast["p"] is None and not contrast["shows_a_difference"]
    three = json.loads(rllib_command("compare", "good", "poor", "single", "--json").output)["sentences"]
    assert len(three) == 2 and "corrected" not in three[0], "what cannot be tested is not corrected for"
    assert "Train 5 seeds or more of each" in three[1], "5 for two comparisons: 2 / 70 is above 0.025"
    one = rllib_command("compare", "single").output
    assert "single reached an episode return of 500 on CartPole-v1 at 500 environment steps in one run" in one


def test_several_comparisons_are_corrected(rllib_command, tmp_path):
    for name, rates in (("base", [1, 2, 3, 4, 5]), ("far", [11, 12, 13, 14, 15]), ("near", [2, 3, 4, 5, 6])):
        write(tmp_path / name, rates)
    found = json.loads(rllib_command("compare", "base", "far", "near", "--json").output)["comparisons"]
    assert [each["method"] for each in found] == ["far", "near"]
    assert found[0]["p_corrected"] == pytest.approx(2 * found[0]["p"])  # Holm: the least p is multiplied by all
    assert (
        found[1]["p_corrected"] == pytest.approx(found[1]["p"])
        and "corrected for 2 comparisons" in found[1]["sentence"]
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], 2.0 * 4),  # the value at 400 of rate 2
        (["--by", "last"], 2.0 * 5),
        (["--at", "250"], 2.0 * 2.5),
        (["--by", "area"], 2.0 * 2.5),  # of a line from 1 to 4
        (["--by", "area", "--at", "250"], 2.0 * 1.75),
    ],
)
def test_the_score_of_a_run(rllib_command, tmp_path, options, expected):
    write(tmp_path / "one", [2])
    write(tmp_path / "short", [3], length=4)
    found = json.loads(rllib_command("compare", "one", "short", *options, "--json").output)
    assert found["methods"]["one"]["value"] == pytest.approx(expected)


def test_a_killed_run_and_one_without_results(rllib_command, tmp_path):
    write(tmp_path / "one", [1, 2, 3])
    with open(tmp_path / "one" / "CartPole-v1_0" / "result.json", "a") as file:
        file.write('{"timesteps_total": 600, "episode_rew')
    (tmp_path / "one" / "CartPole-v1_2" / "result.json").write_text("")
    result = rllib_command("compare", "one")
    assert "With 2 seeds, one reached" in result.output
    assert "Note: CartPole-v1_2 has no result yet and is left out." in result.output
    (tmp_path / "one" / "CartPole-v1_2" / "error.txt").write_text("ValueError\n")
    assert "Note: CartPole-v1_2 has failed without a result and" in rllib_command("compare", "one").output


def test_a_metric_that_is_nan_in_a_run_is_an_error(rllib_command, tmp_path):
    write(tmp_path / "one", [1, 2])
    place = tmp_path / "one" / "CartPole-v1_1" / "result.json"
    place.write_text('{"timesteps_total": 100, "episode_reward_mean": null}\n')
    result = rllib_command("compare", "one")
    assert result.exit_code == 2 and "'episode_reward_mean' of CartPole-v1_1 is NaN in all results" in result.stderr


def test_the_metric_of_an_experiment_is_compared(rllib_command, tmp_path):
    write_search(tmp_path / "search", seeds=4)
    found = json.loads(rllib_command("compare", "search", "--json").output)
    assert (found["metric"], found["mode"], list(found["methods"])) == ("loss", "min", ["rate=1", "rate=2"])
    printed = rllib_command("compare", "search").output
    assert printed.startswith("loss (less is better) at 2 iterations\n"), "its results do not count steps"
    refused = rllib_command("compare", "search", "--x", "time_total_s")
    assert refused.exit_code == 2 and "no result has a number 'time_total_s'" in refused.stderr


def test_the_seeds_of_a_trial_are_samples(rllib_command, tmp_path):
    for rate in (1, 2):
        place = tmp_path / "search" / f"climb_{rate}"
        place.mkdir(parents=True)
        seeds = {str(seed): {"score": rate + seed} for seed in range(4)}
        (place / "result.json").write_text(json.dumps({"training_iteration": 1, "score": rate, "seeds": seeds}) + "\n")
        (place / "params.json").write_text(json.dumps({"rate": rate}))
    found = json.loads(rllib_command("compare", "search", "--metric", "score", "--json").output)["methods"]
    assert [(each["runs"], each["seeds"]) for each in found.values()] == [([4], [0, 1, 2, 3])] * 2


def test_a_search_of_many_settings_is_printed_in_short(rllib_command, tmp_path):
    for index in range(12):
        write(tmp_path / "search" / f"{index}", [1 + index, 2 + index], lr=index, b=index // 6)
    lines = rllib_command("compare", "search").output.splitlines()
    assert len([line for line in lines if line.startswith("With")]) == 8 and "... and 3 more sentences" in lines[-1]
    assert 'With 2 seeds each, "lr=0, b=0" reached' in lines[-9] or '"b=0, lr=0" reached' in lines[-9]


def test_trained_runs_are_compared_and_reported(rllib_command, tmp_path):
    """Of real algorithms, whose params.json and result.json the commands above only imitate."""
    for algorithm in ("PG", "A2C"):
        settings = ("train_batch_size=80", "min_sample_timesteps_per_iteration=0", "--stop", "steps=1000")
        done = rllib_command("train", algorithm, "CartPole-v1", *settings, "--seeds", 2, "--name", algorithm.lower())
        assert done.exit_code == 0, done.output
    found = json.loads(rllib_command("compare", "results/pg", "results/a2c", "--json").output)
    assert list(found["methods"]) == ["PG", "A2C"]
    assert [each["seeds"] for each in found["methods"].values()] == [[0, 1], [0, 1]]
    assert found["methods"]["PG"]["settings"]["algorithm"] == "PG" and found["methods"]["PG"]["time_s"] > 0


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
    head, first, *_ = rllib_command("compare", *of_cost, "improvement").output.splitlines()
    assert head.startswith("episode return (less is better) at 400") and first.startswith("P(one < other)  0.625 [")
    # Of the scores 4, 8, 12 and 16 none is below 4, and three are below 16.
    found = json.loads(rllib_command("compare", *of_cost, "profile", "--json").output)
    assert found["methods"]["one"]["value"][0] == 0 and found["methods"]["one"]["value"][-1] == 0.75
    assert found["thresholds"][0] == 4
    assert "one, share of 4 runs below\n" in rllib_command("compare", *of_cost, "profile").output
    assert "\none     4      10   " in rllib_command("compare", *of_cost, "iqm").output


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


def test_methods_of_one_folder_on_different_environments_are_named_by_their_settings(rllib_command, tmp_path):
    write(tmp_path / "all" / "plain", [1, 2], lr=0.1)
    write(tmp_path / "all" / "far", [1, 2], env="Pendulum-v1", lr=0.1)
    write(tmp_path / "all" / "other", [1, 2], lr=0.2)
    refused = rllib_command("compare", "all")
    assert refused.exit_code == 2
    assert "Pendulum-v1_0 and 3 more has CartPole-v1, Pendulum-v1 and other has CartPole-v1." in refused.stderr
    write(tmp_path / "all" / "fourth", [1, 2], env="Pendulum-v1", lr=0.2)
    assert "P(lr=0.1 > lr=0.2) " in rllib_command("compare", "all", "--measure", "improvement").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one", "--measure", "improvement"], "--measure improvement compares two methods or more"),
        (["one", "elsewhere/../one"], "one is given twice"),
        (["one/CartPole-v1_0", "one"], "one/CartPole-v1_0 lies in one, whose runs would count for both"),
        (["one", "nowhere"], "There is no directory nowhere"),
        (["one", "elsehwere"], "There is no directory elsehwere. Did you mean elsewhere?"),
        (["one", "empty"], "There is no result.json in empty or below it"),
        (["one", "pending"], "No run in pending has a result yet"),
        (["one", "--by", "last", "--at", "5"], "the last value of each run is at its own end"),
        (["one", "--by", "area", "--at", "100"], "there is no area"),
        (["one", "late"], "at timesteps_total=600, after CartPole-v1_1 has ended at 500. Train that one longer"),
        (["one", "elsewhere"], "one has CartPole-v1 and elsewhere has Pendulum-v1"),
        (["one", "--at", "501"], "ends at timesteps_total=500, before 501"),
        (["one", "--at", "99"], "has its first episode_reward_mean at timesteps_total=100, after 99"),
        (["one", "--metric", "episode_reward_maen"], "episode_reward_mean"),
        (
            ["one", "--metric", "policy_reward_mean/sharde"],
            "Did you mean policy_reward_mean/shared? They have: policy_",
        ),
        (
            ["one", "--metric", "evaluation/episode_reward_mean"],
            "Results have evaluations only with evaluation_interval",
        ),
        (["one", "--scale", "CartPole-v1=0"], "--scale CartPole-v1=0 must be ENV=LOW:HIGH"),
        (["one", "--scale", "CartPole-v1=5:5"], "must rise from score 0 to 1, but got 5 and 5"),
        (["one", "--scale", "CartPole-v0=0:5"], "there is a scale of CartPole-v0, but the runs are on CartPole-v1"),
    ],
)
def test_bad_input_gets_its_error(rllib_command, tmp_path, arguments, message):
    write(tmp_path / "one", [1, 2])
    write(tmp_path / "elsewhere", [1, 2], env="Pendulum-v1")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "pending", [1], length=0)
    write(tmp_path / "late", [1])
    (tmp_path / "late/CartPole-v1_0/result.json").write_text('{"timesteps_total": 600, "episode_reward_mean": 1}\n')
    result = rllib_command("compare", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
