"""Exit codes and messages of commands: 0 done, 1 failed, 2 the user's mistake, 130 interrupted."""

import ast
import functools
import numbers
import re
import shlex
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from rllib.cli.leftovers import removed_if_unused
from rllib.config.conflicts import Remedy, SettingsError
from rllib.did_you_mean import nearest
from rllib.notices import shown
from rllib.runs.safe_files import is_of_full_disk
from rllib.storage.foreign_files import printable

EXIT_FAILURE = 1
EXIT_MISTAKE = 2
EXIT_SIGNAL = 128  # plus the signal's number, as shells do

_LIBRARY = Path(__file__).parents[1]
_LIBRARY_FOLDERS = (str(_LIBRARY), str(_LIBRARY.with_name("runtime")), str(Path(click.__file__).parent))
# Code that is not the user's: Python's own modules, those built into it, and installed packages.
_OTHERS_FOLDERS = (*_LIBRARY_FOLDERS, sysconfig.get_path("stdlib"), "<frozen")
_PACKAGES = {"site-packages", "dist-packages"}
# A frame of a traceback with its lines of code, which are indented further.
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line \d+.*\n(?:    .*\n)*', re.MULTILINE)


# What the library advises programs to write, and what one types instead where a command has that option.
_LOADING = (
    (r"(?:\w+\.from_checkpoint\(path\), or )?from_checkpoint\(path, load_user_code=True\)", "--load-user-code"),
    (r"load_user_code=True(?: \(in [^)]*\))?(?:, or rllib \w+ --load-user-code)?", "--load-user-code"),
    (r", or give these settings yourself: from_checkpoint\(.*\)(?=\.)|; or give it again, in [^.]*(?=\.)", ""),
)
# Advice to say what columns of recorded steps are; the file's name of one may be a placeholder.
_SCHEMA = re.compile(r"input_read_schema=(?P<schema>\{'(?P<ours>\w+)': (?:(?P<name>[A-Z]+)|'[^'{}]*'|\[[^\]{}]*\])\})")
_SECTION = re.compile(
    r"\.(environment|rollouts|framework|training|resources|learners|evaluation|multi_agent|offline_data|exploration"
    r"|checkpointing|debugging|fault_tolerance|reporting)(?=\()"
)


def _assignments(settings: Mapping[str, str], before: str = "") -> str:
    return " ".join(f"{before}{shlex.quote(f'{name}={text}')}" for name, text in settings.items())


def _evaluate_options(settings: Mapping[str, str]) -> str:
    others = ", ".join(f"{name}: {text}" for name, text in settings.items() if name != "env")
    env = [f"--env {shlex.quote(settings['env'])}"] if "env" in settings else []
    return " ".join([*env, *([f"--config {shlex.quote(f'{{{others}}}')}"] if others else [])])


# How a command takes settings: setting -> value in YAML, as they are typed.
_TAKES_SETTINGS: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "train": _assignments,
    "tune": _assignments,
    "benchmark": _assignments,
    "serve": functools.partial(_assignments, before="--set "),
    "evaluate": _evaluate_options,
    "labs": functools.partial(_assignments, before="agent."),
}


class Mistake(click.ClickException):
    """A request of the user that cannot be fulfilled; the message says what can be done."""

    exit_code = EXIT_MISTAKE


class TakesSettings(click.Command):
    """A command that takes settings as KEY=VALUE, and says so where one is given as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").partition("=")[0].replace("-", "_")
            error.possibilities = [each for each in error.possibilities or () if nearest(name, [each.lstrip("-")])]
            if not error.possibilities:
                error.message = f"{error.message.rstrip('.')}. Settings have no dashes: {name}=VALUE."
            raise


@contextmanager
def user_input() -> Iterator[None]:
    """Turns a ValueError or TypeError into a Mistake, unless it has notes: then the user's environment raised it."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if getattr(error, "__notes__", None):
            raise
        raise Mistake(message_of(error)) from error


