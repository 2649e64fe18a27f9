"""README.md, docs/, notebooks: each snippet of Python runs, each `rllib ...` is a command that begins what it says."""

import ast
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import fsspec
import gymnasium
import pytest
from click.testing import CliRunner

from rllib.algorithms.base.config import AlgorithmConfig
from rllib.cli import command

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


# A snippet below this line of its page runs with the slow tests.
SLOW = "<!-- slow -->\n"


def snippets(page: str) -> Iterator:
    found = re.finditer(rf"^({SLOW})?```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    for number, each in enumerate(found):
        yield pytest.param(each[2], id=f"{page}-{number}", marks=[pytest.mark.slow] if each[1] else [])


PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
SNIPPETS = [snippet for page in PAGES for snippet in snippets(page)]


def code_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
OPTIONAL = ("onnxruntime",)  # what a snippet may need that the tests do not bring
NEWER = ("Taxi-v4",)  # environments that the oldest supported gymnasium lacks; of gymnasium 1.3


def run(command, directory):
    return subprocess.run(command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def server():
    """A process that runs files in forks of itself (snippet_server.py): torch is imported once."""
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("snippet_server.py")],
        env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        yield process
        os.killpg(process.pid, signal.SIGKILL)  # with what a snippet that did not end has left


@pytest.mark.parametrize("snippet", [*SNIPPETS, *(pytest.param(code_of(path), id=path.stem) for path in NOTEBOOKS)])
def test_snippet_runs(snippet, server, tmp_path):
    for name in OPTIONAL:
        if f"import {name}" in snippet and not find_spec(name):
            pytest.skip(f"needs {name}")
    if missing := [name for name in NEWER if name in snippet and name not in gymnasium.registry]:
        pytest.skip(f"needs a newer gymnasium, for {missing[0]}")
    path = tmp_path / "snippet.py"
    path.write_text(snippet)
    print(path, file=server.stdin, flush=True)
    code = server.stdout.readline()
    assert code == "0\n", (tmp_path / "output.txt").read_text()


def test_the_shell_commands_of_tune(tmp_path):
    (page,), (file,) = blocks("docs/guide/tune.md", "sh"), blocks("docs/guide/tune.md", "yaml")
    (tmp_path / "search.yaml").write_text(file)
    for line in page.splitlines():
        found = run([sys.executable, "-m", *shlex.split(line)], tmp_path)
        assert found.returncode == 0, line + "\n" + found.stdout + found.stderr
    assert "rllib evaluate results/" in found.stdout and (tmp_path / "plot.html").exists()


def test_there_are_snippets():
    assert len(SNIPPETS) >= 60 and len(NOTEBOOKS) >= 3


def indented_blocks(page: str) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"(?:^    .*\n(?:\n(?=    ))*)+", text, re.MULTILINE)
    return [textwrap.dedent(block).strip() for block in found]


def is_python(block: str) -> bool:
    """Whether a block, or its first lines, are statements of Python, or `.methods()` without what they belong to."""
    names = (ast.Call, ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.ClassDef)
    for end in range(1, block.count("\n") + 2):
        beginning = "\n".join(block.split("\n")[:end])
        for code in (beginning, re.sub(r"^\.", "x.", beginning)):
            try:
                tree = ast.parse(code)
            except SyntaxError:
                continue
            if any(isinstance(node, names) for node in ast.walk(tree)):
                return True
    return False


@pytest.mark.parametrize("page", PAGES)
def test_python_is_fenced(page):
    """What is only indented does not run here."""
    assert [block for block in indented_blocks(page) if is_python(block)] == []


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("algo = config.build()", True),
        (".rollouts(num_envs_per_worker=64)\n.resources(num_gpus=1)", True),
        (".reporting(log_dir=1)\nrllib train PPO CartPole-v1", True),
        ("from a import b\n\nassert b", True),
        ("rllib train PPO CartPole-v1 lr=1e-3", False),
        ("make test    # lint and tests", False),
        ("config:\n  env_wrappers:\n    - gymnasium.wrappers.ClipReward: {max_reward: 1}", False),
        ("ValueError: Walk: the observation[0] = 5.0 lies above (returned by\nstep()).", False),
    ],
)
def test_python_is_recognised(block, expected):
    assert is_python(block) is expected


@pytest.mark.parametrize("page", PAGES)
def test_programs_of_other_libraries_are_marked(page):
    """```py is for these: highlighted, and not run."""
    foreign = re.compile(r"^(import|from) (stable_baselines3|ray)\b", re.MULTILINE)
    assert all(foreign.search(block) for block in blocks(page, "py"))


# ---- shell

PLACEHOLDERS = {
    "N": "1", "FILE": "ppo/cartpole", "FILE.yaml": "ppo/cartpole", "FILE.py": "tuned.py", "FILES...": "tuned.py",
    "ALGO": "PPO", "{...}": "{}"
}  # fmt: skip
# Files that commands name.
FILES = {
    "ppo.yml": "CartPole-v1: {n_timesteps: 100, policy: MlpPolicy}",
    "hyperparams/sac.yml": "BipedalWalker-v3: {n_timesteps: 100, policy: MlpPolicy}",
    "my_module.py": "from rllib import PPO\n\nclass SPO(PPO): pass\n",
    "tuned.py": "from rllib import PPOConfig\nconfig = PPOConfig().environment('CartPole-v1')\n",
}
# Of the shell; what stands behind one is no argument.
OPERATORS = ("&&", "&", "|", ">")


