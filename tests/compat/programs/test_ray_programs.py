"""The script that runs Ray's programs: which it finds, and what its table says."""

import ray_programs
from ray_programs import Outcome, Program


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_scripts_are_found_with_arguments_that_make_them_short(tmp_path):
    folder = tmp_path / "rllib" / "examples"
    write(folder / "envs" / "mine.py", "parser = add_rllib_example_script_args()")
    write(folder / "envs" / "__init__.py")
    write(folder / "envs" / "classes" / "helper.py")
    write(folder / "ray_tune" / "plain.py", "print()")
    write(tmp_path / "tune" / "examples" / "small.py", "'--smoke-test'; __name__ == '__main__'")
    write(tmp_path / "tune" / "examples" / "utils.py")
    found = {program.name: program.arguments for program in ray_programs.examples(tmp_path)}
    assert found == {"rllib/examples/envs/mine.py": ray_programs.USUAL, "rllib/examples/ray_tune/plain.py": ()}
    (of_tune,) = ray_programs.tune_examples(tmp_path)
    assert of_tune.name == "tune/examples/small.py" and of_tune.arguments == ("--smoke-test",)


def test_a_program_is_run_in_a_directory_of_its_own(tmp_path):
    write(tmp_path / "well.py", "import ray, os; assert not os.listdir()")
    write(tmp_path / "ill.py", "from ray.tune.search.ax import AxSearch\nAxSearch()\n")
    assert ray_programs.run(Program("well", tmp_path / "well.py"), 60).runs
    failed = ray_programs.run(Program("ill", tmp_path / "ill.py"), 60)
    assert not failed.runs
    assert failed.reason.startswith(
        "rllib.compat.programs.absent.NotServedError: ill.py:2: ray.tune.search.ax.AxSearch is not"
    )


def test_the_table_counts_what_runs():
    shown = ray_programs.table(
        {
            "rllib/examples/envs/a.py": Outcome(True, 1.0, ""),
            "rllib/examples/envs/b.py": Outcome(False, 1.0, "ValueError: a|b"),
            "document 0: tasks": Outcome(True, 1.0, ""),
        }
    )
    assert "### rllib/examples: 1 of 2 run" in shown
    assert "| `envs/b.py` | ValueError: a\\|b |" in shown
    assert "### Five documents: 1 of 1 run\n\n`0: tasks`." in shown
    assert "| `envs/a.py`" not in shown and "`envs/a.py`.\n" in shown


def test_rows_of_programs_that_have_not_run_again_are_kept():
    ran = Outcome(True, 1.0, "")
    earlier = ray_programs.table(
        {"document 0: tasks": ran, "rllib/examples/envs/a.py": Outcome(False, 1.0, "a | b"), "rllib/examples/b.py": ran}
    )
    shown = ray_programs.table({"rllib/examples/envs/a.py": ran}, earlier)
    assert "Five documents: 1 of 1 run" in shown and "rllib/examples: 2 of 2 run" in shown
    assert ray_programs.table({}, earlier) == earlier
    many = {f"rllib/examples/{'long_name_' * 9}{number}.py": ran for number in range(9)}  # of several lines
    assert "9 of 9 run" in ray_programs.table({}, ray_programs.table(many))


def test_a_long_reason_is_cut_between_words():
    shown = ray_programs.table({"rllib/examples/a.py": Outcome(False, 1.0, "word " * 99)})
    assert f"| {'word ' * 27}... |" in shown