@contextmanager
def storage_input() -> Iterator[None]:
    """As `user_input`, for a place in remote storage that the user named: a missing package is a Mistake, too."""
    try:
        with user_input():
            yield
    except ImportError as error:
        raise Mistake(str(error)) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError about the path, a file next to it or a directory above it into a Mistake.

    Directories that were made for a file that is not written are removed.
    """
    try:
        with removed_if_unused(path):
            yield
    except OSError as error:
        if is_of_full_disk(error) or not isinstance(error.filename, str):
            raise
        named, directory = Path(error.filename).absolute(), path.absolute().parent
        if named != directory and directory not in named.parents and named not in directory.parents:
            raise
        raise Mistake(f"{path} cannot be written: {error.strerror}. Give another place.") from error


@contextmanager
def reported(verbose: bool) -> Iterator[None]:
    """Turns an exception of a command into a message and an exit code.

    A traceback is shown where it is the user's own code that raised, from its first frame on, and with `verbose`.
    """
    try:
        yield
    except click.ClickException as error:
        if verbose:
            _print_traceback()
        error.message = printable(as_typed(error.message))
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_SIGNAL + signal.SIGINT)
    except BrokenPipeError:
        raise  # the reader of the output has gone; click ends quietly
    except Exception as error:
        _show(error, verbose)
        sys.exit(EXIT_FAILURE)


def _print_traceback() -> None:
    click.echo(shown(traceback.format_exc()), err=True, nl=False)


def _show(error: Exception, verbose: bool) -> None:
    if verbose:
        _print_traceback()
    elif is_of_full_disk(error) and not _users_frames(error.__traceback__):
        what = f"{error.filename} cannot be written" if error.filename else "a file cannot be written"
        advice = " ".join(getattr(error, "__notes__", ())) or "Make room, then repeat the command."
        click.echo(printable(f"Error: the disk is full: {what}. {advice}"), err=True)
    elif (frames := _users_frames(error.__traceback__)) or getattr(error, "__notes__", None):
        raised = traceback.TracebackException(type(error), error, frames)
        # The traceback that comes from another process ends with the notes.
        raised.__notes__ = [note for note in raised.__notes__ or () if str(note) not in str(error)]
        click.echo(printable(shown(_FRAME.sub(_unless_of_library, "".join(raised.format())))).rstrip(), err=True)
    else:
        click.echo(printable(as_typed(f"Error: {type(error).__name__}: {message_of(error)}")), err=True)


def message_of(error: Exception) -> str:
    """The message of an error; what ends mistakes in settings is in the words of the command that runs."""
    form = _form_of_command()
    if form is None or not isinstance(error, SettingsError):
        return str(error)

    def in_words(remedy: Remedy) -> str:
        try:
            return form({name: _as_yaml(value) for name, value in remedy.items()})
        except ValueError:  # code cannot be typed
            return error.in_python(remedy)

    return error.text(in_words)


def typed_settings(settings: Mapping[str, Any]) -> str:
    """Settings as one types them in a shell, KEY=VALUE; what cannot be typed is shown as Python shows it."""
    return _assignments({name: _typed_or_shown(value) for name, value in settings.items()})


def _typed_or_shown(value: Any) -> str:
    try:
        return _as_yaml(value)
    except ValueError:
        return repr(value)


def _form_of_command() -> Callable[[Mapping[str, str]], str] | None:
    """How the command that runs takes settings; None if it takes none, or no command runs."""
    context = click.get_current_context(silent=True)
    return None if context is None else _TAKES_SETTINGS.get(context.command.name or "")


def as_typed(message: str) -> str:
    """A text of the library whose advice is in the words of the command that runs: `.training(lr=1e-3)` as lr=1e-3,
    `load_user_code=True` as --load-user-code. What the command has no option for is left as it is. Logins are removed
    from URLs: a terminal's output is passed on and kept.

    It is for advice that is part of a text, such as that of environments, networks and logs; mistakes in settings are
    data (`message_of`).
    """
    message = shown(message)
    context = click.get_current_context(silent=True)
    if context is None:
        return message
    message = re.sub(r"^(\w+)(Config .*)Its describe\(\) lists", r"\1\2rllib config \1 lists", message)
    if any(parameter.name == "load_user_code" for parameter in context.command.params):
        for pattern, typed in _LOADING:
            message = re.sub(pattern, typed, message)
    if any(parameter.name == "columns" for parameter in context.command.params):
        message = _SCHEMA.sub(_as_columns, message)
        message = message.replace("input_read_schema names", "--columns names")
    form = _form_of_command()
    found = "" if form is None else message
    parts, end = [], 0
    for section in _SECTION.finditer(found):
        stop = _end_of_call(message, section.end())
        if end <= section.start() < section.end() < stop and (settings := _settings_in(message[section.end() : stop])):
            parts += [message[end : section.start()], form(settings)]
            end = stop
    return "".join([*parts, message[end:]])


def _as_columns(found: re.Match) -> str:
    """A setting input_read_schema as the options --columns; as it is, if it is none that can be typed."""
    try:
        schema = ast.literal_eval(found["schema"])
    except (SyntaxError, ValueError):
        schema = {found["ours"]: found["name"]} if found["name"] else {}
    if not isinstance(schema, dict):
        return found[0]
    entries = (f"{ours}={each if isinstance(each, str) else ','.join(each)}" for ours, each in schema.items())
    return " ".join(f"--columns {shlex.quote(entry)}" for entry in entries) or found[0]


def _end_of_call(text: str, start: int) -> int:
    """Place behind the parenthesis that closes the one at `start`; `start` if none does."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return start