def shell_commands(page: str) -> Iterator[list[str]]:
    """Arguments of every `rllib ...` in a page's code that is no Python, by line and in the text."""
    text = re.sub(r"^```py.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    fenced = re.findall(r"^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    .*\n", text, re.MULTILINE)
    lines = "".join([*fenced, *indented]).replace("\\\n", " ").splitlines()
    text = re.sub(r"^```.*?^```$|^    [^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    for line in [*lines, *re.findall(r"`([^`]*)`", text)]:
        if re.search(r"\brllib [a-z-]", line) and "import " not in line:
            yield from _commands(line)


def _commands(line: str) -> Iterator[list[str]]:
    words = shlex.split(line, comments=True)
    for number, word in enumerate(words):
        if " rllib " in word:
            yield from _commands(word)  # given to another command, as one word
        elif word.rpartition("/")[2] == "rllib":
            own = itertools.takewhile(lambda each: each not in OPERATORS, words[number + 1 :])
            yield [PLACEHOLDERS.get(each, each) for each in own]
            return


COMMANDS = sorted({(page, tuple(words)) for page in PAGES for words in shell_commands(page)})


def is_mention(words: tuple[str, ...]) -> bool:
    """Whether this names a command, or an option of it, and lacks what the command is about."""
    first = words[1] if len(words) > 1 else "-"
    return first.startswith("-") and not re.search(r" (-f|--file|--run) \S| --resume", " ".join(words))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Directory with a run, "run", and an experiment, "NAME", of one iteration each."""
    path = tmp_path_factory.mktemp("results")
    quick = "num_rollout_workers=0 train_batch_size=20 sgd_minibatch_size=10 --stop iterations=1 -q --results-dir"
    for verb, name in (("train", "run"), ("tune", "NAME")):
        result = CliRunner().invoke(command, f"{verb} PPO CartPole-v1 {quick} {path} --name {name}".split())
        assert result.exit_code == 0, result.output
    return path


class Begun(BaseException):
    """The command has read all that was given, and would begin now."""


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[" ".join(words) for _, words in COMMANDS])
def test_a_command_of_a_page_is_understood(page, words, tmp_path, monkeypatch, results, own_modules):
    """Of all commands the options; of train, tune and config also algorithm, settings, file, run, stop criteria."""

    def begin(*_, **__):
        raise Begun

    verb, *arguments = words
    if verb.startswith("-"):
        assert CliRunner().invoke(command, words).exit_code == 0
        return
    found = command.get_command(click.Context(command), verb)
    assert found, f"there is no rllib {verb}"
    if isinstance(found, click.Group) and arguments and not arguments[0].startswith("-"):
        verb, *arguments = arguments
        found = found.get_command(click.Context(found), verb)
        assert found, f"there is no rllib {' '.join(words[:2])}"
    options = {option for parameter in found.params for option in parameter.opts}
    assert options.issuperset(word.partition("=")[0] for word in arguments if re.match("--?[a-z]", word))
    if is_mention((verb, *arguments)):
        return
    # A page may have the reader write a file: its name is the first line.
    named = [block for kind in ("python", "py") for block in blocks(page, kind) if re.match(r"# \S+\.py\n", block)]
    written = {block[2:].partition("\n")[0]: block for block in named}
    for name, text in {**FILES, **written, "search.yaml": blocks("docs/guide/tune.md", "yaml")[0]}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which --load-user-code adds the directory
    if verb not in ("train", "tune", "config"):
        found.make_context(verb, arguments)
        return
    if verb == "tune":
        shutil.copytree(results, tmp_path / "results")
        for place in (word for word in arguments if word.startswith("results/") and "--resume" in arguments):
            shutil.copytree(results / "NAME", tmp_path / place)
    elif "--resume" in arguments:
        place = arguments[arguments.index("--resume") + 1]
        if "://" in place:
            return
        shutil.copytree(results / "run", tmp_path / place)
    monkeypatch.setattr(sys, "argv", ["rllib", *words])
    monkeypatch.setattr(AlgorithmConfig, "build", begin)
    monkeypatch.setattr("rllib.cli.verbs.train._restore", begin)
    monkeypatch.setattr("rllib.cli.verbs.tune.prepare", begin)
    monkeypatch.setattr("rllib.cli.verbs.train._run_seeds", begin)
    memory = fsspec.url_to_fs("memory://nothing")  # packages and networks of other protocols are not here
    monkeypatch.setattr("rllib.remote.filesystem._opened", lambda url: memory)
    try:
        result = CliRunner().invoke(command, words)
    except Begun:
        return
    assert verb == "config" and result.exit_code == 0, result.output


def test_there_are_commands():
    assert len(COMMANDS) >= 200