def _settings_in(arguments: str) -> dict[str, str]:
    """Setting -> value, as it is typed, of a call's arguments such as "(lr=1e-3)"; {} if they cannot be typed."""
    try:
        call = _Placeholders().visit(ast.parse(f"f{arguments}", mode="eval")).body
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if call.args:  # .environment("CartPole-v1")
            given = {"env": call.args[0], **given}
        return {name: _as_yaml(ast.literal_eval(value)) for name, value in given.items()}
    except (SyntaxError, ValueError, TypeError):
        return {}


class _Placeholders(ast.NodeTransformer):
    """Makes texts of names in capitals, which represent what the user has."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(node.id) if node.id.isupper() else node


def _as_yaml(value: Any) -> str:
    """A plain value in the YAML that users type; raises a ValueError for any other object."""
    match value:
        case None | bool():
            return {True: "true", False: "false", None: "null"}[value]
        case numbers.Integral():
            return repr(int(value))  # numpy's own have other forms
        case numbers.Real():
            return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text := repr(float(value)), text)
        case str():
            return value if _is_plain(value) else _quoted(value)
        case list() | tuple():
            return f"[{', '.join(map(_as_yaml, value))}]"
        case dict():
            return f"{{{', '.join(f'{_as_yaml(key)}: {_as_yaml(item)}' for key, item in value.items())}}}"
    if value is ...:
        return "..."
    raise ValueError(f"{value!r:.80} cannot be typed")


def _quoted(text: str) -> str:
    import yaml  # `rllib --help` imports this module

    if "\\" not in repr(text):
        return repr(text)
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=float("inf")).rstrip("\n")


def _is_plain(text: str) -> bool:
    """Whether a text is read as itself without quotation marks."""
    import yaml  # `rllib --help` imports this module

    try:
        is_text = yaml.safe_load(text) == text
    except yaml.YAMLError:  # "*" is the name of an alias there
        return False
    return is_text and re.fullmatch(r"[\w./*-]+", text) is not None and not _is_number(text)


def _is_number(text: str) -> bool:
    """Whether users' values of this text are numbers; PyYAML takes some, such as 1e5, for texts."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unless_of_library(frame: re.Match) -> str:
    """Text of a traceback's frame; empty for a frame of the library."""
    return "" if frame["file"].startswith(_LIBRARY_FOLDERS) else frame[0]


def _users_frames(frames):
    """Traceback from the user's first frame on; None if there is none."""
    while frames and not _is_users(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames


def _is_users(file: str) -> bool:
    return not file.startswith(_OTHERS_FOLDERS) and _PACKAGES.isdisjoint(Path(file).parts)
